"""Kernels of lowering: torch's sweep over the devices, and merging messages into queues.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ppsim.core.columns import Ids, Ints
from ppsim.core.waiting import UNKNOWN, wait_code, waiting_device


def sweep(
    offsets: Ints, need: Ints, pair: Ids, turn: Ints, head: Ints, ready: Ints, waiter: Ints
) -> None:
    """Write the turn of each op in sweeps over the devices that take one ready op or pair of each.

    Sweep k reaches device d at turn k x devices + d. So an op's turn is the first of its device
    after the turns of the op before it and of the op ``need`` (-1 for none, -2 for one that no
    device runs). ``turn`` is ``UNKNOWN`` at first, and receives the turn of each op that can run;
    before that it may have the code of a device that waits for the op (:mod:`ppsim.core.waiting`).
    ``head`` has the start of each queue, and receives the first op that cannot run. ``ready`` is a
    stack of all devices; ``waiter`` receives the chain of devices that wait for an op.
    """
    devices = len(head)
    depth = devices
    while depth > 0:
        depth -= 1
        device = ready[depth]
        op = head[device]  # the next op to run, or the first of a pair
        stop = offsets[device + 1]
        now = turn[op - 1] + devices if op > offsets[device] else device
        awaited = -1
        after = op  # the op whose input is checked: ``op``, or the second one of its pair
        while after < stop:
            needed = need[after]
            if needed != -1:
                earliest = turn[needed] + 1 if needed >= 0 else 0
                if earliest <= 0:
                    awaited = needed
                    break
                if earliest > now:
                    now = earliest + (device - earliest) % devices
            after += 1
            if pair[after - 1] >= after:
                continue
            while op < after:
                entry = turn[op]
                turn[op] = now
                while entry < UNKNOWN:
                    woken = waiting_device(entry)
                    ready[depth] = woken
                    depth += 1
                    entry = waiter[woken]
                op += 1
            now += devices
        head[device] = op
        if awaited >= 0:
            waiter[device] = turn[awaited]
            turn[awaited] = wait_code(device)


def merge(
    offsets: Ints,  # of the queues
    local: NDArray[Any],  # key of each op, ascending in a queue
    sides: Ints,  # numbers of the sends and receives, in the order of issue
    device_of: Ids,  # the device of each send or receive
    when: NDArray[Any],  # the key of each send or receive
    head: Ints,  # start of each device's queue
    tail: Ints,  # start of each device's merged queue
    entry: Ints,  # receives the number of the op, send or receive at each place
) -> None:
    """Merge sends and receives into queues, each before the first op with at least its key."""
    for at in range(len(sides)):
        device = device_of[at]
        key = when[at]
        op = head[device]
        place = tail[device]
        stop = offsets[device + 1]
        while op < stop and local[op] < key:
            entry[place] = op
            place += 1
            op += 1
        entry[place] = sides[at]
        head[device] = op
        tail[device] = place + 1
    for device in range(len(head)):
        shift = tail[device] - head[device]
        for op in range(head[device], offsets[device + 1]):
            entry[shift + op] = op
