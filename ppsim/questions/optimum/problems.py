"""The problems of ``optimize``, one for each placement, and the schedules of the list to start
from.
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
from ppsim.prices.options import CostOptions, ask_costs

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Placement, Schedule
    from ppsim.search.orders.optimize import NamedSolution
    from ppsim.search.problem import Objective, Problem

PLACEMENTS = ("linear", "v", "loop")
# Seconds to make and time a schedule for each op, to draw it too, and for each device; seconds that
# it may end after the limit.
TIMED_S, OP_S, DEVICE_S, LATE_S = 1.5e-7, 2e-7, 1.5e-5, 2.0


@dataclass(frozen=True)
class SearchOptions:
    """Options of the objective and the limits of a search."""

    devices: int | None = common("--devices", "--pp", type=COUNT, help="Pipeline devices, P.")
    chunks: int | None = common(
        *("--chunks", "--vpp", "--vp"),
        type=COUNT,
        help="Stages per device, V (2 for v and loop).",
    )
    microbatches: int | None = common(
        "--mb", "-m", "--microbatches", type=COUNT, help="Microbatches, M."
    )
    placement: str = common(
        "--placement",
        type=click.Choice([*PLACEMENTS, "auto"]),
        default="linear",
        help="The placement of stages on devices; auto tries all.",
    )
    cap: Value | None = common(
        "--cap",
        type=Activations(),
        metavar="NUMBER[,NUMBER...]",
        help="Memory cap of a device: a number of activations of a device's 1/P share of the "
        "model, or of one layer with --layout; a list has one number for each device.",
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
        help="The time to minimize: the span, which is the longest time from a device's first "
        "start to its last end, or the makespan.",
    )


def make_problems(search: SearchOptions, costs: CostOptions) -> list[Problem]:
    """Return the problem of each placement to search.

    Raises:
        InputError: there is no size, or no placement allows the sizes or costs.
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
    """Return the problem of one placement."""
    from ppsim.core.schedule import Schedule, place
    from ppsim.schedules import Shape, check_size
    from ppsim.search.problem import Problem

    P, M, cap = search.devices or 1, search.microbatches or 1, search.cap
    chunks = _chunks(name, search, costs)
    check_size(Shape(P, chunks, M))
    placement = place(name, P, P * chunks)
    empty = Schedule.from_queues("optimized", placement, M, [np.empty(0, np.int64)] * P)
    priced, layers = build_costs(empty, costs), layers_of_stages(empty, costs)
    if cap is not None and not layers:
        cap = (np.asarray(cap) * chunks).tolist()
    priced = _at_full_speed(priced, placement)
    return Problem(placement, M, priced, cap, search.after_i, search.objective, layers)


def _cap_text(cap: Value) -> str:
    return ",".join(f"{each:g}" for each in np.atleast_1d(np.asarray(cap)))


def layers_of_stages(schedule: Schedule, costs: CostOptions) -> tuple[int, ...] | None:
    """Return the number of transformer and MTP layers of each stage; None without a layout."""
    layout = ask_costs(costs).layout_of(schedule)
    if layout is None:
        return None
    return tuple(stage.count("t") + stage.count("m") for stage in layout.content)


def _chunks(name: str, search: SearchOptions, costs: CostOptions) -> int:
    """Return the stages per device: as given, of the layout, or the placement's default.

    Raises:
        InputError: the layout or the placement has another number.
    """
    P, chunks, auto = search.devices or 1, search.chunks, search.placement == "auto"
    asked = ask_costs(costs)
    if stages := asked.n_stages():
        if stages % P or chunks not in (None, stages // P):
            nearest = max(1 if auto else 2, round(stages / P))
            if name == "linear" and not auto:
                nearest = 1
            what = (
                f"the {asked.stage_option} has {stages} stages, which do not fit {P} devices x "
                f"{chunks or 'any'} chunks"
            )
            raise InputError(what, asked.stages_hint(P, P * (chunks or nearest)))
        chunks = stages // P
    if chunks is None:
        chunks = 1 if name == "linear" else 2
    if (chunks == 1) != (name == "linear"):
        have = "one stage" if name == "linear" else "at least two stages"
        raise InputError(
            f"placement {name} has {have} per device, not {chunks}",
            "--placement v or loop" if name == "linear" else "--placement linear",
        )
    return chunks


def _at_full_speed(costs: Costs, placement: Placement) -> Costs:
    """Return costs whose times of stages include the speed of their device."""
    if costs.speed is None:
        return costs
    speed = costs.speed[placement.devices[0]]
    pair = None if costs.pair is None else costs.pair / speed
    return replace(costs, time=costs.time / speed, pair=pair, speed=None)


def check_feasible(problems: list[Problem], search: SearchOptions) -> None:
    """Raise PpsimError, with the least cap that works, if no schedule fits the cap."""
    if any(problem.is_feasible for problem in problems):
        return
    shares = zip(problems, shares_of(problems), strict=True)
    least = number_at_least(min(float(p.least_caps.max()) / share for p, share in shares))
    assert search.cap is not None
    reason = "it runs F"
    if int(problems[0].least_caps.max()) > 1:
        reason = "one microbatch goes forward through all stages before its first backward"
    unit = "activations of one layer" if problems[0].layers else f"activations {OF_A_SHARE}"
    raise PpsimError(
        f"no schedule fits --cap {_cap_text(search.cap)}: {reason}, so a device holds {least} "
        f"{unit} at least",
        f"--cap {least}, the least that works",
    )


def check_time_for(problems: list[Problem], time_limit: float) -> None:
    """Raise PpsimError, with a time that is enough, if one schedule takes longer than the limit."""
    least = min(problems, key=_least_seconds)
    if (needed := _least_seconds(least)) > time_limit + LATE_S:
        seconds = int(np.ceil(needed - LATE_S))
        size = f"{2 * least.n_stages * least.microbatches:,} ops"
        if DEVICE_S * least.n_devices > needed / 2:
            size += f" on {least.n_devices:,} devices"
        what = (
            f"one schedule of {size} takes about {needed:,.0f} s, more than --time-limit "
            f"{time_limit:g} allows"
        )
        raise PpsimError(what, f"--time-limit {seconds}, or a smaller size")


def _least_seconds(problem: Problem, op_s: float = OP_S) -> float:
    """Return the seconds to make and time a schedule without W, at ``op_s`` for each op."""
    return op_s * 2 * problem.n_stages * problem.microbatches + DEVICE_S * problem.n_devices


def shares_of(problems: list[Problem]) -> list[int]:
    """Return the activations of one stage in one unit of ``--cap``, for each placement; 1 for
    activations of layers.
    """
    return [1 if problem.layers else problem.placement.n_chunks for problem in problems]


def find_known(
    problem: Problem, costs: CostOptions, until: float = np.inf, grace: float = 0.0
) -> list[NamedSolution]:
    """Return the schedules of the list that solve a problem, timed.

    They have the problem's placement and shape. Families with full backwards come first, those that
    fill slots later, and those that search last. Left out, with a note, are schedules that are not
    timed by ``until`` (on the monotonic clock; the first may take ``grace`` seconds longer), and
    large ones above the cap.
    """
    from ppsim.schedules import families
    from ppsim.search.orders.optimize import named_solution
    from ppsim.search.problem import LARGE, evaluate, is_held, solves

    found, late, above = list[Any](), list[str](), list[str]()
    seconds = _least_seconds(problem, TIMED_S)
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
                check_time(seconds)
                for shape in _shapes(size, problem, family.options):
                    try:
                        schedule = build_schedule(family.name, shape, costs, quiet=True)
                    except PpsimError:  # this family refuses the shape
                        continue
                    if not solves(problem, schedule):
                        continue
                    if len(schedule) >= LARGE and not is_held(problem, schedule):
                        above.append(family.name)
                        continue
                    found.append(named_solution(evaluate(problem, schedule, family.name), problem))
                    break
            found = _without_times(found, problem)
        except TimeOver:
            late.append(family.name)
    if above:
        names = ", ".join(dict.fromkeys(above))
        note(f"left out of the list, because they hold more than --cap: {names}")
    if late:
        note(f"left out of the list, because the time ended: {', '.join(late)}")
    return found


def _without_times(known: list[NamedSolution], problem: Problem) -> list[NamedSolution]:
    """Return the schedules without their timelines, which are large, except for the best one."""
    best = min(
        known,
        key=lambda entry: (not entry.fits, entry.solution.score(problem.objective)),
        default=None,
    )
    return [
        entry if entry is best else replace(entry, solution=replace(entry.solution, timeline=None))
        for entry in known
    ]


def _shapes(size: ShapeOptions, problem: Problem, options: tuple[str, ...]) -> list[ShapeOptions]:
    """Return the shape; for a family with a limit of activations, first with the cap as its limit.

    The limit counts activations of the largest stage.
    """
    most = np.zeros(problem.n_devices)
    np.maximum.at(most, problem.device, problem.amounts)
    cap = float((problem.caps / np.maximum(most, 1)).min())
    limited = [replace(size, limit=int(cap))] if "limit" in options and cap < 1e9 else []
    return [*limited, size]


def check_times(
    problems: list[Problem], known: list[list[NamedSolution]], costs: CostOptions
) -> None:
    """Raise InputError for a time that neither the search nor a schedule of the list uses."""
    from ppsim.core.ops import Kind, pack
    from ppsim.core.schedule import Schedule

    problem = problems[0]
    queues: list[Any] = [np.empty(0, np.int64) for _ in range(problem.n_devices)]
    queues[int(problem.device[0])] = np.array(
        [int(pack(0, 0)) | kind for kind in (Kind.F, Kind.I, Kind.W)]
    )
    split = Schedule.from_queues("a search", problem.placement, problem.microbatches, queues)
    check_used([split, *(entry.solution.schedule for entries in known for entry in entries)], costs)
