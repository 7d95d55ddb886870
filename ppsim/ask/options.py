"""Options declared once: as fields of frozen dataclasses, read by the command line, Python and the
live page alike.

A *group* is a frozen dataclass whose fields are made by :func:`option`. A *request* is one too, of
options and groups; :func:`make` makes one of flat values, however many groups hold them::

    @dataclass(frozen=True)
    class Shape:
        devices: int | None = option("--devices", "--pp", type=int, help="Pipeline devices, P.")

    @dataclass(frozen=True, kw_only=True)
    class RunRequest(Request):
        shape: Shape = group(Shape, "Shape")
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

from ppsim.ask.types import Counts, Numbers

OPTION, GROUP = "option", "group"
# The click types that read fields of these types, unless the option names another.
READERS = {"int": int, "float": float, "Value": Numbers(), "list[int]": Counts()}
OBJECT = "object"  # a setting: given in Python alone, as an object


@dataclass(frozen=True)
class Option:
    """The declaration of one option."""

    name: str  # the field's, and the keyword in Python and JSON
    # on the command line, the first one in messages; empty for arguments
    spellings: tuple[str, ...]
    type: Any  # click's or ours, which reads a value's text
    default: Any  # the value where none is given
    help: str  # one line
    section: str  # of the command's help
    common: bool  # whether the short help has it
    settings: Mapping[str, Any]  # further arguments of click's option
    annotation: str = ""  # the type of its field, as source text

    @property
    def many(self) -> bool:
        """True if it may be given several times, or takes several words."""
        return bool(self.settings.get("multiple")) or self.settings.get("nargs") == -1

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
        """Its names in Python and JSON: the field's, and its long spellings with underscores."""
        long = (
            part for each in self.spellings for part in each.split("/")[:1] if part.startswith("--")
        )
        return {self.name, *(each.removeprefix("--").replace("-", "_") for each in long)}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A user's question. Subclasses declare the options; their docstring is the help of the
    command.

    Attributes:
        question: its name, which is the command's.
        place: the section of ``ppsim --help`` that lists it, and its rank there; under "More"
            without one.
        tables: whether its files may be tables: csv, json, parquet.
        needs: rows of :class:`ppsim.ask.given.Need`: the rules of its options.
        given: names of the options that the user gave, to tell them from defaults.
    """

    question: ClassVar[str]
    place: ClassVar[tuple[str, int]]
    tables: ClassVar[bool] = False
    needs: ClassVar[tuple[Any, ...]] = ()
    given: frozenset[str] = frozenset()

    def check(self) -> None:
        """Refuse a request that cannot succeed, before any work is done; raises InputError."""


R = TypeVar("R", bound=Request)


def option(
    *spellings: str,
    type: Any = None,
    help: str = "",
    default: Any = None,
    common: bool = False,
    **more: Any,
) -> Any:
    """Declare a field that is an option; ``more`` goes to click, such as ``metavar`` or
    ``multiple``.

    Where there is no ``type``, it is that of the field. The help shows a default that is a number
    or a word.
    """
    default = () if more.get("multiple") or more.get("nargs") == -1 else default
    if isinstance(default, str | int | float) and default != "" and not isinstance(default, bool):
        more.setdefault("show_default", True)
    return field(
        default=default,
        metadata={OPTION: Option("", spellings, type, default, help, "", common, more)},
    )


def common(*spellings: str, **more: Any) -> Any:
    """Declare a field that is an option, and has its place in the short help."""
    return option(*spellings, common=True, **more)


def flag(spelling: str, *others: str, **more: Any) -> Any:
    """Declare a field that is true or false; with ``--yes/--no`` it is neither where nothing else
    is the default.
    """
    more = (
        {"default": None} | more if "/" in spelling else {"default": False, "is_flag": True} | more
    )
    return option(spelling, *others, type=bool, **more)


def given_object(kind: str) -> Any:
    """Declare a field that only Python gives, an object of the class of this full name."""
    return field(
        default=None, metadata={OPTION: Option("", (), kind, None, "", "", False, {OBJECT: True})}
    )


def group(kind: type[Any], section: str = "") -> Any:
    """Declare a field that holds a group of options, shown in help under a heading."""
    return field(default_factory=kind, metadata={GROUP: kind, "section": section})


def list_options(kind: Any, section: str = "") -> tuple[Option, ...]:
    """List the options of a request or a group, in the order of its fields."""
    return _listed(kind, section)


@cache
def _listed(kind: Any, section: str) -> tuple[Option, ...]:
    return tuple(_list_options(kind, section))


def _list_options(kind: type[Any], section: str) -> Iterator[Option]:
    for each in fields(kind):
        if inner := each.metadata.get(GROUP):
            yield from list_options(inner, each.metadata["section"] or section)
        elif found := each.metadata.get(OPTION):
            taken = found.type or READERS.get(str(each.type).partition(" |")[0])
            named = getattr(each.type, "__name__", str(each.type))
            yield replace(
                found,
                name=each.name,
                section=found.section or section,
                type=taken,
                annotation=named,
            )


def make(kind: type[R], values: Mapping[str, Any], given: Collection[str]) -> R:
    """Make a request of flat values by option name; missing options have their defaults."""

    def fill(kind: type[Any], **own: Any) -> Any:
        for each in fields(kind):
            if inner := each.metadata.get(GROUP):
                own[each.name] = fill(inner)
            elif OPTION in each.metadata and each.name in values:
                own[each.name] = values[each.name]
        return kind(**own)

    made: R = fill(kind, given=frozenset(given))
    return made


def flatten(request: Any) -> dict[str, Any]:
    """Gather the values of a request and of its groups by option name."""
    values: dict[str, Any] = {}
    for each in fields(request):
        if GROUP in each.metadata:
            values |= flatten(getattr(request, each.name))
        elif OPTION in each.metadata:
            values[each.name] = getattr(request, each.name)
    return values
