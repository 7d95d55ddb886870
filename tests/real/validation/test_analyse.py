"""Classes of time that agree on both sides, and a ranking of held-out predictions only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.lowering.lower import lower
from ppsim.inputs.drafts.read import parse
from ppsim.inputs.profile.profile import Message
from ppsim.real.runs.record import Measured, Record, load
from ppsim.real.runs.session import link_of
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.insitu import observed_costs
from ppsim.real.validation.verdict import CLASSES
from ppsim.schedules import generate
from tests.refresh_records import FOLDER

GAP, PREAMBLE = 1.0, 2.0


def run_alone(name: str = "gpipe", chunks: int | None = None) -> Measured:
    """One device whose ops take just their time, a gap apart, after a preamble."""
    lowered = lower(generate(name, devices=1, microbatches=4, chunks=chunks))
    costs = costs_for(lowered.compute, tf=5.0, tb=10.0, unit="ms")
    took, leads = costs.durations(lowered.compute), lowered.compute.leads
    start = PREAMBLE + np.cumsum(np.where(leads, took + GAP, 0.0)) - took - GAP
    start, end = start[None], (start + took)[None]
    return Measured(name, lowered, costs, start, start, end, end[:, -1:])


@pytest.mark.parametrize(("name", "chunks"), [("gpipe", None), ("dualpipe-v", 2)])
def test_a_perfect_prediction_leaves_no_residual(name, chunks):
    """Gaps and the preamble are the host's on both sides; they were waiting on one and the host's
    on the other.
    """
    run = run_alone(name, chunks)
    settings = {"ops": "timed", "message_bytes": 0, "link": {}, "cores": 0}
    (verdict,) = validate(Record((run,), settings, {})).verdicts
    assert verdict.best.makespan == pytest.approx(verdict.makespan)
    np.testing.assert_allclose(verdict.residual, np.zeros((1, len(CLASSES))), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timed-p2", "compute-p2"])
def test_only_schedules_predicted_from_others_are_ranked(name):
    """Every pair more than 2 % apart, without the one whose costs are its own."""
    record = load(str(FOLDER / f"{name}.json.gz"))
    result = validate(record)
    ranked = [v for v in result.verdicts if v.held_out]
    assert len(ranked) == len(record.runs) - (name == "timed-p2")
    spans = [v.makespan for v in ranked]
    pairs = [
        (a, b) for i, a in enumerate(spans) for b in spans[:i] if abs(a - b) > 0.02 * min(a, b)
    ]
    assert result.pairs == len(pairs)
    alone = validate(replace(record, runs=record.runs[:2]))
    assert alone.pairs <= (name == "compute-p2")


def test_a_pair_overshoots_once_whatever_its_ops():
    """A forward paired with a backward for the input took the overshoot twice."""
    rows = "0F0,(0F1;0I0)OVERLAP_F_B,0I1,0W0,0W1"
    schedule = parse(rows, "own.csv").schedule()
    costs, lowered = costs_for(schedule, tf=5.0, ti=4.0, tw=3.0, unit="ms"), lower(schedule)
    times = np.zeros((1, len(schedule)))
    run = Measured("own", lowered, costs, times, times, times, times[:, -1:])
    late = observed_costs(run, [run], late=0.5).durations(schedule)
    np.testing.assert_allclose(late, [5.5, 9.5, 9.5, 4.5, 3.5, 3.5])


def test_a_late_receive_adds_no_more_than_a_message():
    """Beyond that a time slice of the machine's scheduler was measured."""

    def rows(late: float) -> list[Message]:
        times = {("early", 1024): 0.1, ("early", 2048): 0.1, ("late", 2048): late}
        return [Message("same-host", p, size, ms, ms, ms, 5) for (p, size), ms in times.items()]

    assert link_of(rows(3.0), 2048).late == pytest.approx(0.1)
    assert link_of(rows(0.15), 2048).late == pytest.approx(0.05)
