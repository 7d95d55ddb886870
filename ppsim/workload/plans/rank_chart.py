"""Reader of the Mermaid flowcharts of ranks that :mod:`ppsim.workload.plans.ranks` draws.

Boxes of ranks are in subgraphs of pipeline devices, which are in subgraphs of data replicas. A
chart shows all replicas, devices or ranks, or the first ones, the last one and their number.
Arrows, and nodes in the titles of devices, are ignored.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass, field

from ppsim.base.source import name_of, read_text
from ppsim.base.text import STANDARD_INPUT, unreadable_line
from ppsim.base.unpack.texts import split_lines
from ppsim.errors import InputError
from ppsim.workload.model.parallel import MOST, RANK_ORDERS

SUFFIX = ".mmd"
LINE = 600  # bytes of memory needed to read a line
HINT = "a flowchart of ranks from ppsim plan --model ... --cluster ... -o ranks.mmd"
_N = r"([0-9]{1,8})"
_REPLICA = re.compile(rf'subgraph \w+\["data replica {_N}"\]', re.ASCII)
_DEVICE = re.compile(
    rf'subgraph \w+\["pipeline device {_N}(?:, node [\d .-]{{1,40}})?"\]', re.ASCII
)
_RANK = re.compile(rf'\w+\["rank {_N}<br/>(?:context {_N}, )?tensor {_N}"\]', re.ASCII)
_MORE = re.compile(rf'\w+\["{_N} more"\]', re.ASCII)
_LEFT = re.compile(
    rf"%% of (?:{_N} replicas)?(?: and )?(?:{_N} pipeline devices)? the first \d and the last are "
    rf"drawn",
    re.ASCII,
)
_ARROW = re.compile(r'\w+ (?:-->|<-\.->)(?:\|"[^"|]{0,200}"\|)? \w+', re.ASCII)
_OTHERS = re.compile(
    r"(?:flowchart|graph) (?:LR|TB|TD|RL|BT)|direction (?:LR|TB|TD|RL|BT)|%%.*|```(?:mermaid)?|"
)
_STARTS = re.compile(r"^[ \t]*(?:flowchart|graph)\b", re.M)


@dataclass(frozen=True)
class RankLayout:
    """Sizes of parallel groups and the order of ranks.

    Attributes:
        source: name of the file.
        tp: tensor-parallel ranks.
        cp: context-parallel ranks.
        pp: pipeline devices.
        dp: data replicas.
        rank_order: one of :data:`RANK_ORDERS`; the first one if both give the same numbers.
    """

    source: str
    tp: int
    cp: int
    pp: int
    dp: int
    rank_order: str

    @property
    def gpus(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by the names of their options."""
        return {name: getattr(self, name) for name in ("tp", "cp", "pp", "dp")}


@dataclass(frozen=True)
class _Box:
    """A drawn rank: its number, its indices in each kind of group, and its line in the file."""

    rank: int
    replica: int
    device: int
    context: int
    tensor: int
    line: int


@dataclass
class _Chart:
    """The content of a chart.

    Attributes:
        boxes: the drawn ranks.
        hidden: ranks that are not drawn, by (replica, device).
        replicas: the stated number of replicas, or None.
        devices: the stated number of pipeline devices, or None.
    """

    boxes: list[_Box] = field(default_factory=list)
    hidden: Counter[tuple[int, int]] = field(default_factory=Counter)
    replicas: int | None = None
    devices: int | None = None


def shows_ranks(path: str) -> bool:
    """Return whether a path is a flowchart of ranks."""
    if path == STANDARD_INPUT or not path.lower().endswith(SUFFIX) or not os.path.isfile(path):
        return False
    try:
        text = read_text(path, HINT)
    except InputError:
        return False
    return bool(_STARTS.search(text)) and '["rank ' in text


def read_ranks(path: str) -> RankLayout:
    """Read the sizes and the order of ranks.

    Raises:
        InputError: the file cannot be read, a line is not part of a flowchart of ranks, or ranks
            are missing, drawn twice, or numbered in an unknown order.
    """
    source = name_of(path)
    return parse_ranks(read_text(path, HINT), source)


def parse_ranks(text: str, source: str) -> RankLayout:
    """Read the sizes and the order of ranks from the text of a file named ``source``.

    Raises:
        InputError: as :func:`read_ranks`.
    """
    lines = split_lines(text, source, LINE)
    if not _STARTS.search(text):
        raise InputError(f"'{source}' is not a flowchart", HINT)
    chart = _read_lines(lines, source)
    if not chart.boxes:
        raise InputError(f"'{source}' has no ranks", HINT)
    replicas = _count(source, "data replica", {box.replica for box in chart.boxes}, chart.replicas)
    devices = _count(source, "pipeline device", {box.device for box in chart.boxes}, chart.devices)
    tensor, context = (
        1 + max(getattr(box, name) for box in chart.boxes) for name in ("tensor", "context")
    )
    total = replicas * devices * tensor * context
    if total > MOST:
        raise InputError(f"'{source}' has {total:,} ranks, more than {MOST:,}", HINT)
    _check_devices(source, chart, tensor * context)
    found = RankLayout(source, tensor, context, devices, replicas, "")
    return RankLayout(source, tensor, context, devices, replicas, _order(found, chart.boxes))


def _read_lines(lines: list[str], source: str) -> _Chart:
    """Return the content of a chart (InputError: a line is not part of one)."""
    chart, replica, device = _Chart(), -1, -1
    seen = set[tuple[int, int]]()
    for number, line in enumerate(lines, start=1):
        word = line.strip()
        if replica >= 0 and device < 0 and (found := _DEVICE.fullmatch(word)):
            device = int(found[1])
            if (replica, device) in seen:
                raise unreadable_line(
                    source,
                    number,
                    line,
                    f"pipeline device {device} of data replica {replica} again",
                    HINT,
                )
            seen.add((replica, device))
        elif replica < 0 and (found := _REPLICA.fullmatch(word)):
            replica = int(found[1])
            if any(replica == known for known, _ in seen):
                raise unreadable_line(source, number, line, f"data replica {replica} again", HINT)
        elif device >= 0 and (found := _RANK.fullmatch(word)):
            rank, context, tensor = (int(each or 0) for each in found.groups())
            chart.boxes.append(_Box(rank, replica, device, context, tensor, number))
        elif device >= 0 and (found := _MORE.fullmatch(word)):
            chart.hidden[replica, device] += int(found[1])
        elif word == "end" and replica >= 0:
            replica, device = (replica, -1) if device >= 0 else (-1, -1)
        elif (found := _LEFT.fullmatch(word)) and any(found.groups()):
            chart.replicas, chart.devices = (
                None if each is None else int(each) for each in found.groups()
            )
        elif not (_OTHERS.fullmatch(word) or _ARROW.fullmatch(word)):
            problem = (
                "a rank outside of a pipeline device"
                if _RANK.fullmatch(word)
                else "not part of a flowchart of ranks"
            )
            raise unreadable_line(source, number, line, problem, HINT)
    if replica >= 0:
        raise InputError(f"'{source}' ends inside data replica {replica}", HINT)
    return chart


def _count(source: str, noun: str, drawn: set[int], stated: int | None) -> int:
    """Return the number of replicas or devices, which are all drawn or whose number is stated."""
    count = 1 + max(drawn)
    if stated is None and len(drawn) < count:
        missing = min(set(range(len(drawn) + 1)) - drawn)
        raise InputError(f"'{source}': {noun} {missing} of {count} is not drawn", HINT)
    if stated is not None and stated != count:
        raise InputError(
            f"'{source}' states {stated} {noun}s, and the last one drawn is {count - 1}", HINT
        )
    return count


def _check_devices(source: str, chart: _Chart, each: int) -> None:
    """Refuse a chart in which a drawn device of a drawn replica lacks ranks (InputError)."""
    replicas, devices = (
        {getattr(box, name) for box in chart.boxes} for name in ("replica", "device")
    )
    drawn = Counter((box.replica, box.device) for box in chart.boxes)
    for replica in sorted(replicas):
        for device in sorted(devices):
            count = drawn[replica, device] + chart.hidden[replica, device]
            if count != each:
                where = f"pipeline device {device} of data replica {replica}"
                raise InputError(f"'{source}': {where} has {count} of {each} ranks", HINT)


def _order(layout: RankLayout, boxes: list[_Box]) -> str:
    """Return the order in which ranks are numbered.

    Raises:
        InputError: a place or a rank is drawn twice, or no known order has these numbers.
    """
    drawn = dict[tuple[int, ...], int]()
    for box in boxes:
        for key, noun in (
            ((box.replica, box.device, box.context, box.tensor), "this place"),
            ((box.rank,), "this rank"),
        ):
            if key in drawn:
                raise InputError(
                    f"{layout.source}, line {box.line}: {noun} was drawn in line {drawn[key]}", HINT
                )
            drawn[key] = box.line
    wrong = dict[str, _Box]()
    for order in dict.fromkeys(RANK_ORDERS.values()):
        off = next((box for box in boxes if box.rank != _rank(layout, order, box)), None)
        if off is None:
            return order
        wrong[order] = off
    last = max(wrong.values(), key=lambda box: box.line)
    there = ", ".join(f"{order} has {_rank(layout, order, last)} there" for order in wrong)
    place = (
        f"data replica {last.replica}, pipeline device {last.device}, context {last.context}, "
        f"tensor {last.tensor}"
    )
    raise InputError(
        f"{layout.source}, line {last.line}: rank {last.rank} lies at {place}; {there}", HINT
    )


def _rank(layout: RankLayout, order: str, box: _Box) -> int:
    """Return the number of a box's rank in an order."""
    outer, inner, count = box.device, box.replica, layout.dp
    if order.endswith("dp"):
        outer, inner, count = box.replica, box.device, layout.pp
    return ((outer * count + inner) * layout.cp + box.context) * layout.tp + box.tensor
