"""Devices with several streams: the model against a plain one, host links that are shared,
deadlocks.
"""

import random
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, Scope, Stream, pack
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.simple import longest_path
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import Deadlock, InputError
from ppsim.schedules import generate
from ppsim.search.bounds.bounds import bound_schedule
from ppsim.search.rules.offload import add_offload
from tests.cases import PLAIN, SOME
from tests.lanes import COPIES, random_costs, with_lanes


class PlainModel:
    """The model written out over lists and dicts: the start of every op, and the op that decided
    it.

    Times stay as they are added up in the engine, so that equal means equal to the last bit.
    """

    def __init__(self, schedule, costs):
        columns = (schedule.device, schedule.kind, schedule.stage, schedule.microbatch)
        self.ops = [(int(d), Kind(k), int(s), int(m)) for d, k, s, m in zip(*columns, strict=True)]
        self.found = {(k, s if s >= 0 else d, m): i for i, (d, k, s, m) in enumerate(self.ops)}
        self.schedule, self.costs, self.length = schedule, costs, costs.durations(schedule).tolist()
        self.back = Kind.B if any(kind == Kind.B for _, kind, _, _ in self.ops) else Kind.I
        self.groups = defaultdict(list)  # ops that start together
        for i, (_, k, s, m) in enumerate(self.ops):
            first_of_pair = i - 1 if NONE != schedule.pair[i] < i else i
            self.groups[(k, s, m) if k.info.on_all_devices else first_of_pair].append(i)
        last = defaultdict[Any, list[int]](list)  # the op of each stream of each device, in turn
        self.lane, self.worked = [], []  # of each op: the one before on its stream, on compute
        for i, (d, k, _, _) in enumerate(self.ops):
            self.lane.append(last[d, k.info.stream][-1:])
            self.worked.append(last[d, Stream.COMPUTE][-1:])
            last[d, k.info.stream].append(i)
        self.start, self.bound, self.end = {}, {}, {}
        self.free, self.last = defaultdict(float), {}  # of links

    def waits(self, i):
        """The ops that one waits for with the latency of each, in the order in which the first of
        equals decides.
        """
        d, kind, s, m = self.ops[i]
        if self.schedule.pair[i] != i - 1 or i == 0:
            yield from ((j, 0.0) for j in self.lane[i])
        back, last = self.back, self.schedule.n_stages - 1
        neighbour, others = [], []
        if kind == Kind.F:
            neighbour = [(Kind.F, s - 1, m)] if s else []
            others = [(Kind.REDUCE_E, d, m)] * (s == 0) + [(Kind.GF, s, m)]
            others += [(Kind.EF, e, m) for e in range(self.schedule.n_devices) if s == 0]
        elif kind == back:
            neighbour = [(back, s + 1, m)] if s < last else [(Kind.F, s, m)]
            others = [(Kind.RELOAD, s, m), (Kind.GB, s + 1, m)]
            others += [(Kind.REDUCE_T, d, m), (Kind.REDUCE_S, d, m)] * (s == last)
        elif kind == Kind.W:
            neighbour = [(Kind.I, s, m)]
        else:
            of = {Kind.OFFLOAD: Kind.F, Kind.RELOAD: Kind.OFFLOAD, Kind.WAIT_OFFLOAD: Kind.OFFLOAD}
            of |= {
                Kind.REDUCE_E: Kind.E,
                Kind.S: Kind.SHARE_S,
                Kind.REDUCE_S: Kind.S,
                Kind.T: Kind.REDUCE_S,
            }
            of |= {Kind.REDUCE_T: Kind.T, Kind.D: Kind.SHARE_D, Kind.EB: Kind.EF}
            others = [(of[kind], s if s >= 0 else d, m)] if kind in of else []
            others += [(Kind.F, last, m)] if kind == Kind.SHARE_S else []
            others += [(back, 0, m)] if kind in (Kind.SHARE_D, Kind.EB) else []
            others += {Kind.GF: [(Kind.F, s - 1, m)], Kind.GB: [(back, s, m)]}.get(kind, [])
        if kind == Kind.RELOAD or kind.info.scope == Scope.EVERYWHERE:
            yield from ((j, 0.0) for j in self.worked[i])
        for need in [*neighbour, *others]:
            if need in self.found:
                sent = need[0] in (Kind.F, back) and kind in (
                    Kind.F,
                    back,
                    Kind.GF,
                    Kind.GB,
                    Kind.EB,
                )
                sent |= (kind, need[0]) == (Kind.F, Kind.EF)
                source = self.ops[self.found[need]][0]
                links = np.broadcast_to(self.costs.comm, (self.schedule.n_devices,) * 2)
                yield self.found[need], float(links[source, d]) * (sent and source != d)

    def arrival(self, i):
        """When one op of a group could start, and what decides it; None where that is not known
        yet.
        """
        begin, cause = 0.0, NONE
        for j, delay in self.waits(i):
            if j not in self.end:
                return None
            if self.end[j] + delay > begin or (
                begin == 0 and cause == NONE and delay == 0 and self.is_before(j, i)
            ):
                begin, cause = self.end[j] + delay, j
        return begin, cause

    def is_before(self, j, i):
        """Whether an op is on the same lane as another."""
        return (
            self.ops[j][0] == self.ops[i][0]
            and self.ops[j][1].info.stream == self.ops[i][1].info.stream
        )

    def ready(self, members):
        """When a group could start, and what decides it: of a pair its inputs in turn, of a meeting
        its last member.
        """
        found = [self.arrival(i) for i in members]
        if None in found:
            return None
        best = found[0]
        for begin, cause in found[1:]:
            if begin > best[0]:
                best = (begin, cause)
        return best

    def link(self, i):
        """The link to the host that an op takes; None without one."""
        device, kind, _, _ = self.ops[i]
        copies = kind.info.stream in (Stream.COPY_OUT, Stream.COPY_IN)
        return (
            (device // self.costs.host_link, kind.info.stream)
            if copies and self.costs.host_link
            else None
        )

    def run(self):
        """Start what can be started, copies on shared links only when nothing else can; False where
        some never do.
        """
        waiting = dict(self.groups)
        while waiting:
            ready = {key: self.ready(members) for key, members in waiting.items()}
            ready = {key: each for key, each in ready.items() if each is not None}
            free = [key for key in ready if self.link(waiting[key][0]) is None]
            if not ready:
                return False
            if not free:
                free = [min(ready, key=lambda key: self.turn(waiting[key][0], ready[key][0]))]
            for key in free:
                members = waiting.pop(key)
                begin, cause = ready[key]
                link = self.link(members[0])
                if link and self.free[link] > begin:
                    begin, cause = self.free[link], self.last[link]
                for i in members:
                    self.start[i], self.bound[i], self.end[i] = (
                        begin,
                        cause,
                        begin + self.length[members[0]],
                    )
                if link:
                    self.free[link], self.last[link] = self.end[members[0]], members[0]
        return True

    def turn(self, i, came):
        return max(came, self.free[self.link(i)]), came, self.ops[i][0], self.ops[i][1].info.stream


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shared", [0, 1, 2])
@pytest.mark.parametrize("whole", [True, False])
@given(st.integers(0, 10**6))
def test_the_model_is_the_plain_one(shared, whole, seed):
    """Random kinds at random places of random queues, also in pairs, on links that are shared or
    not.
    """
    runs_as_the_plain_model(seed, shared, whole)


@pytest.mark.slow
def test_eighty_schedules_that_finish_run_as_the_plain_model():
    """Of random ones most deadlock; these do not."""
    finished = 0
    for seed in count():
        finished += runs_as_the_plain_model(seed, seed % 3, seed % 2 == 0)
        if finished == 80:
            return


def runs_as_the_plain_model(seed, shared, whole):
    """Prove that a schedule has the plain model's starts and ends to the bit, bounds, or deadlock;
    whether it finishes.

    ``whole`` times have many ties, fractions hardly any.
    """
    rng = random.Random(seed)
    name, devices, microbatches = (
        rng.choice(["1f1b", "gpipe", "zb-1p"]),
        rng.randint(1, 4),
        rng.randint(1, 4),
    )
    schedule = with_lanes(
        name, devices, microbatches, rng, late=rng.choice([1, 3]), pairs=rng.choice([0.0, 0.3])
    )
    costs = random_costs(schedule, rng, shared)
    if not whole:
        draw = np.random.default_rng(seed)
        others = {
            kind: times + draw.uniform(0.1, 1, len(times)) for kind, times in costs.others.items()
        }
        time, comm = (
            costs.time * draw.uniform(1, 2, costs.time.shape),
            draw.uniform(0, 1, (devices, devices)),
        )
        costs = replace(costs, time=time, others=others, comm=comm)
    plain = PlainModel(schedule, costs)
    if not plain.run():
        with pytest.raises(Deadlock):
            simulate(schedule, costs)
        return False
    timeline, every = simulate(schedule, costs), range(len(schedule))
    assert timeline.start.tolist() == [plain.start[i] for i in every]
    assert timeline.end.tolist() == [plain.end[i] for i in every]
    assert timeline.bound.tolist() == [plain.bound[i] for i in every]
    assert bound_schedule(schedule, costs).makespan <= timeline.makespan + 1e-9
    return True


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_one_copy_at_a_time_on_a_shared_link(seed, shared):
    """Copies of devices that share a link follow each other; each starts when it can, or when
    another one ends.
    """
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
            patch.setattr(longest_path, "COMPILE_SIMULATION_ABOVE", above)
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
    with pytest.raises(
        Deadlock, match="device 0 waits for the input of 0RELOAD0, which no device produces"
    ):
        simulate(schedule, Costs(np.ones((5, 1))))


def test_collectives_in_two_orders_deadlock():
    """The message has both devices, and what each waits for."""
    first, second = Kind.REDUCE_E, Kind.SHARE_S
    queues = []
    for device, order in enumerate(((first, second), (second, first))):
        ops = [(Kind.E, -1), *((kind, -1) for kind in order), (Kind.F, device), (Kind.B, device)]
        queues.append(np.array([int(pack(stage, 0)) | kind for kind, stage in ops]))
    schedule = Schedule.from_queues(
        "mine", generate("1f1b", devices=2, microbatches=1).placement, 1, queues
    )
    with pytest.raises(Deadlock) as error:
        simulate(schedule, Costs(np.ones((5, 2))))
    assert str(error.value) == (
        "mine deadlocks: device 0 at 0F0 waits for REDUCE_E0 on device 0; "
        "device 0 at REDUCE_E0 waits for REDUCE_E0 on device 1, behind SHARE_S0; "
        "device 1 at SHARE_S0 waits for 1F0 on device 1; device 1 at 1F0 waits for 0F0 on device 0"
    )


def test_an_activation_on_the_host_is_not_held():
    """With copies that take no time a device holds the activation that it works on."""
    ops = [(Kind.F, 0), (Kind.OFFLOAD, 0), (Kind.F, 1), (Kind.OFFLOAD, 1)]
    ops += [(Kind.RELOAD, 0), (Kind.B, 0), (Kind.RELOAD, 1), (Kind.B, 1)]
    queue = np.array([int(pack(0, microbatch)) | kind for kind, microbatch in ops])
    schedule = Schedule.from_queues(
        "mine", generate("1f1b", devices=1, microbatches=2).placement, 2, [queue]
    )
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
    if plain.only_forwards:  # which keep nothing to copy
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
