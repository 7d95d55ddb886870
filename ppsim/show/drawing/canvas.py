"""Figures as files: matplotlib settings, fonts, and metadata."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from itertools import product
from threading import Lock
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from ppsim.base.text import one_line
from ppsim.show.drawing.palette import INK, PAGE, TWINS
from ppsim.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# matplotlib's files of DejaVu Sans under a name that no installed font has, so that the layout is
# the same on all machines.
FAMILY = "ppsim Sans"
FILES = (
    ("DejaVuSans.ttf", "normal", 400),
    ("DejaVuSans-Bold.ttf", "normal", 700),
    ("DejaVuSans-Oblique.ttf", "oblique", 400),
)
# Fonts for the reader of an svg: DejaVu Sans, or others as wide.
READERS = b"'DejaVu Sans', 'Verdana', 'Bitstream Vera Sans', sans-serif"
# Text as text in pdf and svg, and the same ids in every run.
SETTINGS: dict[str, Any] = {
    "font.family": [FAMILY],
    "mathtext.fontset": "custom",
    **dict.fromkeys(("mathtext.rm", "mathtext.sf", "mathtext.tt", "mathtext.cal"), FAMILY),
    **dict.fromkeys(("mathtext.it", "mathtext.bfit"), f"{FAMILY}:oblique"),
    "mathtext.bf": f"{FAMILY}:bold",
    "mathtext.fallback": "None",
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "ppsim",
}
# Fonts of other scripts that systems come with, for characters that DejaVu Sans lacks.
OTHER_SCRIPTS = (
    *(
        "Noto Sans CJK SC",
        "Noto Sans CJK JP",
        "Noto Sans SC",
        "PingFang SC",
        "Hiragino Sans GB",
        "Microsoft YaHei",
    ),
    *("Yu Gothic", "Malgun Gothic", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Arial Unicode MS"),
    *(
        "Noto Sans Arabic",
        "Noto Sans Hebrew",
        "Noto Sans Devanagari",
        "Noto Sans Thai",
        "Noto Sans Symbols",
    ),
    *("Noto Sans Symbols 2", "Noto Emoji", "Segoe UI Symbol", "Segoe UI Emoji"),
)
AS_TEXT = (".svg", ".tex")  # formats whose text is drawn in the reader's fonts
MOST_NAMED = 5  # characters in a warning
SHADED = "shaded"  # the id of a figure of shades, such as a heat map
MISSING = re.compile(r"Glyph (\d+) .*missing from")
# matplotlib's settings belong to the process, not to a thread.
_settings = Lock()

DOTS = 300
POINT = DOTS / 72


class MissingGlyph(UserWarning):
    """No font of this machine has some characters of a text; the picture shows boxes."""


def write_figure(
    draw: Callable[[], Figure],
    out: IO[bytes],
    suffix: str,
    *,
    title: str,
    inputs: Mapping[str, Any],
) -> None:
    """Draw a figure with ppsim's settings and write it, with ``inputs`` in its metadata."""
    # matplotlib seeks while it writes a pdf, and ``out`` may be a pipe.
    drawn = BytesIO()
    with figure_settings(suffix):
        draw().savefig(
            drawn, format=suffix[1:], dpi=DOTS, metadata=_metadata(title, inputs, suffix)
        )
    out.write(_for_readers(drawn.getvalue()) if suffix == ".svg" else drawn.getvalue())


def _for_readers(svg: bytes) -> bytes:
    """Return an svg with the reader's fonts, and with dark colours for a dark screen."""
    rules = [f"text:not([style*=fill]){{fill:{TWINS[INK]}}}"]
    for (light, dark), of in product(TWINS.items(), ("fill", "stroke")):
        if f"{of}: {light.lower()}".encode() in svg:
            kept = ":not(text)" * (light == PAGE)  # white numbers on cells
            rules.append(f'[style*="{of}: {light.lower()}"]{kept}{{{of}:{dark}!important}}')
    if f'<g id="{SHADED}">'.encode() in svg:  # its shades have no dark twins: invert them all
        rules = [f"#{SHADED}>:not(#patch_1){{filter:invert(0.94) hue-rotate(180deg)}}"]
        rules.append(f"#patch_1 *{{fill:{TWINS[PAGE]}!important}}")
    style = (
        f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}</style>\n "
        f"</defs>"
    )
    return _DRAWN_WITH.sub(rb"\1" + READERS, svg).replace(b"</defs>", style.encode(), 1)


# The font family of a text, and of a letter of a formula, which matplotlib names by its file.
_DRAWN_WITH = re.compile(
    rb"(<(?:text|tspan) [^<>]*)'(?:" + FAMILY.encode() + rb"|DejaVu Sans)'(?=[;\"])"
)


def render(draw: Callable[[], Figure], dots: int) -> tuple[Figure, NDArray[np.uint8]]:
    """Return a figure drawn with ppsim's settings, and its pixels at ``dots`` per inch.

    The pixels have shape (height, width, 3).
    """
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with figure_settings(".png"):
        figure = draw()
        figure.set_dpi(dots)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return figure, np.asarray(canvas.buffer_rgba())[..., :3].copy()


@contextmanager
def figure_settings(suffix: str) -> Iterator[None]:
    """Context in which matplotlib has ppsim's settings; warns about characters without a glyph."""
    matplotlib = load_matplotlib()
    with _settings, matplotlib.rc_context(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _add_family()
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        if suffix not in AS_TEXT:
            matplotlib.rcParams["font.family"] = [FAMILY, *_other_scripts()]
        yield
    found = [(MISSING.match(str(each.message)), each) for each in caught]
    signs = sorted({chr(int(match[1])) for match, _ in found if match} - {"\n"})
    for match, each in found:
        if not match:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if signs and suffix not in AS_TEXT:
        many = f" and {len(signs) - MOST_NAMED} more" if len(signs) > MOST_NAMED else ""
        named = " ".join(f"{sign} (U+{ord(sign):04X})" for sign in signs[:MOST_NAMED])
        warnings.warn(
            f"no font of this machine has {named}{many}: boxes in the picture; an svg keeps the "
            f"text as text",
            MissingGlyph,
            stacklevel=3,
        )


def load_matplotlib() -> ModuleType:
    """Import matplotlib, even if ``MPLBACKEND`` names a backend that is not installed.

    ppsim's figures need no backend.
    """
    named = os.environ.pop("MPLBACKEND", None) if "matplotlib" not in sys.modules else None
    try:
        import matplotlib
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = named
    loaded: ModuleType = matplotlib
    return loaded


def _add_family() -> None:
    """Register matplotlib's files of DejaVu Sans under the name ``FAMILY``."""
    from matplotlib import get_data_path
    from matplotlib.font_manager import FontEntry, fontManager

    if any(entry.name == FAMILY for entry in fontManager.ttflist):
        return
    folder = os.path.join(get_data_path(), "fonts", "ttf")
    for file, style, weight in FILES:
        look: dict[str, Any] = {
            "name": FAMILY,
            "style": style,
            "weight": weight,
            "size": "scalable",
        }
        fontManager.ttflist.append(FontEntry(os.path.join(folder, file), **look))


def _other_scripts() -> list[str]:
    """Return the installed fonts among ``OTHER_SCRIPTS``."""
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return [name for name in OTHER_SCRIPTS if name in installed]


def _metadata(title: str, inputs: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """Return a file's metadata, without a date, so that equal inputs give equal bytes."""
    given, maker = json.dumps(dict(inputs)), f"ppsim {VERSION}"
    by_suffix: dict[str, dict[str, Any]] = {
        ".png": {"Software": maker, "ppsim": given},
        ".svg": {"Creator": maker, "Date": None, "Description": given},
        ".pdf": {"Creator": maker, "CreationDate": None, "Subject": given},
    }
    return {"Title": one_line(title), **by_suffix[suffix]}
