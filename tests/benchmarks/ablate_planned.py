"""What planning each split's order again adds to ``ppsim partition``: makespans with and without.

python -m tests.benchmarks.ablate_planned [SECONDS]

The schedules are those whose order depends on costs, on 4 devices with 8 microbatches; SECONDS (5)
is --time-limit. Without it the answer is the better of the even split and the best split for the
even split's order, each with an order of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

from ppsim.schedules import families
from ppsim.search.splits.partition import Partition
from ppsim.search.splits.split_search import Split
from tests.benchmarks.clock import machine
from tests.commands import invoke

HEADS = ("--t-head 1", "--t-head 2 --t-embedding 0.5", "--t-head 3 --b-over-f 1.5 --comm 0.2")
LAYERS = (16, 26)


def best_start(
    problem: Any,
    time_split: Callable[[Split], float],
    price: Any,
    starts: Sequence[Split],
    **options: Any,
) -> Partition:
    """The best of the splits that the search starts from."""
    least = min((time_split(split), split) for split in starts)
    return Partition((least[1], least[0]), (), False, "feasible", 0.0, len(starts))


def makespan(words: list[str]) -> float | None:
    """The makespan that the command finds; None where it refuses the schedule."""
    result = invoke("partition", *words, "--json")
    return None if result.exit_code else float(json.loads(result.stdout)["makespan"])


def main(seconds: float = 5.0) -> None:
    """Print a row for each case."""
    print(machine())
    print("schedule | layers | costs | with it | without | saved")
    for family, layers, costs in product((f for f in families() if f.uses_costs), LAYERS, HEADS):
        words = [
            family.name,
            "--devices",
            "4",
            "--mb",
            "8",
            "--num-layers",
            str(layers),
            *costs.split(),
        ]
        words += ["--time-limit", str(seconds)]
        found = makespan(words)
        if found is None:
            continue
        with patch("ppsim.search.splits.partition_planned.partition_planned", best_start):
            without = makespan(words)
        other = "none in time | " if without is None else f"{without:g} | {1 - found / without:.2%}"
        print(f"{family.name} | {layers} | {costs} | {found:g} | {other}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
