"""Memory of every device over time, and whether it fits."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, DrawnBlock, Line, Part, Table
from ppsim.ask.given import Need, TypedOptions
from ppsim.ask.groups import FaceOptions, FigureOptions, OneSchedule, ShapeOptions, cap_option
from ppsim.ask.options import Request, common, flag, group, list_options
from ppsim.ask.request import ask
from ppsim.ask.types import NumberTexts
from ppsim.ask.words import count_text, recomputed, shape_line, title_of
from ppsim.ask.write import Writers, document_writers, inputs_of
from ppsim.base.numbers import format_change, format_number, with_unit
from ppsim.base.units import format_size
from ppsim.engine.simple.columns import size_object
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import build, build_memory
from ppsim.prices.cap import (
    OF_A_SHARE,
    number_at_least,
    read_cap,
    write_count,
)
from ppsim.prices.data_parallel.lengths import LengthOptions, Load, Loads, SequenceLengths
from ppsim.prices.data_parallel.replicas import LoadedRuns, ReplicaOptions, most_held
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.serving import (
    ServedMemory,
    ServedOptions,
    caps_of,
    measure_served,
    schedule_that_serves,
    serve_layout,
    spec_of,
)
from ppsim.prices.timing import SIMPLE
from ppsim.prices.trained import TrainedModel, TrainedOptions, model_option

if TYPE_CHECKING:
    from rich.console import Console

    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.report import MemoryReport
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.schedules import Alternative
    from ppsim.show.files.document import Document
    from ppsim.workload.layout.layout import Layout

MARGIN, MOST_ROWS = 40, 32  # columns beside the bars of a device; devices to print
GIB = 2.0**30
COUNTED_ACTIVATIONS = (
    "an activation is held from F to the end of B, or of W where backwards are split"
)
COUNTED_BYTES = "not counted: the driver, communicators and gaps between tensors, some 6 % of a GPU"
MOST_STACKS = 16  # devices whose parts of memory a page shows


@dataclass(frozen=True, kw_only=True)
class MemoryRequest(Request):
    """Show the memory of every device over time: its peak, when it is reached, and its parts.

    The unit is activations, or bytes with --model or a --profile that has bytes. An activation is
    the memory that a stage's forward of one microbatch leaves for its backward; it is held from the
    start of F to the end of B, or of W if backwards are split. --cap and ppsim compare count
    activations of a device's 1/P share of the model; with V chunks, one of them is V activations of
    a stage. Bytes are weights, gradients, Adam's states, activations and buffers of messages; the
    driver, communicators and gaps between tensors are not counted, so leave some 6 % of a GPU free.
    Exits with 1 if a device exceeds --cap, and then prints alternatives that fit. Figures show the
    memory below the schedule.

    \b
      ppsim memory --schedule zb-1p --stages 4 --mb 8
      ppsim memory -s 1f1b --devices 8 --mb 32 --model model.toml --cap 80GiB -o memory.svg
      ppsim memory decode --serve --devices 8 --model llama3-70b --weight-bits 8 --cap 18GiB
    """

    question: ClassVar[str] = "memory"
    place: ClassVar[tuple[str, int]] = ("What a model needs", 2)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            (
                "lengths",
                "padded",
                "cp_of",
                *(each.name for each in list_options(CostOptions) if each.name != "layout"),
            ),
            lambda g: not g["serve"],
            "--serve counts bytes, which no time changes, so {options} has no effect",
            "leave it out",
        ),
        Need(
            ("measured", "breakdown", "output"),
            lambda g: not g["serve"],
            "{options} is for a training step, and --serve has none",
            "leave it out",
        ),
        Need(
            ("breakdown",),
            lambda g: not g["quiet"] and "-" not in g["output"],
            "{options} prints a table, and --quiet and -o - print only the result",
        ),
    )
    schedule: OneSchedule = group(OneSchedule, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    model: str | None = model_option("Bytes")
    training: TrainedOptions = group(TrainedOptions, "Training of --model")
    cap: NumberTexts | None = cap_option("--model or --profile")
    lengths: SequenceLengths = group(SequenceLengths, "Lengths")
    measured: str | None = common(
        "--measured", metavar="FILE", help="Compare with the measured peaks of the devices."
    )
    serve: bool = flag(
        "--serve",
        help="Memory of a pipeline that serves --model: weights, and the keys and values that fit "
        "--cap.",
        common=True,
    )
    served: ServedOptions = group(ServedOptions, "Serving of --model")
    breakdown: bool = flag(
        "--breakdown",
        help="Print the parts of each device's peak; draw those of the fullest device over time.",
        common=True,
    )
    output: FigureOptions = group(FigureOptions, "Output")
    face: FaceOptions = group(FaceOptions, "Output")


def memory(schedule: str, **options: Any) -> Any:
    """Return the memory of every device over time: in activations, or in bytes with a model or a
    profile.

    ``options`` are the options of ``ppsim memory`` by name. Returns a :class:`Memory`, with
    ``serve`` a :class:`MemoryServed`.

    Raises:
        InputError: an option or a shape is refused.
    """
    return answer(ask(MemoryRequest, {"names": schedule} | options))


def answer(request: MemoryRequest) -> Memory | MemoryServed:
    """Compute the memory of the devices over time; with --serve, that of devices that serve."""
    if request.serve:
        return answer_served(request)
    from ppsim.engine.memory.report import report, report_replicas

    model = TrainedModel(request.model, request.training) if request.model else None
    sequences = LengthOptions(**asdict(request.lengths), mbs=request.training.mbs)
    loads = Loads(sequences, request.training.dp)
    case = Case(request.schedule.spec, request.shape, request.costs, model, loads)
    runs, prices = case.simulate()
    timeline, held = runs[0]
    if model and timeline.schedule.only_forwards:
        name = timeline.schedule.name
        raise InputError(
            f"{name} does not train, and --model counts the memory of training",
            f"ppsim memory {name} --serve --model {request.model} --cap SIZE",
        )
    load, most = loads.find(timeline.schedule, request.costs), None
    if request.cap is not None:
        cap = read_cap(request.cap)
        most = cap.caps_in_unit(timeline.schedule, held.unit, whole=load is None)
    found = report_replicas(runs, most) if load else report(timeline, held, most)
    near, unsearched = find_alternatives(found, case) if found.exceeding else ((), False)
    measured = None if request.measured is None else compare_measured(found, request.measured)
    inputs = inputs_of(TypedOptions.from_request(request), prices)
    return Memory(request, found, inputs, prices, near, unsearched, measured, load)


@dataclass(frozen=True)
class Memory(Answer[MemoryRequest]):
    """Memory of the devices over time.

    Attributes:
        report: the peaks with their times and parts, and the devices that exceed the cap.
        inputs: the command, version and settings that repeat the answer.
        costs: the costs of the ops.
        alternatives: changes that fit the cap, if a device exceeds it.
        more_splits: True if other splits of the layers may also fit, which only ppsim partition
            searches.
        measured_peaks: the comparison with measured peaks; None without --measured.
        load: the times of every replica's microbatches; None without lengths.
    """

    report: MemoryReport
    inputs: Mapping[str, Any]
    costs: Costs
    alternatives: tuple[Alternative, ...] = ()
    more_splits: bool = False
    measured_peaks: dict[str, Any] | None = None
    load: Load | None = None

    @property
    def timeline(self) -> Timeline:
        """The timeline of the schedule."""
        return self.report.timeline

    @property
    def peak(self) -> list[float]:
        """The peak memory of each device, in bytes or activations."""
        return [peak.value for peak in self.report.peaks]

    @property
    def fits(self) -> bool:
        """True if no device exceeds the cap."""
        return not self.report.exceeding

    @property
    def verdict(self) -> str:
        """The memory to spare or in excess of the cap; without a cap, the peak of the devices."""
        name = self.timeline.schedule.name
        if self.report.cap is not None:
            return f"{name} {spare_text(self.report)}"
        size, where = self._fullest()
        return f"{name} needs {size} at most, {where}"

    @property
    def tone(self) -> str:
        """The tone of good news if the cap fits, of a fault if it does not."""
        return "name" if self.report.cap is None else "good" if self.fits else "fault"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.memory/1``."""
        from ppsim.engine.memory.report import memory_object

        rows = [
            {"options": a.options, "peak": a.peak, "makespan": a.makespan}
            for a in self.alternatives
        ]
        return memory_object(self.report, self.inputs, rows) | (
            {"measured": self.measured_peaks} if self.measured_peaks else {}
        )

    def line(self) -> Iterator[Block]:
        """The peak of the devices on one line."""
        schedule = self.timeline.schedule
        size, where = self._fullest()
        yield (
            f"{schedule.name} {schedule.n_devices}x{schedule.whole_microbatches}  peak {size} "
            f"{where}"
        )

    def blocks(self) -> Iterator[Block]:
        """The memory of each device over time, and the peak with its parts."""
        from ppsim.engine.memory.usage import BYTES

        found, schedule = self.report, self.timeline.schedule
        unit, fullest = found.curve.unit, found.fullest
        size, where = self._fullest()
        yield Line([(title_of(schedule), "name"), f"  {shape_line(schedule)}"])
        yield DrawnBlock(self._bars)
        parts = sorted(
            ((amount, name) for name, amount in fullest.parts.items() if amount), reverse=True
        )
        yield ""
        yield Line(["peak ", (size, "bad" if found.exceeding else "name"), f" {where}"], 5)
        texts = (
            f"{name} {format_size(amount, unit)} ({amount / fullest.value:.0%})"
            for amount, name in parts
        )
        yield Line(f"held by {', '.join(texts) or 'nothing'}", 8)
        yield Line([(COUNTED_BYTES if unit == BYTES else COUNTED_ACTIVATIONS, "quiet")])
        if unit != BYTES:
            yield from recomputed([schedule])
        if self.load:
            yield Line(self.load.describe_memory())
        if self.request.breakdown:
            yield DrawnBlock(self._breakdown, at_least=100)
        if self.measured_peaks is not None:
            yield from measured_lines(self.measured_peaks)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timeline with its title."""
        return [(title_of(self.timeline.schedule), self.timeline)]

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: the schedule with the memory of devices below it."""
        title = title_of(self.timeline.schedule)
        return document_writers(
            [self.timeline],
            [title],
            self.inputs,
            output,
            complete=self._complete,
            verdict=self.verdict,
        )

    def _complete(self, document: Document, suffix: str) -> Document:
        """Add the memory of devices to a document; to pages, and with --breakdown to figures, also
        the parts of the fullest devices.
        """
        from ppsim.engine.memory.usage import share_unit, stacks

        found = self.report
        if suffix != ".html":
            shown = stacks(self.timeline, found.model)[0] if self.request.breakdown else found.curve
            return replace(document, memory=(shown,), cap=found.common_cap)
        from ppsim.prices.editable import make_editable

        held = stacks(self.timeline, found.model, MOST_STACKS)
        held = share_unit(held, [self.timeline.schedule] * len(held))
        further = tuple(
            replace(stack, name=f"{stack.name}, device {stack.device}") for stack in held
        )
        document = replace(
            document,
            memory=(found.curve,),
            memory_models=(found.model,),
            cap=found.common_cap,
            caps=found.device_caps,
            curves=(further,),
        )
        if self.load is not None and found.replica is not None:
            costs = self.load.costs(self.timeline.schedule, self.costs, found.replica)
            return make_editable(document, [costs])
        return make_editable(
            document, [self.costs], None if self.request.model else self.typed_options
        )

    def notes(self) -> Iterator[str]:
        """A note on figures, which cannot show different caps."""
        figures = [name for name in self.request.output.output if not name.endswith(".html")]
        if isinstance(self.report.cap, tuple) and figures:
            yield "figures mark no cap: the devices have different ones"

    def error_after_output(self) -> PpsimError | None:
        """Return the error that the run does not fit the cap, with alternatives; else None."""
        return None if self.fits else misfit_error(self.report, self.alternatives, self.more_splits)

    def _fullest(self) -> tuple[str, str]:
        """The peak of the fullest device, and its place and time, as texts."""
        found, fullest = self.report, self.report.fullest
        where = (
            f"on device {fullest.device} from {fullest.time:g} {self.timeline.unit}, "
            f"{found.label(fullest.op)}"
        )
        if found.curve.unit == "B":
            return format_size(fullest.value), where
        return write_count(fullest.value, _per_unit(found), found.curve.unit), where

    def _bars(self, screen: Console) -> Iterator[Block]:
        """A line of bars for each device: its memory over time."""
        from ppsim.engine.memory.report import ASCII_LEVELS, LEVELS, bars
        from ppsim.show.drawing.terminal import can_encode

        found = self.report
        columns = max(20, min(screen.width, 160) - MARGIN)
        levels = LEVELS if can_encode(screen.encoding, LEVELS) else ASCII_LEVELS
        timeline, curve = found.timeline, found.curve
        full = format_amount(found.fullest.value, curve.unit)
        capped = f", cap {format_cap(found)}" if found.cap is not None else ""
        scale = (
            f"1 column = {format_number(timeline.makespan / columns)} {timeline.unit}, full "
            f"height = {full}{capped}"
        )
        yield Line([(scale, "quiet")])
        name_width = len(f"dev {len(found.peaks) - 1}")
        for peak in _first_and_last(found.peaks):
            if peak is None:
                yield _omitted_note(found, screen)
                continue
            line = bars(curve, peak.device, timeline.makespan, columns, levels)
            over = peak.value > found.cap_of(peak.device)
            size = format_size(peak.value, curve.unit)
            row: list[Part] = [
                f"{f'dev {peak.device}':<{name_width}} ",
                *_bar_parts(found, peak.device, line),
                "  ",
            ]
            row += [
                (f"{size:>9}", "bad" if over else "name"),
                (f" at {peak.time:g}, {found.label(peak.op)}", "quiet"),
            ]
            yield Line([*row, ("  over", "fault")] if over else row, name_width + 1)

    def _breakdown(self, screen: Console) -> Iterator[Block]:
        """A table of the parts of each device's peak."""
        found = self.report
        names = [
            name for name in found.peaks[0].parts if any(peak.parts[name] for peak in found.peaks)
        ]
        yield "\nat each device's peak"
        rows = [
            [_omitted_note(found, screen), *[""] * len(names)]
            if peak is None
            else [
                f"dev {peak.device}",
                *(format_size(peak.parts[name], found.curve.unit) for name in names),
            ]
            for peak in _first_and_last(found.peaks)
        ]
        least = sorted(names, key=lambda name: max(peak.parts[name] for peak in found.peaks))
        # two lines, with the last word on the second
        headings = {name: "\n".join(name.rpartition(" ")[::2]) for name in names}
        spare = [headings[name] for name in least]
        yield Table(
            ["\n", *headings.values()],
            rows,
            spare=spare,
            tone=lambda _, column: "" if column else "name",
        )


def answer_served(request: MemoryRequest) -> MemoryServed:
    """Compute the memory of the devices of a pipeline that serves."""
    if request.model is None:
        raise InputError("--serve needs a model", "add --model NAME")
    spec, trained = spec_of(request.schedule), TrainedModel(request.model, request.training)
    schedule = schedule_that_serves(spec, request.shape)
    layout = serve_layout(trained, schedule, request.costs)
    caps = caps_of(request.cap, schedule.n_devices)
    held = measure_served(trained, request.served, schedule, layout, caps)
    return MemoryServed(request, schedule, layout, held)


@dataclass(frozen=True)
class MemoryServed(Answer[MemoryRequest]):
    """Memory of the devices of a pipeline that serves.

    Attributes:
        schedule: the pipeline.
        layout: the layers of each stage.
        held: the weights of each device, and its free memory for keys and values.
    """

    schedule: Schedule
    layout: Layout
    held: ServedMemory

    @property
    def verdict(self) -> str:
        """The number of sequences that fit, and the device that limits them."""
        devices = count_text(self.schedule.n_devices, "device")
        return f"{self.schedule.name} on {devices}: {self.held.sentence()}"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.served/1``."""
        inputs = inputs_of(self.typed_options)
        return {
            "schema": "ppsim.served/1",
            "inputs": inputs,
            **size_object(self.schedule),
            "layout": str(self.layout),
            "split": self.layout.layers,
            **self.held.to_json(),
        }

    def blocks(self) -> Iterator[Block]:
        """The content and the free memory of each device."""
        model = self.request.model or ""
        yield Line(
            [
                (model, "name"),
                f" on {count_text(self.schedule.n_devices, 'device')}, "
                f"layers {list(self.layout.layers)}",
            ]
        )
        yield ""
        yield from self.held.blocks()

    def error_after_output(self) -> PpsimError | None:
        """Return the error that the model does not fit."""
        if self.held.fits:
            return None
        return PpsimError(
            self.held.sentence(),
            "a larger --cap, fewer --weight-bits, more devices, a higher --tp, or for experts "
            "a higher --ep",
        )


@dataclass(frozen=True)
class Case:
    """A schedule's spelling and shape, its costs, the model that gives bytes, and the lengths of
    its microbatches.
    """

    spec: str
    shape: ShapeOptions
    costs: CostOptions
    model: TrainedModel | None
    loads: Loads

    def simulate(self, *, quiet: bool = False) -> tuple[list[tuple[Timeline, MemoryModel]], Costs]:
        """Return the timeline and the memory model of each replica, and the costs of mean
        microbatches, recompute included; ``quiet`` shows no notes on the schedule.
        """
        schedule, prices = build(self.spec, self.shape, self.costs, model=self.model, quiet=quiet)
        held, prices = build_memory(schedule, prices, self.costs, self.model)
        load = self.loads.find(schedule, self.costs)
        if load is None:
            from ppsim.engine.simple.longest_path import simulate

            return [(simulate(schedule, prices), held)], prices
        runs = LoadedRuns(
            schedule, prices, self.costs, load, ReplicaOptions(), SIMPLE, self.costs.links
        )
        if self.model is None:
            return [*runs.hold(held)], prices
        doubled, _ = build_memory(schedule, prices, self.costs, self.model.with_double_sequences)
        tokens = self.model.tokens
        return [*runs.hold(held, doubled, tokens)], prices

    def fullest(self) -> tuple[Timeline, float]:
        """Return the timeline, and the peak of any device of any replica, in the unit of --cap."""
        runs, _ = self.simulate(quiet=True)
        return runs[0][0], most_held(runs)[0]

    def fix(self, options: str, cap: float, **costs: Any) -> Alternative | None:
        """Return the case with other costs as an alternative, if it fits; else None.

        ``options`` spell those costs, and ``cap`` is in the unit of ``--cap``.
        """
        from ppsim.schedules import Alternative

        try:
            timeline, peak = replace(self, costs=replace(self.costs, **costs)).fullest()
        except PpsimError:
            return None
        return Alternative(options, peak, timeline.makespan) if peak <= cap else None


def find_alternatives(found: MemoryReport, case: Case) -> tuple[tuple[Alternative, ...], bool]:
    """Return alternatives that fit the cap, and True if splits of the layers were not searched.

    An alternative is the same command with other options. If devices have different caps, the
    alternatives fit the least one.
    """
    from ppsim.engine.memory.usage import ACTIVATIONS, activations_per_unit
    from ppsim.schedules import Request as Sought
    from ppsim.schedules import Trial, find_fitting

    def attempt(request: Sought) -> Trial:
        other = replace(case, spec=request.spec, shape=ShapeOptions(**request.numbers))
        timeline, peak = other.fullest()
        return Trial(peak, timeline.makespan)

    devices = range(len(found.peaks))
    most = min(map(found.cap_of, devices))
    schedule, unit = found.timeline.schedule, found.curve.unit
    cap = most / activations_per_unit(schedule, unit)
    near = find_fitting(Sought(case.spec, asdict(case.shape)), schedule, cap, attempt)
    recomputed_case, split, unsearched = None, None, False
    # numbers of activations would leave out the input that a forward keeps with recompute
    if unit != ACTIVATIONS and not case.costs.recompute:
        recomputed_case = case.fix("--recompute", cap, recompute=True)
    if layout := ask_costs(case.costs).layout_of(schedule):
        from ppsim.questions.optimum.partition_problem import searches_soon

        unsearched = not searches_soon(case.spec, schedule, layout.n_layers)
        split = None if unsearched else _fitting_split(schedule, layout, case, cap, unit)
    return tuple(fix for fix in (recomputed_case, split, *near) if fix), unsearched


def _fitting_split(
    schedule: Schedule, layout: Layout, case: Case, cap: float, unit: str
) -> Alternative | None:
    """Return the fastest split of the layers that fits the cap; None if none is found."""
    if "".join(layout.content).count("L") > 1:  # ppsim partition has one loss
        return None
    from ppsim.engine.memory.usage import BYTES
    from ppsim.questions.optimum.partition_problem import Asked, find_fitting_layout

    unsplit = replace(case.costs, layout=None)
    size = f"{int(cap)}B" if unit == BYTES else number_at_least(cap)
    sizes = layout.n_layers, layout.n_mtp, 0
    asked = Asked(case.spec, case.shape, unsplit, *sizes, case.model, size)
    try:
        text = find_fitting_layout(asked, schedule)
    except PpsimError:
        return None
    return case.fix(f"--layout {shlex.quote(text)}", cap, layout=text) if text else None


def _bar_parts(found: MemoryReport, device: int, line: str) -> list[Part]:
    """Return the bars of a device in parts; those above the cap have a tone."""
    from ppsim.engine.memory.report import columns

    over = columns(found.curve, device, found.timeline.makespan, len(line)) > found.cap_of(device)
    runs = groupby(zip(line, over.tolist(), strict=True), key=lambda pair: pair[1])
    return [("".join(sign for sign, _ in run), "bad" if above else "bar") for above, run in runs]


def _omitted_note(found: MemoryReport, screen: Console) -> str:
    """Return a note on the number of devices that are not printed."""
    from ppsim.show.drawing.terminal import signs_for

    dots = signs_for(screen.encoding, colour=False).more
    return f"{dots} {len(found.peaks) - MOST_ROWS} more devices"


def _first_and_last(rows: list[Any]) -> list[Any]:
    """Return all rows; of too many, the first and the last, with None between."""
    if len(rows) <= MOST_ROWS:
        return rows
    return [*rows[: MOST_ROWS // 2], None, *rows[-MOST_ROWS // 2 :]]


def misfit_error(found: MemoryReport, near: Sequence[Alternative], unsearched: bool) -> PpsimError:
    """Return the error that a run does not fit the cap, with the alternatives ``near`` as its hint.

    ``unsearched``: there are other splits of the layers, which only ppsim partition searches.
    """
    unit, peak = found.curve.unit, found.exceeding[0]
    cap = found.cap_of(peak.device)
    static = sum(peak.parts[name] for name in found.model.static)
    if static > cap:
        excess = f"holds {format_size(static, unit)} before its first activation"
    else:
        from ppsim.engine.memory.report import find_excess

        first = find_excess(found, peak)
        excess = f"passes it at {first.time:g} {found.timeline.unit} ({found.label(first.op)})"
    message = (
        f"{found.timeline.schedule.name} does not fit {format_cap(found)}: device {peak.device} "
        f"{excess} and needs {format_size(peak.value - cap, unit)} more at its peak"
    )
    if more := len(found.exceeding) - 1:
        message += f"; {more} other device{'s exceed' if more > 1 else ' exceeds'} it too"
    hints = [
        f"{fix.options} ({format_size(fix.peak, unit)}, makespan {fix.makespan:g}"
        f"{_microbatches_note(fix)})"
        for fix in near
    ]
    if unsearched:
        place = sum(not fix.options.startswith("--mb") for fix in near)
        hints.insert(place, "ppsim partition with this --cap (searches other splits)")
    if hints:
        return PpsimError(message, " or ".join(hints))
    if unit == "B":
        return PpsimError(message, "more devices, a higher tp or zero, recompute, or a smaller mbs")
    needed = number_at_least(found.fullest.value / _per_unit(found))
    return PpsimError(message, f"a larger --cap; this run needs {needed}")


def _microbatches_note(fix: Alternative) -> str:
    """Return a note on a fix whose makespan is for another number of microbatches; else empty."""
    return ", another number of microbatches" if fix.options.startswith("--mb") else ""


def format_cap(found: MemoryReport) -> str:
    """Return the cap with its unit as text; different caps of devices as a list."""
    caps = found.cap if isinstance(found.cap, tuple) else (found.cap or 0,)
    if found.curve.unit == "B":
        return ", ".join(map(format_size, caps))
    shares = ", ".join(format_number(cap / _per_unit(found)) for cap in caps)
    if _per_unit(found) == 1:
        return with_unit(shares, found.curve.unit)
    schedule, each = found.timeline.schedule, ", ".join(map(format_number, caps))
    if schedule.n_slices > 1:
        return f"{with_unit(shares, found.curve.unit)} ({each} of slices)"
    return f"{with_unit(shares, found.curve.unit)} {OF_A_SHARE} ({each} of stages)"


def _per_unit(found: MemoryReport) -> float:
    """Return the number of the curve's units in one unit of ``--cap``."""
    from ppsim.engine.memory.usage import activations_per_unit

    return activations_per_unit(found.timeline.schedule, found.curve.unit)


def spare_text(found: MemoryReport) -> str:
    """Return "fits" or "does not fit" with the cap, and the spare or missing memory of the fullest
    device.
    """
    spare, peak = found.least_spare
    unit = found.curve.unit
    replica = "" if found.replica is None else f" of replica {found.replica}"
    held = f"device {peak.device}{replica} holds {format_size(peak.value, unit)}"
    if spare < 0:
        return f"does not fit {format_cap(found)}: {held}, {format_size(-spare, unit)} too much"
    return f"fits {format_cap(found)}: {held}, {format_size(spare, unit)} to spare"


def format_amount(value: float, unit: str) -> str:
    """Return an amount with its unit as text."""
    return with_unit(format_size(value, unit), unit)


def compare_measured(found: MemoryReport, path: str) -> dict[str, Any]:
    """Return measured peaks and those of a report, in GiB, as JSON has them.

    Numbers of activations become GiB by a least-squares fit: memory that each device always holds,
    and the size of an activation.

    Raises:
        InputError: the file has no peaks, or not one for each device.
    """
    import numpy as np

    from ppsim.engine.memory.usage import BYTES
    from ppsim.workload.cost.measured import fit_line, read_peaks

    peaks = read_peaks(path, len(found.peaks))
    held = np.array([peak.value for peak in found.peaks], np.float64)
    line: dict[str, float] = {}
    if found.curve.unit != BYTES:
        base, each = fit_line(held, peaks)
        line = {"base_gib": base / GIB, "activation_gib": each / GIB}
        held = base + each * held
    rows = [
        {
            "device": device,
            "peak_gib": simulated / GIB,
            "measured_gib": measured / GIB,
            "error": simulated / measured - 1 if measured else None,
        }
        for device, (simulated, measured) in enumerate(
            zip(held.tolist(), peaks.tolist(), strict=True)
        )
    ]
    return {"devices": rows, **line, "worst": int(peaks.argmax())}


def measured_lines(comparison: dict[str, Any]) -> Iterator[str]:
    """Yield lines that compare simulated peaks with measured ones, in GiB."""
    yield f"\n{'':<9}{'simulated':>10} {'measured':>10} {'error':>7}  GiB"
    for row in comparison["devices"]:
        error = "-" if row["error"] is None else format_change(row["error"])
        name = f"dev {row['device']}"
        yield f"{name:<9}{row['peak_gib']:>10.2f} {row['measured_gib']:>10.2f} {error:>7}"
    if "base_gib" in comparison:
        yield (
            f"fitted to the measured peaks: {comparison['base_gib']:.1f} GiB that each device "
            f"always holds, {comparison['activation_gib']:.2f} GiB an activation"
        )
    worst = comparison["devices"][comparison["worst"]]
    yield f"measured, device {worst['device']} holds most, {worst['measured_gib']:.1f} GiB"
