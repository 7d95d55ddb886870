"""Tables of ops by any names are one job: the ops, messages and collectives of all replicas, and
what was repaired.
"""

import contextlib
import json
import random

import numpy as np
import pytest

from ppsim.analysis.slowdown import find_slowdown
from ppsim.core.job import Job
from ppsim.engine.simple.steps import StepTimes, time_steps
from ppsim.errors import InputError, InvalidSchedule, PpsimError
from ppsim.real.traces.read import read_run
from ppsim.real.traces.run import RealRun
from ppsim.real.traces.tables.words import group_of, kind_of, meanings
from ppsim.schedules import recognise
from tests.commands import invoke
from tests.real_runs import RECORDED, STRAGGLERS, UNEQUAL, ops_rows, simulated, write_csv

MEGATRON = {
    "iteration": "step",
    "replica": "dp_rank",
    "device": "pp_rank",
    "kind": "optype",
    "microbatch": "mb_id",
}


def read_job(*paths) -> tuple[RealRun, Job]:
    run = read_run([str(path) for path in paths])
    assert run.job is not None
    return run, run.job


def two_replicas(name="interleaved", steps=3, **options):
    options = {"comm": 0.75} | options
    return [
        [simulated(name, **options), simulated(name, tf=60.0 + step, **options)]
        for step in range(steps)
    ]


@pytest.mark.slow
def test_the_production_job_is_read_whole():
    run, job = read_job(STRAGGLERS)
    assert (run.format, run.unit, recognise(run.schedule)) == ("table", "s", "1f1b")
    assert job.start.shape == (32, 2, 32)
    assert [each.name for each in job.step_ops] == [
        "params-all-gather",
        "gc",
        "layernorm-grads-all-reduce",
        "embedding-grads-all-reduce",
        "grads-reduce-scatter",
        "optimizer-clip-main-grad",
        "optimizer",
    ]
    assert [each.group for each in job.step_ops] == [
        "replicas",
        "device",
        "device",
        "ends",
        "replicas",
        "all",
        "device",
    ]
    assert [each.before_chunk for each in job.step_ops] == [True] + [False] * 6
    known = json.loads((STRAGGLERS.parent / "stragglers.json").read_text())["ST"]["step"]
    assert np.allclose(job.steps, known)
    assert "not read: rank" in run.column_notes


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    "names", [{}, MEGATRON, {"start": "begin_us", "end": "finish_us", "stage": "virtual_stage"}]
)
@pytest.mark.parametrize("schedule", ["interleaved", "zb-v", "dualpipe-v"])
def test_a_table_under_other_names_in_any_order_is_the_run(schedule, names, tmp_path):
    options = {"chunks": 2} if schedule == "interleaved" else {}
    timelines = two_replicas(schedule, **options)
    rows = ops_rows(timelines)
    random.Random(3).shuffle(rows)
    run, job = read_job(write_csv(tmp_path / "t.csv", rows, names))
    timeline = timelines[0][0]
    assert recognise(run.schedule).startswith(schedule)
    assert job.replicas.tolist() == [0, 1]
    assert job.iterations.tolist() == [7, 8, 9]
    for k, step in enumerate(timelines):
        for r, each in enumerate(step):
            assert np.allclose(job.start[k, r] - job.start[k, r].min(), each.start)
            assert np.allclose(job.end[k, r] - job.start[k, r].min(), each.end)
    crosses = timeline.schedule.crosses
    assert np.allclose(job.transfer[:, :, crosses], 0.75)
    assert not job.transfer[:, :, ~crosses].any()


def test_messages_without_numbers_are_matched_in_their_order(tmp_path):
    timelines = two_replicas(chunks=2)
    rows = ops_rows(timelines)
    for row in rows:
        if len(row["kind"]) > 1:
            row["stage"] = row["microbatch"] = -1
    _, job = read_job(write_csv(tmp_path / "t.csv", rows))
    assert np.allclose(job.transfer[:, :, job.schedule.crosses], 0.75)


def test_without_messages_transfers_are_the_latencies_that_waits_show(tmp_path):
    run, job = read_job(
        write_csv(tmp_path / "t.csv", ops_rows(two_replicas(chunks=2), messages=False))
    )
    assert np.allclose(job.transfer[:, :, run.schedule.crosses], 0.75, atol=0.01)
    assert any("no messages are shown" in note for note in run.notes)


@pytest.mark.parametrize("silent", [0, 2])
def test_a_file_that_tells_no_unit_has_that_of_the_others(silent, tmp_path):
    """Whichever it is, the first of them too."""
    for path in RECORDED.glob("*.jsonl"):
        says = '"from": "me"' if path.name.startswith(f"rank{silent}") else '"unit": "ms"'
        (tmp_path / path.name).write_text(path.read_text().replace('"unit": "ms"', says))
    run, whole = read_run([str(tmp_path)]), read_run([str(RECORDED)])
    assert run.unit == "ms"
    assert np.array_equal(run.start, whole.start)


def test_json_lines_have_a_header_for_what_holds_throughout(tmp_path):
    rows = ops_rows(two_replicas())
    for device in range(4):
        own = [
            {k: v for k, v in row.items() if k != "device"}
            for row in rows
            if row["device"] == device
        ]
        late = [row | {name: row[name] * 1e-3 for name in ("start", "end")} for row in own]
        header = {
            "schema": "ppsim.ops/1",
            "unit": "s",
            "epoch": 1e9 - device,
            "device": device,
            "host": "a",
        }
        shifted = [row | {name: row[name] + device for name in ("start", "end")} for row in late]
        lines = [json.dumps(each) for each in (header, *shifted)]
        (tmp_path / f"rank{device}.ops.jsonl").write_text("\n".join(lines))
    run, job = read_job(tmp_path)
    assert run.unit == "s"
    assert np.allclose(job.start[0, 0], simulated().start * 1e-3, atol=1e-6)


def test_steps_are_counted_where_no_column_numbers_them(tmp_path):
    rows = ops_rows([[simulated(chunks=2)], [simulated(chunks=2)]])
    for row in rows:
        row["start"] += 5000.0 * row["iteration"]
        row["end"] += 5000.0 * row.pop("iteration")
    _, job = read_job(write_csv(tmp_path / "t.csv", rows))
    assert job.iterations.tolist() == [0, 1]
    assert np.allclose(job.end[1, 0], simulated(chunks=2).end)


def broken(what, rows):
    """Rows with one fault."""
    late = [row for row in rows if (row["iteration"], row["replica"]) == (8, 1)]
    if what == "missing":
        rows.remove(late[3])
    elif what == "nan":
        late[3]["start"] = "nan"
    elif what == "backwards":
        late[3]["end"] = late[3]["start"] - 1
    elif what == "twice":
        rows.append(late[3] | {"end": late[3]["end"] + 1})
    elif what == "same":
        rows.append(dict(late[3]))
    elif what == "cut":
        rows[:] = [row for row in rows if row["replica"] == 0 or row["iteration"] == 7]
    elif what == "clock":
        for row in rows:
            row.update({name: row[name] + 40.0 * row["device"] for name in ("start", "end")})
    return rows


@pytest.mark.parametrize(
    ("what", "steps", "replicas", "said"),
    [
        ("missing", 2, 2, "1 of 3 steps are left out: in step 8 replica 1 lacks"),
        ("nan", 2, 2, "1 of 3 steps are left out: in step 8 replica 1 lacks"),
        ("backwards", 2, 2, "1 of 3 steps are left out: in step 8 replica 1 lacks"),
        ("backwards", 2, 2, "F in row"),
        ("twice", 2, 2, "two rows for"),
        ("same", 3, 2, "1 repeated row counts once"),
        ("cut", 3, 1, "replica 1 is left out: complete in 1 of 3 steps"),
        ("clock", 3, 2, "clocks of devices were corrected by up to"),
    ],
)
def test_a_fault_is_repaired_and_the_repair_is_said(what, steps, replicas, said, tmp_path):
    rows = broken(what, ops_rows(two_replicas("1f1b")))
    run, job = read_job(write_csv(tmp_path / "t.csv", rows))
    assert job.start.shape[:2] == (steps, replicas)
    assert any(note.startswith(said) for note in run.notes), run.notes
    whole = simulated("1f1b")
    assert np.allclose(job.start[0, 0], whole.start, atol=1e-6 if what != "clock" else 1.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda rows: [{k: v for k, v in row.items() if k != "microbatch"} for row in rows],
            "no column of microbatch",
        ),
        (
            lambda rows: [{k: v for k, v in row.items() if k != "end"} for row in rows],
            "no column of end or a duration",
        ),
        (
            lambda rows: [
                {k: v for k, v in row.items() if k not in ("device", "stage")} for row in rows
            ],
            "of device or",
        ),
        (lambda rows: [row | {"kind": "x"} for row in rows], "no op is a forward or a backward"),
        (lambda rows: [row | {"microbatch": "mb1"} for row in rows], "row 1: microbatch is 'mb1'"),
        (lambda rows: [row | {"stage": 0.5} for row in rows], "(?m)row 1: stage is 0.5$"),
        (lambda rows: [row | {"start": "nan"} for row in rows], "no step is complete"),
        (
            lambda rows: [row | {"start": row["end"], "end": row["start"]} for row in rows],
            "(?m)F in row 1 ends before it starts, and so do 384 of 384 ops$",
        ),
        (
            lambda rows: [
                row | {"end": -1}
                if (row["stage"], row["kind"], row["microbatch"]) == (1, "B", 2)
                else row
                for row in rows
            ],
            "(?m)no row of 1B2 has times$",
        ),
        (
            lambda rows: [row | {"device": ""} if row["kind"] in "FB" else row for row in rows],
            "no op that computes has",
        ),
        (lambda rows: rows + [row | {"end": row["end"] + 1} for row in rows], "two rows for"),
        (lambda rows: [row | {"stage": 10**9} for row in rows], "(?m)row 1: stage is 1000000000$"),
        (
            lambda rows: [row for row in rows if (row["kind"], row["stage"]) != ("F", 1)],
            "device 1 runs no F of stage 1",
        ),
    ],
)
def test_what_no_repair_mends_gets_one_message(change, said, tmp_path):
    with pytest.raises((InputError, InvalidSchedule), match=said):
        read_run([write_csv(tmp_path / "t.csv", change(ops_rows(two_replicas("1f1b"))))])


@pytest.mark.parametrize(
    "content",
    [
        b"PAR1",
        b"PAR1" + b"\0" * 40,
        b'{"kind": "F", "start": 1, "end": 2}\n{"kind": ',
        b"kind,start,end\nF,1\n",
        b"",
    ],
)
def test_files_that_are_cut_short_get_one_message(content, tmp_path):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(InputError):
        read_run([str(tmp_path / "t.parquet")])


def test_a_kind_that_is_no_word_is_refused_with_its_row(tmp_path):
    """JSON lines may hold a list where a word is meant."""
    rows = [
        {**row, "kind": ["F"]} if n == 3 else row
        for n, row in enumerate(ops_rows(two_replicas("1f1b")))
    ]
    (tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"t.jsonl', row 4: kind is \['F'\]"):
        read_run([str(tmp_path / "t.jsonl")])


def test_rows_of_unlike_columns_are_refused_before_they_fill_the_memory(tmp_path):
    """Twenty thousand rows with a column of their own each are less than a megabyte, and 400
    million cells.
    """
    (tmp_path / "t.jsonl").write_text(
        "".join(f'{{"kind": "F", "start": 0, "c{n}": 1}}\n' for n in range(20_000))
    )
    with pytest.raises(
        InputError, match="20,000 rows have 20,002 columns, and each row few of them"
    ):
        read_run([str(tmp_path / "t.jsonl")])


def test_words_of_others_mean_our_columns_and_kinds():
    found = meanings(
        [
            "dp_rank",
            "stage",
            "rank",
            "step",
            "optype",
            "start_ts",
            "duration",
            "seq_id",
            "mc",
            "mb_id",
            "gmc",
        ]
    )
    assert (found["device"], found["stage"], found["chunk"], found["order"]) == (
        "stage",
        "gmc",
        "mc",
        "seq_id",
    )
    assert meanings(["pp_rank", "stage"]) == {"device": "pp_rank", "stage": "stage"}
    kinds = {
        "forward-compute": "F",
        "bwd": "B",
        "BackwardPass": "B",
        "send_forward": "SEND_F",
        "backward-recv": "RECV_B",
    }
    kinds |= {
        "wgrad": "W",
        "backward_input": "I",
        "backward weight": "W",
        "f": "F",
        "recompute": "R",
    }
    assert {name: getattr(kind_of(name), "name", None) for name in kinds} == kinds
    assert [
        kind_of(name) for name in ("optimizer", "grads-reduce-scatter", "forward backward", "")
    ] == [None] * 4
    groups = {
        "grads-reduce-scatter": "replicas",
        "embedding-grads-all-reduce": "ends",
        "optimizer": "device",
    }
    groups |= {
        "optimizer-clip-main-grad": "all",
        "layernorm-grads-all-reduce": "device",
        "UNSHARD": "replicas",
    }
    assert {name: group_of(name) for name in groups} == groups


def as_stragglers(timeline, replica, step, shift):
    """Rows in the columns of ByteDance's traces: messages by their turn, with empty ones at both
    ends.
    """
    schedule, rows = timeline.schedule, []
    P, comm = schedule.n_devices, 0.75
    names = {"F": "forward", "B": "backward"}

    def row(device, kind, start, end, turn, chunk=-1, mb=-1, stage=-1):
        rows.append(
            [replica, device, step, kind, start + shift, end - start, turn, chunk, mb, stage]
        )

    for device in range(P):
        turns = {
            f"{way}-{side}": 0 for way in names.values() for side in ("send", "recv", "compute")
        }
        for chunk in range(schedule.n_chunks):
            row(device, "params-all-gather", -9.0 + 2 * chunk, -8.0 + 2 * chunk, 0, chunk)
        queue = schedule.queue(device)
        for op in range(queue.start, queue.stop):
            way, start, end = names["FB"[schedule.kind[op]]], timeline.start[op], timeline.end[op]
            sent = schedule.crosses & (schedule.dependency == op)
            need = timeline.end[schedule.dependency[op]] if schedule.crosses[op] else start
            for side, at, long in (("recv", need, schedule.crosses[op]), ("send", end, sent.any())):
                row(device, f"{way}-{side}", at, at + comm * long, turns[f"{way}-{side}"])
                turns[f"{way}-{side}"] += 1
            place = int(schedule.chunk[op]), int(schedule.microbatch[op]), int(schedule.stage[op])
            row(device, f"{way}-compute", start, end, turns[f"{way}-compute"], *place)
            turns[f"{way}-compute"] += 1
        last = simulated(chunks=2, tb=71.0).makespan + 1
        for chunk in reversed(range(schedule.n_chunks)):
            row(device, "grads-reduce-scatter", last, last + 3, 0, chunk)
            last += 3
        row(device, "optimizer", last, last + 1, 0)
    return rows


def test_chunks_have_their_own_gathers_and_messages_are_found_by_their_turn(tmp_path):
    rows = []
    for step in (40, 41):
        for replica in range(2):
            rows += as_stragglers(simulated(chunks=2, tb=70.0 + replica), replica, step, 5e4 * step)
    random.Random(1).shuffle(rows)
    names = "dp_rank,stage,step,optype,start_ts,duration,seq_id,mc,mb_id,gmc"
    (tmp_path / "t.csv").write_text("\n".join([names, *(",".join(map(str, row)) for row in rows)]))
    run, job = read_job(tmp_path / "t.csv")
    assert recognise(run.schedule).startswith("interleaved")
    assert [(each.name, each.before_chunk, each.chunk) for each in job.step_ops] == [
        ("params-all-gather", True, 0),
        ("params-all-gather", True, 1),
        ("grads-reduce-scatter", False, -1),
        ("grads-reduce-scatter", False, -1),
        ("optimizer", False, -1),
    ]
    assert np.allclose(job.transfer[:, :, job.schedule.crosses], 0.75)
    assert np.allclose(job.start[1, 0], simulated(chunks=2, tb=70.0).start)
    pipeline = simulated(chunks=2, tb=71.0).makespan
    found = time_steps(job.schedule, job.step_ops, StepTimes.from_job(job))
    assert found == pytest.approx(1 + pipeline + 3 + 3 + 1)


def test_ops_that_take_no_time_slow_nothing_down(tmp_path):
    rows = [row | {"start": 5.0, "end": 5.0} for row in ops_rows(two_replicas("gpipe"))]
    for number, row in enumerate(rows):
        row["start"] = row["end"] = row["start"] + number * 1e-9
    found = find_slowdown(read_job(write_csv(tmp_path / "t.csv", rows))[1])
    assert found.ideal_step < 1e-6
    assert np.isfinite(found.slowdown)


def test_a_collective_that_a_replica_lacks_is_said(tmp_path):
    rows = ops_rows(two_replicas("1f1b"))
    same = {
        "stage": -1,
        "microbatch": -1,
        "kind": "grads-reduce-scatter",
        "start": 2000.0,
        "end": 2005.0,
    }
    rows += [
        same | {"iteration": k, "replica": r, "device": d}
        for k in (7, 8, 9)
        for r in (0, 1)
        for d in range(4)
    ]
    rows.pop()
    run, job = read_job(write_csv(tmp_path / "t.csv", rows))
    assert any(note.startswith("1 ops between steps are missing") for note in run.notes)
    assert np.isfinite(find_slowdown(job).slowdown)


def test_damaged_parquet_never_ends_but_in_a_message(tmp_path):
    whole, draw = STRAGGLERS.read_bytes(), random.Random(5)
    for _ in range(40):
        data = bytearray(whole)
        for _ in range(draw.choice([1, 3, 50])):
            data[draw.randrange(len(data))] = draw.randrange(256)
        cut = draw.choice([len(data), draw.randrange(len(data))])
        (tmp_path / "t.parquet").write_bytes(data[:cut])
        with contextlib.suppress(PpsimError):
            read_run([str(tmp_path / "t.parquet")])


OVERLAPPING = """device,op,stage,microbatch,start_us,end_us
0,F,0,0,0,10
0,F,0,1,{start},15
0,B,0,0,40,60
0,B,0,1,60,80
1,F,1,0,10,20
1,F,1,1,20,25
1,B,1,0,25,40
1,B,1,1,40,60
"""


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (5, "ops of device 0 overlap: in step 0, 0F1 starts 5 before 0F0 ends: simulations run"),
        (10, ""),
        (9.99, ""),  # within the tolerance of clocks
    ],
)
def test_ops_of_one_device_at_the_same_time_are_said(start, said, tmp_path):
    """A simulation of their times is longer than the run, which would look like its error."""
    (tmp_path / "ops.csv").write_text(OVERLAPPING.format(start=start))
    run, _ = read_job(tmp_path / "ops.csv")
    found = [note for note in run.notes if "overlap" in note]
    assert [note[: len(said)] for note in found] == ([said] if said else [])


def test_an_op_ends_when_the_next_starts_if_clocks_say_a_little_later(tmp_path):
    """Else a device would hold both activations for a moment, and no file could be written."""
    (tmp_path / "ops.csv").write_text(OVERLAPPING.format(start=9.99))
    run, _ = read_job(tmp_path / "ops.csv")
    assert run.end[0, :2].tolist() == [9.99, 15.0]
    run, job = read_job(UNEQUAL)
    first = run.schedule.offsets[1:-1]
    late = np.delete(run.end[:, :-1] - run.start[:, 1:], first - 1, axis=1)
    assert late.max() <= 0.0
    step, target = str(job.iterations[0]), str(tmp_path / "x.json")
    written = invoke("convert", str(UNEQUAL), "--iteration", step, "-o", target)
    assert written.exit_code == 0, written.output


def test_a_pair_does_not_overlap(tmp_path):
    """The two ops of a pair share their times."""
    run, _ = read_job(write_csv(tmp_path / "x.csv", ops_rows([[simulated("dualpipe-v")]])))
    assert (run.schedule.pair >= 0).any()
    assert not [note for note in run.notes if "overlap" in note]
