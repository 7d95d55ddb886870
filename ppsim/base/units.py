"""Parse and write sizes in bytes: 80GiB, 512MiB, 40GB."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from ppsim.base.numbers import format_column, format_number
from ppsim.base.text import shorten
from ppsim.errors import InputError

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", 1)},
}
LARGEST = 1 << 63
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_size(text: str) -> tuple[int, bool]:
    """Return a size as an integer (rounded down), and whether it has a unit (``80GiB``, not ``6``).

    Raises:
        InputError: the text is not a size, or it is 2^63 or more.
    """
    match = re.fullmatch(
        r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]{1,9})?)\s*([a-z]*)\s*", text, re.IGNORECASE | re.ASCII
    )
    if not match or match[2].lower() not in _FACTORS:
        raise InputError(
            f"not a size: '{shorten(text)}'; expected e.g. 80GiB",
            "a number and a unit, such as 80GiB, 512MiB or 40GB",
        )
    number, factor = Decimal(match[1]), _FACTORS[match[2].lower()]
    if number >= LARGEST or (size := int(Fraction(number) * factor)) >= LARGEST:
        raise InputError(
            f"'{shorten(text)}' is larger than any size can be", f"less than {LARGEST:,}"
        )
    return size, match[2] != ""


def binary_unit(value: float) -> tuple[str, int]:
    """Return name and bytes of the largest binary unit that is not larger than ``value``."""
    power = min(max(0, int(value).bit_length() - 1) // 10, len(_BINARY) - 1)
    return _BINARY[power], 1024**power


def size_of_unit(unit: str) -> int:
    """Return the number of bytes in a binary unit; 1 for other units."""
    return 1024 ** _BINARY.index(unit) if unit in _BINARY else 1


def format_size(value: float, unit: str = "B") -> str:
    """Return bytes with a suitable binary unit, or a number of another ``unit`` without it."""
    if unit != "B":
        return format_number(value)
    name, size = binary_unit(value)
    return f"{format_number(value / size)} {name}"


def format_sizes(values: Sequence[float]) -> tuple[str, list[str]]:
    """Return the binary unit of the largest of several sizes, and all sizes in that unit."""
    name, size = binary_unit(max(map(abs, values), default=0.0))
    return name, format_column([value / size for value in values])


def format_held(value: float, unit: str) -> str:
    """Return an amount of memory: bytes with a binary unit, or a count."""
    if unit in _BINARY[1:]:
        return f"{format_number(value)} {unit}"
    return format_size(value) if unit == "B" else format_number(value)
