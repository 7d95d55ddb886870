"""Schedules for any placement by list scheduling, for a grid of settings.

See :mod:`ppsim.search.rules.policy_kernel`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise, product

import numpy as np

from ppsim.base.compiled import call, machine_code_pays
from ppsim.search.problem import Problem
from ppsim.search.rules import policy_kernel
from ppsim.search.rules.heuristics import time_table
from ppsim.search.rules.orders import KINDS, Queues, make_orders, write_one_by_one
from ppsim.search.rules.policy_kernel import Policy

# Ops that a process writes in CPython before it loads the compiled kernel.
COMPILE_WRITING_ABOVE = 36_000
# Numbers of F in flight on a stage for each later stage: 1 in 1F1B, 2 in ZB-H2.
DEPTHS = (0.3, 0.45, 0.6, 0.8, 1.0, 1.2, 1.5, 1.8, 2.0, 2.2)
SLACKS = (0.0, 1.0, np.inf)  # in mean op durations per stage
# Depths as shares of the depth that a cap allows, the ones that are most often best first.
SHARES_OF_CAP = (0.95, 0.9, 0.85, 1.0, 0.8)

# A setting: depth, slack, patience, and whether F, and I, of later stages go first.
Setting = tuple[float, float, float, tuple[bool, bool]]


def write_policies(problem: Problem) -> Iterator[tuple[str, Queues]]:
    """Yield a name and queues for each setting that does not deadlock."""
    several = problem.n_stages > problem.n_devices
    firsts = [(f, i) for f in (True, False) for i in (True, False)] if several else [(True, True)]
    yield from write_near_cap(problem)
    yield from _write_all(problem, product(DEPTHS, SLACKS, (1.0, 0.0), firsts))


def write_near_cap(problem: Problem) -> Iterator[tuple[str, Queues]]:
    """Yield queues with about as many F in flight as the caps allow.

    There are none if the caps do not limit the depth.
    """
    has_stages = problem.least_caps > 0
    microbatches = problem.caps[has_stages] / problem.least_caps[has_stages]
    depth = float(microbatches.min(initial=np.inf)) / problem.n_devices
    if depth <= max(DEPTHS):
        firsts = (True, False), (True, True)
        depths = [depth * share for share in SHARES_OF_CAP]
        yield from _write_all(problem, product(depths, SLACKS[:2], (1.0,), firsts))


def _write_all(problem: Problem, settings: Iterable[Setting]) -> Iterator[tuple[str, Queues]]:
    """Yield a name and queues for each of these settings that does not deadlock."""
    orders = make_orders(problem, write_one_by_one(problem))
    policy = make_policy(problem)
    mean = float(time_table(problem).mean())
    later = problem.n_stages - 1 - np.arange(problem.n_stages)
    for depth, slack, patience, first in settings:
        policy.limit[:] = 1 + np.round(depth * later)
        policy.slack[:] = slack * mean * problem.n_stages
        policy.patience[:] = patience * mean
        policy.late_first[:] = first
        pays = machine_code_pays(policy_kernel.write, len(orders.code), COMPILE_WRITING_ABOVE)
        if call(policy_kernel.write, orders, policy, parts=policy_kernel.PARTS, pays=pays):
            yield (
                "list scheduling",
                [orders.code[a:b].astype(np.int64) for a, b in pairwise(orders.offsets)],
            )


def make_policy(problem: Problem) -> Policy:
    """Return empty settings and the state of the devices at the start."""
    stages, devices = problem.n_stages, problem.n_devices
    counts = np.bincount(problem.device, minlength=devices)
    by_device = np.argsort(problem.device, kind="stable")
    amounts = problem.amounts[by_device]
    ends = np.repeat(np.cumsum(problem.least_caps), counts)
    return Policy(
        limit=np.zeros(stages, np.int64),
        slack=np.zeros(devices),
        patience=np.zeros(devices),
        late_first=np.zeros(2, np.int64),
        change=problem.changes[KINDS].ravel(),
        cap=problem.caps,
        needed=(ends - np.cumsum(amounts) + amounts).astype(np.float64),
        stages=by_device.astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        done=np.zeros(3 * stages, np.int64),
        weights=np.zeros(stages * problem.microbatches, np.int64),
        waiting=np.zeros((2, devices), np.int64),
        busy=np.zeros(devices),
        wake=np.zeros(devices),
        held=np.zeros(devices),
        idle=np.zeros(devices),
        filled=np.zeros(devices, np.int64),
    )
