"""Numbers of a round, where a schedule goes round without end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ppsim.base.numbers import format_number
from ppsim.engine.simple.columns import ATTAINED, ON_PAGES, PLACES, Column, Shape

if TYPE_CHECKING:
    from ppsim.engine.simple.metrics import Metrics


def _of_round(name: str) -> Callable[[Metrics, Shape], float]:
    """A number of the round, not a number where there is none."""
    return lambda metrics, _: getattr(metrics.round, name) if metrics.round else float("nan")


def _period(metrics: Metrics, _: Shape) -> str:
    """What decides the period, and how far it is from its bound."""
    found = metrics.round
    assert found is not None
    above = found.period - found.bound
    if above <= ATTAINED * found.period:
        return f"a round, without end: {found.why}"
    return (
        f"a round, without end: {found.why}; no order takes less than {format_number(found.bound)}"
    )


def _rate(metrics: Metrics, _: Shape) -> str:
    """What the rate counts."""
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
        rank=10,
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
        rank=20,
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
        rank=30,
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
        rank=40,
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
        rank=50,
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
        rank=60,
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
        rank=70,
    ),
)
