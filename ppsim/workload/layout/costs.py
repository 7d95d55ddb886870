"""Costs of stages from their layers and the time of each kind of layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.soundness import LONGEST
from ppsim.errors import InputError
from ppsim.workload.layout.layout import EMBEDDING, LOSS, MTP, Layout

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LayerTimes:
    """Forward times of the kinds of layers.

    Attributes:
        layer: time of a transformer layer, or one time for each layer in model order.
        embedding: time of the embedding.
        head: time of output matrix and loss. A split loss takes this time for each of its letters.
        mtp: time of an MTP layer; None: the mean time of a transformer layer.
        b_over_f: time of a full backward over that of its forward; I and W take half of it each.
    """

    layer: float | Sequence[float] = 1.0
    embedding: float = 0.0
    head: float = 0.0
    mtp: float | None = None
    b_over_f: float = 2.0

    def __post_init__(self) -> None:
        layers = np.atleast_1d(np.asarray(self.layer, np.float64))
        for name, values in (
            ("t-layer", layers),
            ("t-embedding", self.embedding),
            ("t-head", self.head),
            ("t-mtp", 0.0 if self.mtp is None else self.mtp),
            ("b-over-f", self.b_over_f),
        ):
            array = np.atleast_1d(values)
            if not ((array >= 0) & (array <= LONGEST)).all():
                got = ", ".join(f"{value:g}" for value in array[:8])
                raise InputError(
                    f"--{name} must be zero or more, finite and at most {LONGEST:g}, got {got}"
                )

    def forward_times(self, n_layers: int) -> Floats:
        """Return the forward time of each transformer layer in model order, shape (layers,).

        Raises:
            InputError: there are neither one nor ``n_layers`` times.
        """
        times = np.atleast_1d(np.asarray(self.layer, np.float64))
        if len(times) not in (1, n_layers):
            raise InputError(
                f"--t-layer has {len(times)} times for {n_layers} layers",
                f"one time, or {n_layers} times, one for each layer",
            )
        return np.broadcast_to(times, n_layers)

    @property
    def mtp_time(self) -> float:
        """Forward time of an MTP layer."""
        return float(np.mean(self.layer)) if self.mtp is None else self.mtp


def stage_forwards(layout: Layout, times: LayerTimes) -> Floats:
    """Return the forward time of each stage, shape (stages,); zero for an empty stage."""
    of_layers, layer_counts = times.forward_times(layout.n_layers), np.array(layout.layers)
    if np.ndim(times.layer) == 0:
        layers = layer_counts * np.max(times.layer)
    else:
        ends = np.cumsum(layer_counts)
        layers = np.array(
            [
                of_layers[end - count : end].sum()
                for end, count in zip(ends, layer_counts, strict=True)
            ]
        )
    counts = {
        letter: np.array([stage.count(letter) for stage in layout.content])
        for letter in (EMBEDDING, MTP, LOSS)
    }
    return (
        layers
        + counts[EMBEDDING] * times.embedding
        + counts[MTP] * (times.mtp_time if layout.n_mtp else 0.0)
        + counts[LOSS] * times.head
    )


def layout_costs(
    layout: Layout, times: LayerTimes, comm: float = 0.0, unit: str = "t_layer"
) -> Costs:
    """Return the costs of a layout's stages: forwards from layer times, backwards in proportion.

    Raises:
        InputError: ``comm`` is not a time, or ``times`` are of another number of layers.
    """
    if not 0 <= comm <= LONGEST:
        raise InputError(f"comm must be zero or more, finite and at most {LONGEST:g}, got {comm:g}")
    forward = stage_forwards(layout, times)
    backward = times.b_over_f * forward
    return Costs(
        np.stack([forward, backward, backward / 2, backward / 2, forward]), comm, unit=unit
    )
