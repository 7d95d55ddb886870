"""Problems whose best published spans are known: tests/data/optimize, numbers of the zero-bubble
papers' authors.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.search.problem import Problem

FOLDER = Path(__file__).parents[2] / "data" / "optimize"


class Published(NamedTuple):
    """A problem, the span that its authors' search reached (infinite for none), and what to call
    it.
    """

    name: str
    problem: Problem
    span: float


def read_caps() -> list[Published]:
    """Read the memory curves of ZB and ZB-V: 5 models, 17 caps, one and two stages per device."""
    return list(_read("zb_caps.json", "_us"))


def read_v_caps() -> list[Published]:
    """Read the searches for V schedules under small caps, four devices."""
    return list(_read("v_caps.json", ""))


def _read(name: str, unit: str) -> Iterator[Published]:
    for row in json.loads((FOLDER / name).read_text())["rows"]:
        devices, chunks = row["devices"], row["chunks"]
        cap = row.get("cap_in_stage_activations", row.get("cap_stage_activations"))
        f, i, w = (row[f"t_{kind}{unit}"] for kind in "fiw")
        times = np.repeat(np.array([[f], [i + w], [i], [w]], float), devices * chunks, axis=1)
        problem = Problem(
            placement=place("linear" if chunks == 1 else "v", devices, devices * chunks),
            microbatches=row["microbatches"],
            costs=Costs(times, comm=float(row[f"comm{unit}"])),
            cap=cap,
            after_i=-row["mem_w"] / row["mem_f"] if "mem_w" in row else 1.0,
        )
        label = f"{row.get('family', 'v')}-P{devices}-M{row['microbatches']}-F{f}-cap{cap:g}"
        yield Published(label, problem, _span(row, unit))


def _span(row: dict[str, Any], unit: str) -> float:
    return float(row["span_us"] if unit else row.get("longest_span", np.inf))
