"""Compare schedules on the same devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from ppsim.prices.cap import Cap, fits_none, read_cap
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

NAMED = 6  # schedules that a note names
# the last columns to go on a narrow terminal
ESSENTIAL = ("period", "makespan", "bubble_rate", "peak_activations_share")


@dataclass(frozen=True, kw_only=True)
class CompareRequest(Request):
    """Compare schedules on the same devices; NAME:V sets the stages per device. The first is the
    baseline.

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
            "{options} says what -o draws, and there is no -o",
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
    cap: str | None = cap_option()
    memory: bool = flag("--memory", help="Draw what the devices hold below each chart.")
    tradeoff: bool = flag(
        "--tradeoff",
        help="Draw time against peak activations, with the Pareto front, not charts.",
        common=True,
    )
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Refuse a format that cannot show several schedules before anything is timed."""
        from ppsim.show.files.document import abilities_of
        from ppsim.show.files.tradeoff import check_suffix

        for _, suffix in find_targets(self.output):
            if self.tradeoff:
                check_suffix(suffix)
            elif abilities_of(suffix).one_schedule:
                raise InputError(
                    f"{suffix} holds one schedule, and a comparison has several",
                    "write each with ppsim run",
                )


def compare(schedules: Sequence[str], **options: Any) -> Comparison:
    """Time schedules on the same devices, in the unit of the costs (t_F by default); ``options`` as
    ``ppsim compare`` takes them, by name.

    Raises:
        InputError: an option that is refused, or no schedule that takes the shape.
    """
    return answer(ask(CompareRequest, {"names": schedules} | options))


def answer(request: CompareRequest) -> Comparison:
    """Answer the request: time the schedules on the same devices."""
    costs, network = price_by_model(
        request.costs, request.network, request.modelled, request.lengths.mbs
    )
    request = replace(request, costs=costs, network=network)
    cap = read_cap(request.cap) if request.cap else None
    lengths = request.replica_options, request.lengths, request.dealing
    rows = time_schedules(
        request.schedules.specs, request.shape, request.costs, request.network, cap, *lengths
    )
    return Comparison(request, tuple(rows))


@dataclass(frozen=True)
class Comparison(Answer[CompareRequest]):
    """Schedules on the same devices, those that take the shape timed.

    Attributes:
        rows: one per schedule, in the order asked for.
    """

    rows: tuple[Row, ...]

    @property
    def timelines(self) -> list[Timeline]:
        """Those of the schedules that take the shape."""
        return [row.timeline for row in self.rows if row.timeline]

    @cached_property
    def costs(self) -> list[Costs]:
        """The costs of each timeline."""
        return [
            build_costs(each.schedule, self.request.costs, self.request.network)
            for each in self.timelines
        ]

    @cached_property
    def steps(self) -> dict[str, float]:
        """Seconds of a whole step of each schedule that takes the shape; empty without a model."""
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
        """The gain of each step over the baseline's, with its range; empty without a model."""
        if not self.steps:
            return {}
        from ppsim.workload.plans.gains import gain_of

        timed = [(row.name, row.timeline.schedule) for row in self.rows if row.timeline]
        base, first = timed[0]
        return {
            name: gain_of(
                base,
                self.steps[base],
                self.steps[name],
                is_sliced=max(first.n_slices, schedule.n_slices) > 1,
            )
            for name, schedule in timed[1:]
        }

    @cached_property
    def limits(self) -> Limits:
        """Up to which times of ops and messages each schedule is faster than the baseline."""
        return find_limits(self)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The command, the version and the settings that give this answer."""
        return inputs_of(self.typed_options, self.costs[0])

    @property
    def table(self) -> list[dict[str, Any]]:
        """The schedules as rows of numbers; one that does not apply has a reason."""
        return list(self.to_json()["schedules"])

    def json_object(self) -> dict[str, Any]:
        """The object of schema ``ppsim.compare/1``."""
        from ppsim.analysis.compare import compare_object

        capped = {"cap": self.request.cap, "fits": self._any_fits} if self.request.cap else {}
        found = compare_object(self.rows, self.inputs)
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
        """The error where no schedule fits, with the least cap that admits one."""
        return (
            None
            if self._any_fits
            else fits_none(self.request.cap or "", [r.excess for r in self.rows])
        )

    @property
    def verdict(self) -> str:
        """The fastest schedule against the baseline."""
        from ppsim.analysis.compare import conclude

        return conclude(self.rows)

    @property
    def tone(self) -> str:
        """The tone of a fault where nothing fits the cap."""
        return "name" if self._any_fits else "fault"

    def blocks(self) -> Iterator[Block]:
        """The table of all schedules."""
        yield ""
        yield from self._table()
        if lines := list(self.limits.lines()):
            yield ""
            yield from map(Line, lines)

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The schedules that take the shape."""
        return [(row.name, row.timeline) for row in self.rows if row.timeline]

    def writers(self, output: FigureOptions) -> Writers:
        """Each file asked for: charts one above the other, or time against memory."""
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
        return (
            add_memory(document, self.costs, self.request.costs, asked=True)
            if self.request.memory
            else document
        )

    def _table(self) -> Iterator[Block]:
        from ppsim.analysis.compare import compared_times, mark_front

        rows = self.rows
        timed = [r for r in rows if r.timeline]
        first, unit = timed[0], self.timelines[0].unit
        times, base = compared_times(rows), compared_times(timed)[0]
        columns = [
            column
            for column in columns_of("compare")
            if any(r.metrics and column.applies(r.metrics) for r in timed)
        ]
        headings = ["schedule\n"]
        for column in columns:
            headings.append(column.narrow.format(unit=unit))
            if column.key == "makespan":
                headings += self._comparing(first)
        cap = read_cap(self.request.cap) if self.request.cap else None
        headings += ["over\ncap"] if cap else []
        cells = [
            [
                r.name,
                *_cells(r, self._compared(r, first, time, base), "*" if best else " ", columns),
                *([_excess(r, cap)] if cap else []),
            ]
            for r, time, best in zip(rows, times, mark_front(rows), strict=True)
        ]
        spare = [
            column.narrow.format(unit=unit) for column in columns if column.key not in ESSENTIAL
        ]
        spare += self._comparing(first)[:1]
        fastest = min((r.makespan for r in timed if r.fits), default=None)

        def tone(row: int, column: int) -> str:
            if column == 0:
                return "name"
            best = headings[column].startswith("makespan") and rows[row].makespan == fastest
            if headings[column].startswith("over") and rows[row].timeline:
                return "good" if rows[row].fits else "bad"
            return (
                "good"
                if best or cells[row][column].endswith("*")
                else "quiet"
                if not rows[row].timeline
                else ""
            )

        yield Table(headings, cells, spare=spare, tone=tone)
        yield Line(
            "peak act. counts microbatches of a device's 1/P share of the model; * nothing is "
            "faster with less"
        )
        yield from map(Line, counts_lines(each.schedule for each in self.timelines))
        if cap:
            amount = cap.describe(self.request.costs) + (" a device" if cap.in_bytes else "")
            yield Line(f"cap {amount}; - within it, * of those within it")
            if self.request.lengths.lengths is not None:
                yield Line("memory goes by the tokens of each microbatch")
        yield from recomputed(each.schedule for each in self.timelines)
        yield from (Line(f"{r.name} does not apply: {r.reason}") for r in rows if r.reason)

    def _gain_lines(self) -> Iterator[str]:
        """A sentence for the step of each schedule of a model, and its gain."""
        for name, seconds in self.steps.items():
            gain = self.gains.get(name)
            beside = f", {gain.text} over {gain.baseline}" if gain else ""
            yield f"{name} takes {format_number(seconds)} s a step{beside}"

    def _comparing(self, first: Row) -> list[str]:
        """The headings of how times compare with the first schedule's."""
        if self.steps:
            return ["step\ns", f"gain over\n{first.name}"]
        return [f"vs\n{first.name}"]

    def _compared(self, r: Row, first: Row, time: float, base: float) -> list[str]:
        """How the time of a schedule compares with the first's: its makespan, a round without
        end, or a whole step.
        """
        if self.steps:
            step = format_number(self.steps[r.name]) if r.name in self.steps else "-"
            gain = self.gains[r.name].text if r.name in self.gains else "-"
            return [step, "baseline" if r is first else gain]
        change = "-"
        if r.metrics and base:
            change = format_change(time / base - 1)
        return ["baseline" if r is first else change]


@dataclass(frozen=True)
class Limits:
    """Up to which times schedules are faster than the baseline.

    Attributes:
        base: the name of the baseline.
        found: the name of a schedule and a break-even.
        omitted: schedules whose break-evens were not searched, as that takes long.
    """

    base: str
    found: tuple[tuple[str, Limit], ...]
    omitted: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """A sentence for each whose times are near the present ones."""
        for name, limit in self.found:
            if sentence := limit.found.text(name, self.base):
                yield sentence + ", queues in this order" * limit.is_kept
        if self.omitted:
            several = f"{', '.join(self.omitted[:NAMED])}" + ", ..." * (len(self.omitted) > NAMED)
            yield f"up to which times {several} would be faster takes long to find at this size"

    def to_json(self, name: str) -> list[dict[str, Any]]:
        """The objects of one schedule."""
        return [asdict(limit.found) for other, limit in self.found if other == name]


def find_limits(found: Comparison) -> Limits:
    """Find the break-evens of each schedule with the baseline, the first ones as far as a budget of
    simulated ops goes.

    There are none of several replicas, of sequences of different lengths, and of schedules that go
    round, whose time is a period.
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
    pairs = Pairs(_run_of(found, timed[0]), _beside(found, timed[0]))
    limits: list[tuple[str, Limit]] = []
    left: list[str] = []
    spent = 0
    for row in timed[1:]:
        rival = _run_of(found, row)
        spent += pairs.price(rival)
        if spent > BUDGET:
            left.append(row.name)
            continue
        limits += ((row.name, each) for each in pairs.find(rival, of, _beside(found, row)))
    return Limits(base, tuple(limits), tuple(left))


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


def _beside(found: Comparison, row: Row) -> float:
    """Return the time of a model's step besides the makespan, in the unit of the costs."""
    return found.steps[row.name] * 1e3 - row.makespan if found.steps else 0.0


def _excess(r: Row, cap: Cap) -> str:
    """The memory above the cap, or a dash where the schedule fits."""
    return "-" if r.excess is None or r.fits else f"+{cap.write(r.excess)}"


def _cells(r: Row, compared: Sequence[str], mark: str, columns: Sequence[Column]) -> Iterator[str]:
    """The numbers of one schedule, how its time compares with the first's, and the mark of the
    front at its peak.
    """
    for column in columns:
        applies = r.metrics is not None and column.applies(r.metrics)
        text = column.text(r.value(column)) if applies else "-"
        yield text + mark if applies and column.key == "peak_activations_share" else text
        if column.key == "makespan":
            yield from compared
