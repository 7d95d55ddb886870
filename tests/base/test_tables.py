"""Tables of CSV hold any text: it comes back as it was, and no spreadsheet runs it."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.base.tables import read_table, save_table
from tests.commands import invoke

# What a spreadsheet takes for the beginning of a formula, also in the wide forms of East Asian keyboards.
RUN = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
TEXTS = st.text(st.sampled_from("=+-@'\t\r\n\"\uff1d,;a1")) | st.text(st.characters(exclude_categories=["Cs"]))


@given(name=TEXTS, text=TEXTS)
@example(name="name", text="=HYPERLINK(1)")
@example(name="'=a", text="''@a")
@example(name="", text="\r=")
def test_a_text_comes_back_and_is_no_formula(tmp_path_factory, name, text):
    file = str(tmp_path_factory.getbasetemp() / "t.csv")
    save_table([{name: text, f"{name}!": 1}], file)
    with Path(file).open(newline="", encoding="utf-8") as source:
        cells = [cell for row in csv.reader(source) for cell in row]
    assert not [cell for cell in cells if cell.startswith(RUN)]
    assert read_table(file) == [{name: text, f"{name}!": "1"}]


def test_numbers_are_written_as_numbers(tmp_path):
    numbers = [-1, -2.5, 1e-9, -math.inf]
    save_table([{"n": number} for number in numbers], str(tmp_path / "t.csv"))
    assert (tmp_path / "t.csv").read_text().split() == ["n", "-1", "-2.5", "1e-09", "-inf"]


@pytest.mark.parametrize("name", ["=cmd.json", "@x.json", "-x.json", "'=x.json"])
def test_a_sweep_of_such_a_file_is_kept_and_taken_up_again(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", name).exit_code == 0
    words = ["sweep", "--devices", "2", "--mb", "2", "-o", "r.csv", "--results", "kept.csv", "-q", "--", name]
    assert invoke(*words).exit_code == 0
    for file in ("r.csv", "kept.csv"):
        with Path(file).open(newline="") as source:
            assert not [cell for row in csv.reader(source) for cell in row if cell.startswith(RUN)]
        assert [row["name"] for row in read_table(file)] == [name]
    assert "1 is in kept.csv already" in invoke(*words).stderr
