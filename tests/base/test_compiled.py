"""Compiled kernels run whatever state the folder for compiled code is in."""

import importlib
from pathlib import Path

import numba
import numpy as np
import pytest

from ppsim.base import compiled
from ppsim.base.compiled import call
from ppsim.core.costs import costs_for
from ppsim.lowering.lower import lower
from ppsim.network.execute import execute
from ppsim.network.spec import Network
from ppsim.schedules import generate
from ppsim.simulation.longest_path import simulate

pytestmark = pytest.mark.slow


def double(values):
    for i in range(len(values)):
        values[i] *= 2.0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder for compiled code."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
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
    assert sum(compiled._loaded[double].stats.cache_hits.values()) == 1  # type: ignore[attr-defined]


def test_compiled_code_is_kept_in_the_users_cache_folder(tmp_path, monkeypatch):
    """Beside the sources nothing is left when ppsim is uninstalled; other code of the process keeps its own folder."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = compiled._keep_on_disk(double)
    assert Path(kept.stats.cache_path).is_relative_to(compiled.cache_folder())
    assert numba.config.CACHE_DIR == ""


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
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(blocked / "below"))
    assert doubled() == [0, 2, 4]


def test_arguments_may_change_type(folder):
    """A later call with other types compiles for them."""
    doubled()
    values = np.arange(3, dtype=np.float32)
    call(double, values)
    assert values.tolist() == [0, 2, 4]


def test_kernels_give_the_same_where_numba_is_told_not_to_compile(monkeypatch):
    """``NUMBA_DISABLE_JIT=1`` and more ops than CPython would take by itself."""
    schedule = generate("interleaved", devices=4, microbatches=8)
    costs, network = costs_for(schedule, comm=0.25), Network("overlap", alpha=0.25, beta=8.0, message=1.0)

    def run():
        return simulate(schedule, costs).end.tolist(), execute(lower(schedule), costs, network).timeline.end.tolist()

    expected = run()
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    monkeypatch.setattr(compiled, "_loaded", {})
    monkeypatch.setattr(compiled, "COMPILE_NETWORK_ABOVE", 0)
    monkeypatch.setattr(importlib.import_module("ppsim.simulation.longest_path"), "COMPILE_SIMULATION_ABOVE", 0)
    compiled.can_compile.cache_clear()
    try:
        assert run() == expected
    finally:
        compiled.can_compile.cache_clear()


FACTOR = 2.0


def scale(values):
    for i in range(len(values)):
        values[i] *= FACTOR


def test_a_constant_that_changes_in_another_file_is_compiled_again(folder, monkeypatch):
    """The kernel's own file is as it was, and code kept from before would run with the old constant."""
    for factor in (2.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        compiled._loaded.clear()
        values = np.ones(3)
        call(scale, values)
        assert values.tolist() == [factor] * 3
