"""The options of the detailed execution model: how messages are ordered and what they meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._options import chained

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline

DETAILED = ("p2p", "order", "channel", "cluster", "message", "unshard", "reduce_grad")

network_options = chained(
    click.option(
        "--p2p",
        type=click.Choice(["latency", "overlap", "blocking", "batched"]),
        help="Run sends and receives as ops of their own: beside compute, or blocking, or in batches.",
    ),
    click.option(
        "--order",
        metavar="ORDER",
        help="Order of sends and receives: early (default), even-first, torch (default of --lowered), torch-2.15, "
        "deferred, prefetch:K.",
    ),
    click.option(
        "--channel",
        type=click.Choice(["message", "direction", "pair", "group"]),
        help="What has one message at a time: nothing, each direction of two devices (default), both, or a device.",
    ),
    click.option("--cluster", type=click.Path(), help="Links, bandwidths and host costs from a TOML file."),
    click.option("--message", metavar="SIZE", help="Size of a message on the cluster, such as 4MiB."),
    click.option("--unshard", type=click.IntRange(min=0), help="FSDP: stages gathered ahead; torch uses 3 (0)."),
    click.option("--reduce-grad", is_flag=True, help="Reduce each stage's gradients after its last backward."),
)


def timed(schedule: Schedule, costs: Costs, options: Mapping[str, Any]) -> Timeline:
    """The timeline of the compute ops, by the model that the options ask for."""
    from ppsim.simulation.longest_path import simulate

    execution = executed(schedule, costs, options)
    return execution.compute if execution else simulate(schedule, costs)


def executed(schedule: Schedule, costs: Costs, options: Mapping[str, Any]) -> Execution | None:
    """The run with sends and receives as ops, or None where no option asks for it.

    Without ``--cluster`` a message takes the latency of ``--comm`` or of the profile and has no limit of bandwidth.
    """
    to_torch = options.get("lowered", False)
    if not to_torch and not any(options.get(name) for name in DETAILED):
        return None
    from ppsim.errors import InputError
    from ppsim.lowering.lower import lower
    from ppsim.network.cluster import network_from_options
    from ppsim.network.execute import execute

    if options["cluster"] and options["comm"] is not None:
        raise InputError("--cluster gives the latency of every link, and so does --comm", "leave one of them out")
    mode = options["p2p"] or "overlap"
    lowered = lower(
        schedule,
        options["order"] or ("torch" if to_torch else "early"),
        batch=mode == "batched",
        unshard=options["unshard"] or 0,
        reduce_grad=options["reduce_grad"] or to_torch,  # where torch scales gradients
    )
    network = network_from_options(
        schedule.n_devices,
        costs.unit,
        p2p=mode,
        comm=costs.comm,
        channel=options["channel"],
        cluster=options["cluster"],
        message=options["message"],
    )
    return execute(lowered, costs, network)
