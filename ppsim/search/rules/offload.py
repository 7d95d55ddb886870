"""Copies of activations to the host and back, put into the queues of any schedule.

An activation is copied out right after its F and comes back just in time: its RELOAD is issued
after the last op that lets the copy end before the backward starts. An activation stays if there is
no time for both copies. If a device's copies fall behind, ops that wait for one (WAIT_OFFLOAD)
limit its memory, as far as they cost no time. On a shared link they may cost the time of the other
devices' copies while the pipeline fills. PipeOffload (arXiv 2503.01328) copies in slots that
alternate out and in; here copies back are as late as possible.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lanes import groups_of, refuse_lanes
from ppsim.core.ops import BACKWARDS, KIND_MASK, Kind, Packed, mask, pack
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError

Floats = NDArray[np.float64]
Ops = NDArray[np.int64]
ROUNDS = 6  # rounds in which late copies back are issued earlier
MOST_WAITED = 20_000  # ops of a schedule up to which waits are tried
NEAR = 1e-9
LEAST_HELD = 3  # fewest activations to which waits on a shared link limit a device


@dataclass(frozen=True)
class Copies:
    """Activations that are copied to the host and back; shape (copies,) each."""

    forward: Ops  # the op that makes the activation
    backward: Ops  # the op that needs it
    return_time: Floats  # the time of the copy back


def add_offload(schedule: Schedule, costs: Costs, chunks: float) -> Schedule:
    """Return the schedule with copies of the activations of each device's first chunks.

    The schedule has F, and B or I and W. Costs have the times of OFFLOAD and RELOAD, 0 by default.
    Half a chunk means every second microbatch of a chunk.

    Raises:
        InputError: the schedule has no backwards, recomputes all, or has copies already.
    """
    nothing_left = "no activation is left to copy to the host"
    if schedule.only_forwards:
        raise InputError(f"{schedule.name} has no backward: {nothing_left}", "leave out --offload")
    refuse_lanes(schedule, "a rule for copies to the host")
    if schedule.recomputed[schedule.kind == Kind.F].all():
        raise InputError(f"{schedule.name} recomputes: {nothing_left}", "leave out --offload")
    base = simulate(schedule, costs)
    copies = _choose(schedule, costs, chunks, base.start, base.end)
    lead, reached, best = np.zeros(len(copies.forward)), np.inf, schedule
    for _ in range(ROUNDS):
        made = _insert(schedule, copies, _gates(schedule, copies, base.start, base.end, lead))
        timeline = simulate(made, costs)
        if timeline.makespan < reached - NEAR:
            reached, best = timeline.makespan, made
        late = waits_for_copies(timeline)[copies.backward]
        if not (late > NEAR).any() or reached <= base.makespan + NEAR:
            break
        lead += late
    if len(best) > MOST_WAITED:
        return best
    return _hold_down(_share(best, costs) if costs.host_link > 1 else best, costs)


def _choose(schedule: Schedule, costs: Costs, chunks: float, start: Floats, end: Floats) -> Copies:
    """Return the activations of the first ``chunks`` for which there is time to copy both ways."""
    cell = schedule.stage * np.int64(schedule.n_microbatches) + schedule.microbatch
    backwards = np.flatnonzero(mask(BACKWARDS)[schedule.kind])
    of_cell = np.full(schedule.n_stages * schedule.n_microbatches, -1)
    of_cell[cell[backwards]] = backwards - ~schedule.leads[backwards]
    share, m = np.clip(chunks - schedule.chunk, 0, 1), schedule.microbatch
    chosen = np.floor((m + 1) * share + NEAR) > np.floor(m * share + NEAR)
    forward = np.flatnonzero((schedule.kind == Kind.F) & chosen & ~schedule.recomputed)
    out, back = (
        np.asarray(costs.others.get(kind, np.zeros(schedule.n_stages)), np.float64)[
            schedule.stage[forward]
        ]
        for kind in (Kind.OFFLOAD, Kind.RELOAD)
    )
    backward = of_cell[cell[forward]]
    kept = start[backward] - end[forward] >= np.maximum(out + back, NEAR)
    return Copies(forward[kept], backward[kept], back[kept])


def _gates(schedule: Schedule, copies: Copies, start: Floats, end: Floats, lead: Floats) -> Ops:
    """Return the op after which each copy back is issued, shape (copies,).

    It is the last op that lets this and later copies arrive in time.
    """
    gate, device = np.empty(len(copies.forward), np.int64), schedule.device[copies.forward]
    for number in range(schedule.n_devices):
        here, queue, following = np.flatnonzero(device == number), schedule.queue(number), np.inf
        ends = end[queue]
        for copy in here[np.argsort(-copies.backward[here])].tolist():
            backward = copies.backward[copy]
            following = min(start[backward], following) - copies.return_time[copy] - lead[copy]
            last = queue.start + int(np.searchsorted(ends, following + NEAR, "right")) - 1
            gate[copy] = min(max(last, copies.forward[copy]), backward - 1)
    return gate


def _insert(schedule: Schedule, copies: Copies, gate: Ops) -> Schedule:
    """Return the schedule with the copies; those after a pair's first op follow the pair."""
    cells = pack(schedule.stage[copies.forward], schedule.microbatch[copies.forward])
    at = np.concatenate([copies.forward, gate])
    at += schedule.pair[at] > at
    new = np.concatenate([cells | Kind.OFFLOAD, cells | Kind.RELOAD])
    order = np.lexsort((np.concatenate([np.zeros(len(cells), np.int64), 1 + copies.backward]), at))
    return schedule.insert(at[order] + 1, schedule.device[at[order]], new[order])


def waits_for_copies(timeline: Timeline) -> Floats:
    """Return the time that each compute op waits for a copy back, shape (compute ops,).

    An op waits for a copy if its RELOAD ends when the op starts, even if another input ends then
    too.
    """
    schedule, computes = timeline.schedule, np.flatnonzero(timeline.schedule.computes)
    cell = schedule.stage * np.int64(schedule.n_microbatches) + schedule.microbatch
    reloads = np.flatnonzero(schedule.kind == Kind.RELOAD)
    backwards = np.flatnonzero(mask(BACKWARDS)[schedule.kind])
    back = np.full(schedule.n_stages * schedule.n_microbatches, np.nan)  # equals no start
    back[cell[reloads]] = timeline.end[reloads]
    late, group = np.zeros(len(schedule), bool), groups_of(schedule)
    late[group[backwards[back[cell[backwards]] == timeline.start[backwards]]]] = True
    before = np.append(0.0, timeline.end[computes[:-1]])
    gap = np.maximum(timeline.start[computes] - before, 0.0)
    return np.where(late[group][computes], gap, 0.0)


def _share(schedule: Schedule, costs: Costs) -> Schedule:
    """Return the schedule with waits for copies that a shared link delays.

    They may delay the schedule by the time of the other devices' copies before the first backward.
    Each device then holds as much as with a separate link, but at least three activations: one in
    compute, one on its way out and one on its way back.
    """
    timeline, best = simulate(schedule, costs), schedule
    alone = replace(costs, host_link=0)
    least = np.maximum(
        measure(simulate(_hold_down(schedule, alone), alone)).peak_activations, LEAST_HELD
    )
    limit = timeline.makespan + _lag(timeline) * (1 - 1 / costs.host_link)
    for cap in range(measure(timeline).peak_activations.max() - 1, least.min() - 1, -1):
        waiting = _wait(schedule, np.maximum(least, cap))
        if waiting is None or simulate(waiting, costs).makespan > limit * (1 + NEAR):
            break
        best = waiting
    return best


def _lag(timeline: Timeline) -> float:
    """Return the longest delay of a copy out: that of each device's last before its first backward.

    It is the time from the end of an F to the end of its copy.
    """
    made, longest = timeline.schedule, 0.0
    for queue in map(made.queue, range(made.n_devices)):
        kinds = made.kind[queue]
        first = int(np.argmax(mask(BACKWARDS)[kinds]))
        copies = np.flatnonzero(kinds[:first] == Kind.OFFLOAD) + queue.start
        if len(copies):  # each copy follows its F
            longest = max(longest, float(timeline.end[copies[-1]] - timeline.end[copies[-1] - 1]))
    return longest


def _hold_down(schedule: Schedule, costs: Costs) -> Schedule:
    """Return the schedule with waits for copies that lower devices' peaks and cost no time."""
    best, found = schedule, measure(simulate(schedule, costs))
    schedule, caps = schedule.take(schedule.kind != Kind.WAIT_OFFLOAD), found.peak_activations
    for device in np.argsort(-found.peak_activations, kind="stable"):
        while (peak := found.peak_activations[device]) > 1:
            trial = caps.copy()
            trial[device] = peak - 1
            waiting = _wait(schedule, trial)
            after = None if waiting is None else measure(simulate(waiting, costs))
            if (
                waiting is None
                or after is None
                or after.makespan > found.makespan * (1 + NEAR)
                or after.peak_activations[device] >= peak
                or after.peak_activations.max() > found.peak_activations.max()
            ):
                break
            best, caps, found = waiting, trial, replace(after, makespan=found.makespan)
    return best


def _wait(schedule: Schedule, caps: Ops) -> Schedule | None:
    """Return the schedule with a wait for the oldest copy wherever a device would exceed its cap.

    None if no copy is left to wait for.
    """
    ops, change, queues = schedule.packed(), schedule.activation_changes(), list[Packed]()
    for device, cap in enumerate(caps.tolist()):
        queue = schedule.queue(device)
        waiting = add_waits(ops[queue].tolist(), change[queue].tolist(), cap)
        if waiting is None:
            return None
        queues.append(np.array(waiting, np.int64))
    return schedule.with_queues(queues)


def add_waits(queue: Sequence[int], change: Sequence[float], cap: float) -> list[int] | None:
    """Return a queue with a wait for the oldest copy wherever the device would exceed its cap.

    ``change`` is the change of the device's memory by each op; that of an OFFLOAD counts from the
    wait for it. None if no copy is left to wait for.
    """
    found, pending, held = list[int](), deque[tuple[int, float]](), 0.0
    for op, added in zip(queue, change, strict=True):
        while added > 0 and held + added > cap + NEAR:
            if not pending:
                return None
            waited, freed = pending.popleft()
            found.append(waited & ~KIND_MASK | Kind.WAIT_OFFLOAD)
            held += freed
        found.append(op)
        if op & KIND_MASK == Kind.OFFLOAD:
            pending.append((op, added))
        else:
            held += added
    return found
