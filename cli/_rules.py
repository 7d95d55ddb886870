"""The table of what needs what: an option that would have no effect is refused, with the reason.

What depends on the schedule or on a file's content, such as ``--tfb`` where no ops run as pairs, is checked where it is
known: :func:`ppsim.cli._build.check_used`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource

SHAPE = ("stages", "devices", "chunks", "microbatches", "group_size", "rule")
COSTS = ("tf", "tb", "ti", "tw", "tfb", "tr", "comm", "per", "unit")
UNEVEN = ("links", "mb_scale", "speed")
DETAILED = ("p2p", "order", "channel", "cluster", "message", "unshard", "reduce_grad")
TIMED = ("tf", "ti", "tw", "message")
MODEL = ("hidden", "heads", "sequence", "microbatch_size", "layers", "vocab")
REQUEST = ("ops", "module", "runner", "device", *TIMED, "repeats", "warm_up", "real_time", *MODEL)
MEASURING = (*MODEL, "module", "dtype", "device", "repeats", "warm_up", "max_bytes", "sizes", "note", "real_time")
# Texts that may be empty; any other empty value is a variable of the shell that was not set.
MAY_BE_EMPTY = ("unit", "note")


class Given:
    """The options of one call: their values, and which were typed."""

    def __init__(self, ctx: click.Context) -> None:
        self.command = ctx.command.name
        self.values = ctx.params
        self.typed = [
            p
            for p in ctx.command.params
            if p.name in ctx.params and ctx.get_parameter_source(p.name) == ParameterSource.COMMANDLINE
        ]

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    def has(self, *names: str) -> bool:
        """Whether any of the options was typed."""
        return any(p.name in names for p in self.typed)

    def spellings(self, names: tuple[str, ...]) -> list[str]:
        """Which of the options were typed with a value that asks for something, by their first spelling."""
        return [spelling(p) for p in self.typed if p.name in names and self.values[p.name] is not False]

    def writes(self, ability: str = "") -> bool:
        """Whether a file is to be written, in a format with this one of :class:`~ppsim.files.document.Abilities`."""
        suffixes = suffixes_of(self["output"] or (), self["format"])
        if not ability or not suffixes:
            return bool(suffixes)
        from ppsim.files.document import abilities_of

        return any(getattr(abilities_of(suffix), ability) for suffix in suffixes)

    @property
    def draws(self) -> bool:
        """Whether the files written show schedules, and not time against memory."""
        return self.command != "sweep" and not self["tradeoff"]


@dataclass(frozen=True)
class Need:
    """One row of the table.

    Attributes:
        options: names of parameters.
        holds: whether they have an effect in a call where one of them is typed.
        why: the reason for refusing them, with ``{options}`` where those typed are named.
        hint: what to try.
        commands: where the row counts; empty for every command that has the options.
    """

    options: tuple[str, ...]
    holds: Callable[[Given], bool]
    why: str
    hint: str = "leave one of them out"
    commands: tuple[str, ...] = ()


NEEDS = (
    # Which files are written, and what they show.
    Need(
        ("format",),
        lambda g: bool(g["output"]),
        "{options} says how to write -o, and there is no -o",
        "add -o FILE, or -o - for stdout",
    ),
    Need(("tradeoff",), lambda g: g.writes(), "{options} says what -o draws, and there is no -o", "add -o FILE.svg"),
    Need(
        ("lowered",),
        lambda g: g.writes("lowered") or bool(g["grid"]),
        "{options} says how to write csv, and none is written",
        "add -o FILE.csv",
    ),
    Need(
        ("style",),
        lambda g: g.draws and g.writes("figure"),
        "{options} sets the look of charts in figures, and none is written",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("width",),
        lambda g: g.writes("figure"),
        "{options} sets the width of figures, and none is written",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("memory",),
        lambda g: g.draws and g.writes("memory"),
        "{options} is drawn below charts in files, and none is written",
        "add -o FILE.svg, or ppsim memory",
        ("run", "compare"),
    ),
    Need(("as_json",), lambda g: "-" not in (g["output"] or ()), "--json and -o - both write to stdout"),
    # What is printed.
    Need(
        ("gantt",),
        lambda g: not (g["quiet"] or g["as_json"] or "-" in g["output"]),
        "{options} draws a chart in the terminal, where only the result is to be printed",
    ),
    Need(
        ("breakdown",),
        lambda g: not g["quiet"] and "-" not in g["output"],
        "{options} prints a table, where only the result is to be printed",
    ),
    Need(("metric",), lambda g: not g["as_json"], "--json holds every metric, so {options} chooses none"),
    Need(
        ("github",), lambda g: not (g["as_json"] or g["quiet"]), "{options} is another way to print than --json or -q"
    ),
    Need(
        ("devices", "microbatches"),
        lambda g: not g["as_json"],
        "{options} shapes the example, which --json does not hold",
        commands=("describe",),
    ),
    Need(
        ("stages", "devices"),
        lambda g: not (g["stages"] and g["devices"]),
        "{options} both set the devices of a sweep",
        "one of them, and --chunks or NAME:V",
        ("sweep",),
    ),
    Need(
        ("group_size", "rule"),
        lambda g: bool(g["schedule"]),
        "{options} shapes a schedule, and none is named",
        "add --schedule NAME",
        ("check",),
    ),
    Need(
        ("chunks",),
        lambda g: bool(g["schedule"] or g["stages"] or g["devices"]),
        "{options} is nothing without the number of devices or stages",
        "add --devices",
        ("check",),
    ),
    # Costs.
    Need(COSTS, lambda g: not g["profile"], "--profile brings all costs, so {options} cannot be given too"),
    Need(("comm",), lambda g: not g["cluster"], "--cluster gives the latency of every link, and so does {options}"),
    Need(
        ("recompute",),
        lambda g: False,
        "{options} adds ops, and convert writes those that the file holds",
        "ppsim run FILE --recompute -o FILE",
        ("convert",),
    ),
    Need(
        ("merge_bw", "split_bw"),
        lambda g: not (g["merge_bw"] and g["split_bw"]),
        "{options} undo each other",
        commands=("convert",),
    ),
    Need(("merge_bw",), lambda g: not g["steady"], "{options} changes the queues, and --steady needs a family's own"),
    # Messages as ops.
    Need(
        ("message",),
        lambda g: bool(g["cluster"]) or any("GB/s" in text for text in g["links"] or ()),
        "{options} is the size of a message, which says nothing without links",
        "give a --cluster file as well, or a --link with a bandwidth",
        ("run", "compare", "sweep", "explain", "diff"),
    ),
    Need(
        ("channel",),
        lambda g: g["p2p"] in (None, "overlap"),
        "{options} limits messages that travel beside compute: --p2p overlap",
    ),
    Need(
        ("order",),
        lambda g: g["p2p"] != "latency" or bool(g["lowered"]),
        "with --p2p latency no send or receive waits for another, so {options} changes nothing",
    ),
    Need(
        ("unshard", "reduce_grad"),
        lambda g: bool(g["cluster"] or g["lowered"]),
        "{options} adds FSDP ops, whose times are in a cluster file's [fsdp]",
        "add --cluster FILE, or --lowered with -o FILE.csv",
    ),
    Need(
        ("steady",),
        lambda g: not any(g[name] for name in DETAILED),
        "{options} knows the simple model only",
        "leave out --steady, or the options of messages",
    ),
    Need(
        ("steady",),
        lambda g: not g["output"],
        "{options} has numbers only, no timeline",
        "leave out --output or --steady",
    ),
    Need(
        ("steady",),
        lambda g: not (g.has("gantt") and g["gantt"]),
        "{options} has numbers only, no chart",
        "leave out --gantt or --steady",
    ),
    # Unequal microbatches.
    Need(
        ("reorder",), lambda g: bool(g["mb_scale"]), "{options} orders unequal microbatches", "add --mb-scale FACTORS"
    ),
    Need(
        ("reorder",),
        lambda g: not (g["grid"] or g["steady"] or any(g[name] for name in DETAILED)),
        "{options} times orders by the simple model",
    ),
    Need(
        ("mb_scale", "speed"),
        lambda g: not g["steady"],
        "{options} makes microbatches or devices unequal, and --steady needs them alike",
    ),
    # The grid.
    Need(
        ("grid",),
        lambda g: not any(g[name] for name in (*COSTS, *UNEVEN, "profile", *DETAILED) if name != "order"),
        "{options} gives every step one slot, so options of costs and of messages change nothing",
        "leave them out, or --grid",
    ),
    Need(("grid",), lambda g: not (g["steady"] or g["quiet"]), "{options} shows every step"),
    Need(
        ("style", "width", "memory", "gantt"),
        lambda g: not g["grid"],
        "{options} is for charts, and --grid is text",
        "leave it out",
        ("run",),
    ),
    Need(("order",), lambda g: not g["grid"] or bool(g["lowered"]), "{options} needs --lowered beside --grid"),
    # Noise.
    Need(("slowdown",), lambda g: bool(g["slow_devices"]), "{options} needs slow devices", "add --slow-devices 1"),
    Need(("link_slowdown",), lambda g: bool(g["slow_links"]), "{options} needs slow links", "add --slow-links 1"),
    # Runs for real.
    Need(
        ("from_record", "trace", "record"),
        lambda g: not g["from_record"] or not (g["trace"] or g["record"]),
        "{options} cannot be given together",
        commands=("validate",),
    ),
    Need(
        ("trace", "record"),
        lambda g: not (g["trace"] and g["record"]),
        "{options} cannot be given together",
        commands=("validate",),
    ),
    Need(
        ("iteration",),
        lambda g: bool(g["trace"]),
        "{options} chooses a step of --trace, and there is none",
        "leave it out",
        ("validate",),
    ),
    Need(
        ("iteration",),
        lambda g: bool(g["from_trace"]),
        "{options} chooses iterations of --from-trace, and there is none",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        ("names", "schedule", *SHAPE, *REQUEST, "profile"),
        lambda g: not g["from_record"],
        "--from-record runs nothing, so {options} cannot be given too",
        "leave it out",
        ("validate",),
    ),
    Need(
        REQUEST,
        lambda g: not g["trace"],
        "--trace shows a run made elsewhere, so {options} cannot be given too",
        "leave it out",
        ("validate",),
    ),
    Need(
        TIMED,
        lambda g: g["ops"] == "timed",
        "{options} is for ops that only take their time",
        "add --ops timed",
        ("validate",),
    ),
    Need(
        MODEL,
        lambda g: g["ops"] == "compute",
        "{options} is for stages that compute, and --ops timed has none",
        "leave it out",
        ("validate",),
    ),
    Need(
        (*MODEL, "dtype"),
        lambda g: not g["module"],
        "--module brings the model, so {options} cannot be given too",
        "leave one out",
        ("validate", "calibrate"),
    ),
    Need(("module",), lambda g: g["ops"] != "timed", "{options} has stages that compute, and --ops timed has none"),
    Need(
        ("module",),
        lambda g: bool(g["stages"]) or g.command != "calibrate" or bool(g["from_trace"]),
        "{options} is asked for each stage, and how many there are is missing",
        "add --stages 4",
        ("calibrate",),
    ),
    Need(
        ("stages",),
        lambda g: bool(g["module"]),
        "{options} is the number of stages of --module, and there is none",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        MODEL,
        lambda g: not g["profile"],
        "--profile brings the model, so {options} cannot be given too",
        "leave one out",
        ("validate",),
    ),
    Need(
        MEASURING,
        lambda g: not g["from_trace"],
        "--from-trace measures nothing, so {options} cannot be given too",
        "leave it out",
        ("calibrate",),
    ),
    Need(
        ("sizes", "max_bytes"), lambda g: not (g["sizes"] and g["max_bytes"]), "{options} both set the largest message"
    ),
)


def check_given(ctx: click.Context) -> None:
    """Refuse options that would have no effect in this call.

    Raises:
        InputError: an option that another makes idle, that lacks another, or that is empty.
    """
    given = Given(ctx)
    _refuse_empty(given)
    for need in NEEDS:
        if need.commands and given.command not in need.commands:
            continue
        options = given.spellings(need.options)
        if options and not need.holds(given):
            from ppsim.errors import InputError

            raise InputError(need.why.format(options=", ".join(options)), need.hint)


def _refuse_empty(given: Given) -> None:
    for param in given.typed:
        value = given.values[param.name or ""]
        if "" in (value if isinstance(value, tuple) else (value,)) and param.name not in MAY_BE_EMPTY:
            from ppsim.errors import InputError

            what = spelling(param) if isinstance(param, click.Option) else "an argument"
            raise InputError(f"{what} is empty", "give it a value, or leave it out")


def spelling(param: click.Parameter) -> str:
    """The first spelling of a parameter, as users type it."""
    return param.opts[0] if isinstance(param, click.Option) else (param.metavar or param.opts[0])


def suffixes_of(output: Sequence[str], form: str | None) -> list[str]:
    """Find the format of every -o: as named, by its suffix, or json for standard output.

    Raises:
        InputError: no format has this suffix.
    """
    if not output:
        return []
    from ppsim.files.document import suffix_of

    named = f"x.{form.removeprefix('.')}" if form else ""
    return [suffix_of(named or ("x.json" if target == "-" else target)) for target in output]
