"""Iteration times under noise: what the draws are, and what is made of them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.analysis.jitter import Noise, Sampled, count_wins, jitter, jitter_object, rate_ranking
from ppsim.base import workers
from ppsim.core.costs import costs_for
from ppsim.core.ops import COMPUTE, Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.commands import invoke

STILL = Noise(cv=0.0)


def runs(*names, devices=4, microbatches=8, **costs):
    schedules = {name: generate(name, devices=devices, microbatches=microbatches) for name in names}
    return {name: (schedule, costs_for(schedule, **costs)) for name, schedule in schedules.items()}


def sampled(name: str, steady: float, *makespans: float) -> Sampled:
    return Sampled(
        name, generate("gpipe", stages=1, microbatches=1), "ms", steady, np.array(makespans)
    )


def test_without_noise_every_sample_is_the_steady_run():
    """No noise, nothing slow: the simulator's own number each time."""
    for result in jitter(runs("1f1b", "dualpipe-v", "zb-1p", comm=0.25), STILL, samples=20):
        assert (result.makespans == result.without_noise).all()


def test_one_op_has_the_mean_and_deviation_asked_for():
    """On one device with one microbatch the makespan is the sum of two ops, each lognormal with the
    mean kept.
    """
    (result,) = jitter(
        runs("gpipe", devices=1, microbatches=1, tf=1, tb=1), Noise(cv=0.2), samples=40_000
    )
    assert result.makespans.mean() == pytest.approx(2, rel=0.005)
    assert result.makespans.std() == pytest.approx(0.2 * 2**0.5, rel=0.03)


def test_the_same_seed_gives_the_same_numbers_on_any_number_of_cores(monkeypatch):
    """Draws belong to samples, not to threads."""
    noise = Noise(cv=0.1, slow_devices=1)
    first = jitter(runs("1f1b"), noise, 5000, seed=3)[0].makespans
    monkeypatch.setattr(workers, "count_cores", lambda: 1)
    assert (jitter(runs("1f1b"), noise, 5000, seed=3)[0].makespans == first).all()
    assert (jitter(runs("1f1b"), noise, 5000, seed=4)[0].makespans != first).any()


@pytest.mark.parametrize("shared", [0, 2])
def test_copies_and_collectives_are_noised_too(shared):
    """Of ops that take no time all noise is the copies'; a draw of theirs is a run with these
    durations.
    """
    base = generate("1f1b", devices=4, microbatches=8)
    schedule = add_offload(base, costs_for(base), 1)
    copies = {Kind.OFFLOAD: 2.0, Kind.RELOAD: 3.0}
    costs = costs_for(schedule, tf=0.0, tb=0.0, others=copies, host_link=shared)
    (result,) = jitter({"a": (schedule, costs)}, Noise(cv=0.1), 200)
    assert len({*result.makespans.tolist()}) == 200
    assert result.makespans.mean() == pytest.approx(result.without_noise, rel=0.1)
    (still,) = jitter({"a": (schedule, costs)}, Noise(cv=0.0, slow_devices=2), 5)
    assert set(still.makespans.tolist()) == {still.without_noise}
    for name in ("vocab-2", "1f1b-plus", "bpipe"):
        made = generate(name, devices=4, microbatches=8)
        others = {Kind(code): 0.5 for code in np.unique(made.kind) if code >= len(COMPUTE)}
        prices = costs_for(made, comm=0.25, others=others, host_link=shared)
        (same,) = jitter({name: (made, prices)}, STILL, 3)
        assert (same.makespans == same.without_noise).all()


def test_an_op_on_all_devices_is_as_slow_as_the_slowest():
    made = generate("1f1b-plus", devices=4, microbatches=4)
    prices = costs_for(made, tf=0.0, tb=0.0, others={Kind.GF: 1.0, Kind.GB: 1.0})
    (result,) = jitter({"a": (made, prices)}, Noise(cv=0.0, slow_devices=1, slowdown=2.0), 5)
    assert set(result.makespans.tolist()) == {2 * result.without_noise}


@pytest.mark.parametrize(
    ("name", "times"), [("1f1b-plus", ("--tgf", "1", "--tgb", "2")), ("vocab-2", ())]
)
def test_of_the_draws_of_all_devices_the_slowest_decides(name, times):
    """Where only what runs on all of four devices takes time, the mean is that of the largest of
    four draws.
    """
    only = times or ("--t-collective", "1")
    words = (
        "--devices",
        "4",
        "--mb",
        "8",
        "--tf",
        "0",
        "--tb",
        "0",
        *only,
        "--cv",
        "0.2",
        "--samples",
        "2000",
    )
    found = json.loads(invoke("jitter", name, *words, "--json").stdout)["schedules"][0]
    sigma = np.sqrt(np.log1p(0.04))
    draws = np.exp(np.random.default_rng(1).standard_normal((100_000, 4)) * sigma - sigma**2 / 2)
    assert found["mean"] == pytest.approx(found["makespan"] * draws.max(axis=1).mean(), rel=0.01)


def test_devices_that_take_long_for_what_runs_on_all_decide_more_often():
    """Each device's draw is of its own time: one of 2 and three of almost none are one draw."""
    made = generate("vocab-2", devices=4, microbatches=8)
    times = np.array([2.0, 1e-9, 1e-9, 1e-9])
    prices = replace(costs_for(made, tf=0.0, tb=0.0), others={Kind.REDUCE_S: times})
    (result,) = jitter({"a": (made, prices)}, Noise(cv=0.2), 4000)
    assert result.makespans.mean() == pytest.approx(result.without_noise, rel=0.01)
    assert result.without_noise == 16


def test_slow_devices_are_exactly_so_many_and_so_slow():
    """One of four devices at half speed: each sample is the run with that device's stage costing
    twice.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    expected = {
        simulate(schedule, costs_for(schedule, tf=f, tb=(2 * np.array(f)).tolist())).makespan
        for f in (np.ones(4) + np.eye(4)).tolist()
    }
    (result,) = jitter(runs("1f1b"), Noise(cv=0.0, slow_devices=1, slowdown=2.0), samples=200)
    assert set(result.makespans.tolist()) == expected


def test_all_links_slow_is_a_larger_latency():
    """Every link four times slower is the run with four times the latency."""
    (result,) = jitter(
        runs("1f1b", comm=0.5), Noise(cv=0.0, slow_links=3, link_slowdown=4.0), samples=5
    )
    ((schedule, _),) = runs("1f1b").values()
    assert set(result.makespans.tolist()) == {
        simulate(schedule, costs_for(schedule, comm=2.0)).makespan
    }


def test_schedules_meet_the_same_slow_devices():
    """Two names for one schedule without own noise give the same samples."""
    first, second = jitter(
        {"a": runs("1f1b")["1f1b"], "b": runs("1f1b")["1f1b"]},
        Noise(cv=0.0, slow_devices=2),
        samples=50,
    )
    assert (first.makespans == second.makespans).all()


def test_wins_and_ranking_count_samples():
    """Each sample goes to its fastest, a tie is shared; the ranking holds while no faster one is
    overtaken.
    """
    results = [
        sampled("a", 1, 1, 1, 3, 1),
        sampled("b", 2, 2, 1, 2, 3),
        sampled("c", 2, 3, 3, 3, 2),
    ]
    assert count_wins(results).tolist() == [0.625, 0.375, 0.0]
    assert rate_ranking(results) == 0.75


def test_progress_ends_at_all_of_it():
    """The share done grows to one."""
    seen = list[float]()
    jitter(runs("1f1b", "gpipe"), Noise(), 3000, progress=lambda done, what: seen.append(done))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize(
    ("noise", "samples", "says"),
    [
        (Noise(cv=-0.1), 10, "cv must be zero or more"),
        (Noise(cv=1e308), 10, "cv of 1e[+]308 is too large for noise"),
        (Noise(slow_devices=1, slowdown=1e300), 10, "slowdown of 1e[+]300 is too large for noise"),
        (Noise(cv=float("nan")), 10, "cv must be zero or more"),
        (Noise(slowdown=float("inf")), 10, "slowdown must be"),
        (Noise(slowdown=0.0), 10, "slowdown must be 1 or more, got 0"),
        (Noise(link_slowdown=0.5), 10, "link slowdown must be 1 or more, got 0.5"),
        (STILL, 1_000_000_000, "1,000,000,000 samples, at most 10,000,000"),
        (Noise(slow_devices=5), 10, "5 slow devices asked for, there are 4"),
        (Noise(slow_links=4), 10, "4 slow links asked for, there are 3"),
        (Noise(), 0, "samples must be at least 1"),
    ],
)
def test_impossible_noise_is_refused(noise, samples, says):
    """What cannot be is said in one sentence."""
    with pytest.raises(InputError, match=says):
        jitter(runs("1f1b", comm=1.0), noise, samples)


def test_slow_links_without_messages_that_take_time_are_refused():
    """An answer that could not depend on the question is not given."""
    with pytest.raises(InputError, match="slow links have no effect"):
        jitter(runs("1f1b"), Noise(slow_links=1), 10)


def test_slow_links_are_asked_of_schedules_of_which_one_has_messages():
    """With one schedule's latency 0 and another's not, the second is slowed and the first is
    not.
    """
    both = {"free": runs("1f1b")["1f1b"], "sent": runs("1f1b", comm=0.5)["1f1b"]}
    free, sent = jitter(both, Noise(cv=0.0, slow_links=1, link_slowdown=4.0), 20)
    assert (free.makespans == free.without_noise).all()
    assert (sent.makespans > sent.without_noise).all()


def test_so_many_links_are_slow_in_each_sample_and_each_alike():
    """One of three links at four times its latency: each sample is the run with that one link
    slow.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    expected = set()
    for link in range(3):
        comm = np.full((4, 4), 0.5)
        comm[link, link + 1] = comm[link + 1, link] = 2.0
        expected.add(simulate(schedule, replace(costs_for(schedule), comm=comm)).makespan)
    (result,) = jitter(
        runs("1f1b", comm=0.5), Noise(cv=0.0, slow_links=1, link_slowdown=4.0), samples=100
    )
    assert set(result.makespans.tolist()) == expected


def test_noise_of_messages_keeps_their_mean():
    """One microbatch through two devices: two ops of each, and two messages of mean 10."""
    (result,) = jitter(
        runs("gpipe", devices=2, microbatches=1, tf=1, tb=1, comm=10), Noise(cv=0.1), samples=40_000
    )
    ops, sent = 4 * 0.1**2, 2 * 1.0**2
    assert result.makespans.mean() == pytest.approx(4 + 20, rel=0.002)
    assert result.makespans.std() == pytest.approx((ops + sent) ** 0.5, rel=0.03)


def test_percentiles_and_rows_are_of_all_samples():
    results = [sampled("a", 1, *range(1, 101)), sampled("b", 2, *range(2, 102))]
    made = jitter_object(results, STILL, 7, {"x": 1})
    assert (made["samples"], made["seed"], made["ranking_kept"]) == (100, 7, 1.0)
    first = made["schedules"][0]
    assert (first["makespan"], first["mean"], first["wins"]) == (1, 50.5, 1.0)
    assert [first[key] for key in ("p50", "p95", "p99")] == pytest.approx([50.5, 95.05, 99.01])


def test_progress_names_the_schedule_and_counts_chunks():
    seen = list[tuple[float, str]]()
    jitter(
        runs("1f1b", "gpipe"), Noise(), 10, progress=lambda done, what: seen.append((done, what))
    )
    assert seen == [(0.5, "1f1b"), (1.0, "gpipe")]


def test_limits_of_noise_themselves_are_taken():
    fast = Noise(cv=0.0, slow_devices=4, slowdown=1.0, slow_links=3, link_slowdown=1.0)
    (result,) = jitter(runs("1f1b", comm=1.0), fast, 1)
    assert result.makespans.tolist() == [result.without_noise]
