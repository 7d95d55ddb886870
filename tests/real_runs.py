"""Files of real runs: those in the tree, and dumps made of simulated runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate

PRIMUS = Path(__file__).parent / "data" / "real_runs" / "primus_pp8"
PARTS = {Kind.F: "fwd", Kind.B: "bwd", Kind.I: "bwd", Kind.W: "wgrad"}


def simulated(name="interleaved", devices=4, mb=8, *, tf=60.0, tb=70.0, comm=0.75, **options) -> Timeline:
    schedule = generate(name, devices=devices, microbatches=mb, **options)
    return simulate(schedule, costs_for(schedule, tf=tf, tb=tb, comm=comm, unit="ms"))


def dump_primus(folder: Path, timelines: list[Timeline], *, config=True, numbered=False) -> str:
    """Write runs of one schedule as Primus does, an iteration each; a rank's ops in the order of their starts."""
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
                        row.setdefault(f"{part}_minibatch", []).extend((schedule.microbatch[mine] + 1).tolist())
            rows[str(number)] = row
        (folder / f"pp_rank_{device}.json").write_text(json.dumps(rows))
    if config:
        said = {"pp_size": schedule.n_devices, "vp_size": schedule.n_chunks, "num_mbs": schedule.n_microbatches}
        (folder / "config.json").write_text(json.dumps(said))
    return str(folder)
