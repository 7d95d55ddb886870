"""Communicators' in-order queues hang exactly where a step-by-step run of them stands still."""

import random

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.errors import Deadlock
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.queues import QUEUES, find_cycle, queue_faults
from ppsim.inputs.check.tables import Tables
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate
from tests.commands import invoke

SHAPES = (
    ("1f1b", 4, 6),
    ("gpipe", 3, 3),
    ("zb-1p", 3, 4),
    ("interleaved", 2, 4),
    ("looped-bfs", 3, 3),
    ("zb-h2", 3, 5),
)


def circle_of(draft: Draft, per: str, batched: bool = False) -> list[tuple[int, int]]:
    return find_cycle(
        draft, ExpectedMessages.from_draft(draft, Tables.from_draft(draft)), per, batched
    )


def hangs(draft: Draft, per: str) -> bool:
    """Run the queues one event at a time, from their definition: is anything left when nothing more
    can happen?
    """
    compute: list[list[int]] = []
    posted: dict[tuple[int, ...], list[int]] = {}
    lowered = draft.lowered()
    assert lowered is not None
    peers = lowered.peer()
    for device in range(draft.n_devices):
        mine = range(draft.offsets[device], draft.offsets[device + 1])
        compute.append([op for op in mine if draft.kind[op] not in (*SENDS, *RECEIVES)])
        for op in mine:
            if draft.kind[op] in (*SENDS, *RECEIVES):
                outgoing = int(draft.kind[op] in SENDS)
                key = {
                    "edge": (device, int(peers[op]), outgoing),
                    "pair": (device, int(peers[op])),
                    "rank": (device,),
                }
                posted.setdefault(key[per], []).append(op)
    name = {
        op: (Kind(draft.kind[op]), int(draft.stage[op]), int(draft.microbatch[op]))
        for op in range(len(draft))
    }
    done: set[tuple[Kind, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for queue in compute:
            while queue and ready(name[queue[0]], done, draft):
                done.add(name[queue.pop(0)])
                moved = True
        heads = {name[queue[0]]: queue for queue in posted.values() if queue}
        for (kind, stage, m), queue in heads.items():
            if kind not in SENDS or not made(kind, stage, m, done):
                continue
            forward = kind == Kind.SEND_F
            other = (Kind.RECV_F, stage + 1, m) if forward else (Kind.RECV_B, stage - 1, m)
            if other in heads:
                for side in (queue, heads[other]):
                    done.add(name[side.pop(0)])
                moved = True
                break
    return any(compute) or any(posted.values())


def made(kind: Kind, stage: int, m: int, done: set[tuple[Kind, int, int]]) -> bool:
    kinds = (Kind.F,) if kind == Kind.SEND_F else (Kind.B, Kind.I)
    return any((made_by, stage, m) in done for made_by in kinds)


def ready(op: tuple[Kind, int, int], done: set[tuple[Kind, int, int]], draft: Draft) -> bool:
    kind, stage, m = op
    home = draft.placement.devices[0]
    if kind == Kind.F:
        return (
            stage == 0
            or ((Kind.F if home[stage] == home[stage - 1] else Kind.RECV_F), *input_of(op, home))
            in done
        )
    if kind in (Kind.B, Kind.I) and stage < draft.n_stages - 1:
        if home[stage] != home[stage + 1]:
            return (Kind.RECV_B, stage, m) in done
        return made(Kind.SEND_B, stage + 1, m, done)
    return True


def input_of(op: tuple[Kind, int, int], home: np.ndarray) -> tuple[int, int]:
    _, stage, m = op
    return (stage - 1 if home[stage] == home[stage - 1] else stage), m


def shuffled(draft: Draft, source: random.Random) -> Draft | None:
    """The draft with some of its sends and receives elsewhere in their queues, if it is sound apart
    from deadlocks.
    """
    for _ in range(source.randint(1, 6)):
        comms = np.flatnonzero(draft.communicates)
        op = int(source.choice(comms))
        queue = draft.offsets[draft.device[op]], draft.offsets[draft.device[op] + 1]
        near = max(queue[0], op - 6), min(queue[1], op + 7)
        draft = draft.move(op, source.randrange(*near))
    kinds = {fault.kind for fault in check(draft, modes=()).faults}
    return None if kinds else draft


@pytest.mark.slow
@pytest.mark.parametrize(("name", "devices", "microbatches"), SHAPES)
def test_verdicts_are_those_of_a_step_by_step_run(name, devices, microbatches):
    """Sixty random orders of sends and receives of each schedule, against the definition run by
    events.
    """
    source = random.Random(f"{name} {devices}")
    schedule = generate(name, devices=devices, microbatches=microbatches)
    first = [
        Draft.from_schedule(lower(schedule, order).schedule)
        for order in ("early", "deferred", "torch")
    ]
    compared, hung = 0, 0
    while compared < 60:
        draft = shuffled(source.choice(first), source)
        if draft is None:
            continue
        found = {per: bool(circle_of(draft, per)) for per in QUEUES}
        assert found == {per: hangs(draft, per) for per in QUEUES}
        compared, hung = compared + 1, hung + found["pair"]
    assert 0 < hung < compared


@pytest.mark.parametrize("order", ["early", "even-first", "torch", "torch-2.15"])
@pytest.mark.parametrize("per", QUEUES)
def test_our_orders_hang_in_no_queue(order, per):
    """All orders but ``deferred`` suit every kind of communicator; a pair waits for what either of
    its ops needs.
    """
    for name, devices, microbatches in (*SHAPES, ("1f1b-overlap", 4, 8), ("dualpipe-v", 3, 6)):
        draft = Draft.from_schedule(
            lower(generate(name, devices=devices, microbatches=microbatches), order).schedule
        )
        assert circle_of(draft, per) == []


def test_deferred_receives_hang_where_both_directions_share_a_queue():
    """pytorch#172668: right with a queue for each direction, stuck with one for each pair; the
    circle is told.
    """
    draft = Draft.from_schedule(
        lower(generate("1f1b", devices=4, microbatches=8), "deferred").schedule
    )
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    assert list(queue_faults(draft, messages, "edge")) == []
    (fault,) = queue_faults(draft, messages, "pair")
    assert fault.kind == "deadlock"
    assert "one per pair" in fault.message
    assert fault.hint


def test_two_sends_that_face_each_other_hang_unless_batched():
    """Both devices post a send, then a receive: stuck in a queue per pair, and right as one
    group.
    """
    first = "0F0,0F1,0SEND_F0,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
    second = "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1"
    draft = parse(f"{first}\n{second}\n", "x.csv")
    assert not circle_of(draft, "edge")
    assert circle_of(draft, "pair")
    assert not circle_of(draft, "pair", batched=True)


def test_a_check_takes_the_queues_of_the_runtime():
    """A deferred order is right for torch 2.15's queues, wrong for those before, and a warning
    where none are named.
    """
    draft = Draft.from_schedule(
        lower(generate("1f1b", devices=4, microbatches=8), "deferred").schedule
    )
    assert check(draft, ("overlap",), queues="edge").faults == []
    for report in (
        check(draft, ("overlap",), queues="pair"),
        check(draft, ("overlap",), "torch-2.13"),
    ):
        assert [fault.kind for fault in report.faults][:1] == ["deadlock"]
    report = check(draft, ("overlap",))
    assert report.valid
    assert "one per pair" in report.warnings[0].message


CHANNELS = {"edge": "direction", "pair": "pair", "rank": "group"}


def deadlocks(draft: Draft, per: str) -> bool:
    """Run with messages that take time, through the channels that stand for these queues."""
    lowered = draft.lowered()
    assert lowered is not None
    try:
        execute(lowered, costs_for(draft.schedule()), Network("overlap", CHANNELS[per], alpha=0.1))
    except Deadlock:
        return True
    return False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ["early", "torch", "deferred", "prefetch:1"])
def test_a_run_hangs_in_the_channel_whose_queue_check_names(order):
    """``run --p2p overlap --channel direction|pair|group`` and ``check --queues edge|pair|rank``
    say the same.
    """
    hung = dict.fromkeys(QUEUES, 0)
    for name, devices, microbatches in SHAPES:
        draft = Draft.from_schedule(
            lower(generate(name, devices=devices, microbatches=microbatches), order).schedule
        )
        found = {per: not check(draft, ("overlap",), queues=per).valid for per in QUEUES}
        assert found == {per: deadlocks(draft, per) for per in QUEUES}, name
        hung = {per: hung[per] + found[per] for per in QUEUES}
    expected = {"deferred": (0, 4, 5), "prefetch:1": (0, 6, 6)}.get(order, (0, 0, 0))
    assert tuple(hung.values()) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("name", "devices", "microbatches"), SHAPES)
def test_random_orders_hang_in_a_run_where_check_says_so(name, devices, microbatches):
    source = random.Random(f"{name} {devices}")
    schedule = generate(name, devices=devices, microbatches=microbatches)
    first = [
        Draft.from_schedule(lower(schedule, order).schedule)
        for order in ("early", "deferred", "prefetch:1")
    ]
    drafts = filter(None, (shuffled(source.choice(first), source) for _ in range(200)))
    found = []
    for draft in drafts:
        verdicts = {per: not check(draft, ("overlap",), queues=per).valid for per in QUEUES}
        assert verdicts == {per: deadlocks(draft, per) for per in QUEUES}
        found.append(verdicts["pair"])
    assert {True, False} == set(found)


def test_an_order_that_hangs_in_some_queues_is_noted_where_it_is_written(tmp_path):
    """One line on stderr for a lowered file, none for an order that hangs nowhere."""
    run = [
        "run",
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "-q",
        "--lowered",
        "-o",
        str(tmp_path / "x.csv"),
        "--order",
    ]
    notes = [
        line for line in invoke(*run, "deferred").stderr.splitlines() if line.startswith("note: ")
    ]
    assert len(notes) == 1
    assert "each pair of devices" in notes[0]
    assert "check --queues pair" in notes[0]
    assert "note: " not in invoke(*run, "torch").stderr
