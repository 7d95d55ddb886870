"""The door to files of real runs: a reader recognises the content, and all give the same structure.

Readers are the files of ``readers/``, found by a scan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
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

# A file of ours that holds a schedule with its times: no reader's, as drafts are read elsewhere.
TIMELINE = "timeline"


@cache
def find_readers() -> tuple[Reader, ...]:
    """Load every reader, in the order in which they are asked."""
    found: list[Reader] = [module.READER for module in load_files(readers, "READER")]
    return tuple(sorted(found, key=lambda reader: (reader.place, reader.name)))


def title_of(name: str) -> str:
    """Return the name of a format's files in a summary."""
    titles = {reader.name: reader.title for reader in find_readers()}
    return titles.get(name, "a schedule with times")


def expected() -> str:
    """Return a list of the formats of real runs, for the hint of a message."""
    *first, last = [reader.expects for reader in find_readers()]
    return f"a folder or files: {', '.join(first)}, or {last}"


def read_run(paths: Sequence[str], schedule: str = "", unit: str = "") -> RealRun:
    """Read a real run: a folder, or the files of all its devices.

    Args:
        paths: one folder, or files; gzipped or not. A folder's other files are left out.
            ``FILE:NAME`` is the run of that schedule in a record of several, or the replica of that
            number in a table of ops.
        schedule: which run of a record of several, or which replica.
        unit: of a table's times, where it does not tell its own.

    Raises:
        InputError: no file shows a run, files of several formats, or a device is missing.
        InvalidSchedule: the devices ran in an order in which no schedule runs.
    """
    if len(paths) == 1 and not schedule:
        path, schedule = _split_name(paths[0])
        paths = [path]
    source = ", ".join(name_of(path) for path in paths[:2]) + (
        " and others" if len(paths) > 2 else ""
    )
    files = read_files(paths)
    found = {path: reader for path, file in files.items() if (reader := _reader_of(file))}
    _refuse_binary([file for path, file in files.items() if path not in found])
    formats = [reader for reader in find_readers() if reader in found.values()]
    if len(formats) > 1:
        names = ", ".join(reader.name for reader in formats)
        raise InputError(f"{source} holds files of several formats: {names}", "those of one run")
    if unit and not (formats and formats[0].takes_unit):
        raise InputError(
            f"{source} is no table of ops, so its times have their unit", "leave --unit out"
        )
    if not formats:
        return _read_resembling(source, files)
    own = {path: file for path, file in files.items() if path in found}
    others = {path: file for path, file in files.items() if path not in found}
    return formats[0].read(RunFiles(source, own, others, schedule, unit))


def _reader_of(file: TraceFile) -> Reader | None:
    """Find the first reader whose format a file has."""
    return next((reader for reader in find_readers() if reader.matches(file)), None)


def _refuse_binary(files: Sequence[TraceFile]) -> None:
    """Refuse binary files that no reader accepts (InputError)."""
    for file in files:
        if not file.is_text:
            raise InputError(f"'{name_of(file.path)}' is not a text file", expected())


def _read_resembling(source: str, files: Mapping[str, TraceFile]) -> RealRun:
    """Read files that no reader takes: one with a schedule's times, else they are refused."""
    for reader in find_readers():
        if any(reader.resembles(file) for file in files.values()):
            return reader.read(RunFiles(source, files, {}))
    return _read_timeline(source, files)


def shows_run(path: str) -> bool:
    """Tell whether a path is a folder, or a file of a real run or ``FILE:NAME``, rather than a
    schedule's file.
    """
    if Path(path).is_dir():
        return True
    path, _ = _split_name(path)
    if path == "-" or not Path(path).is_file():
        return False
    try:
        file = TraceFile(path, read_bytes(path))
        return any(reader.matches(file) or reader.resembles(file) for reader in find_readers())
    except InputError:
        return False


def lacks_unit(path: str) -> bool:
    """Tell whether a path that shows a run holds files that may leave out the unit of times."""
    files = read_files([_split_name(path)[0]]).values()
    return any(
        reader.takes_unit and reader.matches(file) for reader in find_readers() for file in files
    )


def _split_name(path: str) -> tuple[str, str]:
    """Split ``FILE:NAME``, unless a file has that whole name; the name is empty otherwise."""
    file, _, name = path.rpartition(":")
    return (file, name) if file and not Path(path).exists() and Path(file).is_file() else (path, "")


def read_files(paths: Sequence[str]) -> dict[str, TraceFile]:
    """Read all files; the files of a folder in the order of their numbers: rank2 before rank10."""
    files, meter = dict[str, TraceFile](), Meter("the whole of these files", FILES)
    ends = {suffix for reader in find_readers() for suffix in reader.suffixes}
    suffixes = (*ends, *(f"{suffix}.gz" for suffix in ends))

    def take(path: str) -> None:
        files[path] = TraceFile(path, read_bytes(path))
        meter.take(len(files[path].data))

    for path in paths:
        if not Path(path).is_dir():
            take(path)
            continue
        try:
            found = [str(Path(path) / name) for name in os.listdir(path) if name.endswith(suffixes)]
        except OSError as error:
            raise InputError(
                f"cannot read '{name_of(path)}': {error.strerror}", "check the path"
            ) from error
        if not found:
            raise InputError(f"'{name_of(path)}' holds no table, .json or .json.gz", expected())
        for each in found:
            take(each)
    return {path: files[path] for path in sorted(files, key=_numbers)}


def _numbers(path: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", path)
    return [
        (part.isdecimal(), int(part) if part.isdecimal() and len(part) < 20 else 0, part)
        for part in parts
    ]


def _read_timeline(source: str, files: Mapping[str, TraceFile]) -> RealRun:
    """Read one file of ours that holds a schedule with times."""
    if len(files) != 1:
        raise InputError(f"{source} shows no run", expected())
    try:
        draft: Draft = require_sound(parse(next(iter(files.values())).text, source))
    except UnknownFormat as error:
        raise InputError(f"{source} shows no run", expected()) from error
    timeline = draft.timeline()
    if timeline is None:
        raise InputError(f"{source} is a schedule without times, so it shows no run", expected())
    times, first = (timeline.start[None], timeline.end[None]), np.ones(1, np.int64)
    stated: dict[str, Any] = {
        "unit": timeline.unit,
        "stated_ends": np.array([timeline.makespan]),
    }
    return RealRun.from_ops(source, TIMELINE, timeline.schedule, first, *times, **stated)
