"""Schedules from a building block on a V placement: less memory than 1F1B, a longer iteration.

Qi et al., "Pipeline Parallelism with Controllable Memory", arXiv 2405.15362.
"""

from collections.abc import Iterator

from ppsim.core.costs import Costs
from ppsim.core.ops import Packed
from ppsim.core.schedule import place
from ppsim.schedules.registry import TWO_CHUNKS, Rule, Shape, schedule
from ppsim.search.rules.blocks import block_of_passes, complete, fit_block

AT_LEAST_TWO = Rule(
    "a limit of at least 2 activations",
    lambda s: s.options.get("limit") is None or s.options["limit"] >= 2,
)
PAPER = "Pipeline Parallelism with Controllable Memory, arXiv 2405.15362"


@schedule(
    "v-half",
    title="V-Half",
    placement="v",
    chunks=2,
    fills=True,
    split=True,
    idea="A building block in which passes down the V take two slots per device, passes up one:\n"
    "the activations of a device's two stages add up to about the same on every device.\n"
    "Half of 1F1B's memory on every device, and about half of its bubble.",
    bubble="max(P - 1, 6 floor((P+1)/2) - 7) t_F/2  for M >= 2 floor(P/2) + 2 and t_F = t_I = t_W",
    peak="min(2M, M + device + 1, 2 floor(P/2) + 2) stage activations",
    paper=PAPER,
    rules=(TWO_CHUNKS,),
)
def v_half(shape: Shape) -> Iterator[Packed]:
    """Steps of 2, 1, 2 and 1 slots in an interval of six."""
    yield from _completed(shape, steps=(2, 1, 2, 1), gaps=(1, 1 if shape.devices % 2 else 4, 2))


@schedule(
    "v-min",
    title="V-Min",
    placement="v",
    chunks=2,
    fills=True,
    split=True,
    idea="A building block in which a microbatch goes down the V and back without a wait:\n"
    "its activations are held for the shortest time, in sum equally long on every device.\n"
    "A third of 1F1B's memory for many devices, and two thirds of its bubble at equal times.",
    bubble="(4P - 5 - 2 floor(P/3) + 2 floor((P-1)/3)) t_F/2  for P >= 2, M >= P + 1 and t_F = t_I "
    "= t_W",
    peak="min(2M, M + device + 1, 2P/3 + 2) stage activations  for 3 | P",
    paper=PAPER,
    rules=(TWO_CHUNKS,),
)
def v_min(shape: Shape) -> Iterator[Packed]:
    """Steps of one slot in an interval of six."""
    yield from _completed(shape, steps=(1, 1, 1, 1), gaps=(1, 1 if shape.devices % 3 else 3, 1))


@schedule(
    "1f1b-v",
    title="1F1B-V",
    placement="v",
    aliases=("v-1f1b",),
    chunks=2,
    fills=True,
    idea="1F1B on a V, with full backwards: every op of the building block takes the first free\n"
    "slot of its device after its input. It needs no split backward, unlike zero bubble.\n"
    "Two thirds of 1F1B's memory for many devices, and a shorter bubble.",
    bubble="(4P - 4 + 3 floor((P-1)/3)) t_F/2  for M >= 2P and t_F = t_B/2",
    peak="2 floor(2P/3) + 2 stage activations  for M >= 2P",
    paper=PAPER,
    rules=(TWO_CHUNKS,),
)
def one_f_one_b_v(shape: Shape) -> Iterator[Packed]:
    """Forwards of one slot and backwards of two, in an interval of six.

    The peak is 2P/3 activations of a device's share of the model, compared with P for 1F1B.
    """
    yield from complete(
        fit_block(place("v", shape.devices, shape.stages), 6, split=False), shape.microbatches
    )


@schedule(
    "v-auto",
    title="V under a limit",
    placement="v",
    aliases=("v-limit", "v-flex"),
    chunks=2,
    split=True,
    uses_costs=True,
    walks=True,
    idea="The best order on a V found for the costs given, within --limit activations per device:\n"
    "building blocks between V-Min, V-Half and zero bubble, completed, timed and improved.\n"
    "Any memory down to one microbatch at a time; 2P activations, 1F1B's memory, by default.",
    bubble="span bubble 0  for M >= 2P-1 and t_F = t_I = t_W",
    peak="min(2M, 2P) stage activations  for M >= 2P-1",
    paper=f"{PAPER}, appendix A",
    rules=(TWO_CHUNKS, AT_LEAST_TWO),
    options=("limit",),
)
def v_auto(shape: Shape, costs: Costs, limit: int | None = None) -> Iterator[Packed]:
    """Search for an order on a V placement; the same costs and limit give the same order."""
    from ppsim.search.orders.v_limit import order_v

    yield from order_v(costs, shape.devices, shape.microbatches, limit or 2 * shape.devices)


def _completed(shape: Shape, steps: tuple[int, ...], gaps: tuple[int, ...]) -> Iterator[Packed]:
    """Yield the queues of a repeated block on a V placement, with W in idle slots."""
    placement = place("v", shape.devices, shape.stages)
    yield from complete(block_of_passes(placement, 6, steps, gaps), shape.microbatches)
