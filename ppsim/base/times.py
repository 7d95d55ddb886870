"""Units of time: their length in microseconds, and the unit of scaled times in a file."""

from __future__ import annotations

import re

MICROSECONDS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
UNKNOWN = 1000.0  # microseconds that stand for one unit without a length, such as t_F
_SCALED = re.compile(r"(.*?)(?: / ([0-9]{1,18}))?", re.DOTALL)


def microseconds(unit: str) -> float:
    """Return the length of a unit in a trace, in microseconds; 1000 for units without one."""
    return MICROSECONDS.get(unit, UNKNOWN)


def scaled_unit(unit: str, scale: int) -> str:
    """Return the unit of times multiplied by an integer ``scale``, such as ``ms / 10``;
    :func:`parse_scaled_unit` reads it.
    """
    return f"{unit} / {scale}" if scale != 1 or parse_scaled_unit(unit) != (unit, 1) else unit


def parse_scaled_unit(text: str) -> tuple[str, int]:
    """Return unit and scale of a text from :func:`scaled_unit`; 0 is not a scale."""
    found = _SCALED.fullmatch(text)
    assert found is not None  # the pattern matches any text
    scale = int(found[2] or 1)
    return (found[1], scale) if scale else (text, 1)
