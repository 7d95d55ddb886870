"""Schedules of the user's own, from files and packages."""

import ast
import importlib.metadata
import json
import re
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import InputError, InvalidSchedule, UnknownSchedule
from ppsim.schedules import families, generate, schedule_from

names = (f"mine{number}" for number in count())
BODY = """
    for d in range(shape.devices):
        yield [f"{d}{kind}{m}" for kind in "FB" for m in range(shape.microbatches)]
"""


@pytest.fixture
def python(tmp_path):
    """Write a Python file, with NAME replaced by a name that no schedule has yet."""

    def write(text: str) -> str:
        path = tmp_path / "own.py"
        path.write_text(text.replace("NAME", next(names)))
        return str(path)

    return write


def test_a_function_that_yields_text_is_a_schedule(python):
    schedule = schedule_from(python(f"def NAME(shape):{BODY}"), devices=3, microbatches=5)
    assert schedule.n_devices == 3
    gpipe = generate("gpipe", devices=3, microbatches=5)
    assert np.array_equal(schedule.kind, gpipe.kind)
    assert np.array_equal(schedule.microbatch, gpipe.microbatch)


def test_rows_are_read_together(python):
    """A row of few ops on a high stage is no fault, and no row is taken for torch's older letters
    alone.
    """
    schedule = schedule_from(python(f"def NAME(shape):{BODY}"), devices=9, microbatches=1)
    assert schedule.stage.max() == 8


def test_a_declared_schedule_brings_its_own_placement(python):
    text = """
from ppsim.core.builder import B, F, Queue, stream
from ppsim.core.ops import pack
from ppsim.schedules import schedule
import numpy as np

@schedule(
    "NAME", title="NAME both ways", idea="", bubble="", peak="", paper="", placement="v", chunks=2
)
def both(shape):
    for d in range(shape.devices):
        far = 2 * shape.devices - 1 - d
        forward = np.concatenate([stream(d, shape.microbatches), stream(far, shape.microbatches)])
        q = Queue(forward=forward, backward=forward[::-1])
        q.repeat(2 * shape.microbatches, F)
        q.repeat(2 * shape.microbatches, B)
        yield q.build()
"""
    schedule = schedule_from(python(text), devices=2, microbatches=3)
    assert schedule.placement.name == "v"
    assert schedule.n_stages == 4


def test_one_of_several_functions_is_named_behind_a_colon(python):
    path = python(f"def NAME(shape):{BODY}\ndef other_NAME(shape):{BODY}")
    with pytest.raises(InputError, match="2 schedules"):
        schedule_from(path, devices=2, microbatches=2)
    function = Path(path).read_text().removeprefix("def ").partition("(")[0]
    assert schedule_from(f"{path}:{function}", devices=2, microbatches=2).n_devices == 2
    with pytest.raises(InputError, match="no function 'nope'"):
        schedule_from(path + ":nope", devices=2, microbatches=2)


def test_a_file_of_ops_states_its_own_shape(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("0F0,0B0\n1F0,1B0\n")
    assert schedule_from(str(path)).n_devices == 2
    assert schedule_from(str(path), devices=2, microbatches=1).name == "x"
    with pytest.raises(InputError, match="has 2 devices, not 4"):
        schedule_from(str(path), devices=4)
    with pytest.raises(InputError, match="takes no group size"):
        schedule_from(str(path), group_size=4)


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("def NAME(shape):\n    yield [1 / 0]", InputError, "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(5)", InputError, "ends the program: sys.exit(5) (line 2)"),
        ("def NAME(shape):\n    yield exit(5)", InputError, "ends the program: sys.exit(5)"),
        ("import nothing_of_this_name", InputError, "ModuleNotFoundError"),
        ("def NAME(:", InputError, "SyntaxError"),
        ("x = 1", InputError, "no function that takes a Shape"),
        (
            "def NAME(shape):\n    yield '0F0,0F1,0B0'\n    yield '1F0,1B0,1F1,1B1'",
            InvalidSchedule,
            "runs no B",
        ),
        (
            "def NAME(shape):\n    yield '0F0,0B0'\n    yield '1F0,1B0'",
            InputError,
            "1 microbatches instead of 2 and 2",
        ),
        (
            "def NAME(shape):\n    yield '1F0,1B0,1F1,1B1'\n    yield '0F0,0B0,0F1,0B1'",
            InputError,
            "declared loop",
        ),
        ("def NAME(shape):\n    yield 'junk'\n    yield ''", InputError, "not an action: 'junk'"),
        ("def gpipe(shape):\n    yield ''", InputError, "a schedule named 'gpipe' already"),
        (
            "def NAME(shape):\n    yield '0F0,0F1,0B0,0B1'",
            InputError,
            "yields 1 rows for 2 devices",
        ),
        ("def NAME(shape):\n    return\n    yield", InputError, "yields 0 rows for 2 devices"),
        (
            "def NAME(shape):\n    for d in range(3):\n        yield [f'{d}F0']",
            InputError,
            "more than 2 rows for 2",
        ),
        (
            "def NAME(shape):\n    while True:\n        yield ['0F0']",
            InputError,
            "more than 2 rows for 2 devices",
        ),
        (
            "import itertools\ndef NAME(shape):\n    yield ('0F0' for _ in itertools.count())\n    "
            "yield ''",
            InputError,
            "more than 32",
        ),
        (
            "def NAME(shape):\n    raise BaseException('no')\n    yield",
            InputError,
            "BaseException: no",
        ),
        ("def NAME(shape):\n    raise GeneratorExit\n    yield", InputError, "GeneratorExit"),
        ("raise BaseException('no')", InputError, "BaseException: no"),
        ("def NAME(shape):\n    yield 7\n    yield 8", InputError, "TypeError"),
    ],
)
def test_code_that_fails_or_makes_nonsense_is_refused_in_words(python, text, error, words):
    with pytest.raises(error) as caught:
        schedule_from(python(text), devices=2, microbatches=2)
    assert words in str(caught.value)


def test_an_entry_point_is_found_by_its_name_and_loaded_only_then(python, monkeypatch, tmp_path):
    name = next(names)
    (tmp_path / f"{name}_package.py").write_text(f"def rows(shape):{BODY}")
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint(name, f"{name}_package:rows", "ppsim.schedules")
    asked = []

    def entry_points(**wanted):
        asked.append(wanted)
        return [point] if wanted == {"group": "ppsim.schedules", "name": name} else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    assert schedule_from("1f1b", devices=2, microbatches=2).name == "1f1b"
    assert asked == []
    assert schedule_from(name, devices=2, microbatches=2).name == name
    with pytest.raises(UnknownSchedule):
        schedule_from("no-such-name", devices=2, microbatches=2)


def test_what_is_missing_is_said(tmp_path):
    with pytest.raises(InputError, match="number of microbatches is missing"):
        schedule_from("1f1b", devices=2)
    with pytest.raises(InputError, match="No such file"):
        schedule_from(str(tmp_path / "none.py"), devices=2, microbatches=2)
    with pytest.raises(InputError, match="No such file"):
        schedule_from(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match="cannot read 'queues/nope': No such file"):
        schedule_from("queues/nope")
    with pytest.raises(InputError, match=r"cannot read 'nope\.csv': No such file"):
        schedule_from("nope.csv")


def test_chunks_after_a_name_set_the_stages_per_device():
    schedule = schedule_from("interleaved:4", devices=2, microbatches=4)
    assert (schedule.n_chunks, schedule.n_stages) == (4, 8)
    assert schedule_from("interleaved:4", devices=2, microbatches=4, chunks=4).n_chunks == 4
    with pytest.raises(InputError, match="asks for 4 stages per device, and --chunks for 2"):
        schedule_from("interleaved:4", devices=2, microbatches=4, chunks=2)
    with pytest.raises(InputError) as caught:
        schedule_from("interleaved:1", devices=2, microbatches=4)
    assert caught.value.hint == "interleaved:2"


def test_a_file_without_a_fitting_function_is_answered_with_what_fits(python):
    with pytest.raises(InputError) as caught:
        schedule_from(python("x = 1"), devices=2, microbatches=2)
    assert caught.value.hint == 'def mine(shape): yield one row per device, such as ["0F0", "0B0"]'


@pytest.mark.parametrize("suffix", ["json", "mmd", "trace.json"])
def test_times_of_a_file_that_are_not_used_are_said_to_be_so(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = f"t3.{suffix}"
    runner = CliRunner()
    runner.invoke(
        group, ["run", "-s", "1f1b", "--stages", "2", "--mb", "4", "--tf", "3", "-q", "-o", name]
    )
    said = f"times of {name} are not used: timed again with the costs given\n"
    assert runner.invoke(group, ["run", "-s", name, "-q"]).stderr == said
    Path("x.csv").write_text("0F0,0B0\n")
    assert runner.invoke(group, ["run", "-s", "x.csv", "-q"]).stderr == ""


def test_sends_and_receives_of_a_file_that_are_left_out_are_said_to_be_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("f.csv").write_text(
        "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0\n1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0\n"
    )
    result = CliRunner().invoke(group, ["run", "-s", "f.csv", "-q"])
    assert result.stderr == "sends and receives of f.csv are left out; --p2p times them\n"


def test_what_code_prints_is_no_part_of_the_answer(python):
    """JSON on standard output stays one object."""
    path = python(f"print('loaded')\ndef NAME(shape):\n    print('called'){BODY}")
    result = CliRunner().invoke(group, ["run", "-s", path, "--devices", "2", "--mb", "2", "--json"])
    assert json.loads(result.stdout)["devices"] == 2
    assert result.stderr == "loaded\ncalled\n"


def test_an_author_needs_nothing_but_the_public_module():
    """Schedule files here import names that ppsim.schedules exports, and each registers a
    family.
    """
    import ppsim.schedules

    for path in (Path(__file__).parents[2] / "schedules").glob("[a-z]*.py"):
        if path.stem == "registry":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ppsim.schedules"):
                assert node.module in ("ppsim.schedules", "ppsim.schedules.registry")
        names = {
            alias.name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom)
            and re.match(r"ppsim\.(core|schedules)", str(node.module))
            for alias in node.names
        }
        assert names <= set(ppsim.schedules.__all__) | {"pack"}, path
        assert {f for f in families() if f.generate.__module__ == f"ppsim.schedules.{path.stem}"}, (
            path
        )
    assert all(getattr(ppsim.schedules, name) is not None for name in ppsim.schedules.__all__)
