"""DualPipe and DualPipe-V: two opposite streams of microbatches, with forward-backward pairs.

DeepSeek-V3 technical report, arXiv 2412.19437, section 3.2.1, and the authors' published code.
"""

from collections.abc import Iterator

from ppsim.core.builder import Pair, Queue, Step, W, stream
from ppsim.core.ops import Kind, Packed
from ppsim.schedules.registry import (
    EVEN_DEVICES,
    EVEN_MICROBATCHES,
    ONE_CHUNK,
    TWO_CHUNKS,
    Rule,
    Shape,
    schedule,
)

TWICE_DEVICES = Rule("at least 2P microbatches", lambda s: s.microbatches >= 2 * s.devices)

F0, F1 = Step(Kind.F, "forward0"), Step(Kind.F, "forward1")
B0, B1 = Step(Kind.B, "backward0"), Step(Kind.B, "backward1")
I0, I1 = Step(Kind.I, "backward0"), Step(Kind.I, "backward1")


@schedule(
    "dualpipe",
    title="DualPipe",
    placement="bidirectional",
    aliases=("dual-pipe",),
    split=True,
    idea="Microbatches enter at both ends; each device holds stage s of one replica and P-1-s of\n"
    "the other, and runs a forward of one stream fused with a backward of the other.\n"
    "Few bubbles and hidden communication, for two copies of the parameters.",
    bubble="longest idle (P/2 - 1)(t_F&B + t_B - 3 t_W)  for t_W <= t_F = t_I, t_B <= t_F&B <= t_F "
    "+ t_B",
    peak="P + 1",
    paper="DeepSeek-V3, arXiv 2412.19437, section 3.2.1",
    rules=(ONE_CHUNK, EVEN_DEVICES, EVEN_MICROBATCHES, TWICE_DEVICES),
)
def dualpipe(shape: Shape) -> Iterator[Packed]:
    """Microbatches 0..M/2-1 run stage s on device s, the others on device P-1-s.

    The bubble is that of the devices with the most pairs; it is makespan - ideal if t_F&B = t_F +
    t_B.
    """
    P, half = shape.devices, shape.microbatches // 2
    for device in range(P):
        mirror = P - 1 - device
        near, far = (
            ((device, 0), (mirror, half))
            if device < P // 2
            else ((device, 0), (mirror, half))[::-1]
        )
        streams = stream(near[0], half, near[1]), stream(far[0], half, far[1])
        yield _queue(P // 2, min(device, mirror), half, *streams)


@schedule(
    "dualpipe-v",
    title="DualPipe-V",
    placement="v",
    torch="ScheduleDualPipeV",
    aliases=("dual-pipe-v", "cut-in-half"),
    chunks=2,
    split=True,
    idea="DualPipe cut in half: the model folds in a V, device r holds stages r and 2P-1-r,\n"
    "and runs a forward on one leg of the V fused with a backward on the other.\n"
    "DualPipe's bubble with half the devices and one copy of the parameters.",
    bubble="longest idle (P - 1)(t_F&B + t_B - 3 t_W)/2  for t_W <= t_F = t_I, t_B <= t_F&B <= t_F "
    "+ t_B",
    peak="2P + 1 stage activations",
    paper="DualPipe's authors' code, github.com/deepseek-ai/DualPipe; Sea AI Lab's cut-in-half",
    rules=(TWO_CHUNKS, TWICE_DEVICES),
)
def dualpipe_v(shape: Shape) -> Iterator[Packed]:
    """Stage r on the way in, 2P - 1 - r on the way back."""
    P, M = shape.devices, shape.microbatches
    for device in range(P):
        yield _queue(P, device, M, stream(device, M), stream(2 * P - 1 - device, M))


def _queue(half: int, device: int, microbatches: int, near: Packed, far: Packed) -> Packed:
    """Return a queue of eight phases.

    ``device`` is the distance from the entry of stream 0, and ``half`` that from entry to turn.
    """
    q = Queue(forward0=near, backward0=near, forward1=far, backward1=far)
    to_turn, from_entry = half - device - 1, device + 1
    # 1: F0, until the first microbatch comes back
    q.repeat(2 * to_turn, F0)
    # 2: F0 F1
    q.repeat(from_entry, F0, F1)
    # 3: I1 W1 F1, splitting the backward to fill the bubble
    q.repeat(to_turn, I1, W, F1)
    # 4: the main phase; at the turn the first F0 and B1 depend on each other and cannot fuse
    fused = microbatches - 2 * half + from_entry
    if to_turn == 0:
        q.repeat(1, F0, B1, Pair(F1, B0))
        fused -= 1
    q.repeat(fused, Pair(F0, B1), Pair(F1, B0))
    # 5: B1 F1&B0, stream 0 has no forwards left
    q.repeat(to_turn, B1, Pair(F1, B0))
    # 6: B1 B0, the second half split again
    q.repeat(from_entry // 2, B1, B0)
    q.repeat(from_entry % 2, B1, I0)
    q.repeat(from_entry // 2, I1, I0)
    # 7: W I0
    q.repeat(to_turn, W, I0)
    # 8: the remaining W
    q.repeat(from_entry, W)
    return q.build()
