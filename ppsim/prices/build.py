"""From options to a schedule, its costs and its memory: the one door to all three.

Every function here asks the parts that the options call (``parts/``, one file each) one after the
other:

- **Schedule**: parts fill in the shape, the registry makes the queues, parts add ops to them.
- **Costs**: a real run gives them or else the source, one of the parts. Parts then change them.
- **Memory**: the model gives the memory of stages, or else the first part that can. Parts then
  change it.
- **Refusals**: an option that no schedule uses is refused, in the words of its part.

Parts are asked from the last to the first, in the order of their options in the help.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from ppsim.ask.groups import OWN, GridOptions, NetworkOptions, ShapeOptions
from ppsim.base.notes import note
from ppsim.errors import InputError
from ppsim.prices.options import REFUSED_UNUSED, CostOptions, ask_costs, is_given
from ppsim.prices.part import Asked
from ppsim.prices.parts.steps import has_period

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.engine.simple.segments import OpsInside
    from ppsim.prices.trained import TrainedModel
    from ppsim.schedules import Pricing
    from ppsim.show.files.document import Document


def build(
    spec: str | Schedule,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions | None = None,
    merge: bool = False,
    quiet: bool = False,
    measured: Costs | None = None,
    model: TrainedModel | None = None,
) -> tuple[Schedule, Costs]:
    """Make the schedule and its costs, refusing times that it does not use; ``merge`` joins I and W
    into B.
    """
    price = partial(build_costs, costs=costs, network=network, measured=measured, model=model)
    schedule = build_schedule(spec, shape, costs, network, quiet=quiet, price=price)
    if shape.stages and not (shape.devices or shape.chunks or quiet or schedule.n_chunks == 1):
        fewer = f"{schedule.n_stages} stages are {schedule.n_devices} devices"
        note(
            f"{fewer}: {schedule.name} has {schedule.n_chunks} stages on each (--devices "
            f"{shape.stages} for as many)"
        )
    if merge:
        from ppsim.core.split_backward import merge_backwards

        if schedule.stated_messages and network and network.detailed and not quiet:
            note(f"sends and receives of {schedule.name} are left out; --merge-bw changes its ops")
        schedule = merge_backwards(schedule)
    check_used([schedule], costs)
    return schedule, price(schedule)


def build_schedule(
    spec: str | Schedule,
    shape: ShapeOptions,
    costs: CostOptions | None = None,
    network: NetworkOptions | None = None,
    *,
    quiet: bool = False,
    price: Pricing | None = None,
) -> Schedule:
    """Make the schedule of that spelling, in the shape that the options give, with the ops that
    they add.

    Args:
        spec: a schedule's spelling, or a schedule.
        shape: the shape.
        costs: the options of costs, which may fill in the shape.
        network: the options of messages.
        quiet: whether notes are left out.
        price: makes the costs that a family plans with, in place of ``costs``.

    Raises:
        InputError: no such schedule, or a shape that it refuses.
    """
    costs = costs or CostOptions()
    asked = ask_costs(costs, network)
    price = price or partial(build_costs, costs=costs, network=network)
    for part in asked.parts:
        shape = part.fill_shape(spec, shape, asked)
    if isinstance(spec, str):
        from ppsim.schedules import schedule_from

        try:
            schedule = schedule_from(spec, None if quiet else note, price, **asdict(shape))
        except InputError as error:
            for part in asked.parts:
                error.hint = part.rephrase_hint(error.hint)
            raise
        if schedule.stated_messages and not quiet:
            _note_left_out(spec, asked)
    else:
        schedule = spec
    for part in asked.parts:
        schedule = part.add_ops(schedule, price)
    return schedule


def _note_left_out(spec: str, asked: Asked) -> None:
    """Say why the sends and receives in a file differ from the timed ones, where they are not."""
    network = asked.network
    if not (network and network.detailed):
        note(f"sends and receives of {spec} are left out; --p2p times them")
    elif network.order:
        note(f"sends and receives of {spec} are left out; --order sets theirs")
    elif asked["recompute"]:
        note(f"sends and receives of {spec} are left out; --recompute adds ops to its queues")


def build_costs(
    schedule: Schedule,
    costs: CostOptions,
    network: NetworkOptions | None = None,
    measured: Costs | None = None,
    model: TrainedModel | None = None,
) -> Costs:
    """Make the costs of a schedule.

    Args:
        schedule: the schedule.
        costs: the options of costs.
        network: the options of messages; a cluster gives all links.
        measured: the costs of a real run, of whole sequences, in place of those that the options
            give.
        model: says what part of a stage ``--recompute`` runs again.
    """
    asked = ask_costs(costs, network, measured, model)
    if measured:
        from ppsim.analysis.changes import adapt_costs, times_sliced

        made = adapt_costs(measured, schedule)
        if schedule.n_slices > 1:
            made = times_sliced(made, 1 / schedule.n_slices)
    else:
        made = asked.source.price(schedule, asked)
        if schedule.n_slices > 1 and asked.source.is_of_whole_sequences:
            pair = None if made.pair is None else made.pair / schedule.n_slices
            made = replace(made, time=made.time / schedule.n_slices, pair=pair)
    for part in asked.parts:
        made = part.change(schedule, made, asked)
    return made


def stages_of(costs: CostOptions, *given: object) -> int | None:
    """Return the number of stages that a part states, where no size is given."""
    return None if any(given) else ask_costs(costs).n_stages()


def queues_follow_costs(spec: str, asked: Asked) -> bool:
    """Return whether ops are ordered by their costs: the family's ops, or ops added to it.

    Args:
        spec: the schedule's spelling; empty for queues of no family.
        asked: the parts that the options of costs call.
    """
    if asked.orders_by_costs:
        return True
    from ppsim.schedules import family_of

    family = family_of(spec) if spec else None
    return family is not None and family.uses_costs


def build_memory(
    schedule: Schedule,
    prices: Costs,
    costs: CostOptions,
    model: TrainedModel | None = None,
    *,
    in_bytes: bool = True,
) -> tuple[MemoryModel, Costs]:
    """Make the memory model of stages, and the costs with the time of recompute.

    Bytes come from a model or from a part that has them, if they are wanted ``in_bytes``; else
    memory counts activations of one stage and microbatch, or with a layout those of one layer.
    """
    held = ask_costs(costs, model=model).hold(schedule, in_bytes=in_bytes)
    return held, model.add_recompute(prices) if model else prices


def look_inside_costs(schedules: Sequence[Schedule], costs: CostOptions) -> tuple[OpsInside, ...]:
    """Return the segments inside the ops of each schedule, where their source gives them."""
    asked = ask_costs(costs)
    found = (asked.source.look_inside(schedule, asked) for schedule in schedules)
    return tuple(inside for inside in found if inside is not None)


def times_used(schedule: Schedule, costs: CostOptions) -> set[str]:
    """Find which options that may have no effect a schedule uses, by name."""
    asked = ask_costs(costs)
    return set[str]().union(*(part.used(schedule, asked) for part in asked.parts))


def check_used(schedules: Collection[Schedule], costs: CostOptions) -> None:
    """Refuse an option that none of the schedules uses (InputError: of a kind of op, or of pairs,
    that none has).
    """
    if schedules and any(is_given(getattr(costs, name)) for name in REFUSED_UNUSED):
        used = set[str]().union(*(times_used(schedule, costs) for schedule in schedules))
        refuse_unused(used, [schedule.name for schedule in schedules], costs)


def check_taken(specs: Sequence[str], shape: ShapeOptions | GridOptions) -> None:
    """Refuse an option of some families that none of these takes (InputError: or below 1)."""
    from ppsim.schedules import family_of

    taken = {option for spec in specs if (family := family_of(spec)) for option in family.options}
    refuse_unused(taken, specs, shape)
    for name in OWN:
        value = getattr(shape, name)
        if isinstance(value, int) and value < 1:
            raise InputError(f"{name.replace('_', ' ')} must be at least 1, got {value}")


def refuse_unused(
    used: Collection[str],
    names: Iterable[str],
    options: CostOptions | ShapeOptions | GridOptions,
) -> None:
    """Refuse an option that is given and not among those used by the schedules of these names
    (InputError).
    """
    for name, one, several in _reasons(options):
        if is_given(getattr(options, name)) and name not in used:
            named = list(dict.fromkeys(names))
            reason = one if len(named) == 1 else several
            raise InputError(
                f"--{name.replace('_', '-')} has no effect: {', '.join(named)} {reason}",
                "leave it out",
            )


def _reasons(options: CostOptions | ShapeOptions | GridOptions) -> Iterator[tuple[str, str, str]]:
    """Yield each option that schedules may leave unused, with the reason for one schedule and for
    several.
    """
    if not isinstance(options, CostOptions):
        for name in OWN:
            what = name.replace("_", " ")
            yield name, f"takes no {what}", f"take no {what}"
        return
    for part in reversed(ask_costs(options).parts):
        for name in part.lacks:
            yield name, f"has {part.lack(name)}", f"have {part.lack(name)}"


def draws_by_replica(costs: CostOptions) -> bool:
    """Return whether each data-parallel replica draws separate factors for its microbatches."""
    return any(part.draws_by_replica for part in ask_costs(costs).parts)


def costs_of_replica(schedule: Schedule, made: Costs, costs: CostOptions, replica: int) -> Costs:
    """Make the costs of a replica from replica 0's: with the factors that it draws for its
    microbatches.
    """
    if not replica:
        return made
    asked = ask_costs(costs)
    for part in asked.parts:
        if part.draws_by_replica:
            made = part.change_replica(schedule, made, asked, replica)
    return made


def add_memory(
    document: Document,
    prices: Sequence[Costs],
    costs: CostOptions,
    *,
    asked: bool,
    model: TrainedModel | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> Document:
    """Add the memory of each timeline's devices over time to a document, in bytes of the ``model``
    if there is one.

    Where a part lacks the bytes that it may hold, memory counts activations, unless it was
    ``asked`` for.
    ``sizes`` are of microbatches of different lengths, shape (1 or stages, microbatches).
    """
    from ppsim.engine.memory.usage import curves, resize

    in_bytes = asked or ask_costs(costs).has_bytes
    pairs = zip(document.timelines, prices, strict=True)
    models = tuple(
        build_memory(timeline.schedule, price, costs, model, in_bytes=in_bytes)[0]
        for timeline, price in pairs
    )
    if sizes is not None:
        models = tuple(resize(each, sizes) for each in models)
    held = zip(document.timelines, models, strict=True)
    return replace(document, memory=tuple(curves(*each) for each in held), memory_models=models)


def measure_with_bound(
    timeline: Timeline,
    costs: Costs,
    tokens: int | None = None,
    *,
    detailed: bool = False,
) -> Metrics:
    """Measure a timeline, with the time that no order of its ops beats, each device holding no more
    than in it.

    Where its schedule goes round, and messages are no ops of their own (``detailed``), also what a
    round takes without end; its rate is of ``tokens`` of a microbatch, or of microbatches.
    """
    from ppsim.engine.simple.metrics import measure
    from ppsim.search.bounds.bounds import bound_schedule, limit_bound

    metrics = measure(timeline)
    found = bound_schedule(timeline.schedule, costs, metrics.peak_activations).makespan
    around = None
    if not detailed and has_period(timeline.schedule):
        from ppsim.prices.rounds import measure_round

        around = measure_round(timeline, costs, tokens)
    return replace(metrics, bound=limit_bound(found, metrics.makespan), round=around)
