"""Costs of a stage on a cluster of several kinds of nodes: those of the slowest kind it is on."""

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
    """Parts of ``StageCosts`` on one kind of node, in seconds.

    Attributes:
        time: shape (5, stages), F, B, I, W and R.
        communication: shape (stages,), waiting for collectives in F and B.
        dp: shape (stages,), reducing gradients.
        gather: shape (stages,), gathering weights.
        optimizer: shape (stages,), the optimizer's step.
        hops: shape (devices, devices), a message from one device to another.
    """

    time: Floats
    communication: Floats
    dp: Floats
    gather: Floats
    optimizer: Floats
    hops: Floats


def kinds_of_devices(machine: Machine, parallel: Parallel) -> NDArray[np.bool_]:
    """Return whether a pipeline device has ranks on a kind of node, shape (devices, kinds).

    A device has one rank in each replica. If pipelines lie inside nodes, each device has ranks on
    all kinds.

    Raises:
        InputError: the run does not use all GPUs of the cluster.
    """
    if parallel.gpus != machine.gpus:
        raise InputError(
            f"a plan must use all GPUs of a cluster of {machine.title}, not {parallel.gpus:,}",
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
    """Return the costs of each stage on the slowest kind of node that holds it.

    A message costs as much as on the slower of its two ends.

    Args:
        machine: a cluster of several kinds.
        parallel: how the model is trained.
        each: for each kind, the costs of all stages on that kind.
    """
    device_on_kind = kinds_of_devices(machine, parallel)
    devices = np.zeros((1, parallel.stages), np.int32)
    if parallel.pp > 1:
        devices = place(
            find(parallel.schedule_name).placement, parallel.pp, parallel.stages
        ).devices
    stage_on_kind = np.asarray(device_on_kind[devices].any(axis=0).T)  # (kinds, stages)
    either_end = device_on_kind[:, None] | device_on_kind[None]
    hop_on_kind = np.asarray(either_end.transpose(2, 0, 1))  # (kinds, devices, devices)

    def largest(name: str, where: NDArray[np.bool_]) -> Floats:
        result: Floats = np.max(
            [
                np.where(here, getattr(pieces, name), 0.0)
                for pieces, here in zip(each, where, strict=True)
            ],
            axis=0,
        )
        return result

    columns = {
        name: largest(name, stage_on_kind)
        for name in ("time", "communication", "dp", "gather", "optimizer")
    }
    return Pieces(**columns, hops=largest("hops", hop_on_kind))
