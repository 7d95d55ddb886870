"""Convert between formats; reading the result back finds losses of content."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.atomic_file import open_atomically
from ppsim.core.costs import Costs, costs_for
from ppsim.core.draft import Draft
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import parse, readable
from ppsim.show.drawing.look import PLAIN, Look
from ppsim.show.files.document import Document, abilities_of, formats

ROUNDING = 1e-9
COMMS = "the sends, receives and FSDP ops"
MESSAGES = "the messages"


def convert(
    draft: Draft,  # without faults
    target: str,  # the file, ``-`` for standard output
    suffix: str,  # the file's format
    *,
    title: str,  # the heading of pictures
    costs: Costs | None = None,  # of a draft without times; t_F = t_I = t_W = 1 by default
    lossy: bool = False,  # whether to write files that lose content
    inputs: Mapping[str, Any] | None = None,  # command and settings, embedded if the format can
    style: str = "screen",  # as in :class:`ppsim.show.files.document.Document`
    width: float = 6.75,  # likewise
    look: Look = PLAIN,  # likewise
    verdict: str = "",  # likewise
) -> None:
    """Write a draft in another format.

    Raises:
        InputError: the format cannot carry the draft, and ``lossy`` is not set.
    """
    timeline = _timeline(draft, suffix, costs)
    document = Document(
        (timeline,), (title,), dict(inputs or {}), style, width, look=look, verdict=verdict
    )
    out = io.BytesIO()
    formats()[suffix].write(document, out, suffix)
    if not lossy and (lost := list(_lost_content(draft, out.getvalue(), suffix))):
        raise InputError(
            f"{suffix[1:]} cannot carry {' nor '.join(lost)} of {draft.source}",
            "--lossy leaves it out",
        )
    with open_atomically(target) as file:
        file.write(out.getvalue())


def _timeline(draft: Draft, suffix: str, costs: Costs | None) -> Timeline:
    """Return the draft's times, or simulated ones; zeros for a format without times."""
    if not abilities_of(suffix).times:
        zeros = np.zeros(len(draft))
        return Timeline(
            draft.whole_schedule(), zeros, zeros, np.full(len(draft), -1, np.int32), draft.unit
        )
    schedule = draft.schedule()
    return draft.timeline() or simulate(schedule, costs or costs_for(schedule))


def _lost_content(draft: Draft, written: bytes, suffix: str) -> Iterator[str]:
    """Yield the names of the contents that the written file lacks.

    Of a picture only sends, receives and messages can be missing.
    """
    if suffix in readable():
        yield from find_losses(draft, parse(written.decode(), f"result{suffix}"))
        return
    if not (draft.timed.all() or abilities_of(suffix).lowered):
        yield COMMS
    if draft.messages is not None:
        yield MESSAGES


def find_losses(meant: Draft, back: Draft) -> Iterator[str]:
    """Yield the losses of a written file, comparing it with the draft field by field."""
    whole = len(back) == len(meant)
    if not whole:
        yield COMMS
    elif any(
        not np.array_equal(getattr(back, name), getattr(meant, name))
        for name in ("offsets", "kind", "stage", "microbatch", "pair")
    ):
        yield "the order of ops"
    if back.n_slices != meant.n_slices:
        yield "the slices of sequences"
    if any(
        getattr(back, name) != getattr(meant, name)
        for name in ("n_rounds", "feeds_back", "flushes")
    ):
        yield "the steps that it goes round"
    if len(meant.idle) and not np.array_equal(back.idle, meant.idle):
        yield "the empty cells"
    if meant.messages is not None and not _close(back.messages, np.sort(meant.messages, axis=0)):
        yield MESSAGES
    if meant.start is None or meant.end is None:
        return
    if back.start is None or back.end is None:
        yield "the times"
        return
    if whole and not (_close(back.start, meant.start) and _close(back.end, meant.end)):
        yield "the times to the last digit"
    if back.unit != meant.unit:
        yield f"the unit '{meant.unit}'"
    if not _close(np.array([_finish(back)]), np.array([_finish(meant)])):
        yield "the end of the iteration"


def _finish(draft: Draft) -> float:
    ends = np.empty(0) if draft.end is None else draft.end
    return max(draft.finish or 0.0, float(ends.max(initial=0.0)))


def _close(back: NDArray[np.float64] | None, meant: NDArray[np.float64]) -> bool:
    if back is None or back.shape != meant.shape:
        return False
    slack = ROUNDING * float(np.abs(meant).max(initial=0.0))
    return bool(
        np.allclose(np.sort(back, axis=0) if back.ndim > 1 else back, meant, rtol=0, atol=slack)
    )
