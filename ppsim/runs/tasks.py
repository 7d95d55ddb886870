"""Work of an op in a real run: sleep for its time, or compute a stage of a transformer."""

from __future__ import annotations

import time
from typing import Any

import torch

from ppsim.calibration import stage as stages
from ppsim.calibration.ops import backward_functions
from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, Kind
from ppsim.core.schedule import Schedule
from ppsim.profiles.profile import Workload

Cell = tuple[int, int]


class SleepingTasks:
    """Ops that sleep, messages of a fixed size."""

    def __init__(self, message_bytes: int) -> None:
        self._bytes = message_bytes
        self._buffers: dict[tuple[int, int, int], Any] = {}

    def outgoing(self, entry: Any) -> Any:
        """Return the tensor that a send carries."""
        return self.incoming(entry)

    def incoming(self, entry: Any) -> Any:
        """Return the tensor that a receive fills."""
        key = (entry.kind, entry.stage, entry.microbatch)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(self._bytes, dtype=torch.uint8)
        return self._buffers[key]

    def run(self, entry: Any) -> None:
        """Sleep for the op's time."""
        time.sleep(entry.ms / 1e3)

    def reset(self) -> None:
        """Keep the buffers: a run leaves nothing else."""


def module_of(model: Workload, schedule: Schedule, stage: int, device: str = "cpu") -> Any:
    """Make one stage: its layers, the embedding on the first and the head on the last; equal weights in every run."""
    torch.manual_seed(stage)
    parts = [stages.layers(model, model.layers * schedule.n_devices // schedule.n_stages, "cpu")]
    if model.vocab and stage == 0:
        parts.insert(0, stages.embedding(model, "cpu"))
    if model.vocab and stage == schedule.n_stages - 1:
        parts.append(stages.head(model, "cpu"))
    return torch.nn.Sequential(*parts).to(device)


def batch(model: Workload, microbatch: int, device: str = "cpu") -> tuple[Any, Any]:
    """Make input and target of a microbatch: tokens, or activations where the model has no vocabulary."""
    torch.manual_seed(1000 + microbatch)
    if model.vocab:
        return stages.tokens(model, "cpu").to(device), stages.tokens(model, "cpu").to(device)
    x = stages.activations(model, "cpu").detach().to(device)
    return x, x


def whole_batch(model: Workload, microbatches: int, device: str = "cpu") -> tuple[Any, Any]:
    """Concatenate inputs and targets of all microbatches."""
    inputs, targets = zip(*(batch(model, m, device) for m in range(microbatches)), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def loss(out: Any, target: Any) -> Any:
    """Compute the cross entropy against tokens; without a vocabulary the mean square of the output."""
    return out.square().mean() if target.is_floating_point() else stages.loss(out, target)


class ComputingTasks:
    """Ops that run a device's stages of a transformer, forward and backward."""

    def __init__(self, lowered: Lowered, rank: int, model: Workload, device: str = "cpu") -> None:
        schedule = lowered.compute
        self._model, self._device = model, device
        self._last = schedule.n_stages - 1
        self._full, self._half, self._weight = backward_functions()
        held = sorted({int(s) for s in schedule.stage[schedule.queue(rank)]})
        self.module = {s: module_of(model, schedule, s, device) for s in held}
        self._batch = [batch(model, m, device) for m in range(schedule.n_microbatches)]
        self.reset()

    def reset(self) -> None:
        """Drop activations and gradients of the last run."""
        self._input: dict[Cell, Any] = {}
        self._output: dict[Cell, Any] = {}
        self._gradient: dict[Cell, Any] = {}
        self._groups: dict[Cell, Any] = {}
        for module in self.module.values():
            module.zero_grad(set_to_none=True)

    def outgoing(self, entry: Any) -> Any:
        """Return the activation after F, or the gradient of the input after B or I."""
        cell = entry.stage, entry.microbatch
        if entry.kind == Kind.SEND_F:
            return self._output[cell].detach()
        return self._gradient[entry.stage - 1, entry.microbatch]

    def incoming(self, entry: Any) -> Any:
        """Make a buffer for an activation or a gradient."""
        shape = (self._model.microbatch_size, self._model.sequence, self._model.hidden)
        buffer = torch.empty(shape, dtype=getattr(torch, self._model.dtype), device=self._device)
        self.accept(entry.kind, (entry.stage, entry.microbatch), buffer)
        return buffer

    def accept(self, kind: int, cell: Cell, tensor: Any) -> None:
        """Keep a received activation or gradient for the op that works on it."""
        kept = self._input if kind == RECEIVES[0] else self._gradient
        kept[cell] = tensor

    def run(self, entry: Any) -> None:
        """Run an op, or both ops of a pair one after the other."""
        self._one(entry.kind, (entry.stage, entry.microbatch))
        if entry.second:
            self._one(*entry.second)

    def _one(self, kind: int, cell: Cell) -> None:
        if kind == Kind.F:
            self._forward(cell)
        elif kind == Kind.W:
            self._weights(cell)
        elif kind == Kind.I and cell[0] > 0:
            self._half_backward(cell)
        elif kind == Kind.B:
            self._backward(cell)

    def _forward(self, cell: Cell) -> None:
        stage, microbatch = cell
        x = self._input[cell].requires_grad_() if stage else self._batch[microbatch][0]
        out = self.module[stage](x)
        if stage == self._last:
            out = loss(out, self._batch[microbatch][1])
        elif stage + 1 in self.module:
            self._input[stage + 1, microbatch] = out.detach()
        self._input[cell], self._output[cell] = x, out

    def _backward(self, cell: Cell) -> None:
        x, out = self._input.pop(cell), self._output.pop(cell)
        grad = None if cell[0] == self._last else self._gradient.pop(cell)
        gradients = self._full((out,), (grad,), (x,))
        if cell[0] > 0:
            # Kept until reset: nobody waits for a send during a run, so its tensor must outlive the run. Bytes held
            # are measured by calibrate, never in a run.
            self._gradient[cell[0] - 1, cell[1]] = gradients[0]

    def _half_backward(self, cell: Cell) -> None:
        x, out = self._input.pop(cell), self._output.pop(cell)
        grad = None if cell[0] == self._last else [self._gradient.pop(cell)]
        weights = self.module[cell[0]].parameters()
        gradients, self._groups[cell] = self._half([out], grad, [x], weights)
        self._gradient[cell[0] - 1, cell[1]] = gradients[0]

    def _weights(self, cell: Cell) -> None:
        if cell[0] == 0:  # as torch's runtime: the first stage has no input gradient, so W is the whole backward
            self._backward(cell)
        else:
            self._weight(self.module[cell[0]].parameters(), self._groups.pop(cell))
