"""Runner of real queues in the runtime of torch.distributed.pipelining, from a CSV of ppsim.

Each action of torch's runtime runs inside its ``record_function``, which is replaced during a step:
the replacement waits for the action's input, which separates waiting from working, and notes the
times. REDUCE_GRAD and other actions outside the queues belong to the gap between two entries.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.lowered import Lowered
from ppsim.core.ops import BACKWARDS, FORWARDS, Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.lowering.fsdp import TORCH_STAGES
from ppsim.engine.lowering.lower import lower
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, PpsimError
from ppsim.real.calibration.processes import temporary_folder
from ppsim.real.runs.own_runner import Mark, read_marks
from ppsim.real.runs.record import Measured
from ppsim.real.runs.streams import Clock
from ppsim.real.runs.turns import (
    RunPlan,
    Settings,
    Tick,
    Turn,
    Turns,
    collect,
    intended_times,
    take_turns,
)
from ppsim.show.files.document import Document
from ppsim.show.files.writers import csv

FLOAT_BYTES = 4


@dataclass(frozen=True)
class TorchAction:
    """One action of a device in torch's runtime."""

    op: int  # index of the (first) op in the lowered queues
    ms: float  # time that a timed op sleeps
    # (whether it is a forward, stage, microbatch) of each of its F, B and I
    inputs: tuple[tuple[bool, int, int], ...]


@dataclass(frozen=True)
class Job:
    """One plan for torch's runtime.

    Attributes:
        csv: path of the CSV file.
        schedule: the compute schedule.
        steps: for each device, its actions by their names in torch.
    """

    csv: str
    schedule: Schedule
    steps: tuple[Mapping[str, TorchAction], ...]


def run_all(
    plans: Sequence[RunPlan], settings: Settings, tick: Tick = lambda _: None
) -> tuple[list[Measured], str]:
    """Run all plans in torch's runtime; all must have the same number of devices.

    See :func:`ppsim.real.runs.turns.collect` for the result and further errors.

    Raises:
        InputError: torch does not support a plan's placement or message size.
        InvalidSchedule: torch would hang, or compute wrong gradients.
    """
    check(
        [plan.lowered.compute for plan in plans],
        FLOAT_BYTES if settings.model else settings.message_bytes,
    )
    with temporary_folder() as folder:
        jobs = [_job(plan, Path(folder, f"{number}.csv")) for number, plan in enumerate(plans)]
        return collect(plans, settings, tick, partial(take_turns, _prepare), jobs)


def lower_as_torch(schedule: Schedule) -> Lowered:
    """Return the queues of a schedule in the order of torch's runtime.

    UNSHARD, RESHARD and REDUCE_GRAD affect the order of other ops. Stages of a run are not sharded,
    so these ops are then dropped.
    """
    lowered = lower(schedule, "torch", unshard=TORCH_STAGES, reduce_grad=True)
    kept = lowered.schedule.computes | lowered.schedule.communicates
    return replace(lowered, schedule=lowered.schedule.take(kept), batch=lowered.batch[kept])


def check(schedules: Sequence[Schedule], message_bytes: int) -> None:
    """Refuse schedules that torch's runtime does not support.

    Raises:
        InputError: a stage is on two devices, or a message is not a whole number of float32.
    """
    for schedule in schedules:
        if schedule.placement.n_replicas > 1:
            raise InputError(
                f"--runner torch cannot run {schedule.name}: it has each stage on two devices",
                "--runner own, or dualpipe-v, which does the same in a V",
            )
    if message_bytes % FLOAT_BYTES:
        raise InputError(
            f"--runner torch sends float32, and {message_bytes} bytes are not a multiple of 4",
            f"--message {message_bytes // FLOAT_BYTES * FLOAT_BYTES + FLOAT_BYTES}",
        )


def _job(plan: RunPlan, path: Path) -> Job:
    """Return a plan for torch's runtime, after writing its CSV file."""
    schedule, text = plan.lowered.compute, io.BytesIO()
    timeline = simulate(schedule, costs_for(schedule))
    csv.write(Document((timeline,), (plan.name,)), text, ".csv")
    path.write_bytes(text.getvalue())
    return Job(str(path), schedule, tuple(_steps(plan)))


def _steps(plan: RunPlan) -> Iterator[dict[str, TorchAction]]:
    """Yield the actions of each device by their names in torch."""
    schedule = plan.lowered.schedule
    ms = intended_times(plan)
    for device, cells in enumerate(Draft.from_schedule(schedule).cells()):
        queue = schedule.queue(device)
        firsts = queue.start + np.flatnonzero(schedule.leads[queue])
        steps = {}
        for op, cell in zip(firsts.tolist(), cells, strict=True):
            inputs = tuple(
                (
                    bool(schedule.kind[member] == Kind.F),
                    int(schedule.stage[member]),
                    int(schedule.microbatch[member]),
                )
                for member in schedule.members(op)
                if schedule.kind[member] in (*FORWARDS, *BACKWARDS)
            )
            steps[f"PP:{cell}"] = TorchAction(op, float(ms[op]), inputs)
        yield steps


def _prepare(rank: int, settings: Settings, watch: Clock, jobs: list[Job]) -> list[Turn]:
    """Return a device's turns, one for each job."""
    # failures are reported by the parent
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    turns = [_turn_of(job, rank, settings, watch) for job in jobs]
    watch.sync()
    for turn in turns:
        turn(time.monotonic_ns())  # in its first step torch also exchanges shapes
    return turns


def _turn_of(job: Job, rank: int, settings: Settings, watch: Clock) -> Turn:
    """Return the function that runs a job once on a device."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    from ppsim.real.runs import tasks

    held = np.unique(job.schedule.stage[job.schedule.queue(rank)]).tolist()
    last, count = job.schedule.n_stages - 1, job.schedule.n_microbatches
    if settings.model is None:
        stages = [_idle_stage(s, last + 1, settings.message_bytes) for s in held]
        inputs, targets = _zeros(count, settings.message_bytes), _zeros(count, FLOAT_BYTES)
    else:
        modules, inputs, targets = tasks.whole_stages(
            settings.model, job.schedule, held, settings.device
        )
        stages = [
            _real_stage(module, s, last + 1, settings.device) for s, module in modules.items()
        ]
    runtime = _PipelineScheduleRuntime(
        stages,
        count,
        loss_fn=tasks.loss,
        scale_grads=False,
        backward_requires_autograd=settings.model is not None,
    )
    runtime._load_csv(job.csv, format="compute_only")
    if settings.model is None:
        _replace_compute_by_sleep(runtime, stages, job.steps[rank], settings.message_bytes)
    arguments = (inputs,) if 0 in held else ()
    target = {"target": targets} if last in held else {}

    def turn(begin: int) -> Turns:
        marks: list[Mark] = []
        with _record_actions(runtime, job.steps[rank], watch, marks):
            runtime.step(*arguments, **target, return_outputs=False)
        end = watch.mark()
        watch.settle()
        for stage in runtime._stages:
            stage.submod.zero_grad(set_to_none=True)
        if len(marks) != len(job.steps[rank]):
            raise PpsimError(
                f"torch ran {len(marks)} of {len(job.steps[rank])} actions under known names",
                "the tested torch 2.13",
            )
        return {rank: (read_marks(marks, watch, begin), watch.ns(end) - begin)}

    return turn


def _real_stage(module: Any, stage: int, count: int, device: str) -> Any:
    """Return torch's stage for a module."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    stage_device = next((p.device for p in module.parameters()), torch.device(device))
    return PipelineStage(module, stage, count, stage_device)


def _idle_stage(stage: int, count: int, message_bytes: int) -> Any:
    """Return torch's stage that computes nothing and sends ``message_bytes``."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    examples = (
        (_zeros(1, message_bytes).requires_grad_(stage > 0),),
        (_zeros(1, message_bytes).requires_grad_(),),
    )
    return PipelineStage(torch.nn.Identity(), stage, count, torch.device("cpu"), *examples)


def _zeros(rows: int, row_bytes: int) -> Any:
    """Return a float32 tensor of zeros with ``row_bytes`` in each row."""
    import torch

    return torch.zeros(rows, row_bytes // FLOAT_BYTES)


def _replace_compute_by_sleep(
    runtime: Any, stages: Sequence[Any], steps: Mapping[str, TorchAction], message_bytes: int
) -> None:
    """Make torch's compute actions sleep for their time and leave a tensor to send."""
    from torch.distributed.pipelining.schedules import _ComputationType as Type

    by_index = {stage.stage_index: stage for stage in stages}
    message = _zeros(1, message_bytes)

    def sleep(action: Any, context: Any) -> None:
        time.sleep(steps[f"PP:{action}"].ms / 1e3)
        for part in action.sub_actions or (action,):
            stage, microbatch = by_index[part.stage_index], part.microbatch_index
            if part.computation_type == Type.FORWARD:
                runtime.fwd_recv_ops.pop((part.stage_index, microbatch), None)
                stage.fwd_cache[microbatch] = ((message,), [])
            elif part.computation_type != Type.BACKWARD_WEIGHT:
                runtime.bwd_recv_ops.pop((part.stage_index, microbatch), None)
                stage.bwd_cache[microbatch] = (message,)

    for kind in (
        Type.FORWARD,
        Type.FULL_BACKWARD,
        Type.BACKWARD_INPUT,
        Type.BACKWARD_WEIGHT,
        Type.OVERLAP_F_B,
    ):
        runtime.register_custom_function(kind, sleep)


@contextmanager
def _record_actions(
    runtime: Any, steps: Mapping[str, TorchAction], watch: Clock, marks: list[Mark]
) -> Iterator[None]:
    """Add the marks of each action of torch's runtime during the block to ``marks``."""
    from torch.distributed.pipelining import schedules

    @contextmanager
    def span(name: str) -> Iterator[None]:
        step = steps.get(name)
        if step is None:
            yield
            return
        posted = watch.mark()
        _wait(runtime, step)
        start = watch.mark()
        yield
        marks.append((step.op, posted, start, watch.mark(), time.monotonic_ns()))

    original = schedules.record_function
    schedules.record_function = span
    try:
        yield
    finally:
        schedules.record_function = original


def _wait(runtime: Any, step: TorchAction) -> None:
    """Wait for the messages that an action needs, so that the runtime need not wait."""
    for forward, stage, microbatch in step.inputs:
        pending = runtime.fwd_recv_ops if forward else runtime.bwd_recv_ops
        if (stage, microbatch) in pending:
            for work in pending[stage, microbatch]:
                work.wait()
            pending[stage, microbatch] = []
