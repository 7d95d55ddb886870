"""Time one schedule under many costs at once: the simple model's longest path, many samples in one array step.

Ops equally far along the pipeline do not depend on each other. They form a level; a level of all samples is a few array
operations, so that neither the ops nor the samples cost a Python step each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.base.workers import map_in_threads
from ppsim.core.costs import Costs
from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import COMPUTE
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.longest_path import simulate

Floats = NDArray[np.float64]
# Numbers per array of one chunk of samples: many enough to drown the cost of a step, few enough for a cache.
IN_FLIGHT = 1 << 19


@dataclass(frozen=True)
class Levels:
    """A schedule's ops level by level; build it with :func:`find_levels`.

    A pair counts once, as its first op. A row is an op's place in this order, counted from 1; row 0 ends at
    time 0.

    Attributes:
        bounds: shape (levels + 1,), the rows where each level begins and ends.
        op: shape (rows - 1,), the op of each row from 1.
        before: shape (rows - 1,), the row before it in the queue.
        inputs: shape (1 or 2, rows - 1): the ops whose inputs the row needs: itself and a pair's second op.
        needs: like ``inputs``, the row that makes the input.
    """

    bounds: NDArray[np.int64]
    op: NDArray[np.int64]
    before: NDArray[np.int64]
    inputs: NDArray[np.int64]
    needs: NDArray[np.int64]


def find_levels(schedule: Schedule) -> Levels:
    """Find the order in which a schedule's ops can be timed, whatever they cost.

    Raises:
        Deadlock: the schedule cannot finish.
        InputError: it has several streams.
    """
    refuse_lanes(schedule, "a model of many samples")
    steps = simulate(schedule, Costs(np.ones((len(COMPUTE), schedule.n_stages)), pair=np.ones(schedule.n_stages))).start
    leads = schedule.leads
    first = np.flatnonzero(leads)
    op = first[np.argsort(steps[first], kind="stable")]
    row = np.zeros(len(schedule) + 1, np.int64)  # the last is for no op
    row[op] = np.arange(1, len(op) + 1)
    second = np.flatnonzero(~leads)
    row[second] = row[second - 1]
    heads = np.isin(op, schedule.offsets[:-1])
    inputs = np.stack([op, np.where(schedule.pair[op] == NONE, op, op + 1)])[: 2 if len(second) else 1]
    return Levels(
        bounds=np.append(np.flatnonzero(np.diff(steps[op], prepend=-1.0)), len(op)) + 1,
        op=op,
        before=np.where(heads, 0, row[op - 1]),
        inputs=inputs,
        needs=row[schedule.dependency[inputs]],
    )


def find_ends(levels: Levels, durations: Floats, latencies: Floats, earliest: Floats | None = None) -> Floats:
    """Compute the end of each row in each sample, bit for bit as ``simulate`` does.

    Args:
        levels: the schedule's order.
        durations: shape (ops, samples), as :meth:`Costs.durations` gives them.
        latencies: shape (ops, samples) or (ops, 1).
        earliest: shape (ops, samples), before which no op starts, or None.

    Returns:
        Shape (rows, samples), row 0 zero.
    """
    end = np.zeros((len(levels.op) + 1, durations.shape[1]))
    for first, stop in zip(levels.bounds[:-1].tolist(), levels.bounds[1:].tolist(), strict=True):
        rows = slice(first - 1, stop - 1)
        begin = end.take(levels.before[rows], axis=0)
        for op, need in zip(levels.inputs[:, rows], levels.needs[:, rows], strict=True):
            arrival = end.take(need, axis=0)
            arrival += latencies.take(op, axis=0)
            np.maximum(begin, arrival, out=begin)
        if earliest is not None:
            np.maximum(begin, earliest.take(levels.op[rows], axis=0), out=begin)
        np.add(begin, durations.take(levels.op[rows], axis=0), out=end[first:stop])
    return end


def makespans_with_gaps(schedule: Schedule, durations: Floats, gaps: Floats, latencies: Floats) -> Floats:
    """Compute the makespan of each sample where devices need a gap before each op, shape (samples,).

    The first op of a device needs none. A gap is told as if the op before took longer, and its messages left earlier.

    Args:
        schedule: what runs.
        durations: shape (samples, ops).
        gaps: shape (ops,) or (samples, ops), before each op.
        latencies: shape (samples, ops), of each op's input; 0 on the same device.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    levels, after = find_levels(schedule), np.zeros_like(durations)
    leads = np.flatnonzero(schedule.leads)
    follows = np.diff(schedule.device[leads]) == 0
    after[:, leads[:-1][follows]] = np.atleast_2d(gaps)[:, leads[1:][follows]]
    after[:, schedule.second_of_pairs] = after[:, schedule.first_of_pairs]
    has = np.flatnonzero(schedule.dependency >= 0)
    left = latencies.copy()
    left[:, has] -= after[:, schedule.dependency[has]]

    def sample(first: int, stop: int) -> Floats:
        columns = (durations[first:stop] + after[first:stop], left[first:stop])
        end = find_ends(levels, *(np.ascontiguousarray(column.T) for column in columns))
        return (end[1:] - after[first:stop, levels.op].T).max(axis=0)

    return run_in_chunks(sample, len(durations), len(schedule))


def makespans(schedule: Schedule, costs: Sequence[Costs]) -> Floats:
    """Compute the makespan of one schedule under each of many costs, shape (len(costs),), on all cores.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    levels = find_levels(schedule)

    def sample(first: int, stop: int) -> Floats:
        return find_ends(levels, *_columns(schedule, costs[first:stop])).max(axis=0)

    return run_in_chunks(sample, len(costs), len(schedule))


def _columns(schedule: Schedule, costs: Sequence[Costs]) -> tuple[Floats, Floats]:
    """Durations and latencies, shape (ops, costs) each."""
    if len(schedule.second_of_pairs) or any(np.ndim(c.comm) or not c.alike for c in costs):
        durations = np.stack([c.durations(schedule) for c in costs], axis=1)
        return durations, np.stack([c.latencies(schedule) for c in costs], axis=1)
    row = schedule.kind * np.int64(schedule.n_stages) + schedule.stage
    durations = np.stack([c.time.ravel() for c in costs], axis=1).take(row, axis=0)
    return durations, np.where(schedule.crosses[:, None], np.array([c.comm for c in costs]), 0.0)


def run_in_chunks(sample: Callable[[int, int], Floats], count: int, n_ops: int) -> Floats:
    """Run ``sample(first, stop)`` over ``count`` samples in chunks that fit the cache, on all cores, and join them."""
    with map_in_threads(lambda chunk: sample(*chunk), cut_samples(count, n_ops)) as results:
        parts = list(results)
    return np.concatenate(parts) if parts else np.empty(0)


def cut_samples(count: int, n_ops: int) -> list[tuple[int, int]]:
    """Cut samples of a number of ops into chunks that fit the cache, each from its first sample to before its last."""
    size = max(16, IN_FLIGHT // max(1, n_ops))
    return [(first, min(first + size, count)) for first in range(0, count, size)]
