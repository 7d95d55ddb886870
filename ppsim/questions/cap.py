"""A cap on what devices hold: one meaning of ``--cap`` in run, compare, sweep and memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ppsim.base.numbers import format_number
from ppsim.base.units import format_size, parse_size
from ppsim.errors import InputError, PpsimError
from ppsim.questions.build import build_memory
from ppsim.questions.groups import CostOptions
from ppsim.questions.options import common

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.report import MemoryReport

OF_A_STAGE = "of one stage"
OF_A_SHARE = "of a device's 1/P share of the model"


def cap_option(activations: str) -> str | None:
    """Declare the option; a number of it counts ``activations`` of a stage or of a share."""
    found: str | None = common(
        "--cap",
        metavar="SIZE[,SIZE...]",
        help=f"The most a device may hold: a number is activations {activations}, with --layout of one "
        "layer; with a unit, such as 60GiB, bytes of a --profile; a list has one for each device.",
    )
    return found


@dataclass(frozen=True)
class Cap:
    """The most that devices may hold."""

    text: str  # as the user gave it
    amounts: tuple[float, ...]  # one for all devices, or one for each
    in_bytes: bool  # else activations

    def of_devices(self, devices: int) -> tuple[float, ...]:
        """Return the cap of each device (InputError: the list has another number)."""
        if len(self.amounts) not in (1, devices):
            what = f"--cap {self.text} has {len(self.amounts)} numbers for {devices} devices"
            raise InputError(what, "one number, or one for each device")
        return self.amounts * (devices if len(self.amounts) == 1 else 1)

    def write(self, amount: float) -> str:
        """Write an amount in the unit of the cap."""
        return format_size(amount) if self.in_bytes else format_number(amount)

    def describe(self) -> str:
        """Write the cap with its unit."""
        return ", ".join(map(self.write, self.amounts)) + ("" if self.in_bytes else " activations")


def fits_none(text: str, excesses: Iterable[float | None]) -> PpsimError:
    """Make the error that says that nothing fits, and the least cap that something does."""
    cap, least = read_cap(text), min(each for each in excesses if each is not None)
    if len(cap.amounts) > 1:
        return PpsimError(f"none fits {cap.describe()}", f"{cap.write(least)} more on each device")
    size = f"{-(-int(cap.amounts[0] + least) // 2**20)}MiB" if cap.in_bytes else f"{cap.amounts[0] + least:g}"
    return PpsimError(f"none fits {cap.describe()}", f"--cap {size}, the least that one fits")


def read_cap(text: str) -> Cap:
    """Read --cap: sizes in bytes, or numbers of activations (InputError: neither, or both)."""
    parts = text.split(",")
    sizes = [parse_size(part) for part in parts]
    units = {in_bytes for _, in_bytes in sizes}
    if len(units) > 1:
        raise InputError(f"--cap {text} has sizes with a unit and without", "one unit for all")
    if units == {True}:
        return Cap(text, tuple(float(size) for size, _ in sizes), in_bytes=True)
    return Cap(text, tuple(map(float, parts)), in_bytes=False)


def parse_caps(text: str, parse: Callable[[str], int]) -> int | tuple[int, ...]:
    """Read --cap where memory has a unit already, each part by ``parse``: one number, or one for each device."""
    found = tuple(parse(part) for part in text.split(","))
    return found if len(found) > 1 else found[0]


def report_held(timeline: Timeline, prices: Costs, costs: CostOptions, cap: Cap) -> MemoryReport:
    """Report what the devices of a run hold against the cap, in its unit.

    Raises:
        InputError: the cap is in bytes and nothing gives those of an activation, or it is of other devices.
    """
    from ppsim.engine.memory.report import report
    from ppsim.engine.memory.usage import BYTES

    schedule = timeline.schedule
    caps = cap.of_devices(schedule.n_devices)
    held = build_memory(schedule, prices, costs if cap.in_bytes else replace(costs, profile=None))[0]
    if cap.in_bytes and held.unit != BYTES:
        raise InputError(
            f"--cap {cap.text} is in bytes, and nothing says how many bytes an activation has",
            "--profile FILE with activations, ppsim memory --model NAME, or a number of activations such as --cap 6",
        )
    whole = tuple(int(amount) for amount in caps)
    return report(timeline, held, whole if len(cap.amounts) > 1 else whole[0])


def measure_excess(timeline: Timeline, prices: Costs, costs: CostOptions, cap: Cap) -> float:
    """Return the most that a device holds above its cap, at most 0 where all fit; in bytes, or in activations.

    Activations of a stage count as their part of a device's 1/P share of the model, so that schedules with different
    numbers of stages per device are held to one cap. Raises as :func:`report_held`.
    """
    import numpy as np

    from ppsim.engine.memory.usage import ACTIVATIONS

    schedule = timeline.schedule
    found = report_held(timeline, prices, costs, cap)
    peaks = np.array([peak.value for peak in found.peaks], np.float64)
    if found.curve.unit == ACTIVATIONS:
        peaks = peaks * schedule.n_devices / (schedule.n_stages * schedule.n_slices)
    elif not cap.in_bytes:
        peaks = peaks / schedule.n_slices
    above = peaks - np.array(cap.of_devices(schedule.n_devices))
    most = float(above.max())
    return most if most > 1e-9 * float(peaks.max(initial=0.0)) else min(most, 0.0)
