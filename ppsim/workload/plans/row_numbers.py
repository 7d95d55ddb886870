"""Numbers in rows of published runs, which people write in many ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ppsim.base.numbers import plain_float
from ppsim.base.text import shorten
from ppsim.workload.model.parallel import MOST

Row = Mapping[str, Any]
MISSING = ("", "-", "?", "n/a", "na", "none", "null", "unknown", "not stated", "not published")


class SkippedRow(Exception):
    """A row cannot be predicted; the message is the reason."""


def number_of(row: Row, key: str) -> float | None:
    """Return a positive number of a row, which may be written as text; None for anything else."""
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = plain_float(re.sub(r"(?<=\d),(?=\d{3}(\D|$))", "", value))  # 1,024
        except ValueError:
            return None
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e15
    return float(value) if good and isinstance(value, (int, float)) else None


def count_of(row: Row, key: str, default: int) -> int:
    """Return a positive whole number of a row, or ``default`` for null, 0 or a text such as "n/a".

    Raises:
        SkippedRow: the value is anything else.
    """
    value = row.get(key)
    if (
        value in (None, 0)
        or value is False
        or (isinstance(value, str) and value.strip().lower() in MISSING)
    ):
        return default
    number = number_of(row, key)
    if number is None or not 1 <= number <= MOST or number != int(number):
        raise SkippedRow(f"{key} {shorten(repr(value))} is not a whole number of 1 to {MOST}")
    return int(number)
