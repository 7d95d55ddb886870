"""A schedule on integer time slots: a step takes one, a fused step two; other slots are empty.

Steps are aligned by simulation with a time of one slot each: an op starts as soon as its device is
free and its input has arrived. Sends and receives of a lowered schedule are steps too; the two
sides of a message share their slot.
"""

from __future__ import annotations

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.lanes import refuse_lanes
from ppsim.core.schedule import NONE
from ppsim.core.timeline import Timeline

# The second slot of a fused step.
CONTINUED = "="


def cells_of(timeline: Timeline) -> list[list[str]]:
    """Return a row per device with a cell per slot: a step, ``=`` if it continues, or empty.

    Steps of the timeline take one slot each, pairs two.

    Raises:
        ValueError: a step does not end with a whole slot.
        InputError: devices run several streams.
    """
    schedule = timeline.schedule
    refuse_lanes(schedule, "a grid of slots")
    end = np.rint(timeline.end).astype(np.int64)
    if not np.array_equal(end, timeline.end):
        raise ValueError("a step does not end with a whole slot")
    # A send or receive that waits for its other side is in its last slot only.
    start = end - np.where(schedule.pair == NONE, 1, 2)
    slots = int(end.max(initial=0))
    rows = []
    for device, texts in enumerate(Draft.from_schedule(schedule).cells()):
        row = [""] * slots
        queue = schedule.queue(device)
        leads = [op for op in range(queue.start, queue.stop) if not 0 <= schedule.pair[op] < op]
        for op, text in zip(leads, texts, strict=True):
            if end[op] == timeline.start[op]:
                continue  # an FSDP op or a wait, which takes no slot
            row[start[op] : end[op]] = [text] + [CONTINUED] * int(end[op] - start[op] - 1)
        rows.append(row)
    return rows


def text_of(rows: list[list[str]]) -> str:
    """Return the grid as text: a heading of slots, then a row per device; ``.`` is empty."""
    shown = [[cell.replace("OVERLAP_F_B", "") or "." for cell in row] for row in rows]
    slots = len(shown[0])
    widths = [max(len(str(slot)), *(len(row[slot]) for row in shown)) for slot in range(slots)]
    names = [f"dev {device}" for device in range(len(shown))]
    left = max(map(len, ["slot", *names]))
    lines = [" ".join([f"{'slot':<{left}}", *(f"{slot:<{w}}" for slot, w in enumerate(widths))])]
    for name, row in zip(names, shown, strict=True):
        lines.append(
            " ".join(
                [f"{name:<{left}}", *(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True))]
            )
        )
    return "\n".join(line.rstrip() for line in lines)


def csv_of(rows: list[list[str]]) -> str:
    """Return the grid as torch's CSV with empty cells, which ppsim can read.

    The second cell of a fused step is empty.
    """
    return "".join(
        ",".join("" if cell == CONTINUED else cell for cell in row) + "\n" for row in rows
    )
