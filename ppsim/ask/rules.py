"""Options that several questions share and that conflict: one without effect is refused, with the
reason.

Rows of one question are the ``needs`` of its request; rows of options that a group or a part of
costs declares are its ``needs``. What depends on the schedule or on a file's content, such as
``--tfb`` where no ops run as pairs, is checked by :func:`ppsim.prices.build.check_used`.
"""

from __future__ import annotations

import math
import re

from ppsim.ask.given import Need, TypedOptions, list_needs, never
from ppsim.ask.groups import LOOK
from ppsim.ask.option_names import MODEL
from ppsim.ask.options import Request
from ppsim.errors import InputError

# Texts that may be empty; any other empty value is a variable of the shell that was not set.
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
        "{options} draws a figure of heat maps, and no figure is written",
        "add -o FILE.svg, or leave it out: a page (-o FILE.html) always has them",
    ),
    Need(
        CHARTS,
        lambda g: not g["tradeoff"],
        "{options} shapes charts, and --tradeoff draws time against memory",
    ),
    Need(
        CHARTS,
        lambda g: not g["front"],
        "{options} shapes charts, and --front draws time against memory",
    ),
    Need(
        ("style",),
        never,
        "{options} sets the look of charts, and this command draws none",
        "leave it out",
        ("sweep", "plan", "jitter", "model"),
    ),
    Need(
        ("width",),
        lambda g: g.writes("figure"),
        "{options} sets the width of figures, and none is written",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("palette", "title", "window", "highlight"),
        lambda g: g.draws and g.writes("view"),
        "{options} sets the look of charts in figures and pages, and none is written",
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
        "{options} draws a middle once in figures and pages, and none is written",
        "add -o FILE.svg or -o FILE.html, or leave it out",
    ),
    Need(
        ("style", "base", "labels", "phases", "per_device", "until", "font_size", "notes"),
        lambda g: g.draws and g.writes("figure"),
        "{options} sets the look of charts in figures, and none is written",
        "add -o FILE.svg, or leave it out",
    ),
    Need(
        ("fold",),
        lambda g: not g["window"],
        "{options} leaves out a middle, and --window all but one stretch",
    ),
    Need(
        ("memory",),
        lambda g: g.draws and g.writes("memory"),
        "{options} is drawn below charts in files, and none is written",
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
        "{options} draws a chart in the terminal, where only the result is to be printed",
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
        "{options} is the size of a message, which says nothing without links",
        "give a --cluster file as well, or a --link with a bandwidth",
        ("run", "compare", "sweep", "explain", "diff"),
    ),
    Need(
        ("channel",),
        lambda g: g["p2p"] in (None, "overlap"),
        "{options} limits messages that travel in parallel with compute: --p2p overlap",
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
        ("shapes",),
        lambda g: g["p2p"] in (None, "batched", "blocking"),
        "{options} waits at every message, and --p2p says that none does",
        "--p2p batched, or blocking",
    ),
    Need(
        ("t_shape",),
        lambda g: bool(g["shapes"]),
        "{options} is the wait for a shape, and none is sent",
        "add --shapes exchange",
    ),
    # Unequal microbatches.
    Need(
        ("mb_scale", "reorder"),
        lambda g: not g["lengths"],
        "--lengths says what the microbatches of every replica take, so {options} cannot be given "
        "too",
    ),
    Need(
        ("mb_scale", "reorder", "deal", "max_tokens"),
        lambda g: not g["cp_of"],
        "--cp-of says which microbatches take less, so {options} cannot be given too",
    ),
    # A search.
    Need(
        ("encoder",),
        never,
        "{options} puts ops into the bubbles of one order, and a search has many",
        "ppsim run SCHEDULE --encoder FILE",
        ("optimize", "partition"),
    ),
    # The grid.
    Need(
        ("lengths", "cp_of"),
        lambda g: not g["grid"],
        "{options} says how long ops take, and --grid times nothing",
    ),
    Need(
        ("replicas",),
        lambda g: not g["grid"],
        "{options} times several replicas, and --grid times nothing",
    ),
    Need(
        ("cap",),
        lambda g: not g["grid"],
        "{options} is of memory over time, and --grid times nothing",
    ),
    Need(
        ("order",),
        lambda g: not g["grid"] or bool(g["lowered"]),
        "{options} needs --lowered and --grid",
    ),
    # Measurements and real runs.
    Need(
        (*MODEL, "dtype"),
        lambda g: not g["module"],
        "--module brings the model, so {options} cannot be given too",
        "leave one out",
        ("validate", "calibrate"),
    ),
    Need(
        ("module",),
        lambda g: g["ops"] != "timed",
        "{options} has stages that compute, and --ops timed has none",
    ),
)


def list_refused(request: type[Request]) -> set[str]:
    """List the options that a question shares with others and always refuses: its help need not
    have them.
    """
    return {
        option
        for need in (*NEEDS, *list_needs(request))
        if need.holds is never and (not need.commands or request.question in need.commands)
        for option in need.options
    }


def check_given(given: TypedOptions) -> None:
    """Refuse options without effect in this request (InputError: another makes it idle or is
    missing; it is empty).
    """
    _refuse_empty(given)
    _refuse_endless(given)
    for need in (*given.needs, *NEEDS):
        if need.commands and given.command not in need.commands:
            continue
        options = given.spellings(need.options)
        if options and not need.holds(given):
            # --format sets that of every -o, so another -o would be no other.
            hint = (
                re.sub(r"(add )?-o FILE\.", "--format ", need.hint)
                if given["format"]
                else need.hint
            )
            raise InputError(need.reason.format(options=", ".join(options)), hint)


def _refuse_endless(given: TypedOptions) -> None:
    """Refuse nan and infinity, which every comparison lets through, of options of every type."""
    for each in given.typed:
        value = given.values[each.name]
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise InputError(
                    f"{each.spelling}: {number} is not a finite number", "a finite one"
                )


def _refuse_empty(given: TypedOptions) -> None:
    for each in given.typed:
        value = given.values[each.name]
        if (
            "" in (value if isinstance(value, tuple) else (value,))
            and each.name not in MAY_BE_EMPTY
        ):
            what = each.spelling if each.spellings else "an argument"
            raise InputError(f"{what} is empty", "give it a value, or leave it out")
