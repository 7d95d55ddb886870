"""Build the queue of a device from phases of repeated patterns of ops.

A stream is the order of a device's microbatches in one direction. A phase repeats a pattern of ops;
each op consumes the next entry of its stream::

    q = Queue(forward=stream(stage, M), backward=stream(stage, M))
    q.repeat(warm_up, F)
    q.repeat(M - warm_up, B, F)
    q.repeat(warm_up, B)

Every phase is a few array operations, however often it repeats. W has no stream: it belongs to the
oldest I without a W.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ppsim.core.ops import KIND_MASK, MICROBATCH_SHIFT, PAIRED, Kind, Packed, pack

# as integers: numpy asks a member of Kind for a dozen attributes first
_I, _W = int(Kind.I), int(Kind.W)


class Step(NamedTuple):
    """One op of a pattern: its kind, its stream, and whether the next op is its partner."""

    kind: int
    stream: str = ""
    paired: bool = False


class Pair(NamedTuple):
    """Two ops that run as one: they start when both are ready, and end together."""

    first: Step
    second: Step


F = Step(Kind.F, "forward")
B = Step(Kind.B, "backward")
I = Step(Kind.I, "backward")  # noqa: E741 - the field's letter
W = Step(Kind.W)


def stream(stage: int, microbatches: int, first: int = 0) -> Packed:
    """Return packed ops of one stage for ``microbatches`` microbatches, numbered from ``first``."""
    return pack(stage, np.arange(first, first + microbatches))


class Queue:
    """Builds one device's queue; see the module's docstring."""

    def __init__(self, **streams: Packed) -> None:
        self._streams = streams
        self._taken = dict.fromkeys(streams, 0)
        self._parts: list[Packed] = []
        self._weights = False

    def left(self, name: str) -> int:
        """Return the number of entries of a stream that are not in the queue yet."""
        return len(self._streams[name]) - self._taken[name]

    def repeat(self, times: int, *pattern: Step | Pair) -> None:
        """Append the pattern ``times`` times; nothing if ``times`` is zero or less.

        Raises:
            ValueError: a stream has too few entries left (a bug in the generator).
        """
        if times <= 0:
            return
        draws, counts = _plan(pattern)
        block = np.empty((times, len(draws)), np.int64)
        for column, (code, name, place) in enumerate(draws):
            if not name:
                block[:, column] = code
                self._weights = True
                continue
            first, need = self._taken[name] + place, times * counts[name]
            if place == 0 and need > self.left(name):
                raise ValueError(
                    f"stream {name!r} has {self.left(name)} entries left, {need} are needed"
                )
            np.bitwise_or(
                self._streams[name][first : first - place + need : counts[name]],
                code,
                out=block[:, column],
            )
        for name, count in counts.items():
            self._taken[name] += times * count
        self._parts.append(block.ravel())

    def take_turns(self, warm_up: int, *pattern: Step | Pair) -> Queue:
        """Append ``warm_up`` forwards, the pattern (by default F B) until no forwards are left,
        then the remaining backwards.
        """
        self.repeat(min(warm_up, self.left("forward")), F)
        self.repeat(self.left("forward"), *(pattern or (F, B)))
        self.repeat(self.left("backward"), B)
        return self

    def hold_weights(self, warm_up: int, hold: int, *turn: Step) -> Queue:
        """Append ``warm_up`` forwards, then turns (by default F I), with each W delayed by
        ``hold`` microbatches after its I.
        """
        turn = turn or (F, I)
        warm_up, hold = (min(count, self.left("forward")) for count in (warm_up, hold))
        steady = self.left("forward") - warm_up
        self.repeat(warm_up, F)
        self.repeat(min(hold, steady), *turn)
        self.repeat(
            steady - hold, *(step for each in turn for step in ((I, W) if each is I else (each,)))
        )
        self.repeat(hold - steady, I)
        self.repeat(self.left("backward"), I, W)
        self.repeat(hold, W)
        return self

    def build(self, microbatches: int | None = None) -> Packed:
        """Return the queue as packed ops in execution order.

        Args:
            microbatches: ops of microbatches from this number on are left out; None keeps all.

        Raises:
            ValueError: entries are left over, or the numbers of I and W differ (a bug in the
                generator).
        """
        if left := {n: self.left(n) for n in self._streams if self.left(n)}:
            raise ValueError(f"streams left over: {left}")
        ops = np.concatenate(self._parts) if self._parts else np.empty(0, np.int64)
        if self._weights:
            kind = ops.astype(np.uint8) & KIND_MASK
            ops[kind == _W] = (ops[kind == _I] & ~(KIND_MASK | PAIRED)) | _W
        return ops if microbatches is None else ops[ops >> MICROBATCH_SHIFT < microbatches]


@cache
def _plan(pattern: tuple[Step | Pair, ...]) -> tuple[list[tuple[int, str, int]], dict[str, int]]:
    """Return code, stream and place in the stream of each op, and the number of ops per stream."""
    draws, counts = list[tuple[int, str, int]](), dict[str, int]()
    for step in pattern:
        members = (
            (step.first._replace(paired=True), step.second) if isinstance(step, Pair) else (step,)
        )
        for kind, name, paired in members:
            draws.append((int(kind) | (PAIRED if paired else 0), name, counts.get(name, 0)))
            if name:
                counts[name] = counts.get(name, 0) + 1
    return draws, counts
