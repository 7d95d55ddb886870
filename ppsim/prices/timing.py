"""Timing with messages as latencies, or as ops if the options ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsim.ask.groups import NetworkOptions
from ppsim.ask.words import count_text
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.lowered import Lowered
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline

# messages are latencies
SIMPLE = NetworkOptions(None, None, None, None, None, None, False)


def time_ops(
    schedule: Schedule,
    costs: Costs,
    network: NetworkOptions,
    links: Sequence[str] = (),
    *,
    to_torch: bool = False,
) -> tuple[Timeline, Execution | None]:
    """Return the timeline of the compute ops; if messages are ops, also the execution."""
    from ppsim.engine.simple.longest_path import simulate

    execution = execute_messages(schedule, costs, network, links, to_torch=to_torch)
    return execution.compute if execution else simulate(schedule, costs), execution


def execute_messages(
    schedule: Schedule,
    costs: Costs,
    network: NetworkOptions,
    links: Sequence[str] = (),
    *,
    to_torch: bool = False,
) -> Execution | None:
    """Execute sends and receives as ops; None if no option asks for that.

    Without ``--cluster``, a message takes the latency of ``--comm`` or of the profile, whatever its
    size. ``links`` are single links that differ from the cluster's. ``to_torch`` orders sends and
    receives as torch does, and scales gradients where torch does. A schedule keeps the sends and
    receives of its file, unless an order is given. With ``--shapes``, each message also takes the
    latency of its shape and the wait of the host; in a batch with several devices, the data for
    each device follow its shape.
    """
    if not to_torch and not network.detailed:
        return None
    _refuse_optimizer(schedule)
    import numpy as np

    from ppsim.engine.detailed.cluster import network_from_options
    from ppsim.engine.detailed.execute import execute
    from ppsim.workload.hardware.hardware import read_cluster

    mode = network.p2p or ("batched" if network.shapes else "overlap")
    lowered = _lower(schedule, network, mode == "batched", to_torch)
    made = network_from_options(
        schedule.n_devices,
        costs.unit,
        p2p=mode,
        comm=costs.comm,
        channel=network.channel,
        cluster=read_cluster(network.cluster) if network.cluster else None,
        message=network.message if network.cluster else None,
    )
    if network.cluster and links:
        from ppsim.engine.detailed.links import change_links, parse_link

        made = change_links(
            made,
            schedule.n_devices,
            costs.unit,
            [parse_link(text, schedule.n_devices) for text in links],
        )
    if network.shapes:
        made = replace(
            made, alpha=2 * np.asarray(made.alpha, np.float64) + (network.t_shape or 0.0)
        )
    fsdp = made.collectives
    if network.unshard and not to_torch and not (fsdp.unshard or fsdp.reshard):
        raise InputError(
            f"{network.cluster} has no time of gathering stages: --unshard has no effect", FSDP
        )
    if network.reduce_grad and not to_torch and not fsdp.reduce_grad:
        raise InputError(
            f"{network.cluster} has no time of reducing gradients: --reduce-grad has no effect",
            FSDP,
        )
    return execute(lowered, costs, made)


def refuse_rounds(schedule: Schedule, what: str) -> None:
    """Raise InputError for a schedule of several steps; ``what`` is the reason."""
    if schedule.n_rounds > 1:
        raise InputError(f"{what}, and {schedule.name} has {schedule.n_rounds}", "--steps 1")


def _refuse_optimizer(schedule: Schedule) -> None:
    """Raise InputError for a training step with its optimizer, with a hint how to get its time.

    Lowered queues have computes, sends and receives of one device. They have no op that all devices
    join, as the norm of all gradients is, and none on a stream in parallel with compute.
    """
    from ppsim.core.ops import Kind

    if not (schedule.kind == Kind.OPT).any():
        return
    steps = count_text(schedule.n_rounds, "step")
    what = (
        f"messages as ops are timed without an optimizer, and {schedule.name} has {steps} with it"
    )
    if (schedule.kind == Kind.NORM).any():
        what += ", at whose ends all devices wait for each other"
        hint = (
            "leave out --steps: every step takes the makespan of one, and the longest --t-optimizer"
        )
    else:
        hint = "the simple model: leave out --p2p and --cluster, messages take --comm and --link"
    raise InputError(what, hint)


def _lower(schedule: Schedule, network: NetworkOptions, batch: bool, to_torch: bool) -> Lowered:
    """Return the queues with sends and receives: in the order of the options, or as in the file."""
    from ppsim.engine.lowering.lower import TORCH_ORDERS, keep_posted, lower

    if schedule.stated_messages and not network.order:
        if network.unshard or network.reduce_grad:
            raise InputError(
                f"{schedule.name} states its own sends and receives, so --unshard and "
                f"--reduce-grad add nothing",
                "leave them out, or give an --order",
            )
        return keep_posted(schedule.stated_messages, schedule, batch=batch)
    order = network.order or ("torch" if to_torch else "early")
    reduce_grad = network.reduce_grad or to_torch or order in TORCH_ORDERS
    return lower(
        schedule, order, batch=batch, unshard=network.unshard or 0, reduce_grad=reduce_grad
    )


def execute_slots(schedule: Schedule, slots: Costs, order: str | None) -> Execution:
    """Execute a schedule with sends and receives of one slot on both sides.

    Their order is ``order``, else that of the schedule's file, else ``even-first``.
    """
    from ppsim.engine.detailed.execute import execute
    from ppsim.engine.detailed.spec import Network
    from ppsim.engine.lowering.lower import TORCH_ORDERS, keep_posted, lower

    own = schedule.stated_messages if not order else None
    reduce_grad = order in TORCH_ORDERS
    lowered = (
        keep_posted(own, schedule)
        if own
        else lower(schedule, order or "even-first", reduce_grad=reduce_grad)
    )
    return execute(lowered, slots, Network("blocking", alpha=1.0))


def note_queues(lowered: Schedule) -> Iterator[str]:
    """Yield a note if an order of sends and receives deadlocks in queues of some communicators."""
    from ppsim.core.draft import Draft
    from ppsim.inputs.check.messages import ExpectedMessages
    from ppsim.inputs.check.queues import QUEUES, find_cycle
    from ppsim.inputs.check.tables import Tables

    draft = Draft.from_schedule(lowered)
    messages = ExpectedMessages.from_draft(draft, Tables.from_draft(draft))
    shared = {
        "edge": "each direction of two devices",
        "pair": "each pair of devices",
        "rank": "each device",
    }
    if per := next(
        (per for per in QUEUES if find_cycle(draft, messages, per, batched=False)), None
    ):
        where = f"{shared[per]} has one queue of sends and receives (ppsim check --queues {per})"
        yield f"note: this order hangs where {where}; --order early and torch do not"


FSDP = "unshard_us, reshard_us and reduce_grad_us in a table [fsdp]"
