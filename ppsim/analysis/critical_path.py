"""The critical path: ops that decide the makespan, slack of all ops, gains of faster ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.changes import with_times
from ppsim.base.compiled import run_in_place
from ppsim.core.costs import Costs
from ppsim.core.lanes import find_senders
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.batch import find_order, makespans
from ppsim.engine.simple.replay_kernel import Paths, trace

# The share by which an op or a link is made faster to measure its gain.
STEP = 0.01


def critical_path(timeline: Timeline) -> NDArray[np.int64]:
    """Return the ops of one critical path in order of time, a pair as its first op.

    The path leads from time 0 to the makespan. Each op starts when the op before it ends, or when
    that op's message arrives.
    """
    pair = timeline.schedule.pair
    path = list[int]()
    op = int(np.argmax(timeline.end)) if len(timeline.end) else NONE
    while op != NONE:
        op = op if pair[op] == NONE or pair[op] > op else op - 1
        path.append(op)
        op = int(timeline.bound[op])
    return np.array(path[::-1], np.int64)


@dataclass(frozen=True)
class Slack:
    """The slack of each op, and the number of critical paths."""

    # shape (ops,): time by which each op alone can start later without a longer iteration
    slack: NDArray[np.float64]
    paths: float  # number of critical paths; a float, as there may be very many


def slack_of(timeline: Timeline, latencies: NDArray[np.float64]) -> Slack:
    """Return the slack of every op, from the ops of the simple model traced backwards.

    ``latencies``, shape (ops,), are those of :meth:`ppsim.core.costs.Costs.latencies`.
    """
    order = find_order(timeline.schedule)
    start, end = (
        np.append(0.0, column[order.rows.op]) for column in (timeline.start, timeline.end)
    )
    latest, paths = np.full(len(end), timeline.makespan), np.zeros(len(end))
    found = Paths(start, end, latencies[order.rows.carries], latest, paths)
    run_in_place(trace, len(end), order.rows, found)
    at_the_end = end[1:] == timeline.makespan
    return Slack((latest - end)[order.row], float(paths[1:][at_the_end].sum()))


@dataclass(frozen=True)
class Gain:
    """The time saved per iteration if one thing is faster by ``STEP``."""

    what: str  # such as ``F of stage 2``, ``every OFFLOAD`` or ``messages from device 0 to 1``
    gain: float  # decrease of the makespan, in the timeline's unit


def sensitivity(
    schedule: Schedule, costs: Costs, time: Callable[[Costs], float] | None = None
) -> list[Gain]:
    """Return the simulated gains of each compute kind and stage, other kind, and link.

    The largest comes first. ``time`` returns the makespan under other costs, by default that of the
    simple model.
    """
    cases: list[tuple[str, Costs]] = []
    used, computing = np.zeros(costs.time.shape, bool), schedule.compute_only
    used[computing.kind, computing.stage] = True
    for kind, stage in np.argwhere(used & (costs.time > 0)).tolist():
        table = costs.time.copy()
        table[kind, stage] *= 1 - STEP
        cases.append((f"{Kind(kind).name} of stage {stage}", with_times(costs, table)))
    for other, times in costs.others.items():
        if times.any() and (schedule.kind == other).any():
            cases.append(
                (
                    f"every {other.name}",
                    replace(costs, others={**costs.others, other: times * (1 - STEP)}),
                )
            )
    links = np.broadcast_to(np.asarray(costs.comm, np.float64), (schedule.n_devices,) * 2)
    sender = find_senders(schedule)
    crossing = np.flatnonzero(sender != NONE)
    routes = np.stack([schedule.device[sender[crossing]], schedule.device[crossing]], 1)
    for source, target in np.unique(routes, axis=0).tolist():
        if links[source, target] > 0:
            comm = links.copy()
            comm[source, target] *= 1 - STEP
            cases.append((f"messages from device {source} to {target}", replace(costs, comm=comm)))
    every = [costs, *(case for _, case in cases)]
    ends = [*map(time, every)] if time else makespans(schedule, every).tolist()
    gains = [Gain(what, ends[0] - end) for (what, _), end in zip(cases, ends[1:], strict=True)]
    return sorted(gains, key=lambda gain: -gain.gain)


def path_text(schedule: Schedule, path: NDArray[np.int64]) -> list[str]:
    """Return a path as short texts: ops on one device with repetitions, and hops over devices."""
    return [text for text, _ in path_steps(schedule, path)]


def path_steps(schedule: Schedule, path: NDArray[np.int64]) -> list[tuple[str, slice]]:
    """Return the texts of :func:`path_text`, each with its range in the path."""
    cells = [
        (int(schedule.device[op]), _kinds(schedule, op), int(schedule.microbatch[op]))
        for op in path.tolist()
    ]
    pieces: list[tuple[str, slice]] = []
    at = 0
    while at < len(cells):
        hop = _hop(cells, at)
        if hop > 1:
            (first, kind, m), last = cells[at], cells[at + hop - 1][0]
            pieces.append((f"{kind}{m} on devices {first} to {last}", slice(at, at + hop)))
            at += hop
            continue
        stay = at
        while (
            stay < len(cells)
            and cells[stay][0] == cells[at][0]
            and (stay == at or _hop(cells, stay) < 2)
        ):
            stay += 1
        text = f"device {cells[at][0]}: {_repeats([kind for _, kind, _ in cells[at:stay]])}"
        pieces.append((text, slice(at, stay)))
        at = stay
    return pieces


def _kinds(schedule: Schedule, op: int) -> str:
    letter = Kind(schedule.kind[op]).name
    return letter if schedule.pair[op] == NONE else f"{letter}&{Kind(schedule.kind[op + 1]).name}"


def _hop(cells: Sequence[tuple[int, str, int]], at: int) -> int:
    """Return the number of ops from here on with one kind and microbatch on successive devices."""
    count = 1
    while at + count < len(cells):
        (device, kind, m), (other, *same) = cells[at + count - 1], cells[at + count]
        step = other - device
        if (
            abs(step) != 1
            or same != [kind, m]
            or (count > 1 and step != device - cells[at + count - 2][0])
        ):
            break
        count += 1
    return count


def _repeats(kinds: Sequence[str]) -> str:
    """Return kinds as text, with repetitions of up to four kinds counted: ``B (F B)x7``."""
    parts, at = list[str](), 0
    while at < len(kinds):
        best = (1, 1)
        for size in range(1, 5):
            times = 1
            while kinds[at : at + size] == kinds[at + times * size : at + (times + 1) * size]:
                times += 1
            if times > 1 and times * size > best[0] * best[1]:
                best = (size, times)
        size, times = best
        pattern = " ".join(kinds[at : at + size])
        parts.append(
            pattern if times == 1 else f"{pattern if size == 1 else f'({pattern})'}x{times}"
        )
        at += size * times
    return " ".join(parts)
