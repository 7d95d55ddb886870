"""The typed options of a request, and rules on options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ppsim.ask.options import GROUP, Option, Request, flatten, list_options

ONLY_TABLES = (".parquet",)  # formats that can only be tables


@dataclass(frozen=True)
class TypedOptions:
    """The options of one request: all values, and the options that the user typed."""

    command: str  # the name of the question
    values: Mapping[str, Any]  # the values of all options, by name
    typed: Sequence[Option]  # the options that the user typed
    tables: bool = False  # True if -o writes tables too
    # the rules of the request and of its groups of options
    needs: Sequence[Need] = ()

    @classmethod
    def from_request(cls, request: Request) -> TypedOptions:
        """Return the options of a request."""
        typed = [each for each in list_options(type(request)) if each.name in request.given]
        needs = list_needs(type(request))
        return cls(request.question, flatten(request), typed, request.tables, needs)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """Return True if any of the options was typed."""
        return any(each.name in names for each in self.typed)

    def spellings(self, names: tuple[str, ...]) -> list[str]:
        """Return the first spellings of typed options, except switches that are off."""
        return [
            each.spelling
            for each in self.typed
            if each.name in names and self.values[each.name] is not False
        ]

    def writes(self, ability: str = "") -> bool:
        """Return True if -o writes a file, of a format with the given ability of
        :class:`~ppsim.show.files.document.Abilities`.
        """
        suffixes = suffixes_of(self["output"] or (), self["format"], tables=self.tables)
        if not ability or not suffixes:
            return bool(suffixes)
        from ppsim.show.files.document import abilities_of

        return any(
            getattr(abilities_of(suffix), ability)
            for suffix in suffixes
            if suffix not in ONLY_TABLES
        )

    @property
    def draws(self) -> bool:
        """True if pictures show schedules, and not time against memory."""
        return not self.tables and not (self["tradeoff"] or self["front"])


def never(given: TypedOptions) -> bool:
    """Return False: the condition of options that a command always refuses."""
    return False


@dataclass(frozen=True)
class Need:
    """A rule on options: the condition under which they are allowed, and the refusal.

    Attributes:
        options: the names of the options; the rule applies if one of them is typed.
        holds: returns True if the typed options are allowed.
        reason: the message of the refusal; ``{options}`` becomes the typed options.
        hint: the hint of the refusal.
        commands: the commands that have the rule; empty for all that have the options.
    """

    options: tuple[str, ...]
    holds: Callable[[TypedOptions], bool]
    reason: str
    hint: str = "leave one of them out"
    commands: tuple[str, ...] = ()


def list_needs(kind: type[Any]) -> tuple[Need, ...]:
    """Return the rules of a request or a group of options, those of its groups first."""
    inner = (each.metadata.get(GROUP) for each in fields(kind))
    return (
        *(need for group in inner if group for need in list_needs(group)),
        *getattr(kind, "needs", ()),
    )


def suffixes_of(output: Sequence[str], form: str | None, *, tables: bool = False) -> list[str]:
    """Return the suffix of the format of every -o: of --format, of its name, or .json for stdout.

    Raises:
        InputError: a format is unknown.
    """
    if not output:
        return []
    from ppsim.show.files.document import suffix_of

    named = f"x.{form.removeprefix('.')}" if form else ""
    files = [named or ("x.json" if target == "-" else target) for target in output]
    return [
        Path(file).suffix.lower()
        if tables and file.lower().endswith(ONLY_TABLES)
        else suffix_of(file)
        for file in files
    ]
