"""Ops that take the host longer to issue than the GPU to carry out, measured again as CUDA graphs.

A graph is issued by one call, so its time is the device's own. Forward and full backward can be
captured (``torch.cuda.make_graphed_callables``); a split backward cannot, as its I and W share an
autograd graph between two calls, and its rows stay launch-bound.

Imports torch, so it is imported only where something is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from ppsim.inputs.profile.profile import OpTime, Workload
from ppsim.real.calibration.clock import Watch, stopwatch
from ppsim.real.calibration.ops import Part, Times, collect, op_time, parts_of, time_once

KINDS = ("F", "B")


class _PartAndLoss(nn.Module):  # type: ignore[misc]
    """A part and its loss as one module, whose parameters the captured backward has gradients
    of.
    """

    def __init__(self, module: nn.Module, loss: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self.module, self.loss = module, loss

    def forward(self, x: Any) -> Any:
        """The part's output, or its loss."""
        out = self.module(x)
        return self.loss(out) if self.loss else out


def measure_graphs(
    model: Workload, rows: Sequence[OpTime], *, repeats: int, warm_up: int
) -> list[OpTime]:
    """A further row, of a graph, for every forward and backward among ``rows`` that is
    launch-bound.

    What torch cannot capture gets none.
    """
    bound = {
        (row.part, row.layers, row.cache, row.kind)
        for row in rows
        if row.launch_bound and row.kind in KINDS
    }
    bound = {key for key in bound if key[:2] != ("layers", 0)}  # no layers leave nothing to capture
    watch, result = stopwatch("cuda"), []
    for part in parts_of(model, "cuda") if bound else ():
        kinds = [kind for kind in KINDS if (part.name, part.layers, part.cache, kind) in bound]
        times = _measure(part, watch, repeats, warm_up) if kinds else {}
        told: dict[str, Any] = {"cache": part.cache, "launch": "graph"}
        result += [
            op_time(part.name, kind, part.layers, times[kind], **told) for kind in kinds if times
        ]
    return result


def _measure(part: Part, watch: Watch, repeats: int, warm_up: int) -> dict[str, list[Times]]:
    """Times of F and B; nothing where torch cannot capture the part."""
    try:
        replay = torch.cuda.make_graphed_callables(
            _PartAndLoss(part.module, part.loss), (part.make_input(),)
        )
    except RuntimeError:
        return {}
    ops = replace(part.ops, forward=replay)
    run = partial(time_once, ops, part.make_input, watch, cold=part.cold, splits=False, pairs=False)
    return collect([(part.name, run)], repeats, warm_up, lambda _: None)[0]
