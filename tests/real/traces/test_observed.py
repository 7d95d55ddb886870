"""Files of real runs are read into one structure, with the schedule that their devices followed."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from ppsim.errors import InputError
from ppsim.real.traces.read import read_run
from ppsim.schedules import recognise
from tests.real_runs import PRIMUS, dump_primus, simulated

DATA = Path(__file__).parents[2] / "data"


def same_ops(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("offsets", "kind", "stage", "microbatch", "pair")
    )


def test_the_real_run_on_eight_gpus_is_1f1b_with_its_published_medians():
    run = read_run([str(PRIMUS)])
    assert (run.format, recognise(run.schedule), len(run.iterations)) == ("primus", "1f1b", 20)
    kept = run.select("4-20")
    assert kept.iterations.tolist() == list(range(4, 21))
    assert np.median(kept.makespans) == pytest.approx(3245.9, abs=0.1)
    took, stage, kind = kept.end - kept.start, run.schedule.stage, run.schedule.kind
    medians = [
        [float(np.median(took[:, (stage == s) & (kind == k)])) for s in range(8)] for k in (0, 1)
    ]
    published = [
        [57.79, 58.47, 57.98, 61.02, 60.86, 62.06, 61.2, 66.88],
        [70.1, 69.71, 71.06, 68.81, 69.92, 70.1, 69.14, 75.18],
    ]
    assert np.allclose(medians, published, rtol=0.012)
    assert kept.memory is not None
    assert np.allclose(np.median(kept.memory, axis=0)[[0, 7]] / 2**30, [104.330078125, 52.203125])


@pytest.mark.parametrize(
    ("name", "options", "config"),
    [
        ("1f1b", {}, True),
        ("1f1b", {}, False),
        ("interleaved", {"chunks": 2}, True),
        ("interleaved", {"chunks": 3, "mb": 12}, True),
        ("gpipe", {}, True),
    ],
)
def test_an_unnumbered_dump_gives_back_the_schedule_that_ran(name, options, config, tmp_path):
    timeline = simulated(name, **options)
    run = read_run([dump_primus(tmp_path / "run", [timeline, timeline], config=config)])
    assert same_ops(run.schedule, timeline.schedule)
    assert recognise(run.schedule).startswith(name)
    assert np.allclose(run.start, timeline.start[None])
    assert np.allclose(run.end, timeline.end[None])


def test_chunks_that_times_do_not_tell_are_asked_for(tmp_path):
    timeline = simulated("interleaved", chunks=2, group_size=8)
    assert same_ops(
        read_run([dump_primus(tmp_path / "run", [timeline])]).schedule, timeline.schedule
    )
    with pytest.raises(InputError, match="1 or 2 chunks per rank") as refused:
        read_run([dump_primus(tmp_path / "bare", [timeline], config=False)])
    assert "config.json" in refused.value.hint


@pytest.mark.parametrize("name", ["zb-1p", "interleaved"])
def test_a_numbered_dump_is_taken_by_its_numbers(name, tmp_path):
    timeline = simulated(name, **({"chunks": 2} if name == "interleaved" else {}))
    run = read_run([dump_primus(tmp_path / "run", [timeline], numbered=True)])
    assert same_ops(run.schedule, timeline.schedule)


def test_traces_records_and_timelines_come_through_the_same_door(tmp_path):
    traced = read_run([str(path) for path in sorted((DATA / "traces").glob("gpipe*"))])
    assert (traced.format, recognise(traced.schedule), len(traced.iterations)) == (
        "kineto",
        "gpipe",
        2,
    )
    record = read_run([str(DATA / "records" / "timed-p4.json.gz")], "zb-1p")
    assert (record.format, record.schedule.name) == ("record", "zb-1p")
    assert (record.posted <= record.start).all()
    assert (record.start <= record.end).all()


def test_a_record_of_several_runs_asks_which(tmp_path):
    with pytest.raises(InputError, match="runs") as refused:
        read_run([str(DATA / "records" / "timed-p4.json.gz")])
    assert "zb-1p" in refused.value.hint


def test_gzipped_files_and_one_by_one_are_the_same_run(tmp_path):
    folder = Path(dump_primus(tmp_path / "run", [simulated("1f1b")]))
    files = sorted(folder.glob("pp_rank_*"))
    plain = read_run([str(path) for path in files])
    for path in files:
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    zipped = read_run([str(folder)])
    assert same_ops(plain.schedule, zipped.schedule)
    assert np.array_equal(plain.start, zipped.start)


def damaged(folder: Path, rank: int, change) -> None:
    path = folder / f"pp_rank_{rank}.json"
    rows = json.loads(path.read_text())
    change(rows["1"])
    path.write_text(json.dumps(rows))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda row: row["fwd_start"].pop(), "no iteration has the same number"),
        (lambda row: row["fwd_end"].__setitem__(0, -5.0), "ends before it starts"),
        (lambda row: row["fwd_end"].__setitem__(0, 1e300), "impossible time"),
        (lambda row: row.pop("bwd_end"), "bwd_end is missing"),
        (lambda row: row.__setitem__("memory", "much"), "memory: expected a number"),
        (
            lambda row: [
                row.__setitem__(k, [t - 300 for t in row[k]]) for k in ("fwd_start", "fwd_end")
            ],
            "in every order of chunks",
        ),
    ],
)
def test_a_damaged_dump_says_why(change, says, tmp_path):
    folder = Path(dump_primus(tmp_path / "run", [simulated("1f1b")]))
    damaged(folder, 2, change)
    with pytest.raises(InputError, match=says):
        read_run([str(folder)])


def test_what_shows_no_run_says_why(tmp_path):
    for name, text, says in (
        ("a.json", "{}", "has no ops"),
        ("b.csv", "0F0,0B0\n", "without times"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=says):
            read_run([str(tmp_path / name)])
    folder = Path(dump_primus(tmp_path / "run", [simulated("1f1b")]))
    (folder / "pp_rank_1.json").unlink()
    with pytest.raises(InputError, match="3 of 4 ranks"):
        read_run([str(folder)])
    run = read_run([str(PRIMUS)])
    for wrong in ("30", "x", "4-", "-"):
        with pytest.raises(InputError, match="iteration"):
            run.select(wrong)


@pytest.mark.parametrize(("name", "options"), [("1f1b", {}), ("interleaved", {"chunks": 2})])
def test_clocks_that_disagree_are_corrected(name, options, tmp_path):
    """One device's clock is 7 ms ahead, of ops of 30 to 70 ms and latencies of 0.75 ms."""
    timeline = simulated(name, **options)
    folder = Path(dump_primus(tmp_path / "run", [timeline]))

    def ahead(row):
        row.update({k: [t + 7 for t in v] for k, v in row.items() if isinstance(v, list)})

    damaged(folder, 2, ahead)
    run = read_run([str(folder)])
    assert np.allclose(run.offset, [0, 0, 7, 0])
    assert same_ops(run.schedule, timeline.schedule)
    assert np.allclose(run.start, timeline.start[None])
    assert "clocks were corrected by up to 7 ms" in run.notes[0]


def test_clocks_that_agree_are_left_alone():
    assert read_run([str(PRIMUS)]).offset.tolist() == [0.0] * 8
