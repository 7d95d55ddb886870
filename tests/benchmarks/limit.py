"""The limit: the execution model and 1F1B's queues as C over arrays (``limit.c``), compiled
here.
"""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.schedule import Schedule, place


class Pipeline(ctypes.Structure):
    """``Pipeline`` of limit.c."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("devices", "stages", "microbatches")),
        *(
            (name, ctypes.c_void_p)
            for name in ("place", "offsets", "kind", "stage", "microbatch", "pair", "time")
        ),
        ("comm", ctypes.c_double),
    )


@cache
def library() -> ctypes.CDLL:
    """limit.c as machine code of this machine."""
    out = Path(tempfile.mkdtemp()) / "limit.so"
    source = Path(__file__).with_name("limit.c")
    subprocess.run(
        ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", out, source], check=True
    )
    code = ctypes.CDLL(str(out))
    code.longest_path.restype = ctypes.c_int64
    shutil.rmtree(out.parent)
    return code


def one_f_one_b(devices: int, microbatches: int) -> Schedule:
    """1F1B's queues, emitted op by op."""
    n = 2 * devices * microbatches
    offsets = np.empty(devices + 1, np.int64)
    kind, (stage, microbatch, pair) = (
        np.empty(n, np.uint8),
        (np.empty(n, np.int32) for _ in range(3)),
    )
    columns = (offsets, kind, stage, microbatch, pair)
    library().one_f_one_b(devices, microbatches, *(ctypes.c_void_p(c.ctypes.data) for c in columns))
    return Schedule("1f1b", place("linear", devices, devices), microbatches, *columns)


def longest_path(schedule: Schedule, costs: Costs) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of every op; one replica and one latency for all links."""
    held = np.ascontiguousarray(schedule.placement.devices[0])
    columns = (
        schedule.offsets,
        schedule.kind,
        schedule.stage,
        schedule.microbatch,
        schedule.pair,
        costs.time,
    )
    pipeline = Pipeline(
        schedule.n_devices,
        schedule.n_stages,
        schedule.n_microbatches,
        held.ctypes.data,
        *(c.ctypes.data for c in columns),
        costs.comm,
    )
    start, end = np.empty(len(schedule)), np.empty(len(schedule))
    ran = library().longest_path(
        ctypes.byref(pipeline), ctypes.c_void_p(start.ctypes.data), ctypes.c_void_p(end.ctypes.data)
    )
    if ran != len(schedule):
        raise RuntimeError("the queues wait in a cycle")
    return start, end
