"""The whole calibration: op times, then messages, then where it was done."""

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
OPS_SHARE = 0.6  # of the time


@dataclass(frozen=True)
class CalibrationPlan:
    """The measurements to take, and their repetitions."""

    model: Workload | UserModule  # the stage's shape, or the user's function that makes stages
    device: str = "auto"  # auto, cpu or cuda
    # measured repetitions of every op; small messages are repeated as often again
    repeats: int = 10
    warm_up: int = 2  # repetitions before those, thrown away
    # sizes of messages in bytes, added to the model's; from 1 KiB to 16 MiB where none are given
    sizes: tuple[int, ...] = ()
    command: str = ""  # the command line, for the record
    note: str = ""  # a sentence that readers must know about the machine
    real_time: bool = False  # whether messages are measured at real-time priority
    stages: int = 0  # how many the user's function is asked for


def check(plan: CalibrationPlan) -> None:
    """Refuse a plan that cannot be measured (InputError: a count out of range, odd heads, or too
    little memory).
    """
    if plan.repeats < 1 or plan.warm_up < 0:
        raise InputError(
            f"--repeats {plan.repeats} with --warm-up {plan.warm_up} measures nothing",
            "--repeats 10",
        )
    if isinstance(plan.model, UserModule):
        return
    need, there = _bytes_needed(plan, plan.model), machine.available_bytes(device_for(plan.device))
    if there is not None and need > there:
        raise InputError(
            f"this stage needs about {format_number(need / 2**30)} GiB, "
            f"and {format_number(there / 2**30)} GiB are free",
            "a smaller --hidden, --seq, --mbs, --layers or --vocab",
        )
    check_heads(plan.model)


def check_heads(model: Workload) -> None:
    """Refuse a width that its heads cannot share evenly (InputError: heads do not divide
    hidden).
    """
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


def calibrate(plan: CalibrationPlan, report: Progress = lambda done, what: None) -> Profile | None:
    """Measure everything in the plan; ``report`` is called with the share done and the current
    step.

    Under torchrun every rank takes part, all computing at once as in a real run, and only rank 0
    gets the profile.

    Raises:
        InputError: the plan cannot be measured; MissingDependency: no torch or no GPU; PpsimError:
            a process of the message measurement died or hung.
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
    found = machine.provenance(device, plan.command, note)
    costs = _measure_ops(plan, device, found, count_steps(report, 0.0, OPS_SHARE, _op_steps(plan)))
    found = replace(found, clocks=machine.clocks(device))  # as they are under load
    report(OPS_SHARE, "starting two processes")
    sizes = sorted({*_sizes(plan), costs.message_bytes or 1})
    tick = count_steps(report, OPS_SHARE, 1 - OPS_SHARE, len(sizes))
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
    return replace(costs, provenance=found, message=tuple(rows), fit=tuple(fit_messages(rows)))


def _op_steps(plan: CalibrationPlan) -> int:
    """Count how often the measuring of ops ticks."""
    if isinstance(plan.model, UserModule):
        return (plan.repeats + plan.warm_up) * plan.stages
    return ops.rounds(plan.model, plan.repeats, plan.warm_up)


def _measure_ops(plan: CalibrationPlan, device: str, here: Provenance, tick: Tick) -> Profile:
    """Measure the ops of the plan's stages, and their memory."""
    if isinstance(plan.model, UserModule):
        from ppsim.real.calibration.user_ops import measure_stages

        times, stages = measure_stages(
            plan.model, plan.stages, device, repeats=plan.repeats, warm_up=plan.warm_up, tick=tick
        )
        return Profile(here, op=tuple(times), stage=tuple(stages))
    times = ops.measure_ops(
        plan.model, device, repeats=plan.repeats, warm_up=plan.warm_up, tick=tick
    )
    if device == "cuda":
        from ppsim.real.calibration.graphs import measure_graphs

        times += measure_graphs(plan.model, times, repeats=plan.repeats, warm_up=plan.warm_up)
    return Profile(
        here,
        plan.model,
        tuple(times),
        activation=tuple(ops.measure_activations(plan.model, device)),
    )


def count_steps(report: Progress, first: float, share: float, steps: int) -> Callable[[str], None]:
    """Make a function that reports each of ``steps``, which are a ``share`` of the whole, from
    ``first`` on.
    """
    done = count(1)
    return lambda what: report(first + share * min(1.0, next(done) / steps), what)


def _bytes_needed(plan: CalibrationPlan, model: Workload) -> int:
    """Parameters and gradients of everything measured, and the largest activations, roughly."""
    item = ITEM_BYTES[model.dtype]
    held = sum(ops.layer_counts(model.layers))
    tokens = model.microbatch_size * model.sequence
    parameters = held * 12 * model.hidden**2 + 2 * model.vocab * model.hidden
    activations = 2 * model.layers * tokens * 34 * model.hidden + 3 * tokens * model.vocab
    return item * (2 * parameters + activations) + 6 * max(*_sizes(plan), model.message_bytes)


def _sizes(plan: CalibrationPlan) -> Sequence[int]:
    return plan.sizes or p2p.sizes_up_to(16 << 20)
