"""Several kinds of nodes in one cluster: the kinds that hold a stage, and its costs on the slowest
of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.schedule import place
from ppsim.errors import InputError
from ppsim.schedules import find
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.operators import Floats
from ppsim.workload.model.parallel import Parallel


class Pieces(NamedTuple):
    """Costs in seconds before they are put together; as of ``StageCosts``.

    Attributes:
        time: shape (5, stages).
        communication: shape (stages,).
        dp: shape (stages,).
        gather: shape (stages,).
        optimizer: shape (stages,).
        hops: shape (devices, devices), of a message.
    """

    time: Floats
    communication: Floats
    dp: Floats
    gather: Floats
    optimizer: Floats
    hops: Floats


def kinds_of_devices(machine: Machine, parallel: Parallel) -> NDArray[np.bool_]:
    """Find the kinds of nodes on which each pipeline device has ranks, shape (devices, kinds).

    A device has a rank of each replica: with pipelines inside nodes, on all kinds.

    Raises:
        InputError: the run has not as many GPUs as the cluster.
    """
    if parallel.gpus != machine.gpus:
        raise InputError(
            f"a cluster of {machine.title} is planned whole, not {parallel.gpus:,} GPUs of it",
            "--dp N",
        )
    if parallel.pipeline_first:
        return np.ones((parallel.pp, len(machine.kinds)), np.bool_)
    ends = np.cumsum([kind.gpus for kind in machine.kinds])
    first = np.arange(parallel.pp)[:, None] * (parallel.gpus // parallel.pp)
    last = first + parallel.gpus // parallel.pp
    found: NDArray[np.bool_] = (first < ends) & (
        last > ends - [kind.gpus for kind in machine.kinds]
    )
    return found


def slowest(machine: Machine, parallel: Parallel, each: Sequence[Pieces]) -> Pieces:
    """Take for each stage its costs on the slowest kind of node that holds it, and for each message
    at either end.

    Args:
        machine: of several kinds.
        parallel: how the model is trained.
        each: the costs of all stages on each kind alone.
    """
    on = kinds_of_devices(machine, parallel)
    devices = np.zeros((1, parallel.stages), np.int32)
    if parallel.pp > 1:
        devices = place(
            find(parallel.schedule_name).placement, parallel.pp, parallel.stages
        ).devices
    held = np.asarray(on[devices].any(axis=0).T)  # (kinds, stages)
    ends = np.asarray((on[:, None] | on[None]).transpose(2, 0, 1))  # (kinds, devices, devices)

    def most(name: str, where: NDArray[np.bool_]) -> Floats:
        result: Floats = np.max(
            [np.where(on, getattr(p, name), 0.0) for p, on in zip(each, where, strict=True)], axis=0
        )
        return result

    columns = {
        name: most(name, held) for name in ("time", "communication", "dp", "gather", "optimizer")
    }
    return Pieces(**columns, hops=most("hops", ends))
