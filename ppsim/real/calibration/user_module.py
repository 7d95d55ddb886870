"""Stages of the user's own, from a function in a Python file: loaded, and checked against the
contract.

Stages that take or return several tensors are made stages of one: the tensors between two stages
travel as one message.
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
    """A function that makes stages: the file it is in, and its name."""

    path: str
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"


@dataclass(frozen=True)
class UserStage:
    """One stage of the user's."""

    module: Any  # its torch module
    example: Any  # an input
    ops: StageOps  # how it runs each kind of op; the output of the last stage's F is the loss
    own: tuple[str, ...]  # the kinds of op that the user's functions run


def find_module(spec: str) -> UserModule:
    """Run the file of ``FILE.py:FUNCTION`` and find the function (InputError: neither is there, or
    it fails).
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
    """Make a stage, torch's seed set to its number before (InputError: the function fails, or
    returns no module).
    """
    import torch

    function = _load(of)
    torch.manual_seed(stage)
    with outside_code(of.path, f"{of.function}({stage}, {stages}, '{device}')"):
        made = function(stage, stages, device)
    where = f"{of}, stage {stage}"
    if not (isinstance(made, (tuple, list)) and len(made) == 2):
        raise InputError(
            f"{where}: returns {_name(made)}, not a module and an example input", CONTRACT
        )
    module, example = made
    own: Mapping[str, Any] = {}
    if isinstance(module, Mapping):
        own = {key: value for key, value in module.items() if key != "module"}
        module = module.get("module")
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{where}: the module is {_name(module)}, not a torch.nn.Module", CONTRACT)
    if isinstance(example, tuple | list):
        example = _bundle_tensors(module, tuple(example), own, stage, where)
    if not isinstance(example, torch.Tensor) or not example.ndim:
        raise InputError(
            f"{where}: the example input is {_name(example)}, not a tensor with a dimension",
            CONTRACT,
        )
    if example.device.type != device:
        raise InputError(
            f"{where}: the example input is on {example.device}, not on {device}",
            "example.to(device)",
        )
    if stage and not example.is_floating_point():
        raise InputError(f"{where}: takes {example.dtype}, which has no gradient", CHAIN)
    _check_own(own, where)
    _pack_output(module)
    ops = stage_ops(module, first=stage == 0, own=own)
    if stage == stages - 1:
        ops = _add_loss(ops)
    return UserStage(module, example.detach(), ops, tuple(own))


def input_of(stage: UserStage, first: bool) -> Any:
    """Copy the example, with a gradient to come where it is another stage's output."""
    return stage.example.clone().requires_grad_(not first)


def check_output(out: Any, last: bool, where: str) -> None:
    """Refuse an output that cannot be sent, or has no gradient (InputError: no tensor, or nothing
    is trained).
    """
    import torch

    if not isinstance(out, torch.Tensor):
        raise InputError(
            f"{where}: the output is {_name(out)}, not a tensor", "a tensor, or a tuple of tensors"
        )
    if not out.requires_grad:
        raise InputError(
            f"{where}: the output has no gradient", "leave out detach() and torch.no_grad()"
        )
    if not last and not out.ndim:
        raise InputError(
            f"{where}: the output is a single number, and stages follow",
            "the loss is the last stage's",
        )


@cache
def _load(of: UserModule) -> Callable[..., Any]:
    module = run_file(of.path)
    function = getattr(module, of.function, None)
    if not callable(function):
        names = [
            name
            for name, value in vars(module).items()
            if inspect.isfunction(value) and name[0] != "_"
        ]
        have = f"one of {', '.join(names)}" if names else CONTRACT
        raise InputError(f"{of.path} has no function '{of.function}'", have)
    result: Callable[..., Any] = function
    return result


def _bundle_tensors(
    module: Any, examples: tuple[Any, ...], own: Mapping[str, Any], stage: int, where: str
) -> Any:
    """Make a stage of several tensors one of a single tensor (InputError: no dtype is common to
    them, or none is).
    """
    import torch

    if any(kind in OWN_COMPUTE for kind in own):
        raise InputError(
            f"{where}: functions of your own take one tensor, not {len(examples)}", CONTRACT
        )
    for example in examples:
        if not isinstance(example, torch.Tensor) or not example.ndim:
            raise InputError(
                f"{where}: an example input is {_name(example)}, not a tensor with a dimension",
                CONTRACT,
            )
    if not examples:
        raise InputError(f"{where}: there is no example input", CONTRACT)
    if stage and len(kinds := {example.dtype for example in examples}) > 1:
        named = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise InputError(
            f"{where}: takes tensors of {named}", "one dtype, as several travel as one message"
        )
    return _take_several(module, examples, first=stage == 0)


def _take_several(module: Any, examples: tuple[Any, ...], *, first: bool) -> Any:
    """Let a module of several tensors take one; returns an example of that.

    Nothing sends the ``first`` stage its input: it takes the first tensor, and the others are the
    same each time.
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
    """Let a module that returns several tensors return one, end to end; anything else passes as it
    is.
    """
    import torch

    def pack(_: Any, __: Any, out: Any) -> Any:
        several = isinstance(out, tuple | list) and all(
            isinstance(part, torch.Tensor) for part in out
        )
        if not several or len({part.dtype for part in out}) != 1:
            return out
        return torch.cat([part.flatten() for part in out])

    module.register_forward_hook(pack)


def _check_own(own: Mapping[str, Any], where: str) -> None:
    """Refuse functions of kinds that there are not, and half a split backward."""
    for kind, function in own.items():
        if kind not in OWN_KINDS:
            raise InputError(
                f"{where}: a function of '{kind}'", f"'module' and any of {', '.join(OWN_KINDS)}"
            )
        if not callable(function):
            raise InputError(
                f"{where}: {kind} is {_name(function)}, not a function",
                f"{kind} of a stage is called",
            )
    if ("I" in own) != ("W" in own):
        raise InputError(
            f"{where}: I and W are halves of one backward, and one is missing",
            "give both, or neither",
        )


def _add_loss(ops: StageOps) -> StageOps:
    """End F in the loss: the output where it is a single number, else the mean of its squares."""

    def ended(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: loss_of(function(*given))

    return replace(ops, forward=ended(ops.forward), pair=ops.pair and ended(ops.pair))


def loss_of(out: Any) -> Any:
    """Return an output that is a single number, else the mean of its squares."""
    return out.square().mean() if getattr(out, "ndim", 0) else out


def _name(value: Any) -> str:
    return f"a {type(value).__name__}"
