"""The exact model of schedules whose devices run several streams side by side: copies, collectives, ops on all devices.

An op starts when the op before it on its lane has ended, and all its inputs have come; an op on all devices, when that
holds on each of them. Of devices that share a link to their host one at a time copies in each direction, first come,
first served.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import load, pays
from ppsim.core.costs import Costs
from ppsim.core.lanes import MISSING, NONE, Waits, groups_of, lanes_of, list_waits, once_a_schedule
from ppsim.core.ops import TIMED, Stream, mask
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.core.waiting import follow_circle
from ppsim.engine.simple import streams_kernel as kernel
from ppsim.errors import Deadlock

_TOGETHER = mask(kind for kind in TIMED if kind.info.everywhere)
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]
# When a process has timed this many ops in CPython, the compiled kernel has paid for its loading
# (tests/benchmarks/crossing.py).
COMPILE_STREAMS_ABOVE = 200_000


def simulate_streams(schedule: Schedule, costs: Costs) -> Timeline:
    """Time every op of a schedule with several streams (Deadlock: ops wait in a cycle, or for one that never runs)."""
    duration = costs.durations(schedule)
    ((start, bound),) = run_streams(schedule, costs.host_link, duration[:, None], costs.latencies(schedule)[:, None])
    times = start, start + duration, bound.astype(np.int32)
    return Timeline(schedule, *times, costs.unit, comm=costs.comm, feedback=costs.feedback)


def run_streams(
    schedule: Schedule, shared: int, durations: Floats, latencies: Floats
) -> Iterator[tuple[Floats, Indices]]:
    """Yield the start of each op in each sample, and the op that set it (Deadlock: ops wait in a cycle, or for none).

    ``shared`` devices share a link to their host; 0 where each has its own. Durations and latencies of each op's
    message have shape (ops, samples); of ops that start together the first one's duration counts.
    """
    group, waits = groups_of(schedule), list_waits(schedule)
    missing = np.flatnonzero(waits.need == MISSING)
    if len(missing):
        raise Deadlock(*explain_missing(schedule, int(waits.op[missing[0]])))
    edges, links = _list_edges(schedule), _links(schedule, shared)
    for duration, latency in zip(durations.T, latencies.T, strict=True):
        start, bound = _run(edges, np.where(edges.message, latency[edges.waits], 0.0), duration, links)
        if (start[group] < 0).any():
            raise Deadlock(*_explain_cycle(schedule, group, waits, start[group] >= 0))
        begin = start[group]
        _choose_binding(schedule, begin, begin + duration[group], latency, bound)
        yield begin, bound[group]


def _choose_binding(
    schedule: Schedule,
    start: Floats,
    end: Floats,
    latency: Floats,
    bound: Indices,
) -> None:
    """Choose among ops that set a start together, as the one-lane model does.

    The op before on its lane goes first, then the op that made the input. Ops on all devices, which
    have a lane on each, keep the op that came first in time.
    """
    group, waits = groups_of(schedule), list_waits(schedule)
    mine = (waits.op == group[waits.op]) & (group[waits.op] != group[waits.need])
    mine &= ~_TOGETHER[schedule.kind[waits.op]] & (bound[waits.op] != NONE)
    for chosen in (waits.need == schedule.dependency[waits.op], waits.on_lane):
        op, need = waits.op[mine & chosen], waits.need[mine & chosen]
        travels = np.where(waits.message[mine & chosen], latency[op], 0.0)
        ties = end[need] + travels == start[op]
        bound[op[ties]] = need[ties]


class _Edges(NamedTuple):
    """What groups wait for; see :class:`ppsim.engine.simple.streams_kernel.Columns`."""

    after: Indices
    target: Indices
    source: Indices
    waits: Indices  # shape (edges,), the op that waits
    message: NDArray[np.bool_]  # shape (edges,), whether it waits for a message
    first: Indices
    left: Indices


@once_a_schedule
def _list_edges(schedule: Schedule) -> _Edges:
    group, waits = groups_of(schedule), list_waits(schedule)
    # a pair's second op waits for no more than its first
    outside = np.flatnonzero(group[waits.op] != group[waits.need])
    edges = outside[np.argsort(group[waits.need[outside]], kind="stable")]
    target, source = group[waits.op[edges]], waits.need[edges]
    after = np.searchsorted(group[source], np.arange(len(group) + 1))
    left = np.bincount(target, minlength=len(group))
    first = np.flatnonzero((group == np.arange(len(group))) & (left == 0))
    return _Edges(after, target, source, waits.op[edges], waits.message[edges], first, left)


def _links(schedule: Schedule, shared: int) -> Indices:
    """The direction of a link to a host that each op takes, -1 for none."""
    stream = lanes_of(schedule) % len(Stream)
    copies = (stream == Stream.COPY_OUT) | (stream == Stream.COPY_IN)
    link = schedule.device // max(shared, 1) * len(Stream) + stream
    return np.where(copies & (shared > 0), link, NONE)


def _run(edges: _Edges, delay: Floats, duration: Floats, link: Indices) -> tuple[Floats, Indices]:
    """Start every group in the order of time; return its start, -1 if it never does, and the op that set the start."""
    n, links = len(duration), int(link.max(initial=NONE)) + 1
    columns: Any = kernel.Columns(
        edges.after, edges.target, edges.source, delay, np.ascontiguousarray(duration), link,
        edges.first, edges.left.copy(), np.zeros(links), np.full(links, NONE),
        np.full(n, -1.0), np.zeros(n), np.full(n, NONE),
    )  # fmt: skip
    compiled = load(kernel.execute, columns) if pays(kernel.execute, n, COMPILE_STREAMS_ABOVE) else None
    if compiled is None:
        columns = kernel.Columns._make([column.tolist() for column in columns])
    (compiled or kernel.execute)(columns)
    return np.asarray(columns.start), np.asarray(columns.bound, np.int64)


def explain_missing(schedule: Schedule, op: int) -> tuple[str, str]:
    """Return the message and the hint for an op whose input no device makes."""
    what = f"device {schedule.device[op]} waits for the input of {schedule.label(op)}, which no device produces"
    return f"{schedule.name} cannot finish: {what}", "add the missing op to a queue"


def _explain_cycle(schedule: Schedule, group: Indices, waits: Waits, done: NDArray[np.bool_]) -> tuple[str, str]:
    """Follow the ops that wait for each other until one comes again."""
    target, source = waits.op, waits.need
    open_ = ~done[target] & ~done[source] & (group[target] != group[source])
    by_group = {int(group[t]): (int(t), int(s)) for t, s in zip(target[open_], source[open_], strict=True)}
    links = []
    for each in follow_circle(next(iter(by_group)), lambda at: int(group[by_group[at][1]])):
        op, need = by_group[each]
        links.append(
            f"{schedule.label(op)} on device {schedule.device[op]} waits for {schedule.label(need)} "
            f"on device {schedule.device[need]}"
        )
    return f"{schedule.name} deadlocks: {'; '.join(links)}", "move one of the awaited ops ahead in its queue"
