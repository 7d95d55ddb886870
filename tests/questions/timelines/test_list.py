"""The list of schedules: groups on one screen, or a line for each in a pipe."""

import json
import re

import pytest

from ppsim.ask.words import short_needs
from ppsim.questions.timelines.list_screen import GROUPS
from ppsim.schedules import families
from tests.commands import invoke, screen_of

CELLS = re.compile(r"([a-z0-9-]+) +([\d.]+%) +([\d.]+)( +yes)?(?=$| )")


def entries_of(lines: list[str]) -> dict[str, tuple[str, ...]]:
    """Idle share, peak and split of each schedule on a terminal, by name."""
    found = [cells for line in lines if "schedules;" not in line for cells in CELLS.findall(line)]
    entries: dict[str, tuple[str, ...]] = {
        name: (idle, peak, split.strip()) for name, idle, peak, split in found
    }
    assert len(entries) == len(found)  # none stands there twice
    return entries


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [60, 80, 100, 120, 200])
def test_all_schedules_are_on_one_screen(columns):
    lines = screen_of("list", columns)
    assert len(lines) <= (30 if columns >= 120 else 40)
    assert max(map(len, lines)) <= columns
    assert {*entries_of(lines)} == {family.name for family in families()}


def test_a_screen_and_a_pipe_have_the_same_numbers():
    piped = {
        line.split()[0]: tuple((*line.split(), "")[1:4])
        for line in invoke("list").stdout.splitlines()
        if "%" in line and "schedules;" not in line
    }
    shown = entries_of(screen_of("list", 80))
    assert len(shown) == len(families())
    split = {family.name: "yes" if family.split else "" for family in families()}
    for name, (idle, peak, splits) in shown.items():
        assert piped[name][:2] == (idle, peak)
        assert (piped[name][2] == "yes") == (splits == "yes") == (split[name] == "yes")


def test_a_group_has_the_schedules_of_its_heading_the_least_idle_first():
    lines = screen_of("list", 50)  # one schedule a line
    at = {heading: lines.index(heading) for heading in GROUPS if heading in lines}
    assert {"one stage a device", "several stages a device, interleaved"} <= {*at}

    def names(heading: str) -> list[str]:
        first = at[heading] + 1
        rest = lines[first:]
        count = next(place for place, line in enumerate(rest) if not CELLS.match(line))
        found = entries_of(rest[:count])
        shares = [float(idle.rstrip("%")) for idle, _, _ in found.values()]
        assert shares == sorted(shares)
        return [*found]

    members = {
        "one stage a device": {"1f1b", "1f1b-overlap", "eager-1f1b", "gpipe"},
        "sequences in slices": {"seq1f1b", "seq1f1b-zb", "slimpipe"},
        "no backward, or no flush": {"decode", "forward-only", "pipedream-2bw"},
    }
    elsewhere = {"zb-1p", "interleaved", "zb-v", "chimera", "vocab-1", "bpipe"}
    known = elsewhere.union(*members.values())
    for heading, wanted in members.items():
        assert known & {*names(heading)} == wanted


def test_a_pipe_has_a_line_for_each_schedule_by_name():
    lines = invoke("list").stdout.splitlines()
    names = [family.name for family in families()]
    assert [line.split()[0] for line in lines if line.split()[0] in names] == names


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
