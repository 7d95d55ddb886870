"""The user's stages, from a function in a Python file.

A stage with several input or output tensors is wrapped into one with a single tensor, so that the
tensors between two stages are one message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ppsim.base.outside_code import outside_code, run_file
from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.real.calibration.stage_ops import SENDS, STEPS, StageOps, stage_ops

CONTRACT = (
    "def stage(stage, stages, device): return module, example_input (a tensor, or a tuple of them)"
)
CHAIN = "the output of a stage is the input of the next: of one shape and dtype"
OWN_COMPUTE = ("F", "B", "I", "W", "FB")
OWN_KINDS = (*OWN_COMPUTE, *SENDS, *STEPS)


@dataclass(frozen=True)
class UserModule:
    """A function that makes stages: its file and its name."""

    path: str
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


@dataclass(frozen=True)
class UserStage:
    """One stage of the user's model."""

    module: Any  # the torch module
    example: Any  # an example input
    ops: StageOps  # the functions of its ops; F of the last stage returns the loss
    own: tuple[str, ...]  # the kinds of op that run functions of the user


def find_module(spec: str) -> UserModule:
    """Return the function named by ``FILE.py:FUNCTION``, after running its file.

    Raises:
        InputError: the file or the function does not exist, or the file fails.
    """
    path, _, function = spec.rpartition(":")
    if spec.endswith(".py"):
        path, function = spec, "stage"
    if not path.endswith(".py"):
        raise InputError(f"not FILE.py:FUNCTION: '{shorten(spec)}'", "--module model.py:stage")
    found = UserModule(path, function)
    _load(found)
    return found


def make_stage(of: UserModule, stage: int, stages: int, device: str) -> UserStage:
    """Return a stage of the user's model; torch's seed is its number.

    Raises:
        InputError: the function fails, or does not return a module and an example input.
    """
    import torch

    function = _load(of)
    torch.manual_seed(stage)
    with outside_code(of.path, f"{of.function}({stage}, {stages}, '{device}')"):
        made = function(stage, stages, device)
    where = f"{of}, stage {stage}"
    if not (isinstance(made, (tuple, list)) and len(made) == 2):
        raise InputError(
            f"{where}: returns {_type_name(made)}, not a module and an example input", CONTRACT
        )
    module, example = made
    own: Mapping[str, Any] = {}
    if isinstance(module, Mapping):
        own = {key: value for key, value in module.items() if key != "module"}
        module = module.get("module")
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"{where}: the module is {_type_name(module)}, not a torch.nn.Module", CONTRACT
        )
    if isinstance(example, tuple | list):
        example = _join_inputs(module, tuple(example), own, stage, where)
    if not isinstance(example, torch.Tensor) or not example.ndim:
        raise InputError(
            f"{where}: the example input is {_type_name(example)}, not a tensor with a dimension",
            CONTRACT,
        )
    if example.device.type != device:
        raise InputError(
            f"{where}: the example input is on {example.device}, not on {device}",
            "example.to(device)",
        )
    if stage and not example.is_floating_point():
        raise InputError(
            f"{where}: the example input is {example.dtype}, which has no gradient", CHAIN
        )
    _check_functions(own, where)
    _pack_output(module)
    ops = stage_ops(module, first=stage == 0, own=own)
    if stage == stages - 1:
        ops = _with_loss(ops)
    return UserStage(module, example.detach(), ops, tuple(own))


def input_of(stage: UserStage, first: bool) -> Any:
    """Return a copy of the example input; it requires a gradient unless the stage is the first."""
    return stage.example.clone().requires_grad_(not first)


def check_output(out: Any, last: bool, where: str) -> None:
    """Refuse an output that is not a tensor, has no gradient, or cannot be sent (InputError)."""
    import torch

    if not isinstance(out, torch.Tensor):
        raise InputError(
            f"{where}: the output is {_type_name(out)}, not a tensor",
            "a tensor, or a tuple of tensors",
        )
    if not out.requires_grad:
        raise InputError(
            f"{where}: the output has no gradient", "leave out detach() and torch.no_grad()"
        )
    if not last and not out.ndim:
        raise InputError(
            f"{where}: the output is a single number, but further stages follow",
            "only the last stage returns a loss",
        )


@cache
def _load(of: UserModule) -> Callable[..., Any]:
    """Return the user's function, after running its file once."""
    module = run_file(of.path)
    function = getattr(module, of.function, None)
    if not callable(function):
        names = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and name[0] != "_"
        ]
        hint = f"one of {', '.join(names)}" if names else CONTRACT
        raise InputError(f"{of.path} has no function '{of.function}'", hint)
    result: Callable[..., Any] = function
    return result


def _join_inputs(
    module: Any, examples: tuple[Any, ...], own: Mapping[str, Any], stage: int, where: str
) -> Any:
    """Make a module of several inputs accept one tensor, and return an example of it.

    Raises:
        InputError: an input is not a tensor, they have different dtypes, or the user has functions
            of their own for ops.
    """
    import torch

    if any(kind in OWN_COMPUTE for kind in own):
        raise InputError(
            f"{where}: your functions must have one input tensor, not {len(examples)}", CONTRACT
        )
    for example in examples:
        if not isinstance(example, torch.Tensor) or not example.ndim:
            raise InputError(
                f"{where}: an example input is {_type_name(example)}, not a tensor with a "
                "dimension",
                CONTRACT,
            )
    if not examples:
        raise InputError(f"{where}: there is no example input", CONTRACT)
    if stage and len(kinds := {example.dtype for example in examples}) > 1:
        dtypes = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise InputError(
            f"{where}: the example inputs are of {dtypes}",
            "one dtype: the inputs of a stage are one message",
        )
    return _unpack_input(module, examples, first=stage == 0)


def _unpack_input(module: Any, examples: tuple[Any, ...], *, first: bool) -> Any:
    """Make a module unpack its inputs from one tensor, and return an example of that tensor.

    The ``first`` stage receives no message: only its first input varies, the others are the
    examples.
    """
    import torch

    sizes = [example.numel() for example in examples]

    def unpack(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if first:
            return (*given, *examples[1:])
        parts = given[0].split(sizes)
        return tuple(
            part.view(example.shape) for part, example in zip(parts, examples, strict=True)
        )

    module.register_forward_pre_hook(unpack)
    return examples[0] if first else torch.cat([example.detach().flatten() for example in examples])


def _pack_output(module: Any) -> None:
    """Make a module that returns several tensors of one dtype return them as one, end to end."""
    import torch

    def pack(_: Any, __: Any, out: Any) -> Any:
        has_several = isinstance(out, tuple | list) and all(
            isinstance(part, torch.Tensor) for part in out
        )
        if not has_several or len({part.dtype for part in out}) != 1:
            return out
        return torch.cat([part.flatten() for part in out])

    module.register_forward_hook(pack)


def _check_functions(own: Mapping[str, Any], where: str) -> None:
    """Refuse functions for unknown kinds, and I without W or W without I (InputError)."""
    for kind, function in own.items():
        if kind not in OWN_KINDS:
            raise InputError(
                f"{where}: not a kind of op: '{kind}'",
                f"'module' and any of {', '.join(OWN_KINDS)}",
            )
        if not callable(function):
            raise InputError(
                f"{where}: {kind} is {_type_name(function)}, not a function",
                f"a function for {kind}",
            )
    if ("I" in own) != ("W" in own):
        raise InputError(
            f"{where}: I and W are halves of one backward, and one is missing",
            "give both, or neither",
        )


def _with_loss(ops: StageOps) -> StageOps:
    """Return the functions with a forward, and a pair, that return the loss of the output."""

    def then_loss(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: loss_of(function(*arguments))

    return replace(ops, forward=then_loss(ops.forward), pair=ops.pair and then_loss(ops.pair))


def loss_of(out: Any) -> Any:
    """Return the loss of an output: itself if it is a single number, else the mean of squares."""
    return out.square().mean() if getattr(out, "ndim", 0) else out


def _type_name(value: Any) -> str:
    return f"a {type(value).__name__}"
