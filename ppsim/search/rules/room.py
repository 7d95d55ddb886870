"""Copies to the host that make room: as few as keep each device of a given order within its cap.

A device goes through its queue. Where an op would take more than its cap, something that it holds leaves: copied right
behind its F, and waited for here. It comes back just in time for its backward; what is then too much leaves in turn.
Copies that came back late in the simulation are issued earlier, a few times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import BACKWARDS, KIND_MASK, Kind
from ppsim.core.schedule import Schedule
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.longest_path import simulate
from ppsim.search.rules.offload import waits_for_copies

Floats = NDArray[np.float64]
# Ranks what could leave, the highest first: by the time until it must start to come back, and until it would be gone.
Choice = Callable[[float, float], tuple[float, ...]]
ROUNDS = 8
NEAR = 1e-9


def make_room(schedule: Schedule, costs: Costs, caps: Floats, change: Floats, choice: Choice) -> Iterator[Timeline]:
    """Put copies into the queues of F, and B or I and W, without pairs, so that no device holds more than its cap.

    ``change``, shape (kinds, stages), is what an op adds to what its device holds; ``choice`` says which leaves first
    of that. Yields timelines of such schedules; none where a cap is too small for the rule.
    """
    base, lead = simulate(schedule, costs), np.zeros((schedule.n_stages, schedule.n_microbatches))
    late = np.zeros_like(lead)
    for _ in range(ROUNDS):
        walks = [_Walk(schedule, costs, base, d, change, choice, lead) for d in range(schedule.n_devices)]
        if not all(walk.run(float(cap)) for walk, cap in zip(walks, caps, strict=True)):
            return
        made = schedule.with_queues([walk.write() for walk in walks])
        yield (timeline := simulate(made, costs))
        waited = waits_for_copies(timeline)
        if not (waited > NEAR).any():
            return
        np.add.at(late, (made.stage[made.computes], made.microbatch[made.computes]), waited)
        for walk in walks:
            walk.add_lead(lead, late)


class _Walk:
    """One device's way through its queue."""

    def __init__(
        self,
        schedule: Schedule,
        costs: Costs,
        base: Timeline,
        device: int,
        change: Floats,
        choice: Choice,
        lead: Floats,
    ) -> None:
        queue, S = schedule.queue(device), schedule.n_stages
        self.cells = list(zip(schedule.stage[queue].tolist(), schedule.microbatch[queue].tolist(), strict=True))
        self.kinds, self.choice, self.lead = schedule.kind[queue].tolist(), choice, lead
        self.start, self.end = base.start[queue].tolist(), base.end[queue]
        self.change = change[schedule.kind[queue], schedule.stage[queue]].tolist()
        self.out, self.back = (
            np.broadcast_to(costs.others.get(kind, 0.0), S).tolist() for kind in (Kind.OFFLOAD, Kind.RELOAD)
        )
        self.shared = max(costs.host_link, 1)
        self.backward = {cell: at for at, cell in enumerate(self.cells) if self.kinds[at] in BACKWARDS}
        self.ops = schedule.packed()[queue].tolist()
        self.alive, self.left = dict[tuple[int, int], int](), dict[tuple[int, int], int]()
        self.away = list[tuple[int, int]]()  # behind which op each comes back, and its backward
        self.returned = list[int]()  # their backwards
        self.queue, self.held = list[int](), 0.0

    def run(self, cap: float) -> bool:
        """Go through the queue; False where nothing is left that could leave."""
        for at, (op, change) in enumerate(zip(self.ops, self.change, strict=True)):
            while self.away and self.away[0][0] < at:
                _, backward = heappop(self.away)
                cell = self.cells[backward]
                added = self.change[self.left[cell]]
                if self._make(added, cap, at):
                    self.queue.append(self.ops[backward] & ~KIND_MASK | Kind.RELOAD)
                    self.returned.append(backward)
                    self.held += added
                elif backward > at:
                    heappush(self.away, (at, backward))
                    break
                else:
                    return False
            if change > 0:
                if not self._make(change, cap, at):
                    return False
                self.alive[self.cells[at]] = at
            elif self.backward.get(self.cells[at]) == at:
                self.alive.pop(self.cells[at], None)
            self.queue.append(op)
            self.held += change
        return True

    def _make(self, needed: float, cap: float, at: int) -> bool:
        """Make room for the activations ``needed`` before an op of the queue."""
        while self.held + needed > cap + NEAR:
            gates = {cell: self._gate(cell) for cell in self.alive}
            able = [cell for cell, gate in gates.items() if gate >= at]
            if not able and not self._postpone(at):
                return False
            if not able:
                continue
            cell = max(able, key=partial(self._rank, at))
            self.left[cell] = self.alive.pop(cell)
            self.held -= self.change[self.left[cell]]
            self.queue.append(self.ops[self.left[cell]] & ~KIND_MASK | Kind.WAIT_OFFLOAD)
            heappush(self.away, (gates[cell], self.backward[cell]))
        return True

    def _postpone(self, at: int) -> bool:
        """Let the copy that is needed last come back later than it did; False where none is left."""
        backward = max(self.returned, default=at)
        if backward <= at:
            return False
        self.returned.remove(backward)
        self.queue.remove(self.ops[backward] & ~KIND_MASK | Kind.RELOAD)
        self.held -= self.change[self.left[self.cells[backward]]]
        heappush(self.away, (at, backward))
        return True

    def _rank(self, at: int, cell: tuple[int, int]) -> tuple[float, ...]:
        gone = float(self.end[self.alive[cell]]) + self.out[cell[0]] * self.shared  # others on the link come between
        return self.choice(self.start[self.backward[cell]] - self.start[at], gone - self.start[at])

    def _gate(self, cell: tuple[int, int]) -> int:
        """The last op behind which a copy back comes in time."""
        backward = self.backward[cell]
        latest = self.start[backward] - self.back[cell[0]] - self.lead[cell]
        return min(int(np.searchsorted(self.end, latest + NEAR, "right")) - 1, backward - 1)

    def write(self) -> NDArray[np.int64]:
        """The queue, with each copy to the host behind its F, and behind those that room was needed of before."""
        place = {op: at for at, op in enumerate(self.queue)}
        leaving = np.array([self.ops[at] for at in self.left.values()], np.int64)  # in the order of need
        behind = np.maximum.accumulate([place[op] for op in leaving.tolist()], dtype=np.int64) + 1
        return np.insert(np.array(self.queue, np.int64), behind, leaving & ~KIND_MASK | Kind.OFFLOAD)

    def add_lead(self, lead: Floats, late: Floats) -> None:
        """Set how much earlier than for itself alone each copy must come back, for those that follow and were late."""
        following = np.inf
        for cell in sorted(self.left, key=lambda cell: -self.backward[cell]):
            own = self.start[self.backward[cell]] - self.back[cell[0]]
            following = min(own, following - self.back[cell[0]]) - float(late[cell])
            lead[cell] = own - following
