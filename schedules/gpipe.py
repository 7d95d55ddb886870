"""GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965)."""

from collections.abc import Iterator

from ppsim.core.builder import Queue, stream
from ppsim.core.ops import Packed
from ppsim.schedules.registry import ONE_CHUNK, Shape, schedule


@schedule(
    "gpipe",
    title="GPipe",
    torch="ScheduleGPipe",
    aliases=("F-then-B", "fill-drain"),
    idea="Every device runs the forwards of all microbatches, then all backwards.\n"
    "Simple, and the fewest switches between forward and backward.\n"
    "All activations are held when the first backward starts, so memory grows with M.",
    bubble="(P-1)(t_F + t_B)",
    peak="M on every device",
    paper="GPipe, arXiv 1811.06965",
    rules=(ONE_CHUNK,),
)
def gpipe(shape: Shape) -> Iterator[Packed]:
    """All forwards, then all backwards, both in the order of microbatches, as in torch.

    Makespan (M + P - 1)(t_F + t_B) + 2(P - 1) comm for equal stages; peak M activations on every
    device.
    """
    for device in range(shape.devices):
        order = stream(device, shape.microbatches)
        yield Queue(forward=order, backward=order).take_turns(shape.microbatches).build()
