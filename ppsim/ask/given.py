"""Typed options of one request: their values, and the rules between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ppsim.ask.options import GROUP, Option, Request, flatten, list_options

ONLY_TABLES = (".parquet",)  # formats of tables alone


@dataclass(frozen=True)
class TypedOptions:
    """The options of one request: all values, and which of them the user typed."""

    command: str  # the name of the question
    values: Mapping[str, Any]  # of all options, by name
    typed: Sequence[Option]  # the options that were given
    tables: bool = False  # whether -o writes tables too
    # the rules of the request and of its groups of options
    needs: Sequence[Need] = ()

    @classmethod
    def from_request(cls, request: Request) -> TypedOptions:
        """Read the options of a request."""
        typed = [each for each in list_options(type(request)) if each.name in request.given]
        needs = list_needs(type(request))
        return cls(request.question, flatten(request), typed, request.tables, needs)

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """Return whether any of the options was typed."""
        return any(each.name in names for each in self.typed)

    def spellings(self, names: tuple[str, ...]) -> list[str]:
        """Return the first spellings of typed options, except switches that are off."""
        return [
            each.spelling
            for each in self.typed
            if each.name in names and self.values[each.name] is not False
        ]

    def writes(self, ability: str = "") -> bool:
        """Return whether a file is written, in a format with this ability of
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
        """True if the written files show schedules, not time against memory."""
        return not self.tables and not (self["tradeoff"] or self["front"])


def never(given: TypedOptions) -> bool:
    """Return False: the options have no effect in any call of a command."""
    return False


@dataclass(frozen=True)
class Need:
    """A rule on options: the condition under which they have an effect, and the refusal."""

    options: tuple[str, ...]  # names of parameters
    # whether they have an effect in a call where one of them is typed
    holds: Callable[[TypedOptions], bool]
    reason: str  # the reason for refusing them, with ``{options}`` where those typed are named
    hint: str = "leave one of them out"  # the suggestion
    # where the row counts; empty for every command that has the options
    commands: tuple[str, ...] = ()


def list_needs(kind: type[Any]) -> tuple[Need, ...]:
    """Return the ``needs`` of a request or a group of options, and of its groups."""
    inner = (each.metadata.get(GROUP) for each in fields(kind))
    return (
        *(need for group in inner if group for need in list_needs(group)),
        *getattr(kind, "needs", ()),
    )


def suffixes_of(output: Sequence[str], form: str | None, *, tables: bool = False) -> list[str]:
    """Return the format of every -o: as named, by its suffix, or json for standard output
    (InputError: unknown).
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
