"""ZB-V's greedy order runs whatever stages and messages cost, and follows what they cost."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, peak_activations
from ppsim.schedules import generate
from ppsim.search.problem import Problem, fits
from ppsim.search.rules import zbv, zbv_kernel
from ppsim.search.rules.heuristics import write_v
from ppsim.search.rules.orders import write_schedule
from tests.search.orders.prices import costs as prices


@pytest.mark.sampled(9)
@pytest.mark.parametrize("seed", range(40))
def test_any_costs_lead_to_an_order_that_runs_within_the_limit(seed):
    """Uneven stages and long messages, with which the greedy passes contradict themselves, give an
    order as well.
    """
    draw = np.random.default_rng(seed)
    P, M = int(draw.integers(1, 7)), int(draw.integers(1, 16))
    tf, ti, tw = draw.uniform(0, 5, (3, 2 * P))
    costs = partial(costs_for, tf=tf, ti=ti, tw=tw, comm=float(draw.choice([0, 0.1, 5, 50])))
    schedule = generate("zb-v", devices=P, microbatches=M, costs=costs)
    simulate(schedule, costs(schedule))
    assert peak_activations(schedule).max() <= min(2 * M, 2 * P)


@pytest.mark.parametrize("limit", [5, 6, 7, 8])
def test_the_first_device_warms_up_to_its_limit(limit):
    """With equal times device d runs 2P - 1 - 2d forwards of its first stage before one of its
    second, 2P hold: the picture of arXiv 2401.10241, figure 6. Device 0 leaves room for that one
    where its limit is lower.
    """
    P, M, held = 4, 12, np.outer([1.0, 1, 0, 0, -1, -1], np.ones(4))
    limits = np.full(P, limit - zbv_kernel.SLACK)  # sums of shares may be above it by so much
    tables = zbv._tables(np.ones((6, P)), np.zeros((P, P)), np.full(P, -1.0), M, limits, held)
    zbv_kernel.warm_up(tables)
    ran = [
        "".join(map(str, row[:length]))
        for row, length in zip(tables.order.reshape(P, -1), tables.length, strict=True)
    ]
    assert ran[0] == "0" * (limit - 1) + "1"
    if limit == 2 * P:
        assert ran == ["00000001", "00000101", "00010101", "01010101"]


@pytest.mark.parametrize(
    ("gap", "ran"), [(2.5, [0]), (2.625, [4, 0]), (4.0, [4, 0]), (8.5, [4, 0])]
)
def test_one_more_w_runs_where_a_bubble_would_grow_and_not_where_it_is_as_long(gap, ran):
    """Device 1 idles 2 before the first I that reaches it, at 5, and 2.5 more make it as idle as
    any; a W takes 4.
    """
    P, M, time = 2, 3, np.ones((6, 2))
    time[4:] = 4.0
    limits, none = np.full(P, 9.0), np.zeros((6, P))
    tables = zbv._tables(time, np.zeros((P, P)), np.full(P, -1.0), M, limits, none)
    for kind, device in ((0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1), (0, 0)):
        zbv_kernel.run(tables, kind, device)
    assert (tables.now[1], tables.bubble[1], tables.length[1]) == (6, 2, 3)
    tables.end[1], tables.most[0] = 6 + gap, 4.5  # the second F of device 0, and the longest bubble
    zbv_kernel.run_after_w(tables, 0, 1, True, -1.0)
    assert tables.order[6 * M + 3 : 6 * M + tables.length[1]].tolist() == ran


def test_a_slow_device_takes_longer_for_every_type():
    """Stages 0 and 3 on device 0, 1 and 2 on device 1, which is half as fast."""
    time = np.arange(16.0).reshape(4, 4)
    costs = Costs(time, speed=np.array([1.0, 0.5]))
    types, latency = zbv.type_times(costs, 2)
    f, i, w = time[Kind.F], time[Kind.I], time[Kind.W]
    by_hand = [[row[s] for row, s in zip((f, f, i, i, w, w), (0, 3, 3, 0, 3, 0), strict=True)]]
    by_hand += [[2 * row[s] for row, s in zip((f, f, i, i, w, w), (1, 2, 2, 1, 2, 1), strict=True)]]
    assert types.T.tolist() == by_hand
    assert latency.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("name", ["zb-v", "v-auto"])
def test_a_limit_of_all_activations_is_no_limit(name):
    """Fewer microbatches than devices may all be held, whatever the limit says."""
    schedule = generate(name, devices=4, microbatches=3, limit=6)
    assert peak_activations(schedule).max() <= 6
    assert simulate(schedule, costs_for(schedule)).makespan == 11.5


def test_the_order_follows_the_costs():
    """With the costs known the span is shorter than with the order for equal times."""
    costs = partial(costs_for, tf=3, ti=4, tw=2, comm=0.5)
    known = generate("zb-v", devices=4, microbatches=12, costs=costs)
    equal = generate("zb-v", devices=4, microbatches=12)
    spans = [measure(simulate(schedule, costs(schedule))).span for schedule in (known, equal)]
    assert spans[0] < spans[1]


@pytest.mark.sampled(14)
@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    ("name", "fixed"), [("zb-v", ["zb-v-torch"]), ("zb-auto", ["zb-1p", "zb-h2"])]
)
def test_no_known_order_is_better(name, fixed, seed):
    """No fixed order that fits, and not the order for equal times, is shorter in makespan and no
    longer in span.
    """
    draw = np.random.default_rng(seed)
    P, M, stages = int(draw.integers(2, 6)), int(draw.integers(1, 14)), 2 if name == "zb-v" else 1
    times = dict(
        zip(("tf", "ti", "tw"), draw.choice([0.5, 1, 1.5, 3], (3, stages * P)), strict=True)
    )
    speed, scale = draw.uniform(0.8, 1.2, P), draw.uniform(0.5, 1.5, (5, M))

    def costs(schedule):
        made = costs_for(schedule, **times, comm=float(draw_comm))
        return replace(made, speed=speed, scale=scale) if seed % 2 else made

    draw_comm = draw.choice([0, 0.2, 2])
    ours = generate(name, devices=P, microbatches=M, costs=costs)
    found, most = measure(simulate(ours, costs(ours))), (2 if name == "zb-v" else 1) * P
    for other in (name, *fixed):
        known = generate(other, devices=P, microbatches=M)
        if peak_activations(known).max() <= most:
            numbers = measure(simulate(known, costs(known)))
            assert numbers.span > found.span or numbers.makespan >= found.makespan


@pytest.mark.slow
def test_machine_code_orders_as_python_does(monkeypatch):
    """The compiled pass and the plain one give the same queues."""
    schedule = generate("zb-v", devices=3, microbatches=7)
    costs = costs_for(schedule, tf=3, ti=4, tw=2, comm=1)
    plain = zbv.order_zb_v(costs, 3, 7, 6)
    monkeypatch.setattr(zbv, "COMPILE_ORDERING_ABOVE", 0)
    coded = zbv.order_zb_v(costs, 3, 7, 6)
    assert all(map(np.array_equal, plain, coded))


def test_the_heuristic_keeps_each_devices_own_cap_with_shares_counted():
    """Two devices may hold more than the others, and half of an activation is held between I
    and W.
    """
    caps = [8.0, 10.0, 8.0, 9.5]
    problem = Problem(place("v", 4, 8), 10, prices(8, 10, 11, 8, comm=1), caps, after_i=0.5)
    queues = [queues for _, queues in write_v(problem)]
    assert queues
    assert all(fits(problem, write_schedule(problem, each)) for each in queues)


def test_what_takes_no_time_is_there_at_once():
    """On the second of three devices: an F or I goes before its stage's other one once its input is
    made, at 0.
    """
    tables = zbv._tables(
        np.zeros((6, 3)), np.zeros((3, 3)), np.zeros(3), 3, np.full(3, 9.0), np.zeros((6, 3))
    )

    def after(*ran):
        for kind, device in ran:
            zbv_kernel.run(tables, kind, device)
        return zbv_kernel.choose_forward(tables, 1), zbv_kernel.choose_backward(tables, 1)

    assert after((0, 0), (0, 1)) == (-1, 2)
    assert after((0, 0)) == (0, 2)
    assert after((0, 2), (1, 2)) == (1, 2)
    assert after((1, 1), (1, 0), (2, 0), (2, 1)) == (0, 2)
    assert after((2, 2), (3, 2)) == (0, 3)
