"""Real runs: files in the tree, dumps made of simulated runs, and processes of
torch.distributed.
"""

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from tests.warm_processes import warm_context

PRIMUS = Path(__file__).parent / "data" / "real_runs" / "primus_pp8"
RECORD = PRIMUS.parents[1] / "records" / "timed-p2.json.gz"
PARTS = {Kind.F: "fwd", Kind.B: "bwd", Kind.I: "bwd", Kind.W: "wgrad"}


def simulated(
    name="interleaved", devices=4, mb=8, *, tf=60.0, tb=70.0, comm=0.75, **options
) -> Timeline:
    schedule = generate(name, devices=devices, microbatches=mb, **options)
    return simulate(schedule, costs_for(schedule, tf=tf, tb=tb, comm=comm, unit="ms"))


def dump_primus(folder: Path, timelines: list[Timeline], *, config=True, numbered=False) -> str:
    """Write runs of one schedule as Primus does, an iteration each; a rank's ops in the order of
    their starts.
    """
    schedule = timelines[0].schedule
    folder.mkdir(exist_ok=True)
    for device in range(schedule.n_devices):
        ops = np.arange(len(schedule))[schedule.queue(device)]
        rows = {}
        for number, timeline in enumerate(timelines, start=1):
            row: dict[str, Any] = {"total": timeline.makespan, "memory": 8.0 - device}
            for kind, part in PARTS.items():
                mine = ops[schedule.kind[ops] == kind]
                if part in ("fwd", "bwd") or len(mine):
                    row.setdefault(f"{part}_start", []).extend(timeline.start[mine].tolist())
                    row.setdefault(f"{part}_end", []).extend(timeline.end[mine].tolist())
                    if numbered:
                        row.setdefault(f"{part}_chunk", []).extend(schedule.chunk[mine].tolist())
                        row.setdefault(f"{part}_minibatch", []).extend(
                            (schedule.microbatch[mine] + 1).tolist()
                        )
            rows[str(number)] = row
        (folder / f"pp_rank_{device}.json").write_text(json.dumps(rows))
    if config:
        said = {
            "pp_size": schedule.n_devices,
            "vp_size": schedule.n_chunks,
            "num_mbs": schedule.n_microbatches,
        }
        (folder / "config.json").write_text(json.dumps(said))
    return str(folder)


def short_record(folder: Path) -> str:
    """The record with its first two schedules, in a file; all of them take ten times as long."""
    whole = json.loads(gzip.decompress(RECORD.read_bytes()))
    path = folder / "record.json"
    path.write_text(json.dumps(whole | {"runs": whole["runs"][:2]}))
    return str(path)


RECORDED = PRIMUS.parent / "recorded_1f1b"
STRAGGLERS = PRIMUS.parent / "stragglers" / "trace-ST.parquet"
UNEQUAL = STRAGGLERS.with_name("trace-SE.parquet")
# As megatron.core.timers prints them, with what is between reports in a log.
SPREADS = """INFO:megatron.core.timers:(min, max) time across ranks (ms):
    model-and-optimizer-setup ......................: (1020.90, 1022.97)
[before the start of training step] datetime: 2026-03-28 14:13:05.589428
(min, max) time across ranks (ms):
    forward-backward ...............................: (26094.39, 26095.09)
    optimizer ......................................: (3407.56, 3409.92)
 iteration       20/     100 | elapsed time per iteration (ms): 800.5 |
(min, max) time across ranks (ms):
    forward-backward ...............................: (700.39, 710.09)
    optimizer ......................................: (30.56, 31.92)
7: (min, max) time across ranks (ms):
7:     forward-backward ...............................: (702.39, 712.09)
7:     optimizer ......................................: (30.56, 31.92)
saved checkpoint [ t 1/1, p 1/1 ] (min, max) time across ranks (ms): save-checkpoint ........: (24895.07, 24895.13)
"""  # noqa: E501
EACH = """times across ranks (ms):
  forward-compute:
     rank  0: 900.00
     rank  1: 900.00
times across ranks (ms):
  forward-compute:
     rank  0: 310.00
     rank  1: 420.00
  backward-compute:
     rank  1: 7.00
"""


def ops_rows(timelines: list[list[Timeline]], *, messages=True) -> list[dict[str, Any]]:
    """Rows of a table of ops, of runs by iteration and replica; each message takes its latency
    after its op.
    """
    rows = list[dict[str, Any]]()
    for iteration, replicas in enumerate(timelines, start=7):
        for replica, timeline in enumerate(replicas):
            where = {"iteration": iteration, "replica": replica}
            rows += [where | row for row in _rows_of(timeline, messages)]
    return rows


def _rows_of(timeline: Timeline, messages: bool) -> Iterator[dict[str, Any]]:
    schedule, took = timeline.schedule, float(np.max(timeline.comm or 0.0))

    def row(op: int, kind: str, start: float, end: float) -> dict[str, Any]:
        place = {"device": int(schedule.device[op]), "stage": int(schedule.stage[op])}
        return place | {
            "kind": kind,
            "microbatch": int(schedule.microbatch[op]),
            "start": start,
            "end": end,
        }

    for op in range(len(schedule)):
        kind = Kind(schedule.kind[op])
        yield row(op, kind.name, float(timeline.start[op]), float(timeline.end[op]))
        if messages and schedule.crosses[op]:
            need = int(schedule.dependency[op])
            sent, letter = float(timeline.end[need]), "F" if kind == Kind.F else "B"
            yield row(need, f"SEND_{letter}", sent, sent + took)
            yield row(op, f"RECV_{letter}", sent, sent + took)


def write_csv(path: Path, rows: list[dict[str, Any]], names: dict[str, str] | None = None) -> str:
    """Write rows as CSV, columns under other names where ``names`` has some; None is an empty
    cell.
    """
    columns = list(rows[0])
    lines = [",".join((names or {}).get(column, column) for column in columns)]
    lines += [
        ",".join("" if row[column] is None else str(row[column]) for column in columns)
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def spawn(function: str, world: int, limit: float, folder: Path, *args: Any) -> None:
    """Run a function of the worker module in so many processes, and kill them after the limit."""
    pytest.importorskip("torch")
    import torch.multiprocessing as mp

    from tests import torch_worker

    warm_context()
    run, given = getattr(torch_worker, function), (world, str(folder), *args)
    context = mp.start_processes(run, given, nprocs=world, join=False, start_method="forkserver")
    assert context is not None
    deadline = time.monotonic() + limit
    try:
        while not context.join(timeout=1):  # true once all have ended
            if time.monotonic() > deadline:
                raise TimeoutError(f"{function} hangs: not over within {limit} s")
    finally:
        for process in context.processes:
            process.kill()
