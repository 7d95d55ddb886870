"""Messages between two real torch.distributed processes, by size, direction and who comes first."""

from __future__ import annotations

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from ppsim import fit
from ppsim.measure.clock import spread
from ppsim.measure.processes import Say, ranks
from ppsim.profile import Fit, Message

KIB, MIB = 1 << 10, 1 << 20
PAUSE_S = 0.0005  # long enough for the other side to be waiting
TIMEOUT = timedelta(seconds=60)


def sizes_up_to(largest: int) -> list[int]:
    """1 KiB, 4 KiB, ... up to ``largest``."""
    return [KIB << k for k in range(0, 40, 2) if KIB << k <= largest]


def repeats_of(size: int, repeats: int) -> int:
    """Fewer repetitions of larger messages: they take longer and spread less."""
    share = 1.0 if size <= 64 * KIB else 0.5 if size <= 4 * MIB else 0.2 if size <= 64 * MIB else 0.1
    return max(3, round(repeats * share))


def measure_messages(
    sizes: Sequence[int], *, repeats: int, warm_up: int, tick: Callable[[str], None]
) -> tuple[list[Message], list[Fit]]:
    """Messages between two processes on this machine over gloo, and the lines through them.

    Raises:
        PpsimError: a process failed, died or hung; both are gone then.
    """
    rows: list[Message] = []
    with ranks(_worker, 2, "gloo", tuple(sizes), repeats, warm_up) as messages:
        for _, found in messages:
            rows += found
            tick(f"messages of {found[0].bytes} bytes")
    return rows, fits(rows)


def fits(rows: Sequence[Message]) -> list[Fit]:
    """A line per link and pattern over all sizes and, with six sizes or more, one below and one above the break."""
    series: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        series[row.link, row.pattern].append((row.bytes, row.median_ms))
    result = []
    for (link, pattern), points in series.items():
        size, ms = zip(*sorted(points), strict=True)
        cut = fit.breakpoint_of(size, ms)
        parts = {"all": slice(None)}
        if cut:
            parts |= {"eager": slice(None, cut), "rendezvous": slice(cut, None)}
        for name, part in parts.items():
            f = fit.line(size[part], ms[part])
            span = (size[part][0], size[part][-1])
            result.append(Fit(link, pattern, name, *span, f.alpha, f.slope, f.median_residual, f.max_residual))
    return result


def _worker(
    rank: int, say: Say, meeting: str, backend: str, sizes: tuple[int, ...], repeats: int, warm_up: int
) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    _use_loopback()
    distributed.init_process_group(backend, init_method=meeting, rank=rank, world_size=2, timeout=TIMEOUT)
    for rows in exchange(rank, 1 - rank, sizes, repeats, warm_up, "same-host", "cpu"):
        if rank == 0:
            say(rows)
    distributed.destroy_process_group()


def exchange(
    rank: int, peer: int, sizes: Sequence[int], repeats: int, warm_up: int, link: str, device: str
) -> Iterator[list[Message]]:
    """Measure against ``peer``, which does the same; the rows of each size, the same on both sides."""
    from torch import distributed

    for size in sizes:
        count = repeats_of(size, repeats) + warm_up
        mine = _one_size(rank < peer, peer, size, count, link == "same-host", device)
        theirs: list[Any] = [None, None]
        distributed.all_gather_object(theirs, {k: v[warm_up:] for k, v in mine.items()})
        both = {k: theirs[0].get(k) or theirs[1][k] for k in theirs[0] | theirs[1]}
        host = {k: both.pop(k) for k in ("send", "receive")}
        median = {k: spread(v)["median_ms"] for k, v in host.items()}
        yield [
            Message(link, pattern, size, send_ms=median["send"], receive_ms=median["receive"], **spread(values))
            for pattern, values in both.items()
        ]


def _one_size(first: bool, peer: int, size: int, count: int, one_clock: bool, device: str) -> dict[str, list[float]]:
    """Samples in ms by pattern, and of the host's send and receive calls, as this side saw them."""
    import torch
    from torch import distributed

    outgoing = torch.randint(0, 256, (size,), dtype=torch.uint8, device=device)
    incoming = torch.empty_like(outgoing)
    stamp = torch.zeros(1, dtype=torch.int64)
    samples: dict[str, list[float]] = defaultdict(list)
    for _ in range(count):
        if one_clock:
            _early(first, peer, outgoing, incoming, stamp, samples)
            _late(first, peer, outgoing, incoming, stamp, samples)
        _both_ways(first, peer, outgoing, incoming, samples)
        distributed.barrier()
    return samples


def _early(first: bool, peer: int, outgoing: Any, incoming: Any, stamp: Any, samples: dict[str, list[float]]) -> None:
    """The receiver waits already: from the send call to the arrival; needs one clock for both processes."""
    from torch import distributed

    if first:
        distributed.recv(stamp, peer)
        time.sleep(PAUSE_S)
        begin = time.monotonic_ns()
        work = distributed.isend(outgoing, peer)
        samples["send"].append((time.monotonic_ns() - begin) * 1e-6)
        work.wait()
        stamp.fill_(begin)
        distributed.send(stamp, peer)
    else:
        begin = time.monotonic_ns()
        work = distributed.irecv(incoming, peer)
        samples["receive"].append((time.monotonic_ns() - begin) * 1e-6)
        distributed.send(stamp, peer)
        work.wait()
        end = time.monotonic_ns()
        distributed.recv(stamp, peer)
        samples["early"].append((end - int(stamp.item())) * 1e-6)


def _late(first: bool, peer: int, outgoing: Any, incoming: Any, stamp: Any, samples: dict[str, list[float]]) -> None:
    """The sender waits already: from the receive call to the arrival."""
    from torch import distributed

    if first:
        work = distributed.isend(outgoing, peer)
        distributed.send(stamp, peer, tag=1)
        work.wait()
    else:
        distributed.recv(stamp, peer, tag=1)
        time.sleep(PAUSE_S)
        begin = time.monotonic_ns()
        distributed.irecv(incoming, peer).wait()
        samples["late"].append((time.monotonic_ns() - begin) * 1e-6)


def _both_ways(first: bool, peer: int, outgoing: Any, incoming: Any, samples: dict[str, list[float]]) -> None:
    """A round trip, then both directions at once, posted singly and as a batch."""
    from torch import distributed

    begin = time.monotonic_ns()
    if first:
        distributed.send(outgoing, peer)
        distributed.recv(incoming, peer)
        samples["ping-pong"].append((time.monotonic_ns() - begin) * 0.5e-6)
    else:
        distributed.recv(incoming, peer)
        distributed.send(outgoing, peer)
    with _shared_start(samples, "bidirectional"):
        for work in (distributed.irecv(incoming, peer), distributed.isend(outgoing, peer)):
            work.wait()
    with _shared_start(samples, "batched"):
        transfers = ((distributed.irecv, incoming), (distributed.isend, outgoing))
        for work in distributed.batch_isend_irecv(
            [distributed.P2POp(call, buffer, peer) for call, buffer in transfers]
        ):
            work.wait()


@contextmanager
def _shared_start(samples: dict[str, list[float]], pattern: str) -> Iterator[None]:
    from torch import distributed

    distributed.barrier()
    begin = time.monotonic_ns()
    yield
    samples[pattern].append((time.monotonic_ns() - begin) * 1e-6)


def _use_loopback() -> None:
    """Keep gloo on the loopback interface, whatever the machine's name resolves to."""
    for name in ("lo", "lo0"):
        if "GLOO_SOCKET_IFNAME" not in os.environ and name in {n for _, n in socket.if_nameindex()}:
            os.environ["GLOO_SOCKET_IFNAME"] = name
