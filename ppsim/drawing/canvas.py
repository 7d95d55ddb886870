"""Figures as files: the settings that all share, and the metadata in each."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

from ppsim.base.text import one_line
from ppsim.drawing.gantt_layout import DOTS
from ppsim.version import VERSION

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Fonts that papers and browsers have, text as text in pdf and svg, and the same ids in every run.
SETTINGS = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Helvetica", "Arial", "Liberation Sans", "DejaVu Sans"],
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "ppsim",
}
# matplotlib's settings belong to the process, not to a thread.
_settings = Lock()


def write_figure(
    draw: Callable[[], Figure], out: IO[bytes], suffix: str, *, title: str, inputs: Mapping[str, Any]
) -> None:
    """Draw a figure under the settings of all figures and write it, with its inputs in the metadata."""
    # A pdf is written with seeks, which a pipe cannot do.
    drawn = BytesIO()
    with _settled():
        draw().savefig(drawn, format=suffix[1:], dpi=DOTS, metadata=_metadata(title, inputs, suffix))
    out.write(drawn.getvalue())


def render(draw: Callable[[], Figure], dots: int) -> tuple[Figure, NDArray[np.uint8]]:
    """Draw a figure under the settings of all figures into pixels, shape (height, width, 3), ``dots`` to the inch."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with _settled():
        figure = draw()
        figure.set_dpi(dots)
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        return figure, np.asarray(canvas.buffer_rgba())[..., :3].copy()


@contextmanager
def _settled() -> Iterator[None]:
    """Draw with the settings of all figures, whatever the process has set."""
    import matplotlib

    with _settings, matplotlib.rc_context(), warnings.catch_warnings():
        # A sign that no font here has is drawn as a box; the text itself is in svg and in every file's metadata.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def _metadata(title: str, inputs: Mapping[str, Any], suffix: str) -> dict[str, Any]:
    """The file's metadata; without a date, so that equal inputs give equal bytes."""
    given, maker = json.dumps(dict(inputs)), f"ppsim {VERSION}"
    by_suffix: dict[str, dict[str, Any]] = {
        ".png": {"Software": maker, "ppsim": given},
        ".svg": {"Creator": maker, "Date": None, "Description": given},
        ".pdf": {"Creator": maker, "CreationDate": None, "Subject": given},
    }
    return {"Title": one_line(title), **by_suffix[suffix]}
