"""Replay the ops of a schedule in one order for many samples, and trace them back: for machine
code.

A *row* is an op, a pair or a meeting of all devices, which count once. Rows are numbered from 1 in
an order in which each comes after all that it waits for; row 0 ends at time 0. Row ``r`` has its
entries at ``r - 1``. Times of samples have a line for each op or row and a column for each sample,
so that the inner loops go through neighbours in memory.
"""

from __future__ import annotations

from typing import NamedTuple

from ppsim.core.columns import Floats, Ints


class Rows(NamedTuple):
    """The order of ops, and the inputs of each."""

    op: Ints  # shape (rows,), the op of each row, of several the first
    previous: Ints  # shape (rows,), the row before it on its lane, 0 for none
    inputs_at: Ints  # shape (rows + 1,), where the inputs of each row begin and end
    needs: Ints  # shape (inputs,), the row that makes each; equal ones of a row stand together
    # shape (inputs,), the op that gets it as a message; one without any for no message
    carries: Ints


class Times(NamedTuple):
    """The times of samples, shape (ops, samples) each; those marked so may have one column for all
    samples.
    """

    duration: Floats
    latency: Floats  # of the message that an op gets, 0 for none; perhaps one column
    gap: Floats  # before each op but the first of its lane; perhaps one column; no lines for none
    earliest: Floats  # before which no op starts; no lines for none
    end: Floats  # shape (rows + 1, samples), zeros in row 0: receives the end of each row


class Paths(NamedTuple):
    """One run of a schedule by rows, shape (rows + 1,) each but for the latency."""

    start: Floats
    end: Floats
    latency: Floats  # shape (inputs,)
    latest: Floats  # the makespan everywhere: receives the latest end that does not delay it
    paths: Floats  # zeros: receives the number of longest ways from time 0 to each


def replay(rows: Rows, times: Times) -> None:
    """Find the end of every row in every sample."""
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
    """Count the longest ways to every row, and find how late each may end."""
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
