"""What pages need so that their reader can edit a schedule: its costs, and times that no edit can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsim.ask.write import command_of_file

if TYPE_CHECKING:
    from ppsim.ask.given import Given
    from ppsim.core.costs import Costs
    from ppsim.show.files.document import Document


def make_editable(document: Document, costs: Sequence[Costs], given: Given | None = None) -> Document:
    """Return a document whose page can edit its timelines, each timed with its costs.

    ``given`` are the options that state the costs, None where no options do.
    """
    from ppsim.search.bounds.bounds import bound_either, bound_schedule
    from ppsim.show.files.editing import costs_of_times, why_not

    document = replace(document, costs=tuple(costs))
    bounds, prices = [], []
    for number, (timeline, own) in enumerate(zip(document.timelines, document.costs, strict=True)):
        if why_not(document, number):
            bounds.append((float("nan"), float("nan")))
            prices.append(own)
            continue
        own = costs_of_times(timeline, own)
        prices.append(own)
        same = bound_schedule(timeline.schedule, own).makespan
        bounds.append((same, bound_either(timeline.schedule, own)))
    command = command_of_file(given) if given else ""
    return replace(document, costs=tuple(prices), edit_bounds=tuple(bounds), edit_command=command)
