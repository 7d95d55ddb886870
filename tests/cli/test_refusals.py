"""A command that is refused says so once, prints no result and leaves no file."""

from __future__ import annotations

import json

import pytest

from ppsim.errors import InputError
from tests.commands import answer, invoke

SMALL = ("--devices", "2", "--mb", "4")


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_file_that_the_schedule_cannot_be_leaves_nothing_printed(command, tmp_path):
    """torch's CSV has one rank per stage; the file beside it is not written either."""
    files = [tmp_path / "a.json", tmp_path / "a.csv"]
    code, out, err = answer(command, "dualpipe", *SMALL, "-o", str(files[0]), "-o", str(files[1]))
    assert (code, out) == (2, "")
    assert err.count("Error:") == 1
    assert not any(file.exists() for file in files)


@pytest.mark.parametrize("command", ["run", "explain", "memory", "diff", "compare"])
def test_an_unknown_format_is_refused_before_anything_is_timed(command, tmp_path, monkeypatch):
    monkeypatch.setattr("ppsim.simulation.longest_path.simulate", None)
    specs = ("1f1b", "gpipe") if command in ("diff", "compare") else ("1f1b",)
    result = invoke(command, *specs, *SMALL, "-o", str(tmp_path / "a.xyz"))
    assert isinstance(result.exception, InputError)
    assert "unknown output format '.xyz'" in str(result.exception)
    assert result.stdout == ""


def test_what_trains_is_no_alternative_to_forwards_only():
    found = json.loads(invoke("explain", "forward-only", *SMALL, "--json").stdout)
    assert [each["change"] for each in found["what_if"]] == ["mb=8"]


def test_a_steady_run_has_no_bound_and_says_none():
    """The bound is worked out from every op, of which the shortcut runs few."""
    found = json.loads(invoke("run", "1f1b", "--devices", "2", "--mb", "400", "--steady", "--json").stdout)
    assert (found["schema"], "bound" in found) == ("ppsim.steady/1", False)
