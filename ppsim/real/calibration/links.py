"""Processes that exchange messages: two spawned here, or the ranks of torchrun; one GPU's own
copies.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from ppsim.base.priority import REST, real_time_priority
from ppsim.inputs.profile.profile import NOT_A_LINK, Message
from ppsim.real.calibration.clock import Tick, spread, stopwatch
from ppsim.real.calibration.p2p import Side, agree, exchange, repeats_of
from ppsim.real.calibration.processes import Say, ranks

BACKEND = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
TIMEOUT = timedelta(seconds=60)


def launched() -> tuple[int, int]:
    """Read the rank of this process and the number of processes, as torchrun set them; (0, 1)
    without torchrun.
    """
    world = os.environ.get("WORLD_SIZE", "1")
    rank = os.environ.get("RANK", "0")
    return (
        (int(rank), int(world)) if world.isdigit() and rank.isdigit() and int(world) > 1 else (0, 1)
    )


def measure_links(
    device: str,
    sizes: Sequence[int],
    *,
    repeats: int,
    warm_up: int,
    tick: Tick,
    real_time: bool = False,
) -> list[Message]:
    """Measure messages over every link from here: between the processes of torchrun, or between two
    of our own.

    Two processes on this machine use gloo, or nccl with a GPU each. With a single GPU there is no
    link to measure: instead, a copy within the device is measured and the way through host memory,
    and named so.

    With ``real_time`` the processes ask for real-time priority. Without it, a thread that a message
    wakes may wait for the end of another one's time slice, 3 ms and more, where the message takes a
    twentieth of that.

    Raises:
        PpsimError: a process failed, died or hung; all of them are gone then.
    """
    import torch

    rows: list[Message] = []

    def take(found: list[Message]) -> None:
        rows.extend(found)
        tick(f"{found[0].link}, {found[0].bytes} bytes")

    if launched()[1] > 1:
        for found in _measure_across(device, sizes, repeats, warm_up, real_time):
            take(found)
        return rows
    staged = device == "cuda" and torch.cuda.device_count() < 2
    if staged:
        rows += copies(sizes, repeats, warm_up)
    with ranks(_worker, 2, device, staged, tuple(sizes), repeats, warm_up, real_time) as messages:
        for _, found in messages:
            take(found)
    return rows


def _worker(
    rank: int,
    say: Say,
    meeting: str,
    device: str,
    staged: bool,
    sizes: tuple[int, ...],
    repeats: int,
    warm_up: int,
    real_time: bool,
) -> None:
    backend, by = ("gloo", "cpu") if staged else (BACKEND[device], device)
    with _group(real_time, rank, meeting, backend, by):
        side = Side(
            rank == 0,
            1 - rank,
            None,
            "host-staged" if staged else "same-host",
            device,
            REST * real_time,
        )
        for rows in (_exchange_staged if staged else exchange)(side, sizes, repeats, warm_up):
            if rank == 0:
                say(rows)


def _exchange_staged(
    side: Side, sizes: Sequence[int], repeats: int, warm_up: int
) -> Iterator[list[Message]]:
    """Measure as :func:`exchange`, through host memory."""
    for size in sizes:
        times = [_staged_round_trip(side, size) for _ in range(repeats_of(size, repeats) + warm_up)]
        yield agree(side, size, {"ping-pong": times[warm_up:]})


def _staged_round_trip(side: Side, size: int) -> float:
    """Time half of a round trip in ms: device to host, to the other process, host to device, and
    back.
    """
    import time

    import torch
    from torch import distributed

    on_device = torch.randint(0, 256, (size,), dtype=torch.uint8, device=side.device)
    on_host = torch.empty(size, dtype=torch.uint8, pin_memory=side.device == "cuda")

    def there() -> None:
        on_host.copy_(on_device)
        distributed.send(on_host, side.peer)

    def back() -> None:
        distributed.recv(on_host, side.peer)
        on_device.copy_(on_host)
        side.settle()

    side.settle()
    side.barrier()
    begin = time.monotonic_ns()
    for turn in (there, back) if side.first else (back, there):
        turn()
    return (time.monotonic_ns() - begin) * 0.5e-6


def copies(sizes: Sequence[int], repeats: int, warm_up: int) -> Iterator[Message]:
    """Copies within the one GPU: a lower bound for anything, and no link."""
    import torch

    watch = stopwatch("cuda")
    for size in sizes:
        source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        copy = partial(target.copy_, source)
        times = [watch(copy, True).ms for _ in range(repeats_of(size, repeats) + warm_up)]
        yield Message(NOT_A_LINK, "early", size, **spread(times[warm_up:]))


def _measure_across(
    device: str, sizes: Sequence[int], repeats: int, warm_up: int, real_time: bool
) -> Iterator[list[Message]]:
    """Measure between process 0 and its first neighbour of each class; the others wait. Only
    process 0 yields rows.
    """
    from torch import distributed

    rank, world = launched()
    with _group(real_time, rank, "env://", BACKEND[device], device, world):
        hosts: list[Any] = [None] * world
        distributed.all_gather_object(hosts, socket.gethostname())
        classes: dict[str, int] = {}
        for peer in range(1, world):
            classes.setdefault("same-host" if hosts[peer] == hosts[0] else "between-hosts", peer)
        for link, peer in classes.items():
            group = distributed.new_group([0, peer])
            if rank in (0, peer):
                side = Side(
                    rank == 0, peer if rank == 0 else 0, group, link, device, REST * real_time
                )
                for rows in exchange(side, sizes, repeats, warm_up):
                    if rank == 0:
                        yield rows
            distributed.barrier()


@contextmanager
def _group(
    real_time: bool, rank: int, meeting: str, backend: str, device: str, world: int = 2
) -> Iterator[None]:
    """Join a group of processes for the block, at real-time priority if wanted."""
    import torch
    from torch import distributed

    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    else:
        torch.set_num_threads(1)
    if meeting != "env://":
        use_loopback()
    with real_time_priority(real_time) as pace:
        pace(True)
        distributed.init_process_group(
            backend, init_method=meeting, rank=rank, world_size=world, timeout=TIMEOUT
        )
        yield
        distributed.destroy_process_group()


def use_loopback() -> None:
    """Keep gloo on the loopback interface, whatever the machine's name resolves to and the
    environment asks for.
    """
    names = {name for _, name in socket.if_nameindex()}
    for name in ("lo", "lo0"):
        if name in names:
            os.environ["GLOO_SOCKET_IFNAME"] = name
