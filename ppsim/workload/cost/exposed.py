"""The time of an optimizer step, and the part of it that lengthens a training step."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ppsim.analysis.period import find_period
from ppsim.core.ops import Kind
from ppsim.core.steps import add_optimizer
from ppsim.workload.cost.costs import StageCosts, queues_of
from ppsim.workload.cost.memory import stage_memory
from ppsim.workload.cost.muon import muon_flops
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.contents import contents_of
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel

MOST_OPS = 200_000  # ops of a step, above which finding its period takes too long


@dataclass(frozen=True)
class OptimizerStep:
    """The optimizer step of a plan, on the device where it takes longest."""

    name: str  # adamw or muon
    flops: float  # FLOPs of orthogonalization, on one GPU
    seconds: float  # with the gather of weights
    state_bytes: float  # master copy and moments, on one GPU
    exposed: float  # seconds that it adds to a training step of the plan
    # seconds that it adds if no device waits for another (post-validation); None for many ops
    exposed_alone: float | None


def find_optimizer_step(
    model: Model, parallel: Parallel, costs: StageCosts, layout: Layout | None = None
) -> OptimizerStep:
    """Return the time of a plan's optimizer step, and the exposed part of it.

    If all devices wait for the norm of all gradients, the whole step is exposed. If none waits, a
    device's optimizer step overlaps the drain of other devices and forwards of the next step.
    """
    contents = contents_of(model, parallel, layout)
    stages = stage_memory(model, parallel, layout)
    flops = [
        muon_flops(model, parallel, content) if parallel.optimizer == "muon" else 0.0
        for content in contents
    ]
    P = parallel.pp
    if P == 1:
        took, alone = float(costs.optimizer.sum()), float(costs.optimizer.sum())
        return OptimizerStep(
            parallel.optimizer, sum(flops), took, float(stages.optimizer.sum()), took, alone
        )
    schedule = queues_of(parallel, costs)
    by_device = np.zeros((3, P))
    for (_, stage), device in np.ndenumerate(schedule.placement.devices):
        by_device[:, device] += np.array(
            [flops[stage], costs.optimizer[stage], stages.optimizer[stage]]
        )
    took = by_device[1]
    exposed_alone = None
    if len(schedule) <= MOST_OPS:
        schedule = add_optimizer(schedule, barrier=False, gathers=False, reduces=False)
        periods = [
            find_period(
                schedule, replace(costs.costs, others={**costs.costs.others, Kind.OPT: times})
            ).time
            for times in (took * 1e3, 0 * took)
        ]
        exposed_alone = (periods[0] - periods[1]) / 1e3
    return OptimizerStep(
        name=parallel.optimizer,
        flops=float(by_device[0].max()),
        seconds=float(took.max()),
        state_bytes=float(by_device[2].max()),
        exposed=exposed_alone
        if parallel.post_validation and exposed_alone is not None
        else float(took.max()),
        exposed_alone=exposed_alone,
    )
