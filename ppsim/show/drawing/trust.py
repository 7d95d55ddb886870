"""Figures of accuracy: predictions against published runs, and makespans under noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.numbers import format_number, format_share
from ppsim.base.text import shorten
from ppsim.show.drawing.letters import is_symbol, text_width, wrap_text
from ppsim.show.drawing.palette import FAMILY_COLOURS, MARKERS, MUTED, family_look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ppsim.analysis.jitter import Sampled

FONT = 6.5  # points
LEFT, RIGHT, BELOW, ABOVE, BETWEEN = 0.55, 0.15, 0.36, 0.1, 0.6  # inches around and between axes
NOTE = 0.13  # height in inches of a line of text below the axes
LONGEST_NAME = 40
NARROW = 5.0  # width in inches, below which the axes are one above the other
WIDE = 2.5  # decades of times, from which on an axis labels powers of ten only
NEAR = 0.1  # largest error of a run inside the band, as a share
ROW = 0.42  # height in inches of a schedule's distribution
BINS = 160  # of a distribution
SMOOTH = 2.0  # standard deviation in bins of the curve that smooths it
POINTS = 72


def draw_published(rows: Sequence[Mapping[str, Any]], width: float) -> Figure:
    """Return a figure of predicted over published step times, and of the errors' distribution.

    It draws the ``rows`` (:func:`ppsim.workload.plans.published.against`) that have an ``error``.
    """
    from matplotlib.figure import Figure

    compared = [row for row in rows if "error" in row]
    narrow = width < NARROW
    side = width - LEFT - RIGHT if narrow else (width - LEFT - BETWEEN - RIGHT) * 0.56
    below, tall = NOTE * len(notes := chart_notes(rows, width)) + BELOW + 0.05, 0.86 * side
    height = ABOVE + tall * (1.55 if narrow else 1) + (BELOW + 0.1) * narrow + below
    figure = Figure(figsize=(width, height))
    rest = width - RIGHT - (left := LEFT if narrow else LEFT + side + BETWEEN)
    high = height - ABOVE - tall if narrow else below
    _draw_steps(
        figure.add_axes((LEFT / width, high / height, side / width, tall / height)), compared
    )
    box = (left / width, below / height, rest / width, tall * (0.55 if narrow else 1) / height)
    _draw_errors(figure.add_axes(box), np.array([abs(row["error"]) for row in compared]))
    for number, line in enumerate(reversed(notes)):
        up = (0.04 + NOTE * number) / height
        figure.text(0.06 / width, up, line, fontsize=FONT - 1, color=MUTED, parse_math=False)
    return figure


def chart_notes(rows: Sequence[Mapping[str, Any]], width: float) -> list[str]:
    """Return notes for a figure ``width`` inches wide: the meaning of bars, and missing rows."""
    compared, refused = sum("error" in row for row in rows), sum("reason" in row for row in rows)
    text = (
        f"{compared:,} of {len(rows):,} runs; bars: the range given with each; band: within "
        f"{NEAR:.0%}."
    )
    text += " No run corrects its own prediction."
    text += f" Left out, as they cannot be predicted: {refused:,}." if refused else ""
    unmeasured = len(rows) - compared - refused
    text += f" Without a measured step: {unmeasured:,}." if unmeasured else ""
    return wrap_text(text, (width - 0.12) * POINTS * 0.95, FONT - 1, "normal")


def _draw_steps(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw predicted over published step times, by GPU, on equal logarithmic axes."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    columns = np.array(
        [
            [row[f"{key}_s"] for key in ("measured_step", "predicted_step", "low", "high")]
            for row in rows
        ]
    )
    measured, predicted, low, high = columns.T
    ends = np.array([columns.min() / 1.25, columns.max() * 1.25])
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.fill_between(
        ends, ends * (1 - NEAR), ends * (1 + NEAR), color=MUTED, alpha=0.18, linewidth=0
    )
    axes.plot(ends, ends, color=MUTED, linewidth=0.6)
    gpus = np.array([str(row["gpu"]) for row in rows])
    names, counts = np.unique(gpus, return_counts=True)
    for place, at in enumerate(np.argsort(-counts, kind="stable").tolist()):
        here, ((colour, _), shape) = gpus == names[at], family_look(place)
        marker = MARKERS[shape]
        axes.vlines(measured[here], low[here], high[here], color=colour, linewidth=0.5, alpha=0.35)
        label = f"{shorten(str(names[at]), LONGEST_NAME)} ({counts[at]:,})"
        look: dict[str, Any] = {"s": 5, "color": colour, "marker": marker, "linewidths": 0}
        axes.scatter(measured[here], predicted[here], label=label, **look)
    decades = np.log10(ends[1] / ends[0])
    for axis in (axes.xaxis, axes.yaxis):
        subs = (1, 2, 5) if decades < WIDE else (1,)
        axis.set_major_locator(MaxNLocator(4) if decades < 1 else LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, _: format_number(value)))
        axis.set_minor_formatter(NullFormatter())
    axes.legend(
        loc="upper left",
        fontsize=FONT - 0.5,
        frameon=False,
        handletextpad=0.2,
        borderpad=0,
        labelspacing=0.3,
    )
    _finish(axes, "published step (s)", "predicted step (s)")


def _draw_errors(axes: Axes, errors: NDArray[np.float64]) -> None:
    """Draw the share of runs over their error, up to the 99th percentile; mark 50% and 90%."""
    from matplotlib.ticker import PercentFormatter

    ordered = np.sort(errors)
    shares = np.arange(1, len(ordered) + 1) / len(ordered)
    most = max(1.1 * float(np.quantile(ordered, 0.99)), 1e-3)
    axes.step(
        np.append(0, ordered),
        np.append(0, shares),
        where="post",
        color=FAMILY_COLOURS[0][0],
        linewidth=1.2,
    )
    axes.set(xlim=(0, most), ylim=(0, 1.02))
    for share in (0.9, 0.5):
        error = float(ordered[np.searchsorted(shares, share - 1e-9)])
        axes.plot([0, error, error], [share, share, 0], color=MUTED, linewidth=0.5, linestyle=":")
        text = f"{share:.0%} of runs:\nwithin {format_share(error)}"
        inside = error < 0.6 * most
        where = (4 if inside else -4, -3 if inside else -6)
        look: dict[str, Any] = {"ha": "left" if inside else "right", "va": "top", "fontsize": FONT}
        look["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}
        axes.annotate(text, (error, share), where, textcoords="offset points", **look)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    _finish(axes, "error of the step", "share of runs")


def draw_spread(sampled: Sequence[Sampled], width: float) -> Figure:
    """Return a figure of the distributions of schedules' makespans, a row each.

    Marks show median, p95, p99, and the makespan without noise. All makespans have one unit.
    """
    from matplotlib.figure import Figure

    height = ABOVE + ROW * len(sampled) + BELOW + NOTE
    names = [shorten(each.name, LONGEST_NAME) for each in sampled]
    left = max(text_width(name, FONT) for name in names) / POINTS + 0.16
    figure = Figure(figsize=(width, height))
    box = (
        left / width,
        (BELOW + NOTE) / height,
        1 - (left + RIGHT) / width,
        ROW * len(sampled) / height,
    )
    axes = figure.add_axes(box)
    least = min(min(float(each.makespans.min()), each.without_noise) for each in sampled)
    most = max(float(np.quantile(each.makespans, 0.999)) for each in sampled)
    room = 0.03 * (most - least) or 0.01 * (most or 1.0)
    axes.set(xlim=(least - room, most + room), ylim=(len(sampled) - 0.9, -0.95))
    for row, each in enumerate(sampled):
        _draw_shape(axes, each, row, FAMILY_COLOURS[row % len(FAMILY_COLOURS)][0])
    axes.set_yticks(np.arange(len(sampled)) - 0.3, names, parse_math=False)
    unit = sampled[0].unit
    _finish(axes, f"makespan (units of ${unit}$)" if is_symbol(unit) else f"makespan ({unit})", "")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    note = (
        f"{len(sampled[0].makespans):,} samples; marks: half, 95% and 99% stay within; ring: "
        f"without noise"
    )
    figure.text(0.06 / width, 0.04 / height, note, fontsize=FONT - 1, color=MUTED)
    return figure


def _draw_shape(axes: Axes, sampled: Sampled, row: int, colour: str) -> None:
    """Draw one schedule's distribution on its row, at the same height for all, with its marks."""
    from ppsim.analysis.jitter import PERCENTILES

    first, last = axes.get_xlim()
    counts, edges = np.histogram(sampled.makespans, BINS, (first, last))
    reach = np.arange(-4 * SMOOTH, 4 * SMOOTH + 1)
    hill = np.convolve(counts, np.exp(-(reach**2) / (2 * SMOOTH**2)), "same")
    middle = (edges[:-1] + edges[1:]) / 2
    axes.fill_between(
        middle, row, row - 0.82 * hill / hill.max(), color=colour, alpha=0.75, linewidth=0
    )
    axes.axhline(row, color=MUTED, linewidth=0.4)
    for percent, size in zip(PERCENTILES, (0.2, 0.14, 0.1), strict=True):
        axes.vlines(
            sampled.percentile(percent),
            row - size,
            row + size / 2,
            color="black",
            linewidth=0.9,
            zorder=3,
        )
    ring: dict[str, Any] = {"facecolors": "white", "edgecolors": "black", "linewidths": 0.7}
    axes.scatter([sampled.without_noise], [row], s=12, zorder=4, clip_on=False, **ring)


def _finish(axes: Axes, across: str, upwards: str) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(which="both", length=2, width=0.4, labelsize=FONT)
    axes.set_xlabel(across, fontsize=FONT, parse_math=across.endswith("$)"))
    axes.set_ylabel(upwards, fontsize=FONT, parse_math=False)
