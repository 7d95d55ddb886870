"""Zero-bubble schedules with one stage per device: split backwards, with W in the bubbles.

Qi et al., "Zero Bubble Pipeline Parallelism", arXiv 2401.10241; their B is our I.
"""

from collections.abc import Iterator

from ppsim.core.builder import F, I, Queue, stream
from ppsim.core.costs import Costs
from ppsim.core.ops import Packed
from ppsim.schedules.registry import ONE_CHUNK, Shape, schedule


@schedule(
    "zb-1p",
    title="ZB-1P",
    aliases=("zb-h1", "zero-bubble", "zero-bubble-1p"),
    split=True,
    idea="1F1B with the backward split: I passes the gradient on at once, W waits.\n"
    "Device r holds its W back by r microbatches and spends them where it would idle.\n"
    "A third of 1F1B's bubble at equal costs, with 1F1B's memory on every device.",
    bubble="(P-1)(t_F + t_I - t_W)  for M >= P and t_W <= min(t_F, t_I)",
    peak="min(M, P)",
    paper="Zero Bubble Pipeline Parallelism (ZB-H1), arXiv 2401.10241",
    rules=(ONE_CHUNK,),
)
def zb_1p(shape: Shape) -> Iterator[Packed]:
    """Warm-up of P - device forwards, W delayed by ``device`` microbatches; both clamped to M.

    For t_W <= min(t_F, t_I): makespan M(t_F + t_I + t_W) + (P-1)(t_F + t_I - t_W) for M >= P, and
    (M + P - 1)(t_F + t_I) + t_W for M <= P.
    """
    for device in range(shape.devices):
        yield _queue(device, shape.microbatches, warm_up=shape.devices - device, delay=device)


@schedule(
    "zb-h2",
    title="ZB-H2",
    split=True,
    idea="ZB-1P with enough warm-up forwards to fill the wait for the first gradient too.\n"
    "Each device computes without a gap from its first op to its last when t_F = t_I = t_W.\n"
    "Twice the activations of 1F1B, and the optimizer step must not wait for all devices.",
    bubble="span bubble (P-1)(t_F + t_I - 2 t_W)  for M >= 2P-1 and t_W <= min(t_F, t_I)",
    peak="min(M, 2P - 1)",
    paper="Zero Bubble Pipeline Parallelism (ZB-H2), arXiv 2401.10241",
    rules=(ONE_CHUNK,),
)
def zb_h2(shape: Shape) -> Iterator[Packed]:
    """Warm-up of 2(P - device) - 1 forwards, W delayed by 2 ``device`` microbatches.

    Both are clamped to M. The span bubble grows by 2(P-1) comm for M >= 2P and
    comm <= min(t_F, t_I).
    """
    for device in range(shape.devices):
        yield _queue(
            device, shape.microbatches, warm_up=2 * (shape.devices - device) - 1, delay=2 * device
        )


@schedule(
    "zb-auto",
    title="ZB (automatic)",
    aliases=("zb-heuristic",),
    split=True,
    uses_costs=True,
    idea="The authors' heuristic: the costs decide how many F run before the first I and where W\n"
    "fills gaps, under a limit of activations. The fastest of eight attempts, and of orders for\n"
    "equal times that fit. With a limit of P it is the paper's ZB-1p, with 2P it is zb-2p.",
    bubble="(P-1)(t_F + t_I - t_W)  for M >= P and t_F = t_I = t_W",
    peak="min(M, P)",
    paper="Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 3.1, and its authors' code",
    rules=(ONE_CHUNK,),
    options=("limit", "after_i"),
)
def zb_auto(
    shape: Shape, costs: Costs, limit: int | None = None, after_i: float = 1.0
) -> Iterator[Packed]:
    """The authors' heuristic under a limit, by default P activations.

    Between I and W, a share ``after_i`` of an activation is still in memory.
    """
    from ppsim.search.rules.heuristics import order_linear

    fixed = [list(zb_1p(shape)), list(zb_h2(shape))]
    yield from order_linear(
        costs, shape.devices, shape.microbatches, limit or shape.devices, after_i, fixed
    )


@schedule(
    "zb-2p",
    title="ZB-2P",
    aliases=("zero-bubble-2p",),
    split=True,
    uses_costs=True,
    idea="The authors' heuristic under a limit of 2P activations.\n"
    "Hardly a gap from a device's first op to its last, whatever F, I and W cost.\n"
    "Twice the activations of 1F1B, and the optimizer step must not wait for all devices.",
    bubble="span bubble (P-1)(t_F + t_I - 2 t_W)  for M >= 2P-1 and t_F = t_I = t_W",
    peak="min(M, 2P)",
    paper="Zero Bubble Pipeline Parallelism (ZB-2p), arXiv 2401.10241, section 3.1, and its "
    "authors' code",
    rules=(ONE_CHUNK,),
    options=("after_i",),
)
def zb_2p(shape: Shape, costs: Costs, after_i: float = 1.0) -> Iterator[Packed]:
    """``zb-auto`` with twice the limit."""
    yield from zb_auto(shape, costs, 2 * shape.devices, after_i)


def _queue(device: int, microbatches: int, warm_up: int, delay: int) -> Packed:
    """Return the queue of a device with this many warm-up forwards, W delayed by ``delay``."""
    order = stream(device, microbatches)
    return Queue(forward=order, backward=order).hold_weights(warm_up, delay, I, F).build()
