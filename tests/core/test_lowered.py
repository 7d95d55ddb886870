"""Lowered queues know what they were made of."""

import numpy as np

from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.lowering.lower import lower
from ppsim.schedules import generate


def test_the_peer_of_a_message_is_the_device_on_its_other_side():
    """Of sends and receives in both directions; compute and FSDP ops have none."""
    lowered = lower(generate("1f1b", stages=3, microbatches=1), unshard=1, reduce_grad=True)
    schedule, peer = lowered.schedule, lowered.peer()
    named = {schedule.label(op): int(peer[op]) for op in np.flatnonzero(peer != NONE).tolist()}
    assert named == {
        "0SEND_F0": 1,
        "0RECV_B0": 1,
        "1RECV_F0": 0,
        "1SEND_F0": 2,
        "1RECV_B0": 2,
        "1SEND_B0": 0,
        "2RECV_F0": 1,
        "2SEND_B0": 1,
    }


def test_an_op_of_a_stage_is_named_without_a_microbatch():
    """In queues as in files: FSDP ops have none."""
    schedule = lower(
        generate("1f1b", stages=1, microbatches=1), unshard=1, reduce_grad=True
    ).schedule
    assert list(map(schedule.label, range(len(schedule)))) == [
        "0UNSHARD",
        "0F0",
        "0B0",
        "0REDUCE_GRAD",
        "0RESHARD",
    ]


def test_the_peer_is_in_the_replica_of_the_op():
    """DualPipe's second replica runs the other way: a message stays in the replica that its stage
    belongs to.
    """
    queues = lower(generate("dualpipe", devices=4, microbatches=8))
    schedule, peer = queues.schedule, queues.peer()
    homes = schedule.placement.devices
    for op in np.flatnonzero(peer != NONE).tolist():
        stage, device = schedule.stage[op], schedule.device[op]
        replica = int(np.flatnonzero(homes[:, stage] == device)[0])
        step = 1 if schedule.kind[op] in (Kind.SEND_F, Kind.RECV_B) else -1
        assert peer[op] == homes[replica, stage + step], schedule.label(op)
