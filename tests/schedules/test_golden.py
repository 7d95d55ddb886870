"""Queues and numbers equal those of the original implementations, record by record; see tests/golden.py."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE, Schedule
from ppsim.core.timeline import Timeline
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import measure, peak_activations
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
    return simulate(schedule, costs_for(schedule, per="stage", **COSTS[key.removesuffix("|pair_atomic")]))


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
    if record.get("overlap_moe_expert_parallel_comm"):  # Megatron's own order does not mark the pairs it fuses
        schedule = unpaired(schedule)
    assert orders(schedule) == record["orders"]


@each_record
def test_times_are_the_originals(record):
    """Makespan equals the original's under every cost model, whether a pair is one op or two."""
    schedule, wanted = ours(record), record["makespan"]
    alone = unpaired(schedule)
    assert {key: time_as(schedule if "|" in key else alone, key).makespan for key in wanted} == wanted


@each_record
def test_span_and_idle_are_the_originals(record):
    """The longest span of a device and the idle time of all devices equal the original's."""
    schedule = unpaired(ours(record))
    numbers = {key: measure(time_as(schedule, key)) for key in record["rank_span_max"]}
    assert {key: m.span for key, m in numbers.items()} == record["rank_span_max"]
    assert {key: m.idle.sum() for key, m in numbers.items()} == record["idle_total"]


@each_record
def test_peak_activations_are_the_originals(record):
    """Every device holds at most as many activations as the original's, released at W or at I."""
    schedule = ours(record)
    assert peak_activations(schedule).tolist() == record["peak_W"]
    assert peak_activations(schedule, Kind.I).tolist() == record["peak_I"]


@pytest.mark.parametrize(
    "record", [pytest.param(r, id=name) for name, r in RECORDS.items() if "busy_F10I9W8|pair20" in r]
)
def test_busy_time_of_measured_pairs_is_the_originals(record):
    """A device is busy for a pair's own time once, not for the times of both its ops."""
    metrics = measure(time_as(ours(record), "F10I9W8|pair20"))
    assert metrics.busy.tolist() == record["busy_F10I9W8|pair20"]
