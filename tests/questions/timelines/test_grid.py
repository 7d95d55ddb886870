"""``ppsim run --grid`` prints, and writes as csv or json, the schedule on integer slots."""

import json

import pytest
from click.testing import CliRunner

from ppsim.cli import group
from ppsim.errors import InputError


def run(*words: str) -> str:
    return CliRunner().invoke(group, ["run", *words, "--grid"], catch_exceptions=False).stdout


def test_messages_are_steps_with_lowered():
    assert run("1f1b", "--stages", "2", "--mb", "1", "--lowered") == (
        "1f1b takes 6 slots; devices wait in 4 of 12 (slots x devices)\n"
        "slot  0   1        2   3   4        5\n"
        "dev 0 0F0 0SEND_F0 .   .   0RECV_B0 0B0\n"
        "dev 1 .   1RECV_F0 1F0 1B0 1SEND_B0 .\n"
    )


def test_the_same_rows_as_text_json_and_csv(tmp_path):
    shape = ("zb-1p", "--stages", "3", "--mb", "4")
    value = json.loads(run(*shape, "--json"))
    assert value["schema"] == "ppsim.grid/1"
    assert run(*shape, "-o", "-", "-f", "csv") == "".join(
        ",".join(row) + "\n" for row in value["rows"]
    )
    run(*shape, "-o", str(tmp_path / "x.json"), "-o", str(tmp_path / "x.csv"))
    assert json.loads((tmp_path / "x.json").read_text())["rows"] == value["rows"]
    assert (tmp_path / "x.csv").read_text() == run(*shape, "-o", "-", "-f", "csv")


@pytest.mark.parametrize(
    "words", [("--tf", "2"), ("--p2p", "overlap"), ("-q",), ("--order", "torch"), ("-o", "x.svg")]
)
def test_what_changes_nothing_is_refused(words):
    with pytest.raises(InputError):
        run("1f1b", "--stages", "2", "--mb", "2", *words)
