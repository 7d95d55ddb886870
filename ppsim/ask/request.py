"""Make requests from values of Python and JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import click

from ppsim.ask.given import TypedOptions
from ppsim.ask.options import Option, Request, list_options, make
from ppsim.ask.rules import check_given
from ppsim.ask.types import OptionalValue
from ppsim.base.text import guess_of
from ppsim.errors import InputError

R = TypeVar("R", bound=Request)


def ask(kind: type[R], values: Mapping[str, Any], *, check: bool = True) -> R:
    """Return a request with values of Python or JSON, by name or long spelling of the option.

    With ``check``, options without effect are refused, as on the command line.

    Raises:
        InputError: no option has a name, or an option cannot have its value.
    """
    found = {
        declared.name: read_value(declared, value) for declared, value in find_options(kind, values)
    }
    request = make(kind, found, found)
    if check:
        check_given(TypedOptions.from_request(request))
        request.check()
    return request


def find_options(kind: type[Request], values: Mapping[str, Any]) -> list[tuple[Option, Any]]:
    """Return the option of each value that is not None, with the value.

    Raises:
        InputError: no option has a name, or two names are of one option.
    """
    options = list_options(kind)
    known = {word: each for each in options for word in each.words}
    for word in values:
        if word not in known:
            names, guess = ", ".join(sorted(each.name for each in options)), guess_of(word, known)
            raise InputError(
                f"there is no option '{word}'{guess and '.' + guess}", f"one of {names}"
            )
    found: dict[str, tuple[str, Any]] = {}
    for word, value in values.items():
        if value is None:
            continue
        name = known[word].name
        if name in found:
            raise InputError(
                f"'{found[name][0]}' and '{word}' are one option", "leave one of them out"
            )
        found[name] = word, value
    return [(known[word], value) for word, value in found.values()]


def read_value(declared: Option, value: Any) -> Any:
    """Return the value of an option, converted from a text or an object.

    Raises:
        InputError: the option cannot have the value.
    """
    if declared.many:
        parts = value if isinstance(value, list | tuple) else (value,)
        return tuple(_read_one(declared, part) for part in parts)
    return _read_one(declared, value)


def _read_one(declared: Option, value: Any) -> Any:
    """Return one value of an option, converted from a text or an object."""
    if declared.is_object:
        if f"{type(value).__module__}.{type(value).__qualname__}" != declared.type:
            raise InputError(
                f"{declared.name}: not a {declared.type}: {value!r}", "Costs.of(F=1, B=2)"
            )
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str) and "\0" in value:  # which no path has
        raise InputError(f"{declared.name}: {value!r} has a NUL character", "leave it out")
    if isinstance(value, bool) != (declared.type is bool) and not isinstance(
        declared.type, OptionalValue
    ):
        expected = "true or false" if declared.type is bool else "a value"
        raise InputError(f"{declared.name}: not {expected}: {value!r}")
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    if isinstance(value, range):
        value = list(value)
    kind = click.types.convert_type(declared.type)
    try:
        if (
            isinstance(kind, click.types.IntParamType)
            and not isinstance(value, str)
            and value != int(value)
        ):
            raise ValueError
        return kind.convert(value, None, None)
    except click.ClickException as error:
        raise InputError(f"{declared.name}: {error.message}") from None
    except (TypeError, ValueError):
        raise InputError(f"{declared.name}: not a {kind.name}: {value!r}") from None
