"""Hooks on Megatron-LM's schedules, which compute everything in ``forward_step`` and
``backward_step``.

A backward is told from others by the output of its forward, which both have. Of the processes that
share a device of the pipeline the first of its tensor and context parallel group is recorded.
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
    """Note every op of Megatron's pipelines while the block lasts (TypeError: this version has
    other functions).
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
        self.ran: Counter[int] = Counter()  # forwards, by the chunk of this device
        self.outputs: dict[int, tuple[Any, int, int]] = {}

    def forward(self, original: Any) -> Any:
        """Note a forward; a new step begins where all microbatches of a chunk have run. Evaluation
        is none.
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

            if not torch.is_grad_enabled() or not self._first_of_its_device():
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
                output = _tensor(result[0] if isinstance(result, tuple) else result)
                self.outputs[id(output)] = output, stage, microbatch

        return observed_function(self.recorder, original, before, after)

    def backward(self, original: Any) -> Any:
        """Note the backward of a forward that was noted."""

        def before(inputs: Any, outputs: Any, *_: Any, **__: Any) -> tuple[int, int, Any] | None:
            found = self.outputs.pop(id(_tensor(outputs)), None)
            return (*found[1:], self.recorder.mark()) if found else None

        def after(begun: tuple[int, int, Any], result: Any) -> None:
            stage, microbatch, start = begun
            self.recorder.note("B", stage, microbatch, start, self.recorder.mark())

        return observed_function(self.recorder, original, before, after)

    def _place(self, chunk: int | None) -> tuple[int, int]:
        """The stage of the model that runs, and its chunk of the device."""
        from megatron.core import parallel_state as mesh

        if chunk is None:
            chunk = mesh.get_virtual_pipeline_model_parallel_rank() or 0
        device, devices = (
            mesh.get_pipeline_model_parallel_rank(),
            mesh.get_pipeline_model_parallel_world_size(),
        )
        if not self.ran:
            self.recorder.process.fill_in(device, mesh.get_data_parallel_rank(), devices=devices)
        return device + chunk * devices, chunk

    def _first_of_its_device(self) -> bool:
        from megatron.core import parallel_state as mesh

        return not (mesh.get_tensor_model_parallel_rank() or mesh.get_context_parallel_rank())


def _tensor(output: Any) -> Any:
    """The first tensor of an output, which may be alone, in a list or by name."""
    if isinstance(output, dict):
        output = list(output.values())
    return _tensor(output[0]) if isinstance(output, list | tuple) and output else output
