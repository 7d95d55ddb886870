"""Measurement of messages between two processes of this machine, or between ranks of torchrun."""

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
from ppsim.real.calibration.p2p import Side, exchange, merge_samples, repeats_of
from ppsim.real.calibration.processes import Send, ranks

BACKEND = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
TIMEOUT = timedelta(seconds=60)


def launched() -> tuple[int, int]:
    """Return torchrun's rank of this process and its number of ranks; (0, 1) without torchrun."""
    world = os.environ.get("WORLD_SIZE", "1")
    rank = os.environ.get("RANK", "0")
    if world.isdigit() and rank.isdigit() and int(world) > 1:
        return int(rank), int(world)
    return 0, 1


def measure_links(
    device: str,
    sizes: Sequence[int],
    *,
    repeats: int,
    warm_up: int,
    tick: Tick,
    real_time: bool = False,
) -> list[Message]:
    """Measure messages over each kind of link between ranks of torchrun, or within this machine.

    Without torchrun two new processes use gloo, or nccl with a GPU each. A single GPU has no link:
    copies within the GPU, and messages staged in host memory, are measured instead, under their own
    names.

    With ``real_time`` the processes ask for real-time priority. Without it, a thread that a message
    wakes may wait for another thread's time slice of 3 ms or more, 20 times as long as the message
    takes.

    Raises:
        PpsimError: a process failed, died or hung. All of the processes have ended then.
    """
    import torch

    rows: list[Message] = []

    def add_rows(found: list[Message]) -> None:
        rows.extend(found)
        tick(f"{found[0].link}, {found[0].bytes} bytes")

    if launched()[1] > 1:
        for found in _measure_across(device, sizes, repeats, warm_up, real_time):
            add_rows(found)
        return rows
    staged = device == "cuda" and torch.cuda.device_count() < 2
    if staged:
        rows += copies(sizes, repeats, warm_up)
    with ranks(_worker, 2, device, staged, tuple(sizes), repeats, warm_up, real_time) as messages:
        for _, found in messages:
            add_rows(found)
    return rows


def _worker(
    rank: int,
    send: Send,
    meeting: str,
    device: str,
    staged: bool,
    sizes: tuple[int, ...],
    repeats: int,
    warm_up: int,
    real_time: bool,
) -> None:
    """Measure messages with the other worker; rank 0 sends the rows to the parent."""
    backend, buffers_on = ("gloo", "cpu") if staged else (BACKEND[device], device)
    with _process_group(real_time, rank, meeting, backend, buffers_on):
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
                send(rows)


def _exchange_staged(
    side: Side, sizes: Sequence[int], repeats: int, warm_up: int
) -> Iterator[list[Message]]:
    """Yield the rows of each size, as :func:`exchange`, for messages staged in host memory."""
    for size in sizes:
        times = [_staged_round_trip(side, size) for _ in range(repeats_of(size, repeats) + warm_up)]
        yield merge_samples(side, size, {"ping-pong": times[warm_up:]})


def _staged_round_trip(side: Side, size: int) -> float:
    """Return half the time in ms of a round trip from device to device through host memory."""
    import time

    import torch
    from torch import distributed

    on_device = torch.randint(0, 256, (size,), dtype=torch.uint8, device=side.device)
    on_host = torch.empty(size, dtype=torch.uint8, pin_memory=side.device == "cuda")

    def send() -> None:
        on_host.copy_(on_device)
        distributed.send(on_host, side.peer)

    def receive() -> None:
        distributed.recv(on_host, side.peer)
        on_device.copy_(on_host)
        side.settle()

    side.settle()
    side.barrier()
    begin = time.monotonic_ns()
    for half in (send, receive) if side.first else (receive, send):
        half()
    return (time.monotonic_ns() - begin) * 0.5e-6


def copies(sizes: Sequence[int], repeats: int, warm_up: int) -> Iterator[Message]:
    """Yield the times of copies within one GPU: a lower bound for messages, not a link."""
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
    """Measure between rank 0 and the first other rank on its host, and the first on another host.

    The other ranks wait. Only rank 0 yields rows.
    """
    from torch import distributed

    rank, world = launched()
    with _process_group(real_time, rank, "env://", BACKEND[device], device, world):
        hosts: list[Any] = [None] * world
        distributed.all_gather_object(hosts, socket.gethostname())
        peer_of_link: dict[str, int] = {}
        for peer in range(1, world):
            link = "same-host" if hosts[peer] == hosts[0] else "between-hosts"
            peer_of_link.setdefault(link, peer)
        for link, peer in peer_of_link.items():
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
def _process_group(
    real_time: bool, rank: int, meeting: str, backend: str, device: str, world: int = 2
) -> Iterator[None]:
    """Join torch's process group for the block, at real-time priority if ``real_time``."""
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
    """Make gloo use the loopback interface, whatever the host's name and the environment say."""
    names = {name for _, name in socket.if_nameindex()}
    for name in ("lo", "lo0"):
        if name in names:
            os.environ["GLOO_SOCKET_IFNAME"] = name
