"""Lengths through the command line: replicas wait for the slowest, and the step is told apart by
cause.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import ppsim
from ppsim.inputs.profile.lengths import Shares, read_sequences
from tests.commands import invoke, refused

SHAPE = ("1f1b", "--devices", "4", "--mb", "8")
DRAWN = ("--lengths", "lognormal:2048:0.8:7", "--replicas", "3")


def ask(command, *words):
    result = invoke(command, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def lengths(tmp_path):
    """A loader's file of three replicas, several sequences in each microbatch."""
    draw = np.random.default_rng(3)
    rows = [(r, m, int(draw.lognormal(6, 1))) for r in range(3) for m in range(8) for _ in range(2)]
    path = tmp_path / "lengths.csv"
    path.write_text(
        "replica,microbatch,tokens\n" + "\n".join(",".join(map(str, row)) for row in rows)
    )
    return str(path)


@pytest.mark.parametrize("command", ["run", pytest.param("explain", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "how", [(), ("--p2p", "blocking", "--comm", "0.25"), ("--tb", "3", "--t-reduce", "1.5")]
)
def test_each_replica_takes_what_its_factors_take_alone(command, how, lengths):
    found = ask(command, *SHAPE, "--lengths", lengths, *how)
    alone = []
    how = tuple(word for word in how if word not in ("--t-reduce", "1.5"))
    for factors in found["lengths"]["factors"]:
        listed = ",".join(map(repr, factors))
        alone.append(ask("run", *SHAPE, *how, "--mb-scale", listed)["makespan"])
    replicas = found["replicas"]
    assert replicas["makespans"] == pytest.approx(alone)
    assert replicas["step"] == pytest.approx(max(alone) + replicas.get("reduction", 0.0))
    assert found["makespan"] == pytest.approx(max(alone))
    assert sum(replicas["causes"].values()) == pytest.approx(replicas["step"])


@pytest.mark.parametrize("schedule", ["1f1b", "zb-1p", "dualpipe", "interleaved:2", "1f1b-overlap"])
def test_causes_follow_from_runs_of_equal_lengths(schedule, lengths):
    shape = (schedule, "--devices", "4", "--mb", "8")
    found = ask("run", *shape, "--lengths", lengths)["replicas"]
    even = ask("run", *shape)
    causes = found["causes"]
    assert causes["work"] + causes["pipeline"] == pytest.approx(even["makespan"])
    assert causes["work"] == pytest.approx(even["makespan"] / (1 + even["bubble_over_ideal"]))
    between = max(found["makespans"]) - np.mean(found["makespans"])
    assert causes["length between replicas"] == pytest.approx(between)


def test_equal_lengths_change_nothing(tmp_path):
    path = tmp_path / "equal.csv"
    path.write_text(
        "replica,microbatch,tokens\n" + "".join(f"{r},{m},77\n" for r in range(2) for m in range(8))
    )
    found = ask("run", *SHAPE, "--lengths", str(path))
    assert found["replicas"]["makespans"] == [ask("run", *SHAPE)["makespan"]] * 2
    assert found["replicas"]["causes"]["length between replicas"] == 0
    assert found["replicas"]["causes"]["length within replicas"] == 0


def test_a_distribution_is_what_its_tokens_give(tmp_path):
    """Drawn by replica, so that more of them leave the first as they were."""
    found = ask("run", *SHAPE, *DRAWN)
    sequences = read_sequences("lognormal:2048:0.8:7", Shares(3, 8, 1, 4), None, padded=False)
    path = tmp_path / "drawn.csv"
    rows = zip(sequences.replica, sequences.microbatch, sequences.length[:, 0], strict=True)
    path.write_text("replica,microbatch,tokens\n" + "\n".join(f"{r},{m},{n}" for r, m, n in rows))
    assert ask("run", *SHAPE, "--lengths", str(path))["replicas"] == found["replicas"]
    text = invoke("run", *SHAPE, *DRAWN).output
    assert "nobody waits" not in text
    assert "length between replicas" in text


def test_a_microbatch_without_work_takes_no_time_and_keeps_its_place(tmp_path):
    """A text-only step of a multimodal pipeline: stage 0 has nothing to do for microbatch 1."""
    path = tmp_path / "x.csv"
    rows = [(0, m, s, 0 if (m, s) == (1, 0) else 1) for m in range(4) for s in range(2)]
    path.write_text(
        "replica,microbatch,stage,factor\n" + "\n".join(",".join(map(str, row)) for row in rows)
    )
    found = ask("run", "1f1b", "--devices", "2", "--mb", "4", "--lengths", str(path))
    plain = ask("run", "1f1b", "--devices", "2", "--mb", "4")
    for name in ("kind", "stage", "microbatch", "device"):
        assert found["ops"][name] == plain["ops"][name]
    took = {
        (stage, microbatch): end - start
        for stage, microbatch, start, end in zip(
            *(found["ops"][name] for name in ("stage", "microbatch", "start", "end")), strict=True
        )
    }
    assert took[0, 1] == 0
    assert all(time > 0 for where, time in took.items() if where != (0, 1))


def test_a_factor_of_zero_leaves_the_run_of_one_microbatch_less():
    """Without messages, of what runs in the order of microbatches, the last one being empty."""
    shape = ("gpipe", "--devices", "3", "--mb")
    empty = ask("run", *shape, "4", "--mb-scale", "1,1,1,0")
    assert empty["makespan"] == ask("run", *shape, "3")["makespan"]
    assert empty["bound"] <= empty["makespan"]


def test_compare_takes_the_slowest_replica(lengths):
    found = ask("compare", "1f1b", "zb-1p", *SHAPE[1:], "--lengths", lengths)["schedules"]
    for row in found:
        run = ask("run", row["name"], *SHAPE[1:], "--lengths", lengths)
        assert row["makespan"] == pytest.approx(run["replicas"]["step"])
    slow = ask("compare", "1f1b", *SHAPE[1:], "--replicas", "3,1=2")["schedules"][0]
    assert slow["makespan"] == pytest.approx(2 * ask("run", *SHAPE)["makespan"])


@pytest.mark.parametrize("given", [DRAWN, ("--lengths", "FILE")])
def test_jitter_tells_spread_by_length_from_spread_by_noise(given, lengths):
    words = [lengths if word == "FILE" else word for word in given]
    common = (*SHAPE, *words, "--samples", "200")
    both = ask("jitter", *common, "--cv", "0.1")["schedules"][0]
    quiet = ask("jitter", *common, "--cv", "0")["schedules"][0]
    assert quiet["alone"]["noise"]["deviation"] == 0
    assert both["alone"]["lengths"] == quiet["alone"]["lengths"]
    assert quiet["p50"] == pytest.approx(quiet["alone"]["lengths"]["p50"])
    assert both["alone"]["noise"]["deviation"] > 0
    fixed = "FILE" in given
    assert (both["alone"]["lengths"]["deviation"] == 0) == fixed
    if fixed:
        step = ask("run", *SHAPE, *words)["replicas"]["step"]
        assert both["alone"]["lengths"]["p50"] == pytest.approx(step)
    longer = ask("jitter", *common, "--cv", "0", "--t-reduce", "5")["schedules"][0]
    assert longer["p50"] == pytest.approx(quiet["p50"] + 5)
    assert "spread by" in invoke("jitter", *common, "--cv", "0.1").output


def test_jitter_draws_steps_of_mean_one():
    """With one device and one microbatch a step is its factor."""
    words = ("jitter", "1f1b", "--devices", "1", "--mb", "1", "--cv", "0", "--samples", "20000")
    found = ask(*words, "--lengths", "lognormal:500:0.5:3")["schedules"][0]
    assert found["mean"] == pytest.approx(3.0, rel=0.02)
    one = np.exp(0.25) - 1
    assert found["deviation"] == pytest.approx(3 * np.sqrt(one), rel=0.05)


def test_python_gives_the_same(lengths):
    found = ppsim.run(
        "1f1b", devices=4, microbatches=8, lengths=lengths, padded=True, law="1,1,0.01"
    )
    typed = ask("run", *SHAPE, "--lengths", lengths, "--padded", "--law", "1,1,0.01")
    assert found.replicas
    assert found.replicas.time == typed["replicas"]["step"]


def test_a_profile_gives_the_share_of_attention():
    """1/(12 h) of the linear part for each token, where --law says nothing."""
    from ppsim.inputs.profile.profile import read

    profile = "gallery/profile-cpu.toml"
    shape = (
        "run",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "4",
        "--profile",
        profile,
        "--lengths",
        "uniform:64:512:1",
    )
    model = read(profile).model
    assert model
    law = f"0,1,{1 / (12 * model.hidden)!r}"
    assert ask(*shape)["lengths"] == ask(*shape, "--law", law)["lengths"]
    assert ask(*shape)["lengths"] != ask(*shape, "--law", "0,1,0")["lengths"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--lengths", "x"), "not lengths: 'x'"),
        (("--lengths", "gone.csv"), "gone.csv"),
        (("--lengths", "lognormal:1"), "not a distribution of tokens"),
        ((*DRAWN, "--mb-scale", "1"), "--mb-scale cannot be given too"),
        (("--law", "1,1,1"), "--law needs --lengths or --chunked"),
        (("--padded",), "--padded needs --lengths"),
        ((*DRAWN, "--padded"), "--padded has no effect"),
        ((*DRAWN, "--law", "x"), "not a law: 'x'"),
        (("--lengths", "FILE", "--mbs", "2"), "--mbs needs a distribution"),
        (("--lengths", "FILE", "--replicas", "4"), "has 3 replicas, and --replicas is 4"),
        (("--t-reduce", "2"), "--t-reduce needs replicas"),
        (
            ("--lengths", "uniform:1:2", "--mbs", "60000", "--replicas", "4096"),
            "sequences, more than the maximum of",
        ),
    ],
)
def test_what_does_not_fit_is_refused(words, says, lengths):
    error = refused("run", *SHAPE, *(lengths if word == "FILE" else word for word in words))
    assert says in str(error)
    assert error.hint
