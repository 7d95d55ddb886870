"""The recorder of this process's ops: ``ppsim.record``, and marks of single ops."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from operator import index
from types import TracebackType
from typing import Any, Self

from ppsim.base.text import quote
from ppsim.real.recorder.file import OpsFile, Process
from ppsim.real.recorder.guard import describe, is_of_the_program, warn
from ppsim.real.recorder.notes import NONE, WAIT_S, Notes

CLOCKS = ("auto", "cpu", "cuda")


class Recorder(Notes):
    """Record every op that runs inside a ``with`` block, into one file per process.

    Schedules of torch.distributed.pipelining and of Megatron-LM are recorded automatically; other
    ops are marked with :class:`Op`. The recorder changes nothing outside of the block and no result
    inside it. It raises nothing: if a recording cannot begin or continue, one warning gives the
    reason and the program continues.

    Args:
        path: a folder, the same for all processes. Each process makes a new file in it and leaves
            existing ones alone.
        steps: number of training steps to record; None records all.
        device: pipeline rank of this process; None takes that of torch's stage or of Megatron.
        replica: data-parallel rank of this process; None takes that of torch or of Megatron.
        clock: ``cpu``; ``cuda`` (events on the current stream); or ``auto`` (``cuda`` if torch uses
            a GPU).
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
        try:
            self._check()
            self.begin(OpsFile(self._path, self.process))
        except Exception as error:
            if is_of_the_program(error):
                raise
            reason = str(error) if isinstance(error, _CannotRecord) else describe(error)
            warn(f"ppsim.record records nothing, and the program continues: {reason}")
            return self
        Recorder.active = self
        try:
            self._hook()
        except Exception as error:
            self._hooks.close()
            if is_of_the_program(error):
                self.end(0.0)
                raise
            self.warn_once(
                f"ppsim.record records only marked ops, and no pipeline of torch: {describe(error)}"
            )
        except BaseException:
            self.end(0.0)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorded = self.running
        self.end(WAIT_S if kind is None else 0.0)  # do not delay an error
        if recorded and kind is None and not (self.failed or self.file.has_ops):
            warn("ppsim.record saw no op: no step of a pipeline ran, and no op was marked")

    def end(self, wait_s: float = WAIT_S) -> None:
        """Remove the hooks and write the remaining rows."""
        if Recorder.active is self:
            Recorder.active = None
            self.safely(self._hooks.close)
        super().end(wait_s)

    def _check(self) -> None:
        """Refuse wrong arguments, and a second recording in this process (_CannotRecord)."""
        if not (isinstance(self._wanted, str) and self._wanted in CLOCKS):
            raise _CannotRecord(
                f"not a clock: {_quoted(self._wanted)}; expected one of {', '.join(CLOCKS)}"
            )
        process = self.process
        self._steps = _whole_number("number of steps", self._steps, 1, "or None for all")
        process.device = _whole_number("device", process.device, 0, "or None")
        process.replica = _whole_number("replica", process.replica, 0, "or None")
        if self._wanted == "cuda" and "torch" not in sys.modules:
            raise _CannotRecord("the clock cuda needs torch, and this process has not imported it")
        if Recorder.active:
            raise _CannotRecord("this process is being recorded already")

    def _hook(self) -> None:
        """Put hooks on the pipeline runtimes that this process has imported."""
        torch = sys.modules.get("torch")
        if torch and torch.distributed.is_available():
            from ppsim.real.recorder.torch_hooks import hook

            self._hooks.enter_context(hook(self))
        if megatron := sys.modules.get("megatron.core.pipeline_parallel.schedules"):
            from ppsim.real.recorder.megatron_hooks import hook as hook_megatron

            self._hooks.enter_context(hook_megatron(self, megatron))


class _CannotRecord(Exception):
    """A recording cannot begin; the message is for the user."""


def _whole_number(noun: str, value: Any, least: int, alternative: str) -> int | None:
    """Return a whole number of any type as an int, or None for None (_CannotRecord: other)."""
    try:
        number = None if value is None else index(value)
    except Exception:
        number = least - 1
    if number is not None and number < least:
        raise _CannotRecord(
            f"not a {noun}: {_quoted(value)}; expected {least} or more, {alternative}"
        )
    return number


def _quoted(value: Any) -> str:
    """Return a value as quoted text, or the name of its type if it has no text."""
    try:
        return quote(value)
    except Exception:
        return f"a {type(value).__name__}"


def _abandon_in_child() -> None:
    """End the recording in a forked process; the parent continues it."""
    if Recorder.active:
        Recorder.active.abandon()
        Recorder.active = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)


class Op:
    """Mark one op: ``with op("F", stage, microbatch):`` around its compute, without its waits.

    Outside of a recording it does nothing.

    Args:
        kind: ``F``, ``B``, ``I``, ``W``, ``R``, ``SEND_F``, ``RECV_F``, ``SEND_B``, ``RECV_B``, or
            another name, such as ``OPTIMIZER``.
        stage: stage of the whole model, from 0; -1 for an op without a stage.
        microbatch: microbatch, from 0; -1 for an op without one.
    """

    __slots__ = ("_recorder", "_start", "kind", "microbatch", "stage")

    def __init__(self, kind: str, stage: int = NONE, microbatch: int = NONE) -> None:
        self.kind, self.stage, self.microbatch = kind, stage, microbatch
        self._recorder: Recorder | None = None

    def __enter__(self) -> Self:
        self._recorder = recorder = Recorder.active
        if recorder:
            recorder.open.append(None)
            self._start = recorder.mark()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            end = recorder.mark() if kind is None else None
            recorder.open.pop()
            if recorder is Recorder.active:
                recorder.note(self.kind, self.stage, self.microbatch, self._start, end)
                recorder.write_due()
        except Exception as fault:
            recorder.give_up(fault)
