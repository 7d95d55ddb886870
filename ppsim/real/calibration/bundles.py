"""Stages that take or return several tensors, as stages of one: what travels between two stages is one message."""

from __future__ import annotations

from typing import Any


def take_several(module: Any, examples: tuple[Any, ...], *, first: bool) -> Any:
    """Let a module of several tensors take one; returns an example of that.

    Nothing sends the ``first`` stage its input: it takes the first tensor, and the others are the same each time.
    """
    import torch

    sizes = [example.numel() for example in examples]

    def unpack(_: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        if first:
            return (*given, *examples[1:])
        parts = given[0].split(sizes)
        return tuple(part.view(example.shape) for part, example in zip(parts, examples, strict=True))

    module.register_forward_pre_hook(unpack)
    return examples[0] if first else torch.cat([example.detach().flatten() for example in examples])


def pack_output(module: Any) -> None:
    """Let a module that returns several tensors return one, end to end; anything else passes as it is."""
    import torch

    def pack(_: Any, __: Any, out: Any) -> Any:
        several = isinstance(out, tuple | list) and all(isinstance(part, torch.Tensor) for part in out)
        if not several or len({part.dtype for part in out}) != 1:
            return out
        return torch.cat([part.flatten() for part in out])

    module.register_forward_hook(pack)
