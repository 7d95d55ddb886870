"""Devices that execute queues, and their clocks: a CPU, a GPU, or the parts of one GPU.

The four classes have the same methods. ``mark`` returns a mark of the moment when all work issued
so far ends, ``settle`` waits for that work, and ``ns`` then returns the moment on the host's
monotonic clock. Two classes have several devices in one process: ``use_stream`` selects a device,
``carry`` copies a message from one device to another, and ``accept`` makes the receiver wait for
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ppsim.core.ops import Stream
from ppsim.errors import InputError, MissingDependency, PpsimError

TRIES = 5  # readings of two clocks, of which the closest counts


class Wall:
    """A CPU, on which a call returns when its work is done."""

    def sync(self) -> None:
        """Do nothing: device and host have the same clock."""

    def mark(self) -> int:
        """Return the monotonic clock in ns."""
        return time.monotonic_ns()

    def settle(self) -> None:
        """Do nothing: no work is pending."""

    def is_reached(self, mark: Any) -> bool:
        """Return True: a mark on a CPU is in the past."""
        return True

    def rebase(self, mark: Any) -> None:
        """Do nothing: times are exact."""

    def ns(self, mark: Any) -> int:
        """Return the mark, which is a time in ns."""
        return int(mark)


class Events:
    """A GPU, whose marks are events on the current stream.

    Their times are relative to an event whose time on the host is known.
    """

    def sync(self) -> None:
        """Find the host's time of an event, between two readings of the host's clock.

        Of a few tries the one with the closest readings counts.
        """
        import torch

        torch.cuda.synchronize()
        closest = None
        for _ in range(TRIES):
            zero, before = torch.cuda.Event(enable_timing=True), time.monotonic_ns()
            zero.record()
            zero.synchronize()
            after = time.monotonic_ns()
            if closest is None or after - before < closest:
                closest, self._zero, self._at = after - before, zero, (before + after) // 2

    def mark(self) -> Any:
        """Record an event on the current stream."""
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def settle(self) -> None:
        """Wait for all work issued to the GPU."""
        import torch

        torch.cuda.synchronize()

    def is_reached(self, mark: Any) -> bool:
        """Return whether the GPU has reached the event."""
        return bool(mark.query())

    def rebase(self, mark: Any) -> None:
        """Make times relative to an event that has passed, since they are in single precision."""
        self._at, self._zero = self.ns(mark), mark

    def ns(self, mark: Any) -> int:
        """Return the moment at which the GPU reached the event, in ns on the host's clock."""
        return int(self._at + round(self._zero.elapsed_time(mark) * 1e6))


Clock = Wall | Events


def clock(device: str) -> Clock:
    """Return the clock of a process that is one device."""
    return Events() if device == "cuda" else Wall()


class Serial(Wall):
    """All devices on one CPU, which runs ops in the order of issue."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.sms = 0

    @contextmanager
    def use_stream(self, device: int, stream: int = Stream.COMPUTE) -> Iterator[None]:
        """Do nothing: a CPU has no streams."""
        yield

    def finished(self) -> None:
        """Return None: ops issued on a CPU have ended."""

    def await_event(self, event: None) -> None:
        """Do nothing: ops issued on a CPU have ended."""

    def carry(self, tensor: Any, sender: int, receiver: int) -> tuple[Any, Any]:
        """Return a copy of the message."""
        return tensor.clone(), None

    def accept(self, message: tuple[Any, Any], receiver: int) -> Any:
        """Return the copy, which is complete."""
        return message[0]


class Partitions(Events):
    """Devices that are parts of the first GPU's multiprocessors; a message is a copy.

    Each link between two devices has a stream for its copies. Marks are events of the primary
    context on streams of green contexts. An H100 with driver 580 supports this; a driver that does
    not raises an error at the first mark.

    Attributes:
        devices: number of parts.
        sms: multiprocessors of each part.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._lanes, self.sms = split(devices)
        self._links: dict[tuple[int, int], Any] = {}
        self._copies: dict[tuple[int, int], Any] = {}

    @contextmanager
    def use_stream(self, device: int, stream: int = Stream.COMPUTE) -> Iterator[None]:
        """Make a stream of a device current for the block.

        Streams other than compute only copy and need no multiprocessor.
        """
        import torch

        if stream == Stream.COMPUTE:
            current = self._lanes[device]
        else:
            if (device, stream) not in self._copies:
                self._copies[device, stream] = torch.cuda.Stream()
            current = self._copies[device, stream]
        with torch.cuda.stream(current):
            yield

    def finished(self) -> Any:
        """Return an event at the end of all work issued to the current stream."""
        import torch

        event = torch.cuda.Event()
        event.record()
        return event

    def await_event(self, event: Any) -> None:
        """Make further work on the current stream wait for the event."""
        import torch

        torch.cuda.current_stream().wait_event(event)

    def carry(self, tensor: Any, sender: int, receiver: int) -> tuple[Any, Any]:
        """Copy the tensor after all work issued to the sender; return the copy and its event."""
        import torch

        if (sender, receiver) not in self._links:
            self._links[sender, receiver] = torch.cuda.Stream()
        link = self._links[sender, receiver]
        ready, arrived = torch.cuda.Event(), torch.cuda.Event()
        ready.record(self._lanes[sender])
        link.wait_event(ready)
        with torch.cuda.stream(link):
            copy = tensor.clone()
        arrived.record(link)
        tensor.record_stream(link)  # so that its memory is not reused before the copy ends
        return copy, arrived

    def accept(self, message: tuple[Any, Any], receiver: int) -> Any:
        """Return the copy, and make further work of the receiver wait for it."""
        copy, arrived = message
        self._lanes[receiver].wait_event(arrived)
        copy.record_stream(self._lanes[receiver])
        return copy


def split(parts: int) -> tuple[list[Any], int]:
    """Return a stream on each of ``parts`` equal sets of multiprocessors, and the size of a set.

    The sets of the first GPU's multiprocessors are disjoint. torch's ``GreenContext.create`` starts
    from the whole GPU at every call, and so returns the same multiprocessors each time; one call of
    the driver returns disjoint sets (github.com/pytorch/pytorch/issues/195378).

    Raises:
        MissingDependency: cuda-bindings is not installed.
        InputError: the GPU has too few multiprocessors.
        PpsimError: the driver returns an error.
    """
    import torch

    driver = _driver()
    torch.cuda.init()
    torch.cuda.synchronize()  # creates the primary context
    gpu = _driver_result(driver.cuDeviceGet, 0)
    whole = _driver_result(
        driver.cuDeviceGetDevResource, gpu, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    )
    groups = _groups(driver, whole, parts)
    flags = (
        driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM,
        driver.CUstream_flags.CU_STREAM_NON_BLOCKING,
    )
    lanes = []
    for group in groups:
        description = _driver_result(driver.cuDevResourceGenerateDesc, [group], 1)
        context = _driver_result(driver.cuGreenCtxCreate, description, gpu, flags[0])
        stream = _driver_result(driver.cuGreenCtxStreamCreate, context, flags[1], 0)
        lanes.append(torch.cuda.ExternalStream(int(stream), device=0))
    return lanes, int(groups[0].sm.smCount)


def _groups(driver: Any, whole: Any, parts: int) -> Sequence[Any]:
    """Return ``parts`` groups of multiprocessors, the largest possible of equal size.

    The driver rounds sizes up to the GPU's layout.
    """
    for size in range(whole.sm.smCount // parts, 0, -1):
        status, groups, count, _ = driver.cuDevSmResourceSplitByCount(parts, whole, 0, size)
        if not int(status) and count >= parts:
            return list(groups[:parts])
    raise InputError(
        f"this GPU's {whole.sm.smCount} multiprocessors cannot be split into {parts} parts",
        "fewer devices",
    )


def _driver() -> Any:
    """Return the module of the CUDA driver (MissingDependency: it is not installed)."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingDependency(
            f"splitting a GPU needs cuda-bindings: {error}",
            "pip install cuda-bindings for the CUDA version of your torch",
        ) from error
    return driver


def _driver_result(call: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """Call the driver, and return its result without the status (PpsimError: it failed)."""
    status, *found = call(*arguments)
    if int(status):
        name = getattr(call, "__name__", "the driver")
        raise PpsimError(
            f"{name} failed: {getattr(status, 'name', status)}", "a driver of CUDA 12.5 or later"
        )
    return found[0] if len(found) == 1 else found
