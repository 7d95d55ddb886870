"""The notes of one recorded process, which hooks and marks add to and which are written in time.

Nothing here raises into the program that is recorded: a fault ends the recording with one warning.
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

EVERY_S = 1.0  # at most this often times are written
# how long the end of a recording waits for a GPU, and how often it looks
WAIT_S, POLL_S = 10.0, 0.001
MANY_ROWS = 1 << 14  # ops that are written before a step ends
MOST_ROWS = 1 << 18  # ops that a GPU has not reached before the recording is given up
NONE = -1
Result = TypeVar("Result")


class Notes:
    """The ops of a process as they end.

    Attributes:
        process: its device, replica and header.
        rows: ops that are not written yet.
        step: the training step, from 0; -1 before the first one.
        running: whether ops are noted.
        open: a mark for each op that has begun and not ended.
        failed: whether a fault ended the recording.
        clock: of this process.
    """

    def __init__(self, process: Process, steps: int | None, clock: str) -> None:
        self.process, self.running = process, False
        self._steps, self._wanted = steps, clock
        self._writing = threading.Lock()
        self._unfinished = False  # whether the file has not been ended
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
        """Call work of the recorder; a fault of it gives None and ends the recording."""
        try:
            return work(*given, **named)
        except Exception as error:
            self.give_up(error)
            return None

    def give_up(self, error: Exception) -> None:
        """Stop recording after a fault, and say so once; an error of the program itself is passed
        on.
        """
        if is_of_the_program(error):
            raise error
        if not self.running:
            return
        self.running = False
        self.warn_once(f"ppsim.record stopped, and the program goes on: {describe(error)}")

    def warn_once(self, text: str) -> None:
        """Warn about the reason why the recording, or a part of it, ended; only the first time."""
        if not self.failed:
            self.failed = True
            warn(text)

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
        """Note the first moment: only now, with the process set up, is it known which clock that
        is.
        """
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
        """Record an event; None while a CUDA graph is captured, which would take the event into the
        graph.
        """
        return None if _is_captured() else self.clock.mark()

    def note(
        self, kind: str, stage: int, microbatch: int, start: Any, end: Any, posted: Any = None
    ) -> None:
        """Note one op that has run; one whose moments were not marked is left out.

        Raises:
            TypeError: the kind is not a text, or the stage or microbatch not a whole number.
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
        """A training step begins."""
        self.step += 1

    def end_step(self) -> None:
        """End a training step: write due rows, and end the recording after the last step."""
        if self._steps is not None and self.step + 1 >= self._steps:
            self.end()
        else:
            self.write_due()

    def write_due(self) -> None:
        """Write the ops that have run, where some time has passed since the last were written and
        none is open.
        """
        now = time.monotonic()
        if self.running and now - self._written > EVERY_S and not self.open:
            self._written = now
            self.safely(self._write_run)

    def _write_run(self) -> None:
        """Write the ops that the clock has reached; after a fault, hold none.

        Another thread that writes is not waited for.
        """
        try:
            self._write_reached()
        except Exception:
            self.rows.clear()
            raise

    def _write_reached(self) -> None:
        if self.file.writer.failure:
            raise self.file.writer.failure
        if isinstance(self.clock, Events) and _is_captured():
            return  # a capture allows no question about events
        if not self._writing.acquire(blocking=False):
            return
        try:
            rows = self.rows  # other threads append to it meanwhile
            held, passed = len(rows), self.clock.is_reached
            reached = next((at for at in range(held) if not passed(rows[at].end)), held)
            while 0 < reached < held and self._overlaps(reached):
                reached -= 1
            if not reached and held > MOST_ROWS:
                raise RuntimeError(f"the GPU has not reached any of the last {held:,} ops")
            if reached:
                run = rows[:reached]
                self.file.write(run)
                del rows[:reached]
                self.clock.rebase(run[-1].end)
        finally:
            self._writing.release()

    def _overlaps(self, at: int) -> bool:
        """Return whether the op at a place began before the end of the one before it, which has
        ended: both may be a pair.
        """
        start, ns = self.rows[at].start, self.clock.ns
        return self.clock.is_reached(start) and ns(start) < ns(self.rows[at - 1].end)

    def end(self, wait_s: float = WAIT_S) -> None:
        """Write the remaining rows, once; of a GPU the ones that it reaches within some seconds, as
        it may hang.
        """
        if self._unfinished:
            self._unfinished = False
            self.safely(self._end, wait_s if self.running else 0.0)
            self.running = False

    def _end(self, wait_s: float) -> None:
        if isinstance(self.clock, Events) and _is_captured():
            raise RuntimeError(
                "it ends while a CUDA graph is captured, which allows no question about events"
            )
        until = time.monotonic() + wait_s
        while (
            self.rows and not self.clock.is_reached(self.rows[-1].end) and time.monotonic() < until
        ):
            time.sleep(POLL_S)
        self._write_run()
        self.file.close()

    def abandon(self) -> None:
        """Note nothing more and write nothing: in a process that was forked off, whose parent does
        both.
        """
        self.running = self._unfinished = False
        self.rows.clear()


def _uses_gpu() -> bool:
    """Return whether torch computes on a GPU here; False if this torch cannot be asked."""
    try:
        torch = sys.modules.get("torch")
        return torch is not None and bool(torch.cuda.is_available() and torch.cuda.is_initialized())
    except AttributeError:
        return False


def _is_captured() -> bool:
    """Return whether work on the current stream is captured into a CUDA graph."""
    import torch

    return bool(torch.cuda.is_current_stream_capturing())
