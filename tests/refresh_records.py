"""Record the real runs that test_validate.py re-analyses: ``python -m tests.refresh_records
[--real-time] [NAME...]``.

Takes some minutes. Run it on a machine with nothing else to do; date, machine and load go into the
records.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ppsim.base.atomic_file import open_atomically
from ppsim.real.runs.record import dump
from ppsim.real.runs.session import Request, measure_session
from ppsim.real.validation.analyse import validate
from ppsim.real.validation.verdict import Validation
from ppsim.schedules import generate

FOLDER = Path(__file__).parent / "data" / "records"
# Costs of timed ops come from the first of them.
NAMES = (
    "gpipe",
    "1f1b",
    "eager-1f1b",
    "zb-1p",
    "zb-h2",
    "looped-bfs",
    "interleaved",
    "dualpipe-v",
    "dualpipe",
)
IN_TORCH = tuple(name for name in NAMES if name != "dualpipe")


@dataclass(frozen=True)
class Session:
    """One record: its shape and how it is run."""

    devices: int
    microbatches: int
    request: Request
    names: tuple[str, ...] = NAMES


SESSIONS = {
    "timed-p2": Session(2, 8, Request(ops="timed", repeats=5)),
    "timed-p4": Session(4, 8, Request(ops="timed", repeats=4)),
    "timed-p8": Session(8, 16, Request(ops="timed", repeats=3)),
    "timed-p4-4mib": Session(4, 8, Request(ops="timed", message=4 << 20, repeats=4)),
    "timed-p4-torch": Session(4, 8, Request(ops="timed", runner="torch", repeats=2), IN_TORCH),
    "compute-p2": Session(2, 8, Request(repeats=7)),
    "compute-p2-torch": Session(2, 8, Request(runner="torch", repeats=7), IN_TORCH),
}


def line(name: str, result: Validation) -> str:
    """Median and worst absolute error of each level, and the ranking."""
    levels = ("nominal", "link", "host", "held-out", "replay")
    errors = [result.errors(level) for level in levels]
    cells = "  ".join(f"{np.median(e):6.2%} {e.max():6.2%}" for e in errors)
    return f"{name:<18}{cells}  {result.ranked_right:>3} of {result.pairs}"


def main(words: list[str]) -> None:
    """Record the sessions named, or all."""
    real_time = "--real-time" in words
    wanted = [word for word in words if word != "--real-time"] or list(SESSIONS)
    print(
        f"{'median, worst':<18}nominal        link           host           held-out       replay  "
        f"       ranked"
    )
    for name in wanted:
        session, begin = SESSIONS[name], time.monotonic()
        schedules = [
            generate(s, devices=session.devices, microbatches=session.microbatches)
            for s in session.names
        ]
        how = {"device": "cpu", "real_time": real_time, "command": f"refresh_records {name}"}
        request = Request(**{**vars(session.request), **how})
        record, failure = measure_session(schedules, request, lambda done, what: None)
        if failure:
            sys.exit(f"{name}: {failure}")
        target = str(FOLDER / f"{name}.json.gz")
        data = dump(record, target, resolution_us=20)
        with open_atomically(target) as out:
            out.write(data)
        print(
            line(name, validate(record)),
            f" {len(data) / 1024:.1f} KiB, {time.monotonic() - begin:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
