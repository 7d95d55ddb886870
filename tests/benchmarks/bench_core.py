"""The core under pytest-benchmark; not collected by a plain pytest, and nothing here can fail for
being slow.

pytest -n 0 tests/benchmarks/bench_core.py
"""

import numpy as np
import pytest

from ppsim.analysis.jitter import Noise, jitter
from ppsim.core.costs import Costs, costs_for
from ppsim.engine.simple.batch import makespans
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from tests.benchmarks.clock import compile_always


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p", "dualpipe-v"])
@pytest.mark.parametrize(("devices", "microbatches"), [(8, 64), (64, 512), (256, 2048)])
def test_shape_to_metrics(benchmark, name, devices, microbatches):
    """Generate, time and measure, the compiled kernel loaded."""
    compile_always()

    def run():
        schedule = generate(name, devices=devices, microbatches=microbatches)
        return measure(simulate(schedule, costs_for(schedule)))

    assert benchmark(run).makespan > 0


def test_batch_of_costs(benchmark):
    """1F1B 8 x 32 under 10,000 cost vectors."""
    schedule, rng = generate("1f1b", devices=8, microbatches=32), np.random.default_rng(0)
    costs = [Costs(rng.random((4, 8)), float(rng.random())) for _ in range(10_000)]
    assert len(benchmark(makespans, schedule, costs)) == len(costs)


def test_jitter(benchmark):
    """1F1B 8 x 32, 10,000 samples with noise on every op."""
    schedule = generate("1f1b", devices=8, microbatches=32)
    (result,) = benchmark(jitter, {"1f1b": (schedule, costs_for(schedule))}, Noise(), 10_000)
    assert len(result.makespans) == 10_000
