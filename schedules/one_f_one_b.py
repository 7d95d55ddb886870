"""1F1B and its eager form: one forward, one backward, after a warm-up (Narayanan et al., arXiv 2104.04473)."""

from collections.abc import Iterator
from functools import lru_cache

from ppsim.core.builder import B, F, Queue, stream
from ppsim.core.ops import Packed, pack
from ppsim.schedules.registry import ONE_CHUNK, Shape, schedule


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

    Makespan (M + P - 1)(t_F + t_B) for equal stages, + 2 comm (P - 1 + floor((M - 1)(P - 1)/P)): the steady state
    waits for messages too. Peak min(M, P - device) activations.
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

    Makespan (M + P - 1)(t_F + t_B) + 2(P - 1) comm as long as 2 comm <= t_F + t_B; peak min(M, 2(P - device) - 1).
    """
    for device in range(shape.devices):
        yield _queue(device, shape.microbatches, warm_up=2 * (shape.devices - device - 1))


@schedule(
    "pipedream-2bw",
    title="PipeDream-2BW",
    aliases=("2bw", "pipedream", "asynchronous-1f1b"),
    idea="1F1B that is never drained: M counts the microbatches of a whole run of many optimizer\n"
    "steps, and the bubble is paid once in all of it. A reference, as it is not the same training:\n"
    "gradients are of weights one step old, and every device holds two versions of its weights.",
    bubble="(P-1)(t_F + t_B)",
    peak="min(M, P - device)",
    paper="PipeDream-2BW, arXiv 2006.09503",
    rules=(ONE_CHUNK,),
    interchangeable=False,
)
def pipedream_2bw(shape: Shape) -> Iterator[Packed]:
    """1F1B's queues; the second version of the weights is not among the activations that are counted."""
    yield from one_f_one_b(shape)


def _queue(device: int, microbatches: int, warm_up: int) -> Packed:
    return _order(microbatches, min(warm_up, microbatches)) + pack(device, 0)


@lru_cache(maxsize=1)  # of many devices most warm up alike
def _order(microbatches: int, warm_up: int) -> Packed:
    order = stream(0, microbatches)
    q = Queue(forward=order, backward=order)
    q.repeat(warm_up, F)
    q.repeat(microbatches - warm_up, F, B)
    q.repeat(warm_up, B)
    return q.build()
