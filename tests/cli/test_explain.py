"""``ppsim explain`` says where the idle time goes, what decides the makespan, and what a simulated change gives."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ppsim.cli import group
from ppsim.errors import InputError


def explain(*words: str) -> Result:
    return CliRunner().invoke(group, ["explain", *words], catch_exceptions=False)


def explained(*words: str) -> dict[str, Any]:
    return json.loads(explain(*words, "--json").stdout)


def test_1f1b_in_a_screenful():
    said = explain("1f1b", "--stages", "4", "--mb", "8").stdout
    assert "36 of 132 device·t_F are idle (27.3%)" in said
    assert "12  turnaround the first backward has not come yet      dev 0: 6  dev 1: 4  dev 2: 2" in said
    assert "critical path (22 ops, 33 t_F, one of 365)" in said
    assert "F0 on devices 0 to 3 · device 3: (B F)x7 · B7 on devices 3 to 0" in said
    assert said.splitlines()[-1].startswith("first: use zb-1p, 18.2% less time per microbatch")
    assert max(map(len, said.splitlines())) <= 120


def test_the_readme_shows_what_is_printed():
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"```\n{explain('1f1b', '--stages', '4', '--mb', '8').stdout}```\n" in readme


@pytest.mark.parametrize("words", [("--comm", "0.5"), ("--comm", "0.5", "--p2p", "blocking"), ("--tf", "1,1,2,1")])
def test_json_adds_up(words):
    """Causes sum to the idle time, by device too; the path's last op ends with the iteration."""
    found = explained("1f1b", "--stages", "4", "--mb", "8", *words)
    assert found["schema"] == "ppsim.explain/1"
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert sum(map(sum, found["causes_by_device"].values())) == pytest.approx(found["idle"])
    assert found["critical_path_length"] == found["makespan"]
    assert found["critical_path"][0] == {"op": "0F0", "device": 0, "start": 0.0}
    assert (found["slack"] is None) == ("--p2p" in words)


def test_changes_are_simulated():
    """What a change gives is what ``ppsim run`` says with the change made."""
    found = explained("zb-1p", "--stages", "4", "--mb", "8", "--what-if", "tf.2=x2,comm=0.5", "--what-if", "mb=16")
    run = ["run", "zb-1p", "--stages", "4", "--json"]
    options = [["--mb", "8", "--tf", "1,1,2,1", "--comm", "0.5"], ["--mb", "16"]]
    for change, words in zip(found["what_if"], options, strict=True):
        same = json.loads(CliRunner().invoke(group, [*run, *words]).stdout)
        assert change["makespan"] == same["makespan"]
        assert change["bubble_rate"] == same["bubble_rate"]


def test_a_slow_stage_is_advised_against():
    said = explain("zb-1p", "--devices", "8", "--mb", "32", "--tf", "1,1,1,1.3,1,1,1,1", "-q").stdout
    assert said.startswith("first: move layers so that stages are equal")


def test_a_file_is_explained(tmp_path):
    """A schedule from a file has no shape to change, and is explained all the same."""
    (tmp_path / "two.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    found = explained(str(tmp_path / "two.csv"))
    assert found["idle"] > 0
    assert found["what_if"] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("mb=x", "cannot change 'mb=x'"),
        ("speed=2", "cannot change 'speed=2'"),
        ("tf.9=1", "there is no stage 9"),
        ("tf.1=fast", "'fast' is no time"),
        ("comm=-1", "'-1' is no time"),
        ("schedule=1f2b", "unknown schedule '1f2b'"),
    ],
)
def test_a_change_that_is_none_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        explain("1f1b", "--stages", "4", "--mb", "8", "--what-if", change)
