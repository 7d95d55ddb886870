"""Model descriptions in TOML: one table ``[model]`` whose keys are the fields of :class:`ppsim.model.Model`."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from ppsim.errors import InputError
from ppsim.model import ATTENTION, BYTES_OF, RECOMPUTE, Model

EXAMPLE = "[model] with hidden = 4096, heads = 32, layers = 32, seq = 4096, vocab = 32000"
_WORDS = {"dtype": tuple(BYTES_OF), "attention": ATTENTION, "recompute": RECOMPUTE}
_SWITCHES = ("sequence_parallel", "keep_outputs")
_LEAST = {"zero": 0, "vocab": 0, "gradient_bytes": 0, "optimizer_bytes": 0}


def read_model(path: str) -> Model:
    """The model that a TOML file describes.

    Raises:
        InputError: the file cannot be read, is not TOML, or has an unknown, missing or impossible entry; the
            message names the line.
    """
    try:
        text = Path(path).read_text("utf-8")
        document = tomllib.loads(text)
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"'{path}' is not TOML: {error}", EXAMPLE) from error
    table = document.get("model")
    if not isinstance(table, dict):
        raise InputError(f"'{path}' has no table [model]", EXAMPLE)
    known = {f.name: f.default for f in fields(Model)}
    for key in [*(key for key in document if key != "model"), *(key for key in table if key not in known)]:
        close = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"one of {', '.join(known)}"
        raise InputError(f"{_where(path, text, key)}: unknown entry '{key}'", hint)
    if missing := [key for key, default in known.items() if default is MISSING and key not in table]:
        raise InputError(f"'{path}' does not say {', '.join(missing)} of the model", EXAMPLE)
    try:
        return Model(**{key: _checked(key, value) for key, value in table.items()})
    except _Refused as refusal:
        key, wanted = refusal.args
        raise InputError(f"{_where(path, text, key)}: {key} = {table[key]!r} must be {wanted}") from None


class _Refused(Exception):
    """The key of a value that cannot be, and what it must be."""


def _checked(key: str, value: Any) -> Any:
    if key in _WORDS:
        if value not in _WORDS[key]:
            raise _Refused(key, f"one of {', '.join(_WORDS[key])}")
    elif key in _SWITCHES:
        if not isinstance(value, bool):
            raise _Refused(key, "true or false")
    elif key == "layers" and isinstance(value, list):
        if not value or not all(type(n) is int and n >= 0 for n in value):
            raise _Refused(key, "whole numbers, one per stage")
        return tuple(value)
    elif type(value) is not int or value < _LEAST.get(key, 1) or (key == "zero" and value > 3):
        raise _Refused(key, "0, 1, 2 or 3" if key == "zero" else f"a whole number, {_LEAST.get(key, 1)} or more")
    return value


def _where(path: str, text: str, key: str) -> str:
    pattern = re.compile(rf"""^\s*(?:\[\s*)?["']?{re.escape(key)}\b""")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if pattern.match(line)]
    return f"{path}, line {lines[0]}" if lines else path
