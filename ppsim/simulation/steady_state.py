"""Very many microbatches: a schedule's numbers without its middle, where the middle is proved to repeat.

Blocks of ops recur with later microbatches. They are put in at a cut that no op ahead of it looks behind. If, over
all the blocks that anything behind the cut reaches back to, each op ends exactly one period after its counterpart a
block earlier, then by induction over queues and dependencies so does every further block, and all that follows
moves on by one period. One small run, timed exactly, gives every larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Packed
from ppsim.core.schedule import Placement, Schedule
from ppsim.simulation.longest_path import build_columns, run_in_lists, simulate
from ppsim.simulation.metrics import Metrics, metrics_of, peak_activations
from ppsim.simulation.periodic import Body, Ints, body_of, folded, grown, period_of

Times = NDArray[Any]  # integers, of any length where 64 bits do not do
# From (microbatches, microbatches per block) one queue per device; the block is for options that follow from it.
Queues = Callable[[int, int], Iterable[Packed]]
MOST_OPS = 10_000_000  # beyond this a small run is no shortcut
MOST_OPS_OF_ANY_LENGTH = 200_000
DOUBLES = 1 << 53  # integers up to here are exact as doubles


@dataclass(frozen=True)
class Steady:
    """The numbers of a run of any length, and what they were extended from.

    Attributes:
        metrics: of the whole run.
        period: time from a block to the next.
        microbatches: microbatches per block.
        simulated: the small run's schedule.
        costs: its costs, the whole run's too.
    """

    metrics: Metrics
    period: float
    microbatches: int
    simulated: Schedule
    costs: Costs


def steady(
    name: str, placement: Placement, queues: Queues, microbatches: int, costs_of: Callable[[Schedule], Costs]
) -> Steady | None:
    """The metrics for ``microbatches``, or None where no repeating steady state is proved.

    Sums are exact and rounded once. A full run gives the same numbers where its own sums are exact, as with integer
    costs; elsewhere it differs by what it rounds on the way. That the queues of ``microbatches`` are those of the
    small run with blocks put in is checked on the first device in full, on all devices for two blocks.

    Args:
        name: the schedule's name.
        placement: which device holds which stage.
        queues: the generator; microbatches per block is 0 while not yet known.
        microbatches: M.
        costs_of: the costs of a schedule, which must not depend on its number of microbatches.
    """
    whole = folded(next(iter(queues(microbatches, 0))), microbatches, placement.n_replicas)
    shift = period_of(whole)
    if shift is None:
        return None
    block = shift * placement.n_replicas
    size = 4 * (placement.n_stages + block)
    size += (microbatches - size) % block
    while size + 2 * block < microbatches:
        runs = [list(queues(size + more * block, block)) for more in range(3)]
        schedule = Schedule.from_queues(name, placement, size, runs[0])
        body = _body(runs, whole, size, shift, placement.n_replicas)
        if body is None or len(schedule) > MOST_OPS:
            return None
        costs = costs_of(schedule)
        times = exact_times(schedule, costs)
        if times is None:
            return None
        start, end, scale = times
        if proof := prove(schedule, body, end):
            blocks = (microbatches - size) // block
            if blocks % proof.blocks == 0:
                metrics = _extended(schedule, proof, start, end, scale, blocks // proof.blocks)
                return Steady(metrics, proof.period / scale, block * proof.blocks, schedule, costs)
            size += blocks % proof.blocks * block
        else:
            size = 2 * size + (microbatches - 2 * size) % block
    return None


@dataclass(frozen=True)
class Proof:
    """A steady state: where more of it can be put in, and what that adds.

    Attributes:
        cut: shape (devices,), the op of each device ahead of which more can be put.
        ops: shape (devices,), ops of each device that recur, those right ahead of the cut.
        blocks: how many blocks of the queues recur together.
        period: the time they take, an integer.
    """

    cut: Ints
    ops: Ints
    blocks: int
    period: int

    def recur(self, schedule: Schedule) -> NDArray[np.bool_]:
        """Shape (ops,): the ops that recur."""
        op, device = np.arange(len(schedule)), schedule.device
        return (op >= (self.cut - self.ops)[device]) & (op < self.cut[device])


def prove(schedule: Schedule, body: Body, end: Times) -> Proof | None:
    """The steady state of a run whose ops end at the integers ``end``; None where it does not show or may not last."""
    cut = _closed(schedule, body.high)
    last, ops = cut - 1, body.ops
    for blocks in range(1, int(((cut - body.low) // ops).min()) // 2 + 1):
        # A few ops first: most numbers of blocks fall here.
        steps = [end[last - back * ops] - end[last - (back + blocks) * ops] for back in range(2)]
        if (np.concatenate(steps) == steps[0][0]).all():
            proof = Proof(cut, blocks * ops, blocks, int(steps[0][0]))
            if _lasts(schedule, body, proof, end):
                return proof
    return None


def _lasts(schedule: Schedule, body: Body, proof: Proof, end: Times) -> bool:
    op, device, need, cut = np.arange(len(schedule)), schedule.device, schedule.dependency, proof.cut
    behind = np.flatnonzero((op >= (cut - proof.ops)[device]) & (need >= 0))
    on = device[need[behind]]
    reach = np.ones(schedule.n_devices, np.int64)  # how many times the recurring ops, counted forward from the cut
    np.maximum.at(reach, on, -((need[behind] - cut[on]) // proof.ops[on]) - 1)
    if (cut - (reach + 1) * proof.ops < body.low).any():
        return False
    window = np.flatnonzero((op >= (cut - reach * proof.ops)[device]) & (op < cut[device]))
    if (end[window] - end[window - proof.ops[device[window]]] != proof.period).any():
        return False
    recur = proof.recur(schedule)
    taken = schedule.activation_changes()
    return not np.bincount(device[recur], taken[recur]).any()


def _closed(schedule: Schedule, cut: Ints) -> Ints:
    """The cut moved forward until no op ahead of it waits for one behind it and no pair is parted."""
    op, device, need, cut = np.arange(len(schedule)), schedule.device, schedule.dependency, cut.copy()
    while True:
        waits = np.flatnonzero((op < cut[device]) & (need >= 0) & (need >= cut[device[need]]))
        inside = cut[cut < len(schedule)]
        parted = inside[(schedule.pair[inside] == inside - 1)] - 1
        early = np.concatenate([waits, parted])
        if not len(early):
            return cut
        np.minimum.at(cut, device[early], early)


def exact_times(schedule: Schedule, costs: Costs) -> tuple[Times, Times, int] | None:
    """Start and end of every op as integers in units of 1 / scale, and the scale; None where that takes too long."""
    halves = () if costs.pair is None else costs.pair / 2
    tables = [costs.time.ravel(), np.asarray(halves, np.float64), np.ravel(costs.comm)]
    values = np.unique(np.concatenate(tables)).tolist()
    scale = max(value.as_integer_ratio()[1] for value in values)
    timeline = simulate(schedule, costs)
    if timeline.makespan < DOUBLES / scale:  # then every sum was exact
        return (timeline.start * scale).astype(np.int64), (timeline.end * scale).astype(np.int64), scale
    if len(schedule) > MOST_OPS_OF_ANY_LENGTH:
        return None
    whole = {value: value.as_integer_ratio()[0] * scale // value.as_integer_ratio()[1] for value in values}
    exact = [np.array([whole[value] for value in table.tolist()], object) for table in tables]
    _, columns = run_in_lists(build_columns(schedule, *exact))
    return np.array(columns.start, object), np.array(columns.end, object), scale


def _body(runs: list[list[Packed]], whole: Packed, size: int, shift: int, replicas: int) -> Body | None:
    """What repeats in the first run, provided that the others and the whole first queue are it with more blocks."""
    block = shift * replicas
    first, second, third = ([folded(q, size + i * block, replicas) for q in run] for i, run in enumerate(runs))
    body = body_of(first, second, shift)
    if body is None:
        return None
    begins = np.cumsum([0, *map(len, first[:-1])])
    checks = [*zip(first, third, (body.high - begins).tolist(), body.ops.tolist(), strict=True)]
    checks.append((first[0], whole, int(body.high[0]), int(body.ops[0])))
    return body if all(grown(*check, shift) for check in checks) else None


def _extended(schedule: Schedule, proof: Proof, start: Times, end: Times, scale: int, times: int) -> Metrics:
    """The metrics with the recurring ops put in so many times more."""
    recur, first = proof.recur(schedule), schedule.offsets[:-1]
    duration = end - start
    duration[schedule.second_of_pairs] = 0
    busy, added = (np.add.reduceat(d, first).tolist() for d in (duration, np.where(recur, duration, 0)))
    last = end[schedule.offsets[1:] - 1]
    longer = times * proof.period
    return metrics_of(
        makespan=(int(last.max()) + longer) / scale,
        span=(int((last - start[first]).max()) + longer) / scale,
        busy=np.array([(one + times * more) / scale for one, more in zip(busy, added, strict=True)]),
        peak=peak_activations(schedule),
        messages=int(schedule.crosses.sum()) + times * int(schedule.crosses[recur].sum()),
    )
