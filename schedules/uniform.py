"""PipeOffload's uniform repeating schedule (Wan et al., arXiv 2503.01328).

Activations live long enough to be copied to the host and back.
"""

from collections.abc import Iterator

import numpy as np

from ppsim.core.ops import Kind, Packed, pack
from ppsim.schedules.registry import Shape, schedule


@schedule(
    "uniform",
    title="Uniform repeating",
    aliases=("pipeoffload", "uniform-repeating", "po"),
    idea="Every microbatch runs by one pattern, repeated at equal intervals: no groups.\n"
    "An activation lives for a whole trip through the pipeline, which leaves time for copies.\n"
    "With every chunk copied to the host (--offload all) a device holds few, whatever P.",
    bubble="(P-1)(t_F + t_I) - (V-1)(2floor((P+1)/4) + 1) t_W/2  for V <= 2, P >= 4, M >= P and "
    "t_W <= t_F = t_I",
    peak="2floor((P+1)/4) + 1 + P - device stage activations  for V = 2 and M >= 2P",
    paper="PipeOffload, arXiv 2503.01328; zero-bubble-pipeline-parallelism with group size 1",
    placement="loop",
    chunks=2,
    split=True,
)
def uniform(shape: Shape) -> Iterator[Packed]:
    """Merge forwards and backwards by their slots, each W directly after its I.

    Every V slots a microbatch starts. The slot of a chunk's forward is the first free one (modulo
    V) at least P / 2 slots after the chunk before. On the last device, the first backward runs
    right after the forward of the last chunk, and one slot later on each device before. Slots of
    microbatches that do not exist stay empty.
    """
    P, V = shape.devices, shape.chunks
    slots = [0]
    while len(slots) < V:
        slot = slots[-1] + -(-P // 2)
        while slot % V in {other % V for other in slots}:
            slot += 1
        slots.append(slot)
    chunk, microbatch = np.divmod(np.arange(V * shape.microbatches), shape.microbatches)
    slot = V * microbatch + np.array(slots)[chunk]
    for device in range(P):
        back = slot + slots[-1] + P - 1 - device
        forward, backward = (pack(of * P + device, microbatch) for of in (chunk, V - 1 - chunk))
        order = np.argsort(np.concatenate([3 * slot, 3 * back + 1, 3 * back + 2]))
        yield np.concatenate([forward | Kind.F, backward | Kind.I, backward | Kind.W])[order]
