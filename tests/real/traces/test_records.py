"""Folders of recorded files that are not those of one whole run: one message, or a repair that is said."""

from __future__ import annotations

import json

import pytest

import ppsim
from ppsim.errors import InputError
from ppsim.real.traces.read import read_run
from ppsim.record import op, record

STEPS = 4


@pytest.fixture
def folder(tmp_path):
    """What two processes of GPipe left, four steps each."""
    for device in range(2):
        with record(tmp_path, device=device) as recording:
            recording.process.tell(device, 0, devices=2)
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
    rows = [json.loads(line) for line in (folder / "replica0.device1.ops.jsonl").read_text().splitlines()[1:]]
    job = read_run([str(folder)]).job
    assert job is not None
    took = {(row["iteration"], row["kind"], row["microbatch"]): row["end"] - row["start"] for row in rows}
    schedule = job.schedule
    for n in range(*schedule.queue(1).indices(len(schedule))):
        kind, microbatch = schedule.label(n)[1], int(schedule.microbatch[n])
        assert abs(job.end[2, 0, n] - job.start[2, 0, n] - took[2, kind, microbatch]) < 2e-6


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda first, second: second.unlink(), "there is no file of device 1, of 2"),
        (lambda first, second: second.write_text(""), "there is no file of device 1, of 2"),
        (lambda first, second: second.write_bytes(second.read_bytes()[:-9]), "is cut short in line 25"),
        (lambda first, second: change_header(second, run="b") or change_header(first, run="a"), "files of two runs"),
        (lambda first, second: change_header(second, replica=1), "no file of device 1 of replica 0, of 2"),
    ],
)
def test_what_is_no_whole_run_gets_one_message(harm, said, folder):
    harm(*sorted(folder.iterdir()))
    with pytest.raises(InputError, match=said):
        read_run([str(folder)])


@pytest.mark.parametrize("lines", [10, 14, 22])
def test_the_whole_steps_of_a_process_that_was_killed_are_read(lines, folder):
    """Its last step, and those that it never began, are left out with a note, however few are left."""
    path = folder / "replica0.device1.ops.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))
    found = ppsim.read(str(folder)).to_json()
    assert [each["number"] for each in found["iterations"]] == list(range((lines - 1) // 6))
    assert any("left out" in note for note in found["notes"])
