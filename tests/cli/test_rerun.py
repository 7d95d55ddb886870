"""What ppsim writes says how it was made, and ``rerun`` makes it again, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppsim.base.tables import read_table
from ppsim.errors import InputError
from ppsim.show.files.provenance import read_inputs
from tests.commands import invoke, refused

COMMAND = "run --schedule zb-1p --stages 3 --mb 4 --tf 1,2,3.25 --unit ms"
DRAWN = [pytest.param(suffix, marks=pytest.mark.slow) for suffix in ("png", "gif", "pdf")]
FORMATS = ["svg", *DRAWN, "html", "json", "mmd", "trace.json", "trace.json.gz"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_says_its_command_and_comes_out_the_same(suffix):
    look = ["--style", "screen", "--width", "4.5"] if suffix in ("svg", "png", "gif", "pdf") else []
    assert invoke(*COMMAND.split(), *look, "-q", "-o", f"a.{suffix}").exit_code == 0
    assert read_inputs(f"a.{suffix}")["command"] == " ".join(["ppsim", *COMMAND.split(), *look])
    first = Path(f"a.{suffix}").read_bytes()
    assert invoke("rerun", f"a.{suffix}", "-o", f"b.{suffix}").exit_code == 0
    assert Path(f"b.{suffix}").read_bytes() == first
    Path(f"a.{suffix}").write_bytes(Path(f"b.{suffix}").read_bytes())
    assert invoke("rerun", f"a.{suffix}").exit_code == 0
    assert Path(f"a.{suffix}").read_bytes() == first


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_table_says_its_command_and_stays_a_table(suffix):
    """In CSV as the last column, which readers of tables take as text; in Parquet beside the columns."""
    from pyarrow import parquet

    words = ["sweep", "1f1b", "zb-1p", "--devices", "2", "--mb", "2,4"]
    assert invoke(*words, "-q", "-o", f"a.{suffix}").exit_code == 0
    assert read_inputs(f"a.{suffix}")["command"] == " ".join(["ppsim", *words])
    assert invoke("rerun", f"a.{suffix}", "-o", f"b.{suffix}").exit_code == 0
    assert Path(f"b.{suffix}").read_bytes() == Path(f"a.{suffix}").read_bytes()
    if suffix != "json":
        rows = read_table("a.csv") if suffix == "csv" else parquet.read_table("a.parquet").to_pylist()
        assert [row["name"] for row in rows] == ["1f1b", "1f1b", "zb-1p", "zb-1p"]
        assert ("made_by" in rows[0]) == (suffix == "csv")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        "compare 1f1b gpipe --devices 2 --mb 2 -o a.svg",
        "explain 1f1b --stages 2 --mb 2 -o a.html",
        "memory 1f1b --stages 2 --mb 2 -o a.html",
        "diff 1f1b gpipe --devices 2 --mb 2 -o a.html",
        "compare 1f1b gpipe --devices 2 --mb 2 -o a.json",
        "run 1f1b --devices 2 --mb 2 --cluster dgx-h100 --unit ms --mb-scale W=uniform:0.1:3 -o a.json",
        "sweep 1f1b gpipe --devices 2 --mb 2,4 -o a.html",
    ],
)
def test_files_of_every_command_come_out_the_same(words):
    *command, target = words.split()
    assert invoke(*command, target).exit_code == 0
    assert invoke("rerun", target, "-o", f"b{target}").exit_code == 0
    assert Path(f"b{target}").read_bytes() == Path(target).read_bytes()


def test_a_schedule_of_torch_has_no_place_for_its_command():
    """torch reads each line as a device and each cell as an action; the JSON written beside it makes both again."""
    invoke(*["run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", "a.csv", "-o", "a.json"])
    with pytest.raises(InputError, match="no place for it") as refused:
        read_inputs("a.csv")
    assert "ppsim rerun x.json -o x.csv" in refused.value.hint
    assert invoke("rerun", "a.json", "-o", "b.csv").exit_code == 0
    assert Path("b.csv").read_bytes() == Path("a.csv").read_bytes()


def test_the_command_can_be_printed_only():
    invoke(*COMMAND.split(), "-q", "-o", "a.json")
    assert invoke("rerun", "a.json", "--print").output == f"ppsim {COMMAND}\n"


@pytest.mark.parametrize("words", ["diff x.json gpipe -o a.html", "convert x.json -o a.mmd"])
def test_what_was_made_of_other_files_is_repeated_by_hand(words):
    """A picture names no file to read; the command that ppsim stored is given for a shell."""
    invoke("run", "1f1b", "--stages", "2", "--mb", "2", "-q", "-o", "x.json")
    *command, target = words.split()
    assert invoke(*command, target).exit_code == 0
    error = refused("rerun", target, "-o", f"b{target}")
    assert "'x.json', which may be a file to read" in str(error)
    assert error.hint == f"if you trust it, by hand: ppsim {' '.join(command[:-1])}"
    assert not Path(f"b{target}").exists()


@pytest.mark.parametrize(
    "content", [b"", b"0F0,0B0\n", b"\x89PNG\r\n", b"%PDF-1.4 /Subject <1>", b"<svg></svg>", b"[[[[", b'{"command":3}']
)
def test_a_file_that_does_not_say_is_refused(content):
    Path("a").write_bytes(content)
    with pytest.raises(InputError, match="does not say how it was made"):
        read_inputs("a")


def test_open_hands_over_pages_and_traces_only():
    Path("a.svg").write_text("<svg/>")
    assert invoke("open", "a.svg", "--print-url").output == Path("a.svg").resolve().as_uri() + "\n"
    Path("a.csv").write_text("0F0")
    assert "neither a page" in str(invoke("open", "a.csv").exception)
    assert "cannot read" in str(invoke("open", "none.svg").exception)
