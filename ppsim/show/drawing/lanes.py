"""Messages, collectives and copies in the form that pictures and files show next to the ops."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.core.lanes import groups_of, lanes_of
from ppsim.core.ops import TIMED, Kind, Stream, mask
from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline
from ppsim.show.drawing.palette import IN_ROW

if TYPE_CHECKING:
    from ppsim.analysis.idle import Idle
    from ppsim.core.curve import Curve
    from ppsim.core.execution import Execution

ACTIVATION, GRADIENT, COLLECTIVE, COPY_OUT, COPY_IN = range(5)
BAND_OF = {Stream.COLLECTIVE: COLLECTIVE, Stream.COPY_OUT: COPY_OUT, Stream.COPY_IN: COPY_IN}
_IN_ROW, _TOGETHER = mask(IN_ROW), mask(kind for kind in TIMED if kind.info.on_all_devices)
CARD = "messages at the network card"


@dataclass(frozen=True)
class Lane:
    """Messages by sending device, collectives and copies that take time; shape (entries,) each."""

    device: NDArray[np.int32]
    # ``ACTIVATION`` or ``GRADIENT`` for a message, ``COLLECTIVE``, or a copy's direction
    band: NDArray[np.uint8]
    left: NDArray[np.float64]  # start
    right: NDArray[np.float64]  # end
    # the stage whose result a message carries, or whose parameters or gradients a collective does
    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]  # of a message; -1 for a collective
    target: NDArray[np.int32]  # the receiving device of a message; a collective's own device
    posted: NDArray[np.float64]  # time at which a message's send was posted; start of a collective
    awaited: NDArray[np.float64]  # time at which its receive was posted; start of a collective
    size: NDArray[np.float64]  # bytes of a message; 0 if it has a latency only
    kind: NDArray[np.uint8]  # of the send or the collective (:class:`ppsim.core.ops.Kind`)

    def __len__(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class Bars:
    """Ops that all devices run together, a bar each over all rows; shape (bars,) each."""

    left: NDArray[np.float64]  # start
    right: NDArray[np.float64]  # end
    kind: NDArray[np.uint8]

    @property
    def in_row(self) -> NDArray[np.bool_]:
        """Shape (bars,), True if a bar is in the compute row, False if it is in a strip below."""
        return _IN_ROW[self.kind]


def lane_of(execution: Execution) -> Lane:
    """Return an execution's messages, in the order of their sends, then its collectives."""
    schedule, timeline, messages = (
        execution.lowered.schedule,
        execution.timeline,
        execution.messages,
    )
    gathered = find_collectives(execution)
    gradient = schedule.kind[messages.send] == Kind.SEND_B
    start = timeline.start[gathered]
    lane = Lane(
        device=np.concatenate([messages.source, schedule.device[gathered]]),
        band=np.append(
            np.where(gradient, GRADIENT, ACTIVATION), np.full(len(gathered), COLLECTIVE)
        ).astype(np.uint8),
        left=np.concatenate([messages.leave, start]),
        right=np.concatenate([messages.arrive, timeline.end[gathered]]),
        stage=schedule.stage[np.concatenate([messages.producer, gathered])],
        microbatch=np.append(
            schedule.microbatch[messages.send], np.full(len(gathered), NONE)
        ).astype(np.int32),
        target=np.concatenate([messages.target, schedule.device[gathered]]),
        posted=np.concatenate([messages.posted, start]),
        awaited=np.concatenate([messages.awaited, start]),
        size=np.append(messages.size, np.zeros(len(gathered))),
        kind=schedule.kind[np.concatenate([messages.send, gathered])],
    )
    shown = lane.right > lane.left
    return Lane(**{each.name: getattr(lane, each.name)[shown] for each in fields(Lane)})


def streams_of(timeline: Timeline) -> Lane | None:
    """Return the ops of streams other than compute; None if there are none."""
    schedule = timeline.schedule
    if not schedule.has_lanes:
        return None
    stream = lanes_of(schedule) % len(Stream)
    op = np.flatnonzero((stream != Stream.COMPUTE) & (timeline.end > timeline.start))
    device, start = schedule.device[op], timeline.start[op]
    return Lane(
        device=device,
        band=np.array([BAND_OF.get(each, 0) for each in Stream], np.uint8)[stream[op]],
        left=start,
        right=timeline.end[op],
        stage=schedule.stage[op],
        microbatch=schedule.microbatch[op],
        target=device,
        posted=start,
        awaited=start,
        size=np.zeros(len(op)),
        kind=schedule.kind[op],
    )


def bars_over_devices(timeline: Timeline) -> Bars | None:
    """Return the ops that all devices run together, if they take time; None if there are none."""
    schedule = timeline.schedule
    op = np.flatnonzero(_TOGETHER[schedule.kind] & (timeline.end > timeline.start))
    op = op[groups_of(schedule)[op] == op]
    return Bars(timeline.start[op], timeline.end[op], schedule.kind[op]) if len(op) else None


def lane_beside(timeline: Timeline, execution: Execution | None) -> Lane | None:
    """Return messages, collectives and copies in parallel with compute; None if there are none."""
    return lane_of(execution) if execution else streams_of(timeline)


def compute_row(timeline: Timeline) -> Timeline:
    """Return the timeline with compute ops only, so that a device runs one op at a time."""
    schedule = timeline.schedule
    kept = _IN_ROW[schedule.kind]
    if kept.all():
        return timeline
    bound = np.append(np.where(kept, np.cumsum(kept) - 1, NONE), NONE).astype(np.int32)[
        timeline.bound
    ]
    row = schedule.take(kept)
    return replace(
        timeline,
        schedule=row,
        start=timeline.start[kept],
        end=timeline.end[kept],
        bound=bound[kept],
    )


def idle_in_row(idle: Idle) -> Idle:
    """Return idle time before ops, with indices into the timeline of :func:`compute_row`.

    Idle time before an op outside the compute row is attributed to the next op in it.
    """
    schedule = idle.timeline.schedule
    kept = _IN_ROW[schedule.kind]
    after: NDArray[np.int64] = np.cumsum(kept) - kept
    device = np.append(schedule.device[kept], NONE)
    before = (idle.op != NONE) & (device[after[idle.op]] == idle.device)
    op, blamed = after[idle.op], np.append(np.where(kept, after, NONE), NONE)[idle.blamed]
    columns = {"device": idle.device, "cause": idle.cause, "start": idle.start, "end": idle.end}
    taken = {
        name: column[before] for name, column in (columns | {"op": op, "blamed": blamed}).items()
    }
    return replace(idle, **taken)


def card_use(execution: Execution) -> Curve:
    """Return the number of messages in transit from or to each device over time."""
    messages, devices = execution.messages, execution.compute.schedule.n_devices
    device = np.concatenate([messages.source, messages.target] * 2).astype(np.int64)
    time = np.concatenate([messages.leave] * 2 + [messages.arrive] * 2)
    change = np.repeat([1.0, -1.0], 2 * len(messages))
    order = np.lexsort((time, device))
    device, time, change = device[order], time[order], change[order]
    last = np.append(
        (np.diff(device) > 0) | (np.diff(time) > 0), np.ones(min(1, len(time)), np.bool_)
    )
    value, device, time = np.cumsum(change)[last], device[last], time[last]

    from ppsim.core.curve import Curve

    return Curve(CARD, "", np.searchsorted(device, np.arange(devices + 1)), time, np.rint(value))


def busy_share(
    row: NDArray[np.int32],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    rows: int,
    span: float,
    columns: int,
) -> NDArray[np.float64]:
    """Return the share of each column's time that entries cover, at most 1, shape (rows, columns).

    Each entry adds 1 at its start and subtracts it at its end, divided between two columns; the
    running sum is then exact for entries of any length.
    """
    width = columns + 2
    change = np.zeros(rows * width)
    for times, sign in ((left, 1.0), (right, -1.0)):
        x = np.clip(times * (columns / span), 0, columns)
        column = x.astype(np.int64)
        late = (x - column) * sign
        place = row.astype(np.int64) * width + column
        change += np.bincount(place, sign - late, rows * width)
        change += np.bincount(place + 1, late, rows * width)
    return np.clip(np.cumsum(change.reshape(rows, width), axis=1)[:, :columns], 0.0, 1.0)


def find_collectives(execution: Execution) -> NDArray[np.int64]:
    """Return the UNSHARD, RESHARD and REDUCE_GRAD that take time, as indices of lowered ops."""
    kind, timeline = execution.lowered.schedule.kind, execution.timeline
    fsdp = (kind == Kind.UNSHARD) | (kind == Kind.RESHARD) | (kind == Kind.REDUCE_GRAD)
    return np.flatnonzero(fsdp & (timeline.end > timeline.start))


def find_producers(execution: Execution) -> NDArray[np.int64]:
    """Return, shape (messages,), the op of ``execution.compute`` whose result each carries."""
    place = np.cumsum(execution.lowered.schedule.computes) - 1
    return place[execution.messages.producer]


def find_carriers(execution: Execution) -> NDArray[np.int64]:
    """Return, shape (compute ops,), the message that carries each op's result, -1 for none."""
    carrier = np.full(len(execution.lowered.compute), NONE, np.int64)
    carrier[find_producers(execution)] = np.arange(len(execution.messages))
    return carrier


def assign_tracks(
    group: NDArray[np.int64], left: NDArray[np.float64], right: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return a track for each entry, so that entries of one group and track do not overlap in time.

    In order of ``left``, each entry gets the first free track of its group; shape (entries,).
    """
    track = np.zeros(len(group), np.int64)
    busy: dict[int, list[float]] = {}
    order = np.lexsort((right, left))
    for entry, key, begin, end in zip(
        order.tolist(),
        group[order].tolist(),
        left[order].tolist(),
        right[order].tolist(),
        strict=True,
    ):
        ends = busy.setdefault(key, [])
        free = next((number for number, until in enumerate(ends) if until <= begin), len(ends))
        ends[free : free + 1] = [end]
        track[entry] = free
    return track
