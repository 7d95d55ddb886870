"""Figures as files: the settings that all share, and the metadata in each."""

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

# matplotlib's files of DejaVu Sans under a name that no font of a machine has: all machines lay
# out alike.
FAMILY = "ppsim Sans"
FILES = (
    ("DejaVuSans.ttf", "normal", 400),
    ("DejaVuSans-Bold.ttf", "normal", 700),
    ("DejaVuSans-Oblique.ttf", "oblique", 400),
)
# What a reader's machine has of that font, and those as wide.
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
# Those of other scripts that systems come with, for signs that the font above lacks.
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
AS_TEXT = (".svg", ".tex")  # formats whose text stays text, for the reader's fonts
MOST_NAMED = 5  # signs in a warning
SHADED = "shaded"  # the id of a figure of shades
MISSING = re.compile(r"Glyph (\d+) .*missing from")
# matplotlib's settings belong to the process, not to a thread.
_settings = Lock()

DOTS = 300
POINT = DOTS / 72


class MissingGlyph(UserWarning):
    """Signs of a text are in no font of this machine, and boxes in a picture."""


def write_figure(
    draw: Callable[[], Figure],
    out: IO[bytes],
    suffix: str,
    *,
    title: str,
    inputs: Mapping[str, Any],
) -> None:
    """Draw a figure under the settings of all figures and write it, with its inputs in the
    metadata.
    """
    # A pdf is written with seeks, which a pipe cannot do.
    drawn = BytesIO()
    with figure_settings(suffix):
        draw().savefig(
            drawn, format=suffix[1:], dpi=DOTS, metadata=_metadata(title, inputs, suffix)
        )
    out.write(_for_readers(drawn.getvalue()) if suffix == ".svg" else drawn.getvalue())


def _for_readers(svg: bytes) -> bytes:
    """Name readers' fonts; let a dark page turn page, ink and pale colours; prints stay light."""
    rules = [f"text:not([style*=fill]){{fill:{TWINS[INK]}}}"]
    for (light, dark), of in product(TWINS.items(), ("fill", "stroke")):
        if f"{of}: {light.lower()}".encode() in svg:
            kept = ":not(text)" * (light == PAGE)  # white numbers on cells
            rules.append(f'[style*="{of}: {light.lower()}"]{kept}{{{of}:{dark}!important}}')
    if f'<g id="{SHADED}">'.encode() in svg:  # whose shades are no twins, and turn as a whole
        rules = [f"#{SHADED}>:not(#patch_1){{filter:invert(0.94) hue-rotate(180deg)}}"]
        rules.append(f"#patch_1 *{{fill:{TWINS[PAGE]}!important}}")
    style = (
        f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}}}</style>\n "
        f"</defs>"
    )
    return _DRAWN_WITH.sub(rb"\1" + READERS, svg).replace(b"</defs>", style.encode(), 1)


# The family of a text, and that of a letter of a formula, which matplotlib names by its file.
_DRAWN_WITH = re.compile(
    rb"(<(?:text|tspan) [^<>]*)'(?:" + FAMILY.encode() + rb"|DejaVu Sans)'(?=[;\"])"
)


def render(draw: Callable[[], Figure], dots: int) -> tuple[Figure, NDArray[np.uint8]]:
    """Draw a figure under the settings of all figures into pixels, shape (height, width, 3),
    ``dots`` to the inch.
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
    """Draw with the settings of all figures, whatever the process has set, and warn about
    characters without a glyph.
    """
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
    """Import matplotlib, with the backend that ``MPLBACKEND`` names where that is installed.

    No figure needs it.
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
    """Let matplotlib find its files of DejaVu Sans under the name that no other font has."""
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
    """Return installed fonts for characters that matplotlib's font lacks."""
    from matplotlib.font_manager import fontManager

    installed = {entry.name for entry in fontManager.ttflist}
    return [name for name in OTHER_SCRIPTS if name in installed]


def _metadata(title: str, inputs: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """Return the file's metadata, without a date, so that equal inputs give equal bytes."""
    given, maker = json.dumps(dict(inputs)), f"ppsim {VERSION}"
    by_suffix: dict[str, dict[str, Any]] = {
        ".png": {"Software": maker, "ppsim": given},
        ".svg": {"Creator": maker, "Date": None, "Description": given},
        ".pdf": {"Creator": maker, "CreationDate": None, "Subject": given},
    }
    return {"Title": one_line(title), **by_suffix[suffix]}
