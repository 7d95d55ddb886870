"""Sizes in bytes as people write them: 80GiB, 512MiB, 40GB."""

from __future__ import annotations

import re

from ppsim.errors import InputError

_FACTORS = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 1000**power for power, prefix in enumerate("kmgtp", 1)},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgtp", 1)},
}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def parse_size(text: str) -> tuple[int, bool]:
    """The whole number a size stands for, and whether it names bytes (``80GiB``) or is bare (``6``).

    Raises:
        InputError: not a size.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?(?:e[0-9]+)?)\s*([a-z]*)\s*", text, re.IGNORECASE)
    if not match or match[2].lower() not in _FACTORS:
        raise InputError(f"'{text}' is not a size", "a number and a unit, such as 80GiB, 512MiB or 40GB")
    return round(float(match[1]) * _FACTORS[match[2].lower()]), match[2] != ""


def binary_unit(value: float) -> tuple[str, int]:
    """The largest binary unit of bytes that is no larger than ``value``: its name and its bytes."""
    power = min(max(0, int(value).bit_length() - 1) // 10, len(_BINARY) - 1)
    return _BINARY[power], 1024**power


def format_size(value: float, unit: str = "B") -> str:
    """``value`` with its unit: bytes in the binary unit that fits, anything else as it is."""
    if unit != "B":
        return f"{value:g}"
    name, size = binary_unit(value)
    return f"{value / size:.4g} {name}"
