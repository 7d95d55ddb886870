"""The list of schedules: a line for each, with what it takes on an example."""

import json

import pytest

from ppsim.ask.words import short_needs
from ppsim.schedules import families
from tests.commands import invoke


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_a_schedule_is_a_line(columns):
    """One that begins with its name and has bubble and memory, whatever the width; all of them on
    one screen.
    """
    lines = invoke(
        "list", env={"COLUMNS": str(columns), "FORCE_COLOR": "1", "TERM": "dumb"}
    ).stdout.splitlines()
    rows = {
        line.split()[0]: line.split() for line in lines if "%" in line and line.split()[0] != "40"
    }
    names = [family.name for family in families()]
    assert {*names} <= {*rows}
    assert [line.split()[0] for line in lines if line.split()[0] in names] == names
    assert len(lines) <= len(names) + 9
    for name in names:
        assert rows[name][1].endswith("%")
        assert float(rows[name][2]) >= 0


def test_the_numbers_of_a_line_are_those_of_a_run():
    names = ["1f1b", "zb-v", "interleaved", "dualpipe", "seq1f1b"]
    lines = {line.split()[0]: line.split() for line in invoke("list").stdout.splitlines() if line}
    found = invoke("compare", *names, "--devices", "4", "--mb", "8", "--json").stdout
    rows = json.loads(found)["schedules"]
    assert [row["name"] for row in rows] == names
    for row in rows:
        assert lines[row["name"]][1] == f"{row['bubble_rate']:.1%}"
        assert float(lines[row["name"]][2]) == row["peak_activations_share"]


def test_needs_are_short():
    """Rules in letters; those that take a sentence are left to the schedule's own page."""
    needs = {family.name: short_needs(family) for family in families()}
    assert needs["1f1b"] == "V = 1"
    assert needs["dualpipe"] == "V = 1, P even, M even, M >= 2P"
    assert needs["decode"] == "-"
    assert max(map(len, needs.values())) <= 40
