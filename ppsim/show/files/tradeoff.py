"""Files of several schedules or shapes: time against memory, or a heat map.

A page has the points with their Pareto fronts, a table of them, and the heat maps of a sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.analysis.heat import HeatMap, shades_of
from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.atomic_file import open_atomically
from ppsim.base.numbers import align_decimals, format_number
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.palette import HEAT, HEAT_DARK
from ppsim.show.files.document import require_suffix
from ppsim.show.files.page_parts import fill_page, join_parts, looks_of, verdict_paragraph
from ppsim.show.files.writers import figure, html


def check_suffix(suffix: str, heat: bool = False) -> None:
    """Raise InputError if a format is neither a picture nor, for time against memory, a page."""
    able = figure.SUFFIXES if heat else (*figure.SUFFIXES, *html.SUFFIXES)
    require_suffix(suffix, able, "a heat map" if heat else "time against memory")


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
    verdict: str = "",
) -> None:
    """Write time against memory as a picture or a page.

    ``time`` and ``memory`` label the axes (:func:`ppsim.show.drawing.tradeoff.draw_tradeoff`). A
    page shows the ``heat`` maps of a sweep below the points.

    Raises:
        InputError: the suffix is neither a picture's nor a page's, or the file cannot be written.
    """
    from ppsim.show.drawing.tradeoff import figure_of

    check_suffix(suffix)
    with open_atomically(target) as out:
        if suffix in html.SUFFIXES:
            page = front_page(
                found, time=time, memory=memory, inputs=inputs, heat=heat, verdict=verdict
            )
            out.write(page)
            return
        title = f"{time} against {memory}"
        write_figure(
            lambda: figure_of(found, time, memory, width), out, suffix, title=title, inputs=inputs
        )


def save_heat(
    heat: HeatMap, key: str, target: str, suffix: str, *, width: float, inputs: Mapping[str, Any]
) -> None:
    """Write one metric of a sweep as a heat map; raises as :func:`save_tradeoff`."""
    from ppsim.show.drawing.heat_map import figure_of

    check_suffix(suffix, heat=True)
    with open_atomically(target) as out:
        write_figure(
            lambda: figure_of(heat, key, width),
            out,
            suffix,
            title=f"{key} of a sweep",
            inputs=inputs,
        )


def front_page(
    found: Tradeoff,
    *,
    time: str,
    memory: str,
    inputs: Mapping[str, Any],
    heat: HeatMap | None = None,
    verdict: str = "",
) -> bytes:
    """Return the page; ``time`` and ``memory`` label the axes, ``inputs`` made the points."""
    families = dict.fromkeys(point.family or point.name for point in found.points)
    numbers = [p.makespan for p in found.points], [p.peak for p in found.points]
    texts = [align_decimals([*map(format_number, column)]) for column in numbers]
    points = [
        {
            "name": point.name,
            "family": point.family or point.name,
            "group": point.group,
            "time": point.makespan,
            "memory": point.peak,
            "text": text,
            "best": bool(best),
        }
        for point, best, *text in zip(found.points, found.best, *texts, strict=True)
    ]
    data = {
        "schema": "ppsim.front/1",
        "inputs": dict(inputs),
        "time": time,
        "memory": memory,
        "grouped": len({point.group for point in found.points}) > 1,
        "families": looks_of(families),
        "points": points,
        "heat": _heat(heat) if heat else None,
    }
    title = f"{time[:1].upper()}{time[1:]} against {memory}"
    script = join_parts(("numbers.js", "points.js", "front.js"))
    style, said = join_parts(("points.css",)), verdict_paragraph(verdict)
    return fill_page(title, "front", data, script, style, verdict=said)


def _heat(heat: HeatMap) -> dict[str, Any]:
    """Return the page's heat maps: per metric a text, a shade (0 to 1) and a mark for each cell."""
    maps = [
        {
            "heading": column.heading + (f" ({heat.unit})" if column.form == "time" else ""),
            "meaning": column.meaning,
            "text": [
                [None if value != value else column.text(value) for value in row]
                for row in values.tolist()
            ],
            "shade": shades_of(values),
            "best": best,
        }
        for column, values, best in zip(heat.columns, heat.values, heat.best, strict=True)
    ]
    return {
        "rows": heat.rows,
        "microbatches": heat.microbatches,
        "maps": maps,
        "colours": (HEAT, HEAT_DARK),
    }
