"""Memory per stage from a measured profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ppsim.base.toml import RefusedValue
from ppsim.base.units import format_size
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import MOST_BYTES, Amounts, MemoryModel
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import ITEM_BYTES, Activation, Profile, StageSize, Workload
from ppsim.workload.model.model import (
    Layer,
    Model,
    embedding_parameters,
    head_parameters,
    layer_parameters,
)


def profile_memory(
    profile: Profile, schedule: Schedule, content: Sequence[str] | None = None
) -> MemoryModel:
    """Make the memory model of a schedule from a measured profile, its layers where a layout's
    ``content`` says.

    Activations are the measured ones, in proportion to a stage's layers between measured numbers of
    them; weights, gradients in the weights' type and Adam's moments follow from the model's size.
    As in :func:`ppsim.inputs.profile.costs.costs_from`, the first stage's I does nothing and its
    W is the whole backward.

    Raises:
        InputError: the profile has no measured activations, no model, a model that cannot be, or
            stages of the user's in another number.
    """
    if profile.stage:
        return _stages_memory(profile, schedule)
    measured = profile.model
    rows = {row.layers: row for row in profile.activation if row.part == "layers"}
    if measured is None or not rows:
        raise InputError(
            "the profile has no activation bytes of layers",
            "describe the model instead: --model FILE",
        )
    n = schedule.n_stages
    share = np.full(n, measured.layers * schedule.n_devices / n)
    ends = {"embedding": [0], "head": [n - 1]}
    if content is not None:
        share = np.array([stage.count("t") + stage.count("m") for stage in content], np.float64)
        letters = {"embedding": "E", "head": "L"}
        ends = {
            part: [s for s, held in enumerate(content) if letter in held]
            for part, letter in letters.items()
        }
    at = sorted(rows)
    held = np.array([_bytes_held(rows[layers]) for layers in at], np.float64)
    inside = [np.interp(share, at, column) for column in held.T]
    scale = share / np.maximum(np.clip(share, at[0], at[-1]), 1e-9)
    held_by_stage = np.rint(np.array(inside) * scale).astype(np.int64).T
    for row in profile.activation:
        if row.part in ends:
            held_by_stage[ends[row.part]] += np.array(_bytes_held(row))
    activations, kept, stash = held_by_stage.T.copy()
    kept[0], stash[0] = activations[0], 0
    message = np.full(n, measured.message_bytes)
    message[-1] = 0
    none = np.zeros(n, np.int64)
    stored = np.minimum(activations, measured.message_bytes)
    # The measured activation includes the output, which torch's runtime keeps until the backward.
    return MemoryModel(
        activations,
        kept,
        stash,
        work_b=none,
        work_i=none,
        message=message,
        stored=stored,
        static=_states(measured, share, ends),
    )


def _states(
    measured: Workload, layers: NDArray[np.float64], ends: dict[str, list[int]]
) -> dict[str, Amounts]:
    """Return weights, gradients in the weights' type, and Adam's states, each in bytes of shape
    (stages,).

    The layers are GPT's: biases, an MLP of four times the width, a table of positions.
    """
    sizes = measured.hidden, measured.heads, measured.layers, measured.sequence, measured.vocab
    try:
        model = Model(*sizes, learned_positions=True, biases=True)
    except RefusedValue as error:
        raise InputError(
            f"the profile's model: {error}", "measure again with ppsim calibrate"
        ) from error
    count = layers * layer_parameters(model, Layer())
    if measured.vocab:
        count[ends["embedding"]] += embedding_parameters(model)
        count[ends["head"]] += head_parameters(model)
    item = ITEM_BYTES[measured.dtype]
    adam = 12 if item == 2 else 2 * item  # with a copy of narrow weights in 32 bits
    if count.max() * (2 * item + adam) > MOST_BYTES:
        large = f"a stage of the profile's model takes more than {format_size(MOST_BYTES)}"
        raise InputError(large, "measure again with ppsim calibrate")
    whole = np.rint(count).astype(np.int64)
    return {"weights": whole * item, "gradients": whole * item, "optimizer": whole * adam}


def _stages_memory(profile: Profile, schedule: Schedule) -> MemoryModel:
    """Make the memory model of stages of the user's own, each as measured; Adam keeps two moments,
    and fp32 weights where the parameters have fewer bits.
    """
    n = schedule.n_stages
    if len(profile.stage) != n:
        raise InputError(
            f"the profile has {len(profile.stage)} stages, and {schedule.name} has {n}",
            f"ppsim calibrate --module FILE.py:FUNCTION --stages {n}",
        )
    activations, kept, stash = np.array(
        [_bytes_held(row) for row in profile.stage], np.int64
    ).T.copy()
    weights, count, message = np.array(
        [(row.parameter_bytes, row.parameters, row.message_bytes) for row in profile.stage],
        np.int64,
    ).T.copy()
    none = np.zeros(n, np.int64)
    return MemoryModel(
        activations,
        kept,
        stash,
        work_b=none,
        work_i=none,
        message=message,
        stored=np.minimum(activations, np.append(0, message[:-1])),
        static={
            "weights": weights,
            "gradients": weights,
            "optimizer": np.where(weights < 4 * count, 12 * count, 2 * weights),
        },
    )


def _bytes_held(row: Activation | StageSize) -> tuple[int, int, int]:
    """Return the bytes after F, the part that I keeps, and the bytes that I adds for W.

    Bytes that are still held after W belong to no microbatch, and are left out.
    """
    after_f, after_i = (
        max(0, held - row.after_w_bytes) for held in (row.after_f_bytes, row.after_i_bytes)
    )
    return after_f, min(after_f, after_i), max(0, after_i - after_f)
