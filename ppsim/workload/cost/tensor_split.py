"""Split of a layer's products over GPUs: the weights of each GPU, and the collectives between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.workload.cost.communication import (
    Group,
    exchange_bytes,
    exchange_seconds,
    gather_seconds,
    group_of,
)
from ppsim.workload.cost.costs import (
    attention_input_share,
    content_times,
    exchanged,
    gathered_bytes,
    gathered_shares,
)
from ppsim.workload.cost.overlap import ATTENTION, BLOCKS
from ppsim.workload.hardware.efficiency import efficiency_of, seconds
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.model import operators as ops
from ppsim.workload.model.contents import StageContent, count_layer_parameters
from ppsim.workload.model.model import (
    COMPRESSED,
    STATES,
    Layer,
    Model,
    kinds_of,
    layer_parameters,
    mtp_kind,
)
from ppsim.workload.model.operators import Operators
from ppsim.workload.model.parallel import Parallel

COLUMN, ROW, GROUPS, EXPERTS, WHOLE = (
    "column-parallel",
    "row-parallel",
    "by groups of heads",
    "by experts",
    "whole",
)
ROUTED = ("experts in", "experts out")
GROUPED = "attention output down"  # DeepSeek-V4's product with a matrix for each group of heads
MIXING = (*ATTENTION, "state")  # operators on a GPU's heads, without weights


class Matrices(NamedTuple):
    """``number`` matrices of ``rows`` inputs and ``columns`` outputs."""

    rows: int
    columns: int
    number: int = 1

    @property
    def parameters(self) -> int:
        """Parameters of all the matrices."""
        return self.rows * self.columns * self.number


@dataclass(frozen=True)
class Product:
    """A product with weights.

    Attributes:
        name: its name in ``ppsim model``.
        way: how it is divided: COLUMN, ROW, GROUPS, EXPERTS or WHOLE.
        whole: the weights in the model.
        held: the weights on each GPU.
        ranks: GPUs that the weights are divided over.
        seconds: seconds of its forward; None without a machine.
    """

    name: str
    way: str
    whole: Matrices
    held: Matrices
    ranks: int
    seconds: float | None


@dataclass(frozen=True)
class Mixing:
    """Work without weights on a GPU's heads: attention, or the state of a layer.

    Attributes:
        name: its name in ``ppsim model``.
        heads: heads on each GPU.
        all_heads: heads of the layer.
        seconds: seconds of its forward; None without a machine.
    """

    name: str
    heads: int
    all_heads: int
    seconds: float | None


@dataclass(frozen=True)
class Collective:
    """A collective of a forward.

    Attributes:
        name: all-gather, reduce-scatter, all-reduce or all-to-all.
        group: tp, cp or ep.
        ranks: GPUs that take part.
        carries: the tensors that it moves, in words.
        size: bytes on a GPU: the result of a gather, the input of a scatter, all tokens of an
            all-to-all.
        sent: bytes that each GPU sends.
        seconds: seconds that it takes; None without a machine.
    """

    name: str
    group: str
    ranks: int
    carries: str
    size: float
    sent: float
    seconds: float | None


Part = Product | Mixing | Collective


@dataclass(frozen=True)
class LayerSplit:
    """The split of one kind of layer.

    Attributes:
        layer: the kind of layer.
        count: layers of this kind in the model, and in multi-token prediction.
        parts: products, work on heads and collectives of a forward, in order.
        other_parameters: parameters of the whole layer outside products, such as norms and
            biases.
        parameters_per_gpu: parameters of the layer on one GPU, as in ``ppsim model``.
        copies: weights of products on each GPU that other GPUs hold too.
        seconds: seconds of a microbatch's forward, with overlap; None without a machine.
    """

    layer: Layer
    count: tuple[int, int]
    parts: tuple[Part, ...]
    other_parameters: int
    parameters_per_gpu: float
    copies: float
    seconds: float | None

    @property
    def products(self) -> list[Product]:
        """Products with weights, in order."""
        return [part for part in self.parts if isinstance(part, Product)]

    @property
    def held(self) -> int:
        """Parameters of products on each GPU."""
        return sum(product.held.parameters for product in self.products)


def layer_splits(
    model: Model, parallel: Parallel, machine: Machine | None = None
) -> list[LayerSplit]:
    """Return the split of each kind of layer over tensor-parallel and expert-parallel ranks.

    Raises:
        InputError: heads, experts or the width of a matrix do not divide over the ranks.
    """
    ops.check_division(model, parallel)
    kinds = Counter(kinds_of(model))
    extra = Counter({mtp_kind(model): model.mtp} if model.mtp else {})
    return [
        _split(model, parallel, machine, layer, (kinds[layer], extra[layer]))
        for layer in dict.fromkeys([*kinds, *extra])
    ]


def _split(
    model: Model, parallel: Parallel, machine: Machine | None, layer: Layer, count: tuple[int, int]
) -> LayerSplit:
    """Return the split of one kind of layer; ``count`` as in :class:`LayerSplit`."""
    _check_heads(model, parallel, layer)
    one_layer = StageContent(kinds=((layer, 1),), mtp=0, embedding=False, heads=0, recomputed=0)
    parts = tuple(_parts(model, parallel, machine, layer))
    products = [part for part in parts if isinstance(part, Product)]
    forward = [
        float(content_times(model, each, parallel, one_layer)[Kind.F])
        for each in _machines(machine)
    ]
    others = layer_parameters(model, layer) - sum(product.whole.parameters for product in products)
    ranks = [parallel.ep if product.name in ROUTED else parallel.tp for product in products]
    even_shares = [
        part.whole.parameters / divisor for part, divisor in zip(products, ranks, strict=True)
    ]
    return LayerSplit(
        layer,
        count,
        parts,
        others,
        parameters_per_gpu=sum(count_layer_parameters(model, parallel, one_layer)),
        copies=sum(product.held.parameters for product in products) - sum(even_shares),
        seconds=max(forward, default=None),
    )


def _check_heads(model: Model, parallel: Parallel, layer: Layer) -> None:
    """Refuse tensor-parallel ranks over which the heads, states or groups do not divide."""
    name, tp = model.name or "the model", parallel.tp
    if layer.mixer in STATES:
        amounts = {"heads of states": model.state_heads, "groups of states": model.state_groups}
    else:
        amounts = {"groups of heads": model.o_groups} if model.o_lora else {}
        amounts |= (
            {} if model.kv_lora or model.o_lora else {"heads of keys and values": model.kv_heads}
        )
    if layer.mixer == "none":
        amounts = {}
    for unit, amount in amounts.items():
        copies = unit == "heads of keys and values" and tp % amount == 0
        if amount % tp and not copies:
            fits = next(
                n for n in range(min(tp, amount), 0, -1) if amount % n == 0 and model.heads % n == 0
            )
            raise InputError(
                f"{name}: {amount} {unit} do not divide over tp = {tp}", f"--tp {fits}"
            )


def _parts(
    model: Model, parallel: Parallel, machine: Machine | None, layer: Layer
) -> Iterator[Part]:
    """Yield products, work on heads and collectives of a forward, in order."""
    on_gpu = ops.layer_operators(model, parallel, layer)
    single = replace(parallel, tp=1, cp=1, ep=1, pp=1, dp=1, vp=1)
    whole = ops.layer_operators(model, single, layer)
    times = _seconds(on_gpu, parallel, machine)
    without_gather = [needs for needs, makes in BLOCKS if makes in on_gpu.names]
    kept = gathered_bytes(model, parallel, layer)[1]
    for i, name in enumerate(on_gpu.names):
        for needs in [needs for needs in without_gather if name in needs]:
            without_gather.remove(needs)
            yield from _gather_before(model, parallel, machine, layer, name)
        if name == "experts in":
            yield from _exchange(model, parallel, machine, "tokens to their experts")
        if name in MIXING:
            if name in (*ATTENTION[:2], "state"):
                yield from _collectives_around(parallel, machine, kept)
            heads = model.state_heads if name == "state" else model.heads
            yield Mixing(name, heads // parallel.tp, heads, times[i])
        elif on_gpu.flops[ops.WEIGHTS, i]:
            pair = _matrices(whole, i), _matrices(on_gpu, i)
            yield _product(model, parallel, name, *pair, times[i])
        if name == "experts out":
            yield from _exchange(model, parallel, machine, "results back to their GPUs")
        if any(name == makes for _, makes in BLOCKS):
            yield from _collective_after(model, parallel, machine, layer)


def _matrices(operators: Operators, i: int) -> Matrices:
    """Return the matrices of the i-th product; rows and columns may still be fractions."""
    m, n, k = operators.size[:, i].tolist()
    number = operators.flops[ops.FORWARD, i] / (2 * m * n * k)
    return Matrices(k, n, round(number))


def _product(
    model: Model,
    parallel: Parallel,
    name: str,
    whole: Matrices,
    held: Matrices,
    forward: float | None,
) -> Product:
    """Return a product and how it is divided (InputError: a side does not divide over ranks)."""
    for side in held[:2]:
        if side != round(side):
            size = whole.columns if held.columns != whole.columns else whole.rows
            width = f"{name} of {size:,.0f}, which does not divide over tp = {parallel.tp}"
            fits = next(
                n for n in range(parallel.tp, 0, -1) if size % n == 0 and model.heads % n == 0
            )
            raise InputError(f"{model.name or 'the model'} has {width}", f"--tp {fits}")
    whole, held = (
        Matrices(round(each.rows), round(each.columns), each.number) for each in (whole, held)
    )
    ranks = 1
    if name in ROUTED and parallel.ep > 1:
        way, ranks = EXPERTS, parallel.ep
    elif held.columns != whole.columns:
        way, ranks = COLUMN, parallel.tp
    elif held.rows != whole.rows:
        way, ranks = GROUPS if name == GROUPED else ROW, parallel.tp
    else:
        way = WHOLE
    return Product(name, way, whole, held, ranks, forward)


def _machines(machine: Machine | None) -> list[Machine]:
    """Return a machine for each kind of nodes, the machine itself for one kind, none for None."""
    if machine is None:
        return []
    return [kind.machine for kind in machine.kinds] or [machine]


def _seconds(
    operators: Operators, parallel: Parallel, machine: Machine | None
) -> list[float | None]:
    """Return the forward seconds of each operator on the slowest kind of nodes, None for none."""
    found = list[list[float]]()
    for each in _machines(machine):
        times = seconds(operators, each.gpu, efficiency_of(each.gpu, parallel), parallel.precision)
        found.append(times[ops.FORWARD].tolist())
    return [max(row) for row in zip(*found, strict=True)] or [None] * len(operators.names)


def _gather_before(
    model: Model, parallel: Parallel, machine: Machine | None, layer: Layer, product: str
) -> Iterator[Collective]:
    """Yield the all-gather before a block's first product, if there is sequence parallelism."""
    if not (parallel.tp > 1 and parallel.sequence_parallel):
        return
    size = gathered_bytes(model, parallel, layer)[0] * gathered_shares(parallel)[ops.FORWARD]
    carries = "hidden states of all tokens"
    if product in BLOCKS[0][0]:
        share = attention_input_share(model, layer)
        size *= share
        carries = "latents of all tokens" if share < 1 else carries
    yield _gather(parallel, machine, "all-gather", "tp", carries, size)


def _collective_after(
    model: Model, parallel: Parallel, machine: Machine | None, layer: Layer
) -> Iterator[Collective]:
    """Yield the reduce-scatter or all-reduce after a block's last product."""
    if parallel.tp > 1:
        size = gathered_bytes(model, parallel, layer)[0]
        name = "reduce-scatter" if parallel.sequence_parallel else "all-reduce"
        yield _gather(parallel, machine, name, "tp", "partial sums of hidden states", size)


def _collectives_around(
    parallel: Parallel, machine: Machine | None, kept: float
) -> Iterator[Collective]:
    """Yield the all-gather of keys and values from other context-parallel ranks."""
    if parallel.cp > 1 and kept:
        yield _gather(parallel, machine, "all-gather", "cp", "keys and values of all tokens", kept)


def _gather(
    parallel: Parallel, machine: Machine | None, name: str, kind: str, carries: str, size: float
) -> Collective:
    """Return an all-gather, a reduce-scatter, or an all-reduce (it moves the bytes of both)."""
    group, times = group_of(parallel, kind), 2 if name == "all-reduce" else 1
    sent = times * size * (group.size - 1) / group.size
    took = [
        times * _gather_seconds(each, parallel, group, size, name) for each in _machines(machine)
    ]
    return Collective(name, kind, group.size, carries, size, sent, max(took, default=None))


def _gather_seconds(
    machine: Machine, parallel: Parallel, group: Group, size: float, name: str
) -> float:
    found = efficiency_of(machine.gpu, parallel)
    return gather_seconds(machine, found, group, size, summed=name == "all-reduce")


def _exchange(
    model: Model, parallel: Parallel, machine: Machine | None, carries: str
) -> Iterator[Collective]:
    """Yield the all-to-all of tokens before or after experts."""
    group = group_of(parallel, "ep")
    if group.size == 1:
        return
    size, visits, nodes = exchanged(model, parallel)
    machines = _machines(machine)
    sent = [sum(exchange_bytes(each, group, size, visits, nodes)) for each in machines]
    took = [
        parallel.load
        * exchange_seconds(each, efficiency_of(each.gpu, parallel), group, size, visits, nodes)
        for each in machines
    ]
    whole = size * (group.size - 1) / group.size
    ends = max(sent, default=whole), max(took, default=None)
    yield Collective("all-to-all", "ep", group.size, carries, size, *ends)


def remarks(model: Model, parallel: Parallel, layer: Layer) -> list[str]:
    """Return remarks on the split of a layer, such as heads that several GPUs hold."""
    found = []
    plain = layer.mixer not in (*STATES, *COMPRESSED, "none") and not model.kv_lora
    if plain and parallel.tp > model.kv_heads:
        each = parallel.tp // model.kv_heads
        found.append(f"each of {model.kv_heads} heads of keys and values is on {each} GPUs")
    latent = layer.mixer not in (*STATES, "none") and (model.kv_lora or model.o_lora)
    if latent and parallel.tp > 1 and parallel.sequence_parallel:
        found.append(
            "the all-gather of latent attention is priced as wide as hidden states, as in all "
            "times of ppsim"
        )
    return found
