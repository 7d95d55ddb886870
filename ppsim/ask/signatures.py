"""Signatures of the questions as Python functions, made of their options.

Completion, ``help`` and ``inspect.signature`` show them; ``ppsim/__init__.pyi`` has them for type
checkers and editors.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import click

from ppsim.ask.options import Option, list_options

# options of the command line alone: in Python, answers print and save themselves
HIDDEN = ("quiet", "as_json", "output", "force")
WIDTH = 92  # width of a line in a docstring
MOST_WORDS = 12  # most words of a choice that is written as a Literal
TYPES = {
    "Value | None": "float | Sequence[float] | str | None",
    "float | list[float]": "float | Sequence[float] | str",
    "list[int] | None": "int | Sequence[int] | str | None",
    "Callable[[Schedule], Costs] | None": "Prices | None",
    "tuple[float, float] | None": "tuple[float, float] | str | None",
    "Highlight | None": "str | None",
    "NumberText | None": "float | str | None",
    "NumberTexts | None": "float | str | Sequence[float | str] | None",
    "tuple[NumberTexts, ...]": "str | Sequence[float | str]",
    "Names | None": "str | Sequence[str] | None",
    "Offload | None": "bool | float | str | None",
    "Replicas | None": "int | str | None",
    "Objective": "str",
}
PLAIN = ("int", "float", "bool", "str")


def describe(module: ModuleType) -> Callable[..., Any]:
    """Return the function of a question's module, with its signature and with options in its
    docstring.
    """
    function: Callable[..., Any] = getattr(module, module.__name__.rpartition(".")[2])
    if not hasattr(function, "__signature__"):
        function.__signature__ = signature_of(module, function)  # type: ignore[attr-defined]
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{option_lines(module, function)}"
    return function


def signature_of(module: Any, function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a question: the function's parameters, then its options by name."""
    own = [each for each in own_parameters(function) if each.kind != each.VAR_KEYWORD]
    named = [
        inspect.Parameter(
            each.keyword,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=type_of(each),
        )
        for each in python_options(module, function)
    ]
    returned = return_type(module, function)
    return inspect.Signature([*own, *named], return_annotation=returned)


def own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters in the source of a question's function, without its options."""
    code: Any = function
    plain = FunctionType(code.__code__, code.__globals__, argdefs=code.__defaults__)
    plain.__kwdefaults__, plain.__annotations__ = code.__kwdefaults__, code.__annotations__
    return list(inspect.signature(plain).parameters.values())


def python_options(module: Any, function: Callable[..., Any]) -> list[Option]:
    """Return the options of a question that Python passes by name."""
    request = getattr(module, module.answer.__annotations__["request"])
    taken = {each.name.rstrip("s") for each in own_parameters(function)}
    return [
        each
        for each in list_options(request)
        if each.name not in (*HIDDEN, "own")
        and not each.is_argument
        and each.name.rstrip("s") not in taken
    ]


def type_of(each: Option) -> str:
    """Return the type of an option's values in Python, as source text."""
    text = each.annotation
    if text in TYPES:
        return TYPES[text]
    if each.many:
        return "str | Sequence[str]"
    if isinstance(each.type, click.Choice) and len(each.type.choices) <= MOST_WORDS:
        words = ", ".join(f'"{word}"' for word in each.type.choices)
        return f"Literal[{words}]" + " | None" * text.endswith("None")
    parts = text.split(" | ")
    if isinstance(each.type, click.ParamType) and "str" not in parts and not _is_number(each.type):
        parts.insert(-1 if parts[-1] == "None" else len(parts), "str")
    return " | ".join(parts)


def _is_number(kind: click.ParamType[Any]) -> bool:
    """Return True if the click type reads a plain number."""
    return isinstance(kind, (click.types.IntParamType, click.types.FloatParamType))


def return_type(module: Any, function: Callable[..., Any]) -> str:
    """Return the type of a question's answer, as source text.

    For one of several answers, it is the usual one or Any: ``Run | Any``.
    """
    returned = str(function.__annotations__["return"])
    if returned != "Any":
        return returned
    return f"{str(module.answer.__annotations__['return']).partition(' | ')[0]} | Any"


def option_lines(module: Any, function: Callable[..., Any]) -> str:
    """Return the options of a question with their help as text, for a docstring."""
    lines = ["Options:"]
    for each in python_options(module, function):
        default = "" if each.default in (None, (), "", False) else f" (default {each.default})"
        text = f"{each.keyword}: {plain_help(each.help)}{default}".rstrip()
        lines += textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="        ")
    return "\n".join(lines)


def plain_help(text: str) -> str:
    """Return an option's help as one line."""
    return re.sub(r"\s+", " ", text).strip()
