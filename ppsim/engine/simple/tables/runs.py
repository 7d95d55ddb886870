"""Numbers of a run from its first op to its last."""

from __future__ import annotations

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
    """The device of the peak, and the peaks of all."""
    peaks = metrics.peak_activations
    each = (
        " ".join(str(p) for p in peaks) if len(peaks) <= 16 else f"{peaks.min()} to {peaks.max()}"
    )
    unit = "stage-microbatches" if shape.slices == 1 else "slices of stage-microbatches"
    return f"{unit}{share}, on device {int(peaks.argmax())} ({each})"


def _peaks_in_both_units(metrics: Metrics, shape: Shape) -> str:
    """The same, with the peak in 1/P shares of the model where a stage is not a whole one."""
    if is_share(shape):
        return _peaks(metrics, shape)
    return _peaks(metrics, shape, f", {format_number(peak_share(metrics, shape))} of a 1/P share")


def _bound(metrics: Metrics, _: Shape) -> str:
    """What the bound proves, and how far the makespan is from it."""
    proved = "no order of these ops in this memory takes less"
    return (
        f"{proved}, {format_share(metrics.gap)} below"
        if metrics.gap > ATTAINED
        else f"{proved}: attained"
    )


COLUMNS = (
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
