"""A call of each question: the first example of its help, which every test of all questions takes
for a question that it has no call of.
"""

from __future__ import annotations

import importlib
import shlex
from typing import Any

from click.core import ParameterSource

from ppsim.ask.options import Request
from ppsim.ask.request import ask
from ppsim.cli import group
from ppsim.questions import module_of


def request_of(question: str) -> type[Request]:
    """Return the class of a question's request."""
    module = importlib.import_module(str(module_of(question)))
    found = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and getattr(kind, "question", "") == question
    ]
    assert len(found) == 1, f"{module.__name__} declares {question} once"
    return found[0]


def example_of(question: str) -> list[str]:
    """Return the words of the first example in the help of a question, without ``ppsim``."""
    lines = (request_of(question).__doc__ or "").splitlines()
    found = [line.strip() for line in lines if line.strip().startswith(f"ppsim {question} ")]
    assert found, f"the request of {question} has no example in its docstring"
    return shlex.split(found[0])[1:]


def answer_of(question: str) -> Any:
    """Return the answer to that example, as Python gives it."""
    name, *words = example_of(question)
    command = group.get_command(None, name)  # type: ignore[arg-type]
    assert command
    context = command.make_context(name, words)
    typed = {
        option: value
        for option, value in context.params.items()
        if context.get_parameter_source(option) == ParameterSource.COMMANDLINE
    }
    module = importlib.import_module(str(module_of(question)))
    return module.answer(ask(request_of(question), typed))
