"""Fit the efficiency of GPUs and software on tables of published runs, and write it with what it was fitted on.

python -m tests.benchmarks.fit_efficiency TABLE... [--gpu NAME] [--software] [--routed] [--folds 4] [--rounds 6]

Rows that say ``"set": "holdout"`` are left out. Rows with the same settings are predicted once and count together as
the square root of their number, as series in which only the number of replicas grows are nearly constant. The search
goes through one number after the other, in steps that shrink, and a number far from its usual value costs a little.
``--routed`` fits nothing but how many bytes fused experts move, on the runs of that software on all GPUs, their curves
fixed. With ``--folds``, models and sizes are left out in turn, and the error of what was left out is printed.
"""

import argparse
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from statistics import mean, median
from typing import Any, TypeVar

from ppsim.base import toml
from ppsim.errors import PpsimError
from ppsim.planning.costs import step_time
from ppsim.planning.efficiency import PATH, SCHEMA, Curve, Efficiency, Fitted, Software, efficiency_of, fitted
from ppsim.planning.row_numbers import Skipped
from ppsim.planning.rows import Setup, read_table, setup_of

SHARES = ("bf16", "fp8", "mxfp8", "fp4", "attention", "hbm", "within", "between")
PRIOR = 0.01  # what a factor of e away from the usual value costs, squared
USUAL = Curve("")
# How many times rows of large models count beside the many of small ones, by what their file or source says.
LARGE = (("weak_scaling", 15), ("ground_truth_multi", 3), ("ground_truth_single", 1), ("2205.05198", 6))
Part = TypeVar("Part", Curve, Software)


@dataclass
class Case:
    """Runs with the same settings: their setup, what was measured, their names, and how much they count."""

    setup: Setup
    measured: list[float]
    names: list[str]
    weight: float
    group: str


def read_cases(paths: list[str]) -> list[Case]:
    """Read the rows that may be fitted on, those with the same settings together."""
    cases: dict[Any, Case] = {}
    for path in paths:
        for row in read_table(path):
            try:
                setup = setup_of(row)
            except (Skipped, PpsimError):
                continue
            if row.get("set", "give") != "give" or not setup.measured:
                continue
            key = (setup.model, setup.machine.name, setup.choices, str(setup.layout))
            group = f"{setup.model.name} {setup.model.layers} {setup.parallel.pp}x{setup.parallel.tp}"
            case = cases.setdefault(key, Case(setup, [], [], 0.0, group))
            case.measured.append(setup.measured)
            case.names.append(str(row.get("id", "?")))
            case.weight = math.sqrt(len(case.measured)) * {3: 0.2, 2: 1.0, 1: 1.0}.get(int(row.get("tier") or 1), 0.0)
            case.weight *= next((times for word, times in LARGE if word in f"{path} {row.get('source')}"), 1)
    return list(cases.values())


def predict(case: Case, efficiency: Efficiency) -> float | None:
    """Predict the step of a case, the fastest of its choices; with its own software where that is another."""
    stack = case.setup.parallel.stack
    if stack != efficiency.software.name:
        efficiency = replace(efficiency, software=efficiency_of(case.setup.machine.gpu, stack).software)
    times = []
    for parallel in case.setup.choices:
        try:
            step = step_time(case.setup.model, case.setup.machine, parallel, case.setup.layout, efficiency)
        except PpsimError:
            continue
        times.append(step.seconds)
    return min(times, default=None)


def errors(cases: list[Case], efficiency: Efficiency) -> list[tuple[Case, list[float]]]:
    """Return each case with the errors of its runs, as logarithms of predicted to measured."""
    found = []
    for case in cases:
        time = predict(case, efficiency)
        if time is not None:
            found.append((case, [math.log(time / measured) for measured in case.measured]))
    return found


def loss(cases: list[Case], efficiency: Efficiency) -> float:
    """Weighted mean of errors, large ones counting as somewhat more, and of what is far from usual."""
    total = weight = 0.0
    for case, found in errors(cases, efficiency):
        sizes = [min(abs(error), 0.7) for error in found]
        total += case.weight * mean(size + size * size for size in sizes)
        weight += case.weight
    curve = efficiency.curve
    far = sum(math.log(getattr(curve, name) / getattr(USUAL, name)) ** 2 for name in (*SHARES, "rows", "half"))
    return total / weight + PRIOR * far


def search(cases: list[Case], start: Efficiency, software: bool, rounds: int) -> Efficiency:
    """Search numbers of the curve, and of the software where asked, that make the loss small."""
    used = {case.setup.parallel.precision for case in cases}
    kinds = {"fp16": "bf16", "nvfp4": "fp4"}
    names = [("curve", kinds.get(kind, kind)) for kind in sorted(used | {"bf16"})]
    names += [("curve", name) for name in ("hbm", "within", "between", "rows", "half")]
    if any(case.setup.parallel.flash for case in cases):
        names.append(("curve", "attention"))
    if any(case.setup.parallel.overlap_tp and case.setup.parallel.tp > 1 for case in cases):
        names.append(("curve", "hidden"))
    if software:
        # Elementwise bytes are not searched: they and the memory's bandwidth stand for each other.
        names += [("software", name) for name in asdict(start.software) if name not in ("name", "elementwise", "sharp")]
    best, least, step = start, loss(cases, start), 0.2
    for number in range(rounds):
        for part, name in names:
            for factor in (1 + step, 1 / (1 + step)):
                while True:
                    value = getattr(getattr(best, part), name) * factor
                    if name in (*SHARES, "hidden") and value > 0.97:
                        break
                    tried = replace(best, **{part: replace(getattr(best, part), **{name: value})})
                    found = loss(cases, tried)
                    if found > least - 1e-5:
                        break
                    best, least = tried, found
        step *= 0.7
        print(f"  round {number}: {least:.4f}", flush=True)
    return best


def fit_routed(cases: list[Case]) -> Software:
    """Fit the share of bytes that fused experts move, at least 0.1 (a token is read and written), with given curves."""
    old = efficiency_of(cases[0].setup.machine.gpu, "fused-experts").software
    tried = {}
    for percent in range(10, 101, 2):
        software = replace(old, routed=percent / 100)
        found = [e for case in cases for e in errors([case], Efficiency(curve_of(case), software))]
        tried[percent] = sum(case.weight * mean(map(abs, rows)) for case, rows in found)
    best = replace(old, routed=min(tried, key=lambda percent: tried[percent]) / 100)
    print("routed:", best.routed, describe([e for c in cases for e in errors([c], Efficiency(curve_of(c), best))]))
    return best


def first_stack(cases: list[Case]) -> str:
    """Return the software that is fitted with a curve: fused-experts is a variant of fused."""
    return min(case.setup.parallel.stack for case in cases)


def curve_of(case: Case) -> Curve:
    """Return the curve of a case's GPU."""
    return efficiency_of(case.setup.machine.gpu, case.setup.parallel.stack).curve


def describe(found: list[tuple[Case, list[float]]]) -> str:
    """Describe errors: how many runs, mean and median size, bias."""
    flat = [math.exp(error) - 1 for _, rows in found for error in rows]
    sizes = [abs(error) for error in flat]
    return f"{len(flat)} runs, mean {mean(sizes):.1%}, median {median(sizes):.1%}, bias {mean(flat):+.1%}"


def cross_validate(cases: list[Case], software: bool, folds: int, rounds: int) -> str:
    """Fit from usual values without each fold of models and sizes in turn; describe the errors of what was left out."""
    start = Efficiency(
        Curve(cases[0].setup.machine.gpu.name), Software(min(case.setup.parallel.stack for case in cases))
    )
    groups = sorted({case.group for case in cases})
    left: list[tuple[Case, list[float]]] = []
    for fold in range(min(folds, len(groups))):
        out = set(groups[fold :: min(folds, len(groups))])
        kept = [case for case in cases if case.group not in out]
        if kept:
            best = search(thin(kept), start, software, rounds)
            left += errors([case for case in cases if case.group in out], best)
    return describe(left) if left else "one model only"


def thin(cases: list[Case]) -> list[Case]:
    """Keep some 200 of many cases that count once, evenly spread, and all others."""
    once = [case for case in cases if case.weight <= 1]
    return [case for case in cases if case.weight > 1] + once[:: max(len(once) // 200, 1)]


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--gpu", action="append", help="fit these GPUs only")
    parser.add_argument("--software", action="store_true", help="fit the software's numbers too")
    parser.add_argument("--routed", action="store_true", help="fit the bytes of fused experts only")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    by_gpu = defaultdict(list)
    everything = read_cases(arguments.tables)
    if arguments.routed:
        fused = [
            case for case in everything if case.setup.parallel.stack == "fused-experts" and case.setup.model.experts
        ]
        write(Efficiency(curve_of(fused[0]), fit_routed(fused)))
        return
    for case in everything:
        by_gpu[case.setup.machine.gpu].append(case)
    for gpu, cases in by_gpu.items():
        if arguments.gpu and gpu.name not in arguments.gpu:
            continue
        start = efficiency_of(gpu, first_stack(cases))
        print(gpu.name, "before:", describe(errors(cases, start)), flush=True)
        best = search(thin(cases), start, arguments.software, arguments.rounds)
        after = describe(errors(cases, best))
        names = sorted(name for case in cases for name in case.names)
        seen = f"{after}; rows {names[0]} to {names[-1]}, {len(cases)} settings"
        print(gpu.name, "after:", after, best)
        if arguments.folds:
            left = cross_validate(cases, arguments.software, arguments.folds, arguments.rounds)
            print(gpu.name, "left out:", left)
            seen += f"; left out in {arguments.folds} folds by model and size: {left}"
        write(replace(best, curve=replace(best.curve, seen=seen)))


def write(found: Efficiency) -> None:
    """Put a curve and its software into the file, in place of those of the same name."""
    fitted.cache_clear()
    old = fitted()
    curves = {curve.gpu: curve for curve in old.curve} | {found.curve.gpu: rounded(found.curve)}
    stacks = {software.name: software for software in old.software} | {found.software.name: rounded(found.software)}
    new = Fitted(tuple(curves[name] for name in sorted(curves)), tuple(stacks[name] for name in sorted(stacks)))
    PATH.write_text("# Written by tests/benchmarks/fit_efficiency.py.\n" + toml.dump(new, SCHEMA))


def rounded(part: Part) -> Part:
    """Round the numbers of a curve or of software to three digits."""
    numbers: dict[str, Any] = {k: float(f"{v:.3g}") for k, v in asdict(part).items() if isinstance(v, float)}
    return replace(part, **numbers)


if __name__ == "__main__":
    main()
