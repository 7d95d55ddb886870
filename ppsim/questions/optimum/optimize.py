"""Find the best schedule for given costs and memory, with proof."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Chart, Line
from ppsim.ask.given import Need, TypedOptions, never
from ppsim.ask.groups import FaceOptions, FigureOptions
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.request import ask
from ppsim.ask.tasks import TaskOptions, open_results, report_kept
from ppsim.ask.types import Amount
from ppsim.ask.words import shape_line, summary_lines
from ppsim.ask.write import Writers, document_writers, find_targets, inputs_of, tradeoff_writers
from ppsim.base.deadline import TimeOver, end_by
from ppsim.base.notes import progress
from ppsim.base.numbers import format_number
from ppsim.base.results import Results
from ppsim.base.workers import Workers, open_workers
from ppsim.errors import PpsimError
from ppsim.prices.build import add_memory
from ppsim.prices.editable import make_editable
from ppsim.prices.options import CostOptions
from ppsim.questions.optimum.optimize_text import (
    front_line,
    front_lines,
    front_verdict,
    outcome_line,
    outcome_verdict,
    proof_lines,
    sentences,
)
from ppsim.questions.optimum.problems import (
    SearchOptions,
    check_feasible,
    check_time_for,
    check_times,
    find_known,
    make_problems,
    shares_of,
)

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.search.orders.optimize import NamedSolution, Outcome
    from ppsim.search.problem import Problem, Solution
    from ppsim.show.files.document import Document

ALONE = "search"  # key in the results file of a search that is not part of a front
# Share of the time limit for timing the schedules of the list; further seconds for the first one,
# so that a slow machine has an answer too.
LISTED, FIRST_S = 0.6, 2.0


@dataclass(frozen=True, kw_only=True)
class OptimizeRequest(Request):
    """Find the best schedule for given costs and memory, with a lower bound for all schedules.

    Backwards run as I and W. The search starts from every schedule of the list, and proves small
    problems with OR-tools (extra optimize). No schedule takes less than the bound; "optimal" means
    that the best schedule attains it. Exits with 1 if no schedule fits the cap, and prints the
    least cap that works. Ctrl-C ends the search and prints the best schedule so far; with
    --results the same command continues from it.

    \b
      ppsim optimize --devices 4 --mb 8 --cap 4 -o best.csv -o best.svg
      ppsim optimize --devices 4 --mb 8 --placement auto --tf 10 --ti 11 --tw 8 --comm 1 --front
      ppsim optimize --devices 8 --mb 32 --front --time-limit 3600 --results front.csv
    """

    question: ClassVar[str] = "optimize"
    place: ClassVar[tuple[str, int]] = ("Why, and what would help", 3)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("mb_scale", "slice_scale", "recompute"),
            never,
            "{options} cannot be searched: all microbatches and slices take the same time here, "
            "and no op runs twice",
            "leave it out",
        ),
        Need(
            ("offload", "t_offload", "t_reload", "host_link", "host_link_shared"),
            never,
            "{options} is for copies to the host, which a rule adds to a finished schedule and no "
            "search considers",
            "the best schedule with -o best.json, then ppsim run best.json --offload --t-offload "
            "TIME --t-reload TIME",
        ),
        Need(
            ("t_evict", "te", "ts", "tt", "td", "tl", "t_collective"),
            never,
            "{options} has no effect: optimize finds orders of F, B, I and W",
            "leave it out",
        ),
        Need(
            ("cap",),
            lambda g: not (g["front"] and isinstance(g["cap"], list)),
            "--front tries one cap for all devices, so {options} cannot be a list",
            "one number, or leave out --front",
        ),
        Need(
            ("gantt",),
            lambda g: not g["front"],
            "{options} draws one schedule, and --front has several",
            "leave it out",
        ),
    )
    search: SearchOptions = group(SearchOptions, "Problem")
    front: bool = flag(
        "--front",
        help="Find the best schedule for each cap, the Pareto front of time and memory; -o draws "
        "it.",
        common=True,
    )
    time_limit: float = common(
        "--time-limit",
        type=Amount(min=0, min_open=True),
        default=30.0,
        help="Seconds of the search, which ends earlier with a proof. The first run on a machine "
        "compiles for up to 20 s more.",
    )
    seed: int = option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        help="Seed of the random numbers. The same seed and number of cores give the same answer, "
        "unless the time limit ends the search.",
    )
    tasks: TaskOptions = group(TaskOptions, "Work")
    costs: CostOptions = group(CostOptions, "Costs")
    output: FigureOptions = group(FigureOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")
    gantt: bool = flag(
        "--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on)."
    )

    def check(self) -> None:
        """Raise InputError for a format that cannot show a front."""
        from ppsim.show.files.tradeoff import check_suffix

        for _, suffix in find_targets(self.output) if self.front else ():
            check_suffix(suffix)


def optimize(**options: Any) -> Optimized:
    """Find the best schedule for given costs and memory.

    ``options`` are the options of ``ppsim optimize`` by name.

    Returns:
        The best schedule found within ``time_limit`` seconds, and its bound; with ``front`` a
            :class:`Front`.

    Raises:
        InputError: an option, a size or costs are refused.
        PpsimError: no schedule fits the cap, or none was timed before the time ended.
    """
    return answer(ask(OptimizeRequest, options))


def answer(request: OptimizeRequest) -> Optimized:
    """Search for the best schedule, or with --front for the best under each cap."""
    from ppsim.search.orders.stored_rows import describe_problem, is_sound

    begin, costs, tasks = time.monotonic(), request.costs, request.tasks
    with end_by(begin + request.time_limit):
        problems = make_problems(request.search, costs)
        check_feasible(problems, request.search)
        check_time_for(problems, request.time_limit)
        inputs = inputs_of(TypedOptions.from_request(request), problems[0].costs)
        descriptions = [describe_problem(problem) for problem in problems]
        valid_for = [descriptions, request.seed, request.time_limit]
        with open_results(tasks, valid_for, is_sound) as results, ExitStack() as stack:
            list_end = begin + LISTED * request.time_limit
            known: list[list[NamedSolution]] = []
            for problem in problems:
                known.append(find_known(problem, costs, list_end, 0.0 if any(known) else FIRST_S))
            check_times(problems, known, costs)
            # workers start with the first search that the results file lacks
            workers = cache(
                lambda: stack.enter_context(open_workers(tasks.dask)) if tasks.dask else None
            )
            run = partial(_search, request, results, workers)
            # timing the list is part of the time limit
            limit = begin + request.time_limit - time.monotonic()
            rows = _search_caps(request, problems, known, run, limit)
            if any(outcome.interrupted for _, outcome in rows):
                report_kept(results)
    kind = Front if request.front else Optimized
    listed = tuple(entry for entries in known for entry in entries)
    return kind(request, tuple(rows), listed, inputs)


def _search_caps(
    request: OptimizeRequest,
    problems: list[Problem],
    known: list[list[NamedSolution]],
    run: Callable[..., Outcome],
    limit: float,
) -> list[tuple[float, Outcome]]:
    """Return the outcome of the search under --cap; with --front, under each cap of the front."""
    from ppsim.search.orders.optimize import find_front

    try:
        if request.front:
            return find_front(problems, known, shares_of(problems), run, limit)
        cap = request.search.cap or float("inf")
        most = max(cap) if isinstance(cap, Sequence) else cap
        return [(most, run(ALONE, problems, known, (), limit))]
    except TimeOver as error:
        raise PpsimError(
            "no schedule was timed before --time-limit ended", "a longer one, or a smaller size"
        ) from error


def _search(
    request: OptimizeRequest,
    results: Results,
    workers: Callable[[], Workers | None],
    key: str,
    problems: Sequence[Problem],
    known: Sequence[Sequence[NamedSolution]],
    seeds: Sequence[Schedule],
    time_limit: float,
) -> Outcome:
    """Return the outcome of a search, from the results file or of a new search.

    The outcome of a single search is added even after Ctrl-C, and the next run starts from it. An
    interrupted cap of a front is searched again, so that the front is the same as without Ctrl-C.
    """
    from ppsim.search.orders.stored_rows import outcome_of, row_of

    kept = outcome_of(results.rows[key], problems, known) if key in results.rows else None
    if kept and not kept.interrupted:
        return kept
    from ppsim.search.orders.optimize import optimize as search

    open_now = workers()
    begin = time.monotonic()
    with progress(not request.face.as_json and not request.face.quiet) as bar:
        bar(None, "looking for better orders")

        def report(best: Solution, bound: float) -> None:
            value = best.score(problems[0].objective)[0]
            share = min(1.0, (time.monotonic() - begin) / max(time_limit, 1e-3))
            bar(share, f"best {format_number(value)}, bound {format_number(bound)}")

        feasible = [(p, k) for p, k in zip(problems, known, strict=True) if p.is_feasible]
        found = search(
            [problem for problem, _ in feasible],
            [solutions for _, solutions in feasible],
            seeds=[*seeds, kept.solution.schedule] if kept else seeds,
            seed=request.seed,
            time_limit=time_limit,
            report=report,
            workers=open_now,
        )
    # only with a file, because a large schedule takes long to encode
    if results.path and (key == ALONE or not found.interrupted):
        results.add(key, row_of(found))
    return found


@dataclass(frozen=True)
class Optimized(Answer[OptimizeRequest]):
    """The best schedule found, and its proof or bound.

    Attributes:
        rows: the cap in the unit of ``--cap`` with the outcome of its search; for a front several,
            by rising cap.
        known: the schedules of the list, for all placements.
        inputs: the command, version and settings that repeat the answer.
    """

    rows: tuple[tuple[float, Outcome], ...]
    known: tuple[NamedSolution, ...]
    inputs: Mapping[str, Any]

    @property
    def outcome(self) -> Outcome:
        """The outcome of the search; for a front, that of the largest cap."""
        return self.rows[-1][1]

    @property
    def makespan(self) -> float:
        """The end of the last op."""
        return self.outcome.solution.makespan

    @property
    def span(self) -> float:
        """The longest time from a device's first start to its last end."""
        return self.outcome.solution.span

    @property
    def bound(self) -> float:
        """A lower bound on the objective over all schedules."""
        return self.outcome.bound

    @property
    def status(self) -> str:
        """``optimal`` if the best schedule attains the bound, else ``feasible``."""
        return self.outcome.status

    @property
    def schedule(self) -> Schedule:
        """The best schedule."""
        return self.outcome.solution.schedule

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of the best schedule."""
        from ppsim.engine.simple.longest_path import simulate

        return self.outcome.solution.timeline or simulate(self.schedule, self.outcome.problem.costs)

    @property
    def table(self) -> list[dict[str, Any]]:
        """A row of numbers for each cap."""
        rows = []
        for cap, outcome in self.rows:
            numbers = _numbers(outcome)
            del numbers["cap"], numbers["known"]
            rows.append({"cap": cap, **numbers})
        return rows

    @property
    def verdict(self) -> str:
        """The time of the best schedule, its proof, and the best schedule of the list."""
        return outcome_verdict(self.outcome)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.optimize/1``."""
        return {"schema": "ppsim.optimize/1", "inputs": self.inputs, **_numbers(self.outcome)}

    def line(self) -> Iterator[Block]:
        """The numbers on one line."""
        yield outcome_line(self.outcome)

    def blocks(self) -> Iterator[Block]:
        """The chart and the numbers, their proof, and the comparison with the list."""
        from ppsim.engine.simple.metrics import measure

        metrics = measure(self.timeline)
        placement = self.outcome.problem.placement.name
        shape = shape_line(self.timeline.schedule)
        yield Line([("optimized", "name"), f"  {shape}, {placement}"])
        if self.request.gantt:
            yield Chart(self.timeline, metrics)
        yield ""
        yield from summary_lines(self.timeline, metrics)
        yield from proof_lines(self.outcome)
        yield ""
        yield from map(Line, sentences(self.outcome))

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timeline of the best schedule."""
        return [("optimized", self.timeline)]

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: the schedule, and the memory of devices if a format shows
        it.
        """
        return document_writers(
            [self.timeline],
            ["optimized"],
            self.inputs,
            output,
            complete=self._complete,
            verdict=self.verdict,
        )

    def _complete(self, document: Document, suffix: str) -> Document:
        """Add the memory of devices to a document, and to a page the data for editing."""
        from ppsim.show.files.document import abilities_of

        prices = [self.outcome.problem.costs] * len(document.timelines)
        if suffix == ".html":
            document = make_editable(document, prices, self.typed_options)
        if document.style == "paper" or not abilities_of(suffix).memory:
            return document
        return add_memory(document, prices, self.request.costs, asked=False)


class Front(Optimized):
    """The best schedule under each cap: the Pareto front of time and memory."""

    @property
    def verdict(self) -> str:
        """The times under the least and the largest cap, and the number of proved ones."""
        return front_verdict(self.rows)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.optimize-front/1``."""
        return {"schema": "ppsim.optimize-front/1", "inputs": self.inputs, "front": self.table}

    def line(self) -> Iterator[Block]:
        """The caps with their times on one line."""
        yield front_line(self.rows)

    def blocks(self) -> Iterator[Block]:
        """A row for each cap."""
        yield from front_lines(self.rows)

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: the best of each cap, and the schedules of the list."""
        from ppsim.analysis.tradeoff import Point

        problem = self.outcome.problem
        counts_layers = problem.layers is not None

        def memory_of(solution: Solution, chunks: int) -> float:
            # stages of different placements are different shares of the model, layers are not
            return solution.most_held if counts_layers else solution.most_held / chunks

        points = []
        for cap, outcome in self.rows:
            memory = memory_of(outcome.solution, outcome.problem.placement.n_chunks)
            points.append(Point(f"cap {cap:g}", outcome.value, memory))
        for solution in (entry.solution for entry in self.known):
            value = solution.score(problem.objective)[0]
            memory = memory_of(solution, solution.schedule.n_chunks)
            points.append(Point(solution.origin, value, memory))
        unit = "one layer" if counts_layers else "a device's 1/P share"
        return tradeoff_writers(
            points,
            f"{problem.objective} ({problem.costs.unit})",
            self.inputs,
            output,
            memory=f"peak activations (of {unit})",
            verdict=self.verdict,
        )


def _numbers(found: Outcome) -> dict[str, Any]:
    """Return the numbers of an outcome for JSON."""
    problem, solution = found.problem, found.solution
    best = found.best_known
    return {
        "schedule": solution.schedule.name,
        "placement": problem.placement.name,
        "devices": problem.n_devices,
        "stages": problem.n_stages,
        "chunks": problem.placement.n_chunks,
        "microbatches": problem.microbatches,
        "unit": problem.costs.unit,
        "objective": problem.objective,
        "makespan": solution.makespan,
        "span": solution.span,
        "bound": found.bound,
        "gap": found.gap,
        "status": found.status,
        "peak_activations": solution.peak_activations,
        "activations_of": problem.holder,
        "cap": None if problem.cap is None else problem.caps,
        "after_i": problem.after_i,
        "origin": solution.origin,
        "interrupted": found.interrupted,
        "best_known": best.origin if best else None,
        "known": [
            {
                "name": s.origin,
                "makespan": s.makespan,
                "span": s.span,
                "peak": s.most_held,
                "fits": k.fits,
            }
            for k, s in ((k, k.solution) for k in found.known)
        ],
    }
