"""A proven lower bound on the step over all dealings of the same sequences.

When ops take longer, no op starts earlier and the step does not end earlier. Every microbatch takes
at least the least time of any sequence (0 if it may be empty). So for every dealing:

* On device d, consider the time before its first op (head) and the time from the end of its last op
  to the end of the pipeline (tail). Neither is shorter than if all microbatches took that least
  time. In between the device runs all its ops one after the other. They take the work of its
  replica's sequences, at the cheapest microbatch if costs of microbatches differ. If sequences stay
  on their replicas, the step is at least that of every replica. If not, the replicas share the
  work, and a step of T leaves each the time T - head - tail for its part.
* The longest sequence is in some microbatch, which takes at least as long.

Padding only adds to the time of a microbatch.
"""

from __future__ import annotations

import numpy as np

from ppsim.core.sequences import Floats
from ppsim.engine.simple.batch import find_ends
from ppsim.search.dealing.problem import Pipeline, Problem

SLACK = 1e-12  # share by which the bound is lowered, for rounding
MOST_LONGEST = 4  # number of replicas whose longest sequence is simulated in each microbatch
OPS_AT_ONCE = 1 << 21  # ops timed in one array step


def bound_step(problem: Problem) -> float:
    """Return a lower bound on the step over all dealings, without the time after the pipelines."""
    least = _least_factors(problem)
    bound = max(_bound_work(problem, least), _bound_longest(problem, least))
    return bound * (1 - SLACK)


def _least_factors(problem: Problem) -> Floats:
    """Return the least time of a microbatch, shape (R, Q)."""
    Q, M = problem.time.shape[1], problem.microbatches
    least = np.zeros((problem.n_replicas, Q))
    for r in range(problem.n_replicas):
        times = problem.time if problem.across else problem.time[problem.replica == r]
        if not problem.may_be_empty[r] and problem.counts[r] == M and len(times):
            least[r] = times.min(axis=0)
    return least


def _bound_work(problem: Problem, least: Floats) -> float:
    """Return the bound on the step by the work of each device, its fill and its drain."""
    pipeline, R = problem.pipeline, problem.n_replicas
    head, tail = _heads_and_tails(problem, least)
    cost = _cheapest(pipeline, problem.microbatches, problem.time.shape[1])  # (P, Q)
    if not problem.across:
        total = np.zeros((R, problem.time.shape[1]))
        np.add.at(total, problem.replica, problem.time)
        return float((head + (total @ cost.T) * pipeline.slow + tail).max())
    work = problem.time.sum(axis=0) @ cost.T
    # In a step T, replica r can do (T - head - tail) / slow of the work; all work must fit.
    speed = 1 / pipeline.slow
    return float(((work + ((head + tail) * speed).sum(axis=0)) / speed.sum(axis=0)).max())


def _cheapest(pipeline: Pipeline, microbatches: int, Q: int) -> Floats:
    """Return the least time of a device for a factor of 1 in any microbatch, shape (P, Q)."""
    schedule, times = pipeline.schedule, pipeline.times
    device_time = np.zeros((schedule.n_devices, Q * microbatches))
    counted = schedule.leads
    for part, row in ((times.own, times.row), (times.other, times.other_row)):
        np.add.at(device_time, (schedule.device[counted], row[counted]), part[counted])
    return device_time.reshape(schedule.n_devices, Q, microbatches).min(axis=2)


def _heads_and_tails(problem: Problem, least: Floats) -> tuple[Floats, Floats]:
    """Return the least time before the first and after the last op of devices, shape (R, P) each.

    To find the time after an op, the op is made longer than all others with their messages. Then it
    is on every longest path, and the rest of the pipeline follows its end.
    """
    pipeline, schedule, R = problem.pipeline, problem.pipeline.schedule, problem.n_replicas
    order = pipeline.order
    op, row = order.rows.op, order.row
    factors = np.repeat(least[:, None], problem.microbatches, axis=1)
    replica = np.arange(R)
    durations = pipeline.durations(factors, replica)
    latency = np.broadcast_to(pipeline.latency, (R, len(schedule))).T
    head, tail = np.zeros((R, schedule.n_devices)), np.zeros((R, schedule.n_devices))
    end = find_ends(order, durations, np.ascontiguousarray(latency))
    huge = durations.sum(axis=0) + latency.sum(axis=0) + 1.0
    for device in range(schedule.n_devices):
        first, stop = schedule.offsets[device : device + 2]
        if first == stop:
            continue
        lead = op[row[first] - 1]
        head[:, device] = end[row[first]] - durations[lead]
        last = op[row[stop - 1] - 1]
        lengthened = durations.copy()
        lengthened[last] = huge
        end_after = find_ends(order, lengthened, np.ascontiguousarray(latency))
        tail[:, device] = np.maximum(end_after.max(axis=0) - end_after[row[stop - 1]], 0.0)
    return np.maximum(head, 0.0), tail


def _bound_longest(problem: Problem, least: Floats) -> float:
    """Return the bound on the step by the longest sequences' path through the pipeline."""
    time = problem.time.sum(axis=1)
    if problem.across:
        distinct = _distinct_replicas(problem, least)
        return min(_least_makespan(problem, least, int(time.argmax()), r) for r in distinct)
    sequences_of = [np.flatnonzero(problem.replica == r) for r in range(problem.n_replicas)]
    longest = [int(members[time[members].argmax()]) for members in sequences_of if len(members)]
    simulated = sorted(longest, key=lambda sequence: -time[sequence])[:MOST_LONGEST]
    return max(
        _least_makespan(problem, least, sequence, int(problem.replica[sequence]))
        for sequence in simulated
    )


def _least_makespan(problem: Problem, least: Floats, sequence: int, replica: int) -> float:
    """Return the least makespan of a replica with a sequence in any of its microbatches."""
    M, count = problem.microbatches, int(problem.counts[replica])
    # One sample for each microbatch that may have the sequence.
    factors = np.broadcast_to(least[replica], (count, M, problem.time.shape[1])).copy()
    sample = np.arange(count)
    factors[sample, sample] = np.maximum(factors[sample, sample], problem.time[sequence])
    size = max(1, OPS_AT_ONCE // len(problem.pipeline.schedule))
    parts = [factors[first : first + size] for first in range(0, count, size)]
    return min(
        float(problem.pipeline.makespans(part, np.full(len(part), replica)).min()) for part in parts
    )


def _distinct_replicas(problem: Problem, least: Floats) -> list[int]:
    """Return the replicas that differ from all earlier ones in their times."""
    first = dict[bytes, int]()
    latency = problem.pipeline.latency
    for r in range(problem.n_replicas):
        latency_of_replica = latency[r if len(latency) > 1 else 0]
        parts = (
            problem.pipeline.slow[r],
            least[r],
            latency_of_replica,
            problem.counts[r : r + 1],
        )
        first.setdefault(b"".join(part.tobytes() for part in parts), r)
    return list(first.values())
