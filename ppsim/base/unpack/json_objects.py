"""Decode JSON, after a check that its objects do not take too much memory."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from ppsim.base.unpack.limits import OBJECTS, size_limit, too_large
from ppsim.errors import InputError

# Upper bounds on the bytes in memory of JSON values that CPython and msgspec make.
_VALUE, _STRING, _ARRAY, _OBJECT = 32, 64, 88, 100
# A string, with the colon after it if it is a key; or the start or end of an object.
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"\s*+(:)?|[{}]', re.DOTALL)
_MOST_PER_CHARACTER = 1 + _VALUE + _OBJECT


def check_objects(text: str, name: str, hint: str = "") -> None:
    """Raise InputError for JSON whose objects would take too much memory."""
    most = OBJECTS * size_limit()
    if len(text) * _MOST_PER_CHARACTER > most and (size := objects_size(text)) > most:
        error = too_large(f"{name}, in memory,", most, size, OBJECTS)
        error.hint = f"{hint}; {error.hint}" if hint else error.hint
        raise error


def objects_size(text: str) -> int:
    """Return an upper bound on the bytes in memory of the values of a JSON text."""
    keys = text.count('":') - text.count('\\":')
    strings = (text.count('"') - text.count('\\"')) // 2 - keys
    arrays, objects = text.count("["), text.count("{")
    values = text.count(",") + arrays + objects
    parts = _VALUE * values + _STRING * max(strings, 0) + _ARRAY * arrays + _OBJECT * objects
    return parts + len(text)


def decode_object(text: str | bytes | msgspec.Raw, kind: Any = Any) -> Any:
    """Return decoded JSON, which must be short or part of a text that passed :func:`check_objects`.

    Raises:
        ValueError: the text is not JSON, has another type, or is nested too deeply.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def decode_row(line: str) -> dict[str, Any]:
    """Return the object of a line of JSON (ValueError: it is not one, or has a key twice)."""
    found: dict[str, Any] = decode_object(line, dict[str, Any])
    # each key has a colon after it, so that most lines need no second look
    if line.count(":") != len(found) and (twice := repeated_key(line)):
        raise ValueError(f"an object has '{twice}' twice")
    return found


def find_object(text: str) -> Any:
    """Return decoded JSON of any length; None if it is not JSON, or takes too much memory."""
    try:
        check_objects(text, "")
        return decode_object(text)
    except (InputError, ValueError):
        return None


def repeated_key(text: str, keys: frozenset[str] | None = None) -> str:
    """Return a key that occurs twice in an object of valid JSON, one of ``keys`` unless that is
    None; empty if none does.
    """
    # the keys so far of the object at hand, and of those around it
    seen, outer = set[str](), list[set[str]]()
    for token in _TOKEN.finditer(text):
        string, colon = token.groups()
        if string is None:
            if token[0] == "{":
                outer.append(seen)
                seen = set()
            else:
                seen = outer.pop()
        elif colon:
            key = json.loads(f'"{string}"') if "\\" in string else string
            if key in seen:
                return str(key)
            if keys is None or key in keys:
                seen.add(key)
    return ""
