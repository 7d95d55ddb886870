"""The groups of options that questions share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.options import common, flag, option
from ppsim.ask.types import (
    ChartNote,
    CountList,
    Highlighted,
    Labels,
    ScheduleName,
    Window,
)
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.show.drawing.look import Highlight, Look, Note

Value = float | Sequence[float]

MOST_SEQUENCES = 1 << 16  # in a microbatch
SPELLINGS = "Name or alias (ppsim list), NAME:V, or a file: csv, json, mmd, py, toml (a block)."


_STAGES: dict[str, Any] = {"help": "Stages of the model, S.", "common": True}
_DEVICES: dict[str, Any] = {"help": "Pipeline devices, P.", "common": True}
_CHUNKS: dict[str, Any] = {
    "help": "Stages per device, V; any two of S, P and V give the third.",
    "common": True,
}
_MICROBATCHES: dict[str, Any] = {"help": "Microbatches, M.", "common": True}


@dataclass(frozen=True)
class _FamilyOptions:
    """Options of the shape that only some families have."""

    group_size: int | None = option(
        "--group-size", help="Microbatches per group of interleaved schedules, N."
    )
    rule: str | None = option(
        "--rule",
        type=click.Choice(["torch", "megatron"]),
        help="Refuse sizes M and N of interleaved schedules that torch or Megatron refuses.",
    )
    limit: int | None = option(
        "--limit",
        type=click.IntRange(max=1 << 53),
        help="Most activations of one stage on a device, for schedules with a limit; with two "
        "stages per device, --limit 8 is --cap 4.",
    )
    after_i: float | None = option(
        "--after-i",
        type=click.FloatRange(0, 1),
        help="Share of an activation that is held from I until W, for zb-auto.",
    )
    slices: int | None = option(
        "--slices", help="Slices of each sequence, K, for seq1f1b and similar schedules."
    )
    placement: str | None = option(
        "--placement",
        type=click.Choice(["loop", "v"]),
        help="Placement of several chunks in forward-only and decode: stage s on device s mod P "
        "(loop), or V-shaped.",
    )
    everywhere: list[int] | None = option(
        "--everywhere",
        type=CountList(),
        help="Stages before which a part of the model runs on all devices at once, for 1f1b-plus: "
        "such as 0,4 (0).",
    )


# names of the options of the shape that only some families have
OWN = tuple(each.name for each in fields(_FamilyOptions))


@dataclass(frozen=True)
class _Sizes:
    stages: int | None = option("--stages", **_STAGES)
    devices: int | None = option("--devices", "--pp", **_DEVICES)
    chunks: int | None = option("--chunks", "--vpp", "--vp", **_CHUNKS)
    microbatches: int | None = option("--mb", "-m", "--microbatches", **_MICROBATCHES)


@dataclass(frozen=True)
class ShapeOptions(_FamilyOptions, _Sizes):
    """The size of the pipeline: any two of stages, devices and chunks give the third."""


@dataclass(frozen=True)
class _SizeLists:
    stages: list[int] | None = option("--stages", **_STAGES)
    devices: list[int] | None = option("--devices", "--pp", **_DEVICES)
    chunks: list[int] | None = option("--chunks", "--vpp", "--vp", **_CHUNKS)
    microbatches: list[int] | None = option("--mb", "-m", "--microbatches", **_MICROBATCHES)


@dataclass(frozen=True)
class GridOptions(_FamilyOptions, _SizeLists):
    """The sizes of a sweep: lists of the numbers of :class:`ShapeOptions`."""


# names of the options that simulate messages as ops
DETAILED = (
    "p2p",
    "order",
    "channel",
    "cluster",
    "message",
    "unshard",
    "reduce_grad",
    "shapes",
    "t_shape",
)


def cluster_option(text: str) -> str | None:
    """Declare the option ``--cluster``; ``text`` is its help."""
    found: str | None = common("--cluster", type=click.Path(), metavar="NAME|FILE", help=text)
    return found


def mbs_option(of: str) -> int | None:
    """Declare the option ``--mbs``; ``of`` names the options whose microbatches it is of."""
    found: int | None = option(
        "--mbs",
        type=click.IntRange(1, MOST_SEQUENCES),
        help=f"Sequences in each microbatch of {of} (1).",
    )
    return found


@dataclass(frozen=True)
class NetworkOptions:
    """The order and the transport of messages, and FSDP's collectives."""

    p2p: str | None = common(
        "--p2p",
        type=click.Choice(["latency", "overlap", "blocking", "batched"]),
        help="Simulate sends and receives as ops: in parallel with compute, blocking, or batched.",
    )
    order: str | None = option(
        "--order",
        metavar="ORDER",
        help="Order of sends and receives: early (default; a lowered file states its order), "
        "even-first, torch (default of --lowered), torch-2.15, deferred, prefetch:K. The last two "
        "may deadlock if both directions of two devices share a queue (ppsim check --queues pair); "
        "the others never do.",
    )
    channel: str | None = option(
        "--channel",
        type=click.Choice(["message", "direction", "pair", "group"]),
        help="With --p2p overlap, one message at a time travels in each direction of two devices "
        "(default), on a pair of devices, or from and to a device (group); message: no limit. "
        "check --queues calls the first three edge, pair and rank.",
    )
    cluster: str | None = cluster_option(
        "Simulate messages on the links of a cluster, such as dgx-h100, or of a TOML file, with "
        "host costs."
    )
    message: str | None = option(
        "--message", metavar="SIZE", help="Size of a message on the cluster, such as 4MiB."
    )
    unshard: int | None = option(
        "--unshard",
        type=click.IntRange(min=0),
        help="FSDP: number of stages to gather ahead (0; torch uses 3), with the times of the "
        "cluster's [fsdp].",
    )
    reduce_grad: bool = flag(
        "--reduce-grad", help="FSDP: reduce each stage's gradients after its last backward."
    )

    shapes: str | None = option(
        "--shapes",
        type=click.Choice(["exchange"]),
        help="Send the shape of each message before it and wait for it on both sides, as Megatron "
        "does with variable_seq_lengths; with --p2p batched (the default then) or blocking.",
    )
    t_shape: float | None = option(
        "--t-shape",
        type=click.FloatRange(0, 1e15),
        help="Time that the host waits between a shape and its message, added to the latency of "
        "the shape (0).",
    )

    @property
    def detailed(self) -> bool:
        """True if an option simulates sends and receives as ops."""
        return any(getattr(self, field.name) for field in fields(self) if field.name != "message")


@dataclass(frozen=True)
class OutputOptions:
    """Files to write, and the look of figures."""

    output: tuple[str, ...] = common(
        "--output",
        "-o",
        multiple=True,
        metavar="FILE",
        help="Write a file by its suffix; repeatable, - is stdout.",
    )
    format: str | None = option(
        "--format",
        "-f",
        metavar="SUFFIX",
        help="Format of every -o instead of its suffix's, such as svg.",
    )
    style: str | None = common(
        "--style",
        type=click.Choice(["screen", "paper"]),
        help="Style of figures (default: screen, and paper for pdf).",
    )
    width: float = option(
        "--width", type=click.FloatRange(1, 100), default=6.75, help="Figure width, inches."
    )


@dataclass(frozen=True)
class FigureOptions(OutputOptions):
    """Files to write, and all options of the charts in them."""

    title: str = option("--title", default="", help="Title of the figure or page.")
    palette: str = option(
        "--palette",
        type=click.Choice(["default", "zb", "megatron", "dualpipe", "torch", "okabe-ito", "mono"]),
        default="default",
        show_default=False,
        help="Colours in files: default and okabe-ito for colour-blind readers, default and mono "
        "for grey print, others as in papers.",
    )
    base: int = option(
        "--base",
        type=click.IntRange(0, 1),
        default=0,
        show_default=False,
        help="Number of the first device, stage, microbatch.",
    )
    labels: str = option(
        "--labels",
        type=Labels(["auto", "mb", "op", "none"]),
        default="auto",
        show_default=False,
        help="Text in the cells of figures: the microbatch (auto adds the chunk if there are three "
        "or more), the op, or none; every:N numbers every N-th microbatch.",
    )
    font_size: float | None = option(
        "--font-size",
        type=click.FloatRange(4, 14),
        help="Size of texts in figures, points (6 to 6.5).",
    )
    notes: tuple[Note, ...] = option(
        "--note",
        type=ChartNote(),
        multiple=True,
        help="Write a text on a figure's first chart, at a time and device: 'W fills "
        "here@12:dev2'. If it would cover ops, it is above them, with a line to its place; "
        "repeatable.",
    )
    window: tuple[float, float] | None = option(
        "--window", type=Window(), help="Show the time from A to B only, in the unit of the costs."
    )
    until: float = option(
        "--until",
        type=click.FloatRange(min=0, max=1e15),
        default=0.0,
        show_default=False,
        help="End of the time axis of figures, so that several files have the same axis.",
    )
    fold: bool = flag(
        "--fold", help="Draw the repeating middle only once, with its number of repetitions."
    )
    highlight: Highlight | None = option(
        "--highlight",
        type=Highlighted(),
        help="Highlight mb=3, device=1, stage=2 (counted from --base) or the critical path, and "
        "dim the rest.",
    )
    phases: bool = flag("--phases", help="Mark warm-up, steady phase and cool-down in figures.")
    per_device: bool = flag(
        "--per-device", help="Write idle share and peak next to every row of figures."
    )

    @property
    def look(self) -> Look:
        """The look of charts (InputError: charts cannot have this look)."""
        from ppsim.show.drawing.look import Look

        given = {each.name: getattr(self, each.name) for each in fields(Look)}
        if self.highlight:
            given["highlight"] = self.highlight.count_from(self.base)
        return Look(**given)


@dataclass(frozen=True)
class OneSchedule:
    """One schedule, by its place or by ``-s``."""

    names: tuple[str, ...] = option(metavar="[SCHEDULE]", nargs=-1, type=ScheduleName())
    schedule: str | None = common(
        "--schedule", "-s", type=ScheduleName(), metavar="NAME|FILE", help=SPELLINGS
    )

    @property
    def spec(self) -> str:
        """The spelling of the schedule (InputError: none is named, or several)."""
        specs = [*self.names, *([self.schedule] if self.schedule is not None else [])]
        if not specs:
            raise InputError(
                "the schedule is missing", "a name such as 1f1b (ppsim list), or a file"
            )
        if len(specs) > 1:
            raise InputError(
                f"expected one schedule, got {len(specs)}: {', '.join(specs)}",
                f"leave out {', '.join(specs[1:])}, or ppsim compare for several",
            )
        return specs[0]


@dataclass(frozen=True)
class SeveralSchedules:
    """Schedules, by their place or by ``-s``."""

    names: tuple[str, ...] = option(metavar="[SCHEDULE]...", nargs=-1, type=ScheduleName())
    schedule: tuple[str, ...] = common(
        "--schedule",
        "-s",
        type=ScheduleName(),
        metavar="NAME|FILE",
        multiple=True,
        help=f"{SPELLINGS} Repeatable; comes after schedules without -s. all: every schedule that "
        f"does the same training.",
    )

    @property
    def specs(self) -> tuple[str, ...]:
        """The spellings of the schedules; ``all`` stands for every one that does the same training.

        Raises:
            InputError: none is named.
        """
        from ppsim.schedules import families

        if not (self.names or self.schedule):
            raise InputError(
                "no schedule is named", "names such as gpipe 1f1b (ppsim list), or files, or all"
            )
        every = [family.name for family in families() if family.interchangeable]
        named = (*self.names, *self.schedule)
        return tuple(each for name in named for each in (every if name == "all" else [name]))


@dataclass(frozen=True)
class JsonOption:
    """The option ``--json``."""

    as_json: bool = flag("--json", help="Print one JSON object and nothing else.", common=True)


@dataclass(frozen=True)
class FaceOptions(JsonOption):
    """The options ``--json`` and ``--quiet``."""

    quiet: bool = flag("--quiet", "-q", help="Print only the result line.", common=True)


# names of the options of the shape, and of the look of charts
SHAPE = tuple(each.name for each in fields(ShapeOptions))
LOOK = tuple(each.name for each in fields(FigureOptions)[len(fields(OutputOptions)) :])


def output_of(request: object) -> Any:
    """Return a request's options of output; the defaults if it has none."""
    return getattr(request, "output", OutputOptions())


def iteration_option(default: str) -> Any:
    """Declare the option that chooses iterations of a real run."""
    return option(
        "--iteration",
        default=default,
        show_default=True,
        help="The iteration of a real run: a number or median; where medians over several are "
        "printed, all or a range such as 4-20.",
    )


def cap_option(sizes: str = "--profile, or --model with --cluster") -> str | None:
    """Declare the option; ``sizes`` names the options that give the bytes of an activation."""
    declared: str | None = common(
        "--cap",
        metavar="SIZE[,SIZE...]",
        help="Memory cap of a device: a number of activations of a device's 1/P share of the "
        "model, or of one layer with --layout; or a size such as 60GiB, which needs "
        f"{sizes}. A list has one cap for each device.",
    )
    return declared
