"""Time the engine here and in another checkout, in turns.

    python -m tests.benchmarks.side_by_side ../other [WORDS]

Each checkout has a process. The two take turns, so that what else the machine does meets both. The
table has medians of processor time, and the median ratio of neighbouring turns: here over there.
``WORDS`` selects the rows whose name contains them.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TURNS = 15

# What each process is sent: a row's preparation once, then its statement over and over.
SERVE = """
import sys, time
sys.path.append(sys.argv[1])
from dataclasses import replace
import numpy as np
from ppsim.analysis.critical_path import slack_of
from ppsim.analysis.jitter import Noise, jitter
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
import importlib
compiled = importlib.import_module("ppsim.base.compiled")

def priced(schedule, **more):
    others = {Kind(code): 0.25 for code in np.unique(schedule.kind) if code > Kind.R}
    return costs_for(schedule, comm=0.1, others=others, **more)

names = globals()
for line in sys.stdin:
    kind, _, code = line.rstrip().partition(" ")
    begin = time.process_time()
    exec(code, names)
    print(time.process_time() - begin, flush=True)
"""
MAKE = "s = generate({0!r}, devices={1}, microbatches={2}); c = priced(s); simulate(s, c)"
SHAPES = ((8, 64), (64, 512), (256, 2048))


def rows() -> dict[str, tuple[str, str, bool]]:
    """Return for each row its preparation, what is timed, and whether machine code may run."""
    found: dict[str, tuple[str, str, bool]] = {}
    for name in ("1f1b", "interleaved", "zb-1p", "dualpipe-v", "vocab-2"):
        for devices, microbatches in SHAPES[: 2 if name == "vocab-2" else 3]:
            make, what = (
                MAKE.format(name, devices, microbatches),
                f"{name} {devices}x{microbatches}",
            )
            repeat = "for _ in range(20): " if devices == 8 else ""
            found[f"simulate {what} compiled"] = (make, f"{repeat}simulate(s, c)", True)
            if devices == 8:
                found[f"simulate {what} CPython"] = (
                    make,
                    "for _ in range(5): simulate(s, c)",
                    False,
                )
            if (devices, microbatches) == (64, 512):
                found[f"first simulate {what} compiled"] = (
                    make,
                    "r = replace(s); simulate(r, c)",
                    True,
                )
    for shape in ((8, 64), (64, 512)):
        for shared in (0, 4):
            others = "{Kind.OFFLOAD: 0.2, Kind.RELOAD: 0.2}"
            make = f"s = generate('v-half', devices={shape[0]}, microbatches={shape[1]})"
            make += f"; c = costs_for(s, others={others}, host_link={shared})"
            what = f"v-half offload {shape[0]}x{shape[1]} link of {shared}"
            add = "a = add_offload(replace(s), c, 1); simulate(a, c)"
            found[f"{what}: simulate compiled"] = (f"{make}; {add}", "simulate(a, c)", True)
            found[f"{what}: add and simulate"] = (make, add, True)
    for name, shape in (
        ("1f1b", (8, 64)),
        ("zb-1p", (8, 64)),
        ("vocab-2", (8, 64)),
        ("interleaved", (16, 128)),
    ):
        make, what = MAKE.format(name, *shape), f"{name} {shape[0]}x{shape[1]}"
        run = "jitter({'a': (s, c)}, Noise(), 1000)"
        found[f"jitter {what} warm"] = (f"{make}; {run}", run, True)
        found[f"first jitter {what} CPython"] = (make, f"s = replace(s); {run}", False)
        found[f"slack {what}"] = (make, "slack_of(simulate(s, c), c.latencies(s))", True)
        found[f"slack {what} CPython"] = (make, "slack_of(simulate(s, c), c.latencies(s))", False)
    make = (
        MAKE.format("1f1b", 8, 64)
        + "; from ppsim.engine.simple.batch import makespans; n = [c] * 1000"
    )
    found["makespans of 1000 costs, 1f1b 8x64 warm"] = (make, "makespans(s, n)", True)
    return found


def serve(checkout: Path, may_compile: bool) -> "subprocess.Popen[str]":
    """Start a process with the code of a checkout."""
    env = os.environ | {
        "PYTHONPATH": str(checkout),
        **({} if may_compile else {"NUMBA_DISABLE_JIT": "1"}),
    }
    return subprocess.Popen(
        [sys.executable, "-P", "-c", SERVE, str(checkout)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd="/",
    )


def ask(process: "subprocess.Popen[str]", code: str) -> float:
    """Run a line of code in a process; return its processor seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    print("run", code, file=process.stdin, flush=True)
    return float(process.stdout.readline())


def main() -> None:
    """Print the table."""
    other, word = Path(sys.argv[1]).resolve(), " ".join(sys.argv[2:])
    print("| | there, ms | here, ms | here / there |\n|---|---|---|---|")
    for name, (make, run, may_compile) in rows().items():
        if word not in name:
            continue
        pair = [serve(checkout, may_compile) for checkout in (other, ROOT)]
        for process in pair:
            if may_compile:
                ask(
                    process,
                    "compiled.machine_code_pays = lambda *_: True; "
                    "from ppsim.base.compiled import load",
                )
                ask(process, ALWAYS)
            ask(process, make)
            ask(process, run)
        turns = [[ask(process, run) for process in pair] for _ in range(TURNS)]
        for process in pair:
            process.stdin.close()  # type: ignore[union-attr]
            process.wait()
        ratio = statistics.median(here / there for there, here in turns)
        theirs, ours = (1e3 * statistics.median(column) for column in zip(*turns, strict=True))
        print(f"| {name} | {theirs:.2f} | {ours:.2f} | {ratio:.2f} |", flush=True)


# Every module that took the name keeps it.
ALWAYS = (
    "[setattr(m, 'pays', compiled.pays) for m in [*sys.modules.values()] "
    "if m.__name__.startswith('ppsim') and hasattr(m, 'pays')]"
)


if __name__ == "__main__":
    main()
