"""Schedules for pages that edit them, and what Python says of edited queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import TIMED, Kind
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import OF_A_MICROBATCH, MemoryModel, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import Deadlock, PpsimError
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate


def small(name: str) -> Schedule:
    """Return a schedule of a family at a small size that it takes."""
    for devices, microbatches in ((4, 8), (4, 6), (2, 4)):
        try:
            return generate(name, devices=devices, microbatches=microbatches)
        except PpsimError:
            continue
    raise AssertionError(name)


def read_back(csv: str, like: Schedule) -> Schedule | None:
    """Return the schedule of queues in torch's cells, or None where it has faults."""
    draft = replace(
        parse(csv, "edited.csv"), n_slices=like.n_slices, partial_recompute=like.partial_recompute
    )
    draft = replace(draft, n_rounds=like.n_rounds, feeds_back=like.feeds_back, flushes=like.flushes)
    if check(draft).faults:
        return None
    # microbatches of one end alone tell no second replica
    return replace(draft.schedule(), placement=like.placement)


def uneven_costs(schedule: Schedule, seed: int) -> Costs:
    """Return costs that differ by stage, microbatch, device and link, of all kinds that the
    schedule holds.
    """
    rng = np.random.default_rng(seed)
    tables = {
        name: rng.uniform(0.5, 2, schedule.n_stages).tolist() for name in ("tf", "ti", "tw", "tr")
    }
    others = {kind: 0.3 for kind in TIMED if kind >= Kind.OFFLOAD and (schedule.kind == kind).any()}
    costs = costs_for(
        schedule,
        **tables,
        tb=rng.uniform(4, 5, schedule.n_stages).tolist(),
        per="stage",
        others=others,
    )
    comm = rng.uniform(0, 0.5, (schedule.n_devices, schedule.n_devices))
    scale = rng.uniform(0.8, 1.25, (5, schedule.n_microbatches))
    pair = rng.uniform(4, 5, schedule.n_stages)
    return replace(
        costs, comm=comm, scale=scale, speed=rng.uniform(0.9, 1.1, schedule.n_devices), pair=pair
    )


def amounts(schedule: Schedule, seed: int) -> MemoryModel:
    """Return amounts of memory that differ by stage."""
    rng = np.random.default_rng(seed)
    held, kept, stash, work_b, work_i, message = rng.integers(
        1 << 20, 1 << 24, (6, schedule.n_stages)
    )
    held += kept
    return MemoryModel(held, kept, stash, work_b, work_i, message, held // 8, {"weights": 3 * held})


def of_sources(model: MemoryModel, sources: list[int]) -> MemoryModel:
    """Return what microbatches hold that each are as long as one of a schedule's."""
    return replace(model, **{name: getattr(model, name)[:, sources] for name in OF_A_MICROBATCH})


def time_if_it_runs(made: Schedule, costs: Costs) -> Timeline | None:
    """Return the times of queues; None where they wait for a result that is fed back in vain, which
    a check of a file does not follow.
    """
    try:
        return simulate(made, costs)
    except Deadlock:
        assert made.feeds_back
        return None


def verify(
    found: dict[str, Any], schedule: Schedule, costs: Costs, model: MemoryModel | None
) -> bool:
    """Compare what a page has of edited queues with what Python says of their CSV; return whether
    they can run.
    """
    state = found["state"]
    made = read_back(found["csv"], schedule)
    prices = (
        costs if costs.scale is None else replace(costs, scale=costs.scale[:, state["sources"]])
    )
    timeline = None if made is None else time_if_it_runs(made, prices)
    assert state["valid"] == (timeline is not None), (found["did"], found["csv"], state["why"])
    if made is None or timeline is None:
        return False
    measured = measure(timeline)
    within = 1e-9 * timeline.makespan
    assert state["makespan"] == pytest.approx(timeline.makespan, abs=within)
    starts = [start for queue in state["start"] for start in queue]
    np.testing.assert_allclose(starts, timeline.start[made.leads], rtol=0, atol=within)
    assert state["peak"] == measured.peak_activations.tolist()
    assert state["bubble_rate"] == pytest.approx(measured.bubble_rate, abs=1e-9)
    causes = explain_idle(timeline, arrivals(timeline, prices.latencies(made))).by_cause
    assert state["by_cause"] == pytest.approx(causes, rel=1e-9, abs=within)
    if model and model.activations.ndim == 2:
        model = of_sources(model, state["sources"])
    if model:
        np.testing.assert_allclose(state["memory"], curves(timeline, model).peak, rtol=1e-12)
    return True
