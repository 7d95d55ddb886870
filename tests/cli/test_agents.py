"""AGENTS.md is true: its commands print the schemas and keys that it names, its exit codes and
messages are ours.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from ppsim import errors
from ppsim.cli import INTERNAL, group
from tests.commands import answer
from tests.guides.replay import replay

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "AGENTS.md").read_text()
QUESTIONS = re.findall(r"^\| `ppsim (.*?)` \| `(.*?)` \| (.*) \|$", PAGE, re.MULTILINE)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("line", "schema", "keys"), QUESTIONS, ids=[row[0].split()[0] for row in QUESTIONS]
)
def test_a_command_prints_one_object_of_the_schema_with_the_keys(line, schema, keys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code, out, _ = answer(*shlex.split(line.replace("\\|", "|")), "--json")
    found = json.loads(out)
    assert (code, found["schema"]) == (0, schema)
    assert len(found["verdict"].split()) > 3
    assert [key for key in re.findall(r"`(\w+)`", keys) if key not in found] == []


def test_the_table_has_the_questions_that_people_ask_first():
    """All commands but those left out; a command of a contributor need not be among them."""
    asked = {line.split()[0] for line, _, _ in QUESTIONS}
    left_out = {
        "calibrate",
        "check",
        "convert",
        "completion",
        "jitter",
        "open",
        "optimize",
        "profile",
        "serve",
    }
    assert asked | left_out <= set(group.list_commands(None))  # type: ignore[arg-type]
    assert not asked & left_out
    assert {"run", "compare", "sweep", "memory", "explain", "plan", "diff", "read"} <= asked


def test_refusals_read_as_the_page_shows(tmp_path):
    assert replay(PAGE, tmp_path) == PAGE
    assert PAGE.count("\n  try: ") == 2


def test_exit_codes_are_those_of_the_command():
    said = dict(re.findall(r"^\| (\d+) \| (\w[^|]*?) \|", PAGE, re.MULTILINE))
    kinds = (errors.PpsimError, errors.InputError, errors.MissingDependency)
    codes = [0, *(kind.exit_code for kind in kinds), errors.UNDECIDED, INTERNAL, 130]
    assert list(said) == [str(code) for code in codes]
    assert said["1"].startswith("the answer is no")
    too_large = (
        "memory",
        "1f1b",
        "--devices",
        "8",
        "--mb",
        "8",
        "--model",
        "llama3-70b",
        "--cap",
        "9GiB",
    )
    code, out, _ = answer(*too_large, "--json")
    assert (code, json.loads(out)["fits"]) == (1, False)
    code, out, said_of_it = answer("run", "nothing", "--stages", "4", "--mb", "8", "--json")
    assert (code, out) == (2, "")
    assert "Error: " in said_of_it


def test_an_output_file_is_announced_on_standard_error(tmp_path):
    target = tmp_path / "x.json"
    code, out, said = answer(
        "run", "gpipe", "--stages", "2", "--mb", "2", "--json", "-o", str(target)
    )
    assert (code, said) == (0, f"wrote {target}\n")
    assert json.loads(out) == json.loads(target.read_text()) | {"inputs": json.loads(out)["inputs"]}


def test_the_example_in_python_runs():
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["answer"], dict)
    assert names["answer"]["schema"] == "ppsim.run/1"
