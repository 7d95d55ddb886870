"""The file of one recorded process in the format ``ppsim.ops/1``.

It has JSON lines: a header, then a row for each op.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ppsim.real.recorder.writer import Writer
from ppsim.real.runs.streams import TRIES, Clock
from ppsim.version import VERSION

SCHEMA = "ppsim.ops/1"
PAIRED = {("F", "B"), ("F", "I"), ("B", "F"), ("I", "F")}
MOST_OPS = 1 << 17  # most ops of a step whose end is only seen by microbatches that repeat
NONE = -1
_RECORDINGS = count()  # numbers of this process's recordings


class Row(NamedTuple):
    """One op; missing numbers are -1. Moments are marks of the recording's clock."""

    kind: str
    stage: int
    microbatch: int
    posted: Any
    start: Any
    end: Any
    step: int


@dataclass
class Process:
    """Identity of the recorded process."""

    device: int | None = None  # its pipeline rank, None until it is known
    replica: int | None = None  # its data-parallel rank
    # further entries of the header: the number of devices, the schedule
    extra: dict[str, Any] = field(default_factory=dict)

    def fill_in(self, device: int, replica: int, **more: Any) -> None:
        """Set device and replica as a runtime states them, unless the user has given them."""
        self.device = device if self.device is None else self.device
        self.replica = replica if self.replica is None else self.replica
        self.extra |= more


class OpsFile:
    """The file of this process.

    Its header is written with the first ops, because the device is not known earlier.
    """

    def __init__(self, path: Any, process: Process) -> None:
        self.process, self.writer = process, Writer(Path(os.path.abspath(os.fsdecode(path))))
        self._zero = time.monotonic_ns()
        self._epoch = _epoch(self._zero)
        self._name = ""
        self._seen: Counter[tuple[str, int, int]] = Counter()

    @property
    def has_ops(self) -> bool:
        """Whether any op was written."""
        return bool(self._name)

    def start(self, clock_name: str, clock: Clock) -> None:
        """Collect the entries of the header once the process is set up."""
        self._clock = clock
        self._rank, ranks = _rank()
        self._header = {
            "clock": clock_name,
            "ranks": ranks,
            "rank": self._rank,
            "run": _run_name(),
            "ppsim": VERSION,
        }

    def write(self, rows: Sequence[Row]) -> None:
        """Write ops that have run.

        Raises:
            OSError: they cannot be written.
            ValueError: a step has more than ``MOST_OPS`` ops.
        """
        if not rows:
            return
        lines = "".join(self._lines(rows))
        header = "" if self.has_ops else self._begin()
        self.writer.append(self._name, (header + lines).encode())

    def close(self) -> None:
        """Complete the file (OSError: it could not be written in full)."""
        self.writer.close()

    def _begin(self) -> str:
        """Set the file's name, and return its header line."""
        process, rank = self.process, self._rank
        device = process.device if process.device is not None else max(rank, 0)
        replica = process.replica or 0
        entries = {"device": device, "replica": replica, **self._header, **process.extra}
        torch = sys.modules.get("torch")
        header = {
            "schema": SCHEMA,
            "unit": "ms",
            "epoch": self._epoch / 1e9,
            "host": platform.node(),
            **{name: value for name, value in entries.items() if value not in (None, "", NONE)},
            **({"torch": str(torch.__version__)} if torch else {}),
        }
        line = json.dumps(header, allow_nan=False) + "\n"
        self._name = f"rank{rank}" if rank >= 0 else f"replica{replica}.device{device}"
        return line

    def _lines(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield a line for each op; ops that run at the same time are a pair and share times."""
        ns, zero, iteration = self._clock.ns, self._zero, 0
        names = {kind: json.dumps(kind) for kind in {row.kind for row in rows}}
        timed = [(ns(row.start), ns(row.end), row) for row in rows]
        for start, end, row in _join_pairs(timed):
            kind, stage, microbatch, posted, _, _, step = row
            if step >= 0:
                iteration = step
            elif microbatch >= 0:
                iteration = self._seen[kind, stage, microbatch]
                self._seen[kind, stage, microbatch] += 1
                if len(self._seen) > MOST_OPS:
                    raise ValueError(
                        f"{MOST_OPS:,} ops without a repeated microbatch: microbatches must count "
                        f"from 0 in each step"
                    )
            cells = (
                f'"iteration": {iteration}, "stage": {stage}, "kind": {names[kind]}, '
                f'"microbatch": {microbatch}'
            )
            times = f'"start": {(start - zero) / 1e6:.6f}, "end": {(end - zero) / 1e6:.6f}'
            post = "" if posted is None else f', "posted": {(ns(posted) - zero) / 1e6:.6f}'
            yield f"{{{cells}, {times}{post}}}\n"


def _join_pairs(timed: Sequence[tuple[int, int, Row]]) -> Iterator[tuple[int, int, Row]]:
    """Yield ops by start; a forward and a backward that overlap get the same start and end."""
    ordered = sorted(timed, key=lambda row: row[0])
    last = NONE  # index of the last forward or backward
    for at, (start, end, row) in enumerate(ordered):
        if row.kind not in ("F", "B", "I"):
            continue
        if last >= 0 and start < ordered[last][1] and (ordered[last][2].kind, row.kind) in PAIRED:
            both = ordered[last][0], max(ordered[last][1], end)
            ordered[last], ordered[at] = (*both, ordered[last][2]), (*both, row)
        last = at
    yield from ordered


def _epoch(zero: int) -> int:
    """Return the time of day in ns at a moment of the monotonic clock.

    Of several readings of both clocks, those closest together count.
    """
    readings = [(time.monotonic_ns(), time.time_ns(), time.monotonic_ns()) for _ in range(TRIES)]
    before, now, after = min(readings, key=lambda each: each[2] - each[0])
    return zero + now - (before + after) // 2


def _rank() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, -1 if they are not known.

    They are those of torch.distributed or of a launcher.
    """
    torch = sys.modules.get("torch")
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    for rank, ranks in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        found = [os.environ.get(name, "") for name in (rank, ranks)]
        if all(text.isdecimal() for text in found):
            return int(found[0]), int(found[1])
    return NONE, NONE


def _run_name() -> str | None:
    """Return a unique name that all processes of a run share, or None without torch.distributed.

    The first process that asks torch's store makes it.
    """
    torch = sys.modules.get("torch")
    if not torch or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    from torch.distributed import distributed_c10d

    try:
        store = distributed_c10d._get_default_store()
        return str(
            store.compare_set(f"ppsim.record/{next(_RECORDINGS)}", "", uuid.uuid4().hex).decode()
        )
    except Exception:  # the store does not support it
        return None
