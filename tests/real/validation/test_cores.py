"""Devices that share cores: nobody waits where there are enough, and who waits where there are not."""

from __future__ import annotations

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Host, Network
from ppsim.engine.lowering.lower import lower
from ppsim.real.validation.cores import CoreTimes, Work, share_cores
from ppsim.real.validation.predict import match_sides
from ppsim.schedules import generate

NAMES = ("gpipe", "1f1b", "zb-1p", "interleaved", "dualpipe-v", "dualpipe")


@pytest.mark.parametrize("name", NAMES)
def test_with_a_core_for_everyone_it_is_the_execution_model(name):
    """Same start and end of every entry, and no op waits for a core."""
    lowered = lower(generate(name, devices=4, microbatches=8))
    host = Host(send=0.125, receive=0.0625, gap=0.03125, preamble=0.5)
    ran = execute(lowered, costs_for(lowered.compute, tf=4.0), Network("overlap", "message", alpha=1.0, host=host))
    timeline, travel = ran.timeline, np.full(len(ran.messages), 0.25)
    work = Work(timeline.end - timeline.start, 0.25, 0.03125, host.preamble, travel, 1.0 - travel)
    found = share_cores(lowered.schedule, match_sides(lowered), work, cores=1000)
    assert np.allclose(found.start, timeline.start, rtol=0, atol=1e-12)
    assert np.allclose(found.end, timeline.end, rtol=0, atol=1e-12)
    assert np.allclose(found.arrive, ran.messages.arrive, rtol=0, atol=1e-12)
    assert not found.waited.any()


@pytest.mark.parametrize(("cores", "waits"), [(1, [0, 1, 2, 3]), (2, [0, 0, 1, 1]), (3, [0, 0, 0, 1]), (4, [0] * 4)])
def test_ops_that_are_over_together_take_turns(cores, waits):
    """Four devices, one op each: 4 asleep, then 1 on a core."""
    schedule = generate("gpipe", devices=4, microbatches=1)
    nobody = np.empty(0, np.int64)
    work = Work(np.full(len(schedule), 5.0), 1.0, 0.0, 0.0, np.empty(0), np.empty(0))
    found = share_cores(schedule, (nobody, nobody, nobody), work, cores)
    assert found.waited[schedule.kind == Kind.F].tolist() == waits
    assert found.end[schedule.kind == Kind.F].tolist() == [5.0 + wait for wait in waits]


def two_devices(cores: int) -> tuple[CoreTimes, np.ndarray]:
    """One microbatch on two devices: ops 4, their ends 1, sends 2, receives 1, messages 1 and then 1 on a core."""
    lowered = lower(generate("gpipe", devices=2, microbatches=1))
    kind = lowered.schedule.kind
    took = np.select([kind <= Kind.W, np.isin(kind, (Kind.SEND_F, Kind.SEND_B))], [4.0, 2.0], 1.0)
    work = Work(took, 1.0, 0.0, 0.0, np.ones(2), np.ones(2))
    return share_cores(lowered.schedule, match_sides(lowered), work, cores), kind


@pytest.mark.parametrize(("cores", "arrives"), [(1, 8.0), (2, 6.0)])
def test_a_message_waits_for_the_calls_of_a_device_on_the_same_core(cores, arrives):
    """Sent at 4 and asking at 5: a single core is the sender's until 7, when its send and receive are both posted."""
    found, kind = two_devices(cores)
    assert found.start[kind == Kind.SEND_F] == 4.0
    assert found.arrive[0] == arrives
    assert found.start[kind == Kind.F].tolist() == [0.0, arrives]
