"""BPipe: 1F1B whose first devices keep activations on the last ones (Kim et al., ICML 2023; arXiv 2401.02088)."""

from collections.abc import Iterator

import numpy as np

from ppsim.core.ops import KIND_MASK, Kind, Packed, pack
from ppsim.schedules.one_f_one_b import one_f_one_b
from ppsim.schedules.registry import ONE_CHUNK, Shape, schedule


@schedule(
    "bpipe",
    title="BPipe",
    aliases=("memory-balanced-1f1b",),
    idea="1F1B in which device x sends activations to device P-1-x and has them back for their backward:\n"
    "early devices hold most, late ones least, and now all hold about as much.\n"
    "Costs a copy out under each backward and one in under each forward (--t-evict).",
    bubble="(P-1)(t_F + t_B)",
    peak="at most min(M, floor((P+3)/2))",
    paper="BPipe, ICML 2023; re-evaluated in arXiv 2401.02088",
    rules=(ONE_CHUNK,),
    interchangeable=False,
    lanes=True,
)
def bpipe(shape: Shape) -> Iterator[Packed]:
    """Peak at most ceil((P + 2) / 2), in 1F1B's makespan, where copies take at most t_F and t_B / 2.

    Device x keeps its oldest activations, one fewer than ceil((P + 2) / 2), beside the one that runs, leaves or comes.

    As it warms up it keeps one less yet, so that a forward may run while the one before leaves. A copy back is issued
    when a backward has freed its place, and the other device makes room when an earlier copy has gone back. What that
    device does for it is issued at once, each op to start when its turn comes.
    """
    P, M = shape.devices, shape.microbatches
    resident = (P + 1) // 2
    queues = list(one_f_one_b(shape))
    for device in range(P // 2):
        ahead = min(M, P - device)  # forwards before the first backward
        if ahead > resident + 1:
            queues[device] = _send_away(queues[device], device, resident, ahead, M)
            queues[P - 1 - device] = np.concatenate([_hold(device, resident, ahead, M), queues[P - 1 - device]])
    yield from queues


def _send_away(queue: Packed, device: int, resident: int, ahead: int, microbatches: int) -> Packed:
    """Add the copies of all but the first microbatches: out after their forward, back after an earlier backward."""
    forward, backward = (np.flatnonzero((queue & KIND_MASK) == kind) for kind in (Kind.F, Kind.B))
    cell = pack(device, np.arange(resident - 1, microbatches))
    out = forward[resident - 1 :]
    back = np.append(forward[ahead - 1], backward)[: len(cell)]
    at = np.concatenate([back, out]) + 1
    return np.insert(queue, at, np.concatenate([cell | Kind.LOAD, cell | Kind.EVICT]))


def _hold(device: int, resident: int, ahead: int, microbatches: int) -> Packed:
    """What the other device does for a device's copies: room for one is made when an earlier one has gone back."""
    microbatch = np.arange(resident - 1, microbatches)
    cell = pack(device, microbatch)
    turn = np.concatenate([2 * (microbatch - ahead) + 1, 2 * (microbatch - resident)])
    return np.concatenate([cell | Kind.ACCEPT, cell | Kind.RETURN])[np.argsort(turn)]
