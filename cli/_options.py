"""The options that commands share, as decorators, and what they turn into.

A command that takes ``shape_options`` and ``cost_options`` hands its keyword arguments on to ``build``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from ppsim.version import VERSION

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ppsim.analysis.tradeoff import Point
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.files.document import Document
    from ppsim.memory.usage import MemoryModel

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
SHAPE = ("stages", "devices", "chunks", "microbatches", "group_size", "rule")
COSTS = ("tf", "tb", "ti", "tw", "tfb", "comm", "per", "unit", "profile")
MOST_COUNTS = 10_000
RANGE = re.compile(r"(N)(?::(N)(?::(x?)(N))?)?".replace("N", "0*[1-9][0-9]{0,8}"))
OUTPUT = ("output", "force", "format", "as_json", "quiet", "gantt", "style", "width")


class Numbers(click.ParamType[Any]):
    """One number, or one per stage with commas between."""

    name = "number[,number...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | list[float]:
        """The number, or the list of numbers."""
        if not isinstance(value, str):
            return value
        try:
            numbers = [float(part) for part in value.split(",")]
        except ValueError:
            self.fail(f"'{value}' is not a number, nor numbers with commas between (one per stage).", param, ctx)
        return numbers if len(numbers) > 1 else numbers[0]


class Counts(click.ParamType[Any]):
    """Counts with commas between: single ones, 8:64:8 in steps, 8:128:x2 by a factor."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """All counts, in the order given."""
        if isinstance(value, list):
            return value
        counts: list[int] = []
        for part in str(value).split(","):
            match = RANGE.fullmatch(part)
            if not match:
                self.fail(f"'{part}' is no count; write 8, 8:64:8 (in steps) or 8:128:x2 (by a factor).", param, ctx)
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[4] or 1)
            by_factor = match[3] == "x"
            if by_factor and step < 2:
                self.fail(f"'{part}' never ends: a factor must be 2 or more.", param, ctx)
            while first <= last:
                if len(counts) == MOST_COUNTS:
                    self.fail(f"'{value}' is more than {MOST_COUNTS:,} counts.", param, ctx)
                counts.append(first)
                first = first * step if by_factor else first + step
        if not counts:
            self.fail(f"'{value}' is empty: the last count is below the first.", param, ctx)
        return counts


class ScheduleName(click.ParamType[Any]):
    """The name of a schedule; the registry resolves aliases and suggests near names."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name as given."""
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """All schedule names that begin like this."""
        from click.shell_completion import CompletionItem

        from ppsim.schedules import families

        return [CompletionItem(f.name, help=f.title) for f in families() if f.name.startswith(incomplete.lower())]


def chained(*decorators: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Several options as one decorator, in this order in the help."""

    def decorate(function: Decorated) -> Decorated:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


schedule_option = click.option(
    "--schedule",
    "-s",
    type=ScheduleName(),
    metavar="NAME|FILE",
    required=True,
    help="Name or alias (ppsim list), or a file: csv, json, mmd, py.",
)

shape_options = chained(
    click.option("--stages", type=int, help="Stages of the model, S."),
    click.option("--devices", "--pp", type=int, help="Pipeline devices, P."),
    click.option("--chunks", "--vpp", type=int, help="Stages per device, V; any two of the three set the third."),
    click.option("--mb", "-m", "--microbatches", "microbatches", type=int, help="Microbatches, M."),
    click.option("--group-size", type=int, help="Microbatches per group of interleaved schedules, N."),
    click.option(
        "--rule",
        type=click.Choice(["torch", "megatron"]),
        help="Hold interleaved schedules to torch's or Megatron's own rule for M and N.",
    ),
)

cost_options = chained(
    click.option("--tf", type=Numbers(), help="Time of a forward (1), or one per stage: 1,1,1.3,1."),
    click.option("--tb", type=Numbers(), help="Time of a full backward (ti + tw)."),
    click.option("--ti", type=Numbers(), help="Time of a backward for the input (1)."),
    click.option("--tw", type=Numbers(), help="Time of a backward for the weights (1)."),
    click.option("--tfb", type=Numbers(), help="Time of a fused pair of F and B (tf + tb)."),
    click.option("--comm", type=float, help="Latency of a message between two devices (0)."),
    click.option(
        "--cost-per",
        "per",
        type=click.Choice(["device", "stage"]),
        help="Times are for a device's 1/P share of the model (device, the default) or for each stage as given.",
    ),
    click.option("--unit", help="Name of the times' unit (t_F); ms, us, ns or s where a --cluster gives real times."),
    click.option("--profile", type=click.Path(), help="Measured costs instead (ppsim calibrate), in ms."),
)

output_options = chained(
    click.option(
        "--output", "-o", multiple=True, metavar="FILE", help="Write a file by its suffix; repeatable, - is stdout."
    ),
    click.option("--format", "-f", metavar="SUFFIX", help="Format of -o where the name does not tell, such as svg."),
    click.option("--style", type=click.Choice(["screen", "paper"]), help="Look of figures (screen; paper for pdf)."),
    click.option(
        "--width", type=click.FloatRange(1, 100), default=6.75, show_default=True, help="Figure width, inches."
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
quiet_option = click.option("--quiet", "-q", is_flag=True, help="Print the result line only.")


def build(name: str, options: Mapping[str, Any]) -> tuple[Schedule, Costs]:
    """The schedule and its costs that a command's options ask for."""
    schedule = schedule_named(name, options)
    return schedule, costs_of(schedule, options)


def schedule_named(name: str, options: Mapping[str, Any]) -> Schedule:
    """The schedule of that name, or in that file, in the shape the options give.

    Raises:
        InputError: no such schedule, or a shape it refuses.
    """
    from ppsim.errors import InputError, UnknownSchedule
    from ppsim.schedules import find, generate

    shape = {key: options[key] for key in SHAPE if key in options}
    try:
        find(name)
    except UnknownSchedule:
        from ppsim.schedules._load import schedule_from

        return schedule_from(name, partial(click.echo, err=True), **shape)
    if shape["microbatches"] is None:
        raise InputError("the number of microbatches is missing", "give --mb")
    return generate(name, **shape)


def costs_of(schedule: Schedule, options: Mapping[str, Any]) -> Costs:
    """Costs from a profile, or from the numbers given."""
    from ppsim.core.costs import costs_for
    from ppsim.errors import InputError

    given = {key: options[key] for key in COSTS if options.get(key) is not None}
    if profile := given.pop("profile", None):
        if given:
            names = ", ".join("--cost-per" if key == "per" else f"--{key}" for key in given)
            raise InputError(f"--profile brings all costs, so {names} cannot be given too", "leave one of them out")
        from ppsim.profiles.costs import costs_from
        from ppsim.profiles.profile import read

        return costs_from(read(profile), schedule)
    return costs_for(schedule, **given)


def memory_of(schedule: Schedule, costs: Costs, options: Mapping[str, Any]) -> tuple[MemoryModel, Costs]:
    """What the stages hold, and the costs with the time that recomputation takes.

    Bytes from ``--model`` or a ``--profile`` that has them, else activations of one stage and microbatch.
    """
    from ppsim.memory.usage import units

    if options.get("model"):
        from ppsim.memory.transformer import memory_model, read_model, recompute_share, with_recompute

        model = read_model(options["model"])
        return memory_model(model, schedule), with_recompute(costs, recompute_share(model))
    if options["profile"]:
        from ppsim.memory.from_profile import profile_memory
        from ppsim.profiles.profile import read

        return profile_memory(read(options["profile"]), schedule), costs
    return units(schedule), costs


def with_memory(document: Document, costs: Sequence[Costs], options: Mapping[str, Any]) -> Document:
    """The document with what the devices of each timeline hold over time."""
    from dataclasses import replace

    from ppsim.memory.usage import curves

    pairs = zip(document.timelines, costs, strict=True)
    return replace(document, memory=tuple(curves(t, memory_of(t.schedule, c, options)[0]) for t, c in pairs))


def inputs_of(ctx: click.Context, costs: Costs) -> dict[str, Any]:
    """What a file embeds to say how to make it again: version, command, resolved costs. No date, no output paths."""
    import numpy as np

    from ppsim.core.ops import COMPUTE

    rows = {
        kind.name: row[:1].tolist() if np.ptp(row) == 0 else row.tolist()
        for kind, row in zip(COMPUTE, costs.time, strict=True)
    }
    return {
        "ppsim": VERSION,
        "command": command_line(ctx),
        "costs": {**rows, "comm": np.asarray(costs.comm).tolist(), "unit": costs.unit},
    }


def command_line(ctx: click.Context) -> str:
    """The command as the user gave it, without where its output goes."""
    words = ["ppsim", ctx.info_name or ""]
    for param in ctx.command.params:
        if (
            param.name in OUTPUT
            or param.name is None
            or not param.expose_value
            or ctx.get_parameter_source(param.name) != ParameterSource.COMMANDLINE
        ):
            continue
        value = ctx.params[param.name]
        if isinstance(param, click.Argument):
            words += [
                str(v) for v in (value if isinstance(value, Sequence) and not isinstance(value, str) else [value])
            ]
        elif isinstance(value, bool):
            words.append(param.opts[0] if value else param.secondary_opts[0])
        elif isinstance(value, tuple):
            words += [word for each in value for word in (param.opts[0], str(each))]
        else:
            words += [param.opts[0], ",".join(f"{v:.15g}" for v in value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def given(ctx: click.Context, names: Collection[str]) -> list[str]:
    """Those of the named options that were typed, by their first spelling."""
    typed = (p for p in ctx.command.params if p.name and p.name in names)
    return [p.opts[0] for p in typed if ctx.get_parameter_source(p.name or "") == ParameterSource.COMMANDLINE]


def documents(
    timelines: Sequence[Timeline], titles: Sequence[str], inputs: Mapping[str, Any], options: Mapping[str, Any]
) -> list[tuple[Document, str, str]]:
    """For every -o: the document, where it goes and its format; unknown formats fail here, before any work."""
    wanted = targets(options)
    if not wanted:
        return []
    from ppsim.files.document import Document

    result = []
    for target, suffix in wanted:
        style = options["style"] or ("paper" if suffix == ".pdf" else "screen")
        result.append((Document(tuple(timelines), tuple(titles), inputs, style, options["width"]), target, suffix))
    return result


def targets(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every -o with its format's suffix; fails on an unknown one and on a folder that is not there."""
    from ppsim.errors import InputError

    given = options["format"]
    if not options["output"] and not given:
        return []
    from pathlib import Path

    from ppsim.files.document import suffix_of

    result = []
    for target in options["output"]:
        named = f"x.{given.removeprefix('.')}" if given else "x.json" if target == "-" else target
        suffix = suffix_of(named)
        if target != "-" and not Path(target).parent.is_dir():
            raise InputError(f"cannot write '{target}': no folder '{Path(target).parent}'", "make the folder first")
        result.append((target, suffix))
    if options["output"].count("-") > 1:
        raise InputError("-o - is given twice, and there is one standard output", "leave one of them out")
    if options["as_json"] and "-" in options["output"]:
        raise InputError("--json and -o - both write to stdout", "leave one of them out")
    if given and not result:
        raise InputError("--format says how to write -o, and there is no -o", "add -o FILE, or -o - for stdout")
    return result


def write_tradeoff(points: Iterable[Point], time: str, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Write every -o as the trade-off of time against memory, saying so on stderr."""
    from ppsim.analysis.tradeoff import tradeoff
    from ppsim.files.tradeoff import save_tradeoff

    found = tradeoff(list(points))
    memory = "peak activations (of a device's 1/P share)"
    for target, suffix in targets(options):
        save_tradeoff(found, target, suffix, time=time, memory=memory, width=options["width"], inputs=inputs)
        if target != "-":
            click.echo(f"wrote {target}", err=True)


def write_all(written: Sequence[tuple[Document, str, str]]) -> None:
    """Write every document, saying so on stderr."""
    if not written:
        return
    from ppsim.files.document import save

    for document, target, suffix in written:
        save(document, target, suffix)
        if target != "-":
            click.echo(f"wrote {target}", err=True)
