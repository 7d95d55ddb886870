"""Predict every run of a session at every level, with costs from its other runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ppsim.core.execution import Execution
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.real.runs.record import Measured, Record
from ppsim.real.validation import predict
from ppsim.real.validation.insitu import average_overheads, observed_costs
from ppsim.real.validation.lanes import overheads_of, predict_lanes
from ppsim.real.validation.predict import (
    Overheads,
    Prediction,
    Site,
    build_network,
    execute_with_calls,
    scale_link,
)


def predict_runs(record: Record, used: Mapping[str, list[Measured]]) -> list[Prediction]:
    """Predict every run of a record that shows calls and messages.

    ``used`` contains the runs that provide the costs of each run, by its name. A run without such
    runs is predicted with its own costs.
    """
    site = predict.site_of(record.settings)
    terms = {run.name: overheads_of(run, site) for run in record.runs}
    steps = record.settings["ops"] == "trace"
    predictions = []
    for run in record.runs:
        others = used[run.name] or [run]
        average = average_overheads([terms[other.name] for other in others], of_steps=steps)
        if run.lowered.compute.has_lanes:
            predictions.append(predict_lanes(run, others, average, terms[run.name], site))
            continue
        executions = _predict_levels(run, others, average, site)
        makespans = {
            level: np.array([execution.makespan]) for level, execution in executions.items()
        }
        makespans["replay"] = predict.replay(run, terms[run.name], site)
        floor = _noise_floor(run, terms[run.name], site)
        predictions.append(
            Prediction(makespans, executions["held-out"], average.gap, average.preamble, floor)
        )
    return predictions


def _predict_levels(
    run: Measured, others: Sequence[Measured], overheads: Overheads, site: Site
) -> dict[str, Execution]:
    """Execute a run at every level except the replay, with costs and ``overheads`` of
    ``others``.
    """
    calls = replace(overheads, gap=0.0, preamble=0.0)
    costs = observed_costs(run, others, overheads.late if site.sleeps else None)
    return {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, build_network(run, site)),
        "host": execute_with_calls(run, costs, site, calls),
        "held-out": execute_with_calls(run, costs, scale_link(site, overheads), overheads),
    }


def _noise_floor(run: Measured, terms: Overheads, site: Site) -> float | None:
    """Return the median absolute error of repetitions predicted from the run's other repetitions;
    None for a single repetition.
    """
    count = len(run.makespans)
    if count < 2:
        return None
    scaled = scale_link(site, terms)
    errors = []
    for row, makespan in enumerate(run.makespans.tolist()):
        others = run.repetitions([other for other in range(count) if other != row])
        costs = observed_costs(run, [others])
        errors.append(abs(execute_with_calls(run, costs, scaled, terms).makespan / makespan - 1))
    return float(np.median(errors))
