"""How the benchmarks measure: processor time, medians, and the machine they ran on."""

import datetime
import importlib
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def seconds(run: Callable[[], Any], at_least: float = 0.3, most: int = 31) -> float:
    """Median processor seconds of a call, over as many calls as ``at_least`` seconds hold, three at
    least.
    """
    taken = list[float]()
    while len(taken) < 3 or (sum(taken) < at_least and len(taken) < most):
        begin = time.process_time()
        run()
        taken.append(time.process_time() - begin)
    return statistics.median(taken)


def machine() -> str:
    """Processor, cores, Python and date, for the caption of a table."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    return (
        f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"{datetime.date.today()}"
    )


def duration(value: float) -> str:
    """Seconds with three digits, in the unit that suits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"


def compile_always(above: int = 0) -> None:
    """Have the compiled kernels run at every size, or only once ``above`` ops have been timed."""
    engine: Any = importlib.import_module("ppsim.engine.simple.longest_path")
    engine.COMPILE_SIMULATION_ABOVE = above
