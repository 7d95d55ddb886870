"""Time against memory as a file: a picture or a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.analysis.tradeoff import Tradeoff
from ppsim.base.atomic_file import open_atomically
from ppsim.errors import InputError
from ppsim.files.document import formats


def check_suffix(suffix: str) -> None:
    """Refuse a format that does not draw time against memory.

    Raises:
        InputError: the suffix is neither a picture's nor a page's.
    """
    able = [name for name, module in formats().items() if hasattr(module, "write_tradeoff")]
    if suffix not in able:
        raise InputError(f"time against memory cannot be written as {suffix}", f"one of {' '.join(able)}")


def save_tradeoff(
    found: Tradeoff, target: str, suffix: str, *, time: str, memory: str, width: float, inputs: Mapping[str, Any]
) -> None:
    """Write the picture or the page to a file; see :func:`ppsim.drawing.tradeoff.draw_tradeoff` for the labels.

    Raises:
        InputError: the suffix is neither a picture's nor a page's, or the file cannot be written.
    """
    check_suffix(suffix)
    with open_atomically(target) as out:
        write: Any = formats()[suffix]
        write.write_tradeoff(found, out, suffix, time=time, memory=memory, width=width, inputs=inputs)
