"""Muon's optimizer step: its FLOPs, seconds and parameters, from the matrices of a model's layers.

Muon (Jordan et al., 2024) orthogonalizes the momentum of each matrix by five Newton-Schulz
iterations. An iteration on a matrix n x m, m <= n, is three products of ``4 n m^2 + 2 m^3`` FLOPs
in all. Five iterations are at most a share ``5 m / B`` of the ``6 n m B`` FLOPs that training on B
tokens takes for this matrix. All parameters outside the matrices of layers (embedding, output,
norms) use AdamW. As in Megatron-LM, each tensor-parallel rank orthogonalizes its part of a matrix
(``--muon-tp-mode blockwise``), and the weights of one product are one matrix.

With ZeRO, each data-parallel rank orthogonalizes some whole matrices. It gathers their momentum
from other ranks in 16 bits, at most a quarter more bytes than distributed AdamW communicates (Liu
et al., Muon is Scalable for LLM Training, arXiv 2502.16982, section 2.3).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppsim.workload.cost.communication import gather_seconds, group_of
from ppsim.workload.cost.update import OF_MOMENTS, joined_group
from ppsim.workload.hardware.efficiency import Efficiency, seconds
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model.contents import StageContent
from ppsim.workload.model.model import Model, mtp_kind
from ppsim.workload.model.operators import (
    FORWARD,
    ITEM,
    WEIGHTS,
    WIDE,
    Floats,
    Operators,
    layer_operators,
)
from ppsim.workload.model.parallel import Parallel

ITERATIONS = 5  # Newton-Schulz iterations of common implementations
# bytes moved per element of a product's result: two elements read, one written
ELEMENTWISE = 3 * ITEM
EXPERTS = ("experts in", "experts out")


class Matrix(NamedTuple):
    """Matrices of one size on one GPU."""

    rows: float
    columns: float
    number: float
    is_expert: bool


def list_matrices(model: Model, parallel: Parallel, content: StageContent) -> list[Matrix]:
    """Return the matrices of a stage's layers on one GPU, grouped by size."""
    mtp_layers = [(mtp_kind(model), content.mtp)] if content.mtp else []
    found = list[Matrix]()
    for layer, layers in (*content.kinds, *mtp_layers):
        operators = layer_operators(model, parallel, layer)
        for at in np.flatnonzero(operators.flops[WEIGHTS] > 0).tolist():
            tokens, rows, columns = operators.size[:, at].tolist()
            times = float(operators.flops[FORWARD, at]) / (2 * tokens * rows * columns)
            found.append(Matrix(rows, columns, layers * times, operators.names[at] in EXPERTS))
    return found


def matrix_parameters(
    model: Model, parallel: Parallel, content: StageContent
) -> tuple[float, float]:
    """Count the parameters of a stage's matrices on one GPU: outside experts, and experts."""
    totals = [0.0, 0.0]
    for each in list_matrices(model, parallel, content):
        totals[each.is_expert] += each.rows * each.columns * each.number
    return totals[0], totals[1]


def matrix_flops(rows: float, columns: float) -> float:
    """Count the FLOPs of orthogonalizing one matrix."""
    long, short = max(rows, columns), min(rows, columns)
    return ITERATIONS * (4 * long * short**2 + 2 * short**3)


def owned_matrices(parallel: Parallel, matrices: list[Matrix]) -> list[float]:
    """Return the number of matrices of each size that the busiest data-parallel rank has.

    A rank orthogonalizes whole matrices. Where there are fewer matrices than ranks, the busiest
    one has a single matrix of the most FLOPs.
    """
    if not parallel.zero:
        return [each.number for each in matrices]
    shares = []
    for each in matrices:
        ranks = group_of(parallel, "expert-dp" if each.is_expert else "dp").size * parallel.replicas
        shares.append(each.number / ranks)
    if matrices and sum(shares) < 1:
        largest = max(
            range(len(matrices)),
            key=lambda at: matrix_flops(matrices[at].rows, matrices[at].columns),
        )
        return [float(at == largest) for at in range(len(matrices))]
    return shares


def muon_flops(model: Model, parallel: Parallel, content: StageContent) -> float:
    """Count the FLOPs of a stage's optimizer step on the busiest GPU."""
    if parallel.adapters:
        return 0.0
    matrices = list_matrices(model, parallel, content)
    owned = owned_matrices(parallel, matrices)
    return sum(
        share * matrix_flops(each.rows, each.columns)
        for share, each in zip(owned, matrices, strict=True)
    )


def muon_seconds(
    model: Model, machine: Machine, parallel: Parallel, content: StageContent, found: Efficiency
) -> tuple[float, float]:
    """Compute the seconds that Muon adds to a stage's AdamW step.

    Returns:
        Seconds of the products, less those of AdamW's second moment; seconds of the gathers.
    """
    if parallel.adapters:
        return 0.0, 0.0
    matrices = list_matrices(model, parallel, content)
    owned = owned_matrices(parallel, matrices)
    if not matrices:
        return 0.0, 0.0
    one = seconds(_products(matrices), machine.gpu, found, parallel.precision)[FORWARD]
    products = float((one * np.repeat(owned, 3)).sum()) * ITERATIONS
    parameters = matrix_parameters(model, parallel, content)
    saved = gathered = 0.0
    for count, name in zip(parameters, ("dp", "expert-dp"), strict=True):
        group = joined_group(machine, parallel, group_of(parallel, name))
        share = group.size if parallel.zero else 1
        saved += OF_MOMENTS / 2 * parallel.moment_bytes * count / share
        if parallel.zero and count:
            gathered += gather_seconds(machine, found, group, ITEM * count)
    return products - saved / (machine.gpu.hbm_gb_per_s * 1e9 * found.curve.hbm), gathered


def _products(matrices: list[Matrix]) -> Operators:
    """Return the three products of an iteration with their elementwise work, in 16 bits.

    There are three columns for each size of matrix, each for one matrix.
    """
    sizes = []
    for each in matrices:
        long, short = max(each.rows, each.columns), min(each.rows, each.columns)
        sizes += [(short, short, long), (short, short, short), (short, long, short)]
    m, n, k = size = np.array(sizes, np.float64).T
    none = np.zeros((3, len(sizes)))

    def forward(column: Floats) -> Floats:
        return np.stack([column, none[0], none[0]])

    return Operators(
        names=("orthogonalization",) * len(sizes),
        unit=np.full(len(sizes), WIDE),
        size=size,
        flops=forward(2 * m * n * k),
        moved=forward(ITEM * (m * k + k * n + m * n)),
        touched=forward(ELEMENTWISE * m * n),
        kernels=none,
    )
