"""What fits under a memory cap next to a schedule that does not."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ppsim.core.schedule import Schedule
from ppsim.errors import PpsimError
from ppsim.schedules._registry import Shape, families, find, generate

MOST_CHUNKS = 8
# Trying a shape means to run it: those with more ops than this are left out.
MOST_TRIED = 2_000_000

Trial = tuple[int, float]
Try = Callable[[Schedule], Trial]


@dataclass(frozen=True)
class Alternative:
    """A change that makes the run fit: the options to give, the peak and the makespan they lead to."""

    options: str
    peak: int
    makespan: float


def fitting(schedule: Schedule, given: Mapping[str, Any], cap: int, attempt: Try) -> list[Alternative]:
    """What fits next to a schedule that does not: fewer microbatches, another V, the fastest other schedule.

    Args:
        schedule: what does not fit.
        given: the schedule's own options, such as ``group_size``.
        cap: the most a device may hold.
        attempt: peak and makespan of a schedule; raises PpsimError where it cannot run.
    """
    P, V, M = schedule.n_devices, schedule.n_chunks, schedule.n_microbatches

    def fits(
        name: str, options: str, chunks: int | None, microbatches: int, own: Mapping[str, Any]
    ) -> Alternative | None:
        try:
            if (chunks or 1) * P * microbatches * 3 > MOST_TRIED:
                return None
            peak, makespan = attempt(generate(name, devices=P, chunks=chunks, microbatches=microbatches, **own))
        except PpsimError:
            return None
        return Alternative(options, peak, makespan) if peak <= cap else None

    def fewer() -> Alternative | None:
        family, low, best = find(schedule.name), 0, None
        allowed = [m for m in range(1, M) if not family.broken_rules(Shape(P, V, m, given))]
        high = len(allowed)
        while low < high:  # a peak never falls as M grows
            middle = (low + high) // 2
            found = fits(schedule.name, f"--mb {allowed[middle]}", V, allowed[middle], given)
            low, high, best = (middle + 1, high, found) if found else (low, middle, best)
        return best

    def other_chunks() -> Alternative | None:
        others = sorted((v for v in range(1, MOST_CHUNKS + 1) if v != V), key=lambda v: (abs(v - V), v))
        return next((a for v in others if (a := fits(schedule.name, f"--chunks {v}", v, M, given))), None)

    def other_schedule() -> Alternative | None:
        names = [family.name for family in families() if family.name != schedule.name]
        found = [a for name in names if (a := fits(name, f"--schedule {name}", None, M, {}))]
        return min(found, key=lambda a: a.makespan, default=None)

    return [found for found in (fewer(), other_chunks(), other_schedule()) if found]
