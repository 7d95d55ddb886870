"""A real run as a table of ops: all steps of all replicas, with messages and ops between steps."""

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
    """Return the columns of ``ppsim.ops/1`` for a run.

    A row is an op of a step and a replica; a job has rows of messages and collectives too.
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
        parts += [_step_op_rows(job, at) for at in range(len(job.step_ops))]
    return {name: np.concatenate([part[name] for part in parts]) for name in NAMES}


def _ops_columns(run: RealRun, ops: NDArray[Any], kind: NDArray[Any]) -> dict[str, Any]:
    """Return the columns that identify ops, given their names of kinds."""
    schedule = run.schedule
    names = ("device", "stage", "microbatch")
    return {"kind": kind} | {name: getattr(schedule, name)[ops] for name in names}


def _step_op_rows(job: Job, at: int) -> Columns:
    """Return the rows of the op between steps at an index, for the devices that run it."""
    step_op, start, end = job.step_ops[at], job.step_op_start[..., at], job.step_op_end[..., at]
    columns = {
        "kind": step_op.name,
        "stage": -1,
        "microbatch": -1,
        "chunk": step_op.chunk,
        "group": step_op.group,
        "device": np.arange(job.schedule.n_devices),
    }
    rows = _rows(job.iterations, job.replicas, start.shape, columns, start, end)
    has_run = ~np.isnan(start.ravel())
    return {name: values[has_run] for name, values in rows.items()}


def _rows(
    steps: NDArray[Any],
    replicas: NDArray[Any],
    shape: tuple[int, ...],
    columns: dict[str, Any],
    start: Any,
    end: Any,
) -> Columns:
    """Return flat columns for all steps, replicas and entries.

    Args:
        steps: numbers of the steps.
        replicas: numbers of the replicas.
        shape: (steps, replicas, entries).
        columns: columns that are the same in all steps and replicas, by entry or one value.
        start: starts, of that shape.
        end: ends, of that shape.
    """
    all_columns = {
        "iteration": steps[:, None, None],
        "replica": replicas[None, :, None],
        **columns,
        "start": start,
        "end": end,
    }
    return {
        name: np.broadcast_to(np.asarray(values), shape).ravel()
        for name, values in all_columns.items()
    }
