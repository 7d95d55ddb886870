"""Write JSON fast, including strings and integers that orjson rejects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ppsim.base.text import replace_surrogates

LARGEST = 2**64  # orjson rejects integers from here on


def dump_json(value: object, *, end: bytes = b"") -> bytes:
    """Return JSON, with numpy arrays as lists, infinities and NaN as null, lone surrogates as
    U+FFFD.

    Raises:
        TypeError: a value cannot be written as JSON.
    """
    import orjson

    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        text = orjson.dumps(_json_value(value), option=orjson.OPT_SERIALIZE_NUMPY)
    return text + end


def with_verdict(value: Mapping[str, Any], verdict: str) -> dict[str, Any]:
    """Return an answer's object with the verdict after its schema; unchanged without a verdict."""
    if not verdict:
        return dict(value)
    schema = {"schema": value["schema"]} if "schema" in value else {}
    return {**schema, "verdict": verdict, **{k: v for k, v in value.items() if k != "schema"}}


def _json_value(value: object) -> Any:
    """Return a value with its strings and integers in forms that orjson accepts."""
    import orjson

    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, Mapping):
        return {_json_value(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if isinstance(value, int) and not -LARGEST // 2 <= value < LARGEST:
        return orjson.Fragment(str(value).encode())
    return value
