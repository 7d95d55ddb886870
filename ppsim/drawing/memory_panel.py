"""The memory panel of a figure: a step line per device, or a heat strip where lines would be too many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.units import binary_unit, format_size
from ppsim.core.curve import Curve
from ppsim.drawing.gantt_layout import DOTS
from ppsim.drawing.palette import HIGHLIGHT, RAMP
from ppsim.memory.report import columns
from ppsim.memory.usage import BYTES, steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 8
LINES_HIGH, STRIP_HIGH = 1.1, 3.0  # inches
GAP = round(0.17 * DOTS)
POINTS = 72
PLACES = 61  # along the time axis, where a name may stand


def memory_height(curve: Curve | None, row: int) -> int:
    """Height of the panel in dots, with the gap above it; ``row`` is the height of a device's row in the chart."""
    if curve is None:
        return 0
    devices = len(curve.peak)
    return GAP + (round(LINES_HIGH * DOTS) if devices <= MOST_LINES else min(devices * row, round(STRIP_HIGH * DOTS)))


def draw_memory(axes: Axes, curve: Curve, *, span: float, font: float, cap: int | None = None) -> None:
    """Draw every device's memory onto axes whose x is time.

    Args:
        axes: what to draw on; its size must be final.
        curve: memory, or any count per device.
        span: where the time axis ends.
        font: size of its texts in points.
        cap: drawn as a line that names the devices over it.
    """
    axes.set_xlim(0, span)
    axes.tick_params(length=2, width=0.4, pad=2, labelsize=font)
    axes.set_xticks([])
    if len(curve.peak) > MOST_LINES:
        _strip(axes, curve, span, font)
    else:
        _lines(axes, curve, span, font, cap)


def _lines(axes: Axes, curve: Curve, span: float, font: float, cap: int | None) -> None:
    from matplotlib.ticker import MaxNLocator

    unit, scale = binary_unit(curve.peak.max()) if curve.unit == BYTES else (curve.unit, 1)
    top = max(float(curve.peak.max()), float(cap or 0)) / scale or 1.0
    axes.set_ylim(0, 1.22 * top)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_linewidth(0.4)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=curve.unit != BYTES))
    axes.set_ylabel(f"{curve.name}\n({unit})", fontsize=font, labelpad=2)
    colours = _ramp(len(curve.peak))
    for device, colour in enumerate(colours):
        time, value = steps(curve, device)
        axes.step(np.append(time, span), np.append(value, value[-1]) / scale, where="post", color=colour, linewidth=1.1)
    if cap is not None:
        axes.axhline(cap / scale, color=HIGHLIGHT[0], linewidth=0.8, linestyle=(0, (4, 2)))
        over = np.flatnonzero(curve.peak > cap).tolist()
        text = f"cap {format_size(cap, curve.unit)}" + (f", passed by {_names(over)}" if over else "")
        axes.annotate(
            text, (span, cap / scale), (0, 1.5), textcoords="offset points", **_words(font, HIGHLIGHT[0], "right")
        )
    _name_lines(axes, curve, colours, span, font, scale)


def _name_lines(axes: Axes, curve: Curve, colours: list[str], span: float, font: float, scale: int) -> None:
    """Write each line's device above its highest stretch, close to the middle; close peaks share one name."""
    room = 1.1 * font / (axes.get_window_extent().height * POINTS / axes.figure.dpi) * axes.get_ylim()[1] * scale
    order = np.argsort(-curve.peak, kind="stable")
    breaks = np.flatnonzero(-np.diff(curve.peak[order]) > room) + 1
    for group in np.split(order, breaks):
        level = columns(curve, group[0], span, PLACES)
        x = (np.arange(PLACES) + 0.5) / PLACES
        place = int(np.lexsort((np.abs(x - 0.5), -level))[0])
        at = (x[place] * span, level[place] / scale)
        style = _words(font, colours[group[0]], "center")
        axes.annotate(_names(sorted(group.tolist())), at, (0, 1.2), textcoords="offset points", **style)


def _names(devices: list[int]) -> str:
    """``device 2``, ``devices 0-3``, ``devices 0, 3``."""
    if len(devices) == 1:
        return f"device {devices[0]}"
    if devices == list(range(devices[0], devices[-1] + 1)):
        return f"devices {devices[0]}-{devices[-1]}"
    return "devices " + ", ".join(map(str, devices))


def _words(font: float, colour: str, side: str) -> dict[str, Any]:
    from matplotlib.patheffects import withStroke

    around = [withStroke(linewidth=1.5, foreground="white")]
    return {"fontsize": font, "color": colour, "ha": side, "va": "bottom", "path_effects": around, "zorder": 6}


def _strip(axes: Axes, curve: Curve, span: float, font: float) -> None:
    """A row per device, the darker the more it holds; the text above gives the scale."""
    from matplotlib.colors import LinearSegmentedColormap

    box, devices = axes.get_window_extent(), len(curve.peak)
    wide, rows = max(2, round(box.width)), max(1, min(devices, round(box.height)))
    held = np.zeros((rows, wide))
    for device in range(
        devices
    ):  # where devices outnumber the dots, a row shows the most that any of its devices holds
        row = held[device * rows // devices]
        np.maximum(row, columns(curve, device, span, wide), out=row)
    top = float(curve.peak.max()) or 1.0
    blues = LinearSegmentedColormap.from_list("held", ["#FFFFFF", RAMP[0][1], RAMP[0][0]])
    extent = (0, span, devices, 0)
    axes.imshow(held, extent=extent, aspect="auto", cmap=blues, vmin=0, vmax=top, interpolation="nearest")
    axes.spines[:].set_linewidth(0.4)
    tall = axes.get_window_extent().height * POINTS / axes.figure.dpi
    every = max(1, int(np.ceil(0.95 * font * devices / tall)))
    named = range(0, devices, every)
    axes.set_yticks([device + 0.5 for device in named], [f"Device {device}" for device in named])
    axes.tick_params(axis="y", length=0)
    unit = "" if curve.unit == BYTES else f" {curve.unit}"
    scale = f"{curve.name}: white 0, darkest {format_size(top, curve.unit)}{unit}"
    axes.text(0, 1.02, scale, transform=axes.transAxes, fontsize=font, va="bottom", ha="left")


def _ramp(count: int) -> list[str]:
    """Colours from the first device's to the last's."""
    first, last = (np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)], np.float64) for c in RAMP[0])
    shares: NDArray[np.float64] = np.linspace(0, 1, count) if count > 1 else np.zeros(1)
    return ["#" + "".join(f"{round(v):02x}" for v in first + share * (last - first)) for share in shares]
