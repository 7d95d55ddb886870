"""The map of workers by slowdown: a picture of its own, and a figure in the page of a job."""

from pathlib import Path

import pytest

from tests.commands import invoke, refused
from tests.real_runs import PRIMUS, STRAGGLERS


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_heat_draws_workers_over_steps(suffix, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("explain", str(STRAGGLERS), "--heat", "-o", f"x.{suffix}", "-q").exit_code == 0
    data = Path(f"x.{suffix}").read_bytes()
    if suffix == "svg":
        text = data.decode()
        assert "replica 1 device 3" in text
        assert "1043" in text
        assert "ppsim explain" in text


@pytest.mark.slow
def test_the_page_of_a_job_shows_them_and_no_other_page(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    invoke("explain", str(STRAGGLERS), "-o", "job.html", "-q")
    invoke("explain", "--trace", str(PRIMUS), "-o", "plain.html", "-q")
    assert "slowdown of each worker" in Path("job.html").read_text()
    assert "slowdown of each worker" not in Path("plain.html").read_text()


def test_heat_is_refused_where_there_are_no_replicas_and_where_nothing_is_drawn(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    told = refused("explain", "1f1b", "--devices", "4", "--mb", "8", "--heat", "-o", "x.svg")
    assert "a job of several workers" in str(told)
    for suffix in (".gif", ".tex"):  # figures that no map is drawn in
        told = refused("explain", str(STRAGGLERS), "--heat", "-o", f"x{suffix}")
        assert str(told) == f"a map of workers cannot be written as {suffix}"
    assert "needs -o FILE" in str(refused("explain", str(STRAGGLERS), "--heat", "-o", "x.csv"))
