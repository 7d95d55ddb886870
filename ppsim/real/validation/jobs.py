"""Predict every step of every replica of a job, from its own op times and from the op times of its
other steps.

==============  ===================================================================================
replay          its own op times; gaps and latencies are medians of other steps, or its own where
the
                run shows when devices reached their ops
held-out        no times of the step but the forwards of stage 0: each stage's time of a kind is a
line
                over the time that the first stage's forward takes for the microbatch, fitted on
                other steps, times the worker's factor in these
==============  ===================================================================================

Without the line every microbatch takes the median of its stage and kind.
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
MOST_SAMPLES = 1024  # pipelines that gaps and latencies are medians of
TERMS = {
    "stage and kind": (False, False),
    "+ worker": (False, True),
    "+ microbatch": (True, False),
    "held-out": (True, True),
}


@dataclass(frozen=True)
class JobErrors:
    """Prediction errors of each replica's time from its first op to its last, K steps and R
    replicas.
    """

    job: Job
    # ``replay``, ``held-out``, and of the latter with fewer terms; each relative, shape (K, R)
    errors: Mapping[str, Times]
    own: bool  # whether there is one step only, so that nothing is held out


def validate_job(job: Job) -> JobErrors:
    """Predict each step of a job from its others (Deadlock: its schedule cannot finish)."""
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
    """Predict the ops of a step from others, shape (R, ops)."""
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
        own = label == each
        seen, over = took[others][..., own], size[..., schedule.microbatch[own]]
        known = over[others]
        middle, typical, slope = float(known.mean()), float(np.median(seen)), 0.0
        if lines:
            spread = float(((known - middle) ** 2).sum())
            typical = float(seen.mean())
            slope = (
                float(((known - middle) * (seen - typical)).sum()) / spread if spread > 0 else 0.0
            )
        found[:, own] = typical + slope * (over[step] - middle)
        if workers:
            fitted = typical + slope * (known - middle)
            ratio = np.divide(seen, fitted, out=np.ones_like(seen), where=fitted > 0)
            found[:, own] *= np.median(ratio, axis=(0, 2))[:, None]
    first_of, second_of = schedule.first_of_pairs, schedule.second_of_pairs
    found[:, first_of] = found[:, second_of] = (found[:, first_of] + found[:, second_of]) / 2
    return np.maximum(found, 0.0)


def errors_object(found: JobErrors, tolerance: float) -> dict[str, Any]:
    """Build the object that ``ppsim validate --json`` prints of a job, schema
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
