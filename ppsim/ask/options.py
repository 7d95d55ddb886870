"""Declarations of options: fields of frozen dataclasses, shared by the command line, Python and the
live page.

A *group* is a frozen dataclass whose fields are made by :func:`option`. A *request* is one whose
fields are options and groups; :func:`make` makes it from flat values by option name::

    @dataclass(frozen=True)
    class Shape:
        devices: int | None = option("--devices", "--pp", type=int, help="Pipeline devices, P.")

    @dataclass(frozen=True, kw_only=True)
    class RunRequest(Request):
        shape: Shape = group(Shape, "Shape")
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from keyword import iskeyword
from typing import Any, ClassVar, TypeVar

from ppsim.ask.types import Counts, Numbers, own_type

OPTION, GROUP = "option", "group"
# click types by the type of the field, for options that name none
READERS = {"int": int, "float": float, "Value": Numbers(), "list[int]": Counts()}
OBJECT = "object"  # a setting of options that only Python gives, as an object


@dataclass(frozen=True)
class Option:
    """The declaration of one option.

    Attributes:
        name: the name of the field, and the keyword in Python and JSON.
        spellings: the spellings on the command line; messages use the first. Empty for arguments.
        type: the click type that converts a text.
        default: the value if none is given.
        help: the help as one line.
        section: the section of the command's help.
        common: True if the short help lists it.
        settings: further arguments of click's option.
        annotation: the type of the field as source text.
    """

    name: str
    spellings: tuple[str, ...]
    type: Any
    default: Any
    help: str
    section: str
    common: bool
    settings: Mapping[str, Any]
    annotation: str = ""

    @property
    def many(self) -> bool:
        """True if it may be given several times, or has several words."""
        return bool(self.settings.get("multiple")) or self.settings.get("nargs") == -1

    @property
    def joins_lists(self) -> bool:
        """True if its text has values separated by commas, which Python may give as a list."""
        return re.search(r"\b(NumberTexts|Names)\b", self.annotation) is not None

    @property
    def is_object(self) -> bool:
        """True if only Python can set it."""
        return OBJECT in self.settings

    @property
    def is_argument(self) -> bool:
        """True if it is positional."""
        return not self.spellings and not self.is_object

    @property
    def spelling(self) -> str:
        """The name in messages: the first spelling, the placeholder of an argument, or the keyword
        of what only Python can set.
        """
        if self.is_object:
            return self.name
        return (
            self.spellings[0].partition("/")[0]
            if self.spellings
            else str(self.settings.get("metavar"))
        )

    @property
    def words(self) -> set[str]:
        """The names in Python and JSON: the keyword, and the long spellings with underscores."""
        long = (
            part for each in self.spellings for part in each.split("/")[:1] if part.startswith("--")
        )
        return {self.keyword, *(each.removeprefix("--").replace("-", "_") for each in long)}

    @property
    def keyword(self) -> str:
        """The name in Python's signatures: of the field if the command line has it as a spelling,
        else the first long spelling, unless that is a keyword of Python.
        """
        spelled = [
            each.partition("/")[0].removeprefix("--").replace("-", "_")
            for each in self.spellings
            if each.startswith("--")
        ]
        if not spelled or self.name in spelled or iskeyword(spelled[0]):
            return self.name
        return spelled[0]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The base of requests. Subclasses declare options; their docstring is the command's help.

    Attributes:
        question: the name of the question and of its command.
        place: the section of ``ppsim --help`` that lists it, and its rank there; without, it is
            listed under "More".
        tables: True if -o may write tables (csv, json, parquet).
        needs: the rules of its options, of :class:`ppsim.ask.given.Need`.
        given: the names of the options that the user gave; others have their defaults.
    """

    question: ClassVar[str]
    place: ClassVar[tuple[str, int]]
    tables: ClassVar[bool] = False
    needs: ClassVar[tuple[Any, ...]] = ()
    given: frozenset[str] = frozenset()

    def check(self) -> None:
        """Raise InputError if the request cannot succeed, before any work is done."""


R = TypeVar("R", bound=Request)


def option(
    *spellings: str,
    type: Any = None,
    help: str = "",
    default: Any = None,
    common: bool = False,
    **more: Any,
) -> Any:
    """Declare a field that is an option; ``more`` are settings of click, such as ``metavar``.

    Without ``type``, the type of the field decides. The help shows a default that is a number or a
    word.
    """
    default = () if more.get("multiple") or more.get("nargs") == -1 else default
    if isinstance(default, str | int | float) and default != "" and not isinstance(default, bool):
        more.setdefault("show_default", True)
    return field(
        default=default,
        metadata={OPTION: Option("", spellings, type, default, help, "", common, more)},
    )


def common(*spellings: str, **more: Any) -> Any:
    """Declare a field that is an option of the short help."""
    return option(*spellings, common=True, **more)


def flag(spelling: str, *others: str, **more: Any) -> Any:
    """Declare a field that is true or false; with ``--yes/--no`` its default is None."""
    defaults = {"default": None} if "/" in spelling else {"default": False, "is_flag": True}
    return option(spelling, *others, type=bool, **(defaults | more))


def given_object(kind: str, words: str = "") -> Any:
    """Declare a field that only Python gives: an object of the class with this full name.

    ``words`` is its line in Python's help.
    """
    declared = Option("", (), kind, None, words, "", False, {OBJECT: True})
    return field(default=None, metadata={OPTION: declared})


def group(kind: type[Any], section: str = "") -> Any:
    """Declare a field that is a group of options, under a heading of the help."""
    return field(default_factory=kind, metadata={GROUP: kind, "section": section})


def list_options(kind: Any, section: str = "") -> tuple[Option, ...]:
    """Return the options of a request or a group, in the order of its fields."""
    return _cached_options(kind, section)


@cache
def _cached_options(kind: Any, section: str) -> tuple[Option, ...]:
    return tuple(_options_of_fields(kind, section))


def _options_of_fields(kind: type[Any], section: str) -> Iterator[Option]:
    """Yield the options of a class, with names, types and sections filled in from its fields."""
    for each in fields(kind):
        if inner := each.metadata.get(GROUP):
            yield from list_options(inner, each.metadata["section"] or section)
        elif declared := each.metadata.get(OPTION):
            yield replace(
                declared,
                name=each.name,
                section=declared.section or section,
                type=own_type(declared.type or READERS.get(str(each.type).partition(" |")[0])),
                annotation=getattr(each.type, "__name__", str(each.type)),
            )


def make(kind: type[R], values: Mapping[str, Any], given: Collection[str]) -> R:
    """Return a request with flat values by option name; missing options have their defaults."""

    def fill(kind: type[Any], **content: Any) -> Any:
        for each in fields(kind):
            if inner := each.metadata.get(GROUP):
                content[each.name] = fill(inner)
            elif OPTION in each.metadata and each.name in values:
                content[each.name] = values[each.name]
        return kind(**content)

    request: R = fill(kind, given=frozenset(given))
    return request


def flatten(request: Any) -> dict[str, Any]:
    """Return the values of a request and of its groups, by option name."""
    values: dict[str, Any] = {}
    for each in fields(request):
        if GROUP in each.metadata:
            values |= flatten(getattr(request, each.name))
        elif OPTION in each.metadata:
            values[each.name] = getattr(request, each.name)
    return values
