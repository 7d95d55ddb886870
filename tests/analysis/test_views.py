"""Gaps of a device are its idle time, each with the op after it; labels name ops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.analysis.views import find_op, gap_before, gaps_of
from ppsim.errors import InputError
from ppsim.schedules import families, generate
from ppsim.simulation.longest_path import simulate
from tests.cases import EIGHTHS, FEW, costs, schedules


@pytest.mark.parametrize("name", [family.name for family in families()])
@FEW
@given(st.data())
def test_gaps_are_the_idle_time_of_a_device(name, data):
    """Their times sum to it, their parts to them; each lies between the end of an op and the start of the next."""
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    timeline = simulate(schedule, times)
    idle = explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))
    device = data.draw(st.integers(0, schedule.n_devices - 1))
    gaps = gaps_of(idle, device)
    assert sum(gap.end - gap.start for gap in gaps) == pytest.approx(idle.by_device[device].sum())
    queue = schedule.queue(device)
    ends = {0.0, *timeline.end[queue].tolist()}
    for gap in gaps:
        assert sum(part.time for part in gap.parts) == pytest.approx(gap.end - gap.start)
        assert gap.start in ends
        assert gap.end == (timeline.start[gap.op] if gap.op >= 0 else timeline.makespan)
        assert gap.op < 0 or gap_before(idle, gap.op) == gap


def test_ops_are_found_by_their_labels():
    schedule = generate("dualpipe-v", devices=2, microbatches=4)
    for op in range(len(schedule)):
        first = op - 1 if -1 != schedule.pair[op] < op else op
        assert find_op(schedule, f" {schedule.label(op).lower()}") == first
    assert find_op(schedule, "b1@2") == find_op(schedule, "2B1")
    for text in ("F", "B1@", "2F", "2X0", "9F0", "0F99", ""):
        with pytest.raises(InputError):
            find_op(schedule, text)
