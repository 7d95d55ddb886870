"""Messages between two real torch.distributed processes, by size, direction and who comes first."""

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
PAUSE_S = 0.0005  # long enough for the other side to be waiting
Samples = dict[str, list[float]]


def sizes_up_to(largest: int) -> list[int]:
    """1 KiB, 4 KiB, ... up to ``largest``."""
    return [KIB << k for k in range(0, 40, 2) if KIB << k <= largest]


def repeats_of(size: int, repeats: int) -> int:
    """Fewer repetitions of larger messages: they take longer and spread less."""
    share = (
        1.0 if size <= 64 * KIB else 0.5 if size <= 4 * MIB else 0.2 if size <= 64 * MIB else 0.1
    )
    return max(3, round(repeats * share))


@dataclass(frozen=True)
class Side:
    """One of two processes that exchange messages."""

    first: bool  # whether this one sends first; the other one answers
    peer: int  # the other one's rank
    group: Any  # the process group of the two, None where there are no others
    link: str  # the link between them, as a profile names it
    device: str  # where the buffers are, cpu or cuda
    rest: float = 0.0  # share of each repetition's time that is then left to other processes

    def settle(self) -> None:
        """Wait until the device has done all work given to it."""
        if self.device == "cuda":
            import torch

            torch.cuda.synchronize()

    def barrier(self) -> None:
        """Wait for the other one."""
        from torch import distributed

        distributed.barrier(group=self.group)


def exchange(
    side: Side, sizes: Sequence[int], repeats: int, warm_up: int
) -> Iterator[list[Message]]:
    """Measure with the peer, which does the same; the rows of each size, the same on both sides."""
    for size in sizes:
        mine = _one_size(side, size, repeats_of(size, repeats) + warm_up)
        yield agree(side, size, {name: times[warm_up:] for name, times in mine.items()})


def agree(side: Side, size: int, mine: Samples) -> list[Message]:
    """Rows of one size from the samples of both sides, in ms."""
    from torch import distributed

    theirs: list[Any] = [None, None]
    distributed.all_gather_object(theirs, mine, group=side.group)
    both: Samples = {name: theirs[0].get(name) or theirs[1][name] for name in theirs[0] | theirs[1]}
    host = {
        name: spread(both.pop(name))["median_ms"] for name in ("send", "receive") if name in both
    }
    send, receive = host.get("send", 0.0), host.get("receive", 0.0)
    return [
        Message(side.link, pattern, size, send_ms=send, receive_ms=receive, **spread(times))
        for pattern, times in both.items()
    ]


def _one_size(side: Side, size: int, count: int) -> Samples:
    """Samples in ms by pattern, and of the host's send and receive calls, as this side saw them."""
    import torch

    outgoing = torch.randint(0, 256, (size,), dtype=torch.uint8, device=side.device)
    incoming = torch.empty_like(outgoing)
    samples: Samples = defaultdict(list)
    for _ in range(count):
        begin = time.monotonic()
        if side.link == "same-host":  # the two share a clock
            _measure_waiting_receiver(side, outgoing, incoming, samples)
            _measure_waiting_sender(side, outgoing, incoming, samples)
        _round_trip(side, outgoing, incoming, samples)
        _both_ways(side, outgoing, incoming, samples)
        _collectives(side, outgoing, samples)
        side.barrier()
        time.sleep(side.rest * (time.monotonic() - begin))
    return samples


def _measure_waiting_receiver(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """The receiver waits already: from the send call to the arrival."""
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
    """The sender waits already: from the receive call to the arrival."""
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


def _round_trip(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Half of there and back: the one-way time where the two have no clock in common."""
    from torch import distributed

    if side.first:
        with _time_block(side, samples, "ping-pong", share=0.5):
            distributed.send(outgoing, side.peer, group=side.group)
            distributed.recv(incoming, side.peer, group=side.group)
    else:
        distributed.recv(incoming, side.peer, group=side.group)
        distributed.send(outgoing, side.peer, group=side.group)


def _both_ways(side: Side, outgoing: Any, incoming: Any, samples: Samples) -> None:
    """Both directions at once, posted singly and as a batch."""
    from torch import distributed

    transfers = [(distributed.isend, outgoing), (distributed.irecv, incoming)]
    if not side.first:
        # nccl runs sends and receives posted singly between two ranks in order: one must receive
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


def _collectives(side: Side, outgoing: Any, samples: Samples) -> None:
    """Return the collectives of gradients and sharded parameters over the two; ``outgoing`` is each
    one's input.
    """
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
    begin = time.monotonic_ns()
    yield
    side.settle()
    samples[pattern].append((time.monotonic_ns() - begin) * share * 1e-6)
