"""Recognise schedules: find the family whose queues have the same ops in the same order."""

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
MOST_TRIED = 2_000_000  # ops of the schedules generated for a comparison
MOST_ALIKE = 100_000  # ops of listed schedules after which other group sizes are left out
MOST_SEARCHED = 5_000  # ops above which families that search for the best order are left out
OTHER_GROUPS = "other group sizes"


class _Size(NamedTuple):
    """The size of the schedules to compare with."""

    devices: int
    stages: int
    chunks: int
    microbatches: int  # whole microbatches
    slices: int
    cells: int  # stages x microbatches, in which slices and rounds count
    feeds_back: bool
    flushes: bool


def recognise(schedule: Schedule) -> str:
    """Return the name of the family with these queues, such as ``interleaved group-size=2``.

    Empty if there is none. Rounds are compared without the ops around a training step, and must be
    the same.
    """
    one = _take_round(schedule)
    if one is None:
        return ""
    for name, made in _list_made(_size_of(one)):
        if _are_same(made, one):
            return name
    return ""


def _take_round(schedule: Schedule) -> Schedule | None:
    """Return the queues of one round, without the ops around a step; None if rounds differ."""
    steps = mask(ONCE_A_STEP)[schedule.kind]
    bare = schedule.take(~steps) if steps.any() else schedule
    if bare.n_rounds == 1:
        return bare
    first = rounds_of(bare) == 0
    one = bare.take(first, n_microbatches=bare.round_microbatches, n_rounds=1)
    return one if _are_same(repeat_rounds(one, bare.n_rounds), bare) else None


def list_alike(schedule: Schedule) -> dict[str, Schedule | None]:
    """Return the families' schedules with the same size and placement, by name.

    Of several with the same queues, the first is returned. Schedules that take long to make are
    None: for a large size, families that search for the best order, and other group sizes. A family
    whose order depends on costs has the queues of ``schedule`` if that is the family's.
    """
    devices = tuple(map(tuple, schedule.placement.devices.tolist()))
    names = tuple(family.name for family in families())
    found = dict(_list_alike(_size_of(schedule), devices, names))
    known = any(made is not None and _are_same(made, schedule) for made in found.values())
    return found if known or schedule.name not in names else found | {schedule.name: schedule}


@lru_cache(maxsize=32)
def _list_alike(
    size: _Size,
    devices: tuple[tuple[int, ...], ...],
    names: tuple[str, ...],
) -> dict[str, Schedule | None]:
    """Return the schedules of :func:`list_alike`, cached.

    ``names`` of all families are part of the key, as a user's file may add some.
    """
    found: dict[str, Schedule | None] = {}
    seen = set()
    ops = 0  # ops of the schedules made so far
    for family, options in _candidates(size):
        if not _places_alike(family, options, size, devices):
            continue
        # group sizes come last; with one stage per device they make no difference
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
    family: Family, options: Mapping[str, Any], size: _Size, devices: tuple[tuple[int, ...], ...]
) -> bool:
    """Return whether a family allows the size and places its stages on these devices."""
    shape = Shape(size.devices, size.chunks, size.microbatches, options)
    if size.stages != size.devices * size.chunks or family.broken_rules(shape):
        return False
    placement = place(shape.placement(family), size.devices, size.stages)
    return np.array_equal(placement.devices, devices)


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
    """Yield the families' schedules of a size, with names, up to ``MOST_TRIED`` ops in total."""
    tried = 0
    for family, options in _candidates(size):
        if size.cells > MOST_CELLS or tried > MOST_TRIED:
            return
        made = _make(family, options, size)
        if made is not None:
            tried += len(made)
            yield _name(family, options), made


def _make(family: Family, options: Mapping[str, Any], size: _Size) -> Schedule | None:
    """Return a family's schedule of a size, or None if it has none."""
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
    """Yield every family with its default options (and the slices), then with each group size.

    Several families can have the same queues, so the order matters. Families whose default is the
    same number of chunks come first, as interleaved-zb with one chunk has the queues of zb-1p. Of
    these, families in torch come first, as on one device gis has the queues of interleaved.
    Searches under a limit come last, as v-auto without a limit has the queues of zb-v.
    """
    is_sliced = size.slices > 1
    candidates = [
        family
        for family in families()
        if ("slices" in family.options) == is_sliced
        and (family.feeds_back, family.flushes) == (size.feeds_back, size.flushes)
    ]
    chunks = size.chunks
    candidates.sort(
        key=lambda each: (each.name.endswith("-auto"), each.chunks != chunks, not each.torch)
    )
    for family in candidates:
        yield family, {"slices": size.slices} if is_sliced else {}
    for family in candidates:
        if "group_size" in family.options:
            for group in range(1, size.cells // size.stages + 1):
                yield family, {"group_size": group}
