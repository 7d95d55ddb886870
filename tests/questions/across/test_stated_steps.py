"""Files with times of several steps, or of slices: named, and changed as ``run`` with their options
would be.
"""

import json
import re

import pytest

from tests.commands import invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")
STEPS = ("--steps", "3")
SURROUNDED = (*STEPS, "--t-optimizer", "2", "--t-gather", "1", "--t-reduce-grad", "3")
ALONE = ("--t-optimizer", "2", "--post-validation")
SLICES = ("--slices", "2")


def asked(*words):
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def write_run(folder, name, *options, suffix=".trace.json"):
    file = str(folder / f"own{suffix}")
    assert invoke("run", name, *SHAPE, *options, "-o", file).exit_code == 0
    return file


@pytest.mark.sampled(8)
@pytest.mark.parametrize("suffix", [".json", ".trace.json"])
@pytest.mark.parametrize(
    ("name", "options", "known"),
    [
        ("1f1b", STEPS, "1f1b"),
        ("1f1b", SURROUNDED, "1f1b"),
        ("zb-1p", ALONE, "zb-1p"),
        ("interleaved", (*STEPS, "--group-size", "6"), "interleaved group-size=6"),
        ("decode", ("--steps", "3", "--feedback", "0.5"), "decode"),
        ("pipedream-2bw", STEPS, "pipedream-2bw"),
        ("seq1f1b", SLICES, "seq1f1b slices=2"),
    ],
)
def test_a_file_of_several_steps_is_named_as_one_of_them(name, options, known, suffix, tmp_path):
    file = write_run(tmp_path, name, *options, suffix=suffix)
    assert asked("read", file)["schedule"] == known
    assert asked("explain", file)["schedule"] == known


def test_steps_that_differ_have_no_name(tmp_path):
    file = write_run(tmp_path, "1f1b", "--steps", "2", suffix=".json")
    run = json.loads((tmp_path / "own.json").read_text())
    ops, numbers = run["ops"], range(len(run["ops"]["kind"]))
    place = next(i for i in numbers if ops["device"][i] == 0 and ops["kind"][i] == "B")
    assert ops["kind"][place + 1] == "F"  # which runs first in the first step alone
    for name in ("kind", "stage", "microbatch"):
        ops[name][place : place + 2] = reversed(ops[name][place : place + 2])
    for name in ("start", "end"):
        del ops[name]
    (tmp_path / "own.json").write_text(json.dumps(run))
    assert asked("read", file)["schedule"] == "custom"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "options", "changes"),
    [
        ("1f1b", STEPS, {"schedule=gpipe": "gpipe", "mb=16": "1f1b --mb 16"}),
        ("1f1b", SURROUNDED, {"schedule=gpipe": "gpipe", "mb=16": "1f1b --mb 16"}),
        ("zb-1p", ALONE, {"schedule=zb-h2": "zb-h2", "mb=12": "zb-1p --mb 12"}),
        ("zb-1p", ("--t-optimizer", "2"), {"mb=12": "zb-1p --mb 12"}),
        ("seq1f1b", SLICES, {"mb=16": "seq1f1b --mb 16", "slices=4": "seq1f1b --slices 4"}),
        ("seq1f1b", SLICES, {"schedule=1f1b": "1f1b"}),
        ("forward-only", STEPS, {"mb=12": "forward-only --mb 12"}),
    ],
)
def test_a_change_of_a_stated_run_is_the_run_with_that_option(name, options, changes, tmp_path):
    file = write_run(tmp_path, name, *options)
    given = [word for change in changes for word in ("--what-if", change)]
    found = asked("explain", file, *given)
    for row, words in zip(found["what_if"], changes.values(), strict=True):
        spec, *changed = words.split()
        same = (
            [*SHAPE, *options]
            if spec == name
            else [*SHAPE, *(options if options != SLICES else ())]
        )
        if changed:
            if changed[0] in same:
                same[same.index(changed[0]) + 1] = changed[1]
            else:
                same += changed
        assert row["makespan"] == pytest.approx(asked("run", spec, *same)["makespan"])


def test_rivals_of_several_steps_have_as_many(tmp_path):
    """What is advised takes as long as run says for all steps."""
    found = asked("explain", write_run(tmp_path, "1f1b", *SURROUNDED))
    tried = [row for row in found["what_if"] if row["change"].startswith("schedule=")]
    assert tried
    for row in tried:
        name = row["change"].removeprefix("schedule=").partition(" ")[0]
        made = asked("run", name, *SHAPE, "--chunks", "1", *SURROUNDED, "--tb", "2")
        assert row["makespan"] == pytest.approx(made["makespan"])


def test_rivals_of_slices_run_whole_sequences(tmp_path):
    """No rival takes a slice for a sequence: the busiest device bounds all of them."""
    file = write_run(tmp_path, "seq1f1b", *SLICES)
    for row in asked("explain", file)["what_if"]:
        count = 16 if "mb=16" in row["change"] else 8
        assert row["makespan"] >= 3 * count
    for name, options in (("1f1b", ()), ("seq1f1b", SLICES)):
        longest = asked("run", name, *SHAPE, *options)["makespan"]
        assert asked("diff", file, name)["makespan"][1] == longest


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("1f1b", ("--offload", "1"), "own has copies or collectives that they lack"),
        ("vocab-1", (), "vocab-1 has copies or collectives that they lack"),
        ("forward-only", (), "forward-only does not train"),
        ("pipedream-2bw", STEPS, "pipedream-2bw never flushes"),
    ],
)
def test_explain_says_why_it_tries_no_other_schedules(name, options, why, tmp_path):
    said = invoke("explain", write_run(tmp_path, name, *options)).stdout
    assert why in said
    assert "schedule=" not in said


def test_runs_of_several_steps_are_compared_with_as_many(tmp_path):
    file = write_run(tmp_path, "1f1b", *STEPS, suffix=".json")
    refusal = refused("compare", file, "zb-1p", *SHAPE)
    assert f"these have 3 for {file}, 1 for zb-1p" in str(refusal)
    assert refusal.hint == "--steps 3"
    said = invoke("compare", file, "zb-1p", *SHAPE, *refusal.hint.split())
    assert "zb-1p has 1.22 times the rate of" in said.stdout


def test_schedules_that_go_round_are_compared_by_a_round():
    """Of 4 steps and one, whose makespans are 35 and 11, a round takes as long."""
    rows = invoke("compare", "decode", "forward-only", *SHAPE, env={"COLUMNS": "200"}).stdout
    assert re.search(r"forward-only +8 .* 11 +0\.0% ", rows)
    assert "the same rate as forward-only, 1 batch per t_F" in rows
    found = asked("compare", "decode", "forward-only", *SHAPE)["schedules"]
    assert [row["pareto"] for row in found] == [True, True]
