"""Columns: numbers of a run in tables, from the files of ``tables/``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ppsim.base.numbers import format_number, format_share
from ppsim.base.scan import lacking, load_files

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.engine.simple.metrics import Metrics

# Places that show numbers: the result line, the summary and the JSON of a run, the table of
# compare, the metrics of sweep, the JSON rows of both, and the cards and the table of a page.
PLACES = frozenset({"line", "summary", "run", "compare", "sweep", "rows", "cards", "page"})
ON_PAGES = frozenset({"rows", "page"})

ATTAINED = 1e-9  # a gap of at most this share is due to rounding


class Shape(NamedTuple):
    """The size of a schedule; microbatches are those of one round."""

    devices: int
    stages: int
    microbatches: int
    slices: int = 1
    rounds: int = 1


def shape_of(schedule: Schedule) -> Shape:
    """Return the size of a schedule."""
    sizes = schedule.n_devices, schedule.n_stages, schedule.whole_microbatches
    return Shape(*sizes, schedule.n_slices, schedule.n_rounds)


def work_of(schedule: Schedule) -> str:
    """Return the size of the work as text: ``8 microbatches x 4 slices``."""
    whole, slices, rounds = schedule.whole_microbatches, schedule.n_slices, schedule.n_rounds
    noun = "batch" if schedule.feeds_back else "microbatch"
    text = f"{whole} {noun}{'es' if whole != 1 else ''}" + (
        f" x {slices} slices" if slices > 1 else ""
    )
    in_flight = " in flight" if schedule.feeds_back else ""
    return text + in_flight + (f", {rounds} steps" if rounds > 1 else "")


def size_object(schedule: Schedule) -> dict[str, Any]:
    """Return the name and the size of a schedule for JSON."""
    devices, stages, microbatches, *_ = shape_of(schedule)
    size = {
        "devices": devices,
        "stages": stages,
        "chunks": schedule.n_chunks,
        "microbatches": microbatches,
    }
    return {"schedule": schedule.name, **size}


@dataclass(frozen=True)
class Column:
    """One number of a run."""

    key: str  # its name in JSON
    heading: str  # its name elsewhere
    narrow: str  # the heading on two lines, for tables; ``{unit}`` becomes the unit of times
    meaning: str  # its definition in a few words
    form: str  # ``time``, ``share`` or ``count``
    # returns its value, if it is not the metric of its key
    number_of: Callable[[Metrics, Shape], float] | None = None
    # returns a remark that replaces the meaning
    note: Callable[[Metrics, Shape], str] | None = None
    # returns a remark for summaries, which have fewer columns than other places
    summary_note: Callable[[Metrics, Shape], str] | None = None
    places: frozenset[str] = PLACES  # the places that show it, of :data:`PLACES`
    metric: str = ""  # its name for ``sweep --metric``, if it is not the key
    of_round: bool = False  # whether only schedules that go round have it
    rank: int = 1000  # columns are sorted by rank

    @property
    def name(self) -> str:
        """The column's name for ``sweep --metric``."""
        return self.metric or self.key

    def value(self, metrics: Metrics, shape: Shape) -> float:
        """Return the number of a run."""
        return self.number_of(metrics, shape) if self.number_of else getattr(metrics, self.key)

    def text(self, value: float, unit: str = "") -> str:
        """Return a value as text: a time with its unit, a share in percent."""
        if self.form == "share":
            return format_share(value)
        return (
            f"{format_number(value)} {unit}".rstrip()
            if self.form == "time"
            else format_number(value)
        )

    def note_on(self, metrics: Metrics, shape: Shape) -> str:
        """Return the sentence that follows the value."""
        return self.note(metrics, shape) if self.note else self.meaning

    def summary_note_on(self, metrics: Metrics, shape: Shape) -> str:
        """Return the sentence that follows the value in a summary."""
        return (
            self.summary_note(metrics, shape) if self.summary_note else self.note_on(metrics, shape)
        )

    def applies(self, metrics: Metrics) -> bool:
        """Return True if a run has the number; only schedules that go round have all."""
        return not self.of_round or metrics.round is not None

    def json(self, metrics: Metrics, shape: Shape) -> Any:
        """Return the value for JSON, a list by device if it is measured per device."""
        return (
            getattr(metrics, self.key) if hasattr(metrics, self.key) else self.value(metrics, shape)
        )


def peak_share(metrics: Metrics, shape: Shape) -> float:
    """Return peak activations in microbatches of a device's 1/P share of the model.

    They compare between schedules with different numbers of chunks.
    """
    return (
        float(metrics.peak_activations.max(initial=0))
        * shape.devices
        / (shape.stages * shape.slices)
    )


def is_share(shape: Shape) -> bool:
    """Return True if one stage of one slice is a device's 1/P share of the model."""
    return shape.stages * shape.slices == shape.devices


@cache
def all_columns() -> tuple[Column, ...]:
    """Return the columns of all files of ``tables/``, by rank."""
    from ppsim.engine.simple import tables

    found = list[Column]()
    for module in load_files(tables, "COLUMNS"):
        columns = module.COLUMNS
        if not isinstance(columns, tuple) or not all(isinstance(each, Column) for each in columns):
            raise lacking(module, "COLUMNS that are a tuple of Column", tables)
        found += columns
    return tuple(sorted(found, key=lambda column: column.rank))


def columns_of(place: str) -> tuple[Column, ...]:
    """Return the columns that a place shows, by rank."""
    return tuple(column for column in all_columns() if place in column.places)
