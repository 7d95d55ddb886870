"""The plotly figure shows every op once, where and when it runs."""

from __future__ import annotations

import numpy as np
import pytest

import ppsim
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.show.drawing import notebook
from ppsim.show.drawing.palette import BUBBLE, BUBBLE_DARK


@pytest.mark.parametrize(
    ("name", "shape"),
    [("zb-1p", {"devices": 3}), ("dualpipe-v", {"devices": 2}), ("interleaved", {"devices": 2})],
)
def test_every_op_is_one_bar_in_its_time(name, shape):
    schedule = generate(name, microbatches=6, **shape)
    timeline = ppsim.simulate(schedule, ppsim.costs_for(schedule, tf=1.5, comm=0.25))
    found = []
    for trace in ppsim.figure(timeline).data:
        for device, base, width, facts in zip(
            trace.y, trace.base, trace.x, trace.customdata, strict=True
        ):
            stage, microbatch, start, end = facts
            assert start <= base + 1e-9
            assert base + width <= end + 1e-9
            found.append(
                (trace.name.partition(",")[0], int(device), int(stage), int(microbatch), start, end)
            )
    ops = zip(
        (kind.info.name for kind in map(ppsim.Kind, schedule.kind)),
        schedule.device.tolist(),
        schedule.stage.tolist(),
        schedule.microbatch.tolist(),
        timeline.start.tolist(),
        timeline.end.tolist(),
        strict=True,
    )
    assert sorted(found) == sorted(ops)


def test_bars_of_a_device_do_not_overlap():
    schedule = generate("dualpipe", devices=4, microbatches=8)
    bars: dict[int, list[tuple[float, float]]] = {}
    for trace in ppsim.figure(ppsim.simulate(schedule, ppsim.costs_for(schedule))).data:
        for device, base, width in zip(trace.y, trace.base, trace.x, strict=True):
            bars.setdefault(int(device), []).append((base, base + width))
    for spans in bars.values():
        ends, starts = np.array(sorted(spans)).T[::-1]
        assert (starts[1:] >= ends[:-1] - 1e-9).all()


def test_too_many_ops_are_sent_to_a_page(monkeypatch):
    monkeypatch.setattr(notebook, "MOST_OPS", 10)
    schedule = generate("1f1b", devices=2, microbatches=4)
    with pytest.raises(InputError, match="16 ops"):
        ppsim.figure(ppsim.simulate(schedule, ppsim.costs_for(schedule)))


def test_numbers_are_inside_their_bars_and_all_or_none_fit():
    """A number of one digit is padded on both sides to the width of one with two."""
    schedule = generate("dualpipe", devices=8, microbatches=20)
    shown = ppsim.figure(ppsim.simulate(schedule, ppsim.costs_for(schedule)))
    texts = {text for trace in shown.data for text in trace.text}
    assert {text.strip() for text in texts} == {str(number) for number in range(20)}
    assert {2 * len(text.strip()) + text.count("\u2005") for text in texts} == {4}
    assert {trace.textposition for trace in shown.data} == {"inside"}
    assert {trace.name.partition(", ")[2] for trace in shown.data} == {"", "second replica"}


@pytest.mark.slow
def test_bubbles_are_dark_in_a_dark_template(monkeypatch):
    schedule = generate("1f1b", devices=2, microbatches=4)
    timeline = ppsim.simulate(schedule, ppsim.costs_for(schedule))
    assert ppsim.figure(timeline).layout.plot_bgcolor == BUBBLE
    monkeypatch.setattr("plotly.io.templates.default", "plotly_dark")
    assert ppsim.figure(timeline).layout.plot_bgcolor == BUBBLE_DARK
