"""Find the best split of a model's layers over the stages."""

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
from ppsim.ask.types import Amount, NumberText
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

LEAST_S = 0.5  # seconds that a search always has
# Seconds for each op to time and show a split, and the seconds that it may end after the limit.
OP_S, LATE_S = 1e-6, 2.0
MOST_ROWS, MOST_NAMED = 64, 8  # devices in the table, and in the sentence below it
# options that ppsim run lacks
SEARCH_ONLY = {"num_layers", "mtp", "least", "model", "cap", "time_limit"}


@dataclass(frozen=True, kw_only=True)
class PartitionRequest(Request):
    """Find the contiguous split of layers over stages with the least makespan.

    The embedding is on the first stage, the head on the last. A split is "optimal" if no other is
    faster; else it is "feasible", and a lower bound on the makespan of all splits is printed.

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
            "{options} adds copies to a finished schedule, and the search does not consider copies",
            "ppsim run SCHEDULE --offload ...",
        ),
    )
    schedule: OneSchedule = group(OneSchedule, "Shape")
    shape: ShapeOptions = group(ShapeOptions, "Shape")
    costs: CostOptions = group(CostOptions, "Costs")
    num_layers: int | None = common(
        "--num-layers",
        type=click.IntRange(min=1),
        help="Number of transformer layers, if --t-layer is one time.",
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
        help="Minimum number of layers of a stage (0: a stage may have only the embedding, only the"
        " head, or nothing).",
    )
    model: str | None = model_option("Bytes for --cap")
    training: TrainedOptions = group(TrainedOptions, "Training of --model")
    cap: NumberText | None = common(
        "--cap",
        metavar="SIZE",
        help="Memory cap of a device: a number of activations of one layer, or a size such as "
        "80GiB, which needs --model or --profile.",
    )
    serve: str | None = common(
        "--serve",
        type=click.Choice(["tokens", "period"]),
        help="Split for a pipeline that serves --model (decode, forward-only): for the most tokens "
        "of keys and values in --cap, or for the shortest period; ties are decided by the other.",
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
        """Raise InputError for costs of a Python function, which are times of whole stages."""
        if self.costs.costs:
            raise InputError(
                "costs are times of whole stages, and a split needs times of layers",
                "t_layer, t_embedding, t_head",
            )


def partition(schedule: str, **options: Any) -> Any:
    """Find the split of layers over stages with the least makespan.

    ``options`` are the options of ``ppsim partition`` by name. Returns a :class:`Partitioned`, with
    ``serve`` a :class:`ppsim.questions.optimum.partition_served.ServedSplit`.

    Raises:
        InputError: an option or a shape is refused, or the number of layers is not clear.
        PpsimError: no split was found that fits the cap, or none was timed before the time ended.
    """
    return answer(ask(PartitionRequest, {"names": schedule} | options))


def answer(request: PartitionRequest) -> Partitioned | ServedSplit:
    """Search for the best split; with --serve, for a pipeline that serves."""
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
    """Find the best split for a pipeline that serves, by its tokens or its period (``by``)."""
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
    """Return the question of a split, with the number of layers.

    Raises:
        InputError: no option states the number of layers, or two options disagree.
    """
    from ppsim.search.splits.splits import MOST_LAYERS

    spec, costs, counts = request.schedule.spec, request.costs, dict[str, int]()
    if isinstance(costs.t_layer, Sequence):
        counts["--t-layer"] = len(costs.t_layer)
    if request.num_layers is not None:
        counts["--num-layers"] = request.num_layers
    trained = None
    if request.model:
        trained = TrainedModel(request.model, request.training)
        counts["--model"] = trained.model.layers
    if not counts:
        raise InputError(
            "the number of layers is missing",
            "give --num-layers, or --t-layer with a time for each",
        )
    if len(set(counts.values())) > 1:
        stated = ", ".join(f"{name} says {n}" for name, n in counts.items())
        raise InputError(f"the number of layers is not clear: {stated}", "the same number in each")
    layers = next(iter(counts.values()))
    if layers > MOST_LAYERS:
        raise InputError(
            f"{layers:,} layers are more than any model has", f"{MOST_LAYERS:,} at most"
        )
    return Asked(
        spec, request.shape, costs, layers, request.mtp, request.least, trained, request.cap
    )


def _solve(request: PartitionRequest, asked: Asked) -> Partitioned:
    """Search for the best split, and time it and the even one.

    If costs decide the order of a family's ops, its queues are planned for each split.
    """
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.schedules import family_of

    begin, limit, family = time.monotonic(), request.time_limit, family_of(asked.spec)
    planned = bool(family and family.uses_costs)
    with interrupt_at(begin + limit):
        recompute = CostOptions(recompute=asked.costs.recompute)
        schedule = build_schedule(asked.spec, asked.shape, recompute)
        _check_schedule(schedule, asked, limit)
        even, problem = asked.even_layout(schedule), asked.make_problem(schedule)

    def seconds_left() -> float:
        return max(LEAST_S, begin + limit - time.monotonic())

    with progress(not request.face.as_json and not request.face.quiet) as bar:
        bar(None, "splitting layers")

        def report(makespan: float, bound: float, timed: int) -> None:
            text = f"best {format_number(makespan)}, bound {format_number(bound)}, {timed} timed"
            bar(min((time.monotonic() - begin) / limit, 1.0), text)

        search = search_planned if planned else search_split
        found = search(asked, problem, even, seconds_left(), report)
    if found is None:
        late = " in the time given" if time.monotonic() - begin >= limit else ""
        raise PpsimError(
            f"no split found fits --cap {asked.cap}{late}",
            least_cap(asked, problem, seconds_left(), planned=planned),
        )
    layout = asked.make_layout(schedule, list(found.best[0]))
    final, first = (asked.plan(layout), asked.plan(even)) if planned else (schedule, schedule)
    timeline = of_even = simulate(final, asked.price(final, layout))
    if str(layout) != str(even):
        of_even = simulate(first, asked.price(first, even))
    fits = asked.cap is None or bool(asked.hold(first, even, of_even).peak.max() <= problem.cap)
    return Partitioned(request, asked, found, layout, timeline, problem, of_even.makespan, fits)


def _check_schedule(schedule: Schedule, asked: Asked, limit: float) -> None:
    """Raise an error for a schedule that takes too long, or that cannot be split."""
    if (seconds := OP_S * len(schedule)) > limit + LATE_S:
        raise PpsimError(
            f"one split of {len(schedule):,} ops takes about {seconds:,.0f} s, more than "
            f"--time-limit {limit:g} allows",
            f"--time-limit {math.ceil(seconds - LATE_S)}, or a smaller size",
        )
    if schedule.partial_recompute:
        raise InputError(
            "partition cannot recompute a part of a stage", "--recompute full, first:N or window:N"
        )
    if asked.layers < asked.least_layers * schedule.n_stages:
        raise InputError(
            f"{asked.layers} layers are too few for {schedule.n_stages} stages with "
            f"{asked.least_layers} or more each",
            f"--min-layers {asked.layers // schedule.n_stages}, or fewer stages",
        )


@dataclass(frozen=True)
class Partitioned(Answer[PartitionRequest]):
    """The best split found, with the times of ``ppsim run --layout``.

    Attributes:
        asked: the question of the split.
        partition: the split, the next best ones, and the proof or bound.
        layout: the split as a layout.
        timeline: the timeline with the split.
        problem: the layers and the schedule.
        even_makespan: the makespan of the most even split.
        even_fits: True if that split fits the cap.
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
        """The schedule; planned for the split if its order depends on the costs."""
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
        """``optimal`` if no split is faster, else ``feasible``."""
        return self.partition.status

    @property
    def bound(self) -> float:
        """A lower bound on the makespan of all splits."""
        return self.makespan if self.status == "optimal" else self.partition.bound

    @property
    def inputs(self) -> dict[str, Any]:
        """The command, version and settings that repeat the answer."""
        costs = replace(self.request.costs, layout=str(self.layout))
        return inputs_of(self.typed_options, build_costs(self.schedule, costs))

    @cached_property
    def held(self) -> Curve:
        """The memory of devices with the best split."""
        return self.asked.hold(self.schedule, self.layout, self.timeline)

    @cached_property
    def _busy(self) -> list[float]:
        """The time that each device computes."""
        from ppsim.engine.simple.metrics import measure

        return [float(busy) for busy in measure(self.timeline).busy]

    @property
    def verdict(self) -> str:
        """The split, its time against the even split's, and the proof or bound."""
        split = ",".join(map(str, self.split))
        time = f"{format_number(self.makespan)} {self.timeline.unit}, {self._against_even()}"
        return (
            f"{self.schedule.name} with {split} layers per stage takes {time}; {self.status}: "
            f"{self._proof()}"
        )

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
        status = (self.status, "good" if self.status == "optimal" else "")
        yield name_line("status    ", status, f": {self._proof()} ({found.simulated:,} simulated)")
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
                "the embedding and the head take no time: set --t-embedding and --t-head",
            )
        yield from self._devices()
        if found.runner_ups:
            yield heading("\nnext best" + ("" if found.ranked else " of those simulated"))
            times = align_decimals([format_number(makespan) for _, makespan in found.runner_ups])
            for time, (split, _) in zip(times, found.runner_ups, strict=True):
                yield f"  {time:>10}  {','.join(map(str, split))}"
        yield ""
        yield name_line("flags     ", flags_of(layout))
        yield name_line("run it    ", (self._run_line(), "try"))

    def charts(self) -> Sequence[tuple[str, Timeline]]:
        """The timeline with the split."""
        return [(title_of(self.schedule), self.timeline)]

    def _proof(self) -> str:
        """The sentence that proves the split, or the bound on all splits."""
        none = "none that fits" if math.isfinite(self.problem.cap) else "none"
        count = self.problem.n_splits
        if self.status == "optimal":
            return f"{none} of the {count:,} splits is faster" if count > 1 else "the only split"
        if not self.bound:
            return "without a bound"
        gap = format_share(self.makespan / self.bound - 1)
        return f"{none} is faster than {format_number(self.bound)}, gap {gap}"

    def _against_even(self) -> str:
        """The comparison of the makespan with the even split's, as a clause."""
        span, even = self.makespan, format_number(self.even_makespan)
        if span >= self.even_makespan * (1 - 1e-9) and self.even_fits:
            return "as the even split"
        gain = format_share(abs(1 - span / self.even_makespan)) if self.even_makespan else "0%"
        word = "less" if span < self.even_makespan else "more"
        fits = "" if self.even_fits else ", which does not fit"
        return f"{gain} {word} than the even split's {even}{fits}"

    def _devices(self) -> Iterator[Block]:
        """A table of each device's layers, memory and compute time, and the busiest devices."""
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
        yield name_line(
            "\nwhy       ",
            f"{_busiest_text(busy)}, {format_number(most)} of {format_number(span)} "
            f"{self.timeline.unit}; the other {format_number(span - most)} are filling, draining "
            f"and waiting",
        )

    def _run_line(self) -> str:
        """The command that runs the split, or with a model computes its memory; other options are
        as typed.
        """
        model = self.request.model
        dropped = SEARCH_ONLY - {"model", "cap"} if model else SEARCH_ONLY
        kept = [each for each in self.typed_options.typed if each.name not in dropped]
        command = command_line(
            TypedOptions("memory" if model else "run", flatten(self.request), kept)
        )
        return f"{command} --layout {shlex.quote(str(self.layout))}"


def _busiest_text(busy: Sequence[float]) -> str:
    """Return a clause that names the devices with the most compute time."""
    most = max(busy)
    devices = [device for device, time in enumerate(busy) if time >= most * (1 - 1e-9)]
    if len(devices) == len(busy) > 1:
        return "all devices compute alike"
    if len(devices) > MOST_NAMED:
        return f"{len(devices)} devices have most to compute"
    if len(devices) > 1:
        names = f"{', '.join(map(str, devices[:-1]))} and {devices[-1]}"
        return f"devices {names} have most to compute"
    return f"device {devices[0]} has most to compute"
