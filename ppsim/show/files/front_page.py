"""Time against memory as a page: the points and fronts, the same as a table, and the heat maps of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.analysis.heat import HeatMap, shades_of
from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.numbers import format_number
from ppsim.show.drawing.palette import HEAT, HEAT_DARK
from ppsim.show.files.page_parts import fill_page, looks_of, read_script


def front_page(
    found: Tradeoff, *, time: str, memory: str, inputs: Mapping[str, Any], heat: HeatMap | None = None
) -> bytes:
    """Make the page; ``time`` and ``memory`` are the axes' labels, ``inputs`` what the points were made from."""
    families = dict.fromkeys(point.family or point.name for point in found.points)
    points = [
        {
            "name": point.name,
            "family": point.family or point.name,
            "group": point.group,
            "time": point.makespan,
            "memory": point.peak,
            "text": (format_number(point.makespan), format_number(point.peak)),
            "best": bool(best),
        }
        for point, best in zip(found.points, found.best, strict=True)
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
    return fill_page(title, "front", data, "\n".join(map(read_script, ("numbers.js", "points.js", "front.js"))))


def _heat(heat: HeatMap) -> dict[str, Any]:
    """Heat maps as the page draws them: per metric a text, a shade from 0 to 1 and a mark for each cell."""
    maps = [
        {
            "heading": column.heading + (f" ({heat.unit})" if column.form == "time" else ""),
            "meaning": column.meaning,
            "text": [[None if value != value else column.text(value) for value in row] for row in values.tolist()],
            "shade": shades_of(values),
            "best": best,
        }
        for column, values, best in zip(heat.columns, heat.values, heat.best, strict=True)
    ]
    return {"rows": heat.rows, "microbatches": heat.microbatches, "maps": maps, "colours": (HEAT, HEAT_DARK)}
