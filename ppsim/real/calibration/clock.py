"""Timing of single calls, on a CPU by the wall clock, on a GPU by its events."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

FLUSH_BYTES = {"cpu": 32 << 20, "cuda": 256 << 20}
LEAD_CYCLES = 400_000  # about 0.2 ms of GPU clock


@dataclass(frozen=True)
class CallTime:
    """The time of one call in ms, and its result."""

    ms: float  # time on the device
    host_ms: float  # time until the call returned on the host; 0 on a CPU, where both are the same
    result: Any  # result of the call


Tick = Callable[[str], None]  # called with the name of the last measurement
Watch = Callable[[Callable[[], Any], bool], CallTime]


def stopwatch(device: str) -> Watch:
    """Return a function ``watch(call, cold)`` that runs a call once and returns its time.

    With ``cold``, caches are flushed before the call.
    """
    import torch

    flush = torch.empty(FLUSH_BYTES[device], dtype=torch.uint8, device=device)

    def on_cpu(call: Callable[[], Any], cold: bool) -> CallTime:
        if cold:
            flush.fill_(1)
        start = time.perf_counter_ns()
        result = call()
        return CallTime((time.perf_counter_ns() - start) * 1e-6, 0.0, result)

    def on_gpu(call: Callable[[], Any], cold: bool) -> CallTime:
        if cold:
            flush.fill_(1)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        # While the GPU sleeps, the host launches kernels ahead, so the events bracket device time
        # only. If the host needs longer than the sleep, gaps between launches count, as they do in
        # an eager run without a lead.
        torch.cuda._sleep(LEAD_CYCLES)
        begin.record()
        start = time.perf_counter_ns()
        result = call()
        host = (time.perf_counter_ns() - start) * 1e-6
        end.record()
        torch.cuda.synchronize()
        return CallTime(begin.elapsed_time(end), host, result)

    return on_cpu if device == "cpu" else on_gpu


class Spread(TypedDict):
    """Median, 10th and 90th percentile and count of samples, as keys of a profile."""

    median_ms: float
    p10_ms: float
    p90_ms: float
    n: int


def spread(samples: list[float]) -> Spread:
    """Return median, percentiles and count of measured times in ms."""
    low, middle, high = np.percentile(samples, (10, 50, 90))
    return {
        "median_ms": float(middle),
        "p10_ms": float(low),
        "p90_ms": float(high),
        "n": len(samples),
    }
