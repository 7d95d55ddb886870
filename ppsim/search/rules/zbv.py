"""ZB-V as its authors' heuristic orders it for given costs (Qi et al., arXiv 2401.10241, section
6).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ppsim.base.compiled import call, can_compile, machine_code_pays, view
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import place
from ppsim.search.rules import zbv_kernel as kernel
from ppsim.search.rules.orders import take_fastest
from ppsim.search.rules.zbv_kernel import NEVER, PARTS, UNSET, VTables

# Of the six types; as integers, for numpy asks a member of Kind for a dozen attributes first.
KINDS = tuple(map(int, (Kind.F, Kind.F, Kind.I, Kind.I, Kind.W, Kind.W)))
# whether a type belongs to a device's second stage
SECOND = (False, True, True, False, True, False)
# Microbatches of a device that a process orders in CPython, their six ops eight times each, before
# the compiled pass pays for its loading.
COMPILE_ORDERING_ABOVE = 2_500

Orders = list[tuple[float, NDArray[np.int64]]]  # the longest bubble, and types of ops by device


def order_zb_v(
    costs: Costs, devices: int, microbatches: int, limit: float, known: Sequence[list[Packed]] = ()
) -> list[Packed]:
    """Order the ops of every device: the best of four greedy passes, each repeated as long as its
    bubble shrinks.

    Costs are of two stages per device, stage s on device s or 2P - 1 - s; the limit, of activations
    of one stage that a device may hold, is at least 2P or 2M. Passes for equal times, orders
    ``known`` to run within the limit and the passes' other orders are taken where neither span nor
    makespan is longer. Where no pass comes to an order that can run, the order is that for equal
    times.
    """
    large = machine_code_pays(kernel.order_greedily, microbatches * devices, COMPILE_ORDERING_ABOVE)
    shape = (devices, microbatches, float(limit), large and can_compile())
    found = [_orders_within(costs, *shape), equal_orders(*shape)]
    # the first is empty where its passes contradict
    own = min(found[0] or found[1], key=lambda each: each[0])
    others = [*known, *(queues_of(types) for _, types in itertools.chain(*found))]
    return take_fastest(
        place("v", devices, 2 * devices), microbatches, queues_of(own[1]), others, costs
    )


@lru_cache(maxsize=2)  # many costs are tried of one shape
def equal_orders(devices: int, microbatches: int, limit: float, compiled: bool) -> Orders:
    """List the orders for equal times, of devices that hold ``limit`` activations of one stage."""
    equal = Costs(np.ones((4, 2 * devices)))
    return _orders_within(equal, devices, microbatches, limit, compiled)


def _orders_within(
    costs: Costs, devices: int, microbatches: int, limit: float, compiled: bool
) -> Orders:
    """List the orders for costs, of devices that hold ``limit`` activations of one stage."""
    # activations of one stage, given back by W
    held = np.repeat([1.0, 0.0, -1.0], 2)[:, None] * np.ones(devices)
    limits = np.full(devices, limit)
    return list(list_orders(costs, microbatches, limits, held, compiled=compiled))


def list_orders(
    costs: Costs,
    microbatches: int,
    limits: NDArray[np.float64],
    held: NDArray[np.float64],
    *,
    compiled: bool,
) -> Iterator[tuple[float, NDArray[np.int64]]]:
    """List the orders that the passes come to: the longest bubble, and the types of the ops, shape
    (P, 6M).

    Costs are of two stages per device, stage s on device s or 2P - 1 - s; limits, shape (P,), of
    activations held, of which an op of each type adds ``held``, shape (6, P). Machine code
    (``compiled``) pays for large shapes.
    """
    devices = len(limits)
    both = held[:2].sum(axis=0)
    everything = limits >= microbatches * both  # a pass asks for the activations of P microbatches
    limits = np.where(everything, np.maximum(limits, devices * both), limits)
    time, latency = type_times(costs, devices)
    for fill_backward, fill_forward in product((True, False), repeat=2):
        approved = np.full(devices, -1.0)
        longest = NEVER
        while True:
            tables = _tables(time, latency, approved, microbatches, limits, held)
            bubble = _run(tables, fill_forward, fill_backward, compiled)
            if bubble >= longest:
                break
            longest, approved = bubble, tables.bubble
            yield bubble, tables.order.reshape(devices, -1)


def type_times(costs: Costs, devices: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return durations by type and device, shape (6, P), and latencies by source and target, shape
    (P, P).
    """
    first, second = np.arange(devices), 2 * devices - 1 - np.arange(devices)
    rows = [
        costs.time[kind, second if late else first]
        for kind, late in zip(KINDS, SECOND, strict=True)
    ]
    time = np.array(rows) / (1.0 if costs.speed is None else costs.speed)
    latency = np.array(np.broadcast_to(np.asarray(costs.comm, np.float64), (devices, devices)))
    return time, latency


def queues_of(types: NDArray[np.integer]) -> list[Packed]:
    """Write rows of types, one per device, as queues; the k-th op of a type is that of microbatch
    k.
    """
    queues = []
    for device, row in enumerate(types):
        queue = np.empty(len(row), np.int64)
        for kind, late in enumerate(SECOND):
            here = np.flatnonzero(row == kind)
            stage = 2 * len(types) - 1 - device if late else device
            queue[here] = pack(stage, np.arange(len(here))) | KINDS[kind]
        queues.append(queue)
    return queues


def _tables(
    time: NDArray[np.float64],
    latency: NDArray[np.float64],
    approved: NDArray[np.float64],
    M: int,
    limits: NDArray[np.float64],
    held: NDArray[np.float64],
) -> VTables:
    P = len(approved)
    return VTables(
        time=time.ravel(),
        latency=latency.ravel(),
        held=np.ascontiguousarray(held.ravel()),
        limit=limits,
        approved=approved,
        end=np.full(4 * P * M, UNSET),
        now=np.zeros(P),
        memory=np.zeros(P),
        bubble=np.zeros(P),
        most=np.zeros(1),
        ran=np.zeros(6 * P, np.int64),
        waiting=np.zeros(2 * M * P, np.int64),
        order=np.zeros(6 * M * P, np.int64),
        length=np.zeros(P, np.int64),
    )


def _run(tables: VTables, fill_forward: bool, fill_backward: bool, compiled: bool) -> float:
    """Run the pass, as machine code or in CPython over views of the same memory."""
    if compiled:
        return float(call(kernel.order_greedily, tables, fill_forward, fill_backward, parts=PARTS))
    return float(kernel.order_greedily(view(tables), fill_forward, fill_backward))
