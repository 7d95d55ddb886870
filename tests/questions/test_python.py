"""What Python is answered: plain objects, with the keys and rows of ``--json``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ppsim
from ppsim.questions import list_functions
from tests.commands import invoke
from tests.questions.examples import answer_of

SHAPE: dict[str, Any] = {"devices": 2, "microbatches": 3}
ROOT = Path(__file__).parents[2]
RECORD = str(ROOT / "tests" / "data" / "records" / "timed-p2.json.gz")
ANSWERS: dict[str, Callable[[str], Any]] = {
    "run": lambda file: ppsim.run("1f1b", **SHAPE),
    "run, messages as ops": lambda file: ppsim.run("1f1b", p2p="overlap", **SHAPE),
    "run, replicas": lambda file: ppsim.run("1f1b", replicas="2", **SHAPE),
    "run, grid": lambda file: ppsim.run("1f1b", grid=True, **SHAPE),
    "compare": lambda file: ppsim.compare(["1f1b", "gpipe"], **SHAPE),
    "jitter": lambda file: ppsim.jitter(["1f1b"], **SHAPE),
    "explain": lambda file: ppsim.explain("1f1b", **SHAPE),
    "diff": lambda file: ppsim.diff("1f1b", "gpipe", **SHAPE),
    "memory": lambda file: ppsim.memory("1f1b", **SHAPE),
    "partition": lambda file: ppsim.partition("1f1b", t_layer=[1] * 6, **SHAPE),
    "optimize": lambda file: ppsim.optimize(time_limit=3, **SHAPE),
    "check": lambda file: ppsim.check(file),
    "read": lambda file: ppsim.read(file),
    "layout": lambda file: ppsim.layout("Et*3|ttL"),
    "model": lambda file: ppsim.model("llama3-8b", tp=1),
    "convert": lambda file: ppsim.convert(file, f"{file}.json"),
}
SLOW: dict[str, Callable[[str], Any]] = {
    "plan": lambda file: ppsim.plan("llama3-8b", "dgx-h100", gpus=8, gbs=8, top=2),
    "validate": lambda file: ppsim.validate(from_record=RECORD),
}

MEASURES = {"calibrate"}  # this machine, for seconds
ROWS = {"sweep"}  # answered in rows, below
ANSWERS |= {
    name: lambda file, name=name: answer_of(name)  # type: ignore[misc]
    for name in list_functions()
    if name not in {*ANSWERS, *SLOW, *MEASURES, *ROWS}
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [*ANSWERS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_every_answer_is_json(name, tmp_path):
    """json.dumps takes it as it is, and it holds nothing that other readers of JSON would
    refuse.
    """
    file = tmp_path / "queues.csv"
    ppsim.run("1f1b", **SHAPE).save(str(file))
    found = (ANSWERS | SLOW)[name](str(file)).to_json()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", [*ANSWERS, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_prompt_shows_an_answer_as_its_verdict(name, tmp_path):
    """Not as all its arrays, which fill many screens."""
    file = tmp_path / "queues.csv"
    ppsim.run("1f1b", **SHAPE).save(str(file))
    answer = (ANSWERS | SLOW)[name](str(file))
    assert repr(answer) == f"<{type(answer).__name__}: {answer.verdict}>"
    assert "\n" not in repr(answer)


def test_every_question_is_asked():
    asked = {name.partition(",")[0] for name in (*ANSWERS, *SLOW)}
    assert asked | MEASURES | ROWS == set(list_functions())


@pytest.mark.parametrize(
    "words", ["run 1f1b", "run 1f1b --p2p overlap", "memory 1f1b", "explain 1f1b"]
)
def test_python_has_the_object_that_json_prints(words):
    """All but the command that is told as the input."""
    question, name, *more = words.split()
    options = {"p2p": more[1]} if more else {}
    found = getattr(ppsim, question)(name, **SHAPE, **options).to_json()
    printed = json.loads(invoke(*words.split(), "--devices", "2", "--mb", "3", "--json").stdout)
    assert {**found, "inputs": None} == {**printed, "inputs": None}


def test_a_sweep_has_the_rows_that_json_prints():
    """Those too of shapes that a schedule does not take, each with the reason."""
    names = ["dualpipe", "1f1b"]
    options: dict[str, Any] = {"devices": [2, 3], "microbatches": [4, 9]}
    rows = ppsim.sweep(names, **options)
    printed = json.loads(
        invoke("sweep", *names, "--devices", "2,3", "--mb", "4,9", "--json").stdout
    )
    assert rows == printed["shapes"]
    assert {row["applies"] for row in rows} == {True, False}
    assert all(row["reason"] for row in rows if not row["applies"])
    json.dumps(rows, allow_nan=False)
