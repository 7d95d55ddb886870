"""Read schedules: torch's CSV, JSON, traces and Mermaid text.

The suffix of the file decides the format; without a known suffix, the text does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from ppsim.base.scan import load_files
from ppsim.base.source import name_of, read_text
from ppsim.base.text import STANDARD_INPUT, shorten
from ppsim.core.draft import Draft
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError, InvalidSchedule, UnknownFormat
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts import readers


class Reader(Protocol):
    """A module of :mod:`ppsim.inputs.drafts.readers`."""

    SUFFIXES: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Return whether the text of a file without a known suffix is in this format."""

    def parse(self, text: str, source: str) -> Draft:
        """Return the draft in a text; raises InputError if the text is not in this format."""


@cache
def readable() -> dict[str, Reader]:
    """Return all readers by suffix."""
    modules = load_files(readers, "SUFFIXES", "matches", "parse")
    return {suffix: module for module in modules for suffix in module.SUFFIXES}


def read(path: str) -> Draft:
    """Return the schedule of a file as a draft, which may have faults; ``-`` is standard input.

    Raises:
        InputError: the file cannot be read, or has an unknown format.
    """
    known = " ".join(sorted(readable()))
    source = "standard input" if path == STANDARD_INPUT else name_of(path)
    try:
        draft = parse(read_text(path, f"one of {known}", stdin=True), source)
    except MemoryError:
        raise InputError(
            f"not enough memory to read '{source}'", "a smaller file, or a larger machine"
        ) from None
    if draft.name or path == STANDARD_INPUT:
        return draft
    return replace(draft, name=shorten(Path(path).name.split(".")[0]))


def parse(text: str, source: str) -> Draft:
    """Return the schedule in a text; the source's suffix decides the format, or else the text.

    Raises:
        InputError: the format is unknown, or not that of the suffix.
    """
    known = readable()
    name = source.lower().removesuffix(".gz")
    suffixes = [suffix for suffix in known if name.endswith(suffix)]
    if suffixes:
        return known[max(suffixes, key=len)].parse(text, source)
    for suffix in sorted(known, key=len, reverse=True):
        if known[suffix].matches(text):
            return known[suffix].parse(text, source)
    hint = f"one of {' '.join(sorted(known))}"
    if not text.strip():
        raise InputError(f"'{source}' is empty", hint)
    if name.endswith((".py", ".toml")):
        hint = f"ppsim run {source} --devices P --mb M -o queues.csv, which writes its ops"
    raise UnknownFormat(f"'{source}' contains no schedule in a known format", hint)


def require_sound(draft: Draft) -> Draft:
    """Return the draft if it has no fault that keeps it from running with overlapped messages.

    Raises:
        InvalidSchedule: names the first fault, and the number of the others.
    """
    faults = check(draft, modes=("overlap",)).faults
    if faults:
        where = (
            f", line {faults[0].row}, cell {faults[0].cell}"
            if faults[0].row and draft.lines
            else ""
        )
        more = (
            f" ({len(faults) - 1} more fault{'s' * (len(faults) > 2)}: ppsim check)"
            if len(faults) > 1
            else ""
        )
        raise InvalidSchedule(f"{draft.source}{where}: {faults[0].message}{more}", faults[0].hint)
    return draft


def unused_sentences(draft: Draft) -> Iterator[str]:
    """Yield a sentence for each statement of a draft that a run ignores."""
    if not draft.timed.all() and not draft.has_comms:
        yield f"FSDP ops of {draft.source} are left out; --unshard and --reduce-grad add theirs"
    if draft.start is not None:
        yield f"times of {draft.source} are not used: timed again with the costs given"


def read_timeline(path: str) -> Timeline | None:
    """Return a file's compute ops with their times, or None if the file has no times.

    Raises:
        InputError: the file cannot be read.
        InvalidSchedule: it has a fault.
    """
    return require_sound(read(path)).timeline()
