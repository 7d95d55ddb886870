"""The stand-in for a GPU in a process that runs a part: everything on the processor, no process of
its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ppsim.real.calibration.user_module import make_stage
from tests.fake_cuda import FakeCuda


@contextmanager
def stand_in() -> Iterator[None]:
    """Put the stand-in in the place of torch's GPU; what would run in another process runs in this
    one.
    """

    @contextmanager
    def at_once(
        worker: Any, count: int, *arguments: Any, limit_s: float = 0.0
    ) -> Iterator[Iterator[Any]]:
        said: list[object] = []
        worker(0, said.append, "nowhere", *arguments)
        yield iter([(0, message) for message in said])

    patch = pytest.MonkeyPatch()
    # Four times slower than the host that issues, or all of it would be launch-bound.
    mode = FakeCuda(slower=4.0).install(patch)
    patch.setattr("ppsim.real.calibration.processes.ranks", at_once)
    patch.setattr("ppsim.real.runs.turns.ranks", at_once)
    patch.setattr("ppsim.real.calibration.clock.FLUSH_BYTES", {"cuda": 1 << 20})
    patch.setattr("ppsim.real.calibration.links.measure_links", lambda *_, **__: [])
    patch.setattr(
        "ppsim.real.calibration.user_ops.make_stage",
        lambda of, number, count, _: make_stage(of, number, count, "cpu"),
    )
    patch.setitem(os.environ, "CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        with mode:
            yield
    finally:
        patch.undo()
