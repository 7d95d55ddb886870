"""Compare a file with the counts of devices, stages and microbatches that it should have.

Without these counts, a file that lacks a device, stage or microbatch looks like a smaller schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import filterfalse, islice

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.ops import label
from ppsim.core.schedule import Schedule
from ppsim.inputs.check.faults import Fault


@dataclass(frozen=True)
class ExpectedCounts:
    """Counts that a file should have; None accepts any count."""

    devices: int | None = None  # P
    stages: int | None = None  # S
    microbatches: int | None = None  # M
    # a schedule of these counts whose ops the file should have, or None
    schedule: Schedule | None = None


ANY = ExpectedCounts()


def expected_faults(draft: Draft, expected: ExpectedCounts) -> Iterator[Fault]:
    """Yield a fault for missing or surplus devices, stages and microbatches, and for ops on other
    devices than expected.
    """
    computes = draft.computes
    counts = (
        ("device", "devices", "devices", draft.n_devices, draft.device),
        ("stage", "stages", "stages", draft.n_stages, draft.stage[computes]),
        ("microbatch", "microbatches", "mb", draft.n_microbatches, draft.microbatch[computes]),
    )
    found = False
    for noun, nouns, option, count, numbers in counts:
        there, wanted = set(np.unique(numbers).tolist()), getattr(expected, nouns)
        if wanted is None:
            continue
        missing = wanted - sum(0 <= number < wanted for number in there)
        if missing:
            found = True
            shown = ", ".join(
                map(str, islice(filterfalse(there.__contains__, range(wanted)), SHOWN))
            )
            which = shown + (f" and {missing - SHOWN} more" if missing > SHOWN else "")
            text = (
                f"{noun if missing == 1 else nouns} {which} {'is' if missing == 1 else 'are'} "
                f"missing"
            )
            yield Fault("missing", f"{text}: the file has {len(there)} of {wanted} {nouns}", _HINT)
        elif count > wanted:
            found = True
            text = f"the file has {count} {nouns}, and {wanted} are expected"
            yield Fault("placement", text, f"--{option} {count}")
    if expected.schedule is not None and not found:
        yield from _extra_op_faults(draft, expected.schedule)


SHOWN = 8  # missing numbers that a message lists
_HINT = "look for a row, or a device's file, that was left out"


def _extra_op_faults(draft: Draft, schedule: Schedule) -> Iterator[Fault]:
    """Yield a fault for each device that lacks ops which it runs in the schedule."""
    wanted = _ops(schedule.device, schedule.kind, schedule.stage, schedule.microbatch)
    only = draft.computes
    found = _ops(draft.device[only], draft.kind[only], draft.stage[only], draft.microbatch[only])
    for device in range(schedule.n_devices):
        lost = sorted(op for op in wanted - found if op[0] == device)
        if lost:
            names = ", ".join(label(*op[1:]) for op in lost[:4]) + (
                f" and {len(lost) - 4} more" if len(lost) > 4 else ""
            )
            text = f"device {device} lacks {names} of {schedule.name}"
            yield Fault(
                "missing",
                text,
                f"ppsim run {schedule.name} -o right.csv shows its queues",
                device=device,
            )


def same_order(draft: Draft, schedule: Schedule) -> bool:
    """Return whether every device has the compute ops of the schedule in the same order."""
    computes = draft.computes
    columns = ("device", "kind", "stage", "microbatch")
    return all(
        np.array_equal(getattr(draft, name)[computes], getattr(schedule, name)) for name in columns
    )


def _ops(*columns: np.ndarray[tuple[int], np.dtype[np.generic]]) -> set[tuple[int, int, int, int]]:
    return {
        (d, k, s, m) for d, k, s, m in zip(*(column.tolist() for column in columns), strict=True)
    }
