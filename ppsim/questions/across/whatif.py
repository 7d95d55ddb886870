"""Changes that ``explain --what-if`` simulates: each changes the options of a run, which is then
made and timed again.

``KEY=VALUE`` is the option ``--KEY VALUE`` of ``ppsim run``. A list of numbers takes
``KEY.INDEX=VALUE`` too (a stage, device or layer), and any number a factor, ``x0.9``. What is of
one stage goes over what is of all, and both over a layout's or a profile's times. Costs that
are no numbers of options (a profile's, a layout's, a real run's) are edited where they are made, so
that a schedule whose queues follow costs follows these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from ppsim.ask.given import TypedOptions
from ppsim.ask.groups import OWN, NetworkOptions, OneSchedule, ShapeOptions
from ppsim.ask.options import Option, flatten, list_options
from ppsim.ask.rules import check_given
from ppsim.ask.types import Numbers
from ppsim.ask.words import count_text
from ppsim.base.text import STANDARD_INPUT, guess_of
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import (
    build_costs,
    build_schedule,
    check_used,
    queues_follow_costs,
    refuse_unused,
    times_used,
)
from ppsim.prices.data_parallel.lengths import LengthOptions, Loads
from ppsim.prices.data_parallel.replicas import ReplicaOptions
from ppsim.prices.options import (
    BESIDE,
    DECIDING_OPS,
    REFUSED_UNUSED,
    WHOLE_COSTS,
    CostOptions,
    ask_costs,
    is_given,
    make_part,
)
from ppsim.prices.part import COSTS, LAYER_TIMES, Asked, kinds_of
from ppsim.prices.parts.layout import LayoutString
from ppsim.prices.parts.modelled import ModelledOptions, model_of
from ppsim.prices.parts.steps import has_period
from ppsim.prices.timing import time_ops

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.metrics import Round
    from ppsim.prices.data_parallel.replicas import Replicas
    from ppsim.schedules import Family

KINDS = ("tf", "tb", "ti", "tw", "tr")  # in the order of a cost table's rows
TIMES = (*KINDS, "tfb")
SOURCES = ("layout", "profile", "segments")  # that give times, which other changes then set
NO_OPTION = "the costs of the run are in its files"
OF_TRAINING = (ModelledOptions, LengthOptions, ReplicaOptions)
NAMES_OF_TRAINING = frozenset(each.name for kind in OF_TRAINING for each in list_options(kind))
# a comma before the next KEY=
PART = re.compile(r",(?=\s*[a-z][a-z0-9-]*\s*(?:[. ]\s*[0-9]+(?:[->][0-9]+)?\s*)?=)")
KEY = re.compile(r"([a-z][a-z0-9-]*)\s*(?:[. ]\s*(?:([0-9]{1,9})|([0-9]{1,9}[->][0-9]{1,9})))?")
Edit = Callable[["Costs"], "Costs"]


@dataclass(frozen=True)
class Run:
    """A run as options describe it."""

    # the schedule's spelling; of a real run the name of its family, empty where it follows none
    spec: str
    shape: ShapeOptions  # the shape options
    costs: CostOptions  # the cost options
    network: NetworkOptions  # the options of messages
    # the schedule of these; None where a change of the shape has not been made yet
    schedule: Schedule | None = None
    # the costs that a real run shows; None where the options give them
    measured: Costs | None = None
    edits: tuple[Edit, ...] = ()  # changes of costs that no option states
    replicas: Replicas | None = None  # data-parallel replicas, the slowest of which is timed
    loads: Loads | None = None  # the times of every replica's microbatches, where lengths are given
    keeps_queues: bool = False  # whether queues stay in their order, whatever ops cost
    left_out: tuple[str, ...] = ()  # options that another schedule does not take
    # the options of which the model in ``costs`` and the ``loads`` are made
    training: ModelledOptions = field(default_factory=ModelledOptions)
    lengths: LengthOptions = field(default_factory=LengthOptions)

    @property
    def by_options(self) -> bool:
        """Whether options state the times of ops."""
        return self.asked.states_each_time

    @property
    def asked(self) -> Asked:
        """The parts that the options of costs call."""
        return ask_costs(self.costs, self.network, self.measured)

    def price(self, schedule: Schedule) -> Costs:
        """Make the costs of a schedule."""
        made = build_costs(schedule, self.costs, self.network, self.measured)
        return reduce(lambda costs, edit: edit(costs), self.edits, made)

    @property
    def queues_follow_costs(self) -> bool:
        """Whether ops are ordered by their costs: the family's ops, or ops added to it."""
        return queues_follow_costs(self.spec, self.asked)

    @property
    def makes_queues_again(self) -> bool:
        """Whether other costs make other queues."""
        return not self._keeps_all and self.queues_follow_costs

    @property
    def _keeps_all(self) -> bool:
        """Whether queues stay: a real run's, kept ones, and files that can be read only once."""
        once = self.spec == STANDARD_INPUT
        return self.measured is not None or self.keeps_queues or once

    @property
    def is_kept(self) -> bool:
        """Whether queues keep an order that their costs would change."""
        return self._keeps_all and self.schedule is not None and self.queues_follow_costs

    def build(self) -> Schedule:
        """Make the schedule as ``run`` does; a real run keeps its queues unless its shape changes.

        Raises:
            InputError: the schedule refuses the shape.
        """
        if not self.spec and not self.schedule:
            what = "the run follows no schedule of ours, so its shape cannot be changed"
            raise InputError(what, "schedule=NAME")
        if self.schedule and (self._keeps_all or not self.queues_follow_costs):
            return self.schedule
        options = self.shape, self.costs, self.network
        return build_schedule(self.spec, *options, price=self.price, quiet=True)

    def time(self) -> Timeline:
        """Time the run, of several replicas the slowest."""
        schedule = self.build()
        prices = self.price(schedule)
        load = self.loads.find(schedule, self.costs) if self.loads else None
        if load or self.replicas:
            from ppsim.prices.data_parallel.dealing import price_slowest

            several = ReplicaOptions(self.replicas)
            prices = price_slowest(schedule, prices, self.network, self.costs, several, load)
        return time_ops(schedule, prices, self.network, self.costs.links)[0]

    def find_round(self, timeline: Timeline) -> Round | None:
        """Find the steady state of this timeline's run; None where it does not repeat."""
        if self.network.detailed or not has_period(timeline.schedule):
            return None
        from ppsim.prices.rounds import measure_round

        return measure_round(timeline, self.price(timeline.schedule), self.costs.tokens)

    def use(self, spec: str, **shape: Any) -> Run:
        """The run of another schedule, without the options that only other schedules take.

        ``shape`` are options of the shape that differ.
        """
        from ppsim.schedules import family_of

        family = family_of(spec)
        takes = family.options if family else ()
        given = asdict(replace(self.shape, **shape))
        left = [name for name in OWN if given[name] is not None and name not in takes]
        made = replace(self.shape, **shape | dict.fromkeys(left))
        names = tuple(map(_spelling, left))
        run = replace(self, spec=spec, shape=made, schedule=None, left_out=names)
        chunks = family.chunks if family else 1
        if made.chunks in (None, chunks) or _supports(family, made):
            return run
        bare = replace(made, chunks=None)
        if not _supports(family, bare):
            return run
        return replace(run, shape=bare, left_out=(_spelling("chunks"), *run.left_out))

    def train(self, **changes: Any) -> Run:
        """The run with other options of its model, its cluster, its sequences or its replicas.

        Raises:
            InputError: no such model, cluster or software.
        """

        def change(group: Any) -> Any:
            return replace(group, **{key: v for key, v in changes.items() if hasattr(group, key)})

        training, lengths, network = map(change, (self.training, self.lengths, self.network))
        replicas = changes.get("replicas", self.replicas)
        costs = replace(self.costs, modelled=model_of(training, network, lengths.mbs))
        unequal = lengths.lengths is not None or lengths.cp_of is not None
        return replace(
            self,
            training=training,
            lengths=lengths,
            network=network,
            costs=costs,
            replicas=replicas,
            loads=Loads(lengths, replicas.count if replicas else None) if unequal else None,
        )

    @property
    def tokens(self) -> int | None:
        """Tokens in a microbatch of the model that is trained; None without a model."""
        modelled = self.costs.modelled
        return modelled.model.seq * dict(modelled.sizes).get("mbs", 1) if modelled else None

    def edit(self, edit: Edit) -> Run:
        """The run with one more change of its costs."""
        return replace(self, edits=(*self.edits, edit))


def change_run(change: str, base: Run, given: TypedOptions) -> tuple[str, Timeline, Run]:
    """Time the run with a change made, and return both; the change in words says what it leaves as
    it was.

    Raises:
        InputError: an unknown key, a value that does not fit it, or a change without effect.
    """
    parts = [part.strip() for part in PART.split(change)]
    keys = changeable_options()
    _refuse_twice(parts, keys)
    parts.sort(key=lambda part: _rank_of(keys.get(_key_of(part)), _place_of(part)))
    run = reduce(lambda run, part: _Change(part, run, keys).made(), parts, base)
    _check_together(run, parts, given, keys)
    changed = {option.name for part in parts if (option := keys.get(_key_of(part)))}
    run, timeline = _time_used(run, base, changed)
    for part in parts:
        option = keys.get(_key_of(part))
        name = option.name if option else ""
        # others may be read only with it
        if not (_changes_shape(option) or _of_training(option) or name in SOURCES):
            others = [other for other in parts if other != part]
            without = reduce(lambda run, other: _Change(other, run, keys).made(), others, base)
            _check_read(part, run, without, timeline)
    left = f" (without {', '.join(run.left_out)})" * bool(run.left_out)
    kept = " (queues keep their order)" * run.is_kept
    return change + left + kept + _size_note(run, base, timeline.schedule), timeline, run


def _size_note(run: Run, base: Run, schedule: Schedule) -> str:
    """Say on how many GPUs a model is trained, and of which tokens its times are, where a change
    has other numbers than the run that it is compared with; empty where it has the same.
    """
    now, then = run.costs.modelled, base.costs.modelled
    if not now or not then or base.schedule is None:
        return ""
    after, before = now.parallel(schedule).gpus, then.parallel(base.schedule).gpus
    note = f" (on {count_text(after, 'GPU')}, not {before})" * (after != before)
    return note + " (per microbatch of as many tokens as now)" * (run.tokens != base.tokens)


def _key_of(part: str) -> str:
    """The option that a change names, without a stage, device or link."""
    return re.split("[.= ]", part.strip())[0]


def _place_of(part: str) -> str:
    """The stage, device, layer or link that a change names; empty where it is of all."""
    match = KEY.fullmatch(part.partition("=")[0].strip())
    return (match[2] or match[3] or "") if match else ""


def _refuse_twice(parts: Sequence[str], keys: Mapping[str, Option]) -> None:
    """Refuse a key that a change sets twice (InputError), but for options that may be repeated and
    layers that are moved.
    """
    seen = dict[tuple[str, str], str]()
    for part in parts:
        option, place = keys.get(_key_of(part)), _place_of(part)
        if option is None or (option.many and not place):
            continue
        first = seen.setdefault((option.name, place), part)
        if first is not part:
            raise InputError(
                f"--what-if {first},{part}: the same is set twice", "leave one of them out"
            )


def _time_used(run: Run, base: Run, changed: Collection[str]) -> tuple[Run, Timeline]:
    """Time a run; a run of another schedule leaves out times that it does not use and nobody
    changed.

    Raises:
        InputError: a time has no effect.
    """
    timeline = run.time()
    schedule = timeline.schedule
    if run.measured is not None:
        return run, timeline
    if run.spec != base.spec:
        used = times_used(schedule, run.costs) | {*changed}
        given = [name for name in REFUSED_UNUSED if is_given(getattr(run.costs, name))]
        if left := [name for name in given if name not in used]:
            none: dict[str, Any] = {name: () if name == "slice_scale" else None for name in left}
            names = (*run.left_out, *map(_spelling, left))
            run = replace(run, costs=replace(run.costs, **none), schedule=None, left_out=names)
            timeline = run.time()
    check_used([timeline.schedule], run.costs)
    return run, timeline


def _spelling(name: str) -> str:
    """The option that sets a number of the shape."""
    return f"--{name.replace('_', '-')}"


def _supports(family: Family | None, shape: ShapeOptions) -> bool:
    """Return whether a family supports a shape."""
    from ppsim.schedules import shape_for

    try:
        return family is not None and bool(shape_for(family, **asdict(shape)))
    except PpsimError:
        return False


def changeable_options() -> dict[str, Option]:
    """The options that a change may set, by every long spelling without its dashes."""
    groups = (ShapeOptions, CostOptions, NetworkOptions, OneSchedule, *OF_TRAINING)
    options = [each for kind in groups for each in list_options(kind)]
    return {
        name.partition("/")[0].removeprefix("--"): each
        for each in options
        for name in each.spellings
        if name[:2] == "--" and each.name not in ("unit", "t_reduce")
    }


def _rank_of(option: Option | None, place: str) -> int:
    """The rank of a change among others: the schedule, the shape, the model, other sources of
    times, all times of a kind, those of one stage, device or link.
    """
    name = option.name if option else ""
    if _changes_shape(option):
        return 0 if name == "schedule" else 1
    if name in ("model", "cluster"):
        return 2
    if name in SOURCES:
        return 3
    return 5 if place else 4


def _changes_shape(option: Option | None) -> bool:
    return option is not None and option.name in {
        "schedule",
        *(field.name for field in fields(ShapeOptions)),
    }


def _of_training(option: Option | None) -> bool:
    return option is not None and (option.name in NAMES_OF_TRAINING or option.name == "cluster")


@dataclass(frozen=True)
class _Change:
    """One ``KEY=VALUE`` of a change, and the run it is made to."""

    part: str
    run: Run
    keys: Mapping[str, Option]

    def made(self) -> Run:
        """The run with the change."""
        key, equals, value = (each.strip() for each in self.part.partition("="))
        match = KEY.fullmatch(key)
        if match and match[1] == "layers" and match[3]:
            return self._move_layers(match[3], value)
        option = self.keys.get(match[1]) if match else None
        if not (equals and match and option) or (match[3] and option.name != "links"):
            guess = guess_of(key, self.keys) if equals and not option else ""
            raise InputError(
                f"--what-if cannot change '{self.part[:60]}'{'.' * bool(guess)}{guess}",
                "KEY=VALUE, where --KEY is an option of shape, costs, model or messages (ppsim "
                "explain --help-all), or tf.STAGE, link.A-B, layers.A>B",
            )
        name, run = option.name, self.run
        if name == "model" and not run.costs.modelled:
            what = f"--what-if {self.part}: the run that it would be compared with has no model"
            raise InputError(what, "add --model NAME --cluster NAME")
        if name == "schedule":
            return run.use(value)
        if match[3]:
            return self._change_link(match[3], value)
        if name in TIMES and not run.by_options:
            return run.edit(self._time_edit(name, match[2], value))
        if name == "comm":
            self._refuse_cluster()
            if run.asked.gives_messages:
                self._read(value)
                return run.edit(
                    lambda costs: replace(costs, comm=self._read(value, np.asarray(costs.comm)))
                )
        if run.measured and name in ("per", "recompute", *WHOLE_COSTS, *NAMES_OF_TRAINING):
            raise InputError(f"--what-if {self.part}: {NO_OPTION}", "tf=x0.9, tf.2=x0.9, comm=0.1")
        is_number = match[2] or re.match(r"x[0-9.]", value)
        found = (
            self._number(option, match[2], value) if is_number else self._read_value(option, value)
        )
        numbers: dict[str, Any] = {name: found}
        if name in NAMES_OF_TRAINING or (name == "cluster" and run.costs.modelled):
            return run.train(**numbers)
        if hasattr(run.shape, name):
            return replace(run, shape=replace(run.shape, **numbers), schedule=None)
        if hasattr(run.network, name):
            return replace(run, network=replace(run.network, **numbers))
        schedule = None if name in DECIDING_OPS else run.schedule
        return replace(run, costs=replace(run.costs, **numbers), schedule=schedule)

    def _read_value(self, option: Option, value: str) -> Any:
        """Read a value as the option does, added to those before where it is repeatable."""
        try:
            found = click.types.convert_type(option.type).convert(value, None, None)
        except click.BadParameter as error:
            raise InputError(
                f"--what-if {self.part}: {error.message}",
                f"a value that {option.spelling} takes",
            ) from None
        return (*getattr(self.run.costs, option.name), found) if option.many else found

    def _number(self, option: Option, place: str | None, value: str) -> Any:
        """Set or scale a number, or one of a list of them, as the option would state it."""
        now = self._now(option.name)
        if now is None or (place and not isinstance(option.type, Numbers)):
            raise InputError(
                f"--what-if {self.part}: {option.spelling} is not a time, so it has no factor",
                f"{self.part.partition('=')[0].partition('.')[0].strip()}=VALUE",
            )
        if not place:
            return (
                (now * self._read(value)).tolist() if now.ndim else float(now * self._read(value))
            )
        changed = np.atleast_1d(now).copy()
        self._check_place(
            int(place), len(changed), {"speed": "device", "t_layer": "layer"}.get(option.name)
        )
        changed[int(place)] = self._read(value, changed[int(place)])
        return changed.tolist()

    def _now(self, name: str) -> Any:
        """The number or numbers that an option states, or has by default; None where it states
        none.
        """
        costs, schedule = self.run.costs, self.run.schedule or self.run.build()
        if name in TIMES:
            from ppsim.core.costs import costs_for

            given = {key: value for key in COSTS if (value := getattr(costs, key)) is not None}
            made = costs_for(schedule, **given | {"per": "stage"})
            pair = made.time[0] + made.time[1] if made.pair is None else made.pair
            return pair if name == "tfb" else made.time[KINDS.index(name)]
        if name in BESIDE:
            given, of_stage = getattr(costs, name), kinds_of(name)[0].info.has_stage
            if given is None or name == "t_collective":
                return given if given is None else np.asarray(given, np.float64)
            return np.array(
                np.broadcast_to(given, schedule.n_stages if of_stage else schedule.n_devices),
                np.float64,
            )
        if name == "speed":
            return np.array(
                np.broadcast_to(1.0 if costs.speed is None else costs.speed, schedule.n_devices)
            )
        if name == "t_layer" and (layout := self.run.asked.layout_of(schedule)):
            return make_part(LayoutString, costs).layer_times().forward_times(layout.n_layers)
        if name in LAYER_TIMES:
            times = make_part(LayoutString, costs).layer_times()
            return np.asarray(
                times.mtp_time if name == "t_mtp" else getattr(times, name.removeprefix("t_"))
            )
        return np.asarray(costs.comm or 0.0) if name == "comm" else None

    def _time_edit(self, name: str, place: str | None, value: str) -> Edit:
        """Set or scale the time of one kind of op, on one stage or on all."""
        from ppsim.analysis.changes import change_time

        self._read(value)

        def edit(costs: Costs) -> Costs:
            stages = costs.time.shape[1]
            if place:
                self._check_place(int(place), stages)
            here = [int(place)] if place else list(range(stages))
            if name == "tfb":
                pair = (costs.time[0] + costs.time[1] if costs.pair is None else costs.pair).copy()
                pair[here] = self._read(value, pair[here])
                return replace(costs, pair=pair)
            kind = KINDS.index(name)
            return change_time(costs, kind, here, self._read(value, costs.time[kind, here]))

        return edit

    def _change_link(self, link: str, value: str) -> Run:
        """Set a link as ``--link`` does, or scale its latency, in both directions or in one. With a
        model messages are latencies, which are set here.
        """
        if not (value.startswith("x") or self.run.costs.modelled):
            return replace(
                self.run,
                costs=replace(self.run.costs, links=(*self.run.costs.links, f"{link}={value}")),
            )
        from ppsim.engine.detailed.links import parse_link

        self._refuse_cluster()
        self._read(value)

        def edit(costs: Costs) -> Costs:
            devices = (self.run.schedule or self.run.build()).n_devices
            links = np.array(
                np.broadcast_to(np.asarray(costs.comm, np.float64), (devices, devices))
            )
            for way in parse_link(f"{link}=0", devices).ways:
                links[way] = self._read(value, float(links[way]))
            return replace(costs, comm=links)

        return self.run.edit(edit)

    def _move_layers(self, stages: str, value: str) -> Run:
        """Move layers between stages: ``1/8``, one of the eight layers of the first, or ``1`` where
        the costs say how many it has.
        """
        from ppsim.analysis.changes import move_work

        source, target = map(int, re.split("[->]", stages))
        count, slash, layers = value.partition("/")
        held = self._read(layers) if slash else self._layers_of(source)
        share = float(self._read(count) / held) if held else 2.0
        if share > 1 or source == target:
            raise InputError(
                f"--what-if {self.part}: how much of stage {source} moves is not clear",
                f"layers.{source}>{target}=1/8: one of the eight layers of stage {source}",
            )

        def edit(costs: Costs) -> Costs:
            for stage in (source, target):
                self._check_place(stage, costs.time.shape[1])
            return move_work(costs, source, target, share)

        return self.run.edit(edit)

    def _layers_of(self, stage: int) -> float:
        """Return how many layers a stage has; 0 where the costs do not say."""
        schedule = self.run.schedule or self.run.build()
        layers = self.run.asked.layers(schedule)
        if layers is None:
            return 0.0
        self._check_place(stage, len(layers))
        return float(layers[stage])

    def _refuse_cluster(self) -> None:
        if self.run.network.cluster and not self.run.costs.modelled:
            raise InputError(
                f"--what-if {self.part}: the cluster file gives every link",
                "change the file, or --link",
            )

    def _check_place(self, place: int, count: int, what: str | None = None) -> None:
        if place >= count:
            what = what or "stage"
            raise InputError(
                f"--what-if {self.part}: there is no {what} {place}",
                f"a {what} from 0 to {count - 1}",
            )

    def _read(self, value: str, now: Any = 1.0) -> Any:
        """The number in a value; a factor multiplies the number ``now``."""
        try:
            number = float(value.removeprefix("x"))
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1e100:
            raise InputError(
                f"--what-if {self.part}: '{value}' is not a time", "a number, zero or more"
            )
        return now * number if value.startswith("x") else now * 0.0 + number


def _check_together(
    run: Run, parts: list[str], given: TypedOptions, keys: Mapping[str, Option]
) -> None:
    """Check the changed options against the rules of options, as if they were given."""
    values = {
        name: value
        for group in (run.shape, run.costs, run.network, run.training, run.lengths)
        for name, value in flatten(group).items()
    } | {"replicas": run.replicas}
    changed = [keys.get(_key_of(part)) for part in parts]
    edited = {*(() if run.by_options else (*TIMES, "comm"))}
    edited |= {"links"} if run.costs.modelled else set()
    typed = [each for each in changed if each and each.name not in edited]
    check_given(replace(given, values={**given.values, **values}, typed=[*given.typed, *typed]))


def _check_read(part: str, run: Run, without: Run, timeline: Timeline) -> None:
    """Refuse a change of costs that no op of the run reads (InputError: the time of no op or
    message changes).
    """
    schedule, key = timeline.schedule, _key_of(part).replace("-", "_")
    refuse_unused(
        times_used(schedule, run.costs) | {*REFUSED_UNUSED} - {key}, [schedule.name], run.costs
    )
    costs, before = run.price(schedule), without.price(schedule)
    same = all(
        np.all(one == other)
        for one, other in zip(_all_numbers(costs), _all_numbers(before), strict=True)
    )
    if key == "link" and run.network.cluster and not run.costs.modelled:  # which changes no costs
        from ppsim.engine.detailed.links import parse_link

        same, link = False, np.zeros((schedule.n_devices,) * 2)
        for way in parse_link(part.partition(".")[2], schedule.n_devices).ways:
            link[way] = 1.0
        costs, before = replace(costs, comm=link), replace(costs, comm=0.0)
    if (
        not same
        and np.array_equal(costs.durations(schedule), before.durations(schedule))
        and np.array_equal(costs.latencies(schedule), before.latencies(schedule))
    ):
        raise InputError(
            f"--what-if {part}: no op or message of {schedule.name} takes that time", "leave it out"
        )


def _all_numbers(costs: Costs) -> list[Any]:
    """All numbers of costs, defaults in place of None."""
    pair = costs.time[0] + costs.time[1] if costs.pair is None else costs.pair
    scale, speed = (1.0 if factors is None else factors for factors in (costs.scale, costs.speed))
    return [costs.time, costs.comm, pair, scale, speed]
