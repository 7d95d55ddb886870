"""Explanations: which changes are tried, which is advised, and the same as one object."""

import numpy as np

from ppsim.analysis.explain import (
    MemoryRoom,
    advise,
    explain,
    explain_object,
    explain_times,
    timed_change,
)
from ppsim.analysis.observed import observe
from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate


def run(name="1f1b", devices=4, microbatches=8, **times):
    schedule = generate(name, devices=devices, microbatches=microbatches)
    costs = costs_for(schedule, **times)
    return simulate(schedule, costs), costs


def test_the_change_with_the_least_time_per_microbatch_is_advised():
    timeline, costs = run(comm=0.5)
    found = explain(timeline, costs)
    free = timed_change("messages take no time", "hide or shorten messages", run()[0])
    longer, _ = run(microbatches=32)
    more = timed_change("more microbatches", "use 32 microbatches", longer)
    less = 1 - (35 * 3 / 32) / (timeline.makespan / 8)
    assert advise(found, [free, more]) == (
        f"first: use 32 microbatches, {less:.1%} less time per microbatch "
        f"(bubble_rate {found.metrics.bubble_rate:.1%} to {3 / 35:.1%})"
    )
    same = timed_change("nothing", "do nothing", timeline)
    most = sorted((time, cause) for cause, time in found.idle.by_cause.items())[-1][1]
    assert advise(found, [same]).startswith(
        f"none of these changes helps; most of the idle time is {most}: "
    )
    assert advise(found, []).startswith("none of these changes helps")
    alone = explain(*run("gpipe", devices=1))
    assert advise(alone, [same]) == "no device is ever idle: only faster ops make it faster"


def test_an_explanation_as_an_object():
    timeline, costs = run()
    made = explain_object(explain(timeline, costs), [], {"a": 1})
    assert (made["makespan"], made["simulated_makespan"], made["idle"]) == (
        33.0,
        33.0,
        4 * 33.0 - 4 * 24.0,
    )
    assert sum(made["idle_by_cause"].values()) == made["idle"]
    by_device = np.sum(
        [made["causes_by_device"][cause] for cause in made["causes_by_device"]], axis=0
    )
    assert by_device.tolist() == [9.0] * 4
    assert made["critical_path_length"] == 33.0
    assert made["critical_path"][0] == {"op": "0F0", "device": 0, "start": 0.0}
    assert len(made["slack"]) == 64
    assert made["critical_paths"] >= 1
    assert made["what_if"] == []
    assert (made["devices"], made["stages"], made["microbatches"], made["inputs"]) == (
        4,
        4,
        8,
        {"a": 1},
    )


def test_times_that_are_stated_are_compared_with_what_they_show():
    timeline, costs = run(comm=0.5)
    found = explain_times(observe(timeline))
    assert found.is_stated
    assert not explain(timeline, costs).is_stated
    assert found.base.makespan == timeline.makespan
    assert found.slack is not None
    assert (found.slack.slack >= 0).all()
    made = explain_object(found, [], {})
    assert made["critical_paths"] is None
    assert made["slack"] is found.slack.slack


def test_a_stated_cap_of_activations_counts_those_of_stages():
    """What the run itself holds, and bytes, state no number of activations."""
    assert MemoryRoom(4.0, 2.5, "activations", is_given=True).activations(2) == 5
    assert MemoryRoom(4.0, 2.5, "activations").activations(2) == 0
    assert MemoryRoom(4.0, 2.5, "B", is_given=True).activations(2) == 0
