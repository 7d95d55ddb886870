"""A pattern solved for one period repeats without a clash, within the caps, and no shorter one is possible."""

import sys
from time import monotonic

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.search.orders.periodic import bound_period, complete, find_pattern, repeat, write_periodic
from ppsim.search.orders.solver import count_steps, import_solver
from ppsim.search.problem import Problem, evaluate, fits
from ppsim.search.rules.orders import write_schedule

pytest.importorskip("ortools")


def ask(placement, microbatches, times, cap, comm=1.0, **more):
    f, i, w = (np.broadcast_to(np.asarray(t, float), placement.n_stages) for t in times)
    return Problem(placement, microbatches, Costs(np.stack([f, i + w, i, w]), comm), cap, **more)


UNEVEN = ask(place("linear", 3, 3), 9, ([3, 4, 2], [4, 5, 3], [2, 3, 2]), cap=3)
SHARES = ask(place("v", 2, 4), 9, (2, 3, 1), cap=4, after_i=0.5)
LAYERS = ask(place("loop", 2, 4), 9, ([2, 4, 4, 3], [3, 4, 4, 4], 2), cap=9, layers=(1, 2, 2, 1))


@pytest.mark.parametrize("problem", [UNEVEN, SHARES, LAYERS], ids=["uneven", "shares", "layers"])
def test_the_busiest_device_never_waits_once_the_pattern_runs(problem):
    """The period is that device's work; both ways to write the schedule fit the caps and finish."""
    grid = count_steps(problem)
    found = find_pattern(import_solver(), problem, grid, monotonic() + 20)
    assert found is not None
    offsets, period = found
    work = np.bincount(problem.device, grid.time.sum(axis=0))
    assert period == work.max()
    for device in range(problem.n_devices):
        own = problem.device == device
        slots = [
            np.arange(at, at + n) % period for at, n in zip(offsets[:, own].flat, grid.time[:, own].flat, strict=True)
        ]
        assert len(np.unique(np.concatenate(slots))) == work[device]
    for queues in (repeat(problem, *found), complete(problem, *found)):
        assert queues is not None
        solution = evaluate(problem, write_schedule(problem, queues), "")
        assert fits(problem, solution.schedule)
        assert solution.span * grid.steps >= problem.microbatches * period


def test_a_cap_of_one_repeats_a_whole_round_trip():
    """Nothing of the next microbatch fits before the first has ended: the least period that memory allows is found."""
    problem = ask(place("linear", 2, 2), 9, (1, 1, 1), cap=1)
    found = find_pattern(import_solver(), problem, count_steps(problem), monotonic() + 20)
    assert found is not None
    assert found[1] == bound_period(problem, count_steps(problem)) == 1 + 1 + 1 + 1 + 1 + 1 + 1


def test_small_problems_and_a_missing_solver_have_no_pattern(monkeypatch):
    large = ask(place("linear", 4, 4), 128, (1, 1, 1), cap=4)
    assert [len(list(write_periodic(problem, np.inf))) for problem in (UNEVEN, large)] == [0, 2]
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    assert list(write_periodic(large, np.inf)) == []
