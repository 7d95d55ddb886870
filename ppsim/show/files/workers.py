"""The map of workers by slowdown as a file of its own, or as a figure for pages."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.worker_map import WorkerMap, figure_of
from ppsim.show.files.document import abilities_of

TITLE = "workers by slowdown, over steps"


def save_workers(found: WorkerMap, target: str, suffix: str, *, width: float, inputs: Mapping[str, Any]) -> None:
    """Write the map as a picture (InputError: the suffix is none of a picture, or the file cannot be written)."""
    if not abilities_of(suffix).figure:
        hint = "one of .svg .png .pdf; a page has it without --heat"
        raise InputError(f"a map of workers cannot be written as {suffix}", hint)
    with open_atomically(target) as out:
        write_figure(lambda: figure_of(found, width), out, suffix, title=TITLE, inputs=inputs)


def workers_svg(found: WorkerMap, width: float) -> str:
    """Draw the map as a section of a page."""
    out = io.BytesIO()
    write_figure(lambda: figure_of(found, width), out, ".svg", title=TITLE, inputs={})
    text = out.getvalue().decode()
    return f'<section aria-label="{TITLE}">{text[text.index("<svg") :]}</section>\n'
