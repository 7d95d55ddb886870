"""``ppsim explain`` says where the idle time goes, what decides the makespan, and what a simulated
change gives.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ppsim.analysis.idle import NAMES
from ppsim.cli import group
from ppsim.errors import InputError
from ppsim.questions.across.explain import explain as ask
from ppsim.show.drawing.terminal_marks import CAUSE_SIGNS
from tests.commands import ROOT, invoke, refused
from tests.real_runs import PRIMUS, ops_rows, simulated, write_csv

TRACES = Path(__file__).parents[2] / "data" / "traces"


def explain(*words: str) -> Result:
    return CliRunner().invoke(group, ["explain", *words], catch_exceptions=False)


def explained(*words: str) -> dict[str, Any]:
    return json.loads(explain(*words, "--json").stdout)


SPLIT = "I + W takes less than 1.42 B"
LIMITS = f"as long as {SPLIT} and a message takes less than 2.25 t_F (each alone)"


def test_a_long_critical_path_says_how_many_ops_are_left_out():
    """Four steps have 99 ops on their path, of which the first three and F of the fourth fit."""
    steps = ("--stages", "4", "--mb", "8", "--t-optimizer", "0.5", "--steps")
    one = ("--what-if", "tf=2")  # in place of all that is tried without
    lines = explain("1f1b", *steps, "4", *one).stdout.splitlines()
    head = next(at for at, line in enumerate(lines) if line.startswith("critical path (99 ops"))
    assert lines[head + 1].endswith("device 0: NORM OPT SYNC · and 24 more ops")
    assert "more op" not in explain("1f1b", *steps, "3", *one).stdout


def test_1f1b_in_a_screenful():
    said = explain("1f1b", "--stages", "4", "--mb", "8").stdout
    assert "36 of 132 device·t_F are idle (27.3%)" in said
    assert (
        "12  turnaround the first backward has not come yet      dev 0: 6  dev 1: 4  dev 2: 2"
        in said
    )
    assert "critical path (22 ops, 33 t_F, one of 365)" in said
    assert "F0 on devices 0 to 3 · device 3: (B F)x7 · B7 on devices 3 to 0" in said
    first, *others = said.splitlines()
    assert first.startswith(
        "1f1b takes 33 t_F, idle 27.3% of it; first: use zb-v, 22.7% less time per microbatch"
    )
    assert first.endswith(LIMITS)
    assert max(map(len, others)) <= 120


@pytest.mark.parametrize(
    "words", [("--comm", "0.5"), ("--comm", "0.5", "--p2p", "blocking"), ("--tf", "1,1,2,1")]
)
def test_json_adds_up(words):
    """Causes sum to the idle time, by device too; the path's last op ends with the iteration."""
    found = explained("1f1b", "--stages", "4", "--mb", "8", *words, "--what-if", "mb=16")
    assert found["schema"] == "ppsim.explain/1"
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert sum(map(sum, found["causes_by_device"].values())) == pytest.approx(found["idle"])
    assert found["critical_path_length"] == found["makespan"]
    assert found["critical_path"][0] == {"op": "0F0", "device": 0, "start": 0.0}
    assert (found["slack"] is None) == ("--p2p" in words)


def test_changes_are_simulated():
    """What a change gives is what ``ppsim run`` says with the change made."""
    found = explained(
        "zb-1p", "--stages", "4", "--mb", "8", "--what-if", "tf.2=x2,comm=0.5", "--what-if", "mb=16"
    )
    run = ["run", "zb-1p", "--stages", "4", "--json"]
    options = [["--mb", "8", "--tf", "1,1,2,1", "--comm", "0.5"], ["--mb", "16"]]
    for change, words in zip(found["what_if"], options, strict=True):
        same = json.loads(CliRunner().invoke(group, [*run, *words]).stdout)
        assert change["makespan"] == same["makespan"]
        assert change["bubble_rate"] == same["bubble_rate"]


def test_a_slow_stage_is_advised_against():
    said = explain("zb-1p", "--devices", "4", "--mb", "12", "--tf", "1,1.3,1,1", "-q").stdout
    assert said.partition("; ")[2].startswith("first: move layers so that stages are equal")
    command, _, needed = said.partition("(ppsim ")[2].partition(")")[0].partition(", with ")
    assert (command, needed) == (
        "partition zb-1p --devices 4 --mb 12",
        "the time of each one in --t-layer",
    )
    found = invoke(*command.split(), "--t-layer", ",".join(["1"] * 3 + ["1.3"] * 5), "-q")
    assert found.exit_code == 0


def test_the_advice_to_move_layers_names_a_command_that_does():
    """With the layers of a layout it runs as it stands, and its split is faster."""
    words = [
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "--layout",
        "Et|tt|tt|ttL",
        "--t-head",
        "1.5",
        "--comm",
        "0.1",
    ]
    command = explain(*words, "-q").stdout.partition("(ppsim ")[2].partition(")")[0]
    assert command == "partition 1f1b --devices 4 --mb 8 --comm 0.1 --t-head 1.5 --num-layers 7"
    found = json.loads(invoke(*command.split(), "--json").stdout)
    assert found["makespan"] < json.loads(invoke("run", *words, "--json").stdout)["makespan"]


def test_the_layout_advised_for_a_model_can_be_run():
    """Whole layers cannot make stages equal, so the fastest named layout is advised instead: its
    row is what run prints for it, and equal stages only show what they cost.
    """
    words = ["interleaved", "--devices", "4", "--chunks", "5", "--mb", "32", "--tp", "4"]
    words += ["--model", "llama3-70b", "--cluster", "dgx-h100"]
    said = explain(*words, "-q").stdout
    assert "first: use --layouts light-last, " in said, said
    rows = {row["change"]: row["makespan"] for row in explained(*words)["what_if"]}
    ran = json.loads(invoke("run", *words, "--layouts", "light-last", "--json").stdout)
    assert rows["layouts=light-last"] == ran["makespan"]
    assert rows["equal stages"] < rows["layouts=light-last"]
    assert "layouts=light-ends" not in rows


def test_the_advice_for_a_real_run_names_what_it_tells():
    """Its shape and family; the times of layers are for the user to give."""
    advice = ask(trace=str(PRIMUS)).changes[0].advice
    command = (
        advice.partition("(ppsim ")[2]
        .removesuffix(", with the time of each one in --t-layer)")
        .split()
    )
    assert command == [
        "partition",
        "--stages",
        "8",
        "--devices",
        "8",
        "--mb",
        "16",
        "--schedule",
        "1f1b",
    ]
    assert invoke(*command, "--num-layers", "8", "-q").exit_code == 0


def test_a_file_is_explained(tmp_path):
    """A schedule from a file has no shape to change; others are tried in its place."""
    (tmp_path / "two.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    found = explained(str(tmp_path / "two.csv"))
    assert found["idle"] > 0
    changes = found["what_if"]
    tried = {each["change"].removeprefix("schedule="): each["makespan"] for each in changes}
    assert {"chimera", "zb-v"} < tried.keys()
    for name, makespan in tried.items():
        run = invoke("run", name.split(" ")[0], "--devices", "2", "--mb", "2", "--json")
        assert json.loads(run.stdout)["makespan"] == makespan


def changed(*changes: str, words=("1f1b", "--stages", "4", "--mb", "8")) -> list[float]:
    options = [word for change in changes for word in ("--what-if", change)]
    return [each["makespan"] for each in explained(*words, *options)["what_if"]]


def ran(*words: str) -> float:
    run = ["run", "1f1b", "--stages", "4", "--mb", "8", "--json"]
    return json.loads(CliRunner().invoke(group, [*run, *words]).stdout)["makespan"]


def test_links_layers_and_factors_are_what_run_says():
    """Each change equals a run with the options that spell it out."""
    words = ("1f1b", "--stages", "4", "--mb", "8", "--comm", "0.5")
    found = changed(
        "comm=x0.5", "link.1-2=2", "link.1>2=x4", "tf=x2", "layers.3>2=1/8", words=words
    )
    assert found == [
        ran("--comm", "0.25"),
        ran("--comm", "0.5", "--link", "1-2=2"),
        ran("--comm", "0.5", "--link", "1>2=2"),
        ran("--comm", "0.5", "--tf", "2", "--tb", "2"),
        ran("--comm", "0.5", "--tf", "1,1,1.125,0.875", "--tb", "2,2,2.25,1.75"),
    ]
    assert changed("layers 3>2=1/8", words=words) == found[-1:]


def test_changes_keep_unequal_microbatches_and_devices():
    """Levelled stages and free messages are simulated with the factors that the run has."""
    words = ("--mb-scale", "1,1,3,1,1,1,1,1", "--comm", "0.5", "--tf", "1,1,2,1")
    whole = explained("1f1b", "--stages", "4", "--mb", "8", *words)["what_if"]
    made = {each["change"]: each["makespan"] for each in whole}
    assert made["messages take no time"] == ran("--mb-scale", "1,1,3,1,1,1,1,1", "--tf", "1,1,2,1")
    assert made["equal stages"] == ran(
        "--mb-scale", "1,1,3,1,1,1,1,1", "--comm", "0.5", "--tf", "1.25"
    )


def test_a_device_and_an_op_from_near():
    words = ("1f1b", "--stages", "4", "--mb", "8", "--comm", "0.25", "--what-if", "tf=2")
    said = explain(*words, "--device", "0", "--op", "2b0").stdout
    assert "device 0: idle 13 of 37 t_F" in said
    assert "before 0B0: turnaround" in said
    assert "2B0 on device 2: 7 to 9 t_F" in said
    assert "  waits for: 3B0, its input, from device 3, which ends at 6.75" in said
    assert "  its result goes to: 1B0" in said
    assert "what if" not in said


def test_views_are_in_the_object():
    """A device's gaps sum to its idle time; an op states what it waits for, and its slack."""
    found = explained(
        *["1f1b", "--stages", "4", "--mb", "8", "--tf", "1,1,1,2", "--device", "1", "--op", "1F7"]
    )
    gaps = found["gaps"]
    idle = sum(times[1] for times in found["causes_by_device"].values())
    assert sum(gap["end"] - gap["start"] for gap in gaps) == pytest.approx(idle)
    assert all(
        sum(p["time"] for p in gap["parts"]) == pytest.approx(gap["end"] - gap["start"])
        for gap in gaps
    )
    assert gaps[-1]["before"] is None
    assert found["op"] == {
        "op": "1F7",
        "device": 1,
        "start": 27.0,
        "end": 28.0,
        "waits_for": "1B4",
        "gap": None,
        "slack": 2.0,
        "result_to": ["2F7"],
    }


@pytest.mark.parametrize(
    ("view", "message"),
    [(("--device", "4"), "there is no device 4"), (("--op", "9F0"), "1f1b has no op 9F0")],
)
def test_a_view_of_nothing_is_refused_before_changes_are_simulated(view, message, monkeypatch):
    monkeypatch.setattr("ppsim.questions.across.explain.try_changes", None)
    with pytest.raises(InputError, match=message):
        explain("1f1b", "--stages", "4", "--mb", "8", *view)


def test_a_view_of_nothing_is_refused():
    words = ("1f1b", "--stages", "4", "--mb", "8", "--what-if", "comm=0.1")
    with pytest.raises(InputError, match="there is no device 4"):
        explain(*words, "--device", "4")
    with pytest.raises(InputError, match="1f1b has no op 9F0"):
        explain(*words, "--op", "9F0")
    with pytest.raises(InputError, match="not an op: 'F'"):
        explain(*words, "--op", "F")


def test_a_file_with_times_is_explained_as_it_is(tmp_path):
    """Its causes are those of the run that wrote it; with costs given, it is timed again."""
    path, words = (
        str(tmp_path / "a.json"),
        ("1f1b", "--stages", "3", "--mb", "4", "--comm", "0.375"),
    )
    assert CliRunner().invoke(group, ["run", *words, "-q", "-o", path]).exit_code == 0
    found, known = explained(path), explained(*words, "--what-if", "mb=16")
    assert found["idle_by_cause"] == pytest.approx(known["idle_by_cause"])
    assert found["simulated_makespan"] == found["makespan"] == known["makespan"]
    assert "schedule=zb-1p (I = W = B/2)" in [each["change"] for each in found["what_if"]]
    assert explained(path, "--comm", "0", "--what-if", "tf=1")["makespan"] == 18


@pytest.mark.slow
def test_a_real_run_is_explained_as_measured():
    """Eight devices: causes sum to all idle time, the path ends with the run, its replay is
    close.
    """
    found = explained("--trace", str(PRIMUS))
    assert found["schedule"] == "1f1b"
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert found["critical_path_length"] == found["makespan"]
    assert found["simulated_makespan"] == pytest.approx(found["makespan"], rel=0.015)
    assert found["sensitivity"][0]["what"] == "B of stage 7"
    assert min(found["slack"]) == pytest.approx(0, abs=1e-6)
    (moved,) = explained("--trace", str(PRIMUS), "--what-if", "layers.7>0=1/30")["what_if"]
    assert moved["makespan"] < found["simulated_makespan"]
    said = explain("--trace", str(PRIMUS), "--iteration", "5").stdout
    assert "measured, iteration 5, one of 20" in said
    assert "what if (each simulated, against " in said


def test_a_real_run_takes_no_shape_or_costs():
    with pytest.raises(InputError, match="so --comm, --mb cannot be given too"):
        explain("--trace", str(PRIMUS), "--comm", "1", "--mb", "16")
    with pytest.raises(InputError, match="not an iteration: 'first'"):
        explain("--trace", str(PRIMUS), "--iteration", "first")
    with pytest.raises(InputError, match="this run is simulated"):
        explain("1f1b", "--stages", "4", "--mb", "8", "--iteration", "3")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("mb=x", "mb=x: not a whole number: 'x'"),
        ("stagger=2", "cannot change 'stagger=2'"),
        ("speed=fast", "speed=fast: not a number"),
        ("slice-scale=1,2", "--slice-scale has no effect: 1f1b has no slices"),
        ("tr=2", "--tr has no effect: 1f1b has no R"),
        ("tfb.1=x3", "--tfb has no effect: 1f1b has no pairs"),
        ("link.0-2=1", "changes the time of no op or message of 1f1b"),
        ("speed.4=2", "there is no device 4"),
        ("tf.9=1", "there is no stage 9"),
        ("tf.1=fast", "not a time: 'fast'"),
        ("comm=-1", "comm must be zero or more"),
        ("schedule=1f2b", "unknown schedule '1f2b'"),
        ("layers.3>2=1", "not a share of stage 3 that can move"),
        ("layers.3>9=1/8", "there is no stage 9"),
        ("link.0-9=1", "does not join two of 4 devices"),
    ],
)
def test_a_change_that_is_none_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        explain("1f1b", "--stages", "4", "--mb", "8", "--what-if", change)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gpipe", "izb"])
def test_traces_of_torch_are_explained(tmp_path, name):
    """Traces with receive spans: causes sum to the idle time, and what follows an arrival is the
    host's.
    """
    for rank in range(2):
        shutil.copy(TRACES / f"{name}-rank{rank}.json.gz", tmp_path)
    found = explained("--trace", str(tmp_path))
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert found["critical_path_length"] == found["makespan"]
    assert found["idle_by_cause"]["host"] > 0


def test_standard_input_is_read_once(tmp_path):
    """A schedule from a pipe is simulated, with or without times in it."""
    run = ["explain", "-", "--json"]
    text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"
    made = CliRunner().invoke(group, run, input=text, catch_exceptions=False)
    (tmp_path / "two.csv").write_text(text)
    assert (
        json.loads(made.stdout)["idle_by_cause"]
        == explained(str(tmp_path / "two.csv"))["idle_by_cause"]
    )


def test_a_trace_that_shows_no_run_is_refused(tmp_path):
    (tmp_path / "two.csv").write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    with pytest.raises(InputError, match="is a schedule without times, not a run"):
        explain("--trace", str(tmp_path / "two.csv"))
    with pytest.raises(InputError, match="No such file"):
        explain("--trace", str(tmp_path / "none"))


def test_a_link_of_a_cluster_that_no_message_takes_is_no_change(tmp_path):
    """A cluster's latencies are no costs, and are looked at all the same."""
    path = tmp_path / "c.toml"
    path.write_text(
        'schema = "ppsim.cluster/1"\ndevices_per_node = 4\n[intra]\nalpha_us = 4\ngb_per_s = 300\n'
    )
    shape = ("--devices", "4", "--mb", "4", "--unit", "us", "--message", "1MB")
    words = ("explain", "1f1b", *shape, "--cluster", str(path))
    assert "changes the time of no op or message of 1f1b" in str(
        refused(*words, "--what-if", "link.0-2=50")
    )
    assert invoke(*words, "--what-if", "link.0-1=50").exit_code == 0


def test_a_job_of_one_worker_and_microbatch_has_nothing_to_mend(tmp_path):
    table = write_csv(tmp_path / "t.csv", ops_rows([[simulated("gpipe", 1, 1)]]))
    result = invoke("explain", table)
    assert result.exit_code == 0
    assert "job        1 replica x 1 devices, 1 steps: 130 ms (mean)" in result.output


def test_explain_holds_changes_of_a_model_to_bytes_as_run_does():
    """A cap in bytes: the run holds what run says, and a schedule fits where compare says so."""
    model = ("--model", "llama3-70b", "--cluster", "dgx-h100", "--tp", "8", "--dp", "8")
    shape = ("--devices", "4", "--mb", "8", *model, "--cap", "36GiB", "--json")
    found = json.loads(invoke("explain", "1f1b", *shape).stdout)
    run = json.loads(invoke("run", "1f1b", *shape).stdout)
    compared = json.loads(invoke("compare", "1f1b", "1f1b-v", "dualpipe", *shape).stdout)
    holds = run["verdict"].split("device 0 holds ")[1].split(",")[0]
    assert holds.endswith("GiB")
    assert f"not {holds}: " in found["advice"]
    changes = {row["change"]: row["fits"] for row in found["what_if"]}
    fits = {row["name"]: row["fits"] for row in compared["schedules"]}
    for name in ("1f1b-v", "dualpipe"):
        (said,) = (change for change in changes if change.split()[0] == f"schedule={name}")
        assert changes[said] == fits[name]
    assert set(fits.values()) == {True, False}


LAYOUT = ("--layout", "Et*2|t*2|t*2|t*2L")


def test_a_layout_counts_layers_where_a_profile_has_no_bytes_of_activations(tmp_path):
    """The profile gives times, the layout what stages hold, as in run."""
    tables = re.split(r"(?m)^(?=\[)", (ROOT / "gallery" / "profile-cpu.toml").read_text())
    profile = tmp_path / "times.toml"
    profile.write_text("".join(each for each in tables if not each.startswith("[[activation]]")))
    words = ("1f1b", "--devices", "4", "--mb", "4", "--profile", str(profile))
    told = explained(*words, *LAYOUT)
    assert (
        told["makespan"] == json.loads(invoke("run", *words, *LAYOUT, "--json").stdout)["makespan"]
    )
    assert told["memory"] == {"held": 8, "cap": 8, "unit": "layer activations"}
    little = ("1f1b", "--devices", "2", "--mb", "2", *words[5:])
    assert explained(*little)["memory"]["unit"] == "activations"
    assert explained(*words, *LAYOUT, "--cap", "4")["memory"]["cap"] == 4
    lengths = ("--lengths", "lognormal:2048:1.2:7")
    assert explained(*words, *LAYOUT, *lengths)["memory"]["unit"] == "layer activations"
    assert "no activation bytes" in str(refused("explain", *words, *LAYOUT, "--cap", "8GiB"))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "env", [{}, {"NO_COLOR": "", "FORCE_COLOR": "1", "TERM": "xterm"}], ids=["none", "sixteen"]
)
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p"])
def test_without_many_colours_the_chart_has_a_sign_for_each_cause(name, env):
    """It is the chart of ``run``, with a sign in every idle column, as often as the times say."""
    words = (name, "--devices", "4", "--mb", "8", "--comm", "0.5")
    wide = {**env, "COLUMNS": "200"}  # so that no column is half idle
    explained, ran = (
        re.sub(r"\x1b\[[\d;]*m", "", invoke(command, *words, env=wide).stdout).splitlines()
        for command in ("explain", "run")
    )
    rows, plain = ([line for line in lines if line[:4] == "dev "] for lines in (explained, ran))
    assert len(rows) == len(plain) == 4
    pairs = [pair for both in zip(rows, plain, strict=True) for pair in zip(*both, strict=True)]
    assert all(sign == other for sign, other in pairs if other not in "·╌")
    found = Counter(sign for sign, other in pairs if other in "·╌")
    [column] = re.findall(r"1 column = (\S+) t_F", "\n".join(explained))
    causes = json.loads(invoke("explain", *words, "--json").stdout)["idle_by_cause"]
    assert len(causes) >= 3
    for cause, time in causes.items():
        assert found.pop(CAUSE_SIGNS[cause]) * float(column) == pytest.approx(time)
        assert f"{2 * CAUSE_SIGNS[cause]} idle: {cause}" in "\n".join(explained)
    assert set(found) <= {"·", "╌"}  # behind the last op


def test_each_cause_has_a_sign_of_its_own():
    signs = "".join(CAUSE_SIGNS[name] for name in NAMES)
    assert len({*signs}) == len(NAMES) == len(CAUSE_SIGNS)
    assert signs.isascii()
    assert not any(sign.isalnum() or sign in "-/" for sign in signs)
