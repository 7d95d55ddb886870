"""The options that commands share: a frozen dataclass for each group, and the decorator that makes it.

A command under ``@shape_options`` gets one argument ``shape``, a :class:`ShapeOptions`, in place of six options.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ppsim.cli._rules import check_given, list_refused
from ppsim.cli._types import Counts, Highlighted, Numbers, ScheduleName, Window

if TYPE_CHECKING:
    from ppsim.drawing.look import Highlight, Look

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Value = float | Sequence[float]


class Checked(click.Command):
    """A command whose options are held to the table of what needs what before it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, then refuse options that would have no effect."""
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            check_given(ctx)
        return rest


def make_command(name: str) -> Callable[[Callable[..., Any]], Checked]:
    """Make a function a command of that name, whose help leaves out the options that it always refuses."""

    def decorate(function: Callable[..., Any]) -> Checked:
        command, refused = click.command(name, cls=Checked)(function), list_refused(name)
        for param in command.params:
            if isinstance(param, click.Option) and param.name in refused:
                param.hidden = True
        return command

    return decorate


@dataclass(frozen=True)
class ShapeOptions:
    """The size of the pipeline: any two of stages, devices and chunks set the third."""

    stages: int | None = None
    devices: int | None = None
    chunks: int | None = None
    microbatches: int | None = None
    group_size: int | None = None
    rule: str | None = None
    limit: int | None = None
    after_i: float | None = None
    slices: int | None = None


@dataclass(frozen=True)
class GridOptions:
    """The sizes that a sweep visits: lists of numbers where :class:`ShapeOptions` has one."""

    stages: list[int] | None
    devices: list[int] | None
    chunks: list[int] | None
    microbatches: list[int] | None
    group_size: int | None
    rule: str | None
    limit: int | None
    after_i: float | None
    slices: int | None


@dataclass(frozen=True)
class CostOptions:
    """What ops cost: numbers, or a measured profile; None where the default holds. And whether backwards recompute."""

    tf: Value | None = None
    tb: Value | None = None
    ti: Value | None = None
    tw: Value | None = None
    tfb: Value | None = None
    tr: Value | None = None
    comm: float | None = None
    per: str | None = None
    unit: str | None = None
    profile: str | None = None
    recompute: bool = False
    links: tuple[str, ...] = ()
    mb_scale: tuple[str, ...] = ()
    speed: Value | None = None
    layout: str | None = None
    t_layer: Value | None = None
    t_embedding: float | None = None
    t_head: float | None = None
    t_mtp: float | None = None
    b_over_f: float | None = None


@dataclass(frozen=True)
class NetworkOptions:
    """How messages are ordered and carried, and the collectives beside them."""

    p2p: str | None
    order: str | None
    channel: str | None
    cluster: str | None
    message: str | None
    unshard: int | None
    reduce_grad: bool

    @property
    def detailed(self) -> bool:
        """Whether an option asks for sends and receives as ops."""
        return any(getattr(self, field.name) for field in fields(self) if field.name != "message")


@dataclass(frozen=True)
class OutputOptions:
    """Which files to write, and how figures look."""

    output: tuple[str, ...]
    format: str | None
    style: str | None
    width: float


@dataclass(frozen=True)
class FigureOptions(OutputOptions):
    """Which files to write, and all that charts in them can show."""

    palette: str
    base: int
    title: str
    labels: str
    window: tuple[float, float] | None
    fold: bool
    highlight: Highlight | None
    phases: bool
    per_device: bool

    @property
    def look(self) -> Look:
        """The look of charts.

        Raises:
            InputError: a look that no chart has.
        """
        from ppsim.drawing.look import Look

        given = {each.name: getattr(self, each.name) for each in fields(Look)}
        if self.highlight:
            given["highlight"] = self.highlight.count_from(self.base)
        return Look(**given)


def join_options(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Make several options one decorator, in this order in the help."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def group_options(name: str, group: type[Any], *options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make options one decorator; the command gets their values as one ``group``, in the argument ``name``."""
    keys = [field.name for field in fields(group)]

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_group(*args: Any, **values: Any) -> Any:
            return function(*args, **{name: group(**{key: values.pop(key) for key in keys})}, **values)

        return join_options(*options)(with_group)

    return decorate


OWN = ("group_size", "rule", "limit", "after_i", "slices")  # options of the shape that only some schedules take

SPELLINGS = "Name or alias (ppsim list), NAME:V, or a file: csv, json, mmd, py, toml (a block)."


def one_schedule(function: Callable[..., Any]) -> Callable[..., Any]:
    """Take one schedule, by ``-s`` or without it; the command gets its spelling in ``spec``, empty beside a --trace."""

    @functools.wraps(function)
    def with_spec(*args: Any, names: tuple[str, ...], schedule: str | None, **values: Any) -> Any:
        from ppsim.errors import InputError

        specs = [*names, *([schedule] if schedule is not None else [])]
        if not specs and values.get("trace"):
            specs = [""]
        if not specs:
            raise InputError("the schedule is missing", "a name such as 1f1b (ppsim list), or a file")
        if len(specs) > 1:
            raise InputError(f"one schedule is wanted, got {len(specs)}: {', '.join(specs)}", "ppsim compare")
        return function(*args, spec=specs[0], **values)

    return join_options(
        click.argument("names", metavar="[SCHEDULE]", nargs=-1, type=ScheduleName()),
        click.option("--schedule", "-s", "schedule", type=ScheduleName(), metavar="NAME|FILE", help=SPELLINGS),
    )(with_spec)


def several_schedules(required: bool = True) -> Callable[[Any], Any]:
    """Take schedules, by ``-s`` or without it; the command gets their spellings in ``specs``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_specs(*args: Any, names: tuple[str, ...], schedule: tuple[str, ...], **values: Any) -> Any:
            from ppsim.errors import InputError

            if required and not (names or schedule):
                raise InputError("no schedule is named", "names such as gpipe 1f1b (ppsim list), or files")
            return function(*args, specs=(*names, *schedule), **values)

        return join_options(
            click.argument("names", metavar="[SCHEDULE]...", nargs=-1, type=ScheduleName()),
            click.option(
                "--schedule",
                "-s",
                "schedule",
                type=ScheduleName(),
                metavar="NAME|FILE",
                multiple=True,
                help=f"{SPELLINGS} Repeatable; comes after schedules given without -s.",
            ),
        )(with_specs)

    return decorate


def _shape_options(of: Any) -> tuple[Callable[[Any], Any], ...]:
    """The options of the shape, each a number or, for a sweep, a list of them."""
    return (
        click.option("--stages", type=of, help="Stages of the model, S."),
        click.option("--devices", "--pp", type=of, help="Pipeline devices, P."),
        click.option("--chunks", "--vpp", type=of, help="Stages per device, V; any two of the three set the third."),
        click.option("--mb", "-m", "--microbatches", "microbatches", type=of, help="Microbatches, M."),
        click.option("--group-size", type=int, help="Microbatches per group of interleaved schedules, N."),
        click.option(
            "--rule",
            type=click.Choice(["torch", "megatron"]),
            help="Hold interleaved schedules to torch's or Megatron's own rule for M and N.",
        ),
        click.option(
            "--limit",
            type=int,
            help="Activations of one stage that a device may hold, for schedules that take a limit.",
        ),
        click.option(
            "--after-i",
            type=click.FloatRange(0, 1),
            help="Share of an activation that is still held between I and W, for zb-auto.",
        ),
        click.option("--slices", type=int, help="Slices that each sequence is cut into, K, for seq1f1b and the like."),
    )


shape_options = group_options("shape", ShapeOptions, *_shape_options(int))
grid_options = group_options("grid", GridOptions, *_shape_options(Counts()))

cost_options = group_options(
    "costs",
    CostOptions,
    click.option("--tf", type=Numbers(), help="Time of a forward (1), or one per stage: 1,1,1.3,1."),
    click.option("--tb", type=Numbers(), help="Time of a full backward (ti + tw)."),
    click.option("--ti", type=Numbers(), help="Time of a backward for the input (1)."),
    click.option("--tw", type=Numbers(), help="Time of a backward for the weights (1)."),
    click.option("--tfb", type=Numbers(), help="Time of a fused pair of F and B (tf + tb)."),
    click.option("--tr", type=Numbers(), help="Time of a recompute (tf)."),
    click.option("--comm", type=float, help="Latency of a message between two devices (0)."),
    click.option(
        "--link",
        "links",
        multiple=True,
        metavar="A-B=LATENCY[,GB/s]",
        help="One link that differs: 6-7=30, or 6-7=0.1,25GB/s; A>B for one direction; repeatable.",
    ),
    click.option(
        "--mb-scale",
        "mb_scale",
        multiple=True,
        metavar="[KINDS=]FACTORS",
        help="How many times as long each microbatch takes: 1,1.3,0.8,..., a file, or lognormal:0.2:SEED (uniform, "
        "normal); W=... for a kind alone; repeatable.",
    ),
    click.option("--speed", type=Numbers(), help="How many times as fast each device computes: 1,1,0.9,1."),
    click.option(
        "--cost-per",
        "per",
        type=click.Choice(["device", "stage"]),
        help="Times are for a device's 1/P share of the model (device, the default) or for each stage as given.",
    ),
    click.option(
        "--layout",
        metavar="STRING",
        help="Which layers each stage holds, such as 'Et*3|(tt|)*29,m|L' (ppsim layout): costs come from these times.",
    ),
    click.option("--t-layer", type=Numbers(), help="Forward time of a layer of the layout (1), or one for each."),
    click.option("--t-embedding", type=float, help="Forward time of the layout's embedding, E (0)."),
    click.option("--t-head", type=float, help="Forward time of the layout's head and its loss, L (0)."),
    click.option("--t-mtp", type=float, help="Forward time of an MTP layer of the layout, m (a layer's)."),
    click.option("--b-over-f", type=float, help="A full backward of a layer in its forwards (2); I and W take half."),
    click.option("--unit", help="Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times."),
    click.option("--profile", type=click.Path(), help="Measured costs instead (ppsim calibrate), in ms."),
    click.option(
        "--recompute",
        is_flag=True,
        help="Run each forward again (R) before its backward, as soon as its device is free. For recompute inside the "
        "backward, which waits for the gradient first, give a longer --tb instead.",
    ),
)

network_options = group_options(
    "network",
    NetworkOptions,
    click.option(
        "--p2p",
        type=click.Choice(["latency", "overlap", "blocking", "batched"]),
        help="Run sends and receives as ops of their own: beside compute, or blocking, or in batches.",
    ),
    click.option(
        "--order",
        metavar="ORDER",
        help="Order of sends and receives: early (default), even-first, torch (default of --lowered), torch-2.15, "
        "deferred, prefetch:K. The last two may hang where both directions of two devices share a queue (ppsim check "
        "--queues pair); the others hang nowhere.",
    ),
    click.option(
        "--channel",
        type=click.Choice(["message", "direction", "pair", "group"]),
        help="With --p2p overlap, what carries one message at a time: each direction of two devices (default), "
        "both directions, or a device, as the edge, pair and rank of check --queues; message: no limit.",
    ),
    click.option(
        "--cluster",
        type=click.Path(),
        metavar="NAME|FILE",
        help="Links and bandwidths of a cluster such as dgx-h100, or from a TOML file, with host costs.",
    ),
    click.option("--message", metavar="SIZE", help="Size of a message on the cluster, such as 4MiB."),
    click.option(
        "--unshard",
        type=click.IntRange(min=0),
        help="FSDP: stages gathered ahead (0; torch uses 3), at the times of the cluster's [fsdp].",
    ),
    click.option("--reduce-grad", is_flag=True, help="FSDP: reduce each stage's gradients after its last backward."),
)

_output_options = (
    click.option(
        "--output", "-o", multiple=True, metavar="FILE", help="Write a file by its suffix; repeatable, - is stdout."
    ),
    click.option("--format", "-f", metavar="SUFFIX", help="Format of every -o, whatever its name says, such as svg."),
    click.option("--style", type=click.Choice(["screen", "paper"]), help="Look of figures (screen; paper for pdf)."),
    click.option(
        "--width", type=click.FloatRange(1, 100), default=6.75, show_default=True, help="Figure width, inches."
    ),
)
_look_options = (
    click.option("--title", default="", help="Title of the figure or page."),
    click.option(
        "--palette",
        type=click.Choice(["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"]),
        default="default",
        help="Colours in files: those of a paper, for all eyes (okabe-ito), or for print without colour (mono).",
    ),
    click.option("--base", type=click.IntRange(0, 1), default=0, help="Number of the first device, stage, microbatch."),
    click.option(
        "--labels",
        type=click.Choice(["auto", "mb", "op", "none"]),
        default="auto",
        help="What cells of figures say: the microbatch (auto adds the chunk from three chunks on), the op, nothing.",
    ),
    click.option("--window", type=Window(), help="Show the time from A to B only, in the unit of the costs."),
    click.option("--fold", is_flag=True, help="Draw a middle that repeats once, with how often it runs."),
    click.option(
        "--highlight",
        type=Highlighted(),
        help="Pick out mb=3, device=1, stage=2 (from --base on) or the critical path; dim the rest.",
    ),
    click.option("--phases", is_flag=True, help="Mark warm-up, steady phase and cool-down in figures."),
    click.option("--per-device", is_flag=True, help="Write idle share and peak beside every row of figures."),
)
output_options = group_options("output", OutputOptions, *_output_options)
figure_options = group_options("output", FigureOptions, *_output_options, *_look_options)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print the result line only.")
