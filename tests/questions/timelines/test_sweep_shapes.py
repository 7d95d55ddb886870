"""The shapes of a sweep are listed as far as they are timed."""

import json
import tracemalloc

from ppsim.prices.several import time_schedule
from tests.commands import invoke, refused


def test_a_sweep_of_too_many_shapes_is_refused_before_they_are_listed():
    """Of 200 million shapes, as many are made as a sweep takes, and one."""
    grid = ("--devices", "1:10000", "--mb", "1:10000")
    tracemalloc.start()
    try:
        error = refused("sweep", "1f1b", "gpipe", *grid)
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(error) == "a sweep times at most 10,000 shapes, and these are more"
    assert largest < 64 << 20


def test_a_refused_grid_is_timed_once_and_has_the_hint_of_its_last_shape(monkeypatch, tmp_path):
    """Also from a file of results, for which nothing is timed."""
    timed, results = list[str](), tmp_path / "rows.csv"

    def count(spec, *given):
        timed.append(spec)
        return time_schedule(spec, *given)

    monkeypatch.setattr("ppsim.questions.timelines.sweep.time_schedule", count)
    words = ("sweep", "dualpipe", "--devices", "3", "--mb", "8", "--results", str(results))
    for _ in range(2):
        error = refused(*words)
        assert str(error).startswith("no shape of the grid works; the last: dualpipe needs an even")
        assert "(" not in str(error)
        assert error.hint == "--devices 2 or --devices 4"
    assert timed == ["dualpipe"]


def test_rows_of_refused_shapes_have_the_reason_and_nothing_else():
    words = ("sweep", "dualpipe", "--devices", "3,4", "--mb", "8", "--json")
    refused_row, _ = json.loads(invoke(*words).stdout)["shapes"]
    assert refused_row["applies"] is False
    assert refused_row.keys() == {"name", "applies", "reason", "pareto"}
