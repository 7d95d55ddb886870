"""A figure of numbers as a file: a picture, or a page with the picture and a table."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ppsim.base.atomic_file import open_atomically
from ppsim.base.numbers import align_rows
from ppsim.show.drawing.canvas import write_figure
from ppsim.show.drawing.palette import TWINS
from ppsim.show.files.document import require_suffix
from ppsim.show.files.page_parts import fill_page, verdict_paragraph

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".html", ".png", ".svg", ".pdf")
WORDS = ' class="words"'
PHONE = 3.4  # width in inches of the picture for phones
MOST = 60_000  # letters of a picture, up to which a page has one for phones; a larger one scrolls


def check_chart(suffix: str, what: str) -> None:
    """Raise InputError if a format is neither a picture nor a page."""
    require_suffix(suffix, SUFFIXES, what, "; --json has the numbers")


def save_chart(
    draw: Callable[[float], Figure],
    width: float,
    target: str,
    suffix: str,
    *,
    title: str,
    sentences: str,
    inputs: Mapping[str, Any],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Sequence[str] = (),
) -> None:
    """Write a figure in its suffix's format; a page adds ``sentences`` above and a table below.

    Columns whose headings are in ``left`` contain words, and are left-aligned. A row of only two
    cells is a name and a remark.
    """
    with open_atomically(target) as out:
        if suffix != ".html":
            write_figure(partial(draw, width), out, suffix, title=title, inputs=inputs)
            return
        wide, narrow = _compact(svg_for_pages(partial(draw, width)), "w"), ""
        if len(wide) < MOST:
            narrow = _compact(svg_for_pages(partial(draw, min(width, PHONE))), "n")
            narrow = narrow.replace("<svg", '<svg class="phone"', 1)
        sides = [WORDS if heading in left else "" for heading in headings]
        page = fill_page(
            title,
            "chart",
            {"schema": "ppsim.chart/1", "inputs": dict(inputs)},
            "document.documentElement.dataset.state = 'drawn';",
            said=verdict_paragraph(sentences),
            picture=wide + narrow,
            head="".join(
                f'<th scope="col"{side}>{html.escape(name)}</th>'
                for name, side in zip(headings, sides, strict=True)
            ),
            body="\n".join(_row(row, sides) for row in align_rows(rows)),
            command=html.escape(str(inputs.get("command", ""))),
        )
        out.write(page)


def _compact(svg: str, prefix: str) -> str:
    """Return an SVG of about half the length: shared styles, short ids, hundredths, no blanks."""
    names = {
        name: f"{prefix}{n}"
        for n, name in enumerate(dict.fromkeys(re.findall(r'(?:"#|url\(#)([^")]+)', svg)))
    }
    looks: dict[str, str] = {}
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{names[m[1]]}"' if m[1] in names else "", svg)
    svg = re.sub(r'("#|url\(#)([^")]+)', lambda m: m[1] + names[m[2]], svg)
    svg = re.sub(r"\s*\n\s*", " ", re.sub(r">\s*\n\s*<", "><", svg))
    look = r'(<(?:use|path)\b[^>]*?) style="([^"]*)"'
    svg = re.sub(
        look, lambda m: f'{m[1]} class="{looks.setdefault(m[2], f"{prefix}{len(looks)}")}"', svg
    )
    svg = re.sub(r"<[^>]*>", lambda m: re.sub(r"(\.\d\d)\d+", r"\1", m[0]), svg)
    rules = "".join(f".{name}{{{look}}}" for look, name in looks.items())
    return svg.replace("</svg>", f"<style>{rules}</style></svg>")


def _row(cells: Sequence[str], sides: Sequence[str]) -> str:
    """Return a row of a table; if it has fewer cells than columns, the second is a remark."""
    first, *rest = map(html.escape, cells)
    if len(cells) == len(sides):
        sides = sides[1:]
    else:
        sides = [f'{WORDS} colspan="{len(sides) - 1}"']
        rest = [f'<span class="remark">{remark}</span>' for remark in rest]
    texts = [f"<td{side}>{cell}</td>" for side, cell in zip(sides, rest, strict=True)]
    return f'<tr><th scope="row">{first}</th>{"".join(texts)}</tr>'


def svg_for_pages(draw: Callable[[], Figure]) -> str:
    """Return a figure as SVG in the page's background, text and dark colours."""
    out = io.BytesIO()
    write_figure(draw, out, ".svg", title="", inputs={})
    svg = out.getvalue().decode()
    drawn = re.sub(
        r"<metadata>.*?</metadata>|<title>.*?</title>|<style>.*?</style>",
        "",
        svg[svg.index("<svg") :],
        flags=re.DOTALL,
    )
    twins = {light.lower(): dark for light, dark in TWINS.items()}
    drawn = drawn.replace("fill: #ffffff", "fill: var(--page)")
    return re.sub(
        r"#[0-9a-f]{6}",
        lambda c: f"light-dark({c[0]}, {twins[c[0]]})" if c[0] in twins else c[0],
        drawn,
    )
