"""Rows of a table of ops put among steps, replicas and ops; incomplete ones are left out with a
note.
"""

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
HALF = 0.5  # of the steps: a replica that shows fewer is left out
_COMPUTES = np.append(COMPUTES, False)


@dataclass(frozen=True)
class Grid:
    """The place of each row of a table among K steps and R replicas.

    Attributes:
        table: the rows; their device, stage and microbatch are known where they compute.
        iterations, replicas: the numbers that the files give these, in order.
        step, replica: shape (rows,), places in these.
    """

    table: OpTable
    iterations: Ints
    replicas: Ints
    step: Ints
    replica: Ints

    @property
    def computes(self) -> Bools:
        """Whether a row is an op that computes."""
        return _COMPUTES[self.table.kind]

    def keep(self, rows: Bools) -> Grid:
        """Keep some rows."""
        return replace(
            self, table=self.table.keep(rows), step=self.step[rows], replica=self.replica[rows]
        )

    def select(self, steps: Bools, replicas: Bools) -> Grid:
        """Keep some steps and replicas, all of each."""
        kept = self.keep(steps[self.step] & replicas[self.replica])
        step, replica = (np.cumsum(steps) - 1)[kept.step], (np.cumsum(replicas) - 1)[kept.replica]
        numbers = self.iterations[steps], self.replicas[replicas]
        return replace(kept, iterations=numbers[0], replicas=numbers[1], step=step, replica=replica)

    def shift(self, offset: Times) -> Grid:
        """Subtract the lead of clocks from times, shape (K, R, P)."""
        device = np.maximum(self.table.columns["device"], 0)
        return replace(self, table=self.table.shift(offset[self.step, self.replica, device]))


def grid_of(table: OpTable, notes: list[str]) -> Grid:
    """Fill in missing columns, and find each row's step and replica (InputError: nothing tells a
    stage).
    """
    columns = dict(table.columns)
    computes = _COMPUTES[table.kind]
    if not table.has("device"):
        columns["device"] = columns["stage"].copy()
        notes.append("no column says the device: each stage is taken for one")
    lost = columns["device"] == UNKNOWN
    if (lost | ~computes).all():
        raise InputError(
            f"{table.source}: no op that computes has a device", "a column of device or of stage"
        )
    if lost.any():
        notes.append(f"{_rows(table, lost)} without a device: left out")
    for name in ("stage", "microbatch"):
        if name == "stage" and not (columns["stage"][computes] != UNKNOWN).any():
            chunk = np.maximum(columns["chunk"], 0)
            columns["stage"] = columns["device"] + (columns["device"].max() + 1) * chunk
            if chunk.any():
                notes.append(
                    "no column says the stage: taken as device + devices x chunk, as interleaved "
                    "schedules do"
                )
        lacks = np.flatnonzero(computes & ~lost & (columns[name] == UNKNOWN))
        if len(lacks):
            what = table.names[table.name[lacks[0]]]
            raise InputError(
                f"{table.source}, row {table.row[lacks[0]]}: {what} has no {name}",
                f"a column of {name}",
            )
    used = columns["microbatch"][computes & ~lost]
    if len(used) and used.min() == 1:
        columns["microbatch"] = np.where(
            columns["microbatch"] > 0, columns["microbatch"] - 1, UNKNOWN
        )
        notes.append("microbatches are counted from 1 in the file, from 0 here")
    replica = np.where(columns["replica"] == UNKNOWN, 0, columns["replica"])
    filled = replace(table, columns=columns).keep(~lost)
    replicas, replica = np.unique(replica[~lost], return_inverse=True)
    iteration = filled.columns["iteration"]
    if (iteration == UNKNOWN).any():
        iteration = _count_steps(filled, replica)
        notes.append("no column says the iteration: counted by how often each op runs")
    iterations, step = np.unique(iteration, return_inverse=True)
    return Grid(filled, iterations, replicas, step, replica)


def _count_steps(table: OpTable, replica: Ints) -> Ints:
    """Number steps by how often each op has run; rows that do not compute belong to the step that
    runs then.
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
    where = replica * (columns["device"].max() + 1) + columns["device"]
    for each in np.unique(where).tolist():
        own = np.flatnonzero(where == each)
        mine, rest = own[computes[own]], own[~computes[own]]
        firsts = np.full(found[mine].max(initial=0) + 1, np.inf)
        np.fmin.at(firsts, found[mine], table.start[mine])
        found[rest] = np.maximum(np.searchsorted(firsts, table.start[rest], side="right") - 1, 0)
    return found


def whole_steps(grid: Grid, notes: list[str]) -> tuple[Grid, Ints, Times, Times]:
    """Find the ops that each replica runs in a step, and leave out steps that lack one.

    Returns the remaining rows; the ops, shape (ops, 4): device, kind, stage, microbatch; their
    start and end, (K, R, ops) (InputError: no step is whole, or ops are there twice throughout).
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
    twice = _find_twice(grid, at, cell, ops, op, notes)
    start, end = np.full(shape, np.nan), np.full(shape, np.nan)
    start.flat[cell], end.flat[cell] = table.start[at], table.end[at]
    timeless = np.flatnonzero(np.isnan(start).all(axis=(0, 1)))
    start.flat[twice] = np.nan
    there = ~np.isnan(start)
    usual = _usual_ops(ops, there)
    if not usual.any():
        raise InputError(f"{table.source}: no step is whole", "times for all ops of a step")
    if len(timeless):
        raise InputError(
            f"{table.source}: no row of {_label(ops[timeless[0]])} has times",
            "times of start and end, the start first",
        )
    missing = ~there & usual
    whole = ~missing.any(axis=2) & ~(there & ~usual).any(axis=2)

    def why(k: int, r: int) -> str:
        return _missing_ops_text(ops, there[k, r], usual)

    grid, start, end = leave_out(grid, start, end, whole, why, notes)
    return grid, ops[usual], start[:, :, usual], end[:, :, usual]


def _usual_ops(ops: Ints, present: Bools) -> Bools:
    """Find the ops of a whole step: ops in at least half of the steps that their device shows."""
    shown = np.zeros((*present.shape[:2], int(ops[:, 0].max()) + 1), bool)
    for device in range(shown.shape[2]):
        shown[..., device] = present[..., ops[:, 0] == device].any(axis=2)
    count = present.sum(axis=(0, 1))
    usual: Bools = (count > 0) & (count * 2 >= shown.sum(axis=(0, 1))[ops[:, 0]])
    return usual


def leave_out(
    grid: Grid,
    start: Times,
    end: Times,
    whole: Bools,
    why: Callable[[int, int], str],
    notes: list[str],
) -> tuple[Grid, Times, Times]:
    """Leave out replicas that are whole in few steps, and then steps in which one that is left is
    not whole.

    Times have shape (K, R, ops), ``whole`` (K, R); ``why`` names the fault of a replica in a step,
    by their places (InputError: nothing is left).
    """
    if whole.all():
        return grid, start, end
    source, n_steps = grid.table.source, len(whole)
    count = whole.sum(axis=0)
    if not count.any():
        said = f"in step {grid.iterations[0]} replica {grid.replicas[0]} {why(0, 0)}"
        raise InputError(f"{source}: no step is whole: {said}", "rows for all ops of a step")
    replicas = count > HALF * count.max(initial=0)
    steps = np.logical_and.reduce(whole[:, replicas], axis=1)
    for r in np.flatnonzero(~replicas).tolist():
        first = why(int(np.argmin(whole[:, r])), r)
        notes.append(
            f"replica {grid.replicas[r]} is left out: whole in {count[r]} of {n_steps} steps; in "
            f"one {first}"
        )
    lost = np.flatnonzero(~steps)
    if len(lost):
        k = int(lost[0])
        r = int(np.argmin(np.where(replicas, whole[k], True)))
        said = f"in step {grid.iterations[k]} replica {grid.replicas[r]} {why(k, r)}"
        if not steps.any():
            raise InputError(
                f"{source}: no step is whole in all replicas: {said}", "rows for all ops of a step"
            )
        notes.append(
            f"{len(lost)} of {n_steps} steps are left out: {said}" + " ..." * (len(lost) > 1)
        )
    return grid.select(steps, replicas), start[steps][:, replicas], end[steps][:, replicas]


def _find_twice(grid: Grid, at: Ints, cell: Ints, ops: Ints, op: Ints, notes: list[str]) -> Ints:
    """Find the cells for which there are rows that differ; rows that say the same are one."""
    table = grid.table
    order = np.argsort(cell, kind="stable")
    same = np.diff(cell[order]) == 0
    first, second = at[order[:-1][same]], at[order[1:][same]]
    differ = (table.start[first] != table.start[second]) | (table.end[first] != table.end[second])
    if len(first) > differ.sum():
        notes.append(f"{len(first) - differ.sum()} rows are there twice, and count once")
    if not differ.any():
        return np.empty(0, np.int64)
    twice = np.unique(cell[order[1:][same]][differ])
    a, b = first[differ][0], second[differ][0]
    name = _label(ops[op[np.searchsorted(at, a)]])
    said = (
        f"{name} of replica {grid.replicas[grid.replica[a]]} in step "
        f"{grid.iterations[grid.step[a]]}"
    )
    said = f"two rows for {said}: {table.row[a]} and {table.row[b]}"
    if len(twice) > HALF * len(np.unique(cell)):
        hint = (
            "one row per op: rows of several tensor-parallel ranks, or of several runs, are not "
            "told apart"
        )
        raise InputError(f"{table.source}: {said}, and so for {len(twice):,} ops", hint)
    notes.append(said + f", and so for {len(twice)} ops" * (len(twice) > 1))
    return twice


def _missing_ops_text(ops: Ints, present: Bools, usual: Bools) -> str:
    """Return a text on the ops that a replica's step lacks, or has alone."""
    lost, more = np.flatnonzero(usual & ~present), np.flatnonzero(present & ~usual)
    if not len(lost):
        return f"has {_label(ops[more[0]])}, which others have not"
    if not present.any():
        return "is missing"
    return f"lacks {_label(ops[lost[0]])}" + f" and {len(lost) - 1} more ops" * (len(lost) > 1)


def _label(op: Ints) -> str:
    return f"{op[2]}{Kind(int(op[1])).name}{op[3]}"


def _rows(table: OpTable, chosen: Bools) -> str:
    """Count rows and name the first."""
    count = int(chosen.sum())
    return (
        f"{count} row{'s' * (count > 1)} ({'first ' * (count > 1)}row "
        f"{table.row[np.flatnonzero(chosen)[0]]})"
    )
