"""Stages of the user's own: measured one by one, and refused with the stage and line where they are
not right.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from
from ppsim.inputs.profile.profile import Profile, read
from ppsim.schedules import generate
from tests.commands import invoke, refused

pytestmark = pytest.mark.usefixtures("warm_processes")
FILE = str(Path(__file__).parents[2] / "data" / "module.py")
COUNTS = (
    "--repeats",
    "2",
    "--warm-up",
    "1",
    "--max-bytes",
    "1024",
    "--device",
    "cpu",
    "--stages",
    "4",
)
ROW = 3 * 6 * 8  # bytes of an activation

NEEDS_TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is asked for first")


def calibrate(tmp_path: Path, function: str) -> Profile:
    path = tmp_path / "p.toml"
    result = invoke("calibrate", "-o", str(path), "--module", f"{FILE}:{function}", *COUNTS)
    assert result.exit_code == 0, result.output
    assert "a stage of the user's" not in result.stdout
    return read(str(path))


@pytest.mark.torch
@pytest.mark.parametrize("function", ["stage", "own", "handled"])
def test_each_stage_is_measured_by_itself(tmp_path, function):
    """Every kind of op of every stage, its parameters, and what it sends and holds."""
    pytest.importorskip("torch")
    profile = calibrate(tmp_path, function)
    assert profile.model is None
    assert {(op.part, op.stage, op.kind) for op in profile.op} == {
        ("stage", s, kind) for s in range(4) for kind in ("F", "B", "I", "W", "FB")
    }
    assert all(op.n == 2 for op in profile.op)
    sizes = {row.stage: row for row in profile.stage}
    linear = 6 * 6 + 6
    assert [row.parameters for row in profile.stage] == [
        66 + linear,
        2 * linear,
        3 * linear,
        4 * linear + 77,
    ]
    assert [row.parameter_bytes for row in profile.stage] == [
        8 * row.parameters for row in profile.stage
    ]
    assert [row.message_bytes for row in profile.stage] == [ROW, ROW, ROW, 0]
    assert sizes[1].after_f_bytes == 3 * ROW + 2 * ROW - 2 * ROW
    assert sizes[2].after_f_bytes - sizes[1].after_f_bytes == ROW
    assert profile.message_bytes == ROW
    assert ROW in {message.bytes for message in profile.message}


@pytest.mark.torch
def test_stages_of_several_tensors_are_measured_as_of_one(tmp_path):
    """What travels between two stages is one message of all of them; a tied table counts on both
    ends.
    """
    pytest.importorskip("torch")
    profile = calibrate(tmp_path, "several")
    assert [row.message_bytes for row in profile.stage] == [8 * (3 * 6 + 6)] * 3 + [0]
    assert [row.parameters for row in profile.stage] == [66, 42, 42, 66]
    assert {(op.stage, op.kind) for op in profile.op} >= {
        (s, kind) for s in range(4) for kind in "FBIW"
    }


@pytest.mark.torch
def test_the_profile_of_uneven_stages_prices_each_of_them(tmp_path):
    pytest.importorskip("torch")
    profile = calibrate(tmp_path, "stage")
    costs = costs_from(profile, generate("zb-1p", devices=4, microbatches=8))
    measured = {(op.kind, op.stage): op.median_ms for op in profile.op}
    for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
        assert costs.time[kind] == pytest.approx([measured[kind.name, s] for s in range(4)])
    words = ("1f1b", "--stages", "4", "--mb", "8", "--profile", str(tmp_path / "p.toml"))
    held = json.loads(invoke("memory", *words, "--json").stdout)
    assert held["unit"] == "B"
    assert invoke("run", *words, "-q").exit_code == 0
    assert "has 4 stages, and 1f1b has 2" in str(
        refused("memory", "1f1b", "--stages", "2", *words[3:])
    )


@pytest.mark.torch
@pytest.mark.parametrize(
    ("function", "says", "hint"),
    [
        ("raises", r"module\.py, stage 1, fails: ValueError: no such layer \(line \d+\)", ""),
        (
            "fails_at_once",
            r"module\.py, fails_at_once\(0, 4, 'cpu'\), fails: KeyError: 'weights' \(line \d+\)",
            "",
        ),
        ("exits", r"ends the program: sys.exit\(3\) \(line \d+\)", ""),
        (
            "returns_a_module_only",
            "stage 0: returns a Linear, not a module and an example input",
            "def stage",
        ),
        ("returns_no_module", "stage 0: the module is a list", "def stage"),
        ("several_dtypes", "stage 1: the example inputs are of float32, float64", "one message"),
        (
            "does_not_chain",
            r"stage 1: its input is \(2, 4\) of float32, and stage 0 returns \(2, 5\) of float32",
            "next",
        ),
        ("has_no_gradient", "stage 0: the output has no gradient", "detach"),
        ("is_cut", "stage 1: its backward returns no gradient of its input", "detach"),
        ("half_a_split", "I and W are halves of one backward", "both"),
        ("unknown_kind", "not a kind of op: 'BW'", "FB"),
        ("two_outputs", "the output is a tuple, not a tensor", "tuple of tensors"),
        ("no_such", "has no function 'no_such'", "stage"),
    ],
)
def test_what_is_wrong_with_a_stage_is_said_with_its_place(tmp_path, function, says, hint):
    pytest.importorskip("torch")
    error = refused(
        "calibrate", "-o", str(tmp_path / "p.toml"), "--module", f"{FILE}:{function}", *COUNTS
    )
    assert isinstance(error, InputError)
    with pytest.raises(InputError, match=says):
        raise error
    assert hint in error.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--module", FILE), "needs the number of stages"),
        (("--stages", "4"), "--stages is the number of stages of a module"),
        (
            ("--module", FILE, "--stages", "4", "--hidden", "64"),
            "--module makes the stages, so --hidden",
        ),
        (
            ("--module", FILE, "--stages", "4", "--dtype", "float64"),
            "--module makes the stages, so --dtype",
        ),
        pytest.param(
            ("--module", "nowhere.py:stage", "--stages", "4"),
            "cannot read 'nowhere.py'",
            marks=[NEEDS_TORCH, pytest.mark.slow],
        ),
        pytest.param(
            ("--module", "stage", "--stages", "4"),
            "not FILE.py:FUNCTION: 'stage'",
            marks=[NEEDS_TORCH, pytest.mark.slow],
        ),
    ],
)
def test_a_module_that_cannot_be_used_is_refused_before_measuring(tmp_path, words, says):
    assert says in str(refused("calibrate", "-o", str(tmp_path / "p.toml"), *words))


def test_a_file_is_run_only_where_it_is_named(tmp_path, monkeypatch):
    """A module.py in the folder is no business of a command that does not name it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "module.py").write_text("open('ran', 'w').close()\n")
    assert invoke("run", "1f1b", "--devices", "2", "--mb", "2", "-q").exit_code == 0
    refused(
        "validate", "1f1b", "--devices", "2", "--mb", "2", "--ops", "timed", "--module", "module.py"
    )
    assert not (tmp_path / "ran").exists()


@pytest.mark.torch
def test_the_example_of_the_gallery_is_measured(tmp_path):
    pytest.importorskip("torch")
    example = Path(__file__).parents[3] / "gallery" / "module.py"
    result = invoke(
        "calibrate", "-o", str(tmp_path / "p.toml"), "--module", f"{example}:stage", *COUNTS
    )
    assert result.exit_code == 0, result.output
    held = np.array([row.after_f_bytes for row in read(str(tmp_path / "p.toml")).stage])
    assert (np.diff(held) > 0).all()
