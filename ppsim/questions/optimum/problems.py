"""From options to problems for ``optimize``: one for each placement, with the schedules of the list
to start from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ppsim.ask.groups import ShapeOptions, Value
from ppsim.ask.options import common, option
from ppsim.ask.types import COUNT, Activations, Amount
from ppsim.base.deadline import TimeOver, check_time, end_by, interrupt_at
from ppsim.base.notes import note
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import build_costs, build_schedule, check_used
from ppsim.prices.cap import OF_A_SHARE, number_at_least
from ppsim.prices.options import CostOptions

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Placement
    from ppsim.search.orders.optimize import NamedSolution
    from ppsim.search.problem import Objective, Problem

PLACEMENTS = ("linear", "v", "loop")
# Seconds that a schedule takes for each op to be made and timed, to be drawn too, and for each
# device; those after the limit that it may take.
TIMED_S, OP_S, DEVICE_S, LATE_S = 1.5e-7, 2e-7, 1.5e-5, 2.0


@dataclass(frozen=True)
class SearchOptions:
    """Options of the objective and the limits of a search."""

    devices: int | None = common("--devices", "--pp", type=COUNT, help="Pipeline devices, P.")
    chunks: int | None = common(
        "--chunks", "--vpp", type=COUNT, help="Stages per device, V (2 for v and loop)."
    )
    microbatches: int | None = common(
        "--mb", "-m", "--microbatches", type=COUNT, help="Microbatches, M."
    )
    placement: str = common(
        "--placement",
        type=click.Choice([*PLACEMENTS, "auto"]),
        default="linear",
        help="Which device holds which stage; auto tries all.",
    )
    cap: Value | None = common(
        "--cap",
        type=Activations(),
        metavar="NUMBER[,NUMBER...]",
        help="The most a device may hold: a number counts activations of a device's 1/P share of "
        "the model, with "
        "--layout of one layer; a list has one for each device.",
    )
    after_i: float = option(
        "--after-i",
        type=Amount(0, 1),
        default=1.0,
        help="Share of an activation that is still held between I and W.",
    )
    objective: Objective = common(
        "--objective",
        type=click.Choice(["span", "makespan"]),
        default="span",
        help="What is to be least: the longest time from a device's first start to its last end, "
        "or the makespan.",
    )


def make_problems(search: SearchOptions, costs: CostOptions) -> list[Problem]:
    """Make the problem of each placement asked for (InputError: no size, or numbers or costs that
    fit none of them).
    """
    if search.devices is None or search.microbatches is None:
        raise InputError("the size is missing", "--devices P --mb M")
    auto = search.placement == "auto"
    problems, refused = list[Any](), list[InputError]()
    for name in PLACEMENTS if auto else (search.placement,):
        try:
            problems.append(_problem(name, search, costs))
        except InputError as error:
            if not auto:
                raise
            refused.append(error)
    if not problems:
        raise refused[0]
    return problems


def _problem(name: str, search: SearchOptions, costs: CostOptions) -> Problem:
    from ppsim.core.schedule import Schedule, place
    from ppsim.schedules import Shape, check_size
    from ppsim.search.problem import Problem

    P, M, cap = search.devices or 1, search.microbatches or 1, search.cap
    chunks = _chunks(name, search, costs)
    check_size(Shape(P, chunks, M))
    placement = place(name, P, P * chunks)
    nothing = [np.empty(0, np.int64)] * P
    priced = build_costs(Schedule.from_queues("optimized", placement, M, nothing), costs)
    layers = layers_of_stages(costs)
    if cap is not None and not layers:
        cap = (np.asarray(cap) * chunks).tolist()
    priced = _at_full_speed(priced, placement)
    return Problem(placement, M, priced, cap, search.after_i, search.objective, layers)


def _text(cap: Value) -> str:
    return ",".join(f"{each:g}" for each in np.atleast_1d(np.asarray(cap)))


def layers_of_stages(costs: CostOptions) -> tuple[int, ...] | None:
    """Count the layers of each stage as memory does: transformer and MTP layers; None without a
    layout.
    """
    from ppsim.workload.layout.text import parse_content

    return (
        tuple(stage.count("t") + stage.count("m") for stage in parse_content(costs.layout))
        if costs.layout
        else None
    )


def _chunks(name: str, search: SearchOptions, costs: CostOptions) -> int:
    """Stages per device: as given, as the layout has them, or the placement's (InputError: it has
    another number).
    """
    P, chunks, auto = search.devices or 1, search.chunks, search.placement == "auto"
    if costs.layout:
        from ppsim.workload.layout.text import parse_content

        stages = len(parse_content(costs.layout))
        if stages % P or chunks not in (None, stages // P):
            from ppsim.workload.layout.layout import nearest_layout

            each = chunks or (
                1 if name == "linear" and not auto else max(1 if auto else 2, round(stages / P))
            )
            what = (
                f"the layout has {stages} stages, which do not fit {P} devices x "
                f"{chunks or 'any'} chunks"
            )
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


def _at_full_speed(costs: Costs, placement: Placement) -> Costs:
    """The costs with each device's speed in the times of its stages."""
    if costs.speed is None:
        return costs
    speed = costs.speed[placement.devices[0]]
    pair = None if costs.pair is None else costs.pair / speed
    return replace(costs, time=costs.time / speed, pair=pair, speed=None)


def check_feasible(problems: list[Problem], search: SearchOptions) -> None:
    """Refuse a cap below the least memory of any schedule (PpsimError: on every placement; with the
    least cap that works).
    """
    if all(not problem.is_feasible for problem in problems):
        least = number_at_least(
            min(
                float(p.least_caps.max()) / share
                for p, share in zip(problems, shares_of(problems), strict=True)
            )
        )
        assert search.cap is not None
        stages = int(problems[0].least_caps.max())
        why = (
            "one microbatch goes forward through all stages before its first backward"
            if stages > 1
            else "it runs F"
        )
        counted = "activations of one layer" if problems[0].layers else f"activations {OF_A_SHARE}"
        raise PpsimError(
            f"no schedule fits --cap {_text(search.cap)}: {why}, so a device holds {least} "
            f"{counted} at least",
            f"--cap {least}, the least that works",
        )


def check_time_for(problems: list[Problem], time_limit: float) -> None:
    """Refuse a size for whose first schedule the time is too short (PpsimError: with the time that
    is enough).
    """
    least = min(problems, key=_shortest_seconds)
    if (takes := _shortest_seconds(least)) > time_limit + LATE_S:
        seconds = int(np.ceil(takes - LATE_S))
        on = f" on {least.n_devices:,} devices" if DEVICE_S * least.n_devices > takes / 2 else ""
        size = f"{2 * least.n_stages * least.microbatches:,} ops{on}"
        what = (
            f"one schedule of {size} takes about {takes:,.0f} s, more than --time-limit "
            f"{time_limit:g} allows"
        )
        raise PpsimError(what, f"--time-limit {seconds}, or a smaller size")


def _shortest_seconds(problem: Problem, op_s: float = OP_S) -> float:
    """Seconds that the shortest schedule of a problem takes, with these for each op."""
    return op_s * 2 * problem.n_stages * problem.microbatches + DEVICE_S * problem.n_devices


def shares_of(problems: list[Problem]) -> list[int]:
    """Return how many activations of one stage one unit of ``--cap`` stands for on each placement;
    1 for layers.
    """
    return [1 if problem.layers else problem.placement.n_chunks for problem in problems]


def find_known(
    problem: Problem, costs: CostOptions, until: float = np.inf, grace: float = 0.0
) -> list[NamedSolution]:
    """Generate and time every schedule of the list with the problem's placement that takes its
    shape.

    Rivals with full backwards come first, rivals that fill slots and rivals that search last. What
    is not there by ``until`` on the monotonic clock is left out, and a large one above the cap;
    stderr says so. The first may take ``grace`` seconds longer.
    """
    from ppsim.schedules import families
    from ppsim.search.orders.optimize import know
    from ppsim.search.problem import LARGE, evaluate, is_held, solves

    found, late, above = list[Any](), list[str](), list[str]()
    takes = _shortest_seconds(problem, TIMED_S)
    placement, M = problem.placement, problem.microbatches
    size = ShapeOptions(devices=problem.n_devices, chunks=placement.n_chunks, microbatches=M)
    for family in sorted(
        families(), key=lambda family: (family.uses_costs, family.fills, family.split)
    ):
        if not family.interchangeable or family.placement.partition("-")[0] != placement.name:
            continue
        try:
            last = until if found or above else until + grace
            with end_by(last), interrupt_at(last):
                check_time(takes)
                for shape in _shapes(size, problem, family.options):
                    try:
                        schedule = build_schedule(family.name, shape, costs, quiet=True)
                    except PpsimError:  # this family does not take the shape
                        continue
                    if not solves(problem, schedule):
                        continue
                    if len(schedule) >= LARGE and not is_held(problem, schedule):
                        above.append(family.name)
                        continue
                    found.append(know(evaluate(problem, schedule, family.name), problem))
                    break
            found = _times_of_best(found, problem)
        except TimeOver:
            late.append(family.name)
    if above:
        note(
            f"left out of the list, as they hold more than --cap: {', '.join(dict.fromkeys(above))}"
        )
    if late:
        note(f"left out of the list, as the time ended: {', '.join(late)}")
    return found


def _times_of_best(known: list[NamedSolution], problem: Problem) -> list[NamedSolution]:
    """The same without the times of all but the one that is shown if nothing better is found."""
    best = min(
        known,
        key=lambda each: (not each.fits, each.solution.score(problem.objective)),
        default=None,
    )
    return [
        k if k is best else replace(k, solution=replace(k.solution, timeline=None)) for k in known
    ]


def _shapes(size: ShapeOptions, problem: Problem, options: tuple[str, ...]) -> list[ShapeOptions]:
    """The shape, first with the cap as the limit of a family that takes one, in activations of its
    largest stage.
    """
    most = np.zeros(problem.n_devices)
    np.maximum.at(most, problem.device, problem.amounts)
    cap = float((problem.caps / np.maximum(most, 1)).min())
    limited = [replace(size, limit=int(cap))] if "limit" in options and cap < 1e9 else []
    return [*limited, size]


def check_times(
    problems: list[Problem], known: list[list[NamedSolution]], costs: CostOptions
) -> None:
    """Refuse times that neither the search nor a schedule of the list uses."""
    from ppsim.core.ops import Kind, pack
    from ppsim.core.schedule import Schedule

    problem = problems[0]
    queues: list[Any] = [np.empty(0, np.int64) for _ in range(problem.n_devices)]
    queues[int(problem.device[0])] = np.array(
        [int(pack(0, 0)) | kind for kind in (Kind.F, Kind.I, Kind.W)]
    )
    split = Schedule.from_queues("a search", problem.placement, problem.microbatches, queues)
    check_used([split, *(entry.solution.schedule for entries in known for entry in entries)], costs)
