"""Compare schedules on the same devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import Need
from ppsim.ask.groups import (
    FaceOptions,
    FigureOptions,
    NetworkOptions,
    SeveralSchedules,
    ShapeOptions,
    cap_option,
)
from ppsim.ask.options import Request, flag, group
from ppsim.ask.request import ask
from ppsim.ask.types import NumberTexts
from ppsim.ask.words import counts_lines, recomputed, title_with_chunks
from ppsim.ask.write import Writers, document_writers, find_targets, inputs_of, tradeoff_writers
from ppsim.base.numbers import format_change, format_number
from ppsim.engine.simple.columns import Column, columns_of
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import (
    add_memory,
    build_costs,
    look_inside_costs,
)
from ppsim.prices.cap import Cap, fits_none, note_above_gpu, read_cap
from ppsim.prices.data_parallel.lengths import DealOptions, LengthOptions
from ppsim.prices.data_parallel.replicas import ReplicaOptions
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.parts.modelled import ModelledOptions, price_by_model
from ppsim.prices.several import options_taken, time_schedules

if TYPE_CHECKING:
    from ppsim.analysis.compare import Row
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.questions.across.break_even import Limit
    from ppsim.questions.across.whatif import Run
    from ppsim.show.files.document import Document
    from ppsim.workload.plans.gains import Gain

NAMED = 6  # schedules that a note lists by name
# columns that a narrow terminal leaves out last
ESSENTIAL = ("period", "makespan", "bubble_rate", "peak_activations_share")


@dataclass(frozen=True, kw_only=True)
class CompareRequest(Request):
    """Compare schedules on the same devices; the first is the baseline. NAME:V has V stages per
    device.

    \b
    The table has
      gap to bound       the share of the makespan above the least time that any
                         order of the same ops takes in the same memory
      bubble_rate        the idle share of the makespan
      bubble_over_ideal  (makespan - ideal) / ideal, as in Megatron-LM; ideal
                         is the work of the busiest device
      bubble_rate_span   (span - ideal) / span, as in the zero-bubble papers;
                         span is the longest time from a device's first start
                         to its last end
      peak act.          activations of a device's 1/P share of the model

    \b
      ppsim compare gpipe 1f1b interleaved:2 zb-1p --devices 4 --mb 8
      ppsim compare 1f1b dualpipe dualpipe-v --devices 8 --mb 20 -o compare.svg
    """

    question: ClassVar[str] = "compare"
    place: ClassVar[tuple[str, int]] = ("How long a step takes, and which schedule is best", 2)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("tradeoff",),
            lambda g: g.writes(),
            "{options} needs -o FILE",
            "add -o FILE.svg",
        ),
    )
    schedules: SeveralSchedules = group(SeveralSchedules, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    modelled: ModelledOptions = group(ModelledOptions, "Costs")
    network: NetworkOptions = group(NetworkOptions, "Messages")
    replica_options: ReplicaOptions = group(ReplicaOptions, "Costs")
    lengths: LengthOptions = group(LengthOptions, "Lengths")
    dealing: DealOptions = group(DealOptions, "Lengths")
    output: FigureOptions = group(FigureOptions, "Output")
    cap: NumberTexts | None = cap_option()
    memory: bool = flag("--memory", help="Draw the memory of the devices below each chart.")
    tradeoff: bool = flag(
        "--tradeoff",
        help="Draw time against peak activations, with the Pareto front, instead of charts.",
        common=True,
    )
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Raise InputError for a format that cannot show several schedules."""
        from ppsim.show.files.document import abilities_of
        from ppsim.show.files.tradeoff import check_suffix

        for _, suffix in find_targets(self.output):
            if self.tradeoff:
                check_suffix(suffix)
            elif abilities_of(suffix).one_schedule:
                raise InputError(
                    f"{suffix} contains one schedule, and a comparison has several",
                    "write each with ppsim run, or their table with ppsim sweep -o",
                )


def compare(schedules: Sequence[str], **options: Any) -> Comparison:
    """Time schedules on the same devices, in the unit of the costs (t_F by default).

    ``options`` are the options of ``ppsim compare`` by name.

    Raises:
        InputError: an option is refused, or no schedule supports the shape.
    """
    return answer(ask(CompareRequest, {"names": schedules} | options))


def answer(request: CompareRequest) -> Comparison:
    """Time the schedules of the request."""
    costs, network = price_by_model(
        request.costs, request.network, request.modelled, request.lengths.mbs
    )
    if costs.modelled:
        note_above_gpu(request.cap, costs.modelled.machine)
    request = replace(request, costs=costs, network=network)
    cap = read_cap(request.cap) if request.cap else None
    lengths = request.replica_options, request.lengths, request.dealing
    rows = time_schedules(
        request.schedules.specs, request.shape, request.costs, request.network, cap, *lengths
    )
    return Comparison(request, tuple(rows))


@dataclass(frozen=True)
class Comparison(Answer[CompareRequest]):
    """Schedules on the same devices.

    Attributes:
        rows: a row for each schedule in the given order; without times if the shape is refused.
    """

    rows: tuple[Row, ...]

    @property
    def timelines(self) -> list[Timeline]:
        """The timelines of the schedules that support the shape."""
        return [row.timeline for row in self.rows if row.timeline]

    @cached_property
    def costs(self) -> list[Costs]:
        """The costs of each timeline."""
        return [
            build_costs(timeline.schedule, self.request.costs, self.request.network)
            for timeline in self.timelines
        ]

    @cached_property
    def steps(self) -> dict[str, float]:
        """The seconds of a whole step of each timed schedule, by name; empty without a model."""
        modelled = self.request.costs.modelled
        if modelled is None:
            return {}
        asked = ask_costs(self.request.costs, self.request.network)
        timed = (row for row in self.rows if row.timeline)
        found = {}
        for row, prices in zip(timed, self.costs, strict=True):
            assert row.timeline
            schedule = row.timeline.schedule
            found[row.name] = modelled.step(schedule, prices, asked.layout_of(schedule)).seconds
        return found

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """The gain of each step over the baseline's, by name; empty without a model."""
        if not self.steps:
            return {}
        first, *others = (row for row in self.rows if row.timeline)
        return {row.name: self._gain(row, first) for row in others}

    def _gain(self, row: Row, over: Row) -> Gain:
        """Return the gain of a model's step with one schedule over that with another."""
        from ppsim.workload.plans.gains import gain_of

        assert row.timeline
        assert over.timeline
        slices = row.timeline.schedule.n_slices, over.timeline.schedule.n_slices
        return gain_of(
            over.name,
            self.steps[over.name],
            self.steps[row.name],
            is_sliced=max(slices) > 1,
        )

    @cached_property
    def limits(self) -> Limits:
        """The times of ops and messages up to which schedules are faster than the baseline."""
        return find_limits(self)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The command, the version and the settings that give this answer."""
        return inputs_of(self.typed_options, self.costs[0])

    @property
    def table(self) -> list[dict[str, Any]]:
        """The schedules as rows of numbers; one that refuses the shape has the reason."""
        return list(self.to_json()["schedules"])

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.compare/1``."""
        from ppsim.analysis.compare import compare_object

        capped = {"cap": self.request.cap, "fits": self._any_fits} if self.request.cap else {}
        found = compare_object(self.rows, self.inputs, self.verdict)
        for row in found["schedules"]:
            name = row["name"]
            row |= {"step_s": self.steps[name]} if name in self.steps else {}
            row |= self.gains[name].to_json() if name in self.gains else {}
            row |= {"break_even": self.limits.to_json(name)} if row["applies"] else {}
        return found | capped

    @property
    def _any_fits(self) -> bool:
        return any(row.fits for row in self.rows)

    def error_after_output(self) -> PpsimError | None:
        """The error that no schedule fits the cap, with the least cap that one fits; else None."""
        if self._any_fits:
            return None
        return fits_none(self.request.cap or "", [row.excess for row in self.rows])

    @property
    def verdict(self) -> str:
        """The fastest schedule against the baseline, with the predicted gain of a model's step."""
        from ppsim.analysis.compare import compared_two, conclude

        two = compared_two(self.rows)
        if two is None or not self.steps:
            return conclude(self.rows)
        best, other = two
        gain = self._gain(best, other)
        return conclude(self.rows, f"predicted gain {gain.text}")

    @property
    def tone(self) -> str:
        """The tone of a fault if nothing fits the cap."""
        return "name" if self._any_fits else "fault"

    def blocks(self) -> Iterator[Block]:
        """The table of all schedules, and the times up to which one is faster than the first."""
        yield ""
        yield from self._table()
        if lines := list(self.limits.lines()):
            yield ""
            yield from map(Line, lines)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timelines of the schedules that support the shape."""
        return [(row.name, row.timeline) for row in self.rows if row.timeline]

    def writers(self, output: FigureOptions) -> Writers:
        """Return the writer of each -o: charts one above the other, or time against memory."""
        if self.request.tradeoff:
            from ppsim.analysis.tradeoff import Point

            points = [
                Point(r.name, r.makespan, r.peak, r.name.partition(":")[0], fits=r.fits)
                for r in self.rows
                if r.timeline
            ]
            time = f"makespan ({self.timelines[0].unit})"
            return tradeoff_writers(points, time, self.inputs, output, verdict=self.verdict)
        timed = [(row, row.timeline.schedule) for row in self.rows if row.timeline]
        titles = [
            title_with_chunks(own) + ("" if row.fits else " (over the cap)") for row, own in timed
        ]
        return document_writers(
            self.timelines,
            titles,
            self.inputs,
            output,
            complete=self._complete,
            verdict=self.verdict,
        )

    def _complete(self, document: Document, suffix: str) -> Document:
        """Add rounds, messages, segments, sentences and memory, as far as a format shows them."""
        rounds = tuple(row.metrics.round for row in self.rows if row.metrics)
        if any(rounds):
            document = replace(document, rounds=rounds)
        executions = tuple(row.execution for row in self.rows if row.execution)
        if executions and suffix == ".html":
            document = replace(document, executions=executions)
        insides = look_inside_costs(
            [timeline.schedule for timeline in self.timelines], self.request.costs
        )
        document = replace(document, insides=insides)
        if suffix == ".html":
            from ppsim.prices.editable import make_editable

            if lines := [*self._gain_lines(), *self.limits.lines()]:
                from ppsim.show.files.workers import lines_of_page

                document = replace(document, below=lines_of_page(lines))
            document = make_editable(document, self.costs, self.typed_options)
        if self.request.memory:
            return add_memory(document, self.costs, self.request.costs, asked=True)
        return document

    def _table(self) -> Iterator[Block]:
        """The table of all schedules, and lines on its columns and on refused schedules."""
        timed = [row for row in self.rows if row.timeline]
        columns = [
            column
            for column in columns_of("compare")
            if any(row.metrics and column.applies(row.metrics) for row in timed)
        ]
        cap = read_cap(self.request.cap) if self.request.cap else None
        unit, versus = self.timelines[0].unit, self._versus_headings(timed[0])
        headings = ["schedule\n"]
        for column in columns:
            headings.append(column.narrow.format(unit=unit))
            if column.key == "makespan":
                headings += versus
        if cap:
            headings.append("over\ncap")
        cells = self._cells(columns, cap)
        spare = [
            column.narrow.format(unit=unit) for column in columns if column.key not in ESSENTIAL
        ]
        yield Table(headings, cells, spare=spare + versus[:1], tone=self._tone_of(headings, cells))
        yield from self._table_notes(cap)

    def _cells(self, columns: Sequence[Column], cap: Cap | None) -> list[list[str]]:
        """The cells of the table: a row for each schedule."""
        from ppsim.analysis.compare import compared_times, mark_front

        rows = self.rows
        timed = [row for row in rows if row.timeline]
        base = compared_times(timed)[0]
        cells = []
        for row, time, is_best in zip(rows, compared_times(rows), mark_front(rows), strict=True):
            versus = self._versus_cells(row, timed[0], time, base)
            row_cells = [row.name, *_cells(row, versus, "*" if is_best else " ", columns)]
            cells.append([*row_cells, _excess(row, cap)] if cap else row_cells)
        return cells

    def _tone_of(self, headings: list[str], cells: list[list[str]]) -> Callable[[int, int], str]:
        """Return the function that gives each cell of the table its tone."""
        rows = self.rows
        fastest = min((row.makespan for row in rows if row.timeline and row.fits), default=None)

        def tone(row: int, column: int) -> str:
            if column == 0:
                return "name"
            if not rows[row].timeline:
                return "quiet"
            if headings[column].startswith("over"):
                return "good" if rows[row].fits else "bad"
            is_fastest = headings[column].startswith("makespan") and rows[row].makespan == fastest
            return "good" if is_fastest or cells[row][column].endswith("*") else ""

        return tone

    def _table_notes(self, cap: Cap | None) -> Iterator[Block]:
        """Lines on the units and marks of the table, and on schedules that refuse the shape."""
        yield Line(
            "peak act. counts microbatches of a device's 1/P share of the model; * nothing is "
            "faster with less"
        )
        yield from map(Line, self._range_lines())
        schedules = [timeline.schedule for timeline in self.timelines]
        yield from map(Line, counts_lines(schedules))
        if cap:
            amount = cap.describe(self.request.costs) + (" a device" if cap.in_bytes else "")
            yield Line(f"cap {amount}; - is within it, and * compares only schedules within it")
            if self.request.lengths.lengths is not None:
                yield Line("memory is in proportion to the tokens of each microbatch")
        yield from recomputed(schedules)
        yield from (
            Line(f"{row.name} does not apply: {row.reason}") for row in self.rows if row.reason
        )

    def _gain_lines(self) -> Iterator[str]:
        """Sentences on the step of each schedule, and its gain over the baseline's."""
        for name, seconds in self.steps.items():
            gain = self.gains.get(name)
            over = f", {gain.text} over {gain.baseline}" if gain else ""
            yield f"{name} takes {format_number(seconds)} s a step{over}"

    def _range_lines(self) -> Iterator[str]:
        """Yield a sentence on the ranges of the gains, if the table has gains."""
        if not self.gains:
            return
        line = "four of five measured gains lie in the range in brackets"
        if not all(gain.checked for gain in self.gains.values()):
            line += "; gains of schedules that cut sequences are unchecked"
        yield line

    def _versus_headings(self, first: Row) -> list[str]:
        """The headings of the columns that compare times with the first schedule's."""
        if self.steps:
            return ["step\ns", f"gain over\n{first.name}"]
        return [f"vs\n{first.name}"]

    def _versus_cells(self, row: Row, first: Row, time: float, base: float) -> list[str]:
        """The cells that compare a time with the first schedule's: step, makespan or period."""
        if self.steps:
            step = format_number(self.steps[row.name]) if row.name in self.steps else "-"
            gain = self.gains[row.name].text if row.name in self.gains else "-"
            return [step, "baseline" if row is first else gain]
        change = "-"
        if row.metrics and base:
            change = format_change(time / base - 1)
        return ["baseline" if row is first else change]


@dataclass(frozen=True)
class Limits:
    """The break-evens of schedules: times up to which they are faster than the baseline.

    Attributes:
        base: the name of the baseline.
        break_evens: pairs of a schedule's name and a break-even.
        omitted: schedules whose break-evens were not searched, because that takes long.
    """

    base: str
    break_evens: tuple[tuple[str, Limit], ...]
    omitted: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield a sentence for each break-even near the present times, and on omitted schedules."""
        for name, limit in self.break_evens:
            if sentence := limit.found.text(name, self.base):
                yield sentence + ", with ops in this order" * limit.is_kept
        if self.omitted:
            names = ", ".join(self.omitted[:NAMED]) + ", ..." * (len(self.omitted) > NAMED)
            yield f"the break-evens of {names} take long to find at this size"

    def to_json(self, name: str) -> list[dict[str, Any]]:
        """Return the break-evens of one schedule."""
        return [asdict(limit.found) for other, limit in self.break_evens if other == name]


def find_limits(found: Comparison) -> Limits:
    """Return the break-evens of schedules with the baseline, within a budget of simulated ops.

    None are searched for several replicas, for sequences of different lengths, and for schedules
    that repeat, whose time is a period.
    """
    request = found.request
    timed = [row for row in found.rows if row.timeline and row.metrics]
    base = timed[0].name
    if request.replica_options.replicas or request.lengths.lengths or request.lengths.cp_of:
        return Limits(base, ())
    if any(row.metrics and row.metrics.round for row in timed):
        return Limits(base, ())
    from ppsim.analysis.break_even import BUDGET, MESSAGE, SPLIT
    from ppsim.questions.across.break_even import Pairs

    messages = request.network.cluster is None or bool(found.steps)
    of = (SPLIT, MESSAGE) if messages else (SPLIT,)
    pairs = Pairs(_run_of(found, timed[0]), _outside_pipeline(found, timed[0]))
    limits: list[tuple[str, Limit]] = []
    omitted: list[str] = []
    spent = 0
    for row in timed[1:]:
        rival = _run_of(found, row)
        spent += pairs.price(rival)
        if spent > BUDGET:
            omitted.append(row.name)
            continue
        outside = _outside_pipeline(found, row)
        limits += ((row.name, limit) for limit in pairs.find(rival, of, outside))
    return Limits(base, tuple(limits), tuple(omitted))


def _run_of(found: Comparison, row: Row) -> Run:
    """Return the run of a schedule in the table."""
    from ppsim.questions.across.whatif import Run

    assert row.timeline
    request, schedule = found.request, row.timeline.schedule
    shape = replace(
        options_taken(row.name, request.shape),
        stages=schedule.n_stages,
        devices=schedule.n_devices,
        chunks=None,
        microbatches=schedule.whole_microbatches,
    )
    return Run(row.name, shape, request.costs, request.network, schedule)


def _outside_pipeline(found: Comparison, row: Row) -> float:
    """Return the time of a model's step outside the pipeline, in the unit of the costs."""
    return found.steps[row.name] * 1e3 - row.makespan if found.steps else 0.0


def _excess(row: Row, cap: Cap) -> str:
    """Return the memory above the cap as text; a dash if the schedule fits."""
    return "-" if row.excess is None or row.fits else f"+{cap.write(row.excess)}"


def _cells(row: Row, versus: Sequence[str], mark: str, columns: Sequence[Column]) -> Iterator[str]:
    """Yield the cells of a schedule: its numbers, after the makespan those of ``versus``, and the
    ``mark`` of the front at its peak.
    """
    for column in columns:
        applies = row.metrics is not None and column.applies(row.metrics)
        text = column.text(row.value(column)) if applies else "-"
        yield text + mark if applies and column.key == "peak_activations_share" else text
        if column.key == "makespan":
            yield from versus
