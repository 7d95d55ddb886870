"""Queues that cannot finish are told with the cycle of waits, however long, and never run in
part.
"""

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.schedule import Placement, Schedule, place
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock
from tests.cases import drawn, drawn_queue


def deadlock(schedule: Schedule) -> str:
    with pytest.raises(Deadlock) as error:
        simulate(schedule, costs_for(schedule))
    assert error.value.hint
    return str(error.value)


def test_cycle_of_two_devices():
    """Both devices, what each stands at, what it waits for and what that stands behind."""
    schedule = drawn("F0.0 B0.0 F0.1 B0.1", "F1.0 F1.1 B1.0 B1.1")
    assert deadlock(schedule) == (
        "drawn deadlocks: device 0 at 0B0 waits for 1B0 on device 1, behind 1F1; "
        "device 1 at 1F1 waits for 0F1 on device 0, behind 0B0"
    )


def test_cycle_of_three_devices():
    """Every device of a longer cycle is named, in the order of the waits."""
    schedule = drawn(
        "F0.0 F3.1 F0.1 F3.0 B3.0 B0.0 B3.1 B0.1",
        "F1.0 F1.1 B1.0 B1.1",
        "F2.0 F2.1 B2.0 B2.1",
        home=[0, 1, 2, 0],
    )
    assert deadlock(schedule) == (
        "drawn deadlocks: device 0 at 3F1 waits for 2F1 on device 2; device 2 at 2F1 waits for "
        "1F1 on device 1; device 1 at 1F1 waits for 0F1 on device 0, behind 3F1"
    )


def test_cycle_on_one_device():
    """A device that runs a backward before its forward waits for itself."""
    schedule = drawn("B0.0 F0.0 F0.1 B0.1")
    assert (
        deadlock(schedule)
        == "drawn deadlocks: device 0 at 0B0 waits for 0F0 on device 0, behind 0B0"
    )
    split = drawn("F0.0 W0.0 I0.0", microbatches=1)
    assert (
        deadlock(split) == "drawn deadlocks: device 0 at 0W0 waits for 0I0 on device 0, behind 0W0"
    )


def test_cycle_through_a_pair():
    """A pair waits for both its inputs; its second op's wait is part of the cycle."""
    schedule = drawn("F0.0 (F0.1+B0.0) B0.1", "F1.0 F1.1 B1.0 B1.1")
    assert deadlock(schedule) == (
        "drawn deadlocks: device 0 at 0B0 waits for 1B0 on device 1, behind 1F1; "
        "device 1 at 1F1 waits for 0F1 on device 0"
    )


def test_an_op_waits_for_the_second_op_of_a_pair_at_the_head_without_anything_before_it():
    """The two ops of a pair run as one: neither is behind the other."""
    schedule = drawn("F0.0 (B0.0+F0.1) B0.1", "F1.0 F1.1 B1.0 B1.1")
    assert deadlock(schedule) == (
        "drawn deadlocks: device 0 at 0B0 waits for 1B0 on device 1, behind 1F1; "
        "device 1 at 1F1 waits for 0F1 on device 0"
    )


def test_a_pair_cannot_wait_for_itself():
    """A forward and a backward of one microbatch on the last stage are no pair."""
    assert deadlock(drawn("(F0.0+B0.0)", microbatches=1)).startswith(
        "drawn deadlocks: device 0 at 0B0 waits for 0F0 on device 0"
    )


def test_a_missing_op():
    """An input that no device produces is named, with who waits for it."""
    schedule = drawn("F0.0 B0.0", "F1.0 F1.1 B1.0 B1.1")
    assert deadlock(schedule) == (
        "drawn cannot finish: device 1 waits for the input of 1F1, which no device produces"
    )
    assert "waits for the input of 0W0" in deadlock(drawn("F0.0 W0.0", microbatches=1))


def test_two_thousand_devices_finish():
    """A wait may be as long as the pipeline: nothing recurses."""
    n = 2000
    schedule = Schedule.from_queues(
        "chain", place("linear", n, n), 1, [drawn_queue(f"F{stage}.0") for stage in range(n)]
    )
    assert simulate(schedule, costs_for(schedule)).makespan == n


def test_cycle_of_two_thousand_devices():
    """A cycle through 2,000 devices is found and told whole."""
    n = 2000
    home = [*range(n), 0]
    stages = [drawn_queue(f"F{n}.0 F0.0"), *(drawn_queue(f"F{stage}.0") for stage in range(1, n))]
    schedule = Schedule.from_queues(
        "ring", Placement("custom", n, np.array([home], np.int32)), 1, stages
    )
    message = deadlock(schedule)
    assert message.count("waits for") == n
    assert "device 1 at 1F0 waits for 0F0 on device 0, behind 2000F0" in message


def test_idle_devices_are_no_deadlock():
    """A device without ops has nothing to wait for."""
    schedule = drawn("F0.0 B0.0", "", home=[0], microbatches=1)
    assert simulate(schedule, costs_for(schedule, per="stage")).makespan == 3
