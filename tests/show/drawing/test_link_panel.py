"""The strips of links and shared cards below a figure's rows."""

import numpy as np
import pytest

from ppsim.analysis.link_use import link_use
from ppsim.core.costs import costs_for
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network, Shared
from ppsim.engine.lowering.lower import lower
from ppsim.schedules import generate
from ppsim.show.drawing.canvas import DOTS, render
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.link_panel import link_names, link_notes
from ppsim.show.drawing.palette import COMM_LANE

FULL = tuple(int(COMM_LANE[i : i + 2], 16) for i in (1, 3, 5))


def executed(**network):
    schedule = generate("1f1b", devices=4, microbatches=4)
    return execute(lower(schedule, "early"), costs_for(schedule), Network("overlap", **network))


def test_rows_are_named_by_their_devices_from_the_base():
    node = np.arange(4) // 2
    execution = executed(beta=2.0, message=1.0, shared=(Shared(4.0, node, node),))
    names = link_names(link_use(execution, most_links=3), base=1)
    assert names == [
        *("1 \u2192 2", "2 \u2192 1", "4 other links"),
        *("card of 1-2 out", "card of 1-2 in", "card of 3-4 out", "card of 3-4 in"),
    ]
    assert link_notes(link_use(execution, most_links=3))[0].endswith("%, 1")


@pytest.mark.parametrize("width", [3.3])
def test_a_strip_shows_where_in_time_its_link_is_in_use(width):
    execution = executed(alpha=0.5)
    figure, pixels = render(
        lambda: plot(execution.compute, executions=[execution], width=width), DOTS
    )
    axes = next(
        each for each in figure.axes if any("Links:" in text.get_text() for text in each.texts)
    )
    box, count = axes.get_window_extent(), len(link_use(execution))
    across = np.arange(int(box.x0), int(box.x1))
    for row in range(count):
        bottom = axes.transData.transform((0, row + 1))[1]
        line = (pixels[len(pixels) - round(bottom) - 3, across] == FULL).all(axis=1)
        source, target = link_use(execution).devices[row]
        own = (execution.messages.source == source) & (execution.messages.target == target)
        middle = (execution.messages.leave + execution.messages.arrive)[own] / 2
        seen = (middle / execution.makespan * (len(across) - 1)).astype(int)
        assert line[seen].all()
        assert line.mean() == pytest.approx(link_use(execution).mean[row], abs=0.02)


def test_paper_style_leaves_the_strips_out():
    execution = executed(alpha=0.5)
    figure = plot(execution.compute, executions=[execution], style="paper")
    assert not [text for axes in figure.axes for text in axes.texts if "Links:" in text.get_text()]
