"""Patterns of plain data, such as decoded JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

LARGEST = 1 << 63


def matches(value: Any, pattern: Any) -> bool:
    """Return whether a value matches a pattern.

    A pattern is a type of plain data (``float`` is any finite number, ``int`` an integer of 63
    bits); a tuple of patterns, of which one must match; a list with the pattern of each entry; or a
    mapping with the pattern of each name of an object. Names that end in ``?`` may be missing.
    """
    if isinstance(pattern, tuple):
        return any(matches(value, each) for each in pattern)
    if isinstance(pattern, list):
        return isinstance(value, list) and all(matches(each, pattern[0]) for each in value)
    if isinstance(pattern, Mapping):
        return isinstance(value, Mapping) and _has_names(value, pattern)
    if pattern is int or type(value) is int:
        return pattern in (int, float) and type(value) is int and -LARGEST < value < LARGEST
    return type(value) is pattern and (pattern is not float or math.isfinite(value))


def _has_names(value: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    found = 0
    for name, each in pattern.items():
        plain = name.removesuffix("?")
        if plain in value:
            found += 1
            if not matches(value[plain], each):
                return False
        elif plain == name:
            return False
    return found == len(value)
