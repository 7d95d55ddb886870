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
    """The wrappers, and what they know of messages on their way."""

    def __init__(self, recorder: Notes) -> None:
        self.recorder = recorder
        self.messages: dict[int, tuple[Any, Key]] = {}  # by the id of the op to post
        self.pending: dict[int, tuple[Any, list[Key], Any]] = {}  # by the id of the work to wait for
        self.reached: dict[Key, Any] = {}
        self.counts = False

    def computed(self, original: Any, kind_of: Callable[..., str]) -> Any:
        """Note the call of a stage that computes a microbatch."""

        def compute(stage: Any, microbatch: int, *given: Any, **named: Any) -> Any:
            start = self.recorder.mark()
            result = original(stage, microbatch, *given, **named)
            if self.counts:
                kind, end = kind_of(**named), self.recorder.mark()
                wanted = "RECV_F" if kind == "F" else "RECV_B"
                posted = start if kind == "W" else self.reached.pop((wanted, stage.stage_index, microbatch), start)
                self.recorder.note(kind, stage.stage_index, microbatch, start, end, posted)
            return result

        return compute

    def lost(self, original: Any) -> Any:
        """Let the forward of the last stage end with its loss."""

        def compute_loss(schedule: Any, stage: Any, *given: Any, **named: Any) -> Any:
            result = original(schedule, stage, *given, **named)
            rows = self.recorder.rows
            if self.counts and stage.is_last and rows and rows[-1].kind == "F" and rows[-1].stage == stage.stage_index:
                rows[-1] = rows[-1]._replace(end=self.recorder.mark())
            return result

        return compute_loss

    def reduced(self, original: Any) -> Any:
        """Note the reduction of a stage's gradients."""

        def reduce_grad(stage: Any, *given: Any, **named: Any) -> Any:
            start = self.recorder.mark()
            result = original(stage, *given, **named)
            if self.counts:
                self.recorder.note("REDUCE_GRAD", stage.stage_index, -1, start, self.recorder.mark())
            return result

        return reduce_grad

    def made(self, kind: str) -> Callable[[Any], Any]:
        """Remember which messages are about to be posted."""

        def wrap(original: Any) -> Any:
            def get_ops(stage: Any, microbatch: int, *given: Any, **named: Any) -> Any:
                ops = original(stage, microbatch, *given, **named)
                if self.counts:
                    key = kind, stage.stage_index, microbatch
                    for op in ops:
                        self.messages[id(op)] = op, key
                return ops

            return get_ops

        return wrap

    def posted(self, original: Any) -> Any:
        """Note sends as they are posted, and remember receives until they are waited for."""

        def batch_p2p(ops: Any, *given: Any, **named: Any) -> Any:
            if not self.messages:
                return original(ops, *given, **named)
            keys = {found[1] for op in ops if (found := self.messages.pop(id(op), None))}
            start = self.recorder.mark()
            works = original(ops, *given, **named)
            receives = []
            for key in keys:
                if key[0][0] == "R":
                    receives.append(key)
                else:
                    self.recorder.note(*key, start, start)
            if receives:
                self.pending[id(works)] = works, receives, start
            return works

        return batch_p2p

    def waited(self, original: Any) -> Any:
        """Note receives when they have arrived."""

        def wait_batch_p2p(works: Any, *given: Any, **named: Any) -> Any:
            found = self.pending.pop(id(works), None)
            if not found:
                return original(works, *given, **named)
            begin = self.recorder.mark()
            result = original(works, *given, **named)
            end = self.recorder.mark()
            for key in found[1]:
                self.recorder.note(*key, found[2], end)
                self.reached[key] = begin
            return result

        return wait_batch_p2p

    def sharded(self, original: Any) -> Any:
        """Note the gathers and releases of FSDP that torch's runtime names ``PP:0UNSHARD``."""

        @contextmanager
        def noted(name: str, span: Any) -> Iterator[Any]:
            start = self.recorder.mark()
            with span as value:
                yield value
            self.recorder.note(name[-7:], int(name[3:-7]), -1, start, self.recorder.mark())

        def record_function(name: str, *given: Any, **named: Any) -> Any:
            span = original(name, *given, **named)
            return noted(name, span) if name[-7:] in FSDP and self.counts and name[3:-7].isdecimal() else span

        return record_function

    def stepped(self, original: Any) -> Any:
        """Count training steps; ``eval`` of a schedule that trains makes none."""

        def step(schedule: Any, *given: Any, **named: Any) -> Any:
            trains = schedule._has_backward or schedule._loss_fn is None
            if not trains or self.counts or not self.recorder.running:
                return original(schedule, *given, **named)
            self._introduce(schedule)
            self.recorder.begin_step()
            self.counts = True
            try:
                result = original(schedule, *given, **named)
            finally:
                self.counts = False
                self.messages.clear()
                self.pending.clear()
                self.reached.clear()
            self.recorder.end_step()
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
