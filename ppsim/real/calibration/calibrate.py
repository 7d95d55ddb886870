"""Calibration of this machine: op times, activation bytes and messages, as a profile."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from ppsim.base.numbers import format_number
from ppsim.errors import InputError
from ppsim.inputs.profile.line_fit import fit_messages
from ppsim.inputs.profile.profile import ITEM_BYTES, Profile, Provenance, Workload
from ppsim.real.calibration import links, machine, ops, p2p
from ppsim.real.calibration.clock import Tick
from ppsim.real.calibration.machine import device_for, torch_module
from ppsim.real.calibration.user_module import UserModule

Progress = Callable[[float, str], None]
OPS_SHARE = 0.6  # share of a calibration's time that ops take, for the progress bar


@dataclass(frozen=True)
class CalibrationPlan:
    """The measurements to take, and their repetitions."""

    model: Workload | UserModule  # the stage's shape, or the user's function that makes stages
    device: str = "auto"  # auto, cpu or cuda
    repeats: int = 10  # repetitions of each op; small messages have three times as many
    warm_up: int = 2  # repetitions before the measured ones, discarded
    # sizes of messages in bytes, in addition to the model's; () takes 1 KiB to 16 MiB
    sizes: tuple[int, ...] = ()
    command: str = ""  # the command line, for the profile
    note: str = ""  # a remark on the machine, for the profile
    real_time: bool = False  # whether messages are measured at real-time priority
    stages: int = 0  # stages of the user's model


def check(plan: CalibrationPlan) -> None:
    """Refuse a plan that cannot be measured.

    Raises:
        InputError: a number of repetitions is out of range, heads do not divide the width, or the
            stage exceeds the free memory.
    """
    if plan.repeats < 1 or plan.warm_up < 0:
        raise InputError(
            f"--repeats {plan.repeats} with --warm-up {plan.warm_up} measures nothing",
            "--repeats 10",
        )
    if isinstance(plan.model, UserModule):
        return
    needed = _needed_bytes(plan, plan.model)
    free = machine.available_bytes(device_for(plan.device))
    if free is not None and needed > free:
        raise InputError(
            f"this stage needs about {format_number(needed / 2**30)} GiB, "
            f"and {format_number(free / 2**30)} GiB are free",
            "a smaller --hidden, --seq, --mbs, --layers or --vocab",
        )
    check_heads(plan.model)


def check_heads(model: Workload) -> None:
    """Refuse a hidden size that the heads do not divide (InputError)."""
    hidden, heads = model.hidden, model.heads
    if hidden % heads:
        near = min(
            (n for n in range(1, hidden + 1) if hidden % n == 0), key=lambda n: abs(n - heads)
        )
        width = max(heads, round(hidden / heads) * heads)
        raise InputError(
            f"--heads {heads} does not divide --hidden {hidden}",
            f"--heads {near}, or --hidden {width}",
        )


def calibrate(plan: CalibrationPlan, report: Progress = lambda done, step: None) -> Profile | None:
    """Measure a plan and return the profile; None on ranks of torchrun other than 0.

    Under torchrun all ranks compute at the same time, as in a real run. ``report`` is called with
    the share done and the name of the current step.

    Raises:
        InputError: the plan cannot be measured.
        MissingDependency: torch or a GPU is missing.
        PpsimError: a process that measures messages died or hung.
    """
    torch = torch_module()
    check(plan)
    device = device_for(plan.device)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    world = links.launched()[1]
    remarks = (
        f"{world} ranks computed at once" * (world > 1),
        "messages at real-time priority" * plan.real_time,
    )
    note = "; ".join(filter(None, (plan.note, *remarks)))
    origin = machine.provenance(device, plan.command, note)
    tick = step_counter(report, 0.0, OPS_SHARE, _count_op_steps(plan))
    costs = _measure_ops(plan, device, origin, tick)
    origin = replace(origin, clocks=machine.clocks(device))  # again, under load
    report(OPS_SHARE, "starting two processes")
    sizes = sorted({*_sizes(plan), costs.message_bytes or 1})
    tick = step_counter(report, OPS_SHARE, 1 - OPS_SHARE, len(sizes))
    rows = links.measure_links(
        device,
        sizes,
        repeats=3 * plan.repeats,
        warm_up=plan.warm_up,
        tick=tick,
        real_time=plan.real_time,
    )
    if links.launched()[0] > 0:
        return None
    return replace(costs, provenance=origin, message=tuple(rows), fit=tuple(fit_messages(rows)))


def _count_op_steps(plan: CalibrationPlan) -> int:
    """Return the number of times that the measurement of ops calls ``tick``."""
    if isinstance(plan.model, UserModule):
        return (plan.repeats + plan.warm_up) * plan.stages
    return ops.rounds(plan.model, plan.repeats, plan.warm_up)


def _measure_ops(plan: CalibrationPlan, device: str, origin: Provenance, tick: Tick) -> Profile:
    """Return a profile of the times and bytes of the ops of a plan's stages, without messages."""
    if isinstance(plan.model, UserModule):
        from ppsim.real.calibration.user_ops import measure_stages

        times, stages = measure_stages(
            plan.model, plan.stages, device, repeats=plan.repeats, warm_up=plan.warm_up, tick=tick
        )
        return Profile(origin, op=tuple(times), stage=tuple(stages))
    times = ops.measure_ops(
        plan.model, device, repeats=plan.repeats, warm_up=plan.warm_up, tick=tick
    )
    if device == "cuda":
        from ppsim.real.calibration.graphs import measure_graphs

        times += measure_graphs(plan.model, times, repeats=plan.repeats, warm_up=plan.warm_up)
    return Profile(
        origin,
        plan.model,
        tuple(times),
        activation=tuple(ops.measure_activations(plan.model, device)),
    )


def step_counter(report: Progress, first: float, share: float, steps: int) -> Callable[[str], None]:
    """Return a function of a step's name that reports the share done at each call.

    ``steps`` calls take the share from ``first`` to ``first + share``.
    """
    done = count(1)
    return lambda step: report(first + share * min(1.0, next(done) / steps), step)


def _needed_bytes(plan: CalibrationPlan, model: Workload) -> int:
    """Return the bytes of all measured parameters and gradients, and of the largest activations.

    They are rough.
    """
    item = ITEM_BYTES[model.dtype]
    layers = sum(ops.layer_counts(model.layers))
    tokens = model.microbatch_size * model.sequence
    parameters = layers * 12 * model.hidden**2 + 2 * model.vocab * model.hidden
    activations = 2 * model.layers * tokens * 34 * model.hidden + 3 * tokens * model.vocab
    return item * (2 * parameters + activations) + 6 * max(*_sizes(plan), model.message_bytes)


def _sizes(plan: CalibrationPlan) -> Sequence[int]:
    return plan.sizes or p2p.sizes_up_to(16 << 20)
