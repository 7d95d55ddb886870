"""The film of a search: its best orders one after the other in a page, with what was proved by then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppsim.search.orders.optimize import Outcome
    from ppsim.search.problem import Solution
    from ppsim.show.files.document import Document

MOST_STEPS, MOST_OPS = 40, 60_000  # ops of all its timelines


@dataclass(frozen=True)
class Step:
    """What a search knew after ``seconds``: the best schedule, and a bound of the objective."""

    seconds: float
    solution: Solution
    bound: float


def film(document: Document, steps: Sequence[Step], found: Outcome, lead: str) -> Document:
    """Add the best orders of a search on its last placement; the document as it is where there is one only."""
    import numpy as np

    from ppsim.engine.simple.longest_path import simulate
    from ppsim.show.files.document import Story

    problem, placed = found.problem, found.problem.placement.devices
    steps = [step for step in steps if np.array_equal(step.solution.schedule.placement.devices, placed)][-MOST_STEPS:]
    orders = list({id(step.solution): step.solution for step in steps}.values())
    if len(orders) < 2 or sum(len(order.schedule) for order in orders) > MOST_OPS:
        return document
    places = {id(order): place for place, order in enumerate(orders)}
    told = [
        {
            "timeline": places[id(step.solution)],
            "seconds": round(step.seconds, 3),
            "value": (value := step.solution.score(problem.objective)[0]),
            "bound": min(step.bound, value),
        }
        for step in steps
    ]
    return replace(
        document,
        timelines=tuple(simulate(order.schedule, problem.costs) for order in orders),
        titles=tuple(order.origin for order in orders),
        title=document.title or document.titles[-1],
        story=Story({"lead": lead, "objective": problem.objective, "steps": told}),
    )
