"""Sweep and jitter over Dask and from files of results: the same output as without."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from ppsim.ask import tasks
from ppsim.ask.tasks import SentFile
from ppsim.base.results import DIGEST, KEY, MARK, WHOLE, fingerprint
from ppsim.base.tables import read_table, save_table
from ppsim.base.workers import Workers
from ppsim.cli import group
from ppsim.errors import InputError, PpsimError
from tests.clock import HANG_S
from tests.commands import KEPT_AT_ONCE, invoke, start_command
from tests.real.runs.cases import wait_for

ROOT = Path(__file__).parents[2]
WORK = {
    "sweep": [
        "sweep",
        "1f1b",
        "zb-1p",
        "dualpipe",
        "--devices",
        "4",
        "--mb",
        "8:11",
        "--comm",
        "0.5",
        "--json",
    ],
    "jitter": [
        "jitter",
        "1f1b",
        "zb-1p",
        "--devices",
        "4",
        "--mb",
        "8",
        "--samples",
        "9000",
        "--json",
    ],
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def output_of(*words: str) -> str:
    result = CliRunner().invoke(group, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.sampled(6)
@pytest.mark.parametrize("command", WORK)
@pytest.mark.parametrize("file", ["kept.csv", "kept.parquet"])
def test_finished_rows_are_not_run_again_and_the_answer_is_the_same(command, file, monkeypatch):
    """After an interruption half-way the rest is run, and then nothing is."""
    plain = output_of(*WORK[command])
    ran = list[object]()
    most = 3

    @contextmanager
    def counted(where="", processes=1):
        def run(function, tasks):
            for index, task in enumerate(tasks):
                if len(ran) == most:
                    raise KeyboardInterrupt
                ran.append(task)
                yield index, function(task)

        yield Workers(run, processes)

    monkeypatch.setattr(tasks, "open_workers", counted)
    result = CliRunner().invoke(group, [*WORK[command], "--results", file])
    assert result.exit_code != 0
    assert f"3 are kept in {file}" in result.stderr
    most = 1000
    assert output_of(*WORK[command], "--results", file) == plain
    count = 12 if command == "sweep" else 4
    assert len(ran) == count
    assert output_of(*WORK[command], "--results", file) == plain
    assert len(ran) == count


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "change"), [("sweep", ["--tf", "2"]), ("jitter", ["--seed", "3"])]
)
def test_results_of_other_inputs_are_refused(command, change):
    output_of(*WORK[command], "--results", "kept.csv")
    result = CliRunner().invoke(group, [*WORK[command], *change, "--results", "kept.csv"])
    assert isinstance(result.exception, InputError)
    assert "other inputs" in str(result.exception)


def test_a_grid_may_grow_around_what_is_kept():
    output_of("sweep", "1f1b", "--devices", "4", "--mb", "8", "--results", "kept.csv")
    words = ["sweep", "1f1b", "zb-1p", "--devices", "4", "--mb", "8,9", "--json"]
    assert output_of(*words, "--results", "kept.csv") == output_of(*words)


def test_a_sweep_is_written_as_csv_json_and_parquet():

    from ppsim.base.tables import read_table

    answer = json.loads(output_of(*WORK["sweep"]))
    output_of(*WORK["sweep"], "-o", "t.csv", "-o", "t.json", "-o", "t.parquet")
    assert json.loads(Path("t.json").read_text())["shapes"] == answer["shapes"]
    rows = parquet.read_table("t.parquet").to_pylist()  # as users read it, lists included
    assert [row["makespan"] for row in rows] == [row.get("makespan") for row in answer["shapes"]]
    assert [row["peak_activations"] for row in rows] == [
        row.get("peak_activations") for row in answer["shapes"]
    ]
    assert [row["name"] for row in read_table("t.csv")] == [row["name"] for row in answer["shapes"]]


def test_a_file_goes_to_machines_that_have_it_not(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    there = tmp_path / "own.toml"
    there.write_bytes(b"same")
    assert SentFile(str(there), b"same").place() == str(there)
    placed = SentFile(str(there), b"other").place()
    assert placed != str(there)
    assert Path(placed).name == "own.toml"
    assert Path(placed).read_bytes() == b"other"
    assert SentFile(str(there), b"other").place() == placed


def test_a_folder_that_others_may_write_takes_no_sent_file(tmp_path, monkeypatch):
    """It could be made before, and what is in it would be run."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    placed = Path(SentFile(str(tmp_path / "gone.py"), b"content").place())
    placed.parent.chmod(0o777)
    with pytest.raises(PpsimError, match="can be written by others"):
        SentFile(str(tmp_path / "gone.py"), b"content").place()


@pytest.mark.slow
@pytest.mark.parametrize("command", WORK)
def test_dask_gives_the_same_to_the_last_bit(command):
    assert output_of(*WORK[command], "--dask", "local") == output_of(*WORK[command])


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of Linux")
@pytest.mark.parametrize("where", [[], ["--dask", "local"]])
def test_an_interrupted_sweep_leaves_a_whole_file_of_results(where):
    """However fast the machine is: rows are written as soon as there are any, and thousands are
    left.
    """
    words = ["sweep", "1f1b", "zb-1p", "interleaved", "--devices", "32", "--mb", "64:1000", "-q"]
    started = start_command(*words, *where, "--results", "kept.parquet", how=["-c", KEPT_AT_ONCE])
    wait_for(lambda: Path("kept.parquet").exists() or started.poll() is not None, "kept rows")
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=HANG_S)
    assert started.returncode == 130
    assert errors.endswith("continues from it\n\nInterrupted.\n")
    assert "Traceback" not in errors
    from ppsim.base.tables import read_table

    rows = read_table("kept.parquet")
    assert 0 < len(rows) < 3 * 937
    assert len({row["key"] for row in rows}) == len(rows)


FORGED = {
    "sweep": "sweep 1f1b zb-v interleaved --devices 3,4 --mb 8 --cap 4 --results "
    "kept.csv -o o.html",
    "jitter": "jitter 1f1b --devices 4 --mb 8 --samples 8 --results kept.csv",
    "optimize": "optimize --devices 2 --mb 2 --cap 2 --time-limit 60 --results kept.csv",
    "plan": "plan --model llama3-8b --cluster dgx-h100 --gpus 8 --gbs 8 --results kept.csv -o "
    "o.html",
}
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    2**63,
    1e308,
    float("nan"),
    float("-inf"),
    "",
    "x",
    [],
    [None],
    {},
    {"a": 1},
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value below an object or a list."""
    for name in value if isinstance(value, dict) else range(len(value)):
        yield (*path, name)
        if isinstance(value[name], dict | list):
            yield from _places(value[name], (*path, name))


def _forge(row: dict[str, Any], drawn: random.Random) -> dict[str, Any]:
    """Take a value of a row away, add one, or change it to another, often of another kind."""
    row = json.loads(json.dumps(row))
    *path, last = drawn.choice(list(_places(row)))
    at: Any = row
    for name in path:
        at = at[name]
    if drawn.random() < 0.3:
        del at[last]
    elif drawn.random() < 0.1 and isinstance(at, dict):
        at["more"] = drawn.choice(ODD)
    else:
        at[last] = drawn.choice(ODD)
    return row


@pytest.mark.parametrize(
    ("command", "times"),
    [
        ("sweep", 10),
        ("jitter", 8),
        ("optimize", 8),
        pytest.param("plan", 60, marks=pytest.mark.slow),
    ],
)
def test_a_forged_row_with_the_right_digest_is_refused_in_one_message(command, times):
    """Whatever it has: names that are missing, other kinds, numbers without end. What is of the
    kind is believed.
    """
    words = FORGED[command].split()
    assert invoke(*words).exit_code == 0
    rows = [
        {name: row[name] for name in (KEY, MARK, DIGEST, WHOLE)} for row in read_table("kept.csv")
    ]
    drawn, refusals = random.Random(3), 0
    for _ in range(times):
        forged = [*rows]
        place = drawn.randrange(len(rows))
        whole = json.dumps(_forge(json.loads(rows[place][WHOLE]), drawn))
        digest = fingerprint([rows[place][KEY], whole])
        forged[place] = {**rows[place], WHOLE: whole, DIGEST: digest}
        save_table(forged, "kept.csv")
        result = invoke(*words)
        if isinstance(result.exception, InputError):
            refusals += 1
            said = (
                "is damaged, or was changed since it was written",
                "has no schedule of this search",
            )
            assert any(each in str(result.exception) for each in said)
            assert result.exception.exit_code == 2
        else:
            assert result.exit_code in (0, 1), whole
            assert result.exception is None or isinstance(
                result.exception, PpsimError | SystemExit
            ), whole
    assert refusals > times / 2
