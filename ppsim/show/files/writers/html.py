"""HTML: one interactive page that contains numbers, ops and the scripts that draw them.

The page draws single cells if they are wide enough to see, and pixels if not (``report_draw.js``).
It redraws for every view; loading a drawing library would take longer than unpacking and drawing
100,000 ops. Ops are columns in the JSON block ``ppsim-data``: plain lists up to ``PLAIN`` values,
longer ones gzip in base64 (``page_parts.compress_columns``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.analysis.idle import CAUSES, COPY, NAMES, Idle
from ppsim.analysis.link_use import link_use
from ppsim.base.numbers import align_decimals, format_number
from ppsim.base.text import one_line
from ppsim.base.units import binary_unit, format_size
from ppsim.core.curve import Curve
from ppsim.core.ops import ONCE_A_STEP, TIMED, Kind
from ppsim.core.timeline import Timeline
from ppsim.engine.memory.usage import BYTES, SHARES, activations, share_unit, steps
from ppsim.engine.simple import columns
from ppsim.engine.simple.metrics import Metrics, Round, measure
from ppsim.errors import InputError
from ppsim.show.drawing import palette
from ppsim.show.drawing.lanes import (
    COLLECTIVE,
    Lane,
    bars_over_devices,
    card_use,
    compute_row,
    idle_in_row,
    lane_of,
    streams_of,
)
from ppsim.show.drawing.legend import LANE_FILL, legend_entries
from ppsim.show.drawing.link_panel import link_names, link_notes
from ppsim.show.drawing.look import CRITICAL, PICKED
from ppsim.show.drawing.memory_panel import MOST_LINES
from ppsim.show.drawing.view import find_repetition, view_of
from ppsim.show.files.document import Abilities, Document, PageExplanation, find_idles
from ppsim.show.files.editing import edit_object, is_editable, may_begin_blank, shared_edits
from ppsim.show.files.page_parts import (
    Pack,
    compress_columns,
    compress_script,
    encode_column,
    fill_page,
    join_parts,
    pack_bytes,
    strip_spaces,
    verdict_paragraph,
)

if TYPE_CHECKING:
    from ppsim.core.execution import Execution
    from ppsim.core.schedule import Schedule
    from ppsim.engine.simple.segments import OpsInside

SUFFIXES = (".html",)
ABILITIES = Abilities(memory=True, view=True, edits=True)
SCRIPTS = (
    "numbers.js",
    "copy.js",
    "report_ops.js",
    "report_fold.js",
    "report_draw.js",
    "report_pixels.js",
    "report_axes.js",
    "report_marks.js",
    "report.js",
    "report_select.js",
    "report_idle.js",
    "report_input.js",
)
INSIDE_SCRIPTS = ("report_inside.js",)  # only in pages that have segments
ROW_SCRIPTS = ("report_rows.js",)  # only in pages of more devices than lines
ROW_STYLE = "report_rows.css"
LANE_SCRIPTS = ("report_lanes.js", "report_links.js")  # only in pages that have messages
STORY_SCRIPTS = ("report_story.js",)  # only in pages with an explanation
PICKER_SCRIPTS = ("report_picker.js",)  # only in pages that show two of many runs
PART_SCRIPTS = ("report_parts.js",)  # only in pages with a device's memory by part, never live
# only in pages of schedules that can be edited
EDIT_SCRIPTS = (
    "edit_time.js",
    "edit_memory.js",
    "edit_idle.js",
    "edit_state.js",
    "edit_page.js",
    "edit_known.js",
    "edit_said.js",
    "edit_hand.js",
    "edit_panel.js",
)
BUILD_SCRIPTS = ("edit_build.js",)  # only in pages where a schedule can be built from empty rows
LESSON_SCRIPTS = ("edit_lesson.js",)  # only in pages of a lesson
MAP_SCRIPTS = ("report_map.js",)  # only in pages of a cluster
LATE_STYLES = ("report_late.css",)  # of elements that scripts add
STORY_STYLES = ("report_story.css",)
EDIT_STYLES = ("edit.css",)
LESSON_STYLES = ("edit_lesson.css",)
MAP_STYLES = ("report_map.css",)
PLACES = {"cards", "line", "page"}  # places on a page that show columns of numbers
MOST_GHOSTS = 50_000  # ops of all timelines laid over the chart
# columns of the ops
OPS = ("kind", "stage", "chunk", "microbatch", "start", "end", "pair", "bound", "dependency")
START = "\nstart().catch(fault);\n"  # follows all scripts, as it needs their constants


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write one self-contained page for all timelines.

    Changes are relative to the first timeline unless the document names other baselines.

    Raises:
        InputError: timelines in different units, which cannot share a time axis.
    """
    laned = document.executions or any(each.schedule.has_lanes for each in document.timelines)
    scripts = SCRIPTS + LANE_SCRIPTS * bool(laned)
    tall = any(each.schedule.n_devices > MOST_LINES for each in document.timelines)
    scripts += ROW_SCRIPTS * tall
    scripts += STORY_SCRIPTS * bool(document.explanation)
    scripts += EDIT_SCRIPTS * is_editable(document)
    scripts += LESSON_SCRIPTS * bool(document.lesson)
    scripts += BUILD_SCRIPTS * may_begin_blank(document)
    scripts += INSIDE_SCRIPTS * bool(document.insides)
    scripts += PART_SCRIPTS * any(curve.parts for curves in document.curves for curve in curves)
    scripts += PICKER_SCRIPTS * bool(
        document.explanation and "picker" in document.explanation.content
    )
    scripts += MAP_SCRIPTS * bool(document.cluster)
    styles = LATE_STYLES + STORY_STYLES * bool(document.explanation)
    styles += EDIT_STYLES * is_editable(document)
    styles += LESSON_STYLES * bool(document.lesson)
    styles += MAP_STYLES * bool(document.cluster)
    styles += (ROW_STYLE,) * tall
    script = compress_script(join_parts(scripts) + style_script(styles) + START)
    out.write(make_page(document, script))


def style_script(names: tuple[str, ...]) -> str:
    """Return a script that adds styles; packed with other scripts they take half the space."""
    style = strip_spaces(join_parts(names)).replace("\n", "")
    return f"\ndocument.head.append(element('style', {{ textContent: {style!r} }}));"


def make_page(document: Document, script: str, style: str = "", controls: str = "") -> bytes:
    """Make a document's page with a script, and perhaps further style and controls above it."""
    title = one_line(
        document.look.title or document.title or " · ".join(dict.fromkeys(document.titles))
    )
    place = (
        '<section id="cluster" aria-label="Where it runs"></section>\n' if document.cluster else ""
    )
    # A live page starts without unpacking columns, to show its next answer sooner.
    data = contents(document, encode_column if controls else None, every=bool(controls))
    body = {
        "verdict": verdict_paragraph(document.verdict),
        "controls": controls,
        "below": document.below + place,
    }
    return fill_page(title, "report", data, script, style, **body)


def all_scripts() -> str:
    """Return the scripts of a live page, for any content."""
    return join_parts(
        (
            *SCRIPTS,
            *ROW_SCRIPTS,
            *INSIDE_SCRIPTS,
            *LANE_SCRIPTS,
            *STORY_SCRIPTS,
            *EDIT_SCRIPTS,
            *BUILD_SCRIPTS,
        )
    )


def all_styles() -> str:
    """Return the styles of a live page, for any content."""
    return join_parts((*LATE_STYLES, *STORY_STYLES, *EDIT_STYLES, ROW_STYLE))


def contents(
    document: Document, pack: Pack | None = None, *, every: bool = False
) -> dict[str, Any]:
    """Return the page's data: inputs, colours and names, and numbers, ops and curves by timeline.

    ``pack`` encodes columns; by default they are packed for a file. ``every`` includes the colours
    of all kinds, for a page that may show other timelines later.

    Raises:
        InputError: timelines in different units.
    """
    units = list(dict.fromkeys(t.unit for t in document.timelines))
    if len(units) > 1:
        raise InputError(
            f"timelines in {' and '.join(units)} cannot share one time axis",
            "give all of them costs in one unit",
        )
    idles = find_idles(document)
    shared = None
    if pack is None:
        pack, shared = compress_columns()
    found = {
        "schema": "ppsim.report/1",
        "inputs": dict(document.inputs),
        "verdict": document.verdict,
        "unit": units[0],
        "looks": _looks(document, every),
        "legend": _legend(document, idles),
        "memory": bool(document.memory),
        "columns": [
            {"key": column.key, "heading": column.heading, "places": sorted(column.places & PLACES)}
            for column in columns.all_columns()
            if column.places & PLACES
            and (document.bounds or column.key not in ("bound", "gap"))
            and (any(document.rounds) or not column.of_round)
        ],
        "cap": _cap_object(document),
        "view": _first_view(document),
        **({"left": dict(document.left)} if document.left else {}),
        **(shared_edits(document) if is_editable(document) else {}),
        **({"blank": True} if document.blank else {}),
        **({"lesson": dict(document.lesson)} if document.lesson else {}),
        **({"cluster": pack_bytes(document.cluster.encode())} if document.cluster else {}),
        **({"story": story_object(document.explanation, pack)} if document.explanation else {}),
        "timelines": [
            {
                **_timeline_object(document, number, curves, pack),
                **({"waits": _idle_object(idle, pack)} if idle else {}),
            }
            for number, (curves, idle) in enumerate(zip(_curves(document), idles, strict=True))
        ],
    }
    return found if shared is None else {**found, "shared": shared()}


def story_object(explanation: PageExplanation, pack: Pack) -> dict[str, Any]:
    """Return an explanation, with timelines to lay over the chart and ops that two runs share."""
    drawn = (
        explanation.ghosts
        if sum(len(each.schedule) for each in explanation.ghosts) <= MOST_GHOSTS
        else ()
    )
    ghosts = [
        {
            "makespan": each.makespan,
            "offsets": each.schedule.offsets,
            "start": pack(each.start),
            "end": pack(each.end),
        }
        for each in map(compute_row, drawn)
    ]
    twins = (
        {}
        if explanation.twins is None
        else {"twins": [pack(np.ascontiguousarray(side)) for side in explanation.twins.T]}
    )
    return {**_aligned(explanation.content), "ghosts": ghosts, **twins}


def _aligned(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return an explanation whose numbers in bars and matrix columns align at the decimal point."""
    found = dict(content)
    if bars := content.get("bars"):
        texts = align_decimals([bar["text"] for bar in bars])
        found["bars"] = [{**bar, "text": text} for bar, text in zip(bars, texts, strict=True)]
    if rows := content.get("matrix", {}).get("rows"):
        columns = map(align_decimals, zip(*(row["texts"] for row in rows), strict=True))
        texts_of = zip(*columns, strict=True) if rows[0]["texts"] else ((),) * len(rows)
        found["matrix"] = {
            **content["matrix"],
            "rows": [{**row, "texts": texts} for row, texts in zip(rows, texts_of, strict=True)],
        }
    return found


def _first_view(document: Document) -> dict[str, Any]:
    """Return the page's first view: a window of time, and highlighted ops.

    Raises:
        InputError: the view shows no op.
    """
    look, highlight = document.look, document.look.highlight
    for timeline in document.timelines:
        view_of(timeline, look.window, look.fold)
        if highlight:
            highlight.ops(timeline)
    return {
        "window": look.window,
        "critical": highlight is not None and highlight.kind == CRITICAL,
        "causes": bool(document.idles),
        "fold": look.fold,
        "highlight": {"by": PICKED[highlight.kind], "value": highlight.value}
        if highlight and highlight.kind in PICKED
        else None,
    }


def _curves(document: Document) -> list[list[Curve]]:
    """Return the curves of each timeline: memory in bytes, activations, and further ones.

    All timelines have the same unit for a quantity.
    """
    schedules = [timeline.schedule for timeline in document.timelines]
    counts = share_unit([activations(timeline) for timeline in document.timelines], schedules)
    memory = [curve for curve in document.memory if curve.unit == BYTES]
    rows = [[curve] for curve in counts]
    if len(memory) == len(counts):
        memory = share_unit(memory, schedules)
        rows = [[curve, *row] for curve, row in zip(memory, rows, strict=True)]
    if document.executions:
        rows = [
            [*row, card_use(execution)]
            for row, execution in zip(rows, document.executions, strict=True)
        ]
    return [
        row + list(document.curves[number] if document.curves else ())
        for number, row in enumerate(rows)
    ]


def _cap_object(document: Document) -> dict[str, Any] | None:
    """Return the memory cap in the unit of the first curve; one per device if they differ.

    None if there is no cap.
    """
    caps = document.caps or ((document.cap,) if document.cap is not None else ())
    if not caps:
        return None
    unit = document.memory[0].unit
    most = max(float(curve.peak.max()) for curve in document.memory)
    size = binary_unit(most)[1] if unit == BYTES else 1
    return {
        "value": max(caps) / size,
        "text": f"cap {format_size(max(caps), unit)}",
        "over": [np.flatnonzero(curve.peak > np.array(caps)).tolist() for curve in document.memory],
        **({"values": [cap / size for cap in document.caps]} if document.caps else {}),
        **({"texts": [format_size(cap, unit) for cap in document.caps]} if document.caps else {}),
    }


def _timeline_object(
    document: Document, number: int, curves: Sequence[Curve], pack: Pack
) -> dict[str, Any]:
    """Return one timeline: its numbers, ops and curves, and its change from its baseline."""
    timeline = document.timelines[number]
    baseline = document.baselines[number] if document.baselines else 0
    before = document.timelines[baseline].makespan
    steady_state = document.rounds[number] if document.rounds else None
    bound = document.bounds[number] if document.bounds else float("nan")
    return {
        "title": document.titles[number],
        **_timeline(timeline, curves, bound, steady_state, any(document.rounds), pack),
        "held": _peak_labels(curves[0]),
        **_peak_memory(curves[0]),
        **(_fold_object(timeline) if len(document.timelines) == 1 else {}),
        **(
            _messages(document.executions[number], pack)
            if document.executions
            else _streams(timeline, pack)
        ),
        **(
            {"inside": _segments_object(document.insides[number], pack)} if document.insides else {}
        ),
        **({"edit": edit_object(document, number, pack)} if document.costs else {}),
        "baseline": baseline,
        "versus_baseline": (timeline.makespan - before) / (before or 1.0),
    }


def _peak_memory(curve: Curve) -> dict[str, Any]:
    """Return the largest peak and its device, if memory is known in bytes; else an empty object."""
    if curve.name != "memory":
        return {}
    fullest = int(curve.peak.argmax())
    return {
        "peak_memory": {
            "text": f"{format_number(curve.peak[fullest])} {curve.unit}",
            "note": f"on device {fullest}",
        }
    }


def _fold_object(timeline: Timeline) -> dict[str, Any]:
    """Return start, period and repetitions of a repeating middle; empty if nothing repeats."""
    found = find_repetition(timeline)
    if found is None:
        return {}
    start, period, repeats = found
    return {"fold": {"from": start, "until": start + period, "period": period, "repeats": repeats}}


def _peak_labels(curve: Curve) -> list[str]:
    """Return the label of each device's row: the curve's peak with its unit."""
    unit = {"": "act", SHARES: "shares"}.get(curve.unit, curve.unit)
    return [f"{format_number(peak)} {unit}" for peak in curve.peak]


def _legend(document: Document, idles: Sequence[Idle | None]) -> list[dict[str, Any]]:
    lanes = [*map(lane_of, document.executions), *map(streams_of, document.timelines)]
    bands = {int(band) for lane in lanes if lane is not None for band in np.unique(lane.band)}
    causes = {name for idle in idles if idle for name in idle.by_cause}
    colours = document.look.colours
    entries = legend_entries(document.timelines, bands, palette=colours)
    entries += [entry for entry in legend_entries(document.timelines, bands, causes) if entry.cause]
    return [
        {
            "name": entry.name,
            "colours": entry.colours,
            "hatch": entry.hatch,
            "low": entry.low,
            "bubble": entry.name == "Bubble",
            "cause": NAMES.index(entry.cause) if entry.cause else -1,
            **({"kinds": entry.kinds} if is_editable(document) and len(entry.kinds) == 1 else {}),
        }
        for entry in entries
    ]


def _looks(document: Document, every: bool) -> dict[str, Any]:
    """Return colours and names of the kinds up to the last that occurs, W at least.

    ``every`` includes all kinds.
    """
    colours = document.look.colours
    last = max(
        (int(timeline.schedule.kind.max(initial=0)) for timeline in document.timelines), default=0
    )
    many_chunks = every or any(
        timeline.schedule.placement.chunk.max() > 1 for timeline in document.timelines
    )
    step = 1 if many_chunks else palette.LEVELS - 1  # the first and the last tint suffice
    schedules = [timeline.schedule for timeline in document.timelines]
    several = every or any(schedule.has_lanes or schedule.feeds_back for schedule in schedules)
    fills = list(LANE_FILL.values())[: None if several else COLLECTIVE + 1]
    return {
        "kinds": [
            {
                "letter": kind.name,
                "name": kind.info.name,
                "fill": colours.fill(kind)[::step],
                "text": [palette.text_colour(fill) for fill in colours.fill(kind)[::step]],
                **({"hatch": colours.hatch(kind)[::step]} if any(colours.hatch(kind)) else {}),
                **({"once": True} if kind in ONCE_A_STEP else {}),
            }
            for kind in TIMED
            if every or kind <= max(last, Kind.W)
        ],
        "lane": fills,
        "lane_text": [palette.text_colour(fill) for fill in fills],
        "lane_edge": palette.COMM_ARROW,
        "causes": [
            {
                "name": name,
                "meaning": meaning,
                "fill": [palette.CAUSE_FILL[name], palette.CAUSE_DARK[name]],
            }
            for name, meaning in list(CAUSES.items())[: None if several else COPY]
        ],
        "bubble": (colours.bubble, colours.bubble_dark),
        "highlight": palette.HIGHLIGHT,
        "ramp": (colours.ramp, palette.RAMP[1]),
    }


def _timeline(
    timeline: Timeline,
    curves: Sequence[Curve],
    bound: float,
    steady_state: Round | None,
    rounds: bool,
    pack: Pack,
) -> dict[str, Any]:
    metrics, timeline = (
        replace(measure(timeline), bound=bound, round=steady_state),
        compute_row(timeline),
    )
    schedule = timeline.schedule
    return {
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "chunks": schedule.n_chunks,
        "replicas": schedule.placement.n_replicas,
        "microbatches": schedule.n_microbatches,
        "round": schedule.round_microbatches,
        "work": columns.work_of(schedule),
        **asdict(replace(metrics, round=None), dict_factory=_numbers_object),
        "numbers": _numbers(metrics, schedule, timeline.unit, rounds),
        "offsets": schedule.offsets,
        "ops": {
            name: pack(getattr(timeline if name in ("start", "end", "bound") else schedule, name))
            for name in OPS
        },
        "curves": [_curve(curve, pack) for curve in curves],
    }


def _numbers(metrics: Metrics, schedule: Schedule, unit: str, rounds: bool) -> dict[str, Any]:
    """Return every column's value as text, with a note.

    ``rounds`` includes the columns of schedules that go round.
    """
    shape = columns.shape_of(schedule)
    return {
        column.key: {
            "text": column.text(column.value(metrics, shape), unit),
            "note": column.note_on(metrics, shape),
        }
        if column.applies(metrics)
        else {"text": "-", "note": "it does not go round"}
        for column in columns.all_columns()
        if column.places & PLACES and (rounds or not column.of_round)
    }


def _numbers_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a timeline's numbers as an object, without those of a round, which have columns."""
    return {name: value for name, value in pairs if name != "round"}


def _messages(execution: Execution, pack: Pack) -> dict[str, Any]:
    return {"lane": _lane(lane_of(execution), pack), "links": _links(execution, pack)}


def _streams(timeline: Timeline, pack: Pack) -> dict[str, Any]:
    lane, bars = streams_of(timeline), bars_over_devices(timeline)
    found = {} if lane is None else {"lane": _lane(lane, pack)}
    if bars is not None:
        kind = np.where(bars.in_row, bars.kind, np.int32(-1))  # -1: not in the compute row
        columns = (("left", bars.left), ("right", bars.right), ("kind", kind))
        found["bars"] = {name: pack(column) for name, column in columns}
    return found


def _lane(lane: Lane, pack: Pack) -> dict[str, Any]:
    return {each.name: pack(getattr(lane, each.name)) for each in fields(lane)}


def _links(execution: Execution, pack: Pack) -> dict[str, Any]:
    """Return the use of links and shared cards over time, with names and notes as in figures."""
    use = link_use(execution)
    return {
        "names": link_names(use, 0),
        "notes": link_notes(use),
        "bandwidth": use.of_bandwidth,
        "offsets": use.curve.offsets,
        "time": pack(use.curve.time),
        "value": pack((1000 * use.curve.value).round().astype(np.int32)),  # thousandths
    }


def _segments_object(found: OpsInside, pack: Pack) -> dict[str, Any]:
    """Return the segments of ops, with times as shares of the op's time, and each op's shape."""
    shapes = [
        {
            "name": shape.label,
            "kind": shape.kind,
            "stream": shape.stream,
            "start": [round(time / (shape.makespan or 1), 6) for time in shape.start],
            "end": [round(time / (shape.makespan or 1), 6) for time in shape.end],
        }
        for shape in found.shapes
    ]
    return {"shapes": shapes, "of": pack(found.shape_of_op)}


def _idle_object(idle: Idle, pack: Pack) -> dict[str, Any]:
    """Return the segments of idle time before ops, by op; time after a device's last op is drain.

    The last segment before an op has length 0: it ends at the op's start.
    """
    idle = idle_in_row(idle)
    last = np.diff(idle.op, append=-1) != 0
    columns: dict[str, NDArray[Any]] = {
        "op": idle.op,
        "cause": idle.cause,
        "blamed": idle.blamed,
        "length": np.where(last, 0, idle.end - idle.start).astype(np.float32),
    }
    return {name: pack(values) for name, values in columns.items()}


def _curve(curve: Curve, pack: Pack) -> dict[str, Any]:
    return {
        "name": curve.name,
        "unit": curve.unit,
        "offsets": curve.offsets,
        "time": pack(curve.time),
        "value": pack(curve.value),
        "peak": curve.peak,
        "least": curve.least,
        **(
            {
                "parts": curve.parts,
                "fills": palette.part_colours(curve.parts),
                "device": curve.device,
            }
            if curve.parts
            else {}
        ),
        **(
            {}
            if curve.host is None or len(curve.peak) > MOST_LINES
            else {"host": _host_object(curve, curve.host)}
        ),
    }


def _host_object(curve: Curve, host: Curve) -> dict[str, Any]:
    """Return the memory curve of the fullest host, its label, and the largest peaks of both."""
    fullest = int(host.peak.argmax())
    time, value = steps(host, fullest)
    note = f" · dashed: on the host of device {fullest}, the fullest"
    peak = [float(curve.peak.max()), float(host.peak.max())]
    return {
        "offsets": [0, len(time)],
        "time": time.tolist(),
        "value": value.tolist(),
        "peak": peak,
        "note": note,
    }
