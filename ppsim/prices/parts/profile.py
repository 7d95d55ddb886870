"""Costs that were measured: ``--profile``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.given import Need
from ppsim.ask.options import common
from ppsim.prices.part import COSTS, LAYER_TIMES, Asked, Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ppsim.core.costs import Costs
    from ppsim.core.law import Law
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel


@dataclass(frozen=True)
class MeasuredProfile(Source):
    """A profile that ``ppsim calibrate`` has measured; a layout gives the layers of each stage."""

    place: ClassVar[int] = 110
    called_by: ClassVar[tuple[str, ...]] = ("profile",)
    reads: ClassVar[tuple[str, ...]] = ("layout",)
    gives_whole_costs: ClassVar[bool] = True
    gives_messages: ClassVar[bool] = True
    holds_bytes: ClassVar[bool] = True
    is_of_whole_sequences: ClassVar[bool] = True
    prices_layouts: ClassVar[bool] = True
    needs: ClassVar[tuple[Need, ...]] = (
        Need(
            (*COSTS, *LAYER_TIMES),
            lambda g: not g["profile"],
            "--profile brings all costs, so {options} cannot be given too",
        ),
    )

    profile: str | None = common(
        "--profile",
        type=click.Path(),
        help="Measured costs, in ms, instead of given ones (ppsim calibrate).",
    )

    def price(self, schedule: Schedule, asked: Asked) -> Costs:
        """Return the profile's costs, in ms."""
        from ppsim.inputs.profile.costs import costs_from
        from ppsim.inputs.profile.profile import read

        layout = asked.layout_of(schedule)
        return costs_from(
            read(self.profile or ""), schedule, content=layout.content if layout else None
        )

    def layers(self, schedule: Schedule) -> NDArray[np.float64] | None:
        """Return the number of layers of each stage where the profile was measured on layers, shape
        (stages,).
        """
        import numpy as np

        from ppsim.inputs.profile.profile import read

        measured, stages = read(self.profile or "").model, schedule.n_stages
        return np.full(stages, measured.layers * schedule.n_devices / stages) if measured else None

    def attention_share(self) -> float | None:
        """Return attention's share of a forward for the model that was measured.

        It is 2sh of 24h^2 + 2sh flop a token and layer.
        """
        from ppsim.inputs.profile.profile import read

        model = read(self.profile or "").model
        return model.sequence / (model.sequence + 12 * model.hidden) if model else None

    def length_law(self) -> Law | None:
        """Return the law of the model that was measured.

        A layer of hidden size h takes 24 h^2 flop a token, and 2 L h for the attention over L
        tokens.
        """
        from ppsim.core.law import Law
        from ppsim.inputs.profile.profile import read

        model = read(self.profile or "").model
        return Law(pair=1.0 / (12 * model.hidden)) if model else None

    def has_bytes(self) -> bool:
        """Return True if the profile has bytes of activations."""
        from ppsim.inputs.profile.profile import read

        found = read(self.profile or "")
        layers = found.model and any(row.part == "layers" for row in found.activation)
        return bool(found.stage or layers)

    def hold(self, schedule: Schedule, asked: Asked) -> MemoryModel:
        """Return the profile's memory of stages, in bytes."""
        from ppsim.inputs.profile.profile import read
        from ppsim.workload.model.from_profile import profile_memory

        layout = asked.layout_of(schedule)
        return profile_memory(
            read(self.profile or ""), schedule, layout.content if layout else None
        )
