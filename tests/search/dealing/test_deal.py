"""Dealing is a permutation, never longer than what is given, as short as brute force, and above its
bound.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.dealing.bound import bound_step
from ppsim.search.dealing.deal import deal
from ppsim.search.dealing.problem import Problem, make_pipeline

FOREVER = float("inf")
NAMES = ("1f1b", "gpipe", "zb-1p", "interleaved", "zb-v", "1f1b-overlap")


def problem_of(draw, name="", *, across=None, padded=None, cap=False, most=7):
    """A small problem drawn by a generator of numbers: shapes, costs, lengths, slow devices."""
    name = name or str(draw.choice(NAMES))
    M = 2 if name in ("interleaved", "zb-v") else int(draw.integers(1, 4))
    schedule = generate(name, devices=2, microbatches=M, chunks=None)
    R = int(draw.integers(1, 3))
    by_stage = bool(draw.integers(2))
    costs = costs_for(
        schedule,
        tf=draw.integers(1, 9, schedule.n_stages).astype(float).tolist(),
        comm=float(draw.integers(3)) / 2,
    )
    slow = np.where(draw.random((R, 2)) < 0.3, 1.5, 1.0) if draw.integers(3) == 0 else None
    pipeline = make_pipeline(schedule, costs, R, slow, by_stage=by_stage)
    slots = R * M
    count = int(draw.integers(slots, max(slots, most) + 1)) if slots < most else slots
    given = np.concatenate([np.arange(slots), draw.integers(0, slots, count - slots)])
    size = draw.integers(1, 20, (count, schedule.n_stages if by_stage else 1)).astype(float)
    if draw.integers(4) == 0:
        size[0, 0] = 0.0
    tokens = size.max(axis=1)
    padded = bool(draw.integers(2)) if padded is None else padded
    across = bool(draw.integers(2)) if across is None else across
    found = Problem(
        pipeline,
        size / 10,
        given // M,
        given % M,
        np.full(R, M),
        M,
        padded=padded,
        across=across,
        tokens=tokens,
    )
    if cap:
        return Problem(**vars(found) | {"most": float(tokens.max() + draw.integers(0, 15))})
    return found


def step_of(problem, slot):
    """The step of a dealing, each replica timed by the plain simulator."""
    pipeline, factors, found = problem.pipeline, problem.factors(slot), 0.0
    for r in range(problem.n_replicas):
        own = pipeline.durations(factors[r : r + 1], np.array([r]))[:, 0]
        plain = costs_for(pipeline.schedule, comm=float(pipeline.latency.max()))
        found = max(found, simulate(pipeline.schedule, replace(plain, op_times=own)).makespan)
    return found


def every_dealing(problem):
    """The members of each slot as bits in all valid dealings, shape (dealings, R x M)."""
    N, M, R = len(problem.time), problem.microbatches, problem.n_replicas
    choices = [
        range(R * M) if problem.across else range(r * M, (r + 1) * M) for r in problem.replica
    ]
    taken = np.array(list(product(*choices)))[:, :, None] == np.arange(R * M)
    members = (taken << np.arange(N)[:, None]).sum(axis=1)
    bare = (members == 0).reshape(-1, R, M).any(axis=2) & ~problem.may_be_empty
    fits = np.array([problem.fits(bits_of(each)) for each in range(1 << N)])
    return members[~bare.any(axis=1) & fits[members].all(axis=1)]


def bits_of(number):
    return [bit for bit in range(number.bit_length()) if number >> bit & 1]


def best_by_force(problem):
    """The shortest step of all dealings, timed in one go; None where there is none."""
    dealings = every_dealing(problem)
    if not len(dealings):
        return None
    R, M = problem.n_replicas, problem.microbatches
    sizes = [problem.time[bits_of(each)] for each in range(1 << len(problem.time))]
    joined = np.array(
        [
            own.max(axis=0, initial=0.0) * len(own) if problem.padded else own.sum(axis=0)
            for own in sizes
        ]
    )
    step = np.zeros(len(dealings))
    for r, own in enumerate(dealings.reshape(-1, R, M).transpose(1, 0, 2)):
        rows, row = np.unique(own, axis=0, return_inverse=True)
        ends = problem.pipeline.makespans(joined[rows], np.full(len(rows), r))
        step = np.maximum(step, ends[row.reshape(-1)])
    return float(step.min())


def check(problem, kicks=40):
    """Deal a problem, and prove what holds for every dealing."""
    found = deal(problem, FOREVER, kicks=kicks)
    slot = found.replica * problem.microbatches + found.microbatch
    assert found.step == pytest.approx(step_of(problem, slot))
    assert found.step <= found.given_step * (1 + 1e-12)
    assert found.bound <= found.step * (1 + 1e-12)
    assert (found.microbatch < problem.counts[found.replica]).all()
    if not problem.across:
        assert (found.replica == problem.replica).all()
    held = np.bincount(slot, minlength=problem.n_replicas * problem.microbatches)
    bare = (held.reshape(problem.n_replicas, -1) == 0).any(axis=1)
    assert not (bare & ~problem.may_be_empty).any()
    members = [np.flatnonzero(slot == each).tolist() for each in range(len(held))]
    assert all(map(problem.fits, members))
    return found


@pytest.mark.sampled(50)
@pytest.mark.parametrize("block", range(50))
def test_small_problems_are_dealt_as_by_brute_force(block):
    """500 problems: packed and padded, within and across replicas, by stage, with slow devices and
    a cap of tokens.
    """
    for seed in range(10):
        draw = np.random.default_rng((block, seed))
        problem = problem_of(draw, cap=seed % 3 == 0, most=6)
        best = best_by_force(problem)
        if best is None:
            with pytest.raises(InputError, match="fit"):
                deal(problem, FOREVER)
            continue
        assert bound_step(problem) <= best * (1 + 1e-9)
        assert check(problem).step == pytest.approx(best), (block, seed)


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30))
def test_no_drawn_dealing_beats_the_bound(seed, dealt):
    """Larger problems than brute force can take."""
    draw = np.random.default_rng(seed)
    problem = problem_of(draw, most=12)
    bound, found = bound_step(problem), deal(problem, FOREVER, kicks=0)
    assert bound <= found.step * (1 + 1e-9)
    R, M, N = problem.n_replicas, problem.microbatches, len(problem.time)
    draw = np.random.default_rng(dealt)
    for _ in range(20):
        order = draw.permutation(N)
        slot = np.empty(N, np.int64)
        if problem.across:
            slot[order] = np.concatenate([np.arange(R * M), draw.integers(0, R * M, N - R * M)])
        else:
            for r in range(R):
                own = order[problem.replica[order] == r]
                slot[own] = r * M + np.concatenate(
                    [np.arange(M), draw.integers(0, M, len(own) - M)]
                )
        ends = problem.pipeline.makespans(problem.factors(slot), np.arange(R))
        assert bound <= float(ends.max()) * (1 + 1e-9)


@given(st.integers(0, 1 << 30))
def test_a_search_without_time_is_valid_and_never_longer(seed):
    problem = problem_of(np.random.default_rng(seed), most=12)
    found = deal(problem, 0.0)
    assert found.step <= found.given_step * (1 + 1e-12)
    slot = found.replica * problem.microbatches + found.microbatch
    assert found.step == pytest.approx(step_of(problem, slot))


def test_the_bound_is_met_where_the_work_divides():
    """Two replicas of one device share 1, 2, 3 and 4: five each, three times as long."""
    schedule = generate("1f1b", devices=1, microbatches=2)
    pipeline = make_pipeline(schedule, costs_for(schedule), 2)
    size = np.array([[4.0], [3.0], [2.0], [1.0]])
    where = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    found = deal(Problem(pipeline, size, *where, np.full(2, 2), 2, across=True), FOREVER)
    assert (found.given_step, found.step) == (21.0, 15.0)
    assert found.bound == pytest.approx(15.0)
    stays = deal(Problem(pipeline, size, *where, np.full(2, 2), 2), FOREVER)
    assert (stays.given_step, stays.step) == (21.0, 21.0)


def test_microbatches_stay_as_many_where_replicas_have_different_numbers():
    schedule = generate("1f1b", devices=2, microbatches=3)
    pipeline = make_pipeline(schedule, costs_for(schedule), 2)
    where = np.array([0, 0, 0, 1, 1]), np.array([0, 1, 2, 0, 1])
    problem = Problem(
        pipeline, np.arange(1.0, 6)[:, None], *where, np.array([3, 2]), 3, across=True
    )
    found = deal(problem, FOREVER)
    assert np.bincount(found.replica).tolist() == [3, 2]
    assert found.microbatch[found.replica == 1].max() == 1


def test_a_sequence_that_is_too_long_is_named():
    schedule = generate("1f1b", devices=1, microbatches=1)
    pipeline = make_pipeline(schedule, costs_for(schedule), 1)
    one = np.zeros(1, np.int64)
    problem = Problem(
        pipeline, np.ones((1, 1)), one, one, np.ones(1, np.int64), 1, tokens=np.array([9.0]), most=8
    )
    with pytest.raises(
        InputError, match="a sequence of 9 tokens does not fit into microbatches of 8"
    ):
        deal(problem, FOREVER)


def test_schedules_with_several_streams_are_refused():
    schedule = generate("vocab-1", devices=4, microbatches=8)
    with pytest.raises(InputError, match="dealing"):
        make_pipeline(schedule, costs_for(schedule), 1)


@given(st.integers(0, 1 << 30))
def test_no_microbatch_of_a_dealing_holds_too_many_tokens(seed):
    problem = problem_of(np.random.default_rng(seed), cap=True, most=9)
    try:
        check(problem, kicks=3)
    except InputError as error:
        assert "fit" in str(error)  # noqa: PT017


def test_replicas_of_other_speeds_share_the_work_by_their_speed():
    """The first stage of replica 1 takes three times as long: three parts of four go to replica
    0.
    """
    schedule = generate("gpipe", devices=2, microbatches=4)
    pipeline = make_pipeline(schedule, costs_for(schedule), 2, np.array([[1.0, 1.0], [3.0, 1.0]]))
    where = np.divmod(np.arange(8), 4)
    size = np.array([[3.0], [3.0], [3.0], [3.0], [1.0], [1.0], [1.0], [1.0]])
    found = check(Problem(pipeline, size, *where, np.full(2, 4), 4, across=True))
    assert size[found.replica == 0].sum() == 12
    # 16 parts of F and B, at speeds of 1 and 1/3
    assert found.bound == pytest.approx(48 / (1 + 1 / 3))


def problem_of_sizes(sizes, *, devices=1, replicas=1, microbatches=1, slow=None, across=False):
    """A problem whose sequences lie in one microbatch each, and the rest of them in the last."""
    schedule = generate("gpipe", devices=devices, microbatches=microbatches)
    pipeline = make_pipeline(schedule, costs_for(schedule), replicas, slow)
    slot = np.minimum(np.arange(len(sizes)), replicas * microbatches - 1)
    replica, microbatch = np.divmod(slot, microbatches)
    size, counts = np.array(sizes, np.float64)[:, None], np.full(replicas, microbatches)
    return Problem(pipeline, size, replica, microbatch, counts, microbatches, across=across)


ABOVE = problem_of_sizes([5, 4, 3], replicas=2, across=True)  # its bound: 5 and 7 are not 6 and 6


def test_a_search_ends_at_its_bound_and_goes_on_above_it():
    """Where the best takes the bound no kick is tried, elsewhere each of them."""
    met = problem_of_sizes([4, 3, 2, 1], replicas=2, across=True)
    none, many = (deal(met, FOREVER, kicks=kicks) for kicks in (0, 50))
    assert none.step == pytest.approx(none.bound)
    assert 0 < none.simulated == many.simulated
    none, many = (deal(ABOVE, FOREVER, kicks=kicks) for kicks in (0, 50))
    assert (many.step, many.bound) == pytest.approx((21.0, 18.0))
    assert 0 < none.simulated < many.simulated


def test_a_search_without_time_makes_no_move():
    """Above its bound too, however many kicks are left."""
    none, many = (deal(ABOVE, 0.0, kicks=kicks) for kicks in (0, 50))
    assert none.simulated == many.simulated < deal(ABOVE, FOREVER, kicks=0).simulated


def test_more_kicks_never_lengthen_the_step():
    """Of a problem on which most kicks end longer than they began."""
    sizes = np.random.default_rng(3).integers(1, 50, 14).tolist()
    problem = problem_of_sizes(sizes, devices=2, replicas=2, microbatches=2, across=True)
    steps = [deal(problem, FOREVER, kicks=kicks).step for kicks in range(0, 60, 12)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


@pytest.mark.parametrize(
    ("sizes", "shape", "loads"),
    [
        ([4, 3, 2, 1], {"devices": 2, "microbatches": 2}, [[5, 5]]),
        ([4, 3, 2, 1], {"replicas": 2, "across": True}, [[5], [5]]),
        (
            [1, 1, 1, 1, 1, 1],
            {"replicas": 2, "microbatches": 2, "slow": np.array([[1.0], [10.0]]), "across": True},
            [[2, 2], [1, 1]],
        ),
    ],
    ids=["microbatches", "replicas", "a slow replica"],
)
def test_a_start_deals_the_longest_first_to_the_least_load(sizes, shape, loads):
    """However little time is left; a slow replica has no microbatch empty."""
    problem = problem_of_sizes(sizes, **shape)
    found = deal(problem, 0.0)
    held = np.zeros((problem.n_replicas, problem.microbatches))
    np.add.at(held, (found.replica, found.microbatch), sizes)
    assert [sorted(row) for row in held.tolist()] == loads
    assert found.step < found.given_step
