"""Changes of costs to simulate: equal stages, moved layers, other times, another schedule's ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import ONCE_A_STEP, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError


def level_stages(costs: Costs) -> Costs:
    """Return the costs with the same work on every stage, as if layers were split evenly."""
    mean = np.broadcast_to(costs.time.mean(axis=1, keepdims=True), costs.time.shape)
    pair = None if costs.pair is None else np.full_like(costs.pair, costs.pair.mean())
    return replace(costs, time=mean.copy(), pair=pair)


def move_work(costs: Costs, source: int, target: int, share: float) -> Costs:
    """Return the costs with a share of one stage's work of all kinds moved to another stage."""
    return replace(
        costs,
        time=_shift_time(costs.time, source, target, share),
        pair=None if costs.pair is None else _shift_time(costs.pair, source, target, share),
    )


def change_time(costs: Costs, kind: int, stages: Sequence[int], value: ArrayLike) -> Costs:
    """Return the costs with another time for a kind of op on some stages, and derived times.

    If B was the sum of I and W, it stays their sum, and they keep their shares. If R was equal to
    F, it stays equal.
    """
    before, time = costs.time, costs.time.copy()
    time[kind, stages] = value
    summed = np.isclose(before[Kind.B], before[Kind.I] + before[Kind.W])
    if kind == Kind.B:
        share = np.divide(
            before[Kind.I],
            before[Kind.B],
            out=np.full(before.shape[1], 0.5),
            where=before[Kind.B] > 0,
        )
        time[Kind.I] = np.where(summed, share * time[Kind.B], time[Kind.I])
        time[Kind.W] = np.where(summed, time[Kind.B] - time[Kind.I], time[Kind.W])
    elif kind in (Kind.I, Kind.W):
        time[Kind.B] = np.where(summed, time[Kind.I] + time[Kind.W], time[Kind.B])
    elif kind == Kind.F:
        time[Kind.R] = np.where(before[Kind.R] == before[Kind.F], time[Kind.F], time[Kind.R])
    return with_times(costs, time)


def stretch_split(costs: Costs, factor: float) -> Costs:
    """Return the costs with I and W ``factor`` times as long, and full backwards unchanged."""
    time = costs.time.copy()
    time[[Kind.I, Kind.W]] *= factor
    return replace(costs, time=time)


def with_times(costs: Costs, time: NDArray[np.float64]) -> Costs:
    """Return the costs with another table of times; pairs change in proportion to F + B."""
    if costs.pair is None:
        return replace(costs, time=time)
    before, after = (table[Kind.F] + table[Kind.B] for table in (costs.time, time))
    return replace(
        costs,
        time=time,
        pair=costs.pair * np.divide(after, before, out=np.ones_like(before), where=before > 0),
    )


def adapt_costs(costs: Costs, schedule: Schedule) -> Costs:
    """Return measured costs for another schedule of the same stages.

    A kind that was not measured follows from others: B is I + W, and I and W are half of B each. A
    link that was not measured gets the median of measured links.

    Raises:
        InputError: the schedule has another number of stages.
    """
    if schedule.n_stages != costs.time.shape[1]:
        raise InputError(
            f"times were measured for {costs.time.shape[1]} stages, and {schedule.name} has "
            f"{schedule.n_stages}",
            "a schedule of as many stages",
        )
    time = costs.time.copy()
    full, halves = time[Kind.B] > 0, time[Kind.I] + time[Kind.W]
    time[Kind.B] = np.where(full, time[Kind.B], halves)
    for kind in (Kind.I, Kind.W):
        time[kind] = np.where(halves > 0, time[kind], time[Kind.B] / 2)
    links = np.array(costs.comm, np.float64)
    if links.ndim and (links > 0).any():
        links[links == 0] = np.median(links[links > 0])
        np.fill_diagonal(links, 0.0)
    return replace(costs, time=time, comm=links)


def times_sliced(costs: Costs, factor: float) -> Costs:
    """Return the costs with ops ``factor`` times as long, from slices to sequences or back.

    Messages, and ops that run once per training step, take as long as before.
    """
    others = {
        kind: time if kind in ONCE_A_STEP else time * factor for kind, time in costs.others.items()
    }
    pair = None if costs.pair is None else costs.pair * factor
    return replace(costs, time=costs.time * factor, pair=pair, others=others)


def _shift_time(
    time: NDArray[np.float64], source: int, target: int, share: float
) -> NDArray[np.float64]:
    moved = time.copy()
    part = share * time[..., source]
    moved[..., source] -= part
    moved[..., target] += part
    return moved
