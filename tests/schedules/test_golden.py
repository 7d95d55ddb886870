"""Queues and numbers equal those of the original implementations, record by record; see
tests/golden.py.
"""

from dataclasses import replace

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, peak_activations
from tests.golden import COSTS, NAMES, RECORDS, each_record, ours


def orders(schedule: Schedule) -> list[str]:
    def token(op) -> str:
        return f"{Kind(schedule.kind[op]).name}{schedule.stage[op]}.{schedule.microbatch[op]}"

    def tokens(device):
        ops = schedule.queue(device)
        for op in range(ops.start, ops.stop):
            if schedule.pair[op] == NONE:
                yield token(op)
            elif schedule.pair[op] > op:
                yield f"({token(op)}+{token(op + 1)})"

    return [" ".join(tokens(device)) for device in range(schedule.n_devices)]


def time_as(schedule: Schedule, key: str) -> Timeline:
    return simulate(
        schedule, costs_for(schedule, per="stage", **COSTS[key.removesuffix("|pair_atomic")])
    )


def unpaired(schedule: Schedule) -> Schedule:
    return replace(schedule, pair=np.full_like(schedule.pair, NONE))


def test_no_record_is_lost():
    """The suite reads every record, of every source."""
    assert len(RECORDS) == 414
    assert {record["schedule"] for record in RECORDS.values()} == set(NAMES)


@each_record
def test_queues_are_the_originals(record):
    """Every device runs the same ops in the same order, fused where the original fuses."""
    schedule = ours(record)
    # Megatron's own order does not mark the pairs it fuses
    if record.get("overlap_moe_expert_parallel_comm"):
        schedule = unpaired(schedule)
    assert orders(schedule) == record["orders"]


@each_record
def test_numbers_are_the_originals(record):
    """Makespan, the longest span of a device, idle time and each device's peak, released at W or at
    I, are the original's under every cost model, whether a pair is one op or two; a device is busy
    for a pair's own time once.
    """
    schedule = ours(record)
    alone = unpaired(schedule)
    numbers = {
        key: measure(time_as(schedule if "|" in key else alone, key)) for key in record["makespan"]
    }
    assert {key: m.makespan for key, m in numbers.items()} == record["makespan"]
    assert {key: numbers[key].span for key in record["rank_span_max"]} == record["rank_span_max"]
    assert {key: numbers[key].idle.sum() for key in record["idle_total"]} == record["idle_total"]
    assert peak_activations(schedule).tolist() == record["peak_W"]
    assert peak_activations(schedule, Kind.I).tolist() == record["peak_I"]
    if busy := record.get("busy_F10I9W8|pair20"):
        assert numbers["F10I9W8|pair20"].busy.tolist() == busy
