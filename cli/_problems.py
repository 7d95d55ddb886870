"""From options to problems for ``optimize``: one for each placement, with the schedules of the list to start from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ppsim.cli._build import build_costs, build_schedule, check_used
from ppsim.cli._options import CostOptions, ShapeOptions
from ppsim.errors import InputError, PpsimError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Placement, Schedule
    from ppsim.search.optimize import Known
    from ppsim.search.problem import Objective, Problem

PLACEMENTS = ("linear", "v", "loop")
SLOW = "v-auto"  # the only schedule of the list that takes seconds, and half a minute where it has to be compiled


@dataclass(frozen=True)
class SearchOptions:
    """What to search for.

    Attributes:
        placement: one of PLACEMENTS, or auto for all that the numbers allow.
        cap: activations that a device may hold: of one stage, with auto of a device's 1/P share of the model, and with
            a layout of one layer.
        after_i: share of an activation that is held between I and W.
        objective: what is to be least.
    """

    placement: str
    cap: float | None
    after_i: float
    objective: Objective


def make_problems(shape: ShapeOptions, costs: CostOptions, search: SearchOptions) -> list[Problem]:
    """Make the problem of each placement asked for.

    Raises:
        InputError: numbers or costs that fit none of them.
    """
    if shape.devices is None or shape.microbatches is None:
        raise InputError("the size is missing", "--devices P --mb M")
    if min(shape.devices, shape.microbatches, shape.chunks or 1) < 1:
        raise InputError("devices, chunks and microbatches must be at least 1")
    auto = search.placement == "auto"
    problems, refused = list[Any](), list[InputError]()
    for name in PLACEMENTS if auto else (search.placement,):
        try:
            problems.append(_problem(name, shape, costs, search))
        except InputError as error:
            if not auto:
                raise
            refused.append(error)
    if not problems:
        raise refused[0]
    return problems


def _problem(name: str, shape: ShapeOptions, costs: CostOptions, search: SearchOptions) -> Problem:
    from ppsim.core.schedule import place
    from ppsim.search.problem import Problem

    P, M = shape.devices or 1, shape.microbatches or 1
    chunks = _chunks(name, shape, costs, auto=search.placement == "auto")
    placement = place(name, P, P * chunks)
    priced = build_costs(_empty(placement, M), costs)
    layers = layers_of_stages(costs)
    cap = search.cap * chunks if search.cap and search.placement == "auto" and not layers else search.cap
    return Problem(placement, M, _at_full_speed(priced, placement), cap, search.after_i, search.objective, layers)


def layers_of_stages(costs: CostOptions) -> tuple[int, ...] | None:
    """Count the layers of each stage as memory does: transformer and MTP layers; None without a layout."""
    from ppsim.layout.text import parse_content

    return tuple(stage.count("t") + stage.count("m") for stage in parse_content(costs.layout)) if costs.layout else None


def _chunks(name: str, shape: ShapeOptions, costs: CostOptions, *, auto: bool) -> int:
    """Stages per device: as given, as the layout has them, or the placement's own.

    Raises:
        InputError: the placement has another number.
    """
    P, chunks = shape.devices or 1, shape.chunks
    if costs.layout:
        from ppsim.layout.layout import nearest_layout
        from ppsim.layout.text import parse_content

        stages = len(parse_content(costs.layout))
        if stages % P or chunks not in (None, stages // P):
            each = chunks or (1 if name == "linear" and not auto else max(1 if auto else 2, round(stages / P)))
            what = f"the layout has {stages} stages, which do not fit {P} devices x {chunks or 'any'} chunks"
            raise InputError(what, nearest_layout(costs.layout, P, P * each))
        chunks = stages // P
    if chunks is None:
        chunks = 1 if name == "linear" else 2
    if (chunks == 1) != (name == "linear"):
        have = "one stage" if name == "linear" else "at least two stages"
        raise InputError(
            f"placement {name} has {have} per device, and {chunks} is asked for",
            "--placement v or loop" if name == "linear" else "--placement linear",
        )
    return chunks


def _empty(placement: Placement, microbatches: int) -> Schedule:
    """A schedule without ops, which costs are made for."""
    from ppsim.core.schedule import Schedule

    nothing = [np.empty(0, np.int64)] * placement.n_devices
    return Schedule.from_queues("optimized", placement, microbatches, nothing)


def _at_full_speed(costs: Costs, placement: Placement) -> Costs:
    """The costs with each device's speed in the times of its stages."""
    if costs.speed is None:
        return costs
    speed = costs.speed[placement.devices[0]]
    pair = None if costs.pair is None else costs.pair / speed
    return replace(costs, time=costs.time / speed, pair=pair, speed=None)


def find_known(problem: Problem, costs: CostOptions, until: float = np.inf) -> list[Known]:
    """Generate and time every schedule of the list with the problem's placement that takes its shape.

    The one that searches for seconds comes last, and not at all where that takes longer than ``until`` on the monotonic
    clock; stderr says so.
    """
    from ppsim.base.deadline import TimeOver, check_time, end_by
    from ppsim.schedules import families
    from ppsim.search.optimize import know, solves

    found = []
    placement, M = problem.placement, problem.microbatches
    size = ShapeOptions(devices=problem.n_devices, chunks=placement.n_chunks, microbatches=M)
    with end_by(until):
        for family in sorted(families(), key=lambda family: family.name == SLOW):
            if not family.interchangeable or family.placement.partition("-")[0] != placement.name:
                continue
            for shape in _shapes(size, problem, family.options):
                try:
                    if family.name == SLOW:
                        check_time()
                    schedule = build_schedule(family.name, shape, costs, quiet=True)
                except PpsimError:  # this family does not take the shape
                    continue
                except TimeOver:
                    click.echo(f"{family.name} is left out of the list: the time ended before it", err=True)
                    break
                if solves(schedule, problem):
                    found.append(know(family.name, schedule, problem, problem.costs))
                    break
    return found


def _shapes(size: ShapeOptions, problem: Problem, options: tuple[str, ...]) -> list[ShapeOptions]:
    """The shape, first with the cap as the limit of a family that takes one, in activations of its largest stage."""
    most = np.zeros(problem.n_devices)
    np.maximum.at(most, problem.device, problem.amounts)
    cap = float((problem.caps / np.maximum(most, 1)).min())
    limited = [replace(size, limit=int(cap))] if "limit" in options and cap < 1e9 else []
    return [*limited, size]


def check_times(problems: list[Problem], known: list[list[Known]], costs: CostOptions) -> None:
    """Refuse times that neither the search nor a schedule of the list uses."""
    from ppsim.core.ops import Kind, pack
    from ppsim.core.schedule import Schedule

    problem = problems[0]
    queues: list[Any] = [np.empty(0, np.int64) for _ in range(problem.n_devices)]
    queues[int(problem.device[0])] = np.array([int(pack(0, 0)) | kind for kind in (Kind.F, Kind.I, Kind.W)])
    split = Schedule.from_queues("a search", problem.placement, problem.microbatches, queues)
    check_used([split, *(entry.schedule for entries in known for entry in entries)], costs)
