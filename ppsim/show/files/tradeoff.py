"""What several schedules or shapes look like together, as a file: time against memory, or a heat map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.analysis.heat import HeatMap
from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.files.front_page import front_page
from ppsim.show.files.writers import figure, html


def check_suffix(suffix: str, heat: bool = False) -> None:
    """Refuse a format, no picture or page, that draws no time against memory and no heat map (InputError)."""
    able = figure.SUFFIXES if heat else (*figure.SUFFIXES, *html.SUFFIXES)
    if suffix not in able:
        what = "a heat map" if heat else "time against memory"
        raise InputError(f"{what} cannot be written as {suffix}", f"one of {' '.join(able)}")


def save_tradeoff(
    found: Tradeoff,
    target: str,
    suffix: str,
    *,
    time: str,
    memory: str,
    width: float,
    inputs: Mapping[str, Any],
    heat: HeatMap | None = None,
) -> None:
    """Write the picture or the page to a file; see :func:`ppsim.show.drawing.tradeoff.draw_tradeoff` for the labels.

    A page has the ``heat`` maps of a sweep below the points.

    Raises:
        InputError: the suffix is neither a picture's nor a page's, or the file cannot be written.
    """
    from ppsim.show.drawing.tradeoff import figure_of

    check_suffix(suffix)
    with open_atomically(target) as out:
        if suffix in html.SUFFIXES:
            out.write(front_page(found, time=time, memory=memory, inputs=inputs, heat=heat))
            return
        title = f"{time} against {memory}"
        write_figure(lambda: figure_of(found, time, memory, width), out, suffix, title=title, inputs=inputs)


def save_heat(heat: HeatMap, key: str, target: str, suffix: str, *, width: float, inputs: Mapping[str, Any]) -> None:
    """Write one metric of a sweep as a heat map; raises as :func:`save_tradeoff`."""
    from ppsim.show.drawing.heat_map import figure_of

    check_suffix(suffix, heat=True)
    with open_atomically(target) as out:
        write_figure(lambda: figure_of(heat, key, width), out, suffix, title=f"{key} of a sweep", inputs=inputs)
