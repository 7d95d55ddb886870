"""The simple model: time a schedule under its costs.

An op starts when the op before it on its lane has ended and all its inputs have arrived. An op of
all devices starts when it can start on each of them. Devices that share a link to their host copy
one at a time in each direction, first come, first served.
:mod:`ppsim.engine.simple.longest_path_kernel` describes the columns and the algorithm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppsim.base.compiled import can_compile, load, machine_code_pays, view
from ppsim.core.columns import Codes, Flags, Floats, Ids, Ints
from ppsim.core.costs import EXAMPLE, Costs
from ppsim.core.lanes import (
    MISSING,
    cached_per_schedule,
    find_inputs,
    find_other_inputs,
    groups_of,
    lanes_of,
    posts_results,
)
from ppsim.core.ops import COMPUTE, TIMED, Stream, mask
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.soundness import require_type
from ppsim.core.timeline import Timeline
from ppsim.core.waiting import UNKNOWN
from ppsim.engine.simple import longest_path_kernel as kernel
from ppsim.engine.simple.longest_path_kernel import Columns
from ppsim.errors import Deadlock

# Ops that a process times in CPython before it loads the compiled kernel
# (tests/benchmarks/crossing.py).
COMPILE_SIMULATION_ABOVE = 400_000
NO_TIMES, NO_OPS, NO_IDS = np.empty(0), np.empty(0, np.int64), np.empty(0, np.int32)
_EVERYWHERE = mask(kind for kind in TIMED if kind.info.on_all_devices)


class Lanes(NamedTuple):
    """The ops of a schedule lane by lane, without their costs."""

    order: Ints  # shape (ops,), the op at each place; empty if the lanes are the queues
    place: Ints  # shape (ops,), the place of each op; empty if the lanes are the queues
    offsets: Ints  # this and the following are columns of the kernel, see :class:`Columns`
    kind: Codes
    stage: Ids
    microbatch: Ids
    pair: Ids
    result_entry: Ints
    input_entry: Ints
    entries: int  # the number of entries
    inputs_at: Ints
    inputs: Ints
    sent: Flags
    gate: Ints  # of meetings only: shared links depend on the costs
    missing: Ints


def simulate(schedule: Schedule, costs: Costs) -> Timeline:
    """Return the timeline of a schedule: the exact longest path over its lanes.

    Times are in the costs' unit, from the start of the iteration. A message between devices takes
    the latency of its link and occupies neither side.

    Raises:
        Deadlock: the queues wait for each other in a cycle, or for an op that no device runs.
    """
    require_type("schedule", schedule, Schedule, EXAMPLE)
    require_type("costs", costs, Costs, "costs_for(schedule, tf=1, tb=2)")
    costs.check_fit(schedule)
    latency = np.asarray(costs.comm, np.float64)
    if schedule.has_lanes or schedule.feeds_back:
        lanes = lanes_table(schedule)
        own = costs.durations(schedule)[lanes.order]
        if schedule.feeds_back:
            latency = costs.latencies(schedule)[lanes.order]
        made = build_columns(schedule, lanes, own, latency, costs.host_link)
        columns = _run(schedule, lanes, made)
        bound = np.append(lanes.order, NONE)[columns.bound][lanes.place]
        times = (np.asarray(column, np.float64) for column in (columns.start, columns.end))
        start, end = (column[lanes.place] for column in times)
    else:
        own = NO_TIMES if costs.is_per_stage else costs.durations(schedule)
        time = np.asarray(costs.time, np.float64).ravel()
        halves = NO_TIMES if costs.pair is None else costs.pair / 2
        lanes = _queues(schedule)
        made = build_columns(schedule, lanes, own, latency, 0, time, halves)
        columns = _run(schedule, lanes, made)
        bound = np.asarray(columns.bound, np.int32)
        start, end = (np.asarray(column, np.float64) for column in (columns.start, columns.end))
    bound = bound.astype(np.int32, copy=False)
    return Timeline(
        schedule, start, end, bound, costs.unit, comm=costs.comm, feedback=costs.feedback
    )


def time_each(schedule: Schedule, durations: Floats, latencies: Floats, host_link: int) -> Floats:
    """Return the makespan of each sample of a schedule with lanes, shape (samples,).

    Samples are simulated one by one, as the times of copies decide which is next on a shared link.
    ``durations``, and ``latencies`` of each op's message, have shape (ops, samples). For ops that
    start together the first one's duration counts.

    Raises:
        Deadlock: the schedule cannot finish.
    """
    lanes, makespans = lanes_table(schedule), np.empty(durations.shape[1])
    leader = groups_of(schedule)[lanes.order]
    for sample, (duration, latency) in enumerate(zip(durations.T, latencies.T, strict=True)):
        columns = build_columns(schedule, lanes, duration[leader], latency[lanes.order], host_link)
        makespans[sample] = np.max(_run(schedule, lanes, columns).end)
    return makespans


@cached_per_schedule
def _queues(schedule: Schedule) -> Lanes:
    """Return the lanes of a schedule whose devices only compute: its queues."""
    gives, needs, nothing = schedule.results
    columns = (schedule.offsets, schedule.kind, schedule.stage, schedule.microbatch, schedule.pair)
    others = (NO_OPS, NO_OPS, np.empty(0, np.bool_), NO_OPS, NO_OPS)
    return Lanes(NO_OPS, NO_OPS, *columns, gives, needs, nothing, *others)


@cached_per_schedule
def lanes_table(schedule: Schedule) -> Lanes:
    """Return the lanes of a schedule, with the inputs not made by neighbouring stages."""
    gives, needs, nothing = schedule.results
    lane, lanes, n = lanes_of(schedule), schedule.n_devices * len(Stream), len(schedule)
    order = np.argsort(lane, kind="stable")
    place = np.full(n + 1, NONE, np.int64)  # the last entry stands for no op
    place[order] = np.arange(n)
    shared = np.flatnonzero(_EVERYWHERE[schedule.kind])
    group = groups_of(schedule)[shared]
    _, meeting, missing = np.unique(group, return_inverse=True, return_counts=True)
    gate = np.full(n, NONE, np.int64)
    gate[place[shared]] = meeting
    if posts_results(schedule):  # messages are sent by other ops than those that make them
        others, needs = find_inputs(schedule), np.full_like(needs, nothing)
    else:
        others = find_other_inputs(schedule)
    count = np.diff(others.offsets)[order]
    inputs_at = np.append(0, np.cumsum(count))
    listed = np.arange(inputs_at[-1]) + np.repeat(others.offsets[order] - inputs_at[:-1], count)
    never = nothing + n + len(missing)  # the entry of results that no op makes
    of_no_stage = np.full((len(TIMED) - len(COMPUTE)) * schedule.n_stages, nothing)
    return Lanes(
        order=order,
        place=place[:-1],
        offsets=np.append(0, np.cumsum(np.bincount(lane, minlength=lanes))),
        kind=schedule.kind[order],
        stage=np.maximum(schedule.stage[order], 0),
        microbatch=schedule.microbatch[order],
        pair=place[schedule.pair[order]].astype(np.int32),
        result_entry=np.append(gives, of_no_stage),
        input_entry=np.append(needs, of_no_stage),
        entries=never + 1,
        inputs_at=inputs_at,
        inputs=np.where(others.op == MISSING, never, nothing + place[others.op])[listed],
        sent=others.crosses_devices[listed],
        gate=gate,
        missing=missing,
    )


def build_columns(
    schedule: Schedule,
    lanes: Lanes,
    own: Floats,
    latency: Floats,
    host_link: int = 0,
    time: Floats = NO_TIMES,
    halves: Floats = NO_TIMES,
) -> Columns:
    """Return the kernel's columns for lanes and costs; see :class:`Columns`.

    ``own``, shape (ops,), is in the order of the lanes. ``latency`` is one number, or has shape
    (devices, devices), or (ops,) in the order of the lanes.
    """
    n, count = len(schedule), len(lanes.offsets) - 1
    gate, links = (lanes.gate, 0) if not host_link else _link_gates(schedule, lanes, host_link)
    device = schedule.device[lanes.order] if len(lanes.order) else schedule.device
    return Columns(
        offsets=lanes.offsets,
        kind=lanes.kind,
        stage=lanes.stage,
        microbatch=lanes.microbatch,
        pair=lanes.pair,
        device=device if latency.ndim == 2 else device[:0],
        result_entry=lanes.result_entry,
        input_entry=lanes.input_entry,
        inputs_at=lanes.inputs_at,
        inputs=lanes.inputs,
        sent=lanes.sent,
        gate=gate,
        maker=np.full(lanes.entries, UNKNOWN, np.int32),
        time=time if len(time) else np.zeros(len(lanes.input_entry)),
        halves=halves,
        own=own,
        latency=latency.ravel(),
        start=np.empty(n),
        end=np.empty(n),
        bound=np.empty(n, np.int32),
        head=np.empty(count, np.int64),
        waiter=np.empty(count, np.int64),
        ready=np.empty(count, np.int64),
        missing=lanes.missing.copy() if len(lanes.missing) else NO_OPS,
        latest=np.full(len(lanes.missing), NONE, np.int32) if len(lanes.missing) else NO_IDS,
        free=np.zeros(links) if links else NO_TIMES,
        last=np.full(links, NONE, np.int32) if links else NO_IDS,
        turn=np.full(links, NONE, np.int32) if links else NO_IDS,
    )


def _link_gates(schedule: Schedule, lanes: Lanes, shared: int) -> tuple[Ints, int]:
    """Return the gates if ``shared`` devices share each link to a host, and the number of links."""
    stream = lanes_of(schedule)[lanes.order] % len(Stream)
    copies = (stream == Stream.COPY_OUT) | (stream == Stream.COPY_IN)
    link = schedule.device[lanes.order] // shared * len(Stream) + stream
    gate = np.where(copies, len(lanes.missing) + link, lanes.gate)
    return gate, -(-schedule.n_devices // shared) * len(Stream)


def _run(schedule: Schedule, lanes: Lanes, columns: Columns) -> Columns:
    """Run the kernel, and return the columns with its results, as arrays or lists."""
    n = len(schedule)
    if not machine_code_pays(kernel.execute, n, COMPILE_SIMULATION_ABOVE):
        # lists may contain integers of any length
        lists: Any = Columns._make([column.tolist() for column in columns])
        ran, columns = kernel.execute(lists), lists
    else:  # lists would take too much memory
        compiled = load(kernel.execute, columns, parts=kernel.PARTS)
        ran = compiled(columns) if compiled else kernel.execute(view(columns))
    if ran < n:
        from ppsim.engine.simple.deadlock import explain_deadlock

        lane = np.repeat(np.arange(len(columns.offsets) - 1), np.diff(columns.offsets))
        done = np.arange(n) < np.take(columns.head, lane)
        done = done[lanes.place] if len(lanes.place) else done
        raise Deadlock(*explain_deadlock(schedule, done))
    return columns


def compile_now(schedule: Schedule, costs: Costs) -> None:
    """Load the compiled kernel and use it from now on, for a process that answers in real time."""
    if can_compile():
        machine_code_pays(kernel.execute, COMPILE_SIMULATION_ABOVE, COMPILE_SIMULATION_ABOVE)
        simulate(schedule, costs)
