"""Declare schedules, find them by name, check shapes against their rules, and generate queues.

A family whose queues depend on costs declares ``uses_costs=True`` and has a keyword ``costs`` for
the costs of its shape; :func:`generate` makes them from unit times, or by the function that its
caller passes.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.base.text import shorten
from ppsim.core.costs import Costs, costs_for, count_in_steps
from ppsim.core.ops import Packed
from ppsim.core.schedule import Schedule, place
from ppsim.errors import InputError, UnknownSchedule

FLAGS = {"microbatches": "--mb"}
LIMIT = "limit"  # the option of a schedule that bounds its memory
REACH = 64
Works = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class Shape:
    """The size of a pipeline: devices P, chunks V per device (stages S = P x V), microbatches M.

    ``options`` are the schedule's own settings, such as the group size of ``interleaved``.
    """

    devices: int
    chunks: int
    microbatches: int
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """S, stages of the model."""
        return self.devices * self.chunks

    @property
    def slices(self) -> int:
        """K, slices of each sequence; 1 for schedules that cut none."""
        return int(self.options.get("slices", 1))

    def placement(self, family: Family) -> str:
        """Return the placement in the options, else the family's; linear with chunks is a loop."""
        name = str(self.options.get("placement", family.placement))
        return "loop" if name == "linear" and self.chunks > 1 else name

    def __str__(self) -> str:
        counted = {
            "device": self.devices,
            "chunk": self.chunks,
            "stage": self.stages,
            "microbatch": self.microbatches,
        }
        words = [
            f"{n} {noun}" if n == 1 else f"{n} {noun}{'e' * (noun[-1] == 'h')}s"
            for noun, n in counted.items()
        ]
        return "{} x {} = {}, {}".format(*words) + "".join(
            f", {name.replace('_', ' ')} {value}" for name, value in self.options.items()
        )


@dataclass(frozen=True)
class Rule:
    """One constraint of a schedule: the text shown to users, and the test."""

    text: str
    holds: Callable[[Shape], bool]


Generator = Callable[..., Iterable[Packed]]
Pricing = Callable[[Schedule], Costs]  # the costs of a placement and a number of microbatches


@dataclass(frozen=True, kw_only=True)
class Family:
    """A schedule in the registry; ``ppsim list`` prints its texts."""

    name: str  # the name that users type
    title: str  # the name in figures
    # yields one packed queue per device for a Shape and the schedule's own options
    generate: Generator
    idea: str  # three lines for someone who has never seen it
    bubble: str  # closed form of makespan - ideal, or of the idle time it names, with its condition
    peak: str  # closed form of the peak activations, with its condition
    paper: str  # its source
    placement: str = "linear"  # linear, loop, v, bidirectional or bidirectional-v
    torch: str = ""  # the class name in torch.distributed.pipelining, or empty
    # other spellings; case, dashes and a leading "Schedule" are ignored
    aliases: tuple[str, ...] = ()
    chunks: int = 1  # the default of V
    rules: tuple[Rule, ...] = ()  # the constraints on P, V and M
    split: bool = False  # whether the backward runs as I and W
    options: tuple[str, ...] = ()  # keyword arguments of ``generate`` that users may set
    # whether the queues depend on costs: then ``generate`` has a parameter ``costs``, the
    # :class:`ppsim.core.costs.Costs` of the shape, before its options
    uses_costs: bool = False
    # whether the generator searches for idle slots op by op: seconds for a million ops
    fills: bool = False
    # whether the generator improves its orders by random walks: about a second, at any size
    walks: bool = False
    # whether it is the same training on whole microbatches as the others, so that it may replace
    # them
    interchangeable: bool = True
    # the meaning of M and of the idle share, if a run is not one step that ends in a flush
    counts: str = ""
    feeds_back: bool = False  # whether each round needs the results of the previous round
    flushes: bool = True  # whether each step ends before the next begins
    lanes: bool = False  # whether its queues have ops of other kinds than F, B, I, W and R

    @property
    def slices(self) -> int:
        """The default of K, slices of each sequence; 1 for schedules that cut none."""
        return SLICES if "slices" in self.options else 1

    @property
    def cuts_sequences(self) -> bool:
        """Whether it cuts each sequence into slices."""
        return self.slices > 1

    def broken_rules(self, shape: Shape) -> list[Rule]:
        """Return the rules that a shape does not satisfy."""
        return [rule for rule in self.rules if not rule.holds(shape)]


ONE_CHUNK = Rule("one stage per device", lambda s: s.chunks == 1)
TWO_CHUNKS = Rule("two stages per device", lambda s: s.chunks == 2)
EVEN_DEVICES = Rule("an even number of devices", lambda s: s.devices % 2 == 0)
EVEN_MICROBATCHES = Rule(
    "an even number of microbatches, half from each end", lambda s: s.microbatches % 2 == 0
)
_families: dict[str, Family] = {}
_spellings: dict[str, str] = {}
_TEXT = re.compile(r'"([^"\n]+)"')


def _import_families(wanted: Callable[[str], bool] | None = None) -> None:
    """Import the files of families: all, or those whose text satisfies ``wanted``."""
    for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
        module = f"{__package__}.{path.stem}"
        if module not in sys.modules and (wanted is None or wanted(path.read_text("utf-8"))):
            importlib.import_module(module)


def _declares_interchangeable(text: str) -> bool:
    """Return whether the text of a file declares an interchangeable schedule."""
    return text.count("\n@schedule(") > text.count("interchangeable=False")


def schedule(name: str, **facts: Any) -> Callable[[Generator], Generator]:
    """Return a decorator that registers a generator under a name.

    ``facts`` are fields of :class:`Family`, at least its texts.

    Raises:
        ValueError: the name or one of its spellings is taken.
    """

    def register(generate: Generator) -> Generator:
        if not generate.__module__.startswith(f"{__package__}."):
            _import_families()  # so that the names of ppsim's schedules are taken
        family = Family(name=name, generate=generate, **facts)
        spellings = {_plain(s) for s in (name, family.title, family.torch, *family.aliases) if s}
        if taken := sorted(spellings & _spellings.keys()):
            raise ValueError(f"schedule spelling {taken[0]!r} is registered twice")
        _spellings.update(dict.fromkeys(spellings, name))
        _families[name] = family
        return generate

    return register


def families() -> list[Family]:
    """Return all schedules in the order of names."""
    _import_families()
    return [_families[name] for name in sorted(_families)]


def interchangeable_families() -> list[Family]:
    """Return the schedules that may replace each other, in the order of names."""
    _import_families(_declares_interchangeable)
    return [_families[name] for name in sorted(_families) if _families[name].interchangeable]


def find(name: str) -> Family:
    """Return the schedule with a name or alias, in any case and punctuation.

    Raises:
        UnknownSchedule: no schedule has this name; the message has the closest one.
    """
    spelled = (_plain(name), _plain(name).removeprefix("schedule"))

    def has_name(text: str) -> bool:
        return any(_plain(found) in spelled for found in _TEXT.findall(text))

    for wanted in (has_name, None):  # first the files with the name, then all
        if not _spellings.keys() & spelled:
            _import_families(wanted)
    known = _spellings.get(spelled[0]) or _spellings.get(spelled[1])
    if known:
        return _families[known]
    _refuse_several(name)
    import difflib

    names = [family.name for family in families()]
    close = difflib.get_close_matches(_plain(name), _spellings, n=1, cutoff=0.7)
    guess = f" Did you mean '{_spellings[close[0]]}'?" if close else ""
    raise UnknownSchedule(
        f"unknown schedule '{shorten(name)}'.{guess}", f"one of {', '.join(names)} (ppsim list)"
    )


def _refuse_several(name: str) -> None:
    """Raise UnknownSchedule if a name is several names, joined by commas or blanks."""
    if "," in name:
        names, fault = [part.strip() for part in name.split(",")], "are not joined by commas"
    else:
        names, fault = name.split(), "are separate arguments"
        if not all(_plain(part.partition(":")[0]) in _spellings for part in names):
            return
    if len(names) < 2:
        return
    words = shorten(" ".join(names))
    listed = shorten(", ".join(f'"{part}"' for part in names))
    raise UnknownSchedule(
        f"unknown schedule '{shorten(name)}': names {fault}",
        f"{shorten(names[0])}; for several, {words} as separate words, or [{listed}] in Python",
    )


SLICES = 4  # default number of slices of each sequence
# Above these, the arrays (two or three ops per stage and microbatch) exceed the memory of an
# ordinary machine.
MOST_STAGES, MOST_CELLS = 1_000_000, 200_000_000
# The number of cached schedules, and the largest number of stages x microbatches of one.
CACHED, CACHED_CELLS = 128, 1024


def generate(
    name: str,
    *,
    microbatches: int,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    costs: Pricing = costs_for,
    **options: Any,
) -> Schedule:
    """Return a schedule by name.

    Args:
        name: the schedule's name or an alias.
        microbatches: M.
        stages: S, stages of the model.
        devices: P, pipeline devices.
        chunks: V, stages per device; any two of the three determine the third.
        costs: returns the costs for a schedule without ops, for families whose queues depend on
            them (:attr:`Family.uses_costs`); equal times and no latency by default.
        options: the options of the schedule, such as ``group_size`` for ``interleaved``.

    Raises:
        InputError: unknown name or option, contradictory numbers, or a shape that breaks a rule of
            the schedule; the message names the rule and the nearest shapes that work.
    """
    sizes = {"stages": stages, "devices": devices, "chunks": chunks}
    return _generate(_inputs_for(name, costs, microbatches=microbatches, **sizes, **options))


def generate_once(name: str, *, costs: Pricing = costs_for, **shape: Any) -> Schedule:
    """Return a schedule like :func:`generate`, with small schedules cached.

    Several numbers of a command need the same schedule. Callers share it and its cached properties,
    so they must not write into its arrays.
    """
    inputs = _inputs_for(name, costs, **shape)
    cells = inputs.shape.stages * inputs.shape.microbatches * inputs.shape.slices
    return _generate(inputs) if cells > CACHED_CELLS else _generate_cached(inputs)


@dataclass(frozen=True)
class _Inputs:
    """The inputs of a generator; equal inputs give the same schedule."""

    family: Family = field(compare=False)
    shape: Shape = field(compare=False)
    costs: Costs | None = field(compare=False)  # None if queues do not depend on costs
    # all inputs in a hashable form
    key: tuple[Any, ...]


def _inputs_for(name: str, costs: Pricing, **numbers: Any) -> _Inputs:
    """Return the inputs of a generator; arguments and errors as in :func:`generate`."""
    family = find(name)
    shape = shape_for(family, **numbers)
    check_size(shape)
    priced = None
    if family.uses_costs:
        nothing = [np.empty(0, np.int64)] * shape.devices
        placement = place(shape.placement(family), shape.devices, shape.stages)
        prices = costs(Schedule.from_queues(family.name, placement, shape.microbatches, nothing))
        priced = count_in_steps(prices)  # so that orders do not depend on the unit of time
    sizes = shape.devices, shape.chunks, shape.microbatches, *sorted(shape.options.items())
    key = family.name, family.generate, *sizes, priced and priced.content
    return _Inputs(family, shape, priced, key)


def _generate(inputs: _Inputs) -> Schedule:
    """Return the schedule of these inputs."""
    family, shape = inputs.family, inputs.shape
    priced = {} if inputs.costs is None else {"costs": inputs.costs}
    queues = take_rows(family.name, family.generate(shape, **priced, **shape.options), shape)
    made = Schedule.from_queues(
        family.name,
        place(shape.placement(family), shape.devices, shape.stages),
        shape.microbatches * shape.slices,
        queues,
        shape.slices,
    )
    if family.feeds_back or not family.flushes:
        return replace(made, feeds_back=family.feeds_back, flushes=family.flushes)
    return made


_generate_cached = lru_cache(maxsize=CACHED)(_generate)


def takes_chunks(family: Family) -> bool:
    """Return whether a schedule supports several numbers of stages per device."""
    options = {"slices": SLICES} if "slices" in family.options else {}
    return sum(not family.broken_rules(Shape(4, chunks, 16, options)) for chunks in range(1, 5)) > 1


def take_rows(name: str, rows: Iterable[Any], shape: Shape) -> list[Any]:
    """Return the rows that a generator yields (InputError: not one per device)."""
    taken = list(islice(rows, shape.devices + 1))
    if len(taken) != shape.devices:
        many = f"more than {shape.devices}" if len(taken) > shape.devices else len(taken)
        raise InputError(
            f"{name} yields {many} rows for {shape.devices} devices", "yield one row per device"
        )
    return taken


def shape_for(
    family: Family,
    *,
    microbatches: int,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    **options: Any,
) -> Shape:
    """Return the shape for these numbers; see :func:`generate` for the arguments and errors.

    The queue of one device must fit in memory, not all queues.
    """
    counts = {"stages": stages, "devices": devices, "chunks": chunks, "microbatches": microbatches}
    given = {name: value for name, value in (counts | options).items() if value is not None}
    if "slices" in family.options:
        given.setdefault("slices", SLICES)
    for name in given:
        if name not in counts and name not in family.options:
            raise InputError(
                f"{family.name} takes no {name.replace('_', ' ')}", f"leave out {flag(name)}"
            )
        if isinstance(given[name], int) and given[name] < 1:
            raise InputError(f"{name.replace('_', ' ')} must be at least 1, got {given[name]}")
    if stages is None and devices is None:
        raise InputError("the number of stages is missing", "give --stages or --devices")

    def works(numbers: dict[str, Any]) -> bool:
        shape = _fit(family, numbers)
        return shape is not None and not _too_large(shape) and not family.broken_rules(shape)

    shape = _fit(family, given)
    if shape is None:
        raise InputError(_contradiction(family, given), lambda: _suggest(family, given, works))
    if shape.stages > MOST_STAGES or shape.chunks * shape.microbatches * shape.slices > MOST_CELLS:
        raise _size_error(shape)
    if broken := family.broken_rules(shape):
        raise InputError(
            f"{family.name} needs {broken[0].text}; got {shape}",
            lambda: _suggest(family, given, works),  # most who ask whether a shape fits do not care
        )
    return shape


def _suggest(family: Family, given: Mapping[str, Any], works: Works) -> str:
    """Return options with the nearest numbers that work, with the default chunks if no other do."""
    if (found := _nearest(given, works)) or given.get("chunks") in (None, family.chunks):
        return found
    one = _nearest({**given, "chunks": family.chunks}, works).partition(" or ")[0]
    return f"{flag('chunks')} {family.chunks} {one}" if one else ""


def check_size(shape: Shape) -> None:
    """Raise InputError for a shape that exceeds the memory of an ordinary machine."""
    if _too_large(shape):
        raise _size_error(shape)


def _too_large(shape: Shape) -> bool:
    return (
        shape.stages > MOST_STAGES or shape.stages * shape.microbatches * shape.slices > MOST_CELLS
    )


def _size_error(shape: Shape) -> InputError:
    most = f"{MOST_STAGES:,} stages, or {MOST_CELLS:,} stages x microbatches"
    fewer = "devices" if shape.stages > MOST_STAGES else "microbatches"
    return InputError(f"{shape} is over {most}, more than fits in memory", f"fewer {flag(fewer)}")


def _fit(family: Family, given: Mapping[str, Any]) -> Shape | None:
    """Return the shape of positive numbers; None if stages, devices and chunks disagree.

    Any two of them determine the third; with one, chunks is the family's default.
    """
    stages, devices, chunks = given.get("stages"), given.get("devices"), given.get("chunks")
    if stages is None:
        devices, chunks = given["devices"], chunks or family.chunks
    elif devices is None:
        chunks = chunks or family.chunks
        devices = stages // chunks
    else:
        chunks = chunks or stages // devices
    options = {name: value for name, value in given.items() if name in family.options}
    return (
        Shape(devices, chunks, given["microbatches"], options)
        if stages in (None, devices * chunks)
        else None
    )


def _contradiction(family: Family, given: Mapping[str, Any]) -> str:
    """Return the message for stages, devices and chunks that disagree."""
    stages, devices, chunks = given["stages"], given.get("devices"), given.get("chunks")
    if devices is None:
        return (
            f"{stages} stages do not fit {family.name}, which has {chunks or family.chunks} per "
            f"device"
        )
    if chunks is None:
        return f"{stages} stages do not fit {devices} devices evenly"
    return (
        f"{stages} stages do not fit {devices} devices x {chunks} chunks = {devices * chunks} "
        f"stages"
    )


def _plain(name: str) -> str:
    """Return a name in lower case without punctuation except commas, which separate names."""
    return re.sub(r"[^a-z0-9,]", "", name.lower().replace("+", "plus"))


def flag(name: str) -> str:
    """Return the command-line flag of an argument of :func:`generate`."""
    return FLAGS.get(name, f"--{name.replace('_', '-')}")


def _nearest(given: Mapping[str, Any], works: Works) -> str:
    """Return flags that make ``given`` work, such as ``--mb 4 or --mb 8``; empty if none does.

    For each number, the nearest number below and above is tried, with the others unchanged, then
    pairs of numbers. If another limit on memory works, only that is returned, as users choose
    devices and microbatches for other reasons.
    """
    numbers = {name: value for name, value in given.items() if isinstance(value, int)}
    if LIMIT in numbers and (found := _nearest_limit(given, numbers, works)):
        return found
    single = []
    for name, now in numbers.items():
        fits = [x for x in _near_numbers(now, numbers) if works({**given, name: x})]
        below, above = (
            next((x for x in fits if x < now), None),
            next((x for x in fits if x > now), None),
        )
        single += [f"{flag(name)} {x}" for x in (below, above) if x is not None]
    return " or ".join(single) or next(_pairs_that_work(given, numbers, works), "")


def _nearest_limit(given: Mapping[str, Any], numbers: dict[str, int], works: Works) -> str:
    """Return the option with the nearest limit on memory that works; empty if none does."""
    nearest = next(
        (x for x in _near_numbers(numbers[LIMIT], numbers) if works({**given, LIMIT: x})), None
    )
    return "" if nearest is None else f"{flag(LIMIT)} {nearest}"


def _pairs_that_work(
    given: Mapping[str, Any], numbers: dict[str, int], works: Works
) -> Iterator[str]:
    for one, other in combinations(numbers, 2):
        for x, y in product(
            _near_numbers(numbers[one], numbers), _near_numbers(numbers[other], numbers)
        ):
            if works({**given, one: x, other: y}):
                yield f"{flag(one)} {x} {flag(other)} {y}"


def _near_numbers(now: int, numbers: dict[str, int]) -> list[int]:
    """Return replacements for ``now``, nearest first.

    They are its neighbours, and multiples of all numbers and of their halves.
    """
    parts = {part for number in numbers.values() for part in (number, number // 2) if part}
    tries = {part * times for part in parts for times in (1, 2, 4, now // part, now // part + 1)}
    tries.update(range(now - REACH, now + REACH + 1))
    return sorted((x for x in tries if x > 0 and x != now), key=lambda x: (abs(x - now), x))
