"""The detailed model at a million lowered ops, beside the simple one: ``python -m tests.benchmarks.bench_network``.

Prints cpu seconds: lowering, execution in each mode, and the ratio to the simple model per op; then CPython against
compiled code, for the crossing that ``ppsim.execute.COMPILE_ABOVE`` stands for. Nothing is asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from ppsim import execute as execution
from ppsim.costs import costs_for
from ppsim.engine import simulate
from ppsim.execute import execute
from ppsim.lowering import lower
from ppsim.network import MODES, Network, Shared
from ppsim.schedules import generate

SHAPES = ((16, 10_752), (64, 2_688), (256, 650), (1_024, 163))  # devices, microbatches: about 1,000,000 lowered ops


def best(function: Callable[[], Any], tries: int = 3) -> float:
    """Least cpu seconds of several tries, after one that loads what there is to load."""
    function()
    times = []
    for _ in range(tries):
        begin = process_time()
        function()
        times.append(process_time() - begin)
    return min(times)


def networks(devices: int) -> dict[str, Network]:
    """Every mode over links of their own, and overlap with bandwidth divided by device and by node."""
    link = Network("overlap", alpha=0.1, beta=10.0, message=1.0)
    each, node = np.arange(devices), np.arange(devices) // 8
    return {
        **{mode: replace(link, mode=mode) for mode in MODES},
        "overlap, shared by device": replace(link, channel="message", shared=(Shared(10.0, each),)),
        "overlap, shared by node": replace(link, shared=(Shared(40.0, node, node),)),
    }


def modes() -> None:
    """A table per shape."""
    for devices, microbatches in SHAPES:
        schedule = generate("1f1b", devices=devices, microbatches=microbatches)
        costs = costs_for(schedule)
        lowered = lower(schedule, "torch")
        simple = best(partial(simulate, schedule, costs)) / len(schedule)
        lowering = best(partial(lower, schedule, "torch"), 1)
        print(f"{devices} devices, {len(lowered.schedule):,} lowered ops: lowering {lowering:.2f} s")
        for name, network in networks(devices).items():
            seconds = best(partial(execute, lowered, costs, network))
            ratio = seconds / len(lowered.schedule) / simple
            print(f"    {name:28} {seconds:.2f} s, {ratio:.1f} times the simple model per op")


def crossing() -> None:
    """CPython against compiled code, the loading of which costs about 0.9 s by itself."""
    for microbatches in (16, 64, 256, 1_024, 4_096):
        schedule = generate("1f1b", devices=16, microbatches=microbatches)
        costs, lowered, network = costs_for(schedule), lower(schedule), Network("overlap", alpha=0.1)
        took = []
        for execution.COMPILE_ABOVE in (10**9, 0):
            took.append(best(partial(execute, lowered, costs, network), 1))
        print(f"{len(lowered.schedule):>8,} lowered ops: CPython {took[0]:.3f} s, compiled {took[1]:.3f} s")


if __name__ == "__main__":
    crossing()
    execution.COMPILE_ABOVE = 0
    modes()
