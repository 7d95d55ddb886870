"""How far predictions are from runs that the fit has not seen: each software, GPU, model and layout left out in turn.

python -m tests.benchmarks.left_out TABLE... [--by software] [--rows]

All numbers are fitted to all settings once; a fold is then fitted anew without its settings, from the same slopes, its
settings are predicted with that, and corrected by the runs of the others alone. ``one anchor`` adds one run of the same
software and GPU: the one before it in the tables.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.hardware.efficiency import fitted
from ppsim.workload.plans.nearby import EIGHTY, Measured, Nearby
from ppsim.workload.plans.published import anchors_of
from tests.benchmarks.fit_efficiency import (
    USUAL,
    Case,
    Floats,
    Linear,
    errors_of,
    fit,
    linearize,
    read_all,
    weights_of,
)

FOLDS: dict[str, Callable[[Case], str]] = {
    "software": lambda case: case.software,
    "GPU": lambda case: case.gpu,
    "model": lambda case: case.model,
    "layout": lambda case: case.layout,
}


@dataclass(frozen=True)
class Left:
    """Settings left out: log(predicted / measured) as modelled, corrected, with one anchor; and the spread of these."""

    modelled: Floats
    corrected: Floats
    anchored: Floats
    spread: Floats


def leave_one_out(cases: Sequence[Case], linear: Linear, out: NDArray[np.bool_]) -> Floats:
    """Return the errors of the cases that ``out`` marks, predicted without them."""
    numbers = linear.numbers(linear.solve(np.where(out, 0.0, weights_of(cases))))
    return errors_of([case for case, gone in zip(cases, out, strict=True) if gone], numbers)


def runs_of(cases: Sequence[Case]) -> list[Measured]:
    """Make the measured run of each case, with the library's numbers."""
    return [anchors_of(case.rows[:1])[0] for case in cases]


def leave_out(cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], names: Sequence[str]) -> Left:
    """Predict each case without all cases of its name."""
    called, count = np.array(names), len(cases)
    left = Left(*(np.zeros(count) for _ in range(4)))
    before = {
        number: next((i % count for i in range(number - 1, number - count, -1) if alike(cases[i], case)), None)
        for number, case in enumerate(cases)
    }
    for name in dict.fromkeys(names):
        out = called == name
        found = leave_one_out(cases, linear, out)
        kept = tuple(run for run, gone in zip(runs, out, strict=True) if not gone)
        others = Nearby(kept)
        for number, error in zip(np.flatnonzero(out).tolist(), found.tolist(), strict=True):
            correction = others.at(runs[number].setting)
            left.modelled[number], left.spread[number] = error, correction.spread
            left.corrected[number] = left.anchored[number] = error + math.log(correction.factor)
            other = before[number]
            if other is not None and out[other]:
                at = np.flatnonzero(out).tolist().index(other)
                anchor = replace(runs[other], error=-found[at])
                factor = Nearby(family_of(kept, anchor), (anchor,)).at(runs[number].setting).factor
                left.anchored[number] = error + math.log(factor)
    return left


def leave_runs_out(linear: Linear, runs: Sequence[Measured]) -> Left:
    """Predict each case with the numbers of all, corrected by the other runs."""
    whole = Nearby(tuple(runs))
    found = [whole.at(run.setting, run.seconds) for run in runs]
    corrected = linear.errors + np.log([each.factor for each in found])
    return Left(linear.errors, corrected, corrected, np.array([each.spread for each in found]))


def alike(one: Case, two: Case) -> bool:
    """Return whether two cases are of the same software and GPU."""
    return (one.software, one.gpu) == (two.software, two.gpu)


def family_of(runs: Sequence[Measured], run: Measured, most: int = 150) -> tuple[Measured, ...]:
    """Keep some runs of the family of another's GPU."""
    found = [each for each in runs if each.setting.family == run.setting.family]
    return tuple(found[:: max(1, len(found) // most)])


def cells(errors: Floats) -> str:
    """Write mean and median size of errors as cells."""
    sizes = np.abs(np.exp(errors) - 1)
    return f"{mean(sizes.tolist()):.1%} | {median(sizes.tolist()):.1%}"


def line(name: str, left: Left) -> str:
    """Write a line of the table."""
    inside = np.abs(left.corrected) <= EIGHTY * left.spread
    wide = np.median(np.exp(EIGHTY * left.spread) - 1)
    both = f"{cells(left.modelled)} | {cells(left.corrected)} | {cells(left.anchored)}"
    return f"| {name} | {len(left.spread)} | {both} | {inside.mean():.0%} | {wide:.0%} |"


def table(cases: Sequence[Case], linear: Linear, runs: Sequence[Measured]) -> list[str]:
    """Write the table of all folds."""
    lines = ["| left out | settings | mean | median | corrected | | one anchor | | in range | half-width |"]
    lines.append(f"|{'---|' * 10}")
    for name, group in FOLDS.items():
        names = [group(case) for case in cases]
        lines.append(line(f"each {name} ({len(set(names))})", leave_out(cases, linear, runs, names)))
    lines.append(line("each run, of the corrections alone", leave_runs_out(linear, runs)))
    return lines


def main() -> None:
    """Print the table, or one fold's groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--by", choices=FOLDS, help="print each group of this kind")
    parser.add_argument("--rows", action="store_true", help="with --by: print each case too")
    parser.add_argument("--rounds", type=int, default=0, help="of fitting to all first")
    arguments = parser.parse_args()
    cases = read_all(arguments.tables)
    numbers = fit(cases, USUAL, arguments.rounds)[0] if arguments.rounds else fitted()
    linear, runs = linearize(cases, numbers), runs_of(cases)
    if not arguments.by:
        print("\n".join(table(cases, linear, runs)))
        return
    names = [FOLDS[arguments.by](case) for case in cases]
    left = leave_out(cases, linear, runs, names)
    for name in sorted(set(names)):
        here = [i for i, other in enumerate(names) if other == name]
        print(line(name, Left(*(column[here] for column in vars(left).values()))))
        for i in here if arguments.rows else ():
            print(f"    {math.exp(left.modelled[i]) - 1:+.1%} {math.exp(left.corrected[i]) - 1:+.1%}", cases[i].rows[0])


if __name__ == "__main__":
    main()
