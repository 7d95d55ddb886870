"""Processes that measure together are never left behind, however they end."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from ppsim.errors import InputError, PpsimError
from ppsim.real.calibration.machine import available_bytes
from ppsim.real.calibration.processes import ranks

pytestmark = pytest.mark.slow


def _dies(rank, say, meeting):
    say(os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def _raises(rank, say, meeting):
    say(os.getpid())
    if rank == 1:
        raise ValueError("bad luck")
    time.sleep(600)


def _hangs(rank, say, meeting):
    say(os.getpid())
    time.sleep(600)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _falls_with_the_other(rank, say, meeting):
    """As where a rank is killed and the other one's next message fails, whose error arrives
    first.
    """
    say(os.getpid())
    told = Path(meeting.removeprefix("file://")).with_name("killed")
    if rank == 1:
        told.with_suffix(".new").write_text(str(os.getpid()))
        told.with_suffix(".new").rename(told)
        os.kill(os.getpid(), signal.SIGKILL)
    while not told.exists() or _runs(int(told.read_text())):
        time.sleep(0.01)
    raise ConnectionResetError("the other one is gone")


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that its parent has not asked about yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("worker", "limit_s", "says"),
    [
        (_dies, 60, "process 1 was ended by SIGKILL"),
        (_falls_with_the_other, 60, "process 1 was ended by SIGKILL"),
        (_raises, 60, "process 1 failed: bad luck"),
        (_hangs, 1, "did not respond for 1 s"),
    ],
)
def test_a_rank_that_dies_raises_or_hangs_ends_all_with_a_message(worker, limit_s, says):
    pids: list[int] = []
    with pytest.raises(PpsimError, match=says), ranks(worker, 2, limit_s=limit_s) as messages:
        pids.extend(pid for _, pid in messages)
    assert not any(_alive(pid) for pid in pids)


def test_leaving_the_block_early_leaves_no_process():
    with ranks(_hangs, 2, limit_s=60) as messages:
        pids = [pid for _, (_, pid) in zip(range(2), messages, strict=False)]
    assert len(pids) == 2
    assert not any(_alive(pid) for pid in pids)


def test_more_processes_than_fit_into_memory_are_never_started(monkeypatch):
    """Hundreds of them would bring the machine to a stand-still before the first says anything."""
    free = available_bytes("cpu")
    if free is None:
        pytest.skip("the system does not tell how much memory is free")
    monkeypatch.setattr(
        "multiprocessing.context.SpawnProcess.start", lambda process: pytest.fail("started")
    )
    with (
        pytest.raises(InputError, match="processes take about"),
        ranks(_hangs, free // (100 << 20) + 20),
    ):
        pass
