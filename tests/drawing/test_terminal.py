"""The chart in a terminal: whatever the costs, the width and the encoding."""

import io

import pytest
from rich.console import Console

from ppsim.core.costs import costs_for
from ppsim.drawing.terminal import gantt
from ppsim.schedules import generate
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import measure


def chart(columns: int = 100, encoding: str = "utf-8", stages: int = 2, microbatches: int = 3, **costs) -> list[str]:
    schedule = generate("1f1b", stages=stages, microbatches=microbatches)
    timeline = simulate(schedule, costs_for(schedule, **costs))
    out = io.StringIO()
    screen = Console(file=out, width=columns, soft_wrap=True)
    screen.print(gantt(timeline, measure(timeline), columns, False, encoding), crop=False)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("costs", [{"tf": 1e-300, "tb": 1e99}, {"tf": 1e-20, "tb": 1}])
def test_ops_too_short_for_any_chart_are_left_out_and_said_so(costs):
    """The long ops fill the chart as if the short ones took no time."""
    scale, first, second, *_ = chart(**costs)
    assert "ops under" in scale
    assert "not shown" in scale
    assert first.startswith("dev 0 ··B0B1B2 ")
    assert second.startswith("dev 1 B0B1B2·· ")


@pytest.mark.parametrize("costs", [{"tf": 1e-320, "tb": 1e-318}, {"tf": 0, "tb": 0}, {"tf": 1, "tb": 1e8}])
def test_other_extremes_are_drawn_too(costs):
    """Nothing is said to be left out, and each device has its row."""
    scale, first, second, *_ = chart(**costs)
    assert "not shown" not in scale
    assert first.startswith("dev 0 ")
    assert second.startswith("dev 1 ")


def test_a_narrow_terminal_has_whole_rows_of_cells():
    """At 40 columns cells take the place of the numbers beside them; no line is too long or ends in blanks."""
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
    assert lines[0] == "1 column = 1 t_F; 40 to 2999976 folded"
