"""One map of tasks: the same results here, on processes and on Dask, with workers that are lost on
the way.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from ppsim.base import workers
from ppsim.base.dask_cluster import CODE, _start_cluster
from ppsim.base.workers import batches_of, map_in_threads, open_workers
from ppsim.errors import InputError, MissingDependency, PpsimError
from ppsim.version import VERSION
from tests.clock import HANG_S
from tests.commands import SOURCE
from tests.real.runs.cases import wait_for


def square(task: int) -> int:
    return task * task


def refuse(task: int) -> int:
    raise InputError(f"{task} is refused", "another")


def square_and_die(folder: str, task: int) -> int:
    """The square of a task; the process that is the first to take task 7 is killed."""
    mark = Path(folder) / "died"
    if task == 7 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.005)
    return task * task


def map_tasks(function, tasks, where="", processes=1):
    with open_workers(where, processes) as workers:
        yield from workers.run(function, tasks)


def test_a_map_in_this_process_gives_every_result_once_in_order():
    assert list(map_tasks(square, range(5))) == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16)]
    assert list(map_tasks(square, [])) == []


def test_batches_cover_all_tasks_once_and_leave_work_for_every_worker():
    batches = batches_of(range(1000), 2)
    assert [task for _, tasks in batches for task in tasks] == list(range(1000))
    assert [first for first, _ in batches] == [tasks[0] for _, tasks in batches]
    assert len(batches) >= 64
    assert max(len(tasks) for _, tasks in batches_of(range(10**6), 2)) == 256


def test_an_interruption_leaves_tasks_that_no_thread_has_begun(monkeypatch):
    """Ctrl-C ends a command as soon as the tasks in work are done, not all of them."""
    interrupted, begun = threading.Event(), list[int]()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            interrupted.set()
            super().shutdown(wait=wait)

    def run(task: int) -> None:
        begun.append(task)
        assert task == 0 or interrupted.wait(HANG_S)

    monkeypatch.setattr(workers, "ThreadPoolExecutor", Pool)
    with suppress(KeyboardInterrupt), map_in_threads(run, range(1000)) as results:
        next(results)
        raise KeyboardInterrupt
    assert len(begun) <= 1 + workers.count_cores()


def test_the_code_of_workers_is_compared_by_version_and_content():
    version, digest = eval(CODE)
    assert version == VERSION
    assert len(digest) == 64


@pytest.mark.sampled(2)
@pytest.mark.parametrize("address", ["nonsense", "http://x"])
def test_an_address_without_a_scheduler_is_one_error(address):
    with pytest.raises(InputError, match="no Dask scheduler answers at"):
        list(map_tasks(square, [1], address))


@pytest.mark.parametrize("failures", [1, 2])
def test_a_local_cluster_whose_worker_is_lost_at_the_start_is_started_again_once(failures):
    started = []

    def start(**options: object) -> str:
        started.append(options["dashboard_address"])
        if len(started) <= failures:
            raise RuntimeError("Nanny failed to start.")
        return "cluster"

    if failures == 1:
        assert _start_cluster(start) == "cluster"
    else:
        with pytest.raises(PpsimError, match="no Dask cluster started here: Nanny failed"):
            _start_cluster(start)
    assert started == ["127.0.0.1:0"] * 2  # no port that another cluster may have


def test_dask_that_is_not_installed_is_named_with_the_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dask", None)
    with pytest.raises(MissingDependency) as caught:
        list(map_tasks(square, [1], "local"))
    assert "pip install" in caught.value.hint


@pytest.mark.slow
def test_processes_give_the_same_and_a_lost_one_costs_only_time(tmp_path):
    found = list(map_tasks(partial(square_and_die, str(tmp_path)), range(100), processes=2))
    assert (tmp_path / "died").exists()
    assert sorted(found) == [(n, n * n) for n in range(100)]


PLAIN = """
from ppsim.base.workers import open_workers
print("begins")
with open_workers({where!r}, 2) as workers:
    print(sorted(workers.run({function}, range(-3, 0))))
"""
OF_ITS_OWN = "def double(task): return 2 * task\nif __name__ == '__main__':"
RANKS = """
from ppsim.real.calibration.processes import ranks
from tests.base.test_workers import say_rank
print("begins")
with ranks(say_rank, 2, None) as messages:
    print(sorted(messages))
"""


def say_rank(rank, say, *args):
    say(rank)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (PLAIN.format(where="", function="abs"), "[(0, 3), (1, 2), (2, 1)]"),
        (PLAIN.format(where="local", function="abs"), "[(0, 3), (1, 2), (2, 1)]"),
        (
            OF_ITS_OWN + PLAIN.format(where="", function="double").replace("\n", "\n    "),
            "[(0, -6), (1, -4), (2, -2)]",
        ),
        (RANKS, "[(0, 0), (1, 1)]"),
    ],
)
def test_processes_do_not_run_a_plain_script_again(tmp_path, script, said):
    """A script may ask at its top level, as notebooks do; its own functions reach processes as
    Python has it.
    """
    path = tmp_path / "script.py"
    path.write_text(script)
    answer = subprocess.run(
        [sys.executable, path],
        env=SOURCE,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (answer.returncode, answer.stdout.split("\n", 1)) == (0, ["begins", f"{said}\n"]), (
        answer.stderr
    )


@pytest.mark.slow
def test_an_error_of_a_task_arrives_as_it_was_raised():
    with pytest.raises(InputError, match="is refused") as caught:
        list(map_tasks(refuse, range(4), processes=2))
    assert caught.value.hint == "another"
    wait_for(lambda: not multiprocessing.active_children(), "the end of its processes")


@pytest.mark.slow
def test_dask_gives_the_same_with_a_worker_killed_half_way(tmp_path):
    """Every result comes once, and those of the lost worker are computed again."""
    found = list(map_tasks(partial(square_and_die, str(tmp_path)), range(200), "local"))
    assert (tmp_path / "died").exists()
    assert sorted(found) == [(n, n * n) for n in range(200)]


@pytest.mark.slow
def test_errors_come_through_dask_too():
    with pytest.raises(PpsimError, match="is refused"):
        list(map_tasks(refuse, range(4), "local"))


def test_a_scheduler_that_is_lost_is_one_message(monkeypatch):
    """Its address answered when the work began; what Dask raises then is no fault of ppsim."""
    distributed = pytest.importorskip("distributed")
    from ppsim.base.dask_cluster import Connection, run_on

    class Client:
        loop = None

        def submit(self, *_, **__):
            return None

        map = cancel = submit

    def lose(*_, **__):
        raise distributed.client.FutureCancelledError("task", "scheduler-connection-lost")

    monkeypatch.setattr(distributed, "as_completed", lose)
    with pytest.raises(PpsimError, match="the connection to the Dask scheduler was lost") as lost:
        list(run_on(Connection(Client(), 1), lambda batch: batch, [(0, [1])]))
    assert "--results FILE" in lost.value.hint
