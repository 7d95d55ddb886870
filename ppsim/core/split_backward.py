"""Merge an I and the W after it into one B, or split every B into I and W."""

from __future__ import annotations

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.errors import InputError


def merge_backwards(schedule: Schedule) -> Schedule:
    """Return the schedule (lowered or not) with each I and a directly following W merged into B.

    An I is kept if any op is between it and its W, such as a send of its gradient, which B would
    delay. Ops of pairs are kept, too.

    Raises:
        InputError: no I is followed by its W.
    """
    first = np.flatnonzero(schedule.kind[:-1] == Kind.I)
    then = first + 1
    same = (schedule.kind[then] == Kind.W) & (schedule.device[then] == schedule.device[first])
    for column in (schedule.stage, schedule.microbatch):
        same &= column[then] == column[first]
    same &= (schedule.pair[first] == NONE) & (schedule.pair[then] == NONE)
    first = first[same]
    if not len(first):
        split = (schedule.kind == Kind.I).any()
        raise InputError(
            f"{schedule.name} has nothing to merge: "
            f"{'no I is followed by its W' if split else 'it has no I'}",
            "leave out --merge-bw" + "; a lowered file may have sends in between" * bool(split),
        )
    kind = schedule.kind.copy()
    kind[first] = Kind.B
    kept = np.delete(np.arange(len(schedule)), first + 1)
    return schedule.take(kept, kind=kind[kept], stated_messages=None)


def split_backwards(schedule: Schedule) -> Schedule:
    """Return the schedule (lowered or not) with each B replaced by I and a directly following W.

    Raises:
        InputError: there is no B, or a B is in a pair, as W would be left outside of the pair.
    """
    full = np.flatnonzero(schedule.kind == Kind.B)
    if not len(full):
        raise InputError(
            f"{schedule.name} has nothing to split: it has no B", "leave out --split-bw"
        )
    paired = full[schedule.pair[full] != NONE]
    if len(paired):
        raise InputError(
            f"{schedule.name} runs {schedule.label(int(paired[0]))} in a pair, which a split would "
            f"break",
            "a schedule without pairs",
        )
    kept = np.insert(np.arange(len(schedule)), full + 1, full)
    kind = schedule.kind[kept]
    first = full + np.arange(len(full))
    kind[first], kind[first + 1] = Kind.I, Kind.W
    return schedule.take(kept, kind=kind, stated_messages=None)
