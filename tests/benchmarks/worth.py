"""What each term of ``ppsim plan``'s cost model is worth: errors of left-out sources without it.

python -m tests.benchmarks.worth TABLE... [--terms "ring's latency" ...]

The other numbers are fitted again without the term, by the slopes of the whole model, and each
source is predicted from the others, as in ``left_out``. A term earns its lines if the error grows
without it, in more than one source.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np

from ppsim.workload.cost import communication, costs, overlap, update
from ppsim.workload.hardware import efficiency
from ppsim.workload.hardware.efficiency import Efficiency, FittedNumbers, fitted
from ppsim.workload.hardware.hardware import Gpu, Machine
from ppsim.workload.model import operators
from ppsim.workload.model.operators import Floats, Operators
from ppsim.workload.plans import rows
from ppsim.workload.plans.fitting import fitting
from ppsim.workload.plans.published import setup_of
from tests.benchmarks import fit_efficiency
from tests.benchmarks.fit_efficiency import (
    Case,
    Linear,
    errors_of,
    linearize,
    read_all,
    thinned,
)
from tests.benchmarks.left_out import leave_one_out, ranking

APART = 0.1  # points of a source's mean error that count as a difference


@dataclass(frozen=True)
class Term:
    """A term of the cost model.

    Attributes:
        lines: how many it has: functions, and a number of other lines.
        replaced: what stands in its place: (module or class, name, value).
        fixed: values of numbers of ``Shared`` that are not fitted without it.
        idle: other numbers that change nothing without it.
        reads: whether it is a part of how rows are read.
    """

    lines: tuple[Callable[..., Any] | int, ...]
    replaced: tuple[tuple[Any, str, Any], ...] = ()
    fixed: tuple[tuple[str, float], ...] = ()
    idle: tuple[str, ...] = ()
    reads: bool = False

    @property
    def length(self) -> int:
        """How many lines it has."""
        return sum(
            each if isinstance(each, int) else len(inspect.getsourcelines(each)[0])
            for each in self.lines
        )


def _flat(side: Floats, flops: Floats, gpu: Gpu, curve: efficiency.Curve) -> Floats:
    return np.ones_like(side)


def _without_waves(side: Floats, flops: Floats, gpu: Gpu, curve: efficiency.Curve) -> Floats:
    return FILLED(side, flops, gpu, replace(curve, waves=0.0))


def _any_width(gpu: Gpu, width: Floats) -> Floats:
    return np.ones((3, len(width)))


def _no_seconds(*given: Any, **options: Any) -> float:
    return 0.0


def _all_hidden(
    held: Any, parallel: Any, forward: Floats, reduction: Floats, gather: Floats
) -> float:
    """Reductions and gathers as wholly beside compute, or after it."""
    if parallel.overlap_dp:
        return 0.0
    return float(np.bincount(held.device, (reduction + gather)[held.stage]).max())


def _no_host(gpu: Floats, host: Floats, sharp: float) -> Floats:
    return gpu


def _longer_alone(gpu: Floats, host: Floats, sharp: float) -> Floats:
    return np.maximum(gpu, host)


def _nothing_fits(*given: Any, **options: Any) -> tuple[Any, ...]:
    return (given[2],)


def _no_update(machine: Machine, parallel: Any, split: Floats, found: Efficiency) -> Floats:
    return np.zeros(split.shape[1])


def _waits_apart(
    compute: float, communication: float, share: float = 1.0, slowed: Any = ()
) -> float:
    """Communication beside compute in full, without slowing it."""
    return max(communication - compute * share, 0.0)


def _products_alone(ops: Operators, gpu: Gpu, found: Efficiency, precision: str) -> Floats:
    return SECONDS(replace(ops, touched=0 * ops.touched), gpu, found, precision)


def _without_bytes(ops: Operators, gpu: Gpu, found: Efficiency, precision: str) -> Floats:
    return SECONDS(replace(ops, moved=0 * ops.moved), gpu, found, precision)


FILLED, SECONDS = efficiency._filled, efficiency.seconds
TERMS: dict[str, Term] = {
    "shares follow a chip's power": Term((6,), fixed=(("power", 1e-6),)),
    "a Grace host launches slower": Term((2,), fixed=(("grace", 1.0),)),
    "launches of experts without CUDA graphs": Term(
        (5,), fixed=(("launched", 1.0), ("partial", 1.0))
    ),
    "fused experts move less": Term((4,), fixed=(("routed", 1.0),)),
    "kernels of layers with a state": Term((6,), fixed=(("states", 1.0),)),
    "NCCL's all-to-all": Term((2,), fixed=(("alltoall", 1.0),)),
    "all-to-all kernels made for experts": Term((2,), ((communication, "KERNELS", (1.0, 1.0)),)),
    "tiles and waves": Term(
        (efficiency._filled, efficiency._rounded_up, 6),
        ((efficiency, "_filled", _flat),),
    ),
    "waves": Term((4,), ((efficiency, "_filled", _without_waves),)),
    "widths of heads": Term(
        (efficiency._speed_at_width, 3), ((efficiency, "_speed_at_width", _any_width),)
    ),
    "bytes of elementwise work": Term(
        (2,),
        ((costs, "seconds", _products_alone), (efficiency, "seconds", _products_alone)),
        idle=("elementwise", "routed"),
    ),
    "bytes that products move": Term(
        (2,),
        ((costs, "seconds", _without_bytes), (efficiency, "seconds", _without_bytes)),
    ),
    "the host's launches": Term(
        (efficiency._combined_time, 9),
        ((efficiency, "_combined_time", _no_host),),
        idle=("launch_us", "grace", "launched", "partial"),
    ),
    "host and GPU alike take longer": Term((2,), ((efficiency, "_combined_time", _longer_alone),)),
    "trees of sums": Term(
        (communication.Group.saved,), ((communication.Group, "saved", lambda *_: 1.0),)
    ),
    "gradients added up": Term(
        (operators.summed_bytes, 3), ((operators, "summed_bytes", _no_seconds),)
    ),
    "biases after experts": Term((8,), ((operators, "BIASES", (0.0, 0.0, 0.0)),)),
    "rings that meet": Term((4,), ((communication, "MEET", 1),)),
    "messages between stages": Term(
        (communication.message_seconds,), ((costs, "message_seconds", _no_seconds),)
    ),
    "switches with fewer links up": Term(
        (Machine.crowding,), ((Machine, "crowding", lambda *_, **__: 1.0),)
    ),
    "contention of two streams": Term(
        (6,),
        (
            (overlap, "CONTENTION", (0.0, 0.0)),
            (overlap, "added", _waits_apart),
            (update, "added", _waits_apart),
        ),
    ),
    "reductions during the backwards that are left": Term(
        (update.seen_seconds, update.held_stages, update.on_one_device, update.HeldStages),
        ((costs, "seen_seconds", _all_hidden),),
    ),
    "the optimizer's step": Term(
        (update.optimizer_seconds, 3), ((costs, "optimizer_seconds", _no_update),)
    ),
    "what a run did to fit": Term((fitting, 40), ((rows, "fitting", _nothing_fits),), reads=True),
    "waits of context-parallel ranks": Term(
        (overlap.context_waits,), ((costs, "context_waits", lambda *_: np.zeros(3)),)
    ),
    "bytes of an eager loss": Term((2,), ((operators, "UNFUSED", (8, 4)),)),
}


@contextmanager
def without(name: str) -> Iterator[FittedNumbers]:
    """Leave a term out; give the numbers to begin with."""
    term, numbers = TERMS.get(name, Term(())), fitted()
    fixed = dict(term.fixed)
    numbers = replace(numbers, shared=replace(numbers.shared, **fixed))
    usual = replace(fit_efficiency.USUAL, shared=replace(fit_efficiency.USUAL.shared, **fixed))
    with ExitStack() as stack:
        for where, attribute, value in term.replaced:
            stack.enter_context(patch.object(where, attribute, value))
        stack.enter_context(patch.object(fit_efficiency, "USUAL", usual))
        operators.layer_operators.cache_clear()
        operators.head_operators.cache_clear()
        yield numbers


def errors_without(name: str, cases: Sequence[Case], whole: Linear) -> Floats:
    """Return log(predicted / measured) of each case without a term, as its source is left out.

    The numbers that are left are fitted again, by the slopes of the whole model.
    """
    term = TERMS.get(name, Term(()))
    gone = {number for number, _ in term.fixed} | set(term.idle)
    kept = [at for at, key in enumerate(whole.keys) if key[2] not in gone]
    with without(name) as numbers:
        if term.reads:
            cases = [replace(case, setup=setup_of(case.rows[0])) for case in cases]
        linear = Linear(
            tuple(whole.keys[at] for at in kept),
            whole.at[kept],
            errors_of(cases, numbers),
            whole.slopes[:, kept],
        )
        sources = np.array([case.source for case in cases])
        errors = np.zeros(len(cases))
        for source in dict.fromkeys(sources.tolist()):
            out = sources == source
            errors[out] = leave_one_out(cases, linear, out)[out]
    return errors


def worth(tables: Sequence[str], names: Sequence[str], workers: int = 2) -> list[str]:
    """Write the table: lines, errors without each term, and in how many sources they grow."""
    every = read_all(tables)
    cases = [every[i] for i in thinned(every)]
    whole = linearize(cases, fitted())
    asked = ["", *names]
    # a process each, as what was computed with a term is kept
    with ProcessPoolExecutor(workers, max_tasks_per_child=1) as pool:
        each = pool.map(partial(errors_without, cases=cases, whole=whole), asked)
        found = dict(zip(asked, each, strict=True))
    judged = [number for number, case in enumerate(cases) if not case.faulty]
    cases = [cases[at] for at in judged]
    sources = np.array([case.source for case in cases])
    sizes = {name: np.abs(np.expm1(errors[judged])) * 100 for name, errors in found.items()}
    rows = []
    for name, size in sizes.items():
        more = np.array(
            [(size - sizes[""])[sources == source].mean() for source in dict.fromkeys(sources)]
        )
        right = ranking(cases, found[name][judged])[1] * 100
        lines = str(TERMS[name].length) if name else ""
        rows.append(
            f"| {name or 'nothing'} | {lines} | {size.mean():.2f} / {np.median(size):.2f} % | "
            f"{(size - sizes['']).mean():+.2f} | {(more > APART).sum()}, {(more < -APART).sum()} "
            f"| {right:.0f} % |"
        )
    order = sorted(range(1, len(rows)), key=lambda at: -sizes[asked[at]].mean())
    heads = "| without | lines | mean / median | more | sources worse, better | ranked |"
    return [heads, f"|{'---|' * 6}", rows[0], *(rows[at] for at in order)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="+")
    parser.add_argument("--terms", nargs="+", choices=TERMS, default=[*TERMS])
    arguments = parser.parse_args()
    print("\n".join(worth(arguments.tables, arguments.terms)))


if __name__ == "__main__":
    main()
