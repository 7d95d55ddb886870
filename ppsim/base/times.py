"""Units of time: how many microseconds each lasts, and how a file states one beside a scale."""

from __future__ import annotations

import re

MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
UNKNOWN = 1000.0  # microseconds that stand for one unit without a length, such as t_F
_SCALED = re.compile(r"(.*?)(?: / ([0-9]{1,18}))?", re.DOTALL)


def microseconds(unit: str) -> float:
    """Microseconds that a trace draws one unit as: its length, or a millisecond where it has
    none.
    """
    return MICROSECONDS.get(unit, UNKNOWN)


def scaled_unit(unit: str, scale: int) -> str:
    """The unit of times multiplied by a whole ``scale``, as :func:`parse_scaled_unit` reads it:
    ``ms / 10``.
    """
    return f"{unit} / {scale}" if scale != 1 or parse_scaled_unit(unit) != (unit, 1) else unit


def parse_scaled_unit(text: str) -> tuple[str, int]:
    """Unit and scale of a text that :func:`scaled_unit` wrote; a scale of 0 counts as part of the
    unit.
    """
    found = _SCALED.fullmatch(text)
    assert found is not None  # the pattern takes any text
    scale = int(found[2] or 1)
    return (found[1], scale) if scale else (text, 1)
