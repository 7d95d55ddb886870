"""The way in for files of real runs: the format is recognised by content, and all give the same
structure.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.base.source import name_of, read_bytes, read_text
from ppsim.base.text import shorten
from ppsim.base.unpack.limits import FILES, Meter
from ppsim.base.unpack.texts import decode_text
from ppsim.core.draft import Draft
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import parse, require_sound
from ppsim.real.runs.record import load
from ppsim.real.runs.record_file import is_record
from ppsim.real.traces import job, kineto, primus, table, table_file
from ppsim.real.traces.run import RealRun

SUFFIXES = tuple(
    f"{suffix}{zipped}" for suffix in (".json", *table_file.SUFFIXES) for zipped in ("", ".gz")
)
HINT = (
    "a folder or files: a table of ops (CSV, JSON lines, Parquet), Primus' pp_rank_N.json, Kineto "
    "traces one per process, or a file that --record wrote"
)


_OBJECT = re.compile(rb"[\xef\xbb\xbf \r\n\t]*+\{")


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
    tables = {path: data for path, data in files.items() if table.matches(data)}
    texts = {path: decode(path, data) for path, data in files.items() if path not in tables}
    by_format = {
        name: {p: t for p, t in texts.items() if matches(t)} for name, matches in FORMATS.items()
    }
    by_format["table"] = dict.fromkeys(tables, "")
    held = [name for name, found in by_format.items() if found]
    if len(held) > 1:
        raise InputError(
            f"{source} holds files of several formats: {', '.join(held)}", "those of one run"
        )
    if held == ["table"]:
        return _run_of_tables(source, tables, unit, schedule)
    if unit:
        raise InputError(
            f"{source} is no table of ops, so its times have their unit", "leave --unit out"
        )
    if not held:
        kineto.refuse_unmarked(source, texts.values())
        return _stated(source, texts)
    found = by_format[held[0]]
    if held[0] == "primus":
        return primus.read_primus(source, found, _config(texts, next(iter(found))))
    if held[0] == "kineto":
        return kineto.read_kineto(source, found)
    if len(found) > 1:
        raise InputError(
            f"{source} holds {len(found)} records, and one is read at a time",
            "the path of one of them",
        )
    return _read_record(next(iter(found)), schedule)


FORMATS = {"record": is_record, "primus": primus.matches, "kineto": kineto.matches}


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
        raw = read_bytes(path)
        if table.matches(raw):
            return True
        text = decode_text(raw, "") if _OBJECT.match(raw) else ""
    except (InputError, UnicodeDecodeError):
        return False
    return kineto.is_profile(text) or any(matches(text) for matches in FORMATS.values())


def shows_table(path: str) -> bool:
    """Tell whether a path that shows a run holds a table of ops."""
    return any(map(table.matches, read_files([_split_name(path)[0]]).values()))


def _split_name(path: str) -> tuple[str, str]:
    """Split ``FILE:NAME`` where that is no file's name itself; the name is empty otherwise."""
    file, _, name = path.rpartition(":")
    return (file, name) if file and not Path(path).exists() and Path(file).is_file() else (path, "")


def read_files(paths: Sequence[str]) -> dict[str, bytes]:
    """Read all files; the files of a folder in the order of their numbers: rank2 before rank10."""
    files, meter = dict[str, bytes](), Meter("the whole of these files", FILES)

    def take(path: str) -> None:
        files[path] = read_bytes(path)
        meter.take(len(files[path]))

    for path in paths:
        if not Path(path).is_dir():
            take(path)
            continue
        try:
            found = [str(Path(path) / name) for name in os.listdir(path) if name.endswith(SUFFIXES)]
        except OSError as error:
            raise InputError(
                f"cannot read '{name_of(path)}': {error.strerror}", "check the path"
            ) from error
        if not found:
            raise InputError(f"'{name_of(path)}' holds no table, .json or .json.gz", HINT)
        for each in found:
            take(each)
    return {path: files[path] for path in sorted(files, key=_numbers)}


def decode(path: str, data: bytes) -> str:
    """Decode a file's content as UTF-8 text."""
    try:
        return decode_text(data, f"'{name_of(path)}'")
    except UnicodeDecodeError:
        raise InputError(f"'{name_of(path)}' is not a text file", HINT) from None


def _run_of_tables(source: str, tables: Mapping[str, bytes], unit: str, replica: str) -> RealRun:
    """Read tables of ops as one run, of which one replica is shown: the one named, or the
    slowest.
    """
    read = table.read_table(source, tables, unit)
    found, offset, repairs = job.job_of(read)
    start, end, notes = found.start[:, 0], found.end[:, 0], (*read.notes, *repairs)
    told = {"offset": np.median(offset, axis=(0, 1)), "notes": notes, "understood": read.understood}
    run = RealRun.of_ops(source, "table", found.schedule, found.iterations, start, end, **told)
    whole = replace(run, unit=found.unit, job=found)
    shown = found.replicas[np.median(found.pipelines, axis=0).argmax()]
    if replica:
        shown = int(replica) if replica.isdecimal() and len(replica) < 10 else -1
        if shown not in found.replicas:
            raise InputError(
                f"{source} has no replica {shorten(replica)}",
                f"one of {found.replicas[0]} to {found.replicas[-1]}",
            )
    return whole.of_replica(int(np.flatnonzero(found.replicas == shown)[0]))


def _numbers(path: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", path)
    return [
        (part.isdecimal(), int(part) if part.isdecimal() and len(part) < 20 else 0, part)
        for part in parts
    ]


def _config(texts: Mapping[str, str], beside: str) -> str | None:
    """Find the config.json among the files, or beside them."""
    given = next((text for text in texts.values() if primus.is_config(text)), None)
    if given is not None:
        return given
    for name in ("config.json", "config.json.gz"):
        path = Path(beside).parent / name
        if path.is_file() and primus.is_config(text := read_text(str(path), HINT)):
            return text
    return None


def _stated(source: str, texts: Mapping[str, str]) -> RealRun:
    """Take one file of ours that holds a schedule with times."""
    if len(texts) != 1:
        raise InputError(f"{source} shows no run", HINT)
    draft: Draft = require_sound(parse(next(iter(texts.values())), source))
    timeline = draft.timeline()
    if timeline is None:
        raise InputError(f"{source} is a schedule without times, so it shows no run", HINT)
    times, first = (timeline.start[None], timeline.end[None]), np.ones(1, np.int64)
    told: dict[str, Any] = {
        "unit": timeline.unit,
        "stated_ends": np.array([timeline.makespan]),
    }
    return RealRun.of_ops(source, "timeline", timeline.schedule, first, *times, **told)


def _read_record(path: str, schedule: str) -> RealRun:
    """Read one run of a record (InputError: it is no record, or has several runs and none of that
    name).
    """
    record = load(path)
    runs = [run for run in record.runs if schedule in ("", run.name)]
    if len(runs) != 1:
        names = ", ".join(run.name for run in record.runs)
        what = f"no run of {schedule}" if schedule else f"{len(runs)} runs"
        raise InputError(
            f"'{path}' holds {what}", f"{path}:{record.runs[0].name}, or another of {names}"
        )
    run = runs[0]
    posted, start, end = (
        times[:, run.lowered.compute_ops] for times in (run.posted, run.start, run.end)
    )
    followed, arrival = run.lowered.compute, np.where(start > posted, start, np.nan)
    times = np.arange(1, len(start) + 1), start, end, posted, arrival, np.zeros(followed.n_devices)
    return RealRun(path, "record", followed, *times)
