"""Kernels that replay the ops of a schedule in one order for many samples, and trace them back.

A *row* is an op, a pair or a meeting of all devices. Rows are numbered from 1, each after all rows
that it waits for; row 0 ends at time 0. The entries of row ``r`` have index ``r - 1``. Times of
samples have shape (ops or rows, samples), so that inner loops run over neighbours in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ints


class Rows(NamedTuple):
    """The order of ops, and the inputs of each."""

    op: Ints  # shape (rows,), the op of each row, the first of several
    previous: Ints  # shape (rows,), the row before on its lane, 0 for none
    inputs_at: Ints  # shape (rows + 1,), start and end of each row's inputs
    needs: Ints  # shape (inputs,), the row that makes each input, sorted for each row
    # shape (inputs,), the op that receives it as a message; an op without one for no message
    carries: Ints


class Times(NamedTuple):
    """The times of samples, shape (ops, samples) each."""

    duration: Floats
    latency: Floats  # of the op's message, 0 for none; may have one column for all samples
    # before each op but the first of its lane; may have one column; shape (0, 1) for none
    gap: Floats
    earliest: Floats  # earliest starts; shape (0, 1) for none
    end: Floats  # shape (rows + 1, samples), zeros in row 0: receives the end of each row


class Paths(NamedTuple):
    """One run of a schedule by rows, shape (rows + 1,) each except for the latency."""

    start: Floats
    end: Floats
    latency: Floats  # shape (inputs,)
    latest: Floats  # the makespan at first: receives the latest end that does not delay the run
    paths: Floats  # zeros at first: receives the number of longest paths from time 0 to each row


def replay(rows: Rows, times: Times) -> None:
    """Compute the end of every row in every sample."""
    end, latency, gap = times.end, times.latency, times.gap
    samples = end.shape[1]
    for row in range(1, len(end)):
        op = rows.op[row - 1]
        before = rows.previous[row - 1]
        for k in range(samples):
            end[row, k] = end[before, k]
        if before > 0 and len(gap) > 0:
            for k in range(samples):
                end[row, k] += gap[op, k] if gap.shape[1] > 1 else gap[op, 0]
        for place in range(rows.inputs_at[row - 1], rows.inputs_at[row]):
            need = rows.needs[place]
            message = rows.carries[place]
            if latency.shape[1] == samples:
                for k in range(samples):
                    end[row, k] = max(end[row, k], end[need, k] + latency[message, k])
            else:
                travel = latency[message, 0]
                for k in range(samples):
                    end[row, k] = max(end[row, k], end[need, k] + travel)
        if len(times.earliest) > 0:
            for k in range(samples):
                end[row, k] = max(end[row, k], times.earliest[op, k])
        for k in range(samples):
            end[row, k] += times.duration[op, k]


def trace(rows: Rows, found: Paths) -> None:
    """Compute the number of longest paths to every row, and its latest end without delay."""
    start, end, latency = found.start, found.end, found.latency
    latest, paths = found.latest, found.paths
    for row in range(1, len(end)):
        before = rows.previous[row - 1]
        follows = before > 0 and end[before] == start[row]
        if follows:
            paths[row] += paths[before]
        counted = before if follows else 0
        for place in range(rows.inputs_at[row - 1], rows.inputs_at[row]):
            need = rows.needs[place]
            decides = end[need] + latency[place] == start[row]
            if decides and need != counted and not (follows and need == before):
                paths[row] += paths[need]
                counted = need
        if start[row] == 0.0 and paths[row] == 0.0:
            paths[row] = 1.0
    for row in range(len(end) - 1, 0, -1):
        begin = latest[row] - (end[row] - start[row])
        before = rows.previous[row - 1]
        latest[before] = min(latest[before], begin)
        for place in range(rows.inputs_at[row - 1], rows.inputs_at[row]):
            need = rows.needs[place]
            latest[need] = min(latest[need], begin - latency[place])
