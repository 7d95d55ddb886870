"""How far predictions are from runs that the fit has not seen: jobs, sources, software, GPUs ...
left out in turn.

python -m tests.benchmarks.left_out TABLE... [--by source] [--rows] [--pairs]

A job is one model on one GPU with one family of layouts. Its runs are never divided between those
fitted and those predicted, as runs that differ in batch or in degrees say much of each other. All
numbers are fitted to all settings once; a fold is then fitted again without its settings, from the
same slopes, its settings are predicted with that, and corrected by the runs of the others alone, as
``plan`` does. *Anchored*: by one run of the same source, software and GPU, the mean over all that
it may be. *Unnamed*: software whose rows name it as nothing that the library has. *In range*: of
the range that ``plan`` prints. *Ranked*: of two settings of a job, more
than 5 % apart, the faster one is predicted to be; *regret*: how much slower the predicted fastest
one is than the fastest. Of hundreds of settings of one software on one node the first of each model
counts. Rows that are marked as faulty are fitted, and judge nothing.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.hardware.efficiency import FittedNumbers, fitted
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.nearby import KNOWN, UNNAMED, UNSEEN, Measured, Nearby
from ppsim.workload.plans.published import anchors_of, setup_of
from tests.benchmarks.fit_efficiency import (
    USUAL,
    Case,
    Floats,
    Linear,
    errors_of,
    fit,
    linearize,
    read_all,
    thinned,
)

FOLDS: dict[str, Callable[[Case], str]] = {
    "source": lambda case: case.source,
    "software": lambda case: case.software,
    "GPU": lambda case: case.gpu,
    "model": lambda case: case.model,
    "layout": lambda case: case.layout,
}
DRAWS = 5
# Shares of settings in ranges, each source counted alike, that are four in five of all settings
# where software and GPU were seen and where they were not.
WITHIN, FARTHER = 0.75, 0.9
# software that NVIDIA tunes and publishes; a stranger's own is unlike it
TUNED = ("megatron-core", "megatron-bridge", "nemo")


@dataclass(frozen=True)
class Left:
    """Settings left out: log(predicted / measured) as modelled, corrected, with an anchor; half a
    range.
    """

    modelled: Floats
    corrected: Floats
    anchored: Floats
    half: Floats


def leave_one_out(cases: Sequence[Case], linear: Linear, out: NDArray[np.bool_]) -> Floats:
    """Return the errors of all cases with numbers fitted without those that ``out`` marks; of the
    others by slopes.
    """
    logs = linear.solve(np.where(out, 0.0, 1.0))
    errors = linear.errors + linear.slopes @ (logs - linear.at)
    errors[out] = errors_of(
        [case for case, gone in zip(cases, out, strict=True) if gone], linear.numbers(logs)
    )
    return np.asarray(errors)


def runs_of(cases: Sequence[Case]) -> list[Measured]:
    """Make the measured run of each case, with the library's numbers."""
    return [anchors_of(case.rows[:1])[0] for case in cases]


def leave_out(
    cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], names: Sequence[str]
) -> Left:
    """Predict each case without all cases of its name."""
    called, count = np.array(names), len(cases)
    left = Left(*(np.zeros(count) for _ in fields(Left)))
    for name in dict.fromkeys(names):
        out = called == name
        found = leave_one_out(cases, linear, out)
        left.modelled[out] = found[out]
        here = [replace(run, error=-error) for run, error in zip(runs, found.tolist(), strict=True)]
        others = tuple(run for run, gone in zip(here, out.tolist(), strict=True) if not gone)
        correct(left, cases, here, np.flatnonzero(out).tolist(), others)
    return left


def correct(
    left: Left,
    cases: Sequence[Case],
    runs: Sequence[Measured],
    numbers: Sequence[int],
    others: tuple[Measured, ...],
) -> None:
    """Write to ``left`` what other runs correct of the cases of some numbers, and what one anchor
    more does.
    """
    known = Nearby(others)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number in numbers:
        case = cases[number]
        groups.setdefault((case.source, case.software, case.gpu), []).append(number)
        correction = known.correction_at(runs[number].setting)
        left.half[number] = correction.half
        left.corrected[number] = left.modelled[number] + math.log(correction.factor)
        left.anchored[number] = left.corrected[number]
    for group in groups.values():
        after = {number: [] for number in group}  # type: dict[int, list[float]]
        for anchor in group:
            with_anchor = Nearby(others, (runs[anchor],))
            for number in group:
                if number != anchor:
                    moved = math.log(with_anchor.correction_at(runs[number].setting).factor)
                    after[number].append(abs(math.exp(left.modelled[number] + moved) - 1))
        for number, sizes in after.items():
            if sizes:
                left.anchored[number] = math.log1p(mean(sizes))


def shared_part(
    cases: Sequence[Case], runs: Sequence[Measured], errors: Floats, names: Sequence[str]
) -> float:
    """Return the part of a setting's error that another setting of the same source, software, GPU
    and kind of model has too: the slope of least squares, each setting alike.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, (case, name) in enumerate(zip(cases, names, strict=True)):
        groups.setdefault((name, case.source, case.software, case.gpu), []).append(number)
    both = square = 0.0
    for group in groups.values():
        for number in group:
            others = [
                float(errors[other])
                for other in group
                if other != number and runs[other].setting.corrects(runs[number].setting)
            ]
            if others:
                both += float(errors[number]) * mean(others)
                square += mean(error**2 for error in others)
    return both / square


def leave_half_out(
    cases: Sequence[Case], linear: Linear, runs: Sequence[Measured], seed: int
) -> Left:
    """Predict each random half of the jobs from the other half."""
    jobs = sorted({case.twins for case in cases})
    order = np.random.default_rng(seed).permutation(len(jobs)).tolist()
    half = {job: str(place % 2) for job, place in zip(jobs, order, strict=True)}
    return leave_out(cases, linear, runs, [half[case.twins] for case in cases])


def unnamed(case: Case) -> Case:
    """Return a case whose row names software that the library lacks."""
    said = {
        key: value
        for key, value in case.rows[0].items()
        if key not in ("framework", "release", "software")
    }
    row = said | {"framework": f"trainer {sum(map(ord, case.software))}"}  # no word of any
    return replace(case, setup=setup_of(row), rows=(row,))


def cells(errors: Floats) -> str:
    """Write mean and median size of errors as a cell."""
    sizes = np.abs(np.exp(errors) - 1)
    return f"{mean(sizes.tolist()) * 100:.1f} / {median(sizes.tolist()) * 100:.1f} %"


def jobs_of(cases: Sequence[Case]) -> list[list[int]]:
    """List the numbers of the cases of each job."""
    jobs: dict[Any, list[int]] = {}
    for number, case in enumerate(cases):
        p, by = case.setup.parallel, (case.software, str(case.rows[0].get("release")))
        jobs.setdefault(
            (case.setup.model, case.setup.machine.name, p.gpus, p.gbs, p.precision, by), []
        ).append(number)
    return [job for job in jobs.values() if len(job) > 1]


def ranking(cases: Sequence[Case], errors: Floats) -> tuple[int, float, float]:
    """Return how many pairs of one job are more than 5 % apart, the share ranked right, and the
    mean regret.
    """
    measured = np.log([case.measured for case in cases])
    predicted, right, regret = measured + errors, [], []
    for job in jobs_of(cases):
        regret.append(
            math.exp(measured[min(job, key=lambda i: predicted[i])] - measured[job].min()) - 1
        )
        for one, two in combinations(job, 2):
            apart = measured[one] - measured[two]
            right += (
                [int(apart * (predicted[one] - predicted[two]) > 0)]
                if abs(apart) > math.log(1.05)
                else []
            )
    return len(right), mean(right or [1]), mean(regret or [0])


def pairs(cases: Sequence[Case], errors: Floats) -> list[str]:
    """Write ranked pairs by software and what differs: how many, ranked wrong, mean and size of
    second over first.
    """
    groups: dict[str, list[tuple[float, float]]] = {}
    for one, two in (pair for job in jobs_of(cases) for pair in combinations(job, 2)):
        first, second = sorted((cases[one].setup.parallel, cases[two].setup.parallel), key=sizes_of)
        if first is cases[two].setup.parallel:
            one, two = two, one
        apart = math.log(cases[two].measured / cases[one].measured)
        if abs(apart) > math.log(1.05):
            names = [
                f.name for f in fields(first) if getattr(first, f.name) != getattr(second, f.name)
            ]
            name = " ".join(
                [cases[one].software, *(n for n in names if n not in ("dp", "microbatches"))]
            )
            groups.setdefault(name, []).append((apart, float(errors[two] - errors[one])))
    lines = []
    for name, found in sorted(groups.items(), key=lambda group: -len(group[1])):
        off = [error for _, error in found]
        wrong = sum(apart * (apart + error) <= 0 for apart, error in found)
        lines.append(
            f"{name}: {len(found)}, wrong {wrong}, {mean(off):+.1%}, {mean(map(abs, off)):.1%}"
        )
    return lines


def sizes_of(parallel: Parallel) -> tuple[int, ...]:
    """Return the sizes that order a pair."""
    return parallel.tp, parallel.cp, parallel.ep, parallel.pp, parallel.vp, parallel.mbs


def line(name: str, left: Left, right: float, regret: float) -> str:
    """Write a line of the table, with the share of pairs ranked right and the mean regret."""
    inside = np.abs(left.corrected) <= left.half
    wide = np.median(np.exp(left.half) - 1)
    each = " | ".join(cells(column) for column in (left.modelled, left.corrected, left.anchored))
    shares = " | ".join(f"{share * 100:.0f} %" for share in (inside.mean(), wide, right))
    return f"| {name} | {len(left.half)} | {each} | {shares} | {regret * 100:.1f} % |"


def kind_of(case: Case) -> str:
    """Say which kind of run a case is."""
    if case.software == "megatron-deepspeed":
        return f"vTrain, {'one node' if case.on_one_node else 'several nodes'}"
    p = case.setup.parallel
    dense = "dense with a pipeline" if p.pp > 1 else "dense without"
    return "mixtures of experts" if case.setup.model.experts else "FSDP" if p.zero == 3 else dense


def rows_of(left: Left, rows: Sequence[int]) -> Left:
    """Keep some cases."""
    return Left(*(column[rows] for column in vars(left).values()))


def tables(every: Sequence[Case], numbers: FittedNumbers) -> list[str]:
    """Write the table of all folds, and one of kinds of runs: mean size of what is left after
    correction.

    Args:
        every: all settings.
        numbers: fitted to them.
    """
    cases = [every[i] for i in thinned(every)]
    linear, runs = linearize(cases, numbers), runs_of(cases)
    lines = [
        "| left out | settings | as modelled: mean / median | corrected | with one anchor | in "
        "range |"
    ]
    lines[0] += " half-width | ranked | regret |"
    lines.append(f"|{'---|' * 9}")
    judged = [number for number, case in enumerate(cases) if not case.faulty]
    drawn = [rows_of(leave_half_out(cases, linear, runs, seed), judged) for seed in range(DRAWS)]
    names = {fold: [group(case) for case in cases] for fold, group in FOLDS.items()}
    left = {
        fold: rows_of(leave_out(cases, linear, runs, called), judged)
        for fold, called in names.items()
    }
    strange = [unnamed(case) for case in cases]
    nobody = leave_out(strange, linear, runs_of(strange), names["software"])
    tuned = np.array([cases[i].software in TUNED for i in judged])
    cases, errors = [cases[i] for i in judged], linear.errors[judged]
    ranked = np.mean([ranking(cases, one.corrected)[1:] for one in drawn], axis=0).tolist()
    halves = Left(*map(np.concatenate, zip(*(vars(one).values() for one in drawn), strict=True)))
    jobs = len({case.twins for case in cases})
    lines.append(line(f"each random half of {jobs} jobs ({DRAWS} draws)", halves, *ranked))
    for fold, one in left.items():
        count = len({FOLDS[fold](case) for case in cases})
        lines.append(line(f"each {fold} ({count})", one, *ranking(cases, one.corrected)[1:]))
    nobody = rows_of(nobody, judged)
    for name, here in (("of NVIDIA's own", tuned), ("of all others", ~tuned)):
        part = np.flatnonzero(here).tolist()
        mine = [cases[i] for i in part]
        few, said = rows_of(nobody, part), len({case.software for case in mine})
        ranks = ranking(mine, few.corrected)[1:]
        lines.append(line(f"each software {name} ({said}), unnamed", few, *ranks))
    folds = {"job": halves} | left
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
        each = " | ".join(
            cells(left.corrected[np.resize(here, len(left.half))]) for left in folds.values()
        )
        lines.append(f"| {kind} | {here.sum()} | {each} |")
    sources = [case.source for case in cases]
    parts = [
        f"{name} {cells(folds['source'].modelled[[n == name for n in sources]])}"
        for name in sorted(set(sources))
    ]
    pairs = f"{ranking(cases, errors)[0]} pairs are ranked."
    measured = [runs[i] for i in judged]
    slopes = [
        f"{shared_part(cases, measured, left[fold].modelled, [FOLDS[fold](c) for c in cases]):.2f}"
        for fold in ("source", "software", "GPU")
    ]
    shared = (
        "Of a setting's error another one of the same source, software, GPU and kind of model has "
        f"{slopes[0]} by least squares where the source is left out, {slopes[1]} where the "
        f"software is, and {slopes[2]} where the GPU is."
    )
    return [
        *lines,
        "",
        "Ranges: within the half-width three in four settings lie (second line: nine in ten), each "
        "source counted alike, in the last line each software; inside the one that the others "
        "give, and inside the printed one:",
        "",
        "| software and GPU | settings | sources | half-width | inside the others' | inside the "
        "printed |",
        f"|{'---|' * 6}",
        range_line("seen in other sources", KNOWN, left["source"], sources),
        range_line("not both seen", UNSEEN, left["source"], sources, FARTHER),
        range_line("software without a name", UNNAMED, nobody, [case.software for case in cases]),
        "",
        f"By source left out, as modelled: {', '.join(parts)}. {pairs}",
        "",
        shared,
        "",
        repeats(cases),
    ]


def half_of(sources: Sequence[Sequence[float]], share: float) -> float:
    """Return the size within which that share of errors lies, each source counted alike."""
    sized = sorted((abs(error), 1 / len(source)) for source in sources for error in source)
    inside = 0.0
    for size, weight in sized:
        inside += weight / len(sources)
        if inside >= share - 1e-9:
            return size
    return sized[-1][0]


def range_line(
    name: str, printed: float, left: Left, groups: Sequence[str], share: float = WITHIN
) -> str:
    """Write the line of a range without a run to correct by.

    The half-width within which a share of them lies, each group counted alike; how many lie
    within the one that the other groups give, and within the printed one.

    Args:
        name: of the line.
        printed: the half-width, in logarithms; settings with another are left out.
        left: the settings, each predicted without its group.
        groups: of each setting.
        share: of settings within the half-width.
    """
    here, called = left.half == printed, np.array(groups)
    errors = {
        group: left.corrected[here & (called == group)].tolist()
        for group in dict.fromkeys(called[here].tolist())
    }
    nested = [
        abs(error) <= half_of([rest for other, rest in errors.items() if other != group], share)
        for group, each in errors.items()
        for error in each
    ]
    inside = (np.abs(left.corrected[here]) <= printed).tolist()
    half = math.expm1(half_of([*errors.values()], share))
    shares = " | ".join(f"{mean(each) * 100:.0f} %" for each in (nested, inside))
    return (
        f"| {name} | {here.sum()} | {len(errors)} | {half * 100:.1f} % | {shares} of "
        f"{math.expm1(printed) * 100:.1f} % |"
    )


def repeats(cases: Sequence[Case]) -> str:
    """Say how far runs of one setting are from each other, which no prediction from settings can
    know.
    """
    each = [[float(row["step_s"]) for row in case.rows if row.get("release")] for case in cases]
    apart = [(max(steps) / min(steps) - 1) * 100 for steps in each if len(steps) > 1]
    return (
        f"What no prediction from these settings can know, newer releases among it: {len(apart)} "
        f"settings have several published runs, and the slowest run takes {median(apart):.1f} % "
        f"more than the fastest (median; {np.quantile(apart, 0.8):.1f} % in four of five)."
    )


def main() -> None:
    """Print the table, or one fold's groups."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--by", choices=FOLDS, help="print each group of this kind")
    parser.add_argument("--rows", action="store_true", help="with --by: print each case too")
    parser.add_argument(
        "--pairs", action="store_true", help="print how pairs of a job are ranked, by what differs"
    )
    parser.add_argument("--rounds", type=int, default=0, help="of fitting to all first")
    arguments = parser.parse_args()
    every = read_all(arguments.tables)
    cases = [every[i] for i in thinned(every)]
    numbers = fit(cases, USUAL, arguments.rounds)[0] if arguments.rounds else fitted()
    if not (arguments.pairs or arguments.by):
        print("\n".join(tables(every, numbers)))
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
            print(
                f"    {math.exp(left.modelled[i]) - 1:+.1%} {math.exp(left.corrected[i]) - 1:+.1%}",
                cases[i].rows[0],
            )


if __name__ == "__main__":
    main()
