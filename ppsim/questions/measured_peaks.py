"""``--measured`` of ``ppsim memory``: measured peaks of devices beside those of the schedule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ppsim.base.numbers import format_change

if TYPE_CHECKING:
    from ppsim.engine.memory.report import MemoryReport

GIB = 2.0**30


def compare_measured(found: MemoryReport, path: str) -> dict[str, Any]:
    """Compare measured peaks with the report's; activations are given a base and a size by least squares first.

    Raises:
        InputError: the file has no peaks, or not one for each device.
    """
    import numpy as np

    from ppsim.engine.memory.usage import BYTES
    from ppsim.workload.cost.measured import fit_line, read_peaks

    peaks = read_peaks(path, len(found.peaks))
    held = np.array([peak.value for peak in found.peaks], np.float64)
    line: dict[str, float] = {}
    if found.curve.unit != BYTES:
        base, each = fit_line(held, peaks)
        line = {"base_gib": base / GIB, "activation_gib": each / GIB}
        held = base + each * held
    rows = [
        {
            "device": device,
            "peak_gib": here / GIB,
            "measured_gib": peak / GIB,
            "error": here / peak - 1 if peak else None,
        }
        for device, (here, peak) in enumerate(zip(held.tolist(), peaks.tolist(), strict=True))
    ]
    return {"devices": rows, **line, "worst": int(peaks.argmax())}


def measured_lines(beside: dict[str, Any]) -> Iterator[str]:
    """Lines of measured peaks beside the schedule's, and which device holds most."""
    yield f"\n{'':<9}{'here':>10} {'measured':>10} {'error':>7}  GiB"
    for row in beside["devices"]:
        error = "-" if row["error"] is None else format_change(row["error"])
        name = f"dev {row['device']}"
        yield f"{name:<9}{row['peak_gib']:>10.2f} {row['measured_gib']:>10.2f} {error:>7}"
    if "base_gib" in beside:
        yield (
            f"fitted to the measured peaks: {beside['base_gib']:.1f} GiB that each device always holds, "
            f"{beside['activation_gib']:.2f} GiB an activation"
        )
    worst = beside["devices"][beside["worst"]]
    yield f"measured, device {worst['device']} holds most, {worst['measured_gib']:.1f} GiB"
