"""Contents of a picture and their names: one rule for terminal, figure and page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.timeline import Timeline
from ppsim.show.drawing.lanes import ACTIVATION, COLLECTIVE, COPY_IN, COPY_OUT, GRADIENT
from ppsim.show.drawing.palette import (
    CAUSE_FILL,
    COMM_LANE,
    COPY_LANE,
    DEFAULT,
    IN_ROW,
    LEVELS,
    Palette,
    level_of,
)
from ppsim.show.drawing.palette import COLLECTIVE as COLLECTIVE_LANE

OTHER_TINT = "Other tint"
BY_CHUNK = "First to last chunk"
LANE_FILL = {
    ACTIVATION: COMM_LANE,
    GRADIENT: COMM_LANE,
    COLLECTIVE: COLLECTIVE_LANE,
    COPY_OUT: COPY_LANE,
    COPY_IN: COPY_LANE,
}
FULL = 1 - 1e-9  # of the devices' time in ops, from which on rounding leaves no bubble


@dataclass(frozen=True)
class Entry:
    """One entry of a legend."""

    name: str  # of the entry
    colours: tuple[str, ...] = ()  # of its box, side by side; empty without a box
    low: bool = False  # whether the box is low, for entries of lanes
    hatch: str = ""  # the colour of the lines in a hatched box
    kinds: tuple[Kind, ...] = ()  # the kinds of op it stands for, in the order of ``colours``
    cause: str = ""  # the cause of idle time it stands for


def legend_entries(
    timelines: Sequence[Timeline],  # drawn in the figure
    bands: Collection[int] = (),  # those drawn in the lane below each device
    causes: Collection[str] = (),  # causes that colour bubbles; empty where all are grey
    palette: Palette = DEFAULT,  # the colours
) -> list[Entry]:
    """Return legend entries for the contents of the timelines, in order."""
    schedules = [timeline.schedule for timeline in timelines]
    long = (
        np.bincount(timeline.schedule.kind[timeline.end > timeline.start]) for timeline in timelines
    )
    shown = {kind for counts in long for kind in np.flatnonzero(counts).tolist()}
    kinds = [kind for kind in IN_ROW if kind in shown]
    split = Kind.I in kinds or Kind.W in kinds
    names = {kind: kind.info.legend for kind in kinds} | ({} if split else {Kind.B: "Backward"})
    first = {names[kind]: kind for kind in reversed(kinds)}  # kinds of one name share an entry
    entries = [
        Entry(names[kind], (palette.fill(kind)[0],), hatch=palette.hatch(kind)[0], kinds=(kind,))
        for kind in kinds
        if first[names[kind]] == kind
    ]
    if any(len(schedule.second_of_pairs) for schedule in schedules):
        pair = Kind.F, Kind.B if Kind.B in kinds else Kind.I
        entries.append(
            Entry(
                "Overlapped F&B", (palette.fill(pair[0])[0], palette.fill(pair[1])[0]), kinds=pair
            )
        )
    lighter = [schedule for schedule in schedules if (schedule.chunk % 2).any()]
    if lighter:
        # With one stage of each of two replicas on a device, its second stage is of the second
        # replica.
        replicas = {
            schedule.placement.n_replicas > 1 and schedule.n_chunks == 1 for schedule in lighter
        }
        meaning = " or ".join(
            ["2nd chunk"] * (False in replicas) + ["2nd replica"] * (True in replicas)
        )
        last, tints = (
            max(int(schedule.placement.chunk.max()) for schedule in lighter),
            palette.fill(Kind.F),
        )
        if last == 1:
            entries.append(Entry(f"{OTHER_TINT}: {meaning}", tints[-1:]))
        else:
            entries.append(
                Entry(
                    BY_CHUNK,
                    tuple(tints[level_of(chunk, last)] for chunk in range(last + 1)[:LEVELS]),
                )
            )
    entries += [
        Entry(f"Idle: {name}", (fill,), cause=name)
        for name, fill in CAUSE_FILL.items()
        if name in causes
    ]
    if not causes and any(map(_has_bubble, timelines)):
        entries.append(Entry("Bubble", (palette.bubble,), hatch=palette.bubble_hatch))
    if {ACTIVATION, GRADIENT} & {*bands}:
        both = {ACTIVATION, GRADIENT} <= {*bands}
        entries.append(
            Entry(
                "Message (activation above gradient)" if both else "Message", (COMM_LANE,), low=True
            )
        )
    if COLLECTIVE in bands:
        own = any(schedule.has_lanes for schedule in schedules)
        name = "Collective" if own else "Parameters and gradients (FSDP)"
        entries.append(Entry(name, (COLLECTIVE_LANE,), low=True))
    if {COPY_OUT, COPY_IN} & {*bands}:
        entries.append(Entry("Copy out (above), copy in (below)", (COPY_LANE,), low=True))
    return entries


def split_by_chunk(entries: Sequence[Entry], palette: Palette = DEFAULT) -> list[Entry]:
    """Return entries with a tint for each chunk in each kind's box, and the meaning of a box's
    parts.
    """
    said = next(
        (each for each in entries if each.name.startswith(OTHER_TINT) or each.name == BY_CHUNK),
        None,
    )
    if said is None:
        return list(entries)
    levels = [palette.fill(Kind.F).index(colour) for colour in said.colours]
    levels = levels if said.name == BY_CHUNK else [0, *levels]
    found = []
    for each in entries:
        if each is said:
            name = (
                said.name
                if said.name == BY_CHUNK
                else f"1st, {said.name.removeprefix(OTHER_TINT).lstrip(': ')}"
            )
            found.append(
                replace(
                    each, name=name, colours=tuple(palette.fill(Kind.F)[level] for level in levels)
                )
            )
            continue
        (kind, *others) = each.kinds or (None,)
        tints = (
            tuple(dict.fromkeys(palette.fill(kind)[level] for level in levels))
            if kind is not None
            else ()
        )
        plain = not others and not each.hatch and len(tints) > 1
        found.append(replace(each, colours=tints) if plain else each)
    return found


def _has_bubble(timeline: Timeline) -> bool:
    schedule = timeline.schedule
    busy = np.ones(len(schedule), np.bool_)
    busy[schedule.second_of_pairs] = False
    return bool(
        (timeline.end - timeline.start)[busy].sum() < schedule.n_devices * timeline.makespan * FULL
    )
