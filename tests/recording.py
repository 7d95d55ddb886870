"""A small training that is recorded, and what is said of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ppsim.record import op

NAME = "replica0.device0.ops.jsonl"


def train(steps: int = 3) -> list[int]:
    """A loop whose result shows that it ran whole."""
    done = []
    for step in range(steps):
        for kind in "FB":
            with op(kind, 0, 0):
                done.append(step)
    return done


WHOLE = [0, 0, 1, 1, 2, 2]


@contextmanager
def warned() -> Iterator[list[str]]:
    """List the warnings of a block."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        yield texts
        texts += [str(each.message) for each in said]


def settled(recording: Any) -> None:
    """Wait until all that was handed over is written, or the writing has failed."""
    while recording.file.writer.waiting and not recording.file.writer.failure:
        time.sleep(0.001)
