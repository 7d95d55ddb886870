"""Use of each link and shared network card over time, as curves for charts and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.curve import Curve
from ppsim.core.execution import Execution

MOST_LINKS, MOST_SHARED = 16, 12  # rows; the least used ones beyond are averaged in one row
LINK, OUT, IN = "link", "out", "in"


@dataclass(frozen=True)
class Users:
    """The messages on each link, or in each direction of each shared bandwidth.

    There is one entry per message and resource.
    """

    name: str  # the resource: ``link``, ``card``, ``node`` or ``device``
    # shape (resources, 2): a link's two devices; or a group, and 1 for messages inwards, else 0
    ends: NDArray[np.int64]
    row: NDArray[np.int64]  # shape (entries,), index into ``ends``
    message: NDArray[np.int64]  # shape (entries,), index into the execution's messages
    # shape (entries,), mean share of the bandwidth that the message uses while it is in transit
    share: NDArray[np.float64]


class Row(NamedTuple):
    """A row of :class:`LinkUse`, with its curve as ``time`` and ``value``."""

    name: str
    devices: tuple[int, ...]
    direction: str
    merged: int
    time: NDArray[np.float64]
    value: NDArray[np.float64]
    mean: float
    most_messages: int


@dataclass(frozen=True)
class LinkUse:
    """Use of links and shared network cards: a row each for the busiest, a row for all others."""

    # shape (rows,), the resource of a row: ``link``, ``card``, ``node`` or ``device``
    name: tuple[str, ...]
    # of each row: source and target of a link, or the devices that share a card; empty for a row of
    # others
    devices: tuple[tuple[int, ...], ...]
    direction: tuple[str, ...]  # of each row: ``out`` or ``in`` of a card, empty for a link
    count: NDArray[np.int64]  # shape (rows,), number of links or cards that a row averages
    curve: Curve  # use of each row over time, from 0 to 1
    mean: NDArray[np.float64]  # shape (rows,), mean use over the iteration
    # shape (rows,), the most messages in transit at once on one link or card
    most_messages: NDArray[np.int64]
    # whether the use of a link is a share of its bandwidth; otherwise it is a share of the time, as
    # bandwidth has no limit
    of_bandwidth: bool

    def __len__(self) -> int:
        return len(self.name)


def link_use(
    execution: Execution, most_links: int = MOST_LINKS, most_shared: int = MOST_SHARED
) -> LinkUse:
    """Return the use of every link and every shared network card of an execution.

    A message uses a constant bandwidth: its bytes over its time in transit. If links have no
    bandwidth, a link is in use while a message is in transit. Rows are sorted by use, then by
    device; links come before shared cards.
    """
    of_bandwidth, users = _find_users(execution)
    rows = []
    for used in users:
        rows += _rows_of(execution, used, most_links if used.name == LINK else most_shared)
    offsets = np.cumsum([0, *(len(row.time) for row in rows)])
    time, value = (
        np.concatenate([np.zeros(0), *parts])
        for parts in ([r.time for r in rows], [r.value for r in rows])
    )
    return LinkUse(
        name=tuple(row.name for row in rows),
        devices=tuple(row.devices for row in rows),
        direction=tuple(row.direction for row in rows),
        count=np.array([row.merged for row in rows], np.int64),
        curve=Curve("link use", "", offsets, time, value),
        mean=np.array([row.mean for row in rows], np.float64),
        most_messages=np.array([row.most_messages for row in rows], np.int64),
        of_bandwidth=of_bandwidth,
    )


def mean_in_columns(curve: Curve, span: float, columns: int) -> NDArray[np.float64]:
    """Return the means of a curve's rows in ``columns`` equal parts of the time to ``span``.

    Shape (rows, columns).
    """
    edges = np.linspace(0, span, columns + 1)
    mean = np.zeros((len(curve.offsets) - 1, columns))
    for row, (first, last) in enumerate(zip(curve.offsets[:-1], curve.offsets[1:], strict=True)):
        time, value = np.append(curve.time[first:last], np.inf), curve.value[first:last]
        if len(value):
            time[-1] = max(span, time[-2])
            area = np.append(0.0, np.cumsum(value * np.diff(time)))
            mean[row] = np.diff(np.interp(edges, time, area)) * (columns / span)
    return np.clip(mean, 0.0, 1.0)


def _find_users(execution: Execution) -> tuple[bool, list[Users]]:
    """Return whether shares are of bandwidth, and the messages on links and shared cards.

    Shares are of bandwidth if all messages have a size and all links a limit.
    """
    messages = execution.messages
    length = messages.arrive - messages.leave
    moving = np.flatnonzero(length > 0)
    bytes_per_time = messages.size[moving] / length[moving]
    of_bandwidth = bool(
        len(moving)
        and np.isfinite(messages.bandwidth[moving]).all()
        and messages.size[moving].all()
    )
    pairs = np.stack([messages.source[moving], messages.target[moving]], axis=1).astype(np.int64)
    share = bytes_per_time / messages.bandwidth[moving] if of_bandwidth else np.ones(len(moving))
    ends, row = np.unique(pairs, axis=0, return_inverse=True)
    users = [Users(LINK, ends, row.ravel(), moving, share)]
    for shared in execution.shared:
        used = shared.used[moving]
        sides = [(shared.group[messages.source], 0), (shared.group[messages.target], 1)]
        both = np.concatenate(
            [np.stack([g[moving[used]], np.full(used.sum(), side)], axis=1) for g, side in sides]
        )
        ends, row = np.unique(both, axis=0, return_inverse=True)
        share = np.tile(bytes_per_time[used] / shared.capacity, 2)
        users.append(Users(shared.name, ends, row.ravel(), np.tile(moving[used], 2), share))
    return of_bandwidth, users


def _rows_of(execution: Execution, users: Users, most: int) -> list[Row]:
    """Return a row for each of the ``most`` busiest resources, and one for the mean of others."""
    uses, messages = len(users.ends), execution.messages
    left, right = messages.leave[users.message], messages.arrive[users.message]
    row, time, total, at_once = _steps(users.row, left, right, users.share)
    value = np.clip(total, 0.0, 1.0)
    carried = np.bincount(users.row, users.share * (right - left), uses)
    if (users.share == 1).all():  # in use or not: two messages at once count once
        until = np.append(time[1:], 0.0)
        carried = np.bincount(row, np.where(at_once > 0, until - time, 0.0), uses)
    mean, peak = carried / (execution.makespan or 1.0), np.zeros(uses, np.int64)
    np.maximum.at(peak, row, at_once)
    kept, order = np.ones(uses, np.bool_), np.argsort(-mean.round(9), kind="stable")
    if uses > most:
        kept[order[most - 1 :]] = False
        order = order[: most - 1]
    groups = {shared.name: shared.group for shared in execution.shared}
    made = []
    for use in order.tolist():
        here, (first, second) = row == use, users.ends[use].tolist()
        devices = (
            [first, second]
            if users.name == LINK
            else np.flatnonzero(groups[users.name] == first).tolist()
        )
        direction = "" if users.name == LINK else IN if second else OUT
        made.append(
            Row(
                users.name,
                tuple(devices),
                direction,
                1,
                time[here],
                value[here],
                float(mean[use]),
                int(peak[use]),
            )
        )
    if not kept.all():
        rest = np.flatnonzero(~kept[row])
        change = np.diff(value[rest], prepend=0.0)  # as every row ends at 0
        order = np.argsort(time[rest], kind="stable")
        summed = np.clip(np.cumsum(change[order]) / (~kept).sum(), 0.0, 1.0)
        final = float(mean[~kept].mean()), int(peak[~kept].max())
        made.append(Row(users.name, (), "", int((~kept).sum()), time[rest][order], summed, *final))
    return made


def _steps(
    row: NDArray[np.int64],
    left: NDArray[np.float64],
    right: NDArray[np.float64],
    share: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Return row, time, sum of shares and number of messages, after each start or end of one."""
    row, time = np.tile(row, 2), np.concatenate([left, right])
    order = np.lexsort((time, row))
    row, time = row[order], time[order]
    change = np.concatenate([share, -share])[order]
    count = np.repeat([1, -1], len(left))[order]
    last = np.append((np.diff(row) > 0) | (np.diff(time) > 0), np.ones(min(1, len(time)), np.bool_))
    at_once = np.cumsum(count)[last]
    # exactly 0 without a message, despite rounding
    total = np.where(at_once > 0, np.cumsum(change)[last], 0.0)
    return row[last], time[last], total, at_once
