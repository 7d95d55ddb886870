"""Vocabulary parallelism (Yeung et al., arXiv 2411.05288): embedding and output layer over all devices.

Every device holds a part of the vocabulary. For each microbatch it runs E, its part of the input embedding, S, its part
of the output layer, T, the backward of it, and D, the backward of the embedding; collectives between them are barriers.
T of a microbatch and S of the next run as one pass. Between two passes a device runs one forward and one backward, in
the order that leaves the passes of all devices closest together at the times of F and B. On V-Half the passes of all
devices are at the same time where all ops of stages are equally long. The orders are those of sail-sg's generators.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import place
from ppsim.schedules.registry import EVEN_DEVICES, ONE_CHUNK, TWO_CHUNKS, Rule, Shape, schedule
from ppsim.search.rules.blocks import block_of_passes, repeat

PAPER = "Vocabulary Parallelism, arXiv 2411.05288"
NONE, NEAR = -1, 1e-9
Op = tuple[Kind, int]  # a kind and its microbatch


@schedule(
    "vocab-1",
    title="1F1B, vocabulary over all devices, two barriers",
    aliases=("vocabulary-1", "synctwice"),
    idea="1F1B whose output layer is split over all devices, so that the last has no more to do than others.\n"
    "Each microbatch meets all devices twice: for the sums over the vocabulary, and for the gradient.\n"
    "Two microbatches more are held than in 1F1B.",
    bubble="(P-1)(t_F + t_B)  for t_B = 2t_F",
    peak="min(M, P + 2 - device)",
    paper=PAPER,
    rules=(ONE_CHUNK, Rule("M >= P + 2", lambda s: s.microbatches >= s.devices + 2)),
    uses_costs=True,
    interchangeable=False,
    lanes=True,
)
def vocab_1(shape: Shape, costs: Costs) -> Iterator[Packed]:
    """Algorithm 1: the gradient of the output layer's input waits for T."""
    yield from _in_passes(shape, costs, barriers=2)


@schedule(
    "vocab-2",
    title="1F1B, vocabulary over all devices, one barrier",
    aliases=("vocabulary-2", "vocab"),
    idea="1F1B whose output layer is split over all devices, so that the last has no more to do than others.\n"
    "Sums over the vocabulary and the gradient come of one barrier; T may wait.\n"
    "One microbatch more is held than in 1F1B.",
    bubble="(P-1)(t_F + t_B)  for t_B = 2t_F",
    peak="min(M, P + 1 - device)",
    paper=PAPER,
    rules=(ONE_CHUNK, Rule("M >= P + 2", lambda s: s.microbatches >= s.devices + 2)),
    uses_costs=True,
    interchangeable=False,
    lanes=True,
)
def vocab_2(shape: Shape, costs: Costs) -> Iterator[Packed]:
    """Algorithm 2: the gradient comes of S."""
    yield from _in_passes(shape, costs, barriers=1)


@schedule(
    "interlaced",
    title="Interlaced",
    aliases=("interlaced-1f1b",),
    idea="1F1B with the output layer over all devices in the style of tensor parallelism.\n"
    "All devices stop for it at the same time: broadcast, output layer and its backward in one go.\n"
    "Half as many microbatches again are held as in 1F1B.",
    bubble="(P-1)(t_F + t_B)  for t_F <= t_B",
    peak="min(M, P + floor(P/2) - device)",
    paper="Vocabulary Parallelism, arXiv 2411.05288, appendix; nnScaler's interlaced pipeline",
    rules=(ONE_CHUNK, Rule("M >= P + P / 2", lambda s: s.microbatches >= s.devices + s.devices // 2)),
    interchangeable=False,
    lanes=True,
)
def interlaced(shape: Shape) -> Iterator[Packed]:
    """Forwards come half a pass later on each device, backwards a whole pass."""
    P, M = shape.devices, shape.microbatches
    for device in range(P):
        ahead = P - device + P // 2
        queue = _warm_up(device, ahead, M)
        for step in range(M + P + 1):
            back, after = step - P - 1, step + P // 2 + 2
            queue += _of(range(step, step + 1), M, Kind.SHARE_S, Kind.S, Kind.T)
            queue += _of([back], M, Kind.SHARE_D)
            queue += _of([after] if step >= P - 1 else [], M, Kind.E, Kind.REDUCE_E)
            queue += _of([back], M, Kind.D)
            half = 2 * step + P - device + 1  # an even number of half passes: forward first
            forward = _of([half // 2] if half // 2 >= ahead else [], M, Kind.F)
            backward = _of([step - (P - 1 - device)], M, Kind.B)
            queue += backward + forward if half % 2 == 0 else forward + backward
        yield _pack(device, queue)


@schedule(
    "v-half-vocab-1",
    title="V-Half, vocabulary over all devices, two barriers",
    aliases=("v-half-vocabulary-1",),
    placement="v",
    chunks=2,
    split=True,
    idea="V-Half whose output layer is split over all devices: the first, which ends the V, has no more to do.\n"
    "Each microbatch meets all devices twice: its backward starts two intervals of the block later.\n"
    "Two microbatches more are held than in V-Half.",
    bubble="(7P/2 + 4) t_F/2  for M >= P/2 + 3 and t_F = t_I = t_W",
    peak="min(2M, M + 3 + floor((device+1)/2), P + 6) stage activations",
    paper=PAPER,
    rules=(
        TWO_CHUNKS,
        EVEN_DEVICES,
        Rule("M >= 3 and M >= P / 2 + 1", lambda s: s.microbatches >= max(3, s.devices // 2 + 1)),
    ),
    interchangeable=False,
    lanes=True,
)
def v_half_vocab_1(shape: Shape) -> Iterator[Packed]:
    """Algorithm 1 on V-Half's block."""
    yield from _on_v_half(shape, barriers=2)


@schedule(
    "v-half-vocab-2",
    title="V-Half, vocabulary over all devices, one barrier",
    aliases=("v-half-vocabulary-2", "v-half-vocab"),
    placement="v",
    chunks=2,
    split=True,
    idea="V-Half whose output layer is split over all devices: the first, which ends the V, has no more to do.\n"
    "Each microbatch meets all devices once: its backward starts one interval of the block later.\n"
    "One microbatch more is held than in V-Half.",
    bubble="(7P/2 + 1) t_F/2  for M >= P/2 + 2 and t_F = t_I = t_W",
    peak="min(2M, M + 2 + floor((device+1)/2), P + 4) stage activations",
    paper=PAPER,
    rules=(TWO_CHUNKS, EVEN_DEVICES, Rule("M >= 2", lambda s: s.microbatches >= 2)),
    interchangeable=False,
    lanes=True,
)
def v_half_vocab_2(shape: Shape) -> Iterator[Packed]:
    """Algorithm 2 on V-Half's block."""
    yield from _on_v_half(shape, barriers=1)


def _on_v_half(shape: Shape, barriers: int) -> Iterator[Packed]:
    """Put the passes between the ops of V-Half's repeated block, where they come when each op takes the same time."""
    P, M = shape.devices, shape.microbatches
    timeline = repeat(block_of_passes(place("v", P, 2 * P), 6, (2, 1, 2, 1), (1, 4 + 6 * barriers, 2)), M)
    ops = timeline.schedule
    end = {kind: np.zeros((2 * P, M)) for kind in (Kind.F, Kind.I)}
    for kind, ends in end.items():
        own = ops.kind == kind
        ends[ops.stage[own], ops.microbatch[own]] = timeline.end[own]
    when, of = zip(*_passes(end[Kind.F][-1], end[Kind.I][0, -1], P // 2, barriers), strict=True)
    passes = pack(NONE, np.array([m for _, m in of])) | np.array([kind for kind, _ in of])
    packed = pack(ops.stage, ops.microbatch) | ops.kind
    for queue in map(ops.queue, range(P)):
        yield np.insert(packed[queue], np.searchsorted(timeline.start[queue], when), passes)


def _passes(forwards: Iterable[float], backwards: float, half: int, barriers: int) -> Iterator[tuple[float, Op]]:
    """The ops that no stage runs, each with the time that ops of stages before it start sooner than.

    ``forwards``, shape (microbatches,), are when the last stage's forwards end, ``backwards`` when the first stage's
    last backward ends; ``half`` is half the devices, and the output layer's input's gradient takes ``barriers``
    collectives.
    """
    ends = list(forwards)
    M, ahead, late = len(ends), half + 1, half + 3
    two = [Kind.T, Kind.REDUCE_T][:barriers]
    yield from ((0.0, op) for op in _of(range(ahead), M, Kind.E, Kind.REDUCE_E))
    for m, end in enumerate(ends):
        yield from ((end, op) for op in _of([m - late], M, Kind.SHARE_D) + _of([m], M, Kind.SHARE_S))
        run = _of([m + ahead], M, Kind.E) + _of([m - 1], M, Kind.T) + _of([m], M, Kind.S) + _of([m - late], M, Kind.D)
        sums = _of([m], M, Kind.REDUCE_S) + _of([m + ahead], M, Kind.REDUCE_E) + _of([m - 1], M, *two[1:])
        yield from ((end + 2, op) for op in run + sums)
    yield from ((ends[-1] + 6, op) for op in _of([M - 1], M, *two))
    rest = _of(range(max(M - late, 0), M), M, Kind.SHARE_D, Kind.D)
    yield from ((backwards if op == (Kind.SHARE_D, 0) else np.inf, op) for op in rest)


def _in_passes(shape: Shape, costs: Costs, barriers: int) -> Iterator[Packed]:
    """Run pass by pass: T and S, the embeddings, then F and B with the next pass's broadcast between them."""
    P, M = shape.devices, shape.microbatches
    forward, backward = (float(costs.time[kind].mean()) for kind in (Kind.F, Kind.B))
    if not forward + backward:  # nothing that passes could wait for
        forward, backward = 1.0, 2.0
    hop = backward + float(np.mean(costs.comm))
    first = [_first_backward(P - 1 - device, hop, forward, forward + backward, barriers) for device in range(P)]
    start = first[0][0]
    for device, (own, is_first) in enumerate(first):
        queue = [*_warm_up(device, P - device, M), (Kind.SHARE_S, 0)]
        for step in range(M + start + 2):
            queue += _of([step - 1] if barriers == 2 or step < M else [], M, Kind.T) + _of([step], M, Kind.S)
            sums = _of([step], M, Kind.REDUCE_S) + _of([step - 1] if barriers == 2 else [], M, Kind.REDUCE_T)
            new, old = P + barriers + step - start, step - start - 2
            if step < barriers - 1:
                queue += sums + _of([P + 1 + step], M, Kind.E, Kind.REDUCE_E)
            elif step < start:
                queue += sums
            else:
                queue += _of([new], M, Kind.E) + _of([old], M, Kind.D) + _of([new], M, Kind.REDUCE_E) + sums
            count = P - device + step if step < barriers else P - device + barriers + step - own - (not is_first)
            runs = step < barriers or count >= P - device + barriers
            body = _of([count] if runs else [], M, Kind.F)
            gradients = _of([step - own], M, Kind.B)
            body = gradients + body if is_first else body + gradients
            split = int(bool(body) and (is_first or body[0][0] == Kind.F))
            broadcast = _of([old + 1] if step >= start else [], M, Kind.SHARE_D) + _of([step + 1], M, Kind.SHARE_S)
            queue += body[:split] + broadcast + body[split:]
        yield _pack(device, queue + _of([M - 1] if barriers == 1 else [], M, Kind.T))


def _first_backward(hops: int, hop: float, forward: float, period: float, barriers: int) -> tuple[int, bool]:
    """The pass behind which a device's first backward runs, and whether it runs backwards before forwards."""
    passes = int(hops * hop / period + NEAR)
    late = hops * hop - passes * period
    return barriers - 1 + (passes + 1 if hops else 0), bool(hops) and late < forward - NEAR


def _warm_up(device: int, forwards: int, microbatches: int) -> list[Op]:
    """The first forwards, each with the embedding that the first device needs by then."""
    queue = _of(range(device + 1), microbatches, Kind.E, Kind.REDUCE_E)
    for m in range(forwards):
        queue += _of([device + 1 + m], microbatches, Kind.E, Kind.REDUCE_E) + _of([m], microbatches, Kind.F)
    return queue


def _of(numbers: Iterable[int], microbatches: int, *kinds: Kind) -> list[Op]:
    """Ops of these kinds for each of the microbatches that exist."""
    return [(kind, m) for m in numbers if 0 <= m < microbatches for kind in kinds]


def _pack(device: int, queue: list[Op]) -> Packed:
    stages = [device if kind in (Kind.F, Kind.B) else NONE for kind, _ in queue]
    return pack(np.array(stages), np.array([m for _, m in queue])) | np.array([kind for kind, _ in queue])
