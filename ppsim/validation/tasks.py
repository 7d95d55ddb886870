"""What an op does in a real run: take its time, or compute a stage of a transformer."""

from __future__ import annotations

import time
from typing import Any

import torch

from ppsim.lowered import RECEIVES, Lowered
from ppsim.ops import Kind
from ppsim.profile import Model

Cell = tuple[int, int]


class Timed:
    """Ops that sleep, messages of a fixed size."""

    def __init__(self, message_bytes: int) -> None:
        self._bytes = message_bytes
        self._buffers: dict[tuple[int, int, int], Any] = {}

    def outgoing(self, entry: Any) -> Any:
        """The tensor a send carries."""
        return self.incoming(entry)

    def incoming(self, entry: Any) -> Any:
        """The tensor a receive fills."""
        key = (entry.kind, entry.stage, entry.microbatch)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(self._bytes, dtype=torch.uint8)
        return self._buffers[key]

    def run(self, entry: Any) -> None:
        """The op's time passes."""
        time.sleep(entry.ms / 1e3)

    def reset(self) -> None:
        """Nothing is kept between runs but the buffers."""


def timed(message_bytes: int) -> Timed:
    """Ops that only take their time."""
    return Timed(message_bytes)


class Computing:
    """Ops that run the stages of a transformer this device holds, forward and backward."""

    def __init__(self, lowered: Lowered, rank: int, model: Model) -> None:
        from ppsim.measure import stage
        from ppsim.measure.ops import _backward_functions as backward_functions

        schedule = lowered.compute
        self._stage, self._model = stage, model
        self._last = schedule.n_stages - 1
        self._full, self._half, self._weight = backward_functions()
        held = sorted({int(s) for s in schedule.stage[schedule.queue(rank)]})
        torch.manual_seed(0)
        self._module = {s: self._build(s, model.layers * schedule.n_devices / schedule.n_stages) for s in held}
        self._words = stage.tokens(model, "cpu") if model.vocab else None
        self.reset()

    def _build(self, stage: int, layers: float) -> Any:
        count = max(1, round(layers))
        parts = [self._stage.layers(self._model, count, "cpu")]
        if self._model.vocab and stage == 0:
            parts.insert(0, self._stage.embedding(self._model, "cpu"))
        if self._model.vocab and stage == self._last:
            parts.append(self._stage.head(self._model, "cpu"))
        return torch.nn.Sequential(*parts)

    def reset(self) -> None:
        """Drop activations and gradients of the last run."""
        self._input: dict[Cell, Any] = {}
        self._output: dict[Cell, Any] = {}
        self._gradient: dict[Cell, Any] = {}
        self._groups: dict[Cell, Any] = {}
        for module in self._module.values():
            module.zero_grad(set_to_none=True)

    def outgoing(self, entry: Any) -> Any:
        """The activation after F, or the gradient of the input after B or I."""
        cell = entry.stage, entry.microbatch
        if entry.kind == Kind.SEND_F:
            return self._output[cell].detach()
        return self._gradient[entry.stage - 1, entry.microbatch]

    def incoming(self, entry: Any) -> Any:
        """A buffer for an activation or a gradient."""
        shape = (self._model.microbatch_size, self._model.sequence, self._model.hidden)
        buffer = torch.empty(shape, dtype=getattr(torch, self._model.dtype))
        kept = self._input if entry.kind == RECEIVES[0] else self._gradient
        kept[entry.stage, entry.microbatch] = buffer
        return buffer

    def run(self, entry: Any) -> None:
        """Both ops of a pair, one after the other, or the one op."""
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
        if stage == 0:
            x = self._words if self._words is not None else self._stage.activations(self._model, "cpu").detach()
        else:
            x = self._input[cell].requires_grad_()
        out = self._module[stage](x)
        if stage == self._last:
            out = self._stage.loss(out, self._words) if self._words is not None else out.square().mean()
        elif stage + 1 in self._module:
            self._input[stage + 1, microbatch] = out.detach()
        self._input[cell], self._output[cell] = x, out

    def _backward(self, cell: Cell) -> None:
        x, out = self._input.pop(cell), self._output.pop(cell)
        grad = None if cell[0] == self._last else self._gradient.pop(cell)
        gradients = self._full((out,), (grad,), (x,))
        if cell[0] > 0:
            self._gradient[cell[0] - 1, cell[1]] = gradients[0]

    def _half_backward(self, cell: Cell) -> None:
        x, out = self._input.pop(cell), self._output.pop(cell)
        grad = None if cell[0] == self._last else [self._gradient.pop(cell)]
        weights = self._module[cell[0]].parameters()
        gradients, self._groups[cell] = self._half([out], grad, [x], weights)
        self._gradient[cell[0] - 1, cell[1]] = gradients[0]

    def _weights(self, cell: Cell) -> None:
        if cell[0] == 0:  # as torch's runtime: the first stage has no input gradient, so W is the whole backward
            self._backward(cell)
        else:
            self._weight(self._module[cell[0]].parameters(), self._groups.pop(cell))


def computing(lowered: Lowered, rank: int, model: Model) -> Computing:
    """Ops that compute; weights are random and the same in every run."""
    return Computing(lowered, rank, model)
