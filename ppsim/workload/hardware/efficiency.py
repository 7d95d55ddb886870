"""Efficiency of GPUs in training: the reached share of peak, one curve per family of chips, fitted
on published runs.

The file ``library/efficiency.toml`` holds the numbers and the rows that each was fitted on;
``tests/benchmarks/fit_efficiency.py`` writes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ppsim.base import toml
from ppsim.base.toml import RefusedValue, not_negative
from ppsim.workload.hardware.hardware import UNITS, Gpu
from ppsim.workload.model.operators import FLASH, FORWARD, LINEAR, WIDE, Floats, Operators
from ppsim.workload.model.parallel import Parallel

SCHEMA = "ppsim.efficiency/3"
# shares of matrix units' peaks, which power limits
MATRIX = ("bf16", "fp8", "mxfp8", "fp4", "attention")
SHARES_OF_PEAKS = (*MATRIX, "hbm", "within", "between")
ROUTED = ("routing", "permute", "experts in", "experts' activation", "experts out", "unpermute")
SHARES = dict.fromkeys(ROUTED, "routed")
# Rows and columns of a product that a multiprocessor makes at a time; libraries choose the shape
# that wastes least.
TILES = ((128, 256), (256, 128), (128, 128))
TILE = 128 * 256
WIDTH = 128  # of the heads that a curve's attention is of
# in attention's F, I and W, for each exponential of a score
PRODUCTS = np.array([[2.0], [5.0], [5.0]])
PATH = Path(__file__).parents[1] / "library" / "efficiency.toml"


@dataclass(frozen=True)
class Curve:
    """Efficiency of a family of chips, as shares of its peaks.

    A product of m x k by k x n, whose results fill a share of ``TILES`` that multiprocessors make
    in w waves of a ``TILE`` each, reaches its precision's share x that share x w / (w + waves) x k
    / (k + deep).

    Attributes:
        family: as files of GPUs name it.
        watts: of a chip for each TFLOP/s of its 16-bit peak, of those that the shares are of; 0:
            any.
        bf16: share of the 16-bit peak that large products reach.
        fp8: of the FP8 peak.
        mxfp8: of the FP8 peak, with a scale for each 32 numbers.
        fp4: of the FP4 peak.
        waves: of tiles that a product loses, as half of its last one is empty on average.
        deep: length of its sums at which it reaches half of that.
        attention: share of the 16-bit peak that attention in one kernel reaches with heads of
            ``WIDTH`` numbers.
        keys: number of tokens at which it reaches half of that.
        hbm: share of the memory's bandwidth that elementwise work reaches.
        within: share of the bandwidth inside a node that collectives reach.
        between: share of the bandwidth between nodes that collectives reach.
        seen: what the numbers were fitted on.
    """

    family: str
    watts: float = 0.0
    bf16: float = 0.6
    fp8: float = 0.5
    mxfp8: float = 0.5
    fp4: float = 0.4
    waves: float = 0.5
    deep: float = 32.0
    attention: float = 0.5
    keys: float = 880.0
    hbm: float = 0.7
    within: float = 0.65
    between: float = 0.65
    seen: str = ""

    def __post_init__(self) -> None:
        for name in SHARES_OF_PEAKS:
            if not 0 < getattr(self, name) <= 1:
                raise RefusedValue(
                    name, f"must be more than 0 and 1 at most, got {getattr(self, name):g}"
                )
        not_negative(self, "waves", "deep", "keys")

    def share(self, precision: str) -> float:
        """Return the share of the peak that large products of that precision of training reach."""
        name = "mxfp8" if precision == "mxfp8" else UNITS[precision].replace("fp16", "bf16")
        value: float = getattr(self, name)
        return value


@dataclass(frozen=True)
class Software:
    """Overheads of software, independent of the GPU.

    Attributes:
        name: its kernels between the products: fused, compiled, torch or eager, as
            ``Parallel.kernels``.
        launch_us: time that the host needs for a kernel.
        calls: launches for the collectives of a layer's pass.
        collective_us: time that each further rank of a node adds to a collective.
        elementwise: how many of the bytes counted for elementwise work are moved.
        routed: the same for routing, permuting, activating and casting in expert layers.
        expert_kernels: how many times as many an expert layer launches.
        sharp: how sharply the longer of GPU and host counts: the exponent of their norm.
        attention: share of the curve's attention that its kernel reaches.
        states: as of ``Shared``.
        exchange: ``alltoall`` or ``dispatched`` of ``Shared``.
    """

    name: str
    launch_us: float = 5.0
    calls: float = 4.0
    collective_us: float = 12.0
    elementwise: float = 1.0
    routed: float = 1.0
    states: float = 1.0
    expert_kernels: float = 1.0
    sharp: float = 4.0
    attention: float = 1.0
    exchange: float = 1.0


@dataclass(frozen=True)
class Shared:
    """Constants common to all families and kernels.

    Attributes:
        power: the exponent with which a chip's watts for each TFLOP/s raise its shares of the
            matrix units' peaks.
        grace: how many times as long as an x86 host a Grace host needs to launch a kernel.
        launched: how many times as many kernels an expert layer launches without CUDA graphs.
        partial: the same with attention and routing as graphs.
        routed: share of the bytes of routing, permuting, activating and casting that fused experts
            move.
        states: how many times as long as by their FLOPs and bytes kernels of layers with a state
            take: 4, as Mamba-2's take as long as FlashAttention-2 at 2,048 tokens and a sixth at
            16,384 (arXiv 2405.21060, section 1).
        alltoall: the exponent of the shares that gathers reach of links' bandwidths, with which
            NCCL's all-to-all does.
        dispatched: the same of kernels made for experts, nearer to 1: DeepEP's reach 153 of 160
            GB/s inside a node (docs/legacy.md of DeepEP, normal kernels on H800).
    """

    power: float
    grace: float
    launched: float
    partial: float
    routed: float
    states: float
    alltoall: float
    dispatched: float


@dataclass(frozen=True)
class FittedNumbers:
    """The file: curves of families, numbers of kernels, and numbers that all share."""

    shared: Shared
    curve: tuple[Curve, ...] = ()
    software: tuple[Software, ...] = ()


@dataclass(frozen=True)
class Efficiency:
    """Efficiency of a GPU, and overheads of the software on it."""

    curve: Curve
    software: Software


@lru_cache(maxsize=1)
def fitted() -> FittedNumbers:
    """Read the fitted numbers."""
    return toml.read(str(PATH), FittedNumbers, SCHEMA)


def efficiency_of(gpu: Gpu, parallel: Parallel, numbers: FittedNumbers | None = None) -> Efficiency:
    """Return the efficiency of a GPU under a run's techniques; usual values for a family that was
    not fitted.

    Args:
        gpu: the GPU.
        parallel: how a model is trained on it: the kernels' source, fusion, and launches as graphs.
        numbers: the fitted numbers; the library's without them.
    """
    p = parallel
    return _efficiency(
        gpu, p.kernels, p.cuda_graphs, p.fused_experts, p.dispatch, numbers or fitted()
    )


@lru_cache(maxsize=1024)
def _efficiency(
    gpu: Gpu, kernels: str, graphs: str, fused: bool, dispatch: str, numbers: FittedNumbers
) -> Efficiency:
    shared = numbers.shared
    curve = next(
        (curve for curve in numbers.curve if curve.family == gpu.family), Curve(gpu.family)
    )
    software = next(
        (found for found in numbers.software if found.name == kernels), Software(kernels)
    )
    if curve.watts and gpu.watts:
        more = (gpu.watts / (gpu.peak(gpu.sixteen) / 1e12) / curve.watts) ** shared.power
        shares = {name: min(getattr(curve, name) * more, 1.0) for name in MATRIX}
        curve = replace(curve, **shares)
    software = replace(
        software,
        launch_us=software.launch_us * (shared.grace if gpu.host == "grace" else 1.0),
        routed=software.routed * (shared.routed if fused else 1.0),
        states=shared.states,
        exchange=shared.alltoall if dispatch == "alltoall" else shared.dispatched,
        expert_kernels={"none": shared.launched, "partial": shared.partial, "full": 1.0}[graphs],
    )
    return Efficiency(curve, software)


def seconds(operators: Operators, gpu: Gpu, found: Efficiency, precision: str) -> Floats:
    """Compute the seconds that the GPU needs for each operator, shape (3, n): rows F, I and W."""
    curve, side = found.curve, operators.size
    rate = np.full((3, len(operators.unit)), np.inf)
    for unit, kind in ((LINEAR, precision), (WIDE, gpu.sixteen)):
        here = operators.unit == unit
        filled = _filled(side[:, here], operators.flops[FORWARD, here], gpu, curve)
        rate[:, here] = gpu.peak(kind) * curve.share(kind) * filled
    here = operators.unit == FLASH
    attention = (
        gpu.peak(gpu.sixteen)
        * curve.attention
        * found.software.attention
        * side[1]
        / (side[1] + curve.keys)
    )
    rate = np.where(here, attention * _speed_at_width(gpu, side[2]), rate)
    memory = gpu.hbm_gb_per_s * 1e9 * curve.hbm
    share = np.array(
        [getattr(found.software, SHARES.get(name, "elementwise")) for name in operators.names]
    )
    products = np.maximum(operators.flops / rate, operators.moved / memory)
    slower = np.array(
        [found.software.states if name == "state" else 1.0 for name in operators.names]
    )
    result: Floats = slower * (products + operators.touched * share / memory)
    return result


def _filled(side: Floats, flops: Floats, gpu: Gpu, curve: Curve) -> Floats:
    """Return the shares of a large product's rate that products reach in F, I and W, shape (3, n).

    Each pass makes another matrix, whose edges and last wave leave multiprocessors idle: F m x n, I
    m x k, W n x k.

    Args:
        side: shape (3, n): m, n and k of each product.
        flops: shape (n,), of as many products of that shape as run at a time, as those of experts
            do.
        gpu: the GPU.
        curve: its family's.
    """
    rows, columns = side[[0, 0, 1]], side[[1, 2, 2]]
    sums = side[[2, 1, 0]]
    together = flops / (2 * side.prod(axis=0))
    whole = np.min(
        [_rounded_up(rows, high) * _rounded_up(columns, wide) for high, wide in TILES], axis=0
    )
    waves = together * whole / TILE / gpu.multiprocessors
    result: Floats = (
        rows * columns / whole * waves / (waves + curve.waves) * sums / (sums + curve.deep)
    )
    return result


def _rounded_up(sizes: Floats, tile: int) -> Floats:
    result: Floats = np.ceil(sizes / tile) * tile
    return result


def _speed_at_width(gpu: Gpu, width: Floats) -> Floats:
    """Return how fast attention is with heads of that width, over heads of ``WIDTH``, shape (3, n).

    The products of a score take time by the width, its exponential does not, and both add up:
    FlashAttention-3 on H100 (arXiv 2407.08608, figures 5 and 6) and FlashAttention-2 on RTX 4090
    are as fast with 64 and 256 numbers as so.
    """
    if not gpu.exponentials:
        return np.ones((3, len(width)))
    # numbers multiplied in the time of one
    during = gpu.peak(gpu.sixteen) / (gpu.exponentials * 1e12) / (2 * PRODUCTS)
    result: Floats = (1 + during / WIDTH) / (1 + during / width)
    return result


def pass_seconds(
    operators: Operators, gpu: Gpu, found: Efficiency, precision: str, waits: Floats | float = 0.0
) -> Floats:
    """Compute the seconds of F, I, W and B of all operators together: no less than it takes to
    launch them.

    GPU and host work side by side: the longer one counts, and somewhat more where they are alike.
    In a B the host launches ahead from the gradients of inputs to those of weights; in I and W
    apart it can not.

    Args:
        operators: the operators.
        gpu: the GPU.
        found: its efficiency.
        precision: of training.
        waits: shape (3,), seconds of collectives that the GPU waits for in each pass.
    """
    software = found.software
    times = seconds(operators, gpu, found, precision).sum(axis=1) + waits
    more = software.expert_kernels if "router" in operators.names else 1.0
    kernels = operators.kernels.sum(axis=1) * more
    calls = software.calls if np.any(waits) else 0.0
    host = (kernels + calls * np.array([1.0, 0.5, 0.5])) * software.launch_us * 1e-6
    return _longer(
        np.append(times, times[1:].sum()), np.append(host, host[1:].sum()), software.sharp
    )


def _longer(gpu: Floats, host: Floats, sharp: float) -> Floats:
    """Return the time in which both are done: that of the longer one, and somewhat more where they
    are alike.
    """
    result: Floats = (gpu**sharp + host**sharp) ** (1 / sharp)
    return result
