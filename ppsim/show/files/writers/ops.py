"""A table of ops, ``ppsim.ops/1``: a row per op, as CSV, JSON lines or Parquet."""

from __future__ import annotations

from typing import IO

import numpy as np

from ppsim.base.tables import write_columns
from ppsim.core.job import OPS_SCHEMA
from ppsim.core.lanes import refuse_lanes
from ppsim.core.ops import Kind
from ppsim.show.files.document import Abilities, Document, require_one

SUFFIXES = (".ops.csv", ".ops.jsonl", ".ops.parquet")
ABILITIES = Abilities(one_schedule=True)
KIND_NAMES = np.array([kind.name for kind in Kind], object)


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write the compute ops of one timeline as iteration 0 of replica 0."""
    timeline = require_one(document, suffix)
    schedule = timeline.schedule
    refuse_lanes(schedule, "a table of ops")
    columns = {
        "device": schedule.device,
        "stage": schedule.stage,
        "kind": KIND_NAMES[schedule.kind],
        "microbatch": schedule.microbatch,
        "start": timeline.start,
        "end": timeline.end,
    }
    header = {"schema": OPS_SCHEMA, "unit": timeline.unit, "iteration": 0, "replica": 0}
    out.write(write_columns(header, columns, suffix))
