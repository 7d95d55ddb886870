"""Time against memory as a file: a picture or a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.atomic_file import opened
from ppsim.errors import InputError

SUFFIXES = (".png", ".svg", ".pdf", ".html")


def check_suffix(suffix: str) -> None:
    """Refuse a format that is neither a picture nor a page.

    Raises:
        InputError: the suffix is neither a picture's nor a page's.
    """
    if suffix not in SUFFIXES:
        raise InputError(f"time against memory cannot be written as {suffix}", f"one of {' '.join(SUFFIXES)}")


def save_tradeoff(
    found: Tradeoff, target: str, suffix: str, *, time: str, memory: str, width: float, inputs: Mapping[str, Any]
) -> None:
    """Write the picture or the page to a file; see :func:`ppsim.drawing.tradeoff.draw_tradeoff` for the labels.

    Raises:
        InputError: the suffix is neither a picture's nor a page's, or the file cannot be written.
    """
    check_suffix(suffix)
    if suffix == ".html":
        from ppsim.drawing.tradeoff_page import write_page

        with opened(target) as out:
            write_page(found, out, time=time, memory=memory, inputs=inputs)
        return
    from ppsim.drawing.canvas import write_figure
    from ppsim.drawing.tradeoff import figure_of

    with opened(target) as out:
        write_figure(
            lambda: figure_of(found, time, memory, width), out, suffix, title=f"{time} against {memory}", inputs=inputs
        )
