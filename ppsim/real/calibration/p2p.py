"""Times of messages between two torch.distributed processes, by size and pattern."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ppsim.inputs.profile.profile import Message
from ppsim.real.calibration.clock import spread

KIB, MIB = 1 << 10, 1 << 20
PAUSE_S = 0.0005  # seconds after which the other side is certainly waiting
Samples = dict[str, list[float]]


def sizes_up_to(largest: int) -> list[int]:
    """Return 1 KiB, 4 KiB, ... up to ``largest``, in bytes."""
    return [KIB << k for k in range(0, 40, 2) if KIB << k <= largest]


def repeats_of(size: int, repeats: int) -> int:
    """Return the repetitions for a size in bytes; larger messages take longer and spread less."""
    share = (
        1.0 if size <= 64 * KIB else 0.5 if size <= 4 * MIB else 0.2 if size <= 64 * MIB else 0.1
    )
    return max(3, round(repeats * share))


@dataclass(frozen=True)
class Side:
    """One of two processes that exchange messages."""

    first: bool  # whether this process sends first and the other one answers
    peer: int  # rank of the other process
    group: Any  # the process group of the two, None if there are no other processes
    link: str  # the link between the two, as a profile names it
    device: str  # device of the buffers, cpu or cuda
    rest: float = 0.0  # time to sleep after each repetition, as a share of the repetition

    def settle(self) -> None:
        """Wait until the device has finished all work."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for the other process."""
        from torch import distributed

        distributed.barrier(group=self.group)


def exchange(
    side: Side, sizes: Sequence[int], repeats: int, warm_up: int
) -> Iterator[list[Message]]:
    """Measure messages with the peer, which calls this too; yield the rows of each size.

    Both sides yield the same rows.
    """
    for size in sizes:
        mine = _measure_size(side, size, repeats_of(size, repeats) + warm_up)
        yield merge_samples(side, size, {name: times[warm_up:] for name, times in mine.items()})


def merge_samples(side: Side, size: int, mine: Samples) -> list[Message]:
    """Return the rows of one size from the samples of both sides, which are in ms."""
    from torch import distributed

    sides: list[Any] = [None, None]
    distributed.all_gather_object(sides, mine, group=side.group)
    both: Samples = {name: sides[0].get(name) or sides[1][name] for name in sides[0] | sides[1]}
    host = {
        name: spread(both.pop(name))["median_ms"] for name in ("send", "receive") if name in both
    }
    send, receive = host.get("send", 0.0), host.get("receive", 0.0)
    return [
        Message(side.link, pattern, size, send_ms=send, receive_ms=receive, **spread(times))
        for pattern, times in both.items()
    ]


def _measure_size(side: Side, size: int, count: int) -> Samples:
    """Return this side's samples in ms, by pattern and for the host's send and receive calls."""
    import torch

    outgoing = torch.randint(0, 256, (size,), dtype=torch.uint8, device=side.device)
    incoming = torch.empty_like(outgoing)
    samples: Samples = defaultdict(list)
    for _ in range(count):
        begin = time.monotonic()
        if side.link == "same-host":  # both processes share a clock
            _measure_waiting_receiver(side, outgoing, incoming, samples)
            _measure_waiting_sender(side, outgoing, incoming, samples)
        _measure_round_trip(side, outgoing, incoming, samples)
        _measure_both_ways(side, outgoing, incoming, samples)
        _measure_collectives(side, outgoing, samples)
        side.barrier()
        time.sleep(side.rest * (time.monotonic() - begin))
    return samples


def _measure_waiting_receiver(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Measure from the send call to the arrival, with a receiver that is already waiting."""
    import torch
    from torch import distributed

    stamp = torch.zeros(1, dtype=torch.int64)
    if side.first:
        distributed.recv(stamp, side.peer, group=side.group)
        time.sleep(PAUSE_S)
        begin = time.monotonic_ns()
        work = distributed.isend(outgoing, side.peer, group=side.group)
        samples["send"].append((time.monotonic_ns() - begin) * 1e-6)
        work.wait()
        side.settle()
        stamp.fill_(begin)
        distributed.send(stamp, side.peer, group=side.group)
    else:
        begin = time.monotonic_ns()
        work = distributed.irecv(incoming, side.peer, group=side.group)
        samples["receive"].append((time.monotonic_ns() - begin) * 1e-6)
        distributed.send(stamp, side.peer, group=side.group)
        work.wait()
        side.settle()
        end = time.monotonic_ns()
        distributed.recv(stamp, side.peer, group=side.group)
        samples["early"].append((end - int(stamp.item())) * 1e-6)


def _measure_waiting_sender(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Measure from the receive call to the arrival, with a sender that is already waiting."""
    import torch
    from torch import distributed

    stamp = torch.zeros(1, dtype=torch.int64)
    if side.first:
        work = distributed.isend(outgoing, side.peer, group=side.group)
        distributed.send(stamp, side.peer, group=side.group, tag=1)
        work.wait()
        side.settle()
    else:
        distributed.recv(stamp, side.peer, group=side.group, tag=1)
        time.sleep(PAUSE_S)
        with _time_block(side, samples, "late"):
            distributed.irecv(incoming, side.peer, group=side.group).wait()


def _measure_round_trip(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Measure half of a round trip, the one-way time of processes without a common clock."""
    from torch import distributed

    if side.first:
        with _time_block(side, samples, "ping-pong", share=0.5):
            distributed.send(outgoing, side.peer, group=side.group)
            distributed.recv(incoming, side.peer, group=side.group)
    else:
        distributed.recv(incoming, side.peer, group=side.group)
        distributed.send(outgoing, side.peer, group=side.group)


def _measure_both_ways(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Measure both directions at once, posted singly and as a batch."""
    from torch import distributed

    transfers = [(distributed.isend, outgoing), (distributed.irecv, incoming)]
    if not side.first:
        # nccl runs singly posted transfers between two ranks in order, so one rank must receive
        # first
        transfers.reverse()

    def singly() -> list[Any]:
        return [call(buffer, side.peer, group=side.group) for call, buffer in transfers]

    def batched() -> list[Any]:
        ops = [
            distributed.P2POp(call, buffer, side.peer, group=side.group)
            for call, buffer in transfers
        ]
        works: list[Any] = distributed.batch_isend_irecv(ops)
        return works

    posts: dict[str, Callable[[], list[Any]]] = {"bidirectional": singly, "batched": batched}
    for pattern, post in posts.items():
        side.barrier()
        with _time_block(side, samples, pattern):
            for work in post():
                work.wait()


def _measure_collectives(side: Side, outgoing: Any, samples: Samples) -> None:
    """Measure an all-reduce and an all-gather of both processes; ``outgoing`` is their input."""
    import torch
    from torch import distributed

    numbers = torch.ones(max(1, len(outgoing) // 4), device=outgoing.device)
    gathered = [torch.empty_like(outgoing) for _ in range(2)]
    side.barrier()
    with _time_block(side, samples, "all-reduce"):
        distributed.all_reduce(numbers, group=side.group)
    side.barrier()
    with _time_block(side, samples, "all-gather"):
        distributed.all_gather(gathered, outgoing, group=side.group)


@contextmanager
def _time_block(side: Side, samples: Samples, pattern: str, share: float = 1.0) -> Iterator[None]:
    """Add a share of the block's time in ms to the samples of a pattern."""
    begin = time.monotonic_ns()
    yield
    side.settle()
    samples[pattern].append((time.monotonic_ns() - begin) * share * 1e-6)
