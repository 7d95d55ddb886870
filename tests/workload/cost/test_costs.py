"""Costs of stages and steps: what they must satisfy, and the ratios of schedules that others
measured.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.workload.cost.communication import (
    KERNELS,
    Group,
    exchange_seconds,
    gather_seconds,
    group_of,
)
from ppsim.workload.cost.costs import StageCosts, stage_costs, step_time
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.efficiency import Curve, Efficiency, Software, efficiency_of, fitted
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.layout.layout import build_layout, read_layout
from ppsim.workload.model.contents import contents_of, message_bytes, split_layers
from ppsim.workload.model.model import (
    STATES,
    Encoder,
    Layer,
    Model,
    count_parameters,
    flops_per_token,
    kinds_of,
    mixing_flops,
    read_model,
)
from ppsim.workload.model.operators import FORWARD, INPUTS, WEIGHTS, head_operators, layer_operators
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.software import apply, read_software, software_of

H100, A100 = read_machine("dgx-h100"), read_machine("dgx-a100")
LLAMA = read_model("llama3-70b")
# Of a gather of 16 ranks on two nodes: 7 times a rank's share, and 10 us between nodes.
LATENCY = 7 * fitted().software[0].collective_us * 1e-6 + 10e-6
IDEAL = Efficiency(Curve("h100", waves=0, keys=0, within=1, between=1), Software("fused", 0, 0, 0))


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-1t"])
def test_flops_of_operators_are_megatrons(name):
    """Equation 3 of arXiv 2104.04473: 24 B s l h^2 (1 + s/(6h)) forward in the layers, 2 B s V h
    for the output.
    """
    model = read_model(name)
    h, s, vocab = model.hidden, model.seq, model.vocab
    plain = Parallel(flash=False)
    layer = layer_operators(model, plain, Layer())
    assert layer.flops[FORWARD].sum() == pytest.approx(24 * s * h**2 * (1 + s / (6 * h)))
    assert layer.flops[INPUTS].sum() + layer.flops[WEIGHTS].sum() == pytest.approx(
        2 * layer.flops[FORWARD].sum()
    )
    assert head_operators(model, plain).flops[FORWARD].sum() == pytest.approx(2 * s * vocab * h)
    causal = layer_operators(model, replace(plain, flash=True), Layer())
    assert causal.flops[FORWARD].sum() == pytest.approx(24 * s * h**2 * (1 + s / (12 * h)))


def test_tensor_parallel_bytes_are_megatrons():
    """8 b s h (t - 1)/t elements a layer, forward and backward, in all-reduces: a gather and a
    scatter each.
    """
    parallel = Parallel(tp=8, overlap_tp=False, sequence_parallel=False, kernels="torch")
    costs = stage_costs(LLAMA, H100, parallel, efficiency=IDEAL)
    elements = 8 * LLAMA.seq * LLAMA.hidden * 7 / 8
    assert costs.communication[0] / LLAMA.layers == pytest.approx(2 * elements / 450e9, rel=0.001)


def test_groups_follow_megatrons_order_of_ranks():
    parallel = Parallel(tp=4, cp=2, dp=8, pp=2, ep=8)
    assert {
        kind: group_of(parallel, kind) for kind in ("tp", "cp", "dp", "ep", "expert-dp", "pp")
    } == {
        "tp": Group(4, 1),
        "cp": Group(2, 4),
        "dp": Group(16, 4),
        "ep": Group(8, 1),
        "expert-dp": Group(8, 8),
        "pp": Group(2, 64),
    }
    assert [
        Group(16, 4).per_node(H100),
        Group(2, 64).per_node(H100),
        Group(8, 1).per_node(H100),
    ] == [2, 1, 8]


def test_what_crosses_nodes_takes_longer():
    inside, across = Group(8, 1), Group(8, 8)
    for collective in (gather_seconds, exchange_seconds):
        assert collective(H100, IDEAL, inside, 1e9) < collective(H100, IDEAL, across, 1e9) / 5
        assert collective(H100, IDEAL, Group(1, 1), 1e9) == 0


def test_trainers_count_embedding_and_output_as_layers_where_layers_do_not_divide():
    model = read_model("llama3-405b")
    assert split_layers(LLAMA, 8) == (10,) * 8
    assert split_layers(model, 32) == (3, *(4,) * 30, 3)
    assert split_layers(model, 128) == (0, *(1,) * 126, 0)
    with pytest.raises(InputError, match="80 layers for 100 stages"):
        split_layers(LLAMA, 100)


@pytest.mark.parametrize(
    ("stages", "split"),
    [(16, (*(4,) * 15, 1)), (8, (*(8,) * 7, 5)), (4, (16, 16, 16, 13)), (32, (1, *(2,) * 30, 0))],
)
def test_the_stage_with_multi_token_prediction_has_what_is_left(stages, split):
    """The layouts of Megatron-Bridge's recipe for DeepSeek-V3; on 32 stages the last would have
    less than none.
    """
    assert split_layers(read_model("deepseek-v3"), stages) == split


def test_the_stage_with_multi_token_prediction_may_have_no_other_layer():
    model = replace(read_model("deepseek-v3"), layers=6)
    assert split_layers(model, 4) == (2, 2, 2, 0)
    assert split_layers(replace(model, mtp=0), 4) == (1, 2, 2, 1)


def test_recompute_is_of_so_many_layers_of_each_stage_at_most():
    """One number for all, or one for each stage; never more than the stage has, and none where
    nothing recomputes.
    """
    model, full = replace(LLAMA, layers=7), Parallel(pp=3, recompute="full", microbatches=3)
    layout = read_layout("Etttt|tt|tL", 3, 7)

    def counts(**changes):
        return [
            content.recomputed for content in contents_of(model, replace(full, **changes), layout)
        ]

    assert counts() == [4, 2, 1]
    assert counts(recompute_layers=2) == [2, 2, 1]
    assert counts(recompute_layers=(0, 3, 1)) == [0, 2, 1]
    assert counts(recompute="none", recompute_layers=2) == [0, 0, 0]
    with pytest.raises(InputError, match="2 numbers of recomputed layers for 3 stages"):
        counts(recompute_layers=(1, 2))
    with pytest.raises(InputError, match="a layout of 7 layers on 3 stages does not fit 8 layers"):
        contents_of(replace(model, layers=8), full, layout)


def test_a_layout_says_what_stages_hold():
    model = replace(read_model("deepseek-v3"), layers=6)
    layout = read_layout("Ett|tt|tt|mL", 4, 6)
    found = contents_of(model, Parallel(pp=4), layout)
    dense, mixed = Layer(), Layer(mlp="experts")
    assert [(dict(c.kinds), c.mtp, c.embedding, c.heads) for c in found] == [
        ({dense: 2}, 0, True, 0),
        ({dense: 1, mixed: 1}, 0, False, 0),
        ({mixed: 2}, 0, False, 0),
        ({}, 1, False, 2),
    ]
    with pytest.raises(InputError, match="6 layers on 4 stages does not fit"):
        contents_of(model, Parallel(pp=8), layout)


def test_recompute_adds_a_forward_to_the_backward():
    plain = Parallel(tp=8, pp=4, microbatches=8)
    none, full = (
        stage_costs(LLAMA, H100, replace(plain, recompute=r)).time for r in ("none", "full")
    )
    assert full[Kind.B] == pytest.approx(none[Kind.B] + full[Kind.R])
    assert full[Kind.R, 1] == pytest.approx(none[Kind.F, 1])  # embedding and output run once
    half = stage_costs(LLAMA, H100, replace(plain, recompute="full", recompute_layers=10)).time
    assert half[Kind.R] == pytest.approx(full[Kind.R] / 2)


def test_offload_delays_what_copies_take_longer_than():
    """Copies of a tenth of the activations hide behind their stage; all of them over 1 GB/s do
    not.
    """
    plain = Parallel(tp=8, pp=4, microbatches=8)
    slow = replace(H100, gpu=replace(H100.gpu, host_gb_per_s=1.0))
    none, half, late = (
        stage_costs(LLAMA, machine, replace(plain, offload=share)).time
        for machine, share in ((H100, 0.0), (H100, 0.1), (slow, 1.0))
    )
    assert half == pytest.approx(none)
    assert (late[Kind.F] > 5 * none[Kind.F]).all()
    assert late[Kind.B] == pytest.approx(late[Kind.F], rel=0.01)


def test_a_pipeline_of_one_device_takes_its_ops_one_after_the_other():
    costs = stage_costs(LLAMA, H100, parallel := Parallel(tp=8, microbatches=4))
    step = step_time(LLAMA, H100, parallel, costs=costs)
    assert step.pipeline == pytest.approx(4 * (costs.time[Kind.F, 0] + costs.time[Kind.B, 0]))
    assert step.seconds == pytest.approx(step.pipeline + step.reduction + step.optimizer)
    assert step.bubble == 0


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        ({"pp": 8}, {"pp": 8, "vp": 2}),
        ({"pp": 8}, {"pp": 8, "schedule": "zb-1p"}),
        ({"pp": 4, "overlap_p2p": False}, {"pp": 4}),
        ({"tp": 8, "overlap_tp": False}, {"tp": 8}),
        ({"dp": 64, "overlap_dp": False}, {"dp": 64}),
        ({"recompute": "full"}, {"recompute": "selective"}),
        ({"recompute": "selective"}, {}),
        ({"precision": "bf16"}, {"precision": "fp8"}),
        ({"adapters": False}, {"adapters": True}),
    ],
)
def test_what_helps_is_faster(slower, faster):
    plain = Parallel(microbatches=16)
    times = [
        step_time(LLAMA, H100, replace(plain, **changes)).seconds for changes in (slower, faster)
    ]
    assert times[1] < times[0]


def test_a_message_that_does_not_overlap_delays_the_ops_that_send_one():
    """F, B and I; W sends nothing, so that I and W together are as far above B as before."""
    plain = Parallel(tp=8, pp=4, microbatches=8, schedule="zb-1p")
    beside = stage_costs(LLAMA, H100, plain).time
    alone = stage_costs(LLAMA, H100, replace(plain, overlap_p2p=False)).time
    assert np.all(alone[:3] > beside[:3])
    np.testing.assert_allclose(alone[3:], beside[3:])
    more = [time[Kind.I] + time[Kind.W] - time[Kind.B] for time in (alone, beside)]
    np.testing.assert_allclose(*more)


def split_of(parallel: Parallel) -> float:
    """Seconds that I and W of all stages take more than B."""
    time = stage_costs(LLAMA, H100, parallel).time
    return float((time[Kind.I] + time[Kind.W] - time[Kind.B]).sum())


def test_a_split_backward_loses_the_overlap_of_tensor_ranks_alone():
    """Without tensor parallelism it costs nothing, with it a scatter for each block of a layer at
    most; nor does it where nothing overlaps.
    """
    lost = [split_of(Parallel(tp=tp, pp=2, microbatches=8)) for tp in (1, 2, 4, 8)]
    assert lost[0] == pytest.approx(0, abs=1e-9)  # seconds; the host is far ahead
    assert min(lost[1:]) > 0
    for tp, more in zip((2, 4, 8), lost[1:], strict=True):
        bytes_ = LLAMA.seq * LLAMA.hidden * 2 * (tp - 1) / tp
        rate = H100.intra_bytes_per_s * efficiency_of(H100.gpu, Parallel()).curve.within
        assert more < 2 * LLAMA.layers * (bytes_ / rate + 8 * 20e-6)
    eager = split_of(Parallel(tp=8, pp=2, microbatches=8, kernels="eager"))
    assert eager < 0.01 * lost[3]  # of the host's launches


def test_autograd_splits_a_layer_in_the_time_of_the_host():
    """As measured on one H100: I + W is 1.62 B in layers 2,048 wide, with 4,096 tokens, and 1.07 B
    at 8,192.
    """
    ratios = []
    for hidden in (2048, 8192):
        layer = Model(
            hidden=hidden, heads=hidden // 128, layers=8, seq=4096, vocab=0, ffn=4 * hidden
        )
        time = stage_costs(
            layer, H100, Parallel(pp=2, microbatches=8, kernels="torch", split_ms=2.4)
        ).time
        ratios.append(float((time[Kind.I] + time[Kind.W]).sum() / time[Kind.B].sum()))
    assert ratios == [pytest.approx(1.62, abs=0.2), pytest.approx(1.07, abs=0.07)]


def test_each_message_of_a_v_costs_its_exchange():
    """2.5 ms for F and I of each microbatch on each stage of megatron-lm; zero-bubble's runtime
    saves them.
    """
    times = []
    for software in ("megatron-lm", "zero-bubble"):
        usual = read_software(software).by_schedule(H100.gpu, "bf16", LLAMA, ())
        parallel = Parallel(pp=4, vp=2, microbatches=8, by_schedule=usual).for_schedule("zb-v")
        times.append(
            stage_costs(LLAMA, H100, replace(parallel, kernels="fused", schedule="zb-v")).time
        )
    more = (times[0] - times[1]) * 1e3
    assert more[[Kind.F, Kind.B, Kind.I]] == pytest.approx(2.5)
    assert more[Kind.W] == pytest.approx(0)


def test_a_pair_that_overlaps_costs_little_more_than_the_longer_part():
    """DeepSeek's profile: 1.04 times the longer one of compute and all-to-all; alone they add
    up.
    """
    model = read_model("deepseek-v3")
    alone = Parallel(dp=64, ep=64, pp=4, microbatches=8)
    apart, paired = (
        stage_costs(model, H100, replace(alone, overlap_ep=o)).time[:2, 2].sum()
        for o in (False, True)
    )
    assert paired < apart


def test_messages_are_divided_over_tensor_parallel_ranks():
    assert message_bytes(LLAMA, Parallel(tp=8, cp=2, mbs=2)) == 2 * 8192 * 8192 * 2 / 16


def test_ranks_that_do_not_divide_the_model_are_refused():
    with pytest.raises(InputError, match="64 heads do not divide over tp = 7") as refused:
        stage_costs(LLAMA, H100, Parallel(tp=7))
    assert refused.value.hint == "--tp 4"
    with pytest.raises(InputError, match="8192 tokens do not divide into 2 x cp = 6 parts"):
        stage_costs(LLAMA, H100, Parallel(cp=3))
    with pytest.raises(InputError, match="256 experts do not divide over ep = 3"):
        stage_costs(read_model("deepseek-v3"), H100, Parallel(dp=3, ep=3))


def test_a_precision_that_the_gpu_lacks_is_refused():
    with pytest.raises(InputError, match="a100-80gb has no fp8 units"):
        stage_costs(LLAMA, A100, Parallel(precision="fp8"))


def of_equal_stages(parallel: Parallel, *times: float) -> StageCosts:
    """Costs of stages whose F, B, I and W take these times, in ms, and whose messages take none."""
    costs = stage_costs(LLAMA, H100, parallel)
    time = np.zeros_like(costs.costs.time)
    time[[Kind.F, Kind.B, Kind.I, Kind.W]] = np.reshape(times, (4, 1))
    return replace(costs, costs=replace(costs.costs, time=time, comm=0.0))


@pytest.mark.parametrize(("tf", "ti", "tw", "later"), [(2, 2, 2, 6), (3, 2, 1, 0)])
def test_after_validation_a_step_takes_the_longest_span_of_a_device(tf, ti, tw, later):
    """ZB-H2's bubble of a device is (P-1)(t_F + t_I - 2 t_W); at equal times the last begins P-1
    forwards later.
    """
    p = Parallel(pp=4, microbatches=16, schedule="zb-h2", post_validation=True)
    costs = of_equal_stages(p, tf, ti + tw, ti, tw)
    span = 16 * (tf + ti + tw) + 3 * (tf + ti - 2 * tw)
    assert step_time(LLAMA, H100, p, costs=costs).pipeline * 1e3 == pytest.approx(span)
    waits = step_time(LLAMA, H100, replace(p, post_validation=False), costs=costs).pipeline * 1e3
    assert waits == pytest.approx(span + later)


def test_queues_that_follow_costs_are_ordered_by_the_costs_of_the_stages():
    """ZB-2p with its authors' profiled times (table 9) has nearly no bubble, where orders for equal
    times have 7 %.

    Of their model, which keeps the scores of attention, W needs 32 of 74 bytes.
    """
    p = Parallel(pp=8, microbatches=24, schedule="zb-2p", post_validation=True)
    times = 29.718, 29.444 + 19.927, 29.444, 19.927
    work = 24 * (29.718 + 29.444 + 19.927)
    costs = replace(of_equal_stages(p, *times), kept_share=32 / 74)
    ordered, fixed = (
        step_time(LLAMA, H100, parallel, costs=costs).pipeline * 1e3
        for parallel in (p, replace(p, schedule="zb-h2"))
    )
    assert ordered < 1.001 * work
    assert fixed > 1.06 * work


def test_forward_and_both_backwards_are_as_profiled():
    """The 6.2 B model of Qi et al. (arXiv 2401.10241, table 9), 4 layers a stage on A100, within 15
    %.
    """
    model = Model(4096, 32, 30, 1024, 50304, biases=True, learned_positions=True)
    parallel = Parallel(
        pp=8,
        mbs=3,
        microbatches=64,
        precision="fp16",
        flash=False,
        sequence_parallel=False,
        kernels="eager",
        gradient_bytes=2,
    )
    times = stage_costs(model, A100, parallel).time[[Kind.F, Kind.I, Kind.W], 1] * 1e3
    assert times == pytest.approx(np.array([29.7, 29.4, 19.9]), rel=0.15)


def test_zero_two_and_three_communicate_for_every_microbatch():
    """Without overlap F gathers all 16-bit weights, B gathers them again and scatters 32-bit
    gradients.
    """
    alone = Parallel(dp=16, microbatches=4, zero=1, overlap_dp=False)
    once = stage_costs(LLAMA, H100, alone)
    gathered, scattered = once.gather[0], once.dp[0]
    two, three = (stage_costs(LLAMA, H100, replace(alone, zero=zero)) for zero in (2, 3))
    added = [(c.time - once.time)[[Kind.F, Kind.B, Kind.I, Kind.W], 0] for c in (two, three)]
    assert added[0] == pytest.approx([0, scattered, 0, scattered])
    # by layer, where others communicate by bucket
    fewer = (count_parameters(LLAMA) / 40e6 - LLAMA.layers) * LATENCY
    assert added[1] == pytest.approx(
        np.array([gathered, gathered + scattered, gathered, scattered])
        - [fewer, 2 * fewer, fewer, fewer]
    )
    assert [two.gather[0], three.gather[0]] == [gathered, 0]


def test_deepspeeds_gathers_of_2021_were_slower_than_any_link():
    """DeepSpeed, issue 1174: BERT's forward of 5.1e9 parameters on eight A100 with NVLink took
    480 ms with ZeRO-3 and 60 ms with ZeRO-2.
    """
    bert = Model(hidden=2560, heads=40, layers=64, seq=512, vocab=32003, biases=True)
    old = apply(Parallel(dp=8, zero=3), software_of("DeepSpeed (SC21)", "").techniques(A100.gpu))
    assert 5.0e9 < count_parameters(bert) < 5.2e9
    forward = {
        zero: float(stage_costs(bert, A100, replace(old, zero=zero)).time[Kind.F, 0])
        for zero in (2, 3)
    }
    assert forward[3] - forward[2] == pytest.approx(0.42, rel=0.03)
    unlimited = stage_costs(bert, A100, replace(old, zero=2, gather_gb_per_s=0.0))
    limited = stage_costs(bert, A100, replace(old, zero=2, gather_gb_per_s=0.1))
    assert limited.gather == pytest.approx(unlimited.gather)  # the limit is of ZeRO-3 alone
    today = apply(Parallel(dp=8, zero=3), software_of("DeepSpeed", "").techniques(A100.gpu))
    assert stage_costs(bert, A100, today).time[Kind.F, 0] - forward[2] < 0.1


def test_a_limit_of_gathers_counts_experts_and_needs_other_ranks():
    mixtral = read_model("mixtral-8x7b")
    limited = Parallel(dp=8, zero=3, gather_gb_per_s=0.1)
    forward = stage_costs(mixtral, H100, limited).time[Kind.F, 0]
    assert forward == pytest.approx(2 * count_parameters(mixtral) / 0.1e9, rel=0.05)
    assert stage_costs(mixtral, H100, replace(limited, dp=1)).time[Kind.F, 0] < 1


def test_overlap_hides_zero_three_but_for_the_first_layer():
    """Compute is longer than the gathers; with sequences so short that it is not, the gathers
    count.
    """
    alone = Parallel(dp=16, zero=1)
    once, three = (stage_costs(LLAMA, H100, replace(alone, zero=zero)) for zero in (1, 3))
    slowed = 1.31 * 20 / 132  # of compute, while gathers run beside it
    more = three.time[Kind.F, 0] - once.time[Kind.F, 0]
    gathered = once.gather[0] - (count_parameters(LLAMA) / 40e6 - LLAMA.layers) * LATENCY
    assert more == pytest.approx(gathered * (1 / LLAMA.layers + slowed))
    short = replace(LLAMA, seq=512)
    assert stage_costs(short, H100, replace(alone, zero=3)).time[Kind.F, 0] > gathered


def test_a_token_is_sent_once_to_each_node_and_rank_that_has_experts_of_it():
    """Of 8 experts spread over 4 nodes, 3 x (1 - (3/4)^8) others are visited on average; by an
    all-to-all 8 x 3/4.
    """
    group, size = Group(32, 1), 1e9
    plain, once = (exchange_seconds(H100, IDEAL, group, size, visits) for visits in (0, 8))
    assert plain == pytest.approx(size * 24 / 32 / 50e9, rel=0.01)
    within, between = KERNELS
    assert once == pytest.approx(size / 8 * 3 * (1 - 0.75**8) / (between * 50e9), rel=0.01)
    inside = exchange_seconds(H100, IDEAL, Group(8, 1), size, 8)
    near = size / 8 * 8 * (1 - (7 / 8) ** 8) * 7 / 8
    assert inside == pytest.approx(near / (within * 450e9), rel=0.01)
    one = exchange_seconds(H100, IDEAL, group, size, 1)
    assert one == pytest.approx(plain / between, rel=0.01)


def test_experts_launched_one_by_one_take_no_less_than_their_launches():
    dense, mixed = read_model("llama3-8b"), replace(read_model("qwen3-30b-a3b"), seq=256)
    times = {
        (model.name, graphs): stage_costs(model, H100, Parallel(cuda_graphs=graphs)).time[Kind.F, 0]
        for model in (dense, mixed)
        for graphs in ("full", "partial", "none")
    }
    assert times[dense.name, "full"] == times[dense.name, "none"]
    assert times[mixed.name, "full"] < times[mixed.name, "partial"] < times[mixed.name, "none"]
    software = efficiency_of(H100.gpu, Parallel(cuda_graphs="none")).software
    launches = (
        layer_operators(mixed, Parallel(), Layer(mlp="experts")).kernels[0].sum()
        * software.expert_kernels
    )
    least = mixed.layers * launches * software.launch_us * 1e-6
    assert least < times[mixed.name, "none"] < 1.2 * least
    assert times[mixed.name, "full"] < least / 3


def test_fused_experts_move_fewer_bytes_and_dense_layers_as_many():
    model = read_model("mixtral-8x7b")
    times = {
        (name, fused): stage_costs(
            read_model(name), H100, Parallel(fused_experts=fused, ep=ep, dp=ep)
        ).time[Kind.F, 0]
        for name, ep in (("mixtral-8x7b", 8), ("llama3-8b", 1))
        for fused in (False, True)
    }
    assert times["llama3-8b", False] == times["llama3-8b", True]
    saved = times["mixtral-8x7b", False] - times["mixtral-8x7b", True]
    found = efficiency_of(H100.gpu, Parallel(fused_experts=True))
    visits, rate = model.seq * model.top_k, 3350e9 * found.curve.hbm
    moved = (
        8 * model.hidden
        + 8 * model.hidden
        + 6 * model.expert_ffn
        + 16 * model.experts / model.top_k
    )
    assert saved == pytest.approx(
        (1 - found.software.routed) * model.layers * visits * moved / rate, rel=0.02
    )


def test_losses_are_computed_where_the_layout_has_them():
    """A split loss: one on the last stage, one beside the layer of multi-token prediction; unsplit,
    m has its own.
    """
    model = replace(read_model("deepseek-v3"), layers=6)
    apart = contents_of(model, Parallel(pp=4), read_layout("Ett|tt|ttmL|L", 4, 6))
    assert [content.heads for content in apart] == [0, 0, 1, 1]
    joined = contents_of(model, Parallel(pp=4), read_layout("Ett|tt|ttm|L", 4, 6))
    assert [content.heads for content in joined] == [0, 0, 1, 1]


def test_a_tower_works_on_the_first_stage():
    """Trained it has a backward twice as long and more; frozen it only runs forward and holds
    nothing.
    """
    plain, parallel = read_model("llama3-8b"), Parallel(pp=4, microbatches=8)
    tower = Encoder(1280, 16, 32, 3420, 4096, gated=True)
    trained, frozen = (
        replace(plain, encoder=tower),
        replace(plain, encoder=replace(tower, frozen=True)),
    )
    times = [stage_costs(model, H100, parallel).time for model in (plain, frozen, trained)]
    more = [time - times[0] for time in times[1:]]
    assert all(found[:, 1:] == pytest.approx(0) for found in more)
    assert more[0][Kind.F, 0] == pytest.approx(more[1][Kind.F, 0])
    assert more[0][[Kind.B, Kind.I, Kind.W], 0] == pytest.approx(0)
    assert more[1][Kind.B, 0] > 1.9 * more[1][Kind.F, 0] > 0
    held = [device_memory(model, parallel) for model in (plain, frozen, trained)]
    assert held[1].activations == pytest.approx(held[0].activations)
    assert held[2].activations[0] > held[0].activations[0]
    assert held[1].optimizer == pytest.approx(held[0].optimizer)
    assert held[1].weights[0] == held[2].weights[0] > held[0].weights[0]


@pytest.mark.parametrize(
    "name", ["nemotron-3-nano", "qwen3-next-80b-a3b", "kimi-linear-48b-a3b", "deepseek-v3.2"]
)
def test_flops_of_mixed_layers_are_those_of_their_operators(name):
    """All but what kernels of states compute otherwise than token by token."""
    model, counted = read_model(name, 4096), 0.0
    for layer in kinds_of(model):
        found = layer_operators(model, Parallel(), layer)
        for place, what in enumerate(found.names):
            scale = {"attention": 3 / 3.5, "state": 0.0}.get(what, 1.0)
            counted += scale * found.flops[:, place].sum()
        counted += 3 * mixing_flops(model, layer.mixer) * model.seq * (layer.mixer in STATES)
    counted += head_operators(model, Parallel()).flops.sum()
    assert flops_per_token(replace(model, mtp=0)) * model.seq == pytest.approx(counted, rel=0.01)


@pytest.mark.parametrize(
    ("split", "pp", "vp", "hint"),
    [
        ([2, 2, 2, 2], 2, 1, "--pp 4"),
        ([2, 2, 2, 2], 4, 2, "--pp 2"),
        ([3, 3, 2], 4, 2, None),
        ([2, 2, 2], 3, 1, None),
        ([2, 2, 2, 1], 2, 2, None),
    ],
)
def test_a_layout_that_does_not_fit_is_answered_with_the_devices_it_is_of(split, pp, vp, hint):
    """Where it has all eight layers and the chunks divide its stages; else it is another layout's
    turn.
    """
    parallel = Parallel(pp=pp, vp=vp, schedule="interleaved" if vp > 1 else "1f1b")
    with pytest.raises(InputError, match="does not fit") as refused:
        contents_of(
            replace(read_model("llama3-8b"), layers=8),
            parallel,
            build_layout(split, pp if vp == 1 else 1),
        )
    assert refused.value.hint == (hint or "a layout with all layers and pp x vp stages")
