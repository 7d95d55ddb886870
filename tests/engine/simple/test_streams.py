"""Devices with several streams: the model against a plain one, host links that are shared, deadlocks."""

import random
import sys
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, Scope, Stream, pack
from ppsim.core.schedule import Schedule
from ppsim.engine.simple import streams
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import Deadlock, InputError
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import bound_schedule
from ppsim.search.rules.offload import add_offload
from tests.cases import PLAIN, SOME
from tests.lanes import COPIES, random_costs, with_lanes


def plain_model(schedule, costs):
    """The start of every op by repeated relaxation over a dict of ops, or None where some never settle."""
    ops = [
        (int(d), Kind(k), int(s), int(m))
        for d, k, s, m in zip(schedule.device, schedule.kind, schedule.stage, schedule.microbatch, strict=True)
    ]
    found = {(k, s if s >= 0 else d, m): i for i, (d, k, s, m) in enumerate(ops)}
    devices, last, back = (
        schedule.n_devices,
        schedule.n_stages - 1,
        Kind.B if any(op[1] == Kind.B for op in ops) else Kind.I,
    )

    def waits(i):
        d, k, s, m = ops[i]
        same_lane = [j for j in range(i) if ops[j][0] == d and ops[j][1].info.stream == k.info.stream]
        yield from ((j, 0.0) for j in same_lane[-1:])
        wanted = []
        if k == Kind.F:
            wanted = [(Kind.F, s - 1, m)] if s else [(Kind.REDUCE_E, d, m)]
            wanted += [(Kind.GF, s, m), *((Kind.EF, e, m) for e in range(devices) if s == 0)]
        elif k == back:
            wanted = [(back, s + 1, m)] if s < last else [(Kind.F, s, m), (Kind.REDUCE_S, d, m), (Kind.REDUCE_T, d, m)]
            wanted += [(Kind.RELOAD, s, m), (Kind.GB, s + 1, m)]
        else:
            of = {Kind.W: Kind.I, Kind.OFFLOAD: Kind.F, Kind.RELOAD: Kind.OFFLOAD, Kind.WAIT_OFFLOAD: Kind.OFFLOAD}
            of |= {Kind.REDUCE_E: Kind.E, Kind.S: Kind.SHARE_S, Kind.REDUCE_S: Kind.S, Kind.T: Kind.REDUCE_S}
            of |= {Kind.REDUCE_T: Kind.T, Kind.D: Kind.SHARE_D}
            wanted = [(of[k], s if s >= 0 else d, m)] if k in of else []
            wanted += [(Kind.F, last, m)] if k == Kind.SHARE_S else []
            wanted += [(back, 0, m)] if k in (Kind.SHARE_D, Kind.EB) else []
            wanted += {Kind.GF: [(Kind.F, s - 1, m)], Kind.GB: [(back, s, m)], Kind.EB: [(Kind.EF, d, m)]}.get(k, [])
        for need in wanted:
            if need in found:
                sent = need[0] in (Kind.F, back) and k in (Kind.F, back, Kind.GF, Kind.GB, Kind.EB)
                across = (sent or (k, need[0]) == (Kind.F, Kind.EF)) and ops[found[need]][0] != d
                yield found[need], costs.comm * across
        if k == Kind.RELOAD or k.info.scope == Scope.EVERYWHERE:
            before = [j for j in range(i) if ops[j][0] == d and ops[j][1].info.stream == Stream.COMPUTE]
            yield from ((j, 0.0) for j in before[-1:])

    groups = defaultdict(list)
    for i, (_, k, s, m) in enumerate(ops):
        groups[(k, s, m) if k.info.everywhere else i].append(i)
    length = costs.durations(schedule)
    needs = {key: [wait for i in members for wait in waits(i)] for key, members in groups.items()}
    start: dict[int, float] = {}
    while len(start) < len(ops):
        ready = [
            key for key, members in groups.items() if members[0] not in start and all(j in start for j, _ in needs[key])
        ]
        if not ready:
            return None
        for key in ready:
            ends = [start[j] + max(length[x] for x in group_of(j, ops, groups)) + c for j, c in needs[key]]
            begin = max(ends, default=0)
            start.update(dict.fromkeys(groups[key], begin))
    return [start[i] for i in range(len(ops))]


def group_of(op, ops, groups):
    _, kind, stage, microbatch = ops[op]
    return groups[(kind, stage, microbatch) if kind.info.everywhere else op]


@given(st.integers(0, 10**6), st.sampled_from(["1f1b", "gpipe", "zb-1p"]), st.integers(1, 4), st.integers(1, 4))
def test_the_model_is_the_plain_one(seed, name, devices, microbatches):
    """Random kinds at random places of random queues: every start is that of a model of dicts; so is every deadlock."""
    rng = random.Random(seed)
    schedule = with_lanes(name, devices, microbatches, rng)
    costs = random_costs(schedule, rng)
    wanted = plain_model(schedule, costs)
    if wanted is None:
        with pytest.raises(Deadlock):
            simulate(schedule, costs)
        return
    timeline = simulate(schedule, costs)
    assert timeline.start.tolist() == pytest.approx(wanted)
    assert bound_schedule(schedule, costs).makespan <= timeline.makespan + 1e-9


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_one_copy_at_a_time_on_a_shared_link(seed, shared):
    """Copies of devices that share a link follow each other; each starts when it can, or when another one ends."""
    rng = random.Random(seed)
    schedule = with_lanes("1f1b", 4, 4, rng, late=1)
    costs = random_costs(schedule, rng, shared)
    try:
        timeline = simulate(schedule, costs)
    except Deadlock:
        return
    copies = np.flatnonzero(np.isin(schedule.kind, COPIES) & (timeline.end > timeline.start))
    link = schedule.device[copies] // shared * len(Kind) + schedule.kind[copies]
    for each in np.unique(link):
        own = copies[link == each]
        own = own[np.argsort(timeline.start[own])]
        assert (timeline.start[own][1:] >= timeline.end[own][:-1] - 1e-9).all()
    for op in copies:
        cause = timeline.bound[op]
        assert timeline.start[op] == (timeline.end[cause] if cause >= 0 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("shared", [0, 2])
@given(seed=st.integers(0, 10**6))
def test_machine_code_starts_groups_as_python_does(shared, seed):
    """To the bit, deadlocks too."""
    rng = random.Random(seed)
    schedule = with_lanes("zb-1p", 4, 4, rng)
    costs = random_costs(schedule, rng, shared)

    def run(above):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "COMPILE_STREAMS_ABOVE", above)
            try:
                timeline = simulate(schedule, costs)
            except Deadlock as stuck:
                return str(stuck)
        return timeline.start.tolist(), timeline.bound.tolist()

    assert run(-1) == run(sys.maxsize)


def test_a_reload_without_its_offload_cannot_run():
    schedule = Schedule.from_queues(
        "mine",
        generate("1f1b", devices=1, microbatches=1).placement,
        1,
        [np.array([int(pack(0, 0)) | kind for kind in (Kind.F, Kind.RELOAD, Kind.B)])],
    )
    with pytest.raises(Deadlock, match="device 0 waits for the input of 0RELOAD0, which no device produces"):
        simulate(schedule, Costs(np.ones((5, 1))))


def test_collectives_in_two_orders_deadlock():
    """The message has both devices, and what each waits for."""
    first, second = Kind.REDUCE_E, Kind.SHARE_S
    queues = []
    for device, order in enumerate(((first, second), (second, first))):
        ops = [(Kind.E, -1), *((kind, -1) for kind in order), (Kind.F, device), (Kind.B, device)]
        queues.append(np.array([int(pack(stage, 0)) | kind for kind, stage in ops]))
    schedule = Schedule.from_queues("mine", generate("1f1b", devices=2, microbatches=1).placement, 1, queues)
    with pytest.raises(Deadlock, match="REDUCE_E0 on device"):
        simulate(schedule, Costs(np.ones((5, 2))))


def test_an_activation_on_the_host_is_not_held():
    """With copies that take no time a device holds the activation that it works on."""
    ops = [(Kind.F, 0), (Kind.OFFLOAD, 0), (Kind.F, 1), (Kind.OFFLOAD, 1)]
    ops += [(Kind.RELOAD, 0), (Kind.B, 0), (Kind.RELOAD, 1), (Kind.B, 1)]
    queue = np.array([int(pack(0, microbatch)) | kind for kind, microbatch in ops])
    schedule = Schedule.from_queues("mine", generate("1f1b", devices=1, microbatches=2).placement, 2, [queue])
    free = Costs(np.ones((5, 1)))
    assert measure(simulate(schedule, free)).peak_activations.tolist() == [1]
    slow = Costs(np.ones((5, 1)), others={Kind.OFFLOAD: np.array([3.0])})
    assert measure(simulate(schedule, slow)).peak_activations.tolist() == [2]


@SOME
@given(
    st.sampled_from(PLAIN),
    st.integers(1, 5),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.5, 1.0]),
)
@example("interleaved-overlap", 4, 16, 0.0)
def test_copies_that_decide_nothing_change_no_critical_path(name, devices, microbatches, comm):
    """Of ops that set a start together the one before in the queue is named, then the input's."""
    try:
        plain = generate(name, devices=devices, microbatches=microbatches)
    except InputError:
        return
    costs = costs_for(plain, comm=comm)
    copied = add_offload(plain, costs, 1)
    before, after = simulate(plain, costs), simulate(copied, costs)
    own = np.flatnonzero(copied.computes)
    if not np.array_equal(before.start, after.start[own]):
        return
    place = np.full(len(copied) + 1, -1)
    place[own] = np.arange(len(own))
    first = np.setdiff1d(np.arange(len(plain)), plain.second_of_pairs)
    assert np.array_equal(place[after.bound[own]][first], before.bound[first])
