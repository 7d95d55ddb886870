"""Memory over time: who holds what, when, and how much at most."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import (
    MemoryModel,
    activation_model,
    curves,
    cut_in_slices,
    in_flight,
    layer_model,
    op_at,
    peaks,
    stacks,
    steps,
    sum_static,
)
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import peak_activations
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.cases import EIGHTHS, FEW, PLAIN, costs, schedules, timed
from tests.golden import each_record, ours

NAMES = PLAIN
RELEASES = (Kind.W, Kind.I)


def model_of(stages: int, **amounts) -> MemoryModel:
    """A model with 100 bytes of activation, of which I keeps 40, and nothing else but what is
    given.
    """
    given = {"activations": 100, "kept": 40, **amounts}
    names = ("activations", "kept", "stash", "work_b", "work_i", "message", "stored")
    arrays: dict[str, Any] = {name: np.full(stages, given.get(name, 0)) for name in names}
    return MemoryModel(**arrays, static=given.get("static", {}))


@st.composite
def models(draw, schedule: Schedule) -> MemoryModel:
    """Any amounts on any stage, as long as I keeps no more than F took."""

    def row(most=1000):
        return np.array(draw(st.lists(st.integers(0, most), min_size=n, max_size=n)))

    n = schedule.n_stages
    activations = row()
    return MemoryModel(
        activations=activations,
        kept=activations * row(4) // 4,
        stash=row(),
        work_b=row(),
        work_i=row(),
        message=row(),
        stored=activations * row(4) // 4,
        static={"weights": row(), "optimizer": row()},
    )


@st.composite
def cases(draw, times=EIGHTHS) -> tuple[Timeline, MemoryModel]:
    schedule = draw(st.sampled_from(NAMES).flatmap(schedules))
    return simulate(schedule, draw(costs(schedule, times))), draw(models(schedule))


def positive():
    return st.integers(1, 80).map(lambda n: n / 8)


@pytest.mark.sampled(3)
@each_record
def test_peaks_equal_the_originals(record):
    """With activations given back at W, or at I, every device's peak is the original's, whatever
    ops cost.
    """
    schedule = ours(record)
    three: tuple[dict[str, Any], ...] = (
        {},
        {"tf": 3, "ti": 4, "tw": 2},
        {"tf": 10, "ti": 9, "tw": 8, "comm": 1},
    )
    for times in three:
        timeline = simulate(schedule, costs_for(schedule, **times))
        for release, wanted in zip(RELEASES, (record["peak_W"], record["peak_I"]), strict=True):
            assert curves(timeline, activation_model(schedule, release)).peak.tolist() == wanted


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@FEW
@given(data=st.data())
def test_peaks_equal_the_count_along_the_queues(name, data):
    """A curve's peak is that of the queue alone, for ops that take time and any latency."""
    schedule = data.draw(schedules(name))
    timeline = simulate(schedule, data.draw(costs(schedule, positive())))
    for release in RELEASES:
        assert (
            curves(timeline, activation_model(schedule, release)).peak
            == peak_activations(schedule, release)
        ).all()


@pytest.mark.parametrize(("devices", "microbatches"), [(1, 1), (4, 2), (4, 8), (8, 8), (8, 32)])
def test_1f1b_holds_one_microbatch_less_on_each_device(devices, microbatches):
    """min(M, P - device) on every device."""
    timeline = timed("1f1b", devices, microbatches)
    held = curves(timeline, activation_model(timeline.schedule)).peak
    assert held.tolist() == [min(microbatches, devices - rank) for rank in range(devices)]


@pytest.mark.parametrize(
    ("devices", "chunks", "microbatches"), [(2, 2, 2), (4, 2, 4), (4, 4, 8), (8, 3, 16)]
)
def test_interleaved_holds_its_warm_up(devices, chunks, microbatches):
    """(V-1) P + 2 (P-1-device) + 1 stage activations, at most M V of them, where M is a multiple of
    P.
    """
    timeline = timed("interleaved", devices, microbatches, chunks=chunks)
    held = curves(timeline, activation_model(timeline.schedule)).peak
    form = [(chunks - 1) * devices + 2 * (devices - 1 - rank) + 1 for rank in range(devices)]
    assert held.tolist() == [min(microbatches * chunks, peak) for peak in form]


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 2), (4, 4), (4, 16), (8, 12)])
def test_zb_h1_holds_p_everywhere_and_p_minus_rank_until_i(devices, microbatches):
    """P microbatches on every device; counted to I, device r has (P - r): r of them only wait for
    W.
    """
    timeline = timed("zb-1p", devices, microbatches)
    schedule = timeline.schedule
    assert (curves(timeline, activation_model(schedule)).peak == devices).all()
    assert in_flight(timeline).peak.tolist() == [devices - rank for rank in range(devices)]


@pytest.mark.parametrize(("devices", "microbatches"), [(2, 4), (4, 8), (8, 20)])
def test_dualpipe_holds_p_plus_one(devices, microbatches):
    """P + 1 on every device: in a pair F takes its activation before B gives one back."""
    timeline = timed("dualpipe", devices, microbatches)
    assert (curves(timeline, activation_model(timeline.schedule)).peak == devices + 1).all()


@given(cases(), st.floats(0, 1), st.floats(0, 1))
def test_curves_equal_the_sum_of_what_lives(case, which, when):
    """Between any two changes the curve is static memory plus every part alive then, summed op by
    op.
    """
    timeline, model = case
    device = round(which * (timeline.schedule.n_devices - 1))
    time, value = steps(curves(timeline, model), device)
    base = sum(int(amount[device]) for amount in sum_static(timeline.schedule, model).values())
    if len(time) > 1:
        k = round(when * (len(time) - 2))
        just_after = time[k] + 1 / 64  # times are sixteenths
        assert value[k] == base + alive(timeline, model, device, just_after)


def alive(timeline: Timeline, model: MemoryModel, device: int, now: float) -> int:
    """What one device holds at a moment at which no op starts or ends, from the rules alone."""
    schedule, total = timeline.schedule, 0
    cells = zip(
        schedule.stage.tolist(), schedule.microbatch.tolist(), schedule.kind.tolist(), strict=True
    )
    ops = {
        (stage, microbatch, Kind(kind).name): op
        for op, (stage, microbatch, kind) in enumerate(cells)
    }
    for (stage, microbatch, kind), op in ops.items():
        if schedule.device[op] != device:
            continue
        start, end = timeline.start[op], timeline.end[op]
        back = ops.get((stage, microbatch, "B"), ops.get((stage, microbatch, "I"), op))
        arrives = bool(schedule.crosses[op]) and timeline.end[schedule.dependency[op]] < now
        if start < now < end:
            total += {"B": model.work_b[stage], "I": model.work_i[stage]}.get(kind, 0)
        if kind == "R":
            total += (model.activations - model.stored)[stage] * (start < now < timeline.end[back])
        elif kind == "F":
            held = model.stored if (stage, microbatch, "R") in ops else model.activations
            total += held[stage] * (start < now < timeline.end[back]) * (not schedule.only_forwards)
            total += model.message[stage - 1] * (arrives and now < start)
        elif kind == "W":
            total += (model.kept[stage] + model.stash[stage]) * (timeline.end[back] < now < end)
        else:
            total += model.message[stage] * (arrives and now < end)
    return int(total)


@given(cases())
def test_curves_stay_above_static_memory_and_end_there(case):
    """Nothing is given back that was not taken, and nothing is left over."""
    timeline, model = case
    memory, base = (
        curves(timeline, model),
        np.sum(list(sum_static(timeline.schedule, model).values()), axis=0),
    )
    for device in range(timeline.schedule.n_devices):
        time, value = steps(memory, device)
        assert time[0] == 0
        assert (np.diff(time) > 0).all()
        assert (value >= base[device]).all()
        assert value[-1] == base[device]
        assert time[-1] <= timeline.makespan


@given(cases())
def test_peaks_say_what_holds_them(case):
    """A peak's parts sum to its value, which the curve first reaches at its time."""
    timeline, model = case
    memory = curves(timeline, model)
    for peak in peaks(timeline, model):
        time, value = steps(memory, peak.device)
        assert sum(peak.parts.values()) == peak.value == value.max()
        assert peak.time == time[np.flatnonzero(value == value.max())[0]]
        assert peak.op == NONE or timeline.start[peak.op] <= peak.time
        assert all(amount >= 0 for amount in peak.parts.values())


def test_a_free_and_an_allocation_at_one_moment_make_no_spike():
    """In 1F1B's steady phase a device that runs B, F, B, F without a gap holds the same all
    along.
    """
    timeline = timed("1f1b", 4, 8)
    time, value = steps(curves(timeline, activation_model(timeline.schedule)), 0)
    assert list(zip(time.tolist(), value.tolist(), strict=True))[:5] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
        (24, 3),
    ]


def test_rounding_makes_no_spike():
    """An F that starts a rounding error before the B before it ends holds one activation with it,
    not two.
    """
    schedule = generate("1f1b", devices=1, microbatches=2)
    times = [(0, 1), (1, np.nextafter(3, 4)), (3, 4), (4, 6)]
    start, end = np.array(times, float).T
    timeline = Timeline(schedule, start, end, np.full(4, NONE, np.int32), "t_F")
    assert curves(timeline, activation_model(schedule)).value.tolist() == [1, 0]
    early = Timeline(schedule, start - np.array([0, 0, 1e-6, 0]), end, timeline.bound, "t_F")
    assert curves(early, activation_model(schedule)).value.tolist() == [1, 2, 1, 0]


def test_an_activation_that_is_held_for_no_time_is_not_in_the_curve():
    """F and B that take no time: the count along the queue is 1, and the curve never leaves
    zero.
    """
    schedule = generate("1f1b", devices=1, microbatches=2)
    timeline = simulate(schedule, costs_for(schedule, tf=0, tb=0))
    assert peak_activations(schedule).tolist() == [1]
    assert curves(timeline, activation_model(schedule)).peak.tolist() == [0]


def test_i_gives_back_a_part_and_w_the_rest():
    """One microbatch on one device: 100 from F, 40 and the stash of 25 after I, nothing after W."""
    timeline = timed("zb-1p", 1, 1)
    time, value = steps(curves(timeline, model_of(1, stash=25)), 0)
    assert (time.tolist(), value.tolist()) == ([0, 2, 3], [100, 65, 0])


def test_recomputation_works_while_the_backward_runs():
    """One microbatch, full backward: 100 from F, 100 + 70 while B runs."""
    timeline = timed("1f1b", 1, 1)
    time, value = steps(curves(timeline, model_of(1, work_b=70)), 0)
    assert (time.tolist(), value.tolist()) == ([0, 1, 3], [100, 170, 0])


@pytest.mark.parametrize(("part", "more"), [("work_b", 70), ("stash", 10)])
def test_what_one_stage_alone_holds_is_counted(part, more):
    """A part that is nothing on the other stages is no part left out; a stash of 70 replaces 60
    given back.
    """
    timeline = timed("zb-1p" if part == "stash" else "1f1b", 2, 2)
    plain = curves(timeline, model_of(2)).peak
    alone: dict[str, Any] = {part: np.array([70, 0])}
    first = replace(model_of(2), **alone)
    assert (curves(timeline, first).peak - plain).tolist() == [more, 0]


def test_a_message_is_held_from_its_sending_on():
    """Two devices, latency 1: a buffer from the sending until F starts or B ends."""
    timeline = timed("1f1b", 2, 1, comm=1)
    model = model_of(2, activations=0, kept=0, message=10)
    first, second = (steps(curves(timeline, model), device) for device in (0, 1))
    assert [v.tolist() for v in first] == [[0, 5, 8], [0, 10, 0]]
    assert [v.tolist() for v in second] == [[0, 1, 2], [0, 10, 0]]


def test_an_output_that_stays_on_the_device_is_no_message():
    """Where the V turns, the next stage is on the same device."""
    timeline = timed("dualpipe-v", 1, 2)
    assert curves(timeline, model_of(2, activations=0, kept=0, message=10)).peak.tolist() == [0]


def test_a_bidirectional_placement_holds_two_replicas():
    """Device r holds the static memory of stage r and of stage P-1-r; a linear one that of
    stage r.
    """
    weights = {"weights": np.array([1, 10, 100, 1000])}
    for name, wanted in (("dualpipe", [1001, 110, 110, 1001]), ("1f1b", [1, 10, 100, 1000])):
        schedule = generate(name, devices=4, microbatches=8)
        assert sum_static(schedule, model_of(4, static=weights))["weights"].tolist() == wanted


def test_the_op_at_a_time_is_the_one_that_runs_or_ran_last():
    """Before the first op there is none."""
    timeline = timed("1f1b", 2, 2)
    labels = [timeline.schedule.label(op_at(timeline, 1, time)) for time in (1, 1.5, 2, 7.5)]
    assert labels == ["1F0", "1F0", "1B0", "1B1"]
    assert op_at(timeline, 1, 0.5) == NONE


def test_a_slice_of_a_sequence_holds_its_share():
    """Activations, gradients and messages are divided, rounded up; weights are not."""
    a = np.array([8, 9])
    whole = MemoryModel(a, a, a, a, a, a, a, static={"weights": a})
    cut = cut_in_slices(whole, 4)
    assert cut.activations.tolist() == cut.message.tolist() == cut.stored.tolist() == [2, 3]
    assert cut.static["weights"].tolist() == [8, 9]
    assert cut_in_slices(whole, 1).stash.tolist() == [8, 9]


@pytest.mark.parametrize(("name", "chunks"), [("1f1b", 1), ("uniform", 1), ("v-half", 2)])
def test_hosts_hold_what_was_copied_and_not_copied_back(name, chunks):
    copies = (Kind.OFFLOAD, Kind.RELOAD)
    plain = generate(name, devices=4, microbatches=8)
    prices = costs_for(plain, others=dict.fromkeys(copies, 0.5))
    schedule = add_offload(plain, prices, chunks)
    timeline = simulate(schedule, prices)
    amounts = 3 + np.arange(schedule.n_stages)
    host = curves(timeline, replace(activation_model(schedule), activations=amounts)).host
    assert host is not None
    assert host.peak.max() > 0
    for device in range(4):
        own = schedule.device == device
        out, back = (own & (schedule.kind == kind) for kind in copies)
        for time, held in zip(*steps(host, device), strict=True):
            there, gone = out & (timeline.start <= time), back & (timeline.end <= time)
            assert (
                held == amounts[schedule.stage[there]].sum() - amounts[schedule.stage[gone]].sum()
            )
        assert steps(host, device)[1][-1] == 0
    assert curves(simulate(plain, prices), activation_model(plain)).host is None


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "interleaved", "dualpipe"])
@pytest.mark.parametrize("detailed", [False, True])
def test_what_fills_a_device_adds_up_to_what_it_holds(name, detailed):
    """At every time, and part by part at the peak; activations by chunk."""
    timeline = timed(name, 4, 8, comm=0.3)
    model = activation_model(timeline.schedule)
    if detailed:  # every part there is, each of an amount of its own
        one = np.ones(timeline.schedule.n_stages, np.int64)
        model = replace(model, stash=10 * one, work_i=100 * one, message=1000 * one)
        model = replace(model, static={"weights": 10**6 * one})
    whole = curves(timeline, model)
    everyone = stacks(timeline, model, 3)
    assert [found.peak[-1] for found in everyone] == sorted(whole.peak, reverse=True)[:3]
    for found in everyone:
        adds_up(found, whole, peaks(timeline, model)[found.device])


def adds_up(found, whole, peak):
    assert peak.value == whole.peak[found.device] == found.peak[-1]
    lines = [steps(found, part) for part in range(len(found.parts))]
    times, values = steps(whole, found.device)
    at = np.searchsorted(times, lines[-1][0], "right") - 1
    np.testing.assert_array_equal(lines[-1][1], values[at])
    tops = [0, *(value[np.searchsorted(time, peak.time, "right") - 1] for time, value in lines)]
    held = dict.fromkeys(peak.parts, 0)
    for part, amount in zip(found.parts, np.diff(tops), strict=True):
        held[part.partition(",")[0]] += int(amount)
    assert held == dict(peak.parts)


def test_activations_are_counted_by_layers():
    timeline = timed("1f1b", 3, 4)
    assert curves(timeline, layer_model(timeline.schedule, ("Ettt", "", "tmL"))).peak.tolist() == [
        9,
        0,
        2,
    ]
