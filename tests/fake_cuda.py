"""torch.cuda without a GPU: streams and events that note what they are told, tensors that stay on
the processor.

What is issued is done at once, so an event's moment is that of its record; ``slower`` stretches the
time that passes on the device, as if it were still working on what was issued long ago.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class OnTheProcessor(TorchFunctionMode):  # type: ignore[misc]
    """Makes every tensor that is asked for on a GPU on the processor."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def here(value):
            named = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
            return torch.device("cpu") if named else value

        given = {key: here(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        return func(*map(here, args), **given)


class FakeCuda:
    """What the code under test calls of torch.cuda and of the driver, with a log of everything."""

    def __init__(self, gpus: int = 1, slower: float = 1.0, sms: int = 132) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.gpus, self.slower, self.sms = gpus, slower, sms
        self.began, self.streams = time.monotonic_ns(), 0
        self.split_calls: list[tuple[int, int]] = []
        fake = self

        class Stream:
            def __init__(self, *_: Any, **__: Any) -> None:
                fake.streams += 1
                self.name = f"stream {fake.streams}"

            def wait_event(self, event: Any) -> None:
                fake.log.append(("wait", self.name, event.name))

            def wait_stream(self, other: Any) -> None:
                fake.log.append(("wait", self.name, other.name))

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.timed, self.at = enable_timing, 0.0
                self.name = f"event {id(self)}"

            def record(self, stream: Any = None) -> None:
                now = time.monotonic_ns()
                self.at = fake.began + fake.slower * (now - fake.began)
                fake.log.append(
                    (
                        "mark" if self.timed else "record",
                        (stream or fake.current[-1]).name,
                        self.name,
                    )
                )

            def synchronize(self) -> None:
                fake.log.append(("synchronize", self.name))

            def query(self) -> bool:
                return True

            def elapsed_time(self, other: Any) -> float:
                assert self.timed
                assert other.timed
                return (other.at - self.at) / 1e6

        self.Stream, self.Event = Stream, Event
        self.default = Stream()
        self.current = [self.default]

    @contextmanager
    def stream(self, stream):
        self.current.append(stream)
        yield
        self.current.pop()

    def external(self, pointer: int, device: int) -> Any:
        assert device == 0
        stream = self.Stream()
        stream.name = f"lane {pointer}"
        return stream

    def install(self, monkeypatch: Any) -> OnTheProcessor:
        """Put the fake in torch's and the driver's place; gives the mode that tensors are to be
        made in.
        """
        cuda: dict[str, Any] = {
            "Stream": self.Stream,
            "Event": self.Event,
            "ExternalStream": self.external,
            "stream": self.stream,
            "current_stream": lambda: self.current[-1],
            "synchronize": lambda: self.log.append(("synchronize", "all")),
            "init": lambda: None,
            "is_current_stream_capturing": lambda: False,
            "is_available": lambda: self.gpus > 0,
            "is_initialized": lambda: self.gpus > 0,
            "device_count": lambda: self.gpus,
            "set_device": lambda number: self.log.append(("set_device", number)),
            "empty_cache": lambda: None,
            "get_device_name": lambda: "a GPU that is none",
            "mem_get_info": lambda: (1 << 40, 1 << 40),
            "_sleep": lambda cycles: None,
        }
        for name, value in cuda.items():
            monkeypatch.setattr(torch.cuda, name, value)
        note = self.log.append
        monkeypatch.setattr(
            torch.Tensor, "record_stream", lambda _, stream: note(("keep", stream.name))
        )
        bindings, package = ModuleType("cuda.bindings"), ModuleType("cuda")
        bindings.driver = self.driver()  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "cuda", package)
        monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
        return OnTheProcessor()

    def driver(self) -> SimpleNamespace:
        """The driver's calls, with sets of multiprocessors in eights as a GPU of today has them."""

        def split_by_count(parts, whole, flags, smallest):
            assert flags == 0
            size = -(-smallest // 8) * 8
            count = min(parts, whole.sm.smCount // size)
            self.split_calls.append((parts, smallest))
            sets = [
                SimpleNamespace(number=n, sm=SimpleNamespace(smCount=size)) for n in range(count)
            ]
            return 0, sets, count, SimpleNamespace(sm=SimpleNamespace(smCount=0))

        return SimpleNamespace(
            CUdevResourceType=SimpleNamespace(CU_DEV_RESOURCE_TYPE_SM=1),
            CUgreenCtxCreate_flags=SimpleNamespace(CU_GREEN_CTX_DEFAULT_STREAM=1),
            CUstream_flags=SimpleNamespace(CU_STREAM_NON_BLOCKING=1),
            cuDeviceGet=lambda number: (0, number),
            cuDeviceGetDevResource=lambda gpu, kind: (
                0,
                SimpleNamespace(sm=SimpleNamespace(smCount=self.sms)),
            ),
            cuDevSmResourceSplitByCount=split_by_count,
            cuDevResourceGenerateDesc=lambda sets, count: (0, sets[0]),
            cuGreenCtxCreate=lambda description, gpu, flags: (0, description),
            cuGreenCtxStreamCreate=lambda context, flags, priority: (0, context.number),
        )
