"""Fit the efficiency of families of chips and of software on tables of published runs, and write
the library's file.

python -m tests.benchmarks.fit_efficiency TABLE... [--rounds 4] [--write]

With --rounds 0 the file's numbers stay, and only the errors of the library's published runs are
written again: that is for changes of the cost model which need no other numbers.

All numbers are fitted at once, as logarithms: robust least squares of log(predicted / measured) in
units of NOISE, each number held near a usual one by SPREAD. Runs with the same settings are one
case. Of software with hundreds of cases on one node the first of each model there is fitted.
"""

import argparse
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base import toml
from ppsim.errors import PpsimError
from ppsim.workload.cost.costs import step_time
from ppsim.workload.hardware.efficiency import (
    PATH,
    SCHEMA,
    Curve,
    FittedNumbers,
    Shared,
    Software,
    efficiency_of,
    fitted,
)
from ppsim.workload.hardware.hardware import LIBRARY
from ppsim.workload.plans.nearby import SCHEMA as SEEN
from ppsim.workload.plans.nearby import Columns
from ppsim.workload.plans.published import anchors_of
from ppsim.workload.plans.row_numbers import Row, SkippedRow
from ppsim.workload.plans.rows import Setup, read_table, setup_of
from tests.published import plain_row

BY = "# Written by tests/benchmarks/fit_efficiency.py."
NOISE = 0.05  # of a run that the model is right about
STEP = 0.02  # of a finite difference, in logarithms
LIMIT = 0.97  # that a share of a peak stays below
FAMILIES = {
    "ampere": 400 / 312,
    "hopper": 700 / 989.4,
    "blackwell": 1200 / 2500,
    "cdna3": 750 / 1307.4,
    "cdna4": 1400 / 2516.6,
}
# What is fitted, and how far from the usual value it may well be, in logarithms.
SPREAD = {
    "bf16": 0.09,
    "fp8": 0.09,
    "mxfp8": 0.09,
    "fp4": 0.12,
    "attention": 0.15,
    "hbm": 0.06,
    "within": 0.12,
    "between": 0.12,
    "launch_us": 0.36,
    "collective_us": 0.36,
    "elementwise": 0.24,
    "routed": 0.24,
    "states": 0.12,
    "power": 0.3,
    "grace": 0.12,
    "launched": 0.3,
    "partial": 0.42,
    "alltoall": 0.18,
}
# MXFP8 to FP8, whatever else is fitted, and how far from that it may well be: four published runs
# in both, on B200 and GB300, take 4 to 8 % longer with a scale for each 32 numbers.
NARROWEST, APART = 0.94, 0.024
OF_CURVE = ("bf16", "fp8", "mxfp8", "fp4", "attention", "hbm", "within", "between")
OF_SOFTWARE = {
    "fused": ("launch_us", "collective_us"),
    "compiled": ("elementwise", "attention"),
    "torch": ("launch_us", "elementwise", "attention"),
    "eager": ("launch_us", "collective_us"),
}
OF_ALL = (
    "power",
    "grace",
    "launched",
    "partial",
    "routed",
    "states",
    "alltoall",
)
USUAL = FittedNumbers(
    Shared(
        power=0.5,
        grace=1.6,
        launched=30.0,
        partial=6.0,
        routed=0.3,
        states=4.0,
        alltoall=1.25,
    ),
    tuple(Curve(name, watts=watts, mxfp8=0.47) for name, watts in FAMILIES.items()),
    (
        Software("fused"),
        # FlashAttention-2 reaches 35 % of an H100's peak (arXiv 2407.08608), 0.65 of what the fused
        # one does here.
        Software("compiled", elementwise=1.2, attention=0.65),
        Software("torch", launch_us=10.0, elementwise=1.5, attention=0.65),
        Software("eager", 50.0, 2.6, 15.0, sharp=3.3),
    ),
)
Key = tuple[str, str, str]  # part, name of it, number
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """Runs with the same settings: their setup, the mean of what was measured, and their rows."""

    setup: Setup
    measured: float
    software: str
    layout: str
    rows: tuple[Row, ...]

    @property
    def gpu(self) -> str:
        """Its GPU."""
        return self.setup.machine.gpu.name

    @property
    def model(self) -> str:
        """Its model, however many layers of it."""
        return self.setup.model.name

    @property
    def source(self) -> str:
        """Who published it."""
        return source_of(self.rows[0])

    @property
    def twins(self) -> str:
        """The job that it is a run of: model, however many layers of it, GPU and family of
        layouts.
        """
        return f"{self.model}, {self.setup.model.hidden} wide, on {self.gpu}, {self.layout}"

    @property
    def faulty(self) -> bool:
        """Whether it judges nothing, as by its rows' notes only their ratios count, or something
        was done that is not modelled, or as another row contradicts it.
        """
        return all(row.get("set") == "faulty" for row in self.rows)

    @property
    def on_one_node(self) -> bool:
        """Whether its GPUs are the GPUs of one node."""
        return self.setup.parallel.gpus <= self.setup.machine.per_node


def source_of(row: Row) -> str:
    """Return who published a row: its group, an arXiv paper, a repository, or the first words of
    its source.
    """
    text = str(row.get("source") or "")
    if group := str(row.get("group") or ""):
        return group.split()[0]
    if paper := re.search(r"arxiv\D{0,3}(\d{4}\.\d{4,5})", text.lower()):
        return f"arXiv {paper[1]}"
    repository = re.match(r"(?:https?://)?(?:github\.com/)?([\w.-]+/[\w.-]+)", text)
    return repository[1] if repository else text[:30]


def read_cases(rows: Iterable[Row]) -> list[Case]:
    """Read the rows that have a measured step; those with the same settings are one case."""
    cases: dict[Any, list[tuple[Row, Setup]]] = {}
    for row in rows:
        try:
            setup = setup_of(row)
        except (SkippedRow, PpsimError):
            continue
        if setup.step_s and predict(setup, USUAL):
            key = (setup.model, setup.machine.name, setup.choices, str(setup.layout))
            cases.setdefault(key, []).append((row, setup))
    return [_case(runs) for runs in cases.values()]


def _case(runs: list[tuple[Row, Setup]]) -> Case:
    setup = runs[0][1]
    p = setup.parallel
    layout = "+".join(
        [name for name in ("tp", "cp", "ep", "pp") if getattr(p, name) > 1]
        + ["fsdp"] * (p.zero == 3)
    )
    measured = math.exp(mean(math.log(s.step_s or 1.0) for _, s in runs))
    return Case(setup, measured, setup.software, layout or "dp", tuple(row for row, _ in runs))


def predict(setup: Setup, numbers: FittedNumbers) -> float:
    """Predict a step with some numbers, the fastest of a row's choices; 0 where that is not
    possible.
    """
    times = []
    for parallel in setup.choices:
        try:
            found = efficiency_of(setup.machine.gpu, parallel, numbers)
            times.append(
                step_time(setup.model, setup.machine, parallel, setup.layout, found).seconds
            )
        except PpsimError:
            continue
    return min(times, default=0.0)


def keys_of(cases: Sequence[Case]) -> list[Key]:
    """List the numbers that some case depends on."""
    families = {case.setup.machine.gpu.family for case in cases}
    kernels = {case.setup.parallel.kernels for case in cases}
    keys = [
        ("curve", family, name) for family in FAMILIES if family in families for name in OF_CURVE
    ]
    keys += [
        ("software", name, number)
        for name in OF_SOFTWARE
        if name in kernels
        for number in OF_SOFTWARE[name]
    ]
    return keys + [("shared", "", name) for name in OF_ALL]


def value_of(numbers: FittedNumbers, key: Key) -> float:
    """Return a number."""
    part, name, number = key
    if part == "shared":
        return float(getattr(numbers.shared, number))
    if part == "curve":
        return float(getattr(next(c for c in numbers.curve if c.family == name), number))
    return float(getattr(next(s for s in numbers.software if s.name == name), number))


def with_values(numbers: FittedNumbers, values: dict[Key, float]) -> FittedNumbers:
    """Replace numbers; shares of peaks stay below ``LIMIT``."""
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for (part, name, number), value in values.items():
        changes.setdefault((part, name), {})[number] = (
            min(value, LIMIT) if part == "curve" else value
        )
    return FittedNumbers(
        replace(numbers.shared, **changes.get(("shared", ""), {})),
        tuple(
            replace(curve, **changes.get(("curve", curve.family), {})) for curve in numbers.curve
        ),
        tuple(
            replace(software, **changes.get(("software", software.name), {}))
            for software in numbers.software
        ),
    )


def touches(case: Case, key: Key) -> bool:
    """Return whether a case may depend on a number."""
    part, name, _ = key
    gpu, kernels = case.setup.machine.gpu, case.setup.parallel.kernels
    return {"curve": gpu.family == name, "software": kernels == name, "shared": True}[part]


def slopes(case: Case, numbers: FittedNumbers, keys: Sequence[Key]) -> tuple[float, Floats]:
    """Return log(predicted / measured) of a case, and its derivative by the logarithm of each
    number.
    """
    here = math.log(predict(case.setup, numbers) / case.measured)
    row = np.zeros(len(keys))
    for index, key in enumerate(keys):
        if touches(case, key):
            value = value_of(numbers, key)
            moved = with_values(numbers, {key: value * math.exp(-STEP)})
            row[index] = (math.log(predict(case.setup, moved) / case.measured) - here) / -STEP
    return here, row


@dataclass(frozen=True)
class Linear:
    """Errors of all cases near some numbers: ``errors + slopes @ (logs - at)``."""

    keys: tuple[Key, ...]
    at: Floats
    errors: Floats
    slopes: Floats

    def solve(self, weights: Floats) -> Floats:
        """Return the logarithms of the numbers that make the weighted errors of the cases small."""
        usual = np.log([value_of(USUAL, key) for key in self.keys])
        spread = np.array([SPREAD[key[2]] for key in self.keys])
        logs, tied = self.at, self._tied()
        for _ in range(20):
            errors = self.errors + self.slopes @ (logs - self.at)
            # Cauchy's: far ones pull less
            strength = weights / NOISE**2 / (1 + (errors / (2 * NOISE)) ** 2)
            matrix = (
                (self.slopes.T * strength) @ self.slopes
                + np.diag(spread**-2.0)
                + tied.T @ tied / APART**2
            )
            right = (self.slopes.T * strength) @ (
                self.slopes @ self.at - self.errors
            ) + usual / spread**2
            right += tied.sum(axis=0) * math.log(NARROWEST) / APART**2
            logs = 0.5 * logs + 0.5 * np.linalg.solve(matrix, right)
        return np.asarray(logs)

    def _tied(self) -> Floats:
        """Return a row for each curve, shape (curves, numbers): 1 for its MXFP8, -1 for its FP8."""
        signs = {"mxfp8": 1.0, "fp8": -1.0}
        rows = [
            [signs.get(number, 0.0) * (name == family) for _, name, number in self.keys]
            for _, family, last in self.keys
            if last == "mxfp8"
        ]
        return np.array(rows).reshape(-1, len(self.keys))

    def numbers(self, logs: Floats) -> FittedNumbers:
        """Make the numbers of logarithms."""
        return with_values(USUAL, dict(zip(self.keys, np.exp(logs).tolist(), strict=True)))


def thinned(cases: Sequence[Case], many: int = 500) -> list[int]:
    """Number the settings that count: of software with hundreds of them on one node the first of
    each model there.
    """
    counts = Counter(case.software for case in cases if case.on_one_node)
    kept: dict[Any, int] = {}
    for number, case in enumerate(cases):
        model = case.setup.model
        dense = case.on_one_node and counts[case.software] > many
        kept.setdefault((case.software, model.hidden, model.layers) if dense else number, number)
    return sorted(kept.values())


def linearize(cases: Sequence[Case], numbers: FittedNumbers, workers: int = 2) -> Linear:
    """Compute errors and slopes of all cases."""
    keys = keys_of(cases)
    with ProcessPoolExecutor(workers) as pool:
        found = list(pool.map(partial(slopes, numbers=numbers, keys=keys), cases, chunksize=8))
    at = np.log([value_of(numbers, key) for key in keys])
    return Linear(
        tuple(keys), at, np.array([e for e, _ in found]), np.array([row for _, row in found])
    )


def fit(cases: Sequence[Case], start: FittedNumbers, rounds: int) -> tuple[FittedNumbers, Linear]:
    """Fit all numbers to the cases that count; the second result is the errors near the numbers
    before the last round.
    """
    cases, numbers = [cases[number] for number in thinned(cases)], start
    for number in range(rounds):
        linear = linearize(cases, numbers)
        print(f"round {number}: {describe(linear.errors)}", flush=True)
        numbers = linear.numbers(linear.solve(np.ones(len(cases))))
    return numbers, linear


def errors_of(cases: Sequence[Case], numbers: FittedNumbers) -> Floats:
    """Return log(predicted / measured) of cases."""
    return np.array([math.log(predict(case.setup, numbers) / case.measured) for case in cases])


def describe(errors: Iterable[float]) -> str:
    """Describe errors: how many settings, mean and median size, bias."""
    found = [math.exp(error) - 1 for error in errors]
    sizes = [abs(error) for error in found]
    return (
        f"{len(found)} settings, mean {mean(sizes):.1%}, median {median(sizes):.1%}, bias "
        f"{mean(found):+.1%}"
    )


def read_all(paths: Sequence[str]) -> list[Case]:
    """Read the cases of several tables."""
    return read_cases(
        plain_row(dict(row))
        for path in paths
        for row in read_table(path)
        if row.get("set") != "holdout"
    )


def main() -> None:
    """Fit and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    cases = read_all(arguments.tables)
    numbers = fit(cases, USUAL, arguments.rounds)[0] if arguments.rounds else fitted()
    errors = errors_of(cases, numbers)
    print(describe(errors))
    for key in keys_of(cases):
        print(*key, f"{value_of(numbers, key):.3g}", f"usual {value_of(USUAL, key):.3g}")
    if arguments.write:
        write(numbers, cases, errors)


def write(numbers: FittedNumbers, cases: Sequence[Case], errors: Floats) -> None:
    """Write the library's file, with what each curve was fitted on."""
    curves = []
    for curve in numbers.curve:
        here = [
            e
            for case, e in zip(cases, errors, strict=True)
            if case.setup.machine.gpu.family == curve.family
        ]
        curves.append(
            replace(rounded(curve), seen=describe(here) if here else "no run: usual values")
        )
    new = FittedNumbers(
        rounded(numbers.shared), tuple(curves), tuple(map(rounded, numbers.software))
    )
    PATH.write_text(f"{BY}\n{toml.dump(new, SCHEMA)}")
    fitted.cache_clear()
    write_seen(cases)


def write_seen(cases: Sequence[Case]) -> None:
    """Write the library's published runs: what they are, and how far off their predictions are."""
    columns: dict[str, list[Any]] = {f.name: [] for f in fields(Columns)}
    for run in anchors_of(row for case in cases for row in case.rows):
        columns["names"].append(run.name)
        for name in ("software", "release", "gpu", "family", "experts", "job"):
            columns[name].append(getattr(run.setting, name))
        columns["seconds"].append(float(f"{run.seconds:.6g}"))
        columns["error"].append(round(run.error, 4))
    lines = [f"{name} = {json.dumps(values)}" for name, values in columns.items()]
    (LIBRARY / "seen.toml").write_text("\n".join([BY, f'schema = "{SEEN}"', *lines, ""]))


def rounded(part: Any) -> Any:
    """Round numbers to three digits."""
    digits = {k: float(f"{v:.3g}") for k, v in vars(part).items() if isinstance(v, float)}
    return replace(part, **digits)


if __name__ == "__main__":
    main()
