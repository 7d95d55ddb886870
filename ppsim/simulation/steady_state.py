"""Very many microbatches: the numbers of a run without its middle, where the middle is proved to repeat.

The queues of a long run are those of a small one with blocks of ops inserted, each the same ops with later
microbatches. The proof that every inserted block takes one period more, in four lemmas:

1. *The queues repeat* (:func:`_find_body`). On each device the queue of the longer run is that of the small one with
   whole blocks inserted at a cut, and nothing else.
2. *The cut is closed* (:func:`_close_cut`). No op before the cut depends on one after it, and the cut splits no pair.
   So insertion changes no time before the cut.
3. *Dependencies reach back by a known number of blocks* (``reach`` in :func:`_lasts`). Call the recurring ops before
   the cut block 1, those before them block 2, and so on. An op of block 1, or after the cut, that depends on an op of
   block k depends, after one insertion, on the op's counterpart in block k - 1.
4. *The blocks that are depended on keep the period* (:func:`_lasts`). Each op of blocks 1 to max(1, k - 1), for the
   largest such k of its device, ends exactly one period after its counterpart one block earlier.

An op starts at the latest of the end of the op before it and the arrivals of its inputs. By 4 all of these are one
period later for the inserted block than for block 1 (the op before the block is the last of block 1, whose counterpart
is the last of block 2), and so are its ends. Its own counterparts are then a period apart as well, so 4 holds for the
longer run, and by induction for every further insertion; all ops after the cut move by one period each time. One small
run, timed exactly, gives every larger one.
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
from ppsim.simulation.periodic import Body, Ints, extends, find_body, find_shift, fold_replicas

Times = NDArray[Any]  # integers, of any length where 64 bits do not do
# From (microbatches, microbatches per block) one queue per device; the block is for options that follow from it.
Queues = Callable[[int, int], Iterable[Packed]]
MOST_OPS = 10_000_000  # beyond this a small run is no shortcut
MOST_OPS_OF_ANY_LENGTH = 200_000
DOUBLES = 1 << 53  # integers up to here are exact as doubles


@dataclass(frozen=True)
class Steady:
    """The numbers of a run of any length, and the small run that they were extended from.

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


def extend_steady_state(
    name: str, placement: Placement, queues: Queues, microbatches: int, costs_of: Callable[[Schedule], Costs]
) -> Steady | None:
    """The metrics for ``microbatches``, or None where no repeating steady state is proved.

    Sums are exact and rounded once. A full run gives the same numbers where its own sums are exact, as with integer
    costs; elsewhere it differs by what it rounds on the way. That the queues of ``microbatches`` are those of the
    small run with blocks inserted is checked on the first device in full, on all devices for two blocks.

    Args:
        name: the schedule's name.
        placement: which device holds which stage.
        queues: the generator; microbatches per block is 0 while not yet known.
        microbatches: M.
        costs_of: the costs of a schedule, which must not depend on its number of microbatches.
    """
    whole = fold_replicas(next(iter(queues(microbatches, 0))), microbatches, placement.n_replicas)
    shift = find_shift(whole)
    if shift is None:
        return None
    block = shift * placement.n_replicas
    size = 4 * (placement.n_stages + block)
    size += (microbatches - size) % block
    while size + 2 * block < microbatches:
        runs = [list(queues(size + more * block, block)) for more in range(3)]
        schedule = Schedule.from_queues(name, placement, size, runs[0])
        body = _find_body(runs, whole, size, shift, placement.n_replicas)
        if body is None or len(schedule) > MOST_OPS:
            return None
        costs = costs_of(schedule)
        if not costs.alike:
            return None
        times = compute_exact_times(schedule, costs)
        if times is None:
            return None
        start, end, scale = times
        if proof := prove(schedule, body, end):
            blocks = (microbatches - size) // block
            if blocks % proof.blocks == 0:
                metrics = _extend_metrics(schedule, proof, start, end, scale, blocks // proof.blocks)
                return Steady(metrics, proof.period / scale, block * proof.blocks, schedule, costs)
            size += blocks % proof.blocks * block
        else:
            size = 2 * size + (microbatches - 2 * size) % block
    return None


@dataclass(frozen=True)
class Proof:
    """A steady state: where blocks can be inserted, and how much later everything after them is.

    Attributes:
        cut: shape (devices,), the op of each device before which blocks can be inserted.
        ops: shape (devices,), the number of ops of each device that recur, those just before the cut.
        blocks: how many blocks of the queues recur together.
        period: the time they take, an integer.
    """

    cut: Ints
    ops: Ints
    blocks: int
    period: int

    def recurring(self, schedule: Schedule) -> NDArray[np.bool_]:
        """Shape (ops,): the ops that recur."""
        op, device = np.arange(len(schedule)), schedule.device
        return (op >= (self.cut - self.ops)[device]) & (op < self.cut[device])


def prove(schedule: Schedule, body: Body, end: Times) -> Proof | None:
    """Prove the steady state of a run whose ops end at the integers ``end``; None where there is none."""
    cut = _close_cut(schedule, body.high)
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
    """Whether every block that inserted or later ops depend on keeps the period, and frees what it allocates.

    That is lemma 4 of the module, with the reach of lemma 3.
    """
    op, device, need, cut = np.arange(len(schedule)), schedule.device, schedule.dependency, proof.cut
    later = np.flatnonzero((op >= (cut - proof.ops)[device]) & (need >= 0))
    on = device[need[later]]
    # Per device: how many recurring blocks before the cut must keep the period, as later ops depend on one block more.
    reach = np.ones(schedule.n_devices, np.int64)
    np.maximum.at(reach, on, -((need[later] - cut[on]) // proof.ops[on]) - 1)
    if (cut - (reach + 1) * proof.ops < body.low).any():
        return False
    window = np.flatnonzero((op >= (cut - reach * proof.ops)[device]) & (op < cut[device]))
    if (end[window] - end[window - proof.ops[device[window]]] != proof.period).any():
        return False
    recur = proof.recurring(schedule)
    taken = schedule.activation_changes()
    return not np.bincount(device[recur], taken[recur]).any()


def _close_cut(schedule: Schedule, cut: Ints) -> Ints:
    """Move the cut forward until no op before it depends on one after it and no pair is split."""
    op, device, need, cut = np.arange(len(schedule)), schedule.device, schedule.dependency, cut.copy()
    while True:
        waits = np.flatnonzero((op < cut[device]) & (need >= 0) & (need >= cut[device[need]]))
        inside = cut[cut < len(schedule)]
        split = inside[(schedule.pair[inside] == inside - 1)] - 1
        early = np.concatenate([waits, split])
        if not len(early):
            return cut
        np.minimum.at(cut, device[early], early)


def compute_exact_times(schedule: Schedule, costs: Costs) -> tuple[Times, Times, int] | None:
    """Compute start and end of every op as integers in units of 1 / scale; None where that takes too long.

    Returns:
        Start, end and the scale.
    """
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


def _find_body(runs: list[list[Packed]], whole: Packed, size: int, shift: int, replicas: int) -> Body | None:
    """Return what repeats in the first run, if the other runs and the whole first queue are it with blocks inserted."""
    block = shift * replicas
    first, second, third = ([fold_replicas(q, size + i * block, replicas) for q in run] for i, run in enumerate(runs))
    body = find_body(first, second, shift)
    if body is None:
        return None
    begins = np.cumsum([0, *map(len, first[:-1])])
    checks = [*zip(first, third, (body.high - begins).tolist(), body.ops.tolist(), strict=True)]
    checks.append((first[0], whole, int(body.high[0]), int(body.ops[0])))
    return body if all(extends(*check, shift) for check in checks) else None


def _extend_metrics(schedule: Schedule, proof: Proof, start: Times, end: Times, scale: int, times: int) -> Metrics:
    """Return the metrics with the recurring ops inserted so many times."""
    recur, first = proof.recurring(schedule), schedule.offsets[:-1]
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
