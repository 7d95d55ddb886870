"""The memory panel of a figure.

It has a step line per device, or a band if the lines would coincide, or a heat strip if there are
many devices; or one device's memory by part, stacked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.units import binary_unit, format_held
from ppsim.core.curve import Curve
from ppsim.engine.memory.report import columns
from ppsim.engine.memory.usage import BYTES, steps
from ppsim.show.drawing.canvas import DOTS
from ppsim.show.drawing.letters import text_width, tick_step
from ppsim.show.drawing.palette import DEFAULT, HIGHLIGHT, Ramp, blend, part_colours, ramp_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8
LINES_HIGH, STRIP_HIGH = 1.1, 3.0  # largest height in inches of lines, and of a strip
THIN_HIGH, LEAST_HIGH = 0.5, 0.14  # height in inches of bytes in a low panel; least height
# height in inches of one activation of a device's share, in a low panel
ACTIVATION_HIGH = 0.07
GAP = round(0.17 * DOTS)
POINTS = 72
SQUARE = "\u25a0"
NAME_GAP = 4.0  # points between the axes and the names on their right
LINE_HEIGHT = 1.15  # height of a name over the font's size
MOST_PARTS = 10  # a peak's tick from here on is a whole number, as there is little room
TICKS_APART = 1.4  # distance of the peak's tick and others over the font's size
WHOLE = 4.0  # an axis up to here or higher has whole numbers only, like those it compares with
BAND_SHARE = 0.5  # if at most this share of the devices' peaks differ, a band replaces the lines
BAR_WIDE = 60.0  # width in points of a strip's colour scale
# lighter than the lines of devices
HOST_STYLE = {"linewidth": 0.8, "linestyle": (0, (1, 1.5)), "alpha": 0.75}


def memory_height(curve: Curve | None, row: int, thin: float = 0.0) -> int:
    """Return the height of the panel in dots, with the gap above it; 0 without a curve.

    ``row`` is the height of a device's row in the chart. A panel is low if ``thin`` is given: the
    largest peak in activations of a device's share of the model. One of these has the same height
    in every figure, so that separate figures compare.
    """
    if curve is None:
        return 0
    if _is_strip(curve):
        return GAP + min(len(curve.peak) * row, round(STRIP_HIGH * DOTS))
    inches = LINES_HIGH
    if thin and not curve.parts:
        inches = THIN_HIGH if curve.unit.endswith("B") else ACTIVATION_HIGH * thin
    return GAP + round(min(max(inches, LEAST_HIGH), LINES_HIGH) * DOTS)


def draw_memory(
    axes: Axes,  # its size must be final
    curve: Curve,  # memory, or any count per device
    *,
    span: float,  # the end of the time axis
    font: float,  # size of the texts in points
    cap: float | None = None,  # drawn as a line; devices over it are named above the panel
    # the largest value of all panels that compare with this one; by default this curve's
    top: float | None = None,
    base: int = 0,  # the number of the first device
    # colours of the first device, the last, and the range between the least and the most
    ramp: Ramp = DEFAULT.ramp,
) -> None:
    """Draw every device's memory into axes with time as x."""
    axes.set_xlim(0, span)
    axes.tick_params(length=2, width=0.4, pad=2, labelsize=font)
    axes.set_xticks([])
    top = highest_shown(curve) if top is None else top
    if _is_strip(curve):
        _strip(axes, curve, span, font, top, base, ramp)
    elif curve.parts:
        _stack(axes, curve, span, font, cap, top, base, ramp[0])
    else:
        _lines(axes, curve, span, font, cap, top, base, ramp)


def highest_shown(curve: Curve) -> float:
    """Return the largest value in a panel: of a device, or of a host unless it is a strip."""
    host = curve.host if curve.host is not None and not _is_strip(curve) else curve
    return float(max(curve.peak.max(), host.peak.max()))


def names_width(curve: Curve | None, font: float, cap: float | None = None, base: int = 0) -> float:
    """Return the width in points of the names right of a panel, with the gap; 0 without names."""
    if curve is None or _is_strip(curve):
        return 0.0
    texts = [_cap_text(curve, cap)] if cap is not None else []
    texts += [f"{SQUARE} {name}" for _, name, _ in _parts(curve) or _named_levels(curve, base)]
    return NAME_GAP + max((text_width(text, font) for text in texts), default=0.0)


def _is_strip(curve: Curve) -> bool:
    return not curve.parts and len(curve.peak) > MOST_LINES


def _stack(
    axes: Axes,
    curve: Curve,
    span: float,
    font: float,
    cap: float | None,
    top: float,
    base: int,
    ink: str,
) -> None:
    """Draw a device's memory by part: stacked areas, each named with its amount at the peak."""
    scale = _scale(axes, curve, font, cap, top)
    # Lower areas are drawn later, over those before.
    for line, (colour, _) in reversed([*enumerate(part_colours(curve.parts))]):
        time, value = steps(curve, line)
        area = np.append(time, span), np.append(value, value[-1]) / scale
        axes.fill_between(*area, step="post", color=colour, linewidth=0)
    labels = [(level / scale, name, ink, colour) for level, name, colour in _parts(curve)]
    above, colour = f"device {curve.device + base}, the fullest: amounts at its peak", ink
    if cap is not None:
        axes.axhline(cap / scale, color=HIGHLIGHT[0], linewidth=0.8, linestyle=(0, (4, 2)))
        labels.append((cap / scale, _cap_text(curve, cap), HIGHLIGHT[0], ""))
        if curve.peak.max(initial=0.0) > cap:
            above, colour = f"{above}, over the cap", HIGHLIGHT[0]
    axes.text(0, 1.01, above, transform=axes.transAxes, fontsize=font, color=colour, va="bottom")
    _name_levels(axes, labels, font)


def _parts(curve: Curve) -> list[tuple[float, str, str]]:
    """Return for each part at the peak its middle's height, its name with amount, and its colour.

    Empty for a curve of several devices.
    """
    if not curve.parts:
        return []
    last = steps(curve, len(curve.parts) - 1)[1]
    at = int(last.argmax())
    tops = [float(steps(curve, line)[1][at]) for line in range(len(curve.parts))]
    parts = zip([0.0, *tops], tops, curve.parts, part_colours(curve.parts), strict=False)
    return [
        ((below + above) / 2, f"{name}: {format_held(above - below, curve.unit)}", colour)
        for below, above, name, (colour, _) in parts
        if above > below
    ]


def _scale(axes: Axes, curve: Curve, font: float, cap: float | None, top: float) -> int:
    """Set ticks and name of the vertical axis, and return the values' divisor."""
    from matplotlib.ticker import MaxNLocator

    unit, scale = binary_unit(top) if curve.unit == BYTES else (curve.unit, 1)
    peak, highest = top / scale, max(top, cap or 0) / scale
    axes.set_ylim(0, 1.08 * (highest or 1.0))
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.4)
    tall = axes.get_window_extent().height * POINTS / axes.figure.dpi
    locator = MaxNLocator(
        nbins=max(1, min(4, int(tall / font / 2))),
        integer=highest >= WHOLE or _are_whole(curve.value),
    )
    apart = TICKS_APART * font * axes.get_ylim()[1] / tall
    ticks = [
        tick
        for tick in locator.tick_values(0, highest)
        if 0 <= tick <= highest and abs(tick - peak) >= apart
    ]
    named = f"{peak:,.0f}" if peak >= MOST_PARTS else f"{peak:.2g}"
    axes.set_yticks([*ticks, peak], [*(f"{tick:,.10g}" for tick in ticks), named])
    name = [curve.name, *([f"({unit})"] if unit else [])]
    if max(text_width(line, font) for line in name) <= tall:
        axes.set_ylabel("\n".join(name), fontsize=font, labelpad=2)
    else:
        axes.text(0, 1.01, " ".join(name), transform=axes.transAxes, fontsize=font, va="bottom")
    return scale


def _lines(
    axes: Axes,
    curve: Curve,
    span: float,
    font: float,
    cap: float | None,
    top: float,
    base: int,
    ramp: Ramp,
) -> None:
    scale = _scale(axes, curve, font, cap, top)
    colours, fullest = ramp_colours(ramp, len(curve.peak)), int(curve.peak.argmax())
    if _banded(curve):
        _fill_band(axes, curve, span, scale, ramp)
    else:
        for device, colour in enumerate(colours):
            look = {"linewidth": 1.8, "zorder": 3} if device == fullest else {}
            _step(axes, curve, device, span, scale, colour, look)
    levels = _named_levels(curve, base)
    if (
        len(levels) * LINE_HEIGHT * font
        > axes.get_window_extent().height * POINTS / axes.figure.dpi
    ):
        levels = levels[:1]
    labels = [(level / scale, name, ramp[0], colours[device]) for level, name, device in levels]
    above = (
        [(f"band: {_names(list(range(len(curve.peak))), base)}", ramp[0])] if _banded(curve) else []
    )
    if curve.host is not None:
        host = int(curve.host.peak.argmax())
        _step(axes, curve.host, host, span, scale, colours[host], HOST_STYLE)
        words = f"dotted: on the host of {_names([host], base)}, the fullest"
        axes.text(
            0, 1.01, words, transform=axes.transAxes, fontsize=font, color=ramp[0], va="bottom"
        )
    if cap is not None:
        axes.axhline(cap / scale, color=HIGHLIGHT[0], linewidth=0.8, linestyle=(0, (4, 2)))
        labels.append((cap / scale, _cap_text(curve, cap), HIGHLIGHT[0], ""))
        if over := np.flatnonzero(curve.peak > cap).tolist():
            above = [(f"{_names(over, base)} over the cap", HIGHLIGHT[0])]
    for text, colour in above:
        axes.text(
            1,
            1.01,
            text,
            transform=axes.transAxes,
            fontsize=font,
            color=colour,
            ha="right",
            va="bottom",
        )
    _name_levels(axes, labels, font)


def _are_whole(values: NDArray[Any]) -> bool:
    return bool((values == np.rint(values)).all())


def _step(
    axes: Axes, curve: Curve, device: int, span: float, scale: int, colour: str, style: Any = None
) -> None:
    time, value = steps(curve, device)
    look = {"linewidth": 1.1} | (style or {})
    axes.step(
        np.append(time, span),
        np.append(value, value[-1]) / scale,
        where="post",
        color=colour,
        **look,
    )


def _banded(curve: Curve) -> bool:
    """Return True if the devices' lines would coincide: most share their peak with another."""
    devices = len(curve.peak)
    return devices > 1 and len(np.unique(curve.peak)) <= BAND_SHARE * devices


def _fill_band(axes: Axes, curve: Curve, span: float, scale: int, ramp: Ramp) -> None:
    """Draw a band from the least to the largest memory of all devices, and the fullest's line."""
    times = np.unique(np.append(curve.time, span))
    values = (
        np.stack([_value_at(*steps(curve, device), times) for device in range(len(curve.peak))])
        / scale
    )
    axes.fill_between(
        times,
        values.min(0),
        values.max(0),
        step="post",
        color=blend(ramp[0], "#FFFFFF", 0.22),
        linewidth=0,
    )
    _step(axes, curve, int(curve.peak.argmax()), span, scale, ramp[0])


def _value_at(time: NDArray[Any], value: NDArray[Any], at: NDArray[Any]) -> NDArray[Any]:
    return np.append(0.0, value)[np.searchsorted(time, at, "right")]


def _named_levels(curve: Curve, base: int) -> list[tuple[float, str, int]]:
    """Return heights to label, each with a name and a device: every peak, or the largest."""
    fullest = int(curve.peak.argmax())
    if _banded(curve):
        return [(float(curve.peak[fullest]), _device_range([fullest], base), fullest)]
    levels = np.unique(curve.peak)[::-1]
    groups = [np.flatnonzero(curve.peak == level).tolist() for level in levels]
    return [
        (float(level), _device_range(group, base), group[0])
        for level, group in zip(levels, groups, strict=True)
    ]


def _name_levels(axes: Axes, labels: list[tuple[float, str, str, str]], font: float) -> None:
    """Write names right of the axes at their heights, moved apart if they would overlap.

    A label is height, name, its colour, and the colour of a square before it, empty for none.
    """
    points = axes.get_window_extent().height * POINTS / axes.figure.dpi
    per_point = axes.get_ylim()[1] / points
    labels = sorted(labels)
    places = np.array([level / per_point for level, *_ in labels])
    for lower in range(1, len(places)):
        places[lower] = max(places[lower], places[lower - 1] + LINE_HEIGHT * font)
    for upper in range(len(places) - 1, -1, -1):
        limit = points if upper == len(places) - 1 else places[upper + 1] - LINE_HEIGHT * font
        places[upper] = min(places[upper], limit)
    look: dict[str, Any] = {
        "xycoords": axes.get_yaxis_transform(),
        "textcoords": "offset points",
        "fontsize": font,
    }
    for place, (_, name, ink, square) in zip(places, labels, strict=True):
        after_square = NAME_GAP + (text_width(f"{SQUARE} ", font) if square else 0)
        for text, colour, right in ((SQUARE, square, NAME_GAP), (name, ink, after_square)):
            if colour:
                axes.annotate(
                    text,
                    (1, place * per_point),
                    (right, 0),
                    color=colour,
                    ha="left",
                    va="center",
                    **look,
                )


def _device_range(devices: list[int], base: int) -> str:
    """Return devices as short text for the margin: ``dev 2``, ``dev 0-3``."""
    return _names(devices, base).replace("devices", "dev").replace("device", "dev")


def _cap_text(curve: Curve, cap: float) -> str:
    return f"cap {format_held(cap, curve.unit)}"


def _names(devices: list[int], base: int) -> str:
    """Return devices as text: ``device 2``, ``devices 0-3``, ``devices 0, 3``.

    ``base`` is the number of the first device.
    """
    devices = [device + base for device in devices]
    if len(devices) == 1:
        return f"device {devices[0]}"
    if devices == list(range(devices[0], devices[-1] + 1)):
        return f"devices {devices[0]}-{devices[-1]}"
    return "devices " + ", ".join(map(str, devices))


def _strip(
    axes: Axes, curve: Curve, span: float, font: float, top: float, base: int, ramp: Ramp
) -> None:
    """Draw a row per device that is darker the more memory it uses, with a colour scale above."""
    from matplotlib.colors import LinearSegmentedColormap

    box, devices = axes.get_window_extent(), len(curve.peak)
    wide, rows = max(2, round(box.width)), max(1, min(devices, round(box.height)))
    held = np.zeros((rows, wide))
    # if there are more devices than dots, a row shows the largest value of several
    for device in range(devices):
        row = held[device * rows // devices]
        np.maximum(row, columns(curve, device, span, wide), out=row)
    top = top or 1.0
    blues = LinearSegmentedColormap.from_list("held", ("#FFFFFF", ramp[1], ramp[0]))
    extent = (0, span, devices, 0)
    axes.imshow(
        held, extent=extent, aspect="auto", cmap=blues, vmin=0, vmax=top, interpolation="nearest"
    )
    axes.spines[:].set_linewidth(0.4)
    tall = axes.get_window_extent().height * POINTS / axes.figure.dpi
    every = tick_step(tall / devices, 0.95 * font)
    named = range(0, devices, every)
    axes.set_yticks(
        [device + 0.5 for device in named], [f"Device {device + base}" for device in named]
    )
    axes.tick_params(axis="y", length=0)
    _draw_scale(axes, curve, top, font, blues)


def _draw_scale(axes: Axes, curve: Curve, top: float, font: float, blues: Any) -> None:
    """Draw the name and the colour scale, from 0 to ``top``, above a strip."""
    box = axes.get_window_extent()
    wide, tall = (length * POINTS / axes.figure.dpi for length in (box.width, box.height))
    y = 1 + 0.5 / tall * font
    counted = not curve.unit.endswith("B")
    texts = [
        curve.name,
        "0",
        f"{format_held(top, curve.unit)}{f' {curve.unit}'.rstrip() * counted}",
    ]
    x = 0.0
    for number, text in enumerate(texts):
        axes.text(
            x / wide, y, text, transform=axes.transAxes, fontsize=font, va="center", ha="left"
        )
        x += text_width(text, font) + font * (0.4 if number else 1.2)
        if number == 1:
            high = 0.35 * font / tall
            inset = axes.inset_axes((x / wide, y - high, BAR_WIDE / wide, 2 * high))
            inset.imshow(np.linspace(0, 1, 64)[None], aspect="auto", cmap=blues, vmin=0, vmax=1)
            inset.set_xticks([])
            inset.set_yticks([])
            inset.spines[:].set_linewidth(0.4)
            x += BAR_WIDE + 0.4 * font
