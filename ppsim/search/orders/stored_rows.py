"""Finished searches as rows of plain data, so that a later run need not search again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ppsim.base.patterns import matches
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, PpsimError
from ppsim.search.orders.optimize import NamedSolution, Outcome
from ppsim.search.problem import ROUNDING, Problem, evaluate, solves

# The columns of a schedule.
COLUMNS = {
    "offsets": np.int64,
    "kind": np.uint8,
    "stage": np.int32,
    "microbatch": np.int32,
    "pair": np.int32,
}


def describe_problem(problem: Problem) -> list[object]:
    """Return all inputs of a search except seed and time, as plain data."""
    costs = problem.costs
    prices = [
        None if value is None else np.asarray(value).tolist()
        for value in (costs.time, costs.comm, costs.pair)
    ]
    cap = None if problem.cap is None else problem.caps.tolist()
    placement = [problem.placement.name, problem.placement.devices.tolist()]
    return [
        placement,
        problem.microbatches,
        prices,
        costs.unit,
        cap,
        problem.after_i,
        problem.objective,
        problem.layers,
    ]


def row_of(found: Outcome) -> dict[str, Any]:
    """Return an outcome as a row: its metrics, and the schedule's columns."""
    solution = found.solution
    return {
        "placement": found.problem.placement.name,
        "makespan": solution.makespan,
        "span": solution.span,
        "bound": found.bound,
        "status": found.status,
        "peak": solution.most_held,
        "origin": solution.origin,
        "solver": found.solver,
        "interrupted": found.interrupted,
        "schedule": {
            "name": solution.schedule.name,
            **{name: getattr(solution.schedule, name).tolist() for name in COLUMNS},
        },
    }


def is_sound(key: str, row: Mapping[str, Any]) -> bool:
    """Return True if a row has all the names of an outcome's row, with values of their types."""
    kinds = {
        **dict.fromkeys(("placement", "status", "origin"), str),
        **dict.fromkeys(("makespan", "span", "bound", "peak"), float),
        **dict.fromkeys(("solver", "interrupted"), bool),
        "schedule": {"name": str, **{name: [int] for name in COLUMNS}},
    }
    return matches(row, kinds)


def outcome_of(
    row: Mapping[str, Any], problems: Sequence[Problem], known: Sequence[Sequence[NamedSolution]]
) -> Outcome:
    """Return the outcome that a row stores; its metrics are computed from the schedule's ops.

    Raises:
        InputError: the row has no schedule of these problems.
    """
    try:
        problem = next(
            problem for problem in problems if problem.placement.name == row["placement"]
        )
        columns: dict[str, Any] = {
            name: np.array(row["schedule"][name], of) for name, of in COLUMNS.items()
        }
        schedule = Schedule(
            row["schedule"]["name"], problem.placement, problem.microbatches, **columns
        )
        solution = evaluate(problem, schedule, row["origin"])
        if (
            not solves(problem, schedule)
            or (solution.peak_activations > problem.caps + ROUNDING).any()
        ):
            raise ValueError
        compared = tuple(
            entry
            for each, entries in zip(problems, known, strict=True)
            if each.is_feasible
            for entry in entries
        )
        return Outcome(problem, solution, row["bound"], compared, row["solver"], row["interrupted"])
    except (IndexError, OverflowError, ValueError, StopIteration, PpsimError) as error:
        raise InputError(
            "a row of the results file has no schedule of this search",
            "give the name of a new file",
        ) from error
