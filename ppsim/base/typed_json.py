"""Decode JSON into declared types; errors have the place in the file."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from ppsim.base.text import shorten
from ppsim.base.unpack.json_objects import check_objects, repeated_key
from ppsim.errors import InputError

T = TypeVar("T")
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "array": "a list",
    "object": "an object",
    "null": "nothing",
    "bool": "true or false",
}


def decode(
    text: str | msgspec.Raw,
    kind: type[T],
    source: str,
    hint: str,
    keys: frozenset[str] | None = frozenset(),
) -> T:
    """Return JSON decoded as a value of a type.

    Args:
        text: the JSON.
        kind: the type, such as a :class:`msgspec.Struct`; undeclared keys are skipped.
        source: the file, for messages.
        hint: a suggestion.
        keys: keys that must not occur twice in an object; None for all keys.

    Raises:
        InputError: the text is incomplete or not JSON, too large, nested too deeply, of another
            type, or an object has a key twice.
    """
    if isinstance(text, str):
        check_objects(text, source, hint)
    try:
        value = msgspec.json.decode(text, type=kind)
        is_checked = isinstance(text, str) and (keys is None or keys)
        if is_checked and (twice := repeated_key(str(text), keys)):
            raise InputError(
                f"{source}: an object has '{shorten(twice)}' twice", "leave one of them out"
            )
    except RecursionError:
        raise InputError(f"{source} is JSON nested too deeply", hint) from None
    except msgspec.ValidationError as error:
        raise InputError(f"{source}{_explain(str(error))}", hint) from None
    except msgspec.DecodeError as error:
        why = str(error).removeprefix("JSON is malformed: ")
        raise InputError(f"{source} is not whole or not JSON: {why}", hint) from None
    return value


def check_type(value: object, kind: type[object], source: str, hint: str) -> None:
    """Check the type of decoded JSON like :func:`decode`; undeclared keys may have any value.

    Raises:
        InputError: the value has another type.
    """
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}{_explain(str(error))}", hint) from None


def _explain(message: str) -> str:
    """Return msgspec's message, ``Expected `int`, got `str` - at `$.ops.stage[3]```, in words."""
    what, _, path = message.partition(" - at `")
    place = (
        path.rstrip("`").removeprefix("$").removeprefix(".").removeprefix("[...]").removeprefix(".")
    )

    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f": {'.'.join(filter(None, (place, missing[1])))} is missing"

    def words_for(found: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(word, f"'{word}'") for word in found[1].split(" | "))

    words = re.sub(r"`([^`]*)`", words_for, what)
    words = words[:1].lower() + words[1:]
    return f": {place}: {words}" if place else f": {words}"
