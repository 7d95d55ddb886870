"""One table of numbers: what is added to it shows everywhere."""

import importlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim import cli
from ppsim.cli import group
from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple import columns, tables
from ppsim.engine.simple.columns import PLACES, Shape, columns_of
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.questions.timelines import sweep as asked

ADDED = """
from ppsim.engine.simple.columns import Column

COLUMNS = (
    Column(
        "busiest",
        "busiest device",
        "busiest\\ndevice",
        "the work of one",
        "share",
        lambda metrics, _: 0.125,
    ),
)
"""


def shown(command, *args):
    result = CliRunner().invoke(
        group, [command, *args], env={"COLUMNS": "140", "NO_COLOR": "1"}, catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def more(monkeypatch, tmp_path):
    """The tables with one more number, from a file, and the commands as they are with it."""
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "added.py").write_text(ADDED)
    monkeypatch.setattr(tables, "__path__", [*tables.__path__, str(folder)])
    reload_sweep()
    yield
    monkeypatch.undo()
    reload_sweep()


def reload_sweep():
    """Scan again; the metrics are choices of an option, read when its module is."""
    columns.all_columns.cache_clear()
    importlib.reload(asked)
    cli._import_command.cache_clear()


@pytest.mark.slow
def test_a_number_added_to_the_table_shows_everywhere(more, tmp_path, monkeypatch):
    """Line, summary and JSON of a run, tables and JSON of compare and sweep, and the page."""
    shape = ["--devices", "2", "--mb", "4"]
    assert "busiest device       " in shown("run", "-s", "1f1b", *shape)
    assert "the work of one" in shown("run", "-s", "1f1b", *shape)
    assert "busiest device 12.5%" in shown("run", "-s", "1f1b", *shape, "-q")
    assert json.loads(shown("run", "-s", "1f1b", *shape, "--json"))["busiest"] == 0.125
    table = shown("compare", "gpipe", "1f1b", *shape)
    assert re.search(r"busiest *\n.*device *\n(.* 12\.5% *\n){2}", table)
    for row in json.loads(shown("compare", "gpipe", "1f1b", *shape, "--json"))["schedules"]:
        assert row["busiest"] == 0.125
    assert "has the least busiest, 12.5%" in shown("sweep", "1f1b", *shape, "--metric", "busiest")
    assert json.loads(shown("sweep", "1f1b", *shape, "--json"))["shapes"][0]["busiest"] == 0.125
    page = tmp_path / "x.html"
    shown("run", "-s", "1f1b", *shape, "-o", str(page))
    data = json.loads(re.findall(r'id="ppsim-data">(.*?)</script>', page.read_text(), re.DOTALL)[0])
    assert data["timelines"][0]["numbers"]["busiest"] == {
        "text": "12.5%",
        "note": "the work of one",
    }
    assert {"cards", "page"} <= set(data["columns"][-1]["places"])


def test_every_number_is_shown_somewhere_known():
    for column in columns.all_columns():
        assert column.places
        assert column.places <= PLACES
        assert column.meaning


def test_ranks_differ():
    """Two columns of one rank would stand in the order of their files' names."""
    ranks = [column.rank for column in columns.all_columns()]
    assert len(set(ranks)) == len(ranks)


def test_the_page_on_numbers_explains_what_the_summary_shows():
    """Each number of the summary is in the first example of the page on numbers, with what it
    means.
    """
    page = (Path(__file__).parents[3] / "gallery" / "site" / "numbers.md").read_text()
    for column in columns_of("summary"):
        line = re.search(rf"^{column.heading} .*$", page, re.MULTILINE)
        assert line, f"no {column.key}: run python -m tests.guides.refresh numbers"
        assert column.note or column.meaning in line[0]


def test_no_work_at_all_is_infinitely_over_ideal():
    """Where no op takes time but messages do, the bubble over ideal has no number; it was said to
    be 0 before.
    """
    args = ["-s", "gpipe", "--stages", "2", "--mb", "2", "--tf", "0", "--tb", "0", "--comm", "1"]
    assert re.search("bubble_over_ideal +infinite", shown("run", *args))
    assert json.loads(shown("run", *args, "--json"))["bubble_over_ideal"] is None


def test_the_peaks_of_few_devices_are_listed_and_of_many_bounded():
    """Up to 16 devices each peak is written; beyond, the least and the most. The number itself is
    the most.
    """
    for devices, each in ((16, " ".join(map(str, range(16, 0, -1)))), (17, "1 to 17")):
        text = shown("run", "-s", "1f1b", "--devices", str(devices), "--mb", "20")
        noted = f"peak activations +{devices} +stage-microbatches, on device 0 \\({each}\\)"
        assert re.search(noted, text)


def test_a_bound_is_called_attained_where_nothing_lies_between():
    """One microbatch after the other takes 12 on two devices; the second has 6 to do between 1 and
    2: 9.
    """
    queues = [
        np.array([pack(stage, m) | kind for m in range(2) for kind in (Kind.F, Kind.B)])
        for stage in range(2)
    ]
    (column,) = (each for each in columns.all_columns() if each.key == "bound")
    schedule = Schedule.from_queues("in turn", place("linear", 2, 2), 2, queues)
    timeline = simulate(schedule, costs_for(schedule))
    assert timeline.makespan == 12
    assert column.note is not None
    for bound, said in (
        (9.0, "25.0% below"),
        (12 - 1e-6, "0% below"),
        (12 - 1e-9, "attained"),
        (12.0, "attained"),
    ):
        note = column.note(replace(measure(timeline), bound=bound), Shape(2, 2, 2))
        assert note.startswith("no order of these ops in this memory takes less")
        assert note.endswith(said)
