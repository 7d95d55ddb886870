"""Commands that take a real run: read, check, convert and calibrate, through one way in."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ppsim.inputs.drafts.read import read_timeline
from ppsim.inputs.profile.profile import read
from ppsim.questions.runs.calibrate import calibrate
from ppsim.questions.runs.profile import ProfileDiffRequest, answer_diff
from ppsim.questions.runs.read import ObservedRun
from ppsim.questions.runs.read import read as ask_read
from ppsim.real.traces.read import read_run
from tests.commands import invoke, refused
from tests.real_runs import PRIMUS, dump_primus, simulated

DATA = Path(__file__).parents[2] / "data"
RECORD = str(DATA / "records" / "timed-p4.json.gz")
TRACES = [str(DATA / "traces" / f"gpipe-rank{rank}.json.gz") for rank in (0, 1)]


def test_read_says_what_the_real_run_is():
    text = invoke("read", str(PRIMUS)).output
    assert "1f1b: 8 devices x 1 chunk = 8 stages, 16 microbatches, linear placement" in text
    assert "20 iterations; 19 counted: 3,245 ms (median)" in text
    value = json.loads(invoke("read", str(PRIMUS), "--iteration", "4-20", "--json").output)
    assert (value["schema"], value["format"], value["schedule"]) == (
        "ppsim.read/1",
        "primus",
        "1f1b",
    )
    assert value["counted"] == list(range(4, 21))
    assert value["makespan"] == pytest.approx(3245.9, abs=0.1)
    assert value["stages"][7]["times"]["B"]["median"] == pytest.approx(75.18, rel=0.002)
    assert value["gap"] == pytest.approx(0.79, abs=0.01)
    published = {
        "1-0": 0.82,
        "2-1": 0.68,
        "3-2": 0.88,
        "4-3": 0.69,
        "5-4": 0.81,
        "6-5": 0.78,
        "7-6": 0.59,
    }
    found = {f"{row['source']}-{row['target']}": row["median"] for row in value["latencies"]}
    assert {link: found[link] for link in published} == pytest.approx(published, abs=0.02)


def test_read_names_an_interleaved_run_and_a_single_file(tmp_path):
    folder = dump_primus(tmp_path / "run", [simulated(chunks=2)] * 2)
    assert (
        "interleaved: 4 devices x 2 chunks = 8 stages, 8 microbatches, loop"
        in invoke("read", folder).output
    )
    assert "rank" in str(refused("read", f"{folder}/pp_rank_0.json"))


@pytest.mark.parametrize("words", [[RECORD, "-s", "zb-1p"], TRACES])
def test_read_takes_records_and_traces(words):
    value = json.loads(invoke("read", *words, "--json").output)
    assert value["schedule"] in ("zb-1p", "gpipe")
    assert len(value["iterations"]) >= 2


def test_read_says_what_a_schedule_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke(
        "run",
        "-s",
        "zb-1p",
        "--devices",
        "4",
        "--mb",
        "8",
        "-q",
        "-o",
        "x.csv",
        "-o",
        "x.trace.json",
    )
    assert "zb-1p: 4 devices" in invoke("read", "x.csv").output
    assert "a schedule without times" in invoke("read", "x.csv").output
    assert "a schedule with times" in invoke("read", "x.trace.json").output
    assert "zb-1p: 4 devices" in invoke("read", "-", text=Path("x.csv").read_text()).output


def test_python_reads_what_the_command_reads():
    for files, words in ((PRIMUS, [str(PRIMUS)]), (TRACES, TRACES)):
        assert ask_read(files).to_json() == json.loads(invoke("read", *words, "--json").output)
    found = ask_read(RECORD, schedule="zb-1p", iteration="2")
    assert isinstance(found, ObservedRun)
    assert (found.run.schedule.name, found.kept.iterations.tolist()) == ("zb-1p", [2])


def test_check_takes_a_real_run_and_compares_its_order():
    shape = ("--devices", "8", "--mb", "16")
    assert "valid: 8 devices, 8 stages, 16 microbatches" in invoke("check", str(PRIMUS)).output
    assert (
        "in the order of 1f1b" in invoke("check", str(PRIMUS), "--schedule", "1f1b", *shape).output
    )
    assert (
        "in another order than gpipe"
        in invoke("check", str(PRIMUS), "--schedule", "gpipe", *shape).output
    )


def test_convert_writes_an_iteration_with_its_times(tmp_path):
    target = str(tmp_path / "x.json")
    assert invoke("convert", str(PRIMUS), "-o", target, "--iteration", "7").exit_code == 0
    timeline, run = read_timeline(target), read_run([str(PRIMUS)]).select("7")
    assert timeline is not None
    assert np.allclose(timeline.end, run.end[0] - run.start[0].min())
    assert timeline.unit == "ms"
    (tmp_path / "y.csv").write_text("0F0,0B0\n")
    error = refused(
        "convert", str(tmp_path / "y.csv"), "-o", str(tmp_path / "z.json"), "--iteration", "7"
    )
    assert "is not a real run" in str(error)


def test_calibrate_makes_a_profile_of_a_real_run_that_run_takes(tmp_path):
    target = str(tmp_path / "p.toml")
    assert (
        invoke(
            "calibrate", "--from-trace", str(PRIMUS), "-o", target, "--iteration", "4-20"
        ).exit_code
        == 0
    )
    profile = read(target)
    times = {(op.kind, op.stage): op.median_ms for op in profile.op}
    assert len(times) == 16
    assert times["B", 7] == pytest.approx(75.18, rel=0.002)
    assert "--comm 0.7" in profile.provenance.note
    words = ("run", "-s", "1f1b", "--devices", "8", "--mb", "16", "--profile", target, "--json")
    assert json.loads(invoke(*words).output)["makespan"] == pytest.approx(3245.9, rel=0.03)


def test_python_calibrates_as_the_command_does(tmp_path, monkeypatch):
    """A dash in a file's name is not standard output."""
    monkeypatch.chdir(tmp_path)
    found = calibrate(from_trace=TRACES)
    assert found is not None
    found.save("a.toml")
    shown = json.loads(
        invoke("calibrate", "-o", "a-b.toml", "--from-trace", *TRACES, "--json").stdout
    )
    assert shown["file"] == "a-b.toml"
    assert read("a.toml").op == read("a-b.toml").op
    differences = answer_diff(ProfileDiffRequest(before="a.toml", after="a-b.toml")).differences
    assert {time.ratio for time in differences.times} == {1.0}
    assert "traces come after --from-trace" in refused("calibrate", "-o", "c.toml", *TRACES).hint


def test_a_gzipped_folder_of_traces_calibrates_as_its_files_do(tmp_path):
    folder = tmp_path / "traces"
    folder.mkdir()
    for path in TRACES:
        shutil.copy(path, folder)
    for name, words in (("a.toml", TRACES), ("b.toml", [str(folder)])):
        assert (
            invoke("calibrate", "--from-trace", *words, "-o", str(tmp_path / name)).exit_code == 0
        )
    assert read(str(tmp_path / "a.toml")).op == read(str(tmp_path / "b.toml")).op


def test_a_run_is_validated_as_one_schedule():
    error = refused("validate", "1f1b", "gpipe", "--trace", str(PRIMUS))
    assert str(error) == "a run is of one schedule, and 2 are named"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("suffix", ["trace.json", "json"])
def test_read_and_explain_say_one_time_of_a_file_of_training_steps(tmp_path, suffix):
    file = str(tmp_path / f"x.{suffix}")
    options = ["--devices", "4", "--mb", "8", "--steps", "2", "--t-optimizer", "1"]
    ran = json.loads(invoke("run", "1f1b", *options, "-o", file, "--json").stdout)
    said = json.loads(invoke("read", file, "--json").output)
    explained = json.loads(invoke("explain", file, "--json").output)
    assert said["makespan"] == explained["makespan"] == ran["makespan"] == 68
    assert "optimizer" in explained["idle_by_cause"]


def test_read_and_explain_count_from_the_start_to_the_end_that_a_file_states(tmp_path):
    file = tmp_path / "x.json"
    ops = {
        "device": [0, 0],
        "kind": ["F", "B"],
        "stage": [0, 0],
        "microbatch": [0, 0],
        "start": [1, 3],
        "end": [2, 5],
    }
    file.write_text(json.dumps({"makespan": 9, "ops": ops}))
    said = json.loads(invoke("read", str(file), "--json").output)
    explained = json.loads(invoke("explain", str(file), "--json").output)
    assert said["makespan"] == explained["makespan"] == 9
