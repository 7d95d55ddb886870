"""Rows of a table of ops by step, replica and op; incomplete steps are left out with a note."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import COMPUTES, Kind
from ppsim.errors import InputError
from ppsim.real.traces.tables.table import UNKNOWN, OpTable

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Times = NDArray[np.float64]
MOST_CELLS = 100_000_000
HALF = 0.5  # share of complete steps, of the best replica's, below which a replica is left out
_COMPUTES = np.append(COMPUTES, False)


@dataclass(frozen=True)
class Grid:
    """The step and replica of each row of a table, among K steps and R replicas.

    Attributes:
        table: the rows; rows that compute have a device, a stage and a microbatch.
        iterations: shape (K,), numbers of the steps in the files.
        replicas: shape (R,), numbers of the replicas in the files.
        step: shape (rows,), index of the row's step.
        replica: shape (rows,), index of the row's replica.
    """

    table: OpTable
    iterations: Ints
    replicas: Ints
    step: Ints
    replica: Ints

    @property
    def computes(self) -> Bools:
        """Whether a row is an op that computes, shape (rows,)."""
        return _COMPUTES[self.table.kind]

    def keep(self, rows: Bools) -> Grid:
        """Return the grid with only some rows."""
        return replace(
            self, table=self.table.keep(rows), step=self.step[rows], replica=self.replica[rows]
        )

    def select(self, steps: Bools, replicas: Bools) -> Grid:
        """Return the grid with only some steps and replicas."""
        kept = self.keep(steps[self.step] & replicas[self.replica])
        step, replica = (np.cumsum(steps) - 1)[kept.step], (np.cumsum(replicas) - 1)[kept.replica]
        numbers = self.iterations[steps], self.replicas[replicas]
        return replace(kept, iterations=numbers[0], replicas=numbers[1], step=step, replica=replica)

    def shift(self, offset: Times) -> Grid:
        """Return the grid with leads of clocks, shape (K, R, devices), subtracted from times."""
        device = np.maximum(self.table.columns["device"], 0)
        return replace(self, table=self.table.shift(offset[self.step, self.replica, device]))


def grid_of(table: OpTable, notes: list[str]) -> Grid:
    """Return the step and replica of each row, with missing columns filled in.

    Sentences on what was filled in are added to ``notes``.

    Raises:
        InputError: rows that compute have no device, stage or microbatch.
    """
    columns = dict(table.columns)
    computes = _COMPUTES[table.kind]
    if not table.has("device"):
        columns["device"] = columns["stage"].copy()
        notes.append("no column of devices: each stage is assumed to be a device")
    without_device = columns["device"] == UNKNOWN
    if (without_device | ~computes).all():
        raise InputError(
            f"{table.source}: no op that computes has a device", "a column of device or of stage"
        )
    if without_device.any():
        notes.append(f"{_rows_text(table, without_device)} without a device: left out")
    _fill_stages(table, columns, notes)
    needing = computes & ~without_device
    for name in ("stage", "microbatch"):
        lacking = np.flatnonzero(needing & (columns[name] == UNKNOWN))
        if len(lacking):
            op = table.names[table.name[lacking[0]]]
            raise InputError(
                f"{table.source}, row {table.row[lacking[0]]}: {op} has no {name}",
                f"a column of {name}",
            )
    microbatch = columns["microbatch"]
    used = microbatch[needing]
    if len(used) and used.min() == 1:
        columns["microbatch"] = np.where(microbatch > 0, microbatch - 1, UNKNOWN)
        notes.append("microbatches count from 1 in the file, and from 0 in ppsim")
    replica = np.where(columns["replica"] == UNKNOWN, 0, columns["replica"])
    filled = replace(table, columns=columns).keep(~without_device)
    replicas, replica = np.unique(replica[~without_device], return_inverse=True)
    iteration = filled.columns["iteration"]
    if (iteration == UNKNOWN).any():
        iteration = _numbered_steps(filled, replica)
        notes.append("no column of iterations: each repetition of an op begins a new one")
    iterations, step = np.unique(iteration, return_inverse=True)
    return Grid(filled, iterations, replicas, step, replica)


def _fill_stages(table: OpTable, columns: dict[str, Ints], notes: list[str]) -> None:
    """Set stages as in interleaved schedules, if no row that computes has one."""
    if (columns["stage"][_COMPUTES[table.kind]] != UNKNOWN).any():
        return
    chunk = np.maximum(columns["chunk"], 0)
    columns["stage"] = columns["device"] + (columns["device"].max() + 1) * chunk
    if chunk.any():
        notes.append(
            "no column of stages: assumed to be device + devices x chunk, as in interleaved "
            "schedules"
        )


def _numbered_steps(table: OpTable, replica: Ints) -> Ints:
    """Return the step of each row: the times that its op has run before.

    Rows that do not compute belong to the step during which they start.
    """
    columns, computes = table.columns, _COMPUTES[table.kind]
    at = np.flatnonzero(computes & ~np.isnan(table.start))
    keys = (
        table.kind[at],
        columns["stage"][at],
        columns["microbatch"][at],
        columns["device"][at],
        replica[at],
    )
    order = np.lexsort((table.start[at], *keys))
    new = np.ones(len(at), bool)
    new[1:] = np.any([np.diff(key[order]) != 0 for key in keys], axis=0)
    begin = np.flatnonzero(new)
    number = np.arange(len(at)) - np.repeat(begin, np.diff(np.append(begin, len(at))))
    found = np.zeros(len(table.kind), np.int64)
    found[at[order]] = number
    worker = replica * (columns["device"].max() + 1) + columns["device"]
    for each in np.unique(worker).tolist():
        rows = np.flatnonzero(worker == each)
        computing, others = rows[computes[rows]], rows[~computes[rows]]
        step_starts = np.full(found[computing].max(initial=0) + 1, np.inf)
        np.fmin.at(step_starts, found[computing], table.start[computing])
        step = np.searchsorted(step_starts, table.start[others], side="right") - 1
        found[others] = np.maximum(step, 0)
    return found


def whole_steps(grid: Grid, notes: list[str]) -> tuple[Grid, Ints, Times, Times]:
    """Find the ops of a step, and leave out steps that lack one.

    Returns:
        The remaining rows; the ops as device, kind, stage and microbatch, shape (ops, 4); and their
            starts and ends, shape (K, R, ops).

    Raises:
        InputError: no step is complete, or most ops have two rows.
    """
    table, at = grid.table, np.flatnonzero(grid.computes)
    keys = np.stack(
        [table.columns["device"], table.kind, table.columns["stage"], table.columns["microbatch"]],
        1,
    )[at]
    width = keys.max(axis=0).astype(np.int64) + 1
    if float(np.prod(width.astype(np.float64))) > MOST_CELLS:
        raise InputError(
            f"{table.source}: too many devices, stages or microbatches for its rows",
            "numbers from 0",
        )
    packed, op = np.unique(np.ravel_multi_index(tuple(keys.T), tuple(width)), return_inverse=True)
    ops = np.stack(np.unravel_index(packed, tuple(width)), 1)
    shape = (len(grid.iterations), len(grid.replicas), len(ops))
    if np.prod(shape) > MOST_CELLS:
        raise InputError(
            f"{table.source}: {shape[0]} steps of {shape[1]} replicas of {shape[2]} ops are too "
            f"many"
        )
    cell = np.ravel_multi_index((grid.step[at], grid.replica[at], op), shape)
    repeated = _contradicted_cells(grid, at, cell, ops, op, notes)
    start, end = np.full(shape, np.nan), np.full(shape, np.nan)
    start.flat[cell], end.flat[cell] = table.start[at], table.end[at]
    timeless = np.flatnonzero(np.isnan(start).all(axis=(0, 1)))
    start.flat[repeated] = np.nan
    present = ~np.isnan(start)
    usual = _usual_ops(ops, present)
    if not usual.any():
        raise InputError(f"{table.source}: no step is complete", "times for all ops of a step")
    if len(timeless):
        raise InputError(
            f"{table.source}: no row of {_label(ops[timeless[0]])} has times",
            "times of start and end, the start first",
        )
    missing = ~present & usual
    complete = ~missing.any(axis=2) & ~(present & ~usual).any(axis=2)

    def fault(k: int, r: int) -> str:
        return _missing_ops_text(ops, present[k, r], usual)

    grid, start, end = leave_out(grid, start, end, complete, fault, notes)
    return grid, ops[usual], start[:, :, usual], end[:, :, usual]


def _usual_ops(ops: Ints, present: Bools) -> Bools:
    """Return which ops belong to a step: those in at least half of their device's steps."""
    has_rows = np.zeros((*present.shape[:2], int(ops[:, 0].max()) + 1), bool)
    for device in range(has_rows.shape[2]):
        has_rows[..., device] = present[..., ops[:, 0] == device].any(axis=2)
    count = present.sum(axis=(0, 1))
    usual: Bools = (count > 0) & (count * 2 >= has_rows.sum(axis=(0, 1))[ops[:, 0]])
    return usual


def leave_out(
    grid: Grid,
    start: Times,
    end: Times,
    complete: Bools,
    fault: Callable[[int, int], str],
    notes: list[str],
) -> tuple[Grid, Times, Times]:
    """Leave out replicas with few complete steps, then steps that a remaining replica lacks.

    Args:
        grid: the rows.
        start: shape (K, R, ops), starts.
        end: shape (K, R, ops), ends.
        complete: shape (K, R), whether a replica has all ops of a step.
        fault: returns in words what a replica lacks in a step, given the indices of both.
        notes: gets a sentence for what is left out.

    Raises:
        InputError: nothing remains.
    """
    if complete.all():
        return grid, start, end
    source, n_steps = grid.table.source, len(complete)
    count = complete.sum(axis=0)
    if not count.any():
        example = f"in step {grid.iterations[0]} replica {grid.replicas[0]} {fault(0, 0)}"
        raise InputError(f"{source}: no step is complete: {example}", "rows for all ops of a step")
    replicas = count > HALF * count.max(initial=0)
    steps = np.logical_and.reduce(complete[:, replicas], axis=1)
    for r in np.flatnonzero(~replicas).tolist():
        example = fault(int(np.argmin(complete[:, r])), r)
        notes.append(
            f"replica {grid.replicas[r]} is left out: complete in {count[r]} of {n_steps} steps; "
            f"in one {example}"
        )
    lost = np.flatnonzero(~steps)
    if len(lost):
        k = int(lost[0])
        r = int(np.argmin(np.where(replicas, complete[k], True)))
        example = f"in step {grid.iterations[k]} replica {grid.replicas[r]} {fault(k, r)}"
        if not steps.any():
            raise InputError(
                f"{source}: no step is complete in all replicas: {example}",
                "rows for all ops of a step",
            )
        notes.append(
            f"{len(lost)} of {n_steps} steps are left out: {example}" + " ..." * (len(lost) > 1)
        )
    return grid.select(steps, replicas), start[steps][:, replicas], end[steps][:, replicas]


def _contradicted_cells(
    grid: Grid, at: Ints, cell: Ints, ops: Ints, op: Ints, notes: list[str]
) -> Ints:
    """Return the cells (step, replica, op) that have rows with different times.

    Equal rows count once.

    Args:
        grid: the rows.
        at: indices of the rows that compute.
        cell: the cell of each of these rows.
        ops: the ops as device, kind, stage and microbatch.
        op: the op of each of these rows.
        notes: gets a sentence for repeated rows.

    Raises:
        InputError: most cells have different rows.
    """
    table = grid.table
    order = np.argsort(cell, kind="stable")
    same = np.diff(cell[order]) == 0
    first, second = at[order[:-1][same]], at[order[1:][same]]
    differ = (table.start[first] != table.start[second]) | (table.end[first] != table.end[second])
    if len(first) > differ.sum():
        count = len(first) - differ.sum()
        notes.append(f"{count} repeated row{'s count' if count > 1 else ' counts'} once")
    if not differ.any():
        return np.empty(0, np.int64)
    repeated = np.unique(cell[order[1:][same]][differ])
    a, b = first[differ][0], second[differ][0]
    name = _label(ops[op[np.searchsorted(at, a)]])
    example = (
        f"two rows for {name} of replica {grid.replicas[grid.replica[a]]} in step "
        f"{grid.iterations[grid.step[a]]}: {table.row[a]} and {table.row[b]}"
    )
    if len(repeated) > HALF * len(np.unique(cell)):
        raise InputError(
            f"{table.source}: {example}; likewise for {len(repeated):,} ops in all",
            "one row per op, not rows of several tensor-parallel ranks or of several runs",
        )
    notes.append(example + f"; likewise for {len(repeated)} ops in all" * (len(repeated) > 1))
    return repeated


def _missing_ops_text(ops: Ints, present: Bools, usual: Bools) -> str:
    """Return in words the ops that a step of a replica lacks, or that others do not have."""
    lost, more = np.flatnonzero(usual & ~present), np.flatnonzero(present & ~usual)
    if not len(lost):
        return f"has {_label(ops[more[0]])}, which other steps do not have"
    if not present.any():
        return "is missing"
    return f"lacks {_label(ops[lost[0]])}" + f" and {len(lost) - 1} more ops" * (len(lost) > 1)


def _label(op: Ints) -> str:
    """Return the name of an op: stage, kind, microbatch."""
    return f"{op[2]}{Kind(int(op[1])).name}{op[3]}"


def _rows_text(table: OpTable, chosen: Bools) -> str:
    """Return the number of rows, and the first one, as text."""
    count = int(chosen.sum())
    return (
        f"{count} row{'s' * (count > 1)} ({'first ' * (count > 1)}row "
        f"{table.row[np.flatnonzero(chosen)[0]]})"
    )
