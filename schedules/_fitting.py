"""Alternatives to a schedule that exceeds a memory cap."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ppsim.core.schedule import Schedule
from ppsim.errors import PpsimError
from ppsim.schedules._load import family_of, split_chunks
from ppsim.schedules.registry import Family, Shape, families, flag

MOST_CHUNKS = 8
# Shapes are tried by running them; those with more ops than this are left out.
MOST_TRIED = 2_000_000
# A peak can fall as M grows, as the default N of interleaved depends on M. So this many of the
# nearest M are tried one by one.
NEAREST_TRIED = 16


@dataclass(frozen=True)
class Request:
    """A schedule with the options of a command."""

    spec: str  # the spelling of the schedule
    # the options of the shape (stages, devices, chunks, microbatches) and of the schedule, None if
    # not given
    numbers: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """The result of one trial: the peak in the unit of the cap, and the makespan."""

    peak: float
    makespan: float


@dataclass(frozen=True)
class Alternative:
    """A change that makes the run fit: the options, the peak in the cap's unit, the makespan."""

    options: str
    peak: float
    makespan: float


Attempt = Callable[[Request], Trial]


def find_fitting(
    request: Request, schedule: Schedule, cap: float, attempt: Attempt
) -> list[Alternative]:
    """Return alternatives to a schedule that does not fit: another V, the fastest other schedule,
    and fewer microbatches, which change the batch and so come last.

    Args:
        request: the schedule and its options.
        schedule: its queues.
        cap: the memory cap, in a unit that does not depend on the number of stages.
        attempt: runs a request with some options replaced; raises PpsimError if the command would
            refuse them. All alternatives were run by it.
    """
    family = family_of(request.spec)
    trials = _Trials(request, schedule, cap, attempt)
    fastest = min(
        filter(None, trials.other_schedules(family)), key=lambda a: a.makespan, default=None
    )
    found = (
        (trials.other_chunks(), fastest, trials.fewer_microbatches(family))
        if family
        else (fastest,)
    )
    return [alternative for alternative in found if alternative]


@dataclass(frozen=True)
class _Trials:
    """Runs of a request with changed options."""

    request: Request
    schedule: Schedule
    cap: float
    attempt: Attempt

    def other_chunks(self) -> Alternative | None:
        """Return the nearest number of chunks that fits."""
        M, now = self.schedule.whole_microbatches, self.schedule.n_chunks
        source, spelled = split_chunks(self.request.spec)
        others = sorted(
            (v for v in range(1, MOST_CHUNKS + 1) if v != now), key=lambda v: (abs(v - now), v)
        )
        changed = (
            self._run(f"{source}:{v}", v, M, self._stages(v))
            if spelled
            else self._run(self.request.spec, v, M, {"chunks": v, **self._stages(v)})
            for v in others
        )
        return next(filter(None, changed), None)

    def other_schedules(self, family: Family | None) -> Iterator[Alternative | None]:
        """Yield each other schedule that fits, or None."""
        P, M = self.schedule.n_devices, self.schedule.whole_microbatches
        for other in families():
            changes = self._stages(other.chunks)
            if family is None:
                changes |= {"devices": P, "microbatches": M}
            if self.request.numbers.get("chunks") is not None:
                changes["chunks"] = other.chunks
            if other.interchangeable and other is not family and other.name != self.schedule.name:
                yield self._run(other.name, other.chunks, M, changes)

    def fewer_microbatches(self, family: Family) -> Alternative | None:
        """Return the largest smaller number of microbatches that fits."""
        P, V, M = (
            self.schedule.n_devices,
            self.schedule.n_chunks,
            self.schedule.whole_microbatches,
        )
        options = {
            name: value
            for name, value in self.request.numbers.items()
            if name in family.options and value is not None
        }
        allowed = [m for m in range(1, M) if not family.broken_rules(Shape(P, V, m, options))]

        def with_microbatches(m: int) -> Alternative | None:
            return self._run(self.request.spec, V, m, {"microbatches": m})

        near = next(filter(None, map(with_microbatches, allowed[: -NEAREST_TRIED - 1 : -1])), None)
        return near or _last_fitting(allowed[:-NEAREST_TRIED], with_microbatches)

    def _stages(self, chunks: int) -> dict[str, int]:
        """Return the option that keeps the number of devices with this many chunks."""
        if self.request.numbers.get("stages") is None:
            return {}
        return {"stages": self.schedule.n_devices * chunks}

    def _run(self, spec: str, v: int, m: int, changes: Mapping[str, int]) -> Alternative | None:
        """Return the alternative with these changes, or None if it is refused or does not fit."""
        if v * self.schedule.n_devices * m * 3 > MOST_TRIED:
            return None
        numbers = self.request.numbers
        try:
            trial = self.attempt(Request(spec, {**numbers, **changes}))
        except PpsimError:
            return None
        words = [f"--schedule {spec}"] if spec != self.request.spec else []
        words += [
            f"{flag(name)} {value}" for name, value in changes.items() if numbers.get(name) != value
        ]
        fits = trial.peak <= self.cap * (1 + 1e-9)
        return Alternative(" ".join(words), trial.peak, trial.makespan) if fits else None


def _last_fitting(
    numbers: list[int], attempt: Callable[[int], Alternative | None]
) -> Alternative | None:
    """Return the largest number that fits, found by bisection as if peaks grew with the number."""
    low, high, best = 0, len(numbers), None
    while low < high:
        middle = (low + high) // 2
        found = attempt(numbers[middle])
        low, high, best = (middle + 1, high, found) if found else (low, middle, best)
    return best
