"""Build a schedule, its costs and its memory from options.

Every function here asks the parts that the options call (``parts/``, one file each), one after the
other:

- **Schedule**: parts fill in the shape, the registry makes the queues, and parts add ops.
- **Costs**: a real run gives them, or else the source, which is one of the parts. Then parts change
  them.
- **Memory**: the model gives the memory of stages, or else the first part that can. Then parts
  change it.
- **Refusals**: an option that no schedule uses is refused, with the reason of its part.

Parts are asked from the last to the first, by the order of their options in the help.
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
    """Return the schedule and its costs; ``merge`` joins I and W into B.

    Raises:
        InputError: there is no such schedule, it refuses the shape, or it does not use a time.
    """
    price = partial(build_costs, costs=costs, network=network, measured=measured, model=model)
    schedule = build_schedule(spec, shape, costs, network, quiet=quiet, price=price)
    if shape.stages and not (shape.devices or shape.chunks or quiet or schedule.n_chunks == 1):
        sizes = f"{schedule.n_stages} stages are {schedule.n_devices} devices"
        note(
            f"{sizes}: {schedule.name} has {schedule.n_chunks} stages on each "
            f"(for as many devices: --devices {shape.stages})"
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
    """Return a schedule in the shape of the options, with the ops that they add.

    Args:
        spec: a schedule's spelling, or a schedule.
        shape: the shape.
        costs: the options of costs, which may fill in the shape.
        network: the options of messages.
        quiet: True prints no notes.
        price: returns the costs that a family plans with, instead of those of ``costs``.

    Raises:
        InputError: there is no such schedule, or it refuses the shape.
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
    """Note why the sends and receives of a file are not the timed ones, if they are not."""
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
    """Return the costs of a schedule.

    Args:
        schedule: the schedule.
        costs: the options of costs.
        network: the options of messages; a cluster gives all links.
        measured: the costs of a real run, for whole sequences, which replace those of options.
        model: the model whose modules ``--recompute`` may run again.
    """
    asked = ask_costs(costs, network, measured, model)
    if measured:
        from ppsim.analysis.changes import adapt_costs, times_sliced

        prices = adapt_costs(measured, schedule)
        if schedule.n_slices > 1:
            prices = times_sliced(prices, 1 / schedule.n_slices)
    else:
        prices = asked.source.price(schedule, asked)
        if schedule.n_slices > 1 and asked.source.is_of_whole_sequences:
            pair = None if prices.pair is None else prices.pair / schedule.n_slices
            prices = replace(prices, time=prices.time / schedule.n_slices, pair=pair)
    for part in asked.parts:
        prices = part.change(schedule, prices, asked)
    return prices


def stages_of(costs: CostOptions, *given: object) -> int | None:
    """Return the number of stages that a part states; None if a size is given or no part does."""
    return None if any(given) else ask_costs(costs).n_stages()


def queues_follow_costs(spec: str, asked: Asked) -> bool:
    """Return True if costs decide the order of a family's ops, or the place of ops added to them.

    Args:
        spec: the schedule's spelling; empty for queues of no family.
        asked: the options of costs with their parts.
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
    """Return the memory model of stages, and the costs with the time of recompute.

    Memory is in bytes if ``in_bytes`` and a model or a part has them; else in activations of one
    stage and microbatch, or with a layout of one layer.
    """
    held = ask_costs(costs, model=model).hold(schedule, in_bytes=in_bytes)
    return held, model.add_recompute(prices) if model else prices


def look_inside_costs(schedules: Sequence[Schedule], costs: CostOptions) -> tuple[OpsInside, ...]:
    """Return the segments inside the ops of each schedule; nothing if their source has none."""
    asked = ask_costs(costs)
    found = (asked.source.look_inside(schedule, asked) for schedule in schedules)
    return tuple(inside for inside in found if inside is not None)


def times_used(schedule: Schedule, costs: CostOptions) -> set[str]:
    """Return the names of the options that a schedule uses, of those that may have no effect."""
    asked = ask_costs(costs)
    return set[str]().union(*(part.used(schedule, asked) for part in asked.parts))


def check_used(schedules: Collection[Schedule], costs: CostOptions) -> None:
    """Raise InputError for an option without effect on every schedule."""
    if schedules and any(is_given(getattr(costs, name)) for name in REFUSED_UNUSED):
        used = set[str]().union(*(times_used(schedule, costs) for schedule in schedules))
        refuse_unused(used, [schedule.name for schedule in schedules], costs)


def check_taken(specs: Sequence[str], shape: ShapeOptions | GridOptions) -> None:
    """Raise InputError for an option of families that none of these has, or for one below 1."""
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
    """Raise InputError for a given option that is not ``used`` by the schedules of these names."""
    for name, reason_for_one, reason_for_several in _reasons(options):
        if is_given(getattr(options, name)) and name not in used:
            unique = list(dict.fromkeys(names))
            reason = reason_for_one if len(unique) == 1 else reason_for_several
            raise InputError(
                f"--{name.replace('_', '-')} has no effect: {', '.join(unique)} {reason}",
                "leave it out",
            )


def _reasons(options: CostOptions | ShapeOptions | GridOptions) -> Iterator[tuple[str, str, str]]:
    """Yield each option that schedules may not use, with the reasons for one and for several
    schedules.
    """
    if not isinstance(options, CostOptions):
        for name in OWN:
            noun = name.replace("_", " ")
            yield name, f"takes no {noun}", f"take no {noun}"
        return
    for part in reversed(ask_costs(options).parts):
        for name in part.lacks:
            yield name, f"has {part.lack(name)}", f"have {part.lack(name)}"


def draws_by_replica(costs: CostOptions) -> bool:
    """Return True if each data-parallel replica draws separate factors for its microbatches."""
    return any(part.draws_by_replica for part in ask_costs(costs).parts)


def costs_of_replica(schedule: Schedule, prices: Costs, costs: CostOptions, replica: int) -> Costs:
    """Return the costs of a replica, with the factors that it draws for its microbatches.

    ``prices`` are the costs of replica 0.
    """
    if not replica:
        return prices
    asked = ask_costs(costs)
    for part in asked.parts:
        if part.draws_by_replica:
            prices = part.change_replica(schedule, prices, asked, replica)
    return prices


def add_memory(
    document: Document,
    prices: Sequence[Costs],
    costs: CostOptions,
    *,
    asked: bool,
    model: TrainedModel | None = None,
    sizes: NDArray[np.float64] | None = None,
) -> Document:
    """Return a document with the memory of each timeline's devices over time.

    Memory is in bytes of the ``model`` or of a part. If a part lacks its bytes, memory counts
    activations, but is an error if memory was ``asked`` for. ``sizes`` are those of microbatches
    of different lengths, shape (1 or stages, microbatches).
    """
    from ppsim.engine.memory.usage import curves, resize

    in_bytes = asked or ask_costs(costs).has_bytes
    pairs = zip(document.timelines, prices, strict=True)
    models = tuple(
        build_memory(timeline.schedule, price, costs, model, in_bytes=in_bytes)[0]
        for timeline, price in pairs
    )
    if sizes is not None:
        models = tuple(resize(model, sizes) for model in models)
    runs = zip(document.timelines, models, strict=True)
    return replace(document, memory=tuple(curves(*run) for run in runs), memory_models=models)


def measure_with_bound(
    timeline: Timeline,
    costs: Costs,
    tokens: int | None = None,
    *,
    detailed: bool = False,
) -> Metrics:
    """Return the numbers of a timeline, with a lower bound for all orders of its ops in the same
    memory.

    If its schedule repeats and messages are not ops (``detailed``), the steady state of a round is
    there too; its rate counts the ``tokens`` of microbatches, or microbatches.
    """
    from ppsim.engine.simple.metrics import measure
    from ppsim.search.bounds.bounds import bound_schedule, limit_bound

    metrics = measure(timeline)
    bound = bound_schedule(timeline.schedule, costs, metrics.peak_activations).makespan
    steady = None
    if not detailed and has_period(timeline.schedule):
        from ppsim.prices.rounds import measure_round

        steady = measure_round(timeline, costs, tokens)
    return replace(metrics, bound=limit_bound(bound, metrics.makespan), round=steady)
