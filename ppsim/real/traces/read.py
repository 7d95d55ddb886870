"""Reading of real runs: the reader that recognises the content returns a :class:`RealRun`.

Readers are the files of ``readers/``, found by a scan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.base.scan import load_files
from ppsim.base.source import name_of, read_bytes
from ppsim.base.unpack.limits import FILES, Meter
from ppsim.core.draft import Draft
from ppsim.errors import InputError, UnknownFormat
from ppsim.inputs.drafts.read import parse, require_sound
from ppsim.real.traces import readers
from ppsim.real.traces.reader import Reader, RunFiles, TraceFile
from ppsim.real.traces.run import RealRun

# The format of a file of ppsim with a schedule and its times, which the readers of drafts read.
TIMELINE = "timeline"
MOST_NAMED = 3  # files that a note names


@cache
def find_readers() -> tuple[Reader, ...]:
    """Return all readers, in the order in which they are tried."""
    found: list[Reader] = [module.READER for module in load_files(readers, "READER")]
    return tuple(sorted(found, key=lambda reader: (reader.place, reader.name)))


def title_of(name: str) -> str:
    """Return the title of a format in a summary."""
    titles = {reader.name: reader.title for reader in find_readers()}
    return titles.get(name, "a schedule with times")


def expected() -> str:
    """Return the formats of real runs as text, for the hint of a message."""
    *first, last = [reader.expects for reader in find_readers()]
    return f"a folder or files: {', '.join(first)}, or {last}"


def read_run(paths: Sequence[str], schedule: str = "", unit: str = "") -> RealRun:
    """Read a real run from a folder, or from the files of all its devices.

    Args:
        paths: one folder, or files, which may be gzipped. Other files in a folder are ignored.
            ``FILE:NAME`` selects the run of a schedule in a record, or the replica of a number in a
            table of ops.
        schedule: the schedule of a run in a record, or the number of a replica in a table.
        unit: the unit of a table's times, if the table does not state it.

    Raises:
        InputError: no file contains a run, files have several formats, or a device is missing.
        InvalidSchedule: the order of the devices' ops is not that of a schedule.
    """
    if len(paths) == 1 and not schedule:
        path, schedule = _split_name(paths[0])
        paths = [path]
    source = ", ".join(name_of(path) for path in paths[:2]) + (
        " and others" if len(paths) > 2 else ""
    )
    files = read_files(paths)
    reader_of = {path: reader for path, file in files.items() if (reader := _reader_of(file))}
    _refuse_binary([file for path, file in files.items() if path not in reader_of])
    formats = [reader for reader in find_readers() if reader in reader_of.values()]
    if len(formats) > 1:
        names = ", ".join(reader.name for reader in formats)
        raise InputError(f"{source} has files of several formats: {names}", "files of one run")
    if unit and not (formats and formats[0].takes_unit):
        raise InputError(f"{source} is not a table of ops, and states its unit", "leave out --unit")
    if not formats:
        return _read_other(source, files)
    of_format = {path: file for path, file in files.items() if path in reader_of}
    others = {path: file for path, file in files.items() if path not in reader_of}
    run = formats[0].read(RunFiles(source, of_format, others, schedule, unit))
    unread = [path for path in paths if path in others and not formats[0].uses(others[path])]
    return replace(run, notes=(*run.notes, _unread_note(unread))) if unread else run


def _unread_note(paths: Sequence[str]) -> str:
    """Return a sentence on files that the user named and that no reader of runs knows."""
    names = [f"'{name_of(path)}'" for path in paths[:MOST_NAMED]]
    if more := len(paths) - len(names):
        names.append(f"{more:,} more")
    *first, last = names
    named = f"{', '.join(first)} and {last}" if first else last
    if len(paths) == 1:
        return f"{named} is not a file of this run, and was left out"
    return f"{named} are not files of this run, and were left out"


def _reader_of(file: TraceFile) -> Reader | None:
    """Return the first reader whose format a file has, or None."""
    return next((reader for reader in find_readers() if reader.matches(file)), None)


def _refuse_binary(files: Sequence[TraceFile]) -> None:
    """Refuse binary files that no reader accepts (InputError)."""
    for file in files:
        if not file.is_text:
            raise InputError(f"'{name_of(file.path)}' is not a text file", expected())


def _read_other(source: str, files: Mapping[str, TraceFile]) -> RealRun:
    """Read files that match no format: a schedule with times.

    Raises:
        InputError: the files are anything else.
    """
    for reader in find_readers():
        if any(reader.resembles(file) for file in files.values()):
            return reader.read(RunFiles(source, files, {}))
    return _read_timeline(source, files)


def shows_run(path: str) -> bool:
    """Return whether a path is a folder, or a file of a real run (also as ``FILE:NAME``)."""
    if os.path.isdir(path):
        return True
    path, _ = _split_name(path)
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        file = TraceFile(path, read_bytes(path))
        return any(reader.matches(file) or reader.resembles(file) for reader in find_readers())
    except InputError:
        return False


def lacks_unit(path: str) -> bool:
    """Return whether a path of a run has files that may leave out the unit of times."""
    files = read_files([_split_name(path)[0]]).values()
    return any(
        reader.takes_unit and reader.matches(file) for reader in find_readers() for file in files
    )


def _split_name(path: str) -> tuple[str, str]:
    """Return the parts of ``FILE:NAME``; the name is '' for a path that exists, or has no file."""
    file, _, name = path.rpartition(":")
    return (
        (file, name) if file and not os.path.exists(path) and os.path.isfile(file) else (path, "")
    )


def read_files(paths: Sequence[str]) -> dict[str, TraceFile]:
    """Read all files, by path in the order of the numbers in their names: rank2 before rank10."""
    files, meter = dict[str, TraceFile](), Meter("the whole of these files", FILES)
    plain_suffixes = {suffix for reader in find_readers() for suffix in reader.suffixes}
    suffixes = (*plain_suffixes, *(f"{suffix}.gz" for suffix in plain_suffixes))

    def add(path: str) -> None:
        files[path] = TraceFile(path, read_bytes(path))
        meter.take(len(files[path].data))

    for path in paths:
        if not os.path.isdir(path):
            add(path)
            continue
        try:
            found = [str(Path(path) / name) for name in os.listdir(path) if name.endswith(suffixes)]
        except OSError as error:
            raise InputError(
                f"cannot read '{name_of(path)}': {error.strerror}", "check the path"
            ) from error
        if not found:
            raise InputError(f"'{name_of(path)}' has no table, .json or .json.gz", expected())
        for each in found:
            add(each)
    return {path: files[path] for path in sorted(files, key=_numeric_order)}


def _numeric_order(path: str) -> list[tuple[bool, int, str]]:
    """Return a sort key of a path in which numbers compare as numbers."""
    parts = re.split(r"([0-9]+)", path)
    return [
        (part.isdecimal(), int(part) if part.isdecimal() and len(part) < 20 else 0, part)
        for part in parts
    ]


def _read_timeline(source: str, files: Mapping[str, TraceFile]) -> RealRun:
    """Read one file of ppsim with a schedule and its times."""
    if len(files) != 1:
        raise InputError(f"{source} does not contain a run", expected())
    try:
        draft: Draft = require_sound(parse(next(iter(files.values())).text, source))
    except UnknownFormat as error:
        raise InputError(f"{source} does not contain a run", expected()) from error
    timeline = draft.timeline()
    if timeline is None:
        raise InputError(f"{source} is a schedule without times, not a run", expected())
    times, first = (timeline.start[None], timeline.end[None]), np.ones(1, np.int64)
    stated: dict[str, Any] = {
        "unit": timeline.unit,
        "stated_ends": np.array([timeline.makespan]),
    }
    return RealRun.from_ops(source, TIMELINE, timeline.schedule, first, *times, **stated)
