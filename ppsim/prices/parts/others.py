"""Times of ops other than F, B, I, W and R: of embeddings and output layers on all devices, and of
collectives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ppsim.ask.groups import Value
from ppsim.ask.options import option
from ppsim.prices.part import TimesOfKinds


@dataclass(frozen=True)
class Others(TimesOfKinds):
    """Times of ops that parts of the model take on all devices at once."""

    place: ClassVar[int] = 30
    kinds: ClassVar[tuple[str, ...]] = ("te", "ts", "tt", "td", "tl", "tgf", "tgb", "t_collective")
    called_by: ClassVar[tuple[str, ...]] = kinds
    lacks: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(kinds, ""),
        "t_collective": "no collectives",
    }

    te: Value | None = option(
        "--te", help="Time of a device's share of the input embedding, or one per device (0)."
    )
    ts: Value | None = option(
        "--ts", help="Time of a device's share of the output layer, or one per device (0)."
    )
    tt: Value | None = option(
        "--tt", help="Time of the backward of the output layer's share, or one per device (0)."
    )
    td: Value | None = option(
        "--td", help="Time of the backward of the embedding's share, or one per device (0)."
    )
    tl: Value | None = option(
        "--tl", help="Time of the loss on the last device, in schedules that have it as an op (0)."
    )
    tgf: Value | None = option(
        "--tgf",
        help="Time of a part of the model that all devices run before a stage (1f1b-plus), or one "
        "per stage (0).",
    )
    tgb: Value | None = option(
        "--tgb", help="Time of the backward of that part, or one per stage (0)."
    )
    t_collective: float | None = option(
        "--t-collective",
        help="Time of a collective over all devices (0).",
    )
