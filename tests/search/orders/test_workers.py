"""The search on workers elsewhere finds what threads find."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ppsim.base.workers import open_workers
from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.search.orders import improve
from ppsim.search.orders.engine import search
from ppsim.search.problem import Problem
from tests.commands import invoke


@pytest.mark.slow
def test_walks_on_workers_find_the_same_as_in_threads(monkeypatch):
    """A round of the same seed and as many workers give the same queues."""
    monkeypatch.setattr(improve, "TIMINGS_OF_A_WALK", 5000)
    problem = Problem(
        place("linear", 4, 4),
        6,
        Costs(np.array([[3.0], [9.0], [5.0], [4.0]]) * np.ones(4), comm=0.5),
        4,
    )
    options: dict[str, Any] = {"seed": 3, "rounds": 1, "workers": 1, "time_limit": 60.0}
    here = search(problem, **options)
    with open_workers() as workers:
        there = search(problem, **options, run=workers.run)
    assert here is not None
    assert there is not None
    assert (there.makespan, there.span) == (here.makespan, here.span)
    assert (there.schedule.microbatch == here.schedule.microbatch).all()


@pytest.mark.slow
def test_optimize_takes_workers_of_dask():
    words = ["optimize", "--devices", "4", "--mb", "8", "--cap", "4", "--time-limit", "8", "--json"]
    answer = json.loads(invoke(*words, "--dask", "local").stdout)
    assert answer["span"] == 27
    assert answer["status"] in ("optimal", "feasible")
