"""Memory of every device over time: static memory, and the allocations and frees of ops.

An op allocates memory at its start and frees memory at its end, so in a pair F allocates its
activation before the other op frees one. F allocates a microbatch's activation; B frees all of it.
Of a split backward, I frees a part and stores the gradients that W needs (the weight-gradient
stash), and W frees the rest. If the backward recomputes, F stores only its stage's input, and R
allocates the rest. Amounts are whole numbers: bytes, or stage-microbatches if the model is unknown.
If microbatches have different lengths, each has different amounts, and stage-microbatches are in
units of a mean one.
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

Amounts = NDArray[Any]  # whole numbers, or mean microbatches rounded to DIGITS digits
DIGITS = 9
OF_A_MICROBATCH = ("activations", "kept", "stash", "work_b", "work_i", "message", "stored")
BYTES, ACTIVATIONS = units.BYTES, units.ACTIVATIONS
LAYER_ACTIVATIONS = units.LAYER_ACTIVATIONS
MOST_BYTES = 1 << 50  # of one stage, so that sums stay within 64 bits
SHARES = "1/P shares"  # activations of a device's 1/P share of the model, of V stages
ROUNDING = 1e-12  # difference of times that count as equal, over the makespan
# allocations and frees of each kind of op, by its code
_ALLOCATES = np.array([of.info.allocates for of in TIMED])
_FREES = [np.array([of.info.frees == what for of in TIMED]) for what in (ALL, PART, REST)]
NO_BUFFERS = np.empty(0, np.intp), np.empty(0), np.empty(0, np.int64)


@dataclass(frozen=True)
class MemoryModel:
    """The memory of each stage, in ``unit``; every array has shape (stages,).

    Amounts of a microbatch have shape (stages, microbatches) if microbatches have different
    lengths.
    """

    activations: Amounts  # activations of a microbatch, from its forward to its backward
    kept: Amounts  # the part of ``activations`` that I cannot free, held until W
    stash: Amounts  # gradients that I stores for W
    work_b: Amounts  # held while B runs, such as the layer being computed
    work_i: Amounts  # the same for I
    message: Amounts  # size of a stage's output, and of the gradient that it receives for it
    # the part of ``activations`` that F stores if R recomputes the rest: the stage's input
    stored: Amounts
    # static memory by name, such as weights, gradients and optimizer. A device holds it for each of
    # its stages, in a bidirectional placement for the stages of both replicas
    static: Mapping[str, Amounts] = field(default_factory=dict)
    # activations of an encoder, from its forward to its backward on the same device
    encoder: int = 0
    # further static memory of each device by name; shape (devices,)
    on_device: Mapping[str, Amounts] = field(default_factory=dict)
    # ``B``; ``activations``: stage-microbatches; or ``layer activations``: layer-microbatches
    unit: str = BYTES


@dataclass(frozen=True)
class Peak:
    """The peak of one device."""

    device: int
    value: float  # a whole number unless microbatches have different lengths
    time: float  # at which the peak is first reached
    op: int  # index of the op that runs or has just ended, -1 before the first
    parts: Mapping[str, float]  # amounts by name, static ones included; they sum to ``value``


def activation_model(schedule: Schedule, release: Kind = Kind.W) -> MemoryModel:
    """Return a model that counts activations, one per stage and microbatch.

    B frees it, or of a split backward the op ``release``. The input that F stores for an R counts
    as 0.
    """
    one, none = np.ones(schedule.n_stages, np.int64), np.zeros(schedule.n_stages, np.int64)
    kept = one if release == Kind.W else none
    return MemoryModel(one, kept, none, none, none, none, stored=none, unit=ACTIVATIONS)


def cut_in_slices(model: MemoryModel, slices: int) -> MemoryModel:
    """Return the memory model of slices from that of whole sequences, rounded up.

    All memory except the static part grows with the length of the sequence.
    """
    return replace(model, **{name: -(-getattr(model, name) // slices) for name in OF_A_MICROBATCH})


def resize(
    model: MemoryModel, sizes: NDArray[np.float64], twice: MemoryModel | None = None
) -> MemoryModel:
    """Return the memory model of microbatches of different sizes; bytes are rounded up.

    Args:
        model: the memory of a microbatch of size 1.
        sizes: shape (1 or stages, microbatches).
        twice: the memory of a microbatch of size 2, if that is not twice as much.
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
    """Return the number of a memory model's ``unit`` in one unit of ``--cap``; 1 for bytes.

    ``--cap`` counts activations of a device's share of the model, which are V activations of one
    stage with V chunks, times K with K slices.
    """
    if unit == ACTIVATIONS:
        return schedule.n_stages * schedule.n_slices / schedule.n_devices
    return schedule.n_slices if unit == LAYER_ACTIVATIONS else 1.0


def layer_model(schedule: Schedule, content: Sequence[str]) -> MemoryModel:
    """Return a model that counts activations per layer; ``content`` is a layout's stages."""
    layers = np.array([stage.count("t") + stage.count("m") for stage in content], np.int64)
    return replace(
        activation_model(schedule), activations=layers, kept=layers, unit=LAYER_ACTIVATIONS
    )


def sum_static(schedule: Schedule, model: MemoryModel) -> dict[str, Amounts]:
    """Return the static memory of devices by name, each of shape (devices,)."""
    found = {}
    for name, amount in model.static.items():
        found[name] = np.zeros(schedule.n_devices, np.int64)
        np.add.at(
            found[name],
            schedule.placement.devices,
            np.broadcast_to(amount, schedule.placement.devices.shape),
        )
    return found | dict(model.on_device)


def curves(timeline: Timeline, model: MemoryModel, name: str = "memory") -> Curve:
    """Return each device's memory over time from time 0 on, including static memory.

    Changes at the same time, up to rounding, count together, so a curve has no spike when one op
    frees and the next allocates. Therefore memory of an op that takes no time is not in the curve,
    but it counts in :func:`ppsim.engine.simple.metrics.peak_activations`, which follows the order
    of the queue.
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
    """Return the memory by part of the ``most`` fullest devices, the fullest first.

    Lines are stacked: each includes those before, and the last is the device's in :func:`curves`.
    Activations are divided by chunk if there are several.
    """
    schedule, whole = timeline.schedule, curves(timeline, model)
    nothing = np.zeros(schedule.n_devices, np.int64)
    always, others = sum_static(schedule, model), list[tuple[str, Curve]]()
    for name, at_start, at_end in _changes(timeline, model):
        chunks = (
            range(schedule.n_chunks) if name == "activations" and schedule.n_chunks > 1 else [NONE]
        )
        for chunk in chunks:
            counted = (schedule.chunk == chunk) | (chunk == NONE)
            more = _arrivals(timeline, model) if name == "receive buffers" else NO_BUFFERS
            begin, end = np.where(counted, at_start, 0), np.where(counted, at_end, 0)
            curve = _curve(timeline, begin, end, nothing, more)
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
    """Return the host memory of copies, each held from the start of OFFLOAD to RELOAD's end.

    None without copies.
    """
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
    """Return the curve of the changes of each op at its start and end, and of ``more`` changes.

    ``base`` is the memory of each device at time 0. ``more`` are ops, times and amounts.
    """
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
    entries = slice(int(curve.offsets[device]), int(curve.offsets[device + 1]))
    return curve.time[entries], curve.value[entries]


def scale_bytes(found: Iterable[Curve]) -> list[Curve]:
    """Return curves in bytes, each in the unit that fits its peak; omit curves in activations."""
    from ppsim.base.units import binary_unit

    result = []
    for curve in found:
        if curve.unit == BYTES:
            unit, size = binary_unit(curve.peak.max())
            result.append(curve.divided(size, unit))
    return result


def share_unit(curves: Sequence[Curve], schedules: Sequence[Schedule]) -> list[Curve]:
    """Return curves of the same quantity, one per schedule, in a common unit.

    Counts of activations become shares of a device's 1/P of the model if schedules have different
    numbers of stages per device. Bytes are in the binary unit that fits the largest peak.
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
    """Return the number of activations on each device over time, one per stage and microbatch.

    Each is held from F, or R, to B or W.
    """
    return curves(timeline, activation_model(timeline.schedule), "live activations").divided(1, "")


def in_flight(timeline: Timeline) -> Curve:
    """Return the number of microbatches in flight on each device over time, from F to B or I.

    A microbatch counts once per stage.
    """
    model = activation_model(timeline.schedule, Kind.I)
    return replace(
        curves(timeline, replace(model, stored=model.activations), "microbatches in flight"),
        unit="",
    )


def peaks(timeline: Timeline, model: MemoryModel) -> list[Peak]:
    """Return each device's peak, with the time and op at which it is first reached, and parts."""
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
    """Return an amount as an integer if it is whole, else rounded to DIGITS digits."""
    whole = int(amount)
    return whole if whole == amount else round(float(amount), DIGITS)


def op_at(timeline: Timeline, device: int, time: float) -> int:
    """Return the op that a device runs at a time, or ran last before; -1 before its first."""
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
    found: dict[str, Amounts] = {}
    for name, at_start, at_end in _changes(timeline, model):
        change = np.where(started, at_start, 0) + np.where(ended, at_end, 0)
        found.setdefault(name, np.zeros(schedule.n_devices, change.dtype))
        np.add.at(found[name], device, change)
    op, time, amount = _arrivals(timeline, model)
    if len(op):
        arrived = time <= times[device[op]]
        np.add.at(found["receive buffers"], device[op[arrived]], amount[arrived])
    return found


def _changes(timeline: Timeline, model: MemoryModel) -> Iterator[tuple[str, Amounts, Amounts]]:
    """Yield the name of each part of memory, with every op's changes at its start and its end."""
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
    """Return the changes of receive buffers at start and end of the ops that use them.

    F's input becomes part of its activation; a gradient's buffer is freed after the backward.
    """
    buffer = np.where(schedule.crosses, _buffers(schedule, model), 0)
    forward = schedule.kind == Kind.F
    return -np.where(forward, buffer, 0), -np.where(forward, 0, buffer)


def _arrivals(
    timeline: Timeline, model: MemoryModel
) -> tuple[NDArray[np.intp], NDArray[np.float64], Amounts]:
    """Return the op of each receive buffer, the time at which its message leaves, and its size."""
    schedule = timeline.schedule
    if not model.message.any():
        return NO_BUFFERS
    op = np.flatnonzero(schedule.crosses)
    return op, timeline.end[schedule.dependency[op]], _buffers(schedule, model)[op]


def _buffers(schedule: Schedule, model: MemoryModel) -> Amounts:
    """Return the size of each op's input: the previous stage's output, or a gradient."""
    return _amount_of_ops(model.message, schedule, schedule.kind == Kind.F)


def _amount_of_ops(
    amount: Amounts, schedule: Schedule, before: NDArray[np.bool_] | int = 0
) -> Amounts:
    """Return the amount of each op's stage and microbatch, shape (ops,).

    ``before`` selects ops that take the amount of the stage before. The amount of an op without a
    stage does not matter, as it allocates and frees nothing.
    """
    stage = schedule.stage - before
    if amount.ndim == 1:
        return amount[stage]
    return amount[stage, schedule.microbatch // schedule.n_slices]
