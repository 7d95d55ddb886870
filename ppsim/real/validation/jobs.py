"""Predict every step of every replica of a job.

==============  ===================================================================================
replay          the step's own op times. Gaps and latencies are medians over the other steps, or
                the step's own if the run shows when devices reached their ops.
held-out        op times from other steps, except the forwards of stage 0, which measure the sizes
                of the microbatches. Each kind on each stage takes a linear function of the size,
                fitted on the other steps, times the factor of the worker in those steps.
==============  ===================================================================================

Without the linear function, every microbatch takes the median of its stage and kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.job import Job
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.simple.batch import makespans_with_gaps
from ppsim.engine.simple.terms import measure_terms

Times = NDArray[np.float64]
MOST_SAMPLES = 1024  # pipelines for the medians of gaps and latencies
# prediction to whether it uses the linear function, and the factors of workers
TERMS = {
    "stage and kind": (False, False),
    "+ worker": (False, True),
    "+ microbatch": (True, False),
    "held-out": (True, True),
}


@dataclass(frozen=True)
class JobErrors:
    """Prediction errors of each replica's time from its first to its last op, for K steps and R
    replicas.
    """

    job: Job
    # relative errors of ``replay`` and of each of :data:`TERMS`, shape (K, R)
    errors: Mapping[str, Times]
    own: bool  # whether the job has a single step, which is predicted from itself


def validate_job(job: Job) -> JobErrors:
    """Predict each step of a job from the other steps (Deadlock: its schedule cannot finish)."""
    steps, measured = len(job.iterations), job.pipelines
    found = {name: np.zeros_like(measured) for name in ("replay", *TERMS)}
    for k in range(steps):
        others = np.arange(steps) != k if steps > 1 else np.ones(1, bool)
        start, end = (
            times[others].reshape(-1, len(job.schedule)) for times in (job.start, job.end)
        )
        each = -(-len(start) // MOST_SAMPLES)
        terms = measure_terms(job.schedule, start[::each], end[::each])
        took = {"replay": (job.end - job.start)[k]}
        took |= {name: _predict(job, k, others, *chosen) for name, chosen in TERMS.items()}
        schedule = job.schedule
        latency = np.where(
            schedule.crosses,
            terms.latency[schedule.device[schedule.dependency], schedule.device],
            0.0,
        )
        for name, each in took.items():
            gaps, latencies = terms.gap, np.broadcast_to(latency, each.shape)
            if name == "replay" and job.host is not None:
                gaps, latencies = job.host[0, k], job.host[1, k] + job.transfer[k]
            predicted = makespans_with_gaps(schedule, each, gaps, latencies)
            found[name][k] = (
                np.divide(
                    predicted, measured[k], out=np.ones_like(predicted), where=measured[k] > 0
                )
                - 1
            )
    return JobErrors(job, found, steps == 1)


def _predict(job: Job, step: int, others: NDArray[np.bool_], lines: bool, workers: bool) -> Times:
    """Predict the op times of a step from other steps, shape (R, ops).

    ``lines`` and ``workers`` are the flags of :data:`TERMS`.
    """
    schedule, took = job.schedule, job.end - job.start
    first = np.flatnonzero(
        (schedule.kind == Kind.F) & (schedule.stage == 0) & (schedule.pair == NONE)
    )
    size = np.zeros((*took.shape[:2], schedule.n_microbatches))
    size[..., schedule.microbatch[first]] = took[..., first]
    lines = lines and len(first) == schedule.n_microbatches
    label = schedule.work * schedule.n_stages + schedule.stage
    found = np.zeros(took.shape[1:])
    for each in np.unique(label).tolist():
        ops = label == each
        times, sizes = took[others][..., ops], size[..., schedule.microbatch[ops]]
        known = sizes[others]
        mean_size, typical, slope = float(known.mean()), float(np.median(times)), 0.0
        if lines:
            spread = float(((known - mean_size) ** 2).sum())
            typical = float(times.mean())
            slope = (
                float(((known - mean_size) * (times - typical)).sum()) / spread
                if spread > 0
                else 0.0
            )
        found[:, ops] = typical + slope * (sizes[step] - mean_size)
        if workers:
            fitted = typical + slope * (known - mean_size)
            ratio = np.divide(times, fitted, out=np.ones_like(times), where=fitted > 0)
            found[:, ops] *= np.median(ratio, axis=(0, 2))[:, None]
    first_of, second_of = schedule.first_of_pairs, schedule.second_of_pairs
    found[:, first_of] = found[:, second_of] = (found[:, first_of] + found[:, second_of]) / 2
    return np.maximum(found, 0.0)


def errors_object(found: JobErrors, tolerance: float) -> dict[str, Any]:
    """Build the object that ``ppsim validate --json`` prints for a job, schema
    ``ppsim.validate/1``.
    """
    job = found.job
    sizes = {name: np.abs(errors) for name, errors in found.errors.items()}
    errors = {
        name: {"median": float(np.median(e)), "worst": float(e.max())} for name, e in sizes.items()
    }
    return {
        "schema": "ppsim.validate/1",
        "schedule": job.schedule.name,
        "devices": job.schedule.n_devices,
        "replicas": len(job.replicas),
        "iterations": job.iterations.tolist(),
        "unit": job.unit,
        "measured": float(np.median(job.pipelines)),
        "errors": errors,
        "held_out": not found.own,
        "tolerance": tolerance,
        "passed": errors["held-out"]["median"] <= tolerance,
    }
