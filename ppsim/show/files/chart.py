"""A figure of numbers as a file: a picture, or a page of the picture and the same as a table."""

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
from ppsim.show.drawing.palette import FAMILY_COLOURS, TWINS
from ppsim.show.files.document import require_suffix
from ppsim.show.files.page_parts import fill_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUFFIXES = (".html", ".png", ".svg", ".pdf")
PHONE = 3.4  # inches of a picture of its own for phones
MOST = 60_000  # letters of one that a page has twice; a larger one slides


def check_chart(suffix: str, what: str) -> None:
    """Refuse a format that is neither a picture nor a page; raises InputError."""
    require_suffix(suffix, SUFFIXES, what, "; --json has the numbers")


def save_chart(
    draw: Callable[[float], Figure],
    width: float,
    target: str,
    suffix: str,
    *,
    title: str,
    said: str,
    inputs: Mapping[str, Any],
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
) -> None:
    """Write a figure of a width by its suffix; a page has what is ``said`` above it and the table below."""
    with open_atomically(target) as out:
        if suffix != ".html":
            write_figure(partial(draw, width), out, suffix, title=title, inputs=inputs)
            return
        wide, narrow = _for_a_page(draw, width), ""
        if len(wide) < MOST:
            narrow = re.sub(r'( id="|"#|url\(#)', r"\1phone-", _for_a_page(draw, min(width, PHONE)))
            narrow = narrow.replace("<svg", '<svg class="phone"', 1)
        page = fill_page(
            title,
            "chart",
            {"schema": "ppsim.chart/1", "inputs": dict(inputs)},
            "document.documentElement.dataset.state = 'drawn';",
            said=html.escape(said),
            picture=wide + narrow,
            head="".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in headings),
            body="\n".join(map(_row, align_rows(rows))),
            command=html.escape(str(inputs.get("command", ""))),
        )
        out.write(page)


def _for_a_page(draw: Callable[[float], Figure], width: float) -> str:
    picture = io.BytesIO()
    write_figure(partial(draw, width), picture, ".svg", title="", inputs={})
    return for_both_themes(picture.getvalue().decode())


def _row(cells: Sequence[str]) -> str:
    first, *rest = map(html.escape, cells)
    return f'<tr><th scope="row">{first}</th>' + "".join(f"<td>{cell}</td>" for cell in rest) + "</tr>"


def for_both_themes(svg: str) -> str:
    """Make an svg take the page's background and text, and each colour's twin on a dark page."""
    drawn = re.sub(
        r"<metadata>.*?</metadata>|<title>.*?</title>|<style>.*?</style>", "", svg[svg.index("<svg") :], flags=re.DOTALL
    )
    twins = {light.lower(): dark for light, dark in (*FAMILY_COLOURS, *TWINS.items())}
    drawn = drawn.replace("fill: #ffffff", "fill: var(--page)")
    return re.sub(r"#[0-9a-f]{6}", lambda c: f"light-dark({c[0]}, {twins[c[0]]})" if c[0] in twins else c[0], drawn)
