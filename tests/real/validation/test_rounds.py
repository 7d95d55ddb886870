"""Drift of the machine cancels between rounds, and the noise of a session is told beside its errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppsim.real.runs.record import Measured, Record, dump, load
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.rounds import find_pace_beside, find_paces
from tests.commands import invoke

pytestmark = pytest.mark.slow  # every test analyses a whole record

FOLDER = Path(__file__).parents[2] / "data" / "records"


def slowed(record: Record, factors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Record:
    """Repeat each run's first repetition, every time by a factor of shape (rounds, runs) slower, waits and all."""

    def times(run: Measured, number: int) -> Measured:
        one = run.repetitions([0] * len(factors))
        scale = factors[:, number, None]
        columns = {name: getattr(one, name) * scale for name in ("posted", "start", "end", "device_end")}
        return replace(one, issued=None, **columns)

    return replace(record, runs=tuple(times(run, number) for number, run in enumerate(record.runs)))


@pytest.fixture(scope="module")
def record():
    return load(str(FOLDER / "compute-p2.json.gz"))


@pytest.fixture(scope="module")
def steady(record):
    return validate(slowed(record, np.ones((7, len(record.runs)))))


@pytest.mark.parametrize("drift", ["rises", "waves", "a slow round"])
def test_drift_moves_no_held_out_error(drift, record, steady):
    """A machine that drifts by half its speed gives the errors of one that does not."""
    count = 7 * len(record.runs)
    at = np.arange(count) / count
    slow = {
        "rises": 1 + 0.5 * at,
        "waves": 1 + 0.25 * np.sin(3 * np.pi * at),
        "a slow round": np.where((at >= 3 / 7) & (at < 4 / 7), 1.5, 1.0),
    }[drift]
    drifting = validate(slowed(record, slow.reshape(7, -1)))
    for before, after in zip(steady.verdicts, drifting.verdicts, strict=True):
        assert after.errors["held-out"] == pytest.approx(before.errors["held-out"], abs=0.006)


def test_noise_is_told_beside_the_error_and_right_is_within_it(record, steady):
    quiet = {verdict.run.name: verdict.floor for verdict in steady.verdicts}
    rng = np.random.default_rng(1)
    loud = validate(slowed(record, rng.lognormal(0.0, 0.05, (7, len(record.runs)))))
    for verdict in loud.verdicts:
        before = quiet[verdict.run.name]
        assert verdict.floor is not None
        assert before is not None
        assert verdict.floor > before + 0.005
        assert verdict.within_noise == (abs(verdict.errors["held-out"]) <= verdict.floor)


def test_an_error_that_the_noise_may_have_made_has_one_verdict(record, tmp_path):
    """Whether it is within the tolerance cannot be told: neither exit code 0 nor 1, and not NOT within."""
    runs = tuple(run for run in record.runs if run.name in ("1f1b", "zb-1p"))
    noise = np.random.default_rng(0).lognormal(0.0, 0.3, (7, len(runs)))
    loud = slowed(replace(record, runs=runs), noise)
    path = tmp_path / "loud.json"
    path.write_bytes(dump(loud, str(path)))
    words = ("validate", "--from-record", str(path))
    rows = json.loads(invoke(*words, "--json").output)["schedules"]
    error, clear = max((abs(row["errors"]["held-out"]), not row["within_noise"]) for row in rows)
    assert not clear
    above, below = f"{error * 101:.6f}%", f"{error * 99:.6f}%"
    for tolerance, verdict, code in ((above, "within the tolerance", 0), (below, "cannot be told", 4)):
        found = invoke(*words, "--tolerance", tolerance)
        assert found.exit_code == code
        assert "NOT within" not in found.output
        assert verdict in " ".join(found.output.split("held-out predictions are off")[1].split())
    assert json.loads(invoke(*words, "--tolerance", below, "--json").output)["lost_in_noise"] is True
    assert json.loads(invoke(*words, "--tolerance", above, "--json").output)["lost_in_noise"] is False


def test_a_single_repetition_has_no_noise_floor(record):
    one = replace(record, runs=tuple(run.repetitions([0]) for run in record.runs))
    assert [verdict.floor for verdict in validate(one).verdicts] == [None] * len(record.runs)


def test_the_pace_beside_a_run_is_that_before_and_after_it(record):
    runs = record.runs[:3]
    pace = {runs[0].name: np.arange(7.0), runs[2].name: np.arange(7.0) + 10}
    assert find_pace_beside(runs[1], runs, pace).tolist() == [5, 6, 7, 8, 9, 10, 11]
    del pace[runs[2].name]
    assert find_pace_beside(runs[1], runs, pace).tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6]


def test_a_steady_drift_is_told_between_runs_too(record):
    drift = np.exp(np.arange(7 * len(record.runs)).reshape(7, -1) / 100)
    paces = np.array(list(find_paces(slowed(record, drift).runs).values())).T
    assert np.allclose(paces / paces[0, 0], drift)


def test_the_terminal_shows_noise_and_what_it_means():
    text = invoke("validate", "--from-record", str(FOLDER / "compute-p2.json.gz")).output
    assert "noise" in text.splitlines()[0]
    assert "told from none: " in text
