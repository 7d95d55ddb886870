"""The best split of a model's layers over the stages of a schedule."""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

import click

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table, heading, name_line
from ppsim.ask.given import Need, TypedOptions, never
from ppsim.ask.groups import FaceOptions, OneSchedule, ShapeOptions
from ppsim.ask.options import Request, common, flatten, group, option
from ppsim.ask.request import ask
from ppsim.ask.types import Amount
from ppsim.ask.words import count_text, shape_line, title_of
from ppsim.ask.write import command_line, inputs_of
from ppsim.base.deadline import TimeOver, end_by, interrupt_at
from ppsim.base.notes import progress
from ppsim.base.numbers import align_decimals, format_number, format_share
from ppsim.base.units import format_size
from ppsim.engine.simple.columns import size_object
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import build_costs, build_schedule
from ppsim.prices.options import WITHOUT_LAYERS, CostOptions
from ppsim.prices.part import COSTS
from ppsim.prices.serving import ServedOptions, spec_of
from ppsim.prices.trained import TrainedModel, TrainedOptions, model_option
from ppsim.questions.optimum.partition_problem import Asked, least_cap, search_planned, search_split
from ppsim.questions.optimum.partition_served import ServedSplit, ask_served, split_served
from ppsim.version import INSTALL_OPTIMIZE

if TYPE_CHECKING:
    from ppsim.core.curve import Curve
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.search.splits.partition import Partition
    from ppsim.search.splits.splits import SplitProblem
    from ppsim.workload.layout.layout import Layout

LEAST_S = 0.5  # seconds that a search has whatever came before it
# seconds that a split takes for each op to be timed and shown; those after the limit
OP_S, LATE_S = 1e-6, 2.0
MOST_ROWS, MOST_NAMED = 64, 8
# options that ppsim run has not
SEARCH_ONLY = {"num_layers", "mtp", "least", "model", "cap", "time_limit"}


@dataclass(frozen=True, kw_only=True)
class PartitionRequest(Request):
    """Find the split of layers over stages with the least makespan, over all contiguous splits.

    The embedding is on the first stage, the head on the last. A split is "optimal" where no other
    is faster, else "feasible", with the least makespan that others may have.

    \b
      ppsim partition 1f1b --devices 4 --mb 16 --num-layers 30 --t-embedding 0.2 --t-head 2.5
      ppsim partition decode --serve tokens --devices 8 --model llama3-70b --cap 18GiB
      ppsim partition -s interleaved --devices 4 --mb 16 --t-layer 1,1,1,1,1.5,1.5,1,1 --comm 0.1
    """

    question: ClassVar[str] = "partition"
    place: ClassVar[tuple[str, int]] = ("Why, and what would help", 4)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            (*(name for name in COSTS if name not in ("comm", "unit")), "layout", *WITHOUT_LAYERS),
            never,
            "partition makes the layout from the times of layers, so {options} cannot be given",
            "--t-layer, --t-embedding, --t-head, --t-mtp and --b-over-f",
        ),
        Need(
            ("offload",),
            never,
            "{options} copies by rule what a schedule has, and a search for a split does not weigh "
            "copies",
            "ppsim run SCHEDULE --offload ...",
        ),
    )
    schedule: OneSchedule = group(OneSchedule, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    num_layers: int | None = common(
        "--num-layers",
        type=click.IntRange(min=1),
        help="Transformer layers, where --t-layer is one time.",
    )
    mtp: int = option(
        "--mtp-num-layers",
        type=click.IntRange(min=0),
        default=0,
        show_default=False,
        help="MTP layers, on the last stage.",
    )
    least: int = common(
        "--min-layers",
        type=click.IntRange(min=0),
        default=0,
        show_default=False,
        help="Fewest layers of a stage (0: a stage may hold the embedding, the head or nothing "
        "alone).",
    )
    model: str | None = model_option("Bytes for --cap")
    training: TrainedOptions = group(TrainedOptions, "Training of --model")
    cap: str | None = common(
        "--cap",
        metavar="SIZE",
        help="The most a device may hold: a number counts activations of one layer; with a unit, "
        "such as 80GiB, "
        "bytes of --model or --profile.",
    )
    serve: str | None = common(
        "--serve",
        type=click.Choice(["tokens", "period"]),
        help="Split for a pipeline that serves --model (decode, forward-only): room for most "
        "tokens of keys and values "
        "in --cap, or the shortest period; of equal ones by the other.",
    )
    served: ServedOptions = group(ServedOptions, "Serving of --model")
    time_limit: float = common(
        "--time-limit",
        type=Amount(min=0, min_open=True),
        default=60.0,
        help="Seconds to search; Ctrl-C ends it earlier and keeps the best.",
    )
    face: FaceOptions = group(FaceOptions, "Output")

    def check(self) -> None:
        """Refuse costs of Python's own, which belong to whole stages."""
        if self.costs.costs:
            raise InputError(
                "costs of stages do not say what their layers take", "t_layer, t_embedding, t_head"
            )


def partition(schedule: str, **options: Any) -> Any:
    """Find the split of layers over stages with the least makespan; ``options`` as of ``ppsim
    partition``, by name.

    Returns a :class:`Partitioned`, with ``serve`` a
    :class:`ppsim.questions.optimum.partition_served.ServedSplit`.

    Raises:
        InputError: an option or a shape that is refused, or an unclear number of layers.
        PpsimError: no split was found that fits the cap, or none was timed before the time ended.
    """
    return answer(ask(PartitionRequest, {"names": schedule} | options))


def answer(request: PartitionRequest) -> Partitioned | ServedSplit:
    """Search for the best split of the request."""
    if request.serve:
        return answer_served(request, request.serve)
    asked = _read(request)
    try:
        with end_by(time.monotonic() + request.time_limit):
            return _solve(request, asked)
    except TimeOver as error:
        raise PpsimError(
            "no split was timed before --time-limit ended", "a longer one, or a smaller size"
        ) from error


def answer_served(request: PartitionRequest, by: str) -> ServedSplit:
    """Find the split for a pipeline that serves, by its tokens or its period."""
    asked = ask_served(
        spec_of(request.schedule),
        request.shape,
        request.costs,
        TrainedModel(request.model, request.training) if request.model else None,
        request.served,
        request.cap,
        request.num_layers,
        request.least,
        by,
    )
    best, even = split_served(asked)
    return ServedSplit(request, asked.schedule, best, even)


def _read(request: PartitionRequest) -> Asked:
    """Count the layers to split (InputError: no option says how many, or two disagree)."""
    from ppsim.search.splits.splits import MOST_LAYERS

    spec, costs, said = request.schedule.spec, request.costs, dict[str, int]()
    if isinstance(costs.t_layer, Sequence):
        said["--t-layer"] = len(costs.t_layer)
    if request.num_layers is not None:
        said["--num-layers"] = request.num_layers
    trained = None
    if request.model:
        trained = TrainedModel(request.model, request.training)
        said["--model"] = trained.model.layers
    if not said:
        raise InputError(
            "the number of layers is missing",
            "give --num-layers, or --t-layer with a time for each",
        )
    if len(set(said.values())) > 1:
        counts = ", ".join(f"{name} says {n}" for name, n in said.items())
        raise InputError(f"the number of layers is not clear: {counts}", "the same number in each")
    layers = next(iter(said.values()))
    if layers > MOST_LAYERS:
        raise InputError(
            f"{layers:,} layers are more than any model has", f"{MOST_LAYERS:,} at most"
        )
    return Asked(
        spec, request.shape, costs, layers, request.mtp, request.least, trained, request.cap
    )


def _solve(request: PartitionRequest, asked: Asked) -> Partitioned:
    """Search, with the queues planned for each split where a family's order depends on the
    costs.
    """
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.schedules import family_of

    begin, limit, family = time.monotonic(), request.time_limit, family_of(asked.spec)
    planned = bool(family and family.uses_costs)
    with interrupt_at(begin + limit):
        schedule = build_schedule(
            asked.spec, asked.shape, CostOptions(recompute=asked.costs.recompute)
        )
        if (takes := OP_S * len(schedule)) > limit + LATE_S:
            size = f"{len(schedule):,} ops"
            what = (
                f"one split of {size} takes about {takes:,.0f} s, more than --time-limit "
                f"{limit:g} allows"
            )
            raise PpsimError(what, f"--time-limit {math.ceil(takes - LATE_S)}, or a smaller size")
        if schedule.partial_recompute:
            raise InputError(
                "partition knows no recompute of a part of a stage",
                "--recompute full, first:N or window:N",
            )
        if asked.layers < asked.least_layers * schedule.n_stages:
            raise InputError(
                f"{asked.layers} layers are too few for {schedule.n_stages} stages with "
                f"{asked.least_layers} or more each",
                f"--min-layers {asked.layers // schedule.n_stages}, or fewer stages",
            )
        even, problem = asked.even_layout(schedule), asked.make_problem(schedule)
    left = max(LEAST_S, begin + limit - time.monotonic())
    with progress(not request.face.as_json and not request.face.quiet) as bar:
        bar(None, "splitting layers")

        def report(makespan: float, bound: float, timed: int) -> None:
            said = f"best {format_number(makespan)}, bound {format_number(bound)}, {timed} timed"
            bar(min((time.monotonic() - begin) / limit, 1.0), said)

        found = (search_planned if planned else search_split)(asked, problem, even, left, report)
    if found is None:
        late = " in the time given" if time.monotonic() - begin >= limit else ""
        raise PpsimError(
            f"no split found fits --cap {asked.cap}{late}",
            least_cap(
                asked, problem, max(LEAST_S, begin + limit - time.monotonic()), planned=planned
            ),
        )
    layout = asked.make_layout(schedule, list(found.best[0]))
    final, first = (asked.plan(layout), asked.plan(even)) if planned else (schedule, schedule)
    timeline = of_even = simulate(final, asked.price(final, layout))
    if str(layout) != str(even):
        of_even = simulate(first, asked.price(first, even))
    fits = asked.cap is None or bool(asked.hold(first, even, of_even).peak.max() <= problem.cap)
    return Partitioned(request, asked, found, layout, timeline, problem, of_even.makespan, fits)


@dataclass(frozen=True)
class Partitioned(Answer[PartitionRequest]):
    """The best split found, timed as ``ppsim run --layout`` times it.

    Attributes:
        asked: the request of the split.
        partition: the split, the next best ones, and the proof or bound.
        layout: the split as a layout.
        timeline: the schedule with the times that the split gives.
        problem: the layers and the schedule.
        even_makespan: the makespan of the most even split.
        even_fits: whether devices hold that one under the cap.
    """

    asked: Asked
    partition: Partition
    layout: Layout
    timeline: Timeline
    problem: SplitProblem
    even_makespan: float
    even_fits: bool

    @property
    def schedule(self) -> Schedule:
        """The schedule, planned for the split where its order depends on the costs."""
        return self.timeline.schedule

    @property
    def split(self) -> tuple[int, ...]:
        """The layers of each stage."""
        return self.layout.layers

    @property
    def makespan(self) -> float:
        """The end of the last op."""
        return self.timeline.makespan

    @property
    def status(self) -> str:
        """``optimal`` where no split is faster, else ``feasible``."""
        return self.partition.status

    @property
    def bound(self) -> float:
        """A makespan that no split beats."""
        return self.makespan if self.status == "optimal" else self.partition.bound

    @property
    def inputs(self) -> dict[str, Any]:
        """The command, the version and the settings that give this answer."""
        costs = replace(self.request.costs, layout=str(self.layout))
        return inputs_of(self.typed_options, build_costs(self.schedule, costs))

    @cached_property
    def held(self) -> Curve:
        """The memory of devices with the best split."""
        return self.asked.hold(self.schedule, self.layout, self.timeline)

    @cached_property
    def _busy(self) -> list[float]:
        """Time that each device computes."""
        from ppsim.engine.simple.metrics import measure

        return [float(busy) for busy in measure(self.timeline).busy]

    @property
    def verdict(self) -> str:
        """The split, its time against the even split's, and the proof or bound."""
        split, time = (
            ",".join(map(str, self.split)),
            f"{format_number(self.makespan)} {self.timeline.unit}",
        )
        told = (
            f"{self.schedule.name} with {split} layers per stage takes {time}, "
            f"{self._against_even()}"
        )
        return f"{told}; {self.status}: {self._proof()}"

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.partition/1``."""
        from ppsim.workload.layout.flags import flags_of

        schedule, found, busy = self.schedule, self.partition, self._busy
        return {
            "schema": "ppsim.partition/1",
            "inputs": self.inputs,
            **size_object(schedule),
            "unit": self.timeline.unit,
            "layers": self.layout.n_layers,
            "split": self.split,
            "layout": str(self.layout),
            "flags": flags_of(self.layout),
            "makespan": self.makespan,
            "status": self.status,
            "bound": self.bound,
            "splits": self.problem.n_splits,
            "timed": found.simulated,
            "even_makespan": self.even_makespan,
            "even_fits": self.even_fits,
            "busy": busy,
            "bottleneck": busy.index(max(busy)),
            "peak": self.held.peak.tolist(),
            "peak_unit": self.held.unit,
            "runner_ups": [
                {"split": split, "makespan": makespan} for split, makespan in found.runner_ups
            ],
        }

    def line(self) -> Iterator[Block]:
        """The split on one line."""
        schedule, split = self.schedule, ",".join(map(str, self.split))
        yield (
            f"{schedule.name} {schedule.n_devices}x{schedule.n_microbatches}  split {split}  "
            f"makespan {self.makespan:.15g} {self.timeline.unit}  {self.status}  {self.layout}"
        )

    def blocks(self) -> Iterator[Block]:
        """The split, its proof, its devices, the next best ones, and the command that runs it."""
        from ppsim.search.splits.partition import MOST_LISTED
        from ppsim.workload.layout.flags import flags_of

        layout, found = self.layout, self.partition
        size = f"  {shape_line(self.schedule)}, {count_text(layout.n_layers, 'layer')}\n"
        yield Line([(title_of(self.schedule), "name"), size])
        yield name_line("layout    ", str(layout))
        yield name_line("split     ", (",".join(map(str, self.split)), "name"), " layers per stage")
        span = f"{format_number(self.makespan)} {self.timeline.unit}"
        yield name_line("makespan  ", (span, "name"), f", {self._against_even()}")
        proved = (self.status, "good" if self.status == "optimal" else "")
        yield name_line("status    ", proved, f": {self._proof()} ({found.simulated:,} simulated)")
        if (
            self.status != "optimal"
            and self.problem.n_splits > MOST_LISTED
            and not find_spec("ortools")
        ):
            yield f"{'':10}a proof needs OR-tools: {INSTALL_OPTIMIZE}"
        layer_times = self.asked.layer_times(self.schedule)
        if self.asked.model and layer_times and not (layer_times.embedding or layer_times.head):
            yield name_line(
                "times     ",
                "the embedding and the head take none: --t-embedding and --t-head give them one",
            )
        yield from self._devices()
        if found.runner_ups:
            yield heading("\nnext best" + ("" if found.ranked else " of those simulated"))
            times = align_decimals([format_number(makespan) for _, makespan in found.runner_ups])
            for time, (split, _) in zip(times, found.runner_ups, strict=True):
                yield f"  {time:>10}  {','.join(map(str, split))}"
        yield ""
        yield name_line("flags     ", flags_of(layout))
        yield name_line("run it    ", (self._line_again(), "try"))

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The schedule with the times that the split gives."""
        return [(title_of(self.schedule), self.timeline)]

    def _proof(self) -> str:
        """The sentence on how the split compares with all others."""
        none, n = (
            "none that fits" if math.isfinite(self.problem.cap) else "none",
            self.problem.n_splits,
        )
        if self.status == "optimal":
            return f"{none} of the {n:,} splits is faster" if n > 1 else "the only split"
        gap = format_share(self.makespan / self.bound - 1) if self.bound else ""
        return (
            f"{none} is faster than {format_number(self.bound)}, gap {gap}"
            if gap
            else "without a bound"
        )

    def _against_even(self) -> str:
        """The makespan against the even split's, which a cap may rule out."""
        span, even = self.makespan, format_number(self.even_makespan)
        if span >= self.even_makespan * (1 - 1e-9) and self.even_fits:
            return "as the even split"
        gain = format_share(abs(1 - span / self.even_makespan)) if self.even_makespan else "0%"
        word = "less" if span < self.even_makespan else "more"
        return f"{gain} {word} than the even split's {even}" + (
            "" if self.even_fits else ", which does not fit"
        )

    def _devices(self) -> Iterator[Block]:
        """A table of each device's layers, memory and compute time, and the device that decides."""
        from ppsim.workload.layout.text import format_content

        schedule, span, busy = self.schedule, self.makespan, self._busy
        held = "most held" if self.held.unit == "B" else "activations"
        headings, rows = ["device", "busy", "idle", held, "stages"], list[list[str]]()
        for device in range(min(schedule.n_devices, MOST_ROWS)):
            own = sorted({int(s) for s in schedule.stage[schedule.queue(device)]})
            stages = "  ".join(
                f"{s}: {format_content(self.layout.content[s : s + 1]) or '(empty)'}" for s in own
            )
            idle = format_share(1 - busy[device] / span) if span else "0%"
            peak = format_size(self.held.peak[device], self.held.unit)
            rows.append([str(device), format_number(busy[device]), idle, peak, stages])

        def tone(row: int, column: int) -> str:
            if column == 0:
                return "name"
            return "bad" if column < 3 and min(busy) < max(busy) * (1 - 1e-9) <= busy[row] else ""

        yield ""
        yield Table(headings, rows, left=["stages"], tone=tone)
        if schedule.n_devices > MOST_ROWS:
            yield f"... {schedule.n_devices - MOST_ROWS} more devices"
        most = max(busy)
        those = [device for device, own in enumerate(busy) if own >= most * (1 - 1e-9)]
        if len(those) == len(busy) > 1:
            who = "all devices compute alike"
        elif len(those) > MOST_NAMED:
            who = f"{len(those)} devices have most to compute"
        elif len(those) > 1:
            who = f"devices {', '.join(map(str, those[:-1]))} and {those[-1]} have most to compute"
        else:
            who = f"device {those[0]} has most to compute"
        yield name_line(
            "\nwhy       ",
            f"{who}, {format_number(most)} of {format_number(span)} {self.timeline.unit}; the "
            f"other {format_number(span - most)} are filling, draining and waiting",
        )

    def _line_again(self) -> str:
        """Write the command that runs the split, or with a model ``ppsim memory``; other options as
        typed.
        """
        model = self.request.model
        dropped = SEARCH_ONLY - {"model", "cap"} if model else SEARCH_ONLY
        kept = [each for each in self.typed_options.typed if each.name not in dropped]
        command = command_line(
            TypedOptions("memory" if model else "run", flatten(self.request), kept)
        )
        return f"{command} --layout {shlex.quote(str(self.layout))}"
