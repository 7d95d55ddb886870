"""Parts of the costs: options, and the roles that they can play.

A part is a frozen dataclass in a file of ``parts/``. Its fields are options, in the order of the
help. It plays the roles below that it overrides; every other role leaves things as they are.
"""

from __future__ import annotations

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
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.engine.simple.segments import OpsInside
    from ppsim.prices.trained import Trained
    from ppsim.schedules import Pricing
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout


@dataclass(frozen=True)
class Part:
    """Options that together say one thing of costs; subclasses override the roles that they
    play.
    """

    # Where its options stand in the help. Parts are asked from the last one to the first, so of two
    # sources of times the one that stands later counts.
    place: ClassVar[int]
    # The part is asked if one of these options is given; always without any.
    called_by: ClassVar[tuple[str, ...]] = ()
    # What its options need, and which other options they leave without an effect.
    needs: ClassVar[tuple[Need, ...]] = ()
    # What a schedule lacks that does not use an option, by option; the option is refused then.
    lacks: ClassVar[Mapping[str, str]] = {}
    # Whether it gives the times of all ops.
    is_source: ClassVar[bool] = False
    # Whether these are times of whole sequences, which slices divide among them.
    is_of_whole_sequences: ClassVar[bool] = False

    # The schedule.

    def fill_shape(self, spec: str | Schedule, shape: ShapeOptions, asked: Asked) -> ShapeOptions:
        """Return the shape with the sizes that the options give."""
        return shape

    def rephrase_hint(self, hint: str) -> str:
        """Return the hint of a refused shape in terms of the options."""
        return hint

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Return the schedule with the ops that the options ask for.

        Args:
            schedule: the schedule.
            price: makes the costs of any schedule.
        """
        return schedule

    # The times of its ops.

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the times of all ops and messages; a source overrides it."""
        raise NotImplementedError

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with what the options change."""
        return costs

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return which options of ``lacks`` the schedule uses."""
        return set()

    def lack(self, name: str) -> str:
        """Return what a schedule lacks that does not use an option."""
        return self.lacks[name]

    def look_inside(self, schedule: Schedule, asked: Asked) -> OpsInside | None:
        """Return what runs inside the ops of a schedule, or None where the options do not say."""
        return None

    # What others ask of its options.

    def layout_of(self, schedule: Schedule) -> Layout | None:
        """Return which layers each stage holds, or None where the options do not say."""
        return None

    def layers(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return how many layers each stage holds, shape (stages,), or None."""
        return None

    def layer_times(self) -> LayerTimes | None:
        """Return the times of layers that a source makes those of stages from, or None."""
        return None

    def attention_share(self) -> float | None:
        """Return attention's share of a forward's time, or None where the options do not say."""
        return None

    # What stages hold.

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel | None:
        """Return what stages hold, or None where the options do not say."""
        return None

    def keep(self, held: MemoryModel, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return what stages hold with what the options change."""
        return held


@dataclass(frozen=True)
class Asked:
    """The cost options of one request."""

    values: Mapping[str, Any]  # of all options of all parts, by name
    parts: tuple[Part, ...]  # the parts that are called, in the order in which they are asked
    network: NetworkOptions | None = None  # how messages are carried
    measured: Costs | None = None  # the costs of a real run, which win over those of every part
    model: Trained | None = None  # the model that is trained, whose bytes win over those of parts

    def __getitem__(self, name: str) -> Any:
        """The value of an option of another part."""
        return self.values[name]

    @cached_property
    def source(self) -> Part:
        """The part that gives the times of ops."""
        return next(part for part in self.parts if part.is_source)

    def layout_of(self, schedule: Schedule) -> Layout | None:
        """Return which layers each stage holds; None where no option says so."""
        return self._first("layout_of", schedule)

    def layers(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return how many layers each stage holds, shape (stages,); None where nothing says so.

        A layout comes before a model, and a model before a profile.
        """
        import numpy as np

        if layout := self.layout_of(schedule):
            return np.array(layout.layers, np.float64)
        if self.model:
            return np.array(self.model.layers_of(schedule), np.float64)
        return self._first("layers", schedule)

    def attention_share(self) -> float | None:
        """Return attention's share of a forward's time; None where no option says so."""
        return self._first("attention_share")

    def hold(self, schedule: Schedule) -> MemoryModel:
        """Return what stages hold: bytes of the model, or what the first part says that says so."""
        from ppsim.engine.memory.usage import BYTES, cut_in_slices

        if self.model:
            layout = self.layout_of(schedule)
            held = self.model.memory(schedule, layout.content if layout else None)
        else:
            held = self._first("hold", schedule, self)
        for part in self.parts:
            held = part.keep(held, schedule, self)
        return cut_in_slices(held, schedule.n_slices if held.unit == BYTES else 1)

    def _first(self, role: str, *arguments: Any) -> Any:
        """Return what the first part says in a role that says anything; None where none does."""
        for part in self.parts:
            said = getattr(part, role)(*arguments)
            if said is not None:
                return said
        return None


def refuse_factors(costs: Costs) -> None:
    """Refuse factors of times where a function gives what each op takes (InputError)."""
    if costs.each is not None:
        what = "--mb-scale, --slice-scale and --speed change no times that a function gives"
        raise InputError(what, "let the function return what each op takes")


@dataclass(frozen=True)
class TimesOfKinds(Part):
    """A part with options that each give the time of one kind of op beside F, B, I, W and R."""

    kinds: ClassVar[tuple[str, ...]]  # names of these options

    def used(self, schedule: Schedule, asked: Asked) -> set[str]:
        """Return which options give the time of an op that the schedule has."""
        import numpy as np

        has = {*np.unique(schedule.kind).tolist()}
        return {name for name in self.kinds if has & {*kinds_of(name)}}

    def lack(self, name: str) -> str:
        """Return what a schedule lacks that does not use an option."""
        return self.lacks.get(name) or f"no {kinds_of(name)[0].name}"

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the times that are given."""
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
    """The kinds of op whose time an option gives."""
    from ppsim.core.ops import TIMED, Kind, Stream

    if name == "t_evict":
        return Kind.EVICT, Kind.LOAD
    if name == "t_collective":
        own = {Kind.GATHER, Kind.REDUCE}
        return tuple(
            kind for kind in TIMED if kind.info.stream == Stream.COLLECTIVE and kind not in own
        )
    of_steps = {"t_optimizer": Kind.OPT, "t_gather": Kind.GATHER, "t_reduce_grad": Kind.REDUCE}
    if name in of_steps:
        return (of_steps[name],)
    return (Kind[name.removeprefix("t_").upper() if name.startswith("t_") else name[1:].upper()],)
