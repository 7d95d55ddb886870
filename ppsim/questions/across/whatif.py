"""Changes of ``explain --what-if``: each changes options of a run, which is built and timed again.

``KEY=VALUE`` is the option ``--KEY VALUE`` of ``ppsim run``. ``KEY.INDEX=VALUE`` changes one number
of a list (of a stage, device or layer), and ``KEY=x0.9`` multiplies a number. A number of one stage
overrides the number of all stages, and both override the times of a layout or a profile. Times that
no option states (a profile's, a layout's, a real run's) are changed right after they are computed,
so that a schedule whose order depends on costs follows the changed ones.
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
from ppsim.base.numbers import plain_float
from ppsim.base.text import STANDARD_INPUT, guess_of, shorten
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
    DECIDING_OPS,
    OTHER_KINDS,
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
SOURCES = ("layout", "profile", "segments")  # of times, which other changes then override
NO_OPTION = "the times of this run are from its files, not from options"
OF_TRAINING = (ModelledOptions, LengthOptions, ReplicaOptions)
NAMES_OF_TRAINING = frozenset(each.name for kind in OF_TRAINING for each in list_options(kind))
# a comma before the next KEY=
PART = re.compile(r",(?=\s*[a-z][a-z0-9-]*\s*(?:[. ]\s*[0-9]+(?:[->][0-9]+)?\s*)?=)")
KEY = re.compile(r"([a-z][a-z0-9-]*)\s*(?:[. ]\s*(?:([0-9]{1,9})|([0-9]{1,9}[->][0-9]{1,9})))?")
Edit = Callable[["Costs"], "Costs"]


@dataclass(frozen=True)
class Run:
    """A run, as the options that build and time it."""

    # the schedule's spelling; for a real run the name of its family, empty if it has none
    spec: str
    shape: ShapeOptions
    costs: CostOptions
    network: NetworkOptions
    # the schedule of these options; None if it must be built again after a change
    schedule: Schedule | None = None
    # costs derived from a real run; None if options give the costs
    measured: Costs | None = None
    edits: tuple[Edit, ...] = ()  # changes of costs that no option states
    replicas: Replicas | None = None  # data-parallel replicas; the slowest one is timed
    loads: Loads | None = None  # the times of every replica's microbatches; None without lengths
    keeps_queues: bool = False  # True if queues keep their order, whatever ops cost
    left_out: tuple[str, ...] = ()  # options dropped because the changed schedule lacks them
    # the options behind the model in ``costs`` and behind ``loads``
    training: ModelledOptions = field(default_factory=ModelledOptions)
    lengths: LengthOptions = field(default_factory=LengthOptions)

    @property
    def by_options(self) -> bool:
        """True if options state the times of ops."""
        return self.asked.states_each_time

    @property
    def asked(self) -> Asked:
        """The parts of costs that the options use."""
        return ask_costs(self.costs, self.network, self.measured)

    def price(self, schedule: Schedule) -> Costs:
        """Return the costs of a schedule, with the edits."""
        costs = build_costs(schedule, self.costs, self.network, self.measured)
        return reduce(lambda costs, edit: edit(costs), self.edits, costs)

    @property
    def queues_follow_costs(self) -> bool:
        """True if costs decide the order of the family's ops, or of ops added to them."""
        return queues_follow_costs(self.spec, self.asked)

    @property
    def makes_queues_again(self) -> bool:
        """Whether other costs make other queues."""
        return not self._keeps_all and self.queues_follow_costs

    @property
    def _keeps_all(self) -> bool:
        """True if queues stay as they are: a real run's, kept ones, and those of standard input."""
        is_read_once = self.spec == STANDARD_INPUT
        return self.measured is not None or self.keeps_queues or is_read_once

    @property
    def is_kept(self) -> bool:
        """True if queues keep an order that their costs would change."""
        return self._keeps_all and self.schedule is not None and self.queues_follow_costs

    def build(self) -> Schedule:
        """Return the schedule that ``run`` builds; a real run keeps its queues unless its shape
        changes.

        Raises:
            InputError: the schedule refuses the shape.
        """
        if not self.spec and not self.schedule:
            what = "the run matches no schedule of ppsim list, so its shape cannot be changed"
            raise InputError(what, "schedule=NAME")
        if self.schedule and (self._keeps_all or not self.queues_follow_costs):
            return self.schedule
        options = self.shape, self.costs, self.network
        return build_schedule(self.spec, *options, price=self.price, quiet=True)

    def time(self) -> Timeline:
        """Time the run; of several replicas, the slowest."""
        schedule = self.build()
        prices = self.price(schedule)
        load = self.loads.find(schedule, self.costs) if self.loads else None
        if load or self.replicas:
            from ppsim.prices.data_parallel.dealing import price_slowest

            replicas = ReplicaOptions(self.replicas)
            prices = price_slowest(schedule, prices, self.network, self.costs, replicas, load)
        return time_ops(schedule, prices, self.network, self.costs.links)[0]

    def find_round(self, timeline: Timeline) -> Round | None:
        """Return the steady state of a timeline's round; None if it does not repeat."""
        if self.network.detailed or not has_period(timeline.schedule):
            return None
        from ppsim.prices.rounds import measure_round

        return measure_round(timeline, self.price(timeline.schedule), self.costs.tokens)

    def use(self, spec: str, **shape: Any) -> Run:
        """Return the run with another schedule, without the options that this schedule lacks.

        ``shape`` are options of the shape that differ.
        """
        from ppsim.schedules import family_of

        family = family_of(spec)
        known = family.options if family else ()
        given = asdict(replace(self.shape, **shape))
        dropped = [name for name in OWN if given[name] is not None and name not in known]
        new_shape = replace(self.shape, **shape | dict.fromkeys(dropped))
        spellings = tuple(map(_spelling, dropped))
        run = replace(self, spec=spec, shape=new_shape, schedule=None, left_out=spellings)
        default_chunks = family.chunks if family else 1
        if new_shape.chunks in (None, default_chunks) or _supports(family, new_shape):
            return run
        without_chunks = replace(new_shape, chunks=None)
        if not _supports(family, without_chunks):
            return run
        return replace(run, shape=without_chunks, left_out=(_spelling("chunks"), *run.left_out))

    def train(self, **changes: Any) -> Run:
        """Return the run with other options of its model, cluster, sequences or replicas.

        Raises:
            InputError: there is no such model, cluster or software.
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
        """The tokens in a microbatch of the trained model; None without a model."""
        modelled = self.costs.modelled
        return modelled.model.seq * dict(modelled.sizes).get("mbs", 1) if modelled else None

    def edit(self, edit: Edit) -> Run:
        """Return the run with one more change of its costs."""
        return replace(self, edits=(*self.edits, edit))


def change_run(change: str, base: Run, given: TypedOptions) -> tuple[str, Timeline, Run]:
    """Make a change to a run; return the change with remarks, the new timeline, and the new run.

    Raises:
        InputError: a key is unknown, a value does not fit it, or a change has no effect.
    """
    parts = [part.strip() for part in PART.split(change)]
    keys = changeable_options()
    _refuse_twice(parts, keys)
    parts.sort(key=lambda part: _rank_of(keys.get(_key_of(part)), _place_of(part)))
    run = reduce(lambda run, part: _Change(part, run, keys).changed_run(), parts, base)
    _check_together(run, parts, given, keys)
    changed = {option.name for part in parts if (option := keys.get(_key_of(part)))}
    run, timeline = _time_used(run, base, changed)
    for part in parts:
        option = keys.get(_key_of(part))
        name = option.name if option else ""
        # others may be read only with it
        if not (_changes_shape(option) or _of_training(option) or name in SOURCES):
            others = [other for other in parts if other != part]
            without = reduce(
                lambda run, other: _Change(other, run, keys).changed_run(), others, base
            )
            _check_effect(part, run, without, timeline)
    dropped = f" (without {', '.join(run.left_out)})" if run.left_out else ""
    kept = " (queues keep their order)" if run.is_kept else ""
    return change + dropped + kept + _size_note(run, base, timeline.schedule), timeline, run


def _size_note(run: Run, base: Run, schedule: Schedule) -> str:
    """Return remarks on a changed number of GPUs, and of tokens in a microbatch; empty without."""
    after, before = run.costs.modelled, base.costs.modelled
    if not after or not before or base.schedule is None:
        return ""
    note = ""
    gpus_after, gpus_before = after.parallel(schedule).gpus, before.parallel(base.schedule).gpus
    if gpus_after != gpus_before:
        note = f" (on {count_text(gpus_after, 'GPU')}, not {gpus_before})"
    if run.tokens != base.tokens:
        note += " (per microbatch of as many tokens as now)"
    return note


def _key_of(part: str) -> str:
    """Return the key of a change, without its stage, device or link."""
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
    """Time a run; return it with its timeline.

    A run with another schedule loses the options of times that this schedule does not use, unless
    the change sets them.

    Raises:
        InputError: the option of a time has no effect.
    """
    timeline = run.time()
    schedule = timeline.schedule
    if run.measured is not None:
        return run, timeline
    if run.spec != base.spec:
        used = times_used(schedule, run.costs) | {*changed}
        given = [name for name in REFUSED_UNUSED if is_given(getattr(run.costs, name))]
        if unused := [name for name in given if name not in used]:
            unset: dict[str, Any] = {name: () if name == "slice_scale" else None for name in unused}
            left_out = (*run.left_out, *map(_spelling, unused))
            costs = replace(run.costs, **unset)
            run = replace(run, costs=costs, schedule=None, left_out=left_out)
            timeline = run.time()
    check_used([timeline.schedule], run.costs)
    return run, timeline


def _spelling(name: str) -> str:
    """Return the spelling of an option, from its name in Python."""
    return f"--{name.replace('_', '-')}"


def _supports(family: Family | None, shape: ShapeOptions) -> bool:
    """Return True if a family supports a shape."""
    from ppsim.schedules import shape_for

    try:
        return family is not None and bool(shape_for(family, **asdict(shape)))
    except PpsimError:
        return False


def changeable_options() -> dict[str, Option]:
    """Return the options that a change may set, by each long spelling without its dashes."""
    groups = (ShapeOptions, CostOptions, NetworkOptions, OneSchedule, *OF_TRAINING)
    options = [each for kind in groups for each in list_options(kind)]
    return {
        name.partition("/")[0].removeprefix("--"): each
        for each in options
        for name in each.spellings
        if name[:2] == "--" and each.name not in ("unit", "t_reduce")
    }


def _rank_of(option: Option | None, place: str) -> int:
    """Return the order in which changes are made: schedule, shape, model, other sources of times,
    all times of a kind, those of one stage, device or link.
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
    """One ``KEY=VALUE`` of a change, the run to change, and the options by key."""

    part: str
    run: Run
    keys: Mapping[str, Option]

    def changed_run(self) -> Run:
        """Return the run with the change."""
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
            what = f"--what-if {self.part}: the run to change has no model"
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
        if match[2] or re.match(r"x[0-9.]", value):
            return self._with_value(name, self._changed_number(option, match[2], value))
        return self._with_value(name, self._read_value(option, value))

    def _with_value(self, name: str, value: Any) -> Run:
        """Return the run with another value of an option, in the group that has it."""
        run, changed = self.run, {name: value}
        if name in NAMES_OF_TRAINING or (name == "cluster" and run.costs.modelled):
            return run.train(**changed)
        if hasattr(run.shape, name):
            return replace(run, shape=replace(run.shape, **changed), schedule=None)
        if hasattr(run.network, name):
            return replace(run, network=replace(run.network, **changed))
        schedule = None if name in DECIDING_OPS else run.schedule
        return replace(run, costs=replace(run.costs, **changed), schedule=schedule)

    def _read_value(self, option: Option, value: str) -> Any:
        """Read a value as the option does; a repeatable option keeps its earlier values."""
        try:
            found = click.types.convert_type(option.type).convert(value, None, None)
        except click.BadParameter as error:
            raise InputError(
                f"--what-if {self.part}: {error.message}",
                f"a value that {option.spelling} accepts",
            ) from None
        return (*getattr(self.run.costs, option.name), found) if option.many else found

    def _changed_number(self, option: Option, place: str | None, value: str) -> Any:
        """Return an option's number, or its list of numbers with one changed, set or multiplied."""
        now = self._present_number(option.name)
        if now is None or (place and not isinstance(option.type, Numbers)):
            raise InputError(
                f"--what-if {self.part}: {option.spelling} is not a time, so it has neither a "
                f"factor nor an index",
                f"{self.part.partition('=')[0].partition('.')[0].strip()}=VALUE",
            )
        if not place:
            product = now * self._read(value)
            return product.tolist() if now.ndim else float(product)
        changed = np.atleast_1d(now).copy()
        noun = {"speed": "device", "t_layer": "layer"}.get(option.name, "stage")
        self._check_place(int(place), len(changed), noun)
        changed[int(place)] = self._read(value, changed[int(place)])
        return changed.tolist()

    def _present_number(self, name: str) -> Any:
        """Return the number or numbers that an option states, or its default; None without."""
        costs, schedule = self.run.costs, self.run.schedule or self.run.build()
        if name in TIMES:
            from ppsim.core.costs import costs_for

            given = {key: value for key in COSTS if (value := getattr(costs, key)) is not None}
            made = costs_for(schedule, **given | {"per": "stage"})
            pair = made.time[0] + made.time[1] if made.pair is None else made.pair
            return pair if name == "tfb" else made.time[KINDS.index(name)]
        if name in OTHER_KINDS:
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
        """Return an edit that sets or multiplies the time of a kind of op, on one stage or all."""
        from ppsim.analysis.changes import change_time

        self._read(value)

        def edit(costs: Costs) -> Costs:
            stages = costs.time.shape[1]
            if place:
                self._check_place(int(place), stages)
            changed = [int(place)] if place else list(range(stages))
            if name == "tfb":
                pair = (costs.time[0] + costs.time[1] if costs.pair is None else costs.pair).copy()
                pair[changed] = self._read(value, pair[changed])
                return replace(costs, pair=pair)
            kind = KINDS.index(name)
            times = self._read(value, costs.time[kind, changed])
            return change_time(costs, kind, changed, times)

        return edit

    def _change_link(self, link: str, value: str) -> Run:
        """Return the run with the latency of a link set or multiplied, in one or both directions.

        A latency is set as ``--link`` does, but with a model in the costs.
        """
        if not (value.startswith("x") or self.run.costs.modelled):
            return self._set_link(link, value)
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

    def _set_link(self, link: str, value: str) -> Run:
        """Return the run with a link as ``--link`` sets it, instead of an earlier ``--link``."""
        from ppsim.engine.detailed.links import parse_link, without_ways

        devices = (self.run.schedule or self.run.build()).n_devices
        ways = parse_link(f"{link}=0", devices).ways
        links = without_ways(self.run.costs.links, ways, devices)
        costs = replace(self.run.costs, links=(*links, f"{link}={value}"))
        return replace(self.run, costs=costs)

    def _move_layers(self, stages: str, value: str) -> Run:
        """Return the run with layers moved between stages.

        ``1/8`` moves one of the eight layers of the first stage; ``1`` is enough if the costs state
        its number of layers.
        """
        from ppsim.analysis.changes import move_work

        source, target = map(int, re.split("[->]", stages))
        count, slash, layers = value.partition("/")
        total = self._read(layers) if slash else self._layers_of(source)
        share = float(self._read(count) / total) if total else 2.0
        if share > 1 or source == target:
            raise InputError(
                f"--what-if {self.part}: not a share of stage {source} that can move",
                f"layers.{source}>{target}=1/8: one of the eight layers of stage {source}",
            )

        def edit(costs: Costs) -> Costs:
            for stage in (source, target):
                self._check_place(stage, costs.time.shape[1])
            return move_work(costs, source, target, share)

        return self.run.edit(edit)

    def _layers_of(self, stage: int) -> float:
        """Return the number of layers of a stage; 0 if the costs do not state it."""
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

    def _check_place(self, place: int, count: int, noun: str = "stage") -> None:
        if place >= count:
            raise InputError(
                f"--what-if {self.part}: there is no {noun} {place}",
                f"a {noun} from 0 to {count - 1}",
            )

    def _read(self, value: str, now: Any = 1.0) -> Any:
        """Return the number of a value; a factor such as x0.9 multiplies ``now``."""
        try:
            number = plain_float(value.removeprefix("x"))
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1e100:
            raise InputError(
                f"--what-if {self.part}: not a time: '{shorten(value)}'; expected e.g. 1.5 or x0.9",
                "a number, zero or more",
            )
        return now * number if value.startswith("x") else now * 0.0 + number


def _check_together(
    run: Run, parts: list[str], given: TypedOptions, keys: Mapping[str, Option]
) -> None:
    """Check the changed options against the rules of options, as if the user had given them."""
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


def _check_effect(part: str, run: Run, without: Run, timeline: Timeline) -> None:
    """Raise InputError if a change of costs changes the time of no op and no message."""
    schedule, key = timeline.schedule, _key_of(part).replace("-", "_")
    refuse_unused(
        times_used(schedule, run.costs) | {*REFUSED_UNUSED} - {key}, [schedule.name], run.costs
    )
    costs, before = run.price(schedule), without.price(schedule)
    same = all(
        np.all(one == other)
        for one, other in zip(_all_numbers(costs), _all_numbers(before), strict=True)
    )
    # a link of a cluster file is not part of the costs: look for messages that use it
    if key == "link" and run.network.cluster and not run.costs.modelled:
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
            f"--what-if {part} changes the time of no op or message of {schedule.name}",
            "leave it out",
        )


def _all_numbers(costs: Costs) -> list[Any]:
    """Return all numbers of costs, with defaults for None."""
    pair = costs.time[0] + costs.time[1] if costs.pair is None else costs.pair
    scale, speed = (1.0 if factors is None else factors for factors in (costs.scale, costs.speed))
    return [costs.time, costs.comm, pair, scale, speed]
