"""Runs for real of copies to the host and ops on all devices: each once, after what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.lanes import groups_of, list_waits, share_durations
from ppsim.core.ops import TIMED, Kind
from ppsim.core.schedule import Schedule
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.real.runs import own_runner
from ppsim.real.runs.lanes import lower_lanes
from ppsim.real.runs.record import Measured, Record, dump, load
from ppsim.real.runs.turns import RunPlan, Settings
from ppsim.real.validation.analyse import validate
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from tests.commands import refused
from tests.real.runs.cases import MODEL

OTHERS: dict[Kind, float | Sequence[float]] = {
    kind: 2.0 for kind in TIMED if kind.info.stream and not kind.info.side
}
VOCABULARY = ("vocab-1", "vocab-2", "interlaced", "v-half-vocab-1")


def schedule_of(name: str, microbatches: int = 4) -> Schedule:
    schedule = generate(name.removesuffix("+copies"), devices=2, microbatches=microbatches)
    return add_offload(schedule, costs_of(schedule), 1) if name.endswith("+copies") else schedule


def costs_of(schedule: Schedule) -> Costs:
    return costs_for(schedule, tf=6, ti=6, tw=6, unit="ms", others=OTHERS)


def plan_beside(name: str) -> RunPlan:
    schedule = schedule_of(name)
    return RunPlan(name, lower_lanes(schedule), costs_of(schedule))


@pytest.mark.parametrize("name", ["gpipe+copies", "zb-1p+copies", *VOCABULARY])
def test_lowering_keeps_every_queue_and_the_order_of_messages(name):
    schedule = schedule_of(name)
    lowered = lower_lanes(schedule)
    # a run waits and sends at its ops
    marks = ("POST_F", "POST_B", "WAIT_E", "WAIT_T", "WAIT_F", "WAIT_B")
    schedule = schedule.take(~np.isin(schedule.kind, [Kind[name] for name in marks]))
    queues, plain = lowered.schedule, lower_lanes(schedule.compute_only).schedule
    kept = np.flatnonzero(~queues.communicates)
    labels = [[s.label(i) for i in range(len(s))] for s in (queues, schedule)]
    assert [labels[0][i] for i in kept] == labels[1]
    assert np.array_equal(np.searchsorted(kept, queues.offsets), schedule.offsets)
    among = queues.communicates | queues.computes
    assert np.array_equal(queues.kind[among], plain.kind)
    assert np.array_equal(queues.microbatch[among], plain.microbatch)


@pytest.mark.parametrize("name", ["gpipe+copies", *VOCABULARY])
def test_what_a_device_waits_for_comes_earlier_in_its_own_queues(name):
    """Entries name waits on other streams of their own device alone; a model without them has
    none.
    """
    plan = plan_beside(name)
    for device in range(2):
        entries = own_runner.entries_of(plan, device)
        lane = {entry.op: entry.lane for entry in entries}
        waits = [(entry, need) for entry in entries for need in entry.waits]
        assert waits
        assert all(lane[need] != entry.lane for entry, need in waits)
    assert not any(
        entry.waits or entry.lane for entry in own_runner.entries_of(plan_beside("zb-1p"), 0)
    )


def assert_in_order(run: Measured) -> None:
    """Every op ran, after the one before it on its stream and its inputs; ops on all devices after
    all were there.
    """
    compute, ops = run.lowered.compute, run.lowered.compute_ops
    start, end = run.start[:, ops], run.end[:, ops]
    assert (end > start).all()
    assert (start > 0).all()
    waits, group = list_waits(compute), groups_of(compute)
    apart = group[waits.op] != group[waits.need]
    assert (start[:, waits.op[apart]] >= end[:, waits.need[apart]]).all()
    for row in range(len(start)):
        last = np.full(len(compute), -np.inf)
        np.maximum.at(last, group, run.posted[row, ops])
        assert (start[row] >= last[group])[group != np.arange(len(group))].all()
    # it slept that long
    assert (end - start >= 0.99 * share_durations(compute, run.costs.durations(compute))).all()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.usefixtures("warm_processes")
def test_copies_and_ops_on_all_devices_run_after_what_they_need_and_are_predicted(tmp_path):
    pytest.importorskip("torch")
    names = ("1f1b", "gpipe+copies", "zb-1p+copies", *VOCABULARY)
    runs, failure = own_runner.run_all([plan_beside(name) for name in names], Settings(repeats=2))
    assert not failure
    for run in runs[1:]:
        assert_in_order(run)
    settings: dict[str, Any] = {
        "ops": "timed",
        "costs": "measured alone",
        "message_bytes": 65536,
        "link": {"alpha": 0.1, "ms_per_byte": 0.0, "late": 0.0},
    }
    where = dict.fromkeys(("date", "device", "machine", "cpu", "torch"), "x") | {
        "cores": 2,
        "load": 0.0,
    }
    path = tmp_path / "run.json"
    path.write_bytes(dump(Record(tuple(runs), settings, where), str(path)))
    for one in (Record(tuple(runs), settings, where), load(str(path))):
        result = validate(one)
        assert [verdict.run.name for verdict in result.verdicts] == list(names)
        # of the right size, at any load
        assert all(abs(verdict.errors["replay"]) < 0.5 for verdict in result.verdicts)


@pytest.mark.slow
@pytest.mark.torch
def test_a_backward_works_on_what_came_back_from_the_host(monkeypatch):
    """What is copied is wiped until it is back: gradients are those of a run without copies."""
    pytest.importorskip("torch")
    from ppsim.real.runs import tasks

    def run(schedule: Schedule) -> list[np.ndarray]:
        plan = RunPlan("one device", lower_lanes(schedule), costs_of(schedule))
        task = tasks.ComputingTasks(plan.lowered, 0, MODEL)
        own_runner.run_queue(own_runner.entries_of(plan, 0), task, 0)
        return [p.grad.numpy() for module in task.module.values() for p in module.parameters()]

    copy, wiped = tasks.ComputingTasks._run_one, []

    def copy_and_wipe(self, kind, cell):
        copy(self, kind, cell)
        if kind == Kind.OFFLOAD and cell[0] == 1:
            self._activation(cell).fill_(float("nan"))
            wiped.append(cell)

    plain = parse("0F0,1F0,0F1,1F1,0F2,1F2,1B0,0B0,1B1,0B1,1B2,0B2", "one device").schedule()
    whole = run(plain)
    monkeypatch.setattr(tasks.ComputingTasks, "_run_one", copy_and_wipe)
    offloaded = run(add_offload(plain, costs_of(plain), 2))
    assert wiped
    for one, other in zip(whole, offloaded, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * np.abs(one).max()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("vocab-1",), "a run that computes (--ops timed runs more) cannot take E, S, T"),
        (
            ("vocab-1", "--ops", "timed", "--runner", "torch"),
            "a run by torch, of --module or with a GPU for each device cannot take",
        ),
        (("bpipe", "--ops", "timed"), "a run for real cannot take EVICT"),
    ],
)
def test_what_no_runner_runs_is_refused_before_anything_runs(words, says):
    assert says in str(refused("validate", *words, "--devices", "4", "--mb", "8"))
