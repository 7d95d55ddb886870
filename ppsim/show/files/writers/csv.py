"""torch's schedule CSV: ``compute_only`` from a schedule, ``compute_comms`` from a lowered one.

torch infers the placement from the rows, so every placement with one rank per stage can be written.
Copies and collectives are cells in the order of issue; ppsim reads them back, torch refuses them.
"""

from __future__ import annotations

import io
from typing import IO

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError, InvalidSchedule
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.runtime import loss_order
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.show.files.document import Abilities, Document, require_one

SUFFIXES = (".csv",)
ABILITIES = Abilities(one_schedule=True, times=False, lowered=True)


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write one row per device, after reading all cells back and comparing them.

    Raises:
        InputError: a placement with two replicas, slices of sequences, or ops that recompute.
        InvalidSchedule: torch would hang on it, or compute wrong gradients without an error.
    """
    schedule = require_one(document, suffix).schedule
    if schedule.placement.n_replicas > 1:
        raise InputError(
            f"{schedule.name} holds each stage on two devices, and torch's CSV has one rank per "
            f"stage",
            "dualpipe-v or hanayo, which run in a V with one replica",
        )
    if schedule.n_slices > 1:
        raise InputError(
            f"{schedule.name} runs slices of sequences, which torch's CSV cannot express",
            ".json keeps them; torch would run each slice as a microbatch that attends to no other",
        )
    if (schedule.kind == Kind.R).any():
        raise InputError(
            f"{schedule.name} recomputes in separate ops (R), and torch's CSV has no such action",
            ".json keeps them; for torch leave them out and checkpoint the stage's module",
        )
    rows = text(schedule)
    back = parse(rows, "the CSV just written")
    for column in ("offsets", "kind", "stage", "microbatch", "pair"):
        if not np.array_equal(getattr(back, column), getattr(schedule, column)):
            raise InputError(
                f"{schedule.name} does not survive torch's CSV: column {column} differs"
            )
    faults = [
        *loss_order(back),
        *(check(back, modes=("overlap",)).faults if back.has_comms else ()),
    ]
    if faults:
        raise InvalidSchedule(
            f"{schedule.name} would go wrong in torch: {faults[0].message}", faults[0].hint
        )
    out.write(rows.encode())


def text(schedule: Schedule) -> str:
    """Return the rows, one per device."""
    out = io.StringIO()
    for cells in Draft.from_schedule(schedule).cells():
        out.write(",".join(cells) + "\n")
    return out.getvalue()
