"""Operators of a layer by hand: FLOPs of matrix products, the bytes they and elementwise work move,
and launches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsim.workload.cost.costs import attention_input_share, gathered_bytes
from ppsim.workload.hardware.efficiency import (
    Curve,
    Efficiency,
    Software,
    efficiency_of,
    fitted,
    pass_seconds,
    seconds,
)
from ppsim.workload.hardware.hardware import read_gpu
from ppsim.workload.model import activations
from ppsim.workload.model.model import (
    Encoder,
    Layer,
    Model,
    attended_tokens,
    flops_per_token,
    kinds_of,
    read_model,
)
from ppsim.workload.model.operators import (
    FLASH,
    LINEAR,
    NONE,
    WIDE,
    embedding_operators,
    encoder_operators,
    head_operators,
    layer_operators,
)
from ppsim.workload.model.parallel import Parallel

DENSE = Model(
    hidden=64, heads=8, layers=3, seq=96, vocab=1000, kv_heads=2, head_dim=10, ffn=200, gated=True
)
GPT = Model(hidden=64, heads=8, layers=3, seq=96, vocab=1000, biases=True, learned_positions=True)
MIXED = replace(DENSE, experts=8, top_k=3, expert_ffn=30, shared_ffn=50)
LATENT = replace(DENSE, kv_heads=8, head_dim=12, v_dim=14, q_lora=20, kv_lora=16, rope_dim=6)
PLAIN = Parallel(tp=2, cp=2, mbs=3, dp=4)  # 3 x 96 / 2 = 144 tokens, 72 between linear layers
T, L, H = 144, 72, 64
GEMM = LINEAR


def gemm(m, n, k, times=1, cast=0, unit=GEMM, summed=4):
    """2 m n k FLOPs in each of three passes, and three matrices of 16 bits; narrowing reads one and
    writes it twice. W reads the sum of a weight's gradients, 32 bits each.
    """
    moved = 2 * (m * k + k * n + m * n) * times
    return (
        unit,
        [2 * m * n * k * times] * 3,
        [moved] * 3,
        [cast * m * k * times, cast * m * n * times, summed * k * n * times],
        [1, 1, 1],
    )


def moves(forward, backward, kernels=1):
    return NONE, [0] * 3, [0] * 3, [forward, backward, 0], [kernels, kernels, 0]


def flash(flops, moved):
    """One kernel forward; backward computes scores again: five products instead of two, in three
    kernels.
    """
    return FLASH, [flops, 2.5 * flops, 0], [moved, 2.5 * moved, 0], [0, 0, 0], [1, 3, 0]


def table(found):
    columns = (found.flops.T, found.moved.T, found.touched.T, found.kernels.T)
    return {
        name: (int(unit), *(column[place].tolist() for column in columns))
        for place, (name, unit) in enumerate(zip(found.names, found.unit, strict=True))
    }


def check(found, wanted):
    assert table(found).keys() == wanted.keys()
    for name, row in table(found).items():
        for got, hand in zip(row, wanted[name], strict=True):
            assert got == pytest.approx(hand), name


# 4 of 8 heads and 1 of 2 heads of keys on a rank, each of 10; a token sees 48 others on average
ATTENTION = {
    "attention norm": moves(4 * L * H, 8 * L * H),
    "query, key, value": gemm(T, 60, H),
    "positions": moves(4 * T * 5 * 10, 4 * T * 5 * 10),
    "attention": flash(2 * T * 48 * 4 * 20, 2 * T * (4 * 20 + 1 * 20)),
    "attention output": gemm(T, H, 40),
    "attention residual": moves(6 * L * H, 4 * L * H),
}
MLP = {
    "MLP norm": moves(4 * L * H, 8 * L * H),
    "MLP in": gemm(T, 200, H),
    "activation": moves(6 * T * 100, 10 * T * 100),
    "MLP out": gemm(T, H, 100),
    "MLP residual": moves(6 * L * H, 4 * L * H),
}


def test_a_layer_with_gates_and_groups_of_queries():
    check(layer_operators(DENSE, PLAIN, Layer()), ATTENTION | MLP)


def test_a_narrow_precision_casts_the_inputs_of_linear_layers():
    """Read in 16 bits and written twice: 4 bytes for each element of the input, and of the gradient
    of the output.
    """
    cast = {
        "query, key, value": gemm(T, 60, H, cast=4),
        "attention output": gemm(T, H, 40, cast=4),
        "MLP in": gemm(T, 200, H, cast=4),
        "MLP out": gemm(T, H, 100, cast=4),
    }
    check(layer_operators(DENSE, replace(PLAIN, precision="fp8"), Layer()), ATTENTION | MLP | cast)


def test_ranks_without_sequence_parallelism_each_do_what_lies_between_linear_layers():
    whole = {name: moves(4 * T * H, 8 * T * H) for name in ("attention norm", "MLP norm")}
    whole |= {name: moves(6 * T * H, 4 * T * H) for name in ("attention residual", "MLP residual")}
    check(
        layer_operators(DENSE, replace(PLAIN, sequence_parallel=False), Layer()),
        ATTENTION | MLP | whole,
    )


def test_more_tensor_ranks_than_heads_of_keys_each_hold_one():
    found = table(layer_operators(DENSE, replace(PLAIN, tp=8, dp=1), Layer()))
    assert found["query, key, value"][1] == gemm(T, 30, H)[1]
    assert found["positions"][3] == moves(4 * T * 2 * 10, 4 * T * 2 * 10)[3]


def test_a_layer_of_gpt_has_biases_masks_and_scores():
    """Scores are written, kept by softmax and dropout, whose mask is a byte: 5 a s^2 bytes kept a
    sequence.
    """
    scores = T * 96 * 4
    found = layer_operators(GPT, replace(PLAIN, flash=False), Layer())
    check(
        found,
        {
            "attention norm": moves(4 * L * H, 8 * L * H),
            "query, key, value": gemm(T, 96, H),
            "scores": (
                WIDE,
                [2 * scores * 8, 4 * scores * 8, 0],
                *moved(96, 96, 8, 6),
                [0] * 3,
                [1, 2, 0],
            ),
            "context": (
                WIDE,
                [2 * scores * 8, 4 * scores * 8, 0],
                *moved(96, 8, 96, 6),
                [0] * 3,
                [1, 2, 0],
            ),
            "softmax": moves(4 * scores, 6 * scores),
            "attention dropout": moves(5 * scores, 5 * scores),
            "attention output": gemm(T, H, 32),
            "attention residual": moves(7 * L * H, 5 * L * H),
            "MLP norm": moves(4 * L * H, 8 * L * H),
            "MLP in": gemm(T, 128, H),
            "activation": moves(4 * T * 128, 6 * T * 128),
            "MLP out": gemm(T, H, 128),
            "MLP residual": moves(7 * L * H, 5 * L * H),
        },
    )


def moved(m, n, k, count):
    """Bytes of so many products of m x k by k x n: of 1.5 sequences on a context rank, for each of
    four heads.
    """
    once = 2 * (m * k + k * n + m * n) * count
    return ([once, 2 * once, 0],)


def test_experts_share_their_tokens_and_each_is_whole():
    """A rank has 72 tokens of its own, 216 visits; of 8 experts over 4 ranks it holds 2, each with
    108 of them.
    """
    visits = 72 * 3
    wanted = ATTENTION | {
        "MLP norm": moves(4 * L * H, 8 * L * H),
        "router": gemm(L, 8, H, unit=WIDE),
        "routing": moves(16 * L * 8, 8 * L * 8, 8),
        "permute": moves(8 * visits * H, 8 * visits * H, 4),
        "experts in": gemm(108, 60, H, times=2),
        "experts' activation": moves(6 * visits * 30, 10 * visits * 30),
        "experts out": gemm(108, H, 30, times=2),
        "unpermute": moves(8 * visits * H, 8 * visits * H, 4),
        "shared expert in": gemm(T, 50, H),
        "activation": moves(6 * T * 25, 10 * T * 25),
        "shared expert out": gemm(T, H, 25),
        "MLP residual": moves(6 * L * H, 4 * L * H),
    }
    check(layer_operators(MIXED, replace(PLAIN, ep=4), Layer(mlp="experts")), wanted)
    cast = {
        "query, key, value": gemm(T, 60, H, cast=4),
        "attention output": gemm(T, H, 40, cast=4),
        "experts in": gemm(108, 60, H, times=2, cast=4),
        "experts out": gemm(108, H, 30, times=2, cast=4),
        "shared expert in": gemm(T, 50, H, cast=4),
        "shared expert out": gemm(T, H, 25, cast=4),
    }
    check(
        layer_operators(MIXED, replace(PLAIN, ep=4, precision="mxfp8"), Layer(mlp="experts")),
        wanted | cast,
    )


@pytest.mark.parametrize(("load", "ep", "times"), [(1.5, 4, 1.5), (9, 4, 4), (1.5, 1, 1)])
def test_the_busiest_rank_multiplies_and_keeps_more_tokens_and_routes_its_own(load, ep, times):
    """No rank has more than all tokens of the ranks that share experts."""
    p, layer = replace(PLAIN, ep=ep), Layer(mlp="experts")
    even, busy = (
        layer_operators(MIXED, parallel, layer) for parallel in (p, replace(p, expert_load=load))
    )
    more = np.array([times if name.startswith("experts") else 1 for name in even.names])
    assert busy.flops == pytest.approx(even.flops * more)
    assert busy.touched[:2] == pytest.approx(even.touched[:2] * more)
    assert busy.touched[2] == pytest.approx(even.touched[2])  # of weights, as many as before
    kept = [
        activations.layer_activations(MIXED, parallel, layer, "none")
        for parallel in (p, replace(p, expert_load=load))
    ]
    visits = L * 3
    assert kept[1] - kept[0] == pytest.approx(
        (times - 1) * visits * ((2 + 2) * H + (2 * 2 + 2) * 30)
    )


def test_clamped_experts_run_eight_kernels_of_two_operands():
    clamped = replace(MIXED, clamped=True, gated=False, shared_ffn=0)
    found = table(layer_operators(clamped, replace(PLAIN, ep=4), Layer(mlp="experts")))
    each = 216 * 30 * 2
    assert found["clamped activation"] == moves(8 * 3 * each, 2 * 8 * 3 * each, 8)
    assert found["experts in"] == gemm(108, 30, H, times=2)
    assert "shared expert in" not in found


def test_biases_after_experts_are_added_in_32_bits_by_kernels_of_their_own():
    """Forward: the product with weights of tokens, the sum, the join, the cast. Backward: two
    casts, two products with the gradient and their sums, the join.
    """
    clamped = replace(MIXED, clamped=True, gated=False, shared_ffn=0)
    for load in (1.0, 1.25):
        parallel = replace(PLAIN, ep=4, expert_load=load)
        found = table(layer_operators(clamped, parallel, Layer(mlp="experts")))
        forward = 4 + (2 + 4 + 4) + (4 + 4) + (4 + 2)
        backward = (2 + 4) + (4 + 2) + 2 * (4 + 4 + 4) + (2 + 2)
        each = 216 * load * H
        assert found["experts' biases"] == moves(forward * each, backward * each, 4)
    plain = layer_operators(replace(clamped, clamped=False), parallel, Layer(mlp="experts"))
    assert "experts' biases" not in plain.names


def test_latent_attention_compresses_queries_and_keys():
    """Down to 20 and 16 + 6 on tokens that tensor ranks divide, then up to 4 heads of 12 + 6, and
    of 12 + 14.
    """
    latent = {
        "attention norm": moves(4 * L * H, 8 * L * H),
        "query down": gemm(L, 20, H),
        "query up": gemm(T, 4 * 18, 20),
        "key and value down": gemm(L, 22, H),
        "key and value up": gemm(T, 4 * 26, 16),
        "positions": moves(4 * T * 8 * 18, 4 * T * 8 * 18),
        "attention": flash(2 * T * 48 * 4 * 32, 2 * T * (4 * 32 + 4 * 32)),
        "attention output": gemm(T, H, 4 * 14),
        "attention residual": moves(6 * L * H, 4 * L * H),
    }
    check(layer_operators(LATENT, PLAIN, Layer()), latent | MLP)
    whole = table(layer_operators(replace(LATENT, q_lora=0), PLAIN, Layer()))
    assert whole["query"] == gemm(T, 4 * 18, H)
    assert "query down" not in whole
    cast = table(layer_operators(LATENT, replace(PLAIN, precision="fp8"), Layer()))
    for name, sizes in {
        "query down": (L, 20, H),
        "query up": (T, 72, 20),
        "key and value down": (L, 22, H),
        "key and value up": (T, 104, 16),
        "attention output": (T, H, 56),
    }.items():
        assert cast[name] == gemm(*sizes, cast=4), name


STATED = replace(
    DENSE, mixers=("mamba",), state_heads=8, state_dim=10, state_groups=2, state_size=6, conv=4
)


@pytest.mark.parametrize(
    ("mixer", "inward"),
    [("mamba", 40 + 52 + 4), ("delta", 40 + 52 + 8), ("kda", 52 + 4), ("linear", 40 + 52)],
)
def test_a_layer_with_a_state_works_on_chunks_of_its_tokens(mixer, inward):
    """4 of 8 heads of 10 values are 40 a token, keys and queries of one group 12; gate, values,
    keys, steps go in.

    In a chunk each of 48 tokens before meets 6 + 10 numbers, and 2 x 6 x 10 come from the state
    before, which is 60 numbers of 32 bits a head, written, passed on (read, written) and read.
    Kimi's gates pass a size of one head.
    """
    passed = 16 * T / 96 * 4 * 60
    wanted = {
        "state norm": moves(4 * L * H, 8 * L * H),
        "state in": gemm(T, inward, H),
        "convolution": moves(4 * T * 52, 8 * T * 52),
        "state": (
            FLASH,
            [flops := 2 * T * 4 * (48 * 16 + 120), 2.5 * flops, 0],
            [moved := 2 * T * (2 * 40 + 12), 2.5 * moved, 0],
            [passed, 2 * passed, 0],
            [4, 8, 0],
        ),
        "gate and norm": moves(6 * T * 40, 10 * T * 40, 2),
        "state out": gemm(T, H, 40),
        "state residual": moves(6 * L * H, 4 * L * H),
    }
    if mixer == "kda":
        wanted |= {"gates down": gemm(T, 20, H), "gates up": gemm(T, 6 + 40, 10)}
    found = layer_operators(STATED, PLAIN, Layer(mixer, "none"))
    check(found, wanted)
    assert found.size[:, found.names.index("state")].tolist() == [48, 96, 8]
    plain = table(layer_operators(replace(STATED, conv=0, seq=4 * 96), PLAIN, Layer(mixer, "none")))
    assert "convolution" not in plain
    assert plain["state"][1][0] == 2 * 4 * T * 4 * (128 / 2 * 16 + 120)


INDEXED = replace(LATENT, v_dim=18, mixers=("sparse",), index_heads=3, index_dim=5, index_top_k=8)
SHORT = replace(
    DENSE,
    mixers=("csa", "hca"),
    csa=4,
    hca=8,
    window=16,
    q_lora=20,
    o_lora=12,
    o_groups=2,
    index_heads=3,
    index_dim=5,
    index_top_k=8,
)


def indexer(keys, width, cast, unit):
    """Each of 72 tokens' 3 heads of 5 numbers meets all keys, with a weight a head; scores of half
    are read twice.
    """
    flops, moved = L * keys * 3 * 6, 4 * L * 15
    return {
        "indexer queries": gemm(L, 15, 20, cast=cast, unit=unit),
        "indexer key and weights": gemm(L, width, H, cast=cast, unit=unit),
        "indexer scores": (FLASH, [flops, 2 * flops, 0], [moved, 2 * moved, 0], [0] * 3, [1, 2, 0]),
        "top tokens": moves(4 * L * keys / 2, 0, 2),
    }


def test_an_indexer_scores_all_keys():
    found = layer_operators(INDEXED, replace(PLAIN, precision="fp8"), Layer("sparse", "none"))
    assert table(found).items() >= indexer(96, 5 + 3, 4, GEMM).items()
    assert found.size[:, found.names.index("indexer scores")].tolist() == [48, 96, 5]


@pytest.mark.parametrize(("mixer", "wide"), [("csa", 40), ("hca", 20)])
def test_keys_of_several_tokens_are_weighted_sums(mixer, wide):
    """Of two products, in 16 bits whatever the rest is in; all heads share one key, and outputs
    pass a smaller size.
    """
    wanted = {
        "attention norm": moves(4 * L * H, 8 * L * H),
        "query down": gemm(L, 20, H, cast=4),
        "query up": gemm(T, 40, 20, cast=4),
        "key and value": gemm(L, 10, H, cast=4),
        "positions": moves(4 * T * 5 * 10, 4 * T * 5 * 10),
        "keys of several tokens": gemm(L, wide, H, unit=WIDE),
        "weighted keys": moves(8 * L * wide, 16 * L * wide, 4),
        "attention": flash(
            2 * T * attended_tokens(SHORT, mixer) * 4 * 20, 2 * T * (4 * 20 + 1 * 20)
        ),
        "attention output down": gemm(T, 12, 40, cast=4),
        "attention output": gemm(T, H, 12, cast=4),
        "attention residual": moves(6 * L * H, 4 * L * H),
    }
    wanted |= indexer(96 / 4, 4 * 5 + 3, 0, WIDE) if mixer == "csa" else {}
    check(layer_operators(SHORT, replace(PLAIN, precision="fp8"), Layer(mixer, "none")), wanted)


def test_hidden_states_beside_each_other_are_mixed_before_each_part():
    """Weights of 4 states for their sum, and of each new one, from all four; 18 of them move in 32
    bits.
    """
    part = {
        "stream weights": gemm(L, 24, 4 * H, unit=WIDE),
        "streams": moves(18 * 4 * L * H, 36 * 4 * L * H, 4),
    }
    wide, alone = replace(DENSE, streams=4), replace(PLAIN, tp=1, sequence_parallel=False)
    for layer, own in ((Layer(mlp="none"), ATTENTION), (Layer("none"), MLP)):
        check(layer_operators(wide, PLAIN, layer), own | part)
    assert layer_operators(wide, PLAIN, Layer()).names.count("streams") == 2
    assert table(layer_operators(wide, alone, Layer()))["streams"] == moves(
        18 * 4 * T * H, 36 * 4 * T * H, 4
    )


def test_gates_of_attention_are_made_with_its_queries():
    gated = ATTENTION | {
        "query, key, value": gemm(T, 100, H),
        "activation": moves(6 * T * 40, 10 * T * 40),
    }
    check(layer_operators(replace(DENSE, attention_gate=True), PLAIN, Layer(mlp="none")), gated)


def test_experts_of_a_smaller_hidden_size_have_projections_around_them():
    found = table(
        layer_operators(
            replace(MIXED, expert_hidden=32), replace(PLAIN, ep=4), Layer(mlp="experts")
        )
    )
    wanted = {
        "latent down": gemm(L, 32, H),
        "experts in": gemm(108, 60, 32, times=2),
        "latent up": gemm(L, H, 32),
    }
    wanted |= {name: moves(8 * 216 * 32, 8 * 216 * 32, 4) for name in ("permute", "unpermute")}
    assert found.items() >= wanted.items()


def test_the_ends_of_a_model():
    """Logits in 32 bits are read and written for the loss; the table's gradients are added up in 32
    bits.
    """
    logits = T * 500
    check(
        head_operators(DENSE, PLAIN),
        {
            "final norm": moves(4 * L * H, 8 * L * H),
            "output matrix": gemm(T, 500, H, unit=WIDE),
            "loss": moves(8 * logits, 4 * logits, 3),
        },
    )
    # Kernel by kernel, of 2 and 4 bytes: cast 2+4, max 4, minus 4+4, exp 4+4, sum 4, divide 4+4;
    # times 4+4, cast 4+2.
    eager = table(head_operators(DENSE, replace(PLAIN, kernels="eager")))
    assert eager["loss"] == moves((6 + 4 + 8 + 8 + 4 + 8) * logits, (8 + 6) * logits, 3)
    alone = table(head_operators(DENSE, replace(PLAIN, sequence_parallel=False)))
    assert alone["final norm"] == moves(4 * T * H, 8 * T * H)
    check(embedding_operators(DENSE, PLAIN), {"embedding": moves(6 * T * H, 8 * T * H, 3)})


@pytest.mark.parametrize(
    ("changes", "bytes_"),
    [
        ({}, 4),
        ({"gradient_bytes": 2}, 2),
        ({"sums_in_products": False}, 4 + 4 + 2),
        ({"sums_in_products": False, "gradient_bytes": 2, "zero": 3}, 2 + 2 + 2),
        ({"adapters": True}, 0),
    ],
)
def test_gradients_of_weights_are_added_up_with_each_microbatch(changes, bytes_):
    """A product that adds to the sum waits for reading it; another's gradient is read with it."""
    parallel = replace(PLAIN, **changes)
    layer = table(layer_operators(DENSE, parallel, Layer()))
    head = table(head_operators(DENSE, parallel))
    assert layer["MLP in"] == gemm(T, 200, H, summed=bytes_)
    assert head["output matrix"] == gemm(T, 500, H, unit=WIDE, summed=bytes_)


@pytest.mark.parametrize(
    ("window", "every"), [(10, 1), (10, 3), (95, 2), (96, 1), (200, 1), (0, 1)]
)
def test_a_window_hides_what_lies_farther_back(window, every):
    """The mean over positions of the tokens at or before each that it may see, in the limit of
    small tokens.
    """
    kinds = ("attention",) * (every - 1) + ("window",)
    model = replace(DENSE, window=window, mixers=kinds if window else ())
    positions = (np.arange(96 * 100) + 0.5) / 100
    for layer in kinds_of(replace(model, layers=6)):
        narrow = layer.mixer == "window"
        seen = np.minimum(positions, window if narrow else 96).mean()
        assert attended_tokens(model, layer.mixer) == pytest.approx(seen, rel=1e-4)
        found = table(layer_operators(model, PLAIN, layer))
        assert found["attention"][1][0] == pytest.approx(2 * T * seen * 4 * 20, rel=1e-4)


def test_layers_with_experts_follow_the_dense_ones_at_the_front():
    every_third = replace(MIXED, layers=9, dense_layers=2, moe_every=3)
    assert [n for n, layer in enumerate(kinds_of(every_third)) if layer.mlp == "experts"] == [4, 7]
    assert every_third.moe_layers == 2
    assert set(kinds_of(DENSE)) == {("attention", "dense")}


def test_flops_of_deepseek_v3_are_those_of_its_matrices():
    """Six for each element of a matrix that a token visits, and for each pair of tokens a head's
    192 + 128.
    """
    h, s = 7168, 4096
    attention = (
        h * 1536 + 1536 * 128 * 192 + h * (512 + 64) + 512 * 128 * (128 + 128) + 128 * 128 * h
    )
    dense, mixed = 3 * h * 18432, 3 * h * 2048 * 9 + h * 256
    layers = 61 * attention + 3 * dense + 58 * mixed
    # multi-token prediction: a layer, a projection, and the output once more
    once = attention + mixed + 2 * h * h
    pairs = 6 * 62 * s / 2 * 128 * (192 + 128)
    wanted = 6 * (layers + once + 2 * 129280 * h) + pairs
    assert flops_per_token(read_model("deepseek-v3")) == pytest.approx(wanted, rel=1e-4)


def test_flops_of_layers_are_those_of_their_operators():
    """What a step counts as the model's own is what a GPU computes: three passes, five products of
    attention, not six.

    Recomputed scores in the backward of attention in one kernel are no FLOPs of the model.
    """
    for model in (
        DENSE,
        GPT,
        LATENT,
        replace(MIXED, dense_layers=1),
        replace(DENSE, window=10, mixers=("attention", "window")),
    ):
        alone, counted = Parallel(), 0.0
        for layer in kinds_of(model):
            found = layer_operators(model, alone, layer)
            flops = found.flops.sum(axis=0)
            counted += flops[found.unit != FLASH].sum() + flops[found.unit == FLASH].sum() * 3 / 3.5
        counted += head_operators(model, alone).flops.sum()
        # biases and inner norms
        assert flops_per_token(model) * model.seq == pytest.approx(counted, rel=0.03)


CURVE = Curve(
    "hopper",
    bf16=0.8,
    fp8=0.5,
    mxfp8=0.4,
    waves=0.3,
    keys=120,
    attention=0.6,
    hbm=0.7,
    within=1,
    between=1,
)
SOFT = Software(
    "x",
    launch_us=10,
    calls=4,
    elementwise=0.5,
    routed=0.25,
    expert_kernels=2,
)
FOUND = Efficiency(CURVE, SOFT)
GPU = read_gpu("h100")  # 989.4 TFLOP/s in 16 bits, 1978.9 in FP8, 3350 GB/s
RATE = 3350e9 * 0.7


def reached(m, n, filled=1.0):
    """The share of CURVE's rate that a product with m x n results reaches, whose tiles are filled
    by that share.
    """
    waves = m * n / filled / (128 * 256) / 132
    return filled * waves / (waves + 0.3)


def test_products_take_the_longer_of_computing_and_moving():
    """A share of the peak that falls for few tiles; beside it what elementwise work moves."""
    model = replace(
        DENSE, hidden=4096, ffn=16384, heads=32, kv_heads=8, head_dim=128, v_dim=128, seq=4096
    )
    found = layer_operators(model, Parallel(precision="fp8"), Layer())
    times = dict(zip(found.names, seconds(found, GPU, FOUND, "fp8").T.tolist(), strict=True))
    m, h = 4096, 4096
    sides = (m, 32768), (m, h), (h, 32768)  # what F, I and W make
    inward = [2 * m * 32768 * h / (1978.9e12 * 0.5 * reached(*each)) for each in sides]
    cast = [0.5 * 4 * each / RATE for each in (m * h, m * 32768, h * 32768)]
    assert times["MLP in"] == pytest.approx(
        [time + extra for time, extra in zip(inward, cast, strict=True)]
    )
    score = 2 * m * 2048 * 32 * 256 / (989.4e12 * 0.6 * (4096 / (4096 + 120)))
    assert times["attention"] == pytest.approx([score, 2.5 * score, 0])
    assert times["attention norm"] == pytest.approx(
        [0.5 * 4 * m * h / RATE, 0.5 * 8 * m * h / RATE, 0]
    )
    few = layer_operators(replace(model, seq=1), Parallel(), Layer())
    thin = dict(zip(few.names, seconds(few, GPU, FOUND, "bf16").T.tolist(), strict=True))
    read = 2 * (h + h * 32768 + 32768)  # of one token: the weights are what is moved
    computed = 2 * 32768 * h / (989.4e12 * 0.8 * reached(1, 32768))
    assert thin["MLP in"][0] == pytest.approx(max(read / RATE, computed))


# TFLOP/s of the forward and of the backward by width of heads: FlashAttention-3 on H100 with 16,384
# tokens (arXiv 2407.08608, figures 5 and 6), FlashAttention-2 on RTX 4090 with 2,048 (apache/tvm,
# tl_doc/flash_perf.md, masked).
@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("h100", {64: 497, 128: 648, 256: 756}, {64: 474, 128: 561}),
        ("rtx-4090", {32: 126.78, 64: 142.23, 128: 151.19}, {32: 86.48, 64: 96.53, 128: 99.23}),
    ],
)
def test_narrow_heads_are_slower_as_published_by_their_exponentials(name, forward, backward):
    gpu, found = read_gpu(name), Efficiency(Curve("any"), Software("any"))
    per_flop = {}
    for width in forward:
        model = replace(
            DENSE,
            hidden=4096,
            heads=4096 // width,
            kv_heads=4096 // width,
            head_dim=width,
            v_dim=width,
        )
        layer = layer_operators(replace(model, seq=4096), Parallel(), Layer())
        here = layer.names.index("attention")
        per_flop[width] = seconds(layer, gpu, found, "bf16")[:2, here] / layer.flops[:2, here]
    for row, table in enumerate((forward, backward)):
        for width, speed in table.items():
            assert per_flop[128][row] / per_flop[width][row] == pytest.approx(
                speed / table[128], abs=0.065
            )
    unknown = (
        seconds(layer, replace(gpu, exponentials=0), found, "bf16")[:2, here]
        / layer.flops[:2, here]
    )
    assert unknown == pytest.approx(per_flop[128])


def test_each_kind_of_elementwise_work_moves_its_share_of_the_bytes():
    mixed = layer_operators(MIXED, replace(PLAIN, ep=4), Layer(mlp="experts"))
    times = dict(zip(mixed.names, seconds(mixed, GPU, FOUND, "bf16").T.tolist(), strict=True))
    assert times["routing"][0] == pytest.approx(0.25 * 16 * L * 8 / RATE)
    assert times["experts' activation"][1] == pytest.approx(0.25 * 10 * 216 * 30 / RATE)
    scores = layer_operators(GPT, replace(PLAIN, flash=False), Layer())
    times = dict(zip(scores.names, seconds(scores, GPU, FOUND, "bf16").T.tolist(), strict=True))
    assert times["softmax"][0] == pytest.approx(0.5 * 4 * T * 96 * 4 / RATE)
    head = head_operators(DENSE, PLAIN)
    assert seconds(head, GPU, FOUND, "fp8")[0, 2] == pytest.approx(0.5 * 8 * T * 500 / RATE)
    # The output stays in 16 bits; of 144 x 500 numbers in tiles of 256 x 128 a part is empty.
    flops = 2 * T * 500 * H / (989.4e12 * 0.8 * reached(T, 500, T * 500 / (256 * 512)))
    assert seconds(head, GPU, FOUND, "fp8")[0, 1] == pytest.approx(
        max(flops, 2 * (T * H + 500 * H + T * 500) / RATE)
    )


@pytest.mark.parametrize(
    ("rows", "columns", "filled"),
    [
        (4096, 4096, 1),
        (4096, 4097, 4097 / 4224),
        (96, 4096, 96 / 128),
        (300, 384, 300 / 384),
        (129, 200, 129 / 256),
    ],
)
def test_tiles_at_the_edges_of_a_product_compute_as_long_as_whole_ones(rows, columns, filled):
    """The shape of tiles that wastes least counts; 300 x 384 numbers take nine of 128 x 128."""
    model = replace(
        DENSE, hidden=8192, ffn=columns, gated=False, heads=64, kv_heads=64, head_dim=128, seq=rows
    )
    found = layer_operators(model, Parallel(), Layer())
    product = found.names.index("MLP in")
    wide = 200 / 256 if columns == 200 else 1
    longest = 2 * rows * columns * 8192 / (989.4e12 * 0.8 * reached(rows, columns, filled * wide))
    moved = 2 * (rows * 8192 + 8192 * columns + rows * columns) / RATE
    assert seconds(found, GPU, FOUND, "bf16")[0, product] == pytest.approx(max(longest, moved))


def test_sizes_that_fill_tiles_worse_are_slower_than_larger_ones():
    """57,600 columns over 8 ranks are 56.25 tiles of 128: no faster than 57 of them."""
    each = {}
    for ffn in (57600, 58368):
        model = replace(
            DENSE, hidden=14400, ffn=ffn, gated=False, heads=96, kv_heads=96, head_dim=150, seq=4096
        )
        found = layer_operators(model, Parallel(tp=8), Layer())
        each[ffn] = seconds(found, GPU, FOUND, "bf16")[0, found.names.index("MLP in")]
    assert each[57600] == pytest.approx(each[58368])


def test_a_pass_takes_no_less_than_its_launches():
    """Forward; and backward, in which both passes share the launches. Far from alike, the longer
    one counts.
    """
    tiny, waits = (
        layer_operators(replace(DENSE, hidden=8, ffn=8, vocab=8), Parallel(), Layer()),
        np.zeros(3),
    )
    kernels = [tiny.kernels[0].sum(), tiny.kernels[1:].sum()]
    assert kernels == [11, 11 + 2 + 4]
    found = pass_seconds(tiny, GPU, FOUND, "bf16")
    assert [found[0], found[3]] == pytest.approx([k * 5e-6 * 2.0 for k in kernels], rel=1e-3)
    # with collectives four launches more
    held = pass_seconds(tiny, GPU, FOUND, "bf16", waits + 1e-12)
    assert [held[0], held[3]] == pytest.approx([(k + 4) * 5e-6 * 2.0 for k in kernels], rel=1e-3)
    late = pass_seconds(tiny, GPU, FOUND, "bf16", np.array([1.0, 2.0, 0.0]))
    assert late[:2] == pytest.approx([1.0, 2.0], rel=1e-3)
    experts = layer_operators(MIXED, replace(PLAIN, ep=4), Layer(mlp="experts"))
    assert pass_seconds(experts, GPU, FOUND, "bf16")[0] == pytest.approx(
        2 * experts.kernels[0].sum() * 1e-5, rel=1e-2
    )
    head = head_operators(DENSE, PLAIN)
    assert pass_seconds(head, GPU, FOUND, "bf16")[0] == pytest.approx(5 * 1e-5, rel=1e-2)


def test_gpu_and_host_that_are_alike_take_a_fourth_root_longer():
    """Norms of the fourth power: equal times together take 2^(1/4) as long."""
    big = layer_operators(replace(DENSE, hidden=4096, ffn=16384, seq=4096), Parallel(), Layer())
    gpu = seconds(big, GPU, FOUND, "bf16").sum(axis=1)
    host = Efficiency(CURVE, replace(SOFT, launch_us=gpu[0] / big.kernels[0].sum() * 1e6))
    assert pass_seconds(big, GPU, host, "bf16")[0] == pytest.approx(gpu[0] * 2**0.25)
    back = Efficiency(CURVE, replace(SOFT, launch_us=gpu[1:].sum() / big.kernels[1:].sum() * 1e6))
    assert pass_seconds(big, GPU, back, "bf16")[3] == pytest.approx(gpu[1:].sum() * 2**0.25)


@pytest.mark.parametrize("launch_us", [1e-3, 20.0, 1e3])
def test_a_split_backward_takes_no_less_than_a_whole_one_and_as_much_where_one_side_is_far_longer(
    launch_us,
):
    """The host launches ahead within one B, not from I to W."""
    layer = layer_operators(replace(DENSE, hidden=1024, ffn=4096, seq=1024), Parallel(), Layer())
    _, inputs, weights, whole = pass_seconds(
        layer, GPU, Efficiency(CURVE, replace(SOFT, launch_us=launch_us)), "bf16"
    )
    apart = (inputs + weights) / whole - 1
    assert -1e-12 < apart < 0.2
    assert (apart < 1e-3) == (launch_us != 20.0)


@pytest.mark.parametrize(("seq", "times"), [(2048, 1), (16384, 6)])
def test_states_take_as_long_as_attention_at_2k_tokens_and_a_sixth_at_16k(seq, times):
    """Mamba-2's kernels against FlashAttention-2, arXiv 2405.21060, section 1: heads of 64, a state
    of 64, on A100.
    """
    model = Model(
        2048,
        32,
        2,
        seq,
        0,
        head_dim=64,
        mixers=("mamba", "attention"),
        state_heads=32,
        state_dim=64,
        state_groups=1,
        state_size=64,
    )
    parallel, gpu, usual = (
        Parallel(mbs=32768 // seq),
        read_gpu("a100-80gb"),
        replace(fitted(), shared=replace(fitted().shared, states=4.0)),
    )
    found = efficiency_of(gpu, parallel, usual)
    took = []
    for layer, name in zip(kinds_of(model), ("state", "attention"), strict=True):
        rows = layer_operators(model, parallel, layer)
        took.append(seconds(rows, gpu, found, "bf16")[:, rows.names.index(name)].sum())
    assert took[1] / took[0] == pytest.approx(times, rel=0.25)


@pytest.mark.parametrize(("gated", "inputs"), [(False, 1), (True, 2)])
def test_an_encoders_tokens_all_attend_to_each_other(gated, inputs):
    """2 images of 48 tokens on 2 x 2 GPUs: 48 tokens, 24 between linear layers; heads of 80 / 5 =
    16.
    """
    tower = Encoder(hidden=80, heads=5, layers=2, ffn=300, tokens=48, gated=gated)
    found = encoder_operators(tower, Parallel(tp=2, cp=2, mbs=2))
    tokens, local = 48, 24 * 80
    wide = tokens * 150
    assert table(found) == {
        "norms": moves(2 * 2 * 2 * local, 2 * 4 * 2 * local, 2),
        "query, key, value": gemm(tokens, 120, 80),
        "attention": flash(4 * tokens * 48 * 40, 2 * tokens * 4 * 40),
        "attention output": gemm(tokens, 80, 40),
        "MLP in": gemm(tokens, inputs * 150, 80),
        "activation": moves(2 * (inputs + 1) * wide, 2 * (2 * inputs + 1) * wide),
        "MLP out": gemm(tokens, 80, 150),
        "residuals": moves(2 * 3 * 2 * local, 2 * 2 * 2 * local, 2),
    }
    assert found.size[:, found.names.index("attention")].tolist() == [24, 48, 16]
    apart = encoder_operators(
        tower, Parallel(tp=2, cp=2, mbs=2, sequence_parallel=False, precision="fp8")
    )
    assert table(apart)["norms"] == moves(2 * 2 * 2 * 2 * local, 2 * 2 * 4 * 2 * local, 2)
    assert table(apart)["MLP out"] == gemm(tokens, 80, 150, cast=4)


@pytest.mark.parametrize("precision", ["bf16", "fp8", "mxfp8"])
def test_a_layer_with_a_state_keeps_what_enters_and_leaves_it(precision):
    """By the token: 80 values and two groups of two states of 6 before and after the convolution,
    twice the values beside the gate, the output of the gate as narrow as precision makes it, and
    two gates of 8 heads in 32 bits.
    """
    mixed, values = 8 * 10 + 2 * 2 * 6, 8 * 10
    narrow = activations.KEPT_AS.get(precision, 2)
    tokens = STATED.seq * 1
    for tp in (1, 2):
        found = activations._state_bytes(STATED, Parallel(precision=precision, tp=tp), "mamba")
        assert found == tokens / tp * (2 * (2 * mixed + 2 * values) + narrow * values + 4 * 2 * 8)
    plain = activations._state_bytes(
        replace(STATED, conv=0), Parallel(precision=precision), "mamba"
    )
    assert plain == tokens * (2 * (mixed + 2 * values) + narrow * values + 4 * 2 * 8)
    assert activations._state_bytes(STATED, Parallel(), "kda") - activations._state_bytes(
        STATED, Parallel(), "mamba"
    ) == (tokens * 2 * 8 * 6)


def test_gathers_are_of_hidden_states_keys_and_values_or_of_states():
    """Keys and values of all context ranks; three of the values and both groups' states of a
    token's own rank.
    """
    tokens = DENSE.seq // 2
    whole, keys = gathered_bytes(DENSE, Parallel(cp=2), Layer("attention", "dense"))
    assert whole == tokens * DENSE.hidden * 2
    assert keys == 2 * DENSE.kv_heads * DENSE.head_dim * 2 * DENSE.seq
    states = gathered_bytes(STATED, Parallel(cp=2), Layer("mamba", "dense"))[1]
    assert states == (3 * 8 * 10 + 2 * 2 * 6) * 2 * tokens
    assert gathered_bytes(STATED, Parallel(cp=2, tp=2), Layer("mamba", "dense"))[1] == states / 2
    assert gathered_bytes(DENSE, Parallel(cp=2), Layer("none", "dense"))[1] == 0


def products_of_all_tokens(model: Model, mixer: str) -> dict[str, float]:
    """The width of each input of an attention layer that is made of a rank's own tokens, over the
    tokens that a row of it has, and read for all tokens.
    """
    made = {"query up": float(model.q_lora), "key": float(model.head_dim)}
    if mixer == "csa":
        made |= {"key of four": model.head_dim / 4, "indexer key of four": model.index_dim / 4}
    return made | ({"key of 128": model.head_dim / 128} if mixer == "hca" else {})


@pytest.mark.parametrize("mixer", ["window", "csa", "hca"])
def test_deepseek_v4_gathers_latents_and_one_head_of_keys(mixer):
    """Down-projections run on the rank's own tokens, so their outputs are gathered, not hidden
    states; between context ranks only keys of several tokens, and a window's hidden states.
    """
    model, layer = read_model("deepseek-v4-flash", 8192), Layer(mixer, "experts")
    gathered = products_of_all_tokens(model, mixer)
    assert attention_input_share(model, layer) == pytest.approx(sum(gathered.values()) / 4096)
    two = dict(zip(*listed(model, Parallel(tp=2), layer), strict=True))
    one = dict(zip(*listed(model, Parallel(), layer), strict=True))
    assert two["query down"] == one["query down"] / 2  # own tokens, all of the rank
    assert two["query up"] == one["query up"] / 2  # all tokens, half of the heads
    whole, kept = gathered_bytes(model, Parallel(cp=2, mbs=3), layer)
    assert whole == 3 * 4096 * 4096 * 2  # hidden states, behind the last product
    keys = sum(width for name, width in gathered.items() if " of " in name)
    assert kept == 2 * 3 * (128 * 4096 + 8192 * keys)


def listed(model: Model, parallel: Parallel, layer: Layer) -> tuple[tuple[str, ...], list[float]]:
    """Names and FLOPs of a layer's operators, forward."""
    operators = layer_operators(model, parallel, layer)
    return operators.names, operators.flops[0].tolist()


def test_experts_are_four_times_as_wide_as_the_model_where_nothing_says_more():
    wide = Model(64, 4, 2, 128, 100, experts=8, top_k=2)
    assert (wide.ffn, wide.expert_ffn) == (256, 256)
    assert Model(64, 4, 2, 128, 100, ffn=96, experts=8, top_k=2).expert_ffn == 96
    assert Model(64, 4, 2, 128, 100, ffn=96, experts=8, top_k=2, expert_ffn=32).expert_ffn == 32
