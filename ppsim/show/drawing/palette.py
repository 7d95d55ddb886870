"""Colours and names shared by every picture: terminal, figure, page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle
from typing import Any

from ppsim.core.ops import TIMED, Kind, Stream

# By colour key of a kind (:class:`ppsim.core.ops.KindInfo`): the tints of a device's first and last
# chunk; the last is lighter, as in the papers, and other chunks lie between. A search found them by
# maximizing the distances in ``PROMISED``.
COLOURS = {
    "forward": ("#333B98", "#4C5ACA"),
    "backward": ("#759265", "#7CBD74"),
    "input": ("#156563", "#1F8A95"),
    "weights": ("#866E22", "#A29824"),
}
COMM_ARROW = "#8A2C59"
COMM_LANE = "#B9216B"
COLLECTIVE = "#7C2600"  # gathered parameters and reduced gradients, in the lane of messages
COPY_LANE = "#49474E"
# kinds other than F, B, I and W in a device's row
VOCABULARY = "vocabulary", ("#727254", "#727254")
ENCODER = "encoder", ("#FC72C6", "#FC72C6")
_TINTS = COLOURS | dict([VOCABULARY, ENCODER])
IN_ROW = tuple(kind for kind in TIMED if kind.info.stream == Stream.COMPUTE and kind.info.colour)
LEVELS = 8  # tints of a kind, from a device's first chunk to its last
# share of lines in a hatched cell, by which line and fill blend if lines would be too fine
HATCHED_SHARE = 0.35
BUBBLE = "#F1F3F6"
BUBBLE_DARK = "#0B0E12"  # the same on a dark page
# Outline of highlighted ops, on a light and on a dark page.
HIGHLIGHT = ("#D1242F", "#FF7B72")
Ramp = tuple[str, str, str]
# Curves of the first, the middle and the last device, light and dark: apart by lightness too.
RAMP: tuple[Ramp, Ramp] = (("#0B1B3F", "#3A6EA5", "#CC8400"), ("#F2F7FC", "#62A8E0", "#B86A00"))
# Idle time by cause (:data:`ppsim.analysis.idle.CAUSES`), on a light and on a dark page: pale for
# unavoidable causes, strong for avoidable ones. They are distinct from all ops and each other for
# every kind of colour vision.
CAUSE_FILL = {
    "host": "#8291FC",
    "message": "#EAC6A2",
    "compute": "#F04290",
    "order": "#5A1E47",
    "imbalance": "#9C5A5A",
    "collective": "#310033",
    "fill": "#C0BACC",
    "turnaround": "#E8D3F7",
    "drain": "#E0F8DB",
    "copy": "#0700ED",
    "barrier": "#2A2219",
    "feedback": "#666030",
    "optimizer": "#07090C",
}
CAUSE_DARK = {
    "host": "#9C604E",
    "message": "#BA968A",
    "compute": "#F496B7",
    "order": "#546684",
    "imbalance": "#6C085B",
    "collective": "#9F79E4",
    "fill": "#6C4848",
    "turnaround": "#4E3034",
    "drain": "#1D2638",
    "copy": "#B7CDDC",
    "barrier": "#DFF19E",
    "feedback": "#CDA8FF",
    "optimizer": "#CEFED9",
}
DIMMED = 0.22  # share of a colour over the bubble's, for ops that are not highlighted
# Families of schedules in charts of many points, on a light and on a dark page; their marks differ
# in shape as well.
FAMILY_COLOURS = (
    # nearly okabe-ito's first colour; that one is a cell's, and stays as it is on dark pages
    ("#0072B1", "#5FB3F0"),
    ("#C85200", "#FF9A4D"),
    ("#008F68", "#3CC79B"),
    ("#B3579A", "#E6A1CB"),
    ("#8F7200", "#E0C04A"),
    ("#4D4D4D", "#C8CED6"),
    ("#7B5CB8", "#B9A3EA"),
    ("#8C510A", "#D59A5B"),
)
MARKERS = "os^Dv"  # of figures; pages draw the same shapes


def family_look(number: int) -> tuple[tuple[str, str], int]:
    """Return the colours of the n-th family and the number of its mark's shape.

    No two of the first 40 families have both in common.
    """
    return FAMILY_COLOURS[number % len(FAMILY_COLOURS)], (
        number + number // len(FAMILY_COLOURS)
    ) % len(MARKERS)


# Parts of a plan's step and of its memory, in bars on a light and on a dark page.
TERM_COLOURS = {
    "compute": ("#124192", "#5F8FE8"),
    "recompute": ("#4A93A2", "#2F7F8F"),
    "communication": ("#B9437B", "#E27FB0"),
    "bubble": ("#CDD3DB", "#3D4754"),
    "gradients": ("#B98A00", "#E0C04A"),
    "optimizer": ("#5A1E0C", "#F4E3D0"),
}
PART_COLOURS = {
    "weights": ("#124192", "#5F8FE8"),
    "gradients": ("#B98A00", "#E0C04A"),
    "optimizer": ("#5A1E0C", "#F4E3D0"),
    "activations": ("#4A93A2", "#2F7F8F"),
    "work": ("#CDD3DB", "#3D4754"),
}
GROUP_COLOURS = {  # of ranks
    "tp": ("#234A97", "#5F8FE8"),
    "cp": ("#36BBDB", "#2F7F8F"),
    "ep": ("#2A9159", "#4CC38A"),
    "pp": ("#B4540A", "#E8A15C"),
    "dp": ("#D1242F", "#FF7B72"),
    "expert-dp": ("#7A4FA3", "#A899DB"),
}
OTHER_PARTS = (
    ("#9FD0D8", "#8FD3DF"),
    ("#CDD3DB", "#4C5867"),
    ("#B9437B", "#E27FB0"),
    ("#7C6BB0", "#A899DB"),
)
# Candidates for a plan by outcome, in the order of ``OUTCOMES`` in ``workload/plans/task.py``.
OUTCOME_COLOURS = (
    ("#C9CED6", "#4A5462"),
    ("#8C93A0", "#8A95A6"),
    ("#E5B5A6", "#7A4436"),
    ("#D88A6E", "#B8654A"),
    ("#B9C7E0", "#3C5078"),
    ("#8FA6D2", "#5B77B0"),
    ("#124192", "#8FB4FF"),
)
HEAT = ("#F2F7FC", "#1F5C99")  # the least and the most of a heat map
HEAT_DARK = ("#16202C", "#7FB2E5")  # the same on a dark page
# Numbers of xterm's 256 colours, by colour key: two shades of a device's first chunk, for even and
# odd microbatches, then two lighter ones of its last. They were chosen by hand, as the colours
# nearest to two kinds of a page may be the same. ``tests/show/drawing/test_palette.py`` checks
# their distances.
XTERM = {
    "forward": ((20, 19), (63, 62)),
    "backward": ((101, 144), (150, 151)),
    "input": ((23, 30), (37, 44)),
    "weights": ((94, 130), (172, 208)),
    "vocabulary": ((242, 246), (242, 246)),
    "encoder": ((213, 177), (213, 177)),
}
XTERM_HEAT = (231, 153, 110, 67, 25, 18)  # from the least to the most of a heat map
XTERM_CAUSES = {  # idle time by cause, on a light and on a dark terminal
    "host": (105, 242),
    "message": (220, 138),
    "compute": (198, 175),
    "order": (125, 68),
    "imbalance": (88, 53),
    "collective": (232, 147),
    "fill": (147, 60),
    "turnaround": (225, 52),
    "drain": (194, 236),
    "copy": (17, 254),
    "barrier": (235, 193),
    "feedback": (238, 225),
    "optimizer": (228, 158),
}
FEW_COLOURS, MANY_COLOURS = 256, 1 << 24  # of a terminal
MUTED = "#66707E"
PAGE, INK = "#ffffff", "#000000"
BLACK = "#000001"  # of numbers on fills; unlike other black text they stay black on dark pages
TERMINAL_MUTED = "#767676"  # contrast of 4.5 on both white and black


def part_colours(parts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the colours of the parts of a device's memory, on a light and a dark page."""
    others = cycle(OTHER_PARTS)
    return [PART_COLOURS.get(part.removesuffix(", chunk 0")) or next(others) for part in parts]


def channels(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue of ``#rrggbb``, 0 to 255 each."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def xterm_colour(number: int) -> str:
    """Return the ``#rrggbb`` of an xterm colour from 16 to 255: a cube of 6 x 6 x 6, then greys."""
    if number >= 232:
        return "#" + 3 * f"{8 + 10 * (number - 232):02X}"
    steps = (0, 95, 135, 175, 215, 255)
    cube = number - 16
    return "#" + "".join(f"{steps[place]:02X}" for place in (cube // 36, cube // 6 % 6, cube % 6))


def level_of(chunk: Any, last: int) -> Any:
    """Return the tint (0 to ``LEVELS`` - 1) of a chunk, or of an array of chunks.

    ``last`` is the devices' last chunk.
    """
    return (2 * chunk * (LEVELS - 1) + last) // max(1, 2 * last)


def blend(above: str, below: str, share: float) -> str:
    """Return the colour of ``share`` of ``above`` over ``below``, both ``#rrggbb``."""
    pairs = zip(channels(above), channels(below), strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02X}" for a, b in pairs)


def second_shade(fill: str) -> str:
    """Return the shade of every other microbatch in a terminal, so that neighbours stay apart."""
    return blend("#ffffff", fill, 0.1)


def ramp_colours(ramp: Ramp, count: int) -> list[str]:
    """Return ``count`` colours along a ramp: from its first over its middle to its last."""
    first, middle, last = ramp
    shares = [2 * place / max(1, count - 1) for place in range(count)]
    return [blend(middle, first, x) if x < 1 else blend(last, middle, x - 1) for x in shares]


def luminance(colour: str) -> float:
    """Return the relative luminance of ``#rrggbb`` by WCAG 2, 0 to 1."""
    parts = [channel / 255 for channel in channels(colour)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def text_colour(fill: str) -> str:
    """Return white or black, whichever is readable on ``fill`` (contrast at least 4.5)."""
    return "#ffffff" if 1.05 / (luminance(fill) + 0.05) >= 4.5 else BLACK


# Colours and their replacements on a dark page; cells, messages and points keep their colours.
TWINS = {
    **{
        PAGE: "#0d1117",
        INK: "#e6eaf0",
        "#444444": "#9aa6b5",
        MUTED: "#9aa6b5",
        COMM_ARROW: "#E58BB0",
    },
    **dict(FAMILY_COLOURS),
    **{
        BUBBLE: BUBBLE_DARK,
        HIGHLIGHT[0]: HIGHLIGHT[1],
        blend(RAMP[0][0], "#ffffff", 0.22): "#2C3540",
    },
    **{CAUSE_FILL[name]: dark for name, dark in CAUSE_DARK.items()},
    **{
        pair[0]: pair[1]
        for n in range(1, 9)
        for pair in zip(ramp_colours(RAMP[0], n), ramp_colours(RAMP[1], n), strict=True)
    },
}


@dataclass(frozen=True)
class Palette:
    """The colours of a chart."""

    name: str  # as users type it
    # by colour key of a kind, of the first and of the last chunk of a device
    tints: Mapping[str, tuple[str, str]]
    bubble: str = BUBBLE  # the fill of idle time on a light page
    bubble_dark: str = BUBBLE_DARK  # the same on a dark page
    bubble_hatch: str = ""  # the colour of lines across idle time; empty for none
    # by colour key, of lines across such cells
    hatches: Mapping[str, str] = field(default_factory=dict)
    ramp: Ramp = RAMP[0]  # of curves of memory: the first device's, the middle one's and the last's

    def fill(self, kind: Kind) -> tuple[str, ...]:
        """Return the tints of a kind, by level; idle time's for kinds outside the compute row."""
        first, last = self.tints.get(kind.info.colour) or (self.bubble,) * 2
        return tuple(blend(last, first, level / (LEVELS - 1)) for level in range(LEVELS))

    def hatch(self, kind: Kind) -> tuple[str, ...]:
        """Return the colours of hatching lines across a kind's cells, by level, empty for none."""
        fills, half = self.fill(kind), LEVELS // 2
        if kind.info.hatched:
            return (fills[-1],) * half + (fills[0],) * half
        return (self.hatches.get(kind.info.colour, ""),) * LEVELS

    @cached_property
    def colours(self) -> tuple[str, ...]:
        """The tints of every kind, by colour index."""
        return tuple(fill for kind in TIMED for fill in self.fill(kind))

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """The colours of lines across cells, by colour index."""
        return tuple(line for kind in TIMED for line in self.hatch(kind))


DEFAULT = Palette("default", _TINTS)
# Colours of papers to compare figures with, in the order of ``COLOURS``. A full backward of zb and
# an input gradient of megatron, which those papers do not draw, have intermediate colours.
OF_PAPERS = {
    "zb": "#397AF2 #9DBDF9  #1E8F98 #7FC4C9  #44D3DA #A6EAED  #C5E3D1 #E0F0E7",
    "megatron": "#305496 #B4C6E7  #375623 #A9D08E  #2F8F7F #9AD1C7  #D88C2B #F2CF9F",
    "dualpipe": "#F1B238 #F9DDA5  #7FD650 #C3ECAD  #A5DDB5 #D5F0DD  #75B8FB #BEDDFD",
    "torch": "#0000FF #7F7FFF  #FFA500 #FFD280  #008080 #66B2B2  #008000 #7FBF7F",
    "okabe-ito": "#0072B2 #00449B  #009E73 #A2CBB6  #56B4E9 #013543  #E69F00 #F7EFA0",
    "mono": "#303030 #494949  #636363 #7F7F7F  #9B9B9B #B9B9B9  #D7D7D7 #F3F3F3",
}


@dataclass(frozen=True)
class Promise:
    """Least distances between tints of F, B, I and W; ``test_palette.py`` checks them."""

    # CIEDE2000 between any two, messages and bubbles, for every kind of colour vision
    seen: float = 0.0
    # difference of lightness L* between any two of the first chunk, and of the last
    in_grey: float = 0.0
    chunks_in_grey: float = 0.0  # the same between any two of both chunks


# Palettes for every kind of colour vision, or for print in grey, as the help of ``--palette`` says.
PROMISED = {
    "default": Promise(seen=11.2, in_grey=8.8, chunks_in_grey=4.4),
    "okabe-ito": Promise(seen=10),
    "mono": Promise(in_grey=20, chunks_in_grey=9.5),
}
BUBBLES = {"megatron": "#E7E6E6", "okabe-ito": BUBBLE}  # elsewhere white
MONO_OTHERS = {"vocabulary": "#707070", "encoder": "#D0D0D0"}
MONO_HATCHES = {"encoder": "#8F8F8F"}
GREY_RAMP = ("#1A1A1A", "#5C5C5C", "#9A9A9A")
HATCHED_BUBBLE = "#B8B8B8"


def _paper_palette(name: str) -> Palette:
    fills = OF_PAPERS[name].split()
    tints = dict(zip(COLOURS, zip(fills[::2], fills[1::2], strict=True), strict=True))
    tints |= {
        key: (MONO_OTHERS[key],) * 2 if name == "mono" else own
        for key, own in (VOCABULARY, ENCODER)
    }
    lines = HATCHED_BUBBLE if name == "mono" else ""
    return Palette(
        name,
        tints,
        bubble=BUBBLES.get(name, "#FFFFFF"),
        bubble_hatch=lines,
        hatches=MONO_HATCHES if name == "mono" else {},
        ramp=GREY_RAMP if name == "mono" else DEFAULT.ramp,
    )


PALETTES = {"default": DEFAULT, **{name: _paper_palette(name) for name in OF_PAPERS}}
