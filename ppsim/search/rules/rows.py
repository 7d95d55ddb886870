"""The queue of one device, built from ops with steps: compute, collectives, sends and waits."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind, Packed, pack

NONE = -1
Ints = NDArray[np.int64]
# the op that sends the result of F or B
_POSTS = {Kind.F: Kind.POST_F, Kind.B: Kind.POST_B}
_OF_STAGE = (Kind.F, Kind.B, Kind.POST_F, Kind.POST_B, Kind.WAIT_F, Kind.WAIT_B)


@dataclass(frozen=True)
class Rows:
    """Ops of one device, which runs one stage, with the step in which each is issued.

    Within a step, ops are issued in the order in which they were added. A result of F or B is sent
    at the next batch of messages.
    """

    device: int
    devices: int
    microbatches: int
    _kinds: list[Kind] = field(default_factory=list)
    _steps: list[Ints] = field(default_factory=list)
    _microbatches: list[Ints] = field(default_factory=list)

    @property
    def is_last(self) -> bool:
        """Whether the device runs the last stage."""
        return self.device == self.devices - 1

    def add(self, kind: Kind, step: Ints, microbatch: Ints) -> None:
        """Add an op at each step, skipping microbatches that do not exist."""
        exists = (microbatch >= 0) & (microbatch < self.microbatches)
        self._append(kind, step[exists], microbatch[exists])

    def add_sends(self, kind: Kind, step: Ints) -> None:
        """Add a send at each step: of the last result of F or B, if it has not been sent yet."""
        receives = not self.is_last if kind == Kind.F else self.device > 0
        if receives:
            self._append(_POSTS[kind], step, np.full(len(step), NONE))

    def add_input(self, kind: Kind, step: Ints, microbatch: Ints) -> None:
        """Add a wait at each step for the input of F or B of a microbatch."""
        if kind == Kind.F:
            self.add(Kind.WAIT_F if self.device else Kind.WAIT_E, step, microbatch)
        elif not self.is_last:
            self.add(Kind.WAIT_B, step, microbatch)

    def queue(self) -> Packed:
        """Return the packed ops in order of issue, without needless waits."""
        lengths = [len(step) for step in self._steps]
        rows = np.repeat(np.arange(len(lengths)), lengths)
        order = np.lexsort((rows, np.concatenate(self._steps)))
        kind = np.array(self._kinds, np.int64)[rows[order]]
        microbatch = np.concatenate(self._microbatches)[order]
        for run, post in _POSTS.items():
            _place_sends(np.flatnonzero(kind == run), np.flatnonzero(kind == post), microbatch)
        kind, microbatch = kind[microbatch != NONE], microbatch[microbatch != NONE]
        kept = ~_redundant(kind, microbatch)
        stage = np.where(np.isin(kind, _OF_STAGE), self.device, NONE)
        return (pack(stage, microbatch) | kind)[kept]

    def _append(self, kind: Kind, step: Ints, microbatch: Ints) -> None:
        self._kinds.append(kind)
        self._steps.append(step)
        self._microbatches.append(microbatch)


def _place_sends(runs: Ints, sends: Ints, microbatch: Ints) -> None:
    """Set the microbatch of each send: that of the op before it, unless it has been sent."""
    place = np.searchsorted(sends, runs)
    sent = place < len(sends)
    microbatch[sends[place[sent]]] = microbatch[runs[sent]]


def _redundant(kind: Ints, microbatch: Ints) -> NDArray[np.bool_]:
    """Return which sends directly follow, and which waits directly precede, the op they belong to.

    Without these the op itself sends its result at its end, and waits for its input.
    """
    needless = np.zeros(len(kind), np.bool_)
    same = microbatch[1:] == microbatch[:-1]
    for run, wait in ((Kind.F, Kind.WAIT_F), (Kind.F, Kind.WAIT_E), (Kind.B, Kind.WAIT_B)):
        needless[:-1] |= same & (kind[:-1] == wait) & (kind[1:] == run)
    for run, post in _POSTS.items():
        needless[1:] |= same & (kind[:-1] == run) & (kind[1:] == post)
    return needless
