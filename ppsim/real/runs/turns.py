"""Run schedules in turns on real processes: one per device, from a common start, ended with their
parent.

Schedules take turns within each repetition, so that a drift of the machine reaches all of them
alike.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.priority import REST, real_time_priority
from ppsim.base.signals import resume
from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.errors import PpsimError
from ppsim.inputs.profile.profile import Workload
from ppsim.real.calibration.links import BACKEND, use_loopback
from ppsim.real.calibration.processes import START_S, ranks
from ppsim.real.calibration.user_module import UserModule
from ppsim.real.runs.record import Measured
from ppsim.real.runs.streams import Clock, clock

LEAD_S = 0.02
MALLOC_TRIM, MALLOC_MMAP, KEEP_BYTES = -1, -3, 1 << 30
Tick = Callable[[str], None]
# op, posted, start, end, issued, in ns from the common start
EntryTimes = list[tuple[int, int, int, int, int]]
# of a device: its times, and when its sends had completed
Turns = dict[int, tuple[EntryTimes, int]]
Turn = Callable[[int], Turns]  # runs the queues of this process's devices from a common start


@dataclass(frozen=True)
class RunPlan:
    """One schedule to run: its queues and the intended costs of its ops, in ms."""

    name: str
    lowered: Lowered
    costs: Costs


@dataclass(frozen=True)
class Settings:
    """Settings of a session."""

    repeats: int = 5  # measured repetitions of every schedule
    warm_up: int = 1  # repetitions before those, not kept
    message_bytes: int = 65536  # size of every message of timed ops
    real_time: bool = False  # ask the system for real-time priority while a schedule runs
    # a transformer whose stages compute for real; None for ops that sleep
    model: Workload | UserModule | None = None
    limit_s: float = 60.0  # how long all processes may be silent
    device: str = "cpu"  # where the stages compute, cpu or cuda


def intended_times(plan: RunPlan) -> NDArray[np.float64]:
    """Compute the intended time of each entry of the queues, 0 for entries that do not compute;
    shape (entries,), ms.
    """
    times = np.zeros(len(plan.lowered.schedule))
    times[plan.lowered.compute_ops] = plan.costs.durations(plan.lowered.compute)
    return times


def collect(
    plans: Sequence[RunPlan],
    settings: Settings,
    tick: Tick,
    worker: Callable[..., None],
    *work: Any,
    processes: int | None = None,
) -> tuple[list[Measured], str]:
    """Run a worker in ``processes``, one per device by default, and gather the times of every
    repetition.

    Returns the measurements, and why they are fewer than asked for, empty when they are not.
    Repetitions that all processes completed are kept when one fails later, or the user interrupts.

    Raises:
        PpsimError: a process died, hung or failed before one repetition was complete.
    """
    devices = plans[0].lowered.schedule.n_devices
    got: dict[tuple[int, int], dict[int, Any]] = {}
    failure: BaseException | None = None
    try:
        with ranks(
            worker, processes or devices, settings, devices, *work, limit_s=settings.limit_s
        ) as messages:
            for rank, (repetition, number, found) in messages:
                got.setdefault((repetition, number), {}).update(found)
                if rank == 0:
                    tick(f"{plans[number].name} {repetition + 1}")
    except (PpsimError, KeyboardInterrupt) as error:
        failure = error
        resume()
    wanted = range(settings.warm_up, settings.warm_up + settings.repeats)
    kept = [r for r in wanted if _complete(got, r, plans, devices)]
    if not kept:
        raise failure or PpsimError(
            "no repetition was completed", "fewer devices or a smaller model"
        )
    apart = settings.device != "cpu"
    runs = [_gather(plan, number, kept, got, devices, apart) for number, plan in enumerate(plans)]
    return runs, "" if failure is None else str(failure) or "interrupted"


def _complete(
    got: dict[tuple[int, int], dict[int, Any]],
    repetition: int,
    plans: Sequence[RunPlan],
    devices: int,
) -> bool:
    return all(len(got.get((repetition, number), {})) == devices for number in range(len(plans)))


def _gather(
    plan: RunPlan,
    number: int,
    kept: list[int],
    got: dict[tuple[int, int], dict[int, Any]],
    devices: int,
    apart: bool,
) -> Measured:
    """Spread rows of entries over the ops of the queues, both ops of a pair alike; ns to ms.

    ``apart``: whether the host issues ops that another device carries out.
    """
    schedule = plan.lowered.schedule
    times = np.zeros((4, len(kept), len(schedule)))
    finished = np.zeros((len(kept), devices))
    for row, repetition in enumerate(kept):
        for device, (entries, end) in got[repetition, number].items():
            values = np.array(entries, np.float64).reshape(-1, 5) / 1e6
            ops = np.array([entry[0] for entry in entries], np.int64)
            times[:, row, ops] = values[:, 1:].T
            finished[row, device] = end / 1e6
    times[:, :, schedule.second_of_pairs] = times[:, :, schedule.first_of_pairs]
    posted, start, end, issued = times
    return Measured(
        plan.name, plan.lowered, plan.costs, posted, start, end, finished, issued if apart else None
    )


def take_turns(
    prepare: Callable[..., list[Turn]],
    rank: int,
    say: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    *work: Any,
) -> None:
    """Be the worker of one device: join the others, ``prepare`` the turns, run them from common
    starts, and report.

    ``prepare`` takes the device, the settings, the clock and the work, and returns a turn for each
    plan.
    """
    from torch import distributed

    join(rank, meeting, settings, devices)
    watch = clock(settings.device)
    turns = prepare(rank, settings, watch, *work)
    repeat(say, settings, turns, watch, partial(_agree_on_start, distributed, rank))
    distributed.barrier()
    distributed.destroy_process_group()


def repeat(
    say: Callable[[Any], None],
    settings: Settings,
    turns: Sequence[Turn],
    watch: Clock,
    start: Callable[[], int],
) -> None:
    """Run the turns round-robin, each from the moment that ``start`` returns, and report."""
    gc.freeze()
    gc.disable()  # a collection would count in some op's time
    with real_time_priority(settings.real_time) as pace:
        for repetition in range(settings.warm_up + settings.repeats):
            for number, turn in enumerate(turns):
                watch.sync()
                begin = start()
                pace(True)
                while (ahead := begin - time.monotonic_ns()) > 0:
                    time.sleep(ahead / 1e9)
                result = turn(begin)
                pace(False)
                if settings.real_time:
                    time.sleep(REST * (time.monotonic_ns() - begin) / 1e9)
                gc.collect()
                say((repetition, number, result))


def join(rank: int, meeting: str, settings: Settings, devices: int) -> None:
    """Join a group of ``devices`` processes, with timers that fire on time and one thread or
    GPU.
    """
    import torch
    from torch import distributed

    use_loopback()
    if settings.device == "cuda":
        torch.cuda.set_device(rank)
    make_punctual()
    # the parent, which ends all processes, must notice first
    limit = timedelta(seconds=max(settings.limit_s, START_S))
    backend = BACKEND[settings.device]
    distributed.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=devices, timeout=limit
    )


def make_punctual() -> None:
    """Compute with one thread, have timers fire on time, and keep memory that was freed."""
    import torch

    torch.set_num_threads(1)
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        system.prctl(29, 1000, 0, 0, 0)  # timers fire within 1 us instead of 50
        # freed memory stays, or ops that follow many others would fault pages in again
        if hasattr(system, "mallopt"):
            system.mallopt(MALLOC_TRIM, KEEP_BYTES)
            system.mallopt(MALLOC_MMAP, KEEP_BYTES)


def _agree_on_start(distributed: Any, rank: int) -> int:
    """Agree on a moment shortly after now at which all processes start, on the host's system-wide
    clock, in ns.
    """
    import torch

    distributed.barrier()
    moment = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        moment.fill_(next_start())
    distributed.broadcast(moment, 0)
    return int(moment.item())


def next_start() -> int:
    """Return a moment shortly after now, in ns."""
    return time.monotonic_ns() + int(LEAD_S * 1e9)
