"""Memory of a stage that serves: weights, and keys and values of the sequences in flight.

Keys and values of a token take, in each layer: with groups of queries a key and a value for each
group; with latent attention one latent vector and the part of the key that holds the position, on
every tensor-parallel rank. Layers with a window keep the keys and values of the window alone,
sparse attention adds the keys of its indexer, compressed attention has a key for several tokens,
and layers that carry a state keep that state whatever the length of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.model.contents import rank_parameters
from ppsim.workload.model.model import (
    COMPRESSED,
    STATES,
    Model,
    embedding_parameters,
    encoder_parameters,
    expert_parameters,
    head_parameters,
    kinds_of,
)

Bytes = NDArray[np.float64]
# of a parameter of the embedding and the head, which quantized checkpoints keep in 16 bits
OUTER_BYTES = 2.0


@dataclass(frozen=True)
class Served:
    """Sizes of serving a model on one device."""

    weight_bytes: float = 2.0  # of a parameter of a layer
    state_bytes: float = 2.0  # of a number of keys, values and states
    block: int = 16  # tokens of a block of keys and values
    context: int = 1  # tokens of a sequence
    tp: int = 1  # tensor-parallel ranks
    ep: int = 1  # expert-parallel ranks


@dataclass(frozen=True)
class LayerMemory:
    """Memory of each layer and both ends of a model on one device, in bytes."""

    weights: Bytes  # shape (layers,)
    states: Bytes  # shape (layers,), keys, values and states of one sequence
    embedding: float  # on the first stage
    head: float  # on the last stage


def find_held(model: Model, served: Served) -> LayerMemory:
    """Return the memory of each layer and of both ends, in bytes, without layers of multi-token
    prediction.
    """
    routed = expert_parameters(model) * model.experts
    weights, states = [], []
    for layer in kinds_of(model):
        experts = routed * (layer.mlp == "experts")
        outside = rank_parameters(model, served.tp, layer)
        weights.append(served.weight_bytes * (outside + experts / served.ep))
        states.append(state_bytes(model, layer.mixer, served))
    tower = encoder_parameters(model.encoder) if model.encoder else 0
    # the last stage has a copy of the embedding's
    matrix = model.vocab * model.hidden if model.tied else 0
    return LayerMemory(
        weights=np.array(weights),
        states=np.array(states),
        embedding=OUTER_BYTES * (embedding_parameters(model) + tower) / served.tp,
        head=OUTER_BYTES * (head_parameters(model) + matrix) / served.tp,
    )


def state_bytes(model: Model, mixer: str, served: Served) -> float:
    """Return the bytes of a sequence's keys and values, or state, in one layer on one device."""
    whole = -(-served.context // served.block) * served.block
    if mixer == "none":
        return 0.0
    if mixer in STATES:
        heads = model.state_heads / served.tp
        mixed = heads * model.state_dim + 2 * model.state_groups * model.state_size / served.tp
        past = max(model.conv - 1, 0) * mixed
        return served.state_bytes * (heads * model.state_dim * model.state_size + past)
    width = token_width(model, served)
    if mixer in COMPRESSED:
        near = min(whole, model.window) * width
        ratio, index = (model.csa, model.index_dim) if mixer == "csa" else (model.hca, 0)
        return served.state_bytes * (near + whole / ratio * (width + index))
    tokens = min(whole, model.window) if mixer in ("window", "chunk") else whole
    index = model.index_dim if mixer == "sparse" else 0
    return served.state_bytes * tokens * (width + index)


def token_width(model: Model, served: Served) -> float:
    """Return how many numbers the keys and values of a token take in one layer on one device."""
    if model.kv_lora:
        return float(model.kv_lora + model.rope_dim)
    if model.o_lora:  # one head that is both key and value
        return float(model.head_dim)
    return max(model.kv_heads / served.tp, 1.0) * (model.head_dim + model.v_dim)


def tokens_in(room: Bytes, states: Bytes, served: Served) -> Bytes:
    """Return how many tokens fit into each room, in whole blocks: sequences of the context share
    it.

    ``states`` are the bytes of one sequence. Where they are none, any number of tokens fits:
    infinity.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sequences = np.where(
            states > 0, np.maximum(room, 0.0) / states, np.where(room >= 0, np.inf, 0.0)
        )
    whole = -(-served.context // served.block)
    blocks = np.floor(sequences * whole * (1 + 1e-12))
    return blocks * served.block
