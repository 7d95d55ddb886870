"""Say why devices are idle, what decides the time, what would help."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ppsim.cli._build import build, build_costs, build_schedule
from ppsim.cli._network import execute_messages
from ppsim.cli._options import (
    CostOptions,
    NetworkOptions,
    OutputOptions,
    ShapeOptions,
    cost_options,
    json_option,
    make_command,
    network_options,
    one_schedule,
    output_options,
    quiet_option,
    shape_options,
)
from ppsim.cli._write import inputs_of, make_documents, write_all
from ppsim.errors import InputError, PpsimError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ppsim.analysis.explain import Explanation, WhatIf
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline

# Schedules to try instead, each on the same devices and microbatches.
RIVALS = ("1f1b", "interleaved", "zb-1p", "dualpipe-v")
KINDS = {"tf": 0, "tb": 1, "ti": 2, "tw": 3, "tr": 4}
SHAPE = {"mb": "microbatches", "stages": "stages", "devices": "devices", "chunks": "chunks", "group-size": "group_size"}
SHOWN_GAINS = 4


@make_command("explain")
@one_schedule
@shape_options
@cost_options
@network_options
@click.option(
    "--what-if",
    "changes",
    multiple=True,
    metavar="KEY=VALUE,...",
    help="Simulate a change: mb=16, schedule=zb-1p, comm=0.1, tf.2=0.9 (stage 2), tf.2=x0.9 (times 0.9); repeatable.",
)
@output_options
@json_option
@quiet_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    spec: str,
    shape: ShapeOptions,
    costs: CostOptions,
    network: NetworkOptions,
    changes: tuple[str, ...],
    output: OutputOptions,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say why devices are idle, what decides the time, and what would help.

    \b
      ppsim explain 1f1b --stages 4 --mb 8
      ppsim explain zb-1p --devices 8 --mb 32 --comm 0.2 --what-if tf.3=0.9 --what-if schedule=interleaved
    """
    from ppsim.analysis.explain import advise, explain, explain_object, own_changes, what_if

    schedule, prices = build(spec, shape, costs, network)
    timeline, execution = _time(schedule, prices, network, costs.links)

    def again(other: Costs) -> Timeline:
        return _time(schedule, other, network, costs.links)[0]

    explanation = explain(timeline, prices, execution, (lambda other: again(other).makespan) if execution else None)
    tried = [what_if(change, change, _changed(change, spec, shape, costs, network)) for change in changes]
    if not changes:
        tried = own_changes(timeline, prices, again if execution else None)
        tried += [what_if(*each) for each in _rivals(spec, schedule.name, shape, costs, network)]
    inputs = inputs_of(ctx, prices)
    if as_json:
        from ppsim.cli._print import echo_json

        echo_json(explain_object(explanation, tried, inputs))
    elif "-" in output.output:
        pass
    elif quiet:
        click.echo(advise(explanation, tried))
    else:
        click.echo("\n".join(_lines(explanation, tried)))
    from ppsim.cli._print import title_of

    write_all(make_documents([timeline], [title_of(schedule)], inputs, output, idles=[explanation.idle]))


def _time(schedule: Any, prices: Costs, network: NetworkOptions, links: tuple[str, ...]) -> tuple[Timeline, Any]:
    from ppsim.simulation.longest_path import simulate

    execution = execute_messages(schedule, prices, network, links)
    return (execution.compute, execution) if execution else (simulate(schedule, prices), None)


def _changed(change: str, spec: str, shape: ShapeOptions, costs: CostOptions, network: NetworkOptions) -> Timeline:
    """The run with a change made.

    Raises:
        InputError: the change has an unknown key or a value that is none.
    """
    numbers: dict[str, Any] = {}
    scaled: list[tuple[int, int, str]] = []
    for part in change.split(","):
        key, _, value = part.strip().partition("=")
        base, _, stage = key.partition(".")
        if key == "schedule":
            spec, shape = value, replace(shape, chunks=None, group_size=None)
        elif key in SHAPE and value.isdecimal():
            size: dict[str, Any] = {SHAPE[key]: int(value)}
            shape = replace(shape, **size)
        elif base in KINDS and stage.isdecimal():
            scaled.append((KINDS[base], int(stage), value))
        elif key in (*KINDS, "tfb", "comm"):
            numbers[key] = _number(value, change)
        else:
            keys = ", ".join([*SHAPE, "schedule", "comm", "tfb", *KINDS, "tf.STAGE"])
            raise InputError(f"--what-if cannot change '{part}'", f"KEY=VALUE with one of {keys}")
    schedule = build_schedule(spec, shape)
    prices = build_costs(schedule, replace(costs, **numbers), network)
    for kind, which, value in scaled:
        prices = _scaled(prices, kind, which, value, change)
    return _time(schedule, prices, network, costs.links)[0]


def _scaled(prices: Costs, kind: int, stage: int, value: str, change: str) -> Costs:
    from ppsim.analysis.critical_path import scale_time

    if stage >= prices.time.shape[1]:
        raise InputError(
            f"--what-if {change}: there is no stage {stage}", f"a stage from 0 to {prices.time.shape[1] - 1}"
        )
    number = _number(value.removeprefix("x"), change)
    before = float(prices.time[kind, stage])
    if value.startswith("x"):
        return scale_time(prices, kind, stage, number)
    time = prices.time.copy()
    time[kind, stage] = number
    return scale_time(prices, kind, stage, number / before) if before > 0 else replace(prices, time=time)


def _number(value: str, change: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1e100:
        raise InputError(f"--what-if {change}: '{value}' is no time", "a number, zero or more")
    return number


def _rivals(
    spec: str, name: str, shape: ShapeOptions, costs: CostOptions, network: NetworkOptions
) -> Iterator[tuple[str, str, Timeline]]:
    """Twice the microbatches, and other schedules on the same devices, those that take the shape."""
    from ppsim.schedules import family_of

    family = family_of(spec)
    if family is None or shape.microbatches is None:
        return
    wider = replace(shape, microbatches=2 * shape.microbatches)
    runs = [(f"mb={wider.microbatches}", f"use {wider.microbatches} microbatches", spec, wider)]
    if all(
        getattr(costs, key) is None or not isinstance(getattr(costs, key), list) for key in ("tf", "tb", "ti", "tw")
    ):
        same = ShapeOptions(devices=build_schedule(spec, shape).n_devices, microbatches=shape.microbatches)
        runs += [(f"schedule={rival}", f"use {rival}", rival, same) for rival in RIVALS if rival != family.name]
    for text, advice, rival, size in runs:
        try:
            schedule = build_schedule(rival, size)
            timeline = _time(schedule, build_costs(schedule, costs, network), network, costs.links)[0]
        except PpsimError:
            continue
        yield text, advice, timeline


def _lines(explanation: Explanation, changes: list[WhatIf]) -> Iterator[str]:
    from ppsim.analysis.critical_path import path_text
    from ppsim.analysis.explain import advise
    from ppsim.analysis.idle import CAUSES, NAMES
    from ppsim.base.numbers import format_number, format_share
    from ppsim.cli._print import counted, shape_line, title_of

    timeline, metrics, idle = explanation.timeline, explanation.metrics, explanation.idle
    schedule, unit = timeline.schedule, timeline.unit
    total = float(idle.by_device.sum())
    yield f"{title_of(schedule)}  {shape_line(schedule)}"
    whole = timeline.makespan * schedule.n_devices
    share = format_share(metrics.bubble_rate)
    yield f"{format_number(total)} of {format_number(whole)} device·{unit} are idle ({share})"
    yield ""
    for name, time in sorted(idle.by_cause.items(), key=lambda pair: -pair[1]):
        by_device = idle.by_device[:, NAMES.index(name)]
        worst = sorted(range(len(by_device)), key=lambda device: -by_device[device])[:3]
        parts = "  ".join(f"dev {d}: {format_number(by_device[d])}" for d in worst if by_device[d] > 0)
        yield f"  {format_number(time):>8}  {name:<10} {CAUSES[name]:<40} {parts}"
    yield ""
    count = ""
    if explanation.slack and explanation.slack.paths > 1:
        paths = explanation.slack.paths
        count = f", one of {paths:,.0f}" if paths < 1e15 else f", one of about {paths:.0e}"
    ops = counted(len(explanation.path), "op")
    yield f"critical path ({ops}, {format_number(timeline.makespan)} {unit}{count}):"
    yield "  " + " · ".join(path_text(schedule, explanation.path)[:12])
    gains = [gain for gain in explanation.gains if gain.gain > 1e-9 * timeline.makespan][:SHOWN_GAINS]
    if gains:
        texts = (f"{gain.what} {format_number(gain.gain)} {unit}" for gain in gains)
        yield f"1 % less gains: {' · '.join(texts)}"
    if changes:
        yield ""
        yield "what if (each simulated):"
    for change in changes:
        numbers = (
            f"{format_number(change.metrics.makespan)} {unit}, {format_number(change.per_microbatch)} per microbatch"
        )
        yield f"  {change.text:<26} {numbers}, bubble_rate {format_share(change.metrics.bubble_rate)}"
    yield ""
    yield advise(explanation, changes)
