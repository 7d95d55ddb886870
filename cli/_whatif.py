"""Changes that ``explain --what-if`` simulates: other times, links, layers, microbatches or another schedule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ppsim.cli._build import build_costs, build_schedule
from ppsim.cli._network import time_ops
from ppsim.cli._options import CostOptions, NetworkOptions, ShapeOptions
from ppsim.errors import InputError, PpsimError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline

# Schedules to try instead, each on the same devices and microbatches.
RIVALS = ("1f1b", "interleaved", "zb-1p", "dualpipe-v")
TIMES = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm")
KINDS = {"tf": 0, "tb": 1, "ti": 2, "tw": 3}
SHAPE = {"mb": "microbatches", "stages": "stages", "devices": "devices", "chunks": "chunks", "group-size": "group_size"}
PLACED = re.compile(r"(link|layers)[. ]\s*([0-9]{1,9}[->][0-9]{1,9})")
KEYS = "mb, stages, devices, chunks, group-size, schedule, comm, tf, tb, ti, tw, tf.STAGE, link.A-B, layers.A>B"
Edit = Callable[["Costs"], "Costs"]


@dataclass(frozen=True)
class Base:
    """The run that is changed.

    Attributes:
        spec: the schedule's spelling; of a real run the name of the family whose queues it followed, else empty.
        schedule: what ran.
        shape: the shape options.
        costs: the cost options.
        network: the options of messages.
        measured: the costs that a real run shows; None where the options give them.
    """

    spec: str
    schedule: Schedule
    shape: ShapeOptions
    costs: CostOptions
    network: NetworkOptions
    measured: Costs | None = None

    def build(self, spec: str, shape: ShapeOptions, costs: CostOptions) -> tuple[Schedule, Costs]:
        """Make a schedule and its costs; measured costs are adapted to it."""
        if self.measured is None:
            schedule = build_schedule(spec, shape, costs, self.network)
            return schedule, build_costs(schedule, costs, self.network)
        if (spec, shape) == (self.spec, self.shape):
            return self.schedule, self.measured
        if not spec:
            raise InputError("the run follows no schedule of ours, so its shape cannot be changed", "schedule=NAME")
        from ppsim.analysis.changes import adapt_costs

        schedule = build_schedule(spec, shape)
        return schedule, adapt_costs(self.measured, schedule)

    def time(self, schedule: Schedule, prices: Costs) -> Timeline:
        """Time a schedule by the model of the run."""
        return time_ops(schedule, prices, self.network, self.costs.links)[0]


def change_run(change: str, base: Base) -> Timeline:
    """Time the run with a change made.

    Raises:
        InputError: the change has an unknown key, a value that is none, or no effect.
    """
    spec, shape = base.spec, base.shape
    numbers: dict[str, Any] = {}
    edits: list[Edit] = []
    for part in change.split(","):
        key, _, value = (each.strip() for each in part.partition("="))
        kind, _, stage = key.partition(".")
        if key == "schedule":
            spec, shape = value, replace(shape, chunks=None, group_size=None, limit=None, slices=None)
        elif key in SHAPE and value.isdecimal():
            size: dict[str, Any] = {SHAPE[key]: int(value)}
            shape = replace(shape, **size)
        elif kind in KINDS and stage.isdecimal():
            edits.append(_time_edit(KINDS[kind], int(stage), value, change))
        elif placed := PLACED.fullmatch(key):
            edits.append((_link_edit if placed[1] == "link" else _layer_edit)(placed[2], value, change, base))
        elif key == "comm" and (value.startswith("x") or base.measured is not None):
            edits.append(_comm_edit(value, change, base))
        elif key in KINDS and (value.startswith("x") or base.measured is not None or base.costs.layout):
            edits += [_time_edit(KINDS[key], each, value, change) for each in range(base.schedule.n_stages)]
        elif key in (("comm",) if base.costs.layout else TIMES) and not base.measured:
            if key == "comm":
                _refuse_cluster(change, base)
            numbers[key] = _number(value, change)
        else:
            raise InputError(f"--what-if cannot change '{part.strip()[:60]}'", f"KEY=VALUE with one of {KEYS}")
    schedule, prices = base.build(spec, shape, replace(base.costs, **numbers))
    for edit in edits:
        prices = edit(prices)
    return base.time(schedule, prices)


def try_rivals(base: Base) -> Iterator[tuple[str, str, Timeline]]:
    """Try twice the microbatches, and other schedules on the same devices, those that take the shape.

    A schedule that runs forwards only is not compared with schedules that train.
    """
    import numpy as np

    from ppsim.core.ops import BACKWARDS
    from ppsim.schedules import family_of

    family = family_of(base.spec) if base.spec else None
    count = base.shape.microbatches
    if count is None or (family is None and base.measured is None):
        return
    runs = []
    if family is not None:
        runs = [(f"mb={2 * count}", f"use {2 * count} microbatches", base.spec)]
    per_stage = any(isinstance(getattr(base.costs, key), list) for key in KINDS)
    if not per_stage and np.isin(base.schedule.kind, BACKWARDS).any():
        name = family.name if family else ""
        runs += [(f"schedule={rival}", f"use {rival}", rival) for rival in RIVALS if rival != name]
    same = ShapeOptions(devices=base.schedule.n_devices, microbatches=count)
    if base.measured is not None:
        same = replace(same, stages=base.schedule.n_stages)
    for text, advice, spec in runs:
        shape = same if spec != base.spec else replace(base.shape, microbatches=2 * count)
        try:
            timeline = base.time(*base.build(spec, shape, base.costs))
        except PpsimError:
            continue
        yield text + _halved(base, timeline), advice, timeline


def _halved(base: Base, timeline: Timeline) -> str:
    """What to say where a run measured full backwards alone and a schedule splits them."""
    if base.measured is None:
        return ""
    splits, split = ((each.kind == 2).any() for each in (timeline.schedule, base.schedule))
    return " (I = W = B/2)" if splits and not split else ""


def _time_edit(kind: int, stage: int, value: str, change: str) -> Edit:
    """Set or scale the time of one kind on one stage."""
    number = _number(value.removeprefix("x"), change)

    def edit(prices: Costs) -> Costs:
        from ppsim.analysis.critical_path import scale_time

        _check_stage(stage, prices, change)
        before = float(prices.time[kind, stage])
        if value.startswith("x"):
            return scale_time(prices, kind, stage, number)
        time = prices.time.copy()
        time[kind, stage] = number
        return scale_time(prices, kind, stage, number / before) if before > 0 else replace(prices, time=time)

    return edit


def _comm_edit(value: str, change: str, base: Base) -> Edit:
    """Set or scale the latency of every link."""
    import numpy as np

    _refuse_cluster(change, base)
    number = _number(value.removeprefix("x"), change)
    if value.startswith("x"):
        return lambda prices: replace(prices, comm=np.asarray(prices.comm) * number)
    return lambda prices: replace(prices, comm=number)


def _link_edit(link: str, value: str, change: str, base: Base) -> Edit:
    """Set or scale the latency of one link, in both directions or in one."""
    from ppsim.network.links import parse_link

    _refuse_cluster(change, base)
    number = _number(value.removeprefix("x"), change)

    def edit(prices: Costs) -> Costs:
        import numpy as np

        devices = base.schedule.n_devices
        links = np.array(np.broadcast_to(np.asarray(prices.comm, np.float64), (devices, devices)))
        for way in parse_link(f"{link}=0", devices).ways:
            links[way] = links[way] * number if value.startswith("x") else number
        return replace(prices, comm=links)

    return edit


def _layer_edit(stages: str, value: str, change: str, base: Base) -> Edit:
    """Move layers from one stage to another: ``1/8``, one of the eight layers of the first, or ``1`` with a profile."""
    source, target = map(int, re.split("[->]", stages))
    count, slash, layers = value.partition("/")
    held = _number(layers, change) if slash else _profile_layers(base)
    share = _number(count, change) / held if held else 2.0
    if share > 1 or source == target:
        raise InputError(
            f"--what-if {change}: how much of stage {source} moves is not clear",
            f"layers.{source}>{target}=1/8: one of the eight layers of stage {source}",
        )

    def edit(prices: Costs) -> Costs:
        from ppsim.analysis.changes import move_work

        for stage in (source, target):
            _check_stage(stage, prices, change)
        return move_work(prices, source, target, share)

    return edit


def _profile_layers(base: Base) -> float:
    """Layers of a stage as the profile has them, 0 where there is none."""
    if not base.costs.profile:
        return 0.0
    from ppsim.profiles.profile import read

    model = read(base.costs.profile).model
    return model.layers * base.schedule.n_devices / base.schedule.n_stages if model else 0.0


def _refuse_cluster(change: str, base: Base) -> None:
    if base.network.cluster:
        raise InputError(f"--what-if {change}: the cluster file gives every link", "change the file, or --link")


def _check_stage(stage: int, prices: Costs, change: str) -> None:
    stages = prices.time.shape[1]
    if stage >= stages:
        raise InputError(f"--what-if {change}: there is no stage {stage}", f"a stage from 0 to {stages - 1}")


def _number(value: str, change: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e100:
        raise InputError(f"--what-if {change}: '{value}' is no time", "a number, zero or more")
    return number
