"""Time one schedule under many costs at once: its ops in one order, replayed for many samples.

The inputs of an op do not depend on costs, so one order of ops is valid for all samples. CPython
runs a few array operations over the samples for each op, machine code a loop over them. If devices
share a link to their host, times decide which copy is next, so each sample is simulated separately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import load, machine_code_pays
from ppsim.core.costs import Costs
from ppsim.core.lanes import (
    cached_per_schedule,
    find_senders,
    groups_of,
    list_waits,
    previous_on_lane,
)
from ppsim.core.ops import COMPUTE, TIMED
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.longest_path import simulate, time_each
from ppsim.engine.simple.replay_kernel import Rows, Times, replay

Floats = NDArray[np.float64]
# Numbers in an array of a chunk of samples: enough to hide the cost of a step, but within a cache.
IN_FLIGHT = 1 << 19
# Rows that a process replays in CPython before it loads the compiled kernel.
COMPILE_REPLAY_ABOVE = 20_000
NO_TIMES = np.empty((0, 1))


@dataclass(frozen=True)
class Order:
    """An order in which the ops of a schedule can be timed; build it with :func:`find_order`."""

    rows: Rows
    row: NDArray[np.int64]  # shape (ops,), the row of each op


@cached_per_schedule
def find_order(schedule: Schedule) -> Order:
    """Return an order in which ops can be timed under any costs (Deadlock: it cannot finish)."""
    group, edges = groups_of(schedule), _list_edges(schedule)
    leads = np.flatnonzero(group == np.arange(len(schedule)))
    op = leads[np.argsort(_steps(schedule)[leads], kind="stable")]
    row = np.zeros(len(schedule) + 1, np.int64)  # the last entry stands for no op
    row[op] = np.arange(1, len(op) + 1)
    row[:-1] = row[group]
    target, needs = row[edges[0]], row[edges[1]]
    order = np.lexsort((needs, target))
    inputs_at = np.searchsorted(target[order], np.arange(1, len(op) + 2))
    before = row[previous_on_lane(schedule)[op]]
    return Order(Rows(op, before, inputs_at, needs[order], edges[2][order]), row[:-1])


def _steps(schedule: Schedule) -> Floats:
    """Return the start of every op if all ops take one unit, so that each follows its inputs."""
    others = {
        kind: np.ones(schedule.n_stages if kind.info.has_stage else schedule.n_devices)
        for kind in TIMED
        if kind not in COMPUTE
    }
    ones = np.ones((len(COMPUTE), schedule.n_stages))
    return simulate(schedule, Costs(ones, pair=ones[0], others=others)).start


def _list_edges(schedule: Schedule) -> NDArray[np.int64]:
    """Return the inputs of ops without duplicates: rows of target, source, and the message's op.

    Inputs of ops that start together are those of the first one. The op before on the lane is not
    an input.
    """
    if not schedule.has_lanes:  # the general code takes eight times as long
        op = np.flatnonzero(schedule.dependency != NONE)
        return np.stack([groups_of(schedule)[op], schedule.dependency[op], op])
    group, waits = groups_of(schedule), list_waits(schedule)
    silent = int(np.argmax(find_senders(schedule) == NONE))
    edges = np.stack(
        [group[waits.op], group[waits.need], np.where(waits.message, waits.op, silent)]
    )
    on_lane = waits.on_lane & (waits.op == edges[0])
    found: NDArray[np.int64] = np.unique(edges[:, ~on_lane & (edges[0] != edges[1])], axis=1)
    return found


def find_ends(
    order: Order,
    durations: Floats,
    latencies: Floats,
    earliest: Floats = NO_TIMES,
    gaps: Floats = NO_TIMES,
) -> Floats:
    """Return the end of each row in each sample, equal to ``simulate`` bit for bit.

    The result has shape (rows + 1, samples), with zeros in row 0. All times have shape (ops,
    samples): durations; latencies, 0 for ops without a message; ``earliest`` starts of ops;
    ``gaps`` before each op but the first of a lane. Latencies and gaps may have one sample for all.
    For ops that start together the first one's times count, except for latencies.
    """
    end = np.zeros((len(order.rows.op) + 1, durations.shape[1]))
    columns = [np.ascontiguousarray(each) for each in (durations, latencies, gaps, earliest)]
    times = Times._make([*columns, end])
    paid = machine_code_pays(replay, len(end), COMPILE_REPLAY_ABOVE)
    compiled = load(replay, order.rows, times) if paid else None
    (compiled or _replay_arrays)(order.rows, times)
    return end


def _replay_arrays(rows: Rows, times: Times) -> None:
    """Compute the end of every row like :func:`replay`, with array operations over samples."""
    end, duration, latency, gap = (list(table) for table in (times.end, *times[:3]))
    earliest, inputs_at = list(times.earliest), rows.inputs_at.tolist()
    inputs = list(zip(rows.needs.tolist(), rows.carries.tolist(), strict=True))
    begin, arrival = np.empty((2, times.end.shape[1]))
    for row, (op, before) in enumerate(
        zip(rows.op.tolist(), rows.previous.tolist(), strict=True), 1
    ):
        latest = np.add(end[before], gap[op], out=begin) if gap and before else end[before]
        for need, message in inputs[inputs_at[row - 1] : inputs_at[row]]:
            latest = np.maximum(latest, np.add(end[need], latency[message], out=arrival), out=begin)
        if earliest:
            latest = np.maximum(latest, earliest[op], out=begin)
        np.add(latest, duration[op], out=end[row])


def find_makespans(
    schedule: Schedule, order: Order, durations: Floats, latencies: Floats, host_link: int
) -> Floats:
    """Return the makespan of each sample, shape (samples,); see :func:`find_ends`.

    ``host_link`` is the number of devices that share a link to their host, 0 for none.
    """
    if host_link:
        return time_each(schedule, durations, latencies, host_link)
    makespans: Floats = find_ends(order, durations, latencies).max(axis=0)
    return makespans


def makespans_with_gaps(
    schedule: Schedule, durations: Floats, gaps: Floats, latencies: Floats
) -> Floats:
    """Return the makespan of each sample with a gap before each op of a lane, shape (samples,).

    The first op of a lane has no gap; for ops that start together the first one's counts. All
    arguments have shape (samples, ops), gaps possibly (ops,); latencies are 0 without a message.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    order, each = find_order(schedule), np.atleast_2d(gaps)

    def sample(first: int, stop: int) -> Floats:
        gap = each[first:stop] if len(each) > 1 else each
        times = (durations[first:stop].T, latencies[first:stop].T)
        ends: Floats = find_ends(order, *times, gaps=gap.T).max(axis=0)
        return ends

    return run_in_chunks(sample, len(durations), len(schedule))


def makespans(schedule: Schedule, costs: Sequence[Costs]) -> Floats:
    """Return the makespan of one schedule under each of many costs, shape (len(costs),).

    It runs on all cores. All costs have the same ``host_link``.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    order, link = find_order(schedule), max((each.host_link for each in costs), default=0)

    def sample(first: int, stop: int) -> Floats:
        return find_makespans(schedule, order, *_columns(schedule, costs[first:stop]), link)

    return run_in_chunks(sample, len(costs), len(schedule))


def _columns(schedule: Schedule, costs: Sequence[Costs]) -> tuple[Floats, Floats]:
    """Return durations and latencies, shape (ops, costs) each."""
    streams = schedule.has_lanes or schedule.feeds_back
    if (
        streams
        or len(schedule.second_of_pairs)
        or any(np.ndim(c.comm) or not c.is_per_stage for c in costs)
    ):
        durations = np.stack([c.durations(schedule) for c in costs], axis=1)
        return durations, np.stack([c.latencies(schedule) for c in costs], axis=1)
    row = schedule.kind * np.int64(schedule.n_stages) + schedule.stage
    durations = np.stack([c.time.ravel() for c in costs], axis=1).take(row, axis=0)
    return durations, np.where(schedule.crosses[:, None], np.array([c.comm for c in costs]), 0.0)


def run_in_chunks(sample: Callable[[int, int], Floats], count: int, n_ops: int) -> Floats:
    """Return the joined results of ``sample(first, stop)`` over chunks of samples, on all cores."""
    chunks = cut_samples(count, n_ops)
    if len(chunks) == 1:
        return sample(*chunks[0])
    from ppsim.base.workers import map_in_threads

    with map_in_threads(lambda chunk: sample(*chunk), chunks) as results:
        parts = list(results)
    return np.concatenate(parts) if parts else np.empty(0)


def cut_samples(count: int, n_ops: int) -> list[tuple[int, int]]:
    """Return chunks of samples that fit the cache, as (first, stop)."""
    size = max(16, IN_FLIGHT // max(1, n_ops))
    return [(first, min(first + size, count)) for first in range(0, count, size)]
