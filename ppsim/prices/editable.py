"""What pages need so that their reader can edit a schedule: its costs, and times that no edit can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.show.files.document import Document


def make_editable(document: Document, costs: Sequence[Costs]) -> Document:
    """Return a document whose page can edit its timelines, each timed with its costs."""
    from ppsim.search.bounds.bounds import bound_either, bound_schedule
    from ppsim.show.files.editing import why_not

    document = replace(document, costs=tuple(costs))
    bounds = []
    for number, (timeline, own) in enumerate(zip(document.timelines, document.costs, strict=True)):
        if why_not(document, number):
            bounds.append((float("nan"), float("nan")))
            continue
        same = bound_schedule(timeline.schedule, own).makespan
        bounds.append((same, bound_either(timeline.schedule, own)))
    return replace(document, edit_bounds=tuple(bounds))
