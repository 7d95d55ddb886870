"""Each term of the detailed model on queues small enough to time by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base import compiled
from ppsim.core.costs import Costs, costs_for
from ppsim.core.execution import Execution
from ppsim.core.lowered import Lowered
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.detailed.bandwidth_kernel import add_flow, remove_flow
from ppsim.engine.detailed.build_tables import build_rows
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import CHANNELS, MODES, Collectives, Host, Network, Shared
from ppsim.engine.detailed.tables import FLOW, RESOURCE, SLOT, Bandwidth
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock, InputError, InvalidSchedule
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate

ONE = ("0F0,0SEND_F0,0RECV_B0,0B0", "1RECV_F0,1F0,1B0,1SEND_B0")
# The second receive is posted when its message is there already, or early.
TWO_LATE = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
    "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1",
)
TWO_EARLY = (TWO_LATE[0], "1RECV_F0,1RECV_F1,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1")


def lowered_of(*rows: str) -> Lowered:
    lowered = parse("\n".join(rows), "queues").lowered()
    assert lowered is not None
    return lowered


def executed(rows: tuple[str, ...], network: Network) -> Execution:
    """Forwards take 1, backwards 2."""
    lowered = lowered_of(*rows)
    return execute(lowered, costs_for(lowered.compute, tf=1, tb=2, per="stage"), network)


def starts(run: Execution) -> dict[str, float]:
    schedule = run.lowered.schedule
    return {schedule.label(op): float(run.timeline.start[op]) for op in range(len(schedule))}


def test_a_message_takes_alpha_and_its_bytes():
    """Posted when its op ends, received alpha + bytes / beta later; the messages say when and
    where.
    """
    run = executed(ONE, Network("overlap", alpha=0.5, beta=8.0, message=4.0))
    assert starts(run) == {
        "0F0": 0,
        "0SEND_F0": 1,
        "0RECV_B0": 1,
        "0B0": 6,
        "1RECV_F0": 0,
        "1F0": 2,
        "1B0": 3,
        "1SEND_B0": 5,
    }
    messages = run.messages
    assert len(messages) == 2
    assert [
        run.lowered.schedule.label(op)
        for op in (*messages.send, *messages.receive, *messages.producer)
    ] == [
        "0SEND_F0",
        "1SEND_B0",
        "1RECV_F0",
        "0RECV_B0",
        "0F0",
        "1B0",
    ]
    assert (messages.source.tolist(), messages.target.tolist()) == ([0, 1], [1, 0])
    assert (messages.posted.tolist(), messages.awaited.tolist()) == ([1, 5], [0, 1])
    assert (messages.leave.tolist(), messages.arrive.tolist()) == ([1, 5], [2, 6])
    assert run.makespan == run.compute.makespan == 8


def test_blocking_occupies_both_sides():
    """Each send and receive ends when its message is over; a device does nothing meanwhile."""
    run = executed(TWO_LATE, Network("blocking", alpha=0.5))
    own = starts(run)
    assert (own["0F1"], own["0SEND_F1"], own["1F0"], own["1RECV_F1"], own["1F1"]) == (
        1.5,
        2.5,
        1.5,
        2.5,
        3.0,
    )
    ends = dict(zip(own, run.timeline.end.tolist(), strict=True))
    assert (ends["0SEND_F0"], ends["1RECV_F0"], ends["0SEND_F1"]) == (1.5, 1.5, 3.0)


def test_a_rendezvous_waits_for_its_receive_and_pays_for_lateness():
    """A receive posted after its send starts the message then, plus the penalty; an eager message
    is there already.
    """
    network = Network("overlap", alpha=0.5, message=4.0, late=0.25)
    assert starts(executed(TWO_LATE, network))["1F1"] == 2.5 + 0.25 + 0.5
    assert starts(executed(TWO_EARLY, network))["1F1"] == 2.5
    eager = Network("overlap", alpha=0.5, message=4.0, late=0.25, eager_bytes=4.0)
    assert starts(executed(TWO_LATE, eager))["1F1"] == 2.5
    blocking = Network("blocking", alpha=0.5, message=4.0, eager_bytes=3.0)
    assert executed(TWO_LATE, blocking).messages.leave[1] == 2.5


def test_a_channel_has_one_message_at_a_time():
    """In one direction the second waits for the first; messages without a channel share the link's
    bandwidth.
    """
    kinds = {
        channel: executed(TWO_EARLY, Network("overlap", channel, beta=2.0, message=4.0))
        .messages.arrive[:2]
        .tolist()
        for channel in ("direction", "message")
    }
    assert kinds == {"direction": [3, 5], "message": [4, 5]}


def test_a_receive_posted_ahead_holds_up_the_sends_of_its_pair():
    """One channel for both directions: what stands first holds up the rest, in the end for ever."""
    ahead = (
        "0F0,0SEND_F0,0RECV_B0,0F1,0SEND_F1,0B0,0RECV_B1,0B1",
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
    )
    leaves = {
        c: executed(ahead, Network("overlap", c, alpha=0.5)).messages.leave[1] for c in CHANNELS
    }
    assert leaves == {"message": 4.5, "direction": 4.5, "pair": 5.0, "group": 5.0}
    swapped = (ahead[0], "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1")
    with pytest.raises(Deadlock) as error:
        executed(swapped, Network("overlap", "pair", alpha=0.5))
    assert str(error.value).endswith(
        "deadlocks: 0RECV_B0 on device 0 waits for 1SEND_B0 on device 1, held up in its channel "
        "by 1RECV_F1, which waits for 0SEND_F1 on device 0, held up in its channel by 0RECV_B0"
    )


def test_host_costs_occupy_the_device():
    """Sends and receives by size, the gap between actions, what comes before and after an
    iteration.
    """
    host = Host(0.5, 0.125, 0.25, 0.0625, gap=0.125, preamble=2.0, epilogue=3.0)
    run = executed(ONE, Network("overlap", message=4.0, host=host))
    own = starts(run)
    assert own["0F0"] == own["1RECV_F0"] == 2
    assert own["0SEND_F0"] == 3.125
    assert own["0RECV_B0"] == 3.125 + 0.5 + 4 * 0.125 + 0.125
    # the message is there as soon as it is posted, whatever the sender still does
    assert own["1F0"] == 3.125
    assert own["1B0"] == own["1F0"] + 1 + 0.125
    assert run.makespan == run.timeline.end.max() + 3


def test_batches_go_together():
    """Posted together, over together, one action for the host; alone they would wait for each other
    for ever.
    """
    schedule = generate("1f1b", stages=2, microbatches=3)
    lowered = lower(schedule, "early", batch=True)
    costs = costs_for(schedule, tf=1, tb=2)
    run = execute(lowered, costs, Network("batched", alpha=0.5, host=Host(send=0.25, receive=0.25)))
    for batch in range(lowered.batch.max() + 1):
        ops = np.flatnonzero(lowered.batch == batch)
        assert len(set(run.timeline.start[ops])) == len(set(run.timeline.end[ops])) == 1
        assert run.timeline.end[ops[0]] - run.timeline.start[ops[0]] >= 0.25 * len(ops)


def test_collectives_run_beside_the_ops_or_in_their_place():
    """UNSHARD holds up the ops of its stage; REDUCE_GRAD counts until the end; both occupy the
    device if blocking.
    """
    schedule = generate("gpipe", stages=2, microbatches=2)
    lowered = lower(schedule, unshard=1, reduce_grad=True)
    costs = costs_for(schedule, tf=1, tb=2)
    network = Network(collectives=Collectives(unshard=0.75, reduce_grad=np.array([4.0, 1.0])))
    assert execute(lowered, costs, Network()).makespan == 9
    beside = execute(lowered, costs, network)
    assert (beside.compute.start.min(), beside.makespan) == (0.75, 9 + 0.75 + 4)
    assert beside.compute.end.max() == 9.75
    instead = execute(
        lowered, costs, Network(collectives=Collectives(0.75, 0.25, 4.0, blocking=True))
    )
    queue = lowered.schedule.queue(0)
    lasts = instead.timeline.end[queue] - instead.timeline.start[queue]
    assert lasts[lowered.schedule.kind[queue] >= Kind.UNSHARD].sum() == 0.75 + 0.25 + 4
    assert (np.diff(instead.timeline.start[queue]) >= 0).all()
    assert instead.makespan >= beside.makespan


def test_bandwidth_shared_by_a_node_slows_what_crosses_it():
    """Two stages on each node: only the middle link leaves a node. A limit that nobody reaches
    changes nothing.
    """
    schedule = generate("gpipe", stages=4, microbatches=4)
    lowered, costs, node = lower(schedule), costs_for(schedule), np.array([0, 0, 1, 1])
    network = Network("overlap", beta=4.0, message=4.0)

    def arrivals(*shared: Shared) -> Execution:
        return execute(lowered, costs, Network("overlap", beta=4.0, message=4.0, shared=shared))

    free = execute(lowered, costs, network)
    np.testing.assert_array_equal(arrivals(Shared(8.0, node)).timeline.start, free.timeline.start)
    slow = arrivals(Shared(2.0, node, node)).messages
    takes = slow.arrive - slow.leave
    crosses = node[slow.source] != node[slow.target]
    assert set(takes[crosses]) == {2.0}
    assert set(takes[~crosses]) == {1.0}


@given(st.data())
def test_rates_are_max_min_fair(data):
    """No resource is overrun, and every flow has a full one on which no other flow is faster."""
    resources, width = data.draw(st.integers(1, 6)), 3
    count = data.draw(st.integers(1, 8))
    routes = np.array(
        [
            sorted(
                {*data.draw(st.lists(st.integers(0, resources - 1), min_size=1, max_size=width))}
            )
            + [NONE] * width
            for _ in range(count)
        ],
        dtype=object,
    )
    table = np.array([route[:width] for route in routes], np.int64)
    capacity = np.array(
        data.draw(st.lists(st.integers(1, 20), min_size=resources, max_size=resources)), float
    )
    rows = {
        name: build_rows(*of)
        for name, of in zip(
            "frs", ((FLOW, count), (RESOURCE, resources), (SLOT, count * width)), strict=True
        )
    }
    rows["r"]["capacity"] = capacity
    of_flows, of_resources, slots = (compiled.view(rows[name]) for name in "frs")
    lists: Any = (table.ravel().tolist(), [0] * resources, [0] * count, [0])
    bandwidth = Bandwidth._make((of_flows, of_resources, slots, *lists, width))
    for flow in range(count):
        add_flow(bandwidth, flow, flow, 1e6, 0.0)
    gone = data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    for flow in gone:
        remove_flow(bandwidth, flow, 0.0)
    live = [flow for flow in range(count) if flow not in gone]
    rate = np.array([row.rate for row in bandwidth.flows])
    uses = np.array(
        [
            [resource in table[flow] and flow in live for resource in range(resources)]
            for flow in range(count)
        ]
    )
    load = rate @ uses
    assert (load <= capacity * (1 + 1e-12)).all()
    for flow in live:
        full = uses[flow] & (load >= capacity * (1 - 1e-12))
        assert any(
            rate[flow] >= rate[uses[:, resource]].max() * (1 - 1e-12)
            for resource in np.flatnonzero(full)
        )


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channel", CHANNELS)
def test_compiled_and_interpreted_kernels_agree_bit_for_bit(mode, channel, monkeypatch):
    """The same source twice, with every term in play and times that round."""
    schedule = generate("dualpipe-v", devices=4, microbatches=12)
    rng = np.random.default_rng(7)
    costs = Costs(rng.random((4, schedule.n_stages)))
    lowered = lower(
        schedule, "torch", batch=mode == "batched" or channel == "pair", unshard=2, reduce_grad=True
    )
    network = Network(
        mode,
        channel,
        rng.random((4, 4)),
        50 + rng.random((4, 4)),
        -1.0,
        10 * rng.random(schedule.n_stages - 1),
        0.1,
        Host(*rng.random(7) / 10),
        Collectives(0.3, 0.1, 0.7),
        (Shared(40.1, np.arange(4)), Shared(30.3, np.arange(4) // 2)),
    )
    runs = []
    for above in (10**9, 0):
        monkeypatch.setattr(compiled, "COMPILE_TABLES_ABOVE", above)
        runs.append(execute(lowered, costs, network))
    for part in ("timeline", "compute", "messages"):
        for name, column in vars(getattr(runs[0], part)).items():
            if isinstance(column, np.ndarray):
                np.testing.assert_array_equal(
                    column, getattr(getattr(runs[1], part), name), f"{part}.{name}"
                )


def test_no_gap_follows_the_last_action_of_a_device():
    """In latency mode sends are no actions: one at the end of a queue adds no gap to the
    makespan.
    """
    run = executed(ONE, Network("latency", host=Host(gap=0.5)))
    assert starts(run) == {
        "0F0": 0,
        "0SEND_F0": 1,
        "0RECV_B0": 1,
        "0B0": 4.5,
        "1RECV_F0": 0,
        "1F0": 1,
        "1B0": 2.5,
        "1SEND_B0": 4.5,
    }
    assert run.makespan == 6.5
    last = lowered_of("0F0,0SEND_F0", "1RECV_F0,1F0")
    assert (
        execute(
            last, Costs(np.array([[3.0, 1.0]] * 4)), Network("latency", host=Host(gap=5.0))
        ).makespan
        == 4
    )


@pytest.mark.parametrize("mode", MODES)
def test_what_bound_a_start_was_over_by_then(mode):
    """Along bounds time never runs forward, so that a walk back from the last op is a critical
    path.
    """
    schedule = generate("interleaved", devices=4, microbatches=8)
    run = execute(lower(schedule), costs_for(schedule), Network(mode, alpha=0.25)).compute
    bound = np.flatnonzero(run.bound != NONE)
    assert (run.end[run.bound[bound]] <= run.start[bound]).all()
    assert len(bound) >= len(schedule) - schedule.n_devices


def test_blocking_deadlock_is_told_as_a_cycle():
    """Who stands at what, for which message on which device, behind what there."""
    rows = (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1",
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1",
    )
    with pytest.raises(Deadlock) as error:
        executed(rows, Network("blocking"))
    assert str(error.value).endswith(
        "deadlocks: device 0 at 0SEND_F1 waits for 1RECV_F1 on device 1, behind 1SEND_B0; "
        "device 1 at 1SEND_B0 waits for 0RECV_B0 on device 0, behind 0SEND_F1"
    )
    assert error.value.hint


def test_a_deadlock_in_latency_mode_is_told_as_a_cycle():
    """Messages leave by themselves there, and what each carries still has to be made."""
    rows = (
        "0F0,0SEND_F0,0RECV_B0,0B0,0F1,0SEND_F1,0RECV_B1,0B1",
        "1RECV_F0,1RECV_F1,1F1,1F0,1B0,1SEND_B0,1B1,1SEND_B1",
    )
    with pytest.raises(Deadlock) as error:
        executed(rows, Network("latency"))
    assert str(error.value).endswith(
        "deadlocks: device 0 at 0B0 waits for 0RECV_B0, which waits for 1SEND_B0 on device 1, "
        "behind 1F1; "
        "device 1 at 1F1 waits for 1RECV_F1, which waits for 0SEND_F1 on device 0, behind 0B0"
    )


def test_a_channel_is_held_up_by_the_first_op_of_a_batch():
    """Two receives posted together occupy the channel of the pair: the first of them is named."""
    lowered = lowered_of(
        "0F0,0SEND_F0,0RECV_B0,0RECV_B1,0F1,0SEND_F1,0B0,0B1",
        "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1",
    )
    batch = np.full(len(lowered.schedule), NONE, np.int32)
    batch[2:4] = 0
    with pytest.raises(Deadlock) as error:
        execute(
            replace(lowered, batch=batch),
            costs_for(lowered.compute),
            Network("overlap", "pair", alpha=0.5),
        )
    assert str(error.value).endswith(
        "deadlocks: device 1 at 1F1 waits for 1RECV_F1, which waits for 0SEND_F1 on device 0, "
        "held up in its channel by 0RECV_B0, which waits for 1SEND_B0 on device 1, behind 1F1"
    )


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["early", "torch"])
def test_two_replicas_on_an_odd_number_of_devices_are_told_apart(mode, order):
    """The middle device has its stage in both replicas: each message goes to the replica of its
    microbatch.
    """
    rows = "0F0,2F1,2B1,0B0\n1F0,1F1,1B0,1B1\n2F0,2B0,0F1,0B1"
    schedule = parse(rows, "odd").schedule()
    assert schedule.placement.n_replicas == 2
    run = execute(lower(schedule, order), costs_for(schedule), Network(mode))
    middle = run.lowered.schedule.device == 1
    if mode in ("latency", "overlap"):
        assert run.compute.end.tolist() == simulate(schedule, costs_for(schedule)).end.tolist()
    kind, peer = run.lowered.schedule.kind, run.lowered.peer()
    forward = middle & (kind == Kind.SEND_F)
    assert dict(
        zip(run.lowered.schedule.microbatch[forward].tolist(), peer[forward].tolist(), strict=True)
    ) == {
        0: 2,
        1: 0,
    }


def test_groups_of_shared_bandwidth_may_have_any_number():
    """Only which devices are together matters: the cards of a node may be numbered by billions."""
    lowered = lower(generate("1f1b", devices=4, microbatches=4))
    ends = [
        execute(
            lowered,
            costs_for(lowered.compute),
            Network(
                "overlap", "message", beta=4.0, message=1.0, shared=(Shared(3.0, np.array(groups)),)
            ),
        ).timeline.end.tolist()
        for groups in ([0, 0, 1, 1], [0, 0, 2**62, 2**62])
    ]
    assert ends[0] == ends[1]


def test_a_receive_behind_the_op_that_needs_it_is_a_deadlock():
    with pytest.raises(Deadlock, match="device 1 at 1F0 waits for 1RECV_F0, behind 1F0"):
        executed((ONE[0], "1F0,1RECV_F0,1B0,1SEND_B0"), Network("overlap"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            (ONE[0], "1F0,1B0,1SEND_B0"),
            "device 0 sends 1 messages to device 1, which receives 0 from it",
        ),
        (
            ("0F0,0SEND_F0,0B0", ONE[1]),
            "device 1 sends 1 messages to device 0, which receives 0 from it",
        ),
        (
            (TWO_LATE[0], "1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1"),
            "device 0 sends 2 messages to device 1, which receives 1 from it",
        ),
        (
            ("0F0,0RECV_B0,0B0", "1F0,1B0,1SEND_B0"),
            "device 1 runs 1F0 and never receives its input",
        ),
        (
            ("0SEND_F0,0F0,0RECV_B0,0B0", ONE[1]),
            "device 0 issues 0SEND_F0 before it has the result",
        ),
        (
            (TWO_LATE[0], "1RECV_F1,1F1,1RECV_F0,1F0,1B0,1SEND_B0,1B1,1SEND_B1"),
            "0SEND_F0 on device 0 would be matched with 1RECV_F1 on device 1",
        ),
        (("0RECV_B0,0B0,0F0,0SEND_F0", "1RECV_F0,1B0,1F0,1SEND_B0"), "waits for 1F0"),
        ((ONE[0], "1RECV_F0,1F0,1F0,1B0,1SEND_B0"), "1F0 occurs more than once"),
    ],
)
def test_queues_that_do_not_fit_together_are_refused(rows, message):
    """Before anything runs, with the op and the device."""
    with pytest.raises(InvalidSchedule, match=message):
        executed(rows, Network("overlap"))


def test_a_message_of_a_microbatch_that_nobody_computes_is_refused():
    """Before there are lowered queues at all."""
    with pytest.raises(InputError, match="microbatch 7 of entry 4 is outside 0 to 0"):
        executed((ONE[0] + ",0SEND_F7", "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F7"), Network("overlap"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "async"},
        {"channel": "none"},
        {"alpha": -1.0},
        {"beta": 0.0},
        {"late": float("nan")},
        {"message": np.array([1.0, -1.0])},
    ],
)
def test_networks_that_cannot_be_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Network(**wrong)
    with pytest.raises(InputError, match="gap"):
        Host(gap=-1.0)
