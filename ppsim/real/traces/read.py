"""The way in for files of real runs: the format is recognised by content, and all give the same structure."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ppsim.base.source import name_of, read_bytes, read_text
from ppsim.core.draft import Draft
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import parse, require_sound
from ppsim.real.traces import kineto, primus, recorded
from ppsim.real.traces.run import RealRun

SUFFIXES = (".json", ".json.gz")
HINT = "a folder or files: Primus' pp_rank_N.json, Kineto traces one per process, or a file that --record wrote"


def read_run(paths: Sequence[str], schedule: str = "") -> RealRun:
    """Read a real run: a folder, or the files of all its devices.

    Args:
        paths: one folder, or files; gzipped or not. A folder's other files are left out. ``FILE:NAME`` is the run of
            that schedule in a record of several.
        schedule: which run of a record of several.

    Raises:
        InputError: no file shows a run, files of several formats, or a device is missing.
        InvalidSchedule: the devices ran in an order in which no schedule runs.
    """
    if len(paths) == 1 and not schedule:
        path, schedule = _split_name(paths[0])
        paths = [path]
    source = ", ".join(name_of(path) for path in paths[:2]) + (" and others" if len(paths) > 2 else "")
    texts = read_texts(paths)
    by_format = {name: {p: t for p, t in texts.items() if matches(t)} for name, matches in FORMATS.items()}
    held = [name for name, found in by_format.items() if found]
    if len(held) > 1:
        raise InputError(f"{source} holds files of several formats: {', '.join(held)}", "those of one run")
    if not held:
        return _stated(source, texts)
    found = by_format[held[0]]
    if held[0] == "primus":
        return primus.read_primus(source, found, _config(texts, next(iter(found))))
    if held[0] == "kineto":
        return kineto.read_kineto(source, found)
    if len(found) > 1:
        raise InputError(f"{source} holds {len(found)} records", "one of them")
    return recorded.read_recorded(next(iter(found)), schedule)


FORMATS = {"record": recorded.matches, "primus": primus.matches, "kineto": kineto.matches}


def shows_run(path: str) -> bool:
    """Tell whether a path is a folder, or a file of a real run or ``FILE:NAME``, rather than a schedule's file."""
    if Path(path).is_dir():
        return True
    path, _ = _split_name(path)
    if path == "-" or not Path(path).is_file():
        return False
    try:
        raw = read_bytes(path)
        text = raw.decode("utf-8-sig") if raw.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{") else ""
    except (InputError, UnicodeDecodeError):
        return False
    return any(matches(text) for matches in FORMATS.values())


def _split_name(path: str) -> tuple[str, str]:
    """Split ``FILE:NAME`` where that is no file's name itself; the name is empty otherwise."""
    file, _, name = path.rpartition(":")
    return (file, name) if file and not Path(path).exists() and Path(file).is_file() else (path, "")


def read_texts(paths: Sequence[str]) -> dict[str, str]:
    """Read all files, those of a folder in the order of their numbers: rank2 before rank10."""
    texts = dict[str, str]()
    for path in paths:
        if not Path(path).is_dir():
            texts[path] = read_text(path, HINT)
            continue
        try:
            found = [str(Path(path) / name) for name in os.listdir(path) if name.endswith(SUFFIXES)]
        except OSError as error:
            raise InputError(f"cannot read '{name_of(path)}': {error.strerror}", "check the path") from error
        if not found:
            raise InputError(f"'{name_of(path)}' holds no .json or .json.gz", HINT)
        texts |= {each: read_text(each, HINT) for each in found}
    return {path: texts[path] for path in sorted(texts, key=_numbers)}


def _numbers(path: str) -> list[tuple[bool, int, str]]:
    parts = re.split(r"([0-9]+)", path)
    return [(part.isdecimal(), int(part) if part.isdecimal() and len(part) < 20 else 0, part) for part in parts]


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
    start, end = timeline.start[None], timeline.end[None]
    unknown = np.full_like(start, np.nan)
    return RealRun(
        source,
        "timeline",
        timeline.schedule,
        np.ones(1, np.int64),
        start,
        end,
        unknown,
        unknown,
        np.zeros(timeline.schedule.n_devices),
        unit=timeline.unit,
    )
