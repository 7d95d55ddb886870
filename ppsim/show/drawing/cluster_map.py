"""A cluster as a picture for pages: nodes, devices, links by traffic, and a table of links."""

from __future__ import annotations

import html
from collections.abc import Iterator

import numpy as np

from ppsim.analysis.link_use import LINK, link_use
from ppsim.base.numbers import format_number, format_share
from ppsim.base.units import format_size
from ppsim.core.execution import Execution
from ppsim.engine.simple.metrics import measure
from ppsim.show.drawing.link_panel import link_names

MOST_DEVICES, MOST_ROWS, MOST_NAMES = 256, 16, 6
HIGHEST = 50  # largest height in pixels of a link's control points
# pixels: a device, the space between two, the margins of a node, the space above it, a row
CELL, GAP, PAD, HEAD, ACROSS = 38, 24, 26, 30, 1200

Point = tuple[int, int]


def cluster_map(execution: Execution, per_node: int) -> str:
    """Return a picture of an execution's devices on their nodes; empty if they are too many."""
    devices = execution.compute.schedule.n_devices
    if devices > MOST_DEVICES:
        return ""
    wide = min(per_node, devices) * (CELL + GAP) - GAP + 2 * PAD
    nodes, tall = -(-devices // per_node), CELL + 2 * PAD + HEAD
    columns = max(1, min(nodes, ACROSS // (wide + GAP)))
    corners, places = _positions(devices, per_node, columns, wide, tall)
    parts = list(_links(execution, places))
    for node, (x, y) in enumerate(corners):
        parts.append(
            f'<rect x="{x}" y="{y}" width="{wide}" height="{CELL + 2 * PAD}" rx="8" class="node"/>'
        )
        parts.append(f'<text x="{x + 2}" y="{y - 8}">node {node}</text>')
    parts += _devices(execution, places)
    size = columns * (wide + GAP) - GAP, corners[-1][1] + tall - HEAD + HEAD // 2
    said = f"{devices} devices on {nodes} nodes; the table has the links"
    drawn = "".join(parts)
    return (
        '<h2>On the cluster</h2><p class="muted">A device has the colour of its stages, as high as '
        "the share of time "
        "that it is busy; a link is as thick as the bytes it carries, and the redder the more of "
        "it is used. Forwards "
        "above, backwards below. Point at the chart or move the slider for what goes on at a "
        "time.</p>"
        '<p class="moment"><label>time <input id="moment" type="range" min="0" max="1000" step="1" '
        'value="0"></label> '
        '<button id="whole">whole iteration</button> <span id="moment-said" '
        'aria-live="polite"></span></p>'
        f'<div class="scroll" tabindex="0" role="img" aria-label="{said}"><svg class="map" '
        f'width="{size[0]}" '
        f'height="{size[1]}" viewBox="-2 0 {size[0] + 4} {size[1]}" '
        f'aria-hidden="true">{drawn}</svg></div>'
        f"{_table(execution, per_node)}"
    )


def _positions(
    devices: int, per_node: int, columns: int, wide: int, tall: int
) -> tuple[list[Point], list[Point]]:
    """Return the upper left corners of nodes ``wide`` x ``tall`` pixels large, and of devices."""
    corners, places = list[Point](), list[Point]()
    for node in range(-(-devices // per_node)):
        row, column = divmod(node, columns)
        # every second row runs from right to left, so that successive nodes are neighbours
        back = row % 2
        x = (columns - 1 - column if back else column) * (wide + GAP)
        y = row * (tall + GAP) + HEAD
        corners.append((x, y))
        for seat in range(min(per_node, devices - node * per_node)):
            along = PAD + seat * (CELL + GAP)
            places.append((x + (wide - CELL - along if back else along), y + PAD))
    return corners, places


def _devices(execution: Execution, places: list[Point]) -> Iterator[str]:
    """Yield the boxes of devices, each with its number, stages and busy share."""
    devices = len(places)
    busy = measure(execution.compute).busy / (execution.makespan or 1.0)
    of_stage = execution.compute.schedule.placement.devices
    for device, ((x, y), share) in enumerate(zip(places, busy.tolist(), strict=True)):
        high, middle = CELL * share, x + CELL / 2
        numbers = np.flatnonzero((of_stage == device).any(0)).tolist()
        stages = f"stage{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
        title = f"<title>device {device}: {stages}; busy {format_share(share)} of the time</title>"
        cell = f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" class="{{}}"/>'.format
        hue = 300 * device // devices
        yield f'<g data-device="{device}" style="--hue:{hue}">{title}{cell("device")}'
        top = f"{y + CELL - high:.1f}"
        yield f'<rect x="{x}" y="{top}" width="{CELL}" height="{high:.1f}" class="busy"/>'
        yield cell("now")
        yield f'<text x="{middle}" y="{y + CELL / 2 + 1}" class="number">{device}</text>'
        yield f'<text x="{middle}" y="{y + CELL - 5}" class="doing"/></g>'


def _links(execution: Execution, places: list[Point]) -> Iterator[str]:
    """Yield a curve for each link: above the devices for forwards, below for backwards."""
    rows = _rows_of(execution)
    most = max((carried for *_, carried, _ in rows), default=0.0) or 1.0
    for (source, target), name, count, carried, use in rows:
        (ax, ay), (bx, by), up = places[source], places[target], source < target
        edge, bend = (0, -1) if up else (CELL, 1)
        shift = 4 if bx > ax else -4
        high = bend * min(14 + 0.07 * abs(ax - bx), HIGHEST)
        start, end = (ax + CELL / 2 + shift, ay + edge), (bx + CELL / 2 - shift, by + edge)
        if ay != by:  # from row to row, side by side
            side = 0.5 * CELL + (4 if up else -4)
            start, end, high = (
                (ax + side, ay + CELL * (by > ay)),
                (bx + side, by + CELL * (by < ay)),
                0,
            )
        colour = f"color-mix(in oklab, var(--cap) {100 * use:.0f}%, var(--focus))"
        path = (
            f"M{start[0]} {start[1]}C{start[0]} {start[1] + high:.0f} {end[0]} "
            f"{end[1] + high:.0f} {end[0]} {end[1]}"
        )
        said = f"{name}: {_amount(count, carried)}, {format_share(use)} used"
        yield (
            f'<path d="{path}" fill="none" stroke-width="{1.5 + 4.5 * carried / most:.1f}" '
            f'data-link="{source}-{target}" '
            f'style="stroke:{colour}"><title>{html.escape(said)}</title></path>'
        )


def _rows_of(execution: Execution) -> list[tuple[tuple[int, int], str, int, float, float]]:
    """Return for each link its devices, name, number of messages, bytes, and share in use."""
    use, messages = link_use(execution, len(execution.messages) + 1, 0), execution.messages
    pairs = (
        messages.source.astype(np.int64) * execution.compute.schedule.n_devices + messages.target
    )
    ends, of = np.unique(pairs, return_inverse=True)
    counts, carried = np.bincount(of), np.bincount(of, messages.size)
    totals = {
        int(end): (int(n), float(size)) for end, n, size in zip(ends, counts, carried, strict=True)
    }
    found = []
    for name, devices, mean, of_what in zip(
        link_names(use, 0), use.devices, use.mean.tolist(), use.name, strict=True
    ):
        if of_what == LINK and devices:
            source, target = devices
            n, size = totals[source * execution.compute.schedule.n_devices + target]
            found.append(((source, target), name, n, size, mean))
    return found


def _amount(count: int, carried: float) -> str:
    return f"{count:,} messages" + (f", {format_size(carried)}" if carried else "")


def _table(execution: Execution, per_node: int) -> str:
    """Return an HTML table of links, the most used first; equal links share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for (source, target), name, count, carried, use in sorted(
        _rows_of(execution), key=lambda row: -row[-1]
    ):
        where = "inside a node" if source // per_node == target // per_node else "between nodes"
        key: tuple[str, ...] = (
            where,
            format_number(count),
            format_size(carried) if carried else "-",
            format_share(use),
        )
        alike.setdefault(key, []).append(name)
    rows = []
    for key, names in list(alike.items())[:MOST_ROWS]:
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        rows.append(
            "".join(f"<td>{cell}</td>" for cell in (", ".join(names[:MOST_NAMES]) + more, *key))
        )
    left = f'<p class="muted">{len(alike) - MOST_ROWS} more</p>' if len(alike) > MOST_ROWS else ""
    head = "".join(
        f'<th scope="col">{word}</th>'
        for word in ("links", "where", "messages each", "bytes each", "use")
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="Links by use"><table '
        'aria-label="Links by use">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{left}"
    )
