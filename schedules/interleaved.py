"""Interleaved 1F1B and variants: fused pairs, zero bubble, a longer warm-up, smaller groups.

Narayanan et al., arXiv 2104.04473, section 2.2. A device has V stages and runs microbatches in
groups of N: all N through its first stage, then all N through its second, and so on; backwards
visit the stages in reverse.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ppsim.core.builder import B, F, Pair, Queue
from ppsim.core.ops import Packed, pack
from ppsim.errors import InputError
from ppsim.schedules.registry import ONE_CHUNK, Rule, Shape, schedule


def group_size(shape: Shape, fused: int = 0) -> int:
    """Return N as given, or by the rule in the options.

    Without either, it is the smallest N >= P that works with M, and M if M < P. For ``interleaved``
    this is torch's N for all shapes that torch supports; the fused form allows shorter last groups,
    as the original implementation does.
    """
    P, M = shape.devices, shape.microbatches
    if (rule := shape.options.get("rule")) not in (None, "torch", "megatron"):
        raise InputError(
            f"unknown rule '{rule}' of interleaved schedules", "one of torch, megatron"
        )
    if (given := shape.options.get("group_size")) is not None:
        return int(given)
    if shape.options.get("rule") == "torch":
        return M // max(1, M // P)
    if shape.options.get("rule") == "megatron":
        return P
    works = _finishes if fused else _megatron_supports
    return next((n for n in range(P, M) if works(shape, n, fused)), M)


def small_group_size(shape: Shape) -> int:
    """Return N of grouped interleaved: as given, or by default between 2P/3 and P.

    From 2P/3 on, no device waits in the steady state if t_B = 2 t_F. The default is the smallest of
    these N that divides M, or else the smallest of all.
    """
    if (given := shape.options.get("group_size")) is not None:
        return int(given)
    least = -(-2 * shape.devices // 3)
    return next((n for n in range(least, shape.devices + 1) if shape.microbatches % n == 0), least)


def _megatron_supports(shape: Shape, n: int, fused: int = 0) -> bool:
    """Return whether Megatron supports groups of n."""
    P, M = shape.devices, shape.microbatches
    return P <= n <= M and (M % n == 0 or M % n >= P)


def _finishes(shape: Shape, n: int, fused: int) -> bool:
    """Return whether groups of n do not deadlock.

    A short last group and the group before it must together span the pipeline.
    """
    P, M, rest = shape.devices, shape.microbatches, shape.microbatches % n
    return min(P, M) <= n <= M and (
        rest == 0 or n + rest >= 2 * P - 2 + fused or (rest == 1 and shape.chunks == 2)
    )


def _satisfies_torch(shape: Shape) -> bool:
    """Return whether the shape satisfies torch's rule, if that rule is chosen."""
    if shape.options.get("rule") != "torch":
        return True
    rounds = max(1, shape.microbatches // shape.devices)
    return shape.microbatches % rounds == 0 and group_size(shape) == shape.microbatches // rounds


def _satisfies_megatron(shape: Shape) -> bool:
    """Return whether the shape satisfies Megatron's rule, if that rule is chosen."""
    return shape.options.get("rule") != "megatron" or _megatron_supports(shape, group_size(shape))


SEVERAL_CHUNKS = Rule("at least two stages per device", lambda s: s.chunks >= 2)
TORCH = Rule(
    "with --rule torch: M divisible by max(1, M // P), and N = M / max(1, M // P)", _satisfies_torch
)
MEGATRON = Rule("with --rule megatron: P <= N <= M, and M mod N = 0 or >= P", _satisfies_megatron)
GROUPS = Rule(
    "min(P, M) <= N <= M, and M mod N = 0, or N + M mod N >= 2P - 2, or M mod N = 1 with V = 2",
    lambda s: _finishes(s, group_size(s), fused=0),
)
ANY_GROUPS = Rule(
    "min(P, M) <= N <= M",
    lambda s: min(s.devices, s.microbatches) <= group_size(s) <= s.microbatches,
)
SMALL_GROUPS = Rule(
    "P/2 <= N <= P",
    lambda s: s.devices <= 2 * small_group_size(s) and small_group_size(s) <= s.devices,
)
AS_MANY = Rule("at least P microbatches", lambda s: s.microbatches >= s.devices)
FUSED_GROUPS = Rule(
    "min(P, M) <= N <= M, and M mod N = 0, or N + M mod N >= 2P - 1, or M mod N = 1 with V = 2",
    lambda s: _finishes(s, group_size(s, fused=1), fused=1),
)


@schedule(
    "interleaved",
    title="Interleaved 1F1B",
    placement="loop",
    torch="ScheduleInterleaved1F1B",
    aliases=("1f1b-interleaved", "interleaved-1f1b", "vpp", "virtual-pipeline", "1f1b-interleave"),
    chunks=2,
    idea="Each device holds V smaller stages, so a microbatch passes every device V times.\n"
    "Filling the pipeline takes a V-th of the time, and so does the bubble.\n"
    "Pays with V times the messages and more activations in flight.",
    bubble="(P-1)(t_F + t_B)/V  for N | M, N >= P (the default N is P where P | M)",
    peak="min(VM, (V-1)N + 2(P-1-device) + 1) stage activations",
    paper="Megatron-LM, arXiv 2104.04473, section 2.2",
    rules=(SEVERAL_CHUNKS, TORCH, MEGATRON, GROUPS),
    options=("group_size", "rule"),
)
def interleaved(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of 2(P - 1 - device) + (V - 1) N forwards, clamped to VM.

    Makespan (MV + P - 1)(t_F + t_B)/V for N | M, N >= P, equal stages, no comm.
    """
    yield from _alternating_queues(shape, group_size(shape))


@schedule(
    "1f1b-overlap",
    title="1F1B with fused F&B",
    aliases=("1f1b-overlapped",),
    idea="Eager 1F1B with one more warm-up forward, so that each steady forward and backward\n"
    "belong to different microbatches and run as one fused pair.\n"
    "Hides communication inside the pair; costs twice the activations of 1F1B.",
    bubble="(P-1)(2 t_F&B - t_F - t_B)  for M >= 2P-1 and max(t_F, t_B) <= t_F&B <= t_F + t_B",
    peak="min(M, 2(P - device))",
    paper="Megatron-LM combined 1F1B (--overlap-moe-expert-parallel-comm)",
    rules=(ONE_CHUNK,),
)
def one_f_one_b_overlap(shape: Shape) -> Iterator[Packed]:
    """Warm-up of 2(P - 1 - device) + 1 forwards, clamped to M, then pairs of F and B.

    Makespan P(t_F + t_B) + (M - 1) t_F&B for t_F&B >= max(t_F, t_B); device 0 fuses least and is
    the busiest.
    """
    yield from _alternating_queues(shape, group_size(shape, fused=1), Pair(F, B), fused=1)


@schedule(
    "interleaved-overlap",
    title="Interleaved 1F1B with fused F&B",
    placement="loop",
    aliases=(
        "1f1b-interleaved-overlap",
        "1f1b-interleave-overlap",
        "interleaved-1f1b-overlap",
        "combined-1f1b",
    ),
    chunks=2,
    idea="Interleaved 1F1B with one more warm-up forward, so that each steady forward and\n"
    "backward belong to different microbatches and run as one fused pair.\n"
    "Expert-parallel all-to-all of one hides behind the compute of the other.",
    bubble="(P-1)(2 t_F&B - t_F - t_B)/V  for N | M, N >= P, M >= 2N and max(t_F, t_B) <= t_F&B <= "
    "t_F + t_B",
    peak="min(VM, (V-1)N + 2(P-1-device) + 2) stage activations",
    paper="Megatron-LM combined 1F1B (--overlap-moe-expert-parallel-comm)",
    rules=(SEVERAL_CHUNKS, TORCH, MEGATRON, FUSED_GROUPS),
    options=("group_size", "rule"),
)
def interleaved_overlap(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of 2(P - 1 - device) + (V - 1) N + 1 forwards, clamped to VM, then pairs of F and B.

    Makespan ((P + N(V-1))(t_F + t_B) + (MV - N(V-1) - 1) t_F&B)/V for N | M, N >= P, t_F&B >=
    max(t_F, t_B).
    """
    yield from _alternating_queues(shape, group_size(shape, fused=1), Pair(F, B), fused=1)


@schedule(
    "kimi",
    title="Kimi K2 interleaved",
    placement="loop",
    aliases=("kimi-k2", "interleaved-kimi"),
    chunks=2,
    idea="Interleaved 1F1B with one more warm-up forward, so that each forward and the backward\n"
    "after it are of microbatches that do not depend on each other.\n"
    "Expert-parallel all-to-all of one can hide behind the other; here the two run in turn.",
    bubble="(P-1)(t_F + t_B)/V  for N | M, N >= P and M >= 2N",
    peak="min(VM, (V-1)N + 2(P-1-device) + 2) stage activations",
    paper="Kimi K2, arXiv 2507.20534, section 2.4; jaxpp KimiK2",
    rules=(SEVERAL_CHUNKS, TORCH, MEGATRON, FUSED_GROUPS),
    options=("group_size", "rule"),
)
def kimi(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of 2(P - 1 - device) + (V - 1) N + 1 forwards, clamped to VM."""
    yield from _alternating_queues(shape, group_size(shape, fused=1), fused=1)


@schedule(
    "interleaved-zb",
    title="Interleaved zero bubble",
    placement="loop",
    torch="ScheduleInterleavedZeroBubble",
    aliases=("interleaved-zero-bubble", "interleaved-zb-1p", "zb-vpp"),
    chunks=2,
    split=True,
    idea="Interleaved 1F1B with the backward split: I passes the gradient on at once, W waits.\n"
    "The warm-up is half as steep, and device r holds its W back by r of them.\n"
    "A third of interleaved 1F1B's bubble at equal costs, with about its memory.",
    bubble="(P-1)(t_F + t_I - t_W)/V  for N | M, N >= P and t_W <= min(t_F, t_I)",
    peak="min(VM, (V-1)N + P) stage activations",
    paper="Zero Bubble Pipeline Parallelism, arXiv 2401.10241; torch's "
    "ScheduleInterleavedZeroBubble",
    rules=(TORCH, MEGATRON, ANY_GROUPS),
    options=("group_size", "rule"),
)
def interleaved_zb(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of P - 1 - device + (V - 1) N forwards, W delayed by ``device``; both at most VM.

    With V = 1 it is ZB-1P.
    """
    for device in range(shape.devices):
        q, warm_up = _queue(shape, device, group_size(shape), per_device=1)
        yield q.hold_weights(warm_up, device).build()


@schedule(
    "gis",
    title="Grouped interleaved",
    placement="loop",
    aliases=("grouped-interleaved", "group-interleaved", "group-interleaved-1f1b"),
    chunks=2,
    split=True,
    idea="Interleaved 1F1B in groups smaller than P, with a warm-up half as steep.\n"
    "A microbatch comes back for its next stage sooner, so fewer are alive at a time.\n"
    "About two thirds of interleaved 1F1B's activations, for a little more bubble.",
    bubble="((P-1)(t_F + t_I) + (V-1)((P-N) t_F + max(0, P t_I - N t_B)))/V"
    "  for N | M, M >= P, t_W <= t_F + t_I and P max(t_F, t_I) <= N(t_F + t_B)",
    peak="min(VM, (V-1)N + P - device) stage activations  for N | M",
    paper="PipeOffload, arXiv 2503.01328, section 3 (GIS)",
    rules=(SEVERAL_CHUNKS, SMALL_GROUPS),
    options=("group_size",),
)
def gis(shape: Shape, **_: object) -> Iterator[Packed]:
    """Warm-up of P - 1 - device + (V - 1) N forwards, then F, I and W in turn.

    So a gradient is sent before W runs. A short last group leaves the rest of its slots empty.
    """
    N, M = small_group_size(shape), shape.microbatches
    for device in range(shape.devices):
        whole = replace(shape, microbatches=-(-M // N) * N)
        q, warm_up = _queue(whole, device, N, per_device=1)
        yield q.hold_weights(warm_up, 0).build(microbatches=M)


@schedule(
    "vpp-balanced",
    title="Interleaved F-then-B, balanced",
    placement="loop",
    aliases=("VPPFhenBInBalancedMemory", "balanced-vpp", "interleaved-balanced"),
    chunks=2,
    idea="All microbatches go through a device's first stage, then all through the next, as in "
    "looped\n"
    "BFS, but the last stage runs as 1F1B: each backward starts as soon as it can.\n"
    "Paddle runs it for P <= M < 2P, where interleaved 1F1B would hold nearly all activations.",
    bubble="(P-1)(t_F + t_B)/V",
    peak="(V-1)M + P - device stage activations",
    paper="PaddlePaddle's VPPFhenBInBalancedMemory (pull request 70160)",
    rules=(SEVERAL_CHUNKS, AS_MANY),
)
def vpp_balanced(shape: Shape) -> Iterator[Packed]:
    """Warm-up of P - 1 - device + (V - 1) M forwards, with all microbatches in one group.

    Paddle also requires P > 2.
    """
    yield from _alternating_queues(shape, shape.microbatches, per_device=1)


def _alternating_queues(
    shape: Shape, group: int, *pattern: Pair, **warm_up: int
) -> Iterator[Packed]:
    """Yield queues in which F and B alternate after the warm-up of :func:`_queue`."""
    for device in range(shape.devices):
        q, forwards = _queue(shape, device, group, **warm_up)
        yield q.take_turns(forwards, *pattern).build()


def _queue(
    shape: Shape, device: int, group: int, fused: int = 0, per_device: int = 2
) -> tuple[Queue, int]:
    """Return an empty queue with its streams, and the number of warm-up forwards.

    The number may exceed the forwards of the device.
    """
    P, V, M, N = shape.devices, shape.chunks, shape.microbatches, group
    chunk, microbatch = _table(M, V, N)
    q = Queue(
        forward=pack(chunk * P + device, microbatch),
        backward=pack((V - 1 - chunk) * P + device, microbatch),
    )
    return q, per_device * (P - 1 - device) + (V - 1) * N + fused


def _table(microbatches: int, chunks: int, group: int) -> tuple[Packed, Packed]:
    """Return chunk and microbatch of a device's forwards: Megatron's schedule table."""
    step = np.arange(microbatches * chunks)
    first = step // (group * chunks) * group
    size = np.minimum(group, microbatches - first)
    chunk, place = np.divmod(step - first * chunks, size)
    return chunk, first + place
