"""Mermaid text: in the colours of all other pictures, and wide enough for its labels."""

import json
import re

import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.show.drawing.palette import DEFAULT, luminance
from ppsim.show.files.writers.mermaid import text
from tests.cases import timed


def settings(timeline):
    found = re.search(r"^%%\{init: (.*)\}%%$", text(timeline, "title"), re.M)
    assert found
    return json.loads(found[1])


def test_what_a_file_is_called_is_no_directive():
    written = text(
        timed("1f1b", 2, 2),
        "%%{init: {}}%%",
        {"ppsim": "1", "command": "ppsim run '%%{wrap}%%.csv'"},
    )
    assert written.count("%%{") == 1


def test_slices_are_told_where_there_are_some():
    assert "%% slices" not in text(timed("1f1b", 2, 2), "title")
    sliced = generate("seq1f1b", devices=2, microbatches=2, slices=2)
    assert "\n%% slices: 2\n" in text(simulate(sliced, costs_for(sliced)), "title")


@pytest.mark.parametrize(
    ("name", "shape"), [("1f1b", (4, 8)), ("dualpipe", (8, 20)), ("zb-1p", (4, 16))]
)
def test_every_label_has_room_in_its_bar(name, shape):
    """The chart is so wide that the shortest bar is wider than its name at seven pixels a
    letter.
    """
    timeline = timed(name, *shape)
    spans = timeline.end - timeline.start
    per_unit = (settings(timeline)["gantt"]["useWidth"] - 150) / timeline.makespan
    for op in range(len(timeline.schedule)):
        members = timeline.schedule.members(op)
        name_of = " + ".join(timeline.schedule.label(member) for member in members)
        assert spans[op] * per_unit >= 7 * len(name_of)


def test_kinds_have_the_colours_of_all_pictures_and_text_reads_on_them():
    """F, B and W in their first tints, I in its last; each look of a bar is one kind's."""
    theme = settings(timed("dualpipe", 4, 8))["themeVariables"]
    assert theme["taskBkgColor"] == DEFAULT.tints["forward"][0]
    assert theme["doneTaskBkgColor"] == DEFAULT.tints["backward"][0]
    assert theme["critBkgColor"] == DEFAULT.tints["weights"][0]
    fills = [theme[f"{look}BkgColor"] for look in ("task", "doneTask", "activeTask", "crit")]
    assert len({*fills}) == 4
    assert theme["activeTaskBkgColor"] == DEFAULT.tints["input"][1]
    # of all looks but the first
    assert (theme["taskTextColor"], theme["taskTextDarkColor"]) == ("#ffffff", "#000000")
    assert 1.05 / (luminance(fills[0]) + 0.05) >= 4.5
    assert min((luminance(fill) + 0.05) / 0.05 for fill in fills[1:]) >= 4.5
    styles = {
        line.split(":")[0].strip()[1]: line.split(":")[1].split("o")[0]
        for line in lines_of("dualpipe")
    }
    assert len({*styles.values()}) == len(styles) == 4


def lines_of(name):
    timeline = timed(name, 4, 8)
    return [
        line for line in text(timeline, "title").splitlines() if re.match(r" +\d[A-Z]\d+ :", line)
    ]
