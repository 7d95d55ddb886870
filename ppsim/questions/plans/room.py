"""Remarks on the memory of plans: one that barely fits, and a faster one that barely does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, floor, log10

from ppsim.base.numbers import format_number, format_share
from ppsim.base.units import binary_unit, format_size
from ppsim.workload.plans.task import MISS, Row


def memory_remarks(
    best: Row, cap: float, most: float, missed: Row | None, name: str
) -> Iterator[str]:
    """Yield a remark that the best plan nearly fills its memory, and a faster plan that misses it.

    Measured runs that fill their memory are no slower than others, so none of this has a price.

    Args:
        best: the best plan.
        cap: usable bytes of the device that needs the most.
        most: bytes that are usable without --cap, or ``cap``.
        missed: a faster plan that misses these bytes by at most ``MISS``, or None.
        name: the sizes and settings of that plan as text.
    """
    error = format_share(MISS)
    peak = best["memory_bytes"]
    if cap < peak * (1 + MISS) <= most:
        yield (
            f"the best plan may exceed --cap: it fills {format_share(peak / cap)} of it, and "
            f"predicted peaks were up to {error} off; the {format_size(most)} usable without --cap "
            "leave room for that"
        )
    elif peak * (1 + MISS) > cap:
        yield (
            f"the best plan may not fit: it fills {format_share(peak / cap)} of the usable memory, "
            f"and predicted peaks were up to {error} off; --cap "
            f"{cap_text(cap / (1 + MISS), floor)} leaves room for that"
        )
    if missed:
        over = missed["memory_bytes"] / cap - 1
        yield (
            f"a faster plan misses the usable memory by {format_share(over)}, and predicted peaks "
            f"were up to {error} off: {name}: {format_number(missed['step_s'])} s a step; --cap "
            f"{cap_text(missed['memory_bytes'], ceil)} allows it"
        )


def cap_text(size: float, whole: Callable[[float], int]) -> str:
    """Return bytes as --cap accepts them, such as 75.3GiB, with three digits or more.

    ``whole`` is ``ceil`` for at least these bytes, ``floor`` for at most these.
    """
    name, unit = binary_unit(size)
    digits = 10 ** max(2 - floor(log10(size / unit)), 0)
    return f"{format_number(whole(size / unit * digits) / digits).replace(',', '')}{name}"
