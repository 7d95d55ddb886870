"""The search under a limit is at least as good as its authors' adaptive search, and keeps the
limit.
"""

import json
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.base.deadline import TimeOver, end_by
from ppsim.core.costs import Costs, costs_for
from ppsim.core.schedule import place
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, peak_activations
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.orders import v_limit
from ppsim.search.orders.improve import HOT, cost_of
from ppsim.search.orders.v_limit import list_blocks, order_v
from ppsim.search.problem import Problem
from ppsim.search.rules import policies
from ppsim.search.rules.orders import pack_queues, write_one_by_one
from tests.golden import COSTS

RECORDS = json.loads((Path(__file__).parents[2] / "data" / "search" / "v_limit.json").read_text())


def found(devices: int, microbatches: int, limit: int, **times: float) -> tuple[float, float, int]:
    """Span, makespan and peak of v-auto with these times per stage."""
    costs: Any = partial(costs_for, per="stage", **times)  # type: ignore[arg-type]
    schedule = generate(
        "v-auto", devices=devices, microbatches=microbatches, limit=limit, costs=costs
    )
    metrics = measure(simulate(schedule, costs(schedule)))
    return metrics.span, metrics.makespan, int(peak_activations(schedule).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", RECORDS["caps"][::2], ids=lambda row: f"{row['t_f']}-{row['cap_stage_activations']}"
)
def test_no_limit_leads_to_a_longer_span_than_the_authors_search(row):
    """Under every cap of the record, and where the authors' search finds nothing there is a
    schedule too.
    """
    times = {"tf": row["t_f"], "ti": row["t_i"], "tw": row["t_w"], "comm": row["comm"]}
    limit = row["cap_stage_activations"]
    span, _, peak = found(row["devices"], row["microbatches"], limit, **times)
    assert peak <= limit
    assert row["longest_span"] is None or span <= row["longest_span"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "row", RECORDS["orders"][::2], ids=lambda row: f"{row['P']}x{row['M']}-{row['limit']}"
)
def test_every_cost_model_of_the_authors_orders_is_at_least_as_good(row):
    """Makespan and span of each record, with the costs that it was timed with."""
    for key, times in COSTS.items():
        if key in row["makespan"]:
            span, makespan, peak = found(row["P"], row["M"], row["limit"], **times)
            assert (
                span <= row["span"][key],
                makespan <= row["makespan"][key],
                peak <= row["limit"],
            ) == (True,) * 3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("limit", "most"), [(2, 144), (3, 144), (4, 59), (6, 53), (8, 48)])
def test_without_machine_code_the_blocks_are_left(monkeypatch, limit, most):
    """Where numba does not compile there are no walks, and the best block is the answer."""
    monkeypatch.setattr(v_limit, "can_compile", lambda: False)
    v_limit.order_from.cache_clear()
    span, _, peak = found(4, 8, limit, tf=1, ti=1, tw=1)
    assert span <= most
    assert peak <= limit
    v_limit.order_from.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "most"), [(4, 2500), (5, 2100)])
def test_rules_write_orders_where_no_block_fits(limit, most):
    """No block of eight devices holds so little; one microbatch at a time, improved, takes 3487 and
    3496.
    """
    span, _, peak = found(8, 16, limit, tf=10, ti=11, tw=8, comm=1)
    assert span <= most
    assert peak <= limit


def test_a_limit_below_one_microbatch_is_refused():
    """A microbatch passes each device twice before its first backward, so that the least limit is
    2.
    """
    with pytest.raises(InputError, match="a limit of at least 2 activations") as error:
        generate("v-auto", devices=4, microbatches=8, limit=1)
    assert error.value.hint == "--limit 2"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("devices", [1, 2, 5, 8])
def test_listed_blocks_can_repeat(devices):
    """No two ops of a device share a slot, every op comes after its input, and V-Min's peak is
    among them.
    """
    blocks = list_blocks(place("v", devices, 2 * devices))
    assert all(block.clash() is None for block in blocks)
    for block in blocks:
        way = np.concatenate([block.forward, block.backward[::-1]])
        assert (np.diff(way) > 0).all()
    assert min(block.peaks.max() for block in blocks) <= 2 * ((devices + 1) // 3) + 2


@cache
def blocks(devices):
    return list_blocks(place("v", devices, 2 * devices))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize(
    ("devices", "microbatches", "limit", "greedy"),
    [
        (4, 4, 8, True),
        (4, 4, 7, False),
        (4, 2, 4, True),
        (4, 2, 3, False),
        (2, 9, 4, True),
        (2, 9, 3, False),
    ],
)
def test_orders_begin_with_what_the_limit_allows(
    monkeypatch, devices, microbatches, limit, greedy, compiles
):
    """ZB-V's where all or 2P fit, the blocks that hold no more, those first that hold longest, and
    rules in the end.
    """
    problem = Problem(
        place("v", devices, 2 * devices),
        microbatches,
        Costs(np.ones((4, 2 * devices))),
        float(limit),
    )
    ops, tried = 6 * devices * microbatches, list[Any]()

    def complete(block, M):
        tried.append(block)
        return "block"

    monkeypatch.setattr(v_limit, "can_compile", lambda: compiles)
    monkeypatch.setattr(v_limit, "LARGE", ops if devices == 4 else ops + 1)
    monkeypatch.setattr(v_limit, "list_blocks", lambda placement: blocks(placement.n_devices))
    monkeypatch.setattr(v_limit, "order_zb_v", lambda *given: "greedy")
    monkeypatch.setattr(v_limit, "complete", complete)
    monkeypatch.setattr(v_limit, "_completed_block_cached", v_limit._completed_block)
    monkeypatch.setattr(v_limit, "_read", lambda placement, microbatches, queues: queues)
    monkeypatch.setattr(v_limit, "write_v", lambda problem: [("", "pass")])
    monkeypatch.setattr(policies, "write_near_cap", lambda problem: [("", "near")])
    monkeypatch.setattr(v_limit, "write_one_by_one", lambda problem: "one")
    made = [str(each) for each in v_limit._starts(problem, limit)]
    within = [block for block in blocks(devices) if block.peaks.max() <= limit]
    count = min(len(within), max(v_limit.FEWEST_TRIED, v_limit.OPS_TRIED // ops))
    near = not within or (devices == 4 and compiles)
    assert made == ["greedy"] * greedy + ["block"] * count + ["pass"] + ["near"] * near + ["one"]
    assert all(block.peaks.max() <= limit for block in tried)
    spans = [int(block.lifespans.sum()) for block in tried]
    assert spans == sorted((int(block.lifespans.sum()) for block in within), reverse=True)[:count]


def test_a_block_that_holds_just_the_limit_is_tried(monkeypatch):
    least, tried = min(int(block.peaks.max()) for block in blocks(4)), list[int]()
    monkeypatch.setattr(v_limit, "list_blocks", lambda placement: blocks(placement.n_devices))
    monkeypatch.setattr(v_limit, "complete", lambda block, M: tried.append(int(block.peaks.max())))
    monkeypatch.setattr(v_limit, "_completed_block_cached", v_limit._completed_block)
    monkeypatch.setattr(v_limit, "_read", lambda placement, microbatches, queues: queues)
    for limit in (least - 1, least):
        list(
            v_limit._starts(
                Problem(place("v", 4, 8), 4, Costs(np.ones((4, 8))), float(limit)), limit
            )
        )
        assert set(tried) == ({least} if limit == least else set())


def test_the_search_for_an_order_ends_at_a_deadline():
    """Nothing is kept of it: asked again it is whole."""
    costs = Costs(np.ones((4, 8)) * [[1], [2], [1], [1.25]], 0.5)
    with end_by(0), pytest.raises(TimeOver):
        order_v(costs, 4, 3, 4)
    assert len(order_v(costs, 4, 3, 4)) == 4


def test_walks_start_from_the_best_orders_and_the_best_of_all_is_taken(monkeypatch):
    """Four of them, from each heat and for as many moves as ten million timings of its 6 x 2 x 24
    ops allow.
    """
    asked, best = list[tuple[float, int, int, float]](), list[list[int]]()

    def anneal(problem, queues, seed, stop, moves, hot):
        asked.append((cost_of(problem, queues), seed, moves, hot))
        if len(asked) != 5:
            return float("inf"), queues
        best.extend(queue.tolist() for queue in pack_queues(problem, write_one_by_one(problem)))
        return 0.0, write_one_by_one(problem)

    monkeypatch.setattr(v_limit, "can_compile", lambda: True)
    monkeypatch.setattr(v_limit, "anneal", anneal)
    v_limit.order_from.cache_clear()
    found = order_v(Costs(np.ones((4, 4)) * [[1], [2], [1], [1.25]], 0.5), 2, 24, 3)
    v_limit.order_from.cache_clear()
    turns = [(seed, 10_000_000 // 288, hot) for seed in (1, 2, 3, 4) for hot in HOT]
    assert [rest for _, *rest in asked] == [list(turn) for turn in turns]
    assert [cost for cost, *_ in asked] == sorted(cost for cost, *_ in asked)
    assert [queue.tolist() for queue in found] == best
