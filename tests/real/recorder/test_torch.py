"""Real runs of torch's schedules: recorded, read, named; and what is recorded computes the same
numbers.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ppsim
from ppsim.real.traces.read import read_run
from ppsim.schedules import generate
from ppsim.show.files.document import Document, save
from tests.real_runs import spawn
from tests.torch_worker import STEPS

pytestmark = [pytest.mark.torch, pytest.mark.slow]
# torch's class, its stages per device, and the family whose queues it follows
SCHEDULES = [
    ("ScheduleGPipe", 1, "gpipe"),
    ("Schedule1F1B", 1, "1f1b"),
    ("ScheduleLoopedBFS", 2, "looped-bfs"),
    ("ScheduleInterleaved1F1B", 2, "interleaved"),
    ("ScheduleInterleavedZeroBubble", 2, "interleaved-zb"),
    ("ScheduleZBVZeroBubble", 2, "zb-v-torch"),
    ("ScheduleDualPipeV", 2, "custom"),  # torch runs the two ops of a pair one after the other
    ("csv", 1, "zb-1p"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    """The folder with a recording of each schedule, of two processes."""
    folder = tmp_path_factory.mktemp("recorded")
    file = folder / "zb.csv"
    schedule = generate("zb-1p", devices=2, microbatches=4)
    save(Document((ppsim.simulate(schedule, ppsim.costs_for(schedule)),), ("",)), str(file))
    names, chunks, _ = zip(*SCHEDULES, strict=True)
    spawn("record_schedules", 2, 240, folder, list(names), list(chunks), str(file))
    return folder


def test_recording_changes_no_number(recorded):
    """Losses, outputs and gradients of every step are the same bits."""
    for rank in range(2):
        assert json.loads((recorded / f"recorded{rank}.json").read_text()) == {
            name: True for name, _, _ in SCHEDULES
        }


@pytest.mark.parametrize(("name", "chunks", "family"), SCHEDULES)
def test_what_is_recorded_is_the_schedule_that_ran(name, chunks, family, recorded):
    """Every step of training and none of evaluation, each op once; no message before its sender's
    op.
    """
    found, run = ppsim.read(str(recorded / name)).to_json(), read_run([str(recorded / name)])
    assert (found["schedule"], found["devices"], found["stages_per_device"]) == (family, 2, chunks)
    assert len(found["iterations"]) == STEPS
    schedule = run.schedule
    crossing = np.flatnonzero(schedule.crosses)
    assert (run.start[:, crossing] >= run.end[:, schedule.dependency[crossing]]).all()
    assert not any("clock" in note for note in found["notes"])


@pytest.mark.parametrize(
    "name", ["Schedule1F1B", "ScheduleInterleaved1F1B", "ScheduleZBVZeroBubble"]
)
def test_every_message_is_recorded(name, recorded):
    """A send on one side and a receive on the other for each input that crosses devices, the
    receive ending later.
    """
    crossing = read_run([str(recorded / name)]).schedule.crosses.sum()
    sends: dict[tuple[int, str, int, int], float] = {}
    receives = dict(sends)
    for rank in range(2):
        header, *rows = map(
            json.loads, (recorded / name / f"rank{rank}.ops.jsonl").read_text().splitlines()
        )
        for row in rows:
            side = (
                sends
                if row["kind"].startswith("SEND")
                else receives
                if row["kind"].startswith("RECV")
                else None
            )
            if side is not None:
                towards = {"SEND_F": 1, "SEND_B": -1}.get(row["kind"], 0)
                key = row["iteration"], row["kind"][-1], row["stage"] + towards, row["microbatch"]
                side[key] = header["epoch"] * 1e3 + row["start" if towards else "end"]
    assert sends.keys() == receives.keys()
    assert len(sends) == STEPS * crossing
    assert all(receives[key] > sends[key] for key in sends)
