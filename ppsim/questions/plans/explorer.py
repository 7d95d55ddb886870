"""Data of the page of plans: counts of candidates, numbers of the simulated plans, and launch flags
of the best ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from ppsim.base.units import format_size
from ppsim.core.ops import COMPUTE
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.plans.task import Findings, Row, Task

MOST_PLANS = 4000  # plans on a page: the listed ones, then the fastest
MOST_LISTED = 40  # rows of its table
MOST_LETTERS = 24_000  # letters of all queues on a page
DIGITS = 6  # significant digits of a time


def plan_page_of(
    task: Task,
    found: Findings,
    inputs: Mapping[str, Any],
    lost_by: Sequence[str],
    base: str,
    verdict: str,
    remarks: Sequence[str],
) -> bytes:
    """Return the bytes of the page that explores the plans.

    ``lost_by`` has the reason why each found plan is slower than the best, ``base`` is the command
    without the options that make a plan, ``verdict`` is the answer in one sentence, and ``remarks``
    are sentences on how certain it is.
    """
    from ppsim.show.files.plan_page import plan_page
    from ppsim.workload.plans.task import OUTCOMES

    listed = found.rows[:MOST_LISTED]
    keys = {row["key"] for row in listed}
    # sorted, because workers return them in any order
    others = sorted((row for row in found.simulated if row["key"] not in keys), key=_rank_key)
    rows = sorted([*listed, *others][:MOST_PLANS], key=_rank_key)
    lost = dict(zip((row["key"] for row in listed), lost_by, strict=False))
    columns = _columns(task, rows, lost)
    simulated = found.counts[OUTCOMES[-1]]
    places = {row["key"]: place for place, row in enumerate(rows)}
    shown = f", the fastest {len(rows):,} shown" if len(rows) < simulated else ""
    facts = {
        "inputs": dict(inputs),
        "counted": f"{found.total:,} candidates, {simulated:,} simulated{shown}"
        + ("" if found.complete else "; the search was interrupted"),
        "remarks": list(remarks),
        "cap": task.cap / 2**30,
        "sizes": ["tp", "cp", "ep", "pp", "dp", "vp"],
        "flags": {
            str(place): _launch_texts(task, row)
            for place, row in enumerate(rows)
            if row["key"] in keys
        },
        "base": base,
        "perNode": 0 if task.machine.uneven else task.machine.per_node,
        "pipelineFirst": task.axes.base.pipeline_first,
        **_page_timelines(task, {places[row["key"]]: row for row in listed}),
    }
    meanings = [
        (name, found.counts[name], meaning)
        for name, meaning in zip(OUTCOMES, _meanings(task), strict=True)
    ]
    title = f"{task.model.name or 'the model'} on {gpu_label(task)}".replace(" x ", " × ")
    return plan_page(title, facts, meanings, columns, verdict)


def _rank_key(row: Row) -> tuple[float, int, str]:
    return row["step_s"], row["memory_bytes"], str(row["key"])


def _meanings(task: Task) -> Iterator[str]:
    """Yield the meaning of each outcome of a candidate, in the order of ``OUTCOMES``."""
    cap = format_size(task.cap)
    yield (
        "Their schedule does not allow these numbers of devices, chunks and microbatches, or the "
        "layers cannot be split over the stages."
    )
    yield "The software's launch flags cannot express the plan, or the software refuses it."
    yield (
        f"Before the first microbatch, a GPU already needs more than {cap}. More tp or pp, or "
        f"ZeRO, reduces that."
    )
    yield (
        f"With the activations in flight, a GPU needs more than {cap}. Recompute or smaller "
        f"microbatches reduce that."
    )
    yield (
        "Not simulated: the work with fill and drain alone takes longer than another plan that "
        "needs no more memory."
    )
    yield (
        "Not simulated: the slowest device's work and its fill take longer than another plan that "
        "needs no more memory."
    )
    yield "Simulated op by op: the marks below."


def _columns(task: Task, rows: Sequence[Row], lost: Mapping[str, str]) -> dict[str, list[Any]]:
    """Return the columns of the page's table of plans; numbers have five digits."""
    plain = (
        "tp",
        "cp",
        "ep",
        "pp",
        "dp",
        "vp",
        "mbs",
        "microbatches",
        "schedule",
        "recompute",
        "layout",
        "zero",
    )
    columns: dict[str, list[Any]] = {key: [row[key] for row in rows] for key in plain}
    columns |= {
        key: [_five_digits(row[key]) for row in rows]
        for key in ("offload", "step_s", "mfu", "bubble")
    }
    columns["layers"] = [row["recompute_layers"] or 0 for row in rows]
    if task.machine.kinds:
        columns["placed"] = ["; ".join(rank_lines(row)) for row in rows]
    columns["tokens"] = [_five_digits(row["tokens_per_s"] / task.gpus) for row in rows]
    columns["memory"] = [_five_digits(row["memory_bytes"] / 2**30) for row in rows]
    rank = {key: place for place, key in enumerate(lost, 1)}
    columns["listed"] = [rank.get(row["key"], 0) for row in rows]
    columns["tied"] = [int(row.get("tied", False)) for row in rows]
    columns["lost_by"] = [lost.get(row["key"], "") for row in rows]
    for name in rows[0]["terms"]:
        columns[f"step {name}"] = [_five_digits(row["terms"][name]) for row in rows]
    for name in rows[0]["memory_parts"]:
        columns[f"held {name}"] = [_five_digits(row["memory_parts"][name] / 2**30) for row in rows]
    return columns


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")


def layout_and_layers(task: Task, row: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the parallel sizes of a plan, and its layers per stage."""
    from ppsim.workload.plans.layers_by_speed import layout_of
    from ppsim.workload.plans.space import read_key

    candidate = read_key(row["key"])
    return candidate.parallel(task.axes.base), layout_of(task, candidate)


def _launch_texts(task: Task, row: Row) -> dict[str, Any]:
    """Return the launch flags of a plan by framework, and the refusals of other frameworks."""
    from ppsim.workload.plans.launcher import launcher_names, launcher_of

    texts, refused = {}, []
    for launcher in map(launcher_of, launcher_names()):
        try:
            lines = launcher.write(task.model, *layout_and_layers(task, row))
            texts[launcher.title] = launcher.page_separator.join(lines)
        except InputError as error:
            refused.append(str(error))
    return {"texts": texts, "refused": refused}


def rank_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each kind of nodes that a plan's pipeline uses: its devices, the layers and
    the memory of each; nothing for a cluster of one kind.
    """
    first, layers = 0, row.get("layers_of_devices", [])
    for gpu, devices in groupby(row.get("gpu_of_devices", [])):
        count = len(list(devices))
        of_kind = slice(first, first + count)
        words = (
            f"pipeline devices {first}-{first + count - 1}"
            if count > 1
            else f"pipeline device {first}"
        )
        words += ", the first ranks," if not first and count < len(layers) else ""
        held, cap = max(row["memory_of_devices"][of_kind]), row["cap_of_devices"][first]
        yield (
            f"{gpu}: {words} with {' '.join(layers[of_kind])} layers, {format_size(held)} of "
            f"{format_size(cap)}"
        )
        first += count


def gpu_label(task: Task) -> str:
    """Return the number and the model of a plan's GPUs as text."""
    return task.machine.title if task.machine.kinds else f"{task.gpus:,} x {task.machine.title}"


def usable_memory_text(task: Task) -> str:
    """Return the usable memory of a GPU, for each kind of nodes, as text."""
    from ppsim.workload.plans.task import usable_bytes

    each = [min(task.cap, usable_bytes(kind.machine)) for kind in task.machine.kinds] or [task.cap]
    return " or ".join(dict.fromkeys(format_size(cap) for cap in each))


def cap_of(row: Mapping[str, Any], task: Task) -> float:
    """Return the usable memory, in bytes, of the pipeline device that needs the most."""
    held = row["memory_of_devices"]
    found: float = row.get("cap_of_devices", [task.cap] * len(held))[held.index(max(held))]
    return found


def _page_timelines(task: Task, rows: Mapping[int, Row]) -> dict[str, Any]:
    """Return the queues and costs that ``plan_run.js`` times and draws, for plans by their place on
    the page.
    """
    from ppsim.workload.cost.costs import queues_of, stage_costs
    from ppsim.workload.plans.layers_by_speed import layout_of
    from ppsim.workload.plans.space import read_key

    queues: dict[Any, dict[str, Any]] = {}
    runs: dict[str, dict[str, Any]] = {}
    sent: dict[str, Any] = {}
    letters_left = MOST_LETTERS
    for place, row in rows.items():
        candidate = read_key(row["key"])
        parallel, layout = candidate.parallel(task.axes.base), layout_of(task, candidate)
        machine = task.machine_of(candidate.layout)
        found = stage_costs(task.model, machine, parallel, layout)
        costs = found.costs
        schedule = queues_of(parallel, found)
        if not machine.kinds:
            sent[str(place)] = _sent_gib(task, parallel, schedule, layout)
        sizes = parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches
        key = place if candidate.is_ordered_by_costs else sizes
        if parallel.pp > 1 and key not in queues:
            packed = _packed_queues(schedule)
            if packed is not None and len(packed["packed"]) <= letters_left:
                queues[key] = packed
                letters_left -= len(packed["packed"])
        if key in queues:
            runs[str(place)] = {
                "queue": list(queues).index(key),
                "time": _rounded(costs.time[: len(COMPUTE)]),
                "pair": None if costs.pair is None else _rounded(costs.pair),
                "comm": _rounded(np.broadcast_to(costs.comm, (parallel.pp,) * 2)),
            }
    carried = (
        f"This page has the timelines of {len(runs)} listed plans, not of this one. Its command "
        f"prints how to draw it."
    )
    return {"queues": list(queues.values()), "runs": runs, "sent": sent, "carried": carried}


def _sent_gib(task: Task, parallel: Parallel, schedule: Schedule, layout: Layout) -> dict[str, Any]:
    """Return the GiB that a GPU sends in a step, by kind: within its node, and between nodes."""
    from ppsim.workload.cost.volumes import sent_bytes

    found = sent_bytes(task.model, task.machine, parallel, schedule, layout)
    return {kind: _rounded(amounts / 2**30) for kind, amounts in found.items() if amounts.any()}


def _packed_queues(schedule: Schedule) -> dict[str, Any] | None:
    """Return the queues as differences from op to op; None if the page cannot time some ops."""
    if schedule.kind.max(initial=0) >= len(COMPUTE):
        return None
    from ppsim.show.files.page_parts import pack_bytes

    first = np.zeros(len(schedule), np.int64)
    first[schedule.first_of_pairs] = 1
    columns = (schedule.kind, schedule.stage, schedule.microbatch, first)
    steps = [
        np.diff(np.asarray(column, np.int64), prepend=0).astype("<i2").tobytes()
        for column in columns
    ]
    return {"offsets": schedule.offsets, "packed": pack_bytes(b"".join(steps))}


def _rounded(values: Any) -> Any:
    rounded = np.array([float(f"{value:.{DIGITS}g}") for value in np.ravel(values)])
    return rounded.reshape(np.shape(values))
