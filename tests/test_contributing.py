"""The files that CONTRIBUTING.md shows work as they are copied."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

import ppsim
from ppsim.ask.request import ask
from tests.commands import answer
from tests.contributing import code_of


@pytest.fixture
def module(tmp_path):
    """Import a block of the page as a module of its own."""

    def made(heading: str):
        path = tmp_path / "copied.py"
        path.write_text(code_of(heading))
        spec = importlib.util.spec_from_file_location("copied", path)
        assert spec
        assert spec.loader
        found = importlib.util.module_from_spec(spec)
        sys.modules["copied"] = found
        spec.loader.exec_module(found)
        return found

    yield made
    sys.modules.pop("copied", None)


def test_the_question_is_answered(module):
    """The request of the page, asked by the options that it declares."""
    found = module("Add a question or a format")
    request = ask(found.CountRequest, {"schedule": "1f1b", "devices": 4, "microbatches": 8})
    assert found.answer(request).verdict == "the schedule has 64 ops"
    assert found.count("gpipe", devices=2, microbatches=2).to_json()["ops"] == 8


def test_the_column_is_a_number_of_a_run(module):
    """Of 1F1B's devices the last holds one activation."""
    (column,) = module("Add a column, a model, a GPU or a cluster").COLUMNS
    run = ppsim.run("1f1b", devices=4, microbatches=8)
    assert column.number_of(run.metrics, None) == 1.0


def test_the_schedule_runs(tmp_path):
    """A schedule in a file of the user's is the same code."""
    path = tmp_path / "mine.py"
    path.write_text(code_of("Add a schedule").replace('idea="..."', 'idea="1\\n2\\n3"'))
    code, out, said = answer("run", f"{path}", "--devices", "2", "--mb", "3", "--json")
    assert code == 0, said
    assert json.loads(out)["makespan"] == 18
