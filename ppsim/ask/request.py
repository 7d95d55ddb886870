"""Make requests from values of Python and JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TypeVar

import click

from ppsim.ask.given import TypedOptions
from ppsim.ask.options import Option, Request, list_options, make
from ppsim.ask.rules import check_given
from ppsim.ask.types import MOST_COUNTS, OptionalValue, ScheduleName
from ppsim.base.text import check_text, guess_of, quote, shorten
from ppsim.errors import InputError

R = TypeVar("R", bound=Request)
MOST_BITS = 1024  # of a whole number; a fraction can be no larger
MOST_OF_REFUSAL = 600  # characters
# A noun for each of click's types of numbers, with an example.
NOUNS = {
    "integer": ("whole number", "; expected e.g. 4"),
    "integer range": ("whole number", "; expected e.g. 4"),
    "float": ("number", "; expected e.g. 1.5"),
    "float range": ("number", "; expected e.g. 1.5"),
    "boolean": ("switch", "; expected true or false"),
    "number[,number...]": ("number or a list of numbers", "; expected e.g. 1.5 or 1,1,2*3"),
    "name": ("schedule's name or file", "; expected e.g. 1f1b or mine.csv"),
}
OF_A_SCHEDULE = 'run(schedule).save("mine.csv") writes a Schedule as a file'
SCHEDULE = "ppsim.core.schedule.Schedule"
# What an object of Python has to be, with an example.
OBJECTS = {
    "ppsim.core.costs.Prices": ("made by Costs.of", "Costs.of(F=1, B=2)"),
    SCHEDULE: ("a Schedule", "Schedule.from_queues(...)"),
}


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
        for declared in list_options(kind):
            needed = declared.is_argument and declared.settings.get("required")
            if needed and found.get(declared.name) in (None, ()):
                raise InputError(f"{declared.name} is missing", "give the path of a file")
        check_given(TypedOptions.from_request(request))
        request.check()
    return request


def ask_with(
    kind: type[R], earlier: Mapping[str, Any], options: Mapping[str, Any], *, check: bool = True
) -> R:
    """Return a request with values of an earlier one, and with options that replace them.

    Args:
        kind: the class of the request.
        earlier: values by the field of the option; those of other questions are left out.
        options: values of Python by name.
        check: whether options without effect are refused.

    Raises:
        InputError: as in :func:`ask`.
    """
    replaced = {declared.name for declared, _ in find_options(kind, options)}
    kept = {
        declared.keyword: earlier[declared.name]
        for declared in list_options(kind)
        if declared.name in earlier and declared.name not in replaced
    }
    return ask(kind, {**kept, **options}, check=check)


def find_options(kind: type[Request], values: Mapping[str, Any]) -> list[tuple[Option, Any]]:
    """Return the option of each value that is not None, with the value.

    Raises:
        InputError: no option has a name, or two names are of one option.
    """
    options = list_options(kind)
    known = {word: each for each in options for word in each.words}
    for word in values:
        if word not in known:
            names = ", ".join(sorted(each.keyword for each in options))
            guess = guess_of(word, known)
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
        is_one = declared.joins_lists and _are_numbers(value)
        parts = value if isinstance(value, list | tuple) and not is_one else (value,)
        return tuple(_read_one(declared, part) for part in parts)
    return _read_one(declared, value)


def _read_one(declared: Option, value: Any) -> Any:
    """Return one value of an option, converted from a text or an object."""
    name = _name_in_messages(declared)
    if declared.is_object:
        if _type_name(value) != declared.type:
            expected, example = OBJECTS[declared.type]
            raise InputError(f"{name}: not {expected}: {quote(value)}", example)
        return value
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        check_text(name, value)
    if hasattr(value, "tolist"):  # numpy's
        value = value.tolist()
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise InputError(f"{name}: {quote(value)} is too large")
    if isinstance(value, range) and len(value) <= MOST_COUNTS:
        value = list(value)
    if declared.joins_lists and _are_numbers(value, or_texts=True):
        value = ",".join(str(each) for each in value)
    kind = click.types.convert_type(declared.type)
    if isinstance(value, bool) != (declared.type is bool) and not isinstance(
        declared.type, OptionalValue
    ):
        raise InputError(f"{name}: {_refusal(kind, value)}")
    try:
        if not _may_be_read(kind, value):
            raise ValueError
        return kind.convert(value, None, None)
    except click.ClickException as error:
        raise InputError(f"{name}: {shorten(error.message, MOST_OF_REFUSAL)}") from None
    except (TypeError, ValueError, OverflowError):
        of_a_schedule = isinstance(kind, ScheduleName) or _type_name(value) == SCHEDULE
        hint = OF_A_SCHEDULE if of_a_schedule else ""
        raise InputError(f"{name}: {_refusal(kind, value)}", hint) from None


def _type_name(value: Any) -> str:
    """Return the full name of a value's type, so that nothing has to import the type."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _are_numbers(value: Any, *, or_texts: bool = False) -> bool:
    """Return True if a value is a list of plain numbers, or also of texts."""
    kinds = (int, float, str) if or_texts else (int, float)
    return isinstance(value, list | tuple) and all(
        isinstance(each, kinds) and not isinstance(each, bool) for each in value
    )


def _name_in_messages(declared: Option) -> str:
    """Return the name of an option as Python's signatures have it; ``schedule`` for the argument
    that names schedules, whatever its field is called.
    """
    if declared.is_argument and isinstance(declared.type, ScheduleName):
        return "schedule"
    return declared.keyword


def _refusal(kind: click.ParamType[Any], value: Any) -> str:
    """Return the sentence that refuses a value of Python: what it is not, with an example."""
    noun, example = NOUNS.get(kind.name, (kind.name, ""))
    return f"not a {noun}: {quote(value)}{example}"


def _may_be_read(kind: click.ParamType[Any], value: Any) -> bool:
    """Return True if an option of this kind accepts a value of Python.

    Click would convert any object to a text, a number or an open file.
    """
    if isinstance(value, str):
        return True
    if isinstance(value, bytes | bytearray) or isinstance(kind, click.Path | ScheduleName):
        return False
    if isinstance(kind, click.types.StringParamType):
        return isinstance(value, int | float)
    return not isinstance(kind, click.types.IntParamType) or bool(value == int(value))
