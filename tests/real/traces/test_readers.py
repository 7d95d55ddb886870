"""A file put into the folder of readers reads runs of its format, for every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppsim.real.traces import read, readers
from tests.commands import answer, refused
from tests.contributing import code_of

LOG = "# my log\n0 F 0 0 0 1\n1 F 1 0 1 2\n1 B 1 0 2 4\n0 B 0 0 4 6\n"


@pytest.fixture
def own_reader(tmp_path, monkeypatch):
    """A reader of one format more, in a folder that is scanned as well."""
    folder = tmp_path / "readers"
    folder.mkdir()
    (folder / "my_log.py").write_text(code_of("Add a reader of real runs"))
    monkeypatch.setattr(readers, "__path__", [*readers.__path__, str(folder)])
    read.find_readers.cache_clear()
    yield
    read.find_readers.cache_clear()


@pytest.mark.usefixtures("own_reader")
def test_a_reader_is_one_file(tmp_path):
    """Read, explain, calibrate and hints know a format that only its file declares."""
    (tmp_path / "run.minelog").write_text(LOG)
    for path in (tmp_path, tmp_path / "run.minelog"):
        assert json.loads(answer("read", str(path), "--json")[1])["format"] == "mine"
    assert "a log of mine" in answer("read", str(tmp_path))[1]
    assert answer("explain", "--trace", str(tmp_path))[0] == 0
    profile = str(tmp_path / "p.toml")
    assert answer("calibrate", "--from-trace", str(tmp_path), "-o", profile)[0] == 0
    assert answer("run", "gpipe", "--devices", "2", "--mb", "2", "--profile", profile)[0] == 0
    (tmp_path / "none").mkdir()
    (tmp_path / "other.log").write_text("hello")
    other = str(tmp_path / "other.log")
    asked = (
        ("read", str(tmp_path / "none")),
        ("read", other),
        ("explain", "--trace", other),
        ("validate", "--trace", other),
        ("diff", other, "1f1b"),
    )
    for words in asked:
        assert "my *.minelog" in refused(*words).hint, words


def test_without_its_file_a_format_is_unknown(tmp_path):
    """The same log is refused where no reader is there for it."""
    (tmp_path / "run.minelog").write_text(LOG)
    assert "my *.minelog" not in refused("read", str(tmp_path)).hint


def test_places_of_readers_differ():
    """Two readers with one place would be asked in the order of their files' names."""
    places = [reader.place for reader in read.find_readers()]
    assert len(set(places)) == len(places)


def test_a_table_in_parquet_gives_a_profile(tmp_path):
    """Calibrate reads what is no text, as read does."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = {
        "device": [0, 1, 1, 0],
        "kind": ["F", "F", "B", "B"],
        "microbatch": [0, 0, 0, 0],
        "start_ms": [0.0, 1.0, 2.0, 4.0],
        "end_ms": [1.0, 2.0, 4.0, 6.0],
    }
    parquet.write_table(pyarrow.table(rows), tmp_path / "ops.parquet")
    code, _, said = answer(
        "calibrate", "--from-trace", str(tmp_path), "-o", str(tmp_path / "costs.toml")
    )
    assert (code, (tmp_path / "costs.toml").exists()) == (0, True), said


DATA = Path(__file__).parents[2] / "data"
TRACES = tuple(str(DATA / "traces" / f"gpipe-rank{rank}.json.gz") for rank in (0, 1))
RECORDED = str(DATA / "real_runs" / "recorded_1f1b")
PRIMUS = DATA / "real_runs" / "primus_pp8"


@pytest.mark.parametrize("run", [TRACES, (RECORDED,)], ids=["kineto", "table"])
def test_a_file_that_no_reader_knows_is_named(run, tmp_path):
    """It was left out in silence where another file is of a known format."""
    other = tmp_path / "s.csv"
    other.write_text("a,b\n1,2\n")
    sentence = f"'{other}' is not a file of this run, and was left out"
    calibrate = ("calibrate", "-o", str(tmp_path / "p.toml"), "--from-trace")
    for command in (("read",), calibrate):
        code, printed, noted = answer(*command, *run, str(other))
        assert code == 0
        assert sentence in " ".join((printed + noted).split())
        code, printed, noted = answer(*command, *run, *["--force"] * (command is calibrate))
        assert code == 0
        assert "of this run" not in printed + noted


def test_many_such_files_are_counted(tmp_path):
    """A note names three, and JSON has it too."""
    others = [tmp_path / f"{name}.txt" for name in "abcde"]
    for other in others:
        other.write_text("hello\n")
    found = json.loads(answer("read", *TRACES, *map(str, others), "--json")[1])
    named = ", ".join(f"'{other}'" for other in others[:3])
    assert f"{named} and 2 more are not files of this run, and were left out" in found["notes"]


def test_a_file_that_the_run_needs_is_not_left_out():
    """Primus' config.json has no ops, and its settings are used; in a folder others are ignored."""
    ranks = [str(PRIMUS / f"pp_rank_{rank}.json.gz") for rank in range(8)]
    for words in ([*ranks, str(PRIMUS / "config.json")], [str(PRIMUS)]):
        assert json.loads(answer("read", *words, "--json")[1])["notes"] == []
