"""Measuring that ends badly: a rank that hangs or outgrows memory, a disk that is full, a terminal
that is closed.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from multiprocessing import active_children
from pathlib import Path

import pytest

from ppsim.errors import PpsimError
from ppsim.inputs.profile.profile import Workload
from ppsim.real.calibration.links import use_loopback
from ppsim.real.calibration.processes import START_S, ranks
from ppsim.real.runs import own_runner
from ppsim.real.runs.turns import RunPlan, Settings, collect, take_turns
from tests.clock import HANG_S
from tests.commands import SOURCE, start_command
from tests.real.runs.cases import (
    assert_causal,
    children_of,
    ended_within,
    plan_of,
    wait_for_children,
    wait_for_end,
    write_profile,
)
from tests.refresh_records import FOLDER

resource = pytest.importorskip("resource", reason="limits of a process")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and /proc of Linux"),
]

GIB = 1 << 30
SMALL = "--hidden 16 --heads 2 --seq 8 --layers 1 --vocab 0 --repeats 1 --device cpu".split()  # noqa: SIM905


def work_of(plan: RunPlan) -> list[list[list[own_runner.QueueEntry]]]:
    return [[own_runner.entries_of(plan, device)] for device in range(2)]


# A rank that hangs.


@pytest.mark.usefixtures("warm_processes")
def test_a_rank_that_is_stopped_ends_the_run_within_the_limit_and_keeps_what_was_measured():
    pytest.importorskip("torch")

    def stop(what: str) -> None:
        if what == "1f1b 4":
            os.kill(active_children()[-1].pid or 0, signal.SIGSTOP)

    with ended_within(round(HANG_S), "the end of a run whose process was stopped"):
        runs, failure = own_runner.run_all(
            [plan_of("1f1b")], Settings(repeats=200, limit_s=2), stop
        )
    assert re.match(r"process [01] was stopped by a signal, and all were ended after 2 s", failure)
    assert 2 <= len(runs[0].makespans) < 200
    assert_causal(runs[0])
    assert not active_children()


def _hangs_after_a_word(rank, say, meeting):
    say(os.getpid())
    time.sleep(600 * rank)
    say("done")


def _never_speaks(rank, say, meeting):
    time.sleep(0.2)


def test_ranks_that_are_starting_are_given_longer_than_ranks_that_hang():
    """The limit of silence holds from when all have spoken: a slow start on a busy machine is no
    hang.
    """
    with (
        pytest.raises(PpsimError, match="process 1 did not respond for 1 s"),
        ranks(_hangs_after_a_word, 2, limit_s=1) as messages,
    ):
        list(messages)
    assert START_S > 1
    with ranks(_never_speaks, 2, limit_s=0.01) as messages:
        assert list(messages) == []


# A rank without memory.


def _starves(rank, say, meeting, settings, devices, work, lowered):
    """A rank of our runner that may have half a gigabyte more after its third repetition, and wants
    a whole one.
    """
    import torch

    def told(message):
        say(message)
        if rank == 1 and message[0] == 3:
            has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            # enough for what its threads allocate
            resource.setrlimit(resource.RLIMIT_AS, (has + GIB // 2,) * 2)
            torch.empty(GIB, dtype=torch.uint8)

    take_turns(own_runner.prepare, rank, told, meeting, settings, devices, work, lowered)


@pytest.mark.usefixtures("warm_processes")
def test_a_rank_that_runs_out_of_memory_ends_the_run_with_a_message_and_keeps_what_was_measured():
    pytest.importorskip("torch")
    plan = plan_of("1f1b")
    runs, failure = collect(
        [plan], Settings(repeats=200), lambda _: None, _starves, work_of(plan), [plan.lowered]
    )
    assert (
        "process 1 ran out of memory: can't allocate memory: you tried to allocate 1073741824 bytes"
        in failure
    )
    assert 2 <= len(runs[0].makespans) < 200
    assert not active_children()


def test_a_model_too_big_for_the_ranks_is_told_in_one_line_and_leaves_nothing(tmp_path):
    pytest.importorskip("torch")
    folder = tmp_path / "temporary"
    folder.mkdir()
    huge = Workload(
        hidden=1 << 16, heads=1, sequence=1, microbatch_size=1, layers=1, dtype="float32", vocab=0
    )
    words = [
        "-s",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "2",
        "--profile",
        write_profile(tmp_path / "p.toml", huge),
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ppsim",
            "validate",
            *words,
            "--record",
            str(tmp_path / "r.json"),
            "-q",
        ],
        env={**SOURCE, "TMPDIR": str(folder)},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (16 * GIB, 16 * GIB)),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert done.returncode == 1
    assert "ran out of memory: can't allocate memory" in done.stderr
    assert "--hidden" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"p.toml", "temporary"}
    assert not list(folder.glob("ppsim-*"))


# A disk that is full.

RUN_BEFORE = """
import sys
from ppsim.cli import main
from ppsim.real.runs import session
from ppsim.real.runs.record import load

if __name__ == "__main__":
    record = load(sys.argv.pop(1))
    session.measure_session = lambda *_: (record, "")
    main()
"""


def limited(size: int, *command: str, **options) -> subprocess.CompletedProcess[str]:
    """A command whose files can hold no more than so many bytes: the system refuses to write on.

    Python must keep no bytecode there: a file cut short would be what the next process imports.
    """
    return subprocess.run(
        [sys.executable, *command],
        env=SOURCE | {"PYTHONDONTWRITEBYTECODE": "1"} | options.pop("env", {}),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        **options,
    )


def test_a_process_that_may_not_write_leaves_no_module_cut_short(tmp_path, monkeypatch):
    """The checkout stays as it was: what such a process imports for the first time is not kept
    half.
    """
    monkeypatch.delitem(SOURCE, "PYTHONDONTWRITEBYTECODE", raising=False)
    done = limited(
        256, "-c", "import ppsim.core.schedule", env={"PYTHONPYCACHEPREFIX": str(tmp_path)}
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_record_that_fills_the_disk_is_said_after_the_result_and_leaves_no_half(tmp_path):
    """The run itself is one recorded before; the write of its record really fails, after 8 KiB of
    it.
    """
    script, folder = tmp_path / "script.py", tmp_path / "out"
    script.write_text(RUN_BEFORE)
    folder.mkdir()
    words = [
        "-s",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "4",
        "--record",
        str(folder / "r.json"),
        "--tolerance",
        "100%",
    ]
    done = limited(8192, str(script), str(FOLDER / "timed-p2.json.gz"), "validate", *words)
    assert done.returncode == 1, done.stderr
    assert "held-out predictions are off by" in done.stdout
    assert f"Error: cannot write '{folder / 'r.json'}': File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(folder.iterdir())


@pytest.mark.parametrize("suffix", ["svg", "html"])
def test_a_figure_that_fills_the_disk_is_said_and_leaves_no_half(tmp_path, suffix):
    target = str(tmp_path / f"overlay.{suffix}")
    words = ["--from-record", str(FOLDER / "timed-p2.json.gz"), "-o", target, "-q"]
    done = limited(8192, "-m", "ppsim", "validate", *words, env={"MPLCONFIGDIR": "/nonexistent"})
    assert done.returncode == 2, done.stderr
    assert f"Error: cannot write '{target}': File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_profile_that_fills_the_disk_is_said_and_leaves_no_half(tmp_path):
    target = tmp_path / "half.toml"
    code = f"""
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import read, write
try:
    write(read({write_profile(tmp_path / "p.toml")!r}), {str(target)!r})
except InputError as error:
    print(error)
"""
    done = limited(256, "-c", code)
    assert done.stdout == f"cannot write '{target}': File too large\n", done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


def test_a_temporary_folder_that_is_full_is_named(tmp_path):
    """Ranks meet through files: where there is no room for those, one line says so."""
    pytest.importorskip("torch")
    shape = ["-s", "1f1b", "--devices", "2", "--mb", "4", "--ops", "timed", "-q"]
    words = [*shape, "--profile", write_profile(tmp_path / "p.toml")]
    done = limited(64, "-m", "ppsim", "validate", *words, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 1
    assert f"Error: cannot write '{tmp_path}': File too large" in done.stderr
    assert "TMPDIR=" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["p.toml"]


# A signal, or a terminal that is closed.


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_run_keeps_its_record_and_leaves_no_process(tmp_path, number):
    """Sent to the whole session, as the system does: processes gone, the record whole, nothing
    temporary.
    """
    pytest.importorskip("torch")
    shape = [
        "-s",
        "1f1b",
        "--devices",
        "2",
        "--mb",
        "4",
        "--ops",
        "timed",
        "--repeats",
        "100000",
        "--warm-up",
        "0",
    ]
    record, folder = tmp_path / "r.json", tmp_path / "temporary"
    folder.mkdir()
    words = ["--profile", write_profile(tmp_path / "p.toml"), "--record", str(record)]
    script = tmp_path / "script.py"
    script.write_text(TOLD)
    process = subprocess.Popen(
        [sys.executable, str(script), "validate", *shape, *words],
        env={**SOURCE, "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    while process.stdout.readline() != "repetition 1f1b 3\n":
        assert process.poll() is None
    started = children_of(process.pid)
    assert len(started) == 2
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    wait_for_end(started)
    from ppsim.real.runs.record import load

    assert len(load(str(record)).runs[0].makespans) >= 2
    assert not list(folder.iterdir())


TOLD = """
from ppsim.cli import main
from ppsim.real.runs import own_runner
from ppsim.real.runs import session

def told(plans, settings, tick):
    return own_runner.run_all(plans, settings, lambda what: print("repetition", what, flush=True))

if __name__ == "__main__":
    session.RUNNERS["own"] = told
    main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_ends_a_calibration_without_a_trace(tmp_path, number):
    pytest.importorskip("torch")
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = [*SMALL, "--sizes", f"1024,{256 << 20}", "-o", str(tmp_path / "p.toml")]
    process = start_command("calibrate", *words, env={"TMPDIR": str(folder)})
    wait_for_children(process, 2)
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
    assert not list(folder.iterdir())


def test_measuring_leaves_nothing_in_the_temporary_folder_and_needs_one(tmp_path):
    """Nor does torch, which keeps compiled code in a folder of its own where it can."""
    pytest.importorskip("torch")
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ["calibrate", *SMALL, "--sizes", "1024", "-o", str(tmp_path / "p.toml"), "-q"]
    started = start_command(*words, env={"TMPDIR": str(folder)})
    assert started.communicate(timeout=HANG_S)[1] == f"wrote {tmp_path / 'p.toml'}\n"
    assert not list(folder.iterdir())
    none = (
        "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/none']; from ppsim.cli "
        "import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", none, *words, "-F"],
        env=SOURCE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: no temporary folder: ")
    assert "TMPDIR=" in done.stderr


# Streams, names and addresses that measuring must not depend on.


def test_ranks_on_one_machine_talk_over_loopback_whatever_the_environment_says(monkeypatch):
    """As on clusters, where GLOO_SOCKET_IFNAME=eth0 is usual: nobody else can reach a local run."""
    loopback = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
    if not loopback:
        pytest.skip("no loopback interface by its usual name")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    use_loopback()
    assert os.environ["GLOO_SOCKET_IFNAME"] in loopback
