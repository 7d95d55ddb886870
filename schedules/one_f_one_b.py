"""1F1B and variants: after a warm-up, forwards and backwards alternate (arXiv 2104.04473)."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ppsim.core.builder import Queue, stream
from ppsim.core.ops import Kind, Packed, pack
from ppsim.schedules.registry import ONE_CHUNK, Rule, Shape, schedule


@schedule(
    "1f1b",
    title="1F1B",
    torch="Schedule1F1B",
    aliases=("PipeDream-Flush", "one-f-one-b", "non-interleaved"),
    idea="A device warms up with as many forwards as there are devices after it, then alternates\n"
    "one forward and one backward, then drains.\n"
    "Same bubble as GPipe, but at most P activations instead of M.",
    bubble="(P-1)(t_F + t_B)",
    peak="min(M, P - device)",
    paper="Megatron-LM, arXiv 2104.04473; PipeDream-Flush, arXiv 2006.09503",
    rules=(ONE_CHUNK,),
)
def one_f_one_b(shape: Shape) -> Iterator[Packed]:
    """Warm-up of P - 1 - device forwards, clamped to M.

    Makespan (M + P - 1)(t_F + t_B) + 2 comm (P - 1 + floor((M - 1)(P - 1)/P)) for equal stages: the
    steady state waits for messages, too. Peak min(M, P - device) activations.
    """
    for device in range(shape.devices):
        yield _queue(device, shape.microbatches, warm_up=shape.devices - device - 1)


@schedule(
    "eager-1f1b",
    title="Eager 1F1B",
    aliases=("1f1b-eager",),
    idea="1F1B with twice the warm-up: two forwards in flight for each device that follows.\n"
    "The steady state no longer waits for messages: they travel while the device computes.\n"
    "Costs up to twice the activations of 1F1B.",
    bubble="(P-1)(t_F + t_B)",
    peak="min(M, 2(P - device) - 1)",
    paper="Alpa's overlap-friendly 1F1B, arXiv 2211.05322; jaxpp Eager1F1B",
    rules=(ONE_CHUNK,),
)
def eager_one_f_one_b(shape: Shape) -> Iterator[Packed]:
    """Warm-up of 2(P - 1 - device) forwards, clamped to M.

    Makespan (M + P - 1)(t_F + t_B) + 2(P - 1) comm if 2 comm <= t_F + t_B; peak
    min(M, 2(P - device) - 1).
    """
    for device in range(shape.devices):
        yield _queue(device, shape.microbatches, warm_up=2 * (shape.devices - device - 1))


@schedule(
    "pipedream-2bw",
    title="PipeDream-2BW",
    aliases=("2bw", "pipedream", "asynchronous-1f1b"),
    idea="1F1B that is never drained: forwards of the next optimizer step run where 1F1B drains, "
    "so the\n"
    "period of M microbatches has no bubble. A reference, as it is not the same training: "
    "gradients\n"
    "are of weights one step old, and every device holds two versions of its weights.",
    bubble="(P-1)(t_F + t_B)",
    peak="min(M, P - device)",
    paper="PipeDream-2BW, arXiv 2006.09503",
    rules=(ONE_CHUNK,),
    interchangeable=False,
    flushes=False,
    counts="M counts the microbatches of one optimizer step, and no step ends in a flush: period "
    "and rate are for steady state, makespan and idle shares for the steps shown (--steps), with "
    "one fill and drain",
)
def pipedream_2bw(shape: Shape) -> Iterator[Packed]:
    """Queues of 1F1B, for one step.

    The period is M (t_F + t_B) for equal stages without messages and M >= P. The second version of
    the weights is not counted as activations.
    """
    yield from one_f_one_b(shape)


@schedule(
    "bpipe",
    title="BPipe",
    aliases=("memory-balanced-1f1b",),
    idea="1F1B in which device x sends activations to device P-1-x and gets them back for their\n"
    "backward: in 1F1B early devices hold most and late ones least; here all hold about as much.\n"
    "Costs a copy out under each backward and one in under each forward (--t-evict).",
    bubble="(P-1)(t_F + t_B)",
    peak="at most min(M, floor((P+3)/2))",
    paper="BPipe, Kim et al., ICML 2023; re-evaluated in arXiv 2401.02088",
    rules=(ONE_CHUNK,),
    interchangeable=False,
    lanes=True,
)
def bpipe(shape: Shape) -> Iterator[Packed]:
    """1F1B's makespan with a peak of ceil((P + 2) / 2) or less, if copies take <= t_F and t_B / 2.

    Device x keeps its ceil((P + 2) / 2) - 1 oldest activations, and one more that is computed,
    copied out or copied back. During the warm-up it keeps one fewer, so that a forward can run
    while the previous activation is copied out. A copy back is issued once a backward has freed its
    place; the other device accepts an activation once an earlier one has been copied back. The ops
    of the other device are issued at the start of its queue, and each waits for its turn.
    """
    P, M = shape.devices, shape.microbatches
    resident = (P + 1) // 2
    queues = list(one_f_one_b(shape))
    for device in range(P // 2):
        ahead = min(M, P - device)  # forwards before the first backward
        if ahead > resident + 1:
            queues[device] = _send_away(queues[device], device, resident, ahead, M)
            queues[P - 1 - device] = np.concatenate(
                [_copies_queue(device, resident, ahead, M), queues[P - 1 - device]]
            )
    yield from queues


@schedule(
    "1f1b-plus",
    title="1F1B+",
    aliases=("nnscaler-1f1b-plus",),
    idea="1F1B of a model with parts that run on all devices at once (GF, GB): the embedding, or\n"
    "parts before any stage (--everywhere 0,4). A part's forward runs directly before the forward\n"
    "of its stage, and its backward directly after the backward of its stage.",
    bubble="(P-1)(t_F + t_B) + (M-1)(max(t_F, t_B) - min(t_F, t_B))  for P >= 2 (the parts take no "
    "time)",
    peak="min(M, P - device)",
    paper="nnScaler, OSDI 24; sched_1f1b_plus of its repository",
    rules=(
        ONE_CHUNK,
        Rule(
            "--everywhere to name stages, each once",
            lambda s: (
                {*(e := s.options.get("everywhere", ()))} <= {*range(s.stages)}
                and len({*e}) == len(e)
            ),
        ),
    ),
    options=("everywhere",),
    interchangeable=False,
    lanes=True,
)
def one_f_one_b_plus(shape: Shape, everywhere: Sequence[int] = (0,)) -> Iterator[Packed]:
    """1F1B in steps common to all devices, with the parts on all devices between the steps.

    Stage s runs F of microbatch m in step s + 2m, and B in step 2m + 2P - 1 - s. Between two steps,
    backwards of parts come first, latest microbatch first, then forwards, earliest microbatch
    first.
    """
    P, m = shape.devices, np.arange(shape.microbatches)
    parts = []
    for stage in everywhere:
        forward = np.zeros_like(m), m, pack(stage, m) | Kind.GF
        backward = np.full_like(m, 2), -m, pack(stage, m) | Kind.GB
        parts += [(stage + 2 * m, *forward), (2 * m + 2 * P - 1 - stage, *backward)]
    for device in range(P):
        rows = [
            (2 * m + step, np.ones_like(m), m, pack(device, m) | kind)
            for step, kind in ((device, Kind.F), (2 * P - 1 - device, Kind.B))
        ]
        step, slot, turn, op = (
            np.concatenate(column) for column in zip(*rows, *parts, strict=True)
        )
        yield op[np.lexsort((turn, slot, step))]


def _queue(device: int, microbatches: int, warm_up: int) -> Packed:
    """Return the queue of a device with this many warm-up forwards."""
    return _order(microbatches, min(warm_up, microbatches)) + pack(device, 0)


@lru_cache(maxsize=1)  # with many devices, most have the same warm-up
def _order(microbatches: int, warm_up: int) -> Packed:
    order = stream(0, microbatches)
    return Queue(forward=order, backward=order).take_turns(warm_up).build()


def _send_away(queue: Packed, device: int, resident: int, ahead: int, microbatches: int) -> Packed:
    """Return the queue with copies of all but the first microbatches.

    A copy out follows the microbatch's forward, and a copy back follows an earlier backward.
    """
    ops = pack(device, np.arange(microbatches))
    forward, backward = (np.flatnonzero(np.isin(queue, ops | kind)) for kind in (Kind.F, Kind.B))
    cell = pack(device, np.arange(resident - 1, microbatches))
    out = forward[resident - 1 :]
    back = np.append(forward[ahead - 1], backward)[: len(cell)]
    at = np.concatenate([back, out]) + 1
    return np.insert(queue, at, np.concatenate([cell | Kind.LOAD, cell | Kind.EVICT]))


def _copies_queue(device: int, resident: int, ahead: int, microbatches: int) -> Packed:
    """Return the copies that a device accepts from another device and returns.

    It accepts one after an earlier one has been returned.
    """
    microbatch = np.arange(resident - 1, microbatches)
    cell = pack(device, microbatch)
    turn = np.concatenate([2 * (microbatch - ahead) + 1, 2 * (microbatch - resident)])
    return np.concatenate([cell | Kind.ACCEPT, cell | Kind.RETURN])[np.argsort(turn)]
