"""Entries of legends, by the same rules for terminal, figure and page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
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

BY_CHUNK = "First to last chunk"
LANE_FILL = {
    ACTIVATION: COMM_LANE,
    GRADIENT: COMM_LANE,
    COLLECTIVE: COLLECTIVE_LANE,
    COPY_OUT: COPY_LANE,
    COPY_IN: COPY_LANE,
}
FULL = 1 - 1e-9  # busy share of the devices' time from which on there is no bubble


@dataclass(frozen=True)
class Entry:
    """One entry of a legend."""

    name: str
    colours: tuple[str, ...] = ()  # of the box, side by side; empty for no box
    low: bool = False  # whether the box is low, as bars in a lane are
    hatch: str = ""  # the colour of the lines in a hatched box
    kinds: tuple[Kind, ...] = ()  # the kinds of op, in the order of ``colours``
    cause: str = ""  # the cause of idle time
    of_chunks: bool = False  # whether the entry explains the tints of chunks


def legend_entries(
    timelines: Sequence[Timeline],  # drawn in the picture
    bands: Collection[int] = (),  # bands that the lane below each device shows
    causes: Collection[str] = (),  # causes that colour bubbles; empty if all are grey
    palette: Palette = DEFAULT,
) -> list[Entry]:
    """Return the legend of timelines, in order; the box of a kind has the tint of each chunk."""
    schedules = [timeline.schedule for timeline in timelines]
    counts_of_each = (
        np.bincount(timeline.schedule.kind[timeline.end > timeline.start]) for timeline in timelines
    )
    shown = {kind for counts in counts_of_each for kind in np.flatnonzero(counts).tolist()}
    kinds = [kind for kind in IN_ROW if kind in shown]
    split = Kind.I in kinds or Kind.W in kinds
    names = {kind: kind.info.legend for kind in kinds} | ({} if split else {Kind.B: "Backward"})
    first = {names[kind]: kind for kind in reversed(kinds)}  # kinds of one name share an entry
    chunks = _chunk_entry(schedules, palette)
    levels = [palette.fill(Kind.F).index(fill) for fill in chunks.colours] if chunks else [0]
    entries = list[Entry]()
    for kind in kinds:
        if first[names[kind]] == kind:
            hatch, fills = palette.hatch(kind)[0], palette.fill(kind)
            tints = dict.fromkeys(fills[level] for level in levels[: 1 if hatch else None])
            entries.append(Entry(names[kind], (*tints,), hatch=hatch, kinds=(kind,)))
    if any(len(schedule.second_of_pairs) for schedule in schedules):
        pair = Kind.F, Kind.B if Kind.B in kinds else Kind.I
        entries.append(
            Entry(
                "Overlapped F&B", (palette.fill(pair[0])[0], palette.fill(pair[1])[0]), kinds=pair
            )
        )
    if chunks:
        entries.append(chunks)
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


def _chunk_entry(schedules: Sequence[Schedule], palette: Palette) -> Entry | None:
    """Return the entry that explains the tints of chunks; None if all ops have the same tint."""
    several = [schedule for schedule in schedules if (schedule.chunk % 2).any()]
    if not several:
        return None
    last, tints = max(int(each.placement.chunk.max()) for each in several), palette.fill(Kind.F)
    if last > 1:
        fills = (tints[level_of(chunk, last)] for chunk in range(last + 1)[:LEVELS])
        return Entry(BY_CHUNK, (*fills,), of_chunks=True)
    # If a device has one stage of each of two replicas, the second is the second replica's.
    replicas = {each.placement.n_replicas > 1 and each.n_chunks == 1 for each in several}
    meanings = ["2nd chunk"] * (False in replicas) + ["2nd replica"] * (True in replicas)
    return Entry(f"1st, {' or '.join(meanings)}", (tints[0], tints[-1]), of_chunks=True)


def _has_bubble(timeline: Timeline) -> bool:
    schedule = timeline.schedule
    busy = np.ones(len(schedule), np.bool_)
    busy[schedule.second_of_pairs] = False
    return bool(
        (timeline.end - timeline.start)[busy].sum() < schedule.n_devices * timeline.makespan * FULL
    )
