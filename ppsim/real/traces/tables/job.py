"""A job from a table of ops: the ops of each replica in each step, and the times between devices
and replicas.
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

ROUNDED = 1e-3  # of a step: clocks that are apart by less agree
MOST_EACH = 64  # ops of one name that a device does between two steps


def job_of(table: OpTable) -> tuple[Job, Times, tuple[str, ...]]:
    """Make a job of a table.

    Returns: The job; the lead subtracted from each clock, shape (K, R, P); and sentences on
    repairs.

    Raises:
        InputError: a fault that no repair mends: no step is whole, or ops are there twice
            throughout.
        InvalidSchedule: devices ran in an order in which no schedule runs.
    """
    notes = list[str]()
    grid, ops, start, end = whole_steps(grid_of(table, notes), notes)
    order = _order(ops, start, end)
    usual = _most_common(order)
    same = (order == usual).all(axis=2)
    grid, start, end = leave_out(
        grid, start, end, same, lambda k, r: "ran its ops in another order", notes
    )
    start, end = start[:, :, usual], end[:, :, usual]
    schedule = _schedule(table.source, ops[usual], np.median(start, (0, 1)), np.median(end, (0, 1)))
    offset = _device_offsets(schedule, start, end, notes)
    between, begun, done = find_between(grid, schedule, start, notes)
    offset = offset + _replica_offsets(between, begun, done, end, notes)[:, :, None]
    if offset.any():
        start, end = (times - offset[:, :, schedule.device] for times in (start, end))
        begun, done = (times - offset[:, :, :, None] for times in (begun, done))
        grid = grid.shift(offset)
    transfer, delay = find_transfers(grid, schedule, start, end, notes)
    host = find_host(grid, schedule, end, delay)
    zero = start.min(axis=(1, 2))[:, None, None]
    spread = zero[..., None]
    names = dict(_kind_names(grid))
    times = (start - zero, end - zero, transfer, between, begun - spread, done - spread)
    return (
        Job(schedule, grid.replicas, grid.iterations, *times, names, table.unit, host),
        offset,
        tuple(notes),
    )


def _order(ops: Ints, start: Times, end: Times) -> Ints:
    """Order the ops of each replica and step as its devices ran them, shape (K, R, ops)."""
    device = np.broadcast_to(ops[:, 0], start.shape)
    return np.lexsort((end, start, device), axis=2)


def _most_common(order: Ints) -> Ints:
    """Find the row that occurs most, of shape (K, R, ops)."""
    rows = order.reshape(-1, order.shape[2])
    same = (rows == rows[0]).all(axis=1)
    if same.all():
        return rows[0]
    kept, count = np.unique(rows, axis=0, return_counts=True)
    most: Ints = kept[count.argmax()]
    return most


def _schedule(source: str, ops: Ints, start: Times, end: Times) -> Schedule:
    """Make the schedule of ops in the order of their queues; F and B with the same times are a
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


def _device_offsets(schedule: Schedule, start: Times, end: Times, notes: list[str]) -> Times:
    """Find how far devices' clocks are ahead in each replica and step, from the latencies in both
    directions.
    """
    offset = np.zeros((*start.shape[:2], schedule.n_devices))
    apart = 0
    for r in range(start.shape[1]):
        if not (least_latencies(schedule, start[:, r], end[:, r]) < 0).any():
            continue
        for k in range(len(start)):
            found = offset_of(least_latencies(schedule, start[k : k + 1, r], end[k : k + 1, r]))
            apart += found is None
            offset[k, r] = 0.0 if found is None else found
    if apart:
        notes.append("clocks of devices disagree: some ops start before their inputs were made")
    if offset.any():
        most = float(np.abs(offset - np.median(offset, axis=2, keepdims=True)).max())
        notes.append(
            f"clocks of devices were corrected by up to {most:.3g}, from the latencies in both "
            f"directions"
        )
    return offset


def _replica_offsets(
    between: tuple[StepOp, ...], begun: Times, done: Times, end: Times, notes: list[str]
) -> Times:
    """Find how far replicas' clocks are ahead in each step, where a collective ends on one before
    it starts on another.

    All of a collective end together, so half its ends are taken to be right. Shape (K, R).
    """
    joint = [
        n for n, each in enumerate(between) if each.communicates and each.group in (REPLICAS, ALL)
    ]
    offset = np.zeros(begun.shape[:2])
    if begun.shape[1] == 1 or not joint:
        return offset
    least = np.fmin.reduce(done[..., joint], axis=1) - np.fmax.reduce(begun[..., joint], axis=1)
    if not np.fmin.reduce(least, axis=None) < -ROUNDED * float(
        np.median(end.max(axis=2) - end.min(axis=2))
    ):
        return offset
    ends = done[..., joint]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a replica that shows none in a step
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
    """Find the ops of devices between steps: what each is, and its start and end, shape (K, R, P,
    B).
    """
    table, V, P = grid.table, int(schedule.chunk.max()) + 1, schedule.n_devices
    rows = (table.kind == OTHER) & ~np.isnan(table.start) & (table.columns["device"] < P)
    columns = table.columns
    at = np.lexsort(
        (columns["order"], table.start, columns["device"], table.name, grid.replica, grid.step)
    )
    at = at[rows[at]]
    device, begun, name = columns["device"][at], table.start[at], table.name[at]
    chunk = np.where(columns["chunk"][at] < V, columns["chunk"][at], UNKNOWN)
    shape = (*start.shape[:2], P)
    nth = _count(
        np.ravel_multi_index(
            (grid.step[at], grid.replica[at], name, device), (*shape[:2], len(table.names), P)
        )
    )
    first, last = _spans(schedule, start)
    where = grid.step[at], grid.replica[at], device
    before = begun < first[(*where, np.maximum(chunk, 0))]
    # while other chunks still run
    early = ~before & (begun < last[(*where, np.full_like(chunk, V))])
    kinds, kind = np.unique(name * (V + 1) + chunk + 1, return_inverse=True)
    early = (np.bincount(kind, early, len(kinds)) * 2 > np.bincount(kind, minlength=len(kinds)))[
        kind
    ]
    of_chunk = np.where(before | early, chunk, UNKNOWN)
    idle = before | (begun >= last[(*where, np.where(of_chunk < 0, V, of_chunk))])
    label = np.stack(
        [~before, name, np.where(of_chunk < 0, np.minimum(nth, MOST_EACH - 1), 0), of_chunk], 1
    )
    if not idle.all():
        names = sorted({table.names[n] for n in name[~idle].tolist()})
        notes.append(f"amid the ops of a step, and left alone: {', '.join(names[:4])}")
    kept, which = np.unique(label[idle].astype(np.int64), axis=0, return_inverse=True)
    at, device = at[idle], device[idle]
    begun, done = np.full((*shape, len(kept)), np.nan), np.full((*shape, len(kept)), np.nan)
    place = (grid.step[at], grid.replica[at], device, which)
    begun[place], done[place] = table.start[at], table.end[at]
    turn = np.nanmean(np.argsort(np.argsort(begun, axis=3), axis=3) + 0.0 * begun, axis=(0, 1, 2))
    order = np.lexsort((turn, kept[:, 0]))
    lost = np.isnan(begun) & ~np.isnan(begun).all(axis=(0, 1))
    if lost.any():
        names = sorted(
            {table.names[kept[n, 1]] for n in np.flatnonzero(lost.any(axis=(0, 1, 2))).tolist()}
        )
        notes.append(
            f"{lost.sum()} ops between steps are missing, and are not simulated there: "
            f"{', '.join(names[:4])}"
        )
    groups = {
        int(n): int(g) for n, g in zip(table.name[at], table.group[at], strict=True) if g != UNKNOWN
    }
    found = tuple(
        _step_op(table.names[kept[n, 1]], groups.get(int(kept[n, 1])), kept[n])
        for n in order.tolist()
    )
    return found, begun[..., order], done[..., order]


def _step_op(name: str, group: int | None, label: Ints) -> StepOp:
    group_name = group_of(name) if group is None else GROUPS[group]
    return StepOp(
        name, group_name, communicates(name) or group_name != DEVICE, not label[0], int(label[3])
    )


def _spans(schedule: Schedule, start: Times) -> tuple[Times, Times]:
    """Return the first start and the last end of each device's and chunk's ops, shape (K, R, P, V),
    the last with V + 1.

    The last column is of all the device's ops.
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
    """Number rows of the same cell from 0; rows of a cell stand together."""
    new = np.flatnonzero(np.diff(sorted_cells, prepend=-1))
    return np.arange(len(sorted_cells)) - np.repeat(new, np.diff(np.append(new, len(sorted_cells))))


def find_transfers(
    grid: Grid, schedule: Schedule, start: Times, end: Times, notes: list[str]
) -> tuple[Times, Times]:
    """Find how long each op's input took from the later of its send and receive, and from its op to
    then.

    0 for none; both of shape (K, R, ops).
    """
    crossing = np.flatnonzero(schedule.crosses)
    begun, done = np.full((2, *start.shape), np.nan)
    for kind in (Kind.SEND_F, Kind.RECV_F, Kind.SEND_B, Kind.RECV_B):
        rows, op = _match(grid, schedule, kind)
        where = (grid.step[rows], grid.replica[rows], op)
        for times, seen in ((begun, grid.table.start), (done, grid.table.end)):
            times[where] = np.fmax(times[where], seen[rows])
    made = np.full(start.shape, np.nan)
    made[:, :, crossing] = end[:, :, schedule.dependency[crossing]]
    took, delay = (
        np.maximum(done - np.fmax(begun, made), 0.0),
        np.nan_to_num(np.maximum(begun - made, 0.0)),
    )
    lost = np.isnan(took[:, :, crossing])
    transfer = np.zeros(start.shape)
    if lost.all() and len(crossing):
        flat = (times.reshape(-1, len(schedule)) for times in (start, end))
        latency = measure_terms(schedule, *flat).latency
        took[:, :, crossing] = latency[
            schedule.device[schedule.dependency[crossing]], schedule.device[crossing]
        ]
        notes.append(
            "no messages are shown: each takes its link's latency, as the ops that waited show it"
        )
    elif lost.any():
        notes.append(
            f"{lost.sum()} of {lost.size} messages are not shown: they take the median of the "
            f"others"
        )
        took = np.where(np.isnan(took), np.nanmedian(took[:, :, crossing]), took)
    transfer[:, :, crossing] = took[:, :, crossing]
    return transfer, delay


def find_host(grid: Grid, schedule: Schedule, end: Times, delay: Times) -> Times | None:
    """Find the time of hosts before ops and messages, shape (2, K, R, ops); None where an op's post
    is not shown.
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
    """Find the rows of one kind of message, and for each the op that waits for it.

    By stage and microbatch where the file tells them, else the n-th message of a device in a step
    is that of its n-th op that has one, or of its n-th op of all where it shows as many: some
    record empty messages at the ends.
    """
    table = grid.table
    rows = np.flatnonzero((table.kind == kind) & ~np.isnan(table.start))
    makes = mask(FORWARDS if kind in (Kind.SEND_F, Kind.RECV_F) else BACKWARDS)
    consumers = np.flatnonzero(schedule.crosses & makes[schedule.kind])
    # the op on the device of the message's side
    own = schedule.dependency[consumers] if kind in SENDS else consumers
    waits = np.full(len(schedule), NONE, np.int64)
    waits[own] = consumers
    stage, microbatch = table.columns["stage"][rows], table.columns["microbatch"][rows]
    if len(rows) and (stage >= 0).all() and (microbatch >= 0).all():
        S, M = schedule.n_stages, schedule.n_microbatches
        known = (stage < S) & (microbatch < M)
        of = np.full(S * M, NONE, np.int64)
        of[schedule.stage[own] * np.int64(M) + schedule.microbatch[own]] = consumers
        found = np.where(known, of[np.where(known, stage * M + microbatch, 0)], NONE)
    else:
        rows, found = _match_in_order(grid, schedule, rows, waits, makes)
    return rows[found != NONE], found[found != NONE]


def _match_in_order(
    grid: Grid, schedule: Schedule, rows: Ints, waits: Ints, makes: Bools
) -> tuple[Ints, Ints]:
    table = grid.table
    device = table.columns["device"][rows]
    cell = (grid.step[rows] * len(grid.replicas) + grid.replica[rows]) * schedule.n_devices + device
    order = np.lexsort((table.start[rows], table.columns["order"][rows], cell))
    rows, device, cell = rows[order], device[order], cell[order]
    nth, count = _count(cell), np.bincount(cell, minlength=1)[cell] if len(cell) else cell
    found = np.full(len(rows), NONE, np.int64)
    for d in range(schedule.n_devices):
        queue = schedule.queue(d)
        whole = np.flatnonzero(makes[schedule.kind[queue]]) + queue.start
        for each in (whole, whole[waits[whole] != NONE]):
            here = (device == d) & (count == len(each))
            found[here] = waits[each[nth[here]]]
    return rows, found


def _kind_names(grid: Grid) -> Iterator[tuple[str, str]]:
    """Return the file's name of each kind of op and message."""
    for code in np.unique(grid.table.kind[grid.table.kind != OTHER]).tolist():
        name = grid.table.name[grid.table.kind == code][0]
        yield Kind(code).name, grid.table.names[name]
