"""Lowering writes sends and receives out in the order each policy promises."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.draft import Draft
from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, SENDS, Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.engine.lowering.lower import lower
from ppsim.errors import Deadlock, InputError
from ppsim.inputs.check.checks import check
from ppsim.inputs.check.messages import ExpectedMessages
from ppsim.inputs.check.tables import Tables
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate
from tests.cases import PLAIN, schedules

RECORDS = json.loads((Path(__file__).parents[2] / "data" / "torch" / "comms.json").read_text())
GLOBAL = ("early", "even-first", "torch", "torch-2.15")
any_schedule = st.sampled_from(PLAIN).flatmap(schedules)


def rows(schedule: Schedule) -> list[str]:
    return [",".join(cells) for cells in Draft.from_schedule(schedule).cells()]


def faults(lowered: Lowered, *modes: str) -> list[str]:
    return [fault.message for fault in check(Draft.from_schedule(lowered.schedule), modes).faults]


def queue(lowered: Lowered, device: int) -> list[str]:
    return rows(lowered.schedule)[device].split(",")


@pytest.mark.parametrize(
    "record", RECORDS, ids=[f"{r['source'].split('.')[-2]}-{r['P']}-{r['M']}" for r in RECORDS]
)
def test_torch_order_is_what_torch_itself_lowers_to(record):
    """Cell for cell, with FSDP's look-ahead of three stages and the gradient reductions."""
    compute = parse("\n".join(record["compute"]), "torch").schedule()
    assert rows(lower(compute, "torch", unshard=3, reduce_grad=True).schedule) == record["comms"]


@pytest.mark.parametrize(
    "record", RECORDS, ids=[f"{r['source'].split('.')[-2]}-{r['P']}-{r['M']}" for r in RECORDS]
)
def test_order_of_torch_2_15_is_what_that_torch_lowers_to(record):
    """Cell for cell, with a wait for every send and reduction."""
    compute = parse("\n".join(record["compute"]), "torch").schedule()
    assert (
        rows(lower(compute, "torch-2.15", unshard=3, reduce_grad=True).schedule)
        == record["comms_2_15"]
    )


@given(any_schedule, st.sampled_from(GLOBAL), st.booleans(), st.integers(0, 4), st.booleans())
def test_orders_cut_from_one_sequence_never_deadlock_nor_cross_messages(
    schedule, order, batch, unshard, reduce_grad
):
    """early, even-first and torch run under blocking, batched and overlapped communication,
    whatever the schedule.
    """
    lowered = lower(schedule, order, batch=batch, unshard=unshard, reduce_grad=reduce_grad)
    assert faults(lowered, "overlap", "batched", "blocking") == []


@given(any_schedule, st.integers(0, 6))
def test_prefetched_receives_keep_the_order_of_messages_and_overlap_without_deadlock(
    schedule, ahead
):
    assert faults(lower(schedule, f"prefetch:{ahead}"), "overlap") == []


@given(any_schedule, st.sampled_from([*GLOBAL, "deferred", "prefetch:2"]), st.booleans())
def test_lowering_keeps_every_compute_op_in_place_and_adds_send_and_receive_per_message(
    schedule, order, batch
):
    lowered = lower(schedule, order, batch=batch)
    draft = Draft.from_schedule(lowered.schedule)
    assert rows(draft.schedule()) == rows(schedule)
    added = 3 if order == "torch-2.15" else 2
    assert len(lowered.schedule) == len(schedule) + added * int(schedule.crosses.sum())
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    peer = lowered.peer()
    assert (peer[messages.send] == draft.device[messages.receive]).all()
    assert (peer[messages.receive] == draft.device[messages.send]).all()


@given(any_schedule, st.sampled_from([*GLOBAL, "prefetch:1"]))
def test_batches_are_the_neighbouring_comm_ops_of_one_queue(schedule, order):
    lowered = lower(schedule, order, batch=True)
    ops, comm = lowered.schedule, np.isin(lowered.schedule.kind, SENDS + RECEIVES)
    assert (lowered.batch[~comm] == NONE).all()
    together = comm[1:] & comm[:-1] & (ops.device[1:] == ops.device[:-1])
    assert ((lowered.batch[1:] == lowered.batch[:-1])[together]).all()
    assert (lowered.batch[1:][together] >= 0).all()
    alone = comm & ~np.append(together, False) & ~np.append(False, together)
    assert (lowered.batch[alone] == NONE).all()
    first = comm & ~np.append(False, together) & ~alone
    assert len(set(lowered.batch[first])) == first.sum()


@given(any_schedule, st.integers(0, 3))
def test_prefetch_posts_so_many_receives_of_a_link_ahead_of_the_one_needed(schedule, ahead):
    """When an op runs, its own receive is posted, and of its link no more than ``ahead`` beyond
    what is due.
    """
    lowered = lower(schedule, f"prefetch:{ahead}")
    draft = Draft.from_schedule(lowered.schedule)
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    links = defaultdict(list)
    for send, receive, consumer in zip(
        messages.send, messages.receive, messages.consumer, strict=True
    ):
        links[draft.device[send], draft.device[receive]].append((send, receive, consumer))
    for link in links.values():
        link.sort()
        for k, (_, receive, _) in enumerate(link):
            behind = [consumer for *_, consumer in link[max(0, k - ahead) :]] if k >= ahead else []
            # nothing but comm ops stands between the receive and the first op that makes it due
            if behind:
                between = draft.kind[receive : min(behind)]
                assert (
                    not np.isin(between, [Kind.F, Kind.B, Kind.I, Kind.W]).any()
                    or draft.pair[min(behind)] >= 0
                )


def test_even_ranks_send_before_odd_ones_at_one_moment():
    """In 1F1B, rank 1 ends 1F3 when rank 2 ends 2B1: with even-first the odd rank receives before
    it sends.
    """
    schedule = generate("1f1b", devices=4, microbatches=4)
    assert ",1SEND_F3,1RECV_B1," in rows(lower(schedule, "early").schedule)[1]
    assert ",1RECV_B1,1SEND_F3," in rows(lower(schedule, "even-first").schedule)[1]
    assert ",2SEND_B1,2RECV_F3," in rows(lower(schedule, "even-first").schedule)[2]


def test_gradients_are_reduced_after_the_last_backward_that_runs_whatever_its_index():
    """LoopedBFS runs the backwards of a stage from the last microbatch to the first."""
    lowered = lower(generate("looped-bfs", devices=2, microbatches=3), reduce_grad=True)
    assert queue(lowered, 0)[-3:] == ["0RECV_B0", "0B0", "0REDUCE_GRAD"]
    assert queue(lowered, 1)[-3:] == ["1B0", "1SEND_B0", "1REDUCE_GRAD"]


def test_gradients_are_reduced_behind_the_pair_that_ends_with_the_last_backward():
    schedule = parse("0F0,1F0,1B0,0F1,1F1,(1B1;0B0)OVERLAP_F_B,0B1", "x").schedule()
    reduced = rows(lower(schedule, reduce_grad=True).schedule)[0]
    assert reduced.endswith("(1B1;0B0)OVERLAP_F_B,1REDUCE_GRAD,0B1,0REDUCE_GRAD")


@given(any_schedule, st.integers(1, 5))
def test_no_more_stages_are_gathered_than_asked_and_each_before_its_use(schedule, stages):
    lowered = lower(schedule, unshard=stages)
    assert faults(lowered) == []  # uses, gathers and frees in a sound order
    for device in range(schedule.n_devices):
        gathered = most = 0
        part = lowered.schedule.queue(device)
        for kind in lowered.schedule.kind[part]:
            gathered += int(kind == Kind.UNSHARD) - int(kind == Kind.RESHARD)
            most = max(most, gathered)
        assert gathered == 0
        pairs = int((schedule.pair[schedule.queue(device)] != NONE).any())
        assert most <= stages + pairs


@pytest.mark.parametrize("order", ["early", "torch", "prefetch:1", "deferred"])
def test_a_schedule_that_cannot_finish_is_refused_with_its_circle(order):
    stuck = parse("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0", "x").schedule()
    with pytest.raises(Deadlock, match="1F1"):
        lower(stuck, order)


def test_a_receive_is_deferred_to_a_pair_that_begins_with_a_backward_for_weights():
    """As in torch, whose pass looks at each op of a pair."""
    schedule = parse(
        "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1I0,(1W0;1F1)OVERLAP_F_B,1B1,1F2,1B2", "x"
    ).schedule()
    assert queue(lower(schedule, "deferred"), 1)[:6] == [
        "1RECV_F0",
        "1F0",
        "1I0",
        "1SEND_B0",
        "1RECV_F1",
        "(1W0;1F1)OVERLAP_F_B",
    ]


@pytest.mark.parametrize(
    "order",
    ["", "erly", "prefetch", "prefetch:-1", "prefetch:x", "prefetch:K", "prefetch:" + "9" * 5000],
)
def test_an_unknown_order_names_the_known_ones(order):
    with pytest.raises(InputError, match="unknown order") as caught:
        lower(generate("1f1b", devices=2, microbatches=2), order)
    assert "even-first" in caught.value.hint


@pytest.mark.torch
@given(
    any_schedule.filter(lambda s: s.placement.n_replicas == 1 and not (s.kind == Kind.R).any()),
    st.booleans(),
)
def test_lowering_equals_the_passes_of_the_torch_that_is_installed(schedule, defer):
    """torch's own passes, run on our schedules."""
    runtime = pytest.importorskip("torch.distributed.pipelining.schedules")
    if not hasattr(runtime, "_defer_recv_ops"):
        pytest.skip("this torch has no _defer_recv_ops")
    device_of = schedule.placement.devices[0].tolist()
    queues = {
        rank: [runtime._Action.from_str(cell) for cell in row.split(",")]
        for rank, row in enumerate(rows(schedule))
    }
    queues = {rank: runtime._add_unshard_reshard(queue) for rank, queue in queues.items()}
    queues = {
        rank: runtime._add_reduce_grad(queue, schedule.n_microbatches)
        for rank, queue in queues.items()
    }
    comms = runtime._add_send_recv(queues, device_of.__getitem__, schedule.n_stages)
    if defer:
        comms = runtime._defer_recv_ops(comms, device_of.__getitem__)
    ours = lower(schedule, "deferred" if defer else "torch", unshard=3, reduce_grad=True)
    assert rows(ours.schedule) == [
        ",".join(str(action) for action in comms[rank]) for rank in sorted(comms)
    ]


def test_copies_beside_compute_are_refused_with_the_reason():
    """A device's one queue would make the ops behind a copy wait for it."""
    with pytest.raises(
        InputError, match="one queue of ops, sends and receives per device cannot take EVICT"
    ) as refused:
        lower(generate("bpipe", devices=4, microbatches=8))
    assert "would hold up the ops behind it" in refused.value.hint
