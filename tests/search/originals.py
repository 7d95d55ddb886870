"""What the originals of copies to the host emit, and the costs that they are timed at."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.schedules import generate

FACTORS = (1, 1.25, 0.8, 1.1, 0.9)


@cache
def table() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "data" / "lanes" / "offload.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


def costs_named(name: str, stages: int, link: int) -> Costs:
    uneven = name.startswith("uneven")
    factor = np.array([FACTORS[stage % 5] if uneven else 1.0 for stage in range(stages)])
    copy = np.full(stages, float(name[-3:]))
    time = np.stack([each * factor for each in ((1, 1.9, 1.2, 0.7) if uneven else (1, 2, 1, 1))])
    return Costs(time, others={Kind.OFFLOAD: copy, Kind.RELOAD: copy}, host_link=link)


@cache
def compute_queues(name: str, devices: int, chunks: int, microbatches: int, group: int) -> Schedule:
    options: dict[str, Any] = {"group_size": group} if name == "gis" else {}
    return generate(name, devices=devices, chunks=chunks, microbatches=microbatches, **options)


SAMPLED = [row for row in table()["offload"] if row[0] in ("gis", "uniform")]
