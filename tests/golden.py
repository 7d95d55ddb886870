"""What the original implementations emit: queues and numbers, record by record, and our schedules
of the same shape.

The records under ``data/golden`` were emitted by the programs named in their ``source``. Tokens:
``F3.1`` is the forward of microbatch 1 on stage 3, ``(F3.1+B2.0)`` a pair. A plain cost key times a
pair as F, then B; ``|pair_atomic`` as one op, which is this project's rule.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ppsim.core.costs import costs_for
from ppsim.core.schedule import Schedule
from ppsim.schedules import generate
from ppsim.schedules.registry import Pricing

COSTS: dict[str, dict[str, Any]] = {
    "unit": {"tf": 1, "ti": 1, "tw": 1},
    "unit_comm1_x10": {"tf": 10, "ti": 10, "tw": 10, "comm": 1},
    "F3I4W2": {"tf": 3, "ti": 4, "tw": 2},
    "F18522I18086W9337C601": {"tf": 18522, "ti": 18086, "tw": 9337, "comm": 601},
    "F10I9W8|pair20": {"tf": 10, "ti": 9, "tw": 8, "tfb": 20},
}
FOLDER = Path(__file__).parent / "data" / "golden"
NAMES = {
    "1F1B": "1f1b",
    "GPipe": "gpipe",
    "Interleaved1F1B": "interleaved",
    "interleaved": "interleaved",
    "LoopedBFS": "looped-bfs",
    "ZB-H1": "zb-1p",
    "ZB-H2": "zb-h2",
    "DualPipe": "dualpipe",
    "DualPipeV": "dualpipe-v",
    "ZBVZeroBubble": "zb-v-torch",
    "zbv": "zb-v",
    "zb_1p": "zb-auto",
    "zb_2p": "zb-auto",
    "v_half": "v-half",
    "v_min": "v-min",
    "1f1b_overlap": "1f1b-overlap",
    "1f1b_interleave_overlap": "interleaved-overlap",
    "InterleavedZeroBubble": "interleaved-zb",
    "Chimera": "chimera",
}
RECORDS = {
    f"{path.stem}-P{record['P']}-M{record['M']}-V{record['V']}-{number}": record
    for path in sorted(FOLDER.glob("*.json"))
    for number, record in enumerate(json.loads(path.read_text()))
}
# The fast gear takes every fourth record of a file, the first always; the whole suite takes all.
each_record = pytest.mark.parametrize(
    "record",
    [
        pytest.param(
            record, id=name, marks=[pytest.mark.slow] if int(name.rpartition("-")[2]) % 4 else []
        )
        for name, record in RECORDS.items()
    ],
)


def ours(record: dict[str, Any]) -> Schedule:
    """Our schedule of a record's name, shape and options, generated once for all tests."""
    if id(record) not in _made:
        _made[id(record)] = make(record)
    return _made[id(record)]


_made: dict[int, Schedule] = {}  # records stay, so that no other has the same id


def make(record: dict[str, Any]) -> Schedule:
    """Generate the schedule of a record."""
    name = NAMES[record["schedule"]]
    if record.get("overlap_moe_expert_parallel_comm"):
        name = "interleaved-overlap"
    group = record.get("microbatch_group_size_per_vp_stage")
    options: dict[str, Any] = {"group_size": group} if group and name == "interleaved" else {}
    # nothing is held after I: W waits freely
    if record["schedule"] == "zbv" and record["mem_setting"] == "mf1_mw0":
        options = {"limit": 2 * max(record["M"], record["P"])}
    if name == "zb-auto":  # 1p and 2p are how many times the memory of 1F1B
        held = {"mf1_mw0": 0.0, "paperlike": 32 / 87}[record["mem_setting"]]
        options = {"limit": int(record["schedule"][3]) * record["P"], "after_i": held}
    chunks = 1 if record["placement"] == "bidirectional" else record["V"]
    return generate(
        name,
        devices=record["P"],
        chunks=chunks,
        microbatches=record["M"],
        costs=costs_of(record),
        **options,
    )


def costs_of(record: dict[str, Any]) -> Pricing:
    """The costs that a record's schedule was planned with."""
    found = record.get("search_cost")
    if not found:
        return costs_for
    return partial(
        costs_for, tf=found["F"], ti=found["B"], tw=found["W"], comm=found["comm"], per="stage"
    )
