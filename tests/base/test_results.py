"""Tables, and files of finished rows from which work goes on."""

from __future__ import annotations

import csv
import json
from contextlib import suppress

import pytest
from pyarrow import parquet

from ppsim.base import results as module
from ppsim.base.results import Results, fingerprint
from ppsim.base.tables import read_table, save_table
from ppsim.errors import InputError, PpsimError

ROWS = [
    {"name": "a, b", "time": 1 / 3, "count": 2, "fits": True, "parts": [1, 2]},
    {"name": 'x"\ny', "time": 4, "count": 3, "fits": False, "reason": "too much"},
]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_come_back_from_a_file_to_the_last_bit(tmp_path, suffix):
    """Numbers, infinity, lists and texts with commas and line ends."""
    path = str(tmp_path / f"kept{suffix}")
    rows = {"one": ROWS[0], "two": {**ROWS[1], "bound": float("inf"), "none": None}}
    with Results(path, {"tf": 1.5}) as kept:
        for key, row in rows.items():
            kept.add(key, row)
    assert Results(path, {"tf": 1.5}).rows == rows


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_of_other_inputs_is_refused(tmp_path, suffix):
    path = str(tmp_path / f"kept{suffix}")
    with Results(path, {"tf": 1}) as kept:
        kept.add("one", ROWS[0])
    with pytest.raises(InputError, match="other inputs"):
        Results(path, {"tf": 2})
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 1})


def test_rows_are_kept_where_the_block_is_interrupted(tmp_path):
    path = str(tmp_path / "kept.parquet")
    with suppress(KeyboardInterrupt), Results(path, 1) as kept:
        kept.add("one", ROWS[0])
        raise KeyboardInterrupt
    assert Results(path, 1).rows == {"one": ROWS[0]}


def test_rows_are_written_on_the_way(tmp_path, monkeypatch):
    """A process that is killed has lost a few seconds."""
    monkeypatch.setattr(module, "EVERY_S", 0.0)
    path = str(tmp_path / "kept.csv")
    kept = Results(path, 1)
    kept.add("one", ROWS[0])
    assert Results(path, 1).rows == {"one": ROWS[0]}


def test_a_csv_file_cut_at_any_byte_loses_its_last_row_or_is_refused(tmp_path, monkeypatch):
    """Names with letters of several bytes, commas and line ends; no row comes back with another
    content.
    """
    monkeypatch.setattr(module, "rehearse", lambda path, plain: None)
    path = tmp_path / "kept.csv"
    rows = {f"größe {k}": {"name": ROWS[1]["name"], "number": k / 7} for k in range(3)}
    with Results(str(path), 1) as kept:
        for key, row in rows.items():
            kept.add(key, row)
    data, counts = path.read_bytes(), set()
    for end in range(1, len(data)):
        monkeypatch.setattr("ppsim.base.tables.read_bytes", lambda path, end=end: data[:end])
        try:
            found = Results(str(path), 1)
        except InputError:
            counts.add(0)
            continue
        assert found.rows.items() <= rows.items()
        assert found.cut or len(found.rows) == data[:end].count(b"}")
        counts.add(len(found.rows))
    assert counts == {0, 1, 2, 3}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_two_runs_that_write_one_file_keep_the_rows_of_both(tmp_path, suffix):
    path = str(tmp_path / f"kept{suffix}")
    with Results(path, 1) as one, Results(path, 1) as other:
        one.add("one", ROWS[0])
        one.write()
        other.add("two", ROWS[1])
        other.write()
        one.add("three", ROWS[0])
    assert Results(path, 1).rows == {"one": ROWS[0], "two": ROWS[1], "three": ROWS[0]}


def test_a_run_does_not_write_over_the_rows_of_other_inputs(tmp_path):
    path = str(tmp_path / "kept.csv")
    one, other = Results(path, 1), Results(path, 2)
    one.add("one", ROWS[0])
    one.write()
    other.add("one", ROWS[1])
    with pytest.raises(InputError, match="other inputs"):
        other.write()
    assert Results(path, 1).rows == {"one": ROWS[0]}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("kept.txt", b"", "ends in .csv or .parquet"),
        ("kept.parquet", b"PAR1", "new file"),
        ("kept.csv", b"a,b\n1,2\n", "not a file of results"),
        ("kept.csv", b"a letter that would be lost\n", "not a file of results"),
        ("kept.csv", b"\xff\xfe\x00", "new file"),
        ("kept.csv", f"key,inputs,row\nx,{fingerprint(1)},{{\n".encode(), "damaged"),
        ("kept.csv", f"key,inputs,row\nx,{fingerprint(1)},4\n".encode(), "not a file of results"),
    ],
)
def test_what_is_no_file_of_results_is_refused_and_left_as_it_is(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(PpsimError) as caught:
        Results(str(path), 1)
    assert says in f"{caught.value} {caught.value.hint}"
    assert path.read_bytes() == content


def test_a_table_has_a_column_for_every_key(tmp_path):
    for suffix in (".csv", ".json", ".parquet"):
        save_table(ROWS, str(tmp_path / f"t{suffix}"))
    with open(tmp_path / "t.csv", newline="") as file:
        assert list(csv.reader(file)) == [
            ["name", "time", "count", "fits", "parts", "reason"],
            ["a, b", "0.3333333333333333", "2", "true", "[1, 2]", ""],
            ['x"\ny', "4", "3", "false", "", "too much"],
        ]
    assert json.loads((tmp_path / "t.json").read_text()) == ROWS
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == [
        {**ROWS[0], "reason": None},
        {**ROWS[1], "parts": None},
    ]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_row_that_was_changed_is_refused_by_its_key_and_works_once_removed(tmp_path, suffix):
    """A renamed, missing or retyped key of a row would be found where it is used, which knows no
    file.
    """
    path = str(tmp_path / f"kept{suffix}")
    with Results(path, 1) as kept:
        for key, row in zip(("one", "two", "three"), (*ROWS, ROWS[0]), strict=True):
            kept.add(key, row)
    rows = read_table(path)
    for changed in ('{"named": 1}', "[]", "5", str(rows[0]["row"]).replace("time", "times")):
        save_table([{**rows[0], "row": changed}, *rows[1:]], path)
        with pytest.raises(InputError, match="the row of 'one' is damaged, or was changed"):
            Results(path, 1)
    save_table(rows[1:], path)
    assert set(Results(path, 1).rows) == {"two", "three"}


def test_a_last_row_of_nothing_but_brackets_counts_as_cut(tmp_path):
    path = str(tmp_path / "kept.csv")
    with Results(path, 1) as kept:
        kept.add("one", ROWS[0])
        kept.add("two", ROWS[1])
    first, last = read_table(path)
    save_table([first, {**last, "row": "[" * 200_000}], path)
    again = Results(path, 1)
    assert (list(again.rows), again.cut) == (["one"], True)
