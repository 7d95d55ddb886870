"""Memory of pipeline devices against measured runs, and files of measured peaks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.memory.usage import curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.workload.cost.costs import schedule_of, step_time
from ppsim.workload.cost.measured import fit_line, read_peaks
from ppsim.workload.cost.memory import (
    device_memory,
    held_at_peaks,
    host_memory,
    in_flight,
    memory_model,
    stage_memory,
)
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.activations import encoder_activations, layer_activations, weight_inputs
from ppsim.workload.model.contents import (
    StageContent,
    contents_of,
    kept_bytes,
    parameters_of_stages,
)
from ppsim.workload.model.model import (
    Encoder,
    Layer,
    Model,
    count_parameters,
    encoder_parameters,
    expert_parameters,
    layer_parameters,
    read_model,
)
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.software import apply, read_software
from ppsim.workload.plans.task import usable_bytes

# SimuMax docs (MooreThreads/SimuMax@4dcaae5): PyTorch's peaks in MiB on B200, Megatron-LM 0.14, a
# few layers.
RUNS = [
    ("llama3-70b", 12, 4096, Parallel(pp=2, dp=4, microbatches=4), [68149.2, 64479.5]),
    ("llama3-70b", 12, 4096, Parallel(tp=2, dp=4, microbatches=4), [62136.4]),
    ("llama3-70b", 12, 4096, Parallel(tp=4, dp=2, microbatches=4), [40009.8]),
    ("llama3-70b", 12, 4096, Parallel(tp=8, microbatches=4), [28965.4]),
    ("llama3-70b", 12, 32768, Parallel(tp=2, cp=4, microbatches=4), [70070.6]),
    ("llama3-70b", 12, 131072, Parallel(cp=8, microbatches=4), [151539.4]),
    ("deepseek-v2", 4, 4096, Parallel(pp=2, dp=4, ep=4, microbatches=4), [32343.4, 45775.8]),
    ("deepseek-v3", 4, 4096, Parallel(pp=2, dp=4, ep=4, microbatches=4), [72948.5, 116737.9]),
    ("deepseek-v3", 4, 4096, Parallel(dp=8, ep=8, microbatches=4), [106803.8]),
]


@pytest.mark.parametrize(("name", "layers", "seq", "parallel", "measured"), RUNS)
def test_peaks_are_within_five_percent_of_measured_ones(name, layers, seq, parallel, measured):
    model = read_model(name)
    few = replace(model, layers=layers, seq=seq, mtp=0, dense_layers=min(model.dense_layers, 1))
    assert device_memory(few, parallel).total / 2**20 == pytest.approx(np.array(measured), rel=0.05)


def test_devices_hold_as_many_microbatches_as_the_schedule_says():
    assert in_flight(schedule_of("1f1b", 4, 1, 8)).tolist() == [4, 3, 2, 1]
    assert in_flight(schedule_of("gpipe", 4, 1, 8)).tolist() == [8, 8, 8, 8]
    assert in_flight(schedule_of("interleaved", 4, 2, 8)).tolist() == [11, 9, 7, 5]


def test_zero_divides_states_and_recompute_drops_activations():
    model, plain = read_model("llama3-8b"), Parallel(dp=8, zero=0)
    whole = device_memory(model, plain)
    divided = device_memory(model, replace(plain, zero=3))
    for part in ("weights", "gradients", "optimizer"):
        assert getattr(divided, part)[0] == pytest.approx(getattr(whole, part)[0] / 8)
    full = device_memory(model, replace(plain, recompute="full"))
    assert full.activations[0] == 32 * 8192 * 4096 * 2  # each layer's input in 16 bits


def test_offloaded_activations_wait_in_the_hosts_memory():
    """A GPU keeps the rest, and the layer that is being copied."""
    model, parallel = read_model("llama3-70b"), Parallel(tp=4, pp=4, microbatches=16)
    plain, half = (
        device_memory(model, parallel),
        device_memory(model, replace(parallel, offload=0.5)),
    )
    assert host_memory(model, replace(parallel, offload=0.5)) == pytest.approx(
        plain.activations / 2
    )
    assert half.activations == pytest.approx(plain.activations / 2)
    assert (half.work >= plain.work).all()


def test_inputs_of_linear_layers_are_kept_as_narrow_as_they_are_multiplied():
    """In FP8 a byte less for each element of four inputs: of query, key, value; of attention's
    output; of the MLP's.
    """
    model, parallel = read_model("llama3-70b"), Parallel(tp=4)
    wide, narrow = (
        layer_activations(model, replace(parallel, precision=p), Layer(), "none")
        for p in ("bf16", "fp8")
    )
    inputs = 2 * model.hidden / 4 + model.hidden / 4 + model.ffn / 4
    assert wide - narrow == pytest.approx(model.seq * inputs)
    full = {
        p: layer_activations(model, replace(parallel, precision=p), Layer(), "full")
        for p in ("bf16", "fp8")
    }
    assert full["bf16"] == full["fp8"]


GPT = Model(12288, 96, 96, 2048, 51200, biases=True, learned_positions=True)


@pytest.mark.parametrize("t", [1, 8])
def test_activations_of_a_gpt_layer_are_megatrons(t):
    """Table 2 of arXiv 2205.05198, in bytes for s b h: with tensor ranks alone, with sequence
    ranks, recomputed.
    """
    s, b, h, a = 2048, 3, 12288, 96
    base = Parallel(tp=t, mbs=b, flash=False, sequence_parallel=False)
    divided = replace(base, sequence_parallel=True)
    scores = 5 * a * s / h
    for parallel, recompute, each in (
        (base, "none", 10 + 24 / t + scores / t),
        (divided, "none", (34 + scores) / t),
        (base, "selective", 10 + 24 / t),
        (divided, "selective", 34 / t),
        (base, "full", 2),
        (divided, "full", 2 / t),
        (replace(base, flash=True), "none", 10 + 24 / t),
    ):
        assert layer_activations(GPT, parallel, Layer(), recompute) == pytest.approx(
            s * b * h * each
        )


def test_activations_of_a_layer_with_gates_groups_and_experts():
    """Of norms both ends; queries, keys, values, output; gate, up and product. A visit: input and
    output of its expert.

    Two of eight tensor ranks share a head of keys, so that each holds a whole one; router's scores
    are in 32 bits.
    """
    model = replace(read_model("mixtral-8x7b"), shared_ffn=512)
    tokens, local = 4096 * 2 / 2, 4096 * 2 / 2 / 16
    parallel = Parallel(tp=16, cp=2, mbs=2, dp=4, ep=8)
    outer = 8 * local * 4096 + 2 * tokens * (2 + 2 * 1) * 128 + 2 * tokens * 2 * 128
    visits = tokens / 16 * 2
    routed = visits * (4 * 4096 + 6 * 14336) + 8 * tokens / 16 * 8
    assert layer_activations(model, parallel, Layer(), "none") == pytest.approx(
        outer + 6 * tokens * 14336 / 16
    )
    shared = 6 * tokens * 512 / 16
    assert layer_activations(model, parallel, Layer(mlp="experts"), "none") == pytest.approx(
        outer + routed + shared
    )
    narrow = layer_activations(
        model, replace(parallel, precision="fp8"), Layer(mlp="experts"), "none"
    )
    spared = 2 * local * 4096 + tokens * 2 * 128 + visits * (4096 + 14336) + tokens * 512 / 16
    assert outer + routed + shared - narrow == pytest.approx(spared)


def test_activations_of_latent_attention():
    """Compressed queries and keys beside heads of 128 + 64 and 128; what linear layers read is a
    byte each in FP8.
    """
    model, parallel = read_model("deepseek-v3"), Parallel(tp=4)
    tokens, local, a = 4096, 1024, 32
    for precision, narrow in (("bf16", 2), ("fp8", 1), ("nvfp4", 9 / 16), ("mxfp8", 33 / 32)):
        kept = (
            2 * (2 + narrow) * local * 7168 + (2 + narrow) * local * (1536 + 512) + 2 * local * 64
        )
        kept += (
            2 * tokens * a * (2 * 192 + 128)
            + narrow * tokens * a * 128
            + (4 + narrow) * tokens * 18432 / 4
        )
        assert layer_activations(
            model, replace(parallel, precision=precision), Layer(), "none"
        ) == pytest.approx(kept)


@pytest.mark.parametrize(
    ("module", "freed"),
    [
        ("core_attn", 0.0),  # nothing, where attention is one kernel
        ("layernorm", 2 * 2 * 1024 * 7168),
        ("mla_up_proj", 2 * 4096 * 32 * (2 * 192 + 128)),
        ("moe_act", 2 * 4096 / 4 * 8 * 2048),
        ("shared_experts", 6 * 4096 * 2048 / 4),
        ("moe", 4096 / 4 * 8 * (4 * 7168 + 6 * 2048) + 8 * 1024 * 256 + 6 * 4096 * 2048 / 4),
        ("mlp", 0.0),
    ],
)
def test_what_selective_recompute_frees_is_what_its_modules_put_out(module, freed):
    """Of a layer of DeepSeek-V3 with experts on four tensor ranks, in 16 bits."""
    model, layer = read_model("deepseek-v3"), Layer(mlp="experts")
    parallel = Parallel(tp=4, dp=2, ep=8, modules=(module,))
    kept = [
        layer_activations(model, parallel, layer, recompute) for recompute in ("none", "selective")
    ]
    assert kept[0] - kept[1] == pytest.approx(freed)


def test_the_first_layers_of_a_stage_recompute():
    model, parallel = read_model("deepseek-v3"), Parallel(ep=8, dp=8, recompute="full")
    dense, mixed = (
        layer_activations(model, parallel, Layer(mlp=mlp), "none") for mlp in ("dense", "experts")
    )
    again = layer_activations(model, parallel, Layer(), "full")
    for recomputed, wanted in (
        (0, 3 * dense + 2 * mixed),
        (2, 2 * again + dense + 2 * mixed),
        (4, 4 * again + mixed),
    ):
        content = StageContent(((Layer(), 3), (Layer(mlp="experts"), 2)), 1, False, 0, recomputed)
        found = kept_bytes(model, parallel, content)
        assert found == pytest.approx(wanted + mixed)  # a layer of multi-token prediction keeps all


@pytest.mark.parametrize(("zero", "divided"), [(0, ""), (1, "o"), (2, "go"), (3, "wgo")])
def test_zero_divides_two_two_and_twelve_bytes_of_a_parameter(zero, divided):
    """ZeRO, arXiv 1910.02054, figure 1; experts have fewer copies to divide theirs over."""
    model = read_model("mixtral-8x7b")
    parallel = Parallel(tp=2, cp=2, dp=8, ep=4, zero=zero, gradient_bytes=2)
    outer, experts = parameters_of_stages(model, parallel, contents_of(model, parallel))[:, 0]
    found = device_memory(model, parallel)
    for name, part, each in (
        ("w", found.weights, 2),
        ("g", found.gradients, 2),
        ("o", found.optimizer, 12),
    ):
        one, other = (16, 8) if name in divided else (1, 1)
        assert part[0] == pytest.approx(each * (outer / one + experts / other)), name
    assert device_memory(model, replace(parallel, gradient_bytes=4)).gradients == pytest.approx(
        2 * found.gradients
    )


def test_adapters_keep_weights_and_no_states():
    found = device_memory(read_model("llama3-8b"), Parallel(adapters=True))
    assert found.weights[0] == 2 * count_parameters(read_model("llama3-8b"))
    assert (found.gradients[0], found.optimizer[0]) == (0, 0)


def work_of(model, **changes):
    return stage_memory(model, replace(Parallel(tp=2, pp=4, microbatches=4), **changes)).work


def test_what_a_backward_needs_beside_activations():
    """The gradients of a layer's widest activation, those of its weights in 16 bits, three whole
    inputs of the layer.

    At the output logits in 16 bits and in 32 count where they are more.
    """
    model = read_model("llama3-8b")
    tokens = 8192
    ends, wide = 3 * 2 * tokens * 4096, 2 * 2 * tokens * 14336 / 2
    # of two norms, which both tensor ranks hold whole
    gradients = 2 * (layer_parameters(model, Layer()) + 2 * 4096) / 2
    loss = 6 * tokens * 128256 / 2
    plain = wide + ends + gradients
    assert work_of(model) == pytest.approx([plain, plain, plain, loss + ends + gradients])
    assert work_of(replace(model, gated=False))[1] == pytest.approx(
        wide / 2 + ends + layer_parameters(replace(model, gated=False), Layer()) + 2 * 4096
    )
    layer = layer_activations(model, Parallel(tp=2), Layer(), "none")
    assert work_of(model, recompute="full")[1] == pytest.approx(plain + layer)
    assert work_of(model, recompute="selective")[1] == pytest.approx(plain)
    assert work_of(model, recompute="full", recompute_layers=(1, 0, 1, 1)) == pytest.approx(
        [plain + layer, plain, plain + layer, max(loss, wide + layer) + ends + gradients]
    )
    assert work_of(model, offload=0.25)[1] == pytest.approx(plain + layer / 4)
    assert (
        work_of(model, kernels="eager")[1]
        == work_of(model, adapters=True)[1]
        == pytest.approx(wide + ends)
    )
    empty = stage_memory(
        replace(model, layers=2),
        Parallel(tp=2, pp=4, microbatches=4),
        build_layout([0, 1, 1, 0], 4),
    )
    assert empty.work == pytest.approx([ends, plain, plain, loss + ends])


def test_what_a_backward_of_experts_needs():
    """A token's activations are in all experts that it visits; their gradients are one expert's at
    a time.
    """
    model = read_model("mixtral-8x7b")
    tokens = 4096
    routed = 3 * 4096 * 14336 * 8
    # of two norms and the router, which both tensor ranks hold whole
    copied = (2 + 8) * 4096
    outer = (layer_parameters(model, Layer(mlp="experts")) - routed + copied) / 2
    wide = 2 * 2 * tokens * 14336 * 2 / 2
    ends = 6 * tokens * 4096
    assert work_of(model, dp=4, ep=8)[1] == pytest.approx(wide + ends + 2 * outer)
    gathered = 2 * 2 * (outer + routed / 8)  # ZeRO-3: the layer at work and the one fetched ahead
    found = work_of(model, dp=4, ep=8, zero=3)
    assert found[1] == pytest.approx(wide + ends + 2 * outer + gathered)
    table = 2 * 32000 * 4096 / 2
    assert found[0] - found[1] == pytest.approx(table)
    layer = layer_activations(model, Parallel(tp=2, dp=4, ep=8), Layer(mlp="experts"), "none")
    again = work_of(model, dp=4, ep=8, recompute="full")[1]
    assert again == pytest.approx(wide + ends + 2 * outer + layer)


def test_a_tied_output_is_not_gathered_twice():
    model = replace(read_model("llama3-8b"), layers=4, tied=True)
    one, three = (stage_memory(model, Parallel(dp=64, zero=zero)).work[0] for zero in (1, 3))
    assert three - one == pytest.approx(2 * (2 * layer_parameters(model, Layer()) + 128256 * 4096))


def test_peaks_are_those_of_a_walk_over_the_queue():
    """F takes activations, I leaves what W needs; the op at work counts where both are most."""
    model, parallel = read_model("llama3-8b"), Parallel(tp=2, pp=4, microbatches=8)
    for name, chunks in (("1f1b", 1), ("zb-1p", 1), ("interleaved", 2), ("dualpipe-v", 2)):
        schedule = schedule_of(name, 4, chunks, 8)
        shaped = replace(parallel, vp=chunks, schedule=name)
        stages, rng = stage_memory(model, shaped), np.random.default_rng(1)
        stages = replace(stages, work=stages.work * rng.uniform(0, 50, shaped.stages))
        found = held_at_peaks(schedule, stages)
        for device in range(4):
            held, most = 0.0, (0.0, 0.0, 0.0)
            for op in range(*schedule.offsets[device : device + 2]):
                stage, kind = schedule.stage[op], schedule.kind[op].item()
                whole, kept = stages.activations[stage], stages.kept[stage]
                before = held
                held += {0: whole, 1: -whole, 2: kept - whole, 3: -kept}[kind]
                work = stages.work[stage] if kind in (1, 2) else 0.0
                running = before if kind in (1, 2) else max(before, held)
                most = max(most, (running + work, running, work), (held, held, 0.0))
            assert found[0][device] + found[1][device] == pytest.approx(most[0]), name
            assert (found[0][device], found[1][device]) == pytest.approx(most[1:]), name


GPT = replace(read_model("gpt3-175b"), layers=8)


def test_w_keeps_inputs_of_products_and_gradients_of_their_outputs():
    """Of each number of a GPT layer's hidden state 14 and 18 bytes, of the 34 of F (arXiv
    2401.10241, table 1).
    """
    one = 2048 * GPT.hidden
    assert weight_inputs(GPT, Parallel(), Layer()) == pytest.approx((14 * one, 18 * one))
    stages = stage_memory(GPT, Parallel(pp=4))
    assert stages.kept / stages.activations == pytest.approx([32 / 34] * 4)
    scores = stage_memory(GPT, Parallel(pp=4, flash=False, kernels="eager"))
    assert scores.kept / scores.activations == pytest.approx(
        [32 / (34 + 5 * 96 * 2048 / GPT.hidden)] * 4
    )


@pytest.mark.parametrize(
    ("changes", "inputs", "gradients"),
    [
        # Ranks keep a part of what they gather, 4 of 14 bytes; the gradients of both outputs are
        # whole, 4 of 18.
        ({"tp": 8}, 14 / 8, 14 / 8 + 4),
        ({"tp": 8, "sequence_parallel": False}, 4 + 10 / 8, 14 / 8 + 4),
        ({"precision": "fp8"}, 7, 9),
        ({"adapters": True}, 0, 0),
    ],
)
def test_what_w_keeps_is_divided_and_narrowed_as_it_is_read(changes, inputs, gradients):
    one = 2048 * GPT.hidden
    assert weight_inputs(GPT, Parallel(**changes), Layer()) == pytest.approx(
        (inputs * one, gradients * one)
    )


def test_layers_that_recompute_keep_what_was_computed_again_unless_w_computes_it_too():
    """F leaves 2 bytes of each number; I leaves 32, or the input and the gradients."""
    one = 2 * 2048 * GPT.hidden  # of two layers of a stage
    again = Parallel(pp=4, recompute="full")
    assert stage_memory(GPT, again).activations == pytest.approx([2 * one] * 4)
    assert stage_memory(GPT, again).kept == pytest.approx([32 * one] * 4)
    assert stage_memory(GPT, replace(again, weight_forwards=1)).kept == pytest.approx(
        [20 * one] * 4
    )


def test_with_fused_attention_all_devices_of_zb_1p_hold_nearly_as_much():
    """Later devices hold fewer microbatches in flight, and what more of their W need (ZB-H1 of
    arXiv 2401.10241).
    """
    held = device_memory(GPT, Parallel(pp=4, microbatches=16, schedule="zb-1p")).activations
    assert held.min() > 0.94 * held.max()
    scores = Parallel(pp=4, microbatches=16, schedule="zb-1p", flash=False, kernels="eager")
    assert device_memory(GPT, scores).activations.min() < 0.6 * held.max() * (34 + 80) / 34


def test_a_pipeline_of_one_device_holds_one_microbatch_of_all_stages():
    model = read_model("llama3-8b")
    content = contents_of(model, Parallel())[0]
    assert device_memory(model, Parallel(microbatches=9)).activations[0] == kept_bytes(
        model, Parallel(), content
    )
    chunks = device_memory(model, Parallel(microbatches=9, vp=2))
    assert chunks.activations[0] == kept_bytes(model, Parallel(), content)
    assert chunks.work[0] == stage_memory(model, Parallel(vp=2)).work.max()
    parts = (chunks.weights, chunks.gradients, chunks.optimizer, chunks.activations, chunks.work)
    assert chunks.total == pytest.approx(sum(parts))


def test_zero_three_holds_a_share_of_the_weights_and_two_layers_whole():
    model = read_model("llama3-70b")
    two, three = (
        device_memory(model, Parallel(dp=64, microbatches=4, zero=zero)) for zero in (2, 3)
    )
    layer = 2 * layer_parameters(model, Layer())
    ends = 2 * 2 * model.vocab * model.hidden
    assert three.weights == pytest.approx(two.weights / 64)
    assert three.work - two.work == pytest.approx(2 * layer + ends)


def test_measured_peaks_are_read_in_the_forms_people_have(tmp_path):
    """PyTorch's and Megatron's GB and MB are 2^30 and 2^20; of several ranks of a device the
    largest counts.
    """
    texts = {
        "list.json": "[4, 2]",
        "unit.json": '{"unit": "MiB", "memory": [4096, 2048]}',
        "ranks.json": '{"peak_by_rank_MB": {"0": 4000, "1": 4096, "2": 2048, "3": 2000}}',
        "nested.json": '{"source": "x", "pp8": {"memory_GB_per_rank": [4, 2]}}',
        "lines.txt": "4GiB\n2048MiB\n",
        "table.csv": "rank 0,4\nrank 1,2\n",
        "heading.csv": "device,peak MiB\n0,4096\n1,2048.0\n",
        "gib.csv": "rank,peak_gib\n0,4\n1,2\n",
        "key.json": '{"run": 3, "peaks_mib": [4096, 2048]}',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        assert read_peaks(str(tmp_path / name), 2).tolist() == [4 * 2**30, 2 * 2**30], name
    folder = tmp_path / "primus"
    folder.mkdir()
    for rank, held in enumerate((4, 2)):
        text = json.dumps({"1": {"memory": held / 2}, "2": {"memory": held}})
        (folder / f"pp_rank_{rank}.json").write_text(text)
    assert read_peaks(str(folder), 2).tolist() == [4 * 2**30, 2 * 2**30]
    (tmp_path / "halves.txt").write_text("4.5\n2.25\n")
    assert read_peaks(str(tmp_path / "halves.txt"), 2).tolist() == [4.5 * 2**30, 2.25 * 2**30]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not whole or not JSON"),
        ("{}", "has no memory by rank"),
        ("[1, 2, 3]", "3 ranks, and the pipeline has 2"),
        ("[" * 200_000, "nested too deeply"),
        ("[1e400, 3]", "out of range"),
        ("[NaN, 3]", "not whole or not JSON"),
        (f"[1{'0' * 400}, 3]", "has no memory by rank"),
        ('[1, "x"]', "has no memory by rank"),
        ("4 parsec\n1\n", "line 1: not a size: '4 parsec'"),
    ],
)
def test_a_file_without_peaks_is_refused(tmp_path, text, message):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_peaks(str(tmp_path / "m.json"), 2)


def test_a_line_over_microbatches_in_flight_explains_a_real_run():
    """Eight MI300X, PP 8, 16 microbatches (AMD-AGI/Primus@fd1eeabb, pp_data_example): within 3.5 %
    on each device.
    """
    measured = np.array([104.33, 95.57, 88.11, 80.33, 73.15, 65.85, 58.07, 52.20])
    held = in_flight(schedule_of("1f1b", 8, 1, 16)).astype(float)
    base, each = fit_line(held, measured)
    assert base + each * held == pytest.approx(measured, rel=0.035)


def test_folders_of_peaks_are_read_in_the_order_of_ranks(tmp_path):
    """The most of all iterations, of entries that are sizes; rank 10 comes after rank 2."""
    for rank in range(11):
        rows = {
            "1": {"memory": rank + 0.5},
            "2": {"memory": rank + 1.0},
            "3": {"memory": "x"},
            "4": 99,
            "5": {},
        }
        (tmp_path / f"pp_rank_{rank}.json").write_text(json.dumps(rows))
    assert read_peaks(str(tmp_path), 11).tolist() == [(rank + 1) * 2**30 for rank in range(11)]
    (tmp_path / "pp_rank_3.json").write_text('{"1": {"memory": true}, "2": [5]}')
    with pytest.raises(InputError, match=r"pp_rank_3\.json' has no memory of an iteration"):
        read_peaks(str(tmp_path), 11)
    (tmp_path / "pp_rank_3.json").write_text("[1]")
    with pytest.raises(InputError, match="has no memory of an iteration"):
        read_peaks(str(tmp_path), 11)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no pp_rank_"):
        read_peaks(str(tmp_path / "empty"), 1)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ('{"memory_bytes": [3, 5]}', [3, 5]),
        ('{"memory_MiB": {"1": 5, "0": 3}}', [3 << 20, 5 << 20]),
        ('{"memory": [3, 5]}', [3 << 30, 5 << 30]),
        ('{"memory": [3, 5], "unit": "B"}', [3, 5]),
        ('{"memory": [3, 5], "unit": "stone"}', None),
        ('{"peaks_bytes": [3, 5]}', [3, 5]),
        ('{"peak_mb_by_rank": [3, 5]}', [3 << 20, 5 << 20]),
        ('{"memory": {"first": 3, "1": 5}}', None),
        ('{"memory": [3, -5]}', None),
        ('{"memory": [0, 5]}', [0, 5 << 30]),
        ('{"memory": []}', None),
        ('{"a": {"b": {"memory_GiB": [3, 5]}}, "c": 4}', [3 << 30, 5 << 30]),
        ("bytes\n3\n5\n", [3, 5]),
        ("peak (MB)\n3\n5\n", [3 << 20, 5 << 20]),
        ("peak\n3\n5\n", [3 << 30, 5 << 30]),
        ("rank,GiB\n0,3\n\n1,5\n", [3 << 30, 5 << 30]),
        ("3 MiB\n5\n", [3 << 20, 5 << 30]),
        ("3\n5\n4\n6\n", [5 << 30, 6 << 30]),
    ],
)
def test_sizes_of_ranks_by_their_units(tmp_path, text, sizes):
    """Bare numbers are GiB where nothing names a unit; of two ranks of a device the larger one
    counts.
    """
    (tmp_path / "peaks").write_text(text)
    if sizes is None:
        with pytest.raises(InputError, match="has no memory by rank"):
            read_peaks(str(tmp_path / "peaks"), 2)
    else:
        assert read_peaks(str(tmp_path / "peaks"), 2).tolist() == sizes


@pytest.mark.parametrize("ranks", [1, 3])
def test_ranks_that_devices_do_not_divide_are_refused(tmp_path, ranks):
    (tmp_path / "peaks").write_text("1\n" * ranks)
    with pytest.raises(
        InputError, match=f"memory of {ranks} ranks, and the pipeline has 2 devices"
    ):
        read_peaks(str(tmp_path / "peaks"), 2)


def test_a_line_is_fitted_by_least_squares_or_through_zero():
    held = np.array([4.0, 3, 2, 1])
    assert fit_line(held, 5 + 2 * held) == pytest.approx((5, 2))
    assert fit_line(held, 5 + 2 * held + np.array([1, -1, -1, 1])) == pytest.approx((5, 2))
    assert fit_line(np.array([2.0, 2]), np.array([5.0, 7])) == (0.0, 3.0)


def test_each_replica_of_a_stage_waits_in_its_hosts_memory():
    model = read_model("llama3-8b")
    parallel = Parallel(pp=4, microbatches=8, schedule="dualpipe", offload=0.25)
    whole = device_memory(model, replace(parallel, offload=0.0)).activations
    assert host_memory(model, parallel) == pytest.approx(0.25 * whole)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-1p", "interleaved", "dualpipe-v", "chimera"])
@pytest.mark.parametrize("model", ["llama3-8b", "nemotron-3-nano"])
def test_memory_over_time_has_the_peaks_of_the_model(model, schedule):
    """`ppsim memory --model NAME` and `ppsim model NAME` say the same of every device."""
    found = read_model(model, 2048)
    made = schedule_of(schedule, 4, 2 if schedule in ("interleaved", "dualpipe-v") else 1, 8)
    sizes = Parallel(tp=2, pp=4, vp=made.n_stages // 4, dp=4, microbatches=8)
    parallel = replace(sizes, schedule=schedule, recompute="selective")
    timeline = simulate(made, costs_for(made))
    held = curves(timeline, memory_model(found, parallel, made.placement.devices)).peak
    assert held == pytest.approx(device_memory(found, parallel).total, rel=1e-6)


def test_moments_in_16_bits_save_four_bytes_a_parameter():
    """DeepSeek-V3, arXiv 2412.19437, section 3.3.2."""
    model, parallel = read_model("llama3-8b"), Parallel(zero=0)
    wide, narrow = (
        device_memory(model, replace(parallel, moment_bytes=size)).optimizer[0] for size in (4, 2)
    )
    assert wide - narrow == pytest.approx(4 * count_parameters(model))


def test_what_modules_free_of_deepseek_v3_stands_as_megatron_cores_authors_measured():
    """Scalable Training of Mixture-of-Experts Models with Megatron Core: early weights 26.3,
    up-projections 30.4 GB.
    """
    model, layer, parallel = read_model("deepseek-v3"), Layer(mlp="experts"), Parallel(dp=64, ep=64)
    kept = layer_activations(model, parallel, layer, "none")
    early = kept - layer_activations(model, replace(parallel, early_weights=True), layer, "none")
    again = kept - layer_activations(
        model, replace(parallel, modules=("mla_up_proj",)), layer, "selective"
    )
    assert early == pytest.approx(2 * 4096 * 8 * 7168)
    assert early / again == pytest.approx(26.3 / 30.4, rel=0.02)


def test_inputs_of_activations_may_be_kept_as_narrow_as_those_of_linear_layers():
    model, parallel = read_model("llama3-8b"), Parallel(precision="fp8")
    kept = [
        layer_activations(model, replace(parallel, narrow_activation=on), Layer(), "none")
        for on in (False, True)
    ]
    assert kept[0] - kept[1] == pytest.approx(2 * model.seq * model.ffn)
    wide = replace(parallel, precision="bf16")
    assert layer_activations(
        model, replace(wide, narrow_activation=True), Layer(), "none"
    ) == layer_activations(model, wide, Layer(), "none")


@pytest.mark.parametrize(
    ("precision", "each"), [("fp8", 2), ("mxfp8", 2 * 33 / 32), ("nvfp4", 2 * 9 / 16)]
)
def test_layers_hold_their_weights_twice_as_they_are_multiplied(precision, each):
    """Beside those in 16 bits, or in their place; embedding and output stay wide. ZeRO-3 holds a
    layer's at a time.
    """
    model = read_model("mixtral-8x7b")
    wide = Parallel(tp=2, pp=2, dp=4, ep=2)
    layers = layer_parameters(model, Layer(mlp="experts")) - (
        experts := 8 * expert_parameters(model)
    )
    copied = (2 + 8) * model.hidden  # norms and router, of which both tensor ranks hold all
    of_stage = 16 * ((layers + copied) / 2 + experts / 2)
    weights = [stage_memory(model, p).weights for p in (wide, replace(wide, precision=precision))]
    assert weights[1] - weights[0] == pytest.approx(each * of_stage)
    narrow = stage_memory(model, replace(wide, precision=precision, narrow_weights=True)).weights
    assert narrow - weights[0] == pytest.approx((each - 2) * of_stage)
    for other in ({"zero": 3}, {"kernels": "compiled"}, {"precision": "bf16"}):
        p = replace(wide, **{"precision": precision, "narrow_weights": True, **other})
        assert stage_memory(model, p).weights == pytest.approx(
            stage_memory(model, replace(p, precision="bf16")).weights
        )
    alone = replace(wide, precision=precision, narrow_weights=True, zero=0)
    assert stage_memory(model, alone).weights == pytest.approx(weights[1])


def test_compiled_layers_keep_no_outputs_of_norms_and_activations_and_torch_drops_nothing_out():
    """Of Llama-3 8B in bytes for s b h: 4 of norms, 3 of keys and values, 2 of attention, 14 of
    gates.
    """
    llama, gpt, tokens = (
        read_model("llama3-8b"),
        replace(read_model("llama3-8b"), biases=True),
        8192 * 4096,
    )
    fused, compiled, torch = (
        Parallel(kernels=kernels) for kernels in ("fused", "compiled", "torch")
    )
    assert layer_activations(llama, compiled, Layer(), "none") / tokens == pytest.approx(
        4 + 3 + 2 + 14
    )
    assert layer_activations(llama, fused, Layer(), "none") / tokens == pytest.approx(
        8 + 3 + 2 + 21
    )
    masks = [
        layer_activations(gpt, p, Layer(), "none") - layer_activations(llama, p, Layer(), "none")
        for p in (fused, torch)
    ]
    assert masks == pytest.approx([2 * tokens, 0])


def test_deepseek_v3_fits_as_its_authors_trained_it():
    """2,048 H800, PP16 EP64, DualPipe; 14.8 T tokens in 2.664 M GPU hours (arXiv 2412.19437): 1,543
    a second.
    """
    model, machine = read_model("deepseek-v3", 4096), read_machine("h800")
    plain = Parallel(
        pp=16,
        dp=128,
        ep=64,
        microbatches=120,
        schedule="dualpipe",
        precision="fp8",
        overlap_ep=True,
    )
    plain = replace(plain, dispatch="deepep", dispatch_bytes=1, cuda_graphs="none")
    recipe = replace(
        plain, moment_bytes=2, narrow_activation=True, early_weights=True, recompute="selective"
    )
    recipe = replace(recipe, modules=("layernorm", "moe_act", "mla_up_proj"))
    held = [
        device_memory(model, parallel).total.max() / usable_bytes(machine)
        for parallel in (plain, recipe)
    ]
    assert held[0] > 1.5
    assert 0.8 < held[1] < 1
    step = step_time(model, machine, recipe)
    assert step.tokens_per_s / recipe.gpus == pytest.approx(14.8e12 / 2.664e6 / 3600, rel=0.15)


# Megatron-Bridge, scripts/performance/configs: model, cluster, precision, sizes and microbatches,
# what is recomputed.
RECIPES: tuple[tuple[str, str, str, dict[str, int], str], ...] = (
    ("nemotron-3-super", "gb300-nvl72", "mxfp8", {"dp": 64, "ep": 64, "microbatches": 8}, ""),
    (
        "nemotron-3-super",
        "gb200-nvl72",
        "mxfp8",
        {"dp": 64, "ep": 64, "microbatches": 8},
        "moe_act layernorm core_attn moe",
    ),
    (
        "nemotron-3-nano",
        "gb200-nvl72",
        "mxfp8",
        {"dp": 8, "ep": 8, "mbs": 2, "microbatches": 32},
        "",
    ),
    (
        "nemotron-3-nano",
        "dgx-h100",
        "bf16",
        {"dp": 16, "ep": 8, "microbatches": 64},
        "moe layernorm",
    ),
    ("gpt-oss-120b", "gb300-nvl72", "bf16", {"dp": 64, "ep": 64, "mbs": 4, "microbatches": 5}, ""),
    (
        "gpt-oss-120b",
        "dgx-b200",
        "bf16",
        {"dp": 64, "ep": 8, "mbs": 4, "microbatches": 5},
        "layernorm moe_act",
    ),
    (
        "gpt-oss-120b",
        "dgx-h100",
        "bf16",
        {"pp": 4, "dp": 16, "ep": 8, "microbatches": 80},
        "layernorm moe_act",
    ),
    (
        "qwen3-235b-a22b",
        "dgx-b200",
        "bf16",
        {"pp": 8, "vp": 4, "dp": 8, "ep": 8, "microbatches": 128},
        "",
    ),
    (
        "qwen3-235b-a22b",
        "dgx-h100",
        "fp8",
        {"tp": 2, "pp": 8, "vp": 4, "dp": 16, "ep": 32, "microbatches": 512},
        "",
    ),
    ("qwen3-30b-a3b", "gb300-nvl72", "mxfp8", {"dp": 8, "ep": 8, "mbs": 8, "microbatches": 8}, ""),
    (
        "deepseek-v3",
        "gb300-nvl72",
        "fp8",
        {"pp": 2, "vp": 8, "dp": 128, "ep": 32, "mbs": 2, "microbatches": 16},
        "mla_up_proj",
    ),
    (
        "deepseek-v3",
        "gb200-nvl72",
        "bf16",
        {"pp": 4, "vp": 4, "dp": 64, "ep": 64, "microbatches": 64},
        "mla_up_proj",
    ),
    (
        "deepseek-v3",
        "dgx-h100",
        "fp8",
        {"tp": 2, "pp": 8, "vp": 4, "dp": 64, "ep": 64, "microbatches": 256},
        "mla_up_proj mlp",
    ),
    (
        "llama3-405b",
        "gb200-nvl72",
        "nvfp4",
        {"tp": 4, "pp": 16, "vp": 8, "dp": 4, "microbatches": 384},
        "",
    ),
    ("llama3-70b", "gb300-nvl72", "nvfp4", {"pp": 4, "vp": 5, "dp": 16, "microbatches": 16}, ""),
)


@pytest.mark.parametrize(("name", "cluster", "precision", "sizes", "again"), RECIPES)
def test_public_recipes_fit(name, cluster, precision, sizes, again):
    """As their authors run them; what they run again is needed, or nearly so."""
    machine, model = read_machine(cluster), read_model(name)
    said = read_software("megatron-bridge@26.06").techniques(machine.gpu, precision, model)
    recipe = apply(
        Parallel(**sizes),
        said | {"precision": precision, "recompute": "selective" if again else "none"},
    )
    recipe = replace(recipe, modules=tuple(again.split()))
    assert device_memory(model, recipe).total.max() <= usable_bytes(machine)
    if again:
        plain = device_memory(model, replace(recipe, recompute="none")).total.max()
        assert 0.7 * usable_bytes(machine) < plain < 1.1 * usable_bytes(machine)


@pytest.mark.parametrize(("gated", "wide"), [(False, 2), (True, 3)])
def test_an_encoder_keeps_what_its_layers_read(gated, wide):
    """2 images of 48 tokens on 2 x 2 GPUs: 4 inputs of norms and residuals, 4 of attention, those
    of the MLP.
    """
    tower = Encoder(hidden=80, heads=5, layers=3, ffn=300, tokens=48, gated=gated)
    split = Parallel(tp=2, cp=2, mbs=2)
    assert encoder_activations(tower, split) == 3 * 2 * (
        4 * 24 * 80 + 48 * (4 * 80 + wide * 300) / 2
    )
    whole = replace(split, sequence_parallel=False)
    assert (
        encoder_activations(tower, whole) - encoder_activations(tower, split) == 3 * 2 * 4 * 24 * 80
    )
    assert encoder_parameters(tower) == 3 * (4 * 80 * 80 + wide * 80 * 300 + 2 * 80)
