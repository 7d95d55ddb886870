"""An encoder in the bubbles of a pipeline: ``--encoder``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need, never
from ppsim.ask.options import option
from ppsim.prices.part import Asked, Part

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.schedules import Pricing


@dataclass(frozen=True)
class EncoderFile(Part):
    """An encoder: its ops, their times and their memory."""

    place: ClassVar[int] = 130
    called_by: ClassVar[tuple[str, ...]] = ("encoder",)
    decides_ops: ClassVar[tuple[str, ...]] = ("encoder",)
    adds_ops: ClassVar[tuple[str, ...]] = ("encoder",)
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            ("encoder",),
            never,
            "{options} fills the bubbles of one order, and a search compares many orders",
            "ppsim run SCHEDULE --encoder FILE",
            ("optimize", "partition"),
        ),
    )

    encoder: str | None = option(
        "--encoder",
        type=click.Path(),
        metavar="FILE",
        help="Put the forwards and backwards of an encoder into the bubbles of the pipeline (TOML: "
        "their times).",
    )

    def add_ops(self, schedule: Schedule, price: Pricing) -> Schedule:
        """Add the ops of the encoder where bubbles are."""
        from ppsim.search.rules.encoder import add_encoder, read_encoder

        return add_encoder(schedule, price(schedule), read_encoder(self.encoder or ""))

    def orders_by_costs(self) -> bool:
        """Return True: places of the encoder's ops depend on times."""
        return True

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the times of the encoder's ops."""
        from ppsim.search.rules.encoder import encoder_times, read_encoder

        times = encoder_times(schedule, read_encoder(self.encoder or ""))
        return replace(costs, others={**costs.others, **times})

    def keep(self, held: MemoryModel, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the memory of stages, in bytes, with the encoder's."""
        from ppsim.engine.memory.usage import BYTES

        if held.unit != BYTES:
            return held
        from ppsim.search.rules.encoder import encoder_memory, read_encoder

        return encoder_memory(held, schedule, read_encoder(self.encoder or ""))
