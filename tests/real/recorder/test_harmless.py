"""A recording never ends, holds up or changes the program that is recorded, whatever fails in
it.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ppsim
from ppsim.errors import PpsimError
from ppsim.real.recorder import notes, recorder, writer
from ppsim.real.runs import streams
from ppsim.record import record
from tests.clock import HANG_S
from tests.commands import SOURCE
from tests.recording import NAME, WHOLE, settled, train, warned

DISK = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS, errno.EBADF, errno.EFBIG)


def recorded(path: Any, **options: Any) -> tuple[list[int], list[str]]:
    """Record a loop; returns its result and all warnings."""
    with warned() as said, record(path, **options):
        done = train()
    return done, said


class Broken(Exception):
    """A fault of the recorder that nobody thought of."""


def fail(*_: Any, **__: Any) -> Any:
    raise Broken("a part is broken")


@pytest.mark.parametrize(
    ("what", "error"),
    [(what, error) for what in ("open", "write", "fstat") for error in DISK],
)
def test_a_disk_that_fails_ends_the_recording_alone(what, error, tmp_path, monkeypatch):
    """At whichever call, with whichever error: one warning names it."""
    plain = getattr(os, what)

    def broken(*given: Any, **named: Any) -> Any:
        if threading.current_thread().name == "ppsim.record":
            raise OSError(error, os.strerror(error))
        return plain(*given, **named)

    monkeypatch.setattr(os, what, broken)
    done, said = recorded(tmp_path, device=0)
    assert done == WHOLE
    assert len(said) == 1
    assert os.strerror(error) in said[0]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (streams, "clock"),
        (recorder, "OpsFile"),
        (streams.Wall, "sync"),
        (streams.Wall, "mark"),
        (streams.Wall, "is_reached"),
        (streams.Wall, "ns"),
        (streams.Wall, "rebase"),
        (notes.Notes, "_first_mark"),
        (notes.Notes, "_write_run"),
        (notes.Notes, "_end"),
        (recorder.Recorder, "_hook"),
        (writer.Writer, "append"),
        (writer.Writer, "close"),
        (writer.Writer, "_create"),
        (writer.Writer, "_write"),
        (writer, "_identity"),
        (writer, "_write_once"),
        ("ppsim.real.recorder.file", "_epoch"),
        ("ppsim.real.recorder.file", "_rank"),
        ("ppsim.real.recorder.file", "_run_name"),
        ("ppsim.real.recorder.file", "_join_pairs"),
        (notes, "clock"),
        (json, "dumps"),
    ],
)
def test_a_fault_in_any_part_ends_the_recording_alone(owner, name, tmp_path, monkeypatch):
    owner = sys.modules[owner] if isinstance(owner, str) else owner
    monkeypatch.setattr(owner, name, fail)
    done, said = recorded(tmp_path, device=0)
    assert done == WHOLE
    assert len(said) <= 1
    assert record.active is None
    if owner is not streams:
        assert said


def planted(folder: Path, what: str) -> Path:
    """Put something where the recording would be."""
    target = folder / NAME
    victim = folder / "victim"
    victim.write_text("precious")
    if what == "link":
        target.symlink_to(victim)
    elif what == "dangling":
        target.symlink_to(folder / "nowhere")
    elif what == "hard link":
        target.hardlink_to(victim)
    elif what == "pipe":
        os.mkfifo(target)
    elif what == "folder":
        target.mkdir()
    elif what == "device":
        target.symlink_to("/dev/full")
    else:
        target.write_text("an earlier recording")
    return victim


@pytest.mark.parametrize(
    "what", ["link", "dangling", "hard link", "pipe", "folder", "device", "earlier"]
)
def test_what_lies_at_its_name_is_neither_followed_nor_erased(what, tmp_path):
    victim = planted(tmp_path, what)
    before = {path.name: path.lstat().st_size for path in tmp_path.iterdir()}
    done, said = recorded(tmp_path, device=0)
    assert (done, said) == (WHOLE, [])
    assert victim.read_text() == "precious"
    assert {name: (tmp_path / name).lstat().st_size for name in before} == before
    (made,) = [path for path in tmp_path.iterdir() if path.name not in before]
    assert made.name == "replica0.device0-2.ops.jsonl"
    assert len(made.read_text().splitlines()) == 1 + len(WHOLE)


@pytest.mark.parametrize(
    "path",
    [
        "file",
        "file/below",
        "missing/../file",
        "a\0b",
        "x" * 300,
        "/proc/self/nothing/here",
        7,
        None,
        b"\xff\xfe",
    ],
)
def test_a_path_that_is_no_folder_warns(path, tmp_path):
    (tmp_path / "file").write_text("precious")
    where = str(tmp_path / path) if isinstance(path, str) else path
    done, said = recorded(where, device=0)
    assert done == WHOLE
    if not isinstance(path, bytes):
        assert len(said) == 1
    assert (tmp_path / "file").read_text() == "precious"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path_factory, monkeypatch):
    """Relative paths and names in bytes are made here."""
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"clock": "sun"}, "not a clock: 'sun'"),
        ({"clock": None}, "not a clock: None"),
        ({"clock": ["cpu"]}, "not a clock"),
        ({"steps": 0}, "not a number of steps: 0"),
        ({"steps": "three"}, "not a number of steps: 'three'"),
        ({"steps": 1.5}, "not a number of steps"),
        ({"device": -1}, "not a device: -1"),
        ({"device": "../../etc"}, "not a device"),
        ({"replica": "0/../../x"}, "not a replica"),
    ],
)
def test_options_that_mean_nothing_warn(options, says, tmp_path):
    done, said = recorded(tmp_path, **options)
    assert done == WHOLE
    assert len(said) == 1
    assert says in said[0]
    assert list(tmp_path.iterdir()) == []


def test_a_gpus_clock_without_torch_warns(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    done, said = recorded(tmp_path, clock="cuda")
    assert done == WHOLE
    assert "needs torch" in said[0]


def test_a_recording_within_a_recording_warns_and_the_outer_one_goes_on(tmp_path):
    with warned() as said, record(tmp_path / "outer", device=0):
        with record(tmp_path / "inner", device=0):
            train()
        train()
    assert ["recorded already" in text for text in said] == [True]
    assert not (tmp_path / "inner").exists()
    assert len((tmp_path / "outer" / NAME).read_text().splitlines()) == 1 + 2 * len(WHOLE)


def test_warnings_that_are_errors_end_nothing(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with record(tmp_path / "file", device=0):
            assert train() == WHOLE
    assert "ppsim.record stopped" in capsys.readouterr().err


def end_with(error: BaseException, folder: Path) -> None:
    with record(folder, device=0):
        train()
        raise error


@pytest.mark.parametrize("error", [ValueError("theirs"), KeyboardInterrupt(), SystemExit(3)])
def test_the_program_s_own_errors_pass_unchanged(error, tmp_path, monkeypatch):
    """Also where the recording fails at the same time, and after what ran before is written."""
    for broken in (False, True):
        if broken:
            monkeypatch.setattr(writer.Writer, "append", fail)
        with pytest.raises(type(error)) as caught, warned():
            end_with(error, tmp_path)
        assert caught.value is error
        assert record.active is None
    assert len((tmp_path / NAME).read_text().splitlines()) == 1 + len(WHOLE)


def test_a_disk_that_hangs_holds_nothing_up(tmp_path, monkeypatch):
    """The program ends its recording after a limit, here a short one; nothing waits for the lost
    mount.
    """
    hangs, lost = threading.Event(), os.open

    def hang(*given: Any) -> int:
        hangs.wait()
        return lost(*given)

    monkeypatch.setattr(os, "open", hang)
    monkeypatch.setattr(writer, "CLOSE_S", 0.05)
    try:
        done, said = recorded(tmp_path, device=0)
        assert done == WHOLE
        assert len(said) == 1
        assert "accepted no data" in said[0]
    finally:
        hangs.set()


def test_a_slow_disk_fills_no_memory(tmp_path, monkeypatch):
    hangs, plain = threading.Event(), os.open

    def hang(*given: Any) -> int:
        hangs.wait()
        return plain(*given)

    monkeypatch.setattr(os, "open", hang)
    monkeypatch.setattr(writer, "MOST_WAITING", 1000)
    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    try:
        with warned() as said, record(tmp_path, device=0) as recording:
            train(100)
            assert not recording.running
            assert recording.rows == []
        assert ["accepts no data" in text for text in said] == [True]
    finally:
        hangs.set()


def test_a_gpu_that_hangs_holds_nothing_up(tmp_path, monkeypatch):
    """What it has reached is written, and an error of the program is not held up at all."""
    marks = iter(range(100))
    monkeypatch.setattr(streams.Wall, "mark", lambda self: next(marks))
    monkeypatch.setattr(streams.Wall, "is_reached", lambda self, mark: mark < 5)
    monkeypatch.setattr(notes, "WAIT_S", 0.01)
    monkeypatch.setattr(recorder, "WAIT_S", 0.01)
    done, said = recorded(tmp_path, device=0)
    assert (done, said) == (WHOLE, [])
    assert len((tmp_path / NAME).read_text().splitlines()) == 1 + 2


def test_a_gpu_that_reaches_nothing_fills_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(streams.Wall, "is_reached", lambda self, mark: False)
    monkeypatch.setattr(notes, "MOST_ROWS", 10)
    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    with warned() as said, record(tmp_path, device=0) as recording:
        train(20)
        assert recording.rows == []
    assert ["has not reached" in text for text in said] == [True]


def test_no_descriptor_is_held_between_two_writes(tmp_path, monkeypatch):
    """A program may close all that it has not opened; what it opens in their place is its own, and
    stays open.
    """
    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    before = set(os.listdir("/proc/self/fd"))
    with warned() as said, record(tmp_path / "run", device=0) as recording:
        train(1)
        settled(recording)
        assert set(os.listdir("/proc/self/fd")) == before
        train()
    assert said == []
    assert len((tmp_path / "run" / NAME).read_text().splitlines()) == 1 + 2 + len(WHOLE)


def test_what_was_written_before_a_disk_filled_is_whole(tmp_path, monkeypatch):
    """No row is cut, so that it can be read."""
    monkeypatch.setattr(notes, "EVERY_S", -1.0)
    plain, left = os.write, [700]

    def write(file: int, data: Any) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        took = min(left[0], len(data))
        left[0] -= took
        return plain(file, bytes(data)[:took])

    monkeypatch.setattr(os, "write", write)
    with pytest.warns(UserWarning, match="No space left"), record(tmp_path, device=0):
        train(30)
    text = (tmp_path / NAME).read_text()
    assert text.endswith("}\n")
    assert [json.loads(line) for line in text.splitlines()]


def test_no_thread_waits_for_what_comes_next(tmp_path):
    """Of Python 3.12 on, a fork warns of each thread: between two writes there is none of ours."""
    ours = writer.Writer(tmp_path)
    for row in (b"{}\n", b"[]\n"):
        ours.append("rows", row)
        for thread in threading.enumerate():
            if thread.name == "ppsim.record":
                thread.join(HANG_S)
        (made,) = tmp_path.iterdir()
        assert made.read_bytes().endswith(row)
    ours.close()
    assert made.read_bytes() == b"{}\n[]\n"


FORKED = """
import os, sys
from ppsim.record import op, record
with record(sys.argv[1], device=0):
    with op("F", 0, 0):
        pass
    child = os.fork()
    for kind in "FB":
        with op(kind, 0, 1):
            pass
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
"""


def in_a_process(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, with a folder to record into."""
    words = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(words, env=SOURCE, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_process_that_is_forked_off_writes_nothing(tmp_path):
    ran = in_a_process(FORKED, tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    (made,) = tmp_path.iterdir()
    assert len(made.read_text().splitlines()) == 1 + 3


LIMITED = """
import resource, sys
from ppsim.real.recorder import notes
from ppsim.record import op, record
notes.EVERY_S = -1.0
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
with record(sys.argv[1], device=0):
    for microbatch in range(200):
        with op("F", 0, microbatch):
            pass
print("trained")
"""


@pytest.mark.slow
def test_a_limit_of_the_system_on_files_ends_the_recording_alone(tmp_path):
    ran = in_a_process(LIMITED, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "trained\n")
    assert ran.stderr.count("ppsim.record stopped") == 1


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="root may read and write all")
def test_a_folder_that_the_user_may_not_write_ends_the_recording_alone(tmp_path):
    tmp_path.chmod(0o755)
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
    ran = in_a_process(LIMITED.replace(limit, "import os; os.setuid(54321)"), tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "trained\n")
    assert "Permission denied" in ran.stderr


def test_two_processes_without_a_rank_never_share_a_file(tmp_path):
    """Each has its own; a reader that is given both says so."""
    for _ in range(2):
        recorded(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "replica0.device0-2.ops.jsonl",
        NAME,
    ]
    with pytest.raises(PpsimError, match="both record device 0 of replica 0"):
        ppsim.read(str(tmp_path))


# Hooks on torch: a version whose internals differ.


def torch_like(**more: Any) -> Any:
    base = SimpleNamespace(stage_index=0, is_last=True)
    return SimpleNamespace(**{**vars(base), **more})


@pytest.mark.parametrize(
    "stage",
    [
        SimpleNamespace(),
        SimpleNamespace(stage_index=None),
        torch_like(stage_index="x"),
        torch_like(),
    ],
)
def test_a_stage_of_another_version_computes_all_the_same(stage, tmp_path):
    from ppsim.real.recorder.torch_hooks import _backward_kind, _Hooks

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with record(tmp_path, device=0) as recording:
            hooks = _Hooks(recording)
            hooks.in_step = True
            called = []

            def compute(*given: Any, **named: Any) -> str:
                called.append((given, named))
                return "result"

            for wrapped in (
                hooks.on_compute(compute, lambda *_, **__: "F"),
                hooks.on_compute(compute, _backward_kind),
                hooks.on_loss(compute),
                hooks.on_reduce(compute),
                hooks.on_make("SEND_F")(lambda *_: [object()]),
                hooks.on_post(compute),
                hooks.on_wait(compute),
                hooks.on_step(compute),
            ):
                wrapped(stage, 3)
            hooks.on_compute(compute, fail)(stage, 1)
            assert (
                hooks.on_compute(compute, lambda *_, **__: "F")(stage, 0, full_backward=False)
                == "result"
            )
    assert len(called) == 9
    assert record.active is None


def test_an_error_of_a_step_passes_and_the_next_step_is_recorded(tmp_path):
    from ppsim.real.recorder.torch_hooks import _Hooks

    schedule = SimpleNamespace(
        _has_backward=True, _loss_fn=None, _stages=[torch_like(group_rank=0)]
    )
    with record(tmp_path, device=0) as recording:
        hooks = _Hooks(recording)
        hooks._identify = lambda schedule: None  # type: ignore[method-assign]

        def broken(schedule: Any) -> None:
            raise Broken("theirs")

        with pytest.raises(Broken, match="theirs"):
            hooks.on_step(broken)(schedule)
        assert not hooks.in_step
        assert recording.running
        hooks.on_step(lambda schedule: None)(schedule)
        assert recording.step == 1
        train(1)
