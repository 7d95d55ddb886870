"""Launch flags and TOML: every name is one the framework has, with a value it takes, and combined
as it allows.
"""

from __future__ import annotations

import argparse
import shlex
import tomllib
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from ppsim.errors import InputError
from ppsim.workload.layout.flags import Flags, layout_from
from ppsim.workload.layout.layout import Layout, build_layout, read_layout
from ppsim.workload.model.model import Model, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.launch.megatron import megatron_environment, megatron_flags
from ppsim.workload.plans.launcher import launch_text

# Names of Megatron-LM's options (megatron/training/arguments.py, core 0.15) by the values that they
# take.
WHOLE = (
    "num-layers",
    "hidden-size",
    "ffn-hidden-size",
    "num-attention-heads",
    "num-query-groups",
    "kv-channels",
    "seq-length",
    "vocab-size",
    "max-position-embeddings",
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "micro-batch-size",
    "global-batch-size",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size",
    "num-virtual-stages-per-pipeline-rank",
    "microbatch-group-size-per-virtual-pipeline-stage",
    "recompute-num-layers",
    "q-lora-rank",
    "kv-lora-rank",
    "qk-head-dim",
    "qk-pos-emb-head-dim",
    "v-head-dim",
    "mtp-num-layers",
)
SET = (
    "swiglu",
    "quick-geglu",
    "group-query-attention",
    "untie-embeddings-and-output-weights",
    "disable-bias-linear",
    "multi-latent-attention",
    "sequence-parallel",
    "tp-comm-overlap",
    "use-distributed-optimizer",
    "overlap-grad-reduce",
    "overlap-param-gather",
    "bf16",
    "fp16",
    "recompute-activations",
    "moe-grouped-gemm",
    "moe-enable-deepep",
    "overlap-moe-expert-parallel-comm",
    "use-megatron-fsdp",
    "no-gradient-accumulation-fusion",
    "use-tp-pp-dp-mapping",
    "use-precision-aware-optimizer",
    "activation-func-fp8-input-store",
    "fp8-param-gather",
    "fp4-param-gather",
    "reuse-grad-buf-for-mxfp8-param-ag",
)
WORDS = {
    "position-embedding-type": ("learned_absolute", "rope"),
    "normalization": ("LayerNorm", "RMSNorm"),
    "softmax-type": ("learnable", "vanilla", "off-by-one"),
    "moe-token-dispatcher-type": ("allgather", "alltoall", "flex"),
    "data-parallel-sharding-strategy": ("no_shard", "optim", "optim_grads", "optim_grads_params"),
    "ckpt-format": ("torch", "torch_dist", "zarr", "torch_dcp", "fsdp_dtensor"),
    "recompute-granularity": ("full", "selective"),
    "exp-avg-dtype": ("fp32", "fp16", "bf16", "fp8"),
    "exp-avg-sq-dtype": ("fp32", "fp16", "bf16", "fp8"),
    "recompute-method": ("uniform", "block"),
    "fp8-format": ("e4m3", "hybrid"),
    "fp8-recipe": ("tensorwise", "delayed", "mxfp8", "blockwise", "custom"),
    "fp4-format": ("e2m1",),
    "fp4-recipe": ("nvfp4", "custom"),
}
TITAN: dict[str, dict[str, type]] = {
    "model": {"converters": list},
    "training": {"local_batch_size": int, "global_batch_size": int, "seq_len": int},
    "parallelism": {
        "data_parallel_replicate_degree": int,
        "data_parallel_shard_degree": int,
        "fsdp_reshard_after_forward": str,
        "tensor_parallel_degree": int,
        "enable_async_tensor_parallel": bool,
        "context_parallel_degree": int,
        "pipeline_parallel_degree": int,
        "pipeline_parallel_schedule": str,
        "pipeline_parallel_microbatch_size": int,
        "pipeline_parallel_layers_per_stage": int,
        "pipeline_parallel_first_stage_less_layers": int,
        "pipeline_parallel_last_stage_less_layers": int,
        "module_fqns_per_model_part": list,
        "expert_parallel_degree": int,
        "expert_parallel_comm_backend": str,
    },
    "activation_checkpoint": {"mode": str},
    "compile": {"enable": bool, "components": list},
}
MODELS = {
    "dense": replace(read_model("llama3-8b"), layers=8),
    "experts": replace(read_model("deepseek-v3"), layers=8),
    "windows": replace(read_model("gpt-oss-20b"), layers=8),
    "gpt": replace(read_model("gpt3-5b"), layers=8),
}
SHAPES: tuple[dict[str, Any], ...] = (
    {},
    {"tp": 4, "dp": 2, "microbatches": 4},
    {"tp": 2, "cp": 2, "pp": 2, "dp": 2, "microbatches": 4, "schedule": "1f1b"},
    {"pp": 2, "vp": 2, "dp": 8, "microbatches": 4, "schedule": "interleaved"},
    {"pp": 2, "vp": 2, "tp": 2, "dp": 4, "microbatches": 4, "schedule": "interleaved-overlap"},
)
NARROW = {"linear": {"float8": {"enable_fsdp_float8_all_gather": True}}}
HABITS: tuple[dict[str, Any], ...] = (
    {},
    {"recompute": "selective", "precision": "fp8"},
    {
        "recompute": "selective",
        "precision": "fp8",
        "modules": ("layernorm", "moe_act", "mla_up_proj"),
        "moment_bytes": 2,
        "narrow_activation": True,
        "narrow_weights": True,
    },
    {"recompute": "full", "recompute_layers": 1, "precision": "mxfp8", "narrow_weights": True},
    {"recompute": "full", "zero": 3, "dispatch": "deepep"},
    {"zero": 2, "precision": "nvfp4", "narrow_weights": True},
    {"zero": 0, "precision": "fp8", "narrow_weights": True},
    {"zero": 0, "precision": "fp16", "overlap_tp": False},
)


def parse(flags: list[str]) -> Any:
    """Parse flags as Megatron-LM does: no abbreviations, whole numbers, words of a list."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in WHOLE:
        parser.add_argument(f"--{name}", type=int)
    for name in ("attention-dropout", "hidden-dropout"):
        parser.add_argument(f"--{name}", type=float, default=0.1)
    for name in SET:
        parser.add_argument(f"--{name}", action="store_true")
    for name, words in WORDS.items():
        parser.add_argument(f"--{name}", choices=words)
    parser.add_argument("--recompute-modules", nargs="*")
    for name in ("glu-linear-offset", "activation-func-clamp-value"):
        parser.add_argument(f"--{name}", type=float)
    for name in ("pipeline-model-parallel-layout", "moe-layer-freq", "window-attn-skip-freq"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--window-size", type=lambda text: tuple(map(int, text.split(","))))
    return parser.parse_args(shlex.split(" ".join(flags)))


def find_broken(args: Any, world: int) -> list[str]:
    """List the rules of Megatron-LM's validate_args and TransformerConfig that the flags break."""
    tp, pp, cp = (
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.context_parallel_size,
    )
    ep, group = (
        args.expert_model_parallel_size or 1,
        args.num_query_groups or args.num_attention_heads,
    )
    layout, chunks = args.pipeline_model_parallel_layout, args.num_virtual_stages_per_pipeline_rank
    stages = read_layout(layout, pp, args.num_layers).n_stages if layout else pp * (chunks or 1)
    rules = {
        "sizes": world % (tp * pp * cp) == 0 and world % (ep * pp) == 0,
        "one way to divide layers": not (layout and chunks),
        "stages": stages % pp == 0 and (layout or args.num_layers % stages == 0),
        "layout's mtp": not args.mtp_num_layers or layout.count("m") == args.mtp_num_layers,
        "query groups": group % tp == 0 or tp % group == 0,
        "sequences of context ranks": cp == 1 or args.seq_length % (2 * cp) == 0,
        "positions": args.max_position_embeddings >= args.seq_length,
        "head": args.kv_channels or args.hidden_size % args.num_attention_heads == 0,
        "overlapped tensor ranks": not args.tp_comm_overlap or args.sequence_parallel,
        "tensor and expert ranks": ep == 1 or tp == 1 or args.sequence_parallel,
        "gathers": not args.overlap_param_gather
        or (args.use_distributed_optimizer and args.overlap_grad_reduce),
        "narrow weights": args.use_distributed_optimizer
        or not (args.fp8_param_gather or args.fp4_param_gather),
        "narrow blocks": not args.reuse_grad_buf_for_mxfp8_param_ag or args.fp8_recipe == "mxfp8",
        "one precision": args.fp16 + args.bf16 == 1 and not (args.fp8_format and args.fp4_format),
        "experts": not args.num_experts or (args.bf16 and args.num_experts % ep == 0),
        "full": (args.recompute_granularity == "full")
        == bool(args.recompute_method and args.recompute_num_layers),
        "selective": not (args.recompute_activations and args.recompute_granularity),
        "flex": not args.moe_enable_deepep or (args.moe_token_dispatcher_type == "flex" and ep > 1),
        "fsdp": args.use_megatron_fsdp == (args.ckpt_format == "fsdp_dtensor"),
        "groups": not args.microbatch_group_size_per_virtual_pipeline_stage or stages > pp,
        "hidden all-to-all": not args.overlap_moe_expert_parallel_comm
        or (
            ep > 1
            and stages > pp
            and args.bf16
            and not args.recompute_method
            and (args.mtp_num_layers or 1) == 1
        ),
    }
    return [name for name, held in rules.items() if not held]


def cases(experts: bool):
    for (name, model), shape, habit in product(MODELS.items(), SHAPES, HABITS):
        if bool(model.experts) == experts and (
            experts or shape.get("schedule") != "interleaved-overlap"
        ):
            parallel = Parallel(**shape, **habit, ep=4 if experts and shape.get("dp", 1) > 1 else 1)
            for uneven in (False, True) if parallel.pp > 1 else (False,):
                split = [8 // parallel.stages] * parallel.stages
                split[-1] -= uneven
                split[1 if uneven else 0] += uneven
                yield name, model, parallel, build_layout(split, parallel.pp, model.mtp)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("experts", [False, True])
def test_megatron_would_take_every_flag_or_the_plan_is_refused(experts):
    parsed, refused = 0, set()
    for _, model, parallel, layout in cases(experts):
        try:
            flags = megatron_flags(model, parallel, layout)
        except InputError as error:
            refused.add(str(error).split(" (")[0])
            continue
        args = parse(flags)
        assert find_broken(args, parallel.gpus) == [], (flags, parallel)
        assert said_by(args) == meant(model, parallel, layout)
        assert held_by(args, layout) == layout
        parsed += 1
    assert parsed >= 30
    assert refused == (
        {
            "Megatron-LM does not train experts in fp16",
            "Megatron-LM cannot hide all-to-all with full recompute",
        }
        if experts
        else set()
    )


def said_by(args: Any) -> dict[str, object]:
    """Return the options that were given, with their values."""
    other = (
        "position_embedding_type",
        "normalization",
        "pipeline_model_parallel_layout",
        "moe_layer_freq",
    )
    return {
        name: value
        for name, value in vars(args).items()
        if value not in (None, False) and name not in other
    }


def meant(model: Model, p: Parallel, layout: Layout) -> dict[str, object]:
    """Return the options that describe a model and a plan, by what Megatron-LM's documentation says
    of each.
    """
    uneven = len(set(layout.layers)) > 1
    flex = bool(model.experts) and p.dispatch == "deepep" and p.ep > 1
    has = (
        {"layernorm"}
        | ({"moe_act"} if model.experts else set())
        | ({"mla_up_proj"} if model.kv_lora else set())
    )
    fine = [name for name in p.modules if name in has] if p.recompute == "selective" else []
    share = {2: "optim_grads", 3: "optim_grads_params"}.get(p.zero)
    options = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "seq_length": model.seq,
        "max_position_embeddings": model.seq,
        "vocab_size": model.vocab,
        "tensor_model_parallel_size": p.tp,
        "pipeline_model_parallel_size": p.pp,
        "context_parallel_size": p.cp,
        "micro_batch_size": p.mbs,
        "global_batch_size": p.dp * p.mbs * p.microbatches,
        "untie_embeddings_and_output_weights": not model.tied,
        "disable_bias_linear": not model.biases and not model.clamped,
        "attention_dropout": 0.1 if model.biases else 0.0,
        "hidden_dropout": 0.1 if model.biases else 0.0,
        "swiglu": model.gated and not model.clamped,
        "quick_geglu": model.clamped,
        "glu_linear_offset": 1.0 if model.clamped else 0.0,
        "activation_func_clamp_value": 7.0 if model.clamped else 0.0,
        "softmax_type": "learnable" if model.clamped else "",
        "window_size": (model.window, 0) if model.window else (),
        "window_attn_skip_freq": "[1,0,1,0,1,0,1,0]" if model.window else "",
        "multi_latent_attention": model.kv_lora > 0,
        "kv_lora_rank": model.kv_lora,
        "q_lora_rank": model.q_lora,
        "qk_pos_emb_head_dim": model.rope_dim,
        "qk_head_dim": model.head_dim if model.kv_lora else 0,
        "v_head_dim": model.v_dim if model.kv_lora else 0,
        "group_query_attention": not model.kv_lora and model.kv_heads < model.heads,
        "num_query_groups": model.kv_heads
        if not model.kv_lora and model.kv_heads < model.heads
        else 0,
        "kv_channels": 0
        if model.kv_lora or model.head_dim * model.heads == model.hidden
        else model.head_dim,
        "num_experts": model.experts,
        "moe_router_topk": model.top_k,
        "mtp_num_layers": model.mtp,
        "moe_ffn_hidden_size": model.expert_ffn if model.experts else 0,
        "moe_shared_expert_intermediate_size": model.shared_ffn,
        "moe_grouped_gemm": model.experts > 0,
        "expert_model_parallel_size": p.ep if model.experts else 0,
        "moe_enable_deepep": flex,
        "expert_tensor_parallel_size": 1 if model.experts else 0,
        "moe_token_dispatcher_type": ("flex" if flex else "alltoall") if model.experts else "",
        "num_virtual_stages_per_pipeline_rank": p.vp
        if p.vp > 1 and not uneven and not model.mtp
        else 0,
        "overlap_moe_expert_parallel_comm": p.schedule == "interleaved-overlap",
        "sequence_parallel": p.tp > 1 and p.sequence_parallel,
        "tp_comm_overlap": p.tp > 1 and p.sequence_parallel and p.overlap_tp,
        "use_distributed_optimizer": p.zero > 0,
        "use_megatron_fsdp": p.zero > 1,
        "no_gradient_accumulation_fusion": p.zero > 1,
        "ckpt_format": "fsdp_dtensor" if p.zero > 1 else "",
        "data_parallel_sharding_strategy": share,
        "overlap_grad_reduce": p.overlap_dp,
        "overlap_param_gather": p.overlap_dp and p.zero > 0,
        "recompute_activations": p.recompute == "selective" and not fine,
        "recompute_granularity": "full" if p.recompute == "full" else "selective" if fine else "",
        "recompute_modules": fine,
        "use_precision_aware_optimizer": p.moment_bytes == 2,
        "exp_avg_dtype": "bf16" if p.moment_bytes == 2 else "",
        "activation_func_fp8_input_store": p.narrow_activation,
        "exp_avg_sq_dtype": "bf16" if p.moment_bytes == 2 else "",
        "recompute_method": ("block" if p.recompute_layers else "uniform")
        if p.recompute == "full"
        else "",
        "recompute_num_layers": 1 if p.recompute == "full" else 0,
        "fp16": p.precision == "fp16",
        "bf16": p.precision != "fp16",
        "fp8_format": {"fp8": "hybrid", "mxfp8": "e4m3"}.get(p.precision),
        "fp8_recipe": "mxfp8" if p.precision == "mxfp8" else "",
        "fp8_param_gather": p.narrow_weights and p.zero > 0 and p.precision in ("fp8", "mxfp8"),
        "fp4_param_gather": p.narrow_weights and p.zero > 0 and p.precision == "nvfp4",
        "reuse_grad_buf_for_mxfp8_param_ag": p.narrow_weights
        and p.zero == 1
        and p.precision == "mxfp8",
        "fp4_format": "e2m1" if p.precision == "nvfp4" else "",
        "fp4_recipe": "nvfp4" if p.precision == "nvfp4" else "",
    }
    return {name: value for name, value in options.items() if value}


def held_by(args: Any, layout: Layout) -> Layout:
    """Return the layers of each stage as Megatron-LM divides them by these flags."""
    if args.pipeline_model_parallel_layout:
        return read_layout(args.pipeline_model_parallel_layout, layout.n_devices, layout.n_layers)
    chunks = args.num_virtual_stages_per_pipeline_rank or 1
    return layout_from(Flags(args.num_layers, args.pipeline_model_parallel_size, chunks))


@pytest.mark.parametrize("experts", [False, True])
def test_torchtitan_has_every_key_with_a_value_of_its_type(experts):
    written = 0
    for _, model, parallel, layout in cases(experts):
        try:
            tables = tomllib.loads(launch_text("torchtitan", model, parallel, layout))
        except InputError:
            continue
        narrow = parallel.narrow_weights and parallel.precision == "fp8"
        assert tables.pop("quantize", None) == (NARROW if narrow else None)
        wrong = [
            (t, k)
            for t, keys in tables.items()
            for k, v in keys.items()
            if type(v) is not TITAN[t][k]
        ]
        assert wrong == []
        degrees = tables["parallelism"]
        training = tables["training"]
        assert (training["global_batch_size"], training["seq_len"]) == (parallel.gbs, model.seq)
        # As train.py has it: a pipeline splits the local batch, without one it is a forward of its
        # own.
        local = training["local_batch_size"]
        accumulated = parallel.gbs // (local * parallel.dp)
        split = local // degrees.get("pipeline_parallel_microbatch_size", local)
        assert (accumulated, split) == (
            (1, parallel.microbatches) if parallel.pp > 1 else (parallel.microbatches, 1)
        )
        assert local == parallel.mbs * split
        assert degrees["pipeline_parallel_degree"] == parallel.pp
        assert degrees.get("pipeline_parallel_microbatch_size") == (
            parallel.mbs if parallel.pp > 1 else None
        )
        assert degrees["data_parallel_shard_degree"] == (parallel.dp if parallel.zero else 1)
        always = {0: None, 3: "always"}.get(parallel.zero, "never")
        assert degrees.get("fsdp_reshard_after_forward") == always
        assert degrees.get("enable_async_tensor_parallel", False) == (
            parallel.tp > 1 and parallel.overlap_tp
        )
        deep = bool(model.experts) and parallel.dispatch == "deepep" and parallel.ep > 1
        assert degrees.get("expert_parallel_comm_backend") == ("deepep" if deep else None)
        assert degrees.get("expert_parallel_degree") == (parallel.ep if model.experts else None)
        assert tables["activation_checkpoint"]["mode"] == parallel.recompute
        narrow = {"fp8": ["quantize.linear.float8"], "mxfp8": ["quantize.linear.mx"]}.get(
            parallel.precision
        )
        assert tables.get("model", {}).get("converters") == narrow
        shard = degrees["data_parallel_shard_degree"]
        tp, cp = degrees["tensor_parallel_degree"], degrees["context_parallel_degree"]
        replicas = shard * degrees["data_parallel_replicate_degree"]
        assert replicas * tp * cp * degrees["pipeline_parallel_degree"] == parallel.gpus
        if (ep := degrees.get("expert_parallel_degree", 1)) > 1:
            assert ep % (cp * tp) == 0
            assert (shard * cp * tp) % ep == 0
        written += 1
    assert written > 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ep": 2, "tp": 4}, "multiples of tp x cp = 4"),
        ({"ep": 8, "zero": 0}, "torchtitan needs ZeRO"),
        ({"precision": "fp16"}, "does not train in fp16"),
        ({"precision": "nvfp4"}, "does not train in nvfp4"),
    ],
)
def test_torchtitan_refuses_what_its_checks_refuse(changes, message):
    parallel = replace(Parallel(dp=8, tp=2, microbatches=2), **changes)
    with pytest.raises(InputError, match=message):
        launch_text("torchtitan", MODELS["experts"], parallel, build_layout([8], 1, 1))


def test_the_variable_that_megatron_asserts_is_named_for_tensor_and_context_ranks():
    plans = (Parallel(), Parallel(tp=2), Parallel(cp=2), Parallel(tp=2, zero=3))
    asked = [megatron_environment(plan) for plan in plans]
    assert asked == ["", "CUDA_DEVICE_MAX_CONNECTIONS=1", "CUDA_DEVICE_MAX_CONNECTIONS=1", ""]


def test_two_layers_of_multi_token_prediction_are_not_paired():
    parallel = Parallel(pp=2, vp=2, dp=4, ep=4, microbatches=4, schedule="interleaved-overlap")
    with pytest.raises(InputError, match="2 layers of multi-token prediction"):
        megatron_flags(replace(MODELS["experts"], mtp=2), parallel, build_layout([2] * 4, 2, 2))


@pytest.mark.parametrize("name", MODELS)
def test_models_whose_memory_has_no_dropout_masks_are_trained_without_dropout(name):
    """Megatron-LM's usual dropout is 0.1, which only GPT models with biases keep."""
    model = MODELS[name]
    args = parse(megatron_flags(model, Parallel(), build_layout([model.layers], 1, model.mtp)))
    expected = 0.1 if name == "gpt" else 0.0
    assert (args.attention_dropout, args.hidden_dropout) == (expected, expected)
