"""Ops of a stage: by torch's own functions, or by the user's."""

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
    """The functions of one stage; ``x`` is its input, ``out`` its output and ``grad`` the gradient
    of that.
    """

    forward: Callable[[Any], Any]  # F: ``x`` to ``out``
    # B: ``x, out, grad`` to the gradient of ``x``; gradients of parameters are added up
    backward: Callable[[Any, Any, Any], Any]
    # I: ``x, out, grad`` to the gradient of ``x`` and something for W
    backward_input: Callable[[Any, Any, Any], tuple[Any, Any]]
    backward_weight: Callable[[Any], Any]  # W, from I's result
    # an F with the op that runs in parallel: ``x`` and a function that runs this op, to ``out``;
    # None for one after the other
    pair: Callable[[Any, Callable[[], None]], Any] | None = None
    # functions of the user's by kind, for sends and receives in place of torch's, and for steps of
    # FSDP
    between: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@contextmanager
def whole_parameters(ops: StageOps) -> Iterator[None]:
    """Have a stage's parameters whole for the block, where the user has functions for that."""
    ops.between.get("UNSHARD", lambda: None)()
    yield
    ops.between.get("RESHARD", lambda: None)()


def stage_ops(
    module: Any, *, first: bool, own: Mapping[str, Callable[..., Any]] | None = None
) -> StageOps:
    """Take torch's functions for a module, and the user's ``own`` by kind (F, SEND_F, ...) where
    there are any.

    As in torch's runtime, I of the first stage does nothing and its W is the whole backward, unless
    I is the user's.
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
        (lambda *held: (None, partial(whole, *held)), call)
        if first
        else (backward_input, backward_weight)
    )
    split = own.get("I", halves[0]), own.get("W", halves[1])
    between = {kind: own[kind] for kind in (*SENDS, *STEPS) if kind in own}
    return StageOps(own.get("F", module), whole, *split, own.get("FB"), between)


def backward_functions() -> tuple[Any, Any, Any]:
    """Torch's own backwards: full, for the input, for the weights (MissingDependency: this torch
    has none).
    """
    try:
        from torch.distributed.pipelining import _backward
    except ImportError as error:
        raise MissingDependency(
            f"this torch cannot split a backward: {error}", f"{INSTALL_TORCH}, torch 2.11 or later"
        ) from error
    return _backward.stage_backward, _backward.stage_backward_input, _backward.stage_backward_weight
