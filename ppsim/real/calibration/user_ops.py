"""Op times and bytes of the user's stages, measured one stage after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

from ppsim.base.outside_code import outside_code
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import OpTime, StageSize
from ppsim.real.calibration.clock import Tick, stopwatch
from ppsim.real.calibration.memory import activation_bytes
from ppsim.real.calibration.ops import collect, one_thread, op_time, time_once
from ppsim.real.calibration.stage_ops import whole_parameters
from ppsim.real.calibration.user_module import (
    CHAIN,
    UserModule,
    UserStage,
    check_output,
    input_of,
    make_stage,
)


def measure_stages(
    of: UserModule,
    stages: int,
    device: str,
    *,
    repeats: int,
    warm_up: int,
    tick: Tick,
    together: bool = True,
) -> tuple[list[OpTime], list[StageSize]]:
    """Return the times of F, B, I, W and a pair of each stage, and its bytes and messages.

    Only one stage is in memory at a time. Without ``together`` a pair is measured only if the user
    has a function for it, as in a run.

    Raises:
        InputError: the user's code fails, a stage's output is not the next one's input, or there is
            no gradient; the message names the stage.
        MissingDependency: this torch cannot split a backward.
    """
    times: list[OpTime] = []
    sizes: list[StageSize] = []
    sent: Any = None
    with one_thread(device):
        for number in range(stages):
            where = f"{of}, stage {number}"
            stage = make_stage(of, number, stages, device)
            expected = stage.example
            if number and (sent.shape, sent.dtype) != (expected.shape, expected.dtype):
                raise InputError(
                    f"{where}: its input is {_shape(expected)}, and stage {number - 1} returns "
                    f"{_shape(sent)}",
                    CHAIN,
                )
            with outside_code(of.path, f"stage {number}"), whole_parameters(stage.ops):
                sent = _check_gradients(stage, number, stages, where)
                sizes.append(_size_of(stage, number, sent if number < stages - 1 else None))
                example = partial(input_of, stage, number == 0)
                run = partial(time_once, stage.ops, example, stopwatch(device), pairs=together)
                (found,) = collect([(f"stage {number}", run)], repeats, warm_up, tick)
                times += [
                    op_time("stage", kind, 0, each, stage=number) for kind, each in found.items()
                ]
    return times, sizes


def _shape(tensor: Any) -> str:
    return f"{tuple(tensor.shape)} of {str(tensor.dtype).removeprefix('torch.')}"


def _check_gradients(stage: UserStage, number: int, stages: int, where: str) -> Any:
    """Run F and B once, and return a tensor of the output's shape and dtype without memory.

    Raises:
        InputError: the output cannot be sent, or B returns no gradient of the input's shape.
    """
    import torch

    x = input_of(stage, number == 0)
    out = stage.ops.forward(x)
    check_output(out, number == stages - 1, where)
    gradient = stage.ops.backward(x, out, None if number == stages - 1 else torch.ones_like(out))
    if number:
        if not isinstance(gradient, torch.Tensor):
            raise InputError(
                f"{where}: its backward returns no gradient of its input",
                "the output must depend on the input, without detach(); B and I return "
                "the gradient",
            )
        if gradient.shape != x.shape:
            raise InputError(
                f"{where}: the gradient of its input is {_shape(gradient)}, the input {_shape(x)}",
                CHAIN,
            )
    return out.detach().to("meta")


def _size_of(stage: UserStage, number: int, sent: Any) -> StageSize:
    """Return the bytes of a stage: its message, parameters and activations."""
    weights = list(stage.module.parameters())
    bytes_after = activation_bytes(stage.module, stage.ops, lambda: input_of(stage, number == 0))
    return StageSize(
        number,
        0 if sent is None else sent.numel() * sent.element_size(),
        sum(p.numel() for p in weights),
        sum(p.numel() * p.element_size() for p in weights),
        *bytes_after,
    )
