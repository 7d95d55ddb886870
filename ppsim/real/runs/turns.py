"""Repeated real runs of several schedules: processes with a common start, and their times.

All schedules run once in each repetition, so that a drift of the machine affects all equally.
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

LEAD_S = 0.02  # seconds from the agreement on a start to the start
MALLOC_TRIM, MALLOC_MMAP, KEEP_BYTES = -1, -3, 1 << 30
Tick = Callable[[str], None]
# (op, posted, start, end, issued) of each entry, in ns from the common start
EntryTimes = list[tuple[int, int, int, int, int]]
# by device: times of its entries, and the end of its sends, in ns from the common start
Turns = dict[int, tuple[EntryTimes, int]]
Turn = Callable[[int], Turns]  # runs the queues of this process once, from a common start


@dataclass(frozen=True)
class RunPlan:
    """One schedule to run: its queues and the intended costs of its ops, in ms."""

    name: str
    lowered: Lowered
    costs: Costs


@dataclass(frozen=True)
class Settings:
    """Settings of a session."""

    repeats: int = 5  # measured repetitions of each schedule
    warm_up: int = 1  # repetitions before the measured ones, discarded
    message_bytes: int = 65536  # bytes of a message of timed ops
    real_time: bool = False  # whether to ask for real-time priority while a schedule runs
    model: Workload | UserModule | None = None  # the model to compute; None: ops sleep
    limit_s: float = 60.0  # seconds without a message after which processes are ended
    device: str = "cpu"  # device on which stages compute, cpu or cuda


def intended_times(plan: RunPlan) -> NDArray[np.float64]:
    """Return the intended ms of each entry, shape (entries,); 0 for entries other than compute."""
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
    """Run workers, and collect the times of all repetitions.

    If a process fails or the user interrupts, the repetitions that all processes completed count.

    Args:
        plans: the schedules.
        settings: the settings.
        tick: called with the schedule and the repetition that process 0 completed.
        worker: the function that each process runs.
        work: further arguments of the worker.
        processes: number of processes; None: one per device.

    Returns:
        The times of each plan, and the reason why there are fewer repetitions than requested, or
            ''.

    Raises:
        PpsimError: a process died, hung or failed before one repetition was complete.
    """
    devices = plans[0].lowered.schedule.n_devices
    received: dict[tuple[int, int], dict[int, Any]] = {}
    failure: BaseException | None = None
    try:
        with ranks(
            worker, processes or devices, settings, devices, *work, limit_s=settings.limit_s
        ) as messages:
            for rank, (repetition, number, found) in messages:
                received.setdefault((repetition, number), {}).update(found)
                if rank == 0:
                    tick(f"{plans[number].name} {repetition + 1}")
    except (PpsimError, KeyboardInterrupt) as error:
        failure = error
        resume()
    wanted = range(settings.warm_up, settings.warm_up + settings.repeats)
    kept = [r for r in wanted if _is_complete(received, r, plans, devices)]
    if not kept:
        raise failure or PpsimError(
            "no repetition was completed", "fewer devices or a smaller model"
        )
    on_gpu = settings.device != "cpu"
    runs = [
        _measured(plan, number, kept, received, devices, on_gpu)
        for number, plan in enumerate(plans)
    ]
    return runs, "" if failure is None else str(failure) or "interrupted"


def _is_complete(
    received: dict[tuple[int, int], dict[int, Any]],
    repetition: int,
    plans: Sequence[RunPlan],
    devices: int,
) -> bool:
    """Return whether all devices have sent their times of all plans for a repetition."""
    return all(
        len(received.get((repetition, number), {})) == devices for number in range(len(plans))
    )


def _measured(
    plan: RunPlan,
    number: int,
    kept: list[int],
    received: dict[tuple[int, int], dict[int, Any]],
    devices: int,
    on_gpu: bool,
) -> Measured:
    """Return the times of a plan by the entries of its queues, in ms.

    Both ops of a pair get the times of the pair. Only a GPU has times of issue.

    Args:
        plan: the plan.
        number: its number.
        kept: the repetitions.
        received: times by (repetition, plan) and device, in ns.
        devices: number of devices.
        on_gpu: whether ops run on a GPU.
    """
    schedule = plan.lowered.schedule
    times = np.zeros((4, len(kept), len(schedule)))
    finished = np.zeros((len(kept), devices))
    for row, repetition in enumerate(kept):
        for device, (entries, end) in received[repetition, number].items():
            values = np.array(entries, np.float64).reshape(-1, 5) / 1e6
            ops = np.array([entry[0] for entry in entries], np.int64)
            times[:, row, ops] = values[:, 1:].T
            finished[row, device] = end / 1e6
    times[:, :, schedule.second_of_pairs] = times[:, :, schedule.first_of_pairs]
    posted, start, end, issued = times
    return Measured(
        plan.name,
        plan.lowered,
        plan.costs,
        posted,
        start,
        end,
        finished,
        issued if on_gpu else None,
    )


def take_turns(
    prepare: Callable[..., list[Turn]],
    rank: int,
    send: Callable[[Any], None],
    meeting: str,
    settings: Settings,
    devices: int,
    *work: Any,
) -> None:
    """Run as the worker of one device: join the process group, and repeat all turns.

    ``prepare(rank, settings, clock, *work)`` returns a turn for each plan.
    """
    from torch import distributed

    join(rank, meeting, settings, devices)
    watch = clock(settings.device)
    turns = prepare(rank, settings, watch, *work)
    repeat(send, settings, turns, watch, partial(_common_start, distributed, rank))
    distributed.barrier()
    distributed.destroy_process_group()


def repeat(
    send: Callable[[Any], None],
    settings: Settings,
    turns: Sequence[Turn],
    watch: Clock,
    start: Callable[[], int],
) -> None:
    """Run all turns in each repetition, and send (repetition, plan, times) to the parent.

    A turn starts at the moment that ``start`` returns, in ns.
    """
    gc.freeze()
    gc.disable()  # a garbage collection would count in the time of an op
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
                send((repetition, number, result))


def join(rank: int, meeting: str, settings: Settings, devices: int) -> None:
    """Join torch's process group of ``devices`` processes, and set up this process's device."""
    import torch
    from torch import distributed

    use_loopback()
    if settings.device == "cuda":
        torch.cuda.set_device(rank)
    make_punctual()
    # longer than the parent's limit, so that the parent notices first and ends all processes
    limit = timedelta(seconds=max(settings.limit_s, START_S))
    backend = BACKEND[settings.device]
    distributed.init_process_group(
        backend, init_method=meeting, rank=rank, world_size=devices, timeout=limit
    )


def make_punctual() -> None:
    """Make this process compute with one thread, wake up on time, and keep freed memory."""
    import torch

    torch.set_num_threads(1)
    if sys.platform == "linux":
        system = ctypes.CDLL(None)
        system.prctl(29, 1000, 0, 0, 0)  # timers fire within 1 us instead of 50
        # returned memory would have to be faulted in again by later ops
        if hasattr(system, "mallopt"):
            system.mallopt(MALLOC_TRIM, KEEP_BYTES)
            system.mallopt(MALLOC_MMAP, KEEP_BYTES)


def _common_start(distributed: Any, rank: int) -> int:
    """Return the moment at which all processes start, in ns on the host's monotonic clock."""
    import torch

    distributed.barrier()
    moment = torch.zeros(1, dtype=torch.int64)
    if rank == 0:
        moment.fill_(next_start())
    distributed.broadcast(moment, 0)
    return int(moment.item())


def next_start() -> int:
    """Return a moment in the near future, in ns on the host's monotonic clock."""
    return time.monotonic_ns() + int(LEAD_S * 1e9)
