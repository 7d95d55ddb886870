"""Record the ops of this process: its marks, its clock, and when they are written."""

from __future__ import annotations

import sys
import warnings
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from ppsim.errors import InputError, MissingDependency
from ppsim.real.recorder.file import OpsFile, Process
from ppsim.real.recorder.notes import NONE, Notes
from ppsim.version import INSTALL_TORCH

CLOCKS = ("auto", "cpu", "cuda")
MANY = 1 << 14  # ops held where nothing tells where a step ends


class Recorder(Notes):
    """Record every op that runs inside a ``with`` block, into one file per process.

    Schedules of torch.distributed.pipelining and of Megatron-LM are recorded by themselves; ops of other loops where
    :class:`Op` marks them. Outside of the block nothing is changed, and inside of it nothing that is computed.

    Args:
        path: a folder, the same for all processes; a file that this process wrote there before is replaced.
        steps: how many training steps are recorded; all where it is None.
        device: the pipeline rank of this process; that of torch's stage, or Megatron's, where it is None.
        replica: its data-parallel rank, likewise.
        clock: ``cpu``; ``cuda``, events on the current stream; ``auto``, the GPU's where torch uses one.

    Raises:
        InputError: a clock that is none, or a recording inside of a recording.
        MissingDependency: a GPU's clock without torch.
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
        if clock not in CLOCKS:
            raise InputError(f"unknown clock '{clock}'", f"one of {', '.join(CLOCKS)}")
        if steps is not None and steps < 1:
            raise InputError(f"{steps} steps to record", "1 or more, or none of it for all steps")
        if clock == "cuda" and "torch" not in sys.modules:
            raise MissingDependency("a GPU's clock needs torch, and this process has not imported it", INSTALL_TORCH)
        super().__init__(Process(device, replica), steps, clock)
        self._path = path
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        if Recorder.active:
            raise InputError("this process is being recorded already", "one 'with record(...)' around the other")
        self.begin(OpsFile(self._path, self.process))
        Recorder.active = self
        try:
            self._hook()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if not self.file.begun and kind is None:
            warnings.warn("ppsim.record saw no op: no step of a pipeline ran, and no op was marked", stacklevel=2)

    def end(self) -> None:
        """Take the hooks off and write what is left."""
        if Recorder.active is self:
            Recorder.active = None
            self._hooks.close()
        super().end()

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
            if len(recorder.rows) > MANY:
                recorder.write_due()
