"""The notes of one recorded process: what hooks and marks add to, and when it is written."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from ppsim.real.recorder.file import OpsFile, Process, Row
from ppsim.real.runs.streams import Clock, Wall, clock

EVERY_S = 1.0  # at most this often, and between steps, times are written
NONE = -1


class Notes:
    """The ops of a process as they end.

    Attributes:
        process: what is known of it.
        rows: ops that are not written yet.
        step: the training step, from 0; -1 before the first one.
        running: whether ops are noted.
        clock: of this process.
        mark: notes the moment.
    """

    def __init__(self, process: Process, steps: int | None, clock: str) -> None:
        self.process, self.rows, self.step, self.running = process, list[Row](), NONE, False
        self.clock: Clock = Wall()
        self.mark: Callable[[], Any] = self._first_mark
        self._steps, self._clock = steps, clock

    def begin(self, file: OpsFile) -> None:
        """Begin to note ops."""
        self.file, self._written, self.running = file, time.monotonic(), True

    def _first_mark(self) -> Any:
        """Note the first moment: only now, with the process set up, is it known which clock that is."""
        torch = sys.modules.get("torch")
        if self._clock == "auto":
            self._clock = "cuda" if torch and torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
        self.clock = clock(self._clock)
        self.clock.sync()
        self.file.start(self._clock, self.clock)
        self.mark = self.clock.mark
        return self.mark()

    def note(self, kind: str, stage: int, microbatch: int, start: Any, end: Any, posted: Any = None) -> None:
        """Note one op that has run."""
        self.rows.append(Row(kind, stage, microbatch, posted, start, end, self.step))

    def begin_step(self) -> None:
        """A training step begins."""
        self.step += 1

    def end_step(self) -> None:
        """A training step has ended: write what is due, and end the recording after the last step asked for."""
        if self._steps is not None and self.step + 1 >= self._steps:
            self.end()
        else:
            self.write_due()

    def write_due(self) -> None:
        """Write the ops so far where some time has passed and all of them have run."""
        now = time.monotonic()
        if now - self._written > EVERY_S and self.rows and self.clock.passed(self.rows[-1].end):
            self._written, rows, self.rows = now, self.rows, []
            self.file.write(rows)
            self.clock.rebase(rows[-1].end)

    def end(self) -> None:
        """Write what is left, once."""
        if self.running:
            self.running = False
            self.clock.settle()
            self.file.write(self.rows)
            self.file.close()
