"""Hooks on torch.distributed.pipelining: on what each of its schedules calls, those of its runtime and the others.

An op is what a stage computes, so that waiting for its input is no part of it; the loss belongs to the forward of the
last stage. A send is the moment of its post, a receive lasts from its post to the end of the wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ppsim.real.recorder.notes import Notes

Key = tuple[str, int, int]
FSDP = {"UNSHARD", "RESHARD"}


@contextmanager
def hook(recorder: Notes) -> Iterator[None]:
    """Note every op of torch's pipelines while the block lasts."""
    try:
        from torch.distributed.pipelining import schedules, stage
    except ImportError:  # a torch without it
        yield
        return
    with ExitStack() as changed:

        def put(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
            original = getattr(owner, name, None)
            if original is not None:
                setattr(owner, name, made(original))
                changed.callback(setattr, owner, name, original)

        base, hooks = stage._PipelineStageBase, _Hooks(recorder)
        put(base, "forward_one_chunk", lambda f: hooks.computed(f, lambda *_, **__: "F"))
        put(base, "backward_one_chunk", lambda f: hooks.computed(f, _backward_kind))
        put(base, "backward_weight_one_chunk", lambda f: hooks.computed(f, lambda *_, **__: "W"))
        put(base, "perform_reduce_grad", hooks.reduced)
        for name, kind in (
            ("fwd_send", "SEND_F"),
            ("fwd_recv", "RECV_F"),
            ("bwd_send", "SEND_B"),
            ("bwd_recv", "RECV_B"),
        ):
            put(base, f"get_{name}_ops", hooks.made(kind))
        put(schedules, "_batch_p2p", hooks.posted)
        put(schedules, "_wait_batch_p2p", hooks.waited)
        put(schedules, "record_function", hooks.sharded)
        put(schedules._PipelineSchedule, "_maybe_compute_loss", hooks.lost)
        for owner in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti):
            put(owner, "step", hooks.stepped)
        yield


def _backward_kind(full_backward: bool = True, **_: Any) -> str:
    return "B" if full_backward else "I"


class _Hooks:
    """The wrappers, and what they know of messages on their way.

    A wrapper calls the original once, with what it was given, and passes on what that returns or raises; what it notes
    before and after is done safely.
    """

    def __init__(self, recorder: Notes) -> None:
        self.recorder, self.safely, self.mark = recorder, recorder.safely, recorder.mark
        self.messages: dict[int, tuple[Any, Key]] = {}  # by the id of the op to post
        self.pending: dict[int, tuple[Any, list[Key], Any]] = {}  # by the id of the work to wait for
        self.reached: dict[Key, Any] = {}
        self.in_step = False

    @property
    def counts(self) -> bool:
        """Whether ops are noted: within a training step, while the recording lasts."""
        return self.in_step and self.recorder.running

    def computed(self, original: Any, kind_of: Callable[..., str]) -> Any:
        """Note the call of a stage that computes a microbatch."""

        def note(stage: Any, microbatch: int, start: Any, named: dict[str, Any]) -> None:
            kind, end = kind_of(**named), self.mark()
            wanted = "RECV_F" if kind == "F" else "RECV_B"
            posted = start if kind == "W" else self.reached.pop((wanted, stage.stage_index, microbatch), start)
            self.recorder.note(kind, stage.stage_index, microbatch, start, end, posted)

        def compute(stage: Any, microbatch: int, *given: Any, **named: Any) -> Any:
            start = self.mark()
            result = original(stage, microbatch, *given, **named)
            if self.counts:
                self.safely(note, stage, microbatch, start, named)
            return result

        return compute

    def lost(self, original: Any) -> Any:
        """Let the forward of the last stage end with its loss."""

        def note(stage: Any) -> None:
            rows = self.recorder.rows
            if stage.is_last and rows and rows[-1].kind == "F" and rows[-1].stage == stage.stage_index:
                rows[-1] = rows[-1]._replace(end=self.mark())

        def compute_loss(schedule: Any, stage: Any, *given: Any, **named: Any) -> Any:
            result = original(schedule, stage, *given, **named)
            if self.counts:
                self.safely(note, stage)
            return result

        return compute_loss

    def reduced(self, original: Any) -> Any:
        """Note the reduction of a stage's gradients."""

        def note(stage: Any, start: Any) -> None:
            self.recorder.note("REDUCE_GRAD", stage.stage_index, -1, start, self.mark())

        def reduce_grad(stage: Any, *given: Any, **named: Any) -> Any:
            start = self.mark()
            result = original(stage, *given, **named)
            if self.counts:
                self.safely(note, stage, start)
            return result

        return reduce_grad

    def made(self, kind: str) -> Callable[[Any], Any]:
        """Remember which messages are about to be posted."""

        def remember(stage: Any, microbatch: int, ops: Any) -> None:
            key = kind, stage.stage_index, microbatch
            for op in ops:
                self.messages[id(op)] = op, key

        def wrap(original: Any) -> Any:
            def get_ops(stage: Any, microbatch: int, *given: Any, **named: Any) -> Any:
                ops = original(stage, microbatch, *given, **named)
                if self.counts:
                    self.safely(remember, stage, microbatch, ops)
                return ops

            return get_ops

        return wrap

    def posted(self, original: Any) -> Any:
        """Note sends as they are posted, and remember receives until they are waited for."""

        def keys_of(ops: Any) -> set[Key]:
            return {found[1] for op in ops if (found := self.messages.pop(id(op), None))}

        def note(works: Any, keys: set[Key], start: Any) -> None:
            for key in keys:
                if key[0][0] != "R":
                    self.recorder.note(*key, start, start)
            if receives := [key for key in keys if key[0][0] == "R"]:
                self.pending[id(works)] = works, receives, start

        def batch_p2p(ops: Any, *given: Any, **named: Any) -> Any:
            keys = self.safely(keys_of, ops) if self.messages else None
            start = self.mark() if keys else None
            works = original(ops, *given, **named)
            if keys:
                self.safely(note, works, keys, start)
            return works

        return batch_p2p

    def waited(self, original: Any) -> Any:
        """Note receives when they have arrived."""

        def note(found: tuple[Any, list[Key], Any], begin: Any) -> None:
            end = self.mark()
            for key in found[1]:
                self.recorder.note(*key, found[2], end)
                self.reached[key] = begin

        def wait_batch_p2p(works: Any, *given: Any, **named: Any) -> Any:
            found = self.pending.pop(id(works), None)
            begin = self.mark() if found else None
            result = original(works, *given, **named)
            if found:
                self.safely(note, found, begin)
            return result

        return wait_batch_p2p

    def sharded(self, original: Any) -> Any:
        """Note the gathers and releases of FSDP that torch's runtime names ``PP:0UNSHARD``."""

        def is_step(name: Any) -> bool:
            return isinstance(name, str) and name[-7:] in FSDP and name[3:-7].isdecimal()

        @contextmanager
        def noted(name: str, span: Any) -> Iterator[Any]:
            start = self.mark()
            with span as value:
                yield value
            self.recorder.note(name[-7:], int(name[3:-7]), -1, start, self.mark())

        def record_function(name: Any, *given: Any, **named: Any) -> Any:
            span = original(name, *given, **named)
            return noted(name, span) if self.counts and is_step(name) else span

        return record_function

    def stepped(self, original: Any) -> Any:
        """Count training steps; ``eval`` of a schedule that trains makes none."""

        def begin(schedule: Any) -> bool:
            if not (schedule._has_backward or schedule._loss_fn is None):
                return False
            self._introduce(schedule)
            self.recorder.begin_step()
            return True

        def step(schedule: Any, *given: Any, **named: Any) -> Any:
            if self.in_step or not self.recorder.running or not self.safely(begin, schedule):
                return original(schedule, *given, **named)
            self.in_step = True
            try:
                result = original(schedule, *given, **named)
            finally:
                self.in_step = False
                self.messages.clear()
                self.pending.clear()
                self.reached.clear()
            self.safely(self.recorder.end_step)
            return result

        return step

    def _introduce(self, schedule: Any) -> None:
        """Tell which device this is, once."""
        if self.recorder.step >= 0:
            return
        import torch.distributed as dist

        stage = schedule._stages[0] if hasattr(schedule, "_stages") else schedule._stage
        self.recorder.process.tell(
            stage.group_rank,
            replica_of(dist.get_process_group_ranks(stage.group or dist.group.WORLD)),
            devices=stage.group_size,
            schedule=type(schedule).__name__,
        )


def replica_of(ranks: list[int]) -> int:
    """Return the number of the pipeline with these global ranks in a regular mesh, counted by first ranks."""
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return ranks[0] // (stride * len(ranks)) * stride + ranks[0] % stride
