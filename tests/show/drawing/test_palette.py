"""Colours: kinds, chunks, messages and bubbles apart for every kind of colour vision, and numbers
that can be read.
"""

from itertools import combinations, pairwise

import pytest

from ppsim.ask.groups import FigureOptions
from ppsim.core.ops import Kind
from ppsim.show.drawing.memory_panel import MOST_LINES
from ppsim.show.drawing.palette import (
    BUBBLE,
    BUBBLE_DARK,
    CAUSE_DARK,
    CAUSE_FILL,
    COLLECTIVE,
    COLOURS,
    COMM_LANE,
    COPY_LANE,
    DEFAULT,
    ENCODER,
    MUTED,
    OUTCOME_COLOURS,
    PALETTES,
    PART_COLOURS,
    PROMISED,
    RAMP,
    TERM_COLOURS,
    TERMINAL_MUTED,
    VOCABULARY,
    XTERM,
    XTERM_CAUSES,
    XTERM_HEAT,
    luminance,
    ramp_colours,
    second_shade,
    text_colour,
    xterm_colour,
)
from tests.colours import VISIONS, difference, difference_of_lab, lab

TINTS = [tint for shades in COLOURS.values() for tint in shades[:2]]
SHARMA = [  # of the paper's own table of test data
    ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
    ((50, -1, 2), (50, 0, 0), 2.3669),
    ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
    ((50, 2.5, 0), (73, 25, -18), 27.1492),
    ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
]


def contrast(first, second):
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("first", "second", "known"), SHARMA)
def test_the_measure_is_that_of_the_paper(first, second, known):
    assert difference_of_lab(first, second) == pytest.approx(known, abs=1e-3)


def tints_of(name, which=slice(None)):
    return [tint for key in COLOURS for tint in PALETTES[name].tints[key][which]]


def lightness(colour):
    return 116 * luminance(colour) ** (1 / 3) - 16


def least_step(colours):
    return min(right - left for left, right in pairwise(sorted(map(lightness, colours))))


def closest(colours, vision):
    return min((difference(a, b, vision), a, b) for a, b in combinations(colours, 2))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("name", [name for name, promise in PROMISED.items() if promise.seen])
def test_kinds_chunks_messages_and_bubbles_are_apart(name, vision):
    """As promised: 12, or 10 with published colours, light page and dark, whatever cones the reader
    lacks.
    """
    for bubble in (BUBBLE, BUBBLE_DARK):
        worst = closest([*tints_of(name), COMM_LANE, COLLECTIVE, bubble], vision)
        assert worst[0] >= PROMISED[name].seen >= 10, worst


@pytest.mark.parametrize("name", [name for name, promise in PROMISED.items() if promise.in_grey])
def test_kinds_and_chunks_are_apart_in_grey(name):
    """As promised, and more within a chunk than a printer without colour needs; of a kind, the last
    chunk is lighter, as in the papers.
    """
    promise, chunks = PROMISED[name], [tints_of(name, slice(which, which + 1)) for which in (0, 1)]
    assert min(map(least_step, chunks)) >= promise.in_grey >= 8
    assert least_step([*chunks[0], *chunks[1]]) >= promise.chunks_in_grey >= 4.4
    steps = [lightness(last) - lightness(first) for first, last in zip(*chunks, strict=True)]
    assert min(steps) >= 9


def test_the_palettes_that_are_for_all_eyes_and_for_grey_say_so():
    """The help of --palette names those that a promise is kept for, and no other."""
    (words,) = (
        each.help for each in FigureOptions.__dataclass_fields__["palette"].metadata.values()
    )
    for part, which in (("for colour-blind readers", "seen"), ("for grey print", "in_grey")):
        named = words.split(part)[0].split(",")[-1].split(":")[-1]
        assert {*named.replace("and", " ").split()} == {
            n for n, p in PROMISED.items() if getattr(p, which)
        }


@pytest.mark.parametrize("vision", VISIONS)
def test_kinds_of_any_number_of_chunks_are_apart(vision):
    """CIEDE2000 of at least 9 between any tints of two kinds, of chunks between the first and the
    last too.
    """
    kinds = [DEFAULT.fill(kind) for kind in (Kind.F, Kind.B, Kind.I, Kind.W)]
    worst = min(
        difference(a, b, vision)
        for one, other in combinations(kinds, 2)
        for a in one
        for b in other
    )
    assert worst >= 9


@pytest.mark.parametrize("name", PALETTES)
def test_kinds_are_apart_in_the_colours_of_papers(name):
    worst = closest(tints_of(name, slice(1)), "normal")
    assert worst[0] >= 12, worst


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize(
    ("causes", "bubble"), [(CAUSE_FILL, BUBBLE), (CAUSE_DARK, BUBBLE_DARK)], ids=["light", "dark"]
)
def test_causes_are_apart_from_ops_messages_and_each_other(causes, bubble, vision):
    """CIEDE2000 of at least 8, whatever cones the reader lacks; the two of streams from copies and
    vocabulary too.
    """
    others = [*TINTS, COMM_LANE, COLLECTIVE, bubble]
    beside = [COPY_LANE, VOCABULARY[1][0]]
    assert (
        min(
            difference(causes[name], each, vision)
            for name in ("copy", "barrier")
            for each in beside
        )
        >= 8
    )
    worst = min(
        (difference(a, b, vision), a, b)
        for a in causes.values()
        for b in [*others, *causes.values()]
        if a != b
    )
    assert worst[0] >= 8, worst


@pytest.mark.parametrize("vision", VISIONS)
def test_encoders_are_apart_from_all_that_is_drawn_beside_them(vision):
    """CIEDE2000 of at least 9 from ops, lanes and bubbles, 5 from causes; numbers read on it."""
    own = ENCODER[1][0]
    others = [*TINTS, COMM_LANE, COLLECTIVE, COPY_LANE, VOCABULARY[1][0], BUBBLE, BUBBLE_DARK]
    assert min(difference(own, other, vision) for other in others) >= 9
    assert (
        min(
            difference(own, other, vision) for other in [*CAUSE_FILL.values(), *CAUSE_DARK.values()]
        )
        >= 5
    )
    assert min(contrast(own, bubble) for bubble in (BUBBLE, BUBBLE_DARK)) >= 2
    assert min(contrast(text_colour(fill), fill) for fill in ENCODER[1]) >= 4.5


@pytest.mark.parametrize("bubble", [BUBBLE, BUBBLE_DARK])
def test_no_cell_vanishes_in_the_bubble(bubble):
    """Contrast of at least 2 between idle time and every op."""
    assert min(contrast(tint, bubble) for tint in TINTS) >= 2


def shades_of(key):
    """Shades in a terminal: of the first chunk's even and odd microbatches, of the last's."""
    return [shade for tint in COLOURS[key] for shade in (tint, second_shade(tint))]


def test_numbers_read_on_every_fill():
    """Black or white on every tint, on all shades of a terminal, and on messages: contrast of at
    least 4.5.
    """
    fills = [*(shade for key in COLOURS for shade in shades_of(key)), COMM_LANE, COLLECTIVE]
    assert min(contrast(text_colour(fill), fill) for fill in fills) >= 4.5


@pytest.mark.parametrize("vision", VISIONS)
def test_the_shades_of_a_terminal_are_apart(vision):
    """CIEDE2000 of at least 8.9 between two kinds; each kind's shades are lighter from one to the
    next.
    """
    shown = {key: shades_of(key) for key in COLOURS}
    worst = min(
        (difference(a, b, vision), key, other)
        for key, other in combinations(shown, 2)
        for a in shown[key]
        for b in shown[other]
    )
    assert worst[0] >= 8.9, worst
    for shades in shown.values():
        assert min(b - a for a, b in pairwise(map(lightness, shades))) >= 2.4


def test_grey_texts_and_curves_read_on_their_pages():
    assert contrast(MUTED, "#ffffff") >= 4.5
    for ramp, page in zip(RAMP, ("#ffffff", "#12161c"), strict=True):
        assert min(contrast(colour, page) for colour in ramp_colours(ramp, MOST_LINES)) >= 3
    assert min(contrast(TERMINAL_MUTED, page) for page in ("#ffffff", "#000000")) >= 4.5


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
def test_curves_of_eight_devices_are_apart(page, vision):
    """CIEDE2000 of at least 5 between any two of eight lines, and lightness in the order of
    devices.
    """
    colours = ramp_colours(RAMP[page], MOST_LINES)
    assert closest(colours, vision)[0] >= 5
    assert [*map(lightness, colours)] == sorted(map(lightness, colours), reverse=bool(page))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("page", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    "colours",
    [TERM_COLOURS.values(), PART_COLOURS.values(), OUTCOME_COLOURS],
    ids=["step", "held", "funnel"],
)
def test_neighbours_in_bars_are_apart(colours, page, vision):
    """CIEDE2000 of at least 8 between any two of a bar's parts, of the funnel between those beside
    each other.
    """
    own = [pair[page] for pair in colours]
    pairs = pairwise(own) if colours is OUTCOME_COLOURS else combinations(own, 2)
    worst = min((difference(a, b, vision), a, b) for a, b in pairs)
    assert worst[0] >= 8, worst


@pytest.mark.parametrize("vision", VISIONS)
def test_kinds_are_apart_with_256_colours(vision):
    """CIEDE2000 of at least 13.4 between any two of F, B, I and W; 7 from what else a row has; a
    chunk is lighter.
    """
    assert XTERM.keys() == {*COLOURS, VOCABULARY[0], ENCODER[0]}
    shown = {key: [xterm_colour(n) for pair in pairs for n in pair] for key, pairs in XTERM.items()}
    apart = [
        (difference(a, b, vision), key, other)
        for key, other in combinations(shown, 2)
        for a in shown[key]
        for b in shown[other]
    ]
    assert min(each for each in apart if {*each[1:]} <= {*COLOURS})[0] >= 13.4
    assert min(apart)[0] >= 7
    for key in COLOURS:
        first, last = shown[key][:2], shown[key][2:]
        # of two microbatches
        assert min(difference(one, two, vision) for one, two in (first, last)) >= 2.9
        assert min(difference(a, b, vision) for a in first for b in last) >= 8.6
        assert max(map(lightness, first)) < min(map(lightness, last))


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("ground", [0, 1], ids=["light", "dark"])
def test_causes_are_apart_with_256_colours(ground, vision):
    """CIEDE2000 of at least 7.5 from each other, from F, B, I and W, and from the terminal."""
    assert XTERM_CAUSES.keys() == CAUSE_FILL.keys()
    causes = [xterm_colour(pair[ground]) for pair in XTERM_CAUSES.values()]
    ops = [xterm_colour(n) for key in COLOURS for pair in XTERM[key] for n in pair]
    others = [*ops, ("#FFFFFF", "#000000")[ground]]
    assert closest(causes, vision)[0] >= 7.5
    assert min(difference(cause, other, vision) for cause in causes for other in others) >= 7.5


def test_numbers_read_on_256_colours():
    """Black or white on every op and every cell of a heat map: contrast of at least 4.5."""
    fills = [n for pairs in XTERM.values() for pair in pairs for n in pair]
    assert (
        min(contrast(text_colour(fill), fill) for fill in map(xterm_colour, [*fills, *XTERM_HEAT]))
        >= 4.5
    )


@pytest.mark.parametrize("vision", VISIONS)
def test_the_heat_map_of_256_colours_darkens_step_by_step(vision):
    """Each step is darker than the one before by 10 of L* at least, and no other hue than blue."""
    ramp = [xterm_colour(n) for n in XTERM_HEAT]
    levels = [lab(colour, vision)[0] for colour in ramp]
    assert all(before - after >= 10 for before, after in pairwise(levels))
    assert all(int(c[5:7], 16) >= int(c[3:5], 16) >= int(c[1:3], 16) for c in ramp)


@pytest.mark.parametrize(
    ("number", "colour"), [(16, "#000000"), (20, "#0000D7"), (231, "#FFFFFF"), (244, "#808080")]
)
def test_xterm_numbers_are_its_colours(number, colour):
    """As rich has them too, whose table is that of xterm."""
    from rich.color import Color

    assert xterm_colour(number) == colour
    for each in range(16, 256):
        assert xterm_colour(each) == Color.from_ansi(each).get_truecolor().hex.upper()
