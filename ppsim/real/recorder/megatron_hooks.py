"""Hooks on Megatron-LM's schedules, which compute everything in ``forward_step`` and ``backward_step``.

A backward is told from others by the output of its forward, which both have. Of the processes that share a device of
the pipeline the first of its tensor and context parallel group is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppsim.real.recorder.notes import Notes


@contextmanager
def hook(recorder: Notes, schedules: Any) -> Iterator[None]:
    """Note every op of Megatron's pipelines while the block lasts."""
    forward, backward = schedules.forward_step, schedules.backward_step
    hooks = _Hooks(recorder)
    schedules.forward_step, schedules.backward_step = hooks.forward(forward), hooks.backward(backward)
    try:
        yield
    finally:
        schedules.forward_step, schedules.backward_step = forward, backward


class _Hooks:
    """The wrappers, and the forwards whose backward has not run."""

    def __init__(self, recorder: Notes) -> None:
        self.recorder = recorder
        self.ran: Counter[int] = Counter()  # forwards, by the chunk of this device
        self.outputs: dict[int, tuple[Any, int, int]] = {}

    def forward(self, original: Any) -> Any:
        """Note a forward; a new step begins where all microbatches of a chunk have run. Evaluation is none."""

        def begin(microbatches: int, chunk: int | None) -> tuple[int, int, int, Any] | None:
            import torch

            if not torch.is_grad_enabled() or not self._first_of_its_device():
                return None
            stage, held = self._place(chunk)
            step, microbatch = divmod(self.ran[held], microbatches)
            if step > self.recorder.step >= 0:
                self.recorder.end_step()
            if step > self.recorder.step:
                self.recorder.begin_step()
            return stage, held, microbatch, self.recorder.mark()

        def note(begun: tuple[int, int, int, Any], result: Any) -> None:
            stage, held, microbatch, start = begun
            self.recorder.note("F", stage, microbatch, start, self.recorder.mark())
            self.ran[held] += 1
            output = _tensor(result[0] if isinstance(result, tuple) else result)
            self.outputs[id(output)] = output, stage, microbatch

        def forward_step(function: Any, data: Any, model: Any, microbatches: int, *given: Any, **named: Any) -> Any:
            running = self.recorder.running
            begun = self.recorder.safely(begin, microbatches, named.get("vp_stage")) if running else None
            result = original(function, data, model, microbatches, *given, **named)
            if begun and self.recorder.running:
                self.recorder.safely(note, begun, result)
            elif not self.recorder.running:
                self.outputs.clear()
            return result

        return forward_step

    def backward(self, original: Any) -> Any:
        """Note the backward of a forward that was noted."""

        def backward_step(inputs: Any, outputs: Any, *given: Any, **named: Any) -> Any:
            found = self.recorder.safely(self._forward_of, outputs)
            start = self.recorder.mark() if found else None
            result = original(inputs, outputs, *given, **named)
            if found:
                self.recorder.note("B", found[1], found[2], start, self.recorder.mark())
            return result

        return backward_step

    def _forward_of(self, outputs: Any) -> tuple[Any, int, int] | None:
        return self.outputs.pop(id(_tensor(outputs)), None)

    def _place(self, chunk: int | None) -> tuple[int, int]:
        """The stage of the model that runs, and its chunk of the device."""
        from megatron.core import parallel_state as mesh

        if chunk is None:
            chunk = mesh.get_virtual_pipeline_model_parallel_rank() or 0
        device, devices = mesh.get_pipeline_model_parallel_rank(), mesh.get_pipeline_model_parallel_world_size()
        if not self.ran:
            self.recorder.process.tell(device, mesh.get_data_parallel_rank(), devices=devices)
        return device + chunk * devices, chunk

    def _first_of_its_device(self) -> bool:
        from megatron.core import parallel_state as mesh

        return not (mesh.get_tensor_model_parallel_rank() or mesh.get_context_parallel_rank())


def _tensor(output: Any) -> Any:
    """The first tensor of an output, which may be alone, in a list or by name."""
    if isinstance(output, dict):
        output = list(output.values())
    return _tensor(output[0]) if isinstance(output, list | tuple) and output else output
