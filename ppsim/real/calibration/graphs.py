"""Times of launch-bound ops as CUDA graphs.

The host needs longer to launch such an op than the GPU to run it. A graph is launched by one call,
so its time is that of the GPU. Forward and full backward can be captured
(``torch.cuda.make_graphed_callables``). A split backward cannot: its I and W are two calls that
share an autograd graph, and its rows stay launch-bound.

This module imports torch; import it only where something is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ppsim.inputs.profile.profile import OpTime, Workload
from ppsim.real.calibration.clock import Watch, stopwatch
from ppsim.real.calibration.ops import Part, Times, collect, op_time, parts_of, time_once

KINDS = ("F", "B")


class _PartModule(nn.Module):  # type: ignore[misc]
    """A part with its loss as one module, so that a captured backward covers its parameters."""

    def __init__(self, part: Part) -> None:
        super().__init__()
        self.module, self.part = part.module, part

    def forward(self, x: Any) -> Any:
        """Return the part's output, or its loss."""
        return self.part.forward(x)


def measure_graphs(
    model: Workload, rows: Sequence[OpTime], *, repeats: int, warm_up: int
) -> list[OpTime]:
    """Return a row of a graph for each launch-bound forward and backward among ``rows``.

    Ops that torch cannot capture are left out.
    """
    bound = {
        (row.part, row.layers, row.cache, row.kind)
        for row in rows
        if row.launch_bound and row.kind in KINDS
    }
    bound = {key for key in bound if key[:2] != ("layers", 0)}  # without layers there is no kernel
    watch, result = stopwatch("cuda"), []
    for part in parts_of(model, "cuda") if bound else ():
        kinds = [kind for kind in KINDS if (part.name, part.layers, part.cache, kind) in bound]
        times = _measure(part, watch, repeats, warm_up) if kinds else {}
        result += [
            op_time(part.name, kind, part.layers, times[kind], cache=part.cache, launch="graph")
            for kind in kinds
            if times
        ]
    return result


def _measure(part: Part, watch: Watch, repeats: int, warm_up: int) -> dict[str, list[Times]]:
    """Return the times of F and B as graphs, or {} if torch cannot capture the part."""
    try:
        replay = torch.cuda.make_graphed_callables(_PartModule(part), (part.make_input(),))
    except RuntimeError:
        return {}
    ops = replace(part.ops, forward=replay)
    run = partial(time_once, ops, part.make_input, watch, cold=part.cold, splits=False, pairs=False)
    return collect([(part.name, run)], repeats, warm_up, lambda _: None)[0]
