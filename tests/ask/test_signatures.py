"""Python can be discovered: Tab, help, signatures and the stub name every question and option."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

import ppsim
from ppsim.ask.request import find_options
from ppsim.ask.signatures import type_of
from ppsim.questions import list_functions, module_of
from tests import refresh_stub


def test_tab_offers_every_name():
    """And no name that only this package uses."""
    offered = {name for name in dir(ppsim) if not name.startswith("__")}
    assert offered == set(ppsim.__all__)


def test_the_stub_is_what_its_command_writes():
    assert refresh_stub.STUB.read_text() == refresh_stub.stub(), "python -m tests.refresh_stub"


@pytest.mark.parametrize("name", list_functions())
def test_a_signature_names_what_the_question_takes(name):
    """Each parameter by name, with a type and the option's default; help has a line for each."""
    module = importlib.import_module(str(module_of(name)))
    request = getattr(module, module.answer.__annotations__["request"])
    function = getattr(ppsim, name)
    named = [p for p in inspect.signature(function).parameters.values() if p.kind == p.KEYWORD_ONLY]
    options = {each.keyword: each for each in refresh_stub.python_options(module, function)}
    assert [each.name for each in named] == list(options)
    for each in named:
        assert find_options(request, {each.name: 1})
        assert each.annotation == type_of(options[each.name]) != ""
        assert each.default == options[each.name].default
        assert re.search(rf"^    {each.name}: \w", function.__doc__, re.MULTILINE)


def test_a_parameter_has_a_spelling_of_the_command_line():
    """``--what-if`` is ``what_if=`` in completion and for type checkers too."""
    assert "what_if" in inspect.signature(ppsim.explain).parameters
    assert {"seq", "recomputes", "cost_per", "microbatches"} <= {
        *inspect.signature(ppsim.run).parameters
    }
    for name in list_functions():
        module = importlib.import_module(str(module_of(name)))
        for each in refresh_stub.python_options(module, getattr(ppsim, name)):
            spelled = each.words - {each.name} if each.keyword != each.name else each.words
            assert each.keyword in spelled


def test_types_are_those_that_values_have():
    parameters = inspect.signature(ppsim.run).parameters
    assert parameters["devices"].annotation == "int | None"
    assert parameters["tf"].annotation == "float | Sequence[float] | str | None"
    assert (
        parameters["p2p"].annotation
        == 'Literal["latency", "overlap", "blocking", "batched"] | None'
    )
    assert parameters["link"].annotation == "str | Sequence[str]"
    assert parameters["cap"].annotation == "float | str | Sequence[float | str] | None"
    assert parameters["mb_scale"].annotation == "str | Sequence[float | str]"
    assert parameters["offload"].annotation == "bool | float | str | None"
    assert parameters["chunk"].annotation == "float | str | None"
    assert inspect.signature(ppsim.run).return_annotation == "Run | Any"
    plan = inspect.signature(ppsim.plan).parameters
    assert plan["schedules"].annotation == "str | Sequence[str] | None"
    assert (
        inspect.signature(ppsim.sweep).parameters["devices"].annotation
        == "int | Sequence[int] | str | None"
    )
