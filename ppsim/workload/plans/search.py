"""The search for the best plans of a model on given GPUs, by bounds and simulation.

Candidates whose bounds allow them to win are simulated, best bound first, in rounds of fixed sizes.
After each round the slowest wanted plan sets the time that later candidates must be able to beat.
Results and counts are therefore the same with any number of workers.

The first pass simulates every plan that may tie with the fastest, however many plans are printed,
and then tries schedules ordered by costs in place of the schedules of the fastest. A second pass
simulates further plans to be listed. The best plan is therefore independent of the number listed.
"""

from __future__ import annotations

import heapq
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
from ppsim.workload.plans.launcher import refusal
from ppsim.workload.plans.layers_by_speed import layout_of
from ppsim.workload.plans.space import FITTED, Candidate, read_key
from ppsim.workload.plans.task import (
    HELD,
    LACKED,
    MISS,
    REFUSED,
    ROUNDING,
    SIMULATED,
    STAGES,
    WORK,
    Findings,
    Row,
    Task,
)

# candidates of the first and of the largest round; sizes double, as early rounds set the limit
FIRST_ROUND, ROUND = 32, 512
# most plans to order by costs, for each such schedule; v-auto takes seconds for one plan
MOST_FITTED = {"zb-auto": 8, "zb-2p": 8, "zb-v": 8, "v-auto": 2}
SEEDS = 10  # plans of the first pass for which orders by costs are tried, however many are listed
MOST_GPUS = 4096  # most GPUs to try if no candidate fits
TRIED = 32  # candidates of fewest bytes to try for a number of GPUs
BARELY_TRIED = 16  # candidates that barely do not fit to try, the fastest by their bounds
CLEARLY = 0.05  # share of a step by which such a candidate must be faster to be worth a remark

Map = Callable[[Callable[[Any], Row], Sequence[Any]], Iterator[tuple[int, Row]]]


def search(task: Task, run: Map, found: Findings, report: Report) -> None:
    """Search for the best plans and write them to ``found``.

    ``found`` is complete up to date at any time, so that an interruption loses nothing.

    Args:
        task: the model, cluster, batch and choices.
        run: maps a function over candidates, as :class:`ppsim.base.workers.Workers` does.
        found: the findings, to be filled in.
        report: called with the share done and a line of text.
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
    found.near_miss = find_near_miss(task, found)
    found.complete = True


def find_near_miss(task: Task, found: Findings) -> Row | None:
    """Return the fastest plan that would fit with ``MISS`` more memory, if it is clearly faster.

    A predicted peak is not exact, so such a plan may fit.
    """
    if not found.rows or task.machine.kinds:
        return None
    larger = replace(task, cap=task.cap * (1 + MISS))
    fastest = None
    limit = min(row["step_s"] for row in found.rows) * (1 - CLEARLY)
    for seconds, candidate in heapq.nsmallest(BARELY_TRIED, found.barely):
        if seconds < limit:
            row = Evaluate(larger, ((limit, 0.0),))(candidate)
            if row.get("step_s", limit) < limit:
                fastest, limit = row, row["step_s"]
    return fastest


def _run_rounds(
    task: Task, run: Map, found: Findings, left: list[Bound], report: Report, seen: list[Row]
) -> list[tuple[Bound, str]]:
    """Evaluate candidates round by round, best bound first.

    Rows of simulated candidates are added to ``seen``, from which the wanted ones are selected.

    Returns:
        The candidates that cannot win, each with its outcome.
    """
    tried, exact, size = 0, None, FIRST_ROUND
    beaten: list[tuple[Bound, str]] = []
    while left:
        limit = _limit(task, found.rows)
        possible, slow = _split_beaten(left, limit)
        found.counts[WORK] += len(slow)
        beaten += ((bound, WORK) for bound in slow)
        chosen, left = possible[:size], possible[size:]
        size = min(2 * size, ROUND)
        # neighbours share a schedule, which a worker caches
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
                    memory = row["memory_bytes"], candidates[index]
                    exact = min(exact or memory, memory)
                if row["outcome"] == HELD and row["memory_bytes"] <= task.cap * (1 + MISS):
                    found.barely.append((chosen[index].seconds, candidates[index]))
                if "step_s" in row:
                    seen.append(row)
        finally:  # keeps the findings of an interrupted round
            found.rows = best_of(task, seen.copy())
        found.counts.update(row["outcome"] for row in rows if row)
        outcomes = ((bound, row["outcome"]) for bound, row in zip(chosen, rows, strict=True) if row)
        beaten += ((bound, outcome) for bound, outcome in outcomes if outcome == STAGES)
    found.least_memory = exact or found.least_memory
    return beaten


def _schedule_of(candidate: Candidate) -> tuple[str, int, int, int]:
    """Return the properties of a candidate that determine its queues, other than costs."""
    return candidate.schedule, candidate.group.pp, candidate.vp, candidate.group.microbatches


def _fit_orders(task: Task, rows: Sequence[Row]) -> Iterator[Candidate]:
    """Yield the fastest simulated candidates with schedules ordered by costs in place of theirs."""
    simulated = sorted((row["step_s"], read_key(row["key"])) for row in rows)
    for name in task.axes.fitted:
        family = find(name)
        candidates = [
            candidate._replace(schedule=name)
            for _, candidate in simulated
            if candidate.group.pp > 1
            and candidate.vp == family.chunks
            and find(candidate.schedule).placement == family.placement
        ]
        yield from islice(dict.fromkeys(candidates), MOST_FITTED[name])


def gpus_that_fit(task: Task) -> int | None:
    """Return the smallest number of GPUs on which a candidate fits: the task's number times 2, 4,
    8, ...

    None if no candidate fits on up to ``MOST_GPUS`` or 64 times the number, and for mixed
    clusters.
    """
    if task.machine.kinds:
        return None
    axes = replace(task.axes, recompute=task.axes.recompute[-1:], layouts=task.axes.layouts[:1])
    gpus = task.gpus
    while (gpus := 2 * gpus) <= max(MOST_GPUS, 64 * task.gpus):
        larger = replace(task, gpus=gpus, axes=axes)
        bounds = sorted(
            bound_candidates(larger, list_candidates(larger), Findings()),
            key=lambda bound: bound.bytes_,
        )
        if any("step_s" in Evaluate(larger)(bound.candidate) for bound in bounds[:TRIED]):
            return larger.gpus
    return None


def _limit(task: Task, rows: Sequence[Row]) -> tuple[tuple[float, float], ...]:
    """Return pairs of seconds and bytes; a candidate that beats neither number of a pair is out."""
    if task.front:
        return tuple((row["step_s"], row["memory_bytes"]) for row in rows if row["pareto"])
    if len(rows) < task.keep:
        return ((task.known, 0.0),) if task.known < float("inf") else ()
    return ((max(rows[task.keep - 1]["step_s"], rows[0]["step_s"] * (1 + task.near)), 0.0),)


def _is_beaten(limit: tuple[tuple[float, float], ...], seconds: float, bytes_: float) -> bool:
    return any(best <= seconds and least <= bytes_ for best, least in limit)


def _split_beaten(
    bounds: list[Bound], limit: tuple[tuple[float, float], ...]
) -> tuple[list[Bound], list[Bound]]:
    """Return the candidates that may win, and those that cannot."""
    if not limit:
        return bounds, []
    seconds = np.array([bound.seconds for bound in bounds])
    bytes_ = np.array([bound.bytes_ for bound in bounds])
    beaten = np.zeros(len(bounds), np.bool_)
    for best, least in limit:
        beaten |= (seconds >= best) & (bytes_ >= least)
    possible: list[Bound] = []
    slow: list[Bound] = []
    for bound, is_beaten in zip(bounds, beaten.tolist(), strict=True):
        (slow if is_beaten else possible).append(bound)
    return possible, slow


def best_of(task: Task, rows: list[Row]) -> list[Row]:
    """Return the wanted rows, best first; sorts ``rows``."""
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
    return [row for index, row in enumerate(rows) if row["pareto"] or index < task.keep]


def order_of(row: Row) -> tuple[float, float, bool, str]:
    """Return a plan's sort key: time, memory, a fixed order of ops before one by costs, its key."""
    return row["step_s"], row["memory_bytes"], row["schedule"] in FITTED, row["key"]


def _drop_dominated(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield plans, without those that a faster one with the same sizes and schedule dominates.

    The faster one needs no more memory; both differ only in chunks, recompute or layout.
    """
    least: dict[tuple[object, ...], float] = {}
    for row in rows:
        candidate = read_key(row["key"])
        shared = (candidate.group, candidate.schedule, candidate.zero, candidate.offload)
        if row["memory_bytes"] < least.get(shared, float("inf")):
            least[shared] = row["memory_bytes"]
            yield row


def _drop_ties(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield plans, without orders by costs that are no better than an otherwise equal plan."""
    faster: dict[Candidate, list[Row]] = {}
    for row in rows:
        others = faster.setdefault(read_key(row["key"])._replace(schedule=""), [])
        if row["schedule"] not in FITTED or all(
            other["memory_bytes"] > row["memory_bytes"] for other in others
        ):
            yield row
        others.append(row)


@dataclass(frozen=True)
class Evaluate:
    """A function that evaluates a candidate.

    Its result is a row with the outcome and, if the candidate fits and may win, all numbers.

    Attributes:
        task: the model, cluster, batch and choices.
        limit: pairs of seconds and bytes; a candidate must beat one number of each pair.
    """

    task: Task
    limit: tuple[tuple[float, float], ...] = ()

    def __call__(self, candidate: Candidate) -> Row:
        """Return the row of a candidate."""
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
        stages = stage_memory(task.model, parallel, layout)
        device_states = np.sum(states_of_devices(parallel, stages, devices), axis=0)
        states = float(device_states.max())
        if (device_states > caps).any():
            return {"outcome": HELD, "memory_bytes": states}
        costs = stage_costs(task.model, machine, parallel, layout)
        post, pieces = parallel.post_validation, parallel.pieces
        least = least_seconds(costs, devices, g.microbatches, post, pieces) * (1 - ROUNDING)
        if _is_beaten(self.limit, least, states):
            return {"outcome": STAGES}
        schedule = queues_of(parallel, costs) if g.pp > 1 else None
        peaks = device_memory(task.model, parallel, layout, stages, schedule)
        memory = float(peaks.total.max())
        if (peaks.total > caps).any():
            return {"outcome": HELD, "memory_bytes": memory}
        if _is_beaten(self.limit, least, memory):
            return {"outcome": STAGES}
        step = step_time(task.model, machine, parallel, costs=costs, schedule=schedule)
        row = make_row(parallel, candidate, costs, peaks, step)
        return row | _device_places(task, candidate, np.array(layout.layers), devices[0])


def is_sound(key: str, row: Mapping[str, Any]) -> bool:
    """Return whether a row from a file is complete, of the right types, and of this key."""
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
    names = ("vp", "schedule", "recompute", "layout", "zero")
    expected = candidate.group._asdict() | {name: getattr(candidate, name) for name in names}
    agrees = all(row[name] == value for name, value in expected.items())
    adds_up = abs(sum(row["terms"].values()) - row["step_s"]) <= 1e-6 * row["step_s"]
    return agrees and adds_up and bool(row["step_s"] > 0)


def _device_places(
    task: Task, candidate: Candidate, split: NDArray[np.int64], owners: NDArray[np.int32]
) -> Row:
    """Return a row's keys for a mixed cluster: GPU, usable bytes and layers of each device.

    They are empty for one kind of nodes.
    """
    parallel, machine = candidate.parallel(task.axes.base), task.machine_of(candidate.layout)
    if not machine.kinds:
        return {}
    names = np.array([kind.machine.gpu.name for kind in machine.kinds])
    return {
        "gpu_of_devices": [
            "+".join(names[on_kind]) for on_kind in kinds_of_devices(machine, parallel)
        ],
        "cap_of_devices": np.asarray(task.caps(machine, parallel)).tolist(),
        "layers_of_devices": [
            "+".join(map(str, split[owners == device])) for device in range(parallel.pp)
        ],
    }


def make_row(
    parallel: Parallel, candidate: Candidate, costs: StageCosts, peaks: DeviceMemory, step: Step
) -> Row:
    """Return the row of a simulated candidate, with the keys of ``plan --json``."""
    scale = parallel.microbatches / parallel.pp
    total = peaks.total
    recompute = scale * float(costs.time[Kind.R].sum())
    # The extra time of split backwards counts as communication: it is mostly lost overlap.
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
            "compute": step.work - waits - recompute,
            "recompute": recompute,
            "communication": waits,
            "bubble": float(step.pipeline - step.work),
            "gradients": float(step.reduction),
            "optimizer": float(step.optimizer),
        },
        "pareto": False,
    }
