"""Predict the runs of a session, each repetition at the pace that the machine had just before and after it.

A round runs every schedule once, and a machine's speed drifts within a round and from one to the next. Where ops
compute, the op times of all rounds are brought to the pace of the repetition that is predicted, as the other schedules'
runs beside it show it, so that drift cancels. Ops that sleep do not drift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ppsim.core.execution import Execution
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.real.runs.record import Measured, Record
from ppsim.real.validation import predict
from ppsim.real.validation.beside import overheads_of, predict_beside
from ppsim.real.validation.insitu import average_overheads, observed_costs, remove_contention
from ppsim.real.validation.predict import (
    Overheads,
    Prediction,
    Site,
    build_network,
    execute_on_cores,
    execute_with_calls,
    scale_link,
)

Times = NDArray[np.float64]


def find_middle(run: Measured) -> int:
    """Find the repetition whose makespan is closest to the median."""
    makespans = run.makespans
    return int(np.argmin(np.abs(makespans - np.median(makespans))))


def predict_runs(record: Record, names: Sequence[str], used: Mapping[str, list[Measured]]) -> list[Prediction]:
    """Predict every run of a record that shows calls and messages.

    Costs are taken from the runs ``names``; ``used`` are for each run those but itself.
    """
    site = predict.site_of(record.settings)
    terms = {run.name: overheads_of(run, site) for run in record.runs}
    alone = {
        run.name: terms[run.name] if run.lowered.compute.has_lanes else remove_contention(run, terms[run.name], site)
        for run in record.runs
        if run.name in names
    }
    rounds = {len(run.makespans) for run in record.runs}
    paired = record.settings["ops"] == "compute" and len(rounds) == 1
    steps = record.settings["ops"] == "trace"
    predictions = []
    for run in record.runs:
        others = used[run.name] or [run]
        seen, held = (average_overheads([of[r.name] for r in others], of_steps=steps) for of in (terms, alone))
        if run.lowered.compute.has_lanes:
            predictions.append(predict_beside(run, others, seen, terms[run.name], site))
            continue
        levels = partial(_predict_levels, run, seen=seen, found=held, site=site)
        now = None
        if not (paired and used[run.name]):
            executions = levels(others)
            makespans = {level: np.array([execution.makespan]) for level, execution in executions.items()}
            best = executions["held-out"]
        else:
            pace = find_paces(others)
            now = find_pace_beside(run, record.runs, pace)
            made = [levels([_at_pace(other, each / pace[other.name]) for other in others]) for each in now]
            makespans = {level: np.array([executions[level].makespan for executions in made]) for level in made[0]}
            best = made[find_middle(run)]["held-out"]
        makespans["replay"] = predict.replay(run, terms[run.name], site)
        steady = run if now is None else _at_pace(run, 1.0 / find_pace(run))
        floor = _noise_floor(run, steady, now, terms[run.name], site)
        predictions.append(Prediction(makespans, best, held.gap, held.preamble, floor))
    return predictions


def _predict_levels(
    run: Measured, others: Sequence[Measured], seen: Overheads, found: Overheads, site: Site
) -> dict[str, Execution]:
    """Execute a run at every level but the replay, with costs from ``others``.

    ``seen`` are the overheads of those runs as measured, ``found`` the same without contention.
    """
    late, end = (seen.late, found.late) if site.asleep else (None, None)
    calls = replace(seen, gap=0.0, preamble=0.0)
    return {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, build_network(run, site)),
        "host": execute_with_calls(run, observed_costs(run, others, late), site, calls),
        "held-out": execute_on_cores(run, observed_costs(run, others, end), scale_link(site, found), found),
    }


def find_pace(run: Measured) -> Times:
    """Find how slow each repetition was: the median over its ops of time to the op's median time."""
    took = (run.end - run.start)[:, run.lowered.compute_ops]
    usual = np.median(took, axis=0)
    if not (usual > 0).any():
        return np.ones(len(took))
    slow: Times = np.median(took[:, usual > 0] / usual[usual > 0], axis=1)
    return slow


def find_paces(runs: Sequence[Measured]) -> dict[str, Times]:
    """Find how slow the machine was at each repetition of runs that took turns, by their names.

    :func:`find_pace` knows a run's repetitions from each other, and not the runs: under a steady drift the one that
    runs first has the lower median. So the runs are set against each other such that neighbours differ least.
    """
    logs = np.log(np.maximum([find_pace(run) for run in runs], 1e-9))
    following = np.vstack([logs[1:], np.append(logs[0, 1:], np.nan)])
    steps = -np.nanmedian(following - logs, axis=1) if logs.shape[1] > 1 else np.zeros(len(runs))
    level = np.concatenate([[0.0], np.cumsum(steps - steps.mean())[:-1]])
    paces = np.exp(logs + (level - level.mean())[:, None])
    return {run.name: pace for run, pace in zip(runs, paces, strict=True)}


def find_pace_beside(run: Measured, runs: Sequence[Measured], pace: Mapping[str, Times]) -> Times:
    """Find the machine's pace at each repetition of a run from other runs: before and after it, on average.

    ``runs`` are in the order in which each round ran them; ``pace`` is that of the others' repetitions, by name.
    """
    in_turn = [(turn, each) for turn in range(len(run.makespans)) for each in runs]
    known = [(at, float(pace[each.name][turn])) for at, (turn, each) in enumerate(in_turn) if each.name in pace]
    found = []
    for here in (at for at, (_, each) in enumerate(in_turn) if each is run):
        before = [value for at, value in known if at < here][-1:]
        after = [value for at, value in known if at > here][:1]
        found.append(np.mean(before + after))
    return np.array(found)


def _at_pace(run: Measured, factor: Times) -> Measured:
    """Multiply the times of a run's ops by a factor per repetition; starts stay."""
    return replace(run, end=run.start + (run.end - run.start) * factor[:, None])


def _noise_floor(run: Measured, steady: Measured, now: Times | None, terms: Overheads, site: Site) -> float | None:
    """Predict each repetition from the run's own other ones; returns the median of the absolute errors.

    ``steady`` is the run at one pace throughout, and ``now`` the pace to bring it to, or None for as it is.
    """
    count = len(run.makespans)
    if count < 2:
        return None
    scaled = scale_link(site, terms)
    errors = []
    for row, makespan in enumerate(run.makespans.tolist()):
        own = steady.repetitions([other for other in range(count) if other != row])
        if now is not None:
            own = _at_pace(own, np.full(count - 1, now[row]))
        costs = observed_costs(run, [own])
        errors.append(abs(execute_on_cores(run, costs, scaled, terms).makespan / makespan - 1))
    return float(np.median(errors))
