"""Atomic files: whole or not there, in the place, mode and name that the user asked for."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ppsim.base import atomic_file
from ppsim.base.atomic_file import open_atomically, place_together, rehearse
from ppsim.errors import InputError

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="modes, links and pipes as Linux has them"
)


def write(path: Path | str, text: str = "new") -> None:
    with open_atomically(str(path)) as out:
        out.write(text.encode())


def write_half(path: Path, fault: type[BaseException] | None) -> None:
    """Begin to write and raise a fault, or fill the disk."""
    with open_atomically(str(path)) as out:
        if fault is None:
            with open("/dev/full", "wb") as full:
                os.dup2(full.fileno(), out.fileno())
        out.write(b"half")
        if fault is not None:
            out.flush()
            raise fault


def write_both(path: Path, refused: Path) -> None:
    write(path)
    assert path.read_text() == "old"
    write(refused)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_there_whole_and_alone(tmp_path):
    write(tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert (tmp_path / "a.json").read_text() == "new"


@pytest.mark.parametrize(
    ("mask", "expected"), [(0o022, 0o644), (0o027, 0o640), (0o077, 0o600), (0, 0o666)]
)
def test_a_new_file_has_the_mode_of_the_umask(tmp_path, mask, expected):
    before = os.umask(mask)
    try:
        write(tmp_path / "a")
    finally:
        assert os.umask(before) == mask
    assert mode(tmp_path / "a") == expected


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o666, 0o755, 0o4755])
def test_a_file_that_exists_keeps_its_mode(tmp_path, kept):
    target = tmp_path / "a"
    target.write_text("old")
    target.chmod(kept)
    write(target)
    assert (target.read_text(), mode(target)) == ("new", kept)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_that_exists_keeps_its_owner(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    os.chown(target, 12345, 54321)
    write(target)
    assert (target.stat().st_uid, target.stat().st_gid, target.read_text()) == (12345, 54321, "new")


def test_a_read_only_file_is_refused_and_kept(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    target.chmod(0o444)
    with pytest.raises(InputError, match=r"cannot write '.*a': the file is read-only") as refused:
        write(target)
    assert "chmod u+w" in refused.value.hint
    with pytest.raises(InputError, match="read-only"):
        rehearse(str(target))
    assert (target.read_text(), os.listdir(tmp_path)) == ("old", ["a"])


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_stays_and_what_it_names_is_written(tmp_path, there):
    (tmp_path / "folder").mkdir()
    real = tmp_path / "folder" / "real"
    if there:
        real.write_text("old")
    (tmp_path / "middle").symlink_to("folder/real")
    (tmp_path / "link").symlink_to(tmp_path / "middle")
    write(tmp_path / "link")
    assert real.read_text() == "new"
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "middle").is_symlink()
    assert os.listdir(tmp_path / "folder") == ["real"]


def test_a_link_to_itself_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(
        InputError, match=r"cannot write '.*loop': Too many levels of symbolic links"
    ):
        write(tmp_path / "loop")


def test_another_hard_link_keeps_the_old_contents(tmp_path):
    """As the module says: the file is replaced, never written in place."""
    (tmp_path / "a").write_text("old")
    os.link(tmp_path / "a", tmp_path / "b")
    write(tmp_path / "a")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("new", "old")


@pytest.mark.parametrize("length", [242, 250, 255])
def test_the_longest_names_can_be_written(tmp_path, length):
    name = "n" * (length - 5) + ".json"
    write(tmp_path / name)
    write(tmp_path / name, "again")
    assert os.listdir(tmp_path) == [name]


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(InputError, match="File name too long"):
        write(tmp_path / ("n" * 256))


def test_a_block_that_fails_leaves_the_old_file_alone(tmp_path):
    target = tmp_path / "a"
    target.write_text("old")
    for fault in (ValueError, KeyboardInterrupt):
        with pytest.raises(fault):
            write_half(target, fault)
    assert (target.read_text(), os.listdir(tmp_path)) == ("old", ["a"])


def test_a_full_disk_leaves_the_old_file_alone(tmp_path):
    """The system refuses the bytes when the file is flushed; it is closed all the same, and nothing
    is left.
    """
    target = tmp_path / "a"
    target.write_text("old")
    with pytest.raises(InputError, match=r"cannot write '.*a': No space left on device"):
        write_half(target, None)
    assert (target.read_text(), os.listdir(tmp_path)) == ("old", ["a"])


def test_a_disk_that_takes_no_file_refuses_the_removal_too(tmp_path, monkeypatch):
    def refuse(*given, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(InputError, match=r"cannot write '.*a': Read-only file system"):
        write(tmp_path / "a")
    assert not atomic_file._hidden
    atomic_file._hidden.add(str(tmp_path / "b"))
    atomic_file._remove_hidden()
    assert not atomic_file._hidden


def test_files_written_together_take_their_places_together_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(InputError, match="Is a directory"), place_together():
        write_both(tmp_path / "a", tmp_path)
    assert ((tmp_path / "a").read_text(), os.listdir(tmp_path)) == ("old", ["a"])
    with place_together():
        write(tmp_path / "a")
        with place_together():
            write(tmp_path / "b")
        assert not (tmp_path / "b").exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "new", "b": "new"}
    write(tmp_path / "a", "newer")
    assert (tmp_path / "a").read_text() == "newer"


def test_two_writers_of_one_file_leave_one_whole_file(tmp_path):
    target, texts = tmp_path / "a", [letter * 100_000 for letter in "xyz"]

    def often(text: str) -> None:
        for _ in range(15):
            write(target, text)

    writers = [threading.Thread(target=often, args=(text,)) for text in texts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert not target.exists() or target.read_text() in texts
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.slow
def test_a_killed_writer_leaves_the_old_file(tmp_path):
    """SIGKILL leaves what is half written too, under its hidden name."""
    (tmp_path / "a").write_text("old")
    code = (
        "import sys\nfrom ppsim.base.atomic_file import open_atomically\n"
        f"with open_atomically({str(tmp_path / 'a')!r}) as out:\n"
        "    out.write(bytes(1 << 20)); out.flush(); print('half', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stdin
    assert process.stdout.readline() == "half\n"
    process.kill()
    process.stdin.close()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "a").read_text() == "old"
    assert all(name == "a" or name.startswith(".ppsim-") for name in os.listdir(tmp_path))


def test_a_pipe_is_written_where_somebody_reads_and_refused_where_nobody_does(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="no process reads this pipe"):
        write(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    write(fifo)
    assert os.read(reader, 10) == b"new"
    os.close(reader)
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.slow
def test_devices_and_open_files_are_written_as_they_are(tmp_path):
    write("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    code = (
        "from ppsim.base import atomic_file as a\nwith a.open_atomically('/dev/stdout') as out: "
        "out.write(b'new')"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout
        == b"new"
    )
    with (tmp_path / "a").open("w") as file:
        subprocess.run([sys.executable, "-c", code], check=True, stdout=file)
    assert (tmp_path / "a").read_text() == "new"
    assert os.path.islink("/dev/stdout")


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="Is a directory"):
        write(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        write(tmp_path / "none" / "a")
    with pytest.raises(InputError, match="not a plain file"):
        rehearse(str(tmp_path))


def test_a_rehearsal_leaves_nothing(tmp_path):
    rehearse(str(tmp_path / "a"))
    rehearse("-")
    rehearse("/dev/null")
    with pytest.raises(InputError, match="not a plain file"):
        rehearse("/dev/null", plain=True)
    assert not os.listdir(tmp_path)


# closing a file may be cut short too
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("last", [write, rehearse])
def test_an_interrupt_at_any_line_leaves_a_whole_file_and_no_hidden_one(tmp_path, last):
    """The one that comes while a file is removed too: what it cut short is made up for at the end
    of the program.
    """
    path, lines, cut = tmp_path / "a.json", 0, True
    while cut:
        path.write_text("old")
        lines, cut = lines + 1, _interrupt(lines + 1, lambda: last(str(path)))
        atomic_file._remove_hidden()
        assert [found.name for found in tmp_path.iterdir()] == ["a.json"]
        assert path.read_text() in (
            ("old",) if last is rehearse else ("old", "new") if cut else ("new",)
        )
    assert lines > 20


def _interrupt(line: int, call: Callable[[], None]) -> bool:
    """Call a function, with an interrupt at the n-th line that runs in its file; whether there was
    such a line.
    """
    left = line

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename != atomic_file.__file__:
            return None
        left -= event == "line"
        if not left:
            raise KeyboardInterrupt
        return trace

    def run() -> None:
        sys.settrace(trace)
        with suppress(KeyboardInterrupt):
            call()

    # A thread of its own: an exception of a trace function may stay the context of all later ones
    # in its thread.
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return left <= 0
