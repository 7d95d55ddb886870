"""The engine agrees, to the last bit, with the execution model written out in forty plain lines."""

import importlib
import random
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import PAIRED, Kind, pack
from ppsim.core.schedule import Placement, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import Deadlock, InvalidSchedule
from ppsim.schedules import generate
from tests.cases import FLOATS, MANY, PLAIN, SOME, costs, schedules

Op = tuple[str, int, int]  # kind, stage, microbatch
NAMES = PLAIN


def reference(schedule: Schedule, costs: Costs) -> dict[Op, tuple[float, float]]:
    """Start and end of every op that can run, device by device for as long as one of them gets
    further.
    """
    queues = [atoms(schedule, device) for device in range(schedule.n_devices)]
    owner = {op: device for device, queue in enumerate(queues) for atom in queue for op in atom}
    free = [0.0] * len(queues)
    ran: dict[Op, tuple[float, float]] = {}
    moved = True
    while moved:
        moved = False
        for device, queue in enumerate(queues):
            while queue:
                needs = [need for op in queue[0] for need in inputs(op, schedule.n_stages)]
                if not all(any(choice in ran for choice in need) for need in needs):
                    break
                start = free[device]
                for need in needs:
                    op = next(choice for choice in need if choice in ran)
                    start = max(start, ran[op][1] + message(costs, owner[op], device))
                free[device] = start + duration(queue[0], costs, device)
                ran.update((op, (start, free[device])) for op in queue.pop(0))
                moved = True
    return ran


def inputs(op: Op, stages: int) -> list[list[Op]]:
    """What an op waits for, each as the ops that may provide it."""
    kind, stage, microbatch = op
    if kind == "F":
        return [[("F", stage - 1, microbatch)]] if stage > 0 else []
    if kind == "W":
        return [[("I", stage, microbatch)]]
    if kind == "R":
        return [[("F", stage, microbatch)]]
    gradient: list[list[Op]] = [[("B", stage + 1, microbatch), ("I", stage + 1, microbatch)]]
    return [[("F", stage, microbatch)], *(gradient if stage < stages - 1 else [])]


def duration(atom: list[Op], costs: Costs, device: int) -> float:
    factors = [factor(kind, microbatch, costs, device) for kind, _, microbatch in atom]
    if len(atom) == 2 and costs.pair is not None and "B" in (atom[0][0], atom[1][0]):
        return float(costs.pair[atom[0][1]] + costs.pair[atom[1][1]]) / 2 * (sum(factors) / 2)
    times = (costs.time["FBIWR".index(kind), stage] for kind, stage, _ in atom)
    return float(sum(time * each for time, each in zip(times, factors, strict=True)))


def factor(kind: str, microbatch: int, costs: Costs, device: int) -> float:
    scale = 1.0 if costs.scale is None else costs.scale["FBIWR".index(kind), microbatch]
    return float(scale / (1.0 if costs.speed is None else costs.speed[device]))


def message(costs: Costs, sender: int, receiver: int) -> float:
    links = np.asarray(costs.comm)
    return (
        0.0 if sender == receiver else float(links if links.ndim == 0 else links[sender, receiver])
    )


def atoms(schedule: Schedule, device: int) -> list[list[Op]]:
    """A device's queue, the ops of a pair together."""
    queue: list[list[Op]] = []
    ops = schedule.queue(device)
    for i in range(ops.start, ops.stop):
        op = (Kind(schedule.kind[i]).name, int(schedule.stage[i]), int(schedule.microbatch[i]))
        if schedule.pair[i] == i - 1 and i > ops.start:
            queue[-1].append(op)
        else:
            queue.append([op])
    return queue


def random_schedule(seed: int, disorder: int = 0) -> Schedule:
    """Any placement, any valid order, B or I and W, random pairs; then ``disorder`` random swaps
    within queues.
    """
    dice = random.Random(seed)
    devices, stages, microbatches = dice.randint(1, 5), dice.randint(1, 6), dice.randint(1, 6)
    home = [dice.randrange(devices) for _ in range(stages)]
    cells = [(s, m) for s in range(stages) for m in range(microbatches)]
    split = {cell: dice.random() < 0.5 for cell in cells}
    again = [cell for cell in cells if dice.random() < 0.3]
    waiting: list[Op] = [("F", *cell) for cell in cells]
    waiting += [("I" if split[cell] else "B", *cell) for cell in cells]
    waiting += [("W", *cell) for cell in cells if split[cell]]
    waiting += [("R", *cell) for cell in again]
    queues: list[list[list[Op]]] = [[] for _ in range(devices)]
    done: set[Op] = set()
    while waiting:
        ready = [
            op for op in waiting if all(done.intersection(need) for need in inputs(op, stages))
        ]
        ready = [op for op in ready if op[0] not in "BI" or ("R", *op[1:]) not in waiting]
        first = dice.choice(ready)
        fit = [
            op
            for op in ready
            if home[op[1]] == home[first[1]] and (op[0] == "F") != (first[0] == "F")
        ]
        mates = [op for op in fit if not {"W", "R"} & {op[0], first[0]}]
        atom = [first, dice.choice(mates)] if mates and dice.random() < 0.5 else [first]
        queues[home[first[1]]].append(atom)
        done.update(atom)
        waiting = [op for op in waiting if op not in atom]
    for _ in range(disorder):
        queue = dice.choice(queues)
        if queue:
            i, j = dice.randrange(len(queue)), dice.randrange(len(queue))
            queue[i], queue[j] = queue[j], queue[i]
    return lowered(queues, home, devices, microbatches)


def lowered(
    queues: list[list[list[Op]]], home: list[int], devices: int, microbatches: int
) -> Schedule:
    packed = [
        np.array(
            [
                int(pack(s, m)) | Kind[k] | PAIRED * (i + 1 < len(atom))
                for atom in queue
                for i, (k, s, m) in enumerate(atom)
            ],
            np.int64,
        )
        for queue in queues
    ]
    placement = Placement("custom", devices, np.array([home], np.int32))
    return Schedule.from_queues("random", placement, microbatches, packed)


def assert_same(schedule: Schedule, model: Costs) -> None:
    wanted = reference(schedule, model)
    ops = [
        op
        for device in range(schedule.n_devices)
        for atom in atoms(schedule, device)
        for op in atom
    ]
    if len(wanted) < len(ops):
        with pytest.raises(Deadlock):
            simulate(schedule, model)
        return
    timeline = simulate(schedule, model)
    assert list(zip(timeline.start.tolist(), timeline.end.tolist(), strict=True)) == [
        wanted[op] for op in ops
    ]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@SOME
def test_registered_schedules_run_as_the_reference(name, data):
    """Start and end of every op of a schedule are the reference's, for any costs."""
    schedule = data.draw(schedules(name))
    assert_same(schedule, data.draw(costs(schedule, FLOATS)))


@given(seed=st.integers(0, 2**32), data=st.data())
@MANY
def test_random_queues_run_as_the_reference(seed, data):
    """So are those of any queues in any placement, with ops split, whole and paired at random."""
    schedule = random_schedule(seed)
    model = data.draw(costs(schedule, FLOATS))
    assert len(reference(schedule, model)) == len(schedule)
    assert_same(schedule, model)


@given(seed=st.integers(0, 2**32), disorder=st.integers(1, 6))
@MANY
def test_disordered_queues_finish_or_deadlock_as_the_reference(seed, disorder):
    """The engine calls a deadlock exactly where the reference stands still."""
    try:
        schedule = random_schedule(seed, disorder)
    except InvalidSchedule:  # an R behind its backward, which no timing has to find
        return
    assert_same(schedule, Costs(np.ones((4, schedule.n_stages)), 0.5))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), data=st.data())
def test_compiled_and_interpreted_kernels_are_one(seed, data):
    """CPython and the compiled kernel give the same bits: start, end and what bound each op."""
    schedule = random_schedule(seed)
    model = data.draw(costs(schedule, FLOATS))
    interpreted, machine = (
        simulate_above(sys.maxsize, schedule, model),
        simulate_above(-1, schedule, model),
    )
    for column in ("start", "end", "bound"):
        one, other = getattr(interpreted, column), getattr(machine, column)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def simulate_above(ops: int, schedule: Schedule, model: Costs) -> Timeline:
    """The timeline, compiled once a process has timed more than this many ops."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            importlib.import_module("ppsim.engine.simple.longest_path"),
            "COMPILE_SIMULATION_ABOVE",
            ops,
        )
        return simulate(schedule, model)


def test_of_two_causes_at_one_time_the_queue_is_the_bound():
    """A start is bound by a message only if it arrives after the op before in the queue has
    ended.
    """
    schedule = generate("gpipe", devices=2, microbatches=2)
    timeline = simulate(schedule, costs_for(schedule, tf=1, tb=2, per="stage"))
    op = next(op for op in range(len(schedule)) if schedule.label(op) == "1F1")
    need = int(schedule.dependency[op])
    assert timeline.end[need] == timeline.end[op - 1] == timeline.start[op]
    assert timeline.bound[op] == op - 1
    later = simulate(schedule, costs_for(schedule, tf=[1.5, 1], tb=2, per="stage"))
    assert later.bound[op] == need
