"""The search against the best spans that are published: ratio, gap to the lower bound, and seconds of each problem.

python -m tests.benchmarks.bench_optimize [SECONDS [EVERY]]

SECONDS is the time limit of a search, EVERY takes every n-th problem only.
"""

import sys
import time

from ppsim.search.bounds import bound_problem
from ppsim.search.engine import search
from tests.benchmarks.clock import machine
from tests.search.published import read_caps, read_v_caps


def main(seconds: float = 10.0, every: int = 1) -> None:
    print(machine())
    worst, longest = 0.0, 0.0
    for name, problem, published in (read_v_caps() + read_caps())[::every]:
        began = time.perf_counter()
        found = search(problem, time_limit=seconds)
        took = time.perf_counter() - began
        if found is None:
            print(f"{name:32} infeasible", flush=True)
            continue
        ratio, gap = found.span / published, found.span / bound_problem(problem).span - 1
        worst, longest = max(worst, ratio), max(longest, took)
        print(f"{name:32} {found.span:12g} {ratio:8.5f} {gap:8.3%} {took:6.1f} s  {found.origin}", flush=True)
    print(f"worst ratio {worst:.5f}, longest {longest:.1f} s")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
