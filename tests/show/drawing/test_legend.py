"""One rule for legends: terminal, figure and page name the same things by the same words."""

import io
import re
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from ppsim.ask import terminal
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate
from ppsim.show.drawing.gantt.figure import plot
from ppsim.show.drawing.legend import BY_CHUNK, legend_entries
from ppsim.show.drawing.palette import (
    DEFAULT,
    FEW_COLOURS,
    MANY_COLOURS,
    PALETTES,
    TERMINAL_MUTED,
    luminance,
)
from ppsim.show.drawing.terminal import gantt
from ppsim.show.files.document import Document
from ppsim.show.files.writers.html import contents
from tests.cases import timed

SHAPES: dict[str, dict[str, Any]] = {
    "gpipe": {"devices": 2, "microbatches": 2},
    "gpipe on one device": {"devices": 1, "microbatches": 2},
    "zb-1p": {"devices": 2, "microbatches": 4},
    "interleaved": {"devices": 2, "microbatches": 4},
    "interleaved of three": {"devices": 2, "microbatches": 4, "chunks": 3},
    "dualpipe": {"devices": 4, "microbatches": 8},
    "dualpipe-v": {"devices": 4, "microbatches": 8},
}
NAMES = {
    "gpipe": ["Forward", "Backward", "Bubble"],
    "gpipe on one device": ["Forward", "Backward"],
    "zb-1p": ["Forward", "Backward for input", "Backward for weights", "Bubble"],
    "interleaved": ["Forward", "Backward", "1st, 2nd chunk", "Bubble"],
    "interleaved of three": ["Forward", "Backward", "First to last chunk", "Bubble"],
}
ALL = ["Forward", "Backward (full)", "Backward for input", "Backward for weights", "Overlapped F&B"]
TWO = (("dualpipe", "replica"), ("dualpipe-v", "chunk"))
NAMES |= {name: [*ALL, f"1st, 2nd {what}", "Bubble"] for name, what in TWO}


def printed(timeline, colours):
    out = io.StringIO()
    Console(file=out, width=400).print(gantt(timeline, measure(timeline), 400, colours))
    return out.getvalue().splitlines()[-1].lower()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES)
def test_terminal_figure_and_page_have_the_same_legend(shape):
    schedule = generate(shape.split()[0], **SHAPES[shape])
    timeline = simulate(schedule, costs_for(schedule))
    names = [entry.name for entry in legend_entries([timeline])]
    assert names == NAMES[shape]
    said = [entry["name"] for entry in contents(Document((timeline,), ("a",)))["legend"]]
    # pages can also show causes
    assert [name for name in said if not name.startswith("Idle: ")] == names
    drawn = [text.get_text() for text in plot(timeline).texts]
    assert [name for name in drawn if name in names] == names
    for colours in (0, FEW_COLOURS, MANY_COLOURS):
        line = printed(timeline, colours)
        places = [line.index(name.lower()) for name in names]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("system", "colours", "letters"),
    [
        ("standard", True, True),
        ("256", True, False),
        ("truecolor", True, False),
        (None, False, True),
    ],
)
def test_sixteen_colours_are_too_few_for_shades(monkeypatch, system, colours, letters):
    """There letters tell the ops apart, each kind on a colour of its own: F on blue, B on green."""
    timeline = timed("1f1b", 2, 4)
    out = io.StringIO()
    screen = Console(
        file=out, width=100, color_system=system, force_terminal=True, legacy_windows=False
    )
    monkeypatch.setattr(terminal, "console", lambda *_: screen)
    terminal.print_gantt(timeline, measure(timeline))
    text = out.getvalue()
    assert ("\x1b[" in text) == colours
    assert ("F0" in text) == letters
    if system == "standard":
        assert re.search(r"\x1b\[97;44mF0", text)
        assert re.search(r"\x1b\[30;42mB0", text)


def test_grey_text_reads_on_light_and_on_dark_terminals():
    """A contrast of 4.5, as WCAG asks for, on white and on black."""
    grey = luminance(TERMINAL_MUTED)
    assert 1.05 / (grey + 0.05) >= 4.5
    assert (grey + 0.05) / 0.05 >= 4.5


@pytest.mark.parametrize(("chunks", "levels"), [(2, (0, 7)), (3, (0, 4, 7)), (4, (0, 2, 5, 7))])
@pytest.mark.parametrize("palette", [DEFAULT, PALETTES["mono"]])
def test_figures_and_pages_show_the_tint_of_each_chunk_of_each_kind(chunks, levels, palette):
    timeline = timed("interleaved-zb", 4, 8, chunks=chunks)
    entries = {each.name: each for each in legend_entries([timeline], palette=palette)}
    kinds = {"Forward": Kind.F, "Backward for input": Kind.I, "Backward for weights": Kind.W}
    for name, kind in kinds.items():
        assert entries[name].colours == tuple(palette.fill(kind)[level] for level in levels)
    key = entries["1st, 2nd chunk" if chunks == 2 else BY_CHUNK]
    assert key.colours == entries["Forward"].colours
    assert entries["Bubble"].colours == (palette.bubble,)


def test_a_box_has_the_colours_of_its_kinds():
    entries = legend_entries([timed("dualpipe", 4, 8)])
    for entry in entries:
        if len(entry.kinds) == 1:
            assert entry.colours == (
                DEFAULT.fill(entry.kinds[0])[0],
                DEFAULT.fill(entry.kinds[0])[-1],
            )
        else:
            assert entry.colours[: len(entry.kinds)] == tuple(
                DEFAULT.fill(kind)[0] for kind in entry.kinds
            )


@pytest.mark.parametrize("colours", [0, 16, FEW_COLOURS, MANY_COLOURS])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_a_terminal_has_a_box_for_each_kind_and_chunk(chunks, colours):
    """In the style of that chunk's cells; where there are few colours, with their letter."""
    name = "1f1b" if chunks == 1 else "interleaved"
    timeline = timed(name, 2, 4, **({"chunks": chunks} if chunks > 1 else {}))
    lines = gantt(timeline, measure(timeline), 400, colours).renderables
    *rows, legend = [line for line in lines if isinstance(line, Text)]
    cells = [row for row in rows if row.plain.startswith("dev")]
    drawn = {
        (segment.style, "".join(char for char in segment.text if char.isalpha()))
        for row in cells
        for segment in row.render(Console(width=400))
        if segment.style and segment.style.bgcolor
    }
    boxes = [
        (segment.style, segment.text.strip())
        for segment in legend.render(Console(width=400))
        if segment.style and segment.style.bgcolor
    ]
    if not colours:
        wanted = "F forward  B backward" if chunks == 1 else "Ff forward  Bb backward"
        assert wanted in legend.plain
        return
    tints = {1: 1, 2: 2, 3: 3 if colours == MANY_COLOURS else 2}[chunks]
    assert len({*boxes}) >= 2 * tints
    if colours == 16:
        assert {text for _, text in boxes} == ({*"FB"} if chunks == 1 else {*"FfBb"})
    else:
        assert {style.bgcolor for style, _ in boxes} <= {style.bgcolor for style, _ in drawn}
