"""Conversion loses nothing without being told to, and check and convert behave as commands."""

import contextlib
import json
import re
import shutil
from pathlib import Path

import pytest

from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError, InvalidSchedule, PpsimError
from ppsim.schedules import generate
from ppsim.show.files.writers import csv
from tests.commands import invoke

DATA = Path(__file__).parents[2] / "data"
SEVEN = str(DATA / "schedules" / "fill_drain_drawn_by_hand.mmd")
STUCK = (
    "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"
)


def convert(*args: str) -> None:
    """Run convert, and raise what it complains of."""
    result = invoke("convert", *args)
    if isinstance(result.exception, PpsimError):
        raise result.exception
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A folder with the same run as CSV, JSON, trace and Mermaid text."""
    made = tmp_path_factory.mktemp("written")
    run = ["run", "-s", "dualpipe-v", "--devices", "2", "--mb", "5", "-q"]
    with contextlib.chdir(made):
        names = ["x.csv", "x.json", "x.trace.json", "x.mmd"]
        assert invoke(*run, *[word for name in names for word in ("-o", name)]).exit_code == 0
    return made


@pytest.fixture
def folder(written, tmp_path, monkeypatch) -> Path:
    """A copy of that folder, which the test stands in."""
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_way_through_every_format_ends_where_it_began(folder):
    """JSON to trace to Mermaid to JSON keeps ops and times; the CSV of each is the CSV of the
    run.
    """
    convert("x.json", "-o", "a.trace.json")
    convert("a.trace.json", "-o", "b.mmd")
    convert("b.mmd", "-o", "c.json")
    for name in ("ops", "makespan", "unit"):
        assert (
            json.loads((folder / "c.json").read_text())[name]
            == json.loads((folder / "x.json").read_text())[name]
        )
    for name in ("x.json", "a.trace.json", "b.mmd", "c.json"):
        convert(name, "--lossy", "-o", "d.csv")
        assert (folder / "d.csv").read_text() == (folder / "x.csv").read_text()


def test_times_that_a_csv_cannot_hold_are_refused_unless_lossy(folder):
    with pytest.raises(InputError, match=r"csv cannot carry the times of x\.json") as caught:
        convert("x.json", "-o", "y.csv")
    assert "--lossy" in caught.value.hint
    assert not (folder / "y.csv").exists()


def test_digits_that_mermaid_cannot_hold_are_refused_unless_lossy(folder):
    convert("x.csv", "--tf", "1.23456", "-o", "y.json")
    with pytest.raises(InputError, match="times to the last digit"):
        convert("y.json", "-o", "y.mmd")
    convert("y.json", "-o", "y.mmd", "--lossy")


@pytest.mark.parametrize("tf", ["1e-3", "1e-5", "2.5e-7", "4e-10", "0.3333333", "7"])
def test_mermaid_bars_keep_their_length_however_short(folder, tf):
    assert (
        invoke(
            "run",
            "-s",
            "1f1b",
            "--stages",
            "2",
            "--mb",
            "3",
            "--tf",
            tf,
            "--ti",
            tf,
            "--tw",
            tf,
            "-o",
            "s.json",
            "-o",
            "s.mmd",
            "-q",
        ).exit_code
        == 0
    )
    convert("s.mmd", "-o", "back.json")
    back, whole = (
        json.loads((folder / name).read_text())["ops"] for name in ("back.json", "s.json")
    )
    assert back["end"] == pytest.approx(whole["end"], rel=1e-3)
    assert all(end > start for start, end in zip(back["start"], back["end"], strict=True))


def test_mermaid_bars_too_short_to_write_are_refused(folder):
    with pytest.raises(InputError, match=r"a bar of .* is too short"):
        convert("x.csv", "--tf", "1e-15", "-o", "y.mmd")


def test_costs_for_a_file_that_holds_times_are_refused(folder):
    with pytest.raises(
        InputError, match=r"x\.json has times, so --tf, --cost-per cannot be given too"
    ):
        convert("x.json", "-o", "c.json", "--tf", "9", "--cost-per", "stage")
    assert not (folder / "c.json").exists()


@pytest.mark.parametrize("name", ["x.csv", "./x.csv", "link.csv"])
def test_convert_never_writes_over_what_it_reads(folder, name):
    (folder / "link.csv").symlink_to("x.csv")
    before = (folder / "x.csv").read_text()
    with pytest.raises(InputError, match="is the file that is read"):
        convert("x.csv", "-o", "y.csv", "-o", name)
    assert (folder / "x.csv").read_text() == before
    assert not (folder / "y.csv").exists()


def test_sends_and_receives_stay_in_a_csv_and_are_refused_elsewhere(folder):
    text = csv.text(
        lower(generate("1f1b", devices=2, microbatches=3), "torch", reduce_grad=True).schedule
    )
    (folder / "comms.csv").write_text(text)
    convert("comms.csv", "-o", "y.csv")
    assert (folder / "y.csv").read_text() == text
    for name in ("y.json", "y.svg", "y.mmd"):
        with pytest.raises(InputError, match="sends, receives"):
            convert("comms.csv", "-o", name)
        convert("comms.csv", "-o", name, "--lossy")


def test_the_older_letters_become_todays(folder):
    convert(str(DATA / "torch" / "zb1p_2rank_2stagep_compute.csv"), "-o", "y.csv", "--lossy")
    written = (folder / "y.csv").read_text()
    assert written.startswith("0F0,0F1,2F0,2F1,2I0,2W0,0F2,2I1")
    assert "B" not in written


def test_a_csv_that_torch_would_get_wrong_is_not_written(folder):
    (folder / "late.csv").write_text("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n")
    with pytest.raises(InvalidSchedule, match="without an error"):
        convert("late.csv", "-o", "y.csv")
    assert not (folder / "y.csv").exists()
    assert (
        invoke("run", "-s", "dualpipe", "--devices", "2", "--mb", "4", "-o", "y.csv").exit_code != 0
    )


def test_convert_writes_to_standard_output_and_reads_standard_input():
    result = invoke("convert", "-", "-o", "-", "-f", "csv", text=" 0F0 ,0B0")
    assert result.stdout == "0F0,0B0\n"


def test_valid_files_are_said_to_be_valid_with_what_was_checked(folder):
    result = invoke("check", "x.csv", "--for", "torch-2.13")
    assert result.exit_code == 0
    assert result.stdout.startswith("valid: 2 devices, 4 stages, 5 microbatches; every op once")
    assert invoke("check", "x.json", "-q").stdout == "valid\n"
    assert "one at a time on each device" in invoke("check", "x.mmd").stdout


def test_each_fault_is_shown_with_its_cells_and_carets():
    result = invoke("check", "-", text=STUCK)
    assert result.exit_code == 1
    shown = [line for line in result.stdout.splitlines() if line.startswith("  line")]
    carets = result.stdout.splitlines()
    assert carets[:2] == ["invalid: 1 fault", ""]
    assert carets[2] == "deadlock in line 1, cell 4: by blocking sends and receives"
    assert carets[3].startswith("  each waits for the next: 0SEND_F1 -> ")
    assert shown[0] == "  line 1: 0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1"
    place = carets[carets.index(shown[0]) + 1].index("^")
    assert shown[0][place : place + 8] == "0SEND_F1"
    assert "  try: move 1RECV_F1 before 1SEND_B0 on device 1" in carets


def test_the_modes_asked_for_decide():
    assert invoke("check", "-", "--mode", "overlap", "--mode", "batched", text=STUCK).exit_code == 0
    assert invoke("check", "-", "--mode", "blocking", text=STUCK).exit_code == 1


def test_of_many_faults_the_first_are_shown():
    """Every op of 32 x 500 twice would be 224,000 lines."""
    rows = "".join(",".join(f"{d}F{m}" for m in range(50)) + "\n" for d in range(8)) * 2
    result = invoke("check", "-", text=rows)
    assert result.stdout.count("\n\n") == 51
    assert re.match(r"invalid: \d+ faults\n\n", result.stdout)
    assert re.search(r"\n\n\d+ more; --json prints all\n$", result.stdout)
    assert len(json.loads(invoke("check", "-", "--json", text=rows).stdout)["faults"]) > 400


def test_check_prints_one_json_object():
    result = invoke("check", SEVEN, "--json")
    assert result.exit_code == 1
    value = json.loads(result.stdout)
    assert (value["schema"], value["valid"], len(value["faults"])) == ("ppsim.check/1", False, 7)
    assert {"kind", "device", "row", "cell", "message"} <= set(value["faults"][0])
    assert [fault["kind"] for fault in value["faults"]] == ["overlap"] * 4 + ["early"] * 3


def test_check_prints_annotations_that_github_understands(folder):
    (folder / "a,b.csv").write_text(STUCK)
    result = invoke("check", "a,b.csv", "--github")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"::error file=a%2Cb\.csv,line=1,col=18,endColumn=25,title=ppsim check%3A "
        r"deadlock::deadlock by blocking [^\n]*"
        r"%0Atry: move 1RECV_F1 before 1SEND_B0 on device 1\n",
        result.stdout,
    )


@pytest.mark.parametrize("text", ["hello", "0F0,0F1x", "{", ""])
def test_what_cannot_be_read_is_the_users_error_not_a_verdict(text):
    result = invoke("check", "-", text=text)
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2


@pytest.fixture
def cluster_run(folder) -> list[str]:
    """Arguments of a run with messages and a gradient reduction after its last op."""
    (folder / "c.toml").write_text(
        'schema = "ppsim.cluster/1"\ndevices_per_node = 2\nmessage_bytes = 1000\n[intra]\nalpha_us '
        "= 4\n"
        "gb_per_s = 300\n[fsdp]\nreduce_grad_us = 8000\n"
    )
    return [
        "run",
        "-s",
        "1f1b",
        "--stages",
        "2",
        "--mb",
        "3",
        "--unit",
        "ms",
        "--cluster",
        "c.toml",
        "--reduce-grad",
    ]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("suffix", [".json", ".trace.json"])
@pytest.mark.parametrize("target", ["y.json", "y.trace.json", "y.mmd", "y.svg"])
def test_messages_are_refused_unless_lossy(folder, cluster_run, suffix, target):
    """Neither a file nor a picture made by convert shows messages."""
    assert invoke(*cluster_run, "-q", "-o", f"r{suffix}").exit_code == 0
    with pytest.raises(InputError, match="cannot carry the messages"):
        convert(f"r{suffix}", "-o", target)
    assert not (folder / target).exists()
    convert(f"r{suffix}", "-o", target, "--lossy")


def test_the_end_of_the_iteration_is_kept_or_refused(folder, cluster_run):
    """A reduction of gradients ends after the last op, and the makespan is the same in every file
    made of it.
    """
    assert invoke(*cluster_run, "-q", "-o", "r.json").exit_code == 0
    value = json.loads((folder / "r.json").read_text())
    assert value["makespan"] > max(value["ops"]["end"])
    (folder / "r.json").write_text(json.dumps({k: v for k, v in value.items() if k != "transfers"}))
    convert("r.json", "-o", "r2.json")
    again = json.loads((folder / "r2.json").read_text())
    assert [again[key] for key in ("makespan", "bubble_rate", "unit")] == [
        value[key] for key in ("makespan", "bubble_rate", "unit")
    ]
    for target in ("r.trace.json", "r.mmd"):
        with pytest.raises(InputError, match=r"cannot carry .*the end of the iteration of r\.json"):
            convert("r.json", "-o", target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unit", ["ms", "k cycles", "us", ""])
@pytest.mark.parametrize("suffix", [".trace.json", ".mmd"])
def test_the_unit_comes_through_every_format(folder, unit, suffix):
    convert("x.csv", "--unit", unit, "--tf", "0.5", "-o", "u.json")
    convert("u.json", "-o", f"v{suffix}")
    convert(f"v{suffix}", "-o", "w.json")
    first, last = (json.loads((folder / name).read_text()) for name in ("u.json", "w.json"))
    assert (last["unit"], last["makespan"]) == (unit, first["makespan"])


def test_empty_cells_are_refused_unless_lossy(folder):
    (folder / "gaps.csv").write_text("0F0,,0B0\n,1F0,1B0\n")
    for target in ("y.csv", "y.json"):
        with pytest.raises(InputError, match=r"cannot carry the empty cells of gaps\.csv"):
            convert("gaps.csv", "-o", target)
        convert("gaps.csv", "-o", target, "--lossy")


def test_a_link_to_itself_is_a_file_that_cannot_be_read(folder):
    (folder / "loop.csv").symlink_to("loop.csv")
    with pytest.raises(InputError, match="symbolic links"):
        convert("loop.csv", "-o", "y.svg")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "words",
    [("vocab-1", "--ts", "1"), ("1f1b", "--steps", "2", "--t-optimizer", "1")],
    ids=["vocabulary", "optimizer"],
)
def test_pictures_of_ops_beside_compute_lose_nothing(folder, words):
    """They draw all of them, as the pictures of the run itself do."""
    shape = ("--devices", "4", "--mb", "6", "--no-memory")
    assert invoke("run", *words, *shape, "-q", "-o", "run.json", "-o", "run.svg").exit_code == 0
    result = invoke("convert", "run.json", "-o", "again.svg")
    assert result.exit_code == 0, result.output
    drawn = [
        set(re.findall(r"fill: ?#[0-9a-f]{6}", (folder / name).read_text()))
        for name in ("run.svg", "again.svg")
    ]
    assert drawn[0]
    assert drawn[0] == drawn[1]
