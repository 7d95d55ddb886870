"""Runs that the host, not the GPU, set the pace of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.errors import PpsimError
from ppsim.real.runs.record import Measured

LEFT = 0.1


def launch_bound(run: Measured) -> NDArray[np.bool_]:
    """Find the repetitions in which the host set the pace; shape (repetitions,).

    It did where it had not issued everything before the end, or where the GPU waited for it: ops issued with less
    than a tenth of their time left make up more than a tenth of the time in ops.
    """
    if run.issued is None:
        return np.zeros(len(run.makespans), bool)
    compute = run.lowered.compute_ops
    worked = (run.end - run.start)[:, compute]
    hurried = (run.end - run.issued)[:, compute] < LEFT * worked
    share = np.where(hurried, worked, 0.0).sum(axis=1) / np.maximum(worked.sum(axis=1), 1e-9)
    bound: NDArray[np.bool_] = (share > LEFT) | (run.issued.max(axis=1) >= run.makespans)
    return bound


def issued_share(run: Measured) -> float:
    """Compute the share of the makespan after which the host had issued everything: the median over repetitions."""
    return 0.0 if run.issued is None else float(np.median(run.issued.max(axis=1) / run.makespans))


def drop_launch_bound(runs: Sequence[Measured]) -> tuple[list[Measured], dict[str, int]]:
    """Drop launch-bound repetitions; returns the rest, and how many each schedule lost (PpsimError: all of them)."""
    kept, left_out = [], {}
    for run in runs:
        bound = launch_bound(run)
        if bound.all():
            raise PpsimError(
                f"{run.name} is launch-bound: the host needed {issued_share(run):.0%} of the makespan of "
                f"{np.median(run.makespans):.1f} ms to issue the ops, so the GPU waited for it",
                "ops of 5 ms and more, as of --hidden 4096 --heads 32 --seq 2048",
            )
        if bound.any():
            left_out[run.name] = int(bound.sum())
            run = run.repetitions(np.flatnonzero(~bound).tolist())
        kept.append(run)
    return kept, left_out
