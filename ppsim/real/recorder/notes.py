"""The ops of one recorded process, from hooks and marks, and their regular writing to a file.

Nothing here raises into the recorded program: an error ends the recording with one warning.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

from ppsim.real.recorder.file import OpsFile, Process, Row
from ppsim.real.recorder.guard import describe, is_of_the_program, warn
from ppsim.real.runs.streams import Clock, Events, Wall, clock

EVERY_S = 1.0  # least seconds between two writes
WAIT_S = 10.0  # seconds that the end of a recording waits for a GPU
POLL_S = 0.001  # seconds between two questions whether the GPU is done
MANY_ROWS = 1 << 14  # unwritten ops from which on they are also written within a step
MOST_ROWS = 1 << 18  # ops that a GPU has not finished, above which the recording is given up
NONE = -1
Result = TypeVar("Result")


class Notes:
    """The ops of a process, noted as they end.

    Attributes:
        process: the process's device, replica and header.
        rows: ops that are not written yet.
        step: the training step, from 0; -1 before the first one.
        running: whether ops are noted.
        open: an entry for each marked op that has begun and not ended.
        failed: whether an error ended the recording, or a part of it.
        clock: the clock of this process.
    """

    def __init__(self, process: Process, steps: int | None, clock: str) -> None:
        self.process, self.running = process, False
        self._steps, self._wanted = steps, clock
        self._writing = threading.Lock()
        self._unfinished = False  # whether the file is still incomplete
        self._reset()

    def _reset(self) -> None:
        self.rows, self.open, self.step, self.failed = list[Row](), list[None](), NONE, False
        self.clock: Clock = Wall()
        self._clock = self._wanted
        self._mark: Callable[[], Any] = self._first_mark

    def begin(self, file: OpsFile) -> None:
        """Begin to note ops."""
        self._reset()
        self.file, self._written = file, time.monotonic()
        self.running = self._unfinished = True

    def safely(self, work: Callable[..., Result], *given: Any, **named: Any) -> Result | None:
        """Return the result of the recorder's ``work``; an error ends the recording: None."""
        try:
            return work(*given, **named)
        except Exception as error:
            self.give_up(error)
            return None

    def give_up(self, error: Exception) -> None:
        """Stop recording after an error, with one warning; an error of the program is re-raised."""
        if is_of_the_program(error):
            raise error
        if not self.running:
            return
        self.running = False
        self.warn_once(f"ppsim.record stopped, and the program continues: {describe(error)}")

    def warn_once(self, text: str) -> None:
        """Warn that the recording, or a part of it, ended; only the first time."""
        if not self.failed:
            self.failed = True
            warn(text)

    def mark(self) -> Any:
        """Return a mark of this moment, or None if the recording has ended."""
        if not self.running:
            return None
        try:
            return self._mark()
        except Exception as error:
            self.give_up(error)
            return None

    def _first_mark(self) -> Any:
        """Select the clock, now that the process is set up, and return the first mark."""
        if self._clock == "auto":
            self._clock = "cuda" if _uses_gpu() else "cpu"
        if self._clock == "cuda" and _is_captured():
            return None
        self.clock = clock(self._clock)
        self.clock.sync()
        self.file.start(self._clock, self.clock)
        self._mark = self._mark_on_gpu if isinstance(self.clock, Events) else self.clock.mark
        return self._mark()

    def _mark_on_gpu(self) -> Any:
        """Return an event, or None while a CUDA graph is captured: the graph would contain it."""
        return None if _is_captured() else self.clock.mark()

    def note(
        self, kind: str, stage: int, microbatch: int, start: Any, end: Any, posted: Any = None
    ) -> None:
        """Note one op that has run, unless its start or end was not marked.

        Raises:
            TypeError: the kind is not a text, or stage or microbatch is not a whole number.
        """
        if self.running and start is not None and end is not None:
            if not isinstance(kind, str):
                raise TypeError(
                    f"an op's kind is of type {type(kind).__name__}; expected a text, e.g. 'F'"
                )
            self.rows.append(
                Row(kind, index(stage), index(microbatch), posted, start, end, self.step)
            )
            if len(self.rows) > MANY_ROWS:
                self.write_due()

    def begin_step(self) -> None:
        """Begin a training step."""
        self.step += 1

    def end_step(self) -> None:
        """End a training step: write due rows, and end the recording after the last step."""
        if self._steps is not None and self.step + 1 >= self._steps:
            self.end()
        else:
            self.write_due()

    def write_due(self) -> None:
        """Write the ops that have run, ``EVERY_S`` after the last write, unless a mark is open."""
        now = time.monotonic()
        if self.running and now - self._written > EVERY_S and not self.open:
            self._written = now
            self.safely(self._write_run)

    def _write_run(self) -> None:
        """Write the ops that have run; after an error, drop all.

        Does nothing while another thread writes.
        """
        try:
            self._write_ended()
        except Exception:
            self.rows.clear()
            raise

    def _write_ended(self) -> None:
        """Write the first rows up to one that has not ended on the clock."""
        if self.file.writer.failure:
            raise self.file.writer.failure
        if isinstance(self.clock, Events) and _is_captured():
            return  # events cannot be queried during a capture
        if not self._writing.acquire(blocking=False):
            return
        try:
            rows = self.rows  # other threads append to it meanwhile
            count, is_reached = len(rows), self.clock.is_reached
            ended = next((at for at in range(count) if not is_reached(rows[at].end)), count)
            while 0 < ended < count and self._overlaps(ended):
                ended -= 1
            if not ended and count > MOST_ROWS:
                raise RuntimeError(f"the GPU has not reached any of the last {count:,} ops")
            if ended:
                written = rows[:ended]
                self.file.write(written)
                del rows[:ended]
                self.clock.rebase(written[-1].end)
        finally:
            self._writing.release()

    def _overlaps(self, at: int) -> bool:
        """Return whether the op at an index began before the previous one ended: a pair, perhaps.

        The previous op has ended.
        """
        start, ns = self.rows[at].start, self.clock.ns
        return self.clock.is_reached(start) and ns(start) < ns(self.rows[at - 1].end)

    def end(self, wait_s: float = WAIT_S) -> None:
        """Write the remaining rows, once, and complete the file.

        Ops that a GPU does not finish within ``wait_s`` seconds are dropped: it may hang.
        """
        if self._unfinished:
            self._unfinished = False
            self.safely(self._end, wait_s if self.running else 0.0)
            self.running = False

    def _end(self, wait_s: float) -> None:
        if isinstance(self.clock, Events) and _is_captured():
            raise RuntimeError(
                "it ended while a CUDA graph was captured, when events cannot be queried"
            )
        until = time.monotonic() + wait_s
        while (
            self.rows and not self.clock.is_reached(self.rows[-1].end) and time.monotonic() < until
        ):
            time.sleep(POLL_S)
        self._write_run()
        self.file.close()

    def abandon(self) -> None:
        """Note and write nothing more: this process was forked, and its parent records."""
        self.running = self._unfinished = False
        self.rows.clear()


def _uses_gpu() -> bool:
    """Return whether torch uses a GPU in this process."""
    try:
        torch = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_initialized())
    except AttributeError:
        return False


def _is_captured() -> bool:
    """Return whether the current stream is being captured into a CUDA graph."""
    import torch

    return bool(torch.cuda.is_current_stream_capturing())
