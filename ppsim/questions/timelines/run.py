"""Time one schedule and show it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Chart, Line
from ppsim.ask.given import Need
from ppsim.ask.groups import (
    DETAILED,
    LOOK,
    FaceOptions,
    FigureOptions,
    NetworkOptions,
    OneSchedule,
    ShapeOptions,
    cap_option,
)
from ppsim.ask.options import Request, flag, flatten, given_object, group, list_options
from ppsim.ask.words import (
    count_text,
    counts_lines,
    encoder_lines,
    recomputed,
    result_line,
    run_verdict,
    shape_line,
    summary_lines,
    title_of,
)
from ppsim.ask.write import Writers, document_writers, find_targets, inputs_of
from ppsim.base.numbers import format_number, format_part, format_share
from ppsim.engine.simple.columns import shape_of
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import add_memory, build, look_inside_costs, measure_with_bound
from ppsim.prices.data_parallel.dealing import (
    DealtLoad,
    assignment_object,
    deal_load,
    loads_section,
    save_assignment,
)
from ppsim.prices.data_parallel.lengths import (
    DealOptions,
    LengthOptions,
    Load,
    Loads,
    find_load,
    lengths_object,
)
from ppsim.prices.data_parallel.replicas import (
    LoadedRuns,
    ReplicaOptions,
    StepEnds,
    costs_of_slowest,
    time_replicas,
)
from ppsim.prices.options import GIVEN_COSTS, CostOptions, ask_costs
from ppsim.prices.part import UNEVEN
from ppsim.prices.parts.modelled import ModelledOptions, price_by_model
from ppsim.prices.timing import execute_slots, note_queues, time_ops

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppsim.analysis.reorder import MicrobatchOrder
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.report import MemoryReport
    from ppsim.engine.simple.metrics import Metrics
    from ppsim.prices.chunked import Chunks
    from ppsim.prices.rounds import UsableBatches
    from ppsim.show.files.document import Document


@dataclass(frozen=True, kw_only=True)
class RunRequest(Request):
    """Time one schedule and show it.

    The bound is proved: no order of the same ops takes less on the same devices, each holding no
    more activations than in this schedule. Other ops, such as backwards split into I and W, another
    placement or more memory may.

    Peak activations count activations of one stage and microbatch, each held from the start of F to
    the end of B, or of W where backwards are split; with --recompute, from R on. ppsim memory
    counts bytes.

    \b
      ppsim run 1f1b --stages 4 --mb 8
      ppsim run -s dualpipe --devices 8 --mb 20 -o fig.pdf -o report.html
    """

    question: ClassVar[str] = "run"
    place: ClassVar[tuple[str, int]] = ("How long a step takes, and which schedule is best", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("lowered",),
            lambda g: g.writes("lowered") or bool(g["grid"]),
            "{options} says how to write csv, and none is written",
            "add -o FILE.csv",
        ),
        Need(
            ("blank",),
            lambda g: g.writes("edits"),
            "{options} is of pages, and none is written",
            "add -o FILE.html",
        ),
        Need(
            ("reorder",),
            lambda g: bool(g["mb_scale"] or g["lengths"]),
            "{options} orders unequal microbatches",
            "add --mb-scale FACTORS",
        ),
        Need(
            ("lowered",),
            lambda g: not (g["deal"] or g["max_tokens"]),
            "{options} and --deal both say what csv holds",
        ),
        Need(
            ("reorder",),
            lambda g: not (g["grid"] or any(g[name] for name in DETAILED)),
            "{options} times orders by the simple model",
        ),
        Need(
            ("grid",),
            lambda g: (
                not any(g[name] for name in (*GIVEN_COSTS, *UNEVEN, *DETAILED) if name != "order")
            ),
            "{options} gives every step one slot, so options of costs and of messages change "
            "nothing",
            "leave them out, or leave out --grid",
        ),
        Need(("grid",), lambda g: not g["quiet"], "{options} shows every step"),
        Need(
            ("style", "width", "memory", "gantt", *LOOK),
            lambda g: not g["grid"],
            "{options} is for charts, and --grid is text",
            "leave it out",
        ),
    )
    schedule: OneSchedule = group(OneSchedule, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    modelled: ModelledOptions = group(ModelledOptions, "Costs")
    output: FigureOptions = group(FigureOptions, "Output")
    cap: str | None = cap_option()
    face: FaceOptions = group(FaceOptions, "Output")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    blank: bool = flag(
        "--blank", help="Pages begin with empty rows, and their reader places the ops."
    )
    lowered: bool = flag(
        "--lowered", help="Write csv with sends and receives (torch's compute_comms)."
    )
    merge_bw: bool = flag(
        "--merge-bw", help="Run I and W of a microbatch, where W follows its I, as one B."
    )
    gantt: bool = flag(
        "--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on)."
    )
    lanes: bool = flag(
        "--lanes", help="Show copies and collectives in a line below each device of the chart."
    )
    memory: bool | None = flag(
        "--memory/--no-memory",
        help="Draw what the devices hold below figures (on, except in style paper).",
    )
    grid: bool = flag(
        "--grid",
        help="Show the steps on integer time slots, empty where a device must wait; -o "
        "csv or json.",
    )
    reorder: bool = flag(
        "--reorder", help="Search an order of unequal microbatches (--mb-scale) that is faster."
    )
    replica_options: ReplicaOptions = group(ReplicaOptions, "Costs")
    lengths: LengthOptions = group(LengthOptions, "Lengths")
    dealing: DealOptions = group(DealOptions, "Lengths")
    own: Schedule | None = given_object("ppsim.core.schedule.Schedule")


def run(schedule: str | os.PathLike[str] | Schedule, **options: Any) -> Any:
    """Time one schedule: a name, a file, or a schedule object; times are in the unit of the costs
    (t_F by default).

    Args:
        schedule: as ``ppsim run`` takes it: ``1f1b``, ``interleaved:2``, a file; or a schedule.
        options: as ``ppsim run`` takes them, by name: ``devices``, ``microbatches``, ``tf``,
            ``p2p``, ...

    Returns:
        A :class:`Run`, with ``grid`` a :class:`Grid`.

    Raises:
        InputError: an option or a shape that is refused.
    """
    from ppsim.ask.request import ask
    from ppsim.core.schedule import Schedule

    return answer(
        ask(RunRequest, {"own" if isinstance(schedule, Schedule) else "names": schedule} | options)
    )


def answer(request: RunRequest) -> Run | Grid:
    """Time the schedule of the request."""
    costs, network = price_by_model(
        request.costs, request.network, request.modelled, request.lengths.mbs
    )
    request = replace(request, costs=costs, network=network)
    spec = request.own or request.schedule.spec
    if request.lowered:
        network = replace(network, p2p=network.p2p or "overlap")
    schedule, prices = build(spec, request.shape, request.costs, network, request.merge_bw)
    if request.lanes and not schedule.has_lanes:
        raise InputError(
            f"--lanes has no effect: {schedule.name} does nothing beside compute", "leave it out"
        )
    if request.grid:
        return Grid(request, schedule)
    load, dealt = (
        find_load(request.lengths, schedule, request.replica_options.count, request.costs),
        None,
    )
    if load and request.dealing.is_asked:
        dealt = deal_load(
            request.dealing,
            partial(_build_with_microbatches, request),
            (schedule, prices),
            load,
            request.replica_options,
        )
        schedule, prices, load = dealt.schedule, dealt.costs, dealt.load
    each = time_replicas(
        schedule,
        prices,
        network,
        request.costs,
        request.replica_options,
        load,
        to_torch=request.lowered,
    )
    loaded = None
    if load and each:
        loaded = LoadedRuns(
            schedule, prices, load, request.replica_options, network, request.costs.links
        )
        prices = costs_of_slowest(schedule, prices, request.replica_options, load, each.slowest)
    timeline, execution = time_ops(
        schedule, prices, network, request.costs.links, to_torch=request.lowered
    )
    order = None
    if request.reorder:
        from ppsim.analysis.reorder import reorder

        order = reorder(schedule, prices)
    held = None
    if request.cap:
        from ppsim.prices.cap import read_cap, report_held

        held = report_held(loaded or timeline, request.costs, read_cap(request.cap))
    metrics = measure_with_bound(
        timeline, prices, request.costs.tokens, detailed=execution is not None
    )
    return Run(request, timeline, prices, metrics, execution, order, each, held, load, dealt)


def _build_with_microbatches(request: RunRequest, count: int) -> tuple[Schedule, Costs]:
    """Make the schedule asked for with another number of microbatches (InputError: it does not take
    it).
    """
    if request.own:
        raise InputError("the schedule has its number of microbatches", "a schedule's name")
    shape = replace(request.shape, microbatches=count)
    return build(request.schedule.spec, shape, request.costs, request.network, request.merge_bw)


@dataclass(frozen=True)
class Run(Answer[RunRequest]):
    """A schedule with the times of its ops.

    Attributes:
        timeline: start and end of every op.
        costs: of the ops.
        metrics: the numbers, with the bound.
        execution: the run with sends and receives as ops, where it was asked for.
        reordered: a faster order of the microbatches, where one was asked for.
        replicas: when devices of each data-parallel replica are done, where there are several.
        held: what devices hold against ``--cap``, where there is one.
        load: what the microbatches of every replica take, where lengths are given; the timeline is
            that of the slowest replica.
        dealt: what dealing the sequences again gives, where it was asked for.
    """

    timeline: Timeline
    costs: Costs
    metrics: Metrics
    execution: Execution | None = None
    reordered: MicrobatchOrder | None = None
    replicas: StepEnds | None = None
    held: MemoryReport | None = None
    load: Load | None = None
    dealt: DealtLoad | None = None

    @property
    def schedule(self) -> Schedule:
        """The schedule."""
        return self.timeline.schedule

    @property
    def bound(self) -> float:
        """A time that no order of the same ops in the same memory beats."""
        return self.metrics.bound

    @cached_property
    def chunks(self) -> Chunks | None:
        """The chunks of a prompt, and the time to its first token; None where there is none."""
        costs = self.request.costs
        if not costs.chunked:
            return None
        from ppsim.prices.chunked import chunks_of

        count = self.schedule.whole_microbatches
        return chunks_of(ask_costs(costs), self.schedule.n_devices, count)

    @cached_property
    def how_many(self) -> UsableBatches | None:
        """The number of batches in flight that a decoder of equal batches can use; None if not
        asked for.
        """
        request = self.request
        if (
            request.own
            or not self.metrics.round
            or not self.schedule.feeds_back
            or request.costs.mb_scale
        ):
            return None
        from ppsim.schedules import family_of

        if self.costs.each is not None or family_of(request.schedule.spec) is None:
            return None
        from ppsim.prices.rounds import MOST_EVENTS, MOST_TRIED, find_usable_batches

        if self.schedule.n_stages * MOST_TRIED > MOST_EVENTS // 8:
            return None

        def make(batches: int) -> tuple[Schedule, Costs]:
            shape = replace(request.shape, microbatches=batches)
            return build(request.schedule.spec, shape, replace(request.costs, steps=1), quiet=True)

        return find_usable_batches(make, request.costs.tokens)

    @cached_property
    def step(self) -> dict[str, float]:
        """The times of a whole step of a model, in seconds; empty without a model."""
        modelled = self.request.costs.modelled
        if modelled is None:
            return {}
        layout = ask_costs(self.request.costs).layout_of(self.schedule)
        found = asdict(modelled.step(self.schedule, self.costs, layout))
        return {name: float(value) for name, value in found.items()}

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs that make the answer again."""
        return inputs_of(self.typed_options, self.costs)

    @property
    def verdict(self) -> str:
        """The makespan, the idle share, the bound, and whether the run fits."""
        text = run_verdict(self.schedule, self.metrics, self.timeline.unit)
        if self.replicas:
            count = count_text(len(self.replicas.ends), "replica")
            text = f"a step of {count} takes {self.replicas.step}; {text}"
        return text + (f"; it {_fit_text(self.held)}" if self.held else "")

    @property
    def tone(self) -> str:
        """The tone of a fault where the run does not fit."""
        return "fault" if self.held and self.held.exceeding else "name"

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.run/1``."""
        from ppsim.show.files.writers.json import run_object

        suggested: dict[str, Any] = {"reorder": self.reordered.to_json()} if self.reordered else {}
        if self.request.costs.encoder:
            from ppsim.search.rules.encoder import misfits_object

            suggested["encoder"] = misfits_object(self.timeline, self.costs)
        if self.replicas:
            suggested["replicas"] = self.replicas.to_json()
        if self.load:
            suggested["lengths"] = lengths_object(self.load)
        if self.dealt:
            suggested["deal"] = self.dealt.deal_object()
            suggested["assignment"] = assignment_object(self.dealt.load.sequences)
        if self.chunks:
            suggested["chunked"] = self.chunks.to_json()
        if self.how_many:
            suggested |= self.how_many.to_json()
        if counts := counts_lines([self.schedule]):
            suggested["counts"] = "; ".join(counts)
        if self.held:
            suggested |= {"cap": self.held.cap, "fits": not self.held.exceeding}
        if self.step:
            suggested["step"] = self.step
        return (
            run_object(
                self.timeline, self.inputs, self.execution, self.metrics.bound, self.metrics.round
            )
            | suggested
        )

    def line(self) -> Iterator[Block]:
        """The numbers on one line."""
        name = f"{self.schedule.name} {self.schedule.n_devices}x{self.schedule.whole_microbatches}"
        step = (
            f"  step of {count_text(len(self.replicas.ends), 'replica')} {self.replicas.step}"
            if self.replicas
            else ""
        )
        fits = f"  {_fit_text(self.held)}" if self.held else ""
        yield Line(
            result_line(name, self.metrics, shape_of(self.schedule), self.timeline.unit)
            + step
            + fits
        )

    def blocks(self) -> Iterator[Block]:
        """Yield the chart and the numbers, each with its meaning."""
        whose = f", replica {self.replicas.slowest}" if self.load and self.replicas else ""
        yield Line([(title_of(self.schedule), "name"), f"  {shape_line(self.schedule)}{whose}"])
        if self.request.gantt:
            marks = None
            if self.execution:
                from ppsim.show.drawing.terminal_marks import marks_of_messages

                marks = marks_of_messages(self.execution)
            yield Chart(self.timeline, self.metrics, marks, self.request.lanes)
        yield ""
        yield from summary_lines(self.timeline, self.metrics)
        yield from map(Line, counts_lines([self.schedule]))
        if self.step:
            yield Line([f"{'step':<19}", (step_text(self.step), "name")], 19)
        if self.chunks:
            yield ""
            yield from map(Line, self.chunks.lines())
        if self.how_many:
            yield ""
            yield from self.how_many.blocks(self.schedule.whole_microbatches, self.timeline.unit)
        if self.held:
            yield Line(
                [f"{'cap':<19}", (_fit_text(self.held), "bad" if self.held.exceeding else "good")],
                19,
            )
        yield from recomputed([self.schedule])
        yield from encoder_lines(self.timeline, self.costs)
        if self.replicas:
            yield from self.replicas.lines()
        if self.dealt:
            yield from self.dealt.lines(self.timeline.unit)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The schedule."""
        return [(title_of(self.schedule), self.timeline)]

    def error_after_output(self) -> PpsimError | None:
        """Return the error that the run does not fit, with alternatives if no options of messages
        are given.
        """
        request, held = self.request, self.held
        if not held or not held.exceeding:
            return None

        from ppsim.questions.timelines.memory import Case, find_alternatives, misfit_error

        if request.own or request.merge_bw or request.network.detailed or self.dealt:
            error = misfit_error(held, (), unsearched=False)
            error.hint += ", or ppsim memory with this --cap, which says what fits"
            return error
        loads = Loads(request.lengths, request.replica_options.count)
        case = Case(request.schedule.spec, request.shape, request.costs, None, loads)
        return misfit_error(held, *find_alternatives(held, case))

    def notes(self) -> Iterator[str]:
        """Notes: the unit of a line of numbers, a faster order of microbatches, a possible
        deadlock.
        """
        if self.request.face.quiet:
            yield from counts_lines([self.schedule])
        if self.held and self.load:
            yield self.load.describe_memory()
        if self.reordered and not self.request.face.as_json:
            yield self._faster_order(self.reordered)
        if self.request.lowered and self.execution:
            yield from note_queues(self.execution.timeline.schedule)

    def writers(self, output: FigureOptions) -> Writers:
        """Each file asked for, with the function that writes it."""
        dealt = self.dealt
        if dealt is None:
            return self._document_writers(output)
        targets = find_targets(output)
        tables = [target for target, suffix in targets if suffix == ".csv"]
        rest = replace(
            output, output=tuple(target for target, _ in targets if target not in tables)
        )
        save = partial(save_assignment, dealt.load.sequences, self.inputs)
        return [
            *((target, partial(save, target)) for target in tables),
            *self._document_writers(rest),
        ]

    def _document_writers(self, output: FigureOptions) -> Writers:
        """Each file asked for that holds the timeline."""
        return document_writers(
            [self.timeline],
            [title_of(self.schedule)],
            self.inputs,
            output,
            complete=self.complete,
            verdict=self.verdict,
        )

    def plot(self, ax: Axes | None = None, **look: Any) -> Any:
        """Draw the chart as a matplotlib figure, or into axes of yours; ``look`` as for figures of
        ``ppsim run``.
        """
        output, title = self._look(look), title_of(self.schedule)
        if ax is not None:
            from ppsim.show.drawing.gantt.axes import draw_into

            draw_into(ax, self.timeline, output.title or title, output.look)
            return ax.figure
        from ppsim.show.drawing.gantt.figure import plot

        executions = [self.execution] if self.execution else []
        style = output.style or "screen"
        return plot(
            self.timeline,
            titles=[title],
            style=style,
            width=output.width,
            executions=executions,
            look=output.look,
        )

    def explain(self, **options: Any) -> Any:
        """Say why devices are idle; ``options`` as ``ppsim explain`` takes them."""
        from ppsim.questions.across.explain import ExplainRequest
        from ppsim.questions.across.explain import answer as answer_explain

        return answer_explain(self._related_request(ExplainRequest, options))

    def memory(self, model: str | None = None, **options: Any) -> Any:
        """Tell what devices hold over time, in bytes of a ``model``; ``options`` as ``ppsim
        memory`` takes them.
        """
        from ppsim.questions.timelines.memory import MemoryRequest
        from ppsim.questions.timelines.memory import answer as answer_memory

        return answer_memory(self._related_request(MemoryRequest, options | {"model": model}))

    def _related_request(self, kind: type[Request], options: dict[str, Any]) -> Any:
        """The request of another question about the same run."""
        from ppsim.ask.request import ask

        own = flatten(self.request)
        shared = {
            option.name: own[option.name]
            for option in list_options(kind)
            if option.name in self.request.given
        }
        return ask(kind, shared | options)

    def complete(self, document: Document, suffix: str) -> Document:
        """Add messages and memory where the format can show them."""
        from ppsim.show.files.document import abilities_of

        if self.execution and self.request.lowered and abilities_of(suffix).lowered:
            return replace(document, timelines=(self.execution.timeline,))
        executions = (self.execution,) if self.execution else ()
        insides = look_inside_costs([self.schedule], self.request.costs)
        document = replace(
            document, bounds=(self.metrics.bound,), executions=executions, insides=insides
        )
        if self.metrics.round:
            document = replace(document, rounds=(self.metrics.round,))
        if suffix == ".html" and self.execution and self.request.network.cluster:
            from ppsim.show.drawing.cluster_map import cluster_map
            from ppsim.workload.hardware.hardware import read_cluster

            per_node = read_cluster(self.request.network.cluster).devices_per_node
            document = replace(document, cluster=cluster_map(self.execution, per_node))
        if suffix == ".html" and self.load and self.replicas:
            document = replace(document, below=loads_section(self.load, self.replicas, self.dealt))
        if suffix == ".html":
            from ppsim.prices.editable import check_blank, make_editable

            if self.request.blank:
                check_blank(self.schedule)
            document = make_editable(
                document, [self.costs], None if self.load else self.typed_options
            )
            if self.request.blank:  # the verdict would tell what is to be found
                document = replace(document, blank=True, verdict="")
        if self.held:
            document = replace(document, memory=(self.held.curve,), cap=self.held.common_cap)
            document = replace(document, memory_models=(self.held.model,))
            if suffix == ".html":
                document = replace(document, caps=self.held.device_caps)
        shown = document.style != "paper" and not self.schedule.only_forwards  # which keep nothing
        wanted = shown if self.request.memory is None else self.request.memory
        if self.held or not wanted or not abilities_of(suffix).memory:
            return document
        sizes = self.load.sizes()[self.replicas.slowest] if self.load and self.replicas else None
        return add_memory(
            document,
            [self.costs],
            self.request.costs,
            asked=bool(self.request.memory),
            sizes=sizes,
        )

    def _faster_order(self, found: MicrobatchOrder) -> str:
        """The fastest order of microbatches found by simulation."""
        if found.makespan >= found.given_makespan * (1 - 1e-9):
            return f"reorder: none of {found.simulated} orders of the microbatches is faster"
        order = ",".join(map(str, found.order.tolist()))
        gain = format_share(1 - found.makespan / found.given_makespan)
        before, after = format_number(found.given_makespan), format_number(found.makespan)
        return (
            f"reorder: {before} to {after} {self.timeline.unit}, {gain} less, "
            f"of {found.simulated} orders simulated; run the microbatches as {order}"
        )


def step_text(step: dict[str, float]) -> str:
    """Return the time of a model's step, and the part of it outside the pipeline."""
    whole = step["seconds"]
    return (
        f"{format_number(whole)} s: the pipeline, {format_part(step['reduction'], whole)} s of "
        f"gradients and weights, {format_part(step['optimizer'], whole)} s of the optimizer"
    )


def _fit_text(held: MemoryReport) -> str:
    """Return a text on the memory left below the cap, or on the excess."""
    from ppsim.questions.timelines.memory import spare_text

    return spare_text(held)


@dataclass(frozen=True)
class Grid(Answer[RunRequest]):
    """A schedule on integer slots, a slot for every step, with sends and receives where asked for.

    Attributes:
        schedule: to show.
    """

    schedule: Schedule

    @cached_property
    def _slots(self) -> Costs:
        from ppsim.core.costs import costs_for

        return costs_for(self.schedule, tb=1.0, ti=1.0, tw=1.0, per="stage")

    @cached_property
    def rows(self) -> list[list[str]]:
        """The op of each device in each slot, empty where it waits."""
        from ppsim.analysis.grid import cells_of

        if not self.request.lowered:
            from ppsim.engine.simple.longest_path import simulate

            return cells_of(simulate(self.schedule, self._slots))
        return cells_of(
            execute_slots(self.schedule, self._slots, self.request.network.order).timeline
        )

    @property
    def verdict(self) -> str:
        """The number of slots, and of empty ones."""
        slots = max(map(len, self.rows), default=0)
        empty = sum(not cell for row in self.rows for cell in row)
        whole = slots * len(self.rows)
        waits = f"devices wait in {empty} of {whole} (slots x devices)"
        return f"{self.schedule.name} takes {count_text(slots, 'slot')}; {waits}"

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The schedule with a slot for every op; none with sends and receives."""
        if self.request.lowered:
            return []
        from ppsim.engine.simple.longest_path import simulate

        return [(title_of(self.schedule), simulate(self.schedule, self._slots))]

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.grid/1``."""
        inputs = inputs_of(self.typed_options, self._slots)
        return {
            "schema": "ppsim.grid/1",
            "inputs": inputs,
            "schedule": self.schedule.name,
            "rows": self.rows,
        }

    def blocks(self) -> Iterator[Block]:
        """The grid as text."""
        from ppsim.analysis.grid import text_of

        yield text_of(self.rows)

    def writers(self, output: FigureOptions) -> Writers:
        """Each file asked for: csv, or json."""
        import orjson

        from ppsim.analysis.grid import csv_of
        from ppsim.base.atomic_file import open_atomically
        from ppsim.show.files.document import require_suffix

        forms: dict[str, Callable[[], bytes]] = {
            ".csv": lambda: csv_of(self.rows).encode(),
            ".json": lambda: orjson.dumps(self.whole_object()),
        }

        def write(target: str, suffix: str) -> None:
            with open_atomically(target) as out:
                out.write(forms[suffix]())

        targets = find_targets(output)
        for _, suffix in targets:
            require_suffix(suffix, forms, "a grid")
        return [(target, partial(write, target, suffix)) for target, suffix in targets]
