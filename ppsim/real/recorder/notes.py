"""The notes of one recorded process: what hooks and marks add to, and when it is written.

Nothing here raises into the program that is recorded: a fault ends the recording with one warning.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable
from typing import Any, TypeVar

from ppsim.real.recorder.file import OpsFile, Process, Row
from ppsim.real.runs.streams import Clock, Wall, clock

EVERY_S = 1.0  # at most this often times are written
WAIT_S, POLL_S = 10.0, 0.001  # how long the end of a recording waits for a GPU, and how often it looks
MOST_ROWS = 1 << 20  # ops that a GPU has not reached before the recording is given up
NONE = -1
Result = TypeVar("Result")


class Notes:
    """The ops of a process as they end.

    Attributes:
        process: what is known of it.
        rows: ops that are not written yet.
        step: the training step, from 0; -1 before the first one.
        running: whether ops are noted.
        failed: whether a fault ended the recording.
        clock: of this process.
    """

    def __init__(self, process: Process, steps: int | None, clock: str) -> None:
        self.process, self.rows, self.step, self.running = process, list[Row](), NONE, False
        self.clock: Clock = Wall()
        self._mark: Callable[[], Any] = self._first_mark
        self.failed = False
        self._steps, self._clock = steps, clock
        self._pid = os.getpid()

    def begin(self, file: OpsFile) -> None:
        """Begin to note ops."""
        self.file, self._written, self.running = file, time.monotonic(), True

    def safely(self, work: Callable[..., Result], *given: Any) -> Result | None:
        """Call work of the recorder; a fault of it gives None and ends the recording."""
        try:
            return work(*given)
        except Exception as error:
            self.give_up(error)
            return None

    def give_up(self, error: Exception) -> None:
        """Stop recording after a fault, and say so once."""
        if not self.running:
            return
        self.running, self.failed = False, True
        self.rows.clear()
        warn(f"ppsim.record stopped, and the program goes on: {describe(error)}")

    def mark(self) -> Any:
        """Note the moment; None where the recording has ended."""
        if not self.running:
            return None
        try:
            return self._mark()
        except Exception as error:
            self.give_up(error)
            return None

    def _first_mark(self) -> Any:
        """Note the first moment: only now, with the process set up, is it known which clock that is."""
        torch = sys.modules.get("torch")
        if self._clock == "auto":
            self._clock = "cuda" if torch and torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
        self.clock = clock(self._clock)
        self.clock.sync()
        self.file.start(self._clock, self.clock)
        self._mark = self.clock.mark
        return self._mark()

    def note(self, kind: str, stage: int, microbatch: int, start: Any, end: Any, posted: Any = None) -> None:
        """Note one op that has run; one whose moments were not marked is left out."""
        if self.running and start is not None and end is not None:
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
        """Write the ops that have run, where some time has passed since the last were written."""
        now = time.monotonic()
        if self.running and now - self._written > EVERY_S:
            self._written = now
            self.safely(self._write_run)

    def _write_run(self) -> None:
        """Write the ops that the clock has reached."""
        if os.getpid() != self._pid:  # a process that was forked off: the recording is its parent's
            self.running = False
            return
        if self.file.writer.failure:
            raise self.file.writer.failure
        reached = bisect_left(self.rows, True, key=lambda row: not self.clock.passed(row.end))
        while 0 < reached < len(self.rows) and self._overlaps(reached):
            reached -= 1
        if not reached and len(self.rows) > MOST_ROWS:
            raise RuntimeError(f"the GPU has not reached any of the last {len(self.rows):,} ops")
        if reached:
            rows, self.rows = self.rows[:reached], self.rows[reached:]
            self.file.write(rows)
            self.clock.rebase(rows[-1].end)

    def _overlaps(self, at: int) -> bool:
        """Whether the op at a place began before the end of the one before it: both may be a pair."""
        return self.clock.ns(self.rows[at].start) < self.clock.ns(self.rows[at - 1].end)

    def end(self, wait_s: float = WAIT_S) -> None:
        """Write what is left, once; of a GPU what it reaches within some seconds, as what it runs may hang."""
        if self.running:
            self.safely(self._end, wait_s)
            self.running = False

    def _end(self, wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while self.rows and not self.clock.passed(self.rows[-1].end) and time.monotonic() < until:
            time.sleep(POLL_S)
        self._write_run()
        if os.getpid() == self._pid:
            self.file.close()


def warn(text: str) -> None:
    """Warn; on standard error where warnings are errors, as nothing may end the program that is recorded."""
    try:
        warnings.warn(text, stacklevel=3)
    except Exception:
        try:
            print(f"warning: {text}", file=sys.stderr)
        except Exception:
            return


def describe(error: Exception) -> str:
    """Say what failed, in one line."""
    if isinstance(error, OSError) and error.strerror:
        where = f"'{error.filename}': " if error.filename else ""
        return f"{where}{error.strerror}"
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
