"""Compiled kernels run whatever state the folder for compiled code is in."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ppsim.base import compiled
from ppsim.base.compiled import call
from ppsim.core.costs import costs_for
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from tests.clock import HANG_S
from tests.commands import SOURCE

pytestmark = pytest.mark.slow


def double(values):
    for i in range(len(values)):
        values[i] *= 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for compiled code."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    return tmp_path


def doubled() -> list[float]:
    """The result of a process that has not loaded the kernel yet."""
    compiled._loaded.clear()
    values = np.arange(3.0)
    call(double, values)
    return values.tolist()


def test_compiled_code_is_kept_and_used_again(folder):
    """The first call writes the code, the next process reads it and compiles nothing."""
    assert doubled() == [0, 2, 4]
    assert list(folder.rglob("*.nbc"))
    assert doubled() == [0, 2, 4]
    assert loads() == 1


def test_compiled_code_is_kept_in_the_users_cache_folder(tmp_path, monkeypatch):
    """Beside the sources nothing is left when ppsim is uninstalled; other code of the process keeps
    its own folder.
    """
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = compiled._cache_on_disk(double)
    assert Path(kept.stats.cache_path).is_relative_to(compiled.cache_folder())
    assert sys.modules["numba"].config.CACHE_DIR == ""


def test_code_that_nobody_has_loaded_for_a_month_goes(tmp_path, monkeypatch):
    """Compiling tidies the user's folder; loading marks what is used; other files, and what links
    lead to, stay.
    """
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    doubled()
    (used,) = tmp_path.rglob("*.nbc")
    month_ago = time.time() - compiled.UNUSED_S - 60
    others = tmp_path / "others"
    old, empty, recent = (
        tmp_path / "ppsim" / name for name in ("search_1", "search_2", "search_3")
    )
    kept = [others / "a.nbc", old.with_name("note.txt"), recent / "a.nbi", recent / "mine.txt"]
    gone = [old / "a.nbi", old / "a.nbc", old / "a.nbc.tmp.7", recent / "b.nbc"]
    for path in (*kept, *gone):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (month_ago, month_ago))
    os.utime(recent / "a.nbi")
    empty.mkdir()
    (tmp_path / "ppsim" / "link").symlink_to(others)
    os.utime(used, (month_ago, month_ago))
    doubled()
    assert all(path.exists() for path in gone)
    assert used.stat().st_mtime > month_ago + 60
    for path in used.parent.iterdir():
        path.unlink()
    doubled()
    assert not any(path.exists() for path in (*gone, old, empty))
    assert all(path.exists() for path in (*kept, used))


HOMELESS = """
import pwd
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
import numpy as np
from ppsim.base.compiled import call
from tests.base.test_compiled import double
values = np.arange(3.0)
call(double, values)
print(values.tolist())
"""


@pytest.mark.parametrize(
    "given", [{}, {"XDG_CACHE_HOME": "kept"}, {"NUMBA_CACHE_DIR": "kept"}], ids=str
)
def test_nothing_is_kept_in_the_folder_that_one_stands_in(tmp_path, given):
    """A user whom the system does not know has no home folder: ``docker run --user 54321``."""
    environment = {**SOURCE, **given}
    for name in {"HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"} - {*given}:
        environment.pop(name, None)
    words = [sys.executable, "-c", HOMELESS]
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S
    )
    assert (done.stdout, list(tmp_path.iterdir())) == ("[0.0, 2.0, 4.0]\n", []), done.stderr


@pytest.mark.parametrize(
    ("mode", "above"), [(0o775, 0o755), (0o757, 0o755), (0o700, 0o777)], ids=oct
)
def test_a_folder_that_others_can_write_keeps_nothing_and_gives_nothing(
    tmp_path, monkeypatch, mode, above
):
    """Or put another in its place; its code is not run, and each process compiles."""
    below = tmp_path / "above" / "kept"
    monkeypatch.setattr("numba.config.CACHE_DIR", str(below))
    assert doubled() == [0, 2, 4]
    kept = sorted(below.rglob("*"))
    below.chmod(mode)
    below.parent.chmod(above)
    assert doubled() == [0, 2, 4]
    assert not loads()
    assert sorted(below.rglob("*")) == kept
    below.chmod(0o700)
    below.parent.chmod(0o1777)
    assert doubled() == [0, 2, 4]
    assert loads() == 1


def loads() -> int:
    """How often the kernel was read from a file."""
    return sum(compiled._loaded[double].stats.cache_hits.values())  # type: ignore[attr-defined]


def test_a_folder_of_another_user_keeps_nothing(folder, monkeypatch):
    """As of the user whose home folder ``sudo`` keeps."""
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert doubled() == [0, 2, 4]
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_made_is_the_users_alone(tmp_path, monkeypatch):
    before = os.umask(0)
    try:
        monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "made"))
        assert doubled() == [0, 2, 4]
    finally:
        os.umask(before)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x04\x95"])
def test_damaged_code_costs_a_compilation_not_the_run(folder, suffix, content):
    """A file cut short or overwritten is compiled past."""
    doubled()
    for path in folder.rglob(f"*.{suffix}"):
        path.write_bytes(content)
    assert doubled() == [0, 2, 4]


def test_a_folder_that_cannot_be_written_costs_a_compilation_not_the_run(tmp_path, monkeypatch):
    """A read-only home, or none, still runs."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr("numba.config.CACHE_DIR", str(blocked / "below"))
    assert doubled() == [0, 2, 4]


def test_arguments_may_change_type(folder):
    """A later call with other types compiles for them."""
    doubled()
    values = np.arange(3, dtype=np.float32)
    call(double, values)
    assert values.tolist() == [0, 2, 4]


def test_a_kernel_runs_where_numba_is_told_not_to_compile(monkeypatch):
    """Whoever calls it, with or without asking first."""
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    compiled._compiles.cache_clear()
    try:
        assert doubled() == [0, 2, 4]
    finally:
        compiled._compiles.cache_clear()


def test_kernels_give_the_same_without_machine_code(monkeypatch):
    """``NUMBA_DISABLE_JIT=1``, or a deadline before it is compiled, and more ops than CPython would
    take by itself.

    With 200 stages a row of the table of times is beyond what an op's kind, of 8 bits, holds.
    """
    schedule = generate("interleaved-zb", devices=50, microbatches=50, chunks=4)
    costs, network = (
        costs_for(schedule, comm=0.25),
        Network("overlap", alpha=0.25, beta=8.0, message=1.0),
    )

    def run():
        return simulate(schedule, costs).end.tolist(), execute(
            lower(schedule), costs, network
        ).timeline.end.tolist()

    expected = run()
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setattr(compiled, "COMPILE_TABLES_ABOVE", 0)
    monkeypatch.setattr(
        importlib.import_module("ppsim.engine.simple.longest_path"), "COMPILE_SIMULATION_ABOVE", 0
    )
    with monkeypatch.context() as late:
        late.setattr(compiled, "seconds_left", lambda: 0.0)
        late.setattr(compiled, "_is_cached", lambda stamped: False)
        assert run() == expected
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    compiled._compiles.cache_clear()
    try:
        assert run() == expected
    finally:
        compiled._compiles.cache_clear()


FACTOR = 2.0


def scale(values):
    for i in range(len(values)):
        values[i] *= FACTOR


def test_a_constant_that_changes_in_another_file_is_compiled_again(folder, monkeypatch):
    """The kernel's own file is as it was, and code kept from before would run with the old
    constant.
    """
    for factor in (2.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        compiled._loaded.clear()
        values = np.ones(3)
        call(scale, values)
        assert values.tolist() == [factor] * 3
