"""The noise of a session is told beside its errors."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppsim.real.runs.record import Measured, Record, dump, load
from ppsim.real.validation.analyse import validate
from tests.commands import invoke

pytestmark = pytest.mark.slow  # every test analyses a whole record

FOLDER = Path(__file__).parents[2] / "data" / "records"


def slowed(record: Record, factors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Record:
    """Repeat each run's first repetition, every time by a factor of shape (rounds, runs) slower,
    waits and all.
    """

    def times(run: Measured, number: int) -> Measured:
        one = run.repetitions([0] * len(factors))
        scale = factors[:, number, None]
        columns = {
            name: getattr(one, name) * scale for name in ("posted", "start", "end", "device_end")
        }
        return replace(one, issued=None, **columns)

    return replace(record, runs=tuple(times(run, number) for number, run in enumerate(record.runs)))


@pytest.fixture(scope="module")
def record():
    return load(str(FOLDER / "compute-p2.json.gz"))


@pytest.fixture(scope="module")
def steady(record):
    return validate(slowed(record, np.ones((7, len(record.runs)))))


def test_noise_is_told_beside_the_error_and_right_is_within_it(record, steady):
    quiet = {verdict.run.name: verdict.floor for verdict in steady.verdicts}
    rng = np.random.default_rng(3)
    loud = validate(slowed(record, rng.lognormal(0.0, 0.05, (7, len(record.runs)))))
    for verdict in loud.verdicts:
        before = quiet[verdict.run.name]
        assert verdict.floor is not None
        assert before is not None
        assert verdict.floor > before + 0.005
        assert verdict.within_noise == (abs(verdict.errors["held-out"]) <= verdict.floor)


def test_an_error_that_the_noise_may_have_made_has_one_verdict(record, tmp_path):
    """Whether it is within the tolerance cannot be told: neither exit code 0 nor 1, and not NOT
    within.
    """
    runs = tuple(run for run in record.runs if run.name in ("1f1b", "zb-1p"))
    noise = np.random.default_rng(1).lognormal(0.0, 0.3, (7, len(runs)))
    loud = slowed(replace(record, runs=runs), noise)
    path = tmp_path / "loud.json"
    path.write_bytes(dump(loud, str(path)))
    words = ("validate", "--from-record", str(path))
    rows = json.loads(invoke(*words, "--json").output)["schedules"]
    error, clear = max((abs(row["errors"]["held-out"]), not row["within_noise"]) for row in rows)
    assert not clear
    above, below = f"{error * 101:.6f}%", f"{error * 99:.6f}%"
    for tolerance, verdict, code in (
        (above, "within the tolerance", 0),
        (below, "noise, which cannot decide", 4),
    ):
        found = invoke(*words, "--tolerance", tolerance)
        assert found.exit_code == code
        assert "NOT within" not in found.output
        assert verdict in " ".join(found.output.split("held-out predictions are off")[1].split())
    assert (
        json.loads(invoke(*words, "--tolerance", below, "--json").output)["lost_in_noise"] is True
    )
    assert (
        json.loads(invoke(*words, "--tolerance", above, "--json").output)["lost_in_noise"] is False
    )


def test_a_single_repetition_has_no_noise_floor(record):
    one = replace(record, runs=tuple(run.repetitions([0]) for run in record.runs))
    assert [verdict.floor for verdict in validate(one).verdicts] == [None] * len(record.runs)


def test_the_terminal_shows_noise_and_what_it_means():
    text = invoke("validate", "--from-record", str(FOLDER / "compute-p2.json.gz")).output
    heading = next(line for line in text.splitlines() if line.startswith("schedule "))
    assert "noise" in heading
    assert "within it may be noise alone: " in text
