"""The live page: the report's page with controls above it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ppsim.base.json_output import dump_json
from ppsim.show.files.document import Document, formats
from ppsim.show.files.writers.html import START, all_scripts, make_page

# Sliders: field, label, what the slider reaches, and the value at the start: but for sizes, the option's default.
CONTROLS: dict[str, list[dict[str, Any]]] = {
    "shape-controls": [
        {"field": "devices", "label": "devices", "least": 1, "most": 64, "step": 1, "value": 4},
        {"field": "mb", "label": "microbatches", "least": 1, "most": 256, "step": 1, "value": 8},
        {"field": "chunks", "label": "chunks", "least": 1, "most": 8, "step": 1, "value": ""},
    ],
    "size-controls": [
        {"field": "tp", "label": "tensor parallel", "least": 1, "most": 8, "step": 1, "value": ""},
        {"field": "mbs", "label": "microbatch size", "least": 1, "most": 16, "step": 1, "value": ""},
    ],
    "cost-controls": [
        {"field": "tf", "label": "F", "least": 0, "most": 4, "step": 0.05, "value": 1},
        {"field": "ti", "label": "I", "least": 0, "most": 4, "step": 0.05, "value": 1},
        {"field": "tw", "label": "W", "least": 0, "most": 4, "step": 0.05, "value": 1},
        {"field": "comm", "label": "message", "least": 0, "most": 2, "step": 0.02, "value": 0},
    ],
}
ALWAYS = ("devices", "mb")


def live_page(
    document: Document,
    fields: Mapping[str, Any],
    schedules: Sequence[str],
    searched: Sequence[str] = (),
    models: Sequence[str] = (),
    clusters: Sequence[str] = (),
    *,
    watches: bool = False,
) -> bytes:
    """Make the page.

    Args:
        document: what ``fields`` ask for.
        fields: of the first request.
        schedules: the names to choose from.
        searched: schedules whose orders are searched for, which the page asks for after all others.
        models: names of the library to choose from.
        clusters: likewise.
        watches: whether the page asks the server if the file has changed.
    """
    here = files(__package__)
    data = {
        "controls": CONTROLS,
        "always": ALWAYS,
        "formats": sorted(formats()),
        "fields": fields,
        "schedules": list(schedules),
        "searched": list(searched),
        "models": list(models),
        "clusters": list(clusters),
        "watches": watches,
    }
    embedded = dump_json(data).decode().replace("<", "\\u003c")
    controls = (here / "live.html").read_text("utf-8")
    controls += f'<script type="application/json" id="live-data">{embedded}</script>\n'
    script = all_scripts() + (here / "live.js").read_text("utf-8") + START
    return make_page(document, script, (here / "live.css").read_text("utf-8"), controls)
