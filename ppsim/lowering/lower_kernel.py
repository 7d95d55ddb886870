"""The passes of lowering that go op by op: the turns that torch takes ops in, and the place of messages among ops.

Plain Python over indexable sequences, so that numba can compile the same source.
"""

from __future__ import annotations

from typing import Any


def sweep(offsets: Any, need: Any, pair: Any, turn: Any, head: Any, ready: Any, waiter: Any) -> None:
    """When sweeps over the devices, lowest first, take each op; a sweep takes one ready op, or pair, of each device.

    Sweep k comes to device d at turn k x devices + d. So an op's turn is the first of its device behind those of the
    op before and of the op it needs, in whatever order these become known.

    Args:
        offsets: of the queues.
        need: the op that each op needs, -1 for none, -2 for one that nobody runs.
        pair: its partner.
        turn: -1 everywhere; receives the turn of each op that can run. Until then it is -2 - d where device d waits
            for the op, and ``waiter`` chains those that wait for the same.
        head: where each queue begins; receives where it stands.
        ready: a stack of all devices.
        waiter: room for one number for each device.
    """
    devices = len(head)
    depth = devices
    while depth > 0:
        depth -= 1
        d = ready[depth]
        i = head[d]
        stop = offsets[d + 1]
        now = turn[i - 1] + devices if i > offsets[d] else d
        awaited = -1
        op = i
        while op < stop:
            needed = need[op]
            if needed != -1:
                behind = turn[needed] + 1 if needed >= 0 else 0
                if behind <= 0:
                    awaited = needed
                    break
                if behind > now:
                    now = behind + (d - behind) % devices
            op += 1
            if pair[op - 1] >= op:
                continue
            while i < op:
                waiting = -2 - turn[i]
                turn[i] = now
                while waiting >= 0:
                    ready[depth] = waiting
                    depth += 1
                    waiting = waiter[waiting]
                i += 1
            now += devices
        head[d] = i
        if awaited >= 0:
            waiter[d] = -2 - turn[awaited]
            turn[awaited] = -2 - d


def merge(offsets: Any, local: Any, sides: Any, device: Any, when: Any, head: Any, tail: Any, entry: Any) -> None:
    """Put sends and receives among the ops of their devices: each ahead of the first op with a key not below its own.

    Args:
        offsets: of the queues.
        local: key of each op, never less than that of the op before on its device.
        sides: numbers of the sends and receives, in the order they are issued.
        device: of each of them.
        when: its key.
        head: where each device's queue begins.
        tail: where it begins with the messages in it.
        entry: receives who stands where: the number of an op, or of a send or receive.
    """
    for at in range(len(sides)):
        d = device[at]
        key = when[at]
        i = head[d]
        place = tail[d]
        stop = offsets[d + 1]
        while i < stop and local[i] < key:
            entry[place] = i
            place += 1
            i += 1
        entry[place] = sides[at]
        head[d] = i
        tail[d] = place + 1
    for d in range(len(head)):
        place = tail[d] - head[d]
        for i in range(head[d], offsets[d + 1]):
            entry[place + i] = i
