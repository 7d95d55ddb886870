"""Random settings against physics: a slower machine never shortens a step, more memory never
lengthens one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsim.base.toml import RefusedValue
from ppsim.errors import PpsimError
from ppsim.workload.cost.costs import queues_of, stage_costs, step_time
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.hardware import Machine, read_machine
from ppsim.workload.model.model import Model, library, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.fitting import fitting
from ppsim.workload.plans.software import Version, apply, softwares
from ppsim.workload.plans.task import usable_bytes
from tests.cases import HUNTS

pytestmark = pytest.mark.slow
MACHINES = ("dgx-a100", "dgx-h100", "h800", "gb200-nvl72", "dgx-b200", "mi300x", "l40s", "rtx-4090")
CHUNKS = {"interleaved": (2, 3, 4), "zb-v": (2,), "v-half": (2,), "dualpipe-v": (2,)}
SCHEDULES = ("1f1b", "gpipe", "zb-1p", *CHUNKS)
Setting = tuple[Model, Machine, Parallel]


def slower_links(
    machine: Machine, within: float = 1.0, between: float = 1.0, latency: float = 1.0
) -> Machine:
    """Divide bandwidths of a machine's links, and multiply its latencies."""
    cluster = machine.cluster
    assert cluster.intra.gb_per_s
    intra = replace(
        cluster.intra,
        gb_per_s=cluster.intra.gb_per_s / within,
        alpha_us=cluster.intra.alpha_us * latency,
    )
    inter, shared = cluster.inter, cluster.shared
    if inter and inter.gb_per_s:
        inter = replace(inter, gb_per_s=inter.gb_per_s / between, alpha_us=inter.alpha_us * latency)
    if shared.nic_gb_per_s:
        shared = replace(shared, nic_gb_per_s=shared.nic_gb_per_s / between)
    return replace(machine, cluster=replace(cluster, intra=intra, inter=inter, shared=shared))


def slower_gpu(machine: Machine, flops: float = 1.0, memory: float = 1.0) -> Machine:
    """Divide the peaks of a machine's GPU, and the bandwidth of its memory."""
    gpu = machine.gpu
    peaks = replace(gpu.tflops, **{name: peak / flops for name, peak in vars(gpu.tflops).items()})
    return replace(machine, gpu=replace(gpu, tflops=peaks, hbm_gb_per_s=gpu.hbm_gb_per_s / memory))


SLOWER: dict[str, Callable[[Machine], Machine]] = {
    "half the bandwidth inside nodes": lambda machine: slower_links(machine, within=2.0),
    "half the bandwidth between nodes": lambda machine: slower_links(machine, between=2.0),
    "twice the latency": lambda machine: slower_links(machine, latency=2.0),
    "four fifths of the peaks": lambda machine: slower_gpu(machine, flops=1.25),
    "half the memory's bandwidth": lambda machine: slower_gpu(machine, memory=2.0),
}


def random_setting(draw: np.random.Generator) -> Setting:
    """Draw a model, a machine and a run by some software of the library, until all of it goes
    together.
    """

    def one(of: Any) -> Any:
        return of[int(draw.integers(len(of)))]

    while True:
        machine, pp = read_machine(one(MACHINES)), one((1, 1, 2, 4, 8))
        schedule = one(SCHEDULES) if pp > 1 else ""
        precision = one(("bf16", "fp8")) if machine.gpu.tflops.fp8 else "bf16"
        try:
            model = read_model(one(tuple(library())))
            said = Version(one(tuple(softwares().values()))).techniques(
                machine.gpu, precision, model, schedule
            )
            said |= {
                "precision": precision,
                "recompute": one(("none", "none", "selective", "full")),
            }
            said |= {"zero": one((1, 1, 3)) if pp == 1 else 1}
            parallel = replace(
                apply(Parallel(), said),
                tp=one((1, 2, 4, 8)),
                cp=one((1, 1, 2)),
                ep=one((1, 2, 8, 32)) if model.experts else 1,
                pp=pp,
                dp=one((1, 2, 8, 32)),
                vp=one(CHUNKS.get(schedule, (1,))),
                mbs=one((1, 2)),
                microbatches=pp * one((1, 2, 4)),
                schedule=schedule,
            )
            machine.check_gpus(parallel.gpus)
            step_time(model, machine, parallel)
        except (PpsimError, RefusedValue):
            continue
        return model, machine, parallel


@pytest.mark.parametrize("seed", range(8 if HUNTS else 3))
def test_no_slower_machine_shortens_a_step(seed):
    """Settings of each seed, in the order of ops that the faster machine has: greedy orders may
    err either way.
    """
    draw = np.random.default_rng(seed)
    for _ in range(120):
        model, machine, parallel = random_setting(draw)
        costs = stage_costs(model, machine, parallel)
        queues = queues_of(parallel, costs) if parallel.pp > 1 else None
        step = step_time(model, machine, parallel, costs=costs, schedule=queues).seconds
        for what, slower in SLOWER.items():
            found = step_time(model, slower(machine), parallel, schedule=queues).seconds
            assert found >= step * 0.995, (what, model.name, machine.name, parallel)


def test_no_memory_that_is_added_lengthens_a_step():
    """A run that states neither recompute nor offload is taken to do what it needs to fit: with
    more memory, less.
    """
    draw, limited = np.random.default_rng(8), 0
    for _ in range(150):
        model, machine, parallel = random_setting(draw)
        parallel = replace(parallel, recompute="none")
        more = replace(machine, gpu=replace(machine.gpu, memory_gib=machine.gpu.memory_gib * 1.5))
        assert usable_bytes(more) > usable_bytes(machine)
        ways = [
            fitting(model, each, parallel, None, modules=True, offload=True)
            for each in (machine, more)
        ]
        if all(device_memory(model, way).total.max() > usable_bytes(machine) for way in ways[0]):
            continue  # nothing makes it fit, so it is taken as it is
        little, much = (
            min(step_time(model, each, way).seconds for way in found)
            for each, found in zip((machine, more), ways, strict=True)
        )
        limited += little > much
        assert much <= little * 1.005, (model.name, machine.name, parallel)
    assert limited >= 3
