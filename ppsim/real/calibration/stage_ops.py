"""The functions that run a stage's ops: torch's, or the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import call
from typing import Any

from ppsim.errors import MissingDependency
from ppsim.version import INSTALL_TORCH

SENDS, STEPS = ("SEND_F", "RECV_F", "SEND_B", "RECV_B"), ("UNSHARD", "RESHARD", "REDUCE_GRAD")


@dataclass(frozen=True)
class StageOps:
    """The functions of one stage.

    ``x`` is an input, ``out`` the output and ``grad`` the gradient of the output.
    """

    forward: Callable[[Any], Any]  # F: x -> out
    # B: (x, out, grad) -> gradient of x; adds the gradients of parameters
    backward: Callable[[Any, Any, Any], Any]
    # I: (x, out, grad) -> (gradient of x, argument of W)
    backward_input: Callable[[Any, Any, Any], tuple[Any, Any]]
    backward_weight: Callable[[Any], Any]  # W: argument from I
    # a pair: (x, function that runs the other op) -> out; None runs one op after the other
    pair: Callable[[Any, Callable[[], None]], Any] | None = None
    # the user's functions by kind, for sends, receives and FSDP ops
    between: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@contextmanager
def whole_parameters(ops: StageOps) -> Iterator[None]:
    """Gather a stage's sharded parameters for the block, if the user has functions for it."""
    ops.between.get("UNSHARD", lambda: None)()
    yield
    ops.between.get("RESHARD", lambda: None)()


def stage_ops(
    module: Any, *, first: bool, own: Mapping[str, Callable[..., Any]] | None = None
) -> StageOps:
    """Return the functions of a module's ops.

    As in torch's runtime, I of the first stage does nothing and its W is the whole backward, unless
    the user has a function for I.

    Args:
        module: the stage's module.
        first: whether it is the first stage.
        own: the user's functions by kind (F, SEND_F, ...), which replace torch's.
    """
    own = own or {}
    full, half, weight = backward_functions()

    def backward(x: Any, out: Any, grad: Any) -> Any:
        return full((out,), (grad,), (x,))[0]

    def backward_input(x: Any, out: Any, grad: Any) -> tuple[Any, Any]:
        gradients, groups = half([out], None if grad is None else [grad], [x], module.parameters())
        return gradients[0], groups

    def backward_weight(groups: Any) -> None:
        weight(module.parameters(), groups)

    whole = own.get("B", backward)
    halves = (
        (lambda *arguments: (None, partial(whole, *arguments)), call)
        if first
        else (backward_input, backward_weight)
    )
    split = own.get("I", halves[0]), own.get("W", halves[1])
    between = {kind: own[kind] for kind in (*SENDS, *STEPS) if kind in own}
    return StageOps(own.get("F", module), whole, *split, own.get("FB"), between)


def backward_functions() -> tuple[Any, Any, Any]:
    """Return torch's functions for a full backward, its I and its W.

    Raises:
        MissingDependency: this torch cannot split a backward.
    """
    try:
        from torch.distributed.pipelining import _backward
    except ImportError as error:
        raise MissingDependency(
            f"this torch cannot split a backward: {error}", f"{INSTALL_TORCH}, torch 2.11 or later"
        ) from error
    return _backward.stage_backward, _backward.stage_backward_input, _backward.stage_backward_weight
