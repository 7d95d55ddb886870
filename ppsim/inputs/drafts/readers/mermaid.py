"""Mermaid gantt text: a section per device, a bar per op, times as plain numbers.

A bar is named ``2F0``, as ppsim writes it, or ``F0``: then the number of its section is the stage.
Two names joined by ``+`` are a pair. The comment ``%% slices: 4`` states that sequences are cut
into 4 slices, and ``%% steps: 2`` that the queues run twice. Sections with the same number belong
to one device. If all bars have ids (``o12``), their numbers are the order in which the ops were
issued.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ppsim.base.text import shorten, unreadable_line
from ppsim.base.times import parse_scaled_unit
from ppsim.base.unpack.texts import split_lines
from ppsim.core.draft import Draft
from ppsim.core.ops import STAGELESS, TIMED, Kind
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError

SUFFIXES = (".mmd",)
_HEADER = re.compile(
    r"(?:---|gantt|title\b.*|displayMode:.*|dateFormat\b.*|axisFormat\b.*|tickInterval\b.*"
    r"|todayMarker\b.*|%%.*|)"
)
_SECTION = re.compile(r"section\s+(.*)")
_NAME = re.compile(
    rf"(\d{{1,9}})?\s*({'|'.join(kind.name for kind in TIMED)})\s*(\d{{1,9}})", re.ASCII
)
_ID = re.compile(r"o(\d{1,9})", re.ASCII)
_COUNT = re.compile(r"%%\s*(slices|steps):?\s*([1-9]\d{0,8})", re.ASCII)
_FEEDS_BACK = re.compile(r"%%\s*each step needs the one before")
_NEVER_DRAINS = re.compile(r"%%\s*steps never drain")
_NUMBER = re.compile(r"-?\d{1,40}(?:\.\d{1,40})?", re.ASCII)
OP = 600  # bytes of memory per op while a file is read
_TIME = ", time in"
_TAGS = {"done", "active", "crit", "milestone"}
_FLOWCHART = re.compile(r"\A(?:[ \t]*+(?:%%.*+|```mermaid)?\r?\n)*+[ \t]*+(?:flowchart|graph)\b")
_RANK = re.compile(r'^[ \t]*R\d+\["rank \d+<br/>', re.M)  # a box of ppsim.workload.plans.ranks
_HOW = "a bar is 'F0 :id, 0, 1': name, id, start and end as numbers"


def matches(text: str) -> bool:
    """Return whether a line of the text is the word gantt, or the text begins with flowchart."""
    is_gantt = "gantt" in text and re.search(r"^[ \t]*gantt[ \t]*\r?$", text, re.M)
    return bool(is_gantt or _FLOWCHART.match(text.lstrip()))


def parse(text: str, source: str) -> Draft:
    """Return the ops of the bars with their times.

    Raises:
        InputError: a line is not a header, section or bar (the message has its number), a bar is
            outside any section or has times that are not numbers, or the text is a flowchart.
    """
    _refuse_flowchart(text, source)
    lines = tuple(split_lines(text, source, OP))
    sections = dict[str, None]()
    unit, scale, device = "t_F", 1, 0
    counts = {"slices": 1, "steps": 1}
    feeds_back, flushes = False, True
    rows, times, ids = list[tuple[int, ...]](), list[tuple[float, float]](), list[int]()
    for row, line in enumerate(lines, start=1):
        word = line.strip().removeprefix("```mermaid").removeprefix("```")
        if section := _SECTION.fullmatch(word):
            sections[section[1]] = None
            device = _device(section[1], len(sections))
            continue
        if word.startswith("title") and _TIME in word:
            unit, scale = parse_scaled_unit(word.rpartition(_TIME)[2].removeprefix(" "))
        if count := _COUNT.fullmatch(word):
            counts[count[1]] = int(count[2])
        feeds_back = feeds_back or bool(_FEEDS_BACK.fullmatch(word))
        flushes = flushes and not _NEVER_DRAINS.fullmatch(word)
        if _HEADER.fullmatch(word):
            continue
        name, colon, details = (part.strip() for part in word.partition(":"))
        if not (name and colon and details) or not sections:
            reason = "a bar outside any section" if colon and name else "not a bar"
            raise unreadable_line(source, row, line, reason, _HOW)
        identity, begin, end = _span(details, source, row, line)
        number = _ID.fullmatch(identity)
        for op in _ops_of_bar(name, device, source, row, line):
            rows.append(op)
            times.append((begin / scale, end / scale))
            ids += [int(number[1])] if number else []
    table = np.array(rows, np.int64).reshape(-1, 7)
    spans = np.array(times).reshape(-1, 2)
    if len(ids) == len(table):
        issued = np.argsort(ids, kind="stable")
        table, spans = table[issued], spans[issued]
    return Draft.from_table(
        source,
        table,
        spans,
        n_slices=counts["slices"],
        lines=lines,
        unit=shorten(unit),
        n_rounds=counts["steps"],
        feeds_back=feeds_back,
        flushes=flushes,
    )


def _refuse_flowchart(text: str, source: str) -> None:
    """Raise InputError if the text is a flowchart, which has no times."""
    if not _FLOWCHART.match(text.lstrip()):
        return
    drawn, viewer = ", not a gantt", "a viewer of Mermaid shows it"
    if _RANK.search(text):
        drawn = ": where the ranks of a plan lie, not when they run"
        viewer = "ppsim read FILE.mmd gives their sizes"
    hint = f"{viewer}; ppsim run -s 1f1b --devices 4 --mb 8 -o run.mmd writes a schedule"
    raise InputError(f"'{source}' is a flowchart{drawn}", hint)


def _ops_of_bar(
    name: str, device: int, source: str, row: int, line: str
) -> Iterator[tuple[int, ...]]:
    """Yield a row of the draft's table for each op in the name of a bar."""
    members = [_NAME.fullmatch(member.strip()) for member in name.split("+", 2)]
    if len(members) > 2 or None in members:
        reason = f"'{shorten(name, 40)}' is not the name of an op"
        raise unreadable_line(source, row, line, reason, _HOW)
    for part, op in enumerate(members, start=1 if len(members) == 2 else 0):
        assert op is not None
        kind = Kind[op[2]]
        if kind in STAGELESS and op[1]:
            raise unreadable_line(source, row, line, f"'{op[2]}' has a stage", _HOW)
        stage = int(op[1]) if op[1] else -1 if kind in STAGELESS else device
        yield device, kind, stage, int(op[3]), row, part or 1, part


def _device(section: str, place: int) -> int:
    """Return the number in a section's name; without one, ``place`` (from 1) minus 1."""
    number = re.search(r"[0-9]{1,9}", section)
    return int(number[0]) if number else place - 1


def _span(details: str, source: str, row: int, line: str) -> tuple[str, float, float]:
    """Return the id of a bar (empty if it has none), its start and its end."""
    words = [word.strip() for word in details.split(",", 9)]
    if len(words) < 2 or not all(_NUMBER.fullmatch(word) for word in words[-2:]):
        raise unreadable_line(source, row, line, "start and end are not plain numbers", _HOW)
    ids = [word for word in words[:-2] if word not in _TAGS]
    if len(ids) > 1:
        raise unreadable_line(source, row, line, "too many parts", _HOW)
    start, end = float(words[-2]), float(words[-1])
    if max(abs(start), abs(end)) > LONGEST:
        raise unreadable_line(source, row, line, f"a time beyond {LONGEST:g}", _HOW)
    if end < start:
        raise unreadable_line(source, row, line, "it ends before it starts", _HOW)
    return "".join(ids), start, end
