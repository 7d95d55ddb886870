"""The detailed model at a million lowered ops, beside the simple one: ``python -m
tests.benchmarks.bench_network``.

Prints cpu nanoseconds: lowering, and execution in each mode per lowered op, with the ratio to the
simple model per op of the same run; needs are worked out again in each call, in both models. Then
CPython against compiled code, for the crossing that ``ppsim.base.compiled.COMPILE_TABLES_ABOVE``
stands for. Nothing is asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from ppsim.base import compiled
from ppsim.core.costs import Costs, costs_for
from ppsim.core.lowered import Lowered
from ppsim.core.schedule import Schedule
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import CHANNELS, Network, Shared
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple import longest_path as simple_model
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate

# devices, microbatches: about 1,000,000 lowered ops
SHAPES = ((16, 10_752), (64, 2_688), (256, 650), (1_024, 163))


def best(function: Callable[[], Any], tries: int = 5) -> float:
    """Least cpu seconds of several tries, after two that load what there is to load."""
    times = []
    for _ in range(2 + tries):
        begin = process_time()
        function()
        times.append(process_time() - begin)
    return min(times[2:])


def networks(devices: int) -> dict[str, Network]:
    """Every mode over links of their own, and overlap with bandwidth divided by device and by
    node.
    """
    link = Network("overlap", alpha=0.1, beta=10.0, message=1.0)
    each, node = np.arange(devices), np.arange(devices) // 8
    return {
        "latency": replace(link, mode="latency"),
        **{f"overlap, channel {c}": replace(link, channel=c, beta=np.inf) for c in CHANNELS},
        "blocking": replace(link, mode="blocking"),
        "batched": replace(link, mode="batched"),
        "overlap, shared by device": replace(link, channel="message", shared=(Shared(10.0, each),)),
        "overlap, shared by node": replace(link, shared=(Shared(40.0, node, node),)),
    }


def simply(schedule: Schedule, costs: Costs) -> None:
    """The simple model, from a schedule whose dependencies nobody has asked for."""
    simulate(replace(schedule), costs)


def in_detail(lowered: Lowered, costs: Costs, network: Network) -> None:
    """The detailed model, likewise."""
    execute(
        Lowered(replace(lowered.schedule), replace(lowered.compute), lowered.batch), costs, network
    )


def modes() -> None:
    """A table per shape."""
    for devices, microbatches in SHAPES:
        schedule = generate("1f1b", devices=devices, microbatches=microbatches)
        costs = costs_for(schedule)
        lowered = lower(schedule, "torch")
        lowering = best(partial(lower, schedule, "torch"), 1)
        ops = len(lowered.schedule) / 1e9
        print(
            f"{devices} devices, {len(lowered.schedule):,} lowered ops: lowering "
            f"{lowering / ops:.0f} ns per op"
        )
        for name, network in networks(devices).items():
            simple = best(partial(simply, schedule, costs)) / len(schedule) * 1e9
            detailed = best(partial(in_detail, lowered, costs, network)) / ops
            print(
                f"    {name:26} {detailed:4.0f} ns, simple {simple:3.0f} ns: "
                f"{detailed / simple:4.1f} times"
            )


def crossing() -> None:
    """CPython against compiled code, the loading of which costs about 0.5 s by itself."""
    for microbatches in (16, 64, 256, 1_024, 4_096):
        schedule = generate("1f1b", devices=16, microbatches=microbatches)
        costs, lowered, network = (
            costs_for(schedule),
            lower(schedule),
            Network("overlap", alpha=0.1),
        )
        took = []
        for compiled.COMPILE_TABLES_ABOVE in (10**9, 0):
            took.append(best(partial(execute, lowered, costs, network), 1))
        print(
            f"{len(lowered.schedule):>8,} lowered ops: CPython {took[0]:.3f} s, compiled "
            f"{took[1]:.3f} s"
        )


if __name__ == "__main__":
    crossing()
    compiled.COMPILE_TABLES_ABOVE = simple_model.COMPILE_SIMULATION_ABOVE = 0
    modes()
