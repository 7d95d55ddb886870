"""The timelines of the listed plans, as their page carries them: queues by shape, and the times of stages by plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.core.ops import COMPUTE
from ppsim.schedules import generate

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.plans.task import Row, Task

LARGEST = 24_000  # letters of all queues on a page
SHORT = 6  # digits of a time


def carry_runs(task: Task, rows: Mapping[int, Row]) -> dict[str, Any]:
    """What ``plan_run.js`` times and draws; of ``rows``, plans by their place on the page, the first come first."""
    from ppsim.workload.cost.costs import schedule_of, stage_costs
    from ppsim.workload.plans.by_speed import layout_of
    from ppsim.workload.plans.space import read_key

    queues: dict[Any, dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    sent: dict[str, Any] = {}
    room = LARGEST
    for place, row in rows.items():
        candidate = read_key(row["key"])
        parallel, layout = candidate.parallel(task.axes.base), layout_of(task, candidate)
        machine = task.machine_of(candidate.layout)
        costs = stage_costs(task.model, machine, parallel, layout).costs
        name, *sizes = parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches
        if candidate.fitted:
            shape = dict(zip(("devices", "chunks", "microbatches"), sizes, strict=True))
            schedule = generate(name, costs=lambda _, made=costs: made, **shape)  # type: ignore[misc]
        else:
            schedule = schedule_of(name, *sizes)
        if not machine.kinds:
            sent[str(place)] = _sent(task, parallel, schedule, layout)
        key = place if candidate.fitted else (name, *sizes)
        if parallel.pp > 1 and key not in queues:
            packed = _pack(schedule)
            if packed is not None and len(packed["packed"]) <= room:
                queues[key] = packed
                room -= len(packed["packed"])
        if key in queues:
            runs[str(place)] = {
                "queue": list(queues).index(key),
                "time": _short(costs.time[: len(COMPUTE)]),
                "pair": None if costs.pair is None else _short(costs.pair),
                "comm": _short(np.broadcast_to(costs.comm, (parallel.pp,) * 2)),
            }
    carried = (
        f"The page carries the timelines of {len(runs)} listed plans; the command with --ranks says how to draw this."
    )
    return {"queues": list(queues.values()), "runs": runs, "sent": sent, "carried": carried}


def _sent(task: Task, parallel: Parallel, schedule: Schedule, layout: Layout) -> dict[str, Any]:
    """The GiB that a GPU sends in a step by kind: within its node, between nodes."""
    from ppsim.workload.cost.volumes import sent_bytes

    found = sent_bytes(task.model, task.machine, parallel, schedule, layout)
    return {kind: _short(amounts / 2**30) for kind, amounts in found.items() if amounts.any()}


def _pack(schedule: Schedule) -> dict[str, Any] | None:
    """The queues as differences from op to op; None for ops that the page does not time."""
    from ppsim.show.files.page_parts import pack_bytes

    if schedule.kind.max(initial=0) >= len(COMPUTE):
        return None
    first = np.zeros(len(schedule), np.int64)
    first[schedule.first_of_pairs] = 1
    columns = (schedule.kind, schedule.stage, schedule.microbatch, first)
    steps = [np.diff(np.asarray(column, np.int64), prepend=0).astype("<i2").tobytes() for column in columns]
    return {"offsets": schedule.offsets, "packed": pack_bytes(b"".join(steps))}


def _short(values: Any) -> Any:
    rounded = np.array([float(f"{value:.{SHORT}g}") for value in np.ravel(values)])
    return rounded.reshape(np.shape(values))
