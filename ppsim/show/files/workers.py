"""Maps of workers by slowdown, and of microbatches by time, as files or sections of pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ppsim.base.atomic_file import open_atomically
from ppsim.show.drawing import load_map
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.load_map import LoadMap
from ppsim.show.drawing.worker_map import WorkerMap, figure_of
from ppsim.show.files.chart import svg_for_pages
from ppsim.show.files.document import require_suffix
from ppsim.show.files.writers import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "workers by slowdown, over steps"
LOADS = "times of microbatches, by replica"


def save_workers(
    found: WorkerMap, target: str, suffix: str, *, width: float, inputs: Mapping[str, Any]
) -> None:
    """Write the map as a picture (InputError: not a picture's suffix, or unwritable file)."""
    _save(lambda: figure_of(found, width), target, suffix, "a map of workers", TITLE, inputs)


def save_loads(
    maps: tuple[LoadMap, ...], target: str, suffix: str, *, width: float, inputs: Mapping[str, Any]
) -> None:
    """Write maps of loads as a picture (InputError: not a picture's suffix, or unwritable file)."""
    _save(lambda: load_map.figure_of(maps, width), target, suffix, "a map of loads", LOADS, inputs)


def _save(
    draw: Callable[[], Figure],
    target: str,
    suffix: str,
    what: str,  # the map in words, for the error
    title: str,
    inputs: Mapping[str, Any],
) -> None:
    require_suffix(suffix, figure.SUFFIXES, what, "; a page has it without --heat")
    with open_atomically(target) as out:
        write_figure(draw, out, suffix, title=title, inputs=inputs)


STYLE = """
#workers svg { min-width: 760px; width: 100%; height: auto; display: block; margin-top: 12px; }
#workers text { fill: var(--ink); }
[data-theme="dark"] #workers image { filter: invert(0.92) hue-rotate(180deg); }
"""


def lines_of_page(lines: Sequence[str]) -> str:
    """Return lines of a terminal as a section of a page, in a font that keeps columns aligned."""
    return f'<pre class="scroll" tabindex="0">{escape(chr(10).join(lines))}</pre>\n'


def workers_svg(found: WorkerMap, width: float) -> str:
    """Return the map as a section of a page, as wide as the page's text."""
    return _section(lambda: figure_of(found, width), TITLE)


def loads_svg(maps: tuple[LoadMap, ...], width: float) -> str:
    """Return maps of loads as a section of a page, as wide as the page's text."""
    return _section(lambda: load_map.figure_of(maps, width), LOADS)


def _section(draw: Callable[[], Figure], title: str) -> str:
    head = f'<div id="workers" class="scroll" tabindex="0" role="img" aria-label="{title}">'
    return f"{head}<style>{STYLE}</style>{svg_for_pages(draw)}</div>\n"
