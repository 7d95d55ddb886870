"""The problem of ``ppsim partition``: the costs and the memory of a split."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from ppsim.ask.groups import ShapeOptions
from ppsim.base.deadline import interrupt_at
from ppsim.base.signals import first_signal
from ppsim.prices.build import build_costs, build_memory, build_schedule, check_used
from ppsim.prices.cap import number_at_least, read_cap
from ppsim.prices.options import CostOptions, ask_costs
from ppsim.prices.trained import TrainedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.curve import Curve
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.search.splits.partition import Partition
    from ppsim.search.splits.split_search import Report, Split
    from ppsim.search.splits.splits import Sizes, SplitProblem
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout

# limits of a search for a hint: ops of all splits together, and seconds
MOST_HINTED, HINT_SECONDS = 200_000_000, 5.0


@dataclass(frozen=True)
class Asked:
    """The question of a split: the schedule's spelling and shape, costs, layers, and memory cap."""

    spec: str
    shape: ShapeOptions
    costs: CostOptions
    layers: int
    mtp: int
    least_layers: int
    model: TrainedModel | None
    cap: str | None
    plans: dict[str, Schedule] = field(default_factory=dict)  # schedules planned so far, by layout

    def make_layout(self, schedule: Schedule, layers: list[int]) -> Layout:
        """Return the layout of a split, given as the layers of each stage."""
        from ppsim.workload.layout.layout import build_layout

        divides = schedule.n_stages % schedule.n_devices == 0
        devices = schedule.n_devices if divides else schedule.n_stages
        return build_layout(layers, devices, self.mtp)

    def even_layout(self, schedule: Schedule) -> Layout:
        """Return the most even split, with more layers on earlier stages."""
        each, more = divmod(self.layers, schedule.n_stages)
        layers = [each + (stage < more) for stage in range(schedule.n_stages)]
        return self.make_layout(schedule, layers)

    def plan(self, layout: Layout) -> Schedule:
        """Return the schedule of a family whose order depends on costs, planned for a layout."""
        text = str(layout)
        if text not in self.plans:
            costs = replace(self.costs, layout=text)
            self.plans[text] = build_schedule(self.spec, self.shape, costs)
        return self.plans[text]

    def price(self, schedule: Schedule, layout: Layout) -> Costs:
        """Return the costs of a layout, with the time of the model's recompute."""
        check_used([schedule], self.costs)
        prices = build_costs(schedule, replace(self.costs, layout=str(layout)))
        return self.model.add_recompute(prices) if self.model else prices

    def hold(self, schedule: Schedule, layout: Layout, timeline: Timeline | None = None) -> Curve:
        """Return the memory of devices with a layout: bytes, or activations of layers.

        A profile gives bytes only if there is a cap.
        """
        from ppsim.engine.memory.usage import curves
        from ppsim.engine.simple.longest_path import simulate

        timeline = timeline or simulate(schedule, self.price(schedule, layout))
        return curves(timeline, self._memory(schedule, layout))

    @property
    def holds_bytes(self) -> bool:
        """True if the costs or a model give the memory of stages in bytes."""
        return ask_costs(self.costs, model=self.model).holds_bytes

    def _memory(self, schedule: Schedule, layout: Layout) -> MemoryModel:
        """Return the memory model of the stages of a layout."""
        if not self.model and (self.cap is None or not self.holds_bytes):
            from ppsim.engine.memory.usage import layer_model

            return layer_model(schedule, layout.content)
        costs = replace(self.costs, layout=str(layout))
        return build_memory(schedule, build_costs(schedule, costs), costs, self.model)[0]

    def make_problem(self, schedule: Schedule) -> SplitProblem:
        """Return the problem of the search: costs as a line over the layers of a stage, and with a
        cap the memory of stages.
        """
        from ppsim.search.splits.splits import SplitProblem

        costs, weights = self.costs, np.ones(self.layers)
        none = one = self
        if times := self.layer_times(schedule):
            weights = times.forward_times(self.layers).copy()
            t_mtp = times.mtp_time if self.mtp else None
            none = replace(self, costs=replace(costs, t_layer=0.0, t_mtp=t_mtp))
            one = replace(self, costs=replace(costs, t_layer=1.0, t_mtp=t_mtp))
        base = none.price(schedule, self.make_layout(schedule, [0] * schedule.n_stages))
        more = one.price(schedule, self.make_layout(schedule, [1] * schedule.n_stages))
        pair = None if more.pair is None or base.pair is None else more.pair - base.pair
        rate = replace(base, time=np.maximum(more.time - base.time, 0.0), pair=pair)
        problem = SplitProblem(schedule, base, rate, weights, self.least_layers)
        if self.cap is None:
            return problem
        from ppsim.core.ops import Kind
        from ppsim.engine.memory.usage import BYTES, LAYER_ACTIVATIONS

        read_cap(self.cap).single()
        unit = BYTES if self.holds_bytes else LAYER_ACTIVATIONS
        cap = read_cap(self.cap).caps_in_unit(schedule, unit)
        assert isinstance(cap, int)
        # activations of ops that take no time do not count (ppsim.engine.memory.usage.curves)
        instant = np.zeros((schedule.n_stages, self.layers + 1), np.bool_)
        instant[:, 0] = base.time[Kind.F] == 0
        instant[(base.time[Kind.F] == 0) & (rate.time[Kind.F] * weights.min() == 0)] = True
        if not self.holds_bytes and not self.mtp and not instant[:, 1:].any():
            return replace(problem, cap=cap)
        return replace(problem, cap=cap, sizes=self._list_sizes(schedule, instant))

    def layer_times(self, schedule: Schedule) -> LayerTimes | None:
        """Return the times of layers from which times of stages follow; None if the costs give
        times of stages.
        """
        layout = str(self.make_layout(schedule, [0] * schedule.n_stages))
        return ask_costs(replace(self.costs, layout=layout)).source.layer_times()

    def _list_sizes(self, schedule: Schedule, instant: NDArray[np.bool_]) -> Sizes:
        """Return the memory of each stage with each number of layers.

        It is read from the memory models of layouts that have all pairs of a stage and a number.
        """
        from ppsim.search.splits.splits import Sizes

        S, N = schedule.n_stages, self.layers
        sizes = Sizes(*(np.zeros((S, N + 1), np.int64) for _ in Sizes._fields))
        for layers in range(N + 1):
            for stage in range(0, S, 2):
                split = [0] * S
                split[stage], split[stage - S + 1] = layers, N - layers
                if S == 1:
                    split = [N]
                model = self._memory(schedule, self.make_layout(schedule, split))
                stages, counts = np.arange(S), np.array(split)
                static = sum(model.static.values(), np.zeros(S, np.int64))
                sizes.weights[stages, counts] = static
                sizes.until_i[stages, counts] = model.activations
                sizes.until_w[stages, counts] = model.kept + model.stash
        sizes.until_i[instant] = sizes.until_w[instant] = 0
        return sizes


def search_split(
    asked: Asked, problem: SplitProblem, even: Layout, limit: float, report: Report
) -> Partition | None:
    """Search for the best split with the queues of the problem; None if none fits."""
    from ppsim.search.splits.partition import partition

    def fits(split: Split) -> bool:
        layout = asked.make_layout(problem.schedule, list(split))
        return bool(asked.hold(problem.schedule, layout).peak.max() <= problem.cap)

    return partition(problem, accepts=fits if asked.cap else None, time_limit=limit, report=report)


def search_planned(
    asked: Asked, problem: SplitProblem, even: Layout, limit: float, report: Report
) -> Partition | None:
    """Search for the best split with queues planned for each split; None if none fits."""
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.search.splits.partition import partition
    from ppsim.search.splits.partition_planned import partition_planned

    starts = [even.layers]
    with interrupt_at(time.monotonic() + limit):
        of_even = asked.make_problem(asked.plan(even))
    if one_plan := partition(of_even, time_limit=limit / 10):
        starts.append(one_plan.best[0])
    if first_signal():  # a signal that ended that search ends this one too
        limit = 0.0

    def time_split(split: Split) -> float:
        layout = asked.make_layout(problem.schedule, list(split))
        schedule = asked.plan(layout)
        if asked.cap and asked.hold(schedule, layout).peak.max() > problem.cap:
            return math.inf
        return simulate(schedule, asked.price(schedule, layout)).makespan

    def price_split(split: Split) -> Costs:
        return asked.price(problem.schedule, asked.make_layout(problem.schedule, list(split)))

    return partition_planned(
        problem, time_split, price_split, starts, time_limit=limit, report=report
    )


def searches_soon(spec: str, schedule: Schedule, layers: int) -> bool:
    """Return True if all splits of a schedule can be searched for a hint: they are few enough, and
    its order does not depend on costs.
    """
    from ppsim.schedules import family_of

    family, S = family_of(spec), schedule.n_stages
    if family and family.uses_costs:
        return False
    return math.comb(layers + S - 1, S - 1) * len(schedule) <= MOST_HINTED


def find_fitting_layout(asked: Asked, schedule: Schedule) -> str | None:
    """Return the fastest layout that fits the cap, as text; None if none fits, or none is proved
    within some seconds.
    """
    problem, even = asked.make_problem(schedule), asked.even_layout(schedule)
    found = search_split(asked, problem, even, HINT_SECONDS, lambda best, bound, timed: None)
    if found is None or found.status != "optimal":
        return None
    return str(asked.make_layout(schedule, list(found.best[0])))


def least_cap(asked: Asked, problem: SplitProblem, seconds: float, *, planned: bool) -> str:
    """Return the least cap that a split fits, as the option to give.

    It is not known, and the text is another, if there are too many splits to list, or if the time
    is up before all splits that may need less are tried.
    """
    from ppsim.search.splits.partition import MOST_LISTED

    if problem.n_splits > MOST_LISTED:
        return "a larger --cap"
    from ppsim.engine.memory.usage import BYTES, activations_per_unit
    from ppsim.search.splits.splits import layers_in, list_ends

    until, schedule = time.monotonic() + seconds, problem.schedule
    ends = list_ends(problem.n_layers, schedule.n_stages, problem.least_layers)
    bounds, least = problem.peaks(ends), math.inf
    for split in np.argsort(bounds, kind="stable").tolist():
        if bounds[split] >= least and not planned:
            break
        if time.monotonic() > until:
            return "a larger --cap"
        layout = asked.make_layout(schedule, list(layers_in(ends[:, split], problem.n_layers)))
        held = asked.hold(asked.plan(layout) if planned else schedule, layout)
        least = min(least, held.peak.max())
    per_unit = activations_per_unit(schedule, held.unit)
    size = (
        f"{-(-int(least) // 2**20)}MiB" if held.unit == BYTES else number_at_least(least / per_unit)
    )
    return f"--cap {size}, the least that any split needs"
