"""Ops made of segments on a compute and a communication stream: ``--segments``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need
from ppsim.ask.options import option
from ppsim.prices.part import COSTS, LAYER_TIMES, Asked, Source

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.simple.segments import OpsInside


@dataclass(frozen=True)
class SegmentFile(Source):
    """Segments of ops, from which the times of ops and of pairs follow."""

    place: ClassVar[int] = 120
    called_by: ClassVar[tuple[str, ...]] = ("segments",)
    reads: ClassVar[tuple[str, ...]] = ("comm", "per")
    gives_whole_costs: ClassVar[bool] = True
    is_of_whole_sequences: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            (
                *(name for name in COSTS if name not in ("comm", "per")),
                *LAYER_TIMES,
                "profile",
                "layout",
            ),
            lambda g: not g["segments"],
            "--segments brings the times of all ops, so {options} cannot be given too",
        ),
    )

    segments: str | None = option(
        "--segments",
        type=click.Path(),
        metavar="FILE",
        help="Work of each op on the compute and the communication stream (TOML); times of ops and "
        "of pairs follow from it.",
    )

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the times in which each op's segments end."""
        from ppsim.engine.simple.segments import read, segment_costs

        return segment_costs(
            schedule, read(self.segments or ""), asked["comm"] or 0.0, asked["per"] or "device"
        )

    def look_inside(self, schedule: Schedule, asked: Asked) -> OpsInside:
        """Return the segments that run in each op."""
        from ppsim.engine.simple.segments import look_inside_ops, read

        return look_inside_ops(schedule, read(self.segments or ""), asked["per"] or "device")
