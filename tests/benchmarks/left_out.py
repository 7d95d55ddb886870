"""How far predictions are from runs that the fit has not seen: each software, GPU, model and layout left out in turn.

python -m tests.benchmarks.left_out TABLE... [--by software] [--rows] [--pairs]

All numbers are fitted to all settings once; a fold is then fitted anew without its settings, from the same slopes, its
settings are predicted with that, and corrected by the runs of the others alone. ``any anchor`` adds one run of the same
software and GPU, the mean over all that it may be; ``nearest`` the one that is most alike. *In range*: within as many
standard deviations as hold four in five of the cases of the other names. *Ranked*: of two settings of
a job, more than 5 % apart, the faster one is predicted to be; *regret*: how much slower the predicted fastest one
is than the fastest. Of software with hundreds of settings on one node every eighth counts; of random halves, each
predicted from the other, all are predicted and ranked.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.hardware.efficiency import fitted
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.nearby import Measured, Nearby, alike
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
    """Settings left out: log(predicted / measured) as modelled, corrected, with anchors; spread and half a range."""

    modelled: Floats
    corrected: Floats
    any: Floats
    nearest: Floats
    spread: Floats
    half: Floats


def leave_one_out(cases: Sequence[Case], linear: Linear, out: NDArray[np.bool_]) -> Floats:
    """Return the errors of all cases with numbers fitted without those that ``out`` marks; of the others by slopes."""
    logs = linear.solve(np.where(out, 0.0, weights_of(cases)))
    errors = linear.errors + linear.slopes @ (logs - linear.at)
    errors[out] = errors_of([case for case, gone in zip(cases, out, strict=True) if gone], linear.numbers(logs))
    return np.asarray(errors)


def runs_of(cases: Sequence[Case]) -> list[Measured]:
    """Make the measured run of each case, with the library's numbers."""
    return [anchors_of(case.rows[:1])[0] for case in cases]


def leave_out(cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], names: Sequence[str]) -> Left:
    """Predict each case without all cases of its name."""
    called, count = np.array(names), len(cases)
    left = Left(*(np.zeros(count) for _ in fields(Left)))
    for name in dict.fromkeys(names):
        out = called == name
        kept = predict(left, cases, linear, runs, out)
        for kind in {(cases[i].software, cases[i].gpu) for i in np.flatnonzero(out).tolist()}:
            here = [i for i in np.flatnonzero(out).tolist() if (cases[i].software, cases[i].gpu) == kind]
            left.any[here], left.nearest[here] = anchored(kept, [runs[i] for i in here], left.modelled[here])
            if len(here) == 1:
                left.any[here] = left.nearest[here] = left.corrected[here]
    return replace(left, half=halves(left.corrected, left.spread, called))


def predict(
    left: Left, cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], out: NDArray[np.bool_]
) -> tuple[Measured, ...]:
    """Write to ``left`` the errors of the cases that ``out`` marks, from the others alone; return the others."""
    found = leave_one_out(cases, linear, out)
    left.modelled[out] = found[out]
    kept = tuple(replace(runs[i], error=-found[i]) for i in np.flatnonzero(~out).tolist())
    others = Nearby(kept)
    for number in np.flatnonzero(out).tolist():
        correction = others.at(runs[number].setting)
        left.spread[number] = correction.spread
        left.corrected[number] = left.modelled[number] + math.log(correction.factor)
    return kept


def leave_half_out(cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], seed: int) -> Left:
    """Predict each random half of the cases from the other."""
    left = Left(*(np.zeros(len(cases)) for _ in fields(Left)))
    half = np.random.default_rng(seed).permutation(len(cases)) % 2 == 0
    for out in (half, ~half):
        predict(left, cases, linear, runs, out)
    return replace(left, any=left.corrected, nearest=left.corrected)


def halves(errors: Floats, spread: Floats, names: NDArray[Any]) -> Floats:
    """Return the half-widths within which four in five of the cases of all other names lie, in logarithms."""
    sizes = np.abs(errors) / spread
    several = {name: np.quantile(sizes[names != name], 0.8) for name in dict.fromkeys(names.tolist())}
    return spread * np.array([several[name] for name in names.tolist()])


def anchored(kept: Sequence[Measured], runs: Sequence[Measured], errors: Floats) -> tuple[Floats, Floats]:
    """Correct runs by each one of the others: the mean size of what is left, and what the nearest leaves."""
    settings, sizes, count = [run.setting for run in runs], np.zeros(len(runs)), len(runs)
    near, nearest = alike(settings, settings), errors.copy()
    near /= np.sqrt(np.outer(near.diagonal(), near.diagonal()))
    np.fill_diagonal(near, -1.0)
    for number, run in enumerate(runs if count > 1 else ()):
        anchor = replace(run, error=-errors[number])
        factors = Nearby(family_of(kept, anchor), (anchor,)).together(settings)[0]
        after = errors + np.log([each.factor for each in factors])
        sizes += np.where(np.arange(count) == number, 0.0, np.abs(np.exp(after) - 1)) / (count - 1)
        chosen = near.argmax(axis=1) == number
        nearest[chosen] = after[chosen]
    return np.log1p(sizes), nearest


def leave_runs_out(linear: Linear, runs: Sequence[Measured]) -> Left:
    """Predict each case with the numbers of all, corrected by the other runs; ranges by those of other software."""
    whole = Nearby(tuple(runs))
    found = [whole.at(run.setting, run.seconds) for run in runs]
    corrected = linear.errors + np.log([each.factor for each in found])
    spread, software = np.array([each.spread for each in found]), np.array([run.setting.software for run in runs])
    return Left(linear.errors, corrected, corrected, corrected, spread, halves(corrected, spread, software))


def family_of(runs: Sequence[Measured], run: Measured, most: int = 150) -> tuple[Measured, ...]:
    """Keep some runs of the family of another's GPU."""
    found = [each for each in runs if each.setting.family == run.setting.family]
    return tuple(found[:: max(1, len(found) // most)])


def cells(errors: Floats) -> str:
    """Write mean and median size of errors as a cell."""
    sizes = np.abs(np.exp(errors) - 1)
    return f"{mean(sizes.tolist()) * 100:.1f} / {median(sizes.tolist()) * 100:.1f} %"


def jobs_of(cases: Sequence[Case]) -> list[list[int]]:
    """List the numbers of the cases of each job."""
    jobs: dict[Any, list[int]] = {}
    for number, case in enumerate(cases):
        p, by = case.setup.parallel, (case.software, str(case.rows[0].get("release")))
        jobs.setdefault((case.setup.model, case.setup.machine.name, p.gpus, p.gbs, p.precision, by), []).append(number)
    return [job for job in jobs.values() if len(job) > 1]


def ranking(cases: Sequence[Case], errors: Floats) -> tuple[int, float, float]:
    """Return how many pairs of one job are more than 5 % apart, the share ranked right, and the mean regret."""
    measured = np.log([case.measured for case in cases])
    predicted, right, regret = measured + errors, [], []
    for job in jobs_of(cases):
        regret.append(math.exp(measured[min(job, key=lambda i: predicted[i])] - measured[job].min()) - 1)
        for one, two in combinations(job, 2):
            apart = measured[one] - measured[two]
            right += [int(apart * (predicted[one] - predicted[two]) > 0)] if abs(apart) > math.log(1.05) else []
    return len(right), mean(right or [1]), mean(regret or [0])


def pairs(cases: Sequence[Case], errors: Floats) -> list[str]:
    """Write ranked pairs by software and what differs: how many, ranked wrong, mean and size of second over first."""
    groups: dict[str, list[tuple[float, float]]] = {}
    for one, two in (pair for job in jobs_of(cases) for pair in combinations(job, 2)):
        first, second = sorted((cases[one].setup.parallel, cases[two].setup.parallel), key=sizes_of)
        if first is cases[two].setup.parallel:
            one, two = two, one
        apart = math.log(cases[two].measured / cases[one].measured)
        if abs(apart) > math.log(1.05):
            names = [f.name for f in fields(first) if getattr(first, f.name) != getattr(second, f.name)]
            name = " ".join([cases[one].software, *(n for n in names if n not in ("dp", "microbatches"))])
            groups.setdefault(name, []).append((apart, float(errors[two] - errors[one])))
    lines = []
    for name, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        off = [error for _, error in found]
        wrong = sum(apart * (apart + error) <= 0 for apart, error in found)
        lines.append(f"{name}: {len(found)}, wrong {wrong}, {mean(off):+.1%}, {mean(map(abs, off)):.1%}")
    return lines


def sizes_of(parallel: Parallel) -> tuple[int, ...]:
    """Return the sizes that order a pair."""
    return parallel.tp, parallel.cp, parallel.ep, parallel.pp, parallel.vp, parallel.mbs


def line(name: str, left: Left, right: float, regret: float) -> str:
    """Write a line of the table, with the share of pairs ranked right and the mean regret."""
    inside = np.abs(left.corrected) <= left.half
    wide = np.median(np.exp(left.half) - 1)
    each = " | ".join(cells(column) for column in (left.modelled, left.corrected, left.any, left.nearest))
    shares = " | ".join(f"{share * 100:.0f} %" for share in (inside.mean(), wide, right))
    return f"| {name} | {len(left.spread)} | {each} | {shares} | {regret * 100:.1f} % |"


def kind_of(case: Case) -> str:
    """Say which kind of run a case is."""
    if case.software == "megatron-deepspeed":
        return f"vTrain, {'one node' if on_one_node(case) else 'several nodes'}"
    p = case.setup.parallel
    dense = "dense with a pipeline" if p.pp > 1 else "dense without"
    return "mixtures of experts" if case.setup.model.experts else "FSDP" if p.zero == 3 else dense


def on_one_node(case: Case) -> bool:
    """Return whether a case's GPUs are those of one node."""
    return case.setup.parallel.gpus <= case.setup.machine.per_node


def thinned(cases: Sequence[Case], many: int = 500) -> list[int]:
    """Number the settings that are kept: of software with hundreds of them on one node every eighth there."""
    counts = Counter(case.software for case in cases if on_one_node(case))
    dense = [i for i, case in enumerate(cases) if on_one_node(case) and counts[case.software] > many]
    return sorted({*range(len(cases))} - {number for place, number in enumerate(dense) if place % 8})


def rows_of(left: Left, rows: Sequence[int]) -> Left:
    """Keep some cases."""
    return Left(*(column[rows] for column in vars(left).values()))


def tables(every: Sequence[Case], linear: Linear, draws: int = 5) -> list[str]:
    """Write the table of all folds, and one of kinds of runs: mean size of what is left after correction."""
    keep, all_runs = thinned(every), runs_of(every)
    drawn = [leave_half_out(every, linear, all_runs, seed) for seed in range(draws)]
    many, *ranked = np.mean([ranking(every, left.corrected) for left in drawn], axis=0).tolist()
    cases, runs = [every[i] for i in keep], [all_runs[i] for i in keep]
    linear = replace(linear, errors=linear.errors[keep], slopes=linear.slopes[keep])
    lines = ["| left out | settings | as modelled: mean / median | corrected | any anchor | nearest | in range |"]
    lines[0] += " half-width | ranked | regret |"
    lines.append(f"|{'---|' * 10}")
    folds = {}
    for name, group in FOLDS.items():
        names = [group(case) for case in cases]
        folds[name] = leave_out(cases, linear, runs, names)
        lines.append(line(f"each {name} ({len(set(names))})", folds[name], *ranking(cases, folds[name].corrected)[1:]))
    half = Left(*map(np.concatenate, zip(*(vars(rows_of(left, keep)).values() for left in drawn), strict=True)))
    software = np.array([case.software for case in cases] * draws)
    folds["half"] = replace(half, half=halves(half.corrected, half.spread, software))
    lines.append(line(f"each random half ({draws} draws)", folds["half"], *ranked))
    folds["run"] = leave_runs_out(linear, runs)
    lines.append(line("each run, of the corrections alone", folds["run"], *ranking(cases, folds["run"].corrected)[1:]))
    heads = " | ".join(folds)
    lines += [
        "",
        "The same, corrected, by kind of run:",
        "",
        f"| kind | settings | {heads} |",
        f"|{'---|' * (2 + len(folds))}",
    ]
    kinds = np.array([kind_of(case) for case in cases])
    for kind in sorted(set(kinds)):
        here = kinds == kind
        each = " | ".join(cells(left.corrected[np.resize(here, len(left.spread))]) for left in folds.values())
        lines.append(f"| {kind} | {(kinds == kind).sum()} | {each} |")
    several = np.quantile(np.concatenate([np.abs(f.corrected) / f.spread for f in folds.values()]), 0.8)
    names = [case.software for case in cases]
    parts = [f"{name} {cells(folds['software'].modelled[[n == name for n in names]])}" for name in sorted(set(names))]
    pairs = (
        f"{ranking(cases, linear.errors)[0]} pairs are ranked, of halves {many:.0f}; "
        f"four in five of all lie within {several:.2f} spreads."
    )
    left = cells(within_groups(cases, folds["software"].modelled))
    pairs += f" With the mean error of each left-out software on each GPU known, {left} would be left of them."
    return [*lines, "", f"By software left out, as modelled: {', '.join(parts)}. {pairs}", "", repeats(cases)]


def within_groups(cases: Sequence[Case], errors: Floats) -> Floats:
    """Return the errors less the mean of their software and GPU: what the best factor for each would leave."""
    kinds = np.array([f"{case.software} {case.gpu}" for case in cases])
    return errors - np.array([errors[kinds == kind].mean() for kind in kinds])


def repeats(cases: Sequence[Case]) -> str:
    """Say how far runs of one setting are from each other, which no prediction from settings can know."""
    each = [[float(row["step_s"]) for row in case.rows if row.get("release")] for case in cases]
    apart = [(max(steps) / min(steps) - 1) * 100 for steps in each if len(steps) > 1]
    return (
        f"What no prediction from these settings can know, newer releases among it: {len(apart)} settings have "
        f"several published runs, and the "
        f"slowest run takes {median(apart):.1f} % more than the fastest (median; {np.quantile(apart, 0.8):.1f} % in "
        f"four of five)."
    )


def main() -> None:
    """Print the table, or one fold's groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--by", choices=FOLDS, help="print each group of this kind")
    parser.add_argument("--rows", action="store_true", help="with --by: print each case too")
    parser.add_argument("--pairs", action="store_true", help="print how pairs of a job are ranked, by what differs")
    parser.add_argument("--rounds", type=int, default=0, help="of fitting to all first")
    arguments = parser.parse_args()
    every = read_all(arguments.tables)
    cases = [every[i] for i in thinned(every)]
    numbers = fit(cases, USUAL, arguments.rounds)[0] if arguments.rounds else fitted()
    if not (arguments.pairs or arguments.by):
        print("\n".join(tables(every, linearize(every, numbers))))
        return
    linear, runs = linearize(cases, numbers), runs_of(cases)
    if arguments.pairs:
        print("\n".join(pairs(cases, linear.errors)))
        return
    names = [FOLDS[arguments.by](case) for case in cases]
    left = leave_out(cases, linear, runs, names)
    for name in sorted(set(names)):
        here = [i for i, other in enumerate(names) if other == name]
        part = rows_of(left, here)
        print(line(name, part, *ranking([cases[i] for i in here], part.corrected)[1:]))
        for i in here if arguments.rows else ():
            print(f"    {math.exp(left.modelled[i]) - 1:+.1%} {math.exp(left.corrected[i]) - 1:+.1%}", cases[i].rows[0])


if __name__ == "__main__":
    main()
