"""Colours and names shared by every picture: terminal, figure, page."""

from __future__ import annotations

from ppsim.core.ops import COMPUTE

# By colour key of a kind (:class:`ppsim.core.ops.KindInfo`): the first and second tint, for even and odd chunks of a
# device, and the terminal's second shade of the first, for every other microbatch, so that neighbours of one kind stay
# apart. `tests/drawing/test_palette.py` holds the tints, messages and bubbles apart for every kind of colour vision.
COLOURS = {
    "forward": ("#124192", "#5F6DBD", "#2A5AB0"),
    "backward": ("#116948", "#8BB587", "#2A8562"),
    "input": ("#4A93A2", "#1FBCDF", "#66ACB9"),
    "weights": ("#906D01", "#CEA93A", "#A9841F"),
}
FILL = {kind: COLOURS[kind.info.colour][:2] for kind in COMPUTE}
# Kinds drawn hatched have lines of their other tint; where those would be too fine, both tints blend.
HATCH = {kind: FILL[kind][::-1] for kind in COMPUTE if kind.info.hatched}
HATCHED_SHARE = 0.35
SHADE = {kind: COLOURS[kind.info.colour][2] for kind in COMPUTE}
BUBBLE = "#F1F3F6"
BUBBLE_DARK = "#0B0E12"  # the same on a dark page
HIGHLIGHT = ("#D1242F", "#FF7B72")  # what the reader picked out, on a light and on a dark page
RAMP = (("#08306B", "#2F79B0"), ("#DEEBF7", "#4292C6"))  # curves of the first to the last device, light and dark
COMM_ARROW = "#8A2C59"
COMM_LANE = "#B9437B"
COLLECTIVE = "#873512"  # gathered parameters and reduced gradients, in the same lane
# Idle time by cause (:data:`ppsim.analysis.idle.CAUSES`), told apart from all ops, and from each other in grey: greys
# where a schedule has to wait, warm colours where it need not.
CAUSE_FILL = {
    "host": "#8A4B2A",
    "message": "#F2913A",
    "compute": "#E37A93",
    "order": "#A06FC4",
    "imbalance": "#C9304E",
    "collective": "#5E2750",
    "fill": "#DCD6E2",
    "turnaround": "#C6BCCF",
    "drain": "#F1EEF4",
}
# The same on a dark page, where the greys of what has to be must not glare.
CAUSE_DARK = CAUSE_FILL | {"collective": "#8E4A7E", "fill": "#3B3646", "turnaround": "#575066", "drain": "#2A2A35"}
MUTED = "#66707E"
TERMINAL_MUTED = "#767676"  # contrast of 4.5 on white and on black, whichever the terminal has


def blend(above: str, below: str, share: float) -> str:
    """The colour of ``share`` of ``above`` over ``below``, both ``#rrggbb``."""
    pairs = [(int(above[i : i + 2], 16), int(below[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02X}" for a, b in pairs)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` as WCAG 2 defines it, 0 to 1."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def text_colour(fill: str) -> str:
    """White or black, whichever reads on ``fill`` (contrast at least 4.5)."""
    return "#ffffff" if 1.05 / (luminance(fill) + 0.05) >= 4.5 else "#000000"
