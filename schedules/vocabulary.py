"""Vocabulary parallelism (Yeung et al., arXiv 2411.05288): embedding and output layer split over
all devices.

Every device has a part of the vocabulary. For each microbatch it runs its part of the input
embedding (E), of the output layer (S), and of their backwards (D and T); collectives between them
are barriers. T of a microbatch and S of the next run as one pass. Between two passes a device runs
one forward and one backward, in the order with which the passes of all devices are closest
together at the times of F and B. A queue also states where its device posts messages (POST), and
where all its compute waits for a message or a collective (WAIT). On V-Half, the passes of all
devices coincide if all ops of stages take equally long. The orders follow sail-sg's generators.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed, pack
from ppsim.core.schedule import place
from ppsim.schedules.registry import EVEN_DEVICES, ONE_CHUNK, TWO_CHUNKS, Rule, Shape, schedule
from ppsim.search.rules.blocks import block_of_passes, repeat
from ppsim.search.rules.rows import Ints, Rows

PAPER = "Vocabulary Parallelism, arXiv 2411.05288"
NONE, NEAR = -1, 1e-9
Op = tuple[Kind, int]  # a kind and its microbatch


@schedule(
    "vocab-1",
    title="1F1B, vocabulary over all devices, two barriers",
    aliases=("vocabulary-1", "synctwice"),
    idea="1F1B with the output layer split over all devices, so that all have equal work.\n"
    "All devices meet twice for each microbatch: for sums over the vocabulary, and the gradient.\n"
    "Holds two microbatches more than 1F1B.",
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
    yield from _queues_by_pass(shape, costs, barriers=2)


@schedule(
    "vocab-2",
    title="1F1B, vocabulary over all devices, one barrier",
    aliases=("vocabulary-2", "vocab"),
    idea="1F1B with the output layer split over all devices, so that all have equal work.\n"
    "One barrier gives the sums over the vocabulary and the gradient; T may wait.\n"
    "Holds one microbatch more than 1F1B.",
    bubble="(P-1)(t_F + t_B)  for t_B = 2t_F",
    peak="min(M, P + 1 - device)",
    paper=PAPER,
    rules=(ONE_CHUNK, Rule("M >= P + 2", lambda s: s.microbatches >= s.devices + 2)),
    uses_costs=True,
    interchangeable=False,
    lanes=True,
)
def vocab_2(shape: Shape, costs: Costs) -> Iterator[Packed]:
    """Algorithm 2: S also computes the gradient of the output layer's input."""
    yield from _queues_by_pass(shape, costs, barriers=1)


@schedule(
    "interlaced",
    title="Interlaced",
    aliases=("interlaced-1f1b",),
    idea="1F1B with the output layer split over all devices as in tensor parallelism.\n"
    "All devices run it at the same time: broadcast, output layer and its backward in one go.\n"
    "Holds one and a half times as many microbatches as 1F1B.",
    bubble="(P-1)(t_F + t_B)  for t_F <= t_B",
    peak="min(M, P + floor(P/2) - device)",
    paper="Vocabulary Parallelism, arXiv 2411.05288, appendix; nnScaler's interlaced pipeline",
    rules=(
        ONE_CHUNK,
        Rule("M >= P + P / 2", lambda s: s.microbatches >= s.devices + s.devices // 2),
    ),
    interchangeable=False,
    lanes=True,
)
def interlaced(shape: Shape) -> Iterator[Packed]:
    """From device to device, forwards are half a pass later and backwards a whole pass."""
    P, M = shape.devices, shape.microbatches
    step = np.arange(M + P + 1)
    embed = step[step >= P - 1]
    old, new = step - P - 1, embed + P // 2 + 2
    for device in range(P):
        rows, ahead = Rows(device, P, M), P - device + P // 2
        _add_warm_up(rows, ahead, (Kind.E, Kind.REDUCE_E, Kind.WAIT_E))
        for kind in (Kind.SHARE_S, Kind.S, Kind.T):
            rows.add(kind, step, step)
        rows.add(Kind.SHARE_D, step, old)
        rows.add(Kind.E, embed, new)
        rows.add(Kind.REDUCE_E, embed, new)
        rows.add(Kind.D, step, old)
        rows.add(Kind.WAIT_E, embed, new)
        _add_half_passes(rows, step, ahead)
        yield rows.queue()


@schedule(
    "v-half-vocab-1",
    title="V-Half, vocabulary over all devices, two barriers",
    aliases=("v-half-vocabulary-1",),
    placement="v",
    chunks=2,
    split=True,
    idea="V-Half with the output layer split over all devices, not on the device that ends the V.\n"
    "All devices meet twice for each microbatch: its backward starts two intervals later.\n"
    "Holds two microbatches more than V-Half.",
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
    yield from _queues_on_v_half(shape, barriers=2)


@schedule(
    "v-half-vocab-2",
    title="V-Half, vocabulary over all devices, one barrier",
    aliases=("v-half-vocabulary-2", "v-half-vocab"),
    placement="v",
    chunks=2,
    split=True,
    idea="V-Half with the output layer split over all devices, not on the device that ends the V.\n"
    "All devices meet once for each microbatch: its backward starts one interval later.\n"
    "Holds one microbatch more than V-Half.",
    bubble="(7P/2 + 1) t_F/2  for M >= P/2 + 2 and t_F = t_I = t_W",
    peak="min(2M, M + 2 + floor((device+1)/2), P + 4) stage activations",
    paper=PAPER,
    rules=(TWO_CHUNKS, EVEN_DEVICES, Rule("M >= 2", lambda s: s.microbatches >= 2)),
    interchangeable=False,
    lanes=True,
)
def v_half_vocab_2(shape: Shape) -> Iterator[Packed]:
    """Algorithm 2 on V-Half's block."""
    yield from _queues_on_v_half(shape, barriers=1)


def _queues_on_v_half(shape: Shape, barriers: int) -> Iterator[Packed]:
    """Insert the passes between the ops of V-Half's repeated block.

    Their places are those at which they run if all ops take the same time.
    """
    P, M = shape.devices, shape.microbatches
    timeline = repeat(
        block_of_passes(place("v", P, 2 * P), 6, (2, 1, 2, 1), (1, 4 + 6 * barriers, 2)), M
    )
    ops = timeline.schedule
    end = {kind: np.zeros((2 * P, M)) for kind in (Kind.F, Kind.I)}
    for kind, ends in end.items():
        of_kind = ops.kind == kind
        ends[ops.stage[of_kind], ops.microbatch[of_kind]] = timeline.end[of_kind]
    times, pass_ops = zip(
        *_passes(end[Kind.F][-1], end[Kind.I][0, -1], P // 2, barriers), strict=True
    )
    passes = pack(NONE, np.array([m for _, m in pass_ops])) | np.array([k for k, _ in pass_ops])
    packed = pack(ops.stage, ops.microbatch) | ops.kind
    for queue in map(ops.queue, range(P)):
        yield np.insert(packed[queue], np.searchsorted(timeline.start[queue], times), passes)


def _passes(
    forwards: Iterable[float], backwards: float, half: int, barriers: int
) -> Iterator[tuple[float, Op]]:
    """Yield the ops of the vocabulary, each with the time at which it is inserted.

    Args:
        forwards: the ends of the last stage's forwards, shape (microbatches,).
        backwards: the end of the first stage's last backward.
        half: half the number of devices.
        barriers: the number of collectives for the gradient of the output layer's input.
    """
    ends = list(forwards)
    M, ahead, late = len(ends), half + 1, half + 3
    two = [Kind.T, Kind.REDUCE_T][:barriers]
    yield from ((0.0, op) for op in _ops_of(range(ahead), M, Kind.E, Kind.REDUCE_E))
    for m, end in enumerate(ends):
        yield from (
            (end, op) for op in _ops_of([m - late], M, Kind.SHARE_D) + _ops_of([m], M, Kind.SHARE_S)
        )
        run = (
            _ops_of([m + ahead], M, Kind.E)
            + _ops_of([m - 1], M, Kind.T)
            + _ops_of([m], M, Kind.S)
            + _ops_of([m - late], M, Kind.D)
        )
        sums = (
            _ops_of([m], M, Kind.REDUCE_S)
            + _ops_of([m + ahead], M, Kind.REDUCE_E)
            + _ops_of([m - 1], M, *two[1:])
        )
        yield from ((end + 2, op) for op in run + sums)
    yield from ((ends[-1] + 6, op) for op in _ops_of([M - 1], M, *two))
    rest = _ops_of(range(max(M - late, 0), M), M, Kind.SHARE_D, Kind.D)
    yield from ((backwards if op == (Kind.SHARE_D, 0) else np.inf, op) for op in rest)


def _queues_by_pass(shape: Shape, costs: Costs, barriers: int) -> Iterator[Packed]:
    """Yield queues that run T and S, the embeddings, then F and B, pass by pass.

    The broadcast of the next pass is between F and B.
    """
    P, M = shape.devices, shape.microbatches
    forward, backward = (float(costs.time[kind].mean()) for kind in (Kind.F, Kind.B))
    if not forward + backward:  # any times do, as passes never wait
        forward, backward = 1.0, 2.0
    hop = backward + float(np.mean(costs.comm))
    paces = [_pace(P - 1 - device, hop, forward, backward, barriers) for device in range(P)]
    for device, pace in enumerate(paces):
        rows = Rows(device, P, M)
        following = paces[min(device + 1, P - 1)]
        # with messages so slow that the next device runs its forward after the same pass, the two
        # devices would deadlock
        at_once = pace.backward_first and following.backward_first and pace.first > following.first
        _add_warm_up(rows, P - device, (Kind.E, Kind.REDUCE_E))
        _add_passes(rows, pace, paces[0].first, barriers, at_once)
        yield rows.queue()


class _Pace(NamedTuple):
    """The arrival of a device's gradients, counted in its passes."""

    first: int  # the pass after which its first backward runs
    backward_first: bool  # whether the backward between two passes precedes the forward
    late_sums: bool  # whether the sums of a pass are issued after the following forward


def _pace(hops: int, hop: float, forward: float, backward: float, barriers: int) -> _Pace:
    """Return the pace of the device that is ``hops`` devices before the last one.

    A gradient arrives ``hop`` later on each device, but at most a pass later: a device that delayed
    its forwards for longer would make the next device wait.
    """
    period = forward + backward
    hop = min(hop, period)
    passes = min(int(hops * hop / period + NEAR), max(hops - 1, 0))
    late = hops * hop - passes * period  # the time from a pass to the arrival of a gradient
    first = barriers - 1 + (passes + 1 if hops else 0)
    backward_first = bool(hops) and late < forward - NEAR
    return _Pace(
        first, backward_first, bool(hops) and not backward_first and late < backward - NEAR
    )


def _add_passes(rows: Rows, pace: _Pace, start: int, barriers: int, at_once: bool) -> None:
    """Add a device's passes and the ops between them, in order of issue.

    After the first ``barriers`` passes, only forwards run. ``start`` is the pass after which the
    first backward of the first device runs; embeddings are timed by it. Results of forwards are
    sent when the next op receives its input, or ``at_once``.
    """
    P, M, last = rows.devices, rows.microbatches, rows.is_last
    step = np.arange(M + start + 2)
    filling, early, embed = step[:barriers], step[: barriers - 1], step[start:]
    new, old = embed + P + barriers - start, embed - start - 2
    _add_pass(rows, step if barriers == 2 else step[:M])
    _add_sums(rows, early if last else filling, barriers)
    rows.add(Kind.E, early, early + P + 1)
    rows.add(Kind.REDUCE_E, early, early + P + 1)
    rows.add(Kind.E, embed, new)
    rows.add(Kind.D, embed, old)
    if not last:
        rows.add_sends(Kind.F, filling)
        rows.add_input(Kind.F, filling, filling + P - rows.device)
        rows.add(Kind.F, filling, filling + P - rows.device)
        rows.add_sends(Kind.F, filling if at_once else filling[:0])

    turns, ahead = (step, 1) if last else (step[barriers:], P - rows.device + barriers)
    forward = turns + P - rows.device + barriers - pace.first - (not pace.backward_first)
    backward = turns - pace.first
    runs = {Kind.F: forward >= ahead, Kind.B: (backward >= 0) & (backward < M)}
    number = {Kind.F: forward, Kind.B: backward}
    # results of F are sent when the next B receives its input
    sends = {Kind.F: turns[runs[Kind.B]], Kind.B: turns}
    first, second = (Kind.B, Kind.F) if pace.backward_first else (Kind.F, Kind.B)

    def add_messages(ahead_of: Kind, of: Kind) -> None:
        rows.add_sends(of, sends[of])
        rows.add_input(ahead_of, turns[runs[ahead_of]], number[ahead_of][runs[ahead_of]])

    def add_collectives() -> None:
        rows.add(Kind.REDUCE_E, embed, new)
        _add_sums(rows, step[barriers - last :], barriers)

    if last:
        add_collectives()
    add_messages(first, second)
    if not last and not pace.late_sums:
        add_collectives()
    rows.add(first, turns[runs[first]], number[first][runs[first]])
    add_messages(second, first)
    if pace.late_sums:
        add_collectives()
    rows.add(Kind.SHARE_D, embed, old + 1)
    if last:
        rows.add(Kind.L, step, step)
    rows.add(Kind.SHARE_S, np.arange(M) - 1, np.arange(M))
    end = np.array([M - 1 if barriers == 2 else len(step)])
    rows.add(Kind.SHARE_T, end, np.array([M - 1]))
    rows.add(second, turns[runs[second]], number[second][runs[second]])
    rows.add_sends(Kind.F, turns if at_once else turns[:0])
    if barriers == 1:
        if not last:
            rows.add(Kind.WAIT_T, end, np.array([M - 1]))
        rows.add(Kind.T, end, np.array([M - 1]))


def _add_pass(rows: Rows, step: Ints) -> None:
    """Add T and S of each step, which are of two microbatches.

    All devices but the last first wait for the broadcast.
    """
    if not rows.is_last:
        rows.add(Kind.WAIT_T, step, step - 1)
    rows.add(Kind.T, step, step - 1)
    rows.add(Kind.S, step, step)


def _add_sums(rows: Rows, step: Ints, barriers: int) -> None:
    """Add the collectives after the pass of each step: sums over the vocabulary and of a gradient.

    With two barriers the gradient is that of the previous microbatch, with one that of the same.
    """
    for kind in (Kind.MAX_S, Kind.SUM_S, Kind.GRAD_S, Kind.REDUCE_S):
        if kind != Kind.GRAD_S or barriers == 1:
            rows.add(kind, step, step)
    if barriers == 2:
        rows.add(Kind.REDUCE_T, step, step - 1)


def _add_half_passes(rows: Rows, step: Ints, ahead: int) -> None:
    """Add F and B of ``interlaced`` after each pass; ``ahead`` forwards have run before."""
    M, P = rows.microbatches, rows.devices
    halves = 2 * step + P - rows.device + 1
    forward, backward = halves // 2, step - (P - 1 - rows.device)
    begun = forward >= ahead
    runs = begun & (forward < M)
    returns = (backward >= 0) & (backward < M)
    if (P - rows.device) % 2:  # an even number of half passes: backward first
        rows.add_sends(Kind.B, step)
        rows.add_sends(Kind.F, step[runs | (forward >= M)])
        rows.add_input(Kind.B, step, backward)
        rows.add(Kind.B, step, backward)
        if rows.device:
            rows.add_input(Kind.F, step[begun], forward[begun])
        rows.add(Kind.F, step[begun], forward[begun])
    else:
        rows.add_sends(Kind.B, step[~begun])
        rows.add_input(Kind.B, step, backward)
        rows.add_sends(Kind.B, step[begun])
        if rows.device:
            rows.add_input(Kind.F, step[begun], forward[begun])
        rows.add(Kind.F, step[begun], forward[begun])
        rows.add_sends(Kind.F, step[runs | ((forward + 1 >= ahead) & returns)])
        rows.add(Kind.B, step, backward)


def _add_warm_up(rows: Rows, forwards: int, embedding: tuple[Kind, ...]) -> None:
    """Add the first forwards, each after the embedding that the first device needs by then."""
    first = np.arange(rows.device + 1)
    forward = np.arange(forwards)
    step = forward - forwards - 1  # ahead of the first broadcast, whose step is -1
    for kind in embedding:
        rows.add(kind, first - len(first) - forwards - 1, first)
    rows.add_sends(Kind.F, step)
    if rows.device or Kind.WAIT_E not in embedding:
        rows.add_input(Kind.F, step, forward)
    for kind in embedding:
        rows.add(kind, step, forward + len(first))
    rows.add(Kind.F, step, forward)


def _ops_of(numbers: Iterable[int], microbatches: int, *kinds: Kind) -> list[Op]:
    """Return ops of these kinds for those of the microbatches that exist."""
    return [(kind, m) for m in numbers if 0 <= m < microbatches for kind in kinds]
