"""Record the ops of this process: its marks, its clock, and when they are written."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from ppsim.real.recorder.file import OpsFile, Process
from ppsim.real.recorder.notes import NONE, WAIT_S, Notes, describe, warn

CLOCKS = ("auto", "cpu", "cuda")


class Recorder(Notes):
    """Record every op that runs inside a ``with`` block, into one file per process.

    Schedules of torch.distributed.pipelining and of Megatron-LM are recorded by themselves; ops of other loops where
    :class:`Op` marks them. Outside of the block nothing is changed, and inside of it nothing that is computed. Nothing
    is raised either: where a recording cannot begin or go on, one warning says why, and the program goes on.

    Args:
        path: a folder, the same for all processes. Each makes a new file in it; earlier ones stay.
        steps: how many training steps are recorded; all where it is None.
        device: the pipeline rank of this process; that of torch's stage, or Megatron's, where it is None.
        replica: its data-parallel rank, likewise.
        clock: ``cpu``; ``cuda``, events on the current stream; ``auto``, the GPU's where torch uses one.
    """

    active: Recorder | None = None

    def __init__(
        self,
        path: Any,
        *,
        steps: int | None = None,
        device: int | None = None,
        replica: int | None = None,
        clock: str = "auto",
    ) -> None:
        super().__init__(Process(device, replica), steps, clock)
        self._path = path
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        if fault := self._fault():
            warn(f"ppsim.record records nothing, and the program goes on: {fault}")
            return self
        try:
            self.begin(OpsFile(self._path, self.process))
        except Exception as error:
            warn(f"ppsim.record records nothing, and the program goes on: {describe(error)}")
            return self
        Recorder.active = self
        self.safely(self._hook)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorded = self.running
        self.end(WAIT_S if kind is None else 0.0)  # an error is not held up
        if recorded and kind is None and not (self.failed or self.file.begun):
            warn("ppsim.record saw no op: no step of a pipeline ran, and no op was marked")

    def end(self, wait_s: float = WAIT_S) -> None:
        """Take the hooks off and write what is left."""
        if Recorder.active is self:
            Recorder.active = None
            self.safely(self._hooks.close)
        super().end(wait_s)

    def _fault(self) -> str:
        """Say why nothing can be recorded; empty where it can."""
        if self._clock not in CLOCKS:
            return f"not a clock: {self._clock!r}; expected one of {', '.join(CLOCKS)}"
        if self._steps is not None and not (isinstance(self._steps, int) and self._steps >= 1):
            return f"not a number of steps: {self._steps!r}; expected 1 or more, or None for all"
        for name, rank in (("device", self.process.device), ("replica", self.process.replica)):
            if rank is not None and not (isinstance(rank, int) and rank >= 0):
                return f"not a {name}: {rank!r}; expected 0 or more, or None"
        if self._clock == "cuda" and "torch" not in sys.modules:
            return "a GPU's clock needs torch, and this process has not imported it"
        return "this process is being recorded already" if Recorder.active else ""

    def _hook(self) -> None:
        """Put hooks on the runtimes of pipelines that this process can have."""
        torch = sys.modules.get("torch")
        if torch and torch.distributed.is_available():
            from ppsim.real.recorder.torch_hooks import hook

            self._hooks.enter_context(hook(self))
        if megatron := sys.modules.get("megatron.core.pipeline_parallel.schedules"):
            from ppsim.real.recorder.megatron_hooks import hook as hook_megatron

            self._hooks.enter_context(hook_megatron(self, megatron))


class Op:
    """Mark one op: ``with op("F", stage, microbatch):`` around what computes it, without what it waits for.

    Outside of a recording it does nothing.

    Args:
        kind: ``F``, ``B``, ``I``, ``W``, ``R``, ``SEND_F``, ``RECV_F``, ``SEND_B``, ``RECV_B``, or a name of your own,
            such as ``OPTIMIZER``.
        stage: of the whole model, from 0; -1 for an op of none.
        microbatch: from 0; -1 for an op of none.
    """

    __slots__ = ("_recorder", "_start", "kind", "microbatch", "stage")

    def __init__(self, kind: str, stage: int = NONE, microbatch: int = NONE) -> None:
        self.kind, self.stage, self.microbatch = kind, stage, microbatch

    def __enter__(self) -> Self:
        self._recorder = Recorder.active
        if self._recorder:
            self._start = self._recorder.mark()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder = self._recorder
        if recorder and recorder is Recorder.active and kind is None:
            recorder.note(self.kind, self.stage, self.microbatch, self._start, recorder.mark())
            recorder.write_due()
