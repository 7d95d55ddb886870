"""The table of what needs what: an option that would have no effect is refused, with the reason.

What depends on the schedule or on a file's content, such as ``--tfb`` where no ops run as pairs, is checked where it is
known: :func:`ppsim.prices.build.check_used`.
"""

from __future__ import annotations

import math
import re

from ppsim.ask.given import (
    DETAILED,
    GIVEN_COSTS,
    LOOK,
    MEASURING,
    MODEL,
    PLANNED,
    REQUEST,
    SHAPE,
    TIMED,
    UNEVEN,
    Given,
    Need,
    list_needs,
    never,
)
from ppsim.ask.groups import OWN
from ppsim.ask.options import Request
from ppsim.errors import InputError

# Texts that may be empty; any other empty value is a variable of the shell that was not set.
MAY_BE_EMPTY = ("unit", "note")
TRAINED = ("tp", "cp", "ep", "dp", "mbs", "sequence", "zero", "again")
CHARTS = ("style", "memory", *LOOK)

NEEDS = (
    # Which files are written, and what they show.
    Need(
        ("format",),
        lambda g: bool(g["output"]),
        "{options} says how to write -o, and there is no -o",
        "add -o FILE, or -o - for stdout",
    ),
    Need(
        ("heat",),
        lambda g: g.writes("figure"),
        "{options} draws a figure of heat maps, and no figure is written",
        "add -o FILE.svg, or leave it out: a page (-o FILE.html) always has them",
    ),
    Need(CHARTS, lambda g: not g["tradeoff"], "{options} shapes charts, and --tradeoff draws time against memory"),
    Need(CHARTS, lambda g: not g["front"], "{options} shapes charts, and --front draws time against memory"),
    Need(("tradeoff",), lambda g: g.writes(), "{options} says what -o draws, and there is no -o", "add -o FILE.svg"),
    Need(
        ("style",),
        never,
        "{options} sets the look of charts, and this command draws none",
        "leave it out",
        ("sweep", "plan", "jitter"),
    ),
    Need(
        ("lowered",),
        lambda g: g.writes("lowered") or bool(g["grid"]),
        "{options} says how to write csv, and none is written",
        "add -o FILE.csv",
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
    Need(("fold",), lambda g: not g["window"], "{options} leaves out a middle, and --window all but one stretch"),
    Need(
        ("memory",),
        lambda g: g.draws and g.writes("memory"),
        "{options} is drawn below charts in files, and none is written",
        "add -o FILE.svg, or ppsim memory",
        ("run", "compare"),
    ),
    Need(
        TRAINED,
        lambda g: bool(g["model"]),
        "{options} says how --model is trained, and there is none",
        "add --model NAME",
        ("memory", "partition"),
    ),
    Need(
        ("cap",),
        lambda g: not g["changes"],
        "{options} is for what explain tries by itself, and --what-if names the changes",
        "leave one of them out",
        ("explain",),
    ),
    Need(("as_json",), lambda g: "-" not in (g["output"] or ()), "--json and -o - both write to stdout"),
    Need(
        ("results",),
        lambda g: g["results"] not in (g["output"] or ()),
        "{options} and -o name the same file",
        "another name for one of them",
    ),
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
        lambda g: bool(g["names"] or g["schedule"]) and not g["as_json"],
        "{options} shapes the example of one schedule, which --json does not hold",
        "name a schedule, without --json",
        ("list",),
    ),
    Need(
        ("stages", "devices"),
        lambda g: not (g["stages"] and g["devices"]),
        "{options} both set the devices of a sweep",
        "one of them, and --chunks or NAME:V",
        ("sweep",),
    ),
    Need(
        OWN,
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
    Need(
        ("first", "last", "account_embedding", "account_loss", "layers_per_stage"),
        lambda g: not g["string"],
        "a layout string lists the layers of every stage, so {options} cannot be given too (rule one-way-to-split)",
        "leave out the string",
        ("layout",),
    ),
    Need(
        ("first", "last", "account_embedding", "account_loss"),
        lambda g: g["layers_per_stage"] is None,
        "--layers-per-stage lists the layers of every stage, so {options} cannot be given too (rule one-way-to-split)",
        commands=("layout",),
    ),
    # Costs.
    Need(
        ("tf", "tb", "ti", "tw", "tfb", "tr", "per", "layout", "segments"),
        never,
        "partition makes the layout from the times of layers, so {options} cannot be given",
        "--t-layer, --t-embedding, --t-head, --t-mtp and --b-over-f",
        ("partition",),
    ),
    Need(("comm",), lambda g: not g["cluster"], "--cluster gives the latency of every link, and so does {options}"),
    Need(
        ("recompute", "offload", "encoder"),
        never,
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
    Need(
        ("modes",),
        lambda g: not g["shapes"],
        "--shapes says that every message waits, so {options} cannot be given too",
        commands=("check",),
    ),
    # Unequal microbatches.
    Need(
        ("reorder",),
        lambda g: bool(g["mb_scale"] or g["lengths"]),
        "{options} orders unequal microbatches",
        "add --mb-scale FACTORS",
    ),
    Need(
        ("padded", "mbs"),
        lambda g: bool(g["lengths"]),
        "{options} is of sequences of different lengths, and there are none",
        "add --lengths FILE, or --lengths lognormal:2048:1.2:7",
        ("run", "compare", "explain", "jitter"),
    ),
    Need(
        ("deal", "max_tokens"),
        lambda g: bool(g["lengths"]),
        "{options} deals sequences anew, and there are none",
        "add --lengths FILE",
        ("run", "compare"),
    ),
    Need(
        ("across", "deal_for"),
        lambda g: bool(g["deal"] or g["max_tokens"]),
        "{options} is of dealing sequences anew",
        "add --deal",
    ),
    Need(
        ("deal", "max_tokens"),
        lambda g: not any(g[name] for name in DETAILED),
        "{options} times dealings by the simple model",
    ),
    Need(
        ("lowered",),
        lambda g: not (g["deal"] or g["max_tokens"]),
        "{options} and --deal both say what csv holds",
    ),
    Need(
        ("mb_scale", "reorder", "changes"),
        lambda g: not g["lengths"],
        "--lengths says what the microbatches of every replica take, so {options} cannot be given too",
    ),
    Need(
        ("mb_scale", "reorder", "changes", "deal", "max_tokens"),
        lambda g: not g["cp_of"],
        "--cp-of says which microbatches take less, so {options} cannot be given too",
    ),
    Need(
        ("cap",),
        lambda g: not (g["lengths"] or g["cp_of"]),
        "{options} is for schedules that explain tries by itself, and with lengths it tries none",
        "leave it out, or ppsim compare --cap",
        ("explain",),
    ),
    Need(
        ("cp_of",),
        lambda g: bool(g["lengths"]),
        "{options} is of steps with lengths here",
        "add --lengths FILE",
        ("jitter",),
    ),
    Need(
        ("dask", "results"),
        lambda g: not g["lengths"],
        "{options} spreads samples of noise, and with --lengths they are drawn here",
        "leave it out",
        ("jitter",),
    ),
    Need(("lengths", "cp_of"), lambda g: not g["grid"], "{options} says how long ops take, and --grid times nothing"),
    Need(("replicas",), lambda g: not g["grid"], "{options} times several replicas, and --grid times nothing"),
    Need(
        ("reorder",),
        lambda g: not (g["grid"] or any(g[name] for name in DETAILED)),
        "{options} times orders by the simple model",
    ),
    # A search.
    Need(
        ("mb_scale", "slice_scale", "recompute"),
        never,
        "{options} is beyond what a search knows: all microbatches and slices take the same time, and no op runs twice",
        "leave it out",
        ("optimize",),
    ),
    Need(
        ("encoder",),
        never,
        "{options} puts ops into the bubbles of one order, and a search has many",
        "ppsim run SCHEDULE --encoder FILE",
        ("optimize", "partition"),
    ),
    Need(
        ("offload",),
        never,
        "{options} copies by rule what a schedule has, and a search for a split does not weigh copies",
        "ppsim run SCHEDULE --offload ...",
        ("partition",),
    ),
    Need(
        ("offload", "t_offload", "t_reload", "host_link", "host_link_shared"),
        never,
        "{options} is of copies to the host, which a rule adds to a finished schedule and no search weighs",
        "the best schedule with -o best.json, then ppsim run best.json --offload --t-offload TIME --t-reload TIME",
        ("optimize",),
    ),
    Need(
        ("t_evict", "te", "ts", "tt", "td", "tl", "t_collective"),
        never,
        "{options} has no effect: optimize finds orders of F, B, I and W",
        "leave it out",
        ("optimize",),
    ),
    Need(
        ("cap",),
        lambda g: not (g["front"] and isinstance(g["cap"], list)),
        "--front tries caps that all devices share, up to {options}",
        "one number, or leave out --front",
        ("optimize",),
    ),
    Need(
        ("gantt",),
        lambda g: not g["front"],
        "{options} draws one schedule, and --front has several",
        "leave it out",
        ("optimize",),
    ),
    Need(("cap",), lambda g: not g["grid"], "{options} is of memory over time, and --grid times nothing"),
    # The grid.
    Need(
        ("grid",),
        lambda g: not any(g[name] for name in (*GIVEN_COSTS, *UNEVEN, *DETAILED) if name != "order"),
        "{options} gives every step one slot, so options of costs and of messages change nothing",
        "leave them out, or leave out --grid",
    ),
    Need(("grid",), lambda g: not g["quiet"], "{options} shows every step"),
    Need(
        ("style", "width", "memory", "gantt", *LOOK),
        lambda g: not g["grid"],
        "{options} is for charts, and --grid is text",
        "leave it out",
        ("run",),
    ),
    Need(("order",), lambda g: not g["grid"] or bool(g["lowered"]), "{options} needs --lowered beside --grid"),
    # Plans.
    Need(("improve",), lambda g: bool(g["against"]), "{options} plans the runs of a table", "add --against TABLE"),
    Need(
        PLANNED,
        lambda g: not g["against"],
        "--against takes sizes from its table, so {options} has no effect",
        "leave it out",
        ("plan",),
    ),
    Need(
        ("dask", "results"),
        lambda g: not g["against"] or g["improve"],
        "{options} is for long work, and predicting a table's runs is short",
        "add --improve, or leave it out",
        ("plan",),
    ),
    Need(
        ("ranks",),
        lambda g: not (g["as_json"] or g["quiet"] or "-" in g["output"]),
        "{options} prints more, where only the result is to be printed",
        commands=("plan",),
    ),
    Need(
        ("flags",),
        lambda g: not (g["as_json"] or "-" in g["output"]),
        "{options} prints launch flags, where only the result is to be printed",
        commands=("plan",),
    ),
    # Noise.
    Need(("slowdown",), lambda g: bool(g["slow_devices"]), "{options} needs slow devices", "add --slow-devices 1"),
    Need(("link_slowdown",), lambda g: bool(g["slow_links"]), "{options} needs slow links", "add --slow-links 1"),
    # What measures, and runs for real.
    Need(
        ("from_record", "trace", "record"),
        lambda g: sum(map(bool, (g["from_record"], g["trace"], g["record"]))) < 2,
        "{options} cannot be given together",
        commands=("validate",),
    ),
    Need(
        ("only",),
        lambda g: g.writes(),
        "{options} chooses what figures and pages show, and none is written",
        "add -o FILE.svg",
        ("validate",),
    ),
    Need(
        ("iteration", "unit"),
        lambda g: bool(g["trace"]),
        "{options} says how to read --trace, and there is none",
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


def list_refused(request: type[Request]) -> set[str]:
    """List the options that a question shares with others and always refuses: its help need not have them."""
    return {
        option
        for need in (*NEEDS, *list_needs(request))
        if need.holds is never and (not need.commands or request.question in need.commands)
        for option in need.options
    }


def check_given(given: Given) -> None:
    """Refuse options without effect in this request (InputError: another makes it idle or is missing; it is empty)."""
    _refuse_empty(given)
    _refuse_endless(given)
    for need in (*given.needs, *NEEDS):
        if need.commands and given.command not in need.commands:
            continue
        options = given.spellings(need.options)
        if options and not need.holds(given):
            # --format sets that of every -o, so another -o would be no other.
            hint = re.sub(r"(add )?-o FILE\.", "--format ", need.hint) if given["format"] else need.hint
            raise InputError(need.why.format(options=", ".join(options)), hint)


def _refuse_endless(given: Given) -> None:
    """Refuse nan and infinity, which every comparison lets through, of options of every type."""
    for each in given.typed:
        value = given.values[each.name]
        for number in value if isinstance(value, list | tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise InputError(f"{each.spelling}: {number} is not a finite number", "a finite one")


def _refuse_empty(given: Given) -> None:
    for each in given.typed:
        value = given.values[each.name]
        if "" in (value if isinstance(value, tuple) else (value,)) and each.name not in MAY_BE_EMPTY:
            what = each.spelling if each.spellings else "an argument"
            raise InputError(f"{what} is empty", "give it a value, or leave it out")
