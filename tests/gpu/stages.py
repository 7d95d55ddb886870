# mypy: ignore-errors
"""Stages for ``--module``: one layer each, of the kinds that a transformer of real size is made of.

A layer is in bfloat16, hidden 4096 with 4096 tokens; PPSIM_STAGE_HIDDEN gives another width and
number of tokens.
"""

import os

import torch
from torch import nn
from torch.nn import functional

HIDDEN = int(os.environ.get("PPSIM_STAGE_HIDDEN", "4096"))
HEADS, EXPERTS, CHOSEN = 32, 8, 2


class Attention(nn.Module):
    """Causal attention, fused or as the products that it is made of."""

    def __init__(self, fused):
        super().__init__()
        self.fused, self.norm = fused, nn.LayerNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        """Shape (batch, tokens, hidden) in and out."""
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, tokens, 3, HEADS, hidden // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-1, -2) / (hidden // HEADS) ** 0.5
            later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
            mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        return x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, hidden))


class Mixture(nn.Module):
    """A mixture of experts on one device: each expert takes the tokens that prefer it, all equally
    many.
    """

    def __init__(self):
        super().__init__()
        self.norm, self.router = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.ModuleList(nn.Linear(HIDDEN, 2 * HIDDEN, bias=False) for _ in range(EXPERTS))
        self.down = nn.ModuleList(nn.Linear(2 * HIDDEN, HIDDEN, bias=False) for _ in range(EXPERTS))

    def forward(self, x):
        """Shape (batch, tokens, hidden) in and out."""
        tokens = self.norm(x).flatten(0, -2)
        weights = self.router(tokens).softmax(-1)
        share = len(tokens) * CHOSEN // EXPERTS
        mixed = torch.zeros_like(tokens)
        for number, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            weight, mine = weights[:, number].topk(share)
            done = down(functional.gelu(up(tokens[mine])))
            mixed = mixed.index_add(0, mine, done * weight[:, None])
        return x + mixed.view_as(x)


def _stage(device, *makers):
    with torch.device(device):
        module = nn.Sequential(*(make() for make in makers)).to(torch.bfloat16)
        return module, torch.randn(1, HIDDEN, HIDDEN, dtype=torch.bfloat16)


def fused(stage, stages, device):
    """Attention by torch's fused kernel."""
    return _stage(device, lambda: Attention(True))


def eager(stage, stages, device):
    """Attention product by product."""
    return _stage(device, lambda: Attention(False))


def mixture(stage, stages, device):
    """Fused attention, then eight experts of which each token takes two."""
    return _stage(device, lambda: Attention(True), Mixture)
