"""The difference of two runs is that of their terms: nothing is lost between them, and the same run
has none.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.diff import TERMS, closing, diff_object, difference, largest, stage_changes
from ppsim.analysis.idle import arrivals, explain_execution, explain_idle
from ppsim.core.costs import costs_for
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules

NAMES = PLAIN


def timed(schedule, times):
    timeline = simulate(schedule, times)
    return explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))


def run(name, devices=4, microbatches=8, **times):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    return timed(schedule, costs_for(schedule, **times))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@FEW
@given(st.data())
def test_terms_sum_to_the_makespans_and_their_difference(name, data):
    """Whatever the two schedules, costs and numbers of devices."""
    runs = []
    for each in (name, data.draw(st.sampled_from(NAMES))):
        schedule = data.draw(schedules(each))
        runs.append(timed(schedule, data.draw(costs(schedule, EIGHTHS))))
    found = difference(*runs)
    for terms, makespan in zip(found.terms, found.makespans, strict=True):
        np.testing.assert_allclose(terms.sum(axis=1), makespan, rtol=0, atol=1e-9)
    first, second = found.makespans
    assert sum(found.by_cause.values()) == pytest.approx(second - first, abs=1e-9)
    if found.by_device is not None:
        np.testing.assert_allclose(found.by_device.sum(axis=1), second - first, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["overlap", "blocking"])
def test_detailed_runs_sum_too(mode):
    """Against the simple model of the same schedule, all that differs is waiting, the host and
    messages.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    times = costs_for(schedule, comm=0.25)
    host = Host(send=0.125, receive=0.0625, gap=0.0625, preamble=0.5, epilogue=0.25)
    detailed = explain_execution(
        execute(lower(schedule), times, Network(mode, alpha=0.25, host=host))
    )
    found = difference(timed(schedule, times), detailed)
    first, second = found.makespans
    assert second > first
    assert sum(found.by_cause.values()) == pytest.approx(second - first, abs=1e-9)
    assert found.by_cause["F"] == found.by_cause["B"] == 0
    assert found.by_cause["host"] > 0


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "dualpipe-v"])
@FEW
@given(st.data())
def test_runs_on_any_network_sum(name, data):
    """Whatever the latencies, the hosts and the way messages are sent, terms sum to the
    makespans.
    """
    runs = []
    for _ in range(2):
        schedule = data.draw(schedules(name))
        mode = data.draw(st.sampled_from(["latency", "overlap"]))
        host = Host(*data.draw(st.lists(EIGHTHS, min_size=7, max_size=7)))
        network = Network(mode, alpha=data.draw(EIGHTHS), host=host)
        runs.append(
            explain_execution(
                execute(lower(schedule), data.draw(costs(schedule, EIGHTHS)), network)
            )
        )
    found = difference(*runs)
    first, second = found.makespans
    for terms, makespan in zip(found.terms, found.makespans, strict=True):
        np.testing.assert_allclose(terms.sum(axis=1), makespan, rtol=0, atol=1e-9 * (1 + makespan))
    assert sum(found.by_cause.values()) == pytest.approx(
        second - first, abs=1e-9 * (1 + first + second)
    )


def test_a_run_does_not_differ_from_itself():
    found = difference(run("zb-1p"), run("zb-1p"))
    assert set(found.by_cause.values()) == {0.0}
    assert not found.duration_change.any()
    assert not found.start_change.any()
    assert len(found.ops) == 96
    assert closing(found, ("A", "B")) == "B takes as long as A"


def test_1f1b_against_zb_1p():
    """What zero-bubble saves at P = 4, F = I = W = 1: all of the drain, and half of the
    turnaround.
    """
    found = difference(run("1f1b"), run("zb-1p"))
    assert found.by_cause == {
        "F": 0,
        "B": -16,
        "I": 8,
        "W": 8,
        "compute": -1.5,
        "fill": 0,
        "turnaround": -1.5,
        "drain": -3,
    }
    assert found.by_device is not None
    assert found.by_device[:, TERMS.index("drain")].tolist() == [0, -2, -4, -6]
    said = (
        "zb-1p is 6 t_F shorter than 1f1b (−18.2%), per device on average: drain −3, compute "
        "−1.5, turnaround −1.5"
    )
    assert closing(found, ("1f1b", "zb-1p")) == said


def test_the_largest_shifts_are_named():
    """Stage 2 takes twice as long: each of its ops by 1, its mean likewise; the end slips by all of
    it.
    """
    found = difference(run("1f1b"), run("1f1b", tf=[1, 1, 2, 1]))
    schedule = found.runs[0].timeline.schedule
    longer = [
        schedule.label(int(found.ops[i, 0])) for i in largest(found.duration_change, 99, 1e-9)
    ]
    assert sorted(longer) == [f"2F{m}" for m in range(8)]
    assert stage_changes(found) == [("F of stage 2", 1.0, 2.0)]
    (latest,) = largest(found.start_change, 1, 1e-9)
    assert found.start_change[latest] == found.makespans[1] - found.makespans[0]


def test_ops_of_other_cuts_of_the_model_are_not_the_same():
    assert len(difference(run("1f1b"), run("interleaved")).ops) == 0


def test_units_convert_or_are_refused():
    """A second in one run is a thousand milliseconds in the other; t_F is no length."""
    found = difference(run("1f1b", tf=1000, tb=2000, unit="ms"), run("1f1b", unit="s"))
    assert set(found.by_cause.values()) == {0.0}
    with pytest.raises(InputError, match="t_F and in ms cannot be compared"):
        difference(run("1f1b"), run("1f1b", unit="ms"))


def test_the_object_has_both_runs():
    found = difference(run("1f1b"), run("zb-1p", devices=2))
    made = diff_object(found, ("a", "b"), {})
    assert made["schema"] == "ppsim.diff/1"
    assert made["makespan"] == [*found.makespans]
    assert made["difference_by_device"] is None
    assert [each["name"] for each in made["runs"]] == ["a", "b"]
    assert [sum(each.values()) for each in made["by_cause"]] == [*found.makespans]
