"""Plans that are faster than published runs, on the same GPUs, batch and software."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ppsim.base.numbers import format_number, format_share
from ppsim.base.patterns import matches
from ppsim.base.toml import RefusedValue
from ppsim.base.workers import open_workers
from ppsim.errors import PpsimError
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.published import predict
from ppsim.workload.plans.row_numbers import SkippedRow
from ppsim.workload.plans.rows import NONE, UserNames, setup_of
from ppsim.workload.plans.search import search
from ppsim.workload.plans.space import SCHEDULES, Axes
from ppsim.workload.plans.stated import parallel_of
from ppsim.workload.plans.task import Findings, Row, Task, usable_bytes

SAME = ("tp", "cp", "ep", "pp", "dp", "vp", "mbs", "recompute")


@dataclass(frozen=True)
class Question:
    """A published run, and the search for a better plan for it.

    Attributes:
        task: the search, without a time to beat, so that runs of the same model, batch and cluster
            share it.
        parallel: the settings of the run.
        seconds: predicted seconds of the run's step.
        held: predicted peak of the run's fullest device, in bytes.
    """

    task: Task
    parallel: Parallel
    seconds: float
    held: float


def question_of(published: Mapping[str, Any], user_names: UserNames = NONE) -> Question:
    """Return the search for a better plan on a published run's GPUs, batch and software.

    Raises:
        SkippedRow: the row cannot be predicted.
        PpsimError: as ``predict``.
    """
    setup = setup_of(dict(published), user_names)
    parallel, step = predict(setup)
    held = float(device_memory(setup.model, parallel, setup.layout).total.max())
    any_schedule = parallel_of(published, setup.machine.gpu, setup.model)
    base = replace(any_schedule, recompute="none", offload=parallel.offload)
    names = (
        SCHEDULES
        if parallel.pp == 1
        else tuple(dict.fromkeys((*SCHEDULES, parallel.schedule_name)))
    )
    axes = Axes(
        base=base,
        schedules=names,
        zero=(parallel.zero,),
        offload=(round(100 * parallel.offload),),
        fitted=(),
    )
    task = Task(
        setup.model,
        setup.machine,
        parallel.gpus,
        parallel.gbs,
        axes,
        usable_bytes(setup.machine),
        keep=1,
    )
    return Question(task, parallel, step.seconds, held)


def share_searches(
    published: Iterable[tuple[str, Mapping[str, Any]]], user_names: UserNames = NONE
) -> dict[str, dict[str, Any]]:
    """Return groups of rows that share a search, by the joined keys of their rows.

    Rows that cannot be predicted are left out.
    """
    groups: dict[Task, dict[str, Any]] = {}
    for key, row in published:
        try:
            groups.setdefault(question_of(row, user_names).task, {})[key] = row
        except (SkippedRow, PpsimError, RefusedValue):
            continue
    return {" + ".join(group): group for group in groups.values()}


def improve(group: Mapping[str, Mapping[str, Any]], user_names: UserNames = NONE) -> dict[str, Any]:
    """Search for the best plan for a group of published runs.

    Returns:
        For each key the step of the plan in seconds, and its differences from the run.
    """
    questions = {key: question_of(row, user_names) for key, row in group.items()}
    first = next(iter(questions.values()))
    slowest = max(question.seconds for question in questions.values())
    found = Findings()
    with open_workers() as workers:
        search(replace(first.task, known=slowest), workers.run, found, lambda done, text: None)
    best = found.rows[0] if found.rows else None
    return {key: _answer(question, best) for key, question in questions.items()}


def is_sound(key: str, row: Mapping[str, Any]) -> bool:
    """Return whether ``row`` has the form of a result of :func:`improve`, whatever the key."""
    return all(matches(each, {"planned_step_s": float, "change": str}) for each in row.values())


def _answer(question: Question, best: Row | None) -> dict[str, Any]:
    """Return the fastest plan's step and its differences from a run.

    The run counts as a plan that fits even if the memory model contradicts, since it ran.
    """
    usable = question.task.cap
    memory_note = ""
    if question.held > usable:
        peak, room = (format_number(size / 2**30) for size in (question.held, usable))
        memory_note = f" (by the memory model the run holds {peak} GiB of {room} GiB)"
    if best is None or best["step_s"] >= question.seconds:
        return {
            "planned_step_s": float(question.seconds),
            "change": f"nothing: no plan that fits is faster{memory_note}",
        }
    change = describe_change(question.parallel, best, question.seconds)
    return {"planned_step_s": best["step_s"], "change": change + memory_note}


def describe_change(parallel: Parallel, best: Row, seconds: float) -> str:
    """Return the time that a plan saves over a run, and its differences, as text."""
    changes = [
        f"{name} {getattr(parallel, name)} -> {best[name]}"
        for name in SAME
        if getattr(parallel, name) != best[name]
    ]
    if best["recompute"] == "full" and best["recompute_layers"] != parallel.recompute_layers:
        count = best["recompute_layers"]
        changes.append(
            f"recompute {'all layers' if count is None else f'{count} layers of a stage'}"
        )
    if best["pp"] > 1 and best["schedule"] != (parallel.schedule_name if parallel.pp > 1 else ""):
        changes.append(
            f"{parallel.schedule_name if parallel.pp > 1 else 'no pipeline'} -> {best['schedule']}"
        )
    if best["layout"] != "even":
        changes.append(f"layout {best['layout']}")
    return (
        f"{format_share(1 - best['step_s'] / seconds)} less: "
        f"{', '.join(changes) or 'layers elsewhere'}"
    )
