"""The part of a timeline that a figure shows: all, a window, or all but a repeating middle."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ppsim.core.curve import Curve
from ppsim.core.ops import COMPUTE
from ppsim.core.timeline import Timeline
from ppsim.errors import InputError

LEAST_REPEATS = 3  # repetitions of a period that are worth folding
MOST_PERIOD = 16  # microbatches of a period at most
GAP = 0.5  # space for the folded part, in periods
SAME = 1e-9  # difference of times that count as equal, over the makespan

Floats = NDArray[np.float64]
Columns = TypeVar("Columns", bound=Any)


@dataclass(frozen=True)
class View:
    """Intervals of time, drawn one after the other; times are in the timeline's unit."""

    start: Floats  # shape (intervals,)
    end: Floats  # shape (intervals,)
    place_of_start: Floats  # shape (intervals,), the start's place in the picture
    # start and end in the picture of the period that is drawn once; empty if nothing is folded
    period: tuple[float, ...] = ()
    repeats: int = 1  # number of repetitions of the period
    is_whole: bool = False  # whether the whole timeline is shown

    @property
    def length(self) -> float:
        """The end of the picture."""
        return float(self.place_of_start[-1] + self.end[-1] - self.start[-1])

    def place(self, times: Floats) -> Floats:
        """Return the places of times in the picture; a time outside is moved to the edge."""
        stretch = np.maximum(np.searchsorted(self.start, times, "right") - 1, 0)
        inside = np.clip(times, self.start[stretch], self.end[stretch])
        return inside - self.start[stretch] + self.place_of_start[stretch]

    def cut(self, found: Columns, left: str, right: str, *more: str) -> Columns:
        """Return a dataclass of columns cut to the view.

        ``left`` and ``right`` name the columns with start and end, ``more`` further columns of
        times.
        """
        if self.is_whole:
            return found
        columns, parts = {each.name: getattr(found, each.name) for each in fields(found)}, []
        for start, end, at in zip(self.start, self.end, self.place_of_start, strict=True):
            seen = (columns[right] > start) & (columns[left] < end)
            part = {name: values[seen] for name, values in columns.items()}
            for name in (left, right, *more):
                part[name] = np.clip(part[name], start, end) - start + at
            parts.append(part)
        return type(found)(
            **{name: np.concatenate([part[name] for part in parts]) for name in columns}
        )

    def cut_curve(self, curve: Curve) -> Curve:
        """Return a curve cut to the view, with its times as places in the picture."""
        rows = np.arange(len(curve.offsets) - 1)
        at_start = [
            _curve_value(curve, int(device), float(start))
            for start in self.start
            for device in rows
        ]
        device = np.concatenate(
            [np.repeat(rows, np.diff(curve.offsets)), np.tile(rows, len(self.start))]
        )
        time = np.concatenate([curve.time, np.repeat(self.start, len(rows))])
        value = np.concatenate([curve.value, np.array(at_start, np.float64)])
        order = np.lexsort((np.arange(len(time)), time, device))
        device, time, value = device[order], time[order], value[order]
        shown = np.zeros(len(order), np.bool_)
        for start, end in zip(self.start, self.end, strict=True):
            shown |= (time >= start) & (time < end)
        offsets = np.searchsorted(device[shown], np.arange(len(curve.offsets)))
        host = curve.host and self.cut_curve(curve.host)
        return replace(
            curve, offsets=offsets, time=self.place(time[shown]), value=value[shown], host=host
        )


def _curve_value(curve: Curve, device: int, time: float) -> float:
    entries = slice(int(curve.offsets[device]), int(curve.offsets[device + 1]))
    step = int(np.searchsorted(curve.time[entries], time, "right"))
    return float(curve.value[entries][step - 1]) if step else 0.0


def view_of(timeline: Timeline, window: tuple[float, float] | None, fold: bool) -> View:
    """Return the view of a timeline for a figure.

    Raises:
        InputError: the window is after the last op, or there is no repeating middle to fold.
    """
    if window:
        if window[0] >= timeline.makespan:
            raise InputError(
                f"nothing runs from {window[0]:g} on: {timeline.schedule.name} ends at "
                f"{timeline.makespan:g}",
                f"a window before {timeline.makespan:g}",
            )
        return View(np.array([window[0]]), np.array([window[1]]), np.zeros(1))
    if not fold:
        return View(np.zeros(1), np.array([timeline.makespan]), np.zeros(1), is_whole=True)
    found = find_repetition(timeline)
    if found is None:
        raise InputError(
            f"no part of {timeline.schedule.name} repeats at least {LEAST_REPEATS} times, so it "
            f"cannot be folded",
            "more microbatches, or --window A:B",
        )
    first, period, repeats = found
    start = np.array([0.0, first + repeats * period])
    end = np.array([first + period, timeline.makespan])
    at = np.array([0.0, first + (1 + GAP) * period])
    return View(start, end, at, (first, first + period), repeats)


def find_repetition(timeline: Timeline) -> tuple[float, float, int] | None:
    """Return start, period and repetitions of a repeating middle of a timeline; None without one.

    In it every op runs again one period later, for a later microbatch. It includes the middle
    microbatch. If several periods fit, the shortest is returned.
    """
    schedule, near = timeline.schedule, SAME * timeline.makespan
    middle = schedule.n_microbatches // 2
    ops, start = (
        schedule.computes,
        np.full((len(COMPUTE), schedule.n_stages, schedule.n_microbatches), np.nan),
    )
    end = start.copy()
    where = (schedule.kind[ops], schedule.stage[ops], schedule.microbatch[ops])
    start[where], end[where] = timeline.start[ops], timeline.end[ops]
    for step in range(1, min(MOST_PERIOD, middle) + 1):
        period = start[0, 0, middle] - start[0, 0, middle - step]
        if not period > near:
            continue
        same = np.abs(start[:, :, step:] - start[:, :, :-step] - period) <= near
        same &= np.abs(end[:, :, step:] - end[:, :, :-step] - period) <= near
        alone = np.zeros((*start.shape[:2], step), np.bool_)
        # starts of ops that no op repeats one period later
        final = start[~np.concatenate([same, alone], axis=2) & ~np.isnan(start)]
        # starts of ops that repeat no op one period before
        first = start[~np.concatenate([alone, same], axis=2) & ~np.isnan(start)]
        anchor = start[0, 0, middle]
        begin = max(
            final[final <= anchor].max(initial=-np.inf),
            first[first <= anchor].max(initial=-np.inf) - period,
        )
        until = min(
            final[final > anchor].min(initial=np.inf),
            first[first > anchor].min(initial=np.inf) - period,
        )
        begin = float(timeline.start[timeline.start > begin + near].min(initial=np.inf))
        repeats = int((until - begin) / period + SAME) + 1 if begin < until else 0
        if repeats >= LEAST_REPEATS:
            return begin, float(period), repeats
    return None
