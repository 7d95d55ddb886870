"""Every way to run a tiny pipeline with copies to the host, step by step: it shares nothing with the search.

Times are whole numbers of at least one. In each step each device may begin an op that is ready or idle, and each
direction of its link a copy; states that were seen are not seen again. An activation is held from the start of its F,
not while it is on the host, and a share of it from the end of I to that of W. A device's queue says behind which op a
copy back starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

WAITS, F, HELD, OUT, HOST, BACK, AGAIN, I, TURNED, W, DONE = range(11)  # noqa: E741
AFTER = {F: HELD, OUT: HOST, BACK: AGAIN, I: TURNED, W: DONE}
Cell = tuple[
    int, int
]  # what a stage's microbatch does, and how long still; 1 of what does nothing as it has just ended
Start = tuple[int, int]  # a cell, and what it begins


@dataclass(frozen=True)
class Tiny:
    """What is to be run; the times of all stages are alike.

    Attributes:
        device: of each stage.
        microbatches: M.
        times: of F, I, W, a copy to the host and a copy back.
        caps: of each device, in halves of an activation.
        halves: of an activation that are held between I and W.
        link: devices that share a link to their host.
        spans: whether the longest span is to be least, or the makespan.
    """

    device: tuple[int, ...]
    microbatches: int
    times: tuple[int, int, int, int, int]
    caps: tuple[int, ...]
    halves: int
    link: int
    spans: bool

    def cells_of(self, devices: range) -> list[int]:
        """The cells of some devices, stage by stage."""
        return [
            n for n in range(len(self.device) * self.microbatches) if self.device[n // self.microbatches] in devices
        ]


def best_of_all(asked: Tiny, least: int, most: int) -> int:
    """The least span or makespan from one number on; the other is known to be reached."""
    return next((limit for limit in range(least, most) if exists(asked, limit)), most)


def exists(asked: Tiny, limit: int) -> bool:
    """Whether some run takes no longer than the limit."""
    takes = dict(zip((F, I, W, OUT, BACK), asked.times, strict=True))
    own = [asked.cells_of(range(d, d + 1)) for d in range(len(asked.caps))]
    ages = tuple(-1 if asked.spans and own[d][0] > 0 else 0 for d in range(len(own)))  # since their start
    begin = (((WAITS, 0),) * len(asked.device) * asked.microbatches, ages)
    waiting, seen = [begin], {begin}  # what begins most ops is looked at first: it ends soonest
    while waiting:
        cells, ages = waiting.pop()
        for starts in _choices(asked, own, cells, ages):
            now, counted = list(cells), list(ages)
            for cell, kind in starts:
                now[cell] = kind, takes[kind]
                if kind == F:
                    device = asked.device[cell // asked.microbatches]
                    counted[device] = max(counted[device], 0)
            after = tuple(_step(*cell) for cell in now)
            older = tuple(age + (age >= 0 and any(now[n][0] != DONE for n in own[d])) for d, age in enumerate(counted))
            if all(status == DONE for status, _ in after) and max(older) <= limit:
                return True
            state = after, older
            if state not in seen and _may_end(asked, own, after, older, limit, takes):
                seen.add(state)
                waiting.append(state)
    return False


def _step(status: int, left: int) -> Cell:
    if status not in AFTER:
        return status, 0
    return (status, left - 1) if left > 1 else (AFTER[status], 1)


def _choices(
    asked: Tiny, own: list[list[int]], cells: tuple[Cell, ...], ages: tuple[int, ...]
) -> Iterator[tuple[Start, ...]]:
    """What may begin now, together, in the memory of each device."""
    options = [[None, *_ready(asked, cells, mine, ages[d])] for d, mine in enumerate(own)]
    for first in range(0, len(own), asked.link):
        group = [n for mine in own[first : first + asked.link] for n in mine]
        if all(cells[n][0] != OUT for n in group):
            options.append([None, *((n, OUT) for n in group if cells[n][0] == HELD)])
        if all(cells[n][0] != BACK for n in group):
            options.append([None, *((n, BACK) for n in group if _comes_back(asked, own, cells, n, group))])
    held = [sum(_weight(asked, cells[n][0]) for n in mine) for mine in own]
    for chosen in product(*options):
        starts = tuple(start for start in chosen if start)
        if len({cell for cell, _ in starts}) < len(starts):  # I and a copy of the same
            continue
        after = list(held)
        for cell, kind in starts:
            after[asked.device[cell // asked.microbatches]] += 2 * (kind in (F, BACK))
        if all(now <= cap for now, cap in zip(after, asked.caps, strict=True)):
            yield starts


def _comes_back(asked: Tiny, own: list[list[int]], cells: tuple[Cell, ...], n: int, group: list[int]) -> bool:
    """Whether a queue can have a copy back start now: as an op or another copy ends, not in the middle of an op."""
    mine = own[asked.device[n // asked.microbatches]]
    computes = any(cells[other][0] in (F, I, W) for other in mine)
    return cells[n][0] == HOST and (
        cells[n] == (HOST, 1)
        or any(cells[other] in ((HELD, 1), (TURNED, 1), (DONE, 1)) for other in mine)
        or any(cells[other] == (AGAIN, 1) for other in group)
        or (not computes and any(cells[other] == (HOST, 1) for other in mine))
    )


def _weight(asked: Tiny, status: int) -> int:
    return 0 if status in (WAITS, HOST, DONE) else asked.halves if status in (TURNED, W) else 2


def _ready(asked: Tiny, cells: tuple[Cell, ...], mine: list[int], age: int) -> list[Start]:
    """The ops of a device that may begin; its first as its input arrives."""
    M, found = asked.microbatches, list[Start]()
    if any(cells[n][0] in (F, I, W) for n in mine):
        return []
    for n in mine:
        status, below, above = cells[n][0], n - M, n + M
        if status == WAITS:
            arrived = cells[below][0] >= HELD if below >= 0 else n == 0 or cells[n - 1][0] != WAITS
            if arrived and (age >= 0 or cells[below] == (HELD, 1)):
                found.append((n, F))
        elif status in (HELD, AGAIN) and (above >= len(cells) or cells[above][0] >= TURNED):
            found.append((n, I))
        elif status == TURNED:
            found.append((n, W))
    return found


def _may_end(
    asked: Tiny, own: list[list[int]], cells: tuple[Cell, ...], ages: tuple[int, ...], limit: int, takes: dict[int, int]
) -> bool:
    """Whether the work that is left, and what each microbatch still goes through, fit the limit."""
    M = asked.microbatches
    gradient = [0] * len(cells)
    for n in range(len(cells) - 1, -1, -1):
        status, left = cells[n]
        if status >= I:
            gradient[n] = left if status == I else 0
            continue
        came = gradient[n + M] if n + M < len(cells) else _forward(cells, n, M, takes)
        back = {OUT: left + takes[BACK], HOST: takes[BACK], BACK: left}.get(status, 0)
        gradient[n] = max(came, back) + takes[I]
    for mine, age in zip(own, ages, strict=True):
        work = 0
        for n in mine:
            status, left = cells[n]
            rest = left if status == W else 0 if status == DONE else takes[W]
            forward = takes[F] if status == WAITS else left if status == F else 0
            work += rest + forward + (left if status == I else takes[I] if status < I else 0)
            if max(age, 0) + gradient[n] + rest > limit and age >= 0:
                return False
        if max(age, 0) + work > limit:
            return False
    return True


def _forward(cells: tuple[Cell, ...], n: int, M: int, takes: dict[int, int]) -> int:
    """The time until an F of the last stage has ended."""
    total = 0
    while n >= 0 and cells[n][0] <= F:
        total += cells[n][1] if cells[n][0] == F else takes[F]
        n -= M
    return total
