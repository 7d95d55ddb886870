"""The best split of layers for a pipeline that serves, by the tokens that fit or by its period."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, name_line
from ppsim.ask.groups import ShapeOptions
from ppsim.ask.words import shape_line, title_of
from ppsim.ask.write import command_line, inputs_of
from ppsim.base.numbers import format_number, format_share
from ppsim.engine.simple.columns import size_object
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import build_costs, check_used
from ppsim.prices.options import CostOptions, make_part
from ppsim.prices.parts.layout import LayoutString
from ppsim.prices.serving import (
    ServedMemory,
    ServedOptions,
    caps_of,
    measure_served,
    schedule_that_serves,
)
from ppsim.prices.trained import TrainedModel

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.schedule import Schedule
    from ppsim.workload.layout.layout import Layout

MOST_RANGES = 20_000_000  # ranges of layers on stages that a search compares


@dataclass(frozen=True)
class OneSplit:
    """A split with its layout, its period and its memory."""

    layout: Layout
    period: float
    held: ServedMemory | None  # None without a model or a cap

    def to_json(self) -> dict[str, Any]:
        """Return the numbers of the split."""
        numbers: dict[str, Any] = {"split": self.layout.layers, "period": self.period}
        if self.held:
            deciding = self.held.deciding
            numbers |= {"tokens": deciding.tokens, "blocks": deciding.blocks}
        return numbers


@dataclass(frozen=True)
class ServedQuestion:
    """The question of a split for serving."""

    schedule: Schedule
    costs: CostOptions
    model: TrainedModel | None
    options: ServedOptions
    caps: tuple[int, ...] | None  # the bytes of each device; None without a cap
    layers: int
    least_layers: int  # of a stage
    objective: str  # tokens or period

    @property
    def devices(self) -> int:
        """The number of devices, each with one stage."""
        return self.schedule.n_devices

    def measure(self, layers: Sequence[int]) -> OneSplit:
        """Return a split, given as the layers of each stage, with its period and its memory."""
        from ppsim.workload.layout.layout import build_layout

        layout = build_layout(list(layers), self.devices, 0)
        held = None
        if self.model and self.caps:
            held = measure_served(self.model, self.options, self.schedule, layout, self.caps)
        return OneSplit(layout, _period(self.costs, self.schedule, layout), held)


def ask_served(
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    trained: TrainedModel | None,
    options: ServedOptions,
    cap: str | None,
    num_layers: int | None,
    least: int,
    by: str,
) -> ServedQuestion:
    """Return the question of a split for serving.

    Raises:
        InputError: an option is missing, or has no effect.
    """
    if by == "tokens" and trained is None:
        raise InputError("--serve tokens needs a model", "add --model NAME, or --serve period")
    schedule = schedule_that_serves(spec, shape)
    P = schedule.n_devices
    if schedule.n_stages != P:
        raise InputError(
            "partition --serve splits layers over one stage per device", "leave out --chunks"
        )
    check_used([schedule], costs)
    layers = _count_layers(costs, trained, num_layers)
    if P * (layers + 1) ** 2 > MOST_RANGES:
        raise InputError(f"{layers:,} layers on {P:,} stages are too many to compare", "fewer")
    caps = caps_of(cap, P) if trained and (cap is not None or by == "tokens") else None
    return ServedQuestion(schedule, costs, trained, options, caps, layers, least, by)


def split_served(asked: ServedQuestion) -> tuple[OneSplit, OneSplit]:
    """Return the best split and the most even one (PpsimError: none fits)."""
    from ppsim.search.splits.serving import split_for

    split = split_for(_tokens_of_ranges(asked), _times_of_ranges(asked), asked.objective)
    if split is None:
        raise PpsimError(
            f"no split of {asked.layers} layers over {asked.devices} devices fits",
            "a larger --cap, fewer --weight-bits, fewer --min-layers, more devices, or a higher "
            "--tp",
        )
    each, more = divmod(asked.layers, asked.devices)
    even = [each + (stage < more) for stage in range(asked.devices)]
    return asked.measure(split), asked.measure(even)


def _count_layers(costs: CostOptions, trained: TrainedModel | None, num_layers: int | None) -> int:
    """Return the number of layers (InputError: no option states it, or two options disagree)."""
    times = costs.t_layer
    counts = {
        "--num-layers": num_layers,
        "--t-layer": None if times is None or isinstance(times, int | float) else len(times),
        "--model": trained.model.layers if trained else None,
    }
    known = {name: count for name, count in counts.items() if count is not None}
    if not known:
        raise InputError("the number of layers is missing", "--model NAME, or --num-layers")
    if len(set(known.values())) > 1:
        stated = ", ".join(f"{name} says {count}" for name, count in known.items())
        raise InputError(f"the number of layers is not clear: {stated}", "the same number in each")
    return next(iter(known.values()))


def _times_of_ranges(asked: ServedQuestion) -> NDArray[np.float64]:
    """Return the time of layers a to b on each stage, shape (P, N + 1, N + 1).

    Infinity for ranges with fewer layers than a stage must have.
    """
    import numpy as np

    P, N = asked.devices, asked.layers
    layers = make_part(LayoutString, asked.costs).layer_times()
    sums = np.concatenate([[0.0], np.cumsum(layers.forward_times(N))])
    found = np.repeat((sums[None, :] - sums[:, None])[None], P, axis=0)
    found[0] += layers.embedding
    found[-1] += layers.head
    if asked.costs.speed is not None:
        found /= np.broadcast_to(np.asarray(asked.costs.speed, np.float64), P)[:, None, None]
    count = np.arange(N + 1)
    found[:, count[None, :] - count[:, None] < asked.least_layers] = np.inf
    return found


def _tokens_of_ranges(asked: ServedQuestion) -> NDArray[np.float64]:
    """Return the tokens that fit with layers a to b on each stage, shape (P, N + 1, N + 1).

    Minus infinity if not even one block fits.
    """
    import numpy as np

    P, N = asked.devices, asked.layers
    if asked.model is None or asked.caps is None:
        return np.zeros((P, N + 1, N + 1))
    from ppsim.workload.cost.serving import find_held, tokens_in

    served = asked.options.served_model(asked.model)
    held = find_held(asked.model.model, served)
    weights, states = (
        np.concatenate([[0.0], np.cumsum(part)]) for part in (held.weights, held.states)
    )
    weights_of_range = np.repeat((weights[None, :] - weights[:, None])[None], P, axis=0)
    weights_of_range[0] += held.embedding
    weights_of_range[-1] += held.head
    room = np.array(asked.caps, np.float64)[:, None, None] - np.ceil(weights_of_range)
    tokens = tokens_in(room, np.maximum(states[None, :] - states[:, None], 0.0)[None], served)
    return np.where((room < 0) | (tokens < served.block), -np.inf, tokens)


def _period(costs: CostOptions, schedule: Schedule, layout: Layout) -> float:
    """Return the period of a layout, in the unit of the costs."""
    from ppsim.analysis.period import find_period

    return find_period(schedule, build_costs(schedule, replace(costs, layout=str(layout)))).time


@dataclass(frozen=True)
class ServedSplit(Answer[Any]):
    """The best split for a pipeline that serves.

    Attributes:
        schedule: the pipeline.
        best: the best split.
        even: the most even split, with more layers on earlier stages.
    """

    schedule: Schedule
    best: OneSplit
    even: OneSplit

    @property
    def verdict(self) -> str:
        """The split, its period against the even split's, and the tokens that fit."""
        split = ",".join(map(str, self.split))
        period = f"{format_number(self.best.period)} {self.unit}{self._against_even()}"
        fits = f"; {self.best.held.sentence()}" if self.best.held else ""
        return f"{self.schedule.name} split {split} has a period of {period}{fits}"

    @property
    def split(self) -> tuple[int, ...]:
        """The layers of each stage."""
        return self.best.layout.layers

    @property
    def layout(self) -> Layout:
        """The split as a layout."""
        return self.best.layout

    @property
    def unit(self) -> str:
        """The unit of the period."""
        costs = self.request.costs
        return str(costs.unit or ("t_layer" if costs.t_layer is None else "t"))

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.served-split/1``."""
        from ppsim.workload.layout.flags import flags_of

        return {
            "schema": "ppsim.served-split/1",
            "inputs": inputs_of(self.typed_options),
            **size_object(self.schedule),
            "unit": self.unit,
            "layers": self.layout.n_layers,
            "by": self.request.serve,
            "layout": str(self.layout),
            "flags": flags_of(self.layout),
            **self.best.to_json(),
            "memory": self.best.held.to_json() if self.best.held else None,
            "even": self.even.to_json(),
        }

    def blocks(self) -> Iterator[Block]:
        """The split, its gain over the even one, its devices, and the command that runs it."""
        split = ",".join(map(str, self.split))
        yield Line([(title_of(self.schedule), "name"), f"  {shape_line(self.schedule)}"])
        yield ""
        yield name_line("split     ", (split, "name"), " layers per stage")
        yield name_line("layout    ", str(self.layout))
        yield name_line(
            "period    ",
            (f"{format_number(self.best.period)} {self.unit}", "name"),
            self._against_even(),
        )
        if self.best.held and self.even.held:
            blocks, even = self.best.held.deciding.blocks, self.even.held.deciding.blocks
            yield name_line(
                "tokens    ",
                self.best.held.sentence(),
                f"; the even split has {even or 0:,} blocks",
            )
            assert blocks is None or blocks > 0
            yield ""
            yield from self.best.held.blocks()
        yield ""
        yield name_line("run it    ", (self._run_line(), "try"))

    def _against_even(self) -> str:
        """The comparison of the period with the even split's, as a clause."""
        best, even = self.best.period, self.even.period
        if abs(best - even) <= 1e-9 * even:
            return ", as the even split's"
        relation = "less" if best < even else "more"
        if even:
            relation = f"{format_share(abs(1 - best / even))} {relation}"
        return f", {relation} than the even split's {format_number(even)}"

    def _run_line(self) -> str:
        """The command that runs the split."""
        from ppsim.ask.given import TypedOptions
        from ppsim.ask.options import flatten

        dropped = {
            "num_layers",
            "least",
            "model",
            "cap",
            "serve",
            "time_limit",
            "weight_bits",
            "kv_bits",
            "block",
        }
        dropped |= {"tp", "ep", "sequence"}
        kept = [option for option in self.typed_options.typed if option.name not in dropped]
        command = command_line(TypedOptions("run", flatten(self.request), kept))
        if not self.typed_options.has("microbatches"):
            command += f" --mb {self.schedule.n_devices}"
        return f"{command} --layout {shlex.quote(str(self.layout))}"
