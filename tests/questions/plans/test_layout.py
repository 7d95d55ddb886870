"""What ``ppsim layout`` prints and refuses."""

import json

import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import PpsimError


def ask(*words: str) -> str:
    result = CliRunner().invoke(group, ["layout", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_json_has_stages_layers_content_and_flags():
    found = json.loads(ask("E|t*3|(t|)*5mL", "--devices", "4", "--json"))
    assert found == {
        "schema": "ppsim.layout/1",
        "verdict": "8 layers and 1 MTP layer on 4 devices x 2 chunks = 8 stages: 0 to 3 a stage",
        "layout": "E|t*3|(t|)*5mL",
        "devices": 4,
        "chunks": 2,
        "stages": 8,
        "layers": 8,
        "mtp_layers": 1,
        "content": ["E", "ttt", "t", "t", "t", "t", "t", "mL"],
        "layers_per_stage": [0, 3, 1, 1, 1, 1, 1, 0],
        "device": [0, 1, 2, 3, 0, 1, 2, 3],
        "flags": "--pipeline-model-parallel-size 4 --num-layers 8 --mtp-num-layers 1 "
        "--pipeline-model-parallel-layout 'E|t*3|(t|)*5mL'",
    }


def test_flags_and_lists_print_the_string():
    assert ask(
        "--num-layers", "30", "--devices", "4", "--decoder-last-pipeline-num-layers", "6", "-q"
    ) == ("Et*8|t*8|t*8|t*6L\n")
    assert ask("--layers-per-stage", "3,0,2", "--mtp-num-layers", "1", "-q") == "Et*3||ttmL\n"
    lines = ask("Et|tt|tt|L", "--chunks", "2", "--placement", "v").splitlines()
    assert [line.split() for line in lines[3:8]] == [
        ["stage", "device", "layers", "content"],
        ["0", "0", "1", "Et"],
        ["1", "1", "2", "tt"],
        ["2", "1", "2", "tt"],
        ["3", "0", "0", "L"],
    ]


def test_an_empty_stage_is_pointed_out():
    assert "stage 4 has no layer" in ask("Et|(tt|)*3|L")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the layout is missing"),
        (["--num-layers", "8"], "the layout is missing"),
        (["EtL", "--decoder-first-pipeline-num-layers", "1"], "rule one-way-to-split"),
        (
            ["--layers-per-stage", "1,2", "--account-for-loss-in-pipeline-split"],
            "rule one-way-to-split",
        ),
        (["Et|t|L", "--devices", "2"], "rule stage-count"),
        (["Et|t|L", "--chunks", "2"], "rule stage-count"),
        (["Et|t|L", "--devices", "1", "--chunks", "2"], "rule stage-count"),
        (["Et|t|L", "--devices", "0"], "--devices must be 1 or more"),
        (["Et|t|L", "--num-layers", "3"], "rule layer-count"),
        (["Et|t|L", "--mtp-num-layers", "3"], "rule mtp-count"),
        (["--num-layers", "1000000000", "--devices", "1000000000"], "1,000,000 at most"),
        (["Et|t|L", "--devices", "999999999"], "rule stage-count"),
        (["Et|t|L", "--num-layers", "999999999"], "rule layer-count"),
        (["--num-layers", "-3", "--devices", "2"], "--num-layers must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(words, said):
    error = CliRunner().invoke(group, ["layout", *words]).exception
    assert isinstance(error, PpsimError)
    assert error.exit_code == 2
    assert said in f"{error} {error.hint}"
