"""What a plan would change about a published run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ppsim.base.toml import Refused
from ppsim.errors import PpsimError
from ppsim.layout.layout import Layout
from ppsim.planning.memory import device_memory
from ppsim.planning.parallel import Parallel
from ppsim.planning.published import predict
from ppsim.planning.rows import Skipped, setup_of
from ppsim.planning.search import Found, Row, Task, search, usable_bytes
from ppsim.planning.space import Axes

SAME = ("tp", "cp", "ep", "pp", "dp", "vp", "mbs", "recompute")


def improve(published: Mapping[str, Any]) -> dict[str, Any]:
    """Plan a published run anew on its own GPUs and batch; everything that the run's software does stays.

    Returns:
        The plan's step and what it changes; or why there is none.
    """
    try:
        setup = setup_of(dict(published))
        parallel, step = predict(setup)
    except (Skipped, PpsimError, Refused) as error:
        return {"change": f"left out: {error}"}
    task = Task(
        setup.model,
        setup.machine,
        parallel.gpus,
        parallel.gbs,
        Axes(base=parallel),
        usable_bytes(setup.machine),
        keep=1,
        known=step.seconds,
    )
    found = Found()
    try:
        search(task, _run_here, found, lambda done, what: None)
    except PpsimError as error:
        return {"planned_step_s": None, "change": str(error)}
    best = found.rows[0] if found.rows else None
    if best is None or best["step_s"] >= step.seconds:
        return _equal(task, parallel, setup.layout, step.seconds)
    return {"planned_step_s": best["step_s"], "change": describe_change(parallel, best, step.seconds)}


def _equal(task: Task, parallel: Parallel, layout: Layout | None, seconds: float) -> dict[str, Any]:
    """Say that the published configuration is the best, or that by the memory model it does not fit."""
    held = float(device_memory(task.model, parallel, layout).total.max())
    if held <= task.cap:
        return {"planned_step_s": seconds, "change": "nothing: no plan is faster"}
    return {"planned_step_s": None, "change": f"no plan that fits is faster: this one holds {held / 2**30:.3g} GiB"}


def describe_change(parallel: Parallel, best: Row, seconds: float) -> str:
    """Say what a plan has otherwise than a run, and how much faster it is."""
    changes = [
        f"{name} {getattr(parallel, name)} -> {best[name]}" for name in SAME if getattr(parallel, name) != best[name]
    ]
    if best["pp"] > 1 and best["schedule"] != parallel.schedule_name:
        changes.append(f"{parallel.schedule_name if parallel.pp > 1 else 'no pipeline'} -> {best['schedule']}")
    if best["layout"] != "even":
        changes.append(f"layout {best['layout']}")
    return f"{1 - best['step_s'] / seconds:.1%} less: {', '.join(changes) or 'layers elsewhere'}"


def _run_here(function: Callable[[Any], Row], tasks: Sequence[Any]) -> Any:
    return ((index, function(task)) for index, task in enumerate(tasks))
