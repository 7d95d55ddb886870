"""The live page: the report page with controls above it, and the file that ``--watch`` follows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from ppsim.base.json_output import dump_json
from ppsim.base.source import name_of
from ppsim.errors import InputError
from ppsim.show.files.document import Document, formats
from ppsim.show.files.writers.html import START, all_scripts, all_styles, make_page

# Sliders: field, label, range, and initial value, which is the option's default except for sizes.
CONTROLS: dict[str, list[dict[str, Any]]] = {
    "shape-controls": [
        {"field": "devices", "label": "devices", "least": 1, "most": 64, "step": 1, "value": 4},
        {"field": "mb", "label": "microbatches", "least": 1, "most": 256, "step": 1, "value": 8},
        {"field": "chunks", "label": "chunks", "least": 1, "most": 8, "step": 1, "value": ""},
    ],
    "size-controls": [
        {"field": "tp", "label": "tensor parallel", "least": 1, "most": 8, "step": 1, "value": ""},
        {"field": "ep", "label": "expert parallel", "least": 1, "most": 64, "step": 1, "value": ""},
        {"field": "dp", "label": "data parallel", "least": 1, "most": 64, "step": 1, "value": ""},
        {
            "field": "mbs",
            "label": "microbatch size",
            "least": 1,
            "most": 16,
            "step": 1,
            "value": "",
        },
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
    document: Document,  # made from ``fields``
    fields: Mapping[str, Any],  # of the first request
    schedules: Sequence[str],  # the names to choose from
    # schedules whose orders are found by a search; the page requests them last
    searched: Sequence[str] = (),
    models: Sequence[str] = (),  # names of the library to choose from
    clusters: Sequence[str] = (),  # likewise
    chunked: Sequence[str] = (),  # schedules that accept more than one number of chunks
    *,
    watches: bool = False,  # whether the page polls the server for changes of a file
) -> bytes:
    """Make the page."""
    here = files(__package__)
    data = {
        "controls": CONTROLS,
        "always": ALWAYS,
        "formats": sorted(formats()),
        "fields": fields,
        "schedules": list(schedules),
        "searched": list(searched),
        "chunked": list(chunked),
        "models": list(models),
        "clusters": list(clusters),
        "watches": watches,
    }
    embedded = dump_json(data).decode().replace("<", "\\u003c")
    controls = (here / "live.html").read_text("utf-8")
    controls += f'<script type="application/json" id="live-data">{embedded}</script>\n'
    script = all_scripts() + (here / "live.js").read_text("utf-8") + START
    style = all_styles() + (here / "live.css").read_text("utf-8")
    return make_page(document, script, style, controls)


def watch(source: Path, folder: Path) -> Callable[[], tuple[str, int]]:
    """Copy a file to ``folder``, and return a function that copies it again if it changed.

    The function returns the file's name and its number of changes.

    Raises:
        InputError: the file cannot be read, or is Python code.
    """
    if source.suffix == ".py":
        raise InputError(
            f"--watch {name_of(str(source))} is code, which a page does not run",
            "ppsim run writes its ops as JSON",
        )
    if os.path.exists(source) and not os.path.isfile(source):
        raise InputError(f"'{source}' is not a plain file", "--watch a schedule's file")
    seen: list[tuple[int, int]] = []

    def changes() -> tuple[str, int]:
        try:
            found = source.stat()
            state = found.st_mtime_ns, found.st_size
            if not seen or seen[-1] != state:
                shutil.copyfile(source, folder / source.name)
                seen.append(state)
        except OSError as error:
            if not seen:
                raise InputError(
                    f"cannot read '{name_of(str(source))}': {error.strerror}", "check the path"
                ) from error
        return source.name, len(seen)

    changes()
    return changes
