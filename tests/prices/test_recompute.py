"""--recompute and --tr on the command line."""

import json
import shlex
from typing import Any

import pytest
from click.testing import CliRunner

import ppsim
from ppsim.cli import group
from ppsim.core.costs import costs_for
from ppsim.core.recompute import add_recompute
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import PpsimError
from ppsim.schedules import generate
from tests.commands import invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")


def output(*words: str) -> str:
    result = CliRunner().invoke(group, list(words))
    assert result.exit_code == 0, result.exception
    return result.output


def refusal(*words: str) -> str:
    error = CliRunner().invoke(group, list(words)).exception
    assert isinstance(error, PpsimError)
    return str(error)


@pytest.mark.parametrize("extra", [(), ("--p2p", "overlap")])
def test_run_adds_recompute_in_every_model(extra):
    """(P-1)(tf + tb) + M (tf + tr + tb), and activations that count from their recompute."""
    value = json.loads(
        output(
            "run",
            "1f1b",
            *SHAPE,
            "--tf",
            "2",
            "--tb",
            "4",
            "--tr",
            "3",
            "--recompute",
            "--json",
            *extra,
        )
    )
    assert value["makespan"] == 3 * 6 + 8 * 9
    assert value["peak_activations"] == [1, 1, 1, 1]
    assert value["inputs"]["costs"]["R"] == [3.0]
    if not extra:
        assert value["ops"]["kind"].count("R") == 32


ARGUMENTS = [
    (["--recompute", "1f1b"], "full"),
    (["1f1b", "--recompute"], "full"),
    (["1f1b", "--recompute", "none"], "none"),
    (["--recompute", "window:1", "1f1b"], "window:1"),
    (["--recompute=first:2", "1f1b"], "first:2"),
    (["1f1b", "--recompute", "full,none*2,first:1"], "full,none*2,first:1"),
    (
        ["--recompute", "modules:core_attn,mlp*3,none", "--tr", "1", "1f1b"],
        "modules:core_attn,mlp*3,none",
    ),
]


@pytest.mark.parametrize(("words", "rules"), ARGUMENTS)
def test_a_name_that_follows_is_no_value(words, rules):
    """And Python means the same by the same words."""
    value = json.loads(output("run", *words, *SHAPE, "--json"))
    plain = add_recompute(generate("1f1b", devices=4, microbatches=8), rules)
    assert value["makespan"] == simulate(plain, costs_for(plain)).makespan
    tr: dict[str, Any] = {"tr": 1} if "modules" in rules else {}
    assert (
        value["makespan"]
        == ppsim.run("1f1b", devices=4, microbatches=8, recompute=rules, **tr).timeline.makespan
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["run", "compare", "sweep", "memory", "explain", "jitter"])
def test_commands_refuse_what_says_nothing(command):
    found = CliRunner().invoke(group, [command, "1f1b", *SHAPE, "--recompute", "layers:x"])
    assert (
        "not a rule of recompute: 'layers:x'; full, none, first:N"
        in str(found.exception) + found.output
    )
    assert output(command, "1f1b", *SHAPE, "--recompute", "first:3") != output(
        command, "1f1b", *SHAPE
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("words", [words for words, rules in ARGUMENTS if rules != "none"])
def test_files_are_made_again(tmp_path, words):
    path, again = tmp_path / "x.json", tmp_path / "y.json"
    output("run", *words, *SHAPE, "-q", "-o", str(path))
    command = json.loads(output("read", str(path), "--json"))["command"]
    output(*shlex.split(command)[1:], "-o", str(again))
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("value", "makespan"), [(True, 41), (False, 33), ("full", 41), ("window:1", 37)]
)
def test_python_takes_true_and_false_as_well(value, makespan):
    assert (
        ppsim.run("1f1b", devices=4, microbatches=8, recompute=value).timeline.makespan == makespan
    )


def test_files_without_recompute_name_no_time_for_it():
    assert "R" not in json.loads(output("run", "1f1b", *SHAPE, "--json"))["inputs"]["costs"]


@pytest.mark.parametrize("command", ["compare", "sweep", "memory", "jitter"])
def test_other_commands_take_it(command):
    """They see the same makespan as run."""
    value = json.loads(output(command, "1f1b", *SHAPE, "--recompute", "--json"))
    text = json.dumps(value)
    wanted = {
        "compare": '"makespan": 41.0',
        "sweep": "41.0",
        "memory": '"makespan": 41.0',
        "jitter": "41.0",
    }[command]
    assert wanted in text


def test_times_without_effect_and_commands_without_recompute_say_so(tmp_path):
    """--tr without an R; convert, which adds no ops; validate, as no runner runs them."""
    path = tmp_path / "x.json"
    output("run", "1f1b", *SHAPE, "--recompute", "-q", "-o", str(path))
    assert "--tr has no effect: 1f1b has no R" in refusal("run", "1f1b", *SHAPE, "--tr", "2")
    assert "--recompute adds ops" in refusal(
        "convert", str(path), "-o", str(tmp_path / "x.mmd"), "--recompute"
    )
    assert "has ops that recompute (R), which no runner can run" in refusal(
        "validate", str(path), "--ops", "timed"
    )


@pytest.mark.parametrize(
    "words", [("run", "1f1b"), ("memory", "1f1b"), ("compare", "1f1b", "gpipe")]
)
def test_what_counts_as_an_activation_is_said_where_ops_recompute(words):
    note = "an activation counts from its R on"
    assert note in output(*words, *SHAPE, "--recompute")
    assert note not in output(*words, *SHAPE)


def test_schedules_that_run_forwards_only_recompute_nothing():
    words = ("run", "forward-only", "--devices", "4", "--mb", "8", "-q")
    assert "has no backward to run forwards again for" in str(
        refused(*words, "--recompute", "full")
    )
    assert invoke(*words, "--recompute", "none").output == invoke(*words).output
