"""Logs of Megatron-LM's timers: totals of every rank, or their least and greatest."""

from __future__ import annotations

import pytest

import ppsim
from ppsim.errors import InputError
from tests.commands import invoke
from tests.real_runs import EACH, SPREADS

MOST = "max time across ranks (ms):\n    optimizer ......................................: 12.25\n"


def timers(path, text):
    path.write_text(text)
    found = ppsim.read(str(path)).to_json()
    assert (found["format"], found["unit"]) == ("timers", "ms")
    return {row.pop("name"): row for row in found["timers"]}


def test_spreads_are_medians_of_reports_without_the_first(tmp_path):
    found = timers(tmp_path / "a.log", SPREADS)
    assert found["forward-backward"] == {"reports": 3, "least": 701.39, "most": 711.09, "ranks": []}
    assert found["model-and-optimizer-setup"]["most"] == 1022.97
    assert found["save-checkpoint"]["least"] == 24895.07
    assert list(found) == [
        "model-and-optimizer-setup",
        "forward-backward",
        "optimizer",
        "save-checkpoint",
    ]


def test_every_ranks_total_is_kept(tmp_path):
    """A rank without a timer is null, and the greatest names the slowest rank."""
    found = timers(tmp_path / "a.log", EACH)
    assert found["forward-compute"] == {
        "reports": 2,
        "least": 310.0,
        "most": 420.0,
        "ranks": [310.0, 420.0],
    }
    assert found["backward-compute"]["ranks"] == [None, 7.0]
    assert "rank 1" in invoke("read", str(tmp_path / "a.log")).stdout


def test_the_greatest_alone_is_the_greatest(tmp_path):
    assert timers(tmp_path / "a.log", MOST)["optimizer"] == {
        "reports": 1,
        "least": None,
        "most": 12.25,
        "ranks": [],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max time across ranks (ms):\nfoo\n", "contains no readable timer"),
        ("times across ranks (ms):\n  f:\n   rank 9999999: 3.0\n", "rank 9999999, more than"),
        ("times across ranks (ms):\n   rank 1: 3.0\n", "contains no readable timer"),
        ("(min, max) time across ranks (ms):\n  f ...: (nan, inf)\n", "contains no readable timer"),
    ],
)
def test_a_log_without_totals_gets_one_message(text, said, tmp_path):
    (tmp_path / "a.log").write_text(text)
    with pytest.raises(InputError, match=said):
        ppsim.read(str(tmp_path / "a.log"))


def test_totals_are_no_run(tmp_path):
    """Options of runs, and a run beside a log, are refused."""
    path = tmp_path / "a.log"
    path.write_text(MOST)
    for words, said in (
        (["read", str(path), "--iteration", "3"], "--iteration"),
        (["diff", str(path), str(path)], "totals of timers, not a run"),
        (["diff", str(path), "1f1b", "--devices", "2", "--mb", "2"], "totals of timers, not a run"),
    ):
        assert said in str(invoke(*words).exception)
