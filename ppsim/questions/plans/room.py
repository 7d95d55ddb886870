"""Remarks on the memory of plans: one that barely fits, and a faster one that barely does not."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, floor, log10

from ppsim.base.numbers import format_number, format_share
from ppsim.base.units import binary_unit
from ppsim.workload.plans.task import MISS, Row


def memory_remarks(best: Row, cap: float, missed: Row | None, sizes: str) -> Iterator[str]:
    """Yield a warning that the best plan nearly fills its memory, and a faster plan that misses it.

    Measured runs that fill their memory are no slower than others, so none of this has a price.

    Args:
        best: the best plan.
        cap: usable bytes of the device that needs the most.
        missed: a faster plan that misses these bytes by at most ``MISS``, or None.
        sizes: the sizes of that plan as text.
    """
    error = format_share(MISS)
    if best["memory_bytes"] * (1 + MISS) > cap:
        yield (
            f"it may not fit: it fills {format_share(best['memory_bytes'] / cap)} of the usable "
            f"memory, and predicted peaks were up to {error} off; --cap "
            f"{cap_text(cap / (1 + MISS))} leaves room for that"
        )
    if missed:
        over = missed["memory_bytes"] / cap - 1
        yield (
            f"a faster plan misses the usable memory by {format_share(over)}, and predicted peaks "
            f"were up to {error} off: {sizes}, {format_number(missed['step_s'])} s a step; --cap "
            f"{cap_text(missed['memory_bytes'])} allows it"
        )


def cap_text(size: float) -> str:
    """Return bytes as --cap accepts them, such as 75.3GiB, rounded up to three digits or more."""
    name, unit = binary_unit(size)
    digits = 10 ** max(2 - floor(log10(size / unit)), 0)
    return f"{format_number(ceil(size / unit * digits) / digits).replace(',', '')}{name}"
