"""Modules of a transformer: pre-norm layers with causal attention, embedding, head and loss.

This module imports torch; import it only where something is measured or run.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ppsim.inputs.profile.profile import Workload


class Layer(nn.Module):  # type: ignore[misc]
    """One transformer layer of hidden size d: attention, then an MLP of width 4d."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output; input and output have shape (batch, sequence, hidden)."""
        batch, sequence, hidden = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(
            batch, sequence, 3, self.heads, hidden // self.heads
        )
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, hidden))
        return x + self.down(functional.gelu(self.up(self.feed_norm(x))))


def layers(model: Workload, count: int, device: str) -> nn.Module:
    """Return ``count`` layers in sequence."""
    with torch.device(device):
        made = nn.Sequential(*(Layer(model.hidden, model.heads) for _ in range(count)))
    return _convert_dtype(made, model)


def embedding(model: Workload, device: str) -> nn.Module:
    """Return the embedding: token numbers to hidden states."""
    with torch.device(device):
        return _convert_dtype(nn.Embedding(model.vocab, model.hidden), model)


def head(model: Workload, device: str) -> nn.Module:
    """Return the head without its loss: hidden states to scores over the vocabulary."""
    with torch.device(device):
        norm, project = nn.LayerNorm(model.hidden), nn.Linear(model.hidden, model.vocab, bias=False)
    return _convert_dtype(nn.Sequential(norm, project), model)


def loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return functional.cross_entropy(scores.flatten(0, -2).float(), targets.flatten())


def activations(model: Workload, device: str) -> Tensor:
    """Return a random input of a stage.

    With zeros, processors would draw less power and run faster.
    """
    shape = (model.microbatch_size, model.sequence, model.hidden)
    return torch.randn(shape, device=device, dtype=getattr(torch, model.dtype)).requires_grad_()


def tokens(model: Workload, device: str) -> Tensor:
    """Return random token numbers of one microbatch."""
    return torch.randint(0, model.vocab, (model.microbatch_size, model.sequence), device=device)


def _convert_dtype(module: nn.Module, model: Workload) -> nn.Module:
    """Return the module with parameters of the model's dtype.

    They were drawn in 32 bits on their device: drawing them on the host takes minutes at full size.
    """
    return module.to(dtype=getattr(torch, model.dtype))
