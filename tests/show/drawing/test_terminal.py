"""The chart in a terminal: whatever the costs, the width and the encoding."""

import io
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.core.costs import costs_for
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.show.drawing.palette import (
    CAUSE_DARK,
    CAUSE_FILL,
    FEW_COLOURS,
    MANY_COLOURS,
    XTERM,
    XTERM_CAUSES,
)
from ppsim.show.drawing.terminal import gantt
from ppsim.show.drawing.terminal_marks import marks_of_idle, marks_of_messages


def chart(
    columns: int = 100, encoding: str = "utf-8", stages: int = 2, microbatches: int = 3, **costs
) -> list[str]:
    schedule = generate("1f1b", stages=stages, microbatches=microbatches)
    timeline = simulate(schedule, costs_for(schedule, **costs))
    out = io.StringIO()
    screen = Console(file=out, width=columns, soft_wrap=True)
    screen.print(gantt(timeline, measure(timeline), columns, 0, encoding), crop=False)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("costs", [{"tf": 1e-300, "tb": 1e99}, {"tf": 1e-20, "tb": 1}])
def test_ops_too_short_for_any_chart_are_left_out_and_said_so(costs):
    """The long ops fill the chart as if the short ones took no time."""
    scale, first, second, *_ = chart(**costs)
    assert "ops under" in scale
    assert "not shown" in scale
    assert first.startswith("dev 0 ··B0B1B2 ")
    assert second.startswith("dev 1 B0B1B2·· ")


@pytest.mark.parametrize(
    "costs", [{"tf": 1e-320, "tb": 1e-318}, {"tf": 0, "tb": 0}, {"tf": 1, "tb": 1e8}]
)
def test_other_extremes_are_drawn_too(costs):
    """Nothing is said to be left out, and each device has its row."""
    scale, first, second, *_ = chart(**costs)
    assert "not shown" not in scale
    assert first.startswith("dev 0 ")
    assert second.startswith("dev 1 ")


def test_a_narrow_terminal_has_whole_rows_of_cells():
    """At 40 columns cells take the place of the numbers beside them; no line is too long or ends in
    blanks.
    """
    lines = chart(columns=40, stages=4, microbatches=8)
    assert lines[1] == "dev 0 FFFF······B0FB1FB2FB3FB4·B5·B6·B7"
    assert all(len(line) <= 40 and line == line.rstrip() for line in lines)


def test_a_console_of_ascii_gets_ascii():
    """Bubbles, long ops and what is folded have signs that the encoding can carry."""
    lines = chart(encoding="ascii", stages=4, microbatches=300)
    assert all(line.isascii() for line in lines)
    assert lines[1].startswith("dev 0 FFFF......B-FB-F")
    assert " ... " in lines[1]
    assert lines[-1].endswith(".. bubble")


@pytest.mark.slow
def test_large_times_have_all_their_digits():
    """Where the fold ends is a number to find in the trace."""
    lines = chart(microbatches=1_000_000)
    assert "e+" not in "".join(lines)
    assert lines[0] == "1 column = 1 t_F; 20 to 1,499,991 and 1,500,011 to 2,999,981 folded"


def test_many_devices_are_chosen_evenly():
    """Of 64 devices 32 have a row, the first and the last among them, and their steady middle is in
    sight.
    """
    schedule = generate("1f1b", stages=64, microbatches=512)
    timeline = simulate(schedule, costs_for(schedule))
    out = io.StringIO()
    Console(file=out, width=100, soft_wrap=True).print(
        gantt(timeline, measure(timeline), 100, 0), crop=False
    )
    lines = out.getvalue().splitlines()
    rows = [line for line in lines if line.startswith("dev ")]
    named = [int(line.split()[1]) for line in rows]
    assert (len(rows), named[0], named[-1]) == (32, 0, 63)
    assert {b - a for a, b in pairwise(named)} == {2, 3}
    assert all("F" in row and "B" in row for row in rows)
    assert any("32 of 64 devices, evenly chosen" in line for line in lines)


def test_gaps_are_shown_where_there_is_room_and_said_to_be_rounded_elsewhere():
    """Latencies of half an op: at 100 columns the numbers beside the rows make way, at 60 a word
    says what is lost.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    timeline = execute(
        lower(schedule, "early"), costs_for(schedule), Network("blocking", alpha=0.5)
    ).compute
    heads = []
    for columns in (100, 120, 60):
        out = io.StringIO()
        chart = gantt(timeline, measure(timeline), columns, 0)
        Console(file=out, width=columns, soft_wrap=True).print(chart, crop=False)
        heads.append(out.getvalue().splitlines()[:2])
    assert [head[0] for head in heads] == [
        "1 column = 1 t_F; gaps from 0.5 t_F rounded",
        "1 column = 0.5 t_F",
        "1 column = 1 t_F; 17 to 41 folded; gaps from 0.5 t_F rounded",
    ]
    assert ["idle" in head[1] for head in heads] == [True, False, True]


def test_a_device_blocked_in_a_send_is_no_idle_one():
    """Time in sends and receives has its own sign, and the legend says so."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    execution = execute(
        lower(schedule, "early"), costs_for(schedule), Network("blocking", alpha=0.5)
    )
    timeline = execution.compute
    out = io.StringIO()
    chart = gantt(timeline, measure(timeline), 160, 0, marks=marks_of_messages(execution))
    Console(file=out, width=160, soft_wrap=True).print(chart, crop=False)
    lines = out.getvalue().splitlines()
    assert lines[1].startswith("dev 0 F0~F1~")
    assert lines[-1].endswith("~~ blocked in a send or receive")


@pytest.mark.parametrize(
    ("ground", "fills"), [("", CAUSE_DARK), ("15;0", CAUSE_DARK), ("0;15", CAUSE_FILL)]
)
def test_bubbles_have_the_colours_of_their_causes(ground, fills, monkeypatch):
    """On a terminal with colours every idle column is a cell of its cause's colour, on its
    ground.
    """
    monkeypatch.setenv("COLORFGBG", ground)
    schedule = generate("1f1b", devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule))
    idle = explain_idle(timeline, arrivals(timeline, np.zeros(len(schedule))))
    screen = Console(file=io.StringIO(), width=160, color_system="truecolor", force_terminal=True)
    drawn = list(
        screen.render(
            gantt(
                timeline,
                measure(timeline),
                160,
                MANY_COLOURS,
                marks=marks_of_idle(idle, MANY_COLOURS),
            )
        )
    )
    found = {each.style.bgcolor.name.upper() for each in drawn if each.style and each.style.bgcolor}
    assert fills["turnaround"] in found
    text = "".join(each.text for each in drawn)
    assert "idle: turnaround" in text
    assert "\u254c" not in text.splitlines()[1]


def codes(colours: int, *names: str, marks: bool = False) -> set[int | None]:
    """The numbers of xterm's colours that cells of schedules have on such a terminal."""
    found = set[int | None]()
    for name in names:
        schedule = generate(name, devices=4, microbatches=8)
        timeline = simulate(schedule, costs_for(schedule))
        idle = marks_of_idle(
            explain_idle(timeline, arrivals(timeline, np.zeros(len(schedule)))), colours
        )
        screen = Console(
            file=io.StringIO(), width=200, force_terminal=True, color_system="256", no_color=False
        )
        drawn = gantt(timeline, measure(timeline), 200, colours, marks=idle if marks else None)
        found |= {
            segment.style.bgcolor.number
            for segment in screen.render(drawn)
            if segment.style and segment.style.bgcolor
        }
    return found


def test_256_colours_are_the_chosen_ones():
    """Both shades of both chunks of F, B, I and W, and no number that a nearest colour has led
    to.
    """
    kinds = ("forward", "backward", "input", "weights")
    chosen = {number for kind in kinds for pair in XTERM[kind] for number in pair}
    assert codes(FEW_COLOURS, "interleaved", "zb-v") == chosen


def test_256_colours_of_causes_are_the_chosen_ones(monkeypatch):
    """On a dark terminal and on a light one, of the causes that a chart has."""
    for light, ground in enumerate(("15;0", "0;15")):
        monkeypatch.setenv("COLORFGBG", ground)
        causes = codes(FEW_COLOURS, "1f1b", marks=True) - codes(FEW_COLOURS, "1f1b")
        assert causes == {
            XTERM_CAUSES[name][1 - light] for name in ("fill", "turnaround", "drain", "compute")
        }
