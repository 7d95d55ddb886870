"""Execute queues in torch.distributed.pipelining's own runtime, fed with our CSV.

Every action of torch's runtime runs inside its ``record_function``, which is ours while a step
runs: it waits for the action's input, so that waiting and working are separate, and notes the
times. REDUCE_GRAD and other actions that our queues do not hold are part of the gap between two
entries.
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
    """One action of a device under its name in torch."""

    op: int  # index in the lowered queues; of the first of a pair
    ms: float  # how long a timed op takes
    # (is a forward, stage, microbatch) of every F, B and I in it
    inputs: tuple[tuple[bool, int, int], ...]


@dataclass(frozen=True)
class Job:
    """One plan as its processes need it: the CSV file, the compute schedule, and each device's
    actions by name.
    """

    csv: str
    schedule: Schedule
    steps: tuple[Mapping[str, TorchAction], ...]


def run_all(
    plans: Sequence[RunPlan], settings: Settings, tick: Tick = lambda _: None
) -> tuple[list[Measured], str]:
    """Run every plan in torch's runtime; all plans have the same number of devices.

    Returns and raises what :func:`ppsim.real.runs.turns.collect` does.

    Raises:
        InputError: torch cannot carry a plan's placement or message size.
        InvalidSchedule: torch would hang on it, or compute wrong gradients.
    """
    check(
        [plan.lowered.compute for plan in plans],
        FLOAT_BYTES if settings.model else settings.message_bytes,
    )
    with temporary_folder() as folder:
        jobs = [_job(plan, Path(folder, f"{number}.csv")) for number, plan in enumerate(plans)]
        return collect(plans, settings, tick, partial(take_turns, _prepare), jobs)


def lower_as_torch(schedule: Schedule) -> Lowered:
    """Lower a schedule as torch's runtime does.

    Its UNSHARD, RESHARD and REDUCE_GRAD affect the order of the rest. Nothing runs for them here,
    so they are dropped.
    """
    lowered = lower(schedule, "torch", unshard=TORCH_STAGES, reduce_grad=True)
    kept = lowered.schedule.computes | lowered.schedule.communicates
    return replace(lowered, schedule=lowered.schedule.take(kept), batch=lowered.batch[kept])


def check(schedules: Sequence[Schedule], message_bytes: int) -> None:
    """Refuse schedules that torch cannot carry (InputError: a stage on two devices, a message that
    is not a whole number of float32).
    """
    for schedule in schedules:
        if schedule.placement.n_replicas > 1:
            raise InputError(
                f"--runner torch cannot run {schedule.name}: it holds each stage on two devices, "
                f"torch on one",
                "--runner own, or dualpipe-v, which does the same in a V",
            )
    if message_bytes % FLOAT_BYTES:
        raise InputError(
            f"--runner torch sends float32, and {message_bytes} bytes are not a multiple of 4",
            f"--message {message_bytes // FLOAT_BYTES * FLOAT_BYTES + FLOAT_BYTES}",
        )


def _job(plan: RunPlan, path: Path) -> Job:
    schedule, text = plan.lowered.compute, io.BytesIO()
    timeline = simulate(schedule, costs_for(schedule))
    csv.write(Document((timeline,), (plan.name,)), text, ".csv")
    path.write_bytes(text.getvalue())
    return Job(str(path), schedule, tuple(_steps(plan)))


def _steps(plan: RunPlan) -> Iterator[dict[str, TorchAction]]:
    """Map torch's names to entries, per device."""
    schedule = plan.lowered.schedule
    ms = intended_times(plan)
    for device, cells in enumerate(Draft.from_schedule(schedule).cells()):
        queue = schedule.queue(device)
        firsts = queue.start + np.flatnonzero(schedule.leads[queue])
        steps = {}
        for op, cell in zip(firsts.tolist(), cells, strict=True):
            inputs = tuple(
                (
                    bool(schedule.kind[m] == Kind.F),
                    int(schedule.stage[m]),
                    int(schedule.microbatch[m]),
                )
                for m in schedule.members(op)
                if schedule.kind[m] in (*FORWARDS, *BACKWARDS)
            )
            steps[f"PP:{cell}"] = TorchAction(op, float(ms[op]), inputs)
        yield steps


def _prepare(rank: int, settings: Settings, watch: Clock, jobs: list[Job]) -> list[Turn]:
    # the parent reports failures
    logging.getLogger("torch.distributed.pipelining").setLevel(logging.CRITICAL)
    turns = [_turn_of(job, rank, settings, watch) for job in jobs]
    watch.sync()
    for turn in turns:
        turn(time.monotonic_ns())  # the first step also agrees on shapes with its neighbours
    return turns


def _turn_of(job: Job, rank: int, settings: Settings, watch: Clock) -> Turn:
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    from ppsim.real.runs import tasks

    held = np.unique(job.schedule.stage[job.schedule.queue(rank)]).tolist()
    last, count = job.schedule.n_stages - 1, job.schedule.n_microbatches
    if settings.model is None:
        stages = [_idle_stage(s, last + 1, settings.message_bytes) for s in held]
        inputs, targets = _nothing(count, settings.message_bytes), _nothing(count, FLOAT_BYTES)
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
        _let_time_pass(runtime, stages, job.steps[rank], settings.message_bytes)
    arguments = (inputs,) if 0 in held else ()
    target = {"target": targets} if last in held else {}

    def turn(begin: int) -> Turns:
        noted: list[Mark] = []
        with _record_actions(runtime, job.steps[rank], watch, noted):
            runtime.step(*arguments, **target, return_outputs=False)
        end = watch.mark()
        watch.settle()
        for stage in runtime._stages:
            stage.submod.zero_grad(set_to_none=True)
        if len(noted) != len(job.steps[rank]):
            ran = f"torch ran {len(noted)} of {len(job.steps[rank])} actions by the names we know"
            raise PpsimError(ran, "the tested torch 2.13")
        return {rank: (read_marks(noted, watch, begin), watch.ns(end) - begin)}

    return turn


def _real_stage(module: Any, stage: int, count: int, device: str) -> Any:
    import torch
    from torch.distributed.pipelining import PipelineStage

    here = next((p.device for p in module.parameters()), torch.device(device))
    return PipelineStage(module, stage, count, here)


def _idle_stage(stage: int, count: int, message_bytes: int) -> Any:
    """Make a stage that computes nothing and sends messages of that size."""
    import torch
    from torch.distributed.pipelining import PipelineStage

    carried = (
        (_nothing(1, message_bytes).requires_grad_(stage > 0),),
        (_nothing(1, message_bytes).requires_grad_(),),
    )
    return PipelineStage(torch.nn.Identity(), stage, count, torch.device("cpu"), *carried)


def _nothing(rows: int, row_bytes: int) -> Any:
    import torch

    return torch.zeros(rows, row_bytes // FLOAT_BYTES)


def _let_time_pass(
    runtime: Any, stages: Sequence[Any], steps: Mapping[str, TorchAction], message_bytes: int
) -> None:
    """Replace every compute action by one that sleeps for its time and leaves a tensor to send."""
    from torch.distributed.pipelining.schedules import _ComputationType as Type

    by_index = {stage.stage_index: stage for stage in stages}
    message = _nothing(1, message_bytes)

    def pass_time(action: Any, context: Any) -> None:
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
        runtime.register_custom_function(kind, pass_time)


@contextmanager
def _record_actions(
    runtime: Any, steps: Mapping[str, TorchAction], watch: Clock, noted: list[Mark]
) -> Iterator[None]:
    """Note the times of every action of torch's pipelining runtime inside the block."""
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
        noted.append((step.op, posted, start, watch.mark(), time.monotonic_ns()))

    original = schedules.record_function
    schedules.record_function = span
    try:
        yield
    finally:
        schedules.record_function = original


def _wait(runtime: Any, step: TorchAction) -> None:
    """Wait for the messages that an action works on, so that the runtime does not."""
    for forward, stage, microbatch in step.inputs:
        pending = runtime.fwd_recv_ops if forward else runtime.bwd_recv_ops
        if (stage, microbatch) in pending:
            for work in pending[stage, microbatch]:
                work.wait()
            pending[stage, microbatch] = []
