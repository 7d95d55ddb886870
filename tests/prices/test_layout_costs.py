"""``--layout`` in the commands that take costs."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import PpsimError
from tests.commands import invoke, refused, with_options

LAYOUT = ["--layout", "Et*3|tt||tL", "--mb", "4"]


def ask(*words: str) -> Any:
    result = CliRunner().invoke(group, [*words, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_a_layout_gives_the_stages_and_their_times():
    """The same run as with the stages' times by hand; devices come from the layout where none are
    given.
    """
    layered = ask("run", "1f1b", *LAYOUT, "--t-layer", "2", "--t-head", "1")
    by_hand = ask(
        "run", "1f1b", "--devices", "4", "--mb", "4", "--tf", "6,4,0,3", "--tb", "12,8,0,6"
    )
    assert layered["ops"] == by_hand["ops"]
    assert layered["makespan"] == by_hand["makespan"]
    assert (layered["unit"], ask("run", "1f1b", *LAYOUT)["unit"]) == ("t", "t_layer")
    assert ask("run", "interleaved", *LAYOUT, "--devices", "2")["chunks"] == 2


def test_every_command_with_costs_takes_a_layout():
    makespan = ask("run", "1f1b", *LAYOUT)["makespan"]
    compared = ask("compare", "1f1b", "zb-h2", "interleaved", *LAYOUT, "--devices", "4")
    assert compared["schedules"][0]["makespan"] == makespan
    assert ask("sweep", "1f1b", *LAYOUT, "--devices", "4")["shapes"][0]["makespan"] == makespan
    assert ask("explain", "1f1b", *LAYOUT)["makespan"] == makespan
    assert ask("memory", "1f1b", *LAYOUT)["peak"] == [12, 6, 0, 1]
    assert ask("diff", "1f1b", "zb-h2", *LAYOUT, "--devices", "4")["makespan"][0] == makespan


def test_schedules_are_compared_on_the_devices_of_a_layout():
    """As in run, --layout says how many stages there are; schedules that fold them onto other
    devices are refused.
    """
    with_size = ask("compare", "1f1b", "zb-h2", *LAYOUT, "--devices", "4")
    assert ask("compare", "1f1b", "zb-h2", *LAYOUT)["schedules"] == with_size["schedules"]
    error = CliRunner().invoke(group, ["compare", "1f1b", "interleaved", *LAYOUT]).exception
    assert (
        str(error)
        == "schedules are compared on the same devices, and --layout is 4 for 1f1b, 2 for "
        "interleaved"
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", ["svg", "html", "csv", "mmd", "json"])
def test_ops_that_take_no_time_are_written(suffix, tmp_path):
    """An empty stage's ops take no time; pictures and files hold them."""
    path = tmp_path / f"x.{suffix}"
    result = CliRunner().invoke(group, ["run", "1f1b", *LAYOUT, "-q", "-o", str(path)])
    assert result.exit_code == 0
    assert path.stat().st_size > 100


@pytest.mark.parametrize("p2p", ["latency", "overlap", "blocking", "batched"])
def test_messages_of_stages_that_take_no_time_arrive(p2p):
    assert ask("run", "1f1b", *LAYOUT, "--p2p", p2p, "--comm", "0.1")["makespan"] > 39


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--t-layer", "2"], "needs --layout"),
        ([*LAYOUT, "--tf", "2"], "--tf cannot be combined with --layout"),
        ([*LAYOUT, "--comm=-1"], "comm must be zero or more, finite and at most 1e+100, got -1"),
        ([*LAYOUT, "--cost-per", "stage"], "--cost-per cannot be combined with --layout"),
        ([*LAYOUT, "--t-layer", "2,3"], "2 times for 6 layers"),
        ([*LAYOUT, "--t-head=-1"], "--t-head must be zero or more"),
        ([*LAYOUT, "--devices", "3"], "rule stage-count"),
        ([*LAYOUT, "--stages", "5"], "the layout has 4 stages, and 1f1b has 5"),
        (["--layout", "t|tL", "--mb", "2"], "rule embedding-first"),
        (["--layout", "Et|q", "--mb", "2"], "not a layer: 'q'"),
        ([*LAYOUT, "--grid"], "--grid"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_refused(words, said):
    error = CliRunner().invoke(group, ["run", "1f1b", *words]).exception
    assert isinstance(error, PpsimError)
    assert error.exit_code == 2
    assert said in f"{error} {error.hint}"


def test_a_change_of_a_stage_is_simulated_and_one_that_a_layout_overrules_refused():
    changed = ask("explain", "1f1b", *LAYOUT, "--what-if", "tf=x1")
    assert changed["makespan"] == ask("run", "1f1b", *LAYOUT)["makespan"]
    refused = (
        CliRunner().invoke(group, ["explain", "1f1b", *LAYOUT, "--what-if", "tfb=3"]).exception
    )
    assert "changes the time of no op" in str(refused)


def test_a_sweep_takes_its_stages_from_the_layout():
    shapes = ask("sweep", "1f1b", "--layout", "Ett|tt|tt|ttL", "--mb", "8,16")["shapes"]
    assert [(row["stages"], row["microbatches"]) for row in shapes] == [(4, 8), (4, 16)]


def test_a_schedule_that_does_not_take_a_layouts_stages_is_answered_with_what_works():
    """A layout's stages do not follow --stages, so what is suggested in its place is another
    layout.
    """
    rows = ask("compare", "1f1b", "dualpipe", *LAYOUT)["schedules"]
    assert rows[1]["reason"].endswith("(a layout of 2 stages or --mb 8)")
    for words in (["--mb", "8"], ["--layout", "Et|tL"]):
        again = with_options(("compare", "1f1b", "dualpipe", *LAYOUT), words)
        assert ask(*again)["schedules"][1]["makespan"]
    error = CliRunner().invoke(group, ["run", "zb-v", "--layout", "Et|t|tL", "--mb", "6"]).exception
    assert isinstance(error, PpsimError)
    assert error.hint == "a layout of 2 stages or a layout of 4 stages"


@pytest.mark.parametrize("spec", ["1f1b", "interleaved", "interleaved:4"])
@pytest.mark.parametrize("text", ["Et|(tt|)*7L", "Et|tt|tt|tt|L", "Et|tt|L"])
def test_the_layout_that_a_refusal_names_has_the_stages_that_the_schedule_takes(spec, text):
    words = ("run", spec, "--devices", "4", "--mb", "8", "-q", "--layout")
    error = refused(*words, text)
    assert "(rule stage-count)" in str(error)
    assert invoke(*words, error.hint.strip("'")).exit_code == 0


def test_a_file_is_offered_a_layout_of_its_own_stages(tmp_path):
    """A file states its shape: --devices would be refused."""
    path = tmp_path / "own.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    error = refused("run", str(path), "--layout", "Et|t|tL")
    assert (str(error), error.hint) == ("the layout has 3 stages, and own has 2", "'Ett|tL'")
    assert invoke("run", str(path), "--layout", error.hint.strip("'"), "-q").exit_code == 0
