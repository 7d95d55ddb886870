"""Folders of recorded files that are not those of one whole run: one message, or a repair that is
said.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import ppsim
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.real.traces.read import read_run
from ppsim.real.validation.jobs import validate_job
from ppsim.record import op, record
from ppsim.schedules import generate

STEPS = 4


@pytest.fixture
def folder(tmp_path):
    """What two processes of GPipe left, four steps each."""
    for device in range(2):
        with record(tmp_path, device=device) as recording:
            recording.process.fill_in(device, 0, devices=2)
            for _ in range(STEPS):
                for kind in "FB":
                    for microbatch in range(3):
                        with op(kind, device, microbatch):
                            pass
    return tmp_path


def change_header(path, **values):
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps(json.loads(header) | values) + "\n", *rows]))


def test_times_are_read_to_the_digit(folder):
    """Fractions of a unit are kept whatever the file begins with."""
    rows = [
        json.loads(line)
        for line in (folder / "replica0.device1.ops.jsonl").read_text().splitlines()[1:]
    ]
    job = read_run([str(folder)]).job
    assert job is not None
    took = {
        (row["iteration"], row["kind"], row["microbatch"]): row["end"] - row["start"]
        for row in rows
    }
    schedule = job.schedule
    for n in range(*schedule.queue(1).indices(len(schedule))):
        kind, microbatch = schedule.label(n)[1], int(schedule.microbatch[n])
        assert abs(job.end[2, 0, n] - job.start[2, 0, n] - took[2, kind, microbatch]) < 2e-6


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda first, second: second.unlink(), "there is no file of device 1, of 2"),
        (lambda first, second: second.write_text(""), "there is no file of device 1, of 2"),
        (
            lambda first, second: second.write_bytes(second.read_bytes()[:-9]),
            "is truncated in line 25",
        ),
        (
            lambda first, second: change_header(second, run="b") or change_header(first, run="a"),
            "files of two runs",
        ),
        (
            lambda first, second: change_header(second, replica=1),
            "no file of device 1 of replica 0, of 2",
        ),
    ],
)
def test_what_is_no_whole_run_gets_one_message(harm, said, folder):
    harm(*sorted(folder.iterdir()))
    with pytest.raises(InputError, match=said):
        read_run([str(folder)])


@pytest.mark.parametrize("lines", [10, 14, 22])
def test_the_whole_steps_of_a_process_that_was_killed_are_read(lines, folder):
    """Its last step, and those that it never began, are left out with a note, however few are
    left.
    """
    path = folder / "replica0.device1.ops.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    found = ppsim.read(str(folder)).to_json()
    assert [each["number"] for each in found["iterations"]] == list(range((lines - 1) // 6))
    assert any("left out" in note for note in found["notes"])


def played(name, steps, rng):
    """Rows of a run with hosts and messages of random length: an at starts after its device's host
    and its input.
    """
    schedule = generate(name, devices=3, microbatches=5)
    order = np.argsort(simulate(schedule, costs_for(schedule)).start, kind="stable").tolist()
    rows = []
    for step in range(steps):
        start, end = np.zeros(len(schedule)), np.zeros(len(schedule))
        for at in order:
            queue, needs = schedule.queue(int(schedule.device[at])), int(schedule.dependency[at])
            first = at == queue.start
            reached = 0.0 if first else end[at - 1] + rng.uniform(0, 0.3)
            what = {
                "iteration": step,
                "stage": int(schedule.stage[at]),
                "microbatch": int(schedule.microbatch[at]),
            }
            place = {"device": int(schedule.device[at]), **what}
            start[at] = reached
            if schedule.crosses[at]:
                kind = "F" if schedule.kind[at] == Kind.F else "B"
                sent = end[needs] + rng.uniform(0, 0.2)
                arrived = max(sent, reached) + rng.uniform(0.1, 0.8)
                sender = what | {
                    "stage": int(schedule.stage[needs]),
                    "device": int(schedule.device[needs]),
                }
                rows.append(sender | {"kind": f"SEND_{kind}", "start": sent, "end": sent})
                rows.append(place | {"kind": f"RECV_{kind}", "start": reached, "end": arrived})
                start[at] = max(reached, arrived)
            end[at] = start[at] + rng.uniform(0.5, 2)
            times = {"start": start[at], "end": end[at], "posted": reached}
            rows.append(place | {"kind": Kind(schedule.kind[at]).name, **times})
    return rows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-v-torch", "gpipe"])
def test_a_run_whose_hosts_and_messages_are_recorded_is_replayed_exactly(name, tmp_path):
    """With its own op times, messages and gaps a step takes what it took; without when ops were
    reached it cannot.
    """
    rows = played(name, 3, np.random.default_rng(5))
    file = tmp_path / "run.ops.jsonl"
    for shown in (True, False):
        kept = [row if shown else {k: v for k, v in row.items() if k != "posted"} for row in rows]
        header = {"schema": "ppsim.ops/1", "unit": "ms"}
        file.write_text("".join(json.dumps(row) + "\n" for row in [header, *kept]))
        job = read_run([str(file)]).job
        assert job is not None
        error = np.abs(validate_job(job).errors["replay"]).max()
        assert error < 1e-9 if shown else error > 0.01
        assert (job.host is not None) == shown
