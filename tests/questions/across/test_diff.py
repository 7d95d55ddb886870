"""ppsim diff: two runs side by side, spelled or from files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ppsim
from ppsim.ask.blocks import Table
from ppsim.base.numbers import MINUS
from ppsim.cli import group
from ppsim.errors import InputError, PpsimError
from tests.real_runs import PRIMUS, STRAGGLERS

RECORD = str(Path(__file__).parents[2] / "data" / "records" / "timed-p2.json.gz")
SHAPE = ("--stages", "4", "--mb", "8")


def diff(*words: str) -> Result:
    return CliRunner().invoke(group, ["diff", *words], catch_exceptions=False)


def saved(path, *words):
    assert CliRunner().invoke(group, ["run", *words, "-q", "-o", str(path)]).exit_code == 0
    return str(path)


def test_two_schedules_in_a_screenful():
    said = diff("1f1b", "zb-1p", *SHAPE).stdout
    assert "A  1F1B: 4 devices x 1 chunk = 4 stages, 8 microbatches, simulated, 33 t_F" in said
    assert "turnaround   3.0   1.5   −1.5  the first backward has not come yet" in said
    assert "makespan    33.0  27.0   −6.0" in said
    assert "dev 3  −16  +8  +8        0           0     −6" in said
    assert "32 ops are in both runs (of 64 and 96)" in said
    assert said.splitlines()[0].startswith("zb-1p is 6 t_F shorter than 1f1b (−18.2%)")
    assert max(map(len, said.splitlines())) <= 80 + len(
        "..., per device on average: drain -3, compute -1.5"
    )


def test_less_waiting_is_green_and_more_is_red():
    """Of causes and the makespan; work that moves from one kind to another has no colour."""
    found = ppsim.diff("1f1b", "gpipe", devices=4, microbatches=8, comm=0.2)
    [table] = [
        block
        for block in found.blocks()
        if isinstance(block, Table) and block.headings[3] == "B - A"
    ]
    said = {row[0]: (row[3][0], table.tone(number, 3)) for number, row in enumerate(table.rows)}
    assert said.keys() >= {"F", "drain", "makespan"}
    assert said["F"][1] == said["B"][1] == ""
    changed = [look for name, look in said.items() if name not in ("F", "B") and look[0] != "0"]
    assert set(changed) <= {("+", "bad"), (MINUS, "good")}
    assert len(changed) > 2


@pytest.mark.parametrize("suffix", ["json", "trace.json"])
def test_a_file_with_times_is_the_run_that_wrote_it(tmp_path, suffix):
    """Against the same schedule simulated nothing differs, and the shape need not be said again."""
    costs = ["--tf", "1,1.25,1,1", "--comm", "0.375", "--unit", "ms"]
    path = saved(tmp_path / f"a.{suffix}", "1f1b", *SHAPE, *costs)
    made = json.loads(diff("1f1b", path, *costs, "--json").stdout)
    assert made["sources"] == ["simulated", "stated"]
    assert made["makespan"][0] == pytest.approx(made["makespan"][1])
    assert all(abs(change) < 1e-6 for change in made["difference_by_cause"].values())
    assert max(map(abs, made["ops"]["start_change"])) < 1e-6


def test_before_and_after(tmp_path):
    """Two files: what was made slower is found, op by op and as the causes that follow from it."""
    before = saved(tmp_path / "before.json", "1f1b", *SHAPE)
    after = saved(tmp_path / "after.json", "1f1b", *SHAPE, "--tf", "1,1,1,1.5")
    said = diff(before, after).stdout
    assert "mean time of an op: F of stage 3 1 to 1.5" in said
    assert f"{after} is 4 t_F longer than {before}" in said
    made = json.loads(diff(before, after, "--json").stdout)
    assert sum(made["difference_by_cause"].values()) == pytest.approx(made["difference"])


def test_files_of_other_units_compare_by_their_length(tmp_path):
    seconds = saved(tmp_path / "s.json", "1f1b", *SHAPE, "--unit", "s")
    thousandths = saved(
        tmp_path / "ms.json", "1f1b", *SHAPE, "--tf", "1000", "--tb", "2000", "--unit", "ms"
    )
    assert diff(seconds, thousandths, "-q").stdout.endswith("takes as long as " + seconds + "\n")


def test_options_that_change_nothing_are_refused(tmp_path):
    path = saved(tmp_path / "a.json", "1f1b", *SHAPE)
    with pytest.raises(InputError, match=r"--comm has no effect: the files state their times"):
        diff(path, path, "--comm", "1")
    with pytest.raises(InputError, match="number of microbatches is missing"):
        diff("1f1b", "zb-1p", "--devices", "4")
    with pytest.raises(PpsimError, match="t_F and in ms cannot be compared"):
        diff("1f1b", saved(tmp_path / "ms.json", "1f1b", *SHAPE, "--unit", "ms"), "--tf", "1")


def test_many_devices_are_told_by_those_that_differ_most():
    said = diff("1f1b", "zb-1p", "--devices", "24", "--mb", "24").stdout
    assert "the 16 devices that differ most of 24: --json has all" in said
    assert sum(line.startswith("dev ") for line in said.splitlines()) == 16


def test_a_real_run_against_its_prediction():
    """Measured against the same schedule with other costs: sums hold, and the shape is the
    run's.
    """
    costs = ["--tf", "57", "--tb", "75", "--unit", "ms", "--comm", "0.7"]
    made = json.loads(diff("1f1b", str(PRIMUS), *costs, "--json").stdout)
    assert made["sources"] == ["simulated", "measured"]
    assert [run["devices"] for run in made["runs"]] == [8, 8]
    assert sum(made["difference_by_cause"].values()) == pytest.approx(made["difference"])
    assert len(made["ops"]["op"]) == 256


def test_two_runs_of_a_record_are_named():
    """FILE:NAME chooses one of several; without it the names are said."""
    names = [f"{RECORD}:{name}" for name in ("gpipe", "1f1b")]
    made = json.loads(diff(*names, "--json").stdout)
    assert [run["schedule"] for run in made["runs"]] == ["gpipe", "1f1b"]
    assert sum(made["difference_by_cause"].values()) == pytest.approx(made["difference"])
    with pytest.raises(InputError, match=r"has \d runs"):
        diff(RECORD, RECORD)


def test_a_schedule_beside_a_real_run_takes_its_times():
    """Without costs the schedule is simulated with the median times of the run: the prediction is
    close to it.
    """
    made = json.loads(diff("1f1b", str(PRIMUS), "--json").stdout)
    predicted, measured = made["makespan"]
    assert predicted == pytest.approx(measured, rel=0.015)
    assert made["sources"] == ["simulated with the median times of the other", "measured"]
    better = json.loads(diff(str(PRIMUS), "zb-1p", "--json").stdout)
    assert better["makespan"][0] == measured
    assert better["sources"][1] == made["sources"][0] + " (I = W = B/2)"
    assert better["difference"] < -300
    assert sum(better["difference_by_cause"].values()) == pytest.approx(better["difference"])


def test_measured_halves_of_a_backward_are_not_called_assumed(tmp_path):
    path = saved(tmp_path / "a.json", "zb-1p", *SHAPE, "--ti", "1.2", "--tw", "0.8")
    made = json.loads(diff(path, "zb-h2", "--json").stdout)
    assert made["sources"] == ["stated", "simulated with the median times of the other"]


def test_other_stages_do_not_take_the_times_of_a_run(tmp_path):
    """Times are of stages: a schedule of twice as many has its own costs."""
    path = saved(tmp_path / "a.json", "1f1b", *SHAPE, "--tf", "3")
    made = json.loads(diff(path, "interleaved:2", "--json").stdout)
    assert made["sources"] == ["stated", "simulated"]
    assert made["makespan"][1] == 28.5


def test_the_unit_of_a_table_is_told():
    """A schedule beside it still takes its median times; the costs of another run have their own
    option.
    """
    said = diff("1f1b", str(STRAGGLERS), "--unit", "ms").stdout
    assert "simulated with the median times of the other, 2.04 ms" in said
    assert "measured, 2.023 ms" in said
    both = json.loads(diff(f"{STRAGGLERS}:0", f"{STRAGGLERS}:1", "--unit", "us", "--json").stdout)
    assert both["unit"] == "us"
    priced = diff(str(PRIMUS), "1f1b", "--tf", "60", "--unit", "ms").stdout
    assert "simulated, 1,4" in priced
    with pytest.raises(InputError, match="--unit has no effect"):
        diff(str(PRIMUS), str(PRIMUS), "--unit", "us")
