"""Rules on options that several questions share: an option without effect is refused with a reason.

Rules of one question are the ``needs`` of its request, and rules of options of a group or of a part
of costs are the ``needs`` of that class. Rules that depend on the schedule or on the content of a
file, e.g. ``--tfb`` for a schedule without pairs, are checked by
:func:`ppsim.prices.build.check_used`.
"""

from __future__ import annotations

import math
import re

from ppsim.ask.given import Need, TypedOptions, list_needs, never
from ppsim.ask.groups import LOOK
from ppsim.ask.options import Request
from ppsim.errors import InputError

# Options that may be empty; an empty value of others is likely an unset variable of the shell.
MAY_BE_EMPTY = ("unit", "note")
CHARTS = ("style", "memory", *LOOK)

NEEDS = (
    # Files and their content.
    Need(
        ("format",),
        lambda g: bool(g["output"]),
        "{options} needs -o FILE",
        "add -o FILE, or -o - for stdout",
    ),
    Need(
        ("heat",),
        lambda g: g.writes("figure"),
        "{options} draws a figure of heat maps, and needs -o FILE",
        "add -o FILE.svg, or leave it out: a page (-o FILE.html) always has them",
    ),
    Need(
        CHARTS,
        lambda g: not g["tradeoff"],
        "{options} is for charts, and --tradeoff draws time against memory",
    ),
    Need(
        CHARTS,
        lambda g: not g["front"],
        "{options} is for charts, and --front draws time against memory",
    ),
    Need(
        ("style",),
        never,
        "{options} is for charts, and this command draws none",
        "leave it out",
        ("sweep", "plan", "jitter", "model"),
    ),
    Need(
        ("width",),
        lambda g: g.writes("figure"),
        "{options} is for figures, and needs -o FILE",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("palette", "title", "window", "highlight"),
        lambda g: g.draws and g.writes("view"),
        "{options} is for charts in figures and pages, and needs -o FILE",
        "add -o FILE.svg or -o FILE.html, or leave it out",
    ),
    Need(
        ("fold",),
        never,
        "{options} is for one schedule: several have no repeating middle in common",
        "ppsim run NAME --fold -o FILE.svg for each, or --window A:B",
        ("compare", "diff"),
    ),
    Need(
        ("fold",),
        lambda g: g.draws and g.writes("view"),
        "{options} is for charts in figures and pages, and needs -o FILE",
        "add -o FILE.svg or -o FILE.html, or leave it out",
    ),
    Need(
        ("style", "base", "labels", "phases", "per_device", "until", "font_size", "notes"),
        lambda g: g.draws and g.writes("figure"),
        "{options} is for charts in figures, and needs -o FILE",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("fold",),
        lambda g: not g["window"],
        "{options} leaves out the middle, and --window everything outside one stretch",
    ),
    Need(
        ("memory",),
        lambda g: g.draws and g.writes("memory"),
        "{options} is drawn below charts in files, and needs -o FILE",
        "add -o FILE.svg, or ppsim memory",
        ("run", "compare"),
    ),
    Need(
        ("as_json",),
        lambda g: "-" not in (g["output"] or ()),
        "--json and -o - both write to stdout",
    ),
    Need(
        ("results",),
        lambda g: g["results"] not in (g["output"] or ()),
        "{options} and -o name the same file",
        "another name for one of them",
    ),
    # Printed output.
    Need(
        ("gantt",),
        lambda g: not (g["quiet"] or g["as_json"] or "-" in g["output"]),
        "{options} draws a chart in the terminal, and --json, --quiet and -o - print only the "
        "result",
    ),
    # Costs.
    Need(
        ("comm",),
        lambda g: not g["cluster"],
        "--cluster gives the latency of every link, and so does {options}",
    ),
    # Messages as ops.
    Need(
        ("message",),
        lambda g: bool(g["cluster"]) or any("GB/s" in text for text in g["links"] or ()),
        "{options} is the size of a message, which needs the bandwidth of links",
        "give a --cluster file as well, or a --link with a bandwidth",
        ("run", "compare", "sweep", "explain", "diff"),
    ),
    Need(
        ("channel",),
        lambda g: g["p2p"] in (None, "overlap"),
        "{options} limits messages in parallel with compute, and needs --p2p overlap",
    ),
    Need(
        ("order",),
        lambda g: g["p2p"] != "latency" or bool(g["lowered"]),
        "with --p2p latency no send or receive waits for another, so {options} has no effect",
    ),
    Need(
        ("unshard", "reduce_grad"),
        lambda g: bool(g["cluster"] or g["lowered"]),
        "{options} adds FSDP ops, and needs the times in a cluster file's [fsdp]",
        "add --cluster FILE, or --lowered with -o FILE.csv",
    ),
    Need(
        ("shapes",),
        lambda g: g["p2p"] in (None, "batched", "blocking"),
        "{options} makes every message wait, and with this --p2p none does",
        "--p2p batched, or blocking",
    ),
    Need(
        ("t_shape",),
        lambda g: bool(g["shapes"]),
        "{options} is the wait for a shape, and needs --shapes",
        "add --shapes exchange",
    ),
    # Unequal microbatches.
    Need(
        ("mb_scale", "reorder"),
        lambda g: not g["lengths"],
        "--lengths sets the times of every replica's microbatches, so {options} cannot be given "
        "too",
    ),
    Need(
        ("mb_scale", "reorder", "deal", "max_tokens"),
        lambda g: not g["cp_of"],
        "--cp-of sets the times of single microbatches, so {options} cannot be given too",
    ),
    # The grid.
    Need(
        ("lengths", "cp_of"),
        lambda g: not g["grid"],
        "{options} sets the times of ops, and --grid has no times",
    ),
    Need(
        ("replicas",),
        lambda g: not g["grid"],
        "{options} times several replicas, and --grid has no times",
    ),
    Need(
        ("t_reduce",),
        lambda g: not g["grid"],
        "{options} is the time of a reduction, and --grid has no times",
    ),
    Need(
        ("cap",),
        lambda g: not g["grid"],
        "{options} limits memory over time, and --grid has no times",
    ),
    Need(
        ("order",),
        lambda g: not g["grid"] or bool(g["lowered"]),
        "{options} needs --lowered and --grid",
    ),
)


def list_refused(request: type[Request]) -> set[str]:
    """Return the options of a request that it always refuses, so that its help can omit them."""
    return {
        option
        for need in (*NEEDS, *list_needs(request))
        if need.holds is never and (not need.commands or request.question in need.commands)
        for option in need.options
    }


def check_given(given: TypedOptions) -> None:
    """Raise InputError if a typed option is empty, not finite, or has no effect."""
    _refuse_empty(given)
    _refuse_infinite(given)
    for need in (*given.needs, *NEEDS):
        if need.commands and given.command not in need.commands:
            continue
        options = given.spellings(need.options)
        if options and not need.holds(given):
            hint = need.hint
            if given["format"]:  # another -o would have the same format
                hint = re.sub(r"(add )?-o FILE\.", "--format ", hint)
            raise InputError(need.reason.format(options=", ".join(options)), hint)


def _refuse_infinite(given: TypedOptions) -> None:
    """Raise InputError for nan and infinity, which checks of ranges may accept."""
    for each in given.typed:
        value = given.values[each.name]
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise InputError(
                    f"{each.spelling}: not a finite number: {number}; expected e.g. 1.5",
                    "a finite number",
                )


def _refuse_empty(given: TypedOptions) -> None:
    """Raise InputError for an empty text of an option that may not be empty."""
    for each in given.typed:
        value = given.values[each.name]
        values = value if isinstance(value, tuple) else (value,)
        if "" in values and each.name not in MAY_BE_EMPTY:
            name = each.spelling if each.spellings else "an argument"
            raise InputError(f"{name} is empty", "give it a value, or leave it out")
