"""The aligned grid: steps on integer slots, in the order of the queue, after all they need."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.grid import CONTINUED, cells_of, csv_of, text_of
from ppsim.core.costs import Costs, costs_for
from ppsim.core.draft import Draft
from ppsim.core.schedule import Schedule
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate
from tests.cases import PLAIN, schedules

any_schedule = st.sampled_from(PLAIN).flatmap(schedules)


def slots(schedule: Schedule) -> Costs:
    return costs_for(schedule, tb=1.0, ti=1.0, tw=1.0, per="stage")


@given(any_schedule)
def test_a_row_holds_its_queue_in_order(schedule):
    """Without empty slots and second slots of fused steps, every row is the device's queue."""
    rows = cells_of(simulate(schedule, slots(schedule)))
    assert [[c for c in row if c not in ("", CONTINUED)] for row in rows] == [
        *Draft.from_schedule(schedule).cells()
    ]


def test_1f1b_is_aligned_as_its_picture():
    schedule = generate("1f1b", devices=2, microbatches=3)
    assert text_of(cells_of(simulate(schedule, slots(schedule)))) == (
        "slot  0   1   2   3   4   5   6   7\n"
        "dev 0 0F0 0F1 .   0B0 0F2 0B1 .   0B2\n"
        "dev 1 .   1F0 1B0 1F1 1B1 1F2 1B2 ."
    )


def test_a_fused_step_takes_two_slots():
    rows = cells_of(
        simulate(*(lambda s: (s, slots(s)))(generate("dualpipe-v", devices=2, microbatches=4)))
    )
    fused = [
        (row[at], row[at + 1]) for row in rows for at, cell in enumerate(row) if "OVERLAP" in cell
    ]
    assert len(fused) == 6
    assert {second for _, second in fused} == {CONTINUED}


def test_both_sides_of_a_message_share_a_slot():
    schedule = generate("1f1b", devices=3, microbatches=4)
    run = execute(lower(schedule, "even-first"), slots(schedule), Network("blocking", alpha=1.0))
    rows = cells_of(run.timeline)
    at = {cell: slot for row in rows for slot, cell in enumerate(row) if cell}
    for m in range(4):
        assert at[f"0SEND_F{m}"] == at[f"1RECV_F{m}"] > at[f"0F{m}"]
        assert at[f"2SEND_B{m}"] == at[f"1RECV_B{m}"] < at[f"1B{m}"]


@given(any_schedule.filter(lambda s: s.placement.n_replicas == 1))
def test_the_grid_as_csv_is_the_same_schedule(schedule):
    """torch's CSV takes empty cells; what is read back has the same queues."""
    back = parse(csv_of(cells_of(simulate(schedule, slots(schedule)))), "grid.csv")
    for column in ("offsets", "kind", "stage", "microbatch", "pair"):
        np.testing.assert_array_equal(getattr(back, column), getattr(schedule, column))


def test_times_between_slots_are_no_grid():
    schedule = generate("1f1b", devices=2, microbatches=3)
    with pytest.raises(ValueError, match="whole slot"):
        cells_of(simulate(schedule, costs_for(schedule, tf=0.5)))
