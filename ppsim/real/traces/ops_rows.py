"""A real run as a table of ops: every step of every replica, with its messages and the ops between
steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.job import Job
from ppsim.core.ops import FORWARDS, Kind, mask
from ppsim.real.traces.run import RealRun

NAMES = (
    "iteration",
    "replica",
    "device",
    "stage",
    "kind",
    "microbatch",
    "start",
    "end",
    "chunk",
    "group",
)
KIND_NAMES = np.array([kind.name for kind in Kind], object)
Columns = dict[str, NDArray[Any]]


def ops_rows(run: RealRun) -> Columns:
    """The columns of ``ppsim.ops/1``: ops of all steps and replicas; of a job its messages and
    collectives too.
    """
    schedule, job = run.schedule, run.job
    if job is None:
        steps, replicas = run.iterations, np.array([run.replica])
        start, end = run.start[:, None], run.end[:, None]
    else:
        steps, replicas, start, end = job.iterations, job.replicas, job.start, job.end
    shape = start.shape
    ops = np.arange(len(schedule))
    blank: dict[str, Any] = {"chunk": -1, "group": ""}
    parts = [
        _rows(
            steps,
            replicas,
            shape,
            _ops_columns(run, ops, KIND_NAMES[schedule.kind]) | blank,
            start,
            end,
        )
    ]
    if job is not None:
        crossing = np.flatnonzero(schedule.crosses)
        letter = np.where(mask(FORWARDS)[schedule.kind[crossing]], "F", "B").astype(object)
        made = end[..., schedule.dependency[crossing]]
        times = made, made + job.transfer[..., crossing]
        for side, at in (("SEND_", schedule.dependency[crossing]), ("RECV_", crossing)):
            parts.append(
                _rows(
                    steps,
                    replicas,
                    made.shape,
                    _ops_columns(run, at, side + letter) | blank,
                    *times,
                )
            )
        parts += [_between_rows(job, at) for at in range(len(job.step_ops))]
    return {name: np.concatenate([part[name] for part in parts]) for name in NAMES}


def _ops_columns(run: RealRun, ops: NDArray[Any], kind: NDArray[Any]) -> dict[str, Any]:
    schedule = run.schedule
    names = ("device", "stage", "microbatch")
    return {"kind": kind} | {name: getattr(schedule, name)[ops] for name in names}


def _between_rows(job: Job, at: int) -> Columns:
    """Rows of one op between steps, on the devices that run it."""
    each, begun, done = job.step_ops[at], job.step_op_start[..., at], job.step_op_end[..., at]
    same = {
        "kind": each.name,
        "stage": -1,
        "microbatch": -1,
        "chunk": each.chunk,
        "group": each.group,
    }
    columns = same | {"device": np.arange(job.schedule.n_devices)}
    rows = _rows(job.iterations, job.replicas, begun.shape, columns, begun, done)
    there = ~np.isnan(begun.ravel())
    return {name: values[there] for name, values in rows.items()}


def _rows(
    steps: NDArray[Any],
    replicas: NDArray[Any],
    shape: tuple[int, ...],
    columns: dict[str, Any],
    start: Any,
    end: Any,
) -> Columns:
    """Columns of all steps, replicas and entries of one of them, flat."""
    whole = {
        "iteration": steps[:, None, None],
        "replica": replicas[None, :, None],
        **columns,
        "start": start,
        "end": end,
    }
    return {
        name: np.broadcast_to(np.asarray(values), shape).ravel() for name, values in whole.items()
    }
