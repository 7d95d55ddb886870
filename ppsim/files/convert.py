"""Conversion between formats: what a format cannot carry is found by reading the result back."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ppsim.base.atomic_file import opened
from ppsim.core.costs import Costs, costs_for
from ppsim.core.draft import Draft
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError
from ppsim.files.document import Document, abilities_of, formats
from ppsim.files.read import parse, readable
from ppsim.simulation.longest_path import simulate

ROUNDING = 1e-9


def convert(
    draft: Draft,
    target: str,
    suffix: str,
    *,
    title: str,
    costs: Costs | None = None,
    lossy: bool = False,
    inputs: Mapping[str, Any] | None = None,
    style: str = "screen",
    width: float = 6.75,
) -> None:
    """Write a draft in another format.

    Args:
        draft: what was read, without faults.
        target: the file, ``-`` for standard output.
        suffix: its format.
        title: what pictures are headed with.
        costs: what times a draft that states none; t_F = t_I = t_W = 1 by default.
        lossy: write even what the format cannot carry whole.
        inputs: what made the file, embedded where the format can.
        style: as in :class:`ppsim.files.document.Document`.
        width: likewise.

    Raises:
        InputError: the format cannot carry the draft, and ``lossy`` is not set.
    """
    document = Document((_timeline(draft, suffix, costs),), (title,), dict(inputs or {}), style, width)
    out = io.BytesIO()
    formats()[suffix].write(document, out, suffix)
    if not lossy and (lost := list(_lost(draft, out.getvalue(), suffix))):
        raise InputError(f"{suffix[1:]} cannot carry {' nor '.join(lost)} of {draft.source}", "--lossy leaves it out")
    with opened(target) as file:
        file.write(out.getvalue())


def _timeline(draft: Draft, suffix: str, costs: Costs | None) -> Timeline:
    """The times stated, or simulated ones; for a format that has none, all ops as stated."""
    if not abilities_of(suffix).times:
        zeros = np.zeros(len(draft))
        return Timeline(draft.stated(), zeros, zeros, np.full(len(draft), -1, np.int32), draft.unit)
    schedule = draft.schedule()
    return draft.timeline() or simulate(schedule, costs or costs_for(schedule))


def _lost(draft: Draft, written: bytes, suffix: str) -> Iterator[str]:
    """What is not there any more when the file is read back; pictures keep all but comm ops."""
    if suffix not in readable():
        if not draft.computes.all() and not abilities_of(suffix).lowered:
            yield "the sends, receives and FSDP ops"
        return
    back = parse(written.decode(), f"result{suffix}")
    whole = len(back) == len(draft)
    if not whole:
        yield "the sends, receives and FSDP ops"
    elif any(
        not np.array_equal(getattr(back, name), getattr(draft, name))
        for name in ("offsets", "kind", "stage", "microbatch", "pair")
    ):
        yield "the order of ops"
    if draft.start is not None and draft.end is not None:
        slack = ROUNDING * float(np.abs(draft.end).max(initial=0.0))
        if back.start is None or back.end is None:
            yield "the times"
        elif whole and not (
            np.allclose(back.start, draft.start, rtol=0, atol=slack)
            and np.allclose(back.end, draft.end, rtol=0, atol=slack)
        ):
            yield "the times to the last digit"
