"""Tables of CSV hold any text: it comes back as it was, and no spreadsheet runs it."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.base.tables import read_table, save_table
from ppsim.errors import InputError
from tests.commands import invoke, refused

SMALL = ("--devices", "2", "--mb", "2")

# What a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian
# keyboards.
RUN = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
PARTS = [*"=+-@'\t\r\n\"\uff1d,;a1\\x\x1b\u202e", "\\x1b", "\\x5c", "\\u202e"]
TEXTS = st.text(st.sampled_from("=+-@'\t\r\n\"\uff1d,;a1")) | st.text(
    st.characters(exclude_categories=["Cs"])
)
TEXTS |= st.lists(st.sampled_from(PARTS)).map("".join)
# What a terminal obeys.
OBEYED = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(name=TEXTS, text=TEXTS)
@example(name="name", text="=HYPERLINK(1)")
@example(name="'=a", text="''@a")
@example(name="", text="\r=")
@example(name="\x1b[31m", text="\\x1b\x1b\\\\x5c")
def test_a_text_comes_back_and_is_no_formula(tmp_path_factory, name, text):
    file = str(tmp_path_factory.getbasetemp() / "t.csv")
    save_table([{name: text, f"{name}!": 1}], file)
    with Path(file).open(newline="", encoding="utf-8") as source:
        cells = [cell for row in csv.reader(source) for cell in row]
    assert not [cell for cell in cells if cell.startswith(RUN) or OBEYED.search(cell)]
    assert read_table(file) == [{name: text, f"{name}!": "1"}]


def test_numbers_are_written_as_numbers(tmp_path):
    numbers = [-1, -2.5, 1e-9, -math.inf]
    save_table([{"n": number} for number in numbers], str(tmp_path / "t.csv"))
    assert (tmp_path / "t.csv").read_text().split() == ["n", "-1", "-2.5", "1e-09", "-inf"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["=cmd.json", "@x.json", "-x.json", "'=x.json", "a\x1b[31m.json"])
def test_a_sweep_of_such_a_file_is_kept_and_taken_up_again(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", name).exit_code == 0
    words = [
        "sweep",
        "--devices",
        "2",
        "--mb",
        "2",
        "-o",
        "r.csv",
        "--results",
        "kept.csv",
        "-q",
        "--",
        name,
    ]
    assert invoke(*words).exit_code == 0
    for file in ("r.csv", "kept.csv"):
        with Path(file).open(newline="") as source:
            cells = [cell for row in csv.reader(source) for cell in row]
        assert not [cell for cell in cells if cell.startswith(RUN) or OBEYED.search(cell)]
        assert [row["name"] for row in read_table(file)] == [name]
    assert "1 is in kept.csv already" in invoke(*words).stderr


@pytest.mark.parametrize("text", ["C:\\x64\\new", "\\n", "\\u0041", "\\", "\\x1", "\\X1B"])
def test_a_backslash_of_other_tables_is_read_as_it_stands(tmp_path, text):
    (tmp_path / "t.csv").write_text(f"name\n{text}\n")
    assert read_table(str(tmp_path / "t.csv")) == [{"name": text}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("tokens,tokens\n1,2\n", "has two columns 'tokens'"),
        ("a,tokens,b,tokens\n1,2,3,4\n", "has two columns 'tokens'"),
        ("tokens,microbatch\n1,5,0\n2,1\n", "row 1 has 3 cells for 2 columns"),
        ("tokens\n1\n2,5\n", "row 2 has 2 cells for 1 columns"),
    ],
)
def test_cells_that_no_column_or_two_columns_name_are_refused(tmp_path, content, said):
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(InputError, match=said):
        read_table(str(tmp_path / "t.csv"))
    refusal = refused("run", "1f1b", *SMALL, "--lengths", str(tmp_path / "t.csv"))
    assert said in str(refusal)


def test_empty_cells_behind_a_row_and_columns_that_are_not_asked_for_are_left_alone(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,b,,\n1,2,3,,\n4,5,6, ,,\n")
    rows = read_table(str(tmp_path / "t.csv"), columns=("a",))
    assert rows == [{"a": "1"}, {"a": "4"}]


def test_lists_with_control_characters_come_back(tmp_path):
    """They are JSON text, which has escapes of its own."""
    value = ["\x1b[31m", "\u202e", "\\x1b"]
    save_table([{"names": value}], str(tmp_path / "t.csv"))
    assert not OBEYED.search((tmp_path / "t.csv").read_text())
    assert json.loads(read_table(str(tmp_path / "t.csv"))[0]["names"]) == value
