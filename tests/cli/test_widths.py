"""What commands print on a terminal is no wider than the terminal."""

import io
import json
import shlex
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from ppsim.cli import group
from ppsim.cli._progress import _make_bar
from ppsim.questions import list_questions
from tests.commands import invoke, screen_of
from tests.questions.examples import example_of

COMMANDS: tuple[str, ...] = (
    "run interleaved:2 --devices 4 --mb 8",
    "run dualpipe --devices 8 --mb 20",
    "compare gpipe 1f1b interleaved:2 zb-1p --devices 4 --mb 8",
    "sweep 1f1b zb-1p interleaved --devices 4,8 --mb 8:64:8",
    "jitter 1f1b zb-1p --devices 4 --mb 8 --samples 20",
    "explain 1f1b --stages 4 --mb 8",
    "diff 1f1b zb-1p --devices 4 --mb 8",
    "optimize --devices 2 --mb 3",
    "partition 1f1b --devices 4 --mb 16 --num-layers 30 --t-embedding 0.2 --t-head 2.5",
    "partition decode --serve tokens --devices 8 --model llama3-70b --cap 18GiB",
    "memory zb-1p --devices 4 --mb 8",
    "memory decode --serve --devices 8 --model llama3-70b --weight-bits 8 --cap 18GiB",
    "model",
    "model llama3-70b",
    "model llama3-70b --tp 4 --pp 8 --dp 4 --mb 32 --cluster dgx-h100",
    "layout Et*3|(tt|)*29,m|L --devices 16",
    "list zb-v",
    "read tests/data/real_runs/recorded_1f1b",
    "validate --from-record tests/data/records/timed-p2.json.gz",
    "validate --trace tests/data/real_runs/recorded_1f1b",
    "explain --trace tests/data/real_runs/primus_pp8",
    "plan --against tests/data/published/megatron_weak_scaling.json.gz",
    "list --models --clusters --gpus --software --links",
)
# Commands that print no tables, or run for long.
OF_FILES = {"calibrate", "check", "convert", "open", "profile"}
# A question that has no call above is tried with the first example of its help.
LEFT = {*list_questions()} - OF_FILES - {command.split()[0] for command in COMMANDS}
COMMANDS += tuple(shlex.join(example_of(name)) for name in sorted(LEFT))


@pytest.fixture(autouse=True)
def root(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[2])


@pytest.mark.sampled(13)
@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(command, columns):
    for line in screen_of(command, columns):
        assert cell_len(line.rstrip()) <= columns, line


def test_every_question_that_prints_tables_is_tried():
    asked = {command.split()[0] for command in COMMANDS}
    assert asked | OF_FILES | {"serve", "completion"} >= {*group.list_commands(None)}  # type: ignore[arg-type]


def test_numbers_of_sweeps_stand_below_each_other_with_and_without_a_star():
    lines = screen_of("sweep 1f1b zb-1p --devices 4 --mb 8:32:8", 100, NO_COLOR="1")
    rows = [line for line in lines if line.startswith(("1f1b", "zb-1p"))]
    assert len(rows) >= 2
    assert "*" in "".join(rows)
    places = [[place for place, char in enumerate(row) if char == "%"] for row in rows[-2:]]
    assert places[0] == places[1]


def test_the_library_s_columns_have_their_units_and_equal_decimals():
    lines = screen_of("list --links", 100)
    names, units = lines[2:4]
    assert names.split() == ["link", "latency", "bandwidth"]
    assert units.split() == ["us", "GB/s"]
    cells = [line.split() for line in lines[4:] if line.startswith(("nvlink", "pcie", "ethernet"))]
    assert len({len(row[2].partition(".")[2]) for row in cells}) == 1
    found = json.loads(invoke("list", "--links", "--json").stdout)["links"]
    wanted = {row["link"]: row["gb_per_s"] for row in found}
    for name, _, speed in cells:
        assert float(speed) == pytest.approx(wanted[name], abs=0.005)


def test_one_column_without_room_is_it_and_several_are_them():
    text = " ".join(screen_of("list --software", 80))
    assert "no room for schedules, source: a wider terminal shows them" in text
    text = " ".join(screen_of("list --models", 60))
    assert "no room for sequence: a wider terminal shows it" in text


@pytest.mark.parametrize("columns", [50, 60, 80, 120])
@pytest.mark.parametrize("step", ["zb-1p", "412 simulated, 0 may win, and more"])
def test_a_bar_of_progress_is_one_line(columns, step, monkeypatch):
    """A second line would stay on the screen at each redraw."""
    monkeypatch.setenv("COLUMNS", str(columns))
    bar = _make_bar()
    bar.update(bar.add_task(step, total=1.0), completed=0.995)
    out = io.StringIO()
    Console(file=out, width=columns).print(bar.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert len(line.rstrip()) <= columns
    assert line.startswith(step[:10].rstrip())
    assert line.rstrip().endswith("left")
