"""Looped breadth-first: GPipe over several stages per device (Lamy-Poirier, arXiv 2211.05953)."""

from collections.abc import Iterator

import numpy as np

from ppsim.core.builder import Queue
from ppsim.core.ops import Packed, pack
from ppsim.schedules.registry import Shape, schedule


@schedule(
    "looped-bfs",
    title="Looped BFS",
    placement="loop",
    torch="ScheduleLoopedBFS",
    aliases=("breadth-first", "interleaved-gpipe"),
    chunks=2,
    idea="Each device holds V stages and runs all microbatches through one before the next.\n"
    "The bubble is a V-th of GPipe's, and each stage's gradients are done early, stage by stage.\n"
    "All activations are held when the first backward starts, as in GPipe.",
    bubble="(P-1)(t_F + t_B)/V  for M >= P",
    peak="VM stage activations",
    paper="Breadth-First Pipeline Parallelism, arXiv 2211.05953",
)
def looped_bfs(shape: Shape) -> Iterator[Packed]:
    """Forwards stage by stage in microbatch order; backwards in reverse order, as in torch."""
    chunk, microbatch = np.divmod(np.arange(shape.chunks * shape.microbatches), shape.microbatches)
    for device in range(shape.devices):
        order = pack(chunk * shape.devices + device, microbatch)
        yield Queue(forward=order, backward=order[::-1]).take_turns(len(order)).build()
