"""Time one schedule under many costs at once: the simple model's longest path, many samples in one array step.

Ops equally far along the pipeline do not depend on each other. They form a level; a level of all samples is a few array
operations, so that neither the ops nor the samples cost a Python step each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ppsim.base.workers import map_in_threads
from ppsim.core.costs import Costs
from ppsim.core.lanes import find_senders, groups_of, list_waits, once_a_schedule, previous_on_lane, refuse_lanes
from ppsim.core.ops import COMPUTE, TIMED
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.longest_path import simulate, time_each

Floats = NDArray[np.float64]
# Numbers per array of one chunk of samples: many enough to drown the cost of a step, few enough for a cache.
IN_FLIGHT = 1 << 19


@dataclass(frozen=True)
class Levels:
    """A schedule's ops level by level; build it with :func:`find_levels`.

    A pair counts once, as its first op, and so does an op on all devices. A row is an op's place in this order, counted
    from 1; row 0 ends at time 0. An edge is an input of a row. Edges stand in the order of levels; ``parts`` cuts those
    of a level so that the k-th part has the k-th inputs of the level's first rows.
    """

    bounds: NDArray[np.int64]  # shape (levels + 1,), the rows where each level begins and ends
    op: NDArray[np.int64]  # shape (rows - 1,), the op of each row from 1
    before: NDArray[np.int64]  # shape (rows - 1,), the row before it on its lane
    target: NDArray[np.int64]  # shape (edges,), the row that needs the input
    needs: NDArray[np.int64]  # shape (edges,), the row that makes it
    inputs: NDArray[np.int64]  # shape (edges,), the op whose message it is; one that gets none where it is no message
    parts: list[list[slice]]  # for each level, its cuts of edges


@once_a_schedule
def find_levels(schedule: Schedule) -> Levels:
    """Find the order in which ops can be timed, whatever they cost (Deadlock: the schedule cannot finish)."""
    most = max(schedule.n_stages, schedule.n_devices)
    ones = {kind: np.ones(most) for kind in TIMED if kind not in COMPUTE} if schedule.has_lanes else {}
    costs = Costs(np.ones((len(COMPUTE), schedule.n_stages)), pair=np.ones(schedule.n_stages), others=ones)
    steps = simulate(schedule, costs).start
    group, edges = groups_of(schedule), _edges(schedule)
    first = np.flatnonzero(group == np.arange(len(schedule)))
    op = first[np.lexsort((-np.bincount(edges[0], minlength=len(schedule))[first], steps[first]))]
    row = np.zeros(len(schedule) + 1, np.int64)  # the last is for no op
    row[op] = np.arange(1, len(op) + 1)
    row[:-1] = row[group]
    bounds = np.append(np.flatnonzero(np.diff(steps[op], prepend=-1.0)), len(op)) + 1
    target, needs = row[edges[0]], row[edges[1]]
    order = np.argsort(target, kind="stable")
    rank = np.arange(len(order)) - np.searchsorted(target[order], target[order])
    level = np.searchsorted(bounds, target[order], side="right") - 1
    place = np.lexsort((target[order], rank, level))
    order, key = order[place], level[place] * np.int64(len(order) + 1) + rank[place]
    cuts = np.append(np.flatnonzero(np.diff(key, prepend=-1)), len(order)).tolist()
    parts: list[list[slice]] = [[] for _ in bounds[1:]]
    for begin, end in pairwise(cuts):
        parts[level[place[begin]]].append(slice(begin, end))
    before = row[previous_on_lane(schedule)[op]]
    return Levels(bounds, op, before, target[order], needs[order], edges[2][order], parts)


def _edges(schedule: Schedule) -> NDArray[np.int64]:
    """The inputs of ops beside the op before on their lane, rows target, source and op whose message it is, once each.

    Those of all ops that start together are the first one's.
    """
    if not schedule.has_lanes:
        op = np.flatnonzero(schedule.dependency != NONE)
        lead = np.arange(len(schedule))
        lead[schedule.second_of_pairs] -= 1
        return np.stack([lead[op], schedule.dependency[op], op])
    group, waits = groups_of(schedule), list_waits(schedule)
    silent = int(np.argmax(find_senders(schedule) == NONE))
    edges = np.stack([group[waits.op], group[waits.need], np.where(waits.message, waits.op, silent)])
    found: NDArray[np.int64] = np.unique(edges[:, edges[0] != edges[1]], axis=1)
    return found


def find_ends(levels: Levels, durations: Floats, latencies: Floats, earliest: Floats | None = None) -> Floats:
    """Compute the end of each row in each sample, bit for bit as ``simulate`` does; shape (rows, samples), row 0 zero.

    Durations, latencies (0 for ops that get no message) and ``earliest``, before which no op starts, have shape (ops,
    samples); latencies may have one sample for all.
    """
    end = np.zeros((len(levels.op) + 1, durations.shape[1]))
    for (first, stop), parts in zip(pairwise(levels.bounds.tolist()), levels.parts, strict=True):
        rows = slice(first - 1, stop - 1)
        begin = end.take(levels.before[rows], axis=0)
        for part in parts:
            arrival = end.take(levels.needs[part], axis=0)
            arrival += latencies.take(levels.inputs[part], axis=0)
            here = begin[: len(arrival)]
            np.maximum(here, arrival, out=here)
        if earliest is not None:
            np.maximum(begin, earliest.take(levels.op[rows], axis=0), out=begin)
        np.add(begin, durations.take(levels.op[rows], axis=0), out=end[first:stop])
    return end


def find_makespans(schedule: Schedule, levels: Levels, durations: Floats, latencies: Floats, host_link: int) -> Floats:
    """Compute the makespan of each sample, shape (samples,), one by one where devices share a link to their host.

    There the time of each copy decides which is next. See :func:`find_ends` for the rest.
    """
    if not host_link:
        return find_ends(levels, durations, latencies).max(axis=0)
    return time_each(schedule, durations, latencies, host_link)


def makespans_with_gaps(schedule: Schedule, durations: Floats, gaps: Floats, latencies: Floats) -> Floats:
    """Compute the makespan of each sample where devices need a gap before each op, shape (samples,).

    The first op of a device needs none. A gap is told as if the op before took longer, and its messages left earlier.
    All have shape (samples, ops), gaps also (ops,); latencies are of each op's input, 0 on the same device.

    Raises:
        Deadlock: the schedule cannot finish.
        InputError: it has several streams.
    """
    refuse_lanes(schedule, "a model of gaps between ops")
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

    All have the same links to hosts.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    levels, link = find_levels(schedule), max((each.host_link for each in costs), default=0)

    def sample(first: int, stop: int) -> Floats:
        return find_makespans(schedule, levels, *_columns(schedule, costs[first:stop]), link)

    return run_in_chunks(sample, len(costs), len(schedule))


def _columns(schedule: Schedule, costs: Sequence[Costs]) -> tuple[Floats, Floats]:
    """Durations and latencies, shape (ops, costs) each."""
    if schedule.has_lanes or len(schedule.second_of_pairs) or any(np.ndim(c.comm) or not c.alike for c in costs):
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
