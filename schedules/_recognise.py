"""Recognise the schedule that queues follow: a family's, where every device has the same ops in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ppsim.core.schedule import Schedule
from ppsim.errors import PpsimError
from ppsim.schedules.registry import MOST_CELLS, Family, families, generate

COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")
MOST_TRIED = 2_000_000  # ops of the schedules generated to compare with


def recognise(schedule: Schedule) -> str:
    """Name the family whose queues these are, such as ``1f1b`` or ``interleaved group-size=2``; empty for none."""
    tried = 0
    for family, options in _candidates(schedule):
        if schedule.n_stages * schedule.n_microbatches > MOST_CELLS or tried > MOST_TRIED:
            return ""
        try:
            made = generate(
                family.name,
                microbatches=schedule.whole_microbatches,
                stages=schedule.n_stages,
                devices=schedule.n_devices,
                **options,
            )
        except PpsimError:
            continue
        tried += len(made)
        if all(np.array_equal(getattr(made, name), getattr(schedule, name)) for name in COLUMNS):
            return " ".join([family.name, *(f"{name.replace('_', '-')}={value}" for name, value in options.items())])
    return ""


def _candidates(schedule: Schedule) -> Iterator[tuple[Family, dict[str, Any]]]:
    """List every family as it is by default, then with each group size; where there are slices, those that cut them.

    Families of as many stages per device come first, as interleaved-zb with one makes the queues of zb-1p, and of these
    the ones that torch has, as on one device gis makes the queues of interleaved. Searches for any limit come last:
    without one, v-auto makes the queues of zb-v.
    """
    cuts = schedule.n_slices > 1
    those = [family for family in families() if ("slices" in family.options) == cuts]
    those = [
        family for family in those if (family.feeds_back, family.flushes) == (schedule.feeds_back, schedule.flushes)
    ]
    chunks = schedule.n_chunks
    those.sort(key=lambda each: (each.name.endswith("-auto"), each.chunks != chunks, not each.torch))
    for family in those:
        yield family, {"slices": schedule.n_slices} if cuts else {}
    for family in those:
        if "group_size" in family.options:
            for size in range(1, schedule.n_microbatches + 1):
                yield family, {"group_size": size}
