"""Idle time by cause: at every instant at which a device is idle, there is exactly one cause.

Before an op, the causes are found by walking back in time along the chain of inputs that the op
depends on. A pair waits for the later of its two inputs (the first op's, if both arrive together).
At each instant one input of the chain is not done, which is the cause:

- it is in transit (``message``);
- it is being computed (``compute``). If that op takes longer than the mean op of its kind, the
  excess is ``imbalance``;
- it could run, but its device runs something else (``order``);
- it has arrived, but the device does not start (``host``). In the detailed model a send, receive or
  collective may occupy the device (``message``, ``collective``).

``compute`` and ``order`` up to a device's first forward of a training step are ``fill``, and those
before its first backward of the step ``turnaround``. After its last op a device is done
(``drain``).

If devices copy or reduce in parallel with compute, a device is idle while it does not compute, and
the chain includes these ops: one that runs, or waits for its stream, is ``copy`` or ``collective``.
An op of all devices that could start on one of them waits for the others (``barrier``).

If a schedule goes round, a result in transit from the last stage back to the first is ``feedback``.
If steps end with an optimizer step, waiting for other devices before or after it is ``optimizer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis import idle_kernel as kernel
from ppsim.base.compiled import call
from ppsim.core.costs import find_latencies
from ppsim.core.lanes import find_senders, groups_of, lanes_of, list_waits
from ppsim.core.ops import FORWARDS, TIMED, Kind, Stream, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline

if TYPE_CHECKING:
    from ppsim.core.execution import Execution

CAUSES = {
    "host": "the input is there, the device waits",
    "message": "the input is on its way",
    "compute": "another device computes the input",
    "order": "another device runs other ops first",
    "imbalance": "the input comes from a slower op",
    "collective": "a collective runs",
    "fill": "the first forward has not come yet",
    "turnaround": "the first backward has not come yet",
    "drain": "nothing is left to do",
    "copy": "an activation is being copied",
    "barrier": "a common op waits for other devices",
    "feedback": "a result is on its way back",
    "optimizer": "the optimizer waits, or runs elsewhere",
}
NAMES = tuple(CAUSES)
(
    HOST,
    MESSAGE,
    COMPUTE,
    ORDER,
    IMBALANCE,
    COLLECTIVE,
    FILL,
    TURNAROUND,
    DRAIN,
    COPY,
    BARRIER,
    FEEDBACK,
    OPTIMIZER,
) = range(len(NAMES))
_TOGETHER = mask(kind for kind in TIMED if kind.info.on_all_devices)
# By stream: the cause of waiting for an op that has its inputs, and for one that runs.
LATE = np.array([ORDER, COPY, COPY, COLLECTIVE])
RUNS = np.array([COMPUTE, COPY, COPY, COLLECTIVE])
# Ops from which on loading the compiled kernel is faster than CPython.
COMPILE_ABOVE = 100_000
# Share of the makespan below which a time is due to rounding.
NEGLIGIBLE = 1e-9


@dataclass(frozen=True)
class Idle:
    """Idle time in segments, in order of device and time."""

    timeline: Timeline
    op: NDArray[np.int64]  # shape (segments,), the op that waits, -1 after a device's last
    device: NDArray[np.int64]  # shape (segments,), the device that is idle
    cause: NDArray[np.int64]  # shape (segments,), index into ``NAMES``
    # shape (segments,), the op that runs, is in transit or could run; -1 after a device's last op
    blamed: NDArray[np.int64]
    start: NDArray[np.float64]  # shape (segments,), in the timeline's unit
    end: NDArray[np.float64]  # shape (segments,)

    @property
    def by_device(self) -> NDArray[np.float64]:
        """Shape (devices, causes): idle time of each device by cause."""
        devices = self.timeline.schedule.n_devices
        place = self.device * len(NAMES) + self.cause
        total = np.bincount(place, self.end - self.start, devices * len(NAMES))
        return np.asarray(total, np.float64).reshape(devices, len(NAMES))

    @property
    def by_cause(self) -> dict[str, float]:
        """Idle time of all devices by cause, without causes that do not occur."""
        total = self.by_device.sum(axis=0)
        return {name: float(total[cause]) for cause, name in enumerate(NAMES) if total[cause] > 0}


class _Segments(NamedTuple):
    """Columns of equal length that the kernel fills; see :class:`Idle`."""

    op: NDArray[np.int64]
    cause: NDArray[np.int64]
    blamed: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @classmethod
    def empty(cls, size: int) -> _Segments:
        """Return columns for ``size`` segments."""
        op, cause, blamed = np.empty((3, size), np.int64)
        return cls(op, cause, blamed, np.empty(size), np.empty(size))

    def select(self, order: NDArray[np.int64]) -> _Segments:
        """Return the segments at these indices."""
        return _Segments._make(column[order] for column in self)

    def join(self, other: _Segments) -> _Segments:
        """Return these segments, then the others."""
        return _Segments._make(np.concatenate(pair) for pair in zip(self, other, strict=True))


def explain_idle(timeline: Timeline, arrival: NDArray[np.float64]) -> Idle:
    """Return all idle time of a compute timeline by cause.

    ``arrival``, shape (ops,), is from :func:`arrivals`.
    """
    schedule = timeline.schedule
    waits = _split_imbalance(timeline, _attribute(timeline, arrival))
    waits.cause[(waits.cause == MESSAGE) & schedule.awaits_feedback[waits.blamed]] = FEEDBACK
    at_step = np.isin(schedule.kind[waits.op], (Kind.NORM, Kind.SYNC)) | (
        schedule.kind[waits.blamed] == Kind.OPT
    )
    waits.cause[at_step] = OPTIMIZER
    for_compute = np.isin(waits.cause, (COMPUTE, ORDER))
    waits.cause[for_compute & np.isin(waits.op, first_backwards(schedule))] = TURNAROUND
    waits.cause[
        for_compute & (waits.op <= _first_of(schedule, FORWARDS)[_steps_of(schedule)[waits.op]])
    ] = FILL
    last = _last_ends(timeline)
    idle = np.flatnonzero(last < timeline.makespan)
    none = np.full(len(idle), NONE)
    drain = _Segments(
        none, none + 1 + DRAIN, none, last[idle], np.full(len(idle), timeline.makespan)
    )
    both = waits.join(drain)
    device = np.concatenate([schedule.device[waits.op], idle])
    order = np.lexsort((both.start, device))
    segments = both.select(order)
    return Idle(timeline, device=device[order], **segments._asdict())


def explain_run(
    timeline: Timeline, latencies: NDArray[np.float64], execution: Execution | None
) -> Idle:
    """Return all idle time of a timeline by cause, from its execution if there is one."""
    return (
        explain_execution(execution)
        if execution
        else explain_idle(timeline, arrivals(timeline, latencies))
    )


def explain_known(timeline: Timeline, execution: Execution | None) -> Idle | None:
    """Return all idle time by cause; None if arrival times of inputs are unknown."""
    if execution is None and timeline.comm is None:
        return None
    known = 0.0 if timeline.comm is None else timeline.comm
    return explain_run(
        timeline, find_latencies(timeline.schedule, known, timeline.feedback), execution
    )


def arrivals(timeline: Timeline, latencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the arrival time of each op's input, shape (ops,), 0 without an input.

    Messages have a latency only.
    """
    sender = find_senders(timeline.schedule)
    need = np.where(sender == NONE, timeline.schedule.dependency, sender)
    return np.where(need == NONE, 0.0, timeline.end[need] + latencies)


def arrivals_of(execution: Execution) -> NDArray[np.float64]:
    """Return the arrival time of each compute op's input in an execution, shape (compute ops,)."""
    timeline = execution.compute
    schedule, messages = timeline.schedule, execution.messages
    place = np.cumsum(execution.lowered.schedule.computes) - 1
    message_end = np.zeros(len(schedule))
    message_end[place[messages.producer]] = messages.arrive
    dependency = schedule.dependency
    arrival = np.where(schedule.crosses, message_end[dependency], timeline.end[dependency])
    return np.where(dependency == NONE, 0.0, arrival)


def explain_execution(execution: Execution) -> Idle:
    """Return all idle time of an execution's compute ops by cause.

    If a device has its input but is in a send, a receive or a wait, the cause is ``message``; if
    its parameters are being gathered, it is ``collective``.
    """
    idle = explain_idle(execution.compute, arrivals_of(execution))
    kind = execution.lowered.schedule.kind
    gathers = np.isin(kind, (Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD))
    idle = _split_host(idle, execution, ~gathers & ~execution.lowered.schedule.computes, MESSAGE)
    return _split_host(idle, execution, gathers, COLLECTIVE)


def _split_host(idle: Idle, execution: Execution, occupying: NDArray[np.bool_], cause: int) -> Idle:
    """Return idle time in which ``host`` segments become ``cause`` while an occupying op runs.

    ``occupying`` selects lowered ops.
    """
    timeline, device = execution.timeline, execution.lowered.schedule.device
    ops = np.flatnonzero(occupying & (timeline.end > timeline.start))
    ops = ops[np.lexsort((timeline.start[ops], device[ops]))]
    spans = [ops[device[ops] == d] for d in range(execution.compute.schedule.n_devices)]
    pieces: list[tuple[int, int, float, float]] = []  # segment, cause, start, end
    host = idle.cause == HOST
    for segment in np.flatnonzero(host).tolist():
        at, stop = float(idle.start[segment]), float(idle.end[segment])
        here = spans[idle.device[segment]]
        first = int(np.searchsorted(timeline.end[here], at, side="right"))
        for op in here[first:].tolist():
            left, right = max(at, float(timeline.start[op])), min(stop, float(timeline.end[op]))
            if left >= stop:
                break
            pieces += [(segment, HOST, at, left)] * (left > at) + [
                (segment, cause, left, right)
            ] * (right > left)
            at = max(at, right)
        pieces += [(segment, HOST, at, stop)] * (stop > at)
    whole = np.flatnonzero(~host)
    source = np.concatenate([whole, np.array([piece[0] for piece in pieces], np.int64)])
    start = np.concatenate([idle.start[whole], [piece[2] for piece in pieces]])
    order = np.lexsort((start, idle.device[source]))
    return replace(
        idle,
        op=idle.op[source][order],
        device=idle.device[source][order],
        cause=np.concatenate(
            [idle.cause[whole], np.array([piece[1] for piece in pieces], np.int64)]
        )[order],
        blamed=idle.blamed[source][order],
        start=start[order],
        end=np.concatenate([idle.end[whole], [piece[3] for piece in pieces]])[order],
    )


def first_backwards(schedule: Schedule) -> NDArray[np.int64]:
    """Return each device's first backward, or its pair's first op, in each training step."""
    op = _first_of(schedule, (Kind.B, Kind.I))
    op = op[op != NONE]
    return np.where((schedule.pair[op] != NONE) & (schedule.pair[op] < op), op - 1, op)


def _first_of(schedule: Schedule, kinds: Sequence[Kind]) -> NDArray[np.int64]:
    """Return each device's first op of these kinds in each training step, -1 for none."""
    found = np.flatnonzero(mask(kinds)[schedule.kind])
    first = np.full(schedule.n_devices * schedule.n_rounds, NONE)
    step, place = np.unique(_steps_of(schedule)[found], return_index=True)
    first[step] = found[place]
    return first


def _steps_of(schedule: Schedule) -> NDArray[np.int64]:
    """Return a number of the training step and device of each op, shape (ops,).

    All rounds of a schedule that never drains are one step.
    """
    device = schedule.device.astype(np.int64)
    if schedule.n_rounds == 1 or schedule.only_forwards or not schedule.flushes:
        return device
    from ppsim.core.rounds import rounds_of

    return rounds_of(schedule) * schedule.n_devices + device


def _attribute(timeline: Timeline, arrival: NDArray[np.float64]) -> _Segments:
    """Return the segments between ops, in order of device and time."""
    schedule, every = timeline.schedule, np.arange(len(timeline.schedule))
    need, blame, stream = (
        schedule.dependency.astype(np.int64),
        every,
        np.zeros(len(schedule), np.int64),
    )
    if schedule.has_lanes:
        stream = lanes_of(schedule) % len(Stream)
        need, arrival, blame = _last_inputs(timeline, arrival)
    chosen = every.copy()
    first, second = schedule.first_of_pairs, schedule.second_of_pairs
    later = (need[second] >= 0) & ((need[first] < 0) | (arrival[second] > arrival[first]))
    chosen[first] = chosen[second] = np.where(later, second, first)
    together = _TOGETHER[schedule.kind]
    ready, late = np.where(together, BARRIER, HOST), np.where(together, BARRIER, LATE[stream])
    walk = (timeline.start, timeline.end, arrival, ready, late, blame, RUNS[stream])
    columns = (schedule.offsets, stream != Stream.COMPUTE, chosen, need, *walk)
    if len(schedule) > COMPILE_ABOVE:
        found = _Segments.empty(int(call(kernel.attribute_gaps, *columns, *_Segments.empty(0))))
        call(kernel.attribute_gaps, *columns, *found)
    else:  # CPython is faster on lists
        lists: Any = [column.tolist() for column in columns]
        size = kernel.attribute_gaps(*lists, *([] for _ in _Segments._fields))
        room: Any = [[0] * size for _ in _Segments._fields]
        kernel.attribute_gaps(*lists, *room)
        dtypes = (np.int64, np.int64, np.int64, np.float64, np.float64)
        found = _Segments._make(
            np.array(column, dtype) for column, dtype in zip(room, dtypes, strict=True)
        )
    return found.select(np.lexsort((found.start, schedule.device[found.op])))


def _last_inputs(
    timeline: Timeline, arrival: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Return each op's last input, -1 for none, its arrival, and the op to blame after it.

    For ops on other streams and ops of all devices, the op before on the stream is an input too. An
    op of all devices waits for the last input on any of them.
    """
    schedule, waits, group = (
        timeline.schedule,
        list_waits(timeline.schedule),
        groups_of(timeline.schedule),
    )
    together = _TOGETHER[schedule.kind]
    alone = (lanes_of(schedule) % len(Stream) == Stream.COMPUTE) & ~together
    kept = np.flatnonzero(
        (group[waits.op] != group[waits.need]) & ~(waits.on_lane & alone[waits.op])
    )
    op, source = waits.op[kept], waits.need[kept]
    arrived = np.where(waits.message[kept], arrival[op], timeline.end[source])
    need, last = np.full(len(schedule), NONE), np.zeros(len(schedule))
    order = np.lexsort((-kept, arrived, op))
    # of several assignments to an op the last remains
    need[op[order]], last[op[order]] = source[order], arrived[order]
    latest = np.lexsort((-np.arange(len(schedule)), last, group))
    blame = np.arange(len(schedule))
    blame[group[latest]] = np.where(need[latest] == NONE, latest, need[latest])
    return need, last, np.where(together, blame[group], np.arange(len(schedule)))


def _split_imbalance(timeline: Timeline, waits: _Segments) -> _Segments:
    """Return segments in which waiting for an op longer than its kind's mean is split.

    The share of the excess becomes ``imbalance``.
    """
    schedule, duration = timeline.schedule, timeline.end - timeline.start
    group = schedule.kind + len(Kind) * (schedule.pair != NONE)
    mean = np.bincount(group, duration) / np.maximum(np.bincount(group), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(np.clip(1 - mean[group] / duration, 0.0, 1.0))
    excess = np.where(waits.cause == COMPUTE, (waits.end - waits.start) * share[waits.blamed], 0.0)
    longer = np.flatnonzero(excess > NEGLIGIBLE * timeline.makespan)
    cut = waits.end.copy()
    cut[longer] -= excess[longer]
    imbalance = waits.select(longer)._replace(
        cause=np.full(len(longer), IMBALANCE), start=cut[longer]
    )
    both = waits._replace(end=cut).join(imbalance)
    return both.select(np.lexsort((both.start, schedule.device[both.op])))


def _last_ends(timeline: Timeline) -> NDArray[np.float64]:
    """Return the end of each device's last compute op, 0 without one, shape (devices,)."""
    schedule, last = timeline.schedule, np.zeros(timeline.schedule.n_devices)
    computes = lanes_of(schedule) % len(Stream) == Stream.COMPUTE
    np.maximum.at(last, schedule.device[computes], timeline.end[computes])
    return last
