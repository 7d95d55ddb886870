"""Faults of a schedule with times: two ops at once on a device, or ops before their inputs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.inputs.check.faults import Fault, at

# Times that were read from text may differ in their last digits.
SLACK = 1e-9


def overlaps(draft: Draft) -> Iterator[Fault]:
    """Yield a fault for every two ops, or pairs, that one device runs at the same time."""
    start, end, slack = _times(draft)
    # the second op stands for a pair
    whole = np.delete(np.arange(len(draft)), draft.first_of_pairs)
    streams = np.array([kind.info.stream or 0 for kind in Kind])[draft.kind[whole]]
    for device, stream in np.unique(
        np.stack([draft.device[whole], streams], axis=1), axis=0
    ).tolist():
        ops = whole[(draft.device[whole] == device) & (streams == stream)]
        running: list[int] = []
        for op in ops[np.argsort(start[ops], kind="stable")].tolist():
            running = [other for other in running if end[other] > start[op] + slack]
            for other in running:
                if end[op] > start[op] + slack:
                    text = (
                        f"device {device} runs {_op_with_times(draft, op)} while it runs "
                        f"{_op_with_times(draft, other)}"
                    )
                    yield at(
                        draft,
                        op,
                        "overlap",
                        text,
                        "a device runs one op, or one pair, at a time",
                        other,
                    )
            running.append(op)


def early_op_faults(
    draft: Draft, op: NDArray[np.int64], need: NDArray[np.int64]
) -> Iterator[Fault]:
    """Yield a fault for every op that starts before the end of its input."""
    start, end, slack = _times(draft)
    for this, other in zip(op.tolist(), need.tolist(), strict=True):
        if start[this] < end[other] - slack:
            when = "before" if end[this] <= start[other] + slack else "during"
            text = (
                f"device {draft.device[this]} runs {_op_with_times(draft, this)} {when} "
                f"{_op_with_times(draft, other)}, which it needs"
            )
            yield at(
                draft,
                this,
                "early",
                text,
                f"start {draft.label(this)} at {end[other]:g} or later",
                other,
            )


def _times(draft: Draft) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Return starts, ends, and the difference up to which two times count as equal."""
    start, end = np.asarray(draft.start), np.asarray(draft.end)
    return start, end, SLACK * float(np.abs(end).max(initial=0.0))


def _op_with_times(draft: Draft, op: int) -> str:
    start, end, _ = _times(draft)
    return f"{draft.label(op)} [{start[op]:g}, {end[op]:g}]"
