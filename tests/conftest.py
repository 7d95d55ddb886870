"""Shared fixtures, hypothesis profiles and the two gears of the suite."""

import functools
import gc
import inspect
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal import reflection

# How long an example takes says something about the machine, not about the code.
# The same examples in each run: what fails by chance fails a change that has no part in it. To look
# for more: pytest --hypothesis-profile=hunt
settings.register_profile("ppsim", deadline=None, max_examples=50, derandomize=True)
settings.register_profile("fast", deadline=None, max_examples=3, derandomize=True)
settings.register_profile("hunt", deadline=None, max_examples=300)
settings.load_profile("ppsim")
# Examples follow from a digest of a property's source, which is read and parsed again for each
# schedule asked of it.
for home, name in ((inspect, "getsource"), (reflection, "_clean_source")):
    if hasattr(home, name):
        setattr(home, name, functools.cache(getattr(home, name)))

# What a terminal, a service that runs checks or a user has set must not change what commands print.
for name in (
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "PPSIM_DEBUG",
):
    os.environ.pop(name, None)

# Hundreds of processes import the same modules, and pytest rewrites each test: what is compiled
# once is kept.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Importing modules and collecting tests makes few circles.
gc.set_threshold(100_000)

# Small matrices: threads that wait for each other take many times the processor time of one, the
# more the fewer cores are free. Read as numpy and torch are loaded, here and in processes that
# tests start.
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"

# A job that a script started in the background ignores signals of the keyboard, and so would
# processes of tests.
for ignored, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGQUIT, signal.SIG_DFL),
):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        signal.signal(ignored, handler)
# Nor a closed terminal under nohup: processes started from here have a handler's default, and
# pytest goes on.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda number, frame: None)


# Two gears: ``pytest`` runs everything, ``pytest -m "not slow"`` what is quick enough for every
# save.

in_fast_test = False
folders = Counter[str]()  # how many of each name tests were given


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests run in another order, to find one that depends on what ran before it."""
    parser.addoption(
        "--shuffle", type=int, metavar="SEED", help="run the tests in the random order of this seed"
    )


@pytest.hookimpl(tryfirst=True)  # what is slow must be known when others are chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave some cases of large tests to the slow ones; run in the order that was asked for.

    Runs of real processes take long and wait for each other: first, or one of them would be the
    last to end.
    """
    seen = Counter[Any]()
    for item in items:
        if isinstance(item, pytest.Function) and (sampled := item.get_closest_marker("sampled")):
            if seen[item.function] % sampled.args[0]:
                item.add_marker("slow")
            seen[item.function] += 1
    items.sort(key=lambda item: item.get_closest_marker("torch") is None)
    if (seed := config.getoption("shuffle")) is not None:
        random.Random(seed).shuffle(items)
    # modules and tests stay: searching them again and again for circles takes a twentieth of the
    # fast gear
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples where only the fast tests are asked for, count lines for the check."""
    if "PPSIM_COVERAGE" in os.environ and (
        hasattr(config, "workerinput") or not config.getoption("numprocesses", 0)
    ):
        from tests.fast_coverage import FastCoverage

        config.pluginmanager.register(FastCoverage())
    if only_fast(config):
        settings.load_profile("fast")
        # compiling takes longer than all fast tests; CPython gives the same
        os.environ["NUMBA_DISABLE_JIT"] = "1"


def only_fast(config: pytest.Config) -> bool:
    """Whether the command line leaves out the slow tests."""
    return config.getoption("markexpr") == "not slow"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out modules that import torch, whose tests are all slow, where only the fast ones are
    asked for.
    """
    if collection_path.suffix != ".py" or not only_fast(config):
        return None
    text = collection_path.read_text()
    return (
        True
        if "\ntorch = pytest.importorskip" in text or "\nfrom tests.torch_worker" in text
        else None
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Report of a test that a process of ``pytest -n`` runs how it ended: no more is read, and each
    report costs.
    """
    plugins: Any = session.config.pluginmanager.get_plugins()
    worker = next((plugin for plugin in plugins if hasattr(plugin, "sendevent")), None)
    if worker and not session.config.getoption("durations"):
        tell = worker.sendevent

        def tell_what_counts(name: str, **said: Any) -> None:
            passed = name == "testreport" and said["data"]["outcome"] == "passed"
            if name not in ("logstart", "logfinish") and not (
                passed and said["data"]["when"] != "call"
            ):
                tell(name, **said)

        worker.sendevent = tell_what_counts


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process tests that stand together, for they share what is made once; who ends first
    takes others'.
    """
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tests of torch are slow: its import alone takes seconds. So is a browser, which may be
    missing.
    """
    browser = item.get_closest_marker("browser")
    if browser or item.get_closest_marker("torch"):
        item.add_marker("slow")
    if browser:
        from tests.browser import BROWSER  # not above: lines are counted from the first import on

        item.add_marker(
            pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome on the path")
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Tell the watch below which gear the running test is of, and leave schedules and process as
    they were.

    Schedules that a test loads are not there for others, nor where a command shows notes and
    progress, nor what a library sets for the whole process, such as Dask's limits of threads.
    Fixtures of every test would take longer.
    """
    from ppsim.base import notes

    # not above: lines are counted from the first import on
    from ppsim.schedules import _block, _load, registry

    global in_fast_test
    in_fast_test = item.get_closest_marker("slow") is None
    # as the system has it: to decode it for each test is a hundredth of the fast gear
    environment, path = os.environ._data.copy(), sys.path.copy()  # type: ignore[attr-defined]
    shown = dict(vars(notes.shown))
    import_schedules()
    tables = registry._families, registry._spellings
    registry._families, registry._spellings = tables[0].copy(), tables[1].copy()
    try:
        return (yield)
    finally:
        in_fast_test = False
        loaded = registry._families.keys() - tables[0].keys()
        registry._families, registry._spellings = tables
        vars(notes.shown).update(shown)
        if loaded:
            for loader in (_load._run, _load._adopt, _block.load_block):
                loader.cache_clear()
        if os.environ._data != environment:  # type: ignore[attr-defined]
            os.environ.clear()
            os.environ.update({os.fsdecode(k): os.fsdecode(v) for k, v in environment.items()})
        sys.path[:] = path


@functools.cache
def import_schedules() -> None:
    """Import all files of schedules, once, so that the tables of the registry hold them.

    Commands of many tests ask for the same small schedules: all are kept, not the last 128.
    """
    from ppsim.schedules import registry

    registry.families()
    registry._generate_cached = functools.cache(registry._generate)


def refuse_in_fast_tests(home: Any, name: str) -> None:
    """Fail a test that starts a process in this way and is not marked slow. An audit hook costs a
    hundredth more.
    """
    start = getattr(home, name)

    @functools.wraps(start)
    def watched(*given: Any, **named: Any) -> Any:
        if in_fast_test:
            pytest.fail(f"starts a process ({name}) and is not marked slow")
        return start(*given, **named)

    setattr(home, name, watched)


STARTS = [
    (subprocess.Popen, "__init__"),
    (BaseProcess, "start"),
    (os, "system"),
    (os, "fork"),
    (os, "posix_spawn"),
]
for start in STARTS:
    refuse_in_fast_tests(*start)


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test, named as pytest's, which looks at all others for a free number and
    links to the last.
    """
    name = re.sub(r"\W", "_", request.node.name)[:30]
    folder = tmp_path_factory.getbasetemp() / f"{name}{folders[name]}"
    folders[name] += 1
    folder.mkdir(0o700)
    return folder


@pytest.fixture
def warm_processes(monkeypatch):
    """Start the processes of a run from one that has torch already."""
    from tests.warm_processes import start_warm

    start_warm(monkeypatch)
