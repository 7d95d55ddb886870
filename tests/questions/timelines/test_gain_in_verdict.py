"""The verdict of ``compare`` gives the range of a gain that a model predicts."""

import json

import pytest

from tests.commands import invoke

SHAPE = ("--devices", "4", "--mb", "8")
JOB = (*SHAPE, "--model", "llama3-8b", "--cluster", "dgx-h100")


def stdout(*words):
    """Return what a command prints."""
    found = invoke(*words, env={"COLUMNS": "160"})
    assert found.exit_code == 0, found.output
    return found.stdout


@pytest.mark.parametrize(
    "names",
    [("1f1b", "zb-1p"), ("1f1b", "seq1f1b"), ("seq1f1b", "1f1b"), ("gpipe", "1f1b", "zb-1p")],
    ids=" ".join,
)
def test_a_predicted_gain_has_its_range(names):
    """The range is that of the row's keys; a gain that nothing checks is said to be unchecked."""
    found = json.loads(stdout("compare", *names, *JOB, "--json"))
    rows = {row["name"]: row for row in found["schedules"]}
    best = min(rows.values(), key=lambda row: row["makespan"])
    other = rows[names[0]] if best["name"] != names[0] else rows[names[1]]
    gain = 100 * (other["step_s"] / best["step_s"] - 1)
    assert found["verdict"] == found["closing"]
    before, mark, said = found["verdict"].partition("; predicted gain ")
    assert mark
    assert f"times faster than {other['name']}" in before
    assert said.startswith(f"+{gain:.1f}% (")
    if best["name"] != names[0]:
        low, high = (format(100 * best[key], ".0f") for key in ("gain_low", "gain_high"))
        assert f"({low} to {high}%".replace("-", "−") in said
    is_sliced = "seq1f1b" in names
    assert said.endswith(", unchecked)") == is_sliced
    assert stdout("compare", *names, *JOB, "-q").strip() == found["verdict"]


def test_the_table_explains_the_range():
    """The note mentions unchecked gains only where there is one."""
    note = "four of five measured gains lie in the range"
    plain = stdout("compare", "1f1b", "zb-1p", *JOB)
    sliced = stdout("compare", "1f1b", "zb-1p", "seq1f1b", *JOB)
    assert note in plain
    assert "sequences are unchecked" not in plain
    assert note in sliced
    assert "gains of schedules that cut sequences are unchecked" in sliced


def test_only_a_model_predicts_a_gain():
    """Costs given as numbers are exact, and so is what follows from them."""
    text = stdout("compare", "1f1b", "seq1f1b", *SHAPE)
    assert "predicted gain" not in text
    assert "unchecked" not in text


def test_a_schedule_over_the_cap_comes_last():
    """The gain belongs to the two that are compared, and not to one that does not fit."""
    verdict = stdout("compare", "1f1b", "zb-1p", "gpipe", *JOB, "--cap", "80GiB", "-q").strip()
    assert verdict.endswith("%); over the cap: gpipe")
    alone = stdout("compare", "1f1b", "gpipe", *JOB, "--cap", "80GiB", "-q").strip()
    assert alone.endswith("the only one that fits; over the cap: gpipe")
