"""How much of a GPU's peaks training reaches: one curve per GPU and precision, fitted on published runs.

The file ``library/efficiency.toml`` holds the numbers and the rows that each was fitted on;
``tests/benchmarks/fit_efficiency.py`` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from ppsim.base import toml
from ppsim.base.toml import Refused
from ppsim.planning.hardware import UNITS, Gpu
from ppsim.planning.operators import FLASH, LINEAR, WIDE, Floats, Operators

SCHEMA = "ppsim.efficiency/1"
PATH = Path(__file__).parent / "library" / "efficiency.toml"


@dataclass(frozen=True)
class Curve:
    """What a GPU reaches, as shares of its peaks.

    A product of m x k by k x n reaches ``product`` x m / (m + half) x n / (n + half) x k / (k + half) of the peak.

    Attributes:
        gpu: the GPU.
        bf16: share of the 16-bit peak that large products reach.
        fp8: of the FP8 peak.
        mxfp8: of the FP8 peak, with a scale for each 32 numbers.
        fp4: of the FP4 peak.
        half: size of a product's side at which it reaches half of that.
        attention: share of the 16-bit peak that attention in one kernel reaches.
        hbm: share of the memory's bandwidth that elementwise work reaches.
        launch_us: time between two kernels.
        eager_us: the same in software that launches each from Python.
        within: share of the bandwidth inside a node that collectives reach.
        between: share of the bandwidth between nodes that collectives reach.
        hidden: share of tensor-parallel communication that overlap hides.
        seen: what the numbers were fitted on.
    """

    gpu: str
    bf16: float = 0.7
    fp8: float = 0.55
    mxfp8: float = 0.5
    fp4: float = 0.4
    half: float = 128.0
    attention: float = 0.5
    hbm: float = 0.75
    launch_us: float = 2.0
    eager_us: float = 5.0
    within: float = 0.7
    between: float = 0.7
    hidden: float = 0.7
    seen: str = ""

    def __post_init__(self) -> None:
        for name in ("bf16", "fp8", "mxfp8", "fp4", "attention", "hbm", "within", "between"):
            if not 0 < getattr(self, name) <= 1.5:
                raise Refused(name, f"must be more than 0 and 1.5 at most, got {getattr(self, name):g}")
        for name in ("half", "launch_us", "eager_us", "hidden"):
            if getattr(self, name) < 0:
                raise Refused(name, f"must be 0 or more, got {getattr(self, name):g}")

    def share(self, precision: str) -> float:
        """Return the share of the peak that large products of that precision of training reach."""
        name = "mxfp8" if precision == "mxfp8" else UNITS[precision].replace("fp16", "bf16")
        value: float = getattr(self, name)
        return value


@dataclass(frozen=True)
class _Curves:
    curve: tuple[Curve, ...] = ()


@lru_cache(maxsize=1)
def _curves() -> dict[str, Curve]:
    return {curve.gpu: curve for curve in toml.read(str(PATH), _Curves, SCHEMA).curve}


def curve_of(gpu: Gpu) -> Curve:
    """Return the curve of a GPU; usual values where none was fitted, with ``seen`` empty."""
    return _curves().get(gpu.name, Curve(gpu.name))


def seconds(operators: Operators, gpu: Gpu, curve: Curve, precision: str, stack: str) -> Floats:
    """Compute the seconds of each operator, shape (3, n): rows F, I and W."""
    side = operators.size
    filled = np.prod(side / (side + curve.half), axis=0)
    rate = np.full(len(operators.unit), np.inf)
    for unit, kind in ((LINEAR, precision), (WIDE, "bf16")):
        here = operators.unit == unit
        rate[here] = gpu.peak(kind) * curve.share(kind) * filled[here]
    here = operators.unit == FLASH
    long = side[1] / (side[1] + 4 * curve.half)
    rate[here] = gpu.peak("bf16") * curve.attention * long[here]
    memory = gpu.hbm_gb_per_s * 1e9 * curve.hbm
    launch = (curve.eager_us if stack == "eager" else curve.launch_us) * 1e-6
    products = np.maximum(operators.flops / rate, operators.moved / memory)
    result: Floats = products + operators.touched / memory + operators.kernels * launch
    return result
