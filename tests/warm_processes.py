"""Processes that have torch when they start: forked from one that imported it, which takes longer
than what they run.

Tests that start ``ppsim`` as a process have those that users have, and so have tests of how
processes end.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.context import BaseContext
from types import SimpleNamespace
from typing import Any

LOADED = [
    "torch.distributed.pipelining",
    "pytest",
    "ppsim.cli",
    "ppsim.schedules",
    "ppsim.real.runs.tasks",
]


def warm_context() -> BaseContext:
    """The context whose processes come from a server with torch; the first of them starts it."""
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    return context


def get_warm_context(method: str) -> Any:
    """What ``ranks`` of :mod:`ppsim.real.calibration.processes` takes for a context that spawns."""
    context: Any = warm_context()

    def process(target: Callable[..., None], args: tuple[Any, ...], daemon: bool) -> Any:
        return context.Process(target=_begin, args=(dict(os.environ), target, *args), daemon=daemon)

    return SimpleNamespace(Pipe=context.Pipe, Process=process)


def start_warm(monkeypatch: Any) -> None:
    """Start the processes of runs and calibrations from one that has torch already."""
    context = SimpleNamespace(get_context=get_warm_context)
    monkeypatch.setattr("ppsim.real.calibration.processes.multiprocessing", context)


def _begin(environment: dict[str, str], enter: Callable[..., None], *args: Any) -> None:
    """Enter as a spawned process does: in the environment of who asked, with the server for a
    parent.
    """
    os.environ.clear()
    os.environ.update(environment)
    worker, rank, pipe, _, *rest = args
    enter(worker, rank, pipe, os.getppid(), *rest)
