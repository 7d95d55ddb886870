"""Recognise the schedule that queues follow: a family's, where every device has the same ops in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ppsim.core.ops import ONCE_A_STEP, mask
from ppsim.core.rounds import repeat_rounds, rounds_of
from ppsim.core.schedule import Schedule
from ppsim.errors import PpsimError
from ppsim.schedules.registry import MOST_CELLS, Family, families, generate

COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")
MOST_TRIED = 2_000_000  # ops of the schedules generated to compare with


class _Size(NamedTuple):
    """The size of the schedules to compare with."""

    devices: int
    stages: int
    chunks: int
    microbatches: int  # whole ones
    slices: int
    cells: int  # of stages and microbatches, slices and rounds counted
    feeds_back: bool
    flushes: bool


def recognise(schedule: Schedule) -> str:
    """Return the name of the family with these queues, such as ``1f1b`` or ``interleaved
    group-size=2``; empty if there is none.

    Of several rounds it is the name of each, whatever surrounds a training step.
    """
    one = _take_round(schedule)
    if one is None:
        return ""
    for name, made in _list_made(_size_of(one)):
        if _are_same(made, one):
            return name
    return ""


def _take_round(schedule: Schedule) -> Schedule | None:
    """Return the queues of one round without the ops around a training step; None where rounds
    differ.
    """
    steps = mask(ONCE_A_STEP)[schedule.kind]
    bare = schedule.take(~steps) if steps.any() else schedule
    if bare.n_rounds == 1:
        return bare
    first = rounds_of(bare) == 0
    one = bare.take(first, n_microbatches=bare.round_microbatches, n_rounds=1)
    return one if _are_same(repeat_rounds(one, bare.n_rounds), bare) else None


def list_alike(schedule: Schedule, most: int) -> dict[str, Schedule]:
    """Return the first ``most`` schedules to compare with that place stages alike, by name.

    Of those with the same queues it has the first.
    """
    placed = tuple(map(tuple, schedule.placement.devices.tolist()))
    names = tuple(family.name for family in families())
    return _list_alike(_size_of(schedule), placed, names, most)


@lru_cache(maxsize=32)
def _list_alike(
    size: _Size,
    placed: tuple[tuple[int, ...], ...],
    names: tuple[str, ...],
    most: int,
) -> dict[str, Schedule]:
    """List them once for each size; ``names`` are the names of all families, which files may add
    to.
    """
    found: dict[str, Schedule] = {}
    for name, made in _list_made(size):
        alike = np.array_equal(made.placement.devices, placed)
        if alike and not any(_are_same(made, other) for other in found.values()):
            found[name] = made
        if len(found) == most:
            break
    return found


def _size_of(schedule: Schedule) -> _Size:
    return _Size(
        schedule.n_devices,
        schedule.n_stages,
        schedule.n_chunks,
        schedule.whole_microbatches,
        schedule.n_slices,
        schedule.n_stages * schedule.n_microbatches,
        schedule.feeds_back,
        schedule.flushes,
    )


def _list_made(size: _Size) -> Iterator[tuple[str, Schedule]]:
    """Make the schedules of a size that families have, with their names, up to ``MOST_TRIED`` ops
    of them.
    """
    tried = 0
    for family, options in _candidates(size):
        if size.cells > MOST_CELLS or tried > MOST_TRIED:
            return
        try:
            made = generate(
                family.name,
                microbatches=size.microbatches,
                stages=size.stages,
                devices=size.devices,
                **options,
            )
        except PpsimError:
            continue
        tried += len(made)
        name = " ".join(
            [family.name, *(f"{name.replace('_', '-')}={value}" for name, value in options.items())]
        )
        yield name, made


def _are_same(one: Schedule, other: Schedule) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in COLUMNS)


def _candidates(size: _Size) -> Iterator[tuple[Family, dict[str, Any]]]:
    """Yield every family with its defaults, then with each group size, and with slices for families
    that have them.

    Families of as many stages per device come first, as interleaved-zb with one makes the queues of
    zb-1p, and of these the ones that torch has, as on one device gis makes the queues of
    interleaved. Searches for any limit come last: without one, v-auto makes the queues of zb-v.
    """
    cuts = size.slices > 1
    those = [family for family in families() if ("slices" in family.options) == cuts]
    those = [
        family
        for family in those
        if (family.feeds_back, family.flushes) == (size.feeds_back, size.flushes)
    ]
    chunks = size.chunks
    those.sort(
        key=lambda each: (each.name.endswith("-auto"), each.chunks != chunks, not each.torch)
    )
    for family in those:
        yield family, {"slices": size.slices} if cuts else {}
    for family in those:
        if "group_size" in family.options:
            for group in range(1, size.cells // size.stages + 1):
                yield family, {"group_size": group}
