"""Collectives, messages, reductions and steps by hand: volumes of rings and all-to-alls, and who
waits for them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.engine.detailed.cluster import DividedBandwidth, Link, network
from ppsim.errors import InputError
from ppsim.workload.cost.communication import (
    KERNELS,
    Group,
    exchange_seconds,
    gather_seconds,
    message_seconds,
)
from ppsim.workload.cost.costs import (
    StageCosts,
    copy_seconds,
    gathered_shares,
    stage_costs,
    step_time,
)
from ppsim.workload.cost.overlap import expert_pair, lost_overlap, tensor_waits
from ppsim.workload.cost.tensor_split import layer_splits
from ppsim.workload.cost.update import joined_group
from ppsim.workload.hardware.efficiency import Curve, Efficiency, Software, pass_seconds
from ppsim.workload.hardware.hardware import Machine, read_machine
from ppsim.workload.model.contents import (
    StageContent,
    contents_of,
    count_layer_parameters,
    message_bytes,
    parameters_of_stages,
)
from ppsim.workload.model.model import (
    Layer,
    Model,
    copied_parameters,
    count_parameters,
    flops_per_token,
    kinds_of,
    library,
    mtp_kind,
    mtp_parameters,
    read_model,
)
from ppsim.workload.model.operators import embedding_operators, head_operators, layer_operators
from ppsim.workload.model.parallel import Parallel

# 8 GPUs; 450 GB/s and 5 us inside a node, 50 GB/s and 10 us between nodes
H100 = read_machine("dgx-h100")
FULL = Efficiency(
    Curve("", waves=0, keys=0, attention=0.6, within=1, between=1),
    Software("fused", 0, 0, 0),
)
HALF = Efficiency(Curve("", within=0.5, between=0.25), Software("fused", 0, 0, 2.0))
LLAMA, MIXTRAL, V3 = read_model("llama3-8b"), read_model("mixtral-8x7b"), read_model("deepseek-v3")
GB = 1e9


def with_links(**shared: float | int) -> Machine:
    return replace(H100, cluster=replace(H100.cluster, shared=DividedBandwidth(**shared)))  # type: ignore[arg-type]


def test_a_gpu_sends_to_other_nodes_by_the_narrowest_of_its_links():
    """Its own link, its part of the node's cards, its part of the node's uplink."""
    assert (H100.intra_bytes_per_s, H100.inter_bytes_per_s) == (450 * GB, 50 * GB)
    assert with_links(nics_per_node=4, nic_gb_per_s=40.0).inter_bytes_per_s == 4 * 40 / 8 * GB
    assert with_links(nics_per_node=8, nic_gb_per_s=200.0).inter_bytes_per_s == 50 * GB
    assert with_links(node_gb_per_s=80.0).inter_bytes_per_s == 10 * GB
    assert (
        with_links(nics_per_node=8, nic_gb_per_s=30.0, node_gb_per_s=800.0).inter_bytes_per_s
        == 30 * GB
    )
    one_kind = replace(H100, cluster=replace(H100.cluster, inter=None, shared=DividedBandwidth()))
    assert (one_kind.inter_bytes_per_s, one_kind.latency(True)) == pytest.approx((450 * GB, 5e-6))
    assert (H100.latency(False), H100.latency(True)) == pytest.approx((5e-6, 10e-6))


@pytest.mark.parametrize(
    ("group", "inside", "rate"),
    [
        (Group(2, 1), 2, 450),
        (Group(8, 1), 8, 450),
        (Group(4, 2), 4, 450),
        (Group(16, 1), 8, 400),
        (Group(16, 4), 2, 50 * 2**0.5),
        (Group(16, 2), 4, 100),
        (Group(2, 8), 1, 50),
        (Group(3, 4), 2, 50 * 2**0.5),
        (Group(64, 64), 1, 50),
    ],
)
def test_an_all_gather_is_a_ring_of_n_minus_one_parts(group, inside, rate):
    """(n - 1)/n of the bytes pass each link; between nodes, all ranks of a node together, as wide
    as NVLink at most; where ranks of other groups lie between them by the root of their links.
    """
    ring, crosses = 1e9 * (group.size - 1) / group.size / (rate * GB), inside < group.size
    assert group.per_node(H100) == inside
    # around all ranks
    hops = (group.size / inside - 1) * 10e-6 if crosses else 0.0
    assert gather_seconds(H100, FULL, group, 1e9) == pytest.approx(ring + hops)
    assert gather_seconds(H100, FULL, group, 1e9, 7) == pytest.approx(ring + 7 * hops)
    slow = 450 * 0.5 if not crosses else min(450 * 0.5, rate * 0.25)
    steps = 2e-6 * (inside - 1)  # each further rank of a node adds to the collective
    expected = 1e9 * (group.size - 1) / group.size / (slow * GB) + steps + hops
    assert gather_seconds(H100, HALF, group, 1e9) == pytest.approx(expected)


def test_a_sum_of_two_nodes_crosses_once():
    """A tree's halves send all bytes once to the other node, a ring's 2 (n - 1)/n times, as with a
    third node.
    """
    slow = with_links(nics_per_node=8, nic_gb_per_s=10.0)
    for group, expected in ((Group(16, 1), 1 / 2), (Group(2, 8), 1 / 2), (Group(24, 1), 23 / 24)):
        width = 10 * GB * group.per_node(slow)
        assert gather_seconds(slow, FULL, group, 1e12, summed=True) == pytest.approx(
            1e12 * expected / width, rel=1e-3
        )
    inside = [
        gather_seconds(H100, FULL, Group(8, 1), 1e9, summed=summed) for summed in (True, False)
    ]
    assert inside[0] == inside[1]
    whole = gather_seconds(H100, FULL, Group(16, 1), 8192 * 4096 * 2, summed=True)
    waits = waits_of_a_layer(LLAMA, replace(ALONE, tp=16, sequence_parallel=False))
    assert waits == pytest.approx(8 * whole)  # two sums forward and two backward


def test_an_all_to_all_sends_a_part_to_each_rank_and_both_links_work_at_once():
    assert exchange_seconds(H100, FULL, Group(1, 1), 1e9) == 0
    assert exchange_seconds(H100, FULL, Group(8, 1), 1e9) == pytest.approx(
        1e9 * 7 / 8 / (450 * GB) + 5e-6
    )
    assert exchange_seconds(H100, FULL, Group(32, 1), 1e9) == pytest.approx(
        1e9 * 24 / 32 / (50 * GB) + 10e-6
    )
    wide = replace(
        H100, cluster=replace(H100.cluster, inter=Link(10, 1e6), shared=DividedBandwidth())
    )
    assert exchange_seconds(wide, FULL, Group(32, 1), 1e9) == pytest.approx(
        1e9 * 7 / 32 / (450 * GB) + 10e-6
    )
    # Any number of nodes reaches the same share of links.
    for nodes, share in ((8, 0.25), (4, 0.25), (2, 0.25)):
        others = 1 - 1 / nodes
        assert exchange_seconds(H100, HALF, Group(8 * nodes, 1), 1e9) == pytest.approx(
            1e9 * others / (50 * share * GB) + 10e-6
        )
    assert exchange_seconds(wide, HALF, Group(32, 1), 1e9) == pytest.approx(
        1e9 * 7 / 32 / (225 * GB) + 10e-6
    )


def test_a_token_that_is_sent_once_visits_as_many_ranks_as_chance_says():
    """Of 4 ranks on 2 nodes, by counting all ways in which 3 experts of a token can lie on them."""
    machine = replace(
        H100,
        cluster=replace(
            H100.cluster, devices_per_node=2, inter=Link(0, 50), shared=DividedBandwidth()
        ),
    )
    narrow = replace(machine, cluster=replace(machine.cluster, intra=Link(0, 1)))
    ways = list(product(range(4), repeat=3))
    ranks = np.mean([len(set(way)) for way in ways])
    nodes = np.mean([len({rank // 2 for rank in way}) for way in ways])
    # A copy for each node but the own one; inside a node, for each rank that has experts but the
    # one it arrives at.
    far, near = 1e9 / 3 * nodes / 2, 1e9 / 3 * ranks / 2
    within, between = KERNELS
    for found in (FULL, HALF):  # kernels made for experts reach what is published of them
        assert exchange_seconds(machine, found, Group(4, 1), 1e9, 3) == pytest.approx(
            far / (50 * between * GB)
        )
        assert exchange_seconds(narrow, found, Group(4, 1), 1e9, 3) == pytest.approx(
            near / (1 * within * GB)
        )


def test_an_all_to_all_reaches_a_power_of_the_share_that_gathers_reach():
    squared = Efficiency(HALF.curve, replace(HALF.software, alltoall=2.0))
    inside, across = (exchange_seconds(H100, squared, Group(n, 1), 1e9) for n in (8, 16))
    assert inside == pytest.approx(1e9 * 7 / 8 / (450 * 0.5**2 * GB) + 5e-6)
    assert across == pytest.approx(1e9 * 8 / 16 / (50 * 0.25**2 * GB) + 10e-6)


def test_kernels_made_for_experts_reach_what_is_published_of_them():
    """GB/s of DeepEP's and HybridEP's files: inside a node, and between nodes."""
    inside, between = KERNELS
    for low, high, link in ((563, 669, 900), (134, 138, 200)):
        assert low <= round(inside * link) <= high
    assert 34 <= between * 50 <= 46


def test_a_message_crosses_nodes_where_the_next_device_is_on_another_one():
    """Of four devices of four GPUs each the second and the last end a node; the last is joined to
    the first.
    """
    parallel = Parallel(tp=2, cp=2, dp=1, pp=4)
    times = [message_seconds(H100, HALF, parallel, 1e9, device) for device in range(4)]
    inside, across = 1e9 / (225 * GB) + 5e-6, 1e9 / (12.5 * GB) + 10e-6
    assert times == pytest.approx([inside, across, inside, across])
    apart = replace(parallel, dp=2)
    assert [message_seconds(H100, HALF, apart, 1e9, d) for d in range(4)] == pytest.approx(
        [across] * 4
    )


def test_messages_are_latencies_between_neighbours_in_both_directions():
    parallel = Parallel(tp=4, pp=4, microbatches=8)
    found = stage_costs(LLAMA, H100, parallel, efficiency=HALF)
    size = 8192 * 4096 * 2 / 4
    assert found.message == message_bytes(LLAMA, parallel) == size
    inside, across = size / (225 * GB) + 5e-6, size / (12.5 * GB) + 10e-6
    hops = np.array(
        [
            [0, inside, 0, across],
            [inside, 0, across, 0],
            [0, across, 0, inside],
            [across, 0, inside, 0],
        ]
    )
    assert np.asarray(found.costs.comm) == pytest.approx(hops * 1e3)
    assert np.asarray(found.costs.time) == pytest.approx(found.time * 1e3)
    beside = stage_costs(LLAMA, H100, replace(parallel, overlap_p2p=False, vp=2), efficiency=HALF)
    plain = stage_costs(LLAMA, H100, replace(parallel, vp=2), efficiency=HALF)
    added = [inside, across, inside, across] * 2
    for kind in (Kind.F, Kind.B, Kind.I):
        assert beside.time[kind] - plain.time[kind] == pytest.approx(added)
    assert not np.any(beside.costs.comm)
    assert not np.any(stage_costs(LLAMA, H100, Parallel(tp=4), efficiency=HALF).costs.comm)


ALONE = Parallel(overlap_tp=False, kernels="torch")  # nothing runs beside compute


def waits_of_a_layer(model: Model, parallel: Parallel) -> float:
    few = replace(model, layers=2, dense_layers=0, mtp=0, vocab=0)
    return stage_costs(few, H100, parallel, efficiency=FULL).communication[0] / 2


def test_context_ranks_gather_keys_and_values_and_scatter_their_gradients():
    """Once forward, and again backward beside a scatter; around a ring beside attention they slow
    it, no more.
    """
    # keys and values of 4 of 8 heads on a tensor rank, 16 bits, the whole sequence
    keys = 2 * 8 / 2 * 128 * 2 * 8192
    tensor = replace(ALONE, tp=2)
    once = gather_seconds(H100, FULL, Group(4, 2), keys)
    extra = waits_of_a_layer(LLAMA, replace(tensor, cp=4)) - waits_of_a_layer(LLAMA, tensor) / 4
    assert extra == pytest.approx(3 * once)
    pair = replace(tensor, tp=1, cp=4)
    whole, hidden = (
        waits_of_a_layer(LLAMA, replace(pair, overlap_tp=overlap)) for overlap in (False, True)
    )
    assert hidden == pytest.approx(1.31 * 20 / 132 * whole)
    one_head = 2 * 1 * 128 * 2 * 8192  # of 8 heads of keys each of 16 tensor ranks holds one
    wide = (
        waits_of_a_layer(LLAMA, replace(ALONE, tp=16, cp=2))
        - waits_of_a_layer(LLAMA, replace(ALONE, tp=16, cp=2, mbs=1)) * 0
    )
    tensor_part = 10 * gather_seconds(H100, FULL, Group(16, 1), 4096 * 4096 * 2)
    assert wide - tensor_part == pytest.approx(
        3 * gather_seconds(H100, FULL, Group(2, 16), one_head)
    )


def test_latent_attention_gathers_the_keys_and_values_of_all_heads():
    found = waits_of_a_layer(replace(V3, experts=0, top_k=0), replace(ALONE, cp=4))
    keys = (128 + 64 + 128) * 128 * 2 * 4096
    assert found == pytest.approx(3 * gather_seconds(H100, FULL, Group(4, 1), keys))


def test_tensor_ranks_wait_for_what_nothing_runs_beside():
    """Ten gathers and scatters a layer; Megatron-LM's run four of the backward's beside I and W,
    which that slows.
    """
    once = gather_seconds(H100, FULL, Group(8, 1), 8192 * 4096 * 2)
    waiting = Parallel(tp=8, overlap_tp=False, kernels="torch")
    assert waits_of_a_layer(LLAMA, waiting) == pytest.approx(10 * once)
    # All-reduces, and no inputs gathered once more for the gradients of weights.
    assert waits_of_a_layer(LLAMA, replace(waiting, sequence_parallel=False)) == pytest.approx(
        8 * once
    )
    slowed = 1.31 * 20 / 132
    beside = waits_of_a_layer(
        replace(LLAMA, ffn=8 * LLAMA.ffn, heads=256, kv_heads=64), replace(waiting, kernels="fused")
    )
    assert beside == pytest.approx((6 + 4 * slowed) * once)


def test_latents_are_gathered_in_place_of_hidden_states_ahead_of_attention():
    """DeepSeek-V3: three of the five of attention move 1536 + 512 + 64 numbers of 7168 a token."""
    model = replace(V3, experts=0, top_k=0)
    waiting = Parallel(tp=8, overlap_tp=False, kernels="torch")
    state, latent = (
        gather_seconds(H100, FULL, Group(8, 1), 4096 * width * 2) for width in (7168, 2112)
    )
    assert waits_of_a_layer(model, waiting) == pytest.approx(7 * state + 3 * latent)
    summed = waits_of_a_layer(model, replace(waiting, sequence_parallel=False))
    assert summed == pytest.approx(6 * state + 2 * latent, rel=1e-3)


def test_gathers_around_a_ring_leave_what_is_longer_than_the_products_beside_them():
    """By hand: products of 8 and 4 s, of which 7 eighths run beside a gather of 5 s, and 4 in a
    backward as a whole.
    """
    names, times = ("MLP in", "activation", "MLP out"), np.array([[8.0, 1.0, 4.0]] * 3)
    found = tensor_waits(names, times, 5.0, [5.0] * 3, Parallel(tp=8))
    bulk = 8 * 1.0 + 5 * 1.31 * 20 / 132 - 8
    assert found == pytest.approx([0 + (5 - 3.5), (5 - 3.5) + bulk, bulk])
    # Of two ranks each has half of the pieces from the start.
    assert tensor_waits(names, times, 5.0, [5.0] * 3, Parallel(tp=2))[0] == pytest.approx(
        (5 - 4) + (5 - 2)
    )
    assert tensor_waits(names, times, 0.0, [0.0] * 3, Parallel()).tolist() == [0, 0, 0]


def test_narrow_numbers_are_gathered_narrow_and_scattered_in_16_bits():
    """Of a layer's ten in 16 bits four are scatters; with scales of blocks gradients come along
    rows and columns.
    """
    once = gather_seconds(H100, FULL, Group(8, 1), 8192 * 4096 * 2)
    waiting = Parallel(tp=8, overlap_tp=False, kernels="torch")
    assert gathered_shares(replace(waiting, precision="nvfp4")) == (9 / 32, 9 / 16, 9 / 32)
    for precision, inputs, gradients in (("fp8", 1, 1), ("mxfp8", 33 / 32, 33 / 16)):
        narrow = replace(waiting, precision=precision)
        assert gathered_shares(narrow) == (inputs / 2, gradients / 2, inputs / 2)
        assert waits_of_a_layer(LLAMA, narrow) == pytest.approx(
            (4 + 4 * inputs / 2 + 2 * gradients / 2) * once
        )
        whole = replace(narrow, sequence_parallel=False)  # sums are in 16 bits
        assert waits_of_a_layer(LLAMA, whole) == pytest.approx(8 * once)


def test_experts_exchange_tokens_four_times_and_their_layers_gather_for_attention_alone():
    """There and back, forward and backward; with a shared expert tensor ranks gather for it too."""
    parallel = replace(ALONE, tp=2, dp=4, ep=8)
    sent, whole = 4096 / 2 * 2 * 4096 * 2, 4096 * 4096 * 2
    exchange = exchange_seconds(H100, FULL, Group(8, 1), sent)
    tensor = gather_seconds(H100, FULL, Group(2, 1), whole)
    assert waits_of_a_layer(MIXTRAL, parallel) == pytest.approx(4 * exchange + 5 * tensor)
    busy = waits_of_a_layer(MIXTRAL, replace(parallel, expert_load=1.25))
    assert busy == pytest.approx(4 * 1.25 * exchange + 5 * tensor)
    shared = replace(MIXTRAL, shared_ffn=64)
    assert waits_of_a_layer(shared, parallel) == pytest.approx(4 * exchange + 10 * tensor)
    once = exchange_seconds(H100, FULL, Group(8, 1), sent, 2)
    assert waits_of_a_layer(MIXTRAL, replace(parallel, dispatch="deepep")) == pytest.approx(
        4 * once + 5 * tensor
    )


@pytest.mark.parametrize(
    ("machine", "ranks", "longer"),
    [(H100, 8, "compute"), (with_links(node_gb_per_s=8.0), 64, "all-to-all")],
)
def test_a_pair_takes_little_more_than_the_longer_of_compute_and_all_to_all(machine, ranks, longer):
    """Streams in contention: never below the longer one, nor above both; F and B alone wait for all
    of it.
    """
    model, alone = (
        replace(V3, layers=3, dense_layers=0, mtp=0),
        Parallel(dp=ranks, ep=ranks, pp=3, microbatches=3),
    )
    apart, paired = (
        stage_costs(model, machine, replace(alone, overlap_ep=overlap), efficiency=FULL)
        for overlap in (False, True)
    )
    both, messages = apart.time[:2, 1].sum(), apart.communication[1]
    compute, together = both - messages, paired.time[:2, 1].sum()
    assert (compute > messages) == (longer == "compute")
    assert max(compute, messages) < together < min(both, 1.2 * max(compute, messages))
    assert paired.communication[1] == pytest.approx(together - compute)
    assert paired.time[Kind.F, 1] - (apart.time[Kind.F, 1] - messages / 2) == pytest.approx(
        paired.communication[1] / 2
    )
    assert paired.costs.time == pytest.approx(apart.costs.time)
    assert paired.costs.pair is not None
    assert paired.costs.pair[1] == pytest.approx(1e3 * together)


def test_a_pair_of_expert_layers_by_hand():
    """All four all-to-alls run beside compute, each 1.31 times as long, and keep it from 20 of 132
    multiprocessors.
    """
    names, times = ("attention", "experts in"), np.array([[1.0, 1.0], [1.0, 1.0], [0.5, 0.5]])
    assert expert_pair(names, times, np.zeros(3), 0.0) == pytest.approx(5)
    assert expert_pair(names, times, np.zeros(3), 0.5) == pytest.approx(
        5 + 4 * 0.5 * 1.31 * 20 / 132
    )
    assert expert_pair(names, times, np.array([0.25, 0.5, 0.0]), 0.0) == pytest.approx(5.75)
    # Where tokens travel longest, what is seen of compute is a dent in their stream.
    assert 4 * 50 < expert_pair(names, times, np.zeros(3), 50.0) < 4 * 50 + 5


def test_what_runs_again_waits_for_all_of_its_all_to_all():
    model, parallel = (
        replace(V3, layers=3, dense_layers=0, mtp=0),
        Parallel(dp=8, ep=8, recompute="full"),
    )
    paired, apart = (
        stage_costs(model, H100, replace(parallel, overlap_ep=o), efficiency=FULL)
        for o in (True, False)
    )
    assert paired.time[Kind.R] == pytest.approx(apart.time[Kind.R])
    assert paired.time[Kind.F] < apart.time[Kind.F]


def test_only_the_first_forward_and_the_last_backward_of_one_stage_run_alone():
    model, parallel = replace(V3, layers=3), Parallel(dp=8, ep=8, microbatches=5, overlap_ep=True)
    costs = stage_costs(model, H100, parallel, efficiency=FULL)
    apart = (
        stage_costs(model, H100, replace(parallel, overlap_ep=False), efficiency=FULL)
        .time[:2]
        .sum()
    )
    step = step_time(model, H100, parallel, costs=costs)
    assert step.pipeline == pytest.approx(4 * costs.time[:2].sum() + apart)
    assert parallel.schedule_name == "1f1b-overlap"
    assert replace(parallel, ep=1).schedule_name == "1f1b"
    assert replace(parallel, schedule="dualpipe").schedule_name == "dualpipe"


def test_stages_take_what_their_layers_and_ends_take():
    """Two dense layers, one with experts, one of multi-token prediction; its output once more, and
    no second table.
    """
    from ppsim.workload.layout.layout import read_layout

    model = replace(V3, layers=4, dense_layers=2)
    layout = read_layout("Ett|t|tmL", 3, 4)
    parallel = Parallel(pp=3, microbatches=3, precision="fp8")
    found = stage_costs(model, H100, parallel, layout, FULL)

    def work(operators):
        forward, inputs, weights, _ = pass_seconds(operators, H100.gpu, FULL, "fp8")
        return np.array([forward, inputs + weights, inputs, weights, 0])

    dense, mixed = (
        work(layer_operators(model, Parallel(precision="fp8"), layer))
        for layer in (Layer(), Layer(mlp="experts"))
    )
    embedding, head = (
        work(embedding_operators(model, Parallel())),
        work(head_operators(model, Parallel())),
    )
    wanted = [embedding + 2 * dense, mixed, 2 * mixed + 2 * head]
    assert found.time == pytest.approx(np.array(wanted).T)
    assert not found.communication.any()
    bare = stage_costs(
        replace(model, vocab=0, mtp=0), H100, Parallel(precision="fp8"), efficiency=FULL
    )
    assert bare.time[:, 0] == pytest.approx(
        2 * dense + 2 * mixed + work(embedding_operators(model, Parallel()))
    )


def test_recompute_runs_forward_again_in_the_layers_that_do():
    """Selective: attention's kernel. Full: a layer, its messages with it; of some layers of a
    stage, their share.
    """
    model, parallel = (
        replace(LLAMA, layers=8),
        Parallel(tp=2, pp=2, microbatches=2, overlap_tp=False),
    )
    plain = stage_costs(model, H100, parallel, efficiency=FULL)
    ten, nine = (
        stage_costs(
            replace(model, layers=layers), H100, replace(parallel, pp=1), efficiency=FULL
        ).time[:, 0]
        for layers in (10, 9)
    )
    layer = ten - nine
    full = replace(parallel, recompute="full")
    for again, counts in ((None, (4, 4)), (1, (1, 1)), ((3, 0), (3, 0))):
        found = stage_costs(model, H100, replace(full, recompute_layers=again), efficiency=FULL)
        assert found.time[Kind.R] == pytest.approx(layer[Kind.F] * np.array(counts))
        for kind in (Kind.B, Kind.I):
            assert found.time[kind] - plain.time[kind] == pytest.approx(found.time[Kind.R])
        assert found.time[[Kind.F, Kind.W]] == pytest.approx(plain.time[[Kind.F, Kind.W]])
    selective = stage_costs(model, H100, replace(parallel, recompute="selective"), efficiency=FULL)
    attention = 2 * 8192 * 4096 * 16 * 256 / (989.4e12 * 0.6)
    assert selective.time[Kind.R] == pytest.approx([4 * attention] * 2)


def test_a_window_is_that_of_the_layers_that_have_it():
    """Of six layers every third one sees 512 tokens: attention's FLOPs are the sum of both
    kinds.
    """
    model = replace(
        LLAMA, layers=6, window=512, mixers=("attention", "attention", "window"), vocab=0
    )
    found = stage_costs(model, H100, Parallel(), efficiency=FULL).time[Kind.F, 0]
    wide, all_narrow = (
        stage_costs(other, H100, Parallel(), efficiency=FULL).time[Kind.F, 0]
        for other in (replace(model, mixers=("attention",)), replace(model, mixers=("window",)))
    )
    assert found == pytest.approx((4 * wide + 2 * all_narrow) / 6)
    again = stage_costs(model, H100, Parallel(recompute="selective"), efficiency=FULL).time[
        Kind.R, 0
    ]
    seen = 4 * 4096 + 2 * (512 - 512**2 / (2 * 8192))
    assert again == pytest.approx(2 * 8192 * seen * 32 * 256 / (989.4e12 * 0.6))


def test_adapters_have_no_gradients_of_weights_to_compute_reduce_or_update():
    plain, adapters = (
        stage_costs(LLAMA, H100, Parallel(dp=8, adapters=on), efficiency=FULL)
        for on in (False, True)
    )
    assert adapters.time[Kind.B] == adapters.time[Kind.I] == plain.time[Kind.I]
    assert adapters.time[Kind.F] == plain.time[Kind.F]
    assert not np.any([adapters.time[Kind.W], adapters.dp, adapters.gather, adapters.optimizer])


def test_copies_to_the_host_delay_a_stage_that_is_shorter():
    """Half of what a stage keeps, over 2 GB/s: F waits for copies out, I and W together for copies
    back.
    """
    slow = replace(H100, gpu=replace(H100.gpu, host_gb_per_s=2.0))
    model, parallel = replace(LLAMA, layers=4), Parallel(offload=0.5)
    content = contents_of(model, parallel)[0]
    layer = 8192 * (8 * 4096 + 2 * (32 + 16) * 128 + 2 * 4096 + 6 * 14336)
    copies = copy_seconds(model, slow, parallel, content)
    assert copies == pytest.approx(0.5 * 4 * layer / 2e9)
    free, found = (
        stage_costs(model, slow, replace(parallel, offload=x), efficiency=FULL).time[:, 0]
        for x in (0, 0.5)
    )
    assert found[[Kind.F, Kind.B]] == pytest.approx([copies, copies])
    assert found[Kind.I] + found[Kind.W] == pytest.approx(copies)
    assert found[Kind.W] == free[Kind.W]


def test_parameters_of_stages_are_those_of_the_model():
    """Tensor ranks divide all but experts and what each of them holds whole, expert ranks experts;
    layers of multi-token prediction count too.
    """
    for model, parallel in (
        (LLAMA, Parallel(tp=4, pp=4)),
        (V3, Parallel(tp=2, dp=32, ep=64, pp=16)),
        (replace(V3, experts=0, top_k=0), Parallel(pp=4)),
        (replace(MIXTRAL, tied=True), Parallel(dp=8, ep=8)),
    ):
        outer, experts = parameters_of_stages(model, parallel, contents_of(model, parallel)).sum(
            axis=1
        )
        kinds = [*kinds_of(model), *[mtp_kind(model)] * model.mtp]
        copied = sum(copied_parameters(model, kind) for kind in kinds) + model.hidden
        total = outer * parallel.tp + experts * parallel.ep - (parallel.tp - 1) * copied
        # of the embedding, where a later token is predicted
        copies = model.vocab * model.hidden * (model.mtp > 0)
        assert total == pytest.approx(
            count_parameters(model) + mtp_parameters(model) + copies, rel=1e-5
        )
        matrices = (
            3 * model.hidden * model.expert_ffn * model.experts * (model.moe_layers + model.mtp)
        )
        assert experts * parallel.ep == pytest.approx(matrices if model.experts else 0)
    tied = replace(LLAMA, tied=True)
    on_two = parameters_of_stages(tied, Parallel(pp=2), contents_of(tied, Parallel(pp=2)))
    # each end has a copy of the table
    assert on_two.sum() == count_parameters(tied) + LLAMA.vocab * LLAMA.hidden


def test_tensor_ranks_hold_what_projects_to_latents_and_the_router_whole():
    """The shapes of DeepSeek-V3 as its modeling_deepseek.py has them, and what Megatron-LM's
    multi_latent_attention.py duplicates: both projections down with their norms; heads are divided.
    """
    h, heads, tp = 7168, 128, 8
    down = h * 1536 + 1536 + h * (512 + 64) + 512
    up = 1536 * heads * (128 + 64) + 512 * heads * (128 + 128) + heads * 128 * h
    router, shared = 256 * h, 3 * h * 2048
    copied = 2 * h + down + router
    rank = copied + (up + shared) // tp
    parallel = Parallel(tp=tp, ep=tp)
    layer = Layer(mlp="experts")
    alone = StageContent(kinds=((layer, 1),), mtp=0, embedding=False, heads=0, recomputed=0)
    assert count_layer_parameters(V3, parallel, alone) == (rank, 256 * 3 * h * 2048 // tp)
    assert rank / ((copied + up + shared) / tp) > 1.4  # of what an even share of all would be


@pytest.mark.parametrize("name", sorted(library()))
def test_a_rank_holds_the_weights_of_its_products(name):
    """The parameters that are counted are the products' own, and norms, biases and the like."""
    model = read_model(name)
    for tp in (2, 4, 8):
        parallel = Parallel(tp=tp)
        try:
            splits = layer_splits(model, parallel)
        except InputError:  # sizes that do not divide over so many
            continue
        for split in splits:
            beside = split.parameters_per_gpu - split.held
            assert split.other_parameters / tp * (1 - 1e-9) <= beside <= split.other_parameters, (
                tp,
                split.layer,
            )


def test_gradients_are_reduced_over_replicas_and_experts_over_theirs():
    """ZeRO-1 scatters gradients in 32 bits and gathers weights in 16; without it an all-reduce does
    both, 2(n-1)/n.

    In buckets of 40 million parameters, each of which waits for 3 hops between nodes.
    """
    dense = Parallel(tp=2, cp=2, dp=8)  # 16 ranks, 2 apart: four of a node, as fast as two
    found = stage_costs(LLAMA, H100, dense, efficiency=FULL)
    held = found.parameters[0]
    norms = (2 * LLAMA.layers + 1) * LLAMA.hidden  # which both tensor ranks hold whole
    assert held == (count_parameters(LLAMA) + norms) / 2
    ring, hops = 15 / 16 / (2 * 50 * GB), held / 40e6 * 3 * 10e-6
    assert found.dp[0] == pytest.approx(4 * held * ring + hops)
    assert found.gather[0] == pytest.approx(2 * held * ring + hops)
    whole = stage_costs(LLAMA, H100, replace(dense, zero=0), efficiency=FULL)
    assert whole.dp[0] + whole.gather[0] == pytest.approx(
        2 * 15 / 16 * 4 * held / (100 * GB) + 2 * hops
    )
    small = stage_costs(LLAMA, H100, replace(dense, gradient_bytes=2), efficiency=FULL)
    assert small.dp[0] == pytest.approx(2 * held * ring + hops)
    # experts on 4 groups of 8 ranks: copies are 8 apart, one in each node
    mixed = Parallel(tp=2, dp=16, ep=8)
    outer, experts = parameters_of_stages(MIXTRAL, mixed, contents_of(MIXTRAL, mixed))[:, 0]
    reduced = 4 * outer * 15 / 16 / (100 * GB) + 4 * experts * 3 / 4 / (50 * GB)
    reduced += outer / 40e6 * 3 * 10e-6 + experts / 40e6 * 3 * 10e-6
    assert stage_costs(MIXTRAL, H100, mixed, efficiency=FULL).dp[0] == pytest.approx(reduced)


def test_the_optimizer_moves_34_bytes_of_each_parameter_that_a_rank_updates():
    rate = 3350e9 * FULL.curve.hbm
    divided, whole = (
        stage_costs(LLAMA, H100, Parallel(dp=8, cp=2, zero=z), efficiency=FULL) for z in (1, 0)
    )
    assert whole.optimizer[0] == pytest.approx(34 * count_parameters(LLAMA) / rate)
    assert divided.optimizer[0] == pytest.approx(whole.optimizer[0] / 16)
    mixed = Parallel(tp=2, dp=16, ep=8)
    outer, experts = parameters_of_stages(MIXTRAL, mixed, contents_of(MIXTRAL, mixed))[:, 0]
    found = stage_costs(MIXTRAL, H100, mixed, efficiency=FULL).optimizer[0]
    assert found == pytest.approx(34 * (outer / 16 + experts / 4) / rate)
    two = replace(Parallel(pp=4, dp=4, microbatches=8), schedule="dualpipe")
    one = replace(two, schedule="1f1b")
    pair = [stage_costs(LLAMA, H100, p, efficiency=FULL).optimizer for p in (two, one)]
    assert pair[0] == pytest.approx(pair[1] / 2)  # two replicas of a stage divide its states


def test_two_replicas_of_a_pipeline_reduce_together():
    """Twice the ranks; beyond one node the other half is on other nodes, however near the ranks of
    a group are.
    """
    one = Parallel(pp=4, dp=2, microbatches=8, schedule="1f1b")
    assert joined_group(H100, one, Group(2, 1)) == Group(2, 1)
    two = replace(one, schedule="dualpipe")
    assert joined_group(H100, two, Group(2, 1)) == Group(4, 1)  # eight GPUs: one node
    # two of four in a node
    assert joined_group(H100, replace(two, pp=8), Group(2, 1)) == Group(4, 4)
    assert joined_group(H100, replace(two, pp=8, tp=4), Group(2, 6)) == Group(4, 6)
    assert joined_group(H100, replace(two, pp=8, dp=3), Group(3, 1)) == Group(6, 3)


def costs_of(
    time: list[list[float]], dp: list[float], gather: list[float], optimizer: list[float]
) -> StageCosts:
    times = np.array(time)
    reduced, gathered, updated = (np.array(part) for part in (dp, gather, optimizer))
    costs, nothing = Costs(times * 1e3, unit="ms"), np.zeros(times.shape[1])
    return StageCosts(costs, times, nothing, 0.0, reduced, reduced, gathered, updated, 0.5)


def test_a_step_is_the_pipeline_what_shows_of_reductions_and_the_optimizer():
    """1F1B of equal stages: (m + p - 1)(f + b), of which (p - 1)/(m + p - 1) is bubble."""
    time = [[2.0] * 4, [4.0] * 4, [2.0] * 4, [2.0] * 4, [0.0] * 4]
    costs = costs_of(time, [1.0, 9.0, 3.0, 4.5], [1.0, 2.5, 8.0, 0.0], [0.5, 0.25, 0.125, 0.75])
    parallel = Parallel(tp=2, pp=4, dp=3, mbs=2, microbatches=5)
    step = step_time(LLAMA, H100, parallel, efficiency=FULL, costs=costs)
    assert step.pipeline == pytest.approx((5 + 3) * 6)
    assert step.bubble == pytest.approx(3 / 8)
    # Device 1's last B begins at 40, and its reduction ends at 49; the gather of device 2 ends at 8
    # and its first F at 6.
    assert step.reduction == 1.0 + 2.0
    assert step.optimizer == 0.75
    assert step.seconds == pytest.approx(48 + 3 + 0.75)
    tokens = 3 * 2 * 5 * 8192
    assert step.tokens_per_s == pytest.approx(tokens / 51.75)
    flops = flops_per_token(LLAMA) * tokens / 51.75 / 24
    assert (step.tflops, step.mfu) == pytest.approx((flops / 1e12, flops / 989.4e12))
    open_ = step_time(
        LLAMA, H100, replace(parallel, overlap_dp=False), efficiency=FULL, costs=costs
    )
    # Device 1 is done at 44, and reduces until 53; all gathers come first.
    assert open_.reduction == pytest.approx(5.0 + 8.0)
    chunks = step_time(
        LLAMA, H100, replace(parallel, pp=2, vp=2, microbatches=4), efficiency=FULL, costs=costs
    )
    # interleaved: (p - 1)/v of (f + b) of a device
    assert chunks.pipeline == pytest.approx(4 * 2 * 6 + 6)
    # Stage 1's last B begins on device 1 at 46, its reduction ends at 55; device 0 has gathered
    # stages 0 and 2 at 9, and the first F of stage 2 ends at 6.
    assert chunks.reduction == pytest.approx(1.0 + 3.0)
    assert chunks.optimizer == 1.0


def test_one_device_runs_all_stages_of_a_model_one_after_the_other():
    costs = costs_of(
        [[2.0, 1.0], [4.0, 3.0], [2.0, 1.0], [2.0, 2.0], [0.0, 0.0]], [0, 0], [0, 0], [0, 0]
    )
    step = step_time(LLAMA, H100, Parallel(vp=2, microbatches=7), costs=costs)
    assert (step.pipeline, step.bubble, step.seconds) == (70.0, 0.0, 70.0)


def test_zero_two_leaves_the_last_layer_to_reduce_at_the_end_and_gathers_the_weights_as_zero_one():
    once, two, three = (
        stage_costs(LLAMA, H100, Parallel(dp=16, zero=zero), efficiency=FULL) for zero in (1, 2, 3)
    )
    # ZeRO-3 goes around by layer, not by bucket
    hops = (count_parameters(LLAMA) / 40e6 - 32) * 10e-6
    assert (two.dp[0], three.dp[0]) == pytest.approx((once.dp[0] / 32, (once.dp[0] - hops) / 32))
    assert (two.gather[0], three.gather[0]) == (once.gather[0], 0)
    # Hidden behind compute, which it keeps from 20 of 132 multiprocessors for 1.31 times as long as
    # alone.
    slowed, gather, reduction = 1.31 * 20 / 132, once.gather[0], once.dp[0]
    assert (two.time - once.time)[:, 0] == pytest.approx(
        slowed * reduction * np.array([0, 1, 0, 1, 0])
    )
    more = three.communication[0] - once.communication[0]
    gather, reduction = gather - hops, reduction - hops
    assert more == pytest.approx(2 * gather / 32 + slowed * (2 * gather + reduction))
    adapters = stage_costs(LLAMA, H100, Parallel(dp=16, zero=3, adapters=True), efficiency=FULL)
    assert adapters.time[Kind.F] == once.time[Kind.F]


def test_a_profile_that_is_faster_makes_its_stages_messages_shorter_too():
    """Whole stages were measured with their collectives: both are scaled alike."""
    from ppsim.workload.hardware.hardware import Factors, Measured

    parallel = Parallel(tp=8, pp=2, microbatches=2)
    plain = stage_costs(LLAMA, H100, parallel, efficiency=FULL)
    for stages in (
        (Factors(2, 3, 5, 4), Factors(0.5, 1, 1, 1)),
        (Factors(2, 2, 2, 2),),
        (Factors(),) * 3,
    ):
        found = stage_costs(
            LLAMA, replace(H100, measured=Measured("p", stages=stages)), parallel, efficiency=FULL
        )
        each = stages if len(stages) == 2 else stages[:1] * 2
        for stage, (f, i, w, b) in enumerate(each):
            assert found.time[:4, stage] == pytest.approx(plain.time[:4, stage] * [f, b, i, w])
            both = [costs.time[:2, stage].sum() for costs in (found, plain)]
            assert found.communication[stage] == pytest.approx(
                plain.communication[stage] * both[0] / both[1]
            )


def test_what_does_not_divide_says_the_largest_number_that_does():
    with pytest.raises(InputError) as refused:
        stage_costs(replace(LLAMA, heads=32), H100, Parallel(tp=12, dp=2))
    assert refused.value.hint == "--tp 8"
    stage_costs(LLAMA, H100, Parallel(cp=4096))
    with pytest.raises(InputError, match="do not divide into 2 x cp = 16384 parts"):
        stage_costs(LLAMA, H100, Parallel(cp=8192))


def test_rings_leave_a_switch_once_and_all_to_all_by_its_share():
    """Four nodes a switch, four times oversubscribed: 16 ranks of a ring share the way out, of
    all-to-all 3/4 leave.
    """
    crowded = with_links(
        nics_per_node=8, nic_gb_per_s=50.0, nodes_per_switch=4, oversubscription=4.0
    )
    plain = with_links(nics_per_node=8, nic_gb_per_s=50.0)
    for group, ring, spread in (
        (Group(32, 1), 1, 1),  # four nodes, below one switch
        # 16 nodes in a row: a ring's four members of a switch share its way out
        (Group(128, 1), 1, 4 * 12 / 15),
        (Group(16, 32), 4, 4),  # a rank in every fourth node: each message leaves its switch
    ):
        for collective, times in ((gather_seconds, ring), (exchange_seconds, spread)):
            slow, fast = (collective(machine, FULL, group, 1e12) for machine in (crowded, plain))
            assert slow == pytest.approx(times * fast, rel=1e-3), (group, collective)
    parallel = Parallel(tp=8, dp=4, pp=4)
    within, across = (
        message_seconds(crowded, FULL, replace(parallel, dp=d), 1e12, 0) for d in (1, 4)
    )
    assert across == pytest.approx(4 * within, rel=1e-3)
    uplinks = network(crowded.cluster, 128, "ms", "overlap").shared[-1]
    assert uplinks.name == "switch"
    assert uplinks.capacity == pytest.approx(4 * 8 * 50e6 / 4)


def test_a_token_visits_no_more_nodes_than_its_router_allows():
    """DeepSeek-V3's 8 experts on 8 nodes: 5.25 of them without a limit, at most 4 with it; the
    token's own is free.
    """
    far = [
        exchange_seconds(with_links(node_gb_per_s=8.0), FULL, Group(64, 1), 1e12, 8, most)
        for most in (0, 4, 8)
    ]
    free = 8 * (1 - (1 - 1 / 8) ** 8)
    assert far[1] / far[0] == pytest.approx(4 / free, rel=1e-3)
    assert far[2] == far[0]
    parallel = replace(ALONE, dp=64, ep=64, dispatch="deepep")
    wide, narrow = (
        waits_of_a_layer(replace(V3, dense_layers=0, mtp=0, top_groups=most), parallel)
        for most in (0, 4)
    )
    assert narrow < wide
    eight = waits_of_a_layer(
        replace(V3, dense_layers=0, mtp=0), replace(parallel, dispatch_bytes=1)
    )
    # half of what goes, with 4 bytes of scale for 128 numbers, and all of what returns
    assert eight == pytest.approx((1 + 4 / 128 + 2) / 4 * narrow, rel=3e-3)


def test_ends_gather_for_the_output():
    """Scattered behind the embedding, gathered before the output: once forward and once backward
    each.
    """
    parallel = Parallel(tp=8, pp=2, microbatches=4, overlap_tp=False, kernels="torch")
    ends = stage_costs(LLAMA, H100, parallel, efficiency=FULL).communication
    without = stage_costs(replace(LLAMA, vocab=0), H100, parallel, efficiency=FULL).communication
    whole = gather_seconds(H100, FULL, Group(8, 1), 8192 * 4096 * 2)
    assert ends == pytest.approx([(10 * 16 + 2) * whole] * 2)
    assert without == pytest.approx([10 * 16 * whole] * 2)


def test_chunks_reduce_behind_the_last_backwards_of_chunks_before_them():
    """Interleaved 1F1B of two devices ends with two backwards of the later chunk on each device,
    then two of the earlier one: the later chunk's reduction has all of these to hide behind.
    """
    time = [[2.0] * 4, [4.0] * 4, [2.0] * 4, [2.0] * 4, [0.0] * 4]
    parallel = Parallel(pp=2, vp=2, dp=2, microbatches=4, schedule="interleaved")

    def seen(dp: list[float], gather: list[float]) -> float:
        costs = costs_of(time, dp, gather, [0.0] * 4)
        return step_time(LLAMA, H100, parallel, efficiency=FULL, costs=costs).reduction

    nothing = [0.0] * 4
    assert seen([0.0, 0.0, 12.0, 0.0], nothing) == 0.0  # stage 2, from the start of its last B
    assert seen([0.0, 0.0, 13.0, 0.0], nothing) == pytest.approx(1.0)
    assert seen([4.0, 0.0, 12.0, 0.0], nothing) == pytest.approx(4.0)  # one after the other
    assert seen([5.0, 0.0, 0.0, 0.0], nothing) == pytest.approx(1.0)  # stage 0 has its own B alone
    assert seen(nothing, [2.0, 0.0, 4.0, 0.0]) == 0.0  # stage 2 begins at 4 on device 0
    assert seen(nothing, [2.0, 0.0, 5.0, 0.0]) == pytest.approx(1.0)


def test_a_run_without_a_pipeline_reduces_behind_its_last_backward():
    """One stage of F 2 and B 4: 1 of a reduction of 5 is seen, and 3 of a gather of 5."""
    time = [[2.0], [4.0], [2.0], [2.0], [0.0]]
    costs = costs_of(time, [5.0], [5.0], [0.0])
    parallel = Parallel(dp=2, microbatches=3)
    step = step_time(LLAMA, H100, parallel, efficiency=FULL, costs=costs)
    assert (step.pipeline, step.reduction) == (18.0, 1.0 + 3.0)
    apart = replace(parallel, overlap_dp=False)
    assert step_time(LLAMA, H100, apart, efficiency=FULL, costs=costs).reduction == 5.0 + 5.0


def test_a_split_backward_scatters_alone_and_gathers_beside_its_weights():
    """A block whose I and W take 8 each, a scatter of 3 and gathers of 2.

    The scatter, which a whole backward hides beside W, is all seen in I; the gather goes from I to
    W. Multiprocessors that communicate do not compute: what is hidden slows compute meanwhile.
    """
    names, times = ("MLP in", "MLP out"), np.array([[8.0, 0.0], [8.0, 0.0], [8.0, 0.0]])
    slowed = 1.31 * 20 / 132  # of communication that is hidden: overlap.CONTENTION
    parallel = Parallel(tp=2)
    moved = lost_overlap(names, times, 3.0, (2.0, 2.0, 2.0), parallel)
    assert moved == pytest.approx([3 - slowed * 2, slowed * 3 - slowed * 2])
    alone = lost_overlap(names, times, 3.0, (2.0, 2.0, 2.0), replace(parallel, kernels="torch"))
    assert alone == pytest.approx([1.0, 1.0])  # nothing overlaps, so nothing is lost: I + W is B
    sums = replace(parallel, sequence_parallel=False)
    found = lost_overlap(names, times, 3.0, (2.0, 2.0, 2.0), sums)
    assert found == pytest.approx([6.0, slowed * 6])
    assert lost_overlap(names, times, 0.0, (0.0, 0.0, 0.0), parallel).tolist() == [0.0, 0.0]
