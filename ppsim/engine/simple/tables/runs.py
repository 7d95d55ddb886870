"""Columns of a run, and of a round if its schedule goes round."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ppsim.base.numbers import format_number, format_share
from ppsim.engine.simple.columns import (
    ATTAINED,
    ON_PAGES,
    PLACES,
    Column,
    Shape,
    is_share,
    peak_share,
)

if TYPE_CHECKING:
    from ppsim.engine.simple.metrics import Metrics


def _ideal(metrics: Metrics, _: Shape) -> str:
    return f"ideal {format_number(metrics.ideal)}, the work of the busiest device"


def _peaks(metrics: Metrics, shape: Shape, share: str = "") -> str:
    """Return a text with the device of the peak, and the peaks of all devices."""
    peaks = metrics.peak_activations
    each = (
        " ".join(str(p) for p in peaks) if len(peaks) <= 16 else f"{peaks.min()} to {peaks.max()}"
    )
    unit = "stage-microbatches" if shape.slices == 1 else "slices of stage-microbatches"
    return f"{unit}{share}, on device {int(peaks.argmax())} ({each})"


def _peaks_in_both_units(metrics: Metrics, shape: Shape) -> str:
    """Return the text of :func:`_peaks`, also in 1/P shares of the model if a stage is less."""
    if is_share(shape):
        return _peaks(metrics, shape)
    return _peaks(metrics, shape, f", {format_number(peak_share(metrics, shape))} of a 1/P share")


def _bound(metrics: Metrics, _: Shape) -> str:
    """Return a text on the meaning of the bound, and the share of the makespan above it."""
    proved = "no order of these ops in this memory takes less"
    return (
        f"{proved}, {format_share(metrics.gap)} below"
        if metrics.gap > ATTAINED
        else f"{proved}: attained"
    )


def _round_number(name: str) -> Callable[[Metrics, Shape], float]:
    """Return a function that returns a number of the round, NaN without one."""
    return lambda metrics, _: getattr(metrics.round, name) if metrics.round else float("nan")


def _period(metrics: Metrics, _: Shape) -> str:
    """Return a text with the reason for the period, and its bound if that is lower."""
    found = metrics.round
    assert found is not None
    above = found.period - found.bound
    text = f"a round in steady state: {found.reason}"
    if above <= ATTAINED * found.period:
        return text
    return f"{text}; no order takes less than {format_number(found.bound)}"


def _rate(metrics: Metrics, _: Shape) -> str:
    """Return the unit of the rate: microbatches or tokens per unit of time."""
    return f"{metrics.round.counts if metrics.round else ''} per unit of time"


COLUMNS = (
    # Of a round in steady state, for schedules that repeat.
    Column(
        "period",
        "period",
        "period\n{unit}",
        "time from one round to the next in steady state",
        "time",
        _round_number("period"),
        note=_period,
        of_round=True,
        rank=10,
    ),
    Column(
        "period_per_mb",
        "period_per_mb",
        "period\nper mb",
        "period / microbatches of a round",
        "time",
        lambda metrics, shape: _round_number("period")(metrics, shape) / shape.microbatches,
        places=frozenset({"sweep"}),
        of_round=True,
        rank=20,
    ),
    Column(
        "period_bound",
        "bound of the period",
        "period\nbound",
        "a period that no order of the same ops beats",
        "time",
        _round_number("bound"),
        places=ON_PAGES | {"run"},
        of_round=True,
        rank=30,
    ),
    Column(
        "rate",
        "rate",
        "rate\nper {unit}",
        "microbatches or tokens per unit of time in steady state",
        "count",
        _round_number("rate"),
        note=_rate,
        places=ON_PAGES | {"summary", "run", "compare"},
        of_round=True,
        rank=40,
    ),
    Column(
        "round_bubble",
        "bubble of a round",
        "round\nbubble",
        "idle share of a round, without fill and drain",
        "share",
        _round_number("bubble"),
        places=PLACES - {"line"},
        of_round=True,
        rank=50,
    ),
    Column(
        "fill",
        "fill",
        "fill\n{unit}",
        "first start to the first end on the last stage",
        "time",
        _round_number("fill"),
        places=ON_PAGES | {"summary", "run"},
        of_round=True,
        rank=60,
    ),
    Column(
        "drain",
        "drain",
        "drain\n{unit}",
        "last start of a pass through the pipeline to the end",
        "time",
        _round_number("drain"),
        places=ON_PAGES | {"summary", "run"},
        of_round=True,
        rank=70,
    ),
    # Of a run from its first op to its last.
    Column(
        "makespan_per_mb",
        "makespan_per_mb",
        "makespan\nper mb",
        "makespan / microbatches",
        "time",
        lambda metrics, shape: metrics.makespan / (shape.microbatches * shape.rounds),
        places=frozenset({"sweep"}),
        rank=80,
    ),
    Column(
        "makespan",
        "makespan",
        "makespan\n{unit}",
        "end of the last op",
        "time",
        note=_ideal,
        rank=90,
    ),
    Column(
        "ideal",
        "ideal",
        "ideal\n{unit}",
        "the work of the busiest device",
        "time",
        places=ON_PAGES,
        rank=100,
    ),
    Column(
        "bound",
        "bound",
        "bound\n{unit}",
        "a time that no order of the same ops in the same memory beats",
        "time",
        note=_bound,
        places=ON_PAGES | {"summary", "run", "cards"},
        rank=110,
    ),
    Column(
        "gap",
        "gap to bound",
        "gap to\nbound",
        "share of the makespan above the bound, which no order of the same ops in the same memory "
        "beats",
        "share",
        places=frozenset({"compare", "sweep", "rows"}),
        rank=120,
    ),
    Column(
        "bubble_rate",
        "bubble_rate",
        "bubble_\nrate",
        "idle share of the iteration",
        "share",
        rank=130,
    ),
    Column(
        "bubble_over_ideal",
        "bubble_over_ideal",
        "bubble_\nover_ideal",
        "(makespan - ideal) / ideal",
        "share",
        places=PLACES - {"cards"},
        rank=140,
    ),
    Column(
        "bubble_rate_span",
        "bubble_rate_span",
        "bubble_\nrate_span",
        "(span - ideal) / span, span = longest first start to last end",
        "share",
        places=PLACES - {"cards"},
        rank=150,
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
        rank=160,
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
        rank=170,
    ),
    Column(
        "messages",
        "P2P messages",
        "P2P\nsends",
        "activations and gradients between devices",
        "count",
        places=ON_PAGES | {"summary", "compare", "cards"},
        rank=180,
    ),
)
