"""Ops of a real run: they sleep, or compute stages of a transformer or of the user's model."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ppsim.base.outside_code import explain_failure, outside_code
from ppsim.core.lowered import Lowered
from ppsim.core.ops import RECEIVES, Kind
from ppsim.core.schedule import Schedule
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import Workload
from ppsim.real.calibration import stage as stages
from ppsim.real.calibration.stage_ops import StageOps, stage_ops, whole_parameters
from ppsim.real.calibration.user_module import UserModule, loss_of, make_stage

Cell = tuple[int, int]  # stage and microbatch
Op = tuple[int, Cell]  # code of the kind, and cell
Layout = tuple[Any, Any]  # shape and dtype


class SleepingTasks:
    """Ops that sleep, messages of a fixed size."""

    def __init__(self, message_bytes: int) -> None:
        self._bytes = message_bytes
        self._buffers: dict[tuple[int, int, int], Any] = {}

    def outgoing(self, entry: Any) -> Any:
        """Return the tensor to send."""
        return self.incoming(entry)

    def incoming(self, entry: Any) -> Any:
        """Return the tensor to receive into."""
        key = (entry.kind, entry.stage, entry.microbatch)
        if key not in self._buffers:
            self._buffers[key] = torch.zeros(self._bytes, dtype=torch.uint8)
        return self._buffers[key]

    def own_transfer(self, entry: Any) -> None:
        """Return None: torch sends and receives."""

    def run(self, entry: Any) -> None:
        """Sleep for the op's time."""
        time.sleep(entry.ms / 1e3)

    def reset(self) -> None:
        """Do nothing: buffers are used again."""


def module_of(model: Workload, schedule: Schedule, stage: int, device: str = "cpu") -> Any:
    """Return the module of a stage: layers, the embedding on the first, the head on the last.

    Weights are the same in every run on the same kind of device.
    """
    torch.manual_seed(stage)
    parts = [stages.layers(model, model.layers * schedule.n_devices // schedule.n_stages, device)]
    if model.vocab and stage == 0:
        parts.insert(0, stages.embedding(model, device))
    if model.vocab and stage == schedule.n_stages - 1:
        parts.append(stages.head(model, device))
    return torch.nn.Sequential(*parts)


def batch(model: Workload, microbatch: int, device: str = "cpu") -> tuple[Any, Any]:
    """Return input and target of a microbatch: tokens, or activations without a vocabulary."""
    torch.manual_seed(1000 + microbatch)
    if model.vocab:
        return stages.tokens(model, device), stages.tokens(model, device)
    x = stages.activations(model, device).detach()
    return x, x


def loss(out: Any, target: Any) -> Any:
    """Return the cross entropy against tokens, or the mean square without a vocabulary."""
    return loss_of(out) if target.is_floating_point() else stages.loss(out, target)


@dataclass(frozen=True)
class HeldStage:
    """A stage on a device."""

    module: Any  # the torch module
    ops: StageOps  # the functions of its ops; F of a transformer's last stage has no loss
    input_layout: Layout  # shape and dtype of its input
    output_layout: Layout  # shape and dtype of its output
    example: Any = None  # an example input of a user's stage


def hold_stage(
    model: Workload | UserModule, schedule: Schedule, stage: int, device: str = "cpu"
) -> HeldStage:
    """Return a stage of the model, with the same weights in every run.

    Raises:
        InputError: the user's code fails.
    """
    if isinstance(model, Workload):
        module = module_of(model, schedule, stage, device)
        shape = (
            torch.Size((model.microbatch_size, model.sequence, model.hidden)),
            getattr(torch, model.dtype),
        )
        return HeldStage(module, stage_ops(module, first=stage == 0), shape, shape)
    user = make_stage(model, stage, schedule.n_stages, device)
    with outside_code(model.path, f"stage {stage}"), torch.no_grad(), whole_parameters(user.ops):
        out = user.ops.forward(user.example.clone())
    return HeldStage(user.module, user.ops, _layout(user.example), _layout(out), user.example)


def example_batch(example: Any, microbatch: int) -> Any:
    """Return the input of a microbatch: the user's example with its values rolled on.

    Inputs of different microbatches are different.
    """
    return example.flatten().roll(microbatch).reshape(example.shape)


def whole_stages(
    model: Workload | UserModule, schedule: Schedule, held: Sequence[int], device: str
) -> tuple[dict[int, Any], Any, Any]:
    """Return the modules of the stages ``held``, and inputs and targets of all microbatches.

    They are for torch's runtime.

    Raises:
        InputError: the user's code fails, or has functions for ops, which torch's runtime ignores.
    """
    if isinstance(model, Workload):
        inputs, targets = zip(
            *(batch(model, m, device) for m in range(schedule.n_microbatches)), strict=True
        )
        return (
            {s: module_of(model, schedule, s, device) for s in held},
            torch.cat(inputs),
            torch.cat(targets),
        )
    user = {s: make_stage(model, s, schedule.n_stages, device) for s in held}
    for number, stage in user.items():
        if stage.own:
            kinds = ", ".join(stage.own)
            raise InputError(
                f"{model}, stage {number}: torch's runtime cannot call your functions for {kinds}",
                "--runner own",
            )
    example = next(iter(user.values())).example
    all_inputs = torch.cat([example_batch(example, m) for m in range(schedule.n_microbatches)])
    return (
        {number: stage.module for number, stage in user.items()},
        all_inputs,
        torch.zeros(schedule.n_microbatches, device=device),
    )


def _layout(tensor: Any) -> Layout:
    """Return the shape and dtype of a tensor."""
    return tensor.shape, tensor.dtype


class ComputingTasks:
    """Ops that run a device's stages, forward and backward."""

    def __init__(
        self, lowered: Lowered, rank: int, model: Workload | UserModule, device: str = "cpu"
    ) -> None:
        schedule = lowered.compute
        self._model, self._device = model, device
        self._path = model.path if isinstance(model, UserModule) else ""
        self._last = schedule.n_stages - 1
        held = sorted({int(s) for s in schedule.stage[schedule.queue(rank)]})
        self._held = {s: hold_stage(model, schedule, s, device) for s in held}
        self.module = {s: stage.module for s, stage in self._held.items()}
        microbatches = range(schedule.n_microbatches)
        if isinstance(model, Workload):
            self._batch = [batch(model, m, device) for m in microbatches]
        else:
            self._batch = [
                (example_batch(self._held[0].example, m), None) for m in microbatches if 0 in held
            ]
        self.reset()

    def reset(self) -> None:
        """Drop the activations and gradients of a run."""
        self._input: dict[Cell, Any] = {}
        self._output: dict[Cell, Any] = {}
        self._gradient: dict[Cell, Any] = {}
        self._saved: dict[Cell, Any] = {}
        self._on_host: dict[Cell, Any] = {}
        for module in self.module.values():
            module.zero_grad(set_to_none=True)

    def outgoing(self, entry: Any) -> Any:
        """Return the tensor to send: an activation, or a gradient."""
        cell = entry.stage, entry.microbatch
        if entry.kind == Kind.SEND_F:
            return self._output[cell].detach()
        return self._gradient[entry.stage - 1, entry.microbatch]

    def incoming(self, entry: Any) -> Any:
        """Return a buffer to receive an activation or a gradient into."""
        stage = self._held[entry.stage]
        shape, dtype = stage.input_layout if entry.kind == RECEIVES[0] else stage.output_layout
        buffer = torch.empty(shape, dtype=dtype, device=self._device)
        self.accept(entry.kind, (entry.stage, entry.microbatch), buffer)
        return buffer

    def accept(self, kind: int, cell: Cell, tensor: Any) -> None:
        """Keep a received activation or gradient for the op that needs it."""
        kept = self._input if kind == RECEIVES[0] else self._gradient
        kept[cell] = tensor

    def own_transfer(self, entry: Any) -> Callable[..., Any] | None:
        """Return the user's function for a send or receive, or None."""
        function, doing = self._user_function(entry)
        return function and partial(_Transfer, self._path, doing, function)

    def step(self, entry: Any) -> None:
        """Run the user's function for an FSDP op, if any (InputError: the user's code fails)."""
        function, doing = self._user_function(entry)
        if function:
            with outside_code(self._path, doing):
                function()

    def _user_function(self, entry: Any) -> tuple[Callable[..., Any] | None, str]:
        """Return the user's function for a send, receive or FSDP op, and the op in words."""
        kind = Kind(entry.kind).name
        return self._held[entry.stage].ops.between.get(kind), f"{kind} of stage {entry.stage}"

    def run(self, entry: Any) -> None:
        """Run an op or a pair (InputError: the user's code fails).

        The ops of a pair run one after the other, unless the user has a function for pairs.
        """
        first = entry.kind, (entry.stage, entry.microbatch)
        try:
            if not entry.second:
                self._run_one(*first)
            else:
                self._run_pair(first, entry.second)
        except Exception as error:
            if isinstance(self._model, Workload):
                raise
            doing = f"{Kind(entry.kind).name} of stage {entry.stage}"
            raise explain_failure(self._model.path, error, doing) from error

    def _run_pair(self, first: Op, second: Op) -> None:
        forward, other = (first, second) if first[0] == Kind.F else (second, first)
        pair = self._held[forward[1][0]].ops.pair
        if pair is None or forward[0] != Kind.F:
            self._run_one(*first)
            self._run_one(*second)
        else:
            self._forward(forward[1], lambda x: pair(x, partial(self._run_one, *other)))

    def _run_one(self, kind: int, cell: Cell) -> None:
        if kind == Kind.F:
            self._forward(cell, self._held[cell[0]].ops.forward)
        elif kind == Kind.W:
            self._held[cell[0]].ops.backward_weight(self._saved.pop(cell))
        elif kind in (Kind.B, Kind.I):
            self._backward(kind, cell)
        elif kind == Kind.OFFLOAD:
            activation = self._activation(cell)
            pinned = activation.device.type != "cpu"  # else a copy from a GPU waits for the host
            on_host = torch.empty_like(activation, device="cpu", pin_memory=pinned)
            self._on_host[cell] = on_host.copy_(activation, non_blocking=True)
        elif kind == Kind.RELOAD:
            self._activation(cell).copy_(self._on_host.pop(cell), non_blocking=True)

    def _activation(self, cell: Cell) -> Any:
        """Return the tensor that is copied to the host: the input, or the first stage's output."""
        kept = self._input if cell[0] else self._output
        return kept[cell].data

    def _forward(self, cell: Cell, forward: Callable[[Any], Any]) -> None:
        stage, microbatch = cell
        x = self._input[cell].requires_grad_() if stage else self._batch[microbatch][0]
        out = forward(x)
        if stage < self._last:
            out = out.contiguous()
            if stage + 1 in self.module:
                self._input[stage + 1, microbatch] = out.detach()
        elif isinstance(self._model, Workload):
            out = loss(out, self._batch[microbatch][1])
        self._input[cell], self._output[cell] = x, out

    def _backward(self, kind: int, cell: Cell) -> None:
        stage, microbatch = cell
        x, out = self._input.pop(cell), self._output.pop(cell)
        grad = None if stage == self._last else self._gradient.pop(cell)
        ops = self._held[stage].ops
        if kind == Kind.B:
            gradient = ops.backward(x, out, grad)
        else:
            gradient, self._saved[cell] = ops.backward_input(x, out, grad)
        if stage > 0:
            # Kept until reset: a run does not wait for its sends, so tensors must outlive them.
            # Activation bytes are measured by calibrate, not in a run.
            self._gradient[stage - 1, microbatch] = gradient.contiguous()


class _Transfer:
    """A send or receive by a function of the user, which may return a handle to wait for."""

    def __init__(self, path: str, doing: str, function: Callable[..., Any], *call: Any) -> None:
        self._where = path, doing
        with outside_code(*self._where):
            self._work = function(*call)

    def wait(self) -> None:
        """Wait for the end of the transfer."""
        if self._work is not None:
            with outside_code(*self._where):
                self._work.wait()
