"""Memory of a stage that serves, in bytes: weights, and keys and values of sequences in flight.

A layer stores of each token:

- grouped-query attention: a key and a value for each group;
- latent attention: one latent vector and the position's part of the key, on every tensor-parallel
  rank;
- windows: keys and values of the window only;
- sparse attention: the keys of its indexer in addition;
- compressed attention: one key for several tokens;
- layers with a state: the state, independent of the length of the sequence.
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
# bytes of a parameter of embedding and head: quantized checkpoints keep both in 16 bits
OUTER_BYTES = 2.0


@dataclass(frozen=True)
class Served:
    """How a model is served on one device."""

    weight_bytes: float = 2.0  # bytes of a parameter of a layer
    state_bytes: float = 2.0  # bytes of an element of keys, values and states
    block: int = 16  # tokens in a block of keys and values
    context: int = 1  # tokens in a sequence
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
    """Return the memory of each layer, of the embedding and of the head, in bytes.

    Layers of multi-token prediction are left out.
    """
    routed = expert_parameters(model) * model.experts
    weights, states = [], []
    for layer in kinds_of(model):
        experts = routed * (layer.mlp == "experts")
        outside = rank_parameters(model, served.tp, layer)
        weights.append(served.weight_bytes * (outside + experts / served.ep))
        states.append(state_bytes(model, layer.mixer, served))
    tower = encoder_parameters(model.encoder) if model.encoder else 0
    # the last stage has a copy of a tied embedding
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
    """Return the elements of a token's keys and values in one layer on one device."""
    if model.kv_lora:
        return float(model.kv_lora + model.rope_dim)
    if model.o_lora:  # one head that is both key and value
        return float(model.head_dim)
    return max(model.kv_heads / served.tp, 1.0) * (model.head_dim + model.v_dim)


def tokens_in(room: Bytes, states: Bytes, served: Served) -> Bytes:
    """Return the tokens that fit into ``room`` bytes, in whole blocks, shape as ``room``.

    ``states`` is the bytes of one sequence of the context's length. Where it is 0, the answer is
    infinity.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        sequences = np.where(
            states > 0, np.maximum(room, 0.0) / states, np.where(room >= 0, np.inf, 0.0)
        )
    whole = -(-served.context // served.block)
    blocks = np.floor(sequences * whole * (1 + 1e-12))
    return blocks * served.block
