"""The devices that times are for: the speed of each, and its share of the model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import click

from ppsim.ask.groups import Value
from ppsim.ask.options import common, option
from ppsim.errors import InputError
from ppsim.prices.part import Asked, Part, refuse_factors

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule


@dataclass(frozen=True)
class Devices(Part):
    """Speeds of devices, and the share of the model that times are for."""

    place: ClassVar[int] = 80
    called_by: ClassVar[tuple[str, ...]] = ("speed",)

    speed: Value | None = option(
        "--speed", help="Speed of each device: op times are divided by it: 1,1,0.9,1."
    )
    per: str | None = common(
        "--cost-per",
        type=click.Choice(["device", "stage"]),
        help="Times are for a device's 1/P share of the model (device, the default) or for each "
        "stage as given.",
    )

    def change(self, schedule: Schedule, costs: Costs, asked: Asked) -> Costs:
        """Return the costs with the speed of each device."""
        import numpy as np

        speed = np.atleast_1d(np.asarray(self.speed, np.float64))
        if len(speed) not in (1, schedule.n_devices):
            raise InputError(
                f"{len(speed)} speeds for {schedule.n_devices} devices",
                "one, or one for each device",
            )
        if not (np.isfinite(speed) & (speed > 0)).all():
            raise InputError(
                "a speed must be more than zero and finite", "1 is the speed that the times are for"
            )
        refuse_factors(costs)
        return replace(costs, speed=np.broadcast_to(speed, schedule.n_devices).copy())
