"""How a schedule is declared, found by name, checked against its rules and generated."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ppsim.errors import InputError, UnknownSchedule
from ppsim.ops import Packed
from ppsim.schedule import Schedule, place


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

    def __str__(self) -> str:
        size = f"{self.devices} devices x {self.chunks} chunks = {self.stages} stages, {self.microbatches} microbatches"
        return size + "".join(f", {name.replace('_', ' ')} {value}" for name, value in self.options.items())


@dataclass(frozen=True)
class Rule:
    """One constraint of a schedule: the sentence a user reads, and the test."""

    text: str
    holds: Callable[[Shape], bool]


Generator = Callable[..., Iterable[Packed]]


@dataclass(frozen=True)
class Family:
    """A schedule as the registry knows it; every text is what ``ppsim list`` and ``describe`` print.

    Attributes:
        name: the slug users type.
        title: the name in figures.
        generate: yields one packed queue per device for a Shape and the schedule's own options.
        placement: linear, loop, v or bidirectional.
        idea: three lines for someone who has never seen it.
        bubble: closed form of makespan - ideal, or of the idle time it names, with its condition.
        peak: closed form of the peak activations, with its condition.
        paper: where it comes from.
        torch: the class name in torch.distributed.pipelining, or empty.
        aliases: other spellings; case, dashes and a leading "Schedule" never matter.
        chunks: V when the user gives none.
        rules: what P, V and M must satisfy.
        split: whether the backward runs as I and W.
        options: keyword arguments of ``generate`` that users may set.
    """

    name: str
    title: str
    generate: Generator
    placement: str
    idea: str
    bubble: str
    peak: str
    paper: str
    torch: str
    aliases: tuple[str, ...]
    chunks: int
    rules: tuple[Rule, ...]
    split: bool
    options: tuple[str, ...]

    def broken_rules(self, shape: Shape) -> list[Rule]:
        """The rules that a shape does not satisfy."""
        return [rule for rule in self.rules if not rule.holds(shape)]


ONE_CHUNK = Rule("one stage per device", lambda s: s.chunks == 1)
TWO_CHUNKS = Rule("two stages per device", lambda s: s.chunks == 2)
_families: dict[str, Family] = {}
_spellings: dict[str, str] = {}


def schedule(
    name: str,
    *,
    title: str,
    idea: str,
    bubble: str,
    peak: str,
    paper: str,
    placement: str = "linear",
    torch: str = "",
    aliases: tuple[str, ...] = (),
    chunks: int = 1,
    rules: tuple[Rule, ...] = (),
    split: bool = False,
    options: tuple[str, ...] = (),
) -> Callable[[Generator], Generator]:
    """Register a generator under a name; see :class:`Family` for the arguments.

    Raises:
        ValueError: the name or a spelling of it is taken.
    """

    def register(generate: Generator) -> Generator:
        family = Family(
            name, title, generate, placement, idea, bubble, peak, paper, torch, aliases, chunks, rules, split, options
        )
        for spelling in {_plain(s) for s in (name, title, torch, *aliases) if s}:
            if spelling in _spellings:
                raise ValueError(f"schedule spelling {spelling!r} is registered twice")
            _spellings[spelling] = name
        _families[name] = family
        return generate

    return register


def families() -> list[Family]:
    """All schedules, by name."""
    return [_families[name] for name in sorted(_families)]


def find(name: str) -> Family:
    """The schedule of that name or alias, in any case and punctuation.

    Raises:
        UnknownSchedule: no schedule has this name; the message has the closest one.
    """
    known = _spellings.get(_plain(name)) or _spellings.get(_plain(name).removeprefix("schedule"))
    if known:
        return _families[known]
    names = sorted(_families)
    close = difflib.get_close_matches(_plain(name), _spellings, n=1, cutoff=0.5)
    guess = f" Did you mean '{_spellings[close[0]]}'?" if close else ""
    raise UnknownSchedule(f"unknown schedule '{name}'.{guess}", f"one of {', '.join(names)} (ppsim list)")


def shape_for(
    family: Family,
    *,
    microbatches: int,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
) -> Shape:
    """The shape that any two of stages, devices and chunks determine; one alone takes the schedule's own V.

    Raises:
        InputError: the three contradict each other, or a number is not a positive count.
    """
    for what, value in (("stages", stages), ("devices", devices), ("chunks", chunks), ("microbatches", microbatches)):
        if value is not None and value < 1:
            raise InputError(f"{what} must be at least 1, got {value}")
    if stages is None and devices is None:
        raise InputError("the number of stages is missing", "give --stages or --devices")
    if devices is not None:
        per_device = chunks or (family.chunks if stages is None else stages // devices)
        if stages is not None and stages != devices * per_device:
            held = (
                f"{devices} devices x {chunks} chunks = {devices * per_device} stages"
                if chunks
                else f"{devices} devices"
            )
            raise InputError(f"{stages} stages do not fit {held}", "give two of --stages, --devices and --chunks")
        return Shape(devices, per_device, microbatches)
    assert stages is not None
    per_device = chunks or family.chunks
    if stages % per_device:
        below = stages - stages % per_device
        raise InputError(
            f"{family.name} holds {per_device} stages per device, so {stages} stages leave a remainder",
            f"--stages {below or per_device} or --stages {below + per_device}",
        )
    return Shape(stages // per_device, per_device, microbatches)


# Above this many ops the arrays would not fit an ordinary machine's memory.
MOST_OPS = 400_000_000


def generate(
    name: str,
    *,
    microbatches: int,
    stages: int | None = None,
    devices: int | None = None,
    chunks: int | None = None,
    **options: Any,
) -> Schedule:
    """A schedule by name.

    Args:
        name: the schedule's name or an alias.
        microbatches: M.
        stages: S, stages of the model.
        devices: P, pipeline devices.
        chunks: V, stages per device; any two of the three determine the third.
        options: the schedule's own, such as ``group_size`` for ``interleaved``.

    Raises:
        InputError: unknown name or option, contradictory numbers, or a shape the schedule's rules refuse; the
            message names the rule and the nearest shapes that work.
    """
    family = find(name)
    shape = shape_for(family, microbatches=microbatches, stages=stages, devices=devices, chunks=chunks)
    shape = replace(shape, options={key: value for key, value in options.items() if value is not None})
    for key in shape.options:
        if key not in family.options:
            raise InputError(f"{family.name} takes no {key.replace('_', ' ')}", f"leave out --{key.replace('_', '-')}")
    if shape.stages * shape.microbatches > MOST_OPS // 2:
        raise InputError(f"{shape} is over {MOST_OPS:,} ops, more than fits in memory", "try fewer --mb or --stages")
    if broken := family.broken_rules(shape):
        raise refusal(family, shape, broken[0])
    queues = family.generate(shape, **shape.options)
    return Schedule.from_queues(family.name, place(family.placement, shape.devices, shape.stages), microbatches, queues)


def refusal(family: Family, shape: Shape, rule: Rule) -> InputError:
    """The error for a shape that a rule refuses, with the nearest shapes that work."""
    tries: list[tuple[str, int, Callable[[int], Shape]]] = [
        ("--mb", shape.microbatches, lambda x: replace(shape, microbatches=x)),
        ("--devices", shape.devices, lambda x: replace(shape, devices=x)),
        ("--chunks", shape.chunks, lambda x: replace(shape, chunks=x)),
    ]
    if (size := shape.options.get("group_size")) is not None:
        tries.append(("--group-size", size, lambda x: replace(shape, options={**shape.options, "group_size": x})))
    works = []
    for flag, now, build in tries:
        near = [x for x in range(max(1, now - 64), now + 4 * shape.devices + 64) if not family.broken_rules(build(x))]
        below, above = max((x for x in near if x < now), default=None), min((x for x in near if x > now), default=None)
        works += [f"{flag} {x}" for x in (below, above) if x is not None]
    return InputError(f"{family.name} needs {rule.text}; got {shape}", " or ".join(works))


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
