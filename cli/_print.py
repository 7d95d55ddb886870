"""What commands print on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ppsim.metrics import Metrics
    from ppsim.schedule import Schedule
    from ppsim.timeline import Timeline


def shape_line(schedule: Schedule) -> str:
    """The size in words: 4 devices x 2 chunks = 8 stages, 8 microbatches."""
    return (
        f"{_count(schedule.n_devices, 'device')} x {_count(schedule.n_chunks, 'chunk')} = "
        f"{_count(schedule.n_stages, 'stage')}, {_count(schedule.n_microbatches, 'microbatch')}"
        + (", 2 replicas" if schedule.placement.n_replicas > 1 else "")
    )


def result_line(name: str, metrics: Metrics, unit: str) -> str:
    """Everything that matters on one line."""
    return (
        f"{name}  makespan {metrics.makespan:g} {unit}  bubble_rate {metrics.bubble_rate:.1%}  "
        f"bubble_over_ideal {metrics.bubble_over_ideal:.1%}  bubble_rate_span {metrics.bubble_rate_span:.1%}  "
        f"peak activations {int(metrics.peak_activations.max())}"
    )


def summary(timeline: Timeline, metrics: Metrics) -> str:
    """The numbers of one run, by name."""
    peaks = metrics.peak_activations
    most = int(peaks.argmax())
    each = " ".join(str(p) for p in peaks) if len(peaks) <= 16 else f"{peaks.min()} to {peaks.max()}"
    rows = [
        ("makespan", f"{metrics.makespan:g} {timeline.unit}", f"ideal {metrics.ideal:g}, the work of the busiest device"),
        ("bubble_rate", f"{metrics.bubble_rate:.1%}", "idle share of the iteration"),
        ("bubble_over_ideal", f"{metrics.bubble_over_ideal:.1%}", "(makespan - ideal) / ideal"),
        ("bubble_rate_span", f"{metrics.bubble_rate_span:.1%}", "(span - ideal) / span, span = longest first start to last end"),
        ("peak activations", f"{peaks[most]}", f"stage-microbatches, on device {most} ({each})"),
        ("P2P messages", f"{metrics.messages}", "activations and gradients between devices"),
    ]
    return "\n".join(f"{name:<18} {value:>12}   {what}" for name, value, what in rows)


def print_gantt(timeline: Timeline, metrics: Metrics) -> None:
    """The chart, in colour where the terminal has it, letters elsewhere."""
    from rich.console import Console

    from ppsim.terminal import gantt

    console = Console(highlight=False, soft_wrap=True)
    colour = console.is_terminal and console.color_system is not None and not console.no_color
    console.print(gantt(timeline, metrics, min(console.width, 160), colour), crop=False)


def title_of(schedule: Schedule) -> str:
    """The schedule's name as figures write it."""
    from ppsim.errors import InputError
    from ppsim.schedules import find

    try:
        return find(schedule.name).title
    except InputError:
        return schedule.name


def echo_json(value: object) -> None:
    """One JSON object on standard output."""
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_INDENT_2 * 0
    click.echo(orjson.dumps(value, option=options).decode())


def _count(number: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
