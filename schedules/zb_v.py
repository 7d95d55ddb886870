"""ZB-V: the model folds in a V over the devices, so the first backward starts on the last stage's
device, which is the first.

Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 6.
"""

from collections.abc import Iterator

from ppsim.core.builder import Queue, Step, stream
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed, pack
from ppsim.schedules.registry import TWO_CHUNKS, Rule, Shape, schedule

F0, F1 = Step(Kind.F, "forward0"), Step(Kind.F, "forward1")
I0, I1 = Step(Kind.I, "backward0"), Step(Kind.I, "backward1")
W0, W1 = Step(Kind.W, "weights0"), Step(Kind.W, "weights1")

ROOM = Rule(
    "a limit of at least min(2M, 2P) activations (v-auto takes less)",
    lambda s: (
        s.options.get("limit") is None or s.options["limit"] >= 2 * min(s.microbatches, s.devices)
    ),
)


@schedule(
    "zb-v",
    title="ZB-V",
    placement="v",
    aliases=("zbv",),
    chunks=2,
    split=True,
    uses_costs=True,
    idea="The model folds in a V: device r holds stages r and 2P-1-r, so the first device has\n"
    "the last stage too, and gradients start there at once. A greedy search fills bubbles with W.\n"
    "No bubble between a device's ops at equal times, with 1F1B's memory.",
    bubble="span bubble 0  for M >= 2P-1 and t_F = t_I = t_W",
    peak="min(2M, 2P) stage activations",
    paper="Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 6, and its authors' code",
    rules=(TWO_CHUNKS, ROOM),
    options=("limit",),
)
def zb_v(shape: Shape, costs: Costs, limit: int | None = None) -> Iterator[Packed]:
    """The authors' greedy order under a limit of 2P activations (1F1B's) or more, or torch's order
    if that is faster.
    """
    from ppsim.search.rules.zbv import order_zb_v

    fixed = list(zb_v_torch(shape))
    yield from order_zb_v(
        costs, shape.devices, shape.microbatches, limit or 2 * shape.devices, [fixed]
    )


@schedule(
    "zb-v-torch",
    title="ZB-V (torch)",
    placement="v",
    torch="ScheduleZBVZeroBubble",
    aliases=("zbv-torch", "zb-v-formatted", "zbv-formatted"),
    chunks=2,
    split=True,
    idea="ZB-V in the fixed order of torch's runtime: F I W of the second stage and of the first\n"
    "in turn, from the V's turn outwards, and W held back only where the pipeline drains.\n"
    "No bubble between a device's ops at equal times; for other times use zb-v.",
    bubble="span bubble (P-1)(t_F - t_W)  for M >= 2P-1 and t_W <= t_F = t_I",
    peak="min(2M, 2P, M + device + 1) stage activations",
    paper="torch.distributed.pipelining; arXiv 2401.10241, section 6",
    rules=(TWO_CHUNKS,),
)
def zb_v_torch(shape: Shape) -> Iterator[Packed]:
    """The order of max(2P - 1, M) microbatches, without the ops of microbatches from M on."""
    P, M = shape.devices, shape.microbatches
    for device in range(P):
        q = _queue(P, device, max(2 * P - 1, M))
        yield q[q < pack(0, M)]


def _queue(P: int, device: int, microbatches: int) -> Packed:
    near, far = stream(device, microbatches), stream(2 * P - 1 - device, microbatches)
    q = Queue(
        forward0=near, forward1=far, backward0=near, backward1=far, weights0=near, weights1=far
    )
    to_turn = P - device
    q.repeat(2 * to_turn - 1, F0)
    q.repeat(device, F1, F0)
    q.repeat(to_turn, F1, I1, W1)
    q.repeat(q.left("forward0"), F0, I0, W0, F1, I1, W1)
    q.repeat(q.left("forward1"), I0, W0, F1, I1, W1)
    q.repeat(device, I0, I1)
    q.repeat(to_turn, I0, W0)
    q.repeat(q.left("weights1"), W1)
    q.repeat(q.left("weights0"), W0)
    return q.build()
