"""What list scheduling adds to ``ppsim optimize``: the spans found with and without it, group by
group.

python -m tests.benchmarks.ablate_policies [SECONDS [EVERY]]

Each problem is searched twice in SECONDS (3) of --time-limit, with the same seed; EVERY (4) takes
every n-th problem of a group. The groups are the published problems of tests/data/optimize (one
stage per device; a V of two), the same with stages of 0.6 to 1.4 times the time, and the V problems
with the stages of each device in a loop.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from ppsim.core.ops import Kind
from ppsim.search.problem import Problem
from tests.benchmarks.clock import machine
from tests.commands import invoke
from tests.search.orders.published import read_caps, read_v_caps

UNEVEN = (1.0, 0.6, 1.2, 1.4, 0.8)
NAME = "list scheduling"


def words_of(problem: Problem, placement: str, uneven: bool, seconds: float) -> list[str]:
    """Write a problem as the command's options."""
    factor = np.resize(UNEVEN, problem.n_stages) if uneven else np.ones(problem.n_stages)
    times = {
        f"--t{kind.name.lower()}": ",".join(map(str, (problem.costs.time[kind] * factor).tolist()))
        for kind in (Kind.F, Kind.I, Kind.W)
    }
    options = {
        "--devices": problem.n_devices,
        "--mb": problem.microbatches,
        "--placement": placement,
        "--cost-per": "stage",
        **times,
        "--comm": problem.costs.comm,
        "--cap": float(problem.caps.min()),
        "--after-i": problem.after_i,
        "--time-limit": seconds,
    }
    return [str(word) for pair in options.items() for word in pair] + ["--json"]


def groups(every: int) -> Iterator[tuple[str, list[tuple[Problem, str, bool]]]]:
    """The problems of each group, each with its placement and whether its stages are uneven."""
    problems = [problem for _, problem, _ in read_v_caps() + read_caps()]
    one = [problem for problem in problems if problem.placement.name == "linear"][::every]
    two = [problem for problem in problems if problem.placement.name == "v"][::every]
    yield "one stage per device", [(each, "linear", False) for each in one]
    yield "a V", [(each, "v", False) for each in two]
    yield "one uneven stage per device", [(each, "linear", True) for each in one]
    yield "a V of uneven stages", [(each, "v", True) for each in two]
    yield "a loop", [(each, "loop", False) for each in two]
    yield "a loop of uneven stages", [(each, "loop", True) for each in two]


def spans(words: list[str]) -> tuple[float, float, str]:
    """The span found with list scheduling and without it, and what the first came from; infinite
    where none is.
    """
    found = list[float]()
    origin = ""
    for without in (False, True):
        with ExitStack() as stack:
            if without:
                stack.enter_context(
                    patch("ppsim.search.orders.engine.write_policies", lambda problem: iter(()))
                )
                stack.enter_context(
                    patch("ppsim.search.rules.policies.write_near_cap", lambda problem: iter(()))
                )
                stack.enter_context(patch("ppsim.search.orders.v_limit.order_from", uncached()))
            result = invoke("optimize", *words)
        answer: dict[str, Any] = (
            {"span": np.inf, "origin": ""} if result.exit_code else json.loads(result.stdout)
        )
        found.append(answer["span"])
        origin = origin or answer["origin"]
    return found[0], found[1], origin


def uncached() -> object:
    """The search for a V without what it has kept of earlier calls."""
    from ppsim.search.orders.v_limit import order_from

    return order_from.__wrapped__


def main(seconds: float = 3.0, every: int = 4) -> None:
    """Print a row for each group."""
    print(machine())
    print(
        "group | problems | shorter with it | longer with it | median, worst and best ratio | "
        "answers that come from it"
    )
    for name, members in groups(every):
        rows = [spans(words_of(*member, seconds)) for member in members]
        ratios = [own / other if np.isfinite(other) else 1.0 for own, other, _ in rows]
        from_it = sum(origin.startswith(NAME) for _, _, origin in rows)
        shorter, longer = sum(r < 1 - 1e-9 for r in ratios), sum(r > 1 + 1e-9 for r in ratios)
        span = f"{median(ratios):.5f}, {max(ratios):.5f}, {min(ratios):.5f}"
        print(f"{name} | {len(rows)} | {shorter} | {longer} | {span} | {from_it}", flush=True)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 3.0,
        int(sys.argv[2]) if len(sys.argv) > 2 else 4,
    )
