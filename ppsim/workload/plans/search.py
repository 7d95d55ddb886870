"""The best ways to train a model on given GPUs: bounds first, then simulation of the candidates
left, best bound first.

Candidates are simulated in rounds whose sizes depend on nothing. After each round the slowest plan
that is still wanted gives the time that later candidates must be able to beat. So results and
counts are the same on any number of workers.

The first pass simulates every plan that may tie with the fastest, whatever is printed, and
schedules ordered by costs for the fastest of them. Only then are further plans simulated to be
listed. So how many are listed changes no choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.tradeoff import front
from ppsim.base.notes import Report
from ppsim.base.patterns import matches
from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.errors import PpsimError
from ppsim.schedules import find
from ppsim.workload.cost.costs import StageCosts, Step, queues_of, stage_costs, step_time
from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import (
    PARTS,
    DeviceMemory,
    device_memory,
    stage_memory,
    states_of_devices,
)
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.bounds import Bound, bound_candidates, least_seconds, list_candidates
from ppsim.workload.plans.by_speed import layout_of
from ppsim.workload.plans.flags import refusal
from ppsim.workload.plans.space import FITTED, Candidate, read_key
from ppsim.workload.plans.task import (
    HELD,
    LACKED,
    REFUSED,
    ROUNDING,
    SIMULATED,
    STAGES,
    WORK,
    Findings,
    Row,
    Task,
)

# candidates; rounds double, as the first ones set a limit to the others
FIRST_ROUND, ROUND = 32, 512
MOST_FITTED = {
    "zb-auto": 8,
    "zb-2p": 8,
    "zb-v": 8,
    "v-auto": 2,
}  # plans that are ordered by costs; v-auto takes seconds for each
# plans, whatever is listed, that are certainly simulated where orders by costs follow the fastest
SEEDS = 10
MOST_GPUS = 4096  # tried where none of a few GPUs fits
TRIED = 32  # candidates, the smallest first, to find out whether any fits

Map = Callable[[Callable[[Any], Row], Sequence[Any]], Iterator[tuple[int, Row]]]


def search(task: Task, run: Map, found: Findings, report: Report) -> None:
    """Search for the best plans; ``found`` holds all findings at any time, so that an interruption
    loses nothing.

    Args:
        task: what the plan is for.
        run: gives the rows of tasks by a function of them, as :class:`ppsim.base.workers.Workers`
            does.
        found: filled in.
        report: called with the share done and a line.
    """
    report(None, f"bounds of {task.gpus:,} GPUs' plans")
    seen, first = found.simulated, replace(task, keep=SEEDS if task.axes.fitted else 1, front=False)
    left = _run_rounds(
        first, run, found, bound_candidates(task, list_candidates(task), found), report, seen
    )
    if fitted := list(_fit_orders(task, seen)):
        left += _run_rounds(first, run, found, bound_candidates(task, fitted, found), report, seen)
    found.rows = best_of(task, seen.copy())
    if task.keep > first.keep or task.front:
        found.counts.subtract(outcome for _, outcome in left)
        _run_rounds(
            replace(task, near=0.0), run, found, sorted(bound for bound, _ in left), report, seen
        )
    found.complete = True


def _run_rounds(
    task: Task, run: Map, found: Findings, left: list[Bound], report: Report, seen: list[Row]
) -> list[tuple[Bound, str]]:
    """Evaluate candidates round by round, best bound first.

    All that were simulated are kept in ``seen``: which are wanted is independent of the order in
    which they came.

    Returns:
        The candidates that cannot win, each with the outcome as which it is counted.
    """
    tried, exact, size = 0, None, FIRST_ROUND
    beaten: list[tuple[Bound, str]] = []
    while left:
        limit = _limit(task, found.rows)
        able, slow = _leave_out(left, limit)
        found.counts[WORK] += len(slow)
        beaten += ((bound, WORK) for bound in slow)
        chosen, left = able[:size], able[size:]
        size = min(2 * size, ROUND)
        # Neighbours share a schedule, which a worker keeps.
        chosen.sort(key=lambda bound: _schedule_of(bound.candidate))
        evaluate = Evaluate(task, limit)
        candidates = [bound.candidate for bound in chosen]
        rows: list[Row | None] = [None] * len(chosen)
        try:
            for index, row in run(evaluate, candidates):
                rows[index] = row
                tried += 1
                report(None, f"{tried:,} simulated, {len(left):,} may win")
                if row["outcome"] == HELD and not seen:
                    held = row["memory_bytes"], candidates[index]
                    exact = min(exact or held, held)
                if "step_s" in row:
                    seen.append(row)
        finally:  # an interruption loses nothing
            found.rows = best_of(task, seen.copy())
        found.counts.update(row["outcome"] for row in rows if row)
        outcomes = ((bound, row["outcome"]) for bound, row in zip(chosen, rows, strict=True) if row)
        beaten += ((bound, outcome) for bound, outcome in outcomes if outcome == STAGES)
    found.least_memory = exact or found.least_memory
    return beaten


def _schedule_of(candidate: Candidate) -> tuple[str, int, int, int]:
    """Return the properties that determine a candidate's queues, apart from costs."""
    return candidate.schedule, candidate.group.pp, candidate.vp, candidate.group.microbatches


def _fit_orders(task: Task, rows: Sequence[Row]) -> Iterator[Candidate]:
    """List the fastest candidates of each placement with schedules that are ordered by costs."""
    simulated = sorted((row["step_s"], read_key(row["key"])) for row in rows)
    for name in task.axes.fitted:
        family = find(name)
        alike = [
            candidate._replace(schedule=name)
            for _, candidate in simulated
            if candidate.group.pp > 1
            and candidate.vp == family.chunks
            and find(candidate.schedule).placement == family.placement
        ]
        yield from islice(dict.fromkeys(alike), MOST_FITTED[name])


def gpus_that_fit(task: Task) -> int | None:
    """Find the fewest GPUs, doubling them, on which a candidate fits; None up to 64 times as many,
    or ``MOST_GPUS``.
    """
    if task.machine.kinds:
        return None
    axes, gpus = (
        replace(task.axes, recompute=task.axes.recompute[-1:], layouts=task.axes.layouts[:1]),
        task.gpus,
    )
    while (gpus := 2 * gpus) <= max(MOST_GPUS, 64 * task.gpus):
        more = replace(task, gpus=gpus, axes=axes)
        bounds = sorted(
            bound_candidates(more, list_candidates(more), Findings()),
            key=lambda bound: bound.bytes_,
        )
        if any("step_s" in Evaluate(more)(bound.candidate) for bound in bounds[:TRIED]):
            return more.gpus
    return None


def _limit(task: Task, rows: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """Return the time that a further candidate must beat, among plans of as few bytes: pairs of
    seconds and bytes.
    """
    if task.front:
        return tuple((row["step_s"], row["memory_bytes"]) for row in rows if row["pareto"])
    if len(rows) < task.keep:
        return ((task.known, 0.0),) if task.known < float("inf") else ()
    return ((max(rows[task.keep - 1]["step_s"], rows[0]["step_s"] * (1 + task.near)), 0.0),)


def _is_beaten(limit: tuple[tuple[float, float], ...], seconds: float, bytes_: float) -> bool:
    return any(best <= seconds and held <= bytes_ for best, held in limit)


def _leave_out(
    bounds: list[Bound], limit: tuple[tuple[float, float], ...]
) -> tuple[list[Bound], list[Bound]]:
    """Divide candidates into ones that may win and ones that cannot win any more."""
    if not limit:
        return bounds, []
    seconds = np.array([bound.seconds for bound in bounds])
    held = np.array([bound.bytes_ for bound in bounds])
    out = np.zeros(len(bounds), np.bool_)
    for best, least in limit:
        out |= (seconds >= best) & (held >= least)
    able: list[Bound] = []
    slow: list[Bound] = []
    for bound, gone in zip(bounds, out.tolist(), strict=True):
        (slow if gone else able).append(bound)
    return able, slow


def best_of(task: Task, rows: list[Row]) -> list[Row]:
    """The rows that are wanted, best first."""
    rows.sort(key=order_of)
    if task.axes.fitted:
        rows = list(_drop_ties(rows))
    rows = list(_drop_dominated(rows))
    wanted = rows[: task.keep]
    if not task.front:
        return wanted
    best = front(np.array([(row["step_s"], row["memory_bytes"]) for row in rows]))
    for row, on_front in zip(rows, best.tolist(), strict=True):
        row["pareto"] = on_front
    return [row for place_, row in enumerate(rows) if row["pareto"] or place_ < task.keep]


def order_of(row: Row) -> tuple[float, float, bool, str]:
    """The order of plans: time, then memory, then a fixed order of ops before one by costs."""
    return row["step_s"], row["memory_bytes"], row["schedule"] in FITTED, row["key"]


def _drop_dominated(rows: Sequence[Row]) -> Iterator[Row]:
    """Leave out plans that hold no fewer bytes than a faster one with the same sizes and schedule.

    Such twins differ in chunks, recompute or layout alone.
    """
    least: dict[tuple[object, ...], float] = {}
    for row in rows:
        candidate = read_key(row["key"])
        alike = (candidate.group, candidate.schedule, candidate.zero, candidate.offload)
        if row["memory_bytes"] < least.get(alike, float("inf")):
            least[alike] = row["memory_bytes"]
            yield row


def _drop_ties(rows: Sequence[Row]) -> Iterator[Row]:
    """Leave out plans ordered by costs that are not better than one with a fixed order that is the
    same otherwise.
    """
    better: dict[Candidate, list[Row]] = {}
    for row in rows:
        alike = better.setdefault(read_key(row["key"])._replace(schedule=""), [])
        if row["schedule"] not in FITTED or all(
            other["memory_bytes"] > row["memory_bytes"] for other in alike
        ):
            yield row
        alike.append(row)


@dataclass(frozen=True)
class Evaluate:
    """A function of a candidate that gives its row: its outcome and, where it fits and may win, its
    numbers.

    Attributes:
        task: what the plan is for.
        limit: pairs of seconds and bytes that it must beat.
    """

    task: Task
    limit: tuple[tuple[float, float], ...] = ()

    def __call__(self, candidate: Candidate) -> Row:
        """Evaluate one candidate."""
        try:
            return self._evaluate(candidate)
        except PpsimError:
            return {"outcome": REFUSED}

    def _evaluate(self, candidate: Candidate) -> Row:
        task, g = self.task, candidate.group
        parallel, machine = candidate.parallel(task.axes.base), task.machine_of(candidate.layout)
        layout, caps = layout_of(task, candidate), task.caps(machine, parallel)
        if task.launch and refusal(task.launch, task.model, parallel, layout):
            return {"outcome": LACKED}
        devices = np.zeros((1, 1), np.int32)
        if g.pp > 1:
            devices = place(find(candidate.schedule).placement, g.pp, g.pp * candidate.vp).devices
        held = stage_memory(task.model, parallel, layout)
        each = np.sum(states_of_devices(parallel, held, devices), axis=0)
        states = float(each.max())
        if (each > caps).any():
            return {"outcome": HELD, "memory_bytes": states}
        costs = stage_costs(task.model, machine, parallel, layout)
        post, pieces = parallel.post_validation, parallel.pieces
        least = least_seconds(costs, devices, g.microbatches, post, pieces) * (1 - ROUNDING)
        if _is_beaten(self.limit, least, states):
            return {"outcome": STAGES}
        schedule = queues_of(parallel, costs) if g.pp > 1 else None
        peaks = device_memory(task.model, parallel, layout, held, schedule)
        memory = float(peaks.total.max())
        if (peaks.total > caps).any():
            return {"outcome": HELD, "memory_bytes": memory}
        if _is_beaten(self.limit, least, memory):
            return {"outcome": STAGES}
        step = step_time(task.model, machine, parallel, costs=costs, schedule=schedule)
        row = make_row(parallel, candidate, costs, peaks, step)
        return row | _device_places(task, candidate, np.array(layout.layers), devices[0])


def is_sound(key: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row can be that of a candidate's key: it has all numbers, each of its
    kind.
    """
    outcome = row.get("outcome")
    if outcome == HELD:
        return matches(row, {"outcome": str, "memory_bytes": float})
    if outcome != SIMULATED:
        return outcome in (REFUSED, LACKED, STAGES) and len(row) == 1
    sizes = ("tp", "cp", "ep", "pp", "dp", "vp", "mbs", "microbatches", "zero")
    numbers = (
        "offload",
        "step_s",
        "tokens_per_s",
        "mfu",
        "tflops_per_gpu",
        "bubble",
        "memory_bytes",
    )
    terms = ("compute", "recompute", "communication", "bubble", "gradients", "optimizer")
    kinds = {
        **dict.fromkeys(("outcome", "key", "schedule", "recompute", "layout"), str),
        **dict.fromkeys(sizes, int),
        **dict.fromkeys(numbers, float),
        "recompute_layers": (int, type(None)),
        "memory_of_devices": [float],
        "memory_parts": dict.fromkeys(PARTS, float),
        "terms": dict.fromkeys(terms, float),
        "pareto": bool,
        "gpu_of_devices?": [str],
        "cap_of_devices?": [float],
        "layers_of_devices?": [str],
    }
    if not matches(row, kinds) or row["key"] != key or row["pp"] != len(row["memory_of_devices"]):
        return False
    try:
        candidate = read_key(key)
    except (TypeError, ValueError):
        return False
    plain = ("vp", "schedule", "recompute", "layout", "zero")
    asked = candidate.group._asdict() | {name: getattr(candidate, name) for name in plain}
    adds_up = abs(sum(row["terms"].values()) - row["step_s"]) <= 1e-6 * row["step_s"]
    return (
        all(row[name] == value for name, value in asked.items()) and adds_up and row["step_s"] > 0
    )


def _device_places(
    task: Task, candidate: Candidate, split: NDArray[np.int64], owners: NDArray[np.int32]
) -> Row:
    """Say the GPU of each pipeline device, its bytes and its layers, where there are several kinds
    of nodes.
    """
    parallel, machine = candidate.parallel(task.axes.base), task.machine_of(candidate.layout)
    if not machine.kinds:
        return {}
    names = np.array([kind.machine.gpu.name for kind in machine.kinds])
    return {
        "gpu_of_devices": ["+".join(names[on]) for on in kinds_of_devices(machine, parallel)],
        "cap_of_devices": np.asarray(task.caps(machine, parallel)).tolist(),
        "layers_of_devices": [
            "+".join(map(str, split[owners == device])) for device in range(parallel.pp)
        ],
    }


def make_row(
    parallel: Parallel, candidate: Candidate, costs: StageCosts, peaks: DeviceMemory, step: Step
) -> Row:
    """Write a candidate's row, as ``plan --json`` prints it."""
    scale = parallel.microbatches / parallel.pp
    total = peaks.total
    again = scale * float(costs.time[Kind.R].sum())
    # What a split backward takes more is mostly messages that nothing hides any longer.
    whole = scale * float(costs.time[Kind.F].sum() + costs.time[Kind.B].sum())
    waits = scale * float(costs.communication.sum()) + step.work - whole
    return {
        "outcome": SIMULATED,
        "key": candidate.key,
        "tp": parallel.tp,
        "cp": parallel.cp,
        "ep": parallel.ep,
        "pp": parallel.pp,
        "dp": parallel.dp,
        "vp": parallel.vp,
        "mbs": parallel.mbs,
        "microbatches": parallel.microbatches,
        "schedule": candidate.schedule,
        "recompute": parallel.recompute,
        "recompute_layers": parallel.recompute_layers,
        "layout": candidate.layout,
        "zero": parallel.zero,
        "offload": parallel.offload,
        "step_s": float(step.seconds),
        "tokens_per_s": float(step.tokens_per_s),
        "mfu": float(step.mfu),
        "tflops_per_gpu": float(step.tflops),
        "bubble": float(step.bubble),
        "memory_bytes": float(total.max()),
        "memory_of_devices": total.tolist(),
        "memory_parts": {part: float(getattr(peaks, part)[total.argmax()]) for part in PARTS},
        "terms": {
            "compute": step.work - waits - again,
            "recompute": again,
            "communication": waits,
            "bubble": float(step.pipeline - step.work),
            "gradients": float(step.reduction),
            "optimizer": float(step.optimizer),
        },
        "pareto": False,
    }
