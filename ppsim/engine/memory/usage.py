"""Memory of every device over time: static memory, and the allocations and frees of ops.

An op allocates memory at its start and frees memory at its end, so that in a pair F has allocated
its activation before the other op frees one. F allocates a microbatch's activation; B frees all of
it. Split, I frees a part and leaves the gradients that W needs (the weight-gradient stash), and W
frees the rest. Where the backward recomputes, F keeps its stage's input only, and R allocates the
rest. Amounts are whole numbers: bytes, or stage-microbatches where nothing is known about the
model. Where microbatches are of different lengths, each has its own amounts, and stage-microbatches
are parts of a mean one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core import curve as units
from ppsim.core.curve import Curve
from ppsim.core.ops import ALL, PART, REST, TIMED, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline

Amounts = NDArray[Any]  # whole numbers, or numbers of mean microbatches with DIGITS digits
DIGITS = 9
OF_A_MICROBATCH = ("activations", "kept", "stash", "work_b", "work_i", "message", "stored")
BYTES, ACTIVATIONS = units.BYTES, units.ACTIVATIONS
LAYER_ACTIVATIONS = units.LAYER_ACTIVATIONS
MOST_BYTES = 1 << 50  # that one stage may hold, so that sums stay within 64 bits
SHARES = "1/P shares"  # of the model: an activation of one of V stages on a device is 1/V of one
ROUNDING = 1e-12  # of the makespan
# what kinds of ops do, by their code
_ALLOCATES = np.array([of.info.allocates for of in TIMED])
_FREES = [np.array([of.info.frees == what for of in TIMED]) for what in (ALL, PART, REST)]
NO_BUFFERS = np.empty(0, np.intp), np.empty(0), np.empty(0, np.int64)


@dataclass(frozen=True)
class MemoryModel:
    """The memory of each stage, in ``unit``; every array has shape (stages,).

    Amounts that a microbatch leaves, or needs while it runs, have shape (stages, microbatches)
    where microbatches are of different lengths.
    """

    activations: Amounts  # what a forward leaves for a microbatch
    kept: Amounts  # the part of it that I cannot free, held until W
    stash: Amounts  # gradients that I leaves for W
    work_b: Amounts  # held only while B runs, such as the layer at work
    work_i: Amounts  # the same for I
    message: Amounts  # size of what a stage sends to the next, and of the gradient that comes back
    # the part of ``activations`` that F keeps for an R, which allocates the rest: the stage's input
    stored: Amounts
    # always held, by name, such as weights, gradients and optimizer. A device holds it for each of
    # its stages, in a bidirectional placement for the stages of both replicas
    static: Mapping[str, Amounts] = field(default_factory=dict)
    # what an encoder's forward leaves for its backward, on the device that runs both
    encoder: int = 0
    # memory of each device besides its stages', by name; shape (devices,)
    on_device: Mapping[str, Amounts] = field(default_factory=dict)
    # ``B``; ``activations``: stage-microbatches; or ``layer activations``: layer-microbatches
    unit: str = BYTES


@dataclass(frozen=True)
class Peak:
    """The peak of one device."""

    device: int  # the device
    value: float  # the memory held, whole unless microbatches are of different lengths
    time: float  # when that is first reached
    op: int  # index of the op that runs or has just ended, -1 before the first
    parts: Mapping[str, float]  # amounts by name, static ones included; they sum to ``value``


def activation_model(schedule: Schedule, release: Kind = Kind.W) -> MemoryModel:
    """Make a model that counts activations: one per stage and microbatch, freed at B and, split, at
    ``release``.

    The input that F keeps for an R counts as none.
    """
    one, none = np.ones(schedule.n_stages, np.int64), np.zeros(schedule.n_stages, np.int64)
    kept = one if release == Kind.W else none
    return MemoryModel(one, kept, none, none, none, none, stored=none, unit=ACTIVATIONS)


def cut_in_slices(model: MemoryModel, slices: int) -> MemoryModel:
    """Return a stage's memory for one slice from that for a whole sequence, rounded up.

    All memory except the constant part grows with the length of the sequence.
    """
    return replace(model, **{name: -(-getattr(model, name) // slices) for name in OF_A_MICROBATCH})


def resize(
    model: MemoryModel, sizes: NDArray[np.float64], twice: MemoryModel | None = None
) -> MemoryModel:
    """Return what a stage holds of microbatches of different sizes; bytes are rounded up.

    Args:
        model: the memory that a microbatch of size 1 takes.
        sizes: shape (1 or stages, microbatches).
        twice: the memory of a microbatch of size 2, where that is not twice as much.
    """

    def of_sizes(name: str) -> Amounts:
        one = getattr(model, name)[:, None]
        more = one if twice is None else getattr(twice, name)[:, None] - one
        found = one + (sizes - 1) * more if twice else one * sizes
        if model.unit == BYTES:
            return np.ceil(np.round(np.maximum(found, 0.0), 3)).astype(np.int64)
        return np.round(found, DIGITS)

    sized: dict[str, Any] = {name: of_sizes(name) for name in OF_A_MICROBATCH}
    return replace(model, **sized)


def activations_per_unit(schedule: Schedule, unit: str) -> float:
    """Return how many of a memory model's ``unit`` one unit of ``--cap`` stands for: 1 where that
    is bytes.

    Activations are of one stage there, so V chunks make V of them, and K slices of each sequence K
    more.
    """
    if unit == ACTIVATIONS:
        return schedule.n_stages * schedule.n_slices / schedule.n_devices
    return schedule.n_slices if unit == LAYER_ACTIVATIONS else 1.0


def layer_model(schedule: Schedule, content: Sequence[str]) -> MemoryModel:
    """Make a model that counts activations of one layer: per microbatch as many as a layout's stage
    holds layers.
    """
    layers = np.array([stage.count("t") + stage.count("m") for stage in content], np.int64)
    return replace(
        activation_model(schedule), activations=layers, kept=layers, unit=LAYER_ACTIVATIONS
    )


def sum_static(schedule: Schedule, model: MemoryModel) -> dict[str, Amounts]:
    """Sum static memory per device, by name, each of shape (devices,)."""
    held = {}
    for name, amount in model.static.items():
        held[name] = np.zeros(schedule.n_devices, np.int64)
        np.add.at(
            held[name],
            schedule.placement.devices,
            np.broadcast_to(amount, schedule.placement.devices.shape),
        )
    return held | dict(model.on_device)


def curves(timeline: Timeline, model: MemoryModel, name: str = "memory") -> Curve:
    """Compute each device's memory over time, static memory included; every device starts at time
    0.

    Changes at one time count together, and so do changes that differ in time by rounding alone: a
    curve has no spike where one op frees and the next allocates. So memory of an op that takes no
    time is not in the curve, though it counts in
    :func:`ppsim.engine.simple.metrics.peak_activations`, which goes by the order of the queue.
    """
    schedule = timeline.schedule
    begin, end = (np.zeros(len(schedule), model.activations.dtype) for _ in range(2))
    for _, at_start, at_end in _changes(timeline, model):
        begin += at_start
        end += at_end
    base = sum(sum_static(schedule, model).values(), np.zeros(schedule.n_devices, np.int64))
    curve = _curve(timeline, begin, end, base, _arrivals(timeline, model))
    return replace(curve, name=name, unit=model.unit, host=_on_host(timeline, model))


def stacks(timeline: Timeline, model: MemoryModel, most: int = 1) -> list[Curve]:
    """Return the memory of the fullest devices over time by content, the fullest device first.

    In each, one line is above the other: the last is the device's of :func:`curves`. Activations
    are told apart by chunk where there are several.
    """
    schedule, whole = timeline.schedule, curves(timeline, model)
    nothing = np.zeros(schedule.n_devices, np.int64)
    always, others = sum_static(schedule, model), list[tuple[str, Curve]]()
    for name, at_start, at_end in _changes(timeline, model):
        chunks = (
            range(schedule.n_chunks) if name == "activations" and schedule.n_chunks > 1 else [NONE]
        )
        for chunk in chunks:
            own = (schedule.chunk == chunk) | (chunk == NONE)
            more = _arrivals(timeline, model) if name == "receive buffers" else NO_BUFFERS
            curve = _curve(
                timeline, np.where(own, at_start, 0), np.where(own, at_end, 0), nothing, more
            )
            others.append((name if chunk == NONE else f"{name}, chunk {chunk}", curve))
    found = []
    lines: list[tuple[str, NDArray[np.float64], NDArray[Any]]]
    for device in np.argsort(-whole.peak, kind="stable")[:most].tolist():
        lines = [(name, np.zeros(1), held[device : device + 1]) for name, held in always.items()]
        lines += [(name, *steps(curve, device)) for name, curve in others]
        lines = [(name, time, value) for name, time, value in lines if value.any()]
        times = np.unique(
            np.concatenate([steps(whole, device)[0], *(time for _, time, _ in lines)])
        )
        times = times[np.append(np.diff(times) > ROUNDING * timeline.makespan, True)]
        held = [
            np.append(0, value)[np.searchsorted(time, times, "right")] for _, time, value in lines
        ]
        sums = np.cumsum(np.array(held).reshape(len(held), len(times)), 0, np.float64)
        offsets = np.arange(len(lines) + 1) * len(times)
        curve = Curve(
            "memory by content", model.unit, offsets, np.tile(times, len(lines)), sums.ravel()
        )
        found.append(replace(curve, parts=tuple(name for name, _, _ in lines), device=device))
    return found


def _on_host(timeline: Timeline, model: MemoryModel) -> Curve | None:
    """Return the host memory of copies: from the start of an OFFLOAD to the end of its RELOAD."""
    schedule = timeline.schedule
    out, back = (schedule.kind == kind for kind in (Kind.OFFLOAD, Kind.RELOAD))
    if not out.any():
        return None
    amount = _amount_of_ops(model.activations, schedule)
    nothing = np.zeros(schedule.n_devices, np.int64)
    curve = _curve(
        timeline, np.where(out, amount, 0), -np.where(back, amount, 0), nothing, NO_BUFFERS
    )
    return replace(curve, name="on the host", unit=model.unit)


def _curve(
    timeline: Timeline,
    begin: Amounts,
    end: Amounts,
    base: Amounts,
    more: tuple[NDArray[np.intp], NDArray[np.float64], Amounts],
) -> Curve:
    """Sum the changes of each op at its start and end, and further changes at other times."""
    schedule, (op, arrival, buffer) = timeline.schedule, more
    first = 2 * schedule.offsets[:-1]
    device = np.insert(np.repeat(schedule.device, 2), first, np.arange(schedule.n_devices))
    time = np.insert(np.stack((timeline.start, timeline.end), 1).ravel(), first, 0.0)
    change = np.insert(np.stack((begin, end), 1).ravel(), first, base)
    device, time = np.concatenate((device, schedule.device[op])), np.concatenate((time, arrival))
    change = np.concatenate((change, buffer))
    if not (
        (device[1:] > device[:-1]) | ((device[1:] == device[:-1]) & (time[1:] >= time[:-1]))
    ).all():
        order = np.lexsort((time, device))
        device, time, change = device[order], time[order], change[order]
    last = np.append(
        (device[1:] != device[:-1]) | (np.diff(time) > ROUNDING * timeline.makespan), True
    )
    value, device, time = np.cumsum(change)[last], device[last], time[last]
    first = np.searchsorted(device, np.arange(schedule.n_devices))
    value -= np.concatenate(([0], value))[first][device]
    if value.dtype != np.int64:
        value = np.round(value, DIGITS)
    changed = np.append(True, value[1:] != value[:-1])
    changed[first] = True
    offsets = np.searchsorted(device[changed], np.arange(schedule.n_devices + 1))
    return Curve("", "", offsets, time[changed], value[changed].astype(np.float64))


def steps(curve: Curve, device: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return one device's times and values."""
    own = slice(int(curve.offsets[device]), int(curve.offsets[device + 1]))
    return curve.time[own], curve.value[own]


def scale_bytes(found: Iterable[Curve]) -> list[Curve]:
    """Convert curves in bytes to the unit that fits their peak; leave out curves in activations."""
    from ppsim.base.units import binary_unit

    result = []
    for curve in found:
        if curve.unit == BYTES:
            unit, size = binary_unit(curve.peak.max())
            result.append(curve.divided(size, unit))
    return result


def share_unit(curves: Sequence[Curve], schedules: Sequence[Schedule]) -> list[Curve]:
    """Convert curves of the same quantity, one per schedule, to one unit.

    Counts of activations become shares of a device's 1/P of the model where the schedules have
    different numbers of stages per device; bytes take the binary unit that fits the largest peak.
    """
    if curves and all(curve.unit == BYTES for curve in curves):
        from ppsim.base.units import binary_unit

        unit, size = binary_unit(max(float(curve.peak.max()) for curve in curves))
        return [curve.divided(size, unit) for curve in curves]
    if len({schedule.n_chunks for schedule in schedules}) < 2:
        return list(curves)
    return [
        curve.divided(schedule.n_chunks, SHARES) if curve.unit in ("", ACTIVATIONS) else curve
        for curve, schedule in zip(curves, schedules, strict=True)
    ]


def activations(timeline: Timeline) -> Curve:
    """Count the activations that each device holds, one per stage and microbatch: from F, or R, to
    B or W.
    """
    return curves(timeline, activation_model(timeline.schedule), "live activations").divided(1, "")


def in_flight(timeline: Timeline) -> Curve:
    """Count the microbatches in flight on each device, one per stage: from F to B or I."""
    model = activation_model(timeline.schedule, Kind.I)
    return replace(
        curves(timeline, replace(model, stored=model.activations), "microbatches in flight"),
        unit="",
    )


def peaks(timeline: Timeline, model: MemoryModel) -> list[Peak]:
    """Find each device's peak, the time and op at which it is first reached, and its parts."""
    schedule, memory = timeline.schedule, curves(timeline, model)
    value, result = memory.peak, []
    times = np.array(
        [
            time[np.argmax(held)]
            for time, held in (steps(memory, d) for d in range(schedule.n_devices))
        ]
    )
    parts = {**sum_static(schedule, model), **_memory_at(timeline, model, times)}
    for device in range(schedule.n_devices):
        named = {name: _number(amount[device]) for name, amount in parts.items()}
        op = op_at(timeline, device, times[device])
        result.append(Peak(device, _number(value[device]), float(times[device]), op, named))
    return result


def _number(amount: float) -> float:
    """Return an amount as an integer where it is whole, else with DIGITS digits."""
    whole = int(amount)
    return whole if whole == amount else round(float(amount), DIGITS)


def op_at(timeline: Timeline, device: int, time: float) -> int:
    """Find the op that a device runs at that time, or ran last; -1 before its first."""
    queue = timeline.schedule.queue(device)
    begun = int(np.searchsorted(timeline.start[queue], time, "right"))
    return queue.start + begun - 1 if begun else NONE


def _memory_at(
    timeline: Timeline, model: MemoryModel, times: NDArray[np.float64]
) -> dict[str, Amounts]:
    """Return each device's memory at its entry of ``times``, by name, without static memory."""
    schedule = timeline.schedule
    device = schedule.device
    started, ended = timeline.start <= times[device], timeline.end <= times[device]
    held: dict[str, Amounts] = {}
    for name, at_start, at_end in _changes(timeline, model):
        change = np.where(started, at_start, 0) + np.where(ended, at_end, 0)
        held.setdefault(name, np.zeros(schedule.n_devices, change.dtype))
        np.add.at(held[name], device, change)
    op, time, amount = _arrivals(timeline, model)
    if len(op):
        come = time <= times[device[op]]
        np.add.at(held["receive buffers"], device[op[come]], amount[come])
    return held


def _changes(timeline: Timeline, model: MemoryModel) -> Iterator[tuple[str, Amounts, Amounts]]:
    """Yield each part by name, with the change that every op makes at its start and at its end."""
    schedule = timeline.schedule
    kind, nothing = schedule.kind, np.zeros(len(schedule), np.int64)
    at = {of.name: kind == int(of) for of in (Kind.F, Kind.B, Kind.I, Kind.W, Kind.R)}
    whole, kept = _amount_of_ops(model.activations, schedule), _amount_of_ops(model.kept, schedule)
    taken = np.where(_ALLOCATES[kind], whole, 0)
    if schedule.recomputed.any():
        stored = _amount_of_ops(model.stored, schedule)
        taken -= np.where(at["R"], stored, 0)
        taken = np.where(at["F"] & schedule.recomputed, stored, taken)
    freed = np.select([frees[kind] for frees in _FREES], [whole, whole - kept, kept], 0)
    if schedule.only_forwards:
        taken = nothing
    yield "activations", taken, -freed
    if model.stash.any():
        stash = _amount_of_ops(model.stash, schedule)
        yield (
            "weight-gradient stash",
            nothing,
            np.where(at["I"], stash, 0) - np.where(at["W"], stash, 0),
        )
    if model.work_b.any() or model.work_i.any():
        work = np.where(at["B"], _amount_of_ops(model.work_b, schedule), 0)
        work = work + np.where(at["I"], _amount_of_ops(model.work_i, schedule), 0)
        yield "work", work, -work
    if model.encoder:
        trained = bool((kind == Kind.EB).any())
        held = np.where(kind == Kind.EF, model.encoder, 0)
        yield (
            "encoder",
            held,
            -np.where(kind == (Kind.EB if trained else Kind.EF), model.encoder, 0),
        )
    if model.message.any():
        yield "receive buffers", *_consumed(schedule, model)


def _consumed(schedule: Schedule, model: MemoryModel) -> tuple[Amounts, Amounts]:
    """Changes by ops that use up receive buffers: F's input joins its activation, a gradient lasts
    the backward.
    """
    buffer = np.where(schedule.crosses, _buffers(schedule, model), 0)
    forward = schedule.kind == Kind.F
    return -np.where(forward, buffer, 0), -np.where(forward, 0, buffer)


def _arrivals(
    timeline: Timeline, model: MemoryModel
) -> tuple[NDArray[np.intp], NDArray[np.float64], Amounts]:
    """Return the op of each receive buffer, the time that its message leaves, and its size."""
    schedule = timeline.schedule
    if not model.message.any():
        return NO_BUFFERS
    op = np.flatnonzero(schedule.crosses)
    return op, timeline.end[schedule.dependency[op]], _buffers(schedule, model)[op]


def _buffers(schedule: Schedule, model: MemoryModel) -> Amounts:
    """Return the size of each op's input: the previous stage's output, or the gradient of its own
    output.
    """
    return _amount_of_ops(model.message, schedule, schedule.kind == Kind.F)


def _amount_of_ops(
    amount: Amounts, schedule: Schedule, before: NDArray[np.bool_] | int = 0
) -> Amounts:
    """Return the amount of each op's stage and microbatch, shape (ops,), of some ops that of the
    stage ``before``.

    An op without a stage takes and frees nothing, so any amount will do.
    """
    stage = schedule.stage - before
    if amount.ndim == 1:
        return amount[stage]
    return amount[stage, schedule.microbatch // schedule.n_slices]
