"""Make a job from a table of ops: the ops of each replica in each step, messages between devices
and collectives between replicas.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from ppsim.core.job import ALL, DEVICE, REPLICAS, Job, StepOp
from ppsim.core.ops import BACKWARDS, FORWARDS, SENDS, Kind, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple.terms import measure_terms
from ppsim.real.traces.clocks import least_latencies, offset_of
from ppsim.real.traces.run import schedule_of
from ppsim.real.traces.tables.grid import Bools, Grid, Ints, Times, grid_of, leave_out, whole_steps
from ppsim.real.traces.tables.table import OTHER, UNKNOWN, OpTable
from ppsim.real.traces.tables.words import GROUPS, communicates, group_of

TOLERANCE = 1e-3  # share of a step by which clocks may differ without a correction
MOST_SAME_NAME = 64  # ops of one name that a device runs between two steps


def job_of(table: OpTable) -> tuple[Job, Times, tuple[str, ...]]:
    """Make a job of a table.

    Returns:
        The job; the correction subtracted from each clock, shape (K, R, P); and sentences on
        repairs.

    Raises:
        InputError: a fault beyond repair: no step is complete, or ops are repeated throughout.
        InvalidSchedule: devices ran in an order that is impossible for a schedule.
    """
    notes = list[str]()
    grid, ops, start, end = whole_steps(grid_of(table, notes), notes)
    order = _order(ops, start, end)
    common = _most_common(order)
    same = (order == common).all(axis=2)
    grid, start, end = leave_out(
        grid, start, end, same, lambda k, r: "ran its ops in another order", notes
    )
    start, end = start[:, :, common], end[:, :, common]
    schedule = _schedule(
        table.source, ops[common], np.median(start, (0, 1)), np.median(end, (0, 1))
    )
    notes += _overlap_sentences(grid, schedule, start, end)
    end = _without_small_overlaps(schedule, start, end)
    offset = _device_offsets(schedule, start, end, notes)
    between, begins, ends = find_between(grid, schedule, start, notes)
    offset = offset + _replica_offsets(between, begins, ends, end, notes)[:, :, None]
    if offset.any():
        start, end = (times - offset[:, :, schedule.device] for times in (start, end))
        begins, ends = (times - offset[:, :, :, None] for times in (begins, ends))
        grid = grid.shift(offset)
    transfer, delay = find_transfers(grid, schedule, start, end, notes)
    host = find_host(grid, schedule, end, delay)
    zero = start.min(axis=(1, 2))[:, None, None]
    zero_between = zero[..., None]
    names = dict(_kind_names(grid))
    times = (
        start - zero,
        end - zero,
        transfer,
        between,
        begins - zero_between,
        ends - zero_between,
    )
    return (
        Job(schedule, grid.replicas, grid.iterations, *times, names, table.unit, host),
        offset,
        tuple(notes),
    )


def _order(ops: Ints, start: Times, end: Times) -> Ints:
    """Sort the ops of each replica and step as its devices ran them, shape (K, R, ops)."""
    device = np.broadcast_to(ops[:, 0], start.shape)
    return np.lexsort((end, start, device), axis=2)


def _most_common(order: Ints) -> Ints:
    """Find the most frequent row of shape (ops,)."""
    rows = order.reshape(-1, order.shape[2])
    same = (rows == rows[0]).all(axis=1)
    if same.all():
        return rows[0]
    distinct, count = np.unique(rows, axis=0, return_counts=True)
    common: Ints = distinct[count.argmax()]
    return common


def _schedule(source: str, ops: Ints, start: Times, end: Times) -> Schedule:
    """Make a schedule from ops in the order of their queues; F and B with equal times are a
    pair.
    """
    device, kind = ops[:, 0], ops[:, 1]
    together = (np.diff(device) == 0) & (np.diff(start) == 0) & (np.diff(end) == 0)
    forward, backward = mask(FORWARDS)[kind], mask(BACKWARDS)[kind]
    first = np.flatnonzero(
        together & ((forward[:-1] & backward[1:]) | (backward[:-1] & forward[1:]))
    )
    part = np.zeros(len(ops), np.int64)
    part[first], part[first + 1] = 1, 2
    return schedule_of(source, np.column_stack([ops, part]), int(device.max()) + 1)


def _overlap_sentences(grid: Grid, schedule: Schedule, start: Times, end: Times) -> Iterator[str]:
    """Yield a sentence on ops of one device whose times overlap; none without such ops.

    A device runs one op at a time, so the makespan of these ops in a row is longer than measured.
    """
    first, second = _neighbours(schedule)
    early = end[:, :, first] - start[:, :, second]
    least = _clock_tolerance(start, end)
    if not (early > least).any():
        return
    k, r, at = np.unravel_index(int(early.argmax()), early.shape)
    count = int((early > least).any(axis=(0, 1)).sum())
    yield (
        f"ops of device {schedule.device[first[at]]} overlap: in step {grid.iterations[k]}, "
        f"{schedule.label(int(second[at]))} starts {early[k, r, at]:.3g} before "
        f"{schedule.label(int(first[at]))} ends"
        + (f"; likewise {count} pairs of ops in all" if count > 1 else "")
        + ": simulations run one after the other"
    )


def _neighbours(schedule: Schedule) -> tuple[Ints, Ints]:
    """Return each op that computes and the next one of its device, except the two of a pair."""
    ops = np.flatnonzero(schedule.computes)
    first, second = ops[:-1], ops[1:]
    in_row = (schedule.device[first] == schedule.device[second]) & (schedule.pair[first] != second)
    return first[in_row], second[in_row]


def _clock_tolerance(start: Times, end: Times) -> float:
    """Return the time by which clocks may differ without a correction."""
    return TOLERANCE * float(np.median(end.max(axis=2) - start.min(axis=2)))


def _without_small_overlaps(schedule: Schedule, start: Times, end: Times) -> Times:
    """Return ``end`` without overlaps of a device's ops within the tolerance of clocks: an op ends
    when the next one starts. Else both would hold their activations for a moment.
    """
    first, second = _neighbours(schedule)
    next_start = start[:, :, second]
    early = end[:, :, first] - next_start
    small = (early > 0) & (early <= _clock_tolerance(start, end))
    shortened = end.copy()
    shortened[:, :, first] = np.where(small, next_start, end[:, :, first])
    twin = schedule.second_of_pairs
    shortened[:, :, schedule.first_of_pairs] = shortened[:, :, twin]
    return shortened


def _device_offsets(schedule: Schedule, start: Times, end: Times, notes: list[str]) -> Times:
    """Estimate how far devices' clocks are ahead in each replica and step, from the latencies in
    both directions, shape (K, R, P).
    """
    offset = np.zeros((*start.shape[:2], schedule.n_devices))
    contradictions = 0
    for r in range(start.shape[1]):
        if not (least_latencies(schedule, start[:, r], end[:, r]) < 0).any():
            continue
        for k in range(len(start)):
            found = offset_of(least_latencies(schedule, start[k : k + 1, r], end[k : k + 1, r]))
            contradictions += found is None
            offset[k, r] = 0.0 if found is None else found
    if contradictions:
        notes.append("clocks of devices disagree: some ops start before their inputs were made")
    if offset.any():
        most = float(np.abs(offset - np.median(offset, axis=2, keepdims=True)).max())
        notes.append(
            f"clocks of devices were corrected by up to {most:.3g}, from the latencies in both "
            f"directions"
        )
    return offset


def _replica_offsets(
    between: tuple[StepOp, ...], begins: Times, ends: Times, end: Times, notes: list[str]
) -> Times:
    """Estimate how far replicas' clocks are ahead in each step, shape (K, R).

    Zeros unless a collective ends on one replica before it starts on another one. A collective ends
    at the same time on all replicas, so the median of its ends is assumed to be right.
    """
    joint = [
        n for n, each in enumerate(between) if each.communicates and each.group in (REPLICAS, ALL)
    ]
    offset = np.zeros(begins.shape[:2])
    if begins.shape[1] == 1 or not joint:
        return offset
    begins, ends = begins[..., joint], ends[..., joint]
    overlap = np.fmin.reduce(ends, axis=1) - np.fmax.reduce(begins, axis=1)
    if not np.fmin.reduce(overlap, axis=None) < -TOLERANCE * float(
        np.median(end.max(axis=2) - end.min(axis=2))
    ):
        return offset
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for a step without collectives
        offset = np.nan_to_num(
            np.nanmedian(ends - np.nanmedian(ends, axis=1, keepdims=True), axis=(2, 3))
        )
    notes.append(
        f"clocks of replicas were corrected by up to {np.abs(offset).max():.3g}, so that "
        f"collectives end together"
    )
    return offset


def find_between(
    grid: Grid, schedule: Schedule, start: Times, notes: list[str]
) -> tuple[tuple[StepOp, ...], Times, Times]:
    """Find the ops that devices run between steps, with their starts and ends, shape
    (K, R, P, B).
    """
    table = grid.table
    rows, label, between = _label_rows(grid, schedule, start)
    if not between.all():
        names = sorted({table.names[n] for n in label[~between, 1].tolist()})
        notes.append(f"amid the ops of a step, and ignored: {', '.join(names[:4])}")
    rows = rows[between]
    distinct, which = np.unique(label[between], axis=0, return_inverse=True)
    begins, ends = np.full((2, *start.shape[:2], schedule.n_devices, len(distinct)), np.nan)
    place = (grid.step[rows], grid.replica[rows], table.columns["device"][rows], which)
    begins[place], ends[place] = table.start[rows], table.end[rows]
    missing = np.isnan(begins) & ~np.isnan(begins).all(axis=(0, 1))
    if missing.any():
        labels = np.flatnonzero(missing.any(axis=(0, 1, 2))).tolist()
        names = sorted({table.names[distinct[n, 1]] for n in labels})
        notes.append(
            f"{missing.sum()} ops between steps are missing, and are not simulated there: "
            f"{', '.join(names[:4])}"
        )
    turns = np.argsort(np.argsort(begins, axis=3), axis=3) + 0.0 * begins  # NaN where missing
    order = np.lexsort((np.nanmean(turns, axis=(0, 1, 2)), distinct[:, 0]))
    groups = {
        int(n): int(g)
        for n, g in zip(table.name[rows], table.group[rows], strict=True)
        if g != UNKNOWN
    }
    ops = tuple(
        _step_op(table.names[distinct[n, 1]], groups.get(int(distinct[n, 1])), distinct[n])
        for n in order.tolist()
    )
    return ops, begins[..., order], ends[..., order]


def _label_rows(grid: Grid, schedule: Schedule, start: Times) -> tuple[Ints, Ints, Bools]:
    """Find the rows outside the pipeline: each row's place in the table, its label, and whether it
    lies between steps.

    Rows with equal labels are the same op. A label is: 1 after the device's first op, else 0; the
    name; the number of the op among those of its name; the chunk. Shape (rows, 4).
    """
    table, V, P = grid.table, int(schedule.chunk.max()) + 1, schedule.n_devices
    columns = table.columns
    outside = (table.kind == OTHER) & ~np.isnan(table.start) & (columns["device"] < P)
    rows = np.lexsort(
        (columns["order"], table.start, columns["device"], table.name, grid.replica, grid.step)
    )
    rows = rows[outside[rows]]
    device, begin, name = columns["device"][rows], table.start[rows], table.name[rows]
    chunk = np.where(columns["chunk"][rows] < V, columns["chunk"][rows], UNKNOWN)
    cell = grid.step[rows], grid.replica[rows], name, device
    number = _count(np.ravel_multi_index(cell, (*start.shape[:2], len(table.names), P)))
    first, last = _spans(schedule, start)
    where = grid.step[rows], grid.replica[rows], device
    before = begin < first[(*where, np.maximum(chunk, 0))]
    # while ops of other chunks still run
    early = ~before & (begin < last[(*where, np.full_like(chunk, V))])
    kinds, kind = np.unique(name * (V + 1) + chunk + 1, return_inverse=True)
    mostly_early = np.bincount(kind, early, len(kinds)) * 2 > np.bincount(
        kind, minlength=len(kinds)
    )
    of_chunk = np.where(before | mostly_early[kind], chunk, UNKNOWN)
    between = before | (begin >= last[(*where, np.where(of_chunk < 0, V, of_chunk))])
    number = np.where(of_chunk < 0, np.minimum(number, MOST_SAME_NAME - 1), 0)
    label = np.stack([~before, name, number, of_chunk], axis=1).astype(np.int64)
    return rows, label, between


def _step_op(name: str, group: int | None, label: Ints) -> StepOp:
    group_name = group_of(name) if group is None else GROUPS[group]
    return StepOp(
        name, group_name, communicates(name) or group_name != DEVICE, not label[0], int(label[3])
    )


def _spans(schedule: Schedule, start: Times) -> tuple[Times, Times]:
    """Return the first and the last start of each device's and chunk's ops, shapes (K, R, P, V) and
    (K, R, P, V + 1).

    The additional column counts the ops of all chunks.
    """
    P, V = schedule.n_devices, int(schedule.chunk.max()) + 1
    first, last = (
        np.full((*start.shape[:2], P, V), np.inf),
        np.full((*start.shape[:2], P, V + 1), -np.inf),
    )
    chunk = schedule.chunk
    for device in range(P):
        queue = schedule.queue(device)
        last[..., device, V] = start[..., queue].max(axis=2)
        for c in range(V):
            own = np.flatnonzero(chunk[queue] == c) + queue.start
            if len(own):
                first[..., device, c], last[..., device, c] = (
                    start[..., own].min(axis=2),
                    start[..., own].max(axis=2),
                )
    return first, last


def _count(sorted_cells: Ints) -> Ints:
    """Number the rows of each cell from 0; rows of a cell must be adjacent."""
    new = np.flatnonzero(np.diff(sorted_cells, prepend=-1))
    return np.arange(len(sorted_cells)) - np.repeat(new, np.diff(np.append(new, len(sorted_cells))))


def find_transfers(
    grid: Grid, schedule: Schedule, start: Times, end: Times, notes: list[str]
) -> tuple[Times, Times]:
    """Return each op's transfer time, from the later of its input's send and receive, and the delay
    from the producing op until then.

    Both of shape (K, R, ops), 0 without a message.
    """
    crossing = np.flatnonzero(schedule.crosses)
    begins, ends = np.full((2, *start.shape), np.nan)
    for kind in (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B):
        rows, op = _match(grid, schedule, kind)
        where = (grid.step[rows], grid.replica[rows], op)
        for times, seen in ((begins, grid.table.start), (ends, grid.table.end)):
            times[where] = np.fmax(times[where], seen[rows])
    produced = np.full(start.shape, np.nan)
    produced[:, :, crossing] = end[:, :, schedule.dependency[crossing]]
    took, delay = (
        np.maximum(ends - np.fmax(begins, produced), 0.0),
        np.nan_to_num(np.maximum(begins - produced, 0.0)),
    )
    missing = np.isnan(took[:, :, crossing])
    transfer = np.zeros(start.shape)
    if missing.all() and len(crossing):
        flat = (times.reshape(-1, len(schedule)) for times in (start, end))
        latency = measure_terms(schedule, *flat).latency
        took[:, :, crossing] = latency[
            schedule.device[schedule.dependency[crossing]], schedule.device[crossing]
        ]
        notes.append(
            "no messages are shown: each takes its link's latency, measured at the ops that waited"
        )
    elif missing.any():
        notes.append(
            f"{missing.sum()} of {missing.size} messages are not shown: they take the median of "
            f"the others"
        )
        took = np.where(np.isnan(took), np.nanmedian(took[:, :, crossing]), took)
    transfer[:, :, crossing] = took[:, :, crossing]
    return transfer, delay


def find_host(grid: Grid, schedule: Schedule, end: Times, delay: Times) -> Times | None:
    """Return the time of hosts before ops and before messages, shape (2, K, R, ops); None if the
    post of any op is not shown.
    """
    table = grid.table
    rows = np.flatnonzero(grid.computes & ~np.isnan(table.posted))
    place = np.full((len(Kind), schedule.n_stages, schedule.n_microbatches), NONE, np.int64)
    place[schedule.kind, schedule.stage, schedule.microbatch] = np.arange(len(schedule))
    op = place[table.kind[rows], table.columns["stage"][rows], table.columns["microbatch"][rows]]
    reached = np.full(end.shape, np.nan)
    reached[grid.step[rows], grid.replica[rows], op] = table.posted[rows]
    if np.isnan(reached).any():
        return None
    gap = np.zeros(end.shape)
    first = schedule.offsets[:-1][np.diff(schedule.offsets) > 0]
    gap[..., 1:] = np.maximum(reached[..., 1:] - end[..., :-1], 0.0)
    gap[..., first] = gap[..., schedule.second_of_pairs] = 0.0
    return np.stack([gap, delay])


def _match(grid: Grid, schedule: Schedule, kind: Kind) -> tuple[Ints, Ints]:
    """Find the rows of one kind of message, and for each row the op that waits for the message.

    Messages are matched by stage and microbatch if the file contains both, otherwise by order.
    """
    table = grid.table
    rows = np.flatnonzero((table.kind == kind) & ~np.isnan(table.start))
    produces = mask(FORWARDS if kind in (Kind.SEND_F, Kind.RECV_F) else BACKWARDS)
    consumers = np.flatnonzero(schedule.crosses & produces[schedule.kind])
    # the op on the device that records the message
    local = schedule.dependency[consumers] if kind in SENDS else consumers
    waiting = np.full(len(schedule), NONE, np.int64)
    waiting[local] = consumers
    stage, microbatch = table.columns["stage"][rows], table.columns["microbatch"][rows]
    if len(rows) and (stage >= 0).all() and (microbatch >= 0).all():
        S, M = schedule.n_stages, schedule.n_microbatches
        known = (stage < S) & (microbatch < M)
        consumer = np.full(S * M, NONE, np.int64)
        consumer[schedule.stage[local] * np.int64(M) + schedule.microbatch[local]] = consumers
        found = np.where(known, consumer[np.where(known, stage * M + microbatch, 0)], NONE)
    else:
        rows, found = _match_in_order(grid, schedule, rows, waiting, produces)
    return rows[found != NONE], found[found != NONE]


def _match_in_order(
    grid: Grid, schedule: Schedule, rows: Ints, waiting: Ints, produces: Bools
) -> tuple[Ints, Ints]:
    """Match the n-th message of a device in a step with the n-th op that has a message.

    Some programs also record empty messages at the first and last stage. Where a device shows as
    many messages as ops, the n-th message belongs to the n-th op of all.
    """
    table = grid.table
    device = table.columns["device"][rows]
    cell = (grid.step[rows] * len(grid.replicas) + grid.replica[rows]) * schedule.n_devices + device
    order = np.lexsort((table.start[rows], table.columns["order"][rows], cell))
    rows, device, cell = rows[order], device[order], cell[order]
    number, count = _count(cell), np.bincount(cell, minlength=1)[cell] if len(cell) else cell
    found = np.full(len(rows), NONE, np.int64)
    for d in range(schedule.n_devices):
        queue = schedule.queue(d)
        ops = np.flatnonzero(produces[schedule.kind[queue]]) + queue.start
        for candidates in (ops, ops[waiting[ops] != NONE]):
            here = (device == d) & (count == len(candidates))
            found[here] = waiting[candidates[number[here]]]
    return rows, found


def _kind_names(grid: Grid) -> Iterator[tuple[str, str]]:
    """Yield each kind of op and message, with its name in the file."""
    for code in np.unique(grid.table.kind[grid.table.kind != OTHER]).tolist():
        name = grid.table.name[grid.table.kind == code][0]
        yield Kind(code).name, grid.table.names[name]
