"""From how many ops on loading the compiled kernel pays: whole processes, processor seconds.

python -m tests.benchmarks.crossing
"""

import subprocess
import sys
import time
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median

from tests.benchmarks.clock import machine

PROGRAM = """
import sys
from ppsim.core.costs import costs_for
from ppsim.schedules import generate
from ppsim.engine.simple.longest_path import simulate
from tests.benchmarks.clock import compile_always
compile_always(int(sys.argv[4]))
schedule = generate(sys.argv[1], devices=int(sys.argv[2]), microbatches=int(sys.argv[3]))
print(simulate(schedule, costs_for(schedule)).makespan)
"""
SHAPES = ((16, 64), (64, 512), (64, 1000), (128, 1000), (256, 1024), (256, 2048))


def whole(name: str, devices: int, microbatches: int, above: int) -> float:
    """Processor seconds of a process that times one schedule."""
    before = getrusage(RUSAGE_CHILDREN)
    arguments = [sys.executable, "-c", PROGRAM, name, *map(str, (devices, microbatches, above))]
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a table and the crossing point for schedules of one stream, and for those of
    several.
    """
    for name in ("1f1b", "bpipe"):
        begin = time.perf_counter()
        whole(name, 4, 8, 0)  # compiles where nothing is kept yet
        print(
            f"{name}: first use, compiling if need be: {time.perf_counter() - begin:.1f} s "
            f"({machine()})"
        )
        print("| stages x microbatches | CPython | compiled |\n|---|---|---|")
        crossing = ""
        for shape in SHAPES:
            plain, compiled = (
                median(whole(name, *shape, a) for _ in range(3)) for a in (sys.maxsize, 0)
            )
            at = "{} x {}".format(*shape)
            crossing = crossing or at * (compiled < plain)
            print(f"| {at} | {plain:.2f} s | {compiled:.2f} s |", flush=True)
        print(
            f"the compiled kernel pays from {crossing} on"
            if crossing
            else "the compiled kernel does not pay here"
        )


if __name__ == "__main__":
    main()
