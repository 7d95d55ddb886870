"""Hooks on the functions that all schedules of torch.distributed.pipelining call.

An op is the compute of a stage, without the wait for its input; the loss belongs to the forward of
the last stage. A send is the moment of its post. A receive lasts from its post to the end of the
wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from inspect import getattr_static
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from ppsim.real.recorder.guard import observed_function
from ppsim.real.recorder.notes import Notes

Key = tuple[str, int, int]
FSDP = {"UNSHARD", "RESHARD"}


@contextmanager
def hook(recorder: Notes) -> Iterator[None]:
    """Note every op of torch's pipelines during the block.

    Raises:
        TypeError: this torch lacks one of the functions.
    """
    try:
        from torch.distributed.pipelining import schedules, stage
    except ImportError:  # this torch has no pipelining
        yield
        return
    with ExitStack() as changes:

        def put(owner: Any, name: str, hook: Callable[[Any], Any], optional: bool = False) -> None:
            changes.enter_context(replaced_function(owner, name, hook, optional))

        base, hooks = stage._PipelineStageBase, _Hooks(recorder)
        changes.callback(hooks.forget)
        put(base, "forward_one_chunk", lambda f: hooks.on_compute(f, _forward_kind))
        put(base, "backward_one_chunk", lambda f: hooks.on_compute(f, _backward_kind))
        put(base, "backward_weight_one_chunk", lambda f: hooks.on_compute(f, _weight_kind))
        put(base, "perform_reduce_grad", hooks.on_reduce, optional=True)
        for name, kind in (
            ("fwd_send", "SEND_F"),
            ("fwd_recv", "RECV_F"),
            ("bwd_send", "SEND_B"),
            ("bwd_recv", "RECV_B"),
        ):
            put(base, f"get_{name}_ops", hooks.on_make(kind), optional=True)
        put(schedules, "_batch_p2p", hooks.on_post, optional=True)
        put(schedules, "_wait_batch_p2p", hooks.on_wait, optional=True)
        put(schedules, "record_function", hooks.on_shard, optional=True)
        put(schedules._PipelineSchedule, "_maybe_compute_loss", hooks.on_loss, optional=True)
        for owner in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti):
            put(owner, "step", hooks.on_step)
        yield


@contextmanager
def replaced_function(
    owner: Any, name: str, make_replacement: Callable[[Any], Any], optional: bool = False
) -> Iterator[None]:
    """Replace a function of a module or a method of a class during the block.

    A function that other code puts there during the block stays.

    Args:
        owner: the module or class.
        name: name of the function.
        make_replacement: returns the replacement of an original.
        optional: whether the owner may lack the function.

    Raises:
        TypeError: the owner lacks the function, or has something else of this name.
    """
    found = getattr_static(owner, name, None)
    if found is None and optional:
        yield
        return
    if not (callable(found) if isinstance(owner, ModuleType) else isinstance(found, FunctionType)):
        raise TypeError(f"{owner.__name__} has no function {name}")
    ours, inherited = make_replacement(found), name not in vars(owner)
    setattr(owner, name, ours)
    try:
        yield
    finally:
        if vars(owner).get(name) is ours:
            if inherited:
                delattr(owner, name)
            else:
                setattr(owner, name, found)


def _forward_kind(*_: Any, **__: Any) -> str:
    return "F"


def _backward_kind(loss: Any = None, full_backward: bool = True, *_: Any, **__: Any) -> str:
    return "B" if full_backward else "I"


def _weight_kind(*_: Any, **__: Any) -> str:
    return "W"


class _Hooks:
    """Callbacks before and after torch's calls, and the messages in flight."""

    def __init__(self, recorder: Notes) -> None:
        self.recorder, self.mark = recorder, recorder.mark
        # messages to post, by the id of torch's op
        self.messages: dict[int, tuple[Any, Key]] = {}
        # receives under way with their post, by the id of torch's work
        self.pending: dict[int, tuple[Any, list[Key], Any]] = {}
        self.reached: dict[Key, Any] = {}  # moments at which the wait for a receive began
        self.in_step = False

    def forget(self) -> None:
        """End a step, and drop all messages."""
        self.in_step = False
        self.messages.clear()
        self.pending.clear()
        self.reached.clear()

    def on_compute(self, original: Any, kind_of: Callable[..., str]) -> Any:
        """Return a function that notes the compute of a stage; ``kind_of`` returns its kind."""

        def before(
            stage: Any, microbatch: int, *given: Any, **named: Any
        ) -> tuple[str, int, int, Any] | None:
            if not self.in_step:
                return None
            return kind_of(*given, **named), stage.stage_index, microbatch, self.mark()

        def after(begun: tuple[str, int, int, Any], result: Any) -> None:
            end = self.mark()
            kind, stage, microbatch, start = begun
            wanted = "RECV_F" if kind == "F" else "RECV_B"
            posted = start if kind == "W" else self.reached.pop((wanted, stage, microbatch), start)
            self.recorder.note(kind, stage, microbatch, start, end, posted)

        return observed_function(self.recorder, original, before, after)

    def on_loss(self, original: Any) -> Any:
        """Return a function that makes the last stage's forward end with the loss."""

        def before(schedule: Any, stage: Any, *_: Any, **__: Any) -> int | None:
            return stage.stage_index if self.in_step and stage.is_last else None

        def after(stage: int, result: Any) -> None:
            rows, end = self.recorder.rows, self.mark()
            if end is not None and rows and rows[-1].kind == "F" and rows[-1].stage == stage:
                rows[-1] = rows[-1]._replace(end=end)

        return observed_function(self.recorder, original, before, after)

    def on_reduce(self, original: Any) -> Any:
        """Return a function that notes the reduction of a stage's gradients."""

        def before(stage: Any, *_: Any, **__: Any) -> tuple[int, Any] | None:
            return (stage.stage_index, self.mark()) if self.in_step else None

        def after(begun: tuple[int, Any], result: Any) -> None:
            self.recorder.note("REDUCE_GRAD", begun[0], -1, begun[1], self.mark())

        return observed_function(self.recorder, original, before, after)

    def on_make(self, kind: str) -> Callable[[Any], Any]:
        """Return a hook that remembers torch's ops for messages of a kind until they are posted."""

        def before(stage: Any, microbatch: int, *_: Any, **__: Any) -> Key | None:
            return (kind, stage.stage_index, microbatch) if self.in_step else None

        def after(key: Key, ops: Any) -> None:
            for op in _ops_of_list(ops):
                self.messages[id(op)] = op, key

        return lambda original: observed_function(self.recorder, original, before, after)

    def on_post(self, original: Any) -> Any:
        """Return a function that notes sends, and remembers receives until they arrive."""

        def before(ops: Any, *_: Any, **__: Any) -> tuple[set[Key], Any] | None:
            if not self.messages:
                return None
            keys = {
                found[1] for op in _ops_of_list(ops) if (found := self.messages.pop(id(op), None))
            }
            return (keys, self.mark()) if keys else None

        def after(begun: tuple[set[Key], Any], works: Any) -> None:
            keys, start = begun
            for key in keys:
                if key[0][0] != "R":
                    self.recorder.note(*key, start, start)
            if receives := [key for key in keys if key[0][0] == "R"]:
                self.pending[id(works)] = works, receives, start

        return observed_function(self.recorder, original, before, after)

    def on_wait(self, original: Any) -> Any:
        """Return a function that notes receives once they have arrived."""

        def before(works: Any, *_: Any, **__: Any) -> tuple[list[Key], Any, Any] | None:
            found = self.pending.pop(id(works), None)
            return (*found[1:], self.mark()) if found else None

        def after(begun: tuple[list[Key], Any, Any], result: Any) -> None:
            keys, posted, reached = begun
            end = self.mark()
            for key in keys:
                self.recorder.note(*key, posted, end)
                self.reached[key] = reached

        return observed_function(self.recorder, original, before, after)

    def on_shard(self, original: Any) -> Any:
        """Return a function that notes FSDP's blocks, which torch names like ``PP:0UNSHARD``."""

        def noted_span(span: Any, name: Any = "", *_: Any, **__: Any) -> Any:
            is_fsdp = isinstance(name, str) and name[-7:] in FSDP and name[3:-7].isdecimal()
            return _Span(span, self.recorder, name[-7:], int(name[3:-7])) if is_fsdp else None

        def record_function(*given: Any, **named: Any) -> Any:
            span = original(*given, **named)
            if not (self.in_step and self.recorder.running):
                return span
            return self.recorder.safely(noted_span, span, *given, **named) or span

        return record_function

    def on_step(self, original: Any) -> Any:
        """Return a function that counts steps; evaluation by a training schedule does not count."""

        def before(schedule: Any, *_: Any, **__: Any) -> bool | None:
            if self.in_step or not (schedule._has_backward or schedule._loss_fn is None):
                return None
            self._identify(schedule)
            self.recorder.begin_step()
            self.in_step = True
            return True

        def after(begun: bool, result: Any) -> None:
            self.forget()
            self.recorder.end_step()

        return observed_function(self.recorder, original, before, after, self.forget)

    def _identify(self, schedule: Any) -> None:
        """Set the device and the replica of this process, before the first step."""
        if self.recorder.step >= 0:
            return
        import torch.distributed as dist

        stage = schedule._stages[0] if hasattr(schedule, "_stages") else schedule._stage
        self.recorder.process.fill_in(
            stage.group_rank,
            replica_of(dist.get_process_group_ranks(stage.group or dist.group.WORLD)),
            devices=stage.group_size,
            schedule=type(schedule).__name__,
        )


def replica_of(ranks: list[int]) -> int:
    """Return the number of a pipeline in a regular mesh, from its global ranks.

    Pipelines are numbered by their first ranks.
    """
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    return ranks[0] // (stride * len(ranks)) * stride + ranks[0] % stride


class _Span:
    """A block of torch's profiler, noted as an op if it ends without an error."""

    def __init__(self, span: Any, recorder: Notes, kind: str, stage: int) -> None:
        self._span, self._recorder, self._op = span, recorder, (kind, stage, -1)

    def __enter__(self) -> Any:
        self._start = self._recorder.mark()
        return self._span.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        caught = self._span.__exit__(kind, error, trace)
        if kind is None:
            self._recorder.safely(self._note)
        return caught

    def __getattr__(self, name: str) -> Any:
        return getattr(self._span, name)

    def _note(self) -> None:
        self._recorder.note(*self._op, self._start, self._recorder.mark())


def _ops_of_list(ops: Any) -> Any:
    """Return the ops of a list; none of an iterator, which reading would exhaust."""
    return ops if isinstance(ops, list | tuple) else ()
