"""Alternatives to a schedule that exceeds a memory cap."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ppsim.core.schedule import Schedule
from ppsim.errors import PpsimError
from ppsim.schedules._load import family_of, split_chunks
from ppsim.schedules.registry import Family, Shape, families, flag

MOST_CHUNKS = 8
# Trying a shape runs it: shapes with more ops than this are left out.
MOST_TRIED = 2_000_000
# A peak can fall as M grows (interleaved's default N depends on M), so the nearest M are tried one
# by one.
NEAREST_TRIED = 16


@dataclass(frozen=True)
class Request:
    """A schedule with the options of a command."""

    spec: str  # its spelling
    # the options of its shape as given, None where absent: stages, devices, chunks, microbatches,
    # the schedule's own
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """The result of one trial: the peak in the unit of the cap, and the makespan."""

    peak: float
    makespan: float


@dataclass(frozen=True)
class Alternative:
    """A change that makes the run fit: the options to give, the peak in the unit of the cap, and
    the makespan.
    """

    options: str
    peak: float
    makespan: float


Attempt = Callable[[Request], Trial]


def find_fitting(
    request: Request, schedule: Schedule, cap: float, attempt: Attempt
) -> list[Alternative]:
    """Return alternatives to a schedule that does not fit: another V, the fastest other schedule,
    fewer microbatches last.

    Fewer microbatches are another batch, so they come last. Every alternative was run through
    ``attempt``, which raises PpsimError where the command would refuse it, with the options it
    names in place of those given. ``cap`` and peaks have a unit that is as much memory on any
    number of stages.
    """
    P, V, M = schedule.n_devices, schedule.n_chunks, schedule.whole_microbatches
    source, spelled = split_chunks(request.spec)
    family = family_of(request.spec)

    def tried(spec: str, v: int, m: int, changes: Mapping[str, int]) -> Alternative | None:
        if v * P * m * 3 > MOST_TRIED:
            return None
        try:
            trial = attempt(Request(spec, {**request.numbers, **changes}))
        except PpsimError:
            return None
        words = [f"--schedule {spec}"] if spec != request.spec else []
        words += [
            f"{flag(name)} {value}"
            for name, value in changes.items()
            if request.numbers.get(name) != value
        ]
        fits = trial.peak <= cap * (1 + 1e-9)
        return Alternative(" ".join(words), trial.peak, trial.makespan) if fits else None

    def on_as_many_devices(chunks: int) -> dict[str, int]:
        return {"stages": P * chunks} if request.numbers.get("stages") is not None else {}

    def fewer(family: Family) -> Alternative | None:
        own = {
            name: value
            for name, value in request.numbers.items()
            if name in family.options and value is not None
        }
        allowed = [m for m in range(1, M) if not family.broken_rules(Shape(P, V, m, own))]

        def with_microbatches(m: int) -> Alternative | None:
            return tried(request.spec, V, m, {"microbatches": m})

        near = next(filter(None, map(with_microbatches, allowed[: -NEAREST_TRIED - 1 : -1])), None)
        return near or _last_fitting(allowed[:-NEAREST_TRIED], with_microbatches)

    def other_chunks() -> Alternative | None:
        others = sorted(
            (v for v in range(1, MOST_CHUNKS + 1) if v != V), key=lambda v: (abs(v - V), v)
        )
        changed = (
            tried(f"{source}:{v}", v, M, on_as_many_devices(v))
            if spelled
            else tried(request.spec, v, M, {"chunks": v, **on_as_many_devices(v)})
            for v in others
        )
        return next(filter(None, changed), None)

    def other_schedules() -> Iterator[Alternative | None]:
        for other in families():
            changes = on_as_many_devices(other.chunks)
            if family is None:
                changes |= {"devices": P, "microbatches": M}
            if request.numbers.get("chunks") is not None:
                changes["chunks"] = other.chunks
            if other.interchangeable and other is not family and other.name != schedule.name:
                yield tried(other.name, other.chunks, M, changes)

    fastest = min(filter(None, other_schedules()), key=lambda a: a.makespan, default=None)
    own = (other_chunks(), fastest, fewer(family)) if family else (fastest,)
    return [found for found in own if found]


def _last_fitting(
    numbers: list[int], attempt: Callable[[int], Alternative | None]
) -> Alternative | None:
    """Bisect for the largest number that fits, as if peaks never fell as the number grows."""
    low, high, best = 0, len(numbers), None
    while low < high:
        middle = (low + high) // 2
        found = attempt(numbers[middle])
        low, high, best = (middle + 1, high, found) if found else (low, middle, best)
    return best
