"""Idle time by cause: nothing is lost, nothing is counted twice, and each cause is what its name
says.
"""

import importlib
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.critical_path import critical_path
from ppsim.analysis.idle import (
    BARRIER,
    CAUSES,
    COLLECTIVE,
    COMPUTE,
    COPY,
    DRAIN,
    FILL,
    HOST,
    IMBALANCE,
    MESSAGE,
    NAMES,
    ORDER,
    TURNAROUND,
    arrivals,
    explain_execution,
    explain_idle,
    explain_known,
)
from ppsim.analysis.observed import observe
from ppsim.core.costs import Costs, costs_for
from ppsim.core.lanes import groups_of, list_waits
from ppsim.core.ops import TIMED, Kind, Stream, pack
from ppsim.core.schedule import Schedule
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Collectives, Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import Deadlock
from ppsim.schedules import generate
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules
from tests.lanes import random_costs, with_lanes


def explained(schedule: Schedule, times: Costs):
    timeline = simulate(schedule, times)
    return explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PLAIN)
@FEW
@given(st.data())
def test_causes_sum_to_the_idle_time_of_every_device(name, data):
    """Whatever the schedule and its costs, each device's idle time is the sum of its causes."""
    schedule = data.draw(schedules(name))
    times = data.draw(costs(schedule, EIGHTHS))
    idle = explained(schedule, times)
    np.testing.assert_allclose(
        idle.by_device.sum(axis=1), measure(idle.timeline).idle, rtol=0, atol=1e-9
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLAIN)
@FEW
@given(st.data())
def test_segments_fill_the_gaps_between_ops(name, data):
    """Segments of a device neither overlap each other nor an op, and are in order of time."""
    schedule = data.draw(schedules(name))
    idle = explained(schedule, data.draw(costs(schedule, EIGHTHS)))
    timeline = idle.timeline
    for device in range(schedule.n_devices):
        mine, ops = idle.device == device, schedule.queue(device)
        spans = [*zip(idle.start[mine], idle.end[mine], strict=True)]
        busy = {*zip(timeline.start[ops].tolist(), timeline.end[ops].tolist(), strict=True)}
        every = sorted([*spans, *busy])
        assert all(left[1] <= right[0] for left, right in pairwise(every))
        assert (idle.end[mine] > idle.start[mine]).all()


STREAMS = [kind.info.stream or Stream.COMPUTE for kind in TIMED]
ALIKE = {FILL: (COMPUTE, ORDER), TURNAROUND: (COMPUTE, ORDER), IMBALANCE: (COMPUTE,)}


def cause_at(schedule: Schedule, timeline, arrival, waiting: int, time: float) -> tuple[int, int]:
    """Why an op does not run at an instant, and the op to blame, from the rule alone."""
    op = waiting
    while True:
        both = sorted({op, int(schedule.pair[op])} - {-1})
        waits = [each for each in both if schedule.dependency[each] >= 0]
        op = max(waits, key=lambda each: (arrival[each], each == both[0]), default=both[0])
        if not waits or arrival[op] <= time:
            return (HOST if waiting in both else ORDER), op
        need = int(schedule.dependency[op])
        if timeline.end[need] <= time:
            return MESSAGE, op
        if timeline.start[need] <= time:
            return COMPUTE, need
        op = need


def cause_beside(
    schedule: Schedule, waits, group, timeline, comm, waiting: int, time: float
) -> tuple[int, int]:
    """The same where devices have several streams, by lists of what each op waits for."""
    op = waiting
    while True:
        stream, together = STREAMS[schedule.kind[op]], Kind(schedule.kind[op]).info.on_all_devices
        both = [op] if schedule.pair[op] < 0 else sorted({op, int(schedule.pair[op])})
        inputs = []
        for each, need, on_lane, message in zip(*waits, strict=True):
            if (
                each in both
                and group[each] != group[need]
                and not (on_lane and stream == Stream.COMPUTE and not together)
            ):
                inputs.append((timeline.end[need] + comm * message, need, each))
        came, need, op = max(inputs, key=lambda entry: entry[0], default=(0.0, -1, both[0]))
        if came <= time:
            if waiting in both or together:
                return (BARRIER if together else HOST), op
            return (ORDER if stream == Stream.COMPUTE else COPY), op
        if timeline.end[need] <= time:
            return MESSAGE, op
        if timeline.start[need] <= time:
            stream = STREAMS[schedule.kind[need]]
            return {Stream.COMPUTE: COMPUTE, Stream.COLLECTIVE: COLLECTIVE}.get(stream, COPY), need
        op = int(need)


OF_STREAMS = ["vocab-1", "interlaced", "bpipe", "1f1b-plus"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "1f1b-overlap", *OF_STREAMS])
@pytest.mark.parametrize("shared", [0, 2])
@FEW
@given(st.integers(0, 10**6))
def test_streams_wait_as_the_rule_says(name, shared, seed):
    """Causes sum to the idle time of each device, and each segment has the cause of its middle."""
    rng = random.Random(seed)
    made = generate(name, devices=4, microbatches=6) if name in OF_STREAMS else None
    schedule = made or with_lanes(name, 4, 5, rng, late=1)
    times = random_costs(schedule, rng, shared)
    try:
        timeline = simulate(schedule, times)
    except Deadlock:
        return
    idle = explain_idle(timeline, arrivals(timeline, times.latencies(schedule)))
    rule = schedule, list_waits(schedule), groups_of(schedule), timeline, times.comm
    np.testing.assert_allclose(
        idle.by_device.sum(axis=1), measure(timeline).idle, rtol=0, atol=1e-9
    )
    for op, cause, blamed, start, end in zip(
        idle.op, idle.cause, idle.blamed, idle.start, idle.end, strict=True
    ):
        if cause != DRAIN:
            right, at_fault = cause_beside(*rule, int(op), (start + end) / 2)
            assert right in ALIKE.get(cause, (cause,))
            assert blamed == at_fault or cause == BARRIER


def test_copies_and_late_devices_are_told_apart():
    """A reload that is not hidden is a copy; a device whose share of the vocabulary is slow makes
    the others wait.
    """
    ops = [(Kind.F, 0), (Kind.OFFLOAD, 0), (Kind.F, 1), (Kind.OFFLOAD, 1)]
    ops += [(Kind.RELOAD, 0), (Kind.B, 0), (Kind.RELOAD, 1), (Kind.B, 1)]
    queue = np.array([int(pack(0, microbatch)) | kind for kind, microbatch in ops])
    schedule = Schedule.from_queues(
        "mine", generate("1f1b", devices=1, microbatches=2).placement, 2, [queue]
    )
    idle = explained(schedule, costs_for(schedule, others={Kind.OFFLOAD: 3.0, Kind.RELOAD: 2.0}))
    assert set(idle.by_cause) == {"copy"}
    assert idle.by_cause["copy"] == measure(idle.timeline).idle.sum()
    schedule = generate("vocab-2", devices=4, microbatches=8)
    slow = costs_for(schedule, others={Kind.S: [0.25, 0.25, 1.0, 0.25], Kind.T: 0.25})
    idle = explained(schedule, slow)
    waits = idle.cause == BARRIER
    assert waits.any()
    assert (schedule.device[idle.blamed[waits]] != idle.device[waits]).all()


@pytest.mark.parametrize("name", ["vocab-1", "bpipe"])
def test_stated_times_of_streams_are_explained_alike(name):
    """A file's times without its costs give the same causes, and the same path."""
    schedule = generate(name, devices=4, microbatches=8)
    others = {Kind.S: 0.5, Kind.REDUCE_S: 0.25, Kind.EVICT: 1.5, Kind.LOAD: 1.5}
    times = costs_for(
        schedule, comm=0.0, others={kind: t for kind, t in others.items() if kind in schedule.kind}
    )
    idle = explained(schedule, times)
    found = observe(replace(idle.timeline, comm=None))
    assert explain_idle(found.timeline, found.arrival).by_cause == pytest.approx(idle.by_cause)
    assert simulate(schedule, found.costs).makespan == pytest.approx(idle.timeline.makespan)
    assert critical_path(found.timeline).tolist() == critical_path(idle.timeline).tolist()


def wrong_causes(schedule: Schedule, times: Costs) -> list[object]:
    """The segments of a run whose cause is another at their middle."""
    idle = explained(schedule, times)
    arrival = arrivals(idle.timeline, times.latencies(schedule))
    wrong: list[object] = []
    for op, cause, blamed, start, end in zip(
        idle.op, idle.cause, idle.blamed, idle.start, idle.end, strict=True
    ):
        if cause != DRAIN:
            right, at_fault = cause_at(schedule, idle.timeline, arrival, int(op), (start + end) / 2)
            wrong += (
                [(op, cause)]
                if right not in ALIKE.get(cause, (cause,)) or blamed != at_fault
                else []
            )
    return wrong


PAIRED = ["1f1b-overlap", "interleaved-overlap", "dualpipe", "dualpipe-v"]


@pytest.mark.parametrize("name", [*PAIRED, "1f1b", "zb-v", "interleaved"])
@FEW
@given(st.data())
def test_every_instant_has_the_cause_that_the_rule_gives(name, data):
    """A pair waits for the later of its inputs, and of two that arrive together for that of its
    first op.
    """
    schedule = data.draw(schedules(name))
    assert wrong_causes(schedule, data.draw(costs(schedule, EIGHTHS))) == []


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("comm", [0.0, 0.5, 1.0])
def test_inputs_of_a_pair_that_arrive_together_are_told_apart_by_the_rule(name, comm):
    """Equal times, where ties are many."""
    schedule = generate(name, devices=4, microbatches=12)
    assert wrong_causes(schedule, costs_for(schedule, comm=comm)) == []
    assert wrong_causes(schedule, costs_for(schedule, tf=1.0, tb=1.0, comm=comm)) == []


def test_1f1b_waits_as_its_closed_forms_say():
    """4 devices, F = 1, B = 2: device d waits d for its first F, 2 (3 - d) for its first B, and 2 d
    at its end.
    """
    idle = explained(*(lambda s: (s, costs_for(s)))(generate("1f1b", devices=4, microbatches=8)))
    assert idle.by_cause == {"compute": 6.0, "fill": 6.0, "turnaround": 12.0, "drain": 12.0}
    by_device = {
        name: idle.by_device[:, NAMES.index(name)].tolist()
        for name in ("fill", "turnaround", "drain")
    }
    assert by_device == {"fill": [0, 1, 2, 3], "turnaround": [6, 4, 2, 0], "drain": [0, 2, 4, 6]}


def test_messages_are_told_from_computation():
    """Without messages no time is theirs; with them, all that is added to the fill of device d is d
    messages.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    assert "message" not in explained(schedule, costs_for(schedule)).by_cause
    idle = explained(schedule, costs_for(schedule, comm=0.25))
    first = idle.op == schedule.offsets[3]
    seconds = np.bincount(idle.cause[first], (idle.end - idle.start)[first], len(NAMES))
    assert seconds[NAMES.index("fill")] == 3.0
    assert seconds[NAMES.index("message")] == 0.75


def test_idle_time_is_explained_where_it_is_known_when_inputs_arrive():
    """By the latency of messages, or by the execution that the timeline is of."""
    schedule = generate("1f1b", devices=2, microbatches=4)
    costs = costs_for(schedule)
    timeline, execution = (
        simulate(schedule, costs),
        execute(lower(schedule), costs, Network("overlap")),
    )
    silent = replace(timeline, comm=None)
    assert explain_known(timeline, None) is not None
    assert explain_known(silent, execution) is not None
    assert explain_known(silent, None) is None


def test_a_slow_stage_is_imbalance():
    """What a stage takes beyond the mean of its kind is imbalance; with equal stages there is
    none.
    """
    schedule = generate("gpipe", devices=2, microbatches=4)
    slow = explained(schedule, costs_for(schedule, tf=[1.0, 1.0], tb=[2.0, 4.0])).by_cause
    # Device 0 waits 4 for the first B, which takes a quarter more than the mean of 3 says, and 2
    # for three others.
    assert slow["imbalance"] == pytest.approx((4 + 3 * 2) * (1 - 3 / 4))
    assert "imbalance" not in explained(schedule, costs_for(schedule)).by_cause


def test_an_op_that_could_have_run_is_the_order():
    """Device 1 runs its W first, although device 0 waits for its I: that wait is the order of the
    schedule.
    """
    from ppsim.inputs.drafts.readers.csv import parse

    text = "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1W0,1I1,1W1\n"
    schedule = parse(text, "text").schedule()
    idle = explained(schedule, costs_for(schedule, tw=3.0))
    ordered = idle.cause == ORDER
    assert {schedule.label(op) for op in idle.op[ordered].tolist()} == {"0I1"}
    assert (idle.end - idle.start)[ordered].sum() == 3.0
    assert {schedule.label(op) for op in idle.blamed[ordered].tolist()} == {"1I1"}


@pytest.mark.parametrize("mode", ["latency", "overlap", "blocking", "batched"])
def test_an_execution_with_messages_is_explained_too(mode):
    """With sends and receives as ops, causes sum to the idle time, host gaps and the end of the
    iteration included.
    """
    schedule = generate("zb-1p", devices=4, microbatches=8)
    host = Host(send=0.125, receive=0.0625, gap=0.0625, preamble=0.5, epilogue=0.25)
    run = execute(
        lower(schedule, batch=mode == "batched"),
        costs_for(schedule),
        Network(mode, alpha=0.5, host=host),
    )
    idle = explain_execution(run)
    np.testing.assert_allclose(
        idle.by_device.sum(axis=1), measure(run.compute).idle, rtol=0, atol=1e-9
    )
    assert idle.by_cause["host"] > 0
    assert idle.by_cause["message"] > 0


def test_a_device_in_a_blocking_send_waits_for_the_message():
    """Without host costs no idle time is the host's, in whatever mode sends and receives run."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    run = execute(lower(schedule), costs_for(schedule), Network("blocking", alpha=0.5))
    assert "host" not in explain_execution(run).by_cause


def test_gathering_parameters_is_a_collective():
    """What FSDP's first gather takes is idle time of that cause, on every device; no segment is
    empty.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    network = Network("overlap", collectives=Collectives(unshard=2.0))
    run = execute(lower(schedule, unshard=1), costs_for(schedule), network)
    idle = explain_execution(run)
    assert idle.by_cause["collective"] >= 2.0
    assert "host" not in idle.by_cause
    assert (idle.end > idle.start).all()


@pytest.mark.slow
def test_compiled_code_finds_the_same(monkeypatch):
    """Large schedules are explained by machine code, with equal segments."""
    schedule = generate("dualpipe-v", devices=4, microbatches=16)
    times = costs_for(schedule, comm=0.3)
    plain = explained(schedule, times)
    monkeypatch.setattr(importlib.import_module("ppsim.analysis.idle"), "COMPILE_ABOVE", 0)
    compiled = explained(schedule, times)
    for column in ("op", "device", "cause", "blamed", "start", "end"):
        np.testing.assert_array_equal(getattr(plain, column), getattr(compiled, column))


def test_every_cause_is_described():
    assert all(text and not text.endswith(".") for text in CAUSES.values())
