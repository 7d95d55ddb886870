"""A backward split as zero-bubble forks of Megatron and DeepSeek's DualPipe do it: products for
weights come later.

Torch splits a backward by walking autograd's graph twice. Here I is the whole backward without the
products that give the gradients of linear layers' weights, which are kept in a list, and W is those
products.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ppsim.real.calibration.stage_ops import StageOps, backward_functions

Products = list[Callable[[], None]]


class _Deferred(torch.autograd.Function):  # type: ignore[misc]
    """A linear layer whose product for the weights is done at once, or put into ``kept``."""

    @staticmethod
    def forward(context: Any, x: Tensor, layer: nn.Linear, kept: list[Products]) -> Tensor:
        """The layer's output."""
        context.save_for_backward(x)
        context.layer, context.kept = layer, kept
        return functional.linear(x, layer.weight, layer.bias)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """The gradient of the input."""
        (x,), layer = context.saved_tensors, context.layer

        def product() -> None:
            rows = gradient.flatten(0, -2)
            _add(layer.weight, rows.t() @ x.flatten(0, -2))
            if layer.bias is not None:
                _add(layer.bias, rows.sum(0))

        if context.kept:
            context.kept[-1].append(product)
        else:
            product()
        return gradient @ layer.weight, None, None


def _add(parameter: Tensor, gradient: Tensor) -> None:
    if parameter.grad is None:
        parameter.grad = gradient
    else:
        parameter.grad += gradient


def deferred_ops(module: Any) -> StageOps:
    """Split the backward of a module, whose linear layers are changed for it."""
    kept: list[Products] = []
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            layer.forward = lambda x, layer=layer: _Deferred.apply(x, layer, kept)
    full, _, _ = backward_functions()

    def backward(x: Any, out: Any, grad: Any) -> Any:
        return full((out,), (grad,), (x,))[0]

    def backward_input(x: Any, out: Any, grad: Any) -> tuple[Any, Products]:
        kept.append([])
        gradient = backward(x, out, grad)
        return gradient, kept.pop()

    def backward_weight(products: Products) -> None:
        for product in products:
            product()

    return StageOps(module, backward, backward_input, backward_weight)
