"""``ppsim optimize`` against the best spans that are published: ratio, gap to its bound, and
seconds of each problem.

python -m tests.benchmarks.bench_optimize [SECONDS [EVERY]]

SECONDS is the time limit (the command's own when 0), EVERY takes every n-th problem only. The
command runs in this process; with NUMBA_CACHE_DIR on an empty folder the first problems compile as
on a new machine.
"""

import json
import sys
import time

import numpy as np

from ppsim.core.ops import Kind
from ppsim.search.problem import Problem
from tests.benchmarks.clock import machine
from tests.commands import invoke
from tests.search.orders.published import read_caps, read_v_caps


def words_of(problem: Problem, seconds: float) -> list[str]:
    """Write a problem with equal stages as the command's options."""
    times = {
        f"--t{kind.name.lower()}": problem.costs.time[kind, 0] for kind in (Kind.F, Kind.I, Kind.W)
    }
    options = {
        "--devices": problem.n_devices,
        "--mb": problem.microbatches,
        "--placement": problem.placement.name,
        "--cost-per": "stage",
        **times,
        "--comm": problem.costs.comm,
        "--cap": float(problem.caps.min()),
        "--after-i": problem.after_i,
        **({"--time-limit": seconds} if seconds else {}),
    }
    return [str(word) for pair in options.items() for word in pair] + ["--json"]


def main(seconds: float = 0.0, every: int = 1) -> None:
    print(machine())
    worst, longest = 0.0, 0.0
    for name, problem, published in (read_v_caps() + read_caps())[::every]:
        began, busy = time.perf_counter(), time.process_time()
        result = invoke("optimize", *words_of(problem, seconds))
        took, busy = time.perf_counter() - began, time.process_time() - busy
        if result.exit_code:
            print(f"{name:32} exit code {result.exit_code}: {result.exception}", flush=True)
            continue
        found = json.loads(result.stdout)
        ratio = found["span"] / published
        fitting = min((k["span"] for k in found["known"] if k["fits"]), default=np.inf)
        worst, longest = max(worst, ratio), max(longest, took)
        note = "" if found["span"] <= fitting else "  WORSE THAN THE LIST"
        print(
            f"{name:32} {found['span']:12g} {ratio:8.5f} {found['gap']:8.3%} {took:6.1f} s, "
            f"{busy:5.1f} of the CPU  {found['status']:8} {found['origin']}{note}",
            flush=True,
        )
    print(f"worst ratio {worst:.5f}, longest {longest:.1f} s")


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if len(sys.argv) > 1 else 0.0,
        int(sys.argv[2]) if len(sys.argv) > 2 else 1,
    )
