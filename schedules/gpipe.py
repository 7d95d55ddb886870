"""GPipe: all forwards, then all backwards (Huang et al., arXiv 1811.06965); and forwards alone, for inference."""

from collections.abc import Iterator

from ppsim.core.builder import F, Queue, stream
from ppsim.core.ops import Packed
from ppsim.schedules.registry import ONE_CHUNK, Rule, Shape, schedule

ONE_STAGE = Rule("one stage per device (several: a file of queues, such as csv)", ONE_CHUNK.holds)


@schedule(
    "gpipe",
    title="GPipe",
    torch="ScheduleGPipe",
    aliases=("F-then-B", "fill-drain"),
    idea="Every device runs the forwards of all microbatches, then all backwards.\n"
    "Simple, and the fewest switches between forward and backward.\n"
    "Every activation is alive at the turn, so memory grows with M.",
    bubble="(P-1)(t_F + t_B)",
    peak="M on every device",
    paper="GPipe, arXiv 1811.06965",
    rules=(ONE_CHUNK,),
)
def gpipe(shape: Shape) -> Iterator[Packed]:
    """Backwards in microbatch order, as torch runs them.

    Makespan (M + P - 1)(t_F + t_B) for equal stages, + 2(P - 1) comm; peak M activations on every device.
    """
    for device in range(shape.devices):
        order = stream(device, shape.microbatches)
        yield Queue(forward=order, backward=order).take_turns(shape.microbatches).build()


@schedule(
    "forward-only",
    title="Forward only",
    aliases=("inference", "forward-only-pipeline"),
    idea="Every device runs the forwards of all microbatches and nothing else: inference, or\n"
    "the evaluation between training steps.\n"
    "Nothing is kept for a backward, so no activations are counted.",
    bubble="(P-1) t_F",
    peak="0",
    paper="torch's _ScheduleForwardOnly; nnscaler's sched_infer_pipe",
    rules=(ONE_STAGE,),
    interchangeable=False,
)
def forward_only(shape: Shape) -> Iterator[Packed]:
    """Makespan (M + P - 1) t_F for equal stages, + (P - 1) comm."""
    for device in range(shape.devices):
        q = Queue(forward=stream(device, shape.microbatches))
        q.repeat(shape.microbatches, F)
        yield q.build()
