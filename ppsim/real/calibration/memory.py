"""Bytes that one microbatch occupies on its device between its ops.

This module imports torch; import it only where something is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ppsim.real.calibration.stage_ops import StageOps


class _StorageWatch(TorchDispatchMode):  # type: ignore[misc]
    """Records the storages that ops allocate while it is active, by weak reference."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()
        self._known = {StorageWeakRef(t.untyped_storage()).cdata for t in known}
        self._made: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                reference = StorageWeakRef(storage)
                if reference.cdata not in self._known:
                    self._made[reference.cdata] = (reference, storage.nbytes())
        return result

    def live_bytes(self) -> int:
        """Return the bytes of recorded storages that still exist."""
        return sum(size for reference, size in self._made.values() if not reference.expired())


def activation_bytes(
    module: Any, ops: StageOps, make_input: Callable[[], Any]
) -> tuple[int, int, int]:
    """Return the bytes that one microbatch holds after F, after I and after W.

    Gradients of parameters do not count. Between I and W the input, the output and its gradient
    count, since torch's pipelining runtime keeps them.
    """
    out, x = None, make_input()
    out = ops.forward(x)
    # a first backward allocates the gradients of parameters
    ops.backward(x, out, None if out.ndim == 0 else torch.ones_like(out))
    del out, x
    weights = list(module.parameters())
    with _StorageWatch([*weights, *(w.grad for w in weights if w.grad is not None)]) as watch:
        x = make_input()
        out = ops.forward(x)
        after_f = watch.live_bytes()
        grad = None if out.ndim == 0 else torch.ones_like(out)
        saved = ops.backward_input(x, out, grad)[1]
        x.grad = None  # sent to the stage before
        after_i = watch.live_bytes()
        ops.backward_weight(saved)
        del x, out, grad, saved
        after_w = watch.live_bytes()
    return after_f, after_i, after_w
