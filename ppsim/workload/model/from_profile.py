"""The memory model of a schedule from the measured bytes of a profile."""

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
    """Return the memory model of a schedule from a measured profile.

    Activations are interpolated between the measured numbers of layers. Weights, gradients (in the
    weights' type) and Adam's moments follow from the model's size. As in
    :func:`ppsim.inputs.profile.costs.costs_from`, the first stage's I does nothing and its W is the
    whole backward.

    Args:
        profile: the measured bytes.
        schedule: the schedule.
        content: the letters of each stage of a layout; None divides the measured layers evenly.

    Raises:
        InputError: the profile has no measured activations, no model or an impossible one, or
            another number of stages than the schedule.
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
    layers = np.full(n, measured.layers * schedule.n_devices / n)
    ends = {"embedding": [0], "head": [n - 1]}
    if content is not None:
        layers = np.array([stage.count("t") + stage.count("m") for stage in content], np.float64)
        letters = {"embedding": "E", "head": "L"}
        ends = {
            part: [s for s, stage in enumerate(content) if letter in stage]
            for part, letter in letters.items()
        }
    counts = sorted(rows)
    measured_bytes = np.array([_kept_bytes(rows[count]) for count in counts], np.float64)
    interpolated = [np.interp(layers, counts, column) for column in measured_bytes.T]
    # outside the measured numbers of layers, in proportion
    scale = layers / np.maximum(np.clip(layers, counts[0], counts[-1]), 1e-9)
    stage_bytes = np.rint(np.array(interpolated) * scale).astype(np.int64).T
    for row in profile.activation:
        if row.part in ends:
            stage_bytes[ends[row.part]] += np.array(_kept_bytes(row))
    activations, kept, stash = stage_bytes.T.copy()
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
        static=_states(measured, layers, ends),
    )


def _states(
    measured: Workload, layers: NDArray[np.float64], ends: dict[str, list[int]]
) -> dict[str, Amounts]:
    """Return weights, gradients (in the weights' type) and Adam's states, in bytes by stage.

    The layers are GPT layers: biases, an MLP of four times the hidden size, learned positions.
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
    adam = 12 if item == 2 else 2 * item  # 16-bit weights have a master copy in 32 bits
    if count.max() * (2 * item + adam) > MOST_BYTES:
        large = f"a stage of the profile's model takes more than {format_size(MOST_BYTES)}"
        raise InputError(large, "measure again with ppsim calibrate")
    whole = np.rint(count).astype(np.int64)
    return {"weights": whole * item, "gradients": whole * item, "optimizer": whole * adam}


def _stages_memory(profile: Profile, schedule: Schedule) -> MemoryModel:
    """Return the memory model of the user's stages as measured.

    Adam has two moments, and a master copy in fp32 if the parameters are narrower.
    """
    n = schedule.n_stages
    if len(profile.stage) != n:
        raise InputError(
            f"the profile has {len(profile.stage)} stages, and {schedule.name} has {n}",
            f"ppsim calibrate --module FILE.py:FUNCTION --stages {n}",
        )
    activations, kept, stash = np.array(
        [_kept_bytes(row) for row in profile.stage], np.int64
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


def _kept_bytes(row: Activation | StageSize) -> tuple[int, int, int]:
    """Return the bytes kept after F, the part of them kept after I, and the bytes that I adds.

    Bytes that are still allocated after W do not belong to a microbatch, and are left out.
    """
    after_f, after_i = (
        max(0, size - row.after_w_bytes) for size in (row.after_f_bytes, row.after_i_bytes)
    )
    return after_f, min(after_f, after_i), max(0, after_i - after_f)
