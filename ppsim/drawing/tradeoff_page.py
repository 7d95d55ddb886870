"""Time against memory as one interactive page that works offline: points tell what they are, crowds can be zoomed."""

from __future__ import annotations

import html
from collections.abc import Mapping
from string import Template
from typing import IO, TYPE_CHECKING, Any

from ppsim.base.json_output import dump_json
from ppsim.drawing.palette import MUTED, RAMP

if TYPE_CHECKING:
    from plotly.graph_objects import Figure, Scatter

    from ppsim.analysis.tradeoff import Point, Tradeoff

FEW = 24  # most points that all have their name beside them; among more, the front's have
BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]  # none that would send the data anywhere
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title · ppsim</title>
<link rel="icon" href="data:,">
<style>
:root { color-scheme: only light; }
body { margin: 18px 24px; font: 14px/1.45 system-ui, sans-serif; color: #1b2430; background: #ffffff; }
h1 { font-size: 19px; margin: 0 0 4px; }
code { color: #5b6675; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>$title</h1>
<code>$command</code>
$chart
<script type="application/json" id="ppsim-data">$inputs</script>
</body>
</html>
""")


def write_page(found: Tradeoff, out: IO[bytes], *, time: str, memory: str, inputs: Mapping[str, Any]) -> None:
    """Write the page; ``time`` and ``memory`` are the axes' labels, ``inputs`` what the points were made from."""
    config = {"displaylogo": False, "responsive": True, "modeBarButtons": BUTTONS}
    chart = chart_of(found, time, memory).to_html(
        full_html=False, div_id="tradeoff", default_height="80vh", config=config
    )
    text = PAGE.substitute(
        title=html.escape(f"{time[:1].upper()}{time[1:]} against {memory}"),
        command=html.escape(str(inputs.get("command", ""))),
        chart=chart,
        inputs=dump_json(dict(inputs)).decode().replace("<", "\\u003c"),
    )
    out.write(text.encode())


def chart_of(found: Tradeoff, time: str, memory: str) -> Figure:
    """The points and the front as a plotly figure: time to the right, memory upwards, less of both is better."""
    from plotly.graph_objects import Figure

    pairs = list(zip(found.points, found.best, strict=True))
    best = sorted((p for p, on_front in pairs if on_front), key=lambda p: p.makespan)
    others = [p for p, on_front in pairs if not on_front]
    dark, light = RAMP[0]
    line = {"color": light, "width": 1, "shape": "hv"}
    figure = Figure(
        [
            _points(best, "Pareto front", "lines+markers+text", line=line, marker={"color": dark, "size": 10}),
            _points(
                others,
                "others",
                "markers+text" if len(pairs) <= FEW else "markers",
                marker={"color": MUTED, "size": 9, "symbol": "circle-open"},
            ),
        ]
    )
    figure.update_layout(
        template="simple_white",
        hovermode="closest",
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        xaxis_title=html.escape(time),
        yaxis={"title": html.escape(memory), "rangemode": "tozero"},
        legend={"orientation": "h", "y": 1.06},
    )
    return figure


def _points(points: list[Point], name: str, mode: str, **look: Any) -> Scatter:
    from plotly.graph_objects import Scatter

    return Scatter(
        x=[p.makespan for p in points],
        y=[p.peak for p in points],
        text=[html.escape(p.name) for p in points],
        textposition="top right",
        hovertemplate="<b>%{text}</b><br>time %{x:.6~g}<br>memory %{y:.6~g}<extra></extra>",
        name=name,
        mode=mode,
        **look,
    )
