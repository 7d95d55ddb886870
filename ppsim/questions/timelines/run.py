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
from ppsim.ask.options import Request, flag, flatten, given_object, group
from ppsim.ask.types import NumberTexts
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

    The bound is proved: on the same devices, and with no more activations on any of them than in
    this schedule, no order of the same ops takes less. Other ops, such as backwards split into I
    and W, another placement, or more memory may take less.

    Peak activations count activations of one stage and microbatch. Each is held from the start of F
    to the end of B, or of W if backwards are split; with --recompute, from R on. ppsim memory
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
            "{options} needs -o FILE.csv",
            "add -o FILE.csv",
        ),
        Need(
            ("blank",),
            lambda g: g.writes("edits"),
            "{options} needs -o FILE.html",
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
            "{options} and --deal each write another csv",
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
            "{options} gives every op one slot, so options of costs and of messages have no effect",
            "leave them out, or leave out --grid",
        ),
        Need(("grid",), lambda g: not g["quiet"], "{options} prints every slot, and -q one line"),
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
    cap: NumberTexts | None = cap_option()
    face: FaceOptions = group(FaceOptions, "Output")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    blank: bool = flag(
        "--blank", help="Write a page with empty rows, for its reader to place the ops."
    )
    lowered: bool = flag(
        "--lowered", help="Write csv with sends and receives (torch's compute_comms)."
    )
    merge_bw: bool = flag(
        "--merge-bw", help="Merge I and W of a microbatch into one B if W directly follows I."
    )
    gantt: bool = flag(
        "--gantt/--no-gantt", default=True, help="Draw the chart in the terminal (on)."
    )
    lanes: bool = flag(
        "--lanes", help="Show copies and collectives in a line below each device of the chart."
    )
    memory: bool | None = flag(
        "--memory/--no-memory",
        help="Draw the memory of the devices below figures (on, except in style paper).",
    )
    grid: bool = flag(
        "--grid",
        help="Show the ops on integer time slots, empty ones where a device must wait; -o writes "
        "csv or json.",
    )
    reorder: bool = flag(
        "--reorder", help="Search for a faster order of unequal microbatches (--mb-scale)."
    )
    replica_options: ReplicaOptions = group(ReplicaOptions, "Costs")
    lengths: LengthOptions = group(LengthOptions, "Lengths")
    dealing: DealOptions = group(DealOptions, "Lengths")
    own: Schedule | None = given_object("ppsim.core.schedule.Schedule")


def run(schedule: str | os.PathLike[str] | Schedule, **options: Any) -> Any:
    """Time one schedule, in the unit of the costs (t_F by default).

    Args:
        schedule: a name such as ``1f1b`` or ``interleaved:2``, a file, or a schedule object.
        options: the options of ``ppsim run`` by name: ``devices``, ``microbatches``, ``tf``,
            ``p2p``, ...

    Returns:
        A :class:`Run`, with ``grid`` a :class:`Grid`.

    Raises:
        InputError: an option or a shape is refused.
    """
    from ppsim.ask.request import ask
    from ppsim.core.schedule import Schedule

    return answer(
        ask(RunRequest, {"own" if isinstance(schedule, Schedule) else "names": schedule} | options)
    )


def answer(request: RunRequest) -> Run | Grid:
    """Time the schedule of the request; with --grid, put it on integer slots."""
    if request.own:
        from ppsim.schedules import require_shape

        require_shape(request.own.name, request.own, asdict(request.shape))
    costs, network = price_by_model(
        request.costs, request.network, request.modelled, request.lengths.mbs
    )
    if costs.modelled:
        from ppsim.prices.cap import note_above_gpu

        note_above_gpu(request.cap, costs.modelled.machine)
    request = replace(request, costs=costs, network=network)
    spec = request.own or request.schedule.spec
    if request.lowered:
        network = replace(network, p2p=network.p2p or "overlap")
    schedule, prices = build(spec, request.shape, costs, network, request.merge_bw)
    if request.lanes and not schedule.has_lanes:
        raise InputError(
            f"--lanes has no effect: {schedule.name} has only compute ops", "leave it out"
        )
    if request.grid:
        return Grid(request, schedule)
    load, dealt = _load_and_dealing(request, schedule, prices)
    if dealt:
        schedule, prices = dealt.schedule, dealt.costs
    options, lowered = request.replica_options, request.lowered
    replicas = time_replicas(schedule, prices, network, costs, options, load, to_torch=lowered)
    loaded = None
    if load and replicas:
        loaded = LoadedRuns(schedule, prices, costs, load, options, network, costs.links)
    if replicas:
        prices = costs_of_slowest(schedule, prices, costs, options, load, replicas.slowest)
    timeline, execution = time_ops(schedule, prices, network, costs.links, to_torch=lowered)
    order = _faster_order(request, schedule, prices)
    held = _held_with_cap(request, loaded or timeline)
    metrics = measure_with_bound(timeline, prices, costs.tokens, detailed=execution is not None)
    return Run(request, timeline, prices, metrics, execution, order, replicas, held, load, dealt)


def _load_and_dealing(
    request: RunRequest, schedule: Schedule, prices: Costs
) -> tuple[Load | None, DealtLoad | None]:
    """Return the times of every replica's microbatches, and their dealing if --deal asks for it;
    None without lengths.
    """
    options = request.replica_options
    load = find_load(request.lengths, schedule, options.count, request.costs)
    if not (load and request.dealing.is_asked):
        return load, None
    build_with = partial(_build_with_microbatches, request)
    dealt = deal_load(request.dealing, build_with, (schedule, prices), load, options)
    return dealt.load, dealt


def _faster_order(request: RunRequest, schedule: Schedule, prices: Costs) -> MicrobatchOrder | None:
    """Return the fastest order of microbatches found; None without --reorder."""
    if not request.reorder:
        return None
    from ppsim.analysis.reorder import reorder

    return reorder(schedule, prices)


def _held_with_cap(request: RunRequest, runs: LoadedRuns | Timeline) -> MemoryReport | None:
    """Return the memory of the devices with the cap; None without --cap."""
    if not request.cap:
        return None
    from ppsim.prices.cap import read_cap, report_held

    return report_held(runs, request.costs, read_cap(request.cap))


def _build_with_microbatches(request: RunRequest, count: int) -> tuple[Schedule, Costs]:
    """Return the schedule of the request with another number of microbatches, and its costs.

    Raises:
        InputError: the schedule refuses the number.
    """
    if request.own:
        raise InputError("the schedule has its number of microbatches", "a schedule's name")
    shape = replace(request.shape, microbatches=count)
    return build(request.schedule.spec, shape, request.costs, request.network, request.merge_bw)


@dataclass(frozen=True)
class Run(Answer[RunRequest]):
    """A schedule with the times of its ops.

    Attributes:
        timeline: the start and the end of every op, of the slowest replica.
        costs: the costs of the ops.
        metrics: the numbers of the run, with the bound.
        execution: the run with sends and receives as ops; None without --p2p or a cluster.
        reordered: a faster order of the microbatches; None without --reorder.
        replicas: the end of each device of each data-parallel replica; None for one replica.
        held: the memory of the devices and the cap; None without --cap.
        load: the times of every replica's microbatches; None without lengths.
        dealt: the step after dealing the sequences again; None without --deal.
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
        """A lower bound on the time of all orders of the same ops in the same memory."""
        return self.metrics.bound

    @cached_property
    def chunks(self) -> Chunks | None:
        """The chunks of a prompt, and the time to its first token; None without --chunked."""
        costs = self.request.costs
        if not costs.chunked:
            return None
        from ppsim.prices.chunked import chunks_of

        count = self.schedule.whole_microbatches
        return chunks_of(ask_costs(costs), self.schedule.n_devices, count)

    @cached_property
    def how_many(self) -> UsableBatches | None:
        """The number of batches in flight that a decoder of equal batches can use; None for other
        schedules.
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

        if self.costs.op_times is not None or family_of(request.schedule.spec) is None:
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
        """The command, version and settings that repeat the answer."""
        return inputs_of(self.typed_options, self.costs)

    @property
    def verdict(self) -> str:
        """The makespan, the idle share, the bound, and with --cap whether the run fits."""
        text = run_verdict(self.schedule, self.metrics, self.timeline.unit)
        if self.replicas:
            count = count_text(len(self.replicas.ends), "replica")
            text = f"a step of {count} takes {self.replicas.step}; {text}"
        return f"{text}; it {_fit_text(self.held)}" if self.held else text

    @property
    def tone(self) -> str:
        """The tone of a fault if the run does not fit the cap."""
        return "fault" if self.held and self.held.exceeding else "name"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.run/1``."""
        from ppsim.show.files.writers.json import run_object

        further: dict[str, Any] = {"reorder": self.reordered.to_json()} if self.reordered else {}
        if self.request.costs.encoder:
            from ppsim.search.rules.encoder import misfits_object

            further["encoder"] = misfits_object(self.timeline, self.costs)
        if self.replicas:
            further["replicas"] = self.replicas.to_json()
        if self.load:
            further["lengths"] = lengths_object(self.load)
        if self.dealt:
            further["deal"] = self.dealt.deal_object()
            further["assignment"] = assignment_object(self.dealt.load.sequences)
        if self.chunks:
            further["chunked"] = self.chunks.to_json()
        if self.how_many:
            further |= self.how_many.to_json()
        if counts := counts_lines([self.schedule]):
            further["counts"] = "; ".join(counts)
        if self.held:
            further |= {"cap": self.held.cap, "fits": not self.held.exceeding}
        if self.step:
            further["step"] = self.step
        metrics = self.metrics
        run = run_object(self.timeline, self.inputs, self.execution, metrics.bound, metrics.round)
        return run | further

    def line(self) -> Iterator[Block]:
        """The numbers on one line."""
        schedule = self.schedule
        name = f"{schedule.name} {schedule.n_devices}x{schedule.whole_microbatches}"
        text = result_line(name, self.metrics, shape_of(schedule), self.timeline.unit)
        if self.replicas:
            count = count_text(len(self.replicas.ends), "replica")
            text += f"  step of {count} {self.replicas.step}"
        if self.held:
            text += f"  {_fit_text(self.held)}"
        yield Line(text)

    def blocks(self) -> Iterator[Block]:
        """Yield the chart and the numbers, each with its meaning."""
        replica = f", replica {self.replicas.slowest}" if self.replicas else ""
        yield Line([(title_of(self.schedule), "name"), f"  {shape_line(self.schedule)}{replica}"])
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
        """The timeline with its title."""
        return [(title_of(self.schedule), self.timeline)]

    def error_after_output(self) -> PpsimError | None:
        """Return the error that the run does not fit the cap, with alternatives if they can be
        searched.
        """
        request, held = self.request, self.held
        if not held or not held.exceeding:
            return None

        from ppsim.questions.timelines.memory import Case, find_alternatives, misfit_error

        if request.own or request.merge_bw or request.network.detailed or self.dealt:
            error = misfit_error(held, (), unsearched=False)
            error.hint += ", or ppsim memory with this --cap, which finds alternatives that fit"
            return error
        loads = Loads(request.lengths, request.replica_options.count)
        case = Case(request.schedule.spec, request.shape, request.costs, None, loads)
        return misfit_error(held, *find_alternatives(held, case))

    def notes(self) -> Iterator[str]:
        """Notes on units of a line of numbers, a faster order of microbatches, and deadlocks."""
        if self.request.face.quiet:
            yield from counts_lines([self.schedule])
        if self.held and self.load:
            yield self.load.describe_memory()
        if self.reordered and not self.request.face.as_json:
            yield self._order_text(self.reordered)
        if self.request.lowered and self.execution:
            yield from note_queues(self.execution.timeline.schedule)

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: of the timeline, or with --deal for csv of the dealing."""
        if self.dealt is None:
            return self._document_writers(output)
        targets = find_targets(output)
        tables = [target for target, suffix in targets if suffix == ".csv"]
        others = tuple(target for target, _ in targets if target not in tables)
        save = partial(save_assignment, self.dealt.load.sequences, self.inputs)
        return [
            *((target, partial(save, target)) for target in tables),
            *self._document_writers(replace(output, output=others)),
        ]

    def _document_writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o as a document of the timeline."""
        return document_writers(
            [self.timeline],
            [title_of(self.schedule)],
            self.inputs,
            output,
            complete=self.complete,
            verdict=self.verdict,
        )

    def plot(self, ax: Axes | None = None, **look: Any) -> Any:
        """Draw the chart as a matplotlib figure, or into your axes.

        ``look`` are the options of figures of ``ppsim run`` by name.
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
        """Explain why devices are idle; ``options`` are those of ``ppsim explain`` by name."""
        from ppsim.questions.across.explain import ExplainRequest
        from ppsim.questions.across.explain import answer as answer_explain

        return answer_explain(self._related_request(ExplainRequest, options))

    def memory(self, model: str | None = None, **options: Any) -> Any:
        """Return the memory of the devices over time, in bytes with a ``model``.

        ``options`` are those of ``ppsim memory`` by name.
        """
        from ppsim.questions.timelines.memory import MemoryRequest
        from ppsim.questions.timelines.memory import answer as answer_memory

        return answer_memory(self._related_request(MemoryRequest, options | {"model": model}))

    def _related_request(self, kind: type[Request], options: dict[str, Any]) -> Any:
        """Return the request of another question with the options of this run."""
        from ppsim.ask.request import ask_with

        values = flatten(self.request)
        return ask_with(kind, {name: values[name] for name in self.request.given}, options)

    def complete(self, document: Document, suffix: str) -> Document:
        """Add messages, the bound, and memory to a document, as far as its format shows them."""
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
        if suffix == ".html":
            document = self._complete_page(document)
        if self.held:
            held = self.held
            document = replace(document, memory=(held.curve,), cap=held.common_cap)
            document = replace(document, memory_models=(held.model,))
            return replace(document, caps=held.device_caps) if suffix == ".html" else document
        # schedules of forwards alone keep no activations
        by_default = document.style != "paper" and not self.schedule.only_forwards
        is_wanted = by_default if self.request.memory is None else self.request.memory
        if not is_wanted or not abilities_of(suffix).memory:
            return document
        sizes = self.load.sizes()[self.replicas.slowest] if self.load and self.replicas else None
        return add_memory(
            document,
            [self.costs],
            self.request.costs,
            asked=bool(self.request.memory),
            sizes=sizes,
        )

    def _complete_page(self, document: Document) -> Document:
        """Add the cluster's map, the loads of replicas and the data for editing to a page."""
        from ppsim.prices.editable import check_blank, make_editable

        cluster = self.request.network.cluster
        if self.execution and cluster:
            from ppsim.show.drawing.cluster_map import cluster_map
            from ppsim.workload.hardware.hardware import read_cluster

            per_node = read_cluster(cluster).devices_per_node
            document = replace(document, cluster=cluster_map(self.execution, per_node))
        if self.load and self.replicas:
            document = replace(document, below=loads_section(self.load, self.replicas, self.dealt))
        if self.request.blank:
            check_blank(self.schedule)
        given = None if self.load else self.typed_options
        document = make_editable(document, [self.costs], given)
        if self.request.blank:  # without the verdict, which would give away the answer
            document = replace(document, blank=True, verdict="")
        return document

    def _order_text(self, found: MicrobatchOrder) -> str:
        """Return a sentence on the fastest order of microbatches found."""
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
    """Return the time of a model's step as text, with its parts outside the pipeline."""
    whole = step["seconds"]
    return (
        f"{format_number(whole)} s: the pipeline, {format_part(step['reduction'], whole)} s for "
        f"gradients and weights, {format_part(step['optimizer'], whole)} s for the optimizer"
    )


def _fit_text(held: MemoryReport) -> str:
    """Return the memory left below the cap, or the excess, as text."""
    from ppsim.questions.timelines.memory import spare_text

    return spare_text(held)


@dataclass(frozen=True)
class Grid(Answer[RunRequest]):
    """A schedule on integer slots: one for every op, with --lowered also for sends and receives.

    Attributes:
        schedule: the schedule.
    """

    schedule: Schedule

    @cached_property
    def _slots(self) -> Costs:
        """Costs of one slot for every op."""
        from ppsim.core.costs import costs_for

        return costs_for(self.schedule, tb=1.0, ti=1.0, tw=1.0, per="stage")

    @cached_property
    def rows(self) -> list[list[str]]:
        """The op of each device in each slot; empty texts for waits."""
        from ppsim.analysis.grid import cells_of

        if not self.request.lowered:
            from ppsim.engine.simple.longest_path import simulate

            return cells_of(simulate(self.schedule, self._slots))
        return cells_of(
            execute_slots(self.schedule, self._slots, self.request.network.order).timeline
        )

    @property
    def verdict(self) -> str:
        """The number of slots, and of the empty ones."""
        slots = max(map(len, self.rows), default=0)
        empty = sum(not cell for row in self.rows for cell in row)
        whole = slots * len(self.rows)
        waits = f"devices wait in {empty} of {whole} (slots x devices)"
        return f"{self.schedule.name} takes {count_text(slots, 'slot')}; {waits}"

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timeline with a slot for every op; nothing with sends and receives."""
        if self.request.lowered:
            return []
        from ppsim.engine.simple.longest_path import simulate

        return [(title_of(self.schedule), simulate(self.schedule, self._slots))]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.grid/1``."""
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
        """Return the writer of each -o: csv, or json."""
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
