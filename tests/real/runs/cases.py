"""Plans to run for real, profiles for them, and what holds of every run."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.lowering.lower import lower
from ppsim.engine.lowering.matching import match_messages
from ppsim.inputs.profile.profile import Message, OpTime, Profile, Provenance, Workload, write
from ppsim.real.runs.record import Measured
from ppsim.real.runs.turns import RunPlan
from ppsim.schedules import generate
from tests.clock import HANG_S

MODEL = Workload(
    hidden=16, heads=2, sequence=8, microbatch_size=2, layers=2, dtype="float64", vocab=32
)
SHAPE: dict[str, Any] = {
    "hidden": 16,
    "heads": 2,
    "sequence": 8,
    "microbatch_size": 2,
    "layers": 2,
    "vocab": 32,
}


def plan_of(name: str, devices: int = 2, microbatches: int = 4, queues: Any = lower) -> RunPlan:
    """A schedule to run; where it is run without computing, a device's ops take 6 ms each."""
    schedule = generate(name, devices=devices, microbatches=microbatches)
    return RunPlan(name, queues(schedule), costs_for(schedule, tf=6, ti=6, tw=6, unit="ms"))


def quiet(done: float, what: str) -> None:
    """No progress."""


def run_with(ended_after_issue: float) -> Measured:
    """1F1B with ops of 10 ms one behind the other, each of whose ends is issued so many ms before
    it.
    """
    plan = plan_of("1f1b")
    n = len(plan.lowered.schedule)
    start = np.arange(n, dtype=float)[None, :] * 10
    end = start + np.where(plan.lowered.schedule.kind <= Kind.W, 10.0, 0.0)
    device_end = np.repeat(end.max(axis=1, keepdims=True), 2, axis=1)
    return Measured(
        "1f1b", plan.lowered, plan.costs, start, start, end, device_end, end - ended_after_issue
    )


def assert_causal(run: Measured, slack: float = 0.0) -> None:
    """Every device follows its queue, and no op begins before its input was made and sent."""
    schedule, matching = run.lowered.schedule, match_messages(run.lowered)
    assert (run.start >= run.posted).all()
    assert (run.end >= run.start).all()
    for device in range(schedule.n_devices):
        queue = np.arange(len(schedule))[schedule.queue(device)]
        firsts = queue[(schedule.pair[queue] == NONE) | (schedule.pair[queue] > queue)]
        for before, after in pairwise(firsts):
            assert (run.posted[:, after] >= run.end[:, before] - slack).all()
    assert (matching.consumer != NONE).all()
    assert (run.start[:, matching.consumer] >= run.posted[:, matching.send] - slack).all()
    assert (run.posted[:, matching.send] >= run.end[:, matching.producer] - slack).all()


def reference(schedule, device="cpu") -> dict[int, list[np.ndarray]]:
    """Gradients of the whole model in one process, by plain autograd."""
    import torch

    from ppsim.real.runs import tasks

    modules = [tasks.module_of(MODEL, schedule, s, device) for s in range(schedule.n_stages)]
    for m in range(schedule.n_microbatches):
        x, target = tasks.batch(MODEL, m, device)
        tasks.loss(torch.nn.Sequential(*modules)(x), target).backward()
    return {
        s: [p.grad.cpu().numpy() for p in module.parameters()] for s, module in enumerate(modules)
    }


def write_profile(path: Path, model: Workload = MODEL) -> str:
    """Write a profile of small made-up times, and return its path."""
    made = Provenance(
        "m", "c", 2, 1, 0.0, "cpu", "unknown", "2.13", "3.11", "1", "2026-01-01T00:00:00+00:00", "x"
    )
    ops = tuple(OpTime("layers", kind, 1, 1.0, 1.0, 1.0, 3) for kind in "FBIW")
    message = Message("same-host", "early", 65536, 0.2, 0.1, 0.3, 5)
    write(Profile(made, model, ops, (message,)), str(path))
    return str(path)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                if parent == pid and "resource_tracker" not in (entry / "cmdline").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for(happened: Callable[[], bool], what: str, limit_s: float = HANG_S) -> None:
    """Wait until something has happened.

    Raises:
        TimeoutError: the limit, which only a hang reaches, has passed.
    """
    for _ in range(round(20 * limit_s)):
        if happened():
            return
        time.sleep(0.05)
    raise TimeoutError(f"{what}: not within {limit_s} s")


def wait_for_children(process: subprocess.Popen[Any], count: int) -> list[int]:
    """Wait until a process has started so many, and return them."""
    wait_for(
        lambda: len(children_of(process.pid)) >= count or process.poll() is not None,
        "started processes",
    )
    assert process.poll() is None
    return children_of(process.pid)


def wait_for_end(pids: list[int]) -> None:
    """Wait until none of the processes runs."""
    wait_for(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids),
        f"the end of processes {pids}",
    )


@contextmanager
def ended_within(limit_s: int, what: str) -> Iterator[None]:
    """Interrupt a block that hangs.

    Raises:
        TimeoutError: the limit, which only a hang reaches, has passed.
    """

    def interrupt(*_: Any) -> None:
        raise TimeoutError(f"{what}: not within {limit_s} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(limit_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
