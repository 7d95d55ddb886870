"""Efficiency of GPUs in training: shares of their peaks that operators reach.

There is one curve for each family of chips, fitted on published runs. The numbers, and the runs
that each was fitted on, are in ``library/efficiency.toml``; ``tests/benchmarks/fit_efficiency.py``
writes that file.
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
# shares of the peaks of matrix units; power limits these
MATRIX = ("bf16", "fp8", "mxfp8", "fp4", "attention")
SHARES_OF_PEAKS = (*MATRIX, "hbm", "within", "between")
ROUTED = ("routing", "permute", "experts in", "experts' activation", "experts out", "unpermute")
SHARES = dict.fromkeys(ROUTED, "routed")
# Rows and columns of the tile of a product that a multiprocessor computes at a time; libraries
# choose the shape that wastes least.
TILES = ((128, 256), (256, 128), (128, 128))
TILE = 128 * 256
WIDTH = 128  # numbers of a head in the runs that a curve's attention was fitted on
# products in attention's F, I and W for each exponential of a score
PRODUCTS = np.array([[2.0], [5.0], [5.0]])
PATH = Path(__file__).parents[1] / "library" / "efficiency.toml"


@dataclass(frozen=True)
class Curve:
    """Efficiency of a family of chips, as shares of its peaks.

    A product of m x k by k x n is computed in tiles; its result fills a share f of them. With w
    waves of tiles over all multiprocessors, the product reaches

        (its precision's share) x f x w / (w + waves)

    of the peak.

    Attributes:
        family: name of the family in files of GPUs.
        watts: watts per TFLOP/s of the 16-bit peak, of the chip that the shares were fitted on; 0:
            the shares are for any power.
        bf16: share of the 16-bit peak that large products reach.
        fp8: share of the FP8 peak that large products reach.
        mxfp8: the same with a scale for each 32 numbers.
        fp4: share of the FP4 peak that large products reach.
        waves: waves of tiles that a product loses; its last wave is half empty on average.
        attention: share of the 16-bit peak that attention in one kernel reaches with heads of
            ``WIDTH`` numbers.
        keys: tokens at which attention reaches half of its share.
        hbm: share of the memory's bandwidth that elementwise work reaches.
        within: share of the bandwidth inside a node that collectives reach.
        between: share of the bandwidth between nodes that collectives reach.
        seen: the runs that the numbers were fitted on, in words.
    """

    family: str
    watts: float = 0.0
    bf16: float = 0.6
    fp8: float = 0.5
    mxfp8: float = 0.5
    fp4: float = 0.4
    waves: float = 0.5
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
        not_negative(self, "waves", "keys")

    def share(self, precision: str) -> float:
        """Return the share of the peak that large products reach in a training precision."""
        name = "mxfp8" if precision == "mxfp8" else UNITS[precision].replace("fp16", "bf16")
        value: float = getattr(self, name)
        return value


@dataclass(frozen=True)
class Software:
    """Overheads of software, independent of the GPU.

    Attributes:
        name: kernels between products: fused, compiled, torch or eager, as ``Parallel.kernels``.
        launch_us: microseconds that the host needs to launch a kernel.
        calls: launches for the collectives of one pass of a layer.
        collective_us: microseconds that each further rank of a node adds to a collective.
        elementwise: bytes that elementwise work moves, over the bytes counted for it.
        routed: the same for routing, permuting, activating and casting in expert layers.
        expert_kernels: kernels that an expert layer launches, over the kernels counted for it.
        sharp: exponent p of the norm (gpu^p + host^p)^(1/p) that combines the times of GPU and
            host.
        attention: share of the curve's attention that the software's kernel reaches.
        states: ``Shared.states``.
        alltoall: ``Shared.alltoall``.
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
    alltoall: float = 1.0


@dataclass(frozen=True)
class Shared:
    """Constants common to all families and kernels.

    Attributes:
        power: exponent by which more watts per TFLOP/s raise a chip's shares of the peaks of
            matrix units.
        grace: launch time of a kernel on a Grace host, over that on an x86 host.
        launched: kernels that an expert layer launches without CUDA graphs, over those counted.
        partial: the same with attention and routing as graphs.
        routed: bytes that fused experts move for routing, permuting, activating and casting, over
            those of experts that are not fused.
        states: time of kernels of layers with a state, over the time by their FLOPs and bytes: 4.
            Mamba-2's kernels take as long as FlashAttention-2 at 2,048 tokens and a sixth at
            16,384 (arXiv 2405.21060, section 1).
        alltoall: NCCL's all-to-all reaches the gathers' share of a link's bandwidth to this power.
    """

    power: float
    grace: float
    launched: float
    partial: float
    routed: float
    states: float
    alltoall: float


@dataclass(frozen=True)
class FittedNumbers:
    """Content of ``library/efficiency.toml``: curves, overheads of software, shared constants."""

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
    """Return the library's fitted numbers."""
    return toml.read(str(PATH), FittedNumbers, SCHEMA)


def efficiency_of(gpu: Gpu, parallel: Parallel, numbers: FittedNumbers | None = None) -> Efficiency:
    """Return the efficiency of a GPU and of a run's software.

    A family of chips or kernels that was not fitted has the defaults of :class:`Curve` or
    :class:`Software`.

    Args:
        gpu: the GPU.
        parallel: the run, for its kernels, fused experts and CUDA graphs.
        numbers: the fitted numbers; None takes the library's.
    """
    p = parallel
    return _efficiency(gpu, p.kernels, p.cuda_graphs, p.fused_experts, numbers or fitted())


@lru_cache(maxsize=1024)
def _efficiency(
    gpu: Gpu, kernels: str, graphs: str, fused: bool, numbers: FittedNumbers
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
        alltoall=shared.alltoall,
        expert_kernels={"none": shared.launched, "partial": shared.partial, "full": 1.0}[graphs],
    )
    return Efficiency(curve, software)


def seconds(operators: Operators, gpu: Gpu, found: Efficiency, precision: str) -> Floats:
    """Compute the GPU's seconds for each operator, shape (3, n): rows F, I and W."""
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
    """Return the rates of products in F, I and W, over the rate of a large product, shape (3, n).

    F computes an m x n matrix, I an m x k one and W an n x k one. At the edges of the matrix, and
    in the last wave of tiles, some multiprocessors are idle.

    Args:
        side: shape (3, n), m, n and k of each product.
        flops: shape (n,), FLOPs of the products of a shape that run together, such as those of
            experts.
        gpu: the GPU.
        curve: the curve of the GPU's family.
    """
    rows, columns = side[[0, 0, 1]], side[[1, 2, 2]]
    together = flops / (2 * side.prod(axis=0))
    whole = np.min(
        [_rounded_up(rows, high) * _rounded_up(columns, wide) for high, wide in TILES], axis=0
    )
    waves = together * whole / TILE / gpu.multiprocessors
    result: Floats = rows * columns / whole * waves / (waves + curve.waves)
    return result


def _rounded_up(sizes: Floats, tile: int) -> Floats:
    result: Floats = np.ceil(sizes / tile) * tile
    return result


def _speed_at_width(gpu: Gpu, width: Floats) -> Floats:
    """Return the speed of attention with heads of a width, over heads of ``WIDTH``, shape (3, n).

    A score takes the time of its products, which grows with the width, plus that of its
    exponential, which does not. This agrees with FlashAttention-3 on H100 (arXiv 2407.08608,
    figures 5 and 6) and FlashAttention-2 on RTX 4090 for widths of 64 and 256.
    """
    if not gpu.exponentials:
        return np.ones((3, len(width)))
    # products' numbers that the matrix units process in the time of one exponential
    during = gpu.peak(gpu.sixteen) / (gpu.exponentials * 1e12) / (2 * PRODUCTS)
    result: Floats = (1 + during / WIDTH) / (1 + during / width)
    return result


def pass_seconds(
    operators: Operators, gpu: Gpu, found: Efficiency, precision: str, waits: Floats | float = 0.0
) -> Floats:
    """Compute the seconds of F, I, W and B of all operators together, shape (4,).

    The host launches kernels while the GPU computes. The longer of both times counts, and somewhat
    more where they are close. In a B the host can launch kernels of W while the GPU computes I; in
    separate I and W it cannot.

    Args:
        operators: the operators.
        gpu: the GPU.
        found: the efficiency of GPU and software.
        precision: the training precision.
        waits: shape (3,), seconds that the GPU waits for collectives in F, I and W.
    """
    software = found.software
    times = seconds(operators, gpu, found, precision).sum(axis=1) + waits
    more = software.expert_kernels if "router" in operators.names else 1.0
    kernels = operators.kernels.sum(axis=1) * more
    calls = software.calls if np.any(waits) else 0.0
    host = (kernels + calls * np.array([1.0, 0.5, 0.5])) * software.launch_us * 1e-6
    return _combined_time(
        np.append(times, times[1:].sum()), np.append(host, host[1:].sum()), software.sharp
    )


def _combined_time(gpu: Floats, host: Floats, sharp: float) -> Floats:
    """Return the norm of the times of GPU and host: the longer, or more where they are close."""
    result: Floats = (gpu**sharp + host**sharp) ** (1 / sharp)
    return result
