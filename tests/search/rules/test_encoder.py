"""Encoders in bubbles: what must hold of every placement, what is known of some, and what is
refused.
"""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.toml import RefusedValue
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import BACKWARDS, PAIRED, Kind, pack
from ppsim.core.recompute import add_recompute
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import BYTES, activation_model, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import bound_schedule
from ppsim.search.rules.encoder import (
    Encoder,
    _Bubbles,
    _placed_outside,
    _Task,
    add_encoder,
    encoder_memory,
    encoder_times,
    find_misfits,
    read_encoder,
)

NAMES = [
    "1f1b",
    "gpipe",
    "zb-h1",
    "zb-1p",
    "interleaved",
    "v-half",
    "zb-v",
    "dualpipe",
    "1f1b-overlap",
    "forward-only",
]
TIMES = st.integers(0, 4).map(lambda quarter: quarter / 2)


def priced(schedule: Schedule, encoder: Encoder, **given: Any) -> Costs:
    return replace(costs_for(schedule, **given), others=encoder_times(schedule, encoder))


@cache
def built(name: str, devices: int, microbatches: int) -> Schedule:
    return generate(
        name, devices=devices, microbatches=microbatches + 2 * devices * (name == "dualpipe")
    )


def cells(schedule: Schedule, kind: Kind) -> dict[int, int]:
    """The device of each microbatch's op of a kind."""
    ops = np.flatnonzero(schedule.kind == kind)
    assert len({*schedule.microbatch[ops].tolist()}) == len(ops)
    return dict(zip(schedule.microbatch[ops].tolist(), schedule.device[ops].tolist(), strict=True))


def before(schedule: Schedule, costs: Costs, encoder: Encoder, backwards: bool) -> float:
    """All forwards of the encoder, in turn over its devices, ahead of the pipeline, and all
    backwards behind it.
    """
    holds = encoder.devices_of(schedule).tolist()
    packed = pack(schedule.stage, schedule.microbatch) | schedule.kind
    packed[schedule.first_of_pairs] |= PAIRED
    of = [schedule.stage == 0, schedule.kind == Kind.F]
    need = schedule.microbatch[np.flatnonzero(of[0] & of[1])]
    alone = simulate(schedule, costs)
    start = alone.start[np.flatnonzero(of[0] & of[1])]
    turn = need[np.argsort(start, kind="stable")].tolist()
    queues = []
    for device in range(schedule.n_devices):
        own = [m for n, m in enumerate(turn) if holds[n % len(holds)] == device]
        ahead, behind = (
            np.array([int(pack(-1, m)) | kind for m in own], np.int64)
            for kind in (Kind.EF, Kind.EB)
        )
        parts = [ahead, packed[schedule.queue(device)], behind[: len(behind) * backwards]]
        queues.append(np.concatenate(parts))
    return simulate(
        Schedule.from_queues("x", schedule.placement, schedule.n_microbatches, queues), costs
    ).makespan


@given(
    st.sampled_from(NAMES),
    st.sampled_from([2, 4]),
    st.integers(1, 6),
    TIMES,
    TIMES,
    st.sampled_from([0.0, 0.25]),
    st.booleans(),
    st.data(),
)
def test_every_placement(name, devices, half, forward, backward, comm, again, data):
    """It finishes, loses no op, keeps the order of all others, respects what an op waits for, is no
    shorter than bounds and no longer than encoders around the pipeline.
    """
    schedule = built(name, devices, 2 * half)
    schedule = (
        add_recompute(schedule)
        if again and name not in ("forward-only", "1f1b-overlap")
        else schedule
    )
    M, P = schedule.n_microbatches, schedule.n_devices
    times = [data.draw(st.sampled_from([forward, forward / 2])) for _ in range(M)]
    holds = data.draw(st.lists(st.integers(0, P - 1), unique=True, max_size=P))
    encoder = Encoder(tuple(times), backward, tuple(holds))
    costs = priced(schedule, encoder, comm=comm)
    made = add_encoder(schedule, costs, encoder)
    timeline = simulate(made, costs)
    kept = ~np.isin(made.kind, (Kind.EF, Kind.EB))
    for column in ("kind", "stage", "microbatch", "device"):
        assert np.array_equal(getattr(made, column)[kept], getattr(schedule, column))
    backwards = backward > 0 and not schedule.only_forwards
    forwards = cells(made, Kind.EF)
    assert sorted(forwards) == list(range(M))
    assert {*forwards.values()} <= {*(holds or range(P))}
    assert cells(made, Kind.EB) == (forwards if backwards else {})
    check_waits(made, timeline, costs)
    assert timeline.makespan >= bound_schedule(made, costs).makespan - 1e-9
    assert timeline.makespan <= before(schedule, costs, encoder, backwards) + 1e-9


def check_waits(made: Schedule, timeline: Any, costs: Costs) -> None:
    """EF ends before its F starts, EB starts after its B or I, a message later on another device;
    one op at a time.
    """
    at = {
        (int(kind), int(microbatch)): op
        for op, (kind, stage, microbatch) in enumerate(
            zip(made.kind, made.stage, made.microbatch, strict=True)
        )
        if stage in (-1, 0)
    }
    for (kind, microbatch), op in at.items():
        other = at.get((Kind.EF if kind == Kind.F else Kind.EB, microbatch))
        if other is None or (kind != Kind.F and kind not in BACKWARDS):
            continue
        first, second = (other, op) if kind == Kind.F else (op, other)
        hop = float(costs.comm) * (made.device[first] != made.device[second])
        assert timeline.end[first] + hop <= timeline.start[second] + 1e-9
    for device in range(made.n_devices):
        own = np.arange(len(made))[made.queue(device)]
        own = own[made.leads[own]]
        assert (timeline.start[own][1:] >= timeline.end[own][:-1] - 1e-9).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["1f1b", "gpipe", "interleaved"])
@pytest.mark.parametrize(("devices", "microbatches"), [(4, 8), (4, 16), (8, 32)])
def test_only_the_ends_show_where_bubbles_are_long(name, devices, microbatches):
    """The first forward and the last backward: t_EF + t_EB over the language model alone, with t_EF
    = t_F and twice that backward (of two chunks half of it), as long as no device has more to do.
    """
    times = {"interleaved": (0.5, 1.0)}.get(name, (1.0, 2.0))
    schedule, encoder = generate(name, devices=devices, microbatches=microbatches), Encoder(*times)
    costs = priced(schedule, encoder, tf=1, tb=2)
    alone = simulate(schedule, costs).makespan
    busy = (3 + sum(times) / devices) * microbatches
    made = add_encoder(schedule, costs, encoder)
    found = simulate(made, costs).makespan
    if busy <= alone:
        assert found == alone + sum(times) == bound_schedule(made, costs).makespan
    assert found < before(schedule, costs, encoder, True)


@pytest.mark.parametrize(
    ("backwards", "devices"), [(True, [0, 1, 0, 0, 0, 0]), (False, [0, 1, 0, 1, 0, 1])]
)
def test_around_the_pipeline_a_slow_device_gets_less(backwards, devices):
    """EF and EB take 1 and 1 on one device and 1 and 9 on the other; frozen, both have as much to
    do.
    """
    times = {Kind.EF: np.array([1.0, 1.0]), Kind.EB: np.array([1.0, 9.0])}
    task: Any = SimpleNamespace(
        schedule=SimpleNamespace(n_devices=2),
        holders=np.arange(2),
        backwards=backwards,
        begin=np.arange(6.0),
        time=lambda kind, microbatch: times[kind],
    )
    placed = _placed_outside(task)
    assert [each.device for each in placed if each.kind == Kind.EF] == devices
    assert [each.device for each in placed if each.kind == Kind.EB] == devices * backwards


@pytest.mark.parametrize(("kind", "start"), [(Kind.EF, 8.0), (Kind.EB, 1.0)])
def test_of_equal_bubbles_the_device_with_least_to_do_is_taken(kind, start):
    """Three devices are idle from 1 to 9, and one has other ops: each in turn gets an op, then the
    first again.
    """
    bubbles = object.__new__(_Bubbles)
    bubbles.near, bubbles.taken = 1e-9, np.array([0, 1, 0, 0])
    bubbles.begin, bubbles.end = np.ones(3), np.array([9.0, 9.0, 9.0])
    bubbles.device = np.array([1, 2, 3])
    limit = np.full(4, 9.0 if kind == Kind.EF else 1.0)
    assert bubbles.take(kind, limit, np.ones(4), None) == (2, start)
    assert bubbles.taken.tolist() == [0, 1, 1, 0]
    bubbles.begin, bubbles.end, bubbles.device = np.ones(2), np.array([9.0, 9.0]), np.array([1, 3])
    assert bubbles.take(kind, limit, np.ones(4), None) == (3, start)


def test_what_finds_no_bubble_is_named():
    schedule, encoder = generate("1f1b", devices=2, microbatches=2), Encoder(1.0, 2.0, devices=(0,))
    costs = priced(schedule, encoder, tf=1, tb=2)
    timeline = simulate(add_encoder(schedule, costs, encoder), costs)
    alone, misfits = find_misfits(timeline, costs)
    assert alone == 9
    assert [(each.kind.name, each.microbatch, each.device, each.lacks) for each in misfits] == [
        ("EF", 0, 0, 1),
        ("EF", 1, 0, 1),
        ("EB", 0, 0, 2),
        ("EB", 1, 0, 4),
    ]


def test_a_frozen_encoder_has_no_backwards_and_holds_nothing():
    schedule = generate("1f1b", devices=2, microbatches=4)
    for backward, held in ((0.0, 2), (1.0, 6)):
        encoder = Encoder(1.0, backward, activation="2B", states="5B")
        costs = priced(schedule, encoder)
        made = add_encoder(schedule, costs, encoder)
        assert (made.kind == Kind.EB).any() == (backward > 0)
        none = np.zeros(2, np.int64)
        bytes_only = replace(activation_model(schedule), activations=none, kept=none, unit=BYTES)
        curve = curves(simulate(made, costs), encoder_memory(bytes_only, made, encoder))
        assert curve.peak.min() >= 5
        assert 5 + 2 <= curve.peak.max() <= 5 + max(held, 8 * (backward > 0))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("forward = -1", "'forward' must be zero or more"),
        ("forward = []", "'forward' must be zero or more"),
        ("forward = 1\ndevices = [0, 0]", "'devices' must be numbers of devices"),
        ("forward = 1\nactivation = '5'", "'activation' must be a size"),
        ("forward = 1\nstates = 'much'", "'states' must be a size"),
        ("backward = 1", "forward"),
        ("forward = 1\ncolour = 2", "unknown key 'colour'"),
    ],
)
def test_files_that_are_wrong(tmp_path, text, message):
    path = tmp_path / "e.toml"
    path.write_text(f'schema = "ppsim.encoder/1"\n{text}\n')
    with pytest.raises(InputError, match=message):
        read_encoder(str(path))


def test_what_does_not_fit_a_schedule_is_refused():
    plain, sliced = (
        generate("1f1b", devices=2, microbatches=4),
        generate("seq1f1b", devices=2, microbatches=4),
    )
    for schedule, encoder, message in (
        (plain, Encoder((1.0, 2.0)), "2 times of forward"),
        (plain, Encoder(1.0, devices=(2,)), "on device 2"),
        (sliced, Encoder(1.0), "cuts sequences"),
        (generate("bpipe", devices=8, microbatches=8), Encoder(1.0), "cannot take"),
    ):
        with pytest.raises(InputError, match=message):
            add_encoder(schedule, priced(schedule, encoder), encoder)


def test_messages_to_and_from_the_first_stage_take_their_time():
    """A microbatch that goes there at 10 and comes back at 20: 1 to device 1, 2 from there, none on
    its own.
    """
    comm = np.array([[7.0, 1.0], [2.0, 7.0]])
    schedule = generate("1f1b", devices=2, microbatches=2)
    costs, alone = Costs(np.ones((4, 2)), comm), simulate(schedule, Costs(np.ones((4, 2))))
    times = np.array([10.0, 10.0]), np.array([20.0, 20.0])
    task = _Task(schedule, alone, costs, np.arange(2), True, np.array([0, 1]), *times)
    assert [task.ready(m).tolist() for m in range(2)] == [[20, 21], [22, 20]]
    assert [task.needed(m).tolist() for m in range(2)] == [[10, 8], [9, 10]]


def test_each_of_several_numbers_counts():
    """One time below zero, one device that cannot be, or one backward, whatever the others are."""
    for wrong in ({"forward": (1.0, -1.0)}, {"forward": 1.0, "devices": (3, -1)}):
        with pytest.raises(RefusedValue):
            Encoder(**wrong)
    assert not Encoder(1.0, (0.0, 1.0)).frozen
    assert Encoder(1.0, (0.0, 0.0)).frozen
    schedule = generate("1f1b", devices=4, microbatches=4)
    with pytest.raises(InputError, match="on device 5, and 1f1b has 4"):
        Encoder(1.0, devices=(0, 5)).devices_of(schedule)
