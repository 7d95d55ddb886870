"""Changes that ``explain`` simulates on its own: equal stages, free messages, more microbatches,
other schedules.

Rivals are all schedules of the registry that train alike, on the same devices and microbatches.
Those that treat the largest cause of idle time come first, as many as a budget of ops allows. What
is advised holds no more memory than the schedule asked about, or than ``--cap``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import ShapeOptions
from ppsim.ask.options import list_options
from ppsim.ask.rules import list_refused
from ppsim.ask.write import command_line
from ppsim.base.deadline import check_time
from ppsim.base.numbers import format_share
from ppsim.core.ops import BACKWARDS, COMPUTE, ONCE_A_STEP, mask
from ppsim.errors import PpsimError
from ppsim.prices.data_parallel.replicas import (
    LoadedRuns,
    ReplicaOptions,
    list_held,
    most_held,
    time_replicas,
)
from ppsim.questions.across.break_even import describe_limits, price_of_search
from ppsim.questions.across.whatif import Run, changeable_options

if TYPE_CHECKING:
    from ppsim.analysis.explain import Explanation, MemoryRoom, WhatIf
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.prices.data_parallel.lengths import Load
    from ppsim.schedules import Family

BUDGET = 4_000_000  # ops that are simulated for rivals, a few seconds
SHOWN = 3  # rivals that fit the memory
NAMED = 6  # schedules that a note names
UNTRIED = (
    "only its rate compares with other schedules and microbatches, which ppsim compare and "
    "sweep print"
)


@dataclass(frozen=True)
class TriedChanges:
    """Changes that were simulated."""

    changes: tuple[WhatIf, ...]  # those to show
    room: MemoryRoom | None = None  # the memory limit of the changes; None where the user gave them
    notes: tuple[str, ...] = ()  # sentences on changes that are not shown


@dataclass(frozen=True)
class _Attempt:
    """A change before it is simulated."""

    text: str  # in words
    advice: str  # as an instruction
    run: Run  # the run with the change
    is_bound: bool = False  # whether it only shows a loss, and no user can make the change


def try_changes(
    explanation: Explanation, base: Run, given: TypedOptions, cap: str | None
) -> TriedChanges:
    """Simulate changes that may help, and find the ones that fit the memory.

    Args:
        explanation: of the run.
        base: the run.
        given: the options of the call.
        cap: the most a device may hold; None for the run's own peak.
    """
    from ppsim.analysis.explain import best_of

    room = _find_room(explanation, base, cap)
    has_period = explanation.round is not None
    plain = [_simulate(each, base, room, has_period) for each in _plain_attempts(base, given)]
    attempts, left = _split_by_budget(_order_by_cause(explanation, base, _rivals(base, room)))
    found = {each.text: each for each in attempts}
    rivals = [each for each in (_simulate(one, base, room, has_period) for one in attempts) if each]
    rivals.sort(key=lambda change: change.rank)
    fit = [change for change in rivals if change.fits]
    more = [change for change in rivals if not change.fits]
    beyond = [each for each in more[:1] if not fit or each.rank < fit[0].rank]
    changes = [each for each in plain if each] + fit[:SHOWN] + beyond
    notes = list(_notes(room, rivals, fit, [each.advice.removeprefix("use ") for each in left]))
    if why := _why_no_rivals(base):
        notes.append(why)
    best = best_of(explanation, changes, room)
    base_time = explanation.per_microbatch
    if best is not None and best.name in found and best.per_microbatch < base_time:
        limits = describe_limits(base, found[best.name].run, best.timeline)
        limits += _describe_weights(base, best, fit, base_time, after=limits)
        changes = [replace(c, limits=limits) if c is best else c for c in changes]
    return TriedChanges(tuple(changes), room, tuple(notes))


def _describe_weights(base: Run, best: WhatIf, fit: list[WhatIf], now: float, *, after: str) -> str:
    """Say that a schedule holds weights twice, and which is the fastest that does not, as the end
    of a sentence that has said up to which times (``after``) the first one is faster.
    """
    assert base.schedule
    most = base.schedule.placement.n_replicas
    if best.copies_of_weights <= most:
        return ""
    once = [each for each in fit if each.copies_of_weights <= most and each.per_microbatch < now]
    least = min(once, key=lambda change: change.rank, default=None)
    twice = "; it holds all weights twice" if after else ", which holds all weights twice"
    if least is None:
        return twice
    name, less = least.advice.removeprefix("use "), format_share(1 - least.per_microbatch / now)
    return f"{twice}; of those that do not, {name} is fastest ({less} less)"


def _notes(
    room: MemoryRoom, rivals: list[WhatIf], fit: list[WhatIf], left: list[str]
) -> Iterator[str]:
    """Say how many rivals are not shown, which are as good as the best, and which were not run."""
    if rivals:
        where = f"{len(fit)} of {len(rivals)} other schedules on these devices"
        yield f"{where} hold at most {room.text(room.cap)}"
    ties = [each.advice.removeprefix("use ") for each in fit[1:] if each.ties_with(fit[0])]
    if ties:
        yield f"as fast in as much memory as {fit[0].advice.removeprefix('use ')}: {_names(ties)}"
    if left:
        yield f"left out, as simulating them takes long at this size: {_names(left)}"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _plain_attempts(base: Run, given: TypedOptions) -> Iterator[_Attempt]:
    """Levelled stages, messages that take no time, a slow replica healed, more microbatches."""
    assert base.schedule
    prices, count = base.price(base.schedule), base.shape.microbatches
    if np.ptp(prices.time, axis=1).any() and prices.each is None:
        from ppsim.analysis.changes import level_stages

        command = f" ({_partition_line(base, given)})" if base.spec else ""
        advice = f"move layers so that stages are equal{command}"
        yield _Attempt("equal stages", advice, base.edit(level_stages))
    if not base.network.detailed and np.any(prices.comm):
        free = base.edit(lambda costs: replace(costs, comm=0.0))
        yield _Attempt("messages take no time", "hide or shorten messages", free, is_bound=True)
    if base.replicas and base.replicas.slower and base.loads is None:
        timed = time_replicas(
            base.schedule, prices, base.network, base.costs, ReplicaOptions(base.replicas)
        )
        slowest = timed.slowest if timed else 0
        healed = replace(base, replicas=base.replicas.with_healthy(slowest))
        text = f"replica {slowest} as the others"
        yield _Attempt(text, f"mend replica {slowest}: as fast as the others", healed)
    if base.schedule.feeds_back:
        yield from _more_in_flight(base, count)
        return
    from ppsim.schedules import family_of

    own_count = base.loads is None and not _is_laned(base) and base.schedule.flushes
    if count is not None and base.spec and family_of(base.spec) and own_count:
        shape = replace(base.shape, microbatches=2 * count)
        doubled = replace(base, shape=shape, schedule=None)
        yield _Attempt(f"mb={2 * count}", f"use {2 * count} microbatches", doubled)


def _more_in_flight(base: Run, count: int | None) -> Iterator[_Attempt]:
    """As many batches in flight as a decoder can use, where those are more."""
    assert base.schedule
    if count is None or not base.by_options or base.costs.mb_scale:
        return
    from ppsim.prices.rounds import find_enough

    def make(batches: int) -> tuple[Schedule, Costs]:
        shape = replace(base.shape, microbatches=batches)
        run = replace(base, shape=shape, costs=replace(base.costs, steps=1), schedule=None)
        schedule = run.build()
        return schedule, run.price(schedule)

    enough = find_enough(base.schedule, make)
    if enough is not None and enough > count:
        shape = replace(base.shape, microbatches=enough)
        advice = f"keep {enough} batches in flight"
        yield _Attempt(f"mb={enough}", advice, replace(base, shape=shape, schedule=None))


def _is_laned(base: Run) -> bool:
    """Return whether a real run shows ops on several streams, which no other run would copy."""
    return base.measured is not None and base.schedule is not None and _has_lanes(base.schedule)


def _has_lanes(schedule: Schedule) -> bool:
    """Return whether there are ops of other streams than compute, without those around a training
    step.
    """
    return schedule.has_lanes and not mask((*COMPUTE, *ONCE_A_STEP))[schedule.kind].all()


def _why_no_rivals(base: Run) -> str:
    """Return a sentence on why no other schedules are tried; empty where they are.

    Of steps that never flush all have one fill and drain together, and each of a rival's has both.
    """
    schedule = base.schedule
    assert schedule
    if not schedule.flushes:
        return f"{schedule.name} never flushes: {UNTRIED}"
    from ppsim.schedules import family_of

    own = family_of(base.spec) if base.spec else None
    if (own.lanes if own else _has_lanes(schedule)) or _is_laned(base):
        why = "has copies or collectives that they lack"
    elif not np.isin(schedule.kind, BACKWARDS).any():
        why = "does not train"
    else:
        return ""
    return f"no other schedules are tried: {schedule.name} {why}"


def _rivals(base: Run, room: MemoryRoom) -> Iterator[tuple[Family, _Attempt]]:
    """All schedules that do the same training on the devices of a run, each with its chunks.

    A schedule that takes a limit of activations is tried with a cap that was given, too.
    """
    schedule = base.schedule
    assert schedule
    if _why_no_rivals(base):
        return
    from ppsim.schedules import family_of, interchangeable_families

    own = family_of(base.spec) if base.spec else None
    stages = schedule.n_stages if base.measured is not None else None
    count = schedule.whole_microbatches
    sizes = ShapeOptions(devices=schedule.n_devices, stages=stages, microbatches=count)
    options = {name: value for name, value in asdict(sizes).items() if name in _SIZES}
    for family in interchangeable_families():
        for chunks in dict.fromkeys((family.chunks, max(schedule.n_chunks, family.chunks))):
            if family is own and chunks == schedule.n_chunks:
                continue
            spec = family.name if chunks == family.chunks else f"{family.name}:{chunks}"
            run = base.use(family.name, **options | {"chunks": None})
            run = replace(run, spec=spec)
            yield family, _Attempt(f"schedule={spec}", f"use {spec}", run)
            limit = room.activations(chunks)
            if limit and "limit" in family.options and run.shape.limit is None:
                run = replace(run, shape=replace(run.shape, limit=limit))
                text, advice = f"schedule={spec},limit={limit}", f"use {spec} --limit {limit}"
                yield family, _Attempt(text, advice, run)


_SIZES = ("devices", "stages", "microbatches")


def _order_by_cause(
    explanation: Explanation, base: Run, rivals: Iterator[tuple[Family, _Attempt]]
) -> list[tuple[int, _Attempt]]:
    """Each rival with the ops that it costs.

    Those that treat the largest cause come first, the cheapest of them before the others.
    """
    schedule = base.schedule
    assert schedule
    found = []
    for family, attempt in rivals:
        chunks = int(attempt.run.spec.partition(":")[2] or family.chunks)
        treats = _reduces_main_cause(explanation, family, chunks, base)
        ops = schedule.n_devices * chunks * schedule.whole_microbatches * (3 if family.split else 2)
        found.append((not treats, price_of_search(ops, attempt.run), attempt))
    found.sort(key=lambda each: each[:2])
    return [(price, attempt) for _, price, attempt in found]


def _reduces_main_cause(explanation: Explanation, family: Family, chunks: int, base: Run) -> bool:
    """Return whether a schedule reduces the largest cause of idle time.

    Waits for messages: no more messages than now, or an order that follows their times. All else:
    split backwards, whose weight gradients fill gaps, or more and shorter stages.
    """
    assert base.schedule
    idle = explanation.idle.by_cause
    if max(idle, key=idle.__getitem__, default="") == "message":
        return family.uses_costs or chunks <= base.schedule.n_chunks
    from ppsim.core.ops import Kind

    splits = bool((base.schedule.kind == Kind.W).any())
    return (family.split and not splits) or chunks > base.schedule.n_chunks


def _split_by_budget(priced: list[tuple[int, _Attempt]]) -> tuple[list[_Attempt], list[_Attempt]]:
    """The attempts that the budget allows, and the others."""
    spent, kept, left = 0, list[_Attempt](), list[_Attempt]()
    for price, attempt in priced:
        fits = spent + price <= BUDGET
        (kept if fits else left).append(attempt)
        spent += price if fits else 0
    return kept, left


def _simulate(
    attempt: _Attempt, base: Run, room: MemoryRoom, has_period: bool = False
) -> WhatIf | None:
    """Simulate a change; None where the schedule refuses the shape or the costs, or ``has_period``
    no more where the run does.
    """
    from ppsim.core.curve import BYTES

    check_time()
    try:
        timeline = attempt.run.time()
        held, _ = _most_held(attempt.run, timeline, in_bytes=room.unit == BYTES)
        around = attempt.run.find_round(timeline) if has_period else None
    except PpsimError:
        return None
    if has_period and around is None:
        return None
    from ppsim.analysis.explain import timed_change

    fits = attempt.is_bound or room.fits(held)
    more = "" if fits else f" (holds {room.number(held)}, not {room.number(room.cap)})"
    made = timed_change(
        attempt.text + _split_note(base, timeline) + more, attempt.advice, timeline, around
    )
    return replace(made, name=attempt.text, held=held, fits=fits, is_bound=attempt.is_bound)


def _find_room(explanation: Explanation, base: Run, cap: str | None) -> MemoryRoom:
    """The memory of a run, and the most that is allowed.

    Raises:
        InputError: the cap is in another unit.
    """
    from ppsim.analysis.explain import MemoryRoom

    if cap is None:
        held, unit = _most_held(base, explanation.base, in_bytes=base.asked.has_bytes)
        return MemoryRoom(held, held, unit)
    from ppsim.prices.cap import read_cap

    asked = read_cap(cap)
    in_bytes = asked.counts_bytes(base.asked)
    held, unit = _most_held(base, explanation.base, in_bytes=in_bytes)
    asked.check_unit(unit)
    return MemoryRoom(held, asked.single(), unit, is_given=True)


def _most_held(run: Run, timeline: Timeline, *, in_bytes: bool) -> tuple[float, str]:
    """Return the most that a device of any replica holds in a unit of ``--cap``, and its name."""
    load = run.loads.find(timeline.schedule, run.costs) if run.loads else None
    held = _loaded_runs(run, timeline.schedule, load) if load else timeline
    return most_held(list_held(held, run.costs, in_bytes=in_bytes))


def _loaded_runs(run: Run, schedule: Schedule, load: Load) -> LoadedRuns:
    """Return the replicas of a run, with microbatches of different lengths."""
    prices, several = run.price(schedule), ReplicaOptions(run.replicas)
    return LoadedRuns(schedule, prices, run.costs, load, several, run.network, run.costs.links)


def with_memory_of_dealing(
    change: WhatIf, run: Run, schedule: Schedule, load: Load, room: MemoryRoom | None
) -> WhatIf:
    """Return a change that deals sequences again, with its memory and whether that fits a cap.

    Args:
        change: the change.
        run: the run that is explained.
        schedule: with the sequences dealt again.
        load: its microbatches.
        room: the memory of the run; only a cap that was given is held against the change.
    """
    if room is None:
        return change
    from ppsim.core.curve import BYTES

    runs = _loaded_runs(run, schedule, load)
    held, _ = most_held(list_held(runs, run.costs, in_bytes=room.unit == BYTES))
    fits = not room.is_given or room.fits(held)
    more = "" if fits else f" (holds {room.number(held)}, not {room.number(room.cap)})"
    return replace(change, text=change.text + more, held=held, fits=fits)


def _partition_line(base: Run, given: TypedOptions) -> str:
    """Write the command that finds the split of layers, and in words the options that the run does
    not tell.
    """
    assert base.schedule
    if base.measured:
        said = asdict(base.shape) | {"schedule": base.spec}
        options = {each.name: each for each in changeable_options().values()}
        typed = [each for each in options.values() if said.get(each.name)]
    else:
        from ppsim.questions.optimum.partition import PartitionRequest

        taken = {each.name for each in list_options(PartitionRequest)} - list_refused(
            PartitionRequest
        )
        said, typed = {}, [each for each in given.typed if each.name in taken]
    line = command_line(TypedOptions("partition", {**given.values, **said}, typed))
    layout = base.asked.layout_of(base.schedule)
    if layout is None:
        needed = (
            "their number in --num-layers"
            if base.asked.gives_messages and not base.measured
            else "the time of each one in --t-layer"
        )
        return f"{line}, with {needed}"
    layers = "" if isinstance(base.costs.t_layer, list) else f" --num-layers {layout.n_layers}"
    return line + layers + f" --mtp-num-layers {layout.n_mtp}" * bool(layout.n_mtp)


def _split_note(base: Run, timeline: Timeline) -> str:
    """Return the assumption on split backwards for a run that measured full backwards alone."""
    if base.measured is None or base.schedule is None:
        return ""
    from ppsim.core.ops import Kind

    splits, split = ((each.kind == Kind.W).any() for each in (timeline.schedule, base.schedule))
    return " (I = W = B/2)" if splits and not split else ""
