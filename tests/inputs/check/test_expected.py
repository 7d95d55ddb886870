"""A file that lacks a device, a stage or a microbatch is told from a complete one."""

from typing import Any

import numpy as np
import pytest

from ppsim.core.draft import Draft
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.expected import ExpectedCounts, expected_faults, same_order
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate


def rows(name: str = "1f1b", devices: int = 4, microbatches: int = 4) -> list[list[str]]:
    return list(
        Draft.from_schedule(generate(name, devices=devices, microbatches=microbatches)).cells()
    )


def draft_of(cells: list[list[str]]) -> Draft:
    return parse("".join(",".join(row) + "\n" for row in cells), "x.csv")


def messages(cells: list[list[str]], **counts: Any) -> list[str]:
    return [fault.message for fault in expected_faults(draft_of(cells), ExpectedCounts(**counts))]


def test_a_complete_file_has_no_fault():
    assert messages(rows(), devices=4, stages=4, microbatches=4) == []
    assert check(draft_of(rows()), expected=ExpectedCounts(4, 4, 4)).valid


@pytest.mark.parametrize(
    ("cells", "counts", "said"),
    [
        (rows(devices=3), {"devices": 4}, "device 3 is missing: the file has 3 of 4 devices"),
        (rows(devices=3), {"stages": 5}, "stages 3, 4 are missing: the file has 3 of 5 stages"),
        (
            rows(devices=3),
            {"devices": 10**30},
            f"devices 3, 4, 5, 6, 7, 8, 9, 10 and {10**30 - 11} more are missing: the file has 3 "
            f"of {10**30} devices",
        ),
        (
            rows(microbatches=3),
            {"microbatches": 4},
            "microbatch 3 is missing: the file has 3 of 4 microbatches",
        ),
        (rows(), {"microbatches": 2}, "the file has 4 microbatches, and 2 are expected"),
    ],
)
def test_what_is_missing_is_named(cells, counts, said):
    assert messages(cells, **counts) == [said]


def test_a_lost_rank_in_the_middle_is_missing_though_the_rest_looks_whole():
    """Without device 1's row the stages do not count up, and it is stage 1 that is named."""
    cells = rows()
    del cells[1]
    assert messages(cells, stages=4)[0].startswith("stage 1 is missing")


def test_ops_of_a_named_schedule_are_missed():
    schedule = generate("1f1b", devices=4, microbatches=4)
    cells = rows()
    cells[2] = [cell for cell in cells[2] if cell != "2B3"]
    (fault,) = expected_faults(draft_of(cells), ExpectedCounts(4, 4, 4, schedule))
    assert fault.message == "device 2 lacks 2B3 of 1f1b"
    assert fault.device == 2


def test_the_order_is_compared_with_the_schedule_named():
    for name, same in (("1f1b", True), ("gpipe", False)):
        schedule = generate(name, devices=4, microbatches=4)
        assert same_order(draft_of(rows()), schedule) is same
        assert not list(expected_faults(draft_of(rows()), ExpectedCounts(4, 4, 4, schedule)))
    assert np.all(draft_of(rows()).computes)
