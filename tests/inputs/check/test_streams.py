"""Faults of queues with several streams, in files as ppsim writes them."""

import json
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.read import parse as read
from ppsim.inputs.drafts.readers.json import parse
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from ppsim.show.files.writers.json import run_object


def written(name: str, timed: bool = False) -> dict[str, Any]:
    """The object of a run as its columns of plain lists: 1F1B with copies, or vocabulary over all
    devices.
    """
    schedule = generate(name, devices=2, microbatches=6)
    others = dict.fromkeys(
        (Kind.OFFLOAD, Kind.RELOAD, Kind.S, Kind.T, Kind.SHARE_S, Kind.REDUCE_S), 0.25
    )
    costs = costs_for(schedule, others=others)
    if name == "1f1b":
        schedule = add_offload(schedule, costs, 1)
    found = run_object(simulate(schedule, costs), {})
    ops = {key: np.asarray(column).tolist() for key, column in found["ops"].items()}
    kept = ops if timed else {key: ops[key] for key in ("device", "kind", "stage", "microbatch")}
    return {"schedule": name, "unit": "t_F", "ops": kept}


def faults(run: dict[str, Any]) -> list[str]:
    return [fault.message for fault in check(parse(json.dumps(run), "mine.json")).faults]


def without(run: dict[str, Any], op: int) -> dict[str, Any]:
    return run | {
        "ops": {key: column[:op] + column[op + 1 :] for key, column in run["ops"].items()}
    }


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("name", ["1f1b", "vocab-1", "vocab-2", "interlaced", "v-half-vocab-1"])
def test_what_is_written_is_read_and_sound(name, timed):
    """With and without times; the schedule that comes back has every op in its place."""
    run = written(name, timed)
    assert faults(run) == []
    back = parse(json.dumps(run), "mine.json").schedule()
    assert [Kind(kind).name for kind in back.kind] == run["ops"]["kind"]
    assert back.stage.tolist() == run["ops"]["stage"]


def test_a_reload_without_its_offload():
    run = written("1f1b")
    assert faults(without(run, run["ops"]["kind"].index("OFFLOAD"))) == [
        "0RELOAD0 needs the copy on the host, which no op makes"
    ]


def test_an_op_that_runs_twice():
    run = written("vocab-2")
    ops = {key: column[:1] + column for key, column in run["ops"].items()}
    assert faults(run | {"ops": ops})[0].startswith("E0 runs a second time")


def test_a_collective_that_one_device_leaves_out():
    run = written("vocab-2")
    found = faults(without(run, run["ops"]["kind"].index("SHARE_S")))
    assert "SHARE_S0 waits for all devices, and device 0 has none" in found


def test_collectives_in_another_order_on_one_device():
    """The deadlock is shown: what waits for what, on which devices."""
    run = written("vocab-2")
    ops = run["ops"]
    both = [i for i, kind in enumerate(ops["kind"]) if kind == "SHARE_S" and ops["device"][i] == 1][
        :2
    ]
    for i, microbatch in zip(both, (1, 0), strict=True):
        ops["microbatch"][i] = microbatch
    [found] = faults(run)
    assert "deadlocks" in found
    assert "waits for SHARE_S0 on device 1" in found


def test_a_copy_during_the_forward_it_copies():
    run = written("1f1b", timed=True)
    op = run["ops"]["kind"].index("OFFLOAD")
    run["ops"]["start"][op] = 0.5
    assert any(
        "0OFFLOAD0 [0.5, 1.25] during 0F0 [0, 1], which it needs" in text for text in faults(run)
    )


def test_queues_with_one_compute_op_have_faults_and_no_more():
    """Of an input that no device makes there is nothing to look up."""
    found = check(read("REDUCE_S0,0OFFLOAD0,1F1\n1GF1,0OFFLOAD0\n", "x.csv")).faults
    assert {fault.kind for fault in found} >= {"missing"}
