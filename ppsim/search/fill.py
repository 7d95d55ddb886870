"""Fill the warm-up and the cool-down of a repeated building block, in slots: the greedy of its authors.

Every op is tried once, earliest first, in the slots that its device has idle between its input and its own slot, and
moves to the first one in which no device holds more than the most that any held before. Plain Python: a step per op.

A row is one pass over one device: row ``device x passes + pass`` with the slots of its op for every microbatch. Passes
are numbered as a microbatch takes them: forwards of each chunk, then backwards; the W of a pass come after all passes.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

IDLE, FORWARD, BACKWARD, WEIGHTS = 0, 1, 2, 3
Slots = list[list[int]]
Op = tuple[int, int, int, int]  # slot, device, pass, microbatch


@dataclass(frozen=True)
class Rows:
    """What the rows of a block are.

    Attributes:
        devices: P.
        passes: 2V.
        needs: the row that gives each row's input, -1 for none.
        backward: slots that a backward takes: 1 for I, which leaves a W to be run, 2 for a full one.
    """

    devices: int
    passes: int
    needs: list[int]
    backward: int

    @property
    def splits(self) -> bool:
        """Whether backwards run as I and W."""
        return self.backward == 1

    def length(self, number: int) -> int:
        """Slots that an op of a pass takes."""
        return self.backward if self.passes // 2 <= number < self.passes else 1

    def of(self, device: int) -> range:
        """The rows of a device."""
        return range(device * self.passes, (device + 1) * self.passes)


def fill_phases(rows: Rows, slots: Slots) -> list[list[tuple[int, int]]]:
    """Fill both phases of a repeated block, and give every I its W.

    Returns:
        The ops of each device in order: pass and microbatch; the W of pass ``p`` is pass ``p + V``.
    """
    slots = _squeeze(rows, *_fill(rows, slots, weights_stay=True))
    if rows.splits:
        slots = _squeeze(rows, *_fill(rows, slots, weights_stay=False))
    orders = []
    for device in range(rows.devices):
        ops = [(slot, row % rows.passes, m) for row in rows.of(device) for m, slot in enumerate(slots[row])]
        if rows.splits:
            ops += _place_weights(rows, slots, device, by_pass=True)
        orders.append([(number, m) for _, number, m in sorted(ops)])
    return orders


def _lay_out(rows: Rows, slots: Slots, device: int) -> bytearray:
    """What a device does in each slot."""
    last = max(slots[row][-1] + rows.length(row % rows.passes) for row in rows.of(device))
    does = bytearray(last)
    for row in rows.of(device):
        number = row % rows.passes
        what, length = FORWARD if number < rows.passes // 2 else BACKWARD, rows.length(number)
        for slot in slots[row]:
            does[slot : slot + length] = bytes([what]) * length
    return does


def _place_weights(rows: Rows, slots: Slots, device: int, by_pass: bool) -> list[tuple[int, int, int]]:
    """Give each W of a device the first idle slot after its I: slot, pass and microbatch of each.

    Without ``by_pass`` W are alike and numbered through; with it those of the earlier pass come first.
    """
    chunks = rows.passes // 2
    of_slot = {slot: row % rows.passes for row in rows.of(device)[chunks:] for slot in slots[row]}
    does = _lay_out(rows, slots, device)
    waiting, done, found = [0] * chunks, [0] * chunks, []

    def run(slot: int) -> None:
        place = next(place for place in range(chunks) if waiting[place])
        waiting[place] -= 1
        found.append((slot, rows.passes + place, done[place]))
        done[place] += 1

    for slot, what in enumerate(does):
        if what == BACKWARD:
            waiting[of_slot[slot] - chunks if by_pass else 0] += 1
        elif what == IDLE and any(waiting):
            run(slot)
    for slot in range(len(does), len(does) + sum(waiting)):
        run(slot)
    return found


def _peak(does: bytearray) -> int:
    """The most a device holds whose W run in the first idle slots."""
    held = most = waiting = 0
    for what in does:
        if what == FORWARD:
            held += 1
            most = max(most, held)
        elif what == BACKWARD:
            waiting += 1
        elif waiting:
            waiting -= 1
            held -= 1
    return most


def _held(rows: Rows, slots: Slots, weights: list[list[int]], device: int, size: int) -> list[int]:
    """What a device holds after each slot, its W in the slots of ``weights``."""
    change = [0] * size
    for row in rows.of(device):
        number = row % rows.passes
        if number < rows.passes // 2:
            for slot in slots[row]:
                change[slot] += 1
        elif not rows.splits:
            for slot in slots[row]:
                change[slot + rows.backward - 1] -= 1
    for slot in weights[device]:
        change[slot] -= 1
    held = 0
    for slot, by in enumerate(change):
        held += by
        change[slot] = held
    return change


def _fill(rows: Rows, slots: Slots, weights_stay: bool) -> tuple[Slots, list[list[int]]]:
    """Move ops into idle slots before them.

    Args:
        rows: what the rows are.
        slots: the slots of every row.
        weights_stay: whether W are ops with slots of their own, which move like others, in warm-up and cool-down;
            otherwise they run wherever a device is idle, and only the ops of the cool-down move.

    Returns:
        The slots of every row, and of each device's W, all alike.
    """
    slots = [row[:] for row in slots]
    weights: list[list[int]] = [[] for _ in range(rows.devices)]
    if rows.splits and weights_stay:
        weights = [[slot for slot, _, _ in _place_weights(rows, slots, d, by_pass=False)] for d in range(rows.devices)]
    does = [_lay_out(rows, slots, device) for device in range(rows.devices)]
    for device, placed in enumerate(weights):
        does[device].extend(bytes(max(0, placed[-1] + 1 - len(does[device])) if placed else 0))
        for slot in placed:
            does[device][slot] = WEIGHTS
    explicit = weights_stay or not rows.splits
    held = [_held(rows, slots, weights, d, len(does[d])) if explicit else [] for d in range(rows.devices)]
    cap = max(max(each) for each in held) if explicit else max(map(_peak, does))
    backwards: list[list[int]] = [[] for _ in range(rows.devices)]
    last = [max(slots[row][-1] for row in rows.of(d)[: rows.passes // 2]) for d in range(rows.devices)]
    phase = 0
    for slot, device, number, m in _list_ops(rows, slots, weights):
        mine = weights[device] if number == rows.passes else slots[device * rows.passes + number]
        if phase == 0 and number == rows.passes - 1 and device == 0:
            phase = 1
        if phase == 1:
            phase = 2 if number == 0 and m == len(slots[0]) - 1 else 1
        elif explicit or phase == 2:
            ready = backwards[device][m] + 1 if number == rows.passes else _ready(rows, slots, device, number, m)
            ready = max(ready, mine[m - 1] + rows.length(number)) if m else ready
            mine[m] = _move(rows, does[device], held[device], cap, (number, slot, ready, last[device]))
        if rows.passes // 2 <= number < rows.passes:
            insort(backwards[device], mine[m])
    return slots, weights


def _list_ops(rows: Rows, slots: Slots, weights: list[list[int]]) -> list[Op]:
    """List all ops by slot, the k-th W of a device as pass 2V and microbatch k."""
    ops = [
        (slot, row // rows.passes, row % rows.passes, m)
        for row, each in enumerate(slots)
        for m, slot in enumerate(each)
    ]
    ops += [(slot, d, rows.passes, k) for d, placed in enumerate(weights) for k, slot in enumerate(placed)]
    return sorted(ops)


def _ready(rows: Rows, slots: Slots, device: int, number: int, m: int) -> int:
    """The first slot in which an op has its input."""
    need = rows.needs[device * rows.passes + number]
    return 0 if need < 0 else slots[need][m] + rows.length(need % rows.passes)


def _move(rows: Rows, does: bytearray, held: list[int], cap: int, op: tuple[int, int, int, int]) -> int:
    """Move an op to the first idle slot that it may have, and return that.

    Args:
        rows: what the rows are.
        does: what the device does in each slot.
        held: what it holds after each; empty where W run in idle slots.
        cap: the most that it may hold.
        op: its pass, its slot, the first it may have, and the last slot of the device's forwards.
    """
    number, slot, ready, last = op
    length = rows.length(number)
    what = does[slot : slot + length]
    if held and number < rows.passes // 2:
        lowest = slot
        while lowest > ready and held[lowest - 1] < cap:
            lowest -= 1
        ready = lowest
    does[slot : slot + length] = bytes(length)
    for to in range(ready, slot):
        if any(does[to : to + length]):
            continue
        does[to : to + length] = what
        if held or to > last or _peak(does) <= cap:
            _shift(rows, held, number, to, slot)
            return to
        does[to : to + length] = bytes(length)
    does[slot : slot + length] = what
    return slot


def _shift(rows: Rows, held: list[int], number: int, to: int, slot: int) -> None:
    """Change what a device holds where an op runs earlier."""
    if not held:
        return
    if number < rows.passes // 2:
        by, late = 1, 0
    elif number == rows.passes or not rows.splits:
        by, late = -1, rows.length(number) - 1
    else:
        return
    for at in range(to + late, slot + late):
        held[at] += by


def _squeeze(rows: Rows, slots: Slots, weights: list[list[int]]) -> Slots:
    """Run the ops of each device in the order of their slots, each as soon as it can: the new slots of every row.

    Where W have no slots yet, they take the first idle ones.
    """
    if rows.splits and not any(weights):
        weights = [[slot for slot, _, _ in _place_weights(rows, slots, d, by_pass=False)] for d in range(rows.devices)]
    ops, slots = _list_ops(rows, slots, weights), [row[:] for row in slots]
    free = [0] * rows.devices
    for _, device, number, m in ops:
        at = free[device]
        if number < rows.passes:
            at = max(at, _ready(rows, slots, device, number, m))
            slots[device * rows.passes + number][m] = at
        free[device] = at + rows.length(number)
    return slots
