"""Read and write frozen dataclasses as TOML files; errors have the line.

A field of type str, bool, int or float is a key, a tuple of such values an array; a dataclass is a
``[table]``; a tuple of dataclasses is a repeated ``[[table]]``; a field with a default may be
missing. Arrays and bool can be read, not written. A dataclass rejects a value by raising
:class:`RefusedValue` in its ``__post_init__``.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote, shorten
from ppsim.errors import InputError

T = TypeVar("T")
Place = tuple[str | int, ...]
LARGEST_BYTES = 4 << 20
LARGEST = {bool: 1, int: (1 << 63) - 1, float: 10**300}
CACHED = 8  # number of parsed files in the cache
MOST_PARTS = 16  # of a dotted key, as tomllib's time and memory grow with their square
WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number"}
_STRING = re.compile(r"""'[^'\n]*+'|"(?:[^"\\\n]|\\.)*+"|#.*""")
_SEPARATOR = re.compile(r"[,=\[\]{}]")


class RefusedValue(ValueError):
    """A value that a dataclass rejects.

    Attributes:
        key: the field.
        why: the rule that it breaks.
    """

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key} {why}")
        self.key, self.why = key, why


def require_one_of(key: str, value: str, allowed: Iterable[str]) -> None:
    """Raise RefusedValue unless a value is one of those allowed."""
    if value not in allowed:
        raise RefusedValue(key, f"must be one of {', '.join(allowed)}, got {value!r}")


def not_negative(row: object, *keys: str) -> None:
    """Raise RefusedValue if a field is below zero."""
    for key in keys:
        if getattr(row, key) < 0:
            raise RefusedValue(key, f"must be 0 or more, got {getattr(row, key):g}")


def check_range(row: object, least: int, most: int, *keys: str) -> None:
    """Raise RefusedValue if a field is below ``least`` or above ``most``."""
    for key in keys:
        if not least <= getattr(row, key) <= most:
            raise RefusedValue(
                key, f"must be {least} or more and {most} at most, got {getattr(row, key)}"
            )


def read(path: str, cls: type[T], schema: str, example: str = "as ppsim calibrate writes it") -> T:
    """Return the dataclass in a TOML file with this ``schema``.

    Raises:
        InputError: the file is missing, empty, not text, not TOML, of another schema, or has a key
            that is unknown, missing or of a wrong type; the message names the line.
    """
    hint = f'a file with schema = "{schema}", {example}'
    text = read_text(path, hint, largest=LARGEST_BYTES)
    return typing.cast(T, _parsed(text, name_of(path), cls, schema, hint))


def _parse(text: str, path: str, cls: type[Any], schema: str, hint: str) -> Any:
    """Return the dataclass in a text."""
    if not text.strip():
        raise InputError(f"'{path}' is empty", hint)
    data = _loads(text, path, hint)
    lines = _lines(text)
    found = data.pop("schema", None)
    if found != schema:
        what = "no schema" if found is None else f"schema {quote(found)}"
        raise InputError(
            f"'{path}', line {lines.get(('schema',), 1)}: {what}, expected {schema!r}", hint
        )
    return _build(cls, data, (), _Source(path, lines))


# cached, as a command reads the same file several times
_parsed: Callable[..., Any] = lru_cache(maxsize=CACHED)(_parse)


@cache
def list_installed(folder: Path) -> Mapping[str, Path]:
    """Return the TOML files of a folder of the library by name, in the order of the names."""
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def read_installed(path: Path, cls: type[T], schema: str) -> T:
    """Return the dataclass in a file of the installed package, cached."""
    return typing.cast(T, _read_once(str(path), cls, schema))


_read_once: Callable[..., Any] = cache(read)


def _loads(text: str, path: str, hint: str) -> dict[str, Any]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.count(".") >= MOST_PARTS and _dots_of_longest_key(line) >= MOST_PARTS:
            raise InputError(
                f"'{path}', line {number}: a key of more than {MOST_PARTS} parts", hint
            )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(f"'{path}' is TOML nested too deeply", hint) from None
    except ValueError as error:  # from tomllib, or from Python for a number with too many digits
        why = shorten(str(error))
        raise InputError(
            f"'{path}' is not whole or not TOML: {why}", "fix that line, or make the file again"
        ) from error


def _dots_of_longest_key(line: str) -> int:
    """Return the largest number of dots in a dotted key of a line, outside strings and comments."""
    return max(part.count(".") for part in _SEPARATOR.split(_STRING.sub("s", line)))


def dump(value: Any, schema: str) -> str:
    """Return a dataclass as TOML, with numbers of six digits."""
    return "\n".join([f'schema = "{schema}"', *_dump(value, "")]) + "\n"


@dataclasses.dataclass(frozen=True)
class _Source:
    path: str
    lines: Mapping[Place, int]

    def fault(self, place: Place, message: str, hint: str = "") -> InputError:
        while place and place not in self.lines:
            place = place[:-1]
        return InputError(f"'{self.path}', line {self.lines.get(place, 1)}: {message}", hint)


@cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _build(cls: Any, data: Mapping[str, Any], place: Place, source: _Source) -> Any:
    hints = _hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    where = f" in {_title(place)}" if place else ""
    for key in data:
        if key not in fields:
            close = difflib.get_close_matches(key[:99], fields, n=1)
            guess = f"did you mean '{close[0]}'?" if close else f"keys here: {', '.join(fields)}"
            raise source.fault((*place, key), f"unknown key '{shorten(key)}'{where}", guess)
    for name, field in fields.items():
        optional = (
            field.default is not dataclasses.MISSING
            or field.default_factory is not dataclasses.MISSING
        )
        if name not in data and not optional:
            raise source.fault(
                place, f"'{name}' is missing{where}", f"every {_title(place)} needs it"
            )
    values = {name: _value(hints[name], data[name], (*place, name), source) for name in data}
    try:
        return cls(**values)
    except RefusedValue as refused:
        raise source.fault(
            (*place, refused.key), f"'{refused.key}'{where} {shorten(refused.why, 500)}"
        ) from refused


def _value(hint: Any, value: Any, place: Place, source: _Source) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [a for a in typing.get_args(hint) if a is not types.NoneType]
        hint = next(
            (a for a in kinds if (typing.get_origin(a) is tuple) == isinstance(value, list)),
            kinds[0],
        )
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        if not dataclasses.is_dataclass(item):
            if not isinstance(value, list):
                raise source.fault(place, f"'{place[-1]}' must be an array, got {quote(value)}")
            return tuple(_value(item, v, place, source) for v in value)
        if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
            raise source.fault(place, f"'{place[-1]}' must be tables, [[{place[-1]}]]")
        return tuple(_build(item, v, (*place, i), source) for i, v in enumerate(value))
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise source.fault(place, f"'{place[-1]}' must be a table, [{place[-1]}]")
        return _build(hint, value, place, source)
    accepted = (int, float) if hint is float else (hint,)
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise source.fault(place, f"'{place[-1]}' must be {WORDS[hint]}, got {quote(value)}")
    if hint is float and isinstance(value, float) and not math.isfinite(value):
        raise source.fault(place, f"'{place[-1]}' must be finite, got {value!r}")
    if isinstance(value, int) and abs(value) > LARGEST[hint]:
        raise source.fault(
            place, f"'{place[-1]}' must be {LARGEST[hint]:g} at most, got {quote(value)}"
        )
    return hint(value)


def _lines(text: str) -> dict[Place, int]:
    """Return the line of every table and key, such as ``("op", 1, "kind")``."""
    lines: dict[Place, int] = {}
    table: Place = ()
    repeats = Counter[Place]()
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*(\[\[?)\s*([\w.-]+)\s*\]", line):
            names: Place = tuple(head[2].split("."))
            table = (*names, repeats[names]) if head[1] == "[[" else names
            repeats[names] += head[1] == "[["
            lines[table] = number
            lines.setdefault(names, number)
        elif key := re.match(r"\s*\"?([\w-]+)\"?\s*=", line):
            lines.setdefault((*table, key[1]), number)
    return lines


def _title(place: Place) -> str:
    if not place:
        return "file"
    return f"[[{place[-2]}]]" if isinstance(place[-1], int) else f"[{place[-1]}]"


def _dump(value: Any, table: str) -> Iterator[str]:
    rows = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    for name, row in rows.items():
        if not isinstance(row, tuple) and row is not None and not dataclasses.is_dataclass(row):
            yield f"{name} = {_scalar(row)}"
    for name, row in rows.items():
        inner = f"{table}{name}"
        if isinstance(row, tuple):
            for item in row:
                yield from ("", f"[[{inner}]]", *_dump(item, f"{inner}."))
        elif dataclasses.is_dataclass(row):
            yield from ("", f"[{inner}]", *_dump(row, f"{inner}."))


def _scalar(value: str | int | float) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"{value:.6g}" if isinstance(value, float) else str(value)
