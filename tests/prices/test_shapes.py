"""Shapes ahead of messages: what waiting for them costs, and which orders hang by it."""

from __future__ import annotations

import json

import pytest

from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.tables import Tables
from ppsim.questions.runs.stated import read_draft
from tests.commands import invoke, refused

SHAPE = ("1f1b", "--devices", "4", "--mb", "8")


def makespan(*words):
    result = invoke("run", *SHAPE, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["makespan"]


@pytest.mark.parametrize("p2p", ["batched", "blocking"])
@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_a_message_takes_the_latency_of_its_shape_and_the_wait_too(p2p, wait):
    """1F1B has one neighbour in each batch: shape, wait of the host and data follow each other."""
    found = makespan("--shapes", "exchange", "--p2p", p2p, "--comm", "0.1", "--t-shape", str(wait))
    assert found == pytest.approx(makespan("--p2p", p2p, "--comm", str(0.2 + wait)))


def test_batches_are_the_default_and_blocking_costs_more():
    exchanged = makespan("--shapes", "exchange", "--comm", "0.1")
    assert exchanged == makespan("--shapes", "exchange", "--p2p", "batched", "--comm", "0.1")
    assert makespan("--p2p", "batched", "--comm", "0.1") < exchanged
    assert exchanged < makespan("--shapes", "exchange", "--p2p", "blocking", "--comm", "0.1")


def test_a_shape_on_a_cluster_takes_latency_and_no_bandwidth():
    """Twice the bytes cost as much with shapes as without."""

    def took(size, *more):
        return makespan(
            "--cluster", "dgx-h100", "--unit", "ms", "--p2p", "batched", "--message", size, *more
        )

    shapes = took("64MiB", "--shapes", "exchange") - took("64MiB")
    assert shapes > 0
    assert took("128MiB", "--shapes", "exchange") - took("128MiB") == pytest.approx(shapes)


def hangs(path):
    """Run the queues of a file, a shape and then its data, each waiting for both sides; whether
    they stand still.
    """
    draft = read_draft(path)
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    sent, received = messages.matched(draft)
    send, receive = messages.send[sent].tolist(), messages.receive[received].tolist()
    other = dict(zip(send, receive, strict=True)) | dict(zip(receive, send, strict=True))
    op, need = Tables.from_draft(draft).needs(draft)
    needs = [need[op == each].tolist() for each in range(len(draft))]
    at = draft.offsets[:-1].tolist()
    phase, done = dict.fromkeys(other, 0), [False] * len(draft)
    moved = True
    while moved:
        moved = False
        for device, place in enumerate(at):
            if place == draft.offsets[device + 1]:
                continue
            side = other.get(place)
            if side is None:
                ready = all(done[each] for each in needs[place])
            else:
                ready = at[int(draft.device[side])] == side and phase[side] == phase[place]
            if not ready:
                continue
            moved = True
            if side is not None and phase[place] == 0:
                phase[place] = phase[side] = 1
                continue
            for each in [place] if side is None else [place, side]:
                done[each] = True
                at[int(draft.device[each])] += 1
    return any(place < end for place, end in zip(at, draft.offsets[1:].tolist(), strict=True))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ["early", "even-first", "torch", "deferred", "prefetch:1"])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "interleaved", "zb-1p"])
def test_check_finds_the_hang_that_running_shows(order, schedule, tmp_path):
    path = str(tmp_path / "x.csv")
    shape = ("--devices", "3", "--mb", "6", "--lowered", "--order", order)
    assert invoke("run", schedule, *shape, "-q", "-o", path).exit_code == 0
    result = invoke("check", path, "--shapes", "exchange")
    stuck = hangs(path)
    assert result.exit_code == stuck
    said = "deadlock" if stuck else "each message after its shape"
    assert said in result.output


def test_shapes_that_cross_hang_and_messages_alone_do_not(tmp_path):
    """Both devices send first: without shapes neither waits."""
    path = tmp_path / "cross.csv"
    path.write_text(
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
    )
    assert invoke("check", str(path), "--mode", "overlap").exit_code == 0
    result = invoke("check", str(path), "--shapes", "exchange")
    assert result.exit_code == 1
    assert "each waits for the next" in result.output
    assert hangs(str(path))


def test_replicas_with_fewer_microbatches_hang_in_their_collectives(tmp_path):
    queues, lengths = str(tmp_path / "x.csv"), tmp_path / "lengths.csv"
    assert invoke("run", *SHAPE, "-q", "-o", queues).exit_code == 0
    rows = [(r, m) for r in range(3) for m in range(8)]
    lengths.write_text("replica,microbatch,tokens\n" + "".join(f"{r},{m},5\n" for r, m in rows))
    result = invoke("check", queues, "--lengths", str(lengths))
    assert result.exit_code == 0
    assert "equal numbers of microbatches on all replicas" in result.output
    lengths.write_text(
        "replica,microbatch,tokens\n" + "".join(f"{r},{m},5\n" for r, m in rows if r != 1 or m < 6)
    )
    result = invoke("check", queues, "--lengths", str(lengths), "--json")
    assert result.exit_code == 1
    (fault,) = json.loads(result.stdout)["faults"]
    assert fault["kind"] == "replicas"
    assert "replica 1 has 6 microbatches, and replica 0 has 8" in fault["message"]
    assert "waits in the reduction of gradients" in fault["message"]
    lengths.write_text("microbatch,tokens\n" + "".join(f"{m},5\n" for m in range(9)))
    said = invoke("check", queues, "--lengths", str(lengths)).output
    assert "the replicas have 9 microbatches, and the schedule has 8" in said


def test_what_says_nothing_of_shapes_is_refused(tmp_path):
    assert "--t-shape is the wait for a shape" in str(refused("run", *SHAPE, "--t-shape", "1"))
    assert "--shapes makes every message wait" in str(
        refused("run", *SHAPE, "--shapes", "exchange", "--p2p", "overlap")
    )
    path = str(tmp_path / "x.csv")
    assert invoke("run", *SHAPE, "-q", "-o", path).exit_code == 0
    assert "--shapes has no effect" in str(refused("check", path, "--shapes", "exchange"))
    assert invoke("run", *SHAPE, "--lowered", "-q", "-o", path).exit_code == 0
    error = refused("check", path, "--shapes", "exchange", "--mode", "overlap")
    assert "--mode cannot be given too" in str(error)
    assert "has no column of microbatch" in str(
        refused("check", path, "--lengths", _written(tmp_path))
    )


def _written(folder):
    (folder / "list.csv").write_text("tokens\n5\n")
    return str(folder / "list.csv")
