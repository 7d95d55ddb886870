# mypy: ignore-errors
"""Stages of one's own for ppsim calibrate --module and ppsim validate --module: a small
convolutional model.

The stages are uneven: the first takes images, the middle ones grow, the last gives the loss.
"""

import torch
from torch import nn

CHANNELS, SIDE, BATCH = 16, 32, 4


class Head(nn.Module):
    """A classifier and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(CHANNELS, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The loss, for targets that are always the same."""
        scores = self.out(x.mean(dim=(2, 3)))
        return nn.functional.cross_entropy(scores, torch.arange(len(scores), device=x.device) % 10)


def stage(stage: int, stages: int, device: str) -> tuple[nn.Module, torch.Tensor]:
    """The module of a stage, and an example of its input."""
    inside = 3 if stage == 0 else CHANNELS
    layers: list[nn.Module] = []
    for number in range(1 + stage):  # each stage has a layer more than the one before
        layers += [
            nn.Conv2d(inside if number == 0 else CHANNELS, CHANNELS, 3, padding=1),
            nn.ReLU(),
        ]
    if stage == stages - 1:
        layers.append(Head())
    return nn.Sequential(*layers).to(device), torch.randn(BATCH, inside, SIDE, SIDE, device=device)
