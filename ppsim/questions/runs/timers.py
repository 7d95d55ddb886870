"""Totals of Megatron-LM's timers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ppsim.ask.answer import Answer
from ppsim.ask.blocks import Block, Line, Table
from ppsim.ask.given import TypedOptions
from ppsim.ask.options import Request
from ppsim.ask.words import count_text
from ppsim.base.numbers import format_number
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.real.traces.timers import Timer

MOST_RANKS = 8  # columns of the table


@dataclass(frozen=True)
class Timers(Answer[Request]):
    """The totals of one log.

    Attributes:
        source: the path of the log.
        timers: the timers in the order of the log.
    """

    source: str
    timers: Sequence[Timer]

    def json_object(self) -> dict[str, Any]:
        """Return the object of schema ``ppsim.read/1`` for timers: times in ms, null if unknown."""
        rows = [
            {
                "name": timer.name,
                "reports": timer.reports,
                "least": _time_or_none(timer.least_ms),
                "most": _time_or_none(timer.most_ms),
                "ranks": [_time_or_none(time) for time in timer.ranks.tolist()],
            }
            for timer in self.timers
        ]
        return {
            "schema": "ppsim.read/1",
            "source": self.source,
            "format": "timers",
            "unit": "ms",
            "timers": rows,
        }

    @property
    def verdict(self) -> str:
        """The number of timers, and of the ranks that they are of."""
        ranks = max(len(timer.ranks) for timer in self.timers)
        shown = "the least and greatest of all ranks"
        if ranks:
            shown = f"of {count_text(ranks, 'rank')}"
        return (
            f"{self.source}: totals of {count_text(len(self.timers), 'timer')} of Megatron-LM in "
            f"ms, {shown}"
        )

    def blocks(self) -> Iterator[Block]:
        """A table with a row for each timer."""
        yield Line("medians over all reports but the first; timers do not show single ops")
        yield ""
        ranks = max(len(timer.ranks) for timer in self.timers)
        columns = range(ranks if ranks <= MOST_RANKS else 0)
        headings = [
            "timer",
            "least",
            "most",
            "slowest",
            "reports",
            *(f"rank {rank}" for rank in columns),
        ]
        rows = []
        for timer in self.timers:
            times = timer.ranks.tolist()
            slowest = f"rank {times.index(timer.most_ms)}" if times else ""
            each = [_cell(times[rank]) if rank < len(times) else "" for rank in columns]
            rows.append(
                [
                    timer.name,
                    _cell(timer.least_ms),
                    _cell(timer.most_ms),
                    slowest,
                    str(timer.reports),
                    *each,
                ]
            )
        yield Table(headings, rows, spare=["reports"])


def refuse_options(given: TypedOptions, names: tuple[str, ...]) -> None:
    """Raise InputError if an option of real runs is given for a log of timers."""
    if typed := given.spellings(names):
        raise InputError(
            f"{', '.join(typed)}: a log of timers has totals, not a run", "leave it out"
        )


def _time_or_none(time: float) -> float | None:
    return None if math.isnan(time) else time


def _cell(time: float) -> str:
    return "" if math.isnan(time) else format_number(time)
