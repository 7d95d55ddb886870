"""``ppsim jitter`` on the command line."""

import json

import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import InputError

SHAPE = ("--devices", "4", "--mb", "6")


def jitter(*arguments: str) -> str:
    result = CliRunner().invoke(group, ["jitter", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_table_has_each_schedule_and_the_ranking_comes_first():
    """One row per schedule and one sentence."""
    lines = jitter("1f1b", "zb-1p", *SHAPE, "--samples", "200").splitlines()
    assert lines[4].split()[0] == "1f1b"
    assert lines[5].split()[0] == "zb-1p"
    assert "zb-1p is fastest in" in lines[0]
    assert "200 samples" in lines[0]


def test_quiet_prints_one_line():
    """The sentence alone."""
    assert jitter("1f1b", *SHAPE, "-q", "--samples", "50").count("\n") == 1


def test_json_counts_microbatches_and_not_their_slices():
    """Two slices of each of four sequences are four microbatches."""
    (row,) = json.loads(
        jitter("seq1f1b", "--devices", "2", "--mb", "4", "--samples", "2", "--json")
    )["schedules"]
    assert row["microbatches"] == 4


def test_json_holds_every_number_and_repeats_with_the_seed():
    """Schema ppsim.jitter/1: percentiles in order, wins that sum to one, the same for the same
    seed.
    """
    arguments = (
        "1f1b",
        "interleaved:2",
        "dualpipe",
        *SHAPE,
        "--cv",
        "0.1",
        "--samples",
        "300",
        "--seed",
        "7",
        "--json",
    )
    text = jitter(*arguments)
    answer = json.loads(text)
    assert answer["schema"] == "ppsim.jitter/1"
    assert (answer["samples"], answer["seed"], answer["noise"]["cv"]) == (300, 7, 0.1)
    assert [row["name"] for row in answer["schedules"]] == ["1f1b", "interleaved:2"]
    assert all(row["p50"] <= row["p95"] <= row["p99"] for row in answer["schedules"])
    assert sum(row["wins"] for row in answer["schedules"]) == pytest.approx(1)
    assert [row["name"] for row in answer["refused"]] == ["dualpipe"]
    assert jitter(*arguments) == text


def test_schedules_that_do_not_apply_are_named_with_the_reason():
    """They stay in the answer."""
    assert "dualpipe does not apply: dualpipe needs at least 2P microbatches" in jitter(
        "1f1b", "dualpipe", *SHAPE, "--samples", "50"
    )


def test_nothing_that_applies_is_bad_usage():
    """Without a single schedule there is no answer."""
    with pytest.raises(InputError, match="none of these schedules takes this shape"):
        jitter("dualpipe", *SHAPE)


@pytest.mark.parametrize("what", ["slow-devices", "slow-links"])
def test_how_slow_needs_something_slow(what):
    option = {"slow-devices": "--slowdown", "slow-links": "--link-slowdown"}[what]
    with pytest.raises(InputError, match=f"{option} needs {what.replace('-', ' ')}"):
        jitter("1f1b", *SHAPE, "--comm", "0.5", option, "2")


def test_a_count_beyond_any_run_is_refused():
    """A number of 23 digits is bad usage, not an internal error."""
    base = ["jitter", "1f1b", "--devices", "4", "--mb", "8"]
    for option in ("--slow-devices", "--slow-links"):
        assert CliRunner().invoke(group, [*base, option, "9" * 23]).exit_code == 2
