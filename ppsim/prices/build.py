"""From options to what they ask for: the one door to a schedule, to its costs, and to what its stages hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ppsim.ask.groups import CostOptions, NetworkOptions, ShapeOptions
from ppsim.base.notes import note
from ppsim.base.times import MICROSECONDS
from ppsim.base.units import parse_size
from ppsim.errors import InputError
from ppsim.prices.chunked import shape_of_chunks, times_of_chunks
from ppsim.prices.rounds import OF_STEPS, add_steps, goes_round, keep_versions, measure_round

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.engine.simple.segments import OpsInside
    from ppsim.prices.trained import Trained
    from ppsim.schedules import Family, Pricing
    from ppsim.show.files.document import Document
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout

MOST_CHUNKS = 8  # tried for a hint


def build_schedule(
    spec: str | Schedule,
    shape: ShapeOptions,
    costs: CostOptions | None = None,
    network: NetworkOptions | None = None,
    *,
    quiet: bool = False,
    price: Pricing | None = None,
) -> Schedule:
    """Make the schedule of that spelling, in the shape the options give, with recompute and copies where asked for.

    The costs are those that a family plans with whose queues depend on them, unless ``price`` makes these; equal times
    where there are none. A layout gives the number of stages where the shape leaves it open.

    Raises:
        InputError: no such schedule, or a shape it refuses.
    """
    from ppsim.schedules import schedule_from

    costs = costs or CostOptions()
    if costs.chunked:
        shape = shape_of_chunks(spec, shape, costs)
    if not isinstance(spec, str):
        return _add_rules(spec, costs, price or partial(build_costs, costs=costs, network=network))
    if costs.layout:
        shape = shape_of_layout(spec, shape, costs.layout)
    price = price or partial(build_costs, costs=costs, network=network)
    try:
        schedule = schedule_from(spec, None if quiet else note, price, **asdict(shape))
    except InputError as error:
        error.hint = _ask_for_layouts(error.hint) if costs.layout else error.hint
        raise
    if schedule.posted and not quiet:
        _note_left_out(spec, costs, network)
    return _add_rules(schedule, costs, price)


def _note_left_out(spec: str, costs: CostOptions, network: NetworkOptions | None) -> None:
    """Say why the sends and receives that a file states are not those that are timed, where they are not."""
    if not (network and network.detailed):
        note(f"sends and receives of {spec} are left out; --p2p times them")
    elif network.order:
        note(f"sends and receives of {spec} are left out; --order sets theirs")
    elif costs.recompute:
        note(f"sends and receives of {spec} are left out; --recompute adds ops to its queues")


def _add_rules(schedule: Schedule, costs: CostOptions, price: Pricing) -> Schedule:
    """Add what the options ask for to any schedule's queues: recompute, copies to the host."""
    if costs.recompute:
        from ppsim.core.recompute import add_recompute

        if schedule.only_forwards and costs.recompute != "none":
            raise InputError(f"{schedule.name} has no backward to run forwards again for", "leave out --recompute")
        schedule = add_recompute(schedule, "full" if costs.recompute is True else costs.recompute)
    if costs.encoder:
        from ppsim.search.rules.encoder import add_encoder, read_encoder

        schedule = add_encoder(schedule, price(schedule), read_encoder(costs.encoder))
    if costs.offload is not None:
        from ppsim.search.rules.offload import add_offload

        schedule = add_offload(schedule, price(schedule), parse_offload(costs.offload, schedule.n_chunks))
    return add_steps(schedule, costs)


def parse_offload(text: str, chunks: int) -> float:
    """Parse --offload: how many of a device's chunks leave it (InputError: more than it has, or no number)."""
    if text == "all":
        return float(chunks)
    share = re.fullmatch(r"(\d{1,3}(?:\.\d{1,9})?)%", text, re.ASCII)
    if share and float(share[1]) <= 100:
        return chunks * float(share[1]) / 100
    if re.fullmatch(r"\d{1,6}", text, re.ASCII) and int(text) <= chunks:
        return float(text)
    have = "1 chunk" if chunks == 1 else f"{chunks} chunks"
    number = "0 or 1" if chunks == 1 else f"a whole number from 0 to {chunks}"
    raise InputError(f"--offload {text[:20]}: a device has {have}", f"{number}, all, or a share such as 50%")


def _ask_for_layouts(hint: str) -> str:
    """Rephrase a hint of --stages for a layout, whose stages are what must change."""
    works = []
    for part in hint.split(" or "):
        if found := re.search(r"--stages (\d+) ?", part):
            rest = part.replace(found[0], "").strip()
            part = f"a layout of {found[1]} stage{'s' * (found[1] != '1')}" + (f" with {rest}" if rest else "")
        works.append(part)
    return " or ".join(works)


def shape_of_layout(spec: str, shape: ShapeOptions, layout: str) -> ShapeOptions:
    """Fill in the stages of a family's shape where stages, or devices and chunks, are not given.

    Raises:
        InputError: the stages do not divide over the devices; the hint is the nearest layout that the family takes.
    """
    from ppsim.schedules import family_of, split_chunks
    from ppsim.workload.layout.layout import nearest_layout, read_layout
    from ppsim.workload.layout.text import parse_content

    family = family_of(spec)
    if shape.stages is not None or (shape.devices and shape.chunks) or family is None:
        return shape
    stages, P, spelled = len(parse_content(layout)), shape.devices, split_chunks(spec)[1]
    try:
        return replace(shape, stages=read_layout(layout, P).n_stages)
    except InputError as error:
        if P and stages % P and shape.microbatches and (chunks := _nearest_chunks(family, spelled, shape, P, stages)):
            error.hint = nearest_layout(layout, P, P * chunks) or error.hint
        raise


def _nearest_chunks(family: Family, spelled: int | None, shape: ShapeOptions, P: int, stages: int) -> int | None:
    """Find the stages per device that a family takes on P devices and that are nearest to that many in all."""
    from ppsim.schedules import shape_for

    likely = [spelled] if spelled else sorted(range(1, stages // P + 3), key=lambda v: (abs(v * P - stages), v))
    for chunks in likely[:MOST_CHUNKS]:
        try:
            shape_for(family, **asdict(shape) | {"chunks": chunks})
        except InputError:
            continue
        return chunks
    return None


def stages_of(costs: CostOptions, *given: object) -> int | None:
    """Count the stages of a layout, where no size is given."""
    from ppsim.workload.layout.layout import read_layout

    return None if any(given) or not costs.layout else read_layout(costs.layout).n_stages


def layout_for(schedule: Schedule, text: str) -> Layout:
    """Read the layout of a schedule's stages (InputError: none, one that Megatron refuses, or of other stages)."""
    from ppsim.schedules import families
    from ppsim.workload.layout.layout import nearest_layout, read_layout
    from ppsim.workload.layout.text import parse_content

    stages, P = len(parse_content(text)), schedule.n_devices
    if stages != schedule.n_stages:
        V = schedule.n_chunks
        hint = f"--devices {stages // V}" + f" --chunks {V}" * (V > 1) if stages % V == 0 else f"--stages {stages}"
        if all(family.name != schedule.name for family in families()):  # a file, whose shape is its own
            hint = nearest_layout(text, P, schedule.n_stages)
        raise InputError(f"the layout has {stages} stages, and {schedule.name} has {schedule.n_stages}", hint)
    return read_layout(text, P if stages % P == 0 else None)


def _layered_costs(layout: Layout, costs: CostOptions) -> Costs:
    """Make costs from a layout and the times of its layers."""
    from ppsim.workload.layout.costs import layout_costs

    if costs.t_mtp is not None and not layout.n_mtp:
        raise InputError("--t-mtp has no effect: the layout has no MTP layer (m)", "leave it out")
    unit = costs.unit if costs.unit is not None else "t_layer" if costs.t_layer is None else "t"
    return layout_costs(layout, layer_times(costs), costs.comm or 0.0, unit)


def layer_times(costs: CostOptions) -> LayerTimes:
    """Read the times of layers from the options."""
    from ppsim.workload.layout.costs import LayerTimes

    given = {"layer": costs.t_layer, "embedding": costs.t_embedding, "head": costs.t_head, "mtp": costs.t_mtp}
    numbers: dict[str, Any] = {**given, "b_over_f": costs.b_over_f}
    return LayerTimes(**{name: value for name, value in numbers.items() if value is not None})


def build_costs(
    schedule: Schedule,
    costs: CostOptions,
    network: NetworkOptions | None = None,
    measured: Costs | None = None,
    model: Trained | None = None,
) -> Costs:
    """Make the costs of a schedule from a profile, a layout, or the numbers given, with factors and links that differ.

    Where a run's costs are ``measured``, these take the place of the numbers. A ``model`` says what part of a stage
    ``--recompute`` runs again.
    Links are changed here unless a cluster of ``network`` gives them all; its ``message`` is the size of messages.
    """
    from ppsim.core.costs import costs_for

    layout = layout_for(schedule, costs.layout) if costs.layout else None
    if measured:
        from ppsim.analysis.changes import adapt_costs

        made = adapt_costs(measured, schedule)
    elif costs.costs:
        made = costs.costs(schedule)
    elif costs.profile:
        from ppsim.inputs.profile.costs import costs_from
        from ppsim.inputs.profile.profile import read

        made = costs_from(read(costs.profile), schedule, content=layout.content if layout else None)
    elif costs.segments:
        from ppsim.engine.simple.segments import read as read_segments
        from ppsim.engine.simple.segments import segment_costs

        made = segment_costs(schedule, read_segments(costs.segments), costs.comm or 0.0, costs.per or "device")
    elif layout:
        made = _layered_costs(layout, costs)
    else:
        numbers = {name: value for name in NUMBERS if (value := getattr(costs, name)) is not None}
        if costs.chunked:  # whose law is in ms
            numbers = {"unit": "ms", **numbers}
        made = costs_for(schedule, **numbers)
    if schedule.n_slices > 1 and (costs.profile or costs.segments or layout):  # which are of whole sequences
        pair = None if made.pair is None else made.pair / schedule.n_slices
        made = replace(made, time=made.time / schedule.n_slices, pair=pair)
    if isinstance(costs.recompute, str):
        from ppsim.prices.recompute_part import PartlyRecomputed

        times = layer_times(costs) if layout and not (measured or costs.profile or costs.segments) else None
        made = PartlyRecomputed(schedule, costs, layout, model).time(made, times)
    factors = _factors(schedule, costs)
    if factors and made.each is not None:
        what = "--mb-scale, --slice-scale and --speed change no times that a function gives"
        raise InputError(what, "let the function return what each op takes")
    made = replace(made, **factors, **_beside_compute(schedule, costs), feedback=costs.feedback)
    if costs.host_link:
        made = replace(made, others={**made.others, **_time_copies(schedule, made, costs, model)})
    if not costs.links or (network and network.cluster):
        return made
    from ppsim.engine.detailed.links import change_latencies, parse_link

    changes = [parse_link(text, schedule.n_devices) for text in costs.links]
    size = float(parse_size(network.message)[0]) if network and network.message else None
    return replace(made, comm=change_latencies(made.comm, schedule.n_devices, made.unit, changes, size))


BESIDE = ("t_offload", "t_reload", "t_evict", "te", "ts", "tt", "td", "tl", "tgf", "tgb", "t_collective", *OF_STEPS)
TIMES = ("tb", "ti", "tw", "tfb", "tr", "slice_scale", *BESIDE, "host_link", "host_link_shared", "feedback", "tokens")
NUMBERS = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm", "per", "unit")


def _beside_compute(schedule: Schedule, costs: CostOptions) -> dict[str, Any]:
    """Times of copies, collectives and ops without a stage, of those that are given."""
    from ppsim.core.costs import price_others

    given = {kind: value for name in BESIDE if (value := getattr(costs, name)) is not None for kind in kinds_of(name)}
    if not given and not costs.host_link_shared and not costs.encoder:
        return {}
    others = price_others(schedule, given, costs.per or "device")
    if costs.encoder:
        from ppsim.search.rules.encoder import encoder_times, read_encoder

        others |= encoder_times(schedule, read_encoder(costs.encoder))
    return {"others": others, "host_link": costs.host_link_shared or 0}


def _time_copies(schedule: Schedule, made: Costs, costs: CostOptions, model: Trained | None) -> dict[Kind, Any]:
    """Times of copies between a device and its host, by the bytes of a stage's activation and --host-link.

    Raises:
        InputError: it is no bandwidth, nothing gives bytes, or the times of ops have no unit of time.
    """
    from ppsim.core.ops import Kind
    from ppsim.engine.memory.usage import BYTES

    text = costs.host_link or ""
    rate, in_bytes = parse_size(text.removesuffix("/s")) if text.endswith("/s") else (0, False)
    if not (rate and in_bytes):
        raise InputError(f"--host-link {text[:40]} is no bandwidth", "bytes a second, such as 55GB/s")
    if made.unit not in MICROSECONDS:
        what = f"--host-link needs times in a unit of time, and theirs is {made.unit}"
        raise InputError(what, "--tf 2.5 --unit ms, or --profile FILE")
    held = build_memory(schedule, made, costs, model)[0]
    if held.unit != BYTES:
        what = "--host-link needs the bytes of an activation, and nothing gives them"
        raise InputError(what, "--profile FILE with activations, or ppsim memory --model NAME, or --t-offload TIME")
    took = held.activations / rate * (1e6 / MICROSECONDS[made.unit])
    return {Kind.OFFLOAD: took, Kind.RELOAD: took}


def kinds_of(name: str) -> tuple[Kind, ...]:
    """The kinds whose time an option gives."""
    from ppsim.core.ops import TIMED, Kind, Stream

    if name == "t_evict":
        return Kind.EVICT, Kind.LOAD
    if name == "t_collective":
        own = {Kind.GATHER, Kind.REDUCE}
        return tuple(kind for kind in TIMED if kind.info.stream == Stream.COLLECTIVE and kind not in own)
    if name in OF_STEPS:
        return ({"t_optimizer": Kind.OPT, "t_gather": Kind.GATHER, "t_reduce_grad": Kind.REDUCE}[name],)
    return (Kind[name.removeprefix("t_").upper() if name.startswith("t_") else name[1:].upper()],)


def draws_by_replica(costs: CostOptions) -> bool:
    """Whether each data-parallel replica draws factors of its own for its microbatches."""
    from ppsim.inputs.profile.scale import is_drawn

    return any(map(is_drawn, costs.mb_scale))


def costs_of_replica(schedule: Schedule, made: Costs, costs: CostOptions, replica: int) -> Costs:
    """Make the costs of a replica from those of replica 0: with the factors that it draws for its microbatches."""
    if not replica or not draws_by_replica(costs):
        return made
    return replace(made, scale=_factors(schedule, costs, replica)["scale"])


def _factors(schedule: Schedule, costs: CostOptions, replica: int = 0) -> dict[str, Any]:
    """Factors of a replica's microbatches and their slices, and speeds of devices, of those that are given."""
    import numpy as np

    found = dict[str, Any]()
    if costs.chunked:
        from ppsim.core.ops import COMPUTE

        times = times_of_chunks(costs, schedule.n_devices)
        return {"scale": np.tile(times, (len(COMPUTE), 1))}
    if costs.mb_scale or costs.slice_scale:
        from ppsim.inputs.profile.scale import parse_scale, parse_slice_scale
    if costs.mb_scale:
        one = parse_scale(
            costs.mb_scale,
            schedule.round_microbatches,
            schedule.n_slices,
            replica,
            cycles=schedule.feeds_back,
        )
        found["scale"] = np.tile(one, schedule.n_rounds)
    if costs.slice_scale and schedule.n_slices > 1:
        of_slices = parse_slice_scale(costs.slice_scale, schedule.n_slices, _attention_share(costs))
        pieces = schedule.n_microbatches // schedule.n_slices
        found["scale"] = np.tile(of_slices, pieces) * found.get("scale", 1.0)
    if costs.speed is None:
        return found
    speed = np.atleast_1d(np.asarray(costs.speed, np.float64))
    if len(speed) not in (1, schedule.n_devices):
        raise InputError(f"{len(speed)} speeds for {schedule.n_devices} devices", "one, or one for each device")
    if not (np.isfinite(speed) & (speed > 0)).all():
        raise InputError("a speed must be more than zero and finite", "1 is the speed that the times are for")
    return {**found, "speed": np.broadcast_to(speed, schedule.n_devices).copy()}


def _attention_share(costs: CostOptions) -> float | None:
    """Attention's share of a forward for the model that was measured: 2sh of 24h^2 + 2sh flop a token and layer."""
    if not costs.profile:
        return None
    from ppsim.inputs.profile.profile import read

    model = read(costs.profile).model
    return model.sequence / (model.sequence + 12 * model.hidden) if model else None


def times_used(schedule: Schedule, costs: CostOptions) -> set[str]:
    """Find which of the times given a schedule uses, by the name of their option."""
    import numpy as np

    from ppsim.core.ops import Kind

    kinds = set(np.flatnonzero(np.bincount(schedule.kind)).tolist())
    backward, halves = Kind.B in kinds, Kind.I in kinds or Kind.W in kinds
    summed = backward and costs.tb is None
    used = {
        "tb": backward or (halves and (costs.ti is None or costs.tw is None)),
        "ti": Kind.I in kinds or summed or (Kind.W in kinds and costs.tw is None and costs.tb is not None),
        "tw": Kind.W in kinds or summed or (Kind.I in kinds and costs.ti is None and costs.tb is not None),
        "tfb": costs.tfb is not None and bool(((schedule.kind == Kind.B) & (schedule.pair >= 0)).any()),
        "tr": Kind.R in kinds,
        "slice_scale": schedule.n_slices > 1,
        **{name: bool(kinds & {*kinds_of(name)}) for name in BESIDE},
        "host_link": bool(kinds & {Kind.OFFLOAD, Kind.RELOAD}),
        "host_link_shared": bool(kinds & {Kind.OFFLOAD, Kind.RELOAD}),
        "feedback": schedule.feeds_back,
        "tokens": goes_round(schedule),
    }
    return {name for name in TIMES if used[name]}


def check_used(schedules: Collection[Schedule], costs: CostOptions) -> None:
    """Refuse a time that none of the schedules uses (InputError: of a kind of op, or of pairs, that none has)."""
    if schedules and any(getattr(costs, name) not in (None, ()) for name in TIMES):
        used = set[str]().union(*(times_used(schedule, costs) for schedule in schedules))
        refuse_unused(used, [schedule.name for schedule in schedules], costs)


def refuse_unused(used: Collection[str], names: Sequence[str], costs: CostOptions) -> None:
    """Refuse a time that is not among those used by the schedules of these names (InputError)."""
    what = {
        "tb": "no full backward",
        "ti": "no I, and --tb gives its full backward",
        "tw": "no W, and --tb gives its full backward",
        "tfb": "no pairs of F and B",
        "tr": "no R; --recompute adds them",
        "slice_scale": "no slices of sequences",
        **{name: f"no {kinds_of(name)[0].name}" for name in BESIDE},
        "t_collective": "no collectives",
        **dict.fromkeys(OF_STEPS, "no optimizer step"),
        "host_link": f"no copies to a host{' that end in time' if costs.offload else ''}",
        "host_link_shared": "no copies to a host",
        "feedback": "no loop to feed results back through; decode has",
        "tokens": "no rounds to have a rate; decode and forward-only have",
    }
    for name in TIMES:
        if getattr(costs, name) not in (None, ()) and name not in used:
            named, option = ", ".join(dict.fromkeys(names)), name.replace("_", "-")
            raise InputError(
                f"--{option} has no effect: {named} {'has' if ',' not in named else 'have'} {what[name]}",
                "leave it out",
            )


def build(
    spec: str | Schedule,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions | None = None,
    merge: bool = False,
    quiet: bool = False,
    measured: Costs | None = None,
    model: Trained | None = None,
) -> tuple[Schedule, Costs]:
    """Make the schedule and its costs, refusing times that it does not use; ``merge`` joins I and W into B."""
    price = partial(build_costs, costs=costs, network=network, measured=measured, model=model)
    schedule = build_schedule(spec, shape, costs, network, quiet=quiet, price=price)
    if shape.stages and not (shape.devices or shape.chunks or quiet or schedule.n_chunks == 1):
        fewer = f"{schedule.n_stages} stages are {schedule.n_devices} devices"
        note(f"{fewer}: {schedule.name} has {schedule.n_chunks} stages on each (--devices {shape.stages} for as many)")
    if merge:
        from ppsim.core.split_backward import merge_backwards

        if schedule.posted and network and network.detailed and not quiet:
            note(f"sends and receives of {schedule.name} are left out; --merge-bw changes its ops")
        schedule = merge_backwards(schedule)
    check_used([schedule], costs)
    return schedule, price(schedule)


def build_memory(
    schedule: Schedule, prices: Costs, costs: CostOptions, model: Trained | None = None
) -> tuple[MemoryModel, Costs]:
    """Make the model of what stages hold, and the costs with the time that recomputation takes.

    Bytes come from a model or from a profile that has them, else memory counts activations of one stage and microbatch,
    or with a layout those of one layer.
    """
    from ppsim.engine.memory.usage import BYTES, activation_model, cut_in_slices, layer_model
    from ppsim.prices.recompute_part import PartlyRecomputed

    layout = layout_for(schedule, costs.layout) if costs.layout else None
    content = layout.content if layout else None
    if model:
        held, prices = model.memory(schedule, content), model.add_recompute(prices)
    elif costs.profile:
        from ppsim.inputs.profile.profile import read
        from ppsim.workload.model.from_profile import profile_memory

        held = profile_memory(read(costs.profile), schedule, content)
    else:
        held = layer_model(schedule, content) if content else activation_model(schedule)
    held = keep_versions(PartlyRecomputed(schedule, costs, layout, model).keep(held), schedule)
    if costs.encoder and held.unit == BYTES:
        from ppsim.search.rules.encoder import encoder_memory, read_encoder

        held = encoder_memory(held, schedule, read_encoder(costs.encoder))
    return cut_in_slices(held, schedule.n_slices if model or costs.profile else 1), prices


def add_memory(
    document: Document, prices: Sequence[Costs], costs: CostOptions, *, asked: bool, model: Trained | None = None
) -> Document:
    """Add to a document what the devices of each timeline hold over time, in bytes of the ``model`` if there is one.

    A profile without the bytes of activations counts activations, unless memory was ``asked`` for.
    """
    from ppsim.engine.memory.usage import curves

    if costs.profile and not asked and not has_activation_bytes(costs.profile):
        costs = replace(costs, profile=None)
    pairs = zip(document.timelines, prices, strict=True)
    models = tuple(build_memory(timeline.schedule, price, costs, model)[0] for timeline, price in pairs)
    held = zip(document.timelines, models, strict=True)
    return replace(document, memory=tuple(curves(*each) for each in held), memory_models=models)


def has_activation_bytes(profile: str) -> bool:
    """Whether a profile's file gives the bytes of activations."""
    from ppsim.inputs.profile.profile import read

    found = read(profile)
    layers = found.model and any(row.part == "layers" for row in found.activation)
    return bool(found.stage or layers)


def look_inside_costs(schedules: Sequence[Schedule], costs: CostOptions) -> tuple[OpsInside, ...]:
    """Look inside the ops of each schedule, where their costs come from segments."""
    if not costs.segments:
        return ()
    from ppsim.engine.simple.segments import look_inside_ops
    from ppsim.engine.simple.segments import read as read_segments

    segments = read_segments(costs.segments)
    return tuple(look_inside_ops(schedule, segments, costs.per or "device") for schedule in schedules)


def measure_with_bound(
    timeline: Timeline, costs: Costs, tokens: int | None = None, *, detailed: bool = False
) -> Metrics:
    """Measure a timeline, with the time that no order of its ops beats, each device holding no more than in it.

    Where its schedule goes round, and messages are no ops of their own (``detailed``), also what a round takes without
    end; its rate is of ``tokens`` of a microbatch, or of microbatches.
    """
    from ppsim.engine.simple.metrics import measure
    from ppsim.search.bounds.bounds import bound_schedule, limit_bound

    metrics = measure(timeline)
    found = bound_schedule(timeline.schedule, costs, metrics.peak_activations).makespan
    around = None if detailed else measure_round(timeline, costs, tokens)
    return replace(metrics, bound=limit_bound(found, metrics.makespan), round=around)
