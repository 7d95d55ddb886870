"""Causes of idle time, the critical path, and what would help."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Chart, DrawnBlock, Line, Part
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import (
    SHAPE,
    FaceOptions,
    FigureOptions,
    NetworkOptions,
    OneSchedule,
    ShapeOptions,
    iteration_option,
)
from ppsim.ask.options import Request, common, flag, group, option
from ppsim.ask.terminal import count_colours
from ppsim.ask.types import NumberText
from ppsim.ask.words import title_of
from ppsim.ask.write import Writers, document_writers, find_targets, inputs_of
from ppsim.base.numbers import format_number, format_share
from ppsim.errors import InputError
from ppsim.prices.build import build
from ppsim.prices.data_parallel.lengths import (
    DealOptions,
    LengthOptions,
    Load,
    Loads,
    lengths_object,
)
from ppsim.prices.data_parallel.replicas import (
    ReplicaOptions,
    StepEnds,
    costs_of_slowest,
    time_replicas,
)
from ppsim.prices.options import TIMING, CostOptions
from ppsim.prices.parts.modelled import ModelledOptions, price_by_model
from ppsim.prices.timing import SIMPLE, time_ops
from ppsim.questions.across.explain_text import (
    explain_lines,
    heading_lines,
    job_lines,
    page_explanation,
)
from ppsim.questions.across.rivals import TriedChanges, try_changes, with_memory_of_dealing
from ppsim.questions.across.whatif import Run, change_run

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.analysis.explain import Explanation, MemoryRoom, WhatIf
    from ppsim.analysis.mending import Mending
    from ppsim.analysis.slowdown import Slowdown
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.prices.data_parallel.dealing import DealtJob, DealtLoad
    from ppsim.questions.runs.stated import StatedRun
    from ppsim.show.drawing.worker_map import WorkerMap
    from ppsim.show.files.document import Document, PageExplanation

PAGE = 9.0  # width in inches of a figure in a page
CAUSE_INDENT = 22  # column at which a row of idle time has the meaning of its cause
MOST_GAINS = 20_000  # ops x devices of a run up to which gains are those of its period
LEAST_GAIN = 1e-3  # share of a step that dealing again must save to be listed


@dataclass(frozen=True, kw_only=True)
class ExplainRequest(Request):
    """Explain why devices are idle, what decides the makespan, and what would help.

    SCHEDULE is a name, which is simulated with the given options, or a file. A file that states
    times, and a real run given by --trace, are explained as they are; changes to them are simulated
    with costs derived from those times.

    \b
    The answer has:
      the idle time by cause, and the devices with the most of each
      a critical path: the chain of ops that decides the makespan
      the ops whose time matters most: the gain if they take 1% less
      the makespan after several changes, each simulated, and the best change

    \b
      ppsim explain 1f1b --stages 4 --mb 8
      ppsim explain 1f1b --stages 4 --mb 8 --device 0 --op 2B5 -o bubbles.svg
      ppsim explain zb-1p --devices 8 --mb 32 --what-if tf.3=0.9 --what-if mb=64
      ppsim explain --trace traces/ --what-if 'layers.7>6=1/4'
    """

    question: ClassVar[str] = "explain"
    place: ClassVar[tuple[str, int]] = ("Why, and what would help", 1)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("cap",),
            lambda g: not g["changes"],
            "{options} limits the changes that explain chooses, and --what-if chooses them",
            "leave one of them out",
        ),
    )
    schedule: OneSchedule = group(OneSchedule, "Shape")
    trace: str | None = common(
        "--trace",
        metavar="DIR|FILE",
        help="Explain a real run as measured, from a file or a folder: a table of ops, Primus' "
        "pp_rank_N.json, Kineto traces, or a record (-s chooses one of its runs).",
    )
    iteration: str = iteration_option("median")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    modelled: ModelledOptions = group(ModelledOptions, "Costs")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    changes: tuple[str, ...] = common(
        "--what-if",
        multiple=True,
        metavar="KEY=VALUE,...",
        help="Simulate a change; repeatable. Any option of shape, costs, model or messages: "
        "mb=16 · schedule=zb-1p · tp=4 · comm=0.1 · speed.3=0.9 (device 3) · tf.2=0.9 (forward of "
        "stage 2), tf.2=x0.9 (times 0.9), tf=x0.9 (every stage) · link.0-1=0.5, link.0>1=x2 (one "
        "direction) · layers.3>2=1/8 (moves one of the eight layers of stage 3 to stage 2).",
    )
    of_device: int | None = common(
        "--device", type=click.IntRange(min=0), help="Show every gap of this device."
    )
    of_op: str | None = common(
        "--op",
        metavar="OP",
        help="Show the op or message that an op waits for, and its slack: 2B5 or B5@2 (stage 2).",
    )
    cap: NumberText | None = option(
        "--cap",
        metavar="SIZE",
        help="Memory cap of a device for advised changes (default: the peak of this run). A number "
        "counts activations of a device's 1/P share of the model, or of one layer with --layout; "
        "a size such as 40GiB needs --profile or --model.",
    )
    replica_options: ReplicaOptions = group(ReplicaOptions, "Costs")
    lengths: LengthOptions = group(LengthOptions, "Lengths")
    dealing: DealOptions = group(DealOptions, "Lengths")
    heat: bool = flag(
        "--heat",
        help="Instead of the schedule, draw each worker's slowdown over the steps of a job, or "
        "with --lengths the times of every replica's microbatches, as given and as dealt.",
    )
    output: FigureOptions = group(FigureOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")

    @property
    def spec(self) -> str:
        """The schedule's spelling; empty if --trace is given and no schedule is named."""
        named = self.schedule.names or self.schedule.schedule is not None
        return self.schedule.spec if named or not self.trace else ""


def explain(schedule: str | None = None, **options: Any) -> Explained:
    """Explain a run: its idle time by cause, its critical path, and changes that would help.

    Times are in the run's unit.

    Args:
        schedule: a name, or a file; None with ``trace=``.
        options: the options of ``ppsim explain`` by name; ``what_if`` is a list of changes.

    Raises:
        InputError: an option is refused, or files contain no run.
    """
    from ppsim.ask.request import ask

    return answer(ask(ExplainRequest, {"names": schedule} | options))


def answer(request: ExplainRequest) -> Explained:
    """Explain a run of files by its own times, or simulate a schedule and explain that."""
    given = TypedOptions.from_request(request)
    stated = _stated_run(given, request)
    return _answer_stated(request, given, stated) if stated else _answer_simulated(request, given)


def _answer_stated(request: ExplainRequest, given: TypedOptions, stated: StatedRun) -> Explained:
    """Explain a run by the times of its files."""
    if typed := given.spellings(("replicas", "t_reduce", "lengths", "cp_of", "model")):
        what = f"{', '.join(typed)} is for simulated runs, and this one states its times"
        raise InputError(what, "leave it out")
    explanation, base = _explain_stated(stated)
    _detail_lines(explanation, request)  # refuses a device or an op that does not exist
    tried = _try_changes(request, explanation, base, given, stated)
    _refuse_dealing(request, stated)
    return Explained(
        request,
        explanation,
        stated.observed.costs,
        tried.changes,
        inputs_of(given) | {"run": stated.text},
        stated=stated,
        room=tried.room,
        remarks=tried.notes,
    )


def _answer_simulated(request: ExplainRequest, given: TypedOptions) -> Explained:
    """Simulate the schedule of a request, and explain the simulation."""
    costs, network = price_by_model(
        request.costs, request.network, request.modelled, request.lengths.mbs
    )
    if costs.modelled:
        from ppsim.prices.cap import note_above_gpu

        note_above_gpu(request.cap, costs.modelled.machine)
    request = replace(request, costs=costs, network=network)
    explanation, base, simulated = _explain_simulated(request)
    _detail_lines(explanation, request)  # refuses a device or an op that does not exist
    inputs = inputs_of(given, simulated.prices)
    dealt = _deal(request, base, simulated, request.dealing)
    tried = _try_changes(request, explanation, base, given, None)
    changes = tried.changes
    if simulated.load:
        changes = (*_dealing_changes(request, base, simulated, dealt, tried.room), *changes)
    else:
        _refuse_dealing(request, None)
    return Explained(
        request,
        explanation,
        simulated.prices,
        changes,
        inputs,
        execution=simulated.execution,
        replicas=simulated.replicas,
        room=tried.room,
        remarks=tried.notes,
        load=simulated.load,
        dealt=dealt,
    )


def _try_changes(
    request: ExplainRequest,
    explanation: Explanation,
    base: Run,
    given: TypedOptions,
    stated: StatedRun | None,
) -> TriedChanges:
    """Simulate the changes of --what-if, or else changes that may help.

    For a recorded job of several replicas, only those of --what-if: its remedies are simulated over
    all replicas instead.
    """
    if request.changes:
        changes = (_what_if(change, explanation, base, given) for change in request.changes)
        return TriedChanges(tuple(changes))
    if stated and stated.job and len(stated.job.replicas) > 1:
        if request.cap is not None:
            what = (
                "--cap limits schedules that are tried, and none are for a job of several replicas"
            )
            raise InputError(what, "leave it out")
        return TriedChanges(())
    return try_changes(explanation, base, given, request.cap)


def _detail_lines(explanation: Explanation, request: ExplainRequest) -> list[str]:
    """Return lines on the device of --device and the op of --op; none without these options.

    Raises:
        InputError: the schedule lacks the device or the op.
    """
    device, op = request.of_device, _op_of(explanation, request)
    if device is None and op is None:
        return []
    from ppsim.analysis.views import device_lines, op_lines

    lines = [] if device is None else device_lines(explanation, device)
    return lines + ([] if op is None else op_lines(explanation, op))


def _op_of(explanation: Explanation, request: ExplainRequest) -> int | None:
    """Return the index of the op of --op; None without."""
    if request.of_op is None:
        return None
    from ppsim.analysis.views import find_op

    return find_op(explanation.timeline.schedule, request.of_op)


def _what_if(change: str, explanation: Explanation, base: Run, given: TypedOptions) -> WhatIf:
    """Simulate one change of --what-if."""
    from ppsim.analysis.explain import timed_change

    text, timeline, run = change_run(change, base, given)
    steady = run.find_round(timeline) if explanation.round else None
    if explanation.round and steady is None:
        what = f"--what-if {change}: {timeline.schedule.name} has no period to compare by"
        raise InputError(what, "ppsim compare, or leave out --steps")
    simulated = timed_change(text, text, timeline, steady)
    if base.tokens and run.tokens:
        per_microbatch = simulated.per_microbatch * base.tokens / run.tokens
        simulated = replace(simulated, per_microbatch=per_microbatch)
    return simulated


@dataclass(frozen=True)
class Explained(Answer[ExplainRequest]):
    """Causes of idle time, the critical path, and the changes that help.

    Attributes:
        explanation: idle time by cause, the critical path, and the gain of each time.
        costs: the costs of the simulation, or derived from the times of files.
        changes: the changes that were simulated.
        inputs: the command, version and settings that repeat the answer.
        stated: the run of files; None for a simulation.
        execution: the run with sends and receives as ops; None without --p2p or a cluster.
        replicas: the end of each device of each data-parallel replica; None for one replica.
        room: the memory limit of changes; None for changes of --what-if.
        remarks: sentences on changes that are not shown.
        load: the times of every replica's microbatches; None without lengths. The slowest replica
            is the one explained.
        dealt: the step after dealing the sequences again; None without --deal.
    """

    explanation: Explanation
    costs: Costs
    changes: tuple[WhatIf, ...]
    inputs: dict[str, Any]
    stated: StatedRun | None = None
    execution: Execution | None = None
    replicas: StepEnds | None = None
    room: MemoryRoom | None = None
    remarks: tuple[str, ...] = ()
    load: Load | None = None
    dealt: DealtLoad | None = None

    @property
    def advice(self) -> str:
        """The change to make first, with its gain, as a sentence; for a job, its best remedy."""
        from ppsim.analysis.explain import advise, best_of

        if self.slowdown is None:
            return advise(self.explanation, self.changes, self.room)

        best = best_of(self.explanation, self.changes, self.room)
        now = self.explanation.per_microbatch
        by_change = best.per_microbatch / now if best and now else 1.0
        mended = min((remedy.step for remedy in self.mending), default=1.0)
        by_remedy = mended / (float(self.slowdown.steps.mean()) or 1.0)
        if len(self.slowdown.job.replicas) > 1 or by_remedy < by_change:
            from ppsim.analysis.mending import advise_job

            return advise_job(self.mending, self.slowdown)
        return advise(self.explanation, self.changes, self.room)

    @property
    def idle_by_cause(self) -> dict[str, float]:
        """The idle time of all devices together, by cause, in the run's unit."""
        return dict(self.explanation.idle.by_cause)

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.explain/1``."""
        from ppsim.analysis.explain import explain_object
        from ppsim.analysis.views import view_object

        details = view_object(
            self.explanation, self.request.of_device, _op_of(self.explanation, self.request)
        )
        explained = explain_object(self.explanation, self.changes, self.inputs, self.room)
        sentences = {"advice": self.advice, "notes": list(self.remarks)}
        return explained | sentences | details | self._job_object()

    def _job_object(self) -> dict[str, Any]:
        """Return the keys of replicas, or of a job's slowdown and remedies; none without them."""
        found = self.slowdown
        if self.replicas:
            lengths = {"lengths": lengths_object(self.load)} if self.load else {}
            dealt: dict[str, Any] = {}
            if self.dealt:
                from ppsim.prices.data_parallel.dealing import assignment_object

                assignment = assignment_object(self.dealt.load.sequences)
                dealt = {"deal": self.dealt.deal_object(), "assignment": assignment}
            return {"replicas": self.replicas.to_json()} | lengths | dealt
        if found is None:
            return {}
        from ppsim.analysis.mending import mended_object
        from ppsim.analysis.slowdown import slowdown_object

        dealt = {"deal": self.dealt_job.deal_object()} if self.dealt_job else {}
        return slowdown_object(found) | {"mending": mended_object(self.mending, found)} | dealt

    @cached_property
    def slowdown(self) -> Slowdown | None:
        """The slowdown of a recorded job over a healthy one; None for other runs."""
        job = self.stated.job if self.stated else None
        if job is None:
            return None
        from ppsim.analysis.slowdown import find_slowdown

        return find_slowdown(job)

    @cached_property
    def mending(self) -> list[Mending]:
        """The remedies of a recorded job, each simulated, the largest saving first."""
        if self.slowdown is None:
            return []
        from ppsim.analysis.mending import mend

        changes = mend(self.slowdown)
        if self.dealt_job:
            changes.append(self.dealt_job.as_mending)
        return sorted(changes, key=lambda change: change.step)

    @cached_property
    def dealt_job(self) -> DealtJob | None:
        """The step after dealing a recorded job's microbatches again; None without --deal."""
        if not self.request.dealing.is_asked or self.slowdown is None:
            return None
        from ppsim.prices.data_parallel.dealing import deal_job

        return deal_job(self.request.dealing, self.slowdown)

    @property
    def verdict(self) -> str:
        """The time of the run, its idle share, and the change to make first."""
        timeline, metrics = self.explanation.timeline, self.explanation.metrics
        time = f"{format_number(timeline.makespan)} {timeline.unit}"
        idle = metrics.bubble_rate
        if steady := self.explanation.round:
            time = f"{format_number(steady.period)} {timeline.unit} from one round to the next"
            idle = steady.bubble
        name = self.stated.title if self.stated else timeline.schedule.name
        return f"{name} takes {time}, idle {format_share(idle)} of it; {self.advice}"

    def blocks(self) -> Iterator[Block]:
        """Causes, critical path, gains and changes; with --device or --op lines on that alone."""
        yield ""
        if details := _detail_lines(self.explanation, self.request):
            headings = heading_lines(self.explanation, self.stated)
            yield from (Line(line, 4) for line in [*headings, "", *details])
        else:
            yield DrawnBlock(self._all_blocks)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The run that is explained."""
        return [(title_of(self.explanation.timeline.schedule), self.explanation.timeline)]

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: the schedule, with its bubbles coloured by cause."""
        timeline = self.explanation.timeline
        title = self.stated.title if self.stated else title_of(timeline.schedule)
        if self.request.heat:
            return self._heat_writers(output)
        idles = [self.explanation.idle]
        return document_writers(
            [timeline], [title], self.inputs, output, idles, self._complete, verdict=self.verdict
        )

    def _complete(self, document: Document, suffix: str) -> Document:
        """Add sends and receives to a document, and to a page also the explanation."""
        if self.execution:
            document = replace(document, executions=(self.execution,))
        if suffix != ".html":
            return document
        if self.load and self.replicas:
            from ppsim.prices.data_parallel.dealing import loads_section

            document = replace(document, below=loads_section(self.load, self.replicas, self.dealt))
        if self.slowdown is not None:
            from ppsim.show.files.workers import lines_of_page, workers_svg

            below = lines_of_page([*job_lines(self.slowdown, self.mending)])
            below += workers_svg(_worker_map(self.slowdown), PAGE)
            document = replace(document, below=below)
        from ppsim.prices.editable import make_editable

        given = None if self.stated or self.load else self.typed_options
        return make_editable(replace(document, explanation=self.story), [self.costs], given)

    @property
    def story(self) -> PageExplanation:
        """The explanation of the run for a page."""
        notes = [*self._more_lines, *self.remarks]
        return page_explanation(self.explanation, self.changes, self.room, self.advice, notes)

    @property
    def _more_lines(self) -> list[str]:
        """Sentences on faster changes that need more memory, and on the cost of unequal lengths."""
        from ppsim.analysis.explain import advise_more_memory

        more = advise_more_memory(self.explanation, self.changes, self.room)
        found = [more] if more else []
        if self.load and self.replicas:
            from ppsim.prices.data_parallel.dealing import describe_lengths

            found.append(describe_lengths(self.replicas))
            if self.request.cap is not None:
                found.append(self.load.describe_memory())
        return found

    def _last_lines(self) -> Iterator[str]:
        """Yield the lines after the changes: on changes that are not shown, and
        :meth:`_more_lines`.
        """
        yield from (f"  {line}" for line in self.remarks)
        if self._more_lines:
            yield ""
        yield from self._more_lines

    def _heat_writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: every worker's slowdown in every step, as a heat map."""
        from ppsim.show.files.workers import save_loads, save_workers

        if self.load and self.replicas:
            from ppsim.prices.data_parallel.dealing import maps_of

            maps = maps_of(self.load, self.replicas, self.dealt)
            save = partial(save_loads, maps, width=output.width, inputs=self.inputs)
            return [
                (target, partial(save, target, suffix)) for target, suffix in find_targets(output)
            ]
        if self.slowdown is None:
            raise InputError(
                "--heat draws a job of several workers, and this run is not one",
                "--trace FILE with a table of ops, or --lengths FILE",
            )
        save = partial(
            save_workers, _worker_map(self.slowdown), width=output.width, inputs=self.inputs
        )
        return [(target, partial(save, target, suffix)) for target, suffix in find_targets(output)]

    def _all_blocks(self, screen: Console) -> Iterator[Block]:
        """The whole explanation, with a chart of causes."""
        if self.slowdown is not None:
            yield from (Line(line, 11) for line in job_lines(self.slowdown, self.mending))
            if self.dealt_job and self.stated:
                yield Line(self.dealt_job.line(self.explanation.timeline.unit), 11)
            yield ""
        if self.replicas:
            yield from self.replicas.lines()
            if self.dealt:
                yield from self.dealt.lines(self.explanation.timeline.unit)
            yield ""
        chart = True
        lines = explain_lines(self.explanation, self.changes, self.stated, screen)
        for number, line in enumerate([*lines, *self._last_lines()]):
            indent = CAUSE_INDENT if _is_row(line) else 4 if line.startswith(" ") else 2
            name, blanks, rest = line.partition("  ")
            yield Line(
                [(name, "name"), blanks + rest] if number == 0 else _toned_parts(line), indent
            )
            if not line and chart:
                from ppsim.show.drawing.terminal_marks import marks_of_idle

                idle = self.explanation.idle
                yield Chart(
                    self.explanation.timeline,
                    self.explanation.metrics,
                    marks_of_idle(idle, count_colours(screen)),
                )
                yield ""
                chart = False


def _worker_map(slowdown: Slowdown) -> WorkerMap:
    """Return the slowdown of every worker in every step, as a heat map."""
    from ppsim.show.drawing.worker_map import WorkerMap

    job, values = slowdown.job, slowdown.by_worker_steps
    names = [
        f"replica {r} device {d}" for r in job.replicas.tolist() for d in range(values.shape[2])
    ]
    return WorkerMap(
        values.reshape(len(values), -1).T, tuple(names), tuple(job.iterations.tolist())
    )


def _stated_run(given: TypedOptions, request: ExplainRequest) -> StatedRun | None:
    """Return a run to explain by its own times; None for a schedule to simulate.

    Options of costs or messages simulate a file even if it states times.
    """
    spec, trace, iteration = request.spec, request.trace, request.iteration
    if not trace and not _may_be_file(spec):
        _refuse_iteration(given)
        return None
    from ppsim.questions.runs.stated import read_stated, unit_of_request

    unit = unit_of_request(request.costs.unit, trace or spec)
    simulated = given.spellings(tuple(name for name in TIMING if not (unit and name == "unit")))
    if trace:
        unused = [*simulated, *given.spellings(SHAPE)]
        if unused:
            raise InputError(
                f"--trace is a run that has its shape and times, so {', '.join(unused)} cannot be "
                f"given too"
            )
        if stated := read_stated(trace, iteration, spec, unit):
            return stated
        from ppsim.real.traces.read import read_run

        read_run([trace])  # raises a more precise error, if it knows one
        raise InputError(
            f"'{trace}' contains no run", "a folder or file of a real run, or a file with times"
        )
    if not simulated and (stated := read_stated(spec, iteration, unit=unit)):
        from ppsim.schedules import require_shape

        require_shape(spec, stated.observed.timeline.schedule, asdict(request.shape))
        return stated
    _refuse_iteration(given)
    return None


def _may_be_file(spec: str) -> bool:
    """Return True if a spelling may name a file with times, and not only a family."""
    from ppsim.schedules import reads_ops

    file, _, _ = spec.rpartition(":")
    return os.path.exists(spec) or os.path.isfile(file) or reads_ops(spec)


def _refuse_iteration(given: TypedOptions) -> None:
    """Raise InputError if --iteration is given, for a schedule that is simulated."""
    if given.has("iteration"):
        raise InputError(
            "--iteration chooses a step of a real run, and this run is simulated", "--trace DIR"
        )


def _explain_stated(stated: StatedRun) -> tuple[Explanation, Run]:
    """Return the explanation of a run of files, and the run that changes start from."""
    from ppsim.analysis.changes import times_sliced
    from ppsim.analysis.explain import explain_times

    explanation = explain_times(stated.observed)
    schedule = explanation.timeline.schedule
    slices = schedule.n_slices
    shape = ShapeOptions(
        devices=schedule.n_devices,
        stages=schedule.n_stages,
        microbatches=schedule.whole_microbatches,
        group_size=stated.group_size,
        slices=slices if slices > 1 else None,
    )
    whole = times_sliced(stated.observed.costs, slices)
    costs = _steps_shown(schedule, whole)
    return explanation, Run(stated.family, shape, costs, SIMPLE, schedule, whole)


def _steps_shown(schedule: Schedule, prices: Costs) -> CostOptions:
    """Return the options of steps that repeat the rounds and collectives of a real run, for
    schedules that are timed with its costs.
    """
    from ppsim.core.ops import BACKWARDS, Kind, mask

    shown = {*schedule.kind.tolist()}
    if schedule.n_rounds == 1 and Kind.OPT not in shown:
        return CostOptions()
    trains = bool(mask(BACKWARDS)[schedule.kind].any())
    given = {"t_gather": Kind.GATHER, "t_reduce_grad": Kind.REDUCE}
    times: dict[str, Any] = {
        name: prices.others[kind].tolist() for name, kind in given.items() if kind in shown
    }
    alone = trains and schedule.flushes and Kind.NORM not in shown
    return CostOptions(
        steps=schedule.n_rounds, post_validation=alone, per="stage" if times else None, **times
    )


def _refuse_dealing(request: ExplainRequest, stated: StatedRun | None) -> None:
    """Refuse --deal without sequences or a recorded job (InputError)."""
    if request.dealing.is_asked and not (stated and stated.job):
        what = "--deal needs the sequences of --lengths, or a recorded job"
        raise InputError(what, "add --lengths FILE, or --trace FILE of a job")


def _deal(
    request: ExplainRequest,
    base: Run,
    simulated: Simulated,
    options: DealOptions,
) -> DealtLoad | None:
    """Deal the sequences of a simulated run again; None without --deal or sequences."""
    if not options.is_asked or simulated.load is None or base.schedule is None:
        return None

    from ppsim.prices.data_parallel.dealing import deal_load

    def build_with(count: int) -> tuple[Schedule, Costs]:
        shape = replace(request.shape, microbatches=count)
        return build(request.spec, shape, request.costs, request.network)

    given = base.schedule, simulated.mean_prices
    return deal_load(options, build_with, given, simulated.load, request.replica_options)


def _dealing_changes(
    request: ExplainRequest,
    base: Run,
    simulated: Simulated,
    dealt: DealtLoad | None,
    room: MemoryRoom | None,
) -> tuple[WhatIf, ...]:
    """Return dealing the sequences again as changes.

    With ``--deal``, the dealing found by its search. Else the longest sequences first, within and
    among replicas, if that is faster; nothing with --what-if, or if the model cannot time it.
    """

    def change_of(dealing: DealtLoad, options: DealOptions) -> WhatIf:
        change = _dealing_change(request, dealing, options)
        return with_memory_of_dealing(change, base, dealing.schedule, dealing.load, room)

    if dealt:
        return (change_of(dealt, request.dealing),)
    if request.changes or not _may_be_dealt(request, base, simulated):
        return ()
    changes = []
    has_replicas = simulated.load is not None and simulated.load.n_replicas > 1
    for across in (False, True) if has_replicas else (False,):
        options = DealOptions(deal=True, across=across, deal_for=0.0)
        dealing = _deal(request, base, simulated, options)
        if dealing and dealing.dealing.step < dealing.given_step * (1 - LEAST_GAIN):
            changes.append(change_of(dealing, options))
    return tuple(changes)


def _may_be_dealt(request: ExplainRequest, base: Run, simulated: Simulated) -> bool:
    """Return True if sequences of several lengths are given and the simple model can time them."""
    load, schedule, prices = simulated.load, base.schedule, simulated.mean_prices
    if (
        load is None
        or schedule is None
        or request.network.detailed
        or request.lengths.lengths is None
    ):
        return False
    from ppsim.prices.data_parallel.dealing import MOST, can_be_dealt

    return can_be_dealt(schedule, prices, load) and len(load.sequences) <= MOST


def _dealing_change(request: ExplainRequest, dealt: DealtLoad, options: DealOptions) -> WhatIf:
    """Return a dealing of the sequences as a change, timed by its slowest replica."""
    from ppsim.analysis.explain import timed_change

    slowest = int(dealt.dealing.makespans.argmax())
    prices = costs_of_slowest(
        dealt.schedule, dealt.costs, request.costs, request.replica_options, dealt.load, slowest
    )
    timeline, _ = time_ops(dealt.schedule, prices, request.network, request.costs.links)
    text = f"sequences dealt again {'among' if options.across else 'within'} replicas"
    if dealt.steps_by_count:
        text += f", packed into {dealt.schedule.whole_microbatches} microbatches"
    if not options.deal_for:
        text += ", longest first"
    across = " --across" if options.across else ""
    advice = f"deal the sequences again (ppsim run --deal{across} -o deal.csv)"
    change = timed_change(text, advice, timeline)
    # Packing changes the number of microbatches, but not the sequences that a step trains on.
    return replace(change, per_microbatch=timeline.makespan / dealt.given_load.factors.shape[2])


class Simulated(NamedTuple):
    """The costs, messages and replicas of a run that was simulated to be explained."""

    prices: Costs  # with lengths, of the slowest replica
    mean_prices: Costs  # of microbatches of mean length
    execution: Execution | None
    replicas: StepEnds | None
    load: Load | None


def _explain_simulated(request: ExplainRequest) -> tuple[Explanation, Run, Simulated]:
    """Return the explanation of a simulation, the run that changes start from, and its costs."""
    from ppsim.analysis.explain import explain

    spec, shape, costs, network = request.spec, request.shape, request.costs, request.network
    schedule, prices = build(spec, shape, costs, network)
    loads = Loads(request.lengths, request.replica_options.count)
    load = loads.find(schedule, costs)
    base = Run(
        spec,
        shape,
        costs,
        network,
        schedule,
        replicas=request.replica_options.replicas,
        loads=loads if load else None,
        training=request.modelled,
        lengths=request.lengths,
    )
    replicas = time_replicas(schedule, prices, network, costs, request.replica_options, load)
    mean_prices = prices
    if replicas:
        slowest = replicas.slowest
        prices = costs_of_slowest(schedule, prices, costs, request.replica_options, load, slowest)
    timeline, execution = time_ops(schedule, prices, network, costs.links)
    steady = base.find_round(timeline) if base.replicas is None and load is None else None
    gains_of_round = bool(steady) and len(schedule) * schedule.n_devices <= MOST_GAINS
    time_with: Callable[[Costs], float] | None = None
    if gains_of_round:
        time_with = partial(_period_of, schedule)
    elif execution:
        time_with = partial(_detailed_makespan, schedule, network, costs.links)
    explanation = explain(timeline, prices, execution, time_with)
    explanation = replace(explanation, round=steady, gains_of_round=gains_of_round)
    return explanation, base, Simulated(prices, mean_prices, execution, replicas, load)


def _detailed_makespan(
    schedule: Schedule, network: NetworkOptions, links: tuple[str, ...], costs: Costs
) -> float:
    """Return the makespan of a schedule under other costs, with messages as ops."""
    return time_ops(schedule, costs, network, links)[0].makespan


def _period_of(schedule: Schedule, costs: Costs) -> float:
    """Return the period of a schedule under other costs."""
    from ppsim.analysis.period import find_period

    return find_period(schedule, costs).time


def _is_row(line: str) -> re.Match[str] | None:
    """Match the time and the cause of a line that is a row of idle time."""
    return re.match(r" +[-+.e\d]+  \S+ ", line)


def _toned_parts(line: str) -> list[Part]:
    """Return a line of ``explain`` in parts: the time and the cause of a row have a colour."""
    if row := _is_row(line):
        return [(row[0], "name"), line[row.end() :]]
    return [line]
