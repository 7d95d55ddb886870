"""What a layer with latent attention keeps on one tensor-parallel rank, as autograd keeps it.

The layer is written out here with torch: it says which tensors its backward reads, and nothing of
the formulas of ppsim.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.commands import invoke

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HIDDEN, HEADS, SEQ, FFN = 64, 8, 96, 200
HEAD, ROPE, VALUE, KEYS = 12, 6, 14, 16
MODEL = f"""schema = "ppsim.model/2"
name = "latent"
hidden = {HIDDEN}
heads = {HEADS}
layers = {{layers}}
seq = {SEQ}
vocab = 1000
head_dim = {HEAD}
v_dim = {VALUE}
kv_lora = {KEYS}
rope_dim = {ROPE}
ffn = {FFN}
gated = true
{{queries}}
"""


class Norm(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """A norm in one kernel, whose backward reads its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class ColumnParallel(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """A product of all ranks' tokens, gathered once more in the backward: it keeps the rank's."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, ranks: int) -> Any:
        ctx.save_for_backward(x, weight)
        return torch.cat([x] * ranks) @ weight.T

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight = ctx.saved_tensors
        return (
            (gradient @ weight)[: len(x)],
            gradient.T @ torch.cat([x] * (len(gradient) // len(x))),
            None,
        )


class Attention(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """Attention in one kernel, whose backward reads queries, keys, values and the output."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
        scores = torch.einsum("qhd,khd->hqk", query, key).float().softmax(-1).to(value.dtype)
        output = torch.einsum("hqk,khd->qhd", scores, value).contiguous()
        ctx.save_for_backward(query, key, value, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        query, key, value, _ = ctx.saved_tensors
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value)


class Swiglu(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """An activation in one kernel, whose backward reads its input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        gate, up = x.chunk(2, -1)
        return torch.nn.functional.silu(gate) * up

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return torch.cat([gradient, gradient], -1)


def turn(x: Any) -> Any:
    """Rotate the positions of a tensor by angles that need no gradient."""
    half = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * CONSTANT + half * CONSTANT


CONSTANT = torch.tensor(0.5, dtype=torch.bfloat16)


def kept_bytes(ranks: int, queries: int, sequences: int) -> int:
    """Run a layer on one of these tensor-parallel ranks; count what its backward will read."""
    tokens, heads = SEQ * sequences, HEADS // ranks
    weights: list[Any] = []
    kept: dict[int, int] = {}

    def weight(outputs: int, inputs: int) -> Any:
        weights.append(torch.randn(outputs, inputs, dtype=torch.bfloat16, requires_grad=True))
        return weights[-1]

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        skipped = [CONSTANT, *weights]
        if storage.data_ptr() not in [each.untyped_storage().data_ptr() for each in skipped]:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    x = torch.randn(tokens // ranks, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        normed = Norm.apply(x)
        if queries:
            latent = Norm.apply(normed @ weight(queries, HIDDEN).T)
            query = ColumnParallel.apply(latent, weight(heads * (HEAD + ROPE), queries), ranks)
        else:
            query = ColumnParallel.apply(normed, weight(heads * (HEAD + ROPE), HIDDEN), ranks)
        plain, position = query.view(tokens, heads, -1).split([HEAD, ROPE], -1)
        query = torch.cat([plain, turn(position)], -1)
        down = normed @ weight(KEYS + ROPE, HIDDEN).T
        latent, position = down.split([KEYS, ROPE], -1)
        up = ColumnParallel.apply(Norm.apply(latent), weight(heads * (HEAD + VALUE), KEYS), ranks)
        plain, value = up.view(tokens, heads, -1).split([HEAD, VALUE], -1)
        whole = turn(torch.cat([position] * ranks))[:, None]
        key = torch.cat([plain, whole.expand(-1, heads, -1)], -1)
        output = Attention.apply(query, key, value.contiguous()).flatten(1)
        summed = x + (output @ weight(HIDDEN, heads * VALUE).T)[: tokens // ranks]
        wide = ColumnParallel.apply(Norm.apply(summed), weight(2 * FFN // ranks, HIDDEN), ranks)
        result = Swiglu.apply(wide) @ weight(HIDDEN, FFN // ranks).T
        assert (summed + result[: tokens // ranks]).requires_grad
    return sum(kept.values())


@pytest.mark.parametrize("queries", [0, 20])
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("sequences", [1, 3])
def test_a_layer_keeps_what_the_backward_of_its_products_reads(ranks, queries, sequences, tmp_path):
    """``ppsim model`` counts it: one layer more holds as much more."""
    held = []
    for layers in (2, 3):
        file = tmp_path / f"{layers}.toml"
        named = f"q_lora = {queries}" if queries else ""
        file.write_text(MODEL.format(layers=layers, queries=named))
        words = ("--tp", str(ranks), "--mbs", str(sequences), "--json")
        device = json.loads(invoke("model", str(file), *words).stdout)["devices"][0]
        held.append(device["activations_gib"] * 2**30)
    assert held[1] - held[0] == pytest.approx(kept_bytes(ranks, queries, sequences))
