"""The table of a run's numbers, which terminal, JSON, pages and README read: a number is added to
all of them here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ppsim.base.numbers import format_number, format_share

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.engine.simple.metrics import Metrics

# Where a number is shown: the result line, the summary and the JSON of a run, the table of compare,
# the metrics of sweep, the JSON rows of both, and the cards and the table of a page.
PLACES = frozenset({"line", "summary", "run", "compare", "sweep", "rows", "cards", "page"})
ON_PAGES = frozenset({"rows", "page"})

ATTAINED = 1e-9  # a gap that only rounding leaves


class Shape(NamedTuple):
    """The size of a schedule: P, S, M of one round and K, the slices of each sequence, and N, its
    rounds.
    """

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
    """Return a text on the size of the work: 8 microbatches x 4 slices."""
    whole, slices, rounds = schedule.whole_microbatches, schedule.n_slices, schedule.n_rounds
    what = "batch" if schedule.feeds_back else "microbatch"
    text = f"{whole} {what}{'es' if whole != 1 else ''}" + (
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
    narrow: str  # the same on two lines, for tables; ``{unit}`` becomes the unit of times
    meaning: str  # its definition in a few words
    form: str  # ``time``, ``share`` or ``count``
    # its value, where that is not the metric of its key
    of: Callable[[Metrics, Shape], float] | None = None
    # a remark instead of the meaning, from the run's other numbers and its unit of
    # times
    note: Callable[[Metrics, Shape], str] | None = None
    # What a summary says, where other places have a column for a part of it.
    summary_note: Callable[[Metrics, Shape], str] | None = None
    places: frozenset[str] = PLACES  # where it is shown, of :data:`PLACES`
    metric: str = ""  # its name for ``sweep --metric``, where that is not the key
    of_round: bool = False  # whether only schedules that go round have it

    @property
    def name(self) -> str:
        """Its name for ``sweep --metric``."""
        return self.metric or self.key

    def value(self, metrics: Metrics, shape: Shape) -> float:
        """Return the number of a run."""
        return self.of(metrics, shape) if self.of else getattr(metrics, self.key)

    def text(self, value: float, unit: str = "") -> str:
        """Write a value: a time with its unit, a share in percent."""
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
        """Return whether a run has the number; only repeating schedules have numbers of a round."""
        return not self.of_round or metrics.round is not None

    def json(self, metrics: Metrics, shape: Shape) -> Any:
        """Return the value in JSON: per device where it is measured per device."""
        return (
            getattr(metrics, self.key) if hasattr(metrics, self.key) else self.value(metrics, shape)
        )


def peak_share(metrics: Metrics, shape: Shape) -> float:
    """Peak activations in units of a device's 1/P share of the model, comparable between numbers of
    chunks.
    """
    return (
        float(metrics.peak_activations.max(initial=0))
        * shape.devices
        / (shape.stages * shape.slices)
    )


def is_share(shape: Shape) -> bool:
    """Return whether one stage of one slice is a device's 1/P share of the model."""
    return shape.stages * shape.slices == shape.devices


def _ideal(metrics: Metrics, _: Shape) -> str:
    return f"ideal {format_number(metrics.ideal)}, the work of the busiest device"


def _peaks(metrics: Metrics, shape: Shape, share: str = "") -> str:
    """Return a text with the device of the peak, and all peaks."""
    peaks = metrics.peak_activations
    each = (
        " ".join(str(p) for p in peaks) if len(peaks) <= 16 else f"{peaks.min()} to {peaks.max()}"
    )
    unit = "stage-microbatches" if shape.slices == 1 else "slices of stage-microbatches"
    return f"{unit}{share}, on device {int(peaks.argmax())} ({each})"


def _peaks_in_both_units(metrics: Metrics, shape: Shape) -> str:
    """Return the same text, with the peak in 1/P shares of the model if a stage is not one
    share.
    """
    if is_share(shape):
        return _peaks(metrics, shape)
    return _peaks(metrics, shape, f", {format_number(peak_share(metrics, shape))} of a 1/P share")


def _bound(metrics: Metrics, _: Shape) -> str:
    """Return a text on the kind of bound, and the makespan's distance from it."""
    proved = "no order of these ops in this memory takes less"
    return (
        f"{proved}, {format_share(metrics.gap)} below"
        if metrics.gap > ATTAINED
        else f"{proved}: attained"
    )


def _of_round(name: str) -> Callable[[Metrics, Shape], float]:
    """Return a function that reads a number of the round, NaN if there is no round."""
    return lambda metrics, _: getattr(metrics.round, name) if metrics.round else float("nan")


def _period(metrics: Metrics, _: Shape) -> str:
    """Return a text on the cause of the period, and its distance from its bound."""
    found = metrics.round
    assert found is not None
    above = found.period - found.bound
    if above <= ATTAINED * found.period:
        return f"a round, without end: {found.why}"
    return (
        f"a round, without end: {found.why}; no order takes less than {format_number(found.bound)}"
    )


def _rate(metrics: Metrics, _: Shape) -> str:
    """Return the unit that the rate counts."""
    return f"{metrics.round.counts if metrics.round else ''} per unit of time"


COLUMNS = (
    Column(
        "period",
        "period",
        "period\n{unit}",
        "time from one round to the next, without end",
        "time",
        _of_round("period"),
        note=_period,
        of_round=True,
    ),
    Column(
        "period_per_mb",
        "period_per_mb",
        "period\nper mb",
        "period / microbatches of a round",
        "time",
        lambda metrics, shape: _of_round("period")(metrics, shape) / shape.microbatches,
        places=frozenset({"sweep"}),
        of_round=True,
    ),
    Column(
        "period_bound",
        "bound of the period",
        "period\nbound",
        "a period that no order of the same ops beats",
        "time",
        _of_round("bound"),
        places=ON_PAGES | {"run"},
        of_round=True,
    ),
    Column(
        "rate",
        "rate",
        "rate\nper {unit}",
        "microbatches or tokens per unit of time, without end",
        "count",
        _of_round("rate"),
        note=_rate,
        places=ON_PAGES | {"summary", "run", "compare"},
        of_round=True,
    ),
    Column(
        "round_bubble",
        "bubble of a round",
        "round\nbubble",
        "idle share of a round, without fill and drain",
        "share",
        _of_round("bubble"),
        places=PLACES - {"line"},
        of_round=True,
    ),
    Column(
        "fill",
        "fill",
        "fill\n{unit}",
        "first start to the first end on the last stage",
        "time",
        _of_round("fill"),
        places=ON_PAGES | {"summary", "run"},
        of_round=True,
    ),
    Column(
        "drain",
        "drain",
        "drain\n{unit}",
        "last start of a pass through the pipeline to the end",
        "time",
        _of_round("drain"),
        places=ON_PAGES | {"summary", "run"},
        of_round=True,
    ),
    Column(
        "makespan_per_mb",
        "makespan_per_mb",
        "makespan\nper mb",
        "makespan / microbatches",
        "time",
        lambda metrics, shape: metrics.makespan / (shape.microbatches * shape.rounds),
        places=frozenset({"sweep"}),
    ),
    Column("makespan", "makespan", "makespan\n{unit}", "end of the last op", "time", note=_ideal),
    Column(
        "ideal", "ideal", "ideal\n{unit}", "the work of the busiest device", "time", places=ON_PAGES
    ),
    Column(
        "bound",
        "bound",
        "bound\n{unit}",
        "a time that no order of the same ops in the same memory beats",
        "time",
        note=_bound,
        places=ON_PAGES | {"summary", "run", "cards"},
    ),
    Column(
        "gap",
        "gap to bound",
        "gap to\nbound",
        "share of the makespan above the bound, which no order of the same ops in the same memory "
        "beats",
        "share",
        places=frozenset({"compare", "sweep", "rows"}),
    ),
    Column("bubble_rate", "bubble_rate", "bubble_\nrate", "idle share of the iteration", "share"),
    Column(
        "bubble_over_ideal",
        "bubble_over_ideal",
        "bubble_\nover_ideal",
        "(makespan - ideal) / ideal",
        "share",
        places=PLACES - {"cards"},
    ),
    Column(
        "bubble_rate_span",
        "bubble_rate_span",
        "bubble_\nrate_span",
        "(span - ideal) / span, span = longest first start to last end",
        "share",
        places=PLACES - {"cards"},
    ),
    Column(
        "peak_activations",
        "peak activations",
        "peak\nactivations",
        "most stage-microbatches a device holds",
        "count",
        lambda metrics, _: float(metrics.peak_activations.max(initial=0)),
        note=_peaks,
        summary_note=_peaks_in_both_units,
        places=ON_PAGES | {"line", "summary", "cards"},
    ),
    Column(
        "peak_activations_share",
        "peak, in 1/P of the model",
        "peak\nact.",
        "peak activations in microbatches of a device's 1/P share of the model",
        "count",
        peak_share,
        places=ON_PAGES | {"compare", "sweep"},
        metric="peak",
    ),
    Column(
        "messages",
        "P2P messages",
        "P2P\nsends",
        "activations and gradients between devices",
        "count",
        places=ON_PAGES | {"summary", "compare", "cards"},
    ),
)


def columns_of(place: str) -> tuple[Column, ...]:
    """Return the columns of a place, in their order."""
    return tuple(column for column in COLUMNS if place in column.places)
