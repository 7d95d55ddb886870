"""Parts of the costs: groups of options, and the roles that they can play.

A part is a frozen dataclass in a file of ``parts/``. Its fields are options, in the order of the
help. A part overrides the methods of the roles that it plays; the default of a role changes
nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ppsim.ask.given import Need
from ppsim.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.ask.groups import NetworkOptions, ShapeOptions
    from ppsim.core.costs import Costs
    from ppsim.core.law import Law
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.segments import OpsInside
    from ppsim.prices.trained import TrainedModel
    from ppsim.schedules import Pricing
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout

# Names of options that several parts refer to.
COSTS = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm", "per", "unit")
LAYER_TIMES = ("t_layer", "t_embedding", "t_head", "t_mtp", "b_over_f")
UNEVEN = ("links", "mb_scale", "slice_scale", "speed")
STEP = ("t_optimizer", "post_validation", "t_gather", "t_reduce_grad")  # around a training step


@dataclass(frozen=True)
class Part:
    """A group of options for one aspect of costs; subclasses override the roles that they play."""

    # The place of its options in the help. Parts are asked from the last to the first, so of two
    # sources of times the later one is used.
    place: ClassVar[int]
    # The options that call the part; without any, it is always called.
    called_by: ClassVar[tuple[str, ...]] = ()
    # The rules of its options.
    needs: ClassVar[tuple[Need, ...]] = ()
    # By option, the feature that a schedule must have to use it; else the option is refused.
    lacks: ClassVar[Mapping[str, str]] = {}

    # True if it gives all costs at once, so that no option for one kind of op can change them.
    gives_whole_costs: ClassVar[bool] = False
    # True if it also gives the times of messages.
    gives_messages: ClassVar[bool] = False
    # True if it gives the memory of stages in bytes.
    holds_bytes: ClassVar[bool] = False
    # True if a cap must be in bytes: a cap of activations is refused.
    needs_cap_in_bytes: ClassVar[bool] = False
    # True if it counts activations of one layer.
    counts_layers: ClassVar[bool] = False
    # Its options that change the ops of a schedule, and of these the ones that add ops.
    decides_ops: ClassVar[tuple[str, ...]] = ()
    adds_ops: ClassVar[tuple[str, ...]] = ()

    # The schedule.

    def fill_shape(self, spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
        """Return the shape with the sizes that the options give."""
        return shape

    def rephrase_hint(self, hint: str) -> str:
        """Return the hint of a refused shape in terms of the options."""
        return hint

    def n_stages(self) -> int | None:
        """Return the number of stages that the options state; None if they do not."""
        return None

    def stages_hint(self, devices: int, stages: int) -> str:
        """Return the nearest value with this number of stages; empty if the options state none."""
        return ""

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Return the schedule with the ops that the options add.

        Args:
            schedule: the schedule.
            price: returns the costs of any schedule.
        """
        return schedule

    def orders_by_costs(self) -> bool:
        """Return True if costs decide the place of the added ops."""
        return False

    # The times of its ops.

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the changes of these options."""
        return costs

    @property
    def draws_by_replica(self) -> bool:
        """True if each data-parallel replica draws separate factors for its microbatches."""
        return False

    def change_replica(self, schedule: Schedule, costs: Costs, asked: Asked, replica: int) -> Costs:
        """Return the costs of a replica, from those of replica 0."""
        return costs

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the options of ``lacks`` that the schedule uses."""
        return set()

    def lack(self, name: str) -> str:
        """Return the feature that a schedule lacks to use an option, such as "no R"."""
        return self.lacks[name]

    def look_inside(self, schedule: Schedule, asked: Asked) -> OpsInside | None:
        """Return the segments inside the ops of a schedule; None if these options do not give
        them.
        """
        return None

    # Facts for other parts.

    def layout_of(self, schedule: Schedule) -> Layout | None:
        """Return the layers of each stage; None if these options do not give them."""
        return None

    def layers(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return the number of layers of each stage, shape (stages,); None if unknown."""
        return None

    def layer_times(self) -> LayerTimes | None:
        """Return the times of layers from which times of stages follow; None if there are none."""
        return None

    def attention_share(self) -> float | None:
        """Return attention's share of a forward's time; None if these options do not give it."""
        return None

    def length_law(self) -> Law | None:
        """Return the law that gives a sequence's time from its length; None if there is none."""
        return None

    # The memory of stages.

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel | None:
        """Return the memory model of the stages; None if these options do not give one."""
        return None

    def has_bytes(self) -> bool:
        """Return True if the bytes are really there; a file, e.g., may lack them."""
        return self.holds_bytes

    def keep(self, held: MemoryModel, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the memory model with the changes of these options."""
        return held


@dataclass(frozen=True)
class Source(Part, ABC):
    """A part that gives the times of all ops and messages."""

    # The options of other parts that ``price`` reads. All other times, and sources of an earlier
    # order, are refused with this one.
    reads: ClassVar[tuple[str, ...]] = ()
    # True if the times are those of whole sequences; then a slice takes its share of them.
    is_of_whole_sequences: ClassVar[bool] = False
    # True if the times of a stage follow from its layers, so that splits of layers can be compared.
    prices_layouts: ClassVar[bool] = False

    @abstractmethod
    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the times of all ops and messages."""


@dataclass(frozen=True)
class Asked:
    """The cost options of one request, and the parts that they call.

    Attributes:
        values: the values of the options of all parts, by name.
        parts: the called parts, in the order in which they are asked.
        network: the options of messages.
        measured: the costs of a real run, which replace those of all parts.
        model: the trained model, whose bytes replace those of all parts.
    """

    values: Mapping[str, Any]
    parts: tuple[Part, ...]
    network: NetworkOptions | None = None
    measured: Costs | None = None
    model: TrainedModel | None = None

    def __getitem__(self, name: str) -> Any:
        """Return the value of an option of another part."""
        return self.values[name]

    def given_values(self, *names: str) -> dict[str, Any]:
        """Return the values of the named options, by name, without options that were not given."""
        return {name: self.values[name] for name in names if self.values[name] is not None}

    @cached_property
    def source(self) -> Source:
        """The part that gives the times of ops."""
        return next(part for part in self.parts if isinstance(part, Source))

    @property
    def states_each_time(self) -> bool:
        """True if options give the time of each kind of op."""
        return not self.measured and not any(part.gives_whole_costs for part in self.parts)

    @property
    def gives_messages(self) -> bool:
        """True if a real run or a part gives the times of messages."""
        return self.measured is not None or any(part.gives_messages for part in self.parts)

    @property
    def holds_bytes(self) -> bool:
        """True if a model or a part gives the memory of stages in bytes."""
        return self.model is not None or any(part.holds_bytes for part in self.parts)

    @property
    def has_bytes(self) -> bool:
        """True if a model or a part has the bytes of stages."""
        return self.model is not None or any(part.has_bytes() for part in self.parts)

    @property
    def needs_cap_in_bytes(self) -> bool:
        """True if a cap must be in bytes."""
        return any(part.needs_cap_in_bytes for part in self.parts)

    @property
    def counts_layers(self) -> bool:
        """True if a number of activations counts those of one layer."""
        return any(part.counts_layers for part in self.parts)

    @property
    def orders_by_costs(self) -> bool:
        """True if costs decide the place of added ops."""
        return any(part.orders_by_costs() for part in self.parts)

    def n_stages(self) -> int | None:
        """Return the number of stages that an option states; None if none does."""
        return self._first("n_stages")

    @property
    def stage_option(self) -> str:
        """The option that states the number of stages; empty if none does."""
        stating = (part.called_by[0] for part in self.parts if part.n_stages() is not None)
        return next(stating, "")

    def stages_hint(self, devices: int, stages: int) -> str:
        """Return the nearest value with this number of stages; empty if no option states any."""
        return next(filter(None, (part.stages_hint(devices, stages) for part in self.parts)), "")

    def layout_of(self, schedule: Schedule) -> Layout | None:
        """Return the layers of each stage; None if no option gives them."""
        return self._first("layout_of", schedule)

    def layers(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return the number of layers of each stage, shape (stages,); None if unknown.

        A layout comes before a model, and a model before a profile.
        """
        import numpy as np

        if layout := self.layout_of(schedule):
            return np.array(layout.layers, np.float64)
        if self.model:
            return np.array(self.model.layers_of(schedule), np.float64)
        return self._first("layers", schedule)

    def attention_share(self) -> float | None:
        """Return attention's share of a forward's time; None if no option gives it."""
        return self._first("attention_share")

    def length_law(self) -> Law | None:
        """Return the law that gives a sequence's time from its length; None if no option does."""
        return self._first("length_law")

    def hold(self, schedule: Schedule, *, in_bytes: bool = True) -> MemoryModel:
        """Return the memory model of the stages: of the trained model, or of the first part that
        has one.

        Args:
            schedule: the schedule.
            in_bytes: False passes over the parts that give bytes.
        """
        from ppsim.engine.memory.usage import BYTES, cut_in_slices

        if self.model:
            layout = self.layout_of(schedule)
            held = self.model.memory(schedule, layout.content if layout else None)
        else:
            counted = (part for part in self.parts if in_bytes or not part.holds_bytes)
            held = next(
                found for part in counted if (found := part.hold(schedule, self)) is not None
            )
        for part in self.parts:
            held = part.keep(held, schedule, self)
        return cut_in_slices(held, schedule.n_slices if held.unit == BYTES else 1)

    def _first(self, role: str, *arguments: Any) -> Any:
        """Return the value of the first part that has one for a role; None if no part has."""
        for part in self.parts:
            value = getattr(part, role)(*arguments)
            if value is not None:
                return value
        return None


def refuse_factors(costs: Costs) -> None:
    """Raise InputError for factors of times if a function gives the time of each op."""
    if costs.op_times is not None:
        what = "--mb-scale, --slice-scale and --speed change no times that a function gives"
        raise InputError(what, "let the function return what each op takes")


@dataclass(frozen=True)
class TimesOfKinds(Part):
    """A part whose options each set the time of one kind of op other than F, B, I, W and R."""

    kinds: ClassVar[tuple[str, ...]]  # names of these options

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return the options that set the time of an op of the schedule."""
        import numpy as np

        has = {*np.unique(schedule.kind).tolist()}
        return {name for name in self.kinds if has & {*kinds_of(name)}}

    def lack(self, name: str) -> str:
        """Return the kind of op that a schedule lacks to use an option, such as "no R"."""
        return self.lacks.get(name) or f"no {kinds_of(name)[0].name}"

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the given times."""
        from ppsim.core.costs import price_others

        given = {
            kind: value
            for name in self.kinds
            if (value := getattr(self, name)) is not None
            for kind in kinds_of(name)
        }
        times = price_others(schedule, given, asked["per"] or "device")
        return replace(costs, others={**costs.others, **times}) if times else costs


def kinds_of(name: str) -> tuple[Kind, ...]:
    """Return the kinds of op whose time an option sets."""
    from ppsim.core.ops import TIMED, Kind, Stream

    if name == "t_evict":
        return Kind.EVICT, Kind.LOAD
    if name == "t_collective":
        with_options = {Kind.GATHER, Kind.REDUCE}
        return tuple(
            kind
            for kind in TIMED
            if kind.info.stream == Stream.COLLECTIVE and kind not in with_options
        )
    of_steps = {"t_optimizer": Kind.OPT, "t_gather": Kind.GATHER, "t_reduce_grad": Kind.REDUCE}
    if name in of_steps:
        return (of_steps[name],)
    return (Kind[name.removeprefix("t_").upper() if name.startswith("t_") else name[1:].upper()],)
