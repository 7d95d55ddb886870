"""Fit the efficiency of GPUs and software on tables of published runs, and write it with what it was fitted on.

python -m tests.benchmarks.fit_efficiency TABLE... [--gpu NAME] [--software] [--stack NAME] [--folds 4] [--rounds 6]

Rows that say ``"set": "holdout"`` are left out. Rows with the same settings are predicted once and count together as
the square root of their number, as series in which only the number of replicas grows are nearly constant. The search
goes through one number after the other, in steps that shrink, from the numbers of the file and from usual ones; a
number far from the usual one, or from that of a chip of the same kind, costs the more the fewer settings there are.
``--stack`` fits a number of one software on its runs on all GPUs, their curves fixed. With ``--folds``, models and
sizes are left out in turn, and the error of what was left out is printed. GPUs without a run take the curve of a chip
of the same kind.
"""

import argparse
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from statistics import mean, median
from typing import Any, TypeVar

from ppsim.base import toml
from ppsim.errors import PpsimError
from ppsim.workload.cost.costs import step_time
from ppsim.workload.hardware.efficiency import PATH, SCHEMA, Curve, Efficiency, Fitted, Software, efficiency_of, fitted
from ppsim.workload.plans.row_numbers import Skipped
from ppsim.workload.plans.rows import Setup, read_table, setup_of

PRECISIONS = ("bf16", "fp8", "mxfp8", "fp4")
SHARES = (*PRECISIONS, "attention", "hbm", "within", "between")
PRIOR = 1.0  # what a factor of e away from the usual value costs, squared, in errors of one setting
USUAL = Curve("")
# GPUs with few runs or none: what is not known of them is as for a chip of the same kind.
KIN = {
    "a100-40gb": "a100-80gb",
    "b300": "gb300",
    "h100-96gb-500w": "h100",
    "h200": "h100",
    "mi300x": "mi355x",
    "mi325x": "mi355x",
}
# How many times rows of large models count beside the many of small ones, by what their file or source says.
LARGE = (("weak_scaling", 15), ("ground_truth_multi", 3), ("ground_truth_single", 1), ("2205.05198", 6))
POWER_LIMITED = ("h100-96gb-500w",)
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
    curve, usual = efficiency.curve, usual_of(efficiency.curve.gpu)
    weights = dict.fromkeys((*SHARES, "rows", "half"), 1.0)
    if curve.gpu in POWER_LIMITED:  # one number, not five
        weights |= dict.fromkeys((*PRECISIONS, "attention"), 0.2)
    far = sum(part * math.log(getattr(curve, name) / getattr(usual, name)) ** 2 for name, part in weights.items())
    return total / weight + PRIOR / max(len(cases), 1) * far


def usual_of(gpu: str) -> Curve:
    """Return the values that a curve is fitted from: those of a chip of the same kind, or usual ones."""
    curves = {curve.gpu: curve for curve in fitted().curve}
    host = curves.get(gpu, USUAL).host  # not of the chip, and not searched
    return replace(curves[KIN[gpu]] if gpu in KIN else USUAL, gpu=gpu, host=host)


def search(cases: list[Case], start: Efficiency, software: bool, rounds: int) -> Efficiency:
    """Search numbers of the curve, and of the software where asked, that make the loss small."""
    used = {case.setup.parallel.precision for case in cases} | {"bf16"}
    kinds = {"fp16": "bf16", "nvfp4": "fp4"}
    names: list[tuple[str, tuple[str, ...]]] = [("curve", (kinds.get(kind, kind),)) for kind in sorted(used)]
    if any(case.setup.parallel.flash for case in cases):
        names.append(("curve", ("attention",)))
    if start.curve.gpu in POWER_LIMITED:  # that limits all units
        names = [("curve", (*PRECISIONS, "attention"))]
    names += [("curve", (name,)) for name in ("hbm", "within", "between", "rows", "half")]
    if any(case.setup.parallel.overlap_tp and case.setup.parallel.tp > 1 for case in cases):
        names.append(("curve", ("hidden",)))
    if software:
        # Elementwise bytes are not searched: they and the memory's bandwidth stand for each other.
        left = ("name", "elementwise", "sharp", "expert_kernels")
        names += [("software", (name,)) for name in asdict(start.software) if name not in left]
    best, least, step = start, loss(cases, start), 0.2
    for number in range(rounds):
        for part, together in names:
            for factor in (1 + step, 1 / (1 + step)):
                while True:
                    values = {name: getattr(getattr(best, part), name) * factor for name in together}
                    if any(name in (*SHARES, "hidden") and value > 0.97 for name, value in values.items()):
                        break
                    tried = replace(best, **{part: replace(getattr(best, part), **values)})
                    found = loss(cases, tried)
                    if found > least - 1e-5:
                        break
                    best, least = tried, found
        step *= 0.7
        print(f"  round {number}: {least:.4f}", flush=True)
    return best


# Numbers of software that are fitted on the runs of that software on all GPUs, their curves fixed, and what is tried:
# bytes that fused experts move, at least 0.1 (a token is read and written); launches of experts without graphs.
ON_ALL_GPUS: dict[str, tuple[str, list[float]]] = {
    "fused-experts": ("routed", [percent / 100 for percent in range(10, 101, 2)]),
    "single-launches": ("expert_kernels", [float(times) for times in range(1, 61)]),
}


def with_number(software: Software, name: str, value: float) -> Software:
    """Replace one number of software."""
    changes: dict[str, Any] = {name: value}
    return replace(software, **changes)


def fit_stack(cases: list[Case], stack: str) -> Software:
    """Fit the number of a stack that runs on all GPUs decide, with given curves."""
    cases = [case for case in cases if case.setup.parallel.stack == stack and case.setup.model.experts]
    old = efficiency_of(cases[0].setup.machine.gpu, stack).software
    name, values = ON_ALL_GPUS[stack]
    tried = {}
    for value in values:
        software = with_number(old, name, value)
        found = [e for case in cases for e in errors([case], Efficiency(curve_of(case), software))]
        tried[float(value)] = sum(case.weight * mean(map(abs, rows)) for case, rows in found)
    best = with_number(old, name, min(tried, key=lambda value: tried[value]))
    found = [e for case in cases for e in errors([case], Efficiency(curve_of(case), best))]
    print(stack, name, getattr(best, name), describe(found))
    return best


def first_stack(cases: list[Case]) -> str:
    """Return the software that is fitted with a curve: the others are variants of fused."""
    stacks = {case.setup.parallel.stack for case in cases}
    return "eager" if "eager" in stacks else "fused"


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
    start = Efficiency(usual_of(cases[0].setup.machine.gpu.name), Software(first_stack(cases)))
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
    parser.add_argument("--stack", choices=sorted(ON_ALL_GPUS), help="fit what is known of this software only")
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=6)
    arguments = parser.parse_args()
    by_gpu = defaultdict(list)
    everything = read_cases(arguments.tables)
    if arguments.stack:
        write(Efficiency(curve_of(everything[0]), fit_stack(everything, arguments.stack)))
        return
    for case in everything:
        by_gpu[case.setup.machine.gpu].append(case)
    for gpu, cases in by_gpu.items():
        if arguments.gpu and gpu.name not in arguments.gpu:
            continue
        start = efficiency_of(gpu, first_stack(cases))
        print(gpu.name, "before:", describe(errors(cases, start)), flush=True)
        starts = [start] if arguments.software else [start, replace(start, curve=usual_of(gpu.name))]
        tried = [search(thin(cases), one, arguments.software, arguments.rounds) for one in starts]
        best = min(tried, key=lambda found: loss(thin(cases), found))
        after = describe(errors(cases, best))
        names = sorted(name for case in cases for name in case.names)
        seen = f"{after}; rows {names[0]} to {names[-1]}, {len(cases)} settings"
        print(gpu.name, "after:", after, best)
        if arguments.folds:
            left = cross_validate(cases, arguments.software, arguments.folds, arguments.rounds)
            print(gpu.name, "left out:", left)
            seen += f"; left out in {arguments.folds} folds by model and size: {left}"
        write(replace(best, curve=replace(best.curve, seen=seen)))
    known = {gpu.name for gpu in by_gpu}
    for name, kin in KIN.items():
        if name not in known:
            curves = {curve.gpu: curve for curve in fitted().curve}
            seen = f"no run of its own: as {kin}, a chip of the same kind"
            write(Efficiency(replace(curves[kin], gpu=name, seen=seen), fitted().software[0]))


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
