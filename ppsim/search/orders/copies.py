"""The best order with copies to the host: which activations leave, when they come back, and the order of compute.

Orders come from schedules with a name and from searches that may hold more; a rule then copies out what does not fit
(:func:`ppsim.search.rules.room.make_room`). The best are walked on from: an op, a copy out or a copy back moves in
its queue, a copy comes or goes, and devices wait for copies wherever they would hold more than their caps. Every trial
is timed by the model of streams.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

import numpy as np

from ppsim.base.deadline import TimeOver, interrupt_at
from ppsim.base.signals import first_signal
from ppsim.core.ops import BACKWARDS, KIND_MASK, STAGE_MASK, STAGE_SHIFT, Kind, pack
from ppsim.core.schedule import Schedule
from ppsim.core.split_backward import split_backwards
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import span_of
from ppsim.errors import Deadlock
from ppsim.search.orders.engine import GRACE_S, search
from ppsim.search.orders.improve import COLD, HOT, MEAN, OTHER
from ppsim.search.problem import ROUNDING, Problem, Solution, evaluate, fits
from ppsim.search.rules.offload import add_waits
from ppsim.search.rules.room import Choice, make_room

# Caps that orders are searched for, in those that hold; copies make up for what is above.
LEVELS = (1.0, 1.5, 2.0, 3.0, np.inf)
SEARCHED, FIRST = 0.4, 4  # the share of the time that these searches have, and the part of it for the first
POOL = 4  # schedules that are walked on from
TRIALS = 400  # of a walk before another schedule's turn
REACH = 8  # places that an op moves at most
# What leaves first: what is needed last; the same of what is gone in time, else what is gone first; what is gone first.
CHOICES: tuple[Choice, ...] = (
    lambda back, gone: (back,),
    lambda back, gone: (back > 0, gone <= 0, back if gone <= 0 else -gone),
    lambda back, gone: (back > 0, -gone),
)
# Ops of a stage and microbatch in the order in which its queue has them.
RANK = {Kind.F: 0, Kind.OFFLOAD: 1, Kind.RELOAD: 2, Kind.B: 3, Kind.I: 3, Kind.W: 4}

Report = Callable[[Solution], None]
Queue = list[int]


def search_copies(
    problem: Problem, seeds: Iterable[Schedule], *, seed: int, time_limit: float, bound: float, report: Report
) -> Solution | None:
    """Search for the best schedule that fits a problem whose activations may be copied to the host.

    Seeds may hold more than fits. A schedule that attains the bound, or the limit in seconds, ends the search.
    """
    began, enough = monotonic(), bound * (1 + ROUNDING)
    pool = list[Solution]()

    def keep(found: Solution) -> bool:
        if not pool or found.score(problem.objective) < pool[0].score(problem.objective):
            report(found)
        pool.append(found)
        pool.sort(key=lambda each: each.score(problem.objective))
        del pool[POOL:]
        return pool[0].score(problem.objective)[0] <= enough

    try:
        for order in _orders(problem, seeds, began + SEARCHED * time_limit, seed):
            with interrupt_at(began + time_limit + (0 if pool else GRACE_S)):
                if any(keep(found) for found in fit_order(problem, order)):
                    return pool[0]
            if first_signal():  # which a search for an order takes for its own
                return pool[0] if pool else None
        with interrupt_at(began + time_limit + GRACE_S):
            _walk(problem, pool, random.Random(seed), keep, began + time_limit)
    except (KeyboardInterrupt, TimeOver):  # the best so far is the answer
        if not pool:
            raise
    return pool[0] if pool else None


def _orders(problem: Problem, seeds: Iterable[Schedule], until: float, seed: int) -> Iterator[Schedule]:
    """Orders of compute ops to put copies into: those given, and the best that a search finds for larger caps."""
    yield write_in_turns(problem, (Kind.I, Kind.W))
    alone, given = replace(problem, offload=False), list(seeds)
    plain = [each.compute_only for each in given]
    for nth, level in enumerate(LEVELS):
        left = (until - monotonic()) / (len(LEVELS) - nth if nth else FIRST)
        if left > 0:
            caps = np.maximum(problem.caps * level, alone.least_caps).tolist()
            with suppress(TimeOver):
                capped = replace(alone, cap=caps)
                found = search(capped, seeds=plain, seed=seed, time_limit=left)
                if found is not None:
                    yield found.schedule
        if nth == 0:  # what takes no copies comes first: it is timed soonest
            yield from given


def write_in_turns(problem: Problem, backward: Sequence[Kind]) -> Schedule:
    """The schedule that finishes as many microbatches as all devices hold, one at least, before it starts the next.

    Each stage runs the F of all of them in a row, then backwards of these ops.
    """
    stages, M = np.arange(problem.n_stages), problem.microbatches
    each = np.bincount(problem.device, problem.amounts, problem.n_devices)
    held = each > 0
    size = int(np.clip((problem.caps[held] / each[held]).min(initial=M) + ROUNDING, 1, M))
    turn = np.concatenate([pack(stages, 0) | Kind.F, *np.stack([pack(stages, 0) | k for k in backward], 1)[::-1]])
    device = problem.device[turn >> STAGE_SHIFT]
    order = np.argsort(device, kind="stable")
    queues = np.split(turn[order], np.searchsorted(device[order], np.arange(1, problem.n_devices)))
    numbers, whole = pack(0, np.arange(M)), M - M % size
    turns = (numbers[:whole].reshape(-1, 1, size), numbers[None, None, whole:])
    rows = [np.concatenate([(queue[:, None] | turn).ravel() for turn in turns]) for queue in queues]
    name = f"{size} microbatches at a time" if size > 1 else "one microbatch at a time"
    return Schedule.from_queues(name, problem.placement, M, rows)


def fit_order(problem: Problem, order: Schedule) -> Iterator[Solution]:
    """Copy out what an order holds above the caps, by each rule; the order itself where it fits."""
    if fits(problem, order):
        yield evaluate(problem, order, order.name)
        return
    if order.has_lanes:
        return
    forms = [order] if not (order.kind == Kind.B).any() or problem.joins.all() else [order, split_backwards(order)]
    for form in forms:
        for choice in CHOICES:
            for timeline in make_room(form, problem.costs, problem.caps, problem.changes, choice):
                yield evaluate(problem, timeline.schedule, f"{order.name} with copies")


def _walk(
    problem: Problem, pool: Sequence[Solution], rng: random.Random, keep: Callable[[Solution], bool], until: float
) -> None:
    """Walk on from the best schedules in turn, every second time from the best of all."""
    hot = HOT[0] * float(problem.costs.time[[Kind.F, Kind.I, Kind.W]].mean())
    turn = 0
    while pool and monotonic() < until:
        start = pool[0 if turn % 2 else turn // 2 % len(pool)]
        heat = hot * (1, 0.3, 0.1, 0)[turn // 2 % 4]
        turn += 1
        for found in walk(problem, start, rng, heat, until):
            if keep(found):
                return


def walk(problem: Problem, start: Solution, rng: random.Random, hot: float, until: float) -> Iterator[Solution]:
    """Change a schedule at random, less and less for the worse; yield what is better than all before."""
    kept = start.schedule.take(start.schedule.kind != Kind.WAIT_OFFLOAD)
    queues = [queue.tolist() for queue in np.split(kept.packed(), kept.offsets[1:-1])]
    built = [waits for device, queue in enumerate(queues) if (waits := _waiting(problem, device, queue)) is not None]
    if len(built) < len(queues):
        return
    at = best = _cost(problem, built)
    for trial in range(TRIALS):
        if monotonic() > until:
            return
        device = rng.randrange(len(queues))
        queue = _change(queues[device], rng)
        waiting = None if queue is None else _waiting(problem, device, queue)
        if queue is None or waiting is None:
            continue
        tried = [*built[:device], waiting, *built[device + 1 :]]
        cost = _cost(problem, tried)
        heat = hot * COLD ** (trial / TRIALS)
        if cost <= at or (heat > 0 and cost < at + heat * rng.expovariate(1)):
            queues[device], built, at = queue, tried, cost
        if cost < best * (1 - ROUNDING):
            best = cost
            yield evaluate(problem, _schedule(problem, tried), start.origin.removesuffix(", improved") + ", improved")


def _cost(problem: Problem, queues: Sequence[Queue]) -> float:
    """What walks minimize, infinite where queues deadlock."""
    schedule = _schedule(problem, queues)
    try:
        timeline = simulate(schedule, problem.costs)
    except Deadlock:
        return float("inf")
    weights = (1.0, OTHER) if problem.objective == "span" else (OTHER, 1.0)
    return (
        weights[0] * span_of(timeline)
        + weights[1] * timeline.makespan
        + MEAN * float(timeline.end.sum()) / len(schedule)
    )


def _schedule(problem: Problem, queues: Sequence[Queue]) -> Schedule:
    packed = [np.array(queue, np.int64) for queue in queues]
    return Schedule.from_queues("optimized", problem.placement, problem.microbatches, packed)


def _waiting(problem: Problem, device: int, queue: Queue) -> Queue | None:
    """A queue that waits for copies wherever its device would hold more than its cap; None where that is not enough."""
    ops = np.array(queue, np.int64)
    change = problem.changes[ops & KIND_MASK, ops >> STAGE_SHIFT & STAGE_MASK]
    return add_waits(queue, change.tolist(), float(problem.caps[device]))


def _change(queue: Queue, rng: random.Random) -> Queue | None:
    """A queue with a copy more, one less, or an op in another place; None where that breaks the order of a cell."""
    place = rng.randrange(len(queue))
    op, changed = queue[place], list(queue)
    kind, cell = op & KIND_MASK, op & ~KIND_MASK
    drawn = rng.random()
    if kind == Kind.F and drawn < 0.5:
        if cell | Kind.OFFLOAD in queue:
            changed.remove(cell | Kind.OFFLOAD)
            changed.remove(cell | Kind.RELOAD)
            return changed
        back = next(n for n, each in enumerate(queue) if each & ~KIND_MASK == cell and each & KIND_MASK in BACKWARDS)
        changed.insert(max(place + 1, back - int(rng.expovariate(0.5))), cell | Kind.RELOAD)
        changed.insert(place + 1, cell | Kind.OFFLOAD)
        return changed
    changed.pop(place)
    to = place + rng.choice((-1, 1)) * rng.randint(1, REACH)
    if not 0 <= to <= len(changed):
        return None
    passed = changed[to:place] if to < place else changed[place:to]
    earlier = to < place
    if any(
        each & ~KIND_MASK == cell and (RANK[Kind(each & KIND_MASK)] < RANK[Kind(kind)]) == earlier for each in passed
    ):
        return None
    changed.insert(to, op)
    return changed
