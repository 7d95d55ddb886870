"""ZB-V's order for given costs, by its authors' heuristic (arXiv 2401.10241, section 6)."""

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
# Microbatches of all devices that a process orders in CPython before it loads the compiled kernel.
COMPILE_ORDERING_ABOVE = 2_500

Orders = list[tuple[float, NDArray[np.int64]]]  # the longest bubble, and types of ops by device


def order_zb_v(
    costs: Costs, devices: int, microbatches: int, limit: float, known: Sequence[list[Packed]] = ()
) -> list[Packed]:
    """Return every device's ops in the best order of four greedy passes.

    Each pass is repeated as long as its bubble shrinks. Costs are of two stages per device, stage s
    on device s or 2P - 1 - s. ``limit``, the memory cap in activations of one stage, is at least 2P
    or 2M. A pass for equal times, an order of ``known`` (which run within the cap), or another of
    the passes' orders replaces the best one if it has a shorter makespan and no longer span. If no
    pass finds an order that can run, the order for equal times is returned.
    """
    large = machine_code_pays(kernel.order_greedily, microbatches * devices, COMPILE_ORDERING_ABOVE)
    shape = (devices, microbatches, float(limit), large and can_compile())
    found = [_orders_within(costs, *shape), equal_orders(*shape)]
    # the first is empty if no pass found an order that runs
    best = min(found[0] or found[1], key=lambda each: each[0])
    others = [*known, *(queues_of(types) for _, types in itertools.chain(*found))]
    return take_fastest(
        place("v", devices, 2 * devices), microbatches, queues_of(best[1]), others, costs
    )


@lru_cache(maxsize=2)  # for many costs of one shape
def equal_orders(devices: int, microbatches: int, limit: float, compiled: bool) -> Orders:
    """Return the orders for equal times, with a memory cap in activations of one stage."""
    equal = Costs(np.ones((4, 2 * devices)))
    return _orders_within(equal, devices, microbatches, limit, compiled)


def _orders_within(
    costs: Costs, devices: int, microbatches: int, limit: float, compiled: bool
) -> Orders:
    """Return the orders for costs, with a memory cap in activations of one stage."""
    # one activation per F, freed by W
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
    """Yield the orders that the passes find: longest bubble, and types of ops, shape (P, 6M).

    Costs are of two stages per device, stage s on device s or 2P - 1 - s. ``limits``, shape (P,),
    are memory caps in activations; ``held``, shape (6, P), is the change by each type of op.
    ``compiled`` uses machine code, which pays for large shapes.
    """
    devices = len(limits)
    both = held[:2].sum(axis=0)
    everything = limits >= microbatches * both  # a pass needs the activations of P microbatches
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
    """Return durations by type and device, shape (6, P), and latencies, shape (P, P)."""
    first, second = np.arange(devices), 2 * devices - 1 - np.arange(devices)
    rows = [
        costs.time[kind, second if late else first]
        for kind, late in zip(KINDS, SECOND, strict=True)
    ]
    time = np.array(rows) / (1.0 if costs.speed is None else costs.speed)
    latency = np.array(np.broadcast_to(np.asarray(costs.comm, np.float64), (devices, devices)))
    return time, latency


def queues_of(types: NDArray[np.integer]) -> list[Packed]:
    """Return rows of types, one per device, as queues; the k-th op of a type has microbatch k."""
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
    """Run a pass, compiled or in CPython, and return its longest bubble."""
    if compiled:
        return float(call(kernel.order_greedily, tables, fill_forward, fill_backward, parts=PARTS))
    return float(kernel.order_greedily(view(tables), fill_forward, fill_backward))
