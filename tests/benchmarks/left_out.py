"""How far predictions are from runs that the fit has not seen: each software, GPU, model and layout left out in turn.

python -m tests.benchmarks.left_out TABLE... [--by software] [--rows]

All numbers are fitted to all cases once; a fold is then fitted anew without its cases, from the same slopes, and its
cases are predicted with that. ``anchored`` corrects each case by one other run of the same software and GPU, the mean
over all of these.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from statistics import mean, median

import numpy as np

from ppsim.workload.hardware.efficiency import fitted
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


def leave_out(cases: Sequence[Case], linear: Linear, group: Callable[[Case], str]) -> Floats:
    """Return log(predicted / measured) of each case, predicted without the cases of its group."""
    names, found = np.array([group(case) for case in cases]), np.zeros(len(cases))
    for name in dict.fromkeys(names.tolist()):
        found[names == name] = leave_one_out(cases, linear, names == name)
    return found


def leave_one_out(cases: Sequence[Case], linear: Linear, out: np.ndarray) -> Floats:
    """Return the errors of the cases that ``out`` marks, predicted without them."""
    numbers = linear.numbers(linear.solve(np.where(out, 0.0, weights_of(cases))))
    return errors_of([case for case, gone in zip(cases, out, strict=True) if gone], numbers)


def anchored(cases: Sequence[Case], errors: Floats) -> list[float]:
    """Return the size of each case's error, corrected by one other run of its software and GPU: the mean over these."""
    found = []
    for number, case in enumerate(cases):
        others = [
            error
            for other, (alike, error) in enumerate(zip(cases, errors, strict=True))
            if other != number and (alike.software, alike.gpu) == (case.software, case.gpu)
        ]
        if others:
            found.append(mean(abs(math.exp(errors[number] - error) - 1) for error in others))
    return found


def numbers_of(errors: Sequence[float] | Floats) -> str:
    """Write mean, median and bias of errors as cells."""
    found = [math.exp(error) - 1 for error in errors]
    sizes = [abs(error) for error in found]
    return f"{mean(sizes):.1%} | {median(sizes):.1%} | {mean(found):+.1%}"


def table(cases: Sequence[Case], linear: Linear) -> list[str]:
    """Write the table of all folds."""
    lines = [
        "| left out | settings | mean | median | bias | one anchor, mean | median |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, group in FOLDS.items():
        errors = leave_out(cases, linear, group)
        sizes = anchored(cases, errors)
        first = f"| each {name} ({len({group(case) for case in cases})}) | {len(cases)}"
        lines.append(f"{first} | {numbers_of(errors)} | {mean(sizes):.1%} | {median(sizes):.1%} |")
    lines.append(f"| none: in sample | {len(cases)} | {numbers_of(linear.errors)} | | |")
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
    linear = linearize(cases, numbers)
    if not arguments.by:
        print("\n".join(table(cases, linear)))
        return
    group = FOLDS[arguments.by]
    errors = leave_out(cases, linear, group)
    for name in sorted({group(case) for case in cases}):
        here = [(case, error) for case, error in zip(cases, errors, strict=True) if group(case) == name]
        print(f"| {name} | {len(here)} | {numbers_of([error for _, error in here])} |")
        for case, error in here if arguments.rows else ():
            print(
                f"    {math.exp(error) - 1:+.1%} {case.rows[0].get('id')} {case.gpu} {case.model} {case.setup.parallel}"
            )


if __name__ == "__main__":
    main()
