"""The memory cap: ``--cap`` means the same in every command, and is read here.

A plain number counts activations of one microbatch for a device's 1/P share of the model, so that
it is the same memory for schedules with different numbers of chunks and slices. With ``--layout``
it counts activations of one layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ppsim.base.notes import note
from ppsim.base.numbers import format_number, with_unit
from ppsim.errors import InputError, PpsimError
from ppsim.prices.options import CostOptions, ask_costs

if TYPE_CHECKING:
    from ppsim.core.schedule import Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.report import MemoryReport
    from ppsim.prices.data_parallel.replicas import LoadedRuns
    from ppsim.prices.part import Asked
    from ppsim.workload.hardware.hardware import Machine

OF_A_SHARE = "of a 1/P share"


def number_at_least(value: float) -> str:
    """Return a number as text, rounded up to four decimals: the least such cap that it fits."""
    return f"{math.ceil(round(value * 1e4, 3)) / 1e4:.12g}"


def write_count(value: float, per_unit: float, unit: str) -> str:
    """Return a number of activations as text, in the memory model's unit and in that of --cap."""
    if per_unit == 1:
        return with_unit(format_number(value), unit)
    from ppsim.engine.memory.usage import ACTIVATIONS

    if unit != ACTIVATIONS:
        whole = with_unit(format_number(value / per_unit), unit)
        return f"{format_number(value)} of slices ({whole})"
    share = f"{format_number(value / per_unit)} {OF_A_SHARE}"
    return f"{with_unit(format_number(value), unit)} ({share})"


@dataclass(frozen=True)
class Cap:
    """The memory cap of the devices."""

    text: str  # as the user typed it
    amounts: tuple[float, ...]  # one for all devices, or one for each
    in_bytes: bool  # True for bytes, False for activations

    def per_device_caps(self, devices: int) -> tuple[float, ...]:
        """Return the cap of each device (InputError: the list has another number)."""
        if len(self.amounts) not in (1, devices):
            what = f"--cap {self.text} has {len(self.amounts)} numbers for {devices} devices"
            raise InputError(what, "one number, or one for each device")
        return self.amounts * (devices if len(self.amounts) == 1 else 1)

    def caps_in_unit(
        self, schedule: Schedule, unit: str, *, whole: bool = True
    ) -> float | tuple[float, ...]:
        """Return the cap in a memory model's unit: one number, or one for each device.

        ``whole`` rounds it down.

        Raises:
            InputError: the cap is in bytes and the unit is not, or the other way round, or the list
                has another length.
        """
        from ppsim.engine.memory.usage import activations_per_unit

        self.check_unit(unit)
        per_unit = activations_per_unit(schedule, unit)
        rounding = 1.0 if self.in_bytes else 1 + 1e-9
        caps = self.per_device_caps(schedule.n_devices)
        exact = [cap * per_unit * rounding for cap in caps]
        found = tuple(map(int, exact)) if whole else tuple(exact)
        return found if len(self.amounts) > 1 else found[0]

    def counts_bytes(self, asked: Asked) -> bool:
        """Return True if memory must be in bytes for this cap: it is in bytes, or a part has only
        bytes.
        """
        return self.in_bytes or asked.needs_cap_in_bytes

    def check_unit(self, unit: str) -> None:
        """Raise InputError if the cap cannot be compared with amounts of a unit."""
        from ppsim.engine.memory.usage import BYTES

        if self.in_bytes and unit != BYTES:
            raise InputError(
                f"--cap {self.text} is in bytes, and the bytes of an activation are not known",
                "--profile FILE with activations, --model NAME with --cluster NAME, or a number "
                "of activations such as --cap 6",
            )
        if not self.in_bytes and unit == BYTES:
            hint = ",".join(f"{part.strip()}GiB" for part in self.text.split(","))
            raise InputError(
                f"--cap {self.text} has no unit, and memory is in bytes here", f"--cap {hint}"
            )

    def single(self) -> float:
        """Return the cap of all devices (InputError: they have different caps)."""
        if len(self.amounts) > 1:
            raise InputError(
                f"--cap {self.text} has one number for each device, and one for all is taken here",
                f"--cap {self.text.split(',')[0]}",
            )
        return self.amounts[0]

    def write(self, amount: float) -> str:
        """Return an amount in the unit of the cap as text."""
        if not self.in_bytes:
            return format_number(amount)
        from ppsim.base.units import format_size

        return format_size(amount)

    def describe(self, costs: CostOptions) -> str:
        """Return the cap with its unit as text; ``costs`` decide if activations are of layers."""
        amounts = ", ".join(map(self.write, self.amounts))
        if self.in_bytes:
            return amounts
        part = "of one layer" if ask_costs(costs).counts_layers else OF_A_SHARE
        return f"{with_unit(amounts, 'activations')} {part}"


def fits_none(text: str, excesses: Iterable[float | None]) -> PpsimError:
    """Return the error that nothing fits the cap, with the least cap that something fits."""
    cap, least = read_cap(text), min(each for each in excesses if each is not None)
    amounts = ", ".join(map(cap.write, cap.amounts))
    shown = with_unit(amounts, "B" if cap.in_bytes else "activations")
    if len(cap.amounts) > 1:
        return PpsimError(f"none fits {shown}", f"{cap.write(least)} more on each device")
    needed = cap.amounts[0] + least
    size = f"{-(-int(needed) // 2**20)}MiB" if cap.in_bytes else number_at_least(needed)
    return PpsimError(f"none fits {shown}", f"--cap {size}, the least that one fits")


def read_cap(text: str) -> Cap:
    """Return --cap, read as sizes in bytes or numbers of activations (InputError: neither)."""
    from ppsim.base.units import parse_size

    parts = text.split(",")
    try:
        sizes = [parse_size(part) for part in parts]
    except InputError as error:
        hint = f"a number of activations, such as 6, or {error.hint}"
        raise InputError(f"--cap: {error}", hint) from None
    units = {in_bytes for _, in_bytes in sizes}
    if len(units) > 1:
        raise InputError(f"--cap {text} has sizes with a unit and without", "one unit for all")
    if units == {True}:
        return Cap(text, tuple(float(size) for size, _ in sizes), in_bytes=True)
    return Cap(text, tuple(map(float, parts)), in_bytes=False)


def note_above_gpu(text: str | None, machine: Machine) -> None:
    """Show a note if --cap has a size above the memory of the machine's largest GPU."""
    cap = read_cap(text) if text else None
    if not cap or not cap.in_bytes or max(cap.amounts) <= machine.memory_bytes:
        return
    from ppsim.base.units import format_size

    note(
        f"--cap {text} is above the {format_size(machine.memory_bytes)} of a GPU "
        f"({machine.title}): what fits the cap may not fit the GPU"
    )


def report_held(run: Timeline | LoadedRuns, costs: CostOptions, cap: Cap) -> MemoryReport:
    """Return the memory of a run's devices with the cap, in the unit of the cap.

    Of several replicas, it is the one that exceeds the cap the most.

    Raises:
        InputError: the cap is in bytes and the bytes of an activation are not known, or the cap is
            for another number of devices.
    """
    from ppsim.core.timeline import Timeline
    from ppsim.engine.memory.report import report, report_replicas
    from ppsim.prices.data_parallel.replicas import list_held

    cap.per_device_caps(run.schedule.n_devices)
    runs = list_held(run, costs, in_bytes=cap.counts_bytes(ask_costs(costs)))
    timeline, held = runs[0]
    if isinstance(run, Timeline):
        return report(timeline, held, cap.caps_in_unit(run.schedule, held.unit))
    return report_replicas(runs, cap.caps_in_unit(run.schedule, held.unit, whole=False))


def measure_excess(run: Timeline | LoadedRuns, costs: CostOptions, cap: Cap) -> float:
    """Return the largest excess of a device over its cap, in the unit of the cap; 0 or less if all
    fit.

    Raises:
        InputError: as in :func:`report_held`.
    """
    import numpy as np

    from ppsim.engine.memory.usage import activations_per_unit

    found = report_held(run, costs, cap)
    peaks = np.array([peak.value for peak in found.peaks], np.float64)
    peaks = peaks / activations_per_unit(run.schedule, found.curve.unit)
    above = peaks - np.array(cap.per_device_caps(run.schedule.n_devices))
    most = float(above.max())
    return most if most > 1e-9 * float(peaks.max(initial=0.0)) else min(most, 0.0)
