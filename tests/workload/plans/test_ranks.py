"""Orders of ranks: groups as Megatron-LM's grids have them, what crosses nodes, and which sizes
Megatron-LM takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.toml import RefusedValue
from ppsim.errors import InputError
from ppsim.workload.cost.communication import Group, group_of, message_seconds
from ppsim.workload.cost.costs import stage_costs
from ppsim.workload.cost.update import joined_group
from ppsim.workload.hardware.efficiency import Curve, Efficiency, Software
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import RANK_ORDERS, Parallel
from ppsim.workload.plans.launch.megatron import megatron_flags
from ppsim.workload.plans.launcher import launch_text
from ppsim.workload.plans.ranks import flowchart, group_links, rank_grid
from ppsim.workload.plans.space import Axes, check_axes, groups
from ppsim.workload.plans.stated import stated
from tests.commands import invoke

# 8 GPUs; 450 GB/s and 5 us inside a node, 50 GB/s and 10 us between nodes
H100 = read_machine("dgx-h100")
FULL = Efficiency(Curve("", within=1, between=1), Software("fused", 0, 0, 0))
LLAMA, MIXTRAL = read_model("llama3-8b"), read_model("mixtral-8x7b")
DP_FIRST, PP_FIRST = sorted(set(RANK_ORDERS.values()))
SIZES = st.sampled_from([1, 2, 4])


def grid_group(sizes: dict[str, int], order: str, kinds: set[str]) -> tuple[int, ...]:
    """The group of rank 0 that varies in some dimensions of Megatron-LM's grid, the first of which
    is the nearest.
    """
    names = order.split("-")
    numbers = np.arange(np.prod(list(sizes.values()))).reshape(
        [sizes[name] for name in reversed(names)]
    )
    return tuple(
        numbers[tuple(slice(None) if name in kinds else 0 for name in reversed(names))]
        .ravel()
        .tolist()
    )


@given(
    order=st.sampled_from([DP_FIRST, PP_FIRST]), tp=SIZES, cp=SIZES, pp=SIZES, dp=SIZES, ep=SIZES
)
def test_groups_are_those_of_megatrons_grids(order, tp, cp, pp, dp, ep):
    """One grid of all but experts, one of experts; both must have the same pipelines, which says
    what ep may be.
    """
    if (tp * cp * dp) % ep:
        return
    dense = {"tp": tp, "cp": cp, "ep": 1, "dp": dp, "pp": pp}
    experts = {"tp": 1, "cp": 1, "ep": ep, "dp": tp * cp * dp // ep, "pp": pp}
    alike = grid_group(dense, order, {"pp"}) == grid_group(experts, order, {"pp"})
    if not alike:
        sizes = {
            (g.tp, g.cp, g.ep, g.pp, g.dp)
            for g in groups(MIXTRAL, 8, tp * cp * pp * dp, 64, axes_of(order))
        }
        assert (tp, cp, ep, pp, dp) not in sizes
        return
    parallel = Parallel(tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, rank_order=order)
    assert {
        kind: group_of(parallel, kind).ranks for kind in ("tp", "cp", "pp", "dp", "ep", "expert-dp")
    } == {
        "tp": grid_group(dense, order, {"tp"}),
        "cp": grid_group(dense, order, {"cp"}),
        "pp": grid_group(dense, order, {"pp"}),
        "dp": grid_group(dense, order, {"dp", "cp"}),
        "ep": grid_group(experts, order, {"ep"}),
        "expert-dp": grid_group(experts, order, {"dp"}),
    }
    grid = rank_grid(parallel)
    assert tuple(grid[0, :, 0, 0]) == group_of(parallel, "pp").ranks
    assert tuple(sorted(grid[:, 0, :, 0].ravel())) == group_of(parallel, "dp").ranks
    for links in group_links(H100, parallel):
        here = sum(rank < 8 for rank in links.ranks)
        assert group_of(parallel, links.kind).per_node(H100) == here == links.per_node


def axes_of(order: str, **sizes: tuple[int, ...]) -> Axes:
    return Axes(**sizes, base=Parallel(rank_order=order))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [LLAMA, MIXTRAL])
def test_sizes_are_those_that_megatron_numbers_so(model):
    """Experts' replicas must be as many as the others'; a dense model's experts are as wide as its
    tensor ranks.
    """

    def megatron_takes(g):
        width = 1 if model.experts else g.tp
        return g.pp == 1 or g.tp * g.cp * g.dp // (width * g.ep) == g.dp

    every, found = (
        list(groups(model, 8, 32, 64, axes_of(order))) for order in (DP_FIRST, PP_FIRST)
    )
    assert found == [group for group in every if megatron_takes(group)]
    assert any(group.pp > 1 for group in found)
    assert len(found) < len(every)


def test_pipelines_inside_a_node_send_fast_and_reduce_slowly():
    """Tensor 2 x pipeline 4 on nodes of eight, four replicas: messages by NVLink, gradients by a
    rank a node.
    """
    near, far = (
        Parallel(tp=2, pp=4, dp=4, microbatches=8, rank_order=order)
        for order in (DP_FIRST, PP_FIRST)
    )
    assert [message_seconds(H100, FULL, p, 1e9, 0) for p in (near, far)] == pytest.approx(
        [1e9 / 50e9 + 10e-6, 1e9 / 450e9 + 5e-6]
    )
    inside, apart = (stage_costs(LLAMA, H100, p, efficiency=FULL) for p in (near, far))
    steps = inside.parameters / 40e6 * 3 * 10e-6  # of each bucket, around four nodes
    assert apart.dp - steps == pytest.approx(inside.dp * 450 / 50)
    assert apart.gather - steps == pytest.approx(inside.gather * 450 / 50)
    assert np.array_equal(inside.time, apart.time)
    hops = [np.asarray(found.costs.comm).max() for found in (inside, apart)]
    assert hops[0] > 8 * hops[1] > 0


def test_one_replica_or_one_device_is_numbered_alike():
    for parallel in (Parallel(tp=4, cp=2, pp=4), Parallel(tp=2, cp=2, dp=4, ep=4)):
        one, other = (
            stage_costs(MIXTRAL, H100, replace(parallel, rank_order=o))
            for o in (DP_FIRST, PP_FIRST)
        )
        for name in ("time", "dp", "gather", "optimizer"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert np.array_equal(one.costs.comm, other.costs.comm)


def test_of_replicas_that_begin_in_a_node_the_slowest_counts():
    """Three devices of two ranks: the first replica is in node 0, the second in nodes 0 and 1."""
    lone = Parallel(tp=2, pp=3, rank_order=PP_FIRST)
    assert message_seconds(H100, FULL, lone, 1e9, 0) == pytest.approx(1e9 / 450e9 + 5e-6)
    assert message_seconds(H100, FULL, replace(lone, dp=2), 1e9, 0) == pytest.approx(
        1e9 / 50e9 + 10e-6
    )
    assert message_seconds(H100, FULL, replace(lone, dp=2), 1e9, 1) == pytest.approx(
        1e9 / 450e9 + 5e-6
    )


def test_two_replicas_of_a_pipeline_inside_a_node_reduce_there_first():
    two = Parallel(tp=2, pp=4, dp=4, microbatches=8, schedule="dualpipe", rank_order=PP_FIRST)
    assert joined_group(H100, two, group_of(two, "dp")) == Group(8, 2, 2, 8)
    assert joined_group(H100, two, group_of(two, "dp")).per_node(H100) == 2
    # a pipeline is two nodes: the other replica's ranks are on the other one
    wide = replace(two, tp=4)
    assert joined_group(H100, wide, group_of(wide, "dp")).per_node(H100) == 1


def test_runs_of_ranks_that_take_nodes_jump_over_a_pipelines():
    """Tensor 4 x context 4 are two nodes; four devices lie between two replicas: eight nodes."""
    group = group_of(Parallel(tp=4, cp=4, pp=4, dp=2, rank_order=PP_FIRST), "dp")
    assert (group, group.per_node(H100), group.step(H100)) == (Group(8, 4, 4, 64), 2, 8)


def test_launch_flags_say_the_order():
    parallel = Parallel(tp=2, pp=4, dp=4, microbatches=8, schedule="1f1b", rank_order=PP_FIRST)
    layout = build_layout([8] * 4, 4, 0)
    assert "--use-tp-pp-dp-mapping" in megatron_flags(LLAMA, parallel, layout)
    assert "--use-tp-pp-dp-mapping" not in megatron_flags(
        LLAMA, replace(parallel, rank_order=DP_FIRST), layout
    )
    with pytest.raises(InputError, match="does not number ranks"):
        launch_text("torchtitan", LLAMA, parallel, layout)


def test_what_no_order_can_have_is_refused():
    with pytest.raises(RefusedValue, match="ep must divide cp x tp = 2"):
        Parallel(tp=2, pp=2, dp=4, ep=4, rank_order=PP_FIRST)
    with pytest.raises(RefusedValue, match="rank_order"):
        Parallel(rank_order="pp-dp-tp")
    with pytest.raises(InputError, match="requires cp = 1 with a pipeline") as refused:
        check_axes(LLAMA, 8, 16, 16, axes_of(PP_FIRST, cp=(2,), pp=(2,)))
    assert refused.value.hint == "leave out --cp, or leave out --pp, or leave out --rank-order"
    with pytest.raises(InputError) as refused:
        check_axes(LLAMA, 8, 12, 12, axes_of(PP_FIRST, tp=(3,)))
    assert refused.value.hint == "leave out --tp"
    with pytest.raises(InputError, match="tp x cp = ep"):
        check_axes(MIXTRAL, 8, 16, 16, axes_of(PP_FIRST, tp=(2,), ep=(1,), pp=(2,), cp=(1,)))


def test_rows_state_their_order():
    assert stated({"rank_order": "tp-pp-dp"}) == {"rank_order": "tp-pp-dp"}
    with pytest.raises(Exception, match="rank_order 'pp' is not one of"):
        stated({"rank_order": "pp"})


PLAN = (
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "16",
    "--gbs",
    "16",
    "--pp",
    "4",
)
NARROW = (
    "--tp",
    "1,2",
    "--schedules",
    "1f1b",
    "--mbs",
    "1",
    "--recomputes",
    "none",
    "--layouts",
    "even",
    "--cp",
    "1",
)


def test_a_plan_prints_where_ranks_lie():
    text = invoke(*PLAN, *NARROW, "--rank-order", "tp-pp-dp", "--ranks").output
    assert "ranks of a pipeline before the next replica" in text
    assert "then context, pipeline, data" in text
    assert "--use-tp-pp-dp-mapping" in text
    assert "0-1 8-9" in text
    refused = invoke(*PLAN, *NARROW, "--rank-order", "tp-pp-dp", "--software", "torchtitan")
    assert "torchtitan does not number ranks tp-pp-dp" in str(refused.exception)
    fine = invoke(*PLAN, *NARROW, "--rank-order", "tp-dp-pp", "--software", "torchtitan", "--quiet")
    assert fine.exit_code == 0


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [
        (DP_FIRST, "inside node 0", "from node 0 to 1"),
        (PP_FIRST, "from node 0 to 1", "inside node 0"),
    ],
)
def test_arrows_of_a_flowchart_say_which_way_they_go(order, first, second):
    """Two replicas of two devices of four GPUs, in nodes of eight: gradients, and activations."""
    machine = read_machine("dgx-h100")
    text = flowchart(machine, Parallel(tp=4, dp=2, pp=2, rank_order=order))
    assert f'D0 <-.->|"gradients {first}"| D1' in text
    assert f'D0P0 -->|"activations {second}"| D0P1' in text
