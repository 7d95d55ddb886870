"""Mermaid gantt text: a section per device, a bar per op, times as plain numbers.

A bar is named ``2F0``, as ppsim writes it, or ``F0``, which takes its stage from the number of its section. Two names
with ``+`` between are a pair.
"""

from __future__ import annotations

import re

import numpy as np

from ppsim.base.times import parse_scaled_unit
from ppsim.core.draft import Draft
from ppsim.core.ops import LETTERS, Kind
from ppsim.errors import InputError

SUFFIXES = (".mmd",)
_HEADER = re.compile(
    r"(?:---|gantt|title\b.*|displayMode:.*|dateFormat\b.*|axisFormat\b.*|tickInterval\b.*|todayMarker\b.*|%%.*|)"
)
_SECTION = re.compile(r"section\s+(.*\S)")
_TASK = re.compile(r"([^:]+?)\s*:\s*(.+)")
_NAME = re.compile(rf"(\d{{1,9}})?\s*([{LETTERS}])\s*(\d{{1,9}})", re.ASCII)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_TITLE = re.compile(r"title\b.*, time in(?: (.*))?")
_TAGS = {"done", "active", "crit", "milestone"}
_HOW = "a bar is 'F0 :id, 0, 1': name, id, start and end as numbers"


def matches(text: str) -> bool:
    """Whether a line of the text says gantt."""
    return bool(re.search(r"^\s*gantt\s*$", text, re.M))


def parse(text: str, source: str) -> Draft:
    """The bars with their times.

    Raises:
        InputError: a line that is neither header, section nor bar, with its number; a bar outside any section, or
            with times that are not numbers.
    """
    lines = tuple(text.splitlines())
    sections = list[str]()
    unit, scale = "t_F", 1
    rows, times = list[tuple[int, ...]](), list[tuple[float, float]]()
    for row, line in enumerate(lines, start=1):
        word = line.strip().removeprefix("```mermaid").removeprefix("```")
        if title := _TITLE.fullmatch(word):
            unit, scale = parse_scaled_unit(title[1] or "")
        if _HEADER.fullmatch(word):
            continue
        if section := _SECTION.fullmatch(word):
            sections.append(section[1])
            continue
        task = _TASK.fullmatch(word)
        if task is None or not sections:
            raise _unreadable(source, row, line, "a bar outside any section" if task else "not a bar")
        device = _device(sections)
        span = _span(task[2], source, row, line)
        members = [_NAME.fullmatch(member.strip()) for member in task[1].split("+")]
        if len(members) > 2 or None in members:
            raise _unreadable(source, row, line, f"'{task[1]}' names no op")
        for part, op in enumerate(members, start=1 if len(members) == 2 else 0):
            assert op is not None
            stage = int(op[1]) if op[1] else device
            rows.append((device, Kind[op[2]], stage, int(op[3]), row, part or 1, part))
            times.append((span[0] / scale, span[1] / scale))
    table = np.array(rows, np.int64).reshape(-1, 7)
    return Draft.from_table(source, table, np.array(times).reshape(-1, 2), lines=lines, unit=unit)


def _device(sections: list[str]) -> int:
    """The number in the section's name, or its place among the sections."""
    number = re.search(r"\d{1,9}", sections[-1])
    return int(number[0]) if number else len(dict.fromkeys(sections)) - 1


def _span(details: str, source: str, row: int, line: str) -> tuple[float, float]:
    """Start and end of a bar."""
    words = [word.strip() for word in details.split(",")]
    if len(words) < 2 or not all(_NUMBER.fullmatch(word) for word in words[-2:]):
        raise _unreadable(source, row, line, "start and end are not plain numbers")
    if len([word for word in words[:-2] if word not in _TAGS]) > 1:
        raise _unreadable(source, row, line, "too many parts")
    start, end = float(words[-2]), float(words[-1])
    if end < start:
        raise _unreadable(source, row, line, "it ends before it starts")
    return start, end


def _unreadable(source: str, row: int, line: str, why: str) -> InputError:
    return InputError(f"{source}, line {row}: {why}\n  {line.strip()}\n  {'^' * len(line.strip())}", _HOW)
