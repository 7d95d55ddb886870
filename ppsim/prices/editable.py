"""Data of pages for editing a schedule: its costs, and lower bounds on the times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ppsim.ask.given import TypedOptions
from ppsim.ask.write import command_line

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.show.files.document import Document


def make_editable(
    document: Document, costs: Sequence[Costs], given: TypedOptions | None = None
) -> Document:
    """Return a document whose page can edit its timelines, each timed with its costs.

    ``given`` are the options that state the costs; None if no options do.
    """
    from ppsim.schedules import list_alike
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
    known = tuple(list_alike(timeline.schedule) for timeline in document.timelines)
    command = command_of_file(given) if given else ""
    return replace(
        document,
        costs=tuple(prices),
        edit_bounds=tuple(bounds),
        edit_command=command,
        known=known,
    )


def check_blank(schedule: Schedule) -> None:
    """Raise InputError for a schedule that a page cannot build from empty rows (--blank)."""
    from ppsim.show.files.editing import why_not_blank

    if reason := why_not_blank(schedule):
        from ppsim.errors import InputError

        what = f"--blank needs a schedule of F, B, I and W; {schedule.name} is not one: {reason}"
        raise InputError(what, "1f1b, or leave it out")


def command_of_file(given: TypedOptions) -> str:
    """Return the command that times a schedule's file, called FILE, with the costs of a request.

    Options that add ops are left out, because the file has these ops.
    """
    from ppsim.ask.options import list_options
    from ppsim.prices.options import ADDING_OPS, CostOptions

    costs = {each.name for each in list_options(CostOptions)} - {*ADDING_OPS}
    typed = [option for option in given.typed if option.name in costs]
    command = command_line(TypedOptions("run", given.values, typed))
    return command.replace("ppsim run", "ppsim run FILE", 1)
