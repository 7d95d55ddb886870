"""Changes that ``explain`` tries itself: equal stages, free messages, more microbatches, and other
schedules.

The other schedules, called rivals, are all of the registry that do the same training on the same
devices and microbatches. Those that reduce the largest cause of idle time are simulated first, as
many as a budget of simulated ops allows. Advised changes need no more memory than the explained
run, or than ``--cap``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

BUDGET = 4_000_000  # simulated ops that rivals may cost, a few seconds
SHOWN = 3  # rivals to show that fit the memory
NAMED = 6  # schedules that a note lists by name


@dataclass(frozen=True)
class TriedChanges:
    """Changes that were simulated."""

    changes: tuple[WhatIf, ...]  # the changes to show
    room: MemoryRoom | None = None  # the memory limit of changes; None for those of --what-if
    notes: tuple[str, ...] = ()  # sentences on changes that are not shown


@dataclass(frozen=True)
class _Attempt:
    """A change before it is simulated."""

    text: str  # a short name
    advice: str  # an instruction to make it
    run: Run  # the run with the change
    is_bound: bool = False  # True if it is impossible, and only shows how much its cause costs


def try_changes(
    explanation: Explanation, base: Run, given: TypedOptions, cap: str | None
) -> TriedChanges:
    """Simulate changes that may help, and select the ones to show.

    Args:
        explanation: the explanation of the run.
        base: the run.
        given: the options of the call.
        cap: the memory cap of a device; None for the peak of the run.
    """
    from ppsim.analysis.explain import best_of

    room = _find_room(explanation, base, cap)
    has_period = explanation.round is not None
    plain = _simulate_all(_plain_attempts(base, given), base, room, has_period)
    layouts = _simulate_all(_layout_attempts(base), base, room, has_period)
    plain += _fastest(sorted(layouts, key=lambda change: change.rank), 1)
    attempts, skipped = _split_by_budget(_order_by_cause(explanation, base, _rivals(base, room)))
    attempt_of = {attempt.text: attempt for attempt in attempts}
    rivals = _simulate_all(attempts, base, room, has_period)
    rivals.sort(key=lambda change: change.rank)
    fit = [change for change in rivals if change.fits]
    changes = plain + _fastest(rivals, SHOWN)
    names_skipped = [attempt.advice.removeprefix("use ") for attempt in skipped]
    notes = list(_notes(room, rivals, fit, names_skipped))
    if reason := _why_no_rivals(base):
        notes.append(reason)
    best = best_of(explanation, changes, room)
    base_time = explanation.per_microbatch
    if best is not None and best.name in attempt_of and best.per_microbatch < base_time:
        limits = describe_limits(base, attempt_of[best.name].run, best.timeline)
        limits += _describe_weights(base, best, fit, base_time, after=limits)
        changes = [replace(c, limits=limits) if c is best else c for c in changes]
    return TriedChanges(tuple(changes), room, tuple(notes))


def _fastest(changes: list[WhatIf], shown: int) -> list[WhatIf]:
    """Return the fastest of sorted changes that fit, and the fastest that does not, if faster."""
    fit = [change for change in changes if change.fits]
    too_large = [change for change in changes if not change.fits]
    return fit[:shown] + [each for each in too_large[:1] if not fit or each.rank < fit[0].rank]


def _simulate_all(
    attempts: Iterable[_Attempt], base: Run, room: MemoryRoom, has_period: bool
) -> list[WhatIf]:
    """Simulate changes, and return the ones that are possible."""
    changes = (_simulate(attempt, base, room, has_period) for attempt in attempts)
    return [change for change in changes if change]


def _describe_weights(base: Run, best: WhatIf, fit: list[WhatIf], now: float, *, after: str) -> str:
    """Return the end of a sentence: the best rival holds all weights twice, and the name of the
    fastest one that does not. Empty if the best does not; ``after`` is the sentence so far.
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
    room: MemoryRoom, rivals: list[WhatIf], fit: list[WhatIf], skipped: list[str]
) -> Iterator[str]:
    """Yield notes on rivals: how many fit, which tie with the best, and which were not tried."""
    if rivals:
        where = f"{len(fit)} of {len(rivals)} other schedules on these devices"
        yield f"{where} hold at most {room.text(room.cap)}"
    ties = [each.advice.removeprefix("use ") for each in fit[1:] if each.ties_with(fit[0])]
    if ties:
        yield f"equal to {fit[0].advice.removeprefix('use ')} in time and memory: {_names(ties)}"
    if skipped:
        yield f"not tried, because simulating them takes long at this size: {_names(skipped)}"


def _names(names: list[str]) -> str:
    """Return names as text, and the number of those beyond the first few."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _plain_attempts(base: Run, given: TypedOptions) -> Iterator[_Attempt]:
    """Yield equal stages, messages without time, a mended replica, and more microbatches."""
    assert base.schedule
    prices, count = base.price(base.schedule), base.shape.microbatches
    if np.ptp(prices.time, axis=1).any() and prices.op_times is None:
        from ppsim.analysis.changes import level_stages

        named = base.costs.modelled is not None  # whole layers of a model: named layouts are tried
        command = f" ({_partition_line(base, given)})" if base.spec and not named else ""
        advice = f"move layers so that stages are equal{command}"
        yield _Attempt("equal stages", advice, base.edit(level_stages), is_bound=named)
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
        yield _Attempt(text, f"make replica {slowest} as fast as the others", healed)
    if base.schedule.feeds_back:
        yield from _more_in_flight(base, count)
        return
    from ppsim.schedules import family_of

    can_change_count = base.loads is None and not _is_laned(base) and base.schedule.flushes
    if count is not None and base.spec and family_of(base.spec) and can_change_count:
        shape = replace(base.shape, microbatches=2 * count)
        doubled = replace(base, shape=shape, schedule=None)
        yield _Attempt(f"mb={2 * count}", f"use {2 * count} microbatches", doubled)


def _layout_attempts(base: Run) -> Iterator[_Attempt]:
    """Yield the other layouts that have names, for a model on a cluster without a --layout."""
    schedule, modelled = base.schedule, base.costs.modelled
    assert schedule
    if modelled is None or base.asked.layout_of(schedule) is not None:
        return
    from ppsim.workload.plans.space import LAYOUTS

    others = [name for name in LAYOUTS if name != modelled.layout]
    if len(schedule) * len(others) > BUDGET:
        return
    for name in others:
        yield _Attempt(f"layouts={name}", f"use --layouts {name}", base.train(layouts=name))


def _more_in_flight(base: Run, count: int | None) -> Iterator[_Attempt]:
    """Yield the number of batches in flight that a decoder can use, if it is larger."""
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
    """Return True for a real run with ops on several streams, which other schedules lack."""
    return base.measured is not None and base.schedule is not None and _has_lanes(base.schedule)


def _has_lanes(schedule: Schedule) -> bool:
    """Return True if there are ops on other streams than compute, but for those of a step's end."""
    return schedule.has_lanes and not mask((*COMPUTE, *ONCE_A_STEP))[schedule.kind].all()


def _why_no_rivals(base: Run) -> str:
    """Return the reason why no rivals are tried, as a sentence; empty if they are.

    All steps of a schedule that never flushes share one fill and drain, and every step of a rival
    has both, so their makespans cannot be compared.
    """
    schedule = base.schedule
    assert schedule
    if not schedule.flushes:
        return (
            f"{schedule.name} never flushes, so only its rate can be compared with other schedules "
            "and numbers of microbatches: ppsim compare and ppsim sweep print it"
        )
    from ppsim.schedules import family_of

    own = family_of(base.spec) if base.spec else None
    if (own.lanes if own else _has_lanes(schedule)) or _is_laned(base):
        reason = "has copies or collectives that they lack"
    elif not np.isin(schedule.kind, BACKWARDS).any():
        reason = "does not train"
    else:
        return ""
    return f"no other schedules are tried: {schedule.name} {reason}"


def _rivals(base: Run, room: MemoryRoom) -> Iterator[tuple[Family, _Attempt]]:
    """Yield all schedules that do the same training on a run's devices, each with its chunks.

    A schedule with a limit of activations is also tried with the cap as its limit.
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
    """Return rivals with the simulated ops that each costs.

    First those that reduce the largest cause of idle time; then by cost, the cheapest first.
    """
    schedule = base.schedule
    assert schedule
    found = []
    for family, attempt in rivals:
        chunks = int(attempt.run.spec.partition(":")[2] or family.chunks)
        reduces = _reduces_main_cause(explanation, family, chunks, base)
        ops = schedule.n_devices * chunks * schedule.whole_microbatches * (3 if family.split else 2)
        found.append((not reduces, price_of_search(ops, attempt.run), attempt))
    found.sort(key=lambda rival: rival[:2])
    return [(price, attempt) for _, price, attempt in found]


def _reduces_main_cause(explanation: Explanation, family: Family, chunks: int, base: Run) -> bool:
    """Return True if a schedule may reduce the largest cause of idle time.

    Waits for messages: with no more messages than now, or with an order that follows their times.
    Other causes: with split backwards, whose weight gradients fill gaps, or with more and shorter
    stages.
    """
    assert base.schedule
    idle = explanation.idle.by_cause
    if max(idle, key=idle.__getitem__, default="") == "message":
        return family.uses_costs or chunks <= base.schedule.n_chunks
    from ppsim.core.ops import Kind

    splits = bool((base.schedule.kind == Kind.W).any())
    return (family.split and not splits) or chunks > base.schedule.n_chunks


def _split_by_budget(priced: list[tuple[int, _Attempt]]) -> tuple[list[_Attempt], list[_Attempt]]:
    """Return the attempts that fit the budget, and the others."""
    spent, kept, skipped = 0, list[_Attempt](), list[_Attempt]()
    for price, attempt in priced:
        if spent + price <= BUDGET:
            kept.append(attempt)
            spent += price
        else:
            skipped.append(attempt)
    return kept, skipped


def _simulate(
    attempt: _Attempt, base: Run, room: MemoryRoom, has_period: bool = False
) -> WhatIf | None:
    """Simulate a change; None if the schedule refuses the shape or the costs, or if it has no
    period and the run has one (``has_period``).
    """
    from ppsim.core.curve import BYTES

    check_time()
    try:
        timeline = attempt.run.time()
        held, _ = _most_held(attempt.run, timeline, in_bytes=room.unit == BYTES)
        steady = attempt.run.find_round(timeline) if has_period else None
    except PpsimError:
        return None
    if has_period and steady is None:
        return None
    from ppsim.analysis.explain import timed_change

    fits = attempt.is_bound or room.fits(held)
    text = attempt.text + _split_note(base, timeline)
    if not fits:
        text += _excess_note(held, room)
    change = timed_change(text, attempt.advice, timeline, steady)
    return replace(change, name=attempt.text, held=held, fits=fits, is_bound=attempt.is_bound)


def _excess_note(held: float, room: MemoryRoom) -> str:
    """Return a remark on a change that needs more memory than allowed."""
    return f" (holds {room.number(held)}, more than {room.number(room.cap)})"


def _find_room(explanation: Explanation, base: Run, cap: str | None) -> MemoryRoom:
    """Return the memory of a run and the memory limit of changes.

    Raises:
        InputError: the cap is in another unit than the memory.
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
    """Return the peak memory of a device of any replica, in a unit of ``--cap``, and the unit."""
    load = run.loads.find(timeline.schedule, run.costs) if run.loads else None
    held = _loaded_runs(run, timeline.schedule, load) if load else timeline
    return most_held(list_held(held, run.costs, in_bytes=in_bytes))


def _loaded_runs(run: Run, schedule: Schedule, load: Load) -> LoadedRuns:
    """Return the replicas of a run, with microbatches of different lengths."""
    prices, replicas = run.price(schedule), ReplicaOptions(run.replicas)
    return LoadedRuns(schedule, prices, run.costs, load, replicas, run.network, run.costs.links)


def with_memory_of_dealing(
    change: WhatIf, run: Run, schedule: Schedule, load: Load, room: MemoryRoom | None
) -> WhatIf:
    """Return a change that deals sequences again, with its memory and whether that fits a cap.

    Args:
        change: the change.
        run: the explained run.
        schedule: the schedule after dealing.
        load: its microbatches.
        room: the memory limit; only one that --cap gave limits the change.
    """
    if room is None:
        return change
    from ppsim.core.curve import BYTES

    runs = _loaded_runs(run, schedule, load)
    held, _ = most_held(list_held(runs, run.costs, in_bytes=room.unit == BYTES))
    fits = not room.is_given or room.fits(held)
    text = change.text if fits else change.text + _excess_note(held, room)
    return replace(change, text=text, held=held, fits=fits)


def _partition_line(base: Run, given: TypedOptions) -> str:
    """Return the ``ppsim partition`` that finds the best split of layers, and words on the options
    to add that the run does not state.
    """
    assert base.schedule
    if base.measured:
        stated = asdict(base.shape) | {"schedule": base.spec}
        options = {option.name: option for option in changeable_options().values()}
        typed = [option for option in options.values() if stated.get(option.name)]
    else:
        from ppsim.questions.optimum.partition import PartitionRequest

        known = {option.name for option in list_options(PartitionRequest)}
        known -= list_refused(PartitionRequest)
        stated, typed = {}, [option for option in given.typed if option.name in known]
    line = command_line(TypedOptions("partition", {**given.values, **stated}, typed))
    layout = base.asked.layout_of(base.schedule)
    if layout is None:
        if base.asked.gives_messages and not base.measured:
            return f"{line}, with their number in --num-layers"
        return f"{line}, with the time of each one in --t-layer"
    if not isinstance(base.costs.t_layer, list):
        line += f" --num-layers {layout.n_layers}"
    if layout.n_mtp:
        line += f" --mtp-num-layers {layout.n_mtp}"
    return line


def _split_note(base: Run, timeline: Timeline) -> str:
    """Return the assumed times of split backwards if the run measured only full backwards."""
    if base.measured is None or base.schedule is None:
        return ""
    from ppsim.core.ops import Kind

    splits, split = ((each.kind == Kind.W).any() for each in (timeline.schedule, base.schedule))
    return " (I = W = B/2)" if splits and not split else ""
