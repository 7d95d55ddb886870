"""Hooks on Megatron-LM's schedules, whose ops are calls of ``forward_step`` and ``backward_step``.

A backward is matched to its forward by the forward's output, which both calls have. Of the ranks of
a pipeline device, the first of the tensor-parallel and context-parallel groups is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppsim.real.recorder.guard import observed_function
from ppsim.real.recorder.notes import Notes
from ppsim.real.recorder.torch_hooks import replaced_function


@contextmanager
def hook(recorder: Notes, schedules: Any) -> Iterator[None]:
    """Note every op of Megatron's pipelines during the block.

    Raises:
        TypeError: this version of Megatron-LM lacks one of the functions.
    """
    hooks = _Hooks(recorder)
    with (
        replaced_function(schedules, "forward_step", hooks.forward),
        replaced_function(schedules, "backward_step", hooks.backward),
    ):
        try:
            yield
        finally:
            hooks.outputs.clear()


class _Hooks:
    """Callbacks before and after each call, and the forwards whose backward has not run."""

    def __init__(self, recorder: Notes) -> None:
        self.recorder = recorder
        self.ran: Counter[int] = Counter()  # number of forwards, by the chunk of this device
        # output, stage and microbatch of forwards whose backward has not run, by the output's id
        self.outputs: dict[int, tuple[Any, int, int]] = {}

    def forward(self, original: Any) -> Any:
        """Return a function that notes forwards of training.

        A new step begins after all microbatches of a chunk.
        """

        def before(
            function: Any,
            data: Any,
            model: Any,
            microbatches: int,
            *_: Any,
            vp_stage: int | None = None,
            **__: Any,
        ) -> tuple[int, int, int, Any] | None:
            import torch

            if not torch.is_grad_enabled() or not self._is_first_rank():
                return None
            stage, chunk = self._place(vp_stage)
            step, microbatch = divmod(self.ran[chunk], microbatches)
            if step > self.recorder.step >= 0:
                self.outputs.clear()
                self.recorder.end_step()
            if step > self.recorder.step:
                self.recorder.begin_step()
            return stage, chunk, microbatch, self.recorder.mark()

        def after(begun: tuple[int, int, int, Any], result: Any) -> None:
            end = self.recorder.mark()
            stage, chunk, microbatch, start = begun
            self.recorder.note("F", stage, microbatch, start, end)
            self.ran[chunk] += 1
            if self.recorder.running:
                output = _first_tensor(result[0] if isinstance(result, tuple) else result)
                self.outputs[id(output)] = output, stage, microbatch

        return observed_function(self.recorder, original, before, after)

    def backward(self, original: Any) -> Any:
        """Return a function that notes the backwards of noted forwards."""

        def before(inputs: Any, outputs: Any, *_: Any, **__: Any) -> tuple[int, int, Any] | None:
            found = self.outputs.pop(id(_first_tensor(outputs)), None)
            return (*found[1:], self.recorder.mark()) if found else None

        def after(begun: tuple[int, int, Any], result: Any) -> None:
            stage, microbatch, start = begun
            self.recorder.note("B", stage, microbatch, start, self.recorder.mark())

        return observed_function(self.recorder, original, before, after)

    def _place(self, chunk: int | None) -> tuple[int, int]:
        """Return the stage that runs, and the chunk of the device that it is."""
        from megatron.core import parallel_state as mesh

        if chunk is None:
            chunk = mesh.get_virtual_pipeline_model_parallel_rank() or 0
        device = mesh.get_pipeline_model_parallel_rank()
        devices = mesh.get_pipeline_model_parallel_world_size()
        if not self.ran:
            self.recorder.process.fill_in(device, mesh.get_data_parallel_rank(), devices=devices)
        return device + chunk * devices, chunk

    def _is_first_rank(self) -> bool:
        """Return whether this is the first rank of its pipeline device."""
        from megatron.core import parallel_state as mesh

        return not (mesh.get_tensor_model_parallel_rank() or mesh.get_context_parallel_rank())


def _first_tensor(output: Any) -> Any:
    """Return the first tensor of an output: a tensor, or a list, tuple or dict of tensors."""
    if isinstance(output, dict):
        output = list(output.values())
    return _first_tensor(output[0]) if isinstance(output, list | tuple) and output else output
