"""Context parallelism of single microbatches: shorter ones, and a collective beside them."""

from __future__ import annotations

import json

import pytest

from tests.commands import invoke, refused

SHAPE = ("1f1b", "--devices", "3", "--mb", "4", "--tf", "1", "--tb", "2")


def ask(*words, command="run"):
    result = invoke(command, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def written(folder, text):
    (folder / "cp.csv").write_text(text)
    return str(folder / "cp.csv")


def test_a_microbatch_over_four_ranks_takes_a_quarter(tmp_path):
    """Long ones over 4 ranks, short ones on one."""
    path = written(tmp_path, "microbatch,cp\n0,4\n2,4\n")
    lengths = tmp_path / "lengths.csv"
    lengths.write_text("replica,microbatch,factor\n0,0,8\n0,1,1\n0,2,4\n0,3,1\n")
    found = ask(*SHAPE, "--lengths", str(lengths), "--cp-of", path)
    assert found["lengths"]["factors"] == [[2, 1, 1, 1]]
    assert found["makespan"] == ask(*SHAPE, "--mb-scale", "2,1,1,1")["makespan"]


def test_without_lengths_all_others_stay_as_they_are(tmp_path):
    """A row of the last replica overrides the row of all replicas."""
    path = written(tmp_path, "replica,microbatch,cp,factor\n,1,2,0.6\n2,1,4,0.3\n")
    found = ask(*SHAPE, "--cp-of", path, "--replicas", "3")
    assert found["lengths"]["factors"] == [[1, 0.6, 1, 1], [1, 0.6, 1, 1], [1, 0.3, 1, 1]]
    alone = [ask(*SHAPE, "--mb-scale", text)["makespan"] for text in ("1,0.6,1,1", "1,0.3,1,1")]
    assert found["replicas"]["makespans"] == pytest.approx([alone[0], alone[0], alone[1]])


@pytest.mark.parametrize("schedule", ["1f1b", "zb-1p"])
def test_an_op_takes_the_longer_of_its_compute_and_the_collective_beside_it(schedule, tmp_path):
    """Beside I and B, which move gradients too, the collective takes twice as long; beside W there
    is none.
    """
    path = written(tmp_path, "microbatch,cp,collective\n1,2,0.7\n3,2,0.1\n")
    found = ask(schedule, *SHAPE[1:], "--cp-of", path)
    ops, least = found["ops"], {"F": (0.5, 0.7), "B": (1.0, 1.4), "I": (0.5, 1.4), "W": (0.5, 0.5)}
    for kind, microbatch, start, end in zip(
        *(ops[n] for n in ("kind", "microbatch", "start", "end")), strict=True
    ):
        whole, long = least[kind]
        expected = {1: long, 3: whole}.get(microbatch, 2 * whole)
        assert end - start == pytest.approx(expected)
    assert sum(found["replicas"]["causes"].values()) == pytest.approx(found["replicas"]["step"])


def test_a_collective_of_no_time_changes_nothing(tmp_path):
    plain = ask(*SHAPE, "--cp-of", written(tmp_path, "microbatch,cp\n1,2\n"))["replicas"]
    assert (
        ask(*SHAPE, "--cp-of", written(tmp_path, "microbatch,cp,collective\n1,2,0\n"))["replicas"]
        == plain
    )


def test_other_questions_know_it(tmp_path):
    path = written(tmp_path, "microbatch,cp\n1,2\n")
    lengths = tmp_path / "lengths.csv"
    lengths.write_text(
        "replica,microbatch,factor\n" + "".join(f"0,{m},{m + 1}\n" for m in range(4))
    )
    words = (*SHAPE, "--lengths", str(lengths), "--cp-of", path)
    step = ask(*words)["replicas"]["step"]
    assert ask(*words, command="explain")["makespan"] == pytest.approx(step)
    assert ask(*words, command="compare")["schedules"][0]["makespan"] == pytest.approx(step)
    found = ask(*words, "--samples", "20", "--cv", "0", command="jitter")["schedules"][0]
    assert found["p50"] == pytest.approx(step)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "has no rows"),
        ("microbatch\n1\n", "has no column of cp"),
        ("cp\n1\n", "has no column of microbatch"),
        ("microbatch,cp\n0,0\n", "row 1: cp is 0"),
        ("microbatch,cp\n0,1.5\n", "row 1: cp is '1.5'"),
        ("microbatch,cp\n0,99999\n", "row 1: cp is '99999'"),
        ("microbatch,cp\n4,2\n", "row 1: microbatch is '4'"),
        ("microbatch,cp\n1,2\n1,2\n", "two rows of one microbatch"),
        ("replica,microbatch,cp\n2,1,2\n", "row 1: replica is '2'"),
        ("microbatch,cp,collective\n1,2,nan\n", "row 1: collective is 'nan'"),
        ("microbatch,cp,factor\n1,2,-1\n", "row 1: factor is '-1'"),
    ],
)
def test_a_hostile_file_is_refused(content, says, tmp_path):
    error = refused("run", *SHAPE, "--replicas", "2", "--cp-of", written(tmp_path, content))
    assert says in str(error)
    assert error.hint


@pytest.mark.parametrize("more", [("--mb-scale", "1"), ("--lengths", "uniform:1:9", "--deal")])
def test_what_says_the_same_is_refused(more, tmp_path):
    path = written(tmp_path, "microbatch,cp\n1,2\n")
    assert "cannot be given too" in str(refused("run", *SHAPE, "--cp-of", path, *more))
