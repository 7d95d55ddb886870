# mypy: ignore-errors
"""Stages of a small transformer for ppsim calibrate --module: whole, or a layer alone."""

import torch
from torch import nn

HIDDEN, HEADS, FFN, SEQ, VOCAB = 256, 8, 1024, 128, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(HIDDEN) for _ in range(2)])
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, FFN), nn.GELU(), nn.Linear(FFN, HIDDEN))

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norms[1](x))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.places = (
            nn.Embedding(VOCAB, HIDDEN),
            nn.Parameter(torch.zeros(SEQ, HIDDEN)),
        )

    def forward(self, tokens):
        return self.table(tokens) + self.places


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.output = nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, x):
        logits = self.output(self.norm(x))
        return nn.functional.cross_entropy(logits.flatten(0, 1), torch.arange(SEQ) % VOCAB)


def stage(stage, stages, device):
    parts = [Layer() for _ in range(2)]
    if stage == 0:
        parts.insert(0, Embedding())
    if stage == stages - 1:
        parts.append(Head())
    example = torch.zeros(1, SEQ, dtype=torch.int64) if stage == 0 else torch.randn(1, SEQ, HIDDEN)
    return nn.Sequential(*parts).to(device), example.to(device)


def layer(stage, stages, device):
    return Layer().to(device), torch.randn(1, SEQ, HIDDEN, device=device)
