"""Devices that execute queues, and their clocks: a processor, a GPU, or the parts of one GPU.

The four share their verbs. ``mark`` notes the moment when everything issued so far completes,
``settle`` waits for it, and ``ns`` then gives the moment on the host's monotonic clock. Two hold
several devices in one process: ``on`` makes a device current, ``carry`` takes a message from one to
another, and ``accept`` makes the receiver wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ppsim.core.ops import Stream
from ppsim.errors import InputError, MissingDependency, PpsimError

TRIES = 5


class Wall:
    """A processor: a call returns when its work is done."""

    def sync(self) -> None:
        """Do nothing: the host's clock is the device's."""

    def mark(self) -> int:
        """Read the clock."""
        return time.monotonic_ns()

    def settle(self) -> None:
        """Do nothing: no work is pending."""

    def is_reached(self, mark: Any) -> bool:
        """Return whether the moment is over, which it is."""
        return True

    def rebase(self, mark: Any) -> None:
        """Do nothing: times are exact, however long it runs."""

    def ns(self, mark: Any) -> int:
        """Return the mark, which is a time."""
        return int(mark)


class Events:
    """A GPU: a mark is an event on the current stream, timed relative to one whose time on the host
    is known.
    """

    def sync(self) -> None:
        """Find the host's time of one event, between two readings of its clock: the closest of a
        few tries.
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
        """Wait for everything issued to the GPU."""
        import torch

        torch.cuda.synchronize()

    def is_reached(self, mark: Any) -> bool:
        """Return whether the GPU has reached the event."""
        return bool(mark.query())

    def rebase(self, mark: Any) -> None:
        """Count from an event that has passed: times between events are in single precision."""
        self._at, self._zero = self.ns(mark), mark

    def ns(self, mark: Any) -> int:
        """Compute when the GPU reached the event."""
        return int(self._at + round(self._zero.elapsed_time(mark) * 1e6))


Clock = Wall | Events


def clock(device: str) -> Clock:
    """Choose the clock of a process that is one device."""
    return Events() if device == "cuda" else Wall()


class Serial(Wall):
    """All devices on one processor, which runs ops in the order of issue."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.sms = 0

    @contextmanager
    def use_stream(self, device: int, stream: int = Stream.COMPUTE) -> Iterator[None]:
        """Do nothing: there is one processor."""
        yield

    def finished(self) -> None:
        """Return no event: ops issued on a processor have ended."""

    def await_event(self, event: None) -> None:
        """Do nothing: ops issued on a processor have ended."""

    def carry(self, tensor: Any, sender: int, receiver: int) -> tuple[Any, Any]:
        """Copy the message."""
        return tensor.clone(), None

    def accept(self, message: tuple[Any, Any], receiver: int) -> Any:
        """Return the copy, which is complete."""
        return message[0]


class Partitions(Events):
    """Each device is a part of the first GPU's multiprocessors, a message is a copy on its link's
    stream.

    Marks are events of the primary context recorded on streams of green contexts. An H100 with
    driver 580 runs this; a driver that refuses it fails at the first mark, with its own error.

    Attributes:
        devices: how many parts.
        sms: multiprocessors of each.
    """

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self._lanes, self.sms = split(devices)
        self._links: dict[tuple[int, int], Any] = {}
        self._copies: dict[tuple[int, int], Any] = {}

    @contextmanager
    def use_stream(self, device: int, stream: int = Stream.COMPUTE) -> Iterator[None]:
        """Make a stream of a device current: its part's, or one that only copies, which takes no
        multiprocessor.
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
        """Return an event that is reached when all work issued to the current stream is done."""
        import torch

        event = torch.cuda.Event()
        event.record()
        return event

    def await_event(self, event: Any) -> None:
        """Make work issued to the current stream from now on wait for the event."""
        import torch

        torch.cuda.current_stream().wait_event(event)

    def carry(self, tensor: Any, sender: int, receiver: int) -> tuple[Any, Any]:
        """Copy the tensor after all work issued to the sender; returns the copy and the event of
        its arrival.
        """
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
        tensor.record_stream(link)  # its memory is not used again before the copy has been made
        return copy, arrived

    def accept(self, message: tuple[Any, Any], receiver: int) -> Any:
        """Return the copy, and make work issued to the receiver from now on wait for its
        arrival.
        """
        copy, arrived = message
        self._lanes[receiver].wait_event(arrived)
        copy.record_stream(self._lanes[receiver])
        return copy


def split(parts: int) -> tuple[list[Any], int]:
    """Make a stream on each of ``parts`` equal, disjoint sets of the first GPU's multiprocessors;
    also their size.

    torch's own ``GreenContext.create`` starts from the whole GPU at every call and so gives the
    same multiprocessors each time; disjoint sets come from one call of the driver
    (github.com/pytorch/pytorch/issues/195378).

    Raises:
        MissingDependency: cuda-bindings is not installed.
        InputError: the GPU has too few multiprocessors.
        PpsimError: the driver refuses.
    """
    import torch

    driver = _driver()
    torch.cuda.init()
    torch.cuda.synchronize()  # the primary context is there from here on
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
    """Find the largest equal groups that are enough; the driver rounds sizes up to the GPU's
    layout.
    """
    for size in range(whole.sm.smCount // parts, 0, -1):
        status, groups, count, _ = driver.cuDevSmResourceSplitByCount(parts, whole, 0, size)
        if not int(status) and count >= parts:
            return list(groups[:parts])
    raise InputError(
        f"this GPU's {whole.sm.smCount} multiprocessors cannot be split in {parts}", "fewer devices"
    )


def _driver() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MissingDependency(
            f"splitting a GPU needs cuda-bindings: {error}",
            "pip install cuda-bindings, of your torch's CUDA version",
        ) from error
    return driver


def _driver_result(call: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
    """Call the driver and return its result without the status."""
    status, *found = call(*arguments)
    if int(status):
        name = getattr(call, "__name__", "the driver")
        raise PpsimError(
            f"{name} failed: {getattr(status, 'name', status)}", "a driver of CUDA 12.5 or later"
        )
    return found[0] if len(found) == 1 else found
