"""Single steps of the list heuristic for one stage per device, by hand."""

import numpy as np
import pytest

from ppsim.search.rules import linear_kernel as kernel
from ppsim.search.rules.linear_kernel import F, I, Line, W


def line(*, cap: float = 9.0, idle: tuple[float, ...] = (0, 0), latency: float = 0.5) -> Line:
    """Two devices whose F, I and W take 2, 3 and 4, and three microbatches; an F holds 1, of which
    W frees a half.
    """
    P, M = 2, 3
    time = np.repeat(np.array([[2.0], [3.0], [4.0]]), P, axis=1)
    nothing, change = np.zeros(P), np.array([1.0, -0.5, -0.5])
    counts, ends = np.zeros((3, P), np.int64), np.zeros((2, P, M))
    queue, wanted = np.full((P, 3 * M), -1), np.zeros(P, np.int64)
    caps, links = np.full(P, cap), np.full((P, 2), latency)
    return Line(
        time,
        links,
        caps,
        change,
        queue,
        ends,
        counts,
        nothing.copy(),
        nothing.copy(),
        np.array(idle),
        wanted,
    )


def queue_of(state: Line, device: int) -> str:
    return "".join("FIW"[kind] for kind in state.queue[device] if kind >= 0)


def test_an_op_waits_for_its_input_and_idles_only_after_the_first():
    """F of 2 on device 0, a message of a half, F to 4.5 and I to 7.5 on device 1, another half, I
    to 11.
    """
    state = line()
    for device, kind in ((0, F), (1, F), (1, I), (0, I)):
        kernel.run(state, device, kind)
    assert state.end[:, :, 0].tolist() == [[2, 4.5], [11, 7.5]]
    assert state.free.tolist() == [11, 7.5]
    assert state.idle.tolist() == [6, 0]  # device 1 had run nothing before 2.5
    assert state.held.tolist() == [0.5, 0.5]
    kernel.run(state, 0, W)
    assert (state.free[0], state.held[0], queue_of(state, 0)) == (15, 0, "FIW")


@pytest.mark.parametrize(
    ("idle", "greedy", "ran"),
    [(2.5, False, "FIF"), (2.4, False, "FIFW"), (9.0, False, "FIF"), (9.0, True, "FIFW")],
)
def test_a_gap_is_filled_where_it_is_longer_than_what_others_have_idled(idle, greedy, ran):
    """The I of device 0 is there at 15.5, 2.5 after the device is free, and a W takes 4."""
    state = line(idle=(0.0, idle))
    for device, kind in ((0, F), (1, F), (1, I), (0, I), (0, F), (1, F), (1, I)):
        kernel.run(state, device, kind)
    state.idle[:] = 0.0, idle
    assert state.free[0] == 13
    state.end[I, 1, 1] = 15.0
    kernel.fill(state, 0, I, greedy)
    assert queue_of(state, 0) == ran


def test_a_w_runs_where_it_ends_as_the_input_arrives_and_never_before_its_i():
    state = line()
    for device, kind in ((0, F), (1, F), (1, I), (0, I), (0, F)):
        kernel.run(state, device, kind)
    state.end[I, 1, 1] = state.free[0] + 4 - 0.5
    kernel.fill(state, 0, I, False)
    assert queue_of(state, 0) == "FIFW"
    state.end[I, 1, 1] += 100
    kernel.fill(state, 0, I, True)
    assert queue_of(state, 0) == "FIFW"


def test_room_is_made_by_w_until_none_is_left():
    state = line(cap=2.0)
    for kind in (F, F):
        kernel.run(state, 0, kind)
    assert not kernel.make_room(state, 0, F)  # no I has run, so no W may
    kernel.run(state, 0, I)
    assert kernel.make_room(state, 0, F)  # 1.5 are held, and a W frees a half
    assert queue_of(state, 0) == "FFIW"
    kernel.run(state, 0, F)
    assert kernel.make_room(state, 0, I)
    assert not kernel.make_room(state, 0, F)
    assert queue_of(state, 0) == "FFIWF"


@pytest.mark.parametrize("late", [False, True])
def test_the_warm_up_fills_the_time_until_the_first_i_arrives(late):
    """F take 1, messages a half, I 2, 3 and 6. Device 2 runs F from 3 to 4 and I to 10, which
    device 1 has at 10.5: it runs 8 more F from 2.5 on. Its I ends at 13.5 and is on device 0 at 14,
    13 F after its first at 1. The last F end as the I arrive, so none begins late.
    """
    P, M = 3, 20
    time = np.array([[1.0, 1, 1], [2, 3, 6], [1, 1, 1]])
    nothing, change = np.zeros(P), np.array([1.0, -0.5, -0.5])
    counts, ends, wanted = np.zeros((3, P), np.int64), np.zeros((2, P, M)), np.zeros(P, np.int64)
    caps, queue, links = np.full(P, 99.0), np.full((P, 3 * M), -1), np.full((P, 2), 0.5)
    state = Line(
        time,
        links,
        caps,
        change,
        queue,
        ends,
        counts,
        nothing.copy(),
        nothing.copy(),
        nothing.copy(),
        wanted,
    )
    kernel.warm_up(state, M, late)
    assert [queue_of(state, device) for device in range(P)] == ["F" * 14 + "I", "F" * 9 + "I", "FI"]


@pytest.mark.parametrize(
    ("free", "idle", "waits"),
    [(0.0, 9.0, False), (7.5, 9.0, False), (8.0, 1.5, True), (8.0, 1.0, False), (9.5, 0.0, True)],
)
def test_an_f_waits_where_the_next_device_has_enough_to_do(free, idle, waits):
    """Device 1 is free at 4 and has an F of 2, an I of 3 and a message of a half: it needs no F
    before 9.5. An F of 2 that would end later waits where its device then idles no longer than
    another has.
    """
    state = line(idle=(0.0, idle))
    state.done[F], state.free[:] = (3, 1), (free, 4.0)
    assert kernel.may_postpone(state, 0) == waits
    state.done[F] = (2, 1)
    assert not kernel.may_postpone(state, 0)


def test_w_that_make_room_for_an_f_take_their_time_before_it():
    """Of 2 that fit, 2 are held: two W of 4, each of which frees a half, end at 8, and an F at 10,
    after 9.5.
    """
    for works, held, waits in ((2, 2.0, True), (0, 2.0, False), (2, 1.0, False), (1, 1.5, False)):
        state = line(cap=2.0, idle=(0.0, 9.5))
        state.done[F], state.done[I], state.free[:] = (3, 1), (works, 0), (0.0, 4.0)
        state.held[:] = held
        assert kernel.may_postpone(state, 0) == waits


def test_the_first_device_ends_its_f_with_all_the_w_that_it_owes():
    """Its last I waits for every other device: W run before it, and none of another device's do."""
    state = line(cap=9.0)
    assert kernel.schedule_line(state, False, False, False)
    queues = [queue_of(state, device) for device in range(2)]
    assert all(sorted(queue) == sorted("FIW" * 3) for queue in queues)
    first = queues[0]
    before = first[: first.rindex("I")]
    assert before.count("W") == before.count("I")
