"""Recognise the schedule that queues follow: a family's, where every device has the same ops in the
same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ppsim.core.ops import ONCE_A_STEP, mask
from ppsim.core.rounds import repeat_rounds, rounds_of
from ppsim.core.schedule import Schedule, place
from ppsim.errors import PpsimError
from ppsim.schedules.registry import MOST_CELLS, Family, Shape, families, generate

COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")
MOST_TRIED = 2_000_000  # ops of the schedules generated to compare with
MOST_ALIKE = 100_000  # of those made to be listed, before further group sizes are left out
MOST_SEARCHED = 5_000  # of a schedule that families make which search for the best order
OTHER_GROUPS = "other group sizes"


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


def list_alike(schedule: Schedule) -> dict[str, Schedule | None]:
    """Return the families' schedules of the same size that place stages alike, by name.

    Of those with the same queues it has the first. None stands for what is not made, as that takes
    long: of a large schedule the families that search for the best order, and further group sizes.
    A family whose order follows from costs has the queues of ``schedule`` where that is its own.
    """
    placed = tuple(map(tuple, schedule.placement.devices.tolist()))
    names = tuple(family.name for family in families())
    found = dict(_list_alike(_size_of(schedule), placed, names))
    known = any(made is not None and _are_same(made, schedule) for made in found.values())
    return found if known or schedule.name not in names else found | {schedule.name: schedule}


@lru_cache(maxsize=32)
def _list_alike(
    size: _Size,
    placed: tuple[tuple[int, ...], ...],
    names: tuple[str, ...],
) -> dict[str, Schedule | None]:
    """List them once for each size; ``names`` are those of all families, which files may add to."""
    found: dict[str, Schedule | None] = {}
    seen = set()
    ops = 0  # of all that are made
    for family, options in _candidates(size):
        if not _places_alike(family, options, size, placed):
            continue
        # group sizes come last; with one stage on each device they change nothing
        if options.keys() == {"group_size"} and (size.chunks == 1 or ops > MOST_ALIKE):
            found |= {} if size.chunks == 1 else {OTHER_GROUPS: None}
            break
        ops_of_one = 2 * size.cells  # at least: a forward and a backward of each cell
        if family.uses_costs and not family.lanes and ops_of_one > MOST_SEARCHED:
            found[family.name] = None
            continue
        made = _make(family, options, size)
        if made is None:
            continue
        ops += len(made)
        queues = tuple(getattr(made, name).tobytes() for name in COLUMNS)
        if queues not in seen:
            found[_name(family, options)] = made
            seen.add(queues)
    return found


def _places_alike(
    family: Family, options: Mapping[str, Any], size: _Size, placed: tuple[tuple[int, ...], ...]
) -> bool:
    """Return whether a family has the size, and places its stages as given."""
    shape = Shape(size.devices, size.chunks, size.microbatches, options)
    if size.stages != size.devices * size.chunks or family.broken_rules(shape):
        return False
    placement = place(shape.placement(family), size.devices, size.stages)
    return np.array_equal(placement.devices, placed)


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
        made = _make(family, options, size)
        if made is not None:
            tried += len(made)
            yield _name(family, options), made


def _make(family: Family, options: Mapping[str, Any], size: _Size) -> Schedule | None:
    """Make a family's schedule of a size; None where it has none."""
    try:
        return generate(
            family.name,
            microbatches=size.microbatches,
            stages=size.stages,
            devices=size.devices,
            **options,
        )
    except PpsimError:
        return None


def _name(family: Family, options: Mapping[str, Any]) -> str:
    """Return the name of a family's schedule, such as ``interleaved group-size=2``."""
    words = (f"{name.replace('_', '-')}={value}" for name, value in options.items())
    return " ".join([family.name, *words])


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
