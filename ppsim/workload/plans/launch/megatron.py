"""Launch flags of Megatron-LM, for its command line."""

from __future__ import annotations

from ppsim.errors import InputError
from ppsim.schedules import Shape, group_size
from ppsim.workload.layout.layout import Layout
from ppsim.workload.layout.text import format_content
from ppsim.workload.model.model import Model, kinds_of
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.launcher import Launcher, check_layers

# Schedules that Megatron-LM runs; its combined 1F1B is interleaved-overlap.
RUNNABLE = ("1f1b", "interleaved", "interleaved-overlap")
# The activation and the softmax of GPT-OSS, the one model with a clamped activation.
GPT_OSS = (
    "--quick-geglu",
    "--glu-linear-offset 1.0",
    "--activation-func-clamp-value 7.0",
    "--softmax-type learnable",
)
LEFT_OUT = (
    "the flags are of sizes and parallelism: add rotary base, norms of queries and keys, a gate "
    "other than SwiGLU, the router's loss, learning rate and data"
)


def megatron_flags(model: Model, parallel: Parallel, layout: Layout) -> list[str]:
    """Return the flags of a plan for Megatron-LM's pretrain scripts, each with its values.

    Raises:
        InputError: Megatron-LM does not support the schedule, the number of microbatches, the
            precision, or offloading a share of activations.
    """
    p = parallel
    _check_megatron(model, p)
    flags = [
        f"--num-layers {model.layers}",
        f"--hidden-size {model.hidden}",
        f"--ffn-hidden-size {model.ffn}",
        f"--num-attention-heads {model.heads}",
        f"--seq-length {model.seq}",
        f"--tensor-model-parallel-size {p.tp}",
        f"--pipeline-model-parallel-size {p.pp}",
        f"--context-parallel-size {p.cp}",
        f"--micro-batch-size {p.mbs}",
        f"--global-batch-size {p.gbs}",
    ]
    flags += ["--use-tp-pp-dp-mapping"] if p.pipeline_first else []
    flags += _model_flags(model)
    flags += _expert_flags(p) if model.experts else []
    if len(set(layout.layers)) > 1 or model.mtp:
        flags.append(f"--pipeline-model-parallel-layout '{format_content(layout.content)}'")
    elif p.vp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {p.vp}")
    flags += _interleaving_flags(p) if p.vp > 1 else []
    if p.tp > 1 and p.sequence_parallel:
        flags += ["--sequence-parallel"] + (["--tp-comm-overlap"] if p.overlap_tp else [])
    flags += _data_parallel_flags(p)
    flags += _memory_flags(model, p)
    return [*flags, *_precision_flags(p)]


def _expert_flags(p: Parallel) -> list[str]:
    """Return the flags for the division of experts over ranks, and for the dispatcher of tokens.

    A plan does not divide an expert; Megatron-LM would, by default, over tensor-parallel ranks.
    """
    flex = p.dispatch != "alltoall" and p.ep > 1  # the flex dispatcher needs several ranks
    flags = [
        f"--expert-model-parallel-size {p.ep}",
        "--expert-tensor-parallel-size 1",
        f"--moe-token-dispatcher-type {'flex' if flex else 'alltoall'}",
    ]
    if flex and p.dispatch == "deepep":
        flags.append("--moe-enable-deepep")
    if flex and p.dispatch == "hybridep":
        flags.append("--moe-flex-dispatcher-backend hybridep")
    return [*flags, "--moe-grouped-gemm"]


def _data_parallel_flags(p: Parallel) -> list[str]:
    """Return the flags of the optimizer, of ZeRO, and of overlapped data-parallel communication."""
    flags = []
    if p.optimizer == "muon":  # its distributed optimizer divides whole matrices over ranks
        flags.append(f"--optimizer {'dist_muon' if p.zero else 'muon'}")
    elif p.zero:
        flags.append("--use-distributed-optimizer")
    if p.zero > 1:
        strategy = "optim_grads" if p.zero == 2 else "optim_grads_params"
        flags += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy {strategy}"]
        flags += ["--no-gradient-accumulation-fusion", "--ckpt-format fsdp_dtensor"]
    if p.overlap_dp:
        flags += ["--overlap-grad-reduce"] + (["--overlap-param-gather"] if p.zero else [])
    return flags


def _precision_flags(p: Parallel) -> list[str]:
    """Return the flags of the precision of products and of gathered weights."""
    narrow = {
        "fp8": ["--fp8-format hybrid"],
        "mxfp8": ["--fp8-format e4m3", "--fp8-recipe mxfp8"],
        "nvfp4": ["--fp4-format e2m1", "--fp4-recipe nvfp4"],
    }
    flags = list(narrow.get(p.precision, []))
    if p.narrow_weights and p.zero:
        flags.append("--fp4-param-gather" if p.precision == "nvfp4" else "--fp8-param-gather")
        flags += (
            ["--reuse-grad-buf-for-mxfp8-param-ag"]
            if p.precision == "mxfp8" and p.zero == 1
            else []
        )
    return [*flags, "--fp16" if p.precision == "fp16" else "--bf16"]


def _memory_flags(model: Model, p: Parallel) -> list[str]:
    """Return the flags that save memory: recompute, narrow moments, narrow activation inputs."""
    absent = set() if model.experts else {"moe_act", "moe", "shared_experts"}
    absent |= set() if model.kv_lora else {"mla_up_proj"}
    modules = (
        [name for name in p.modules if name not in absent] if p.recompute == "selective" else []
    )
    flags = ["--recompute-activations"] if modules == ["core_attn"] else []
    if modules and not flags:
        flags = ["--recompute-granularity selective", f"--recompute-modules {' '.join(modules)}"]
    if p.moment_bytes == 2:
        flags += [
            "--use-precision-aware-optimizer",
            "--exp-avg-dtype bf16",
            "--exp-avg-sq-dtype bf16",
        ]
    flags += ["--activation-func-fp8-input-store"] * p.narrow_activation
    if p.recompute == "full":
        layers = p.recompute_layers
        method, count = ("block", layers) if isinstance(layers, int) else ("uniform", 1)
        flags += [
            "--recompute-granularity full",
            f"--recompute-method {method}",
            f"--recompute-num-layers {count}",
        ]
    return flags


def _check_megatron(model: Model, parallel: Parallel) -> None:
    """Refuse plans that Megatron-LM does not support (InputError)."""
    p = parallel
    check_layers(model)
    if p.schedule and p.schedule not in RUNNABLE:
        raise InputError(
            f"Megatron-LM has no schedule {p.schedule}", "--schedules 1f1b,interleaved"
        )
    if p.moment_bytes == 2 and not p.zero:
        raise InputError(
            "Megatron-LM supports 16-bit moments only with the distributed optimizer", "--zero 1"
        )
    if p.optimizer == "muon" and p.zero > 1:
        raise InputError("Megatron-LM does not support Muon with FSDP", "--zero 1")
    if p.optimizer == "muon" and p.moment_bytes == 2:
        raise InputError(
            "Megatron-LM supports 16-bit moments only with AdamW", "leave out --moment-precision"
        )
    if p.offload:
        raise InputError(
            "Megatron-LM offloads whole modules, not a share of the activations", "--offload 0"
        )
    if model.experts and p.precision == "fp16":
        raise InputError("Megatron-LM does not train experts in fp16", "--precision bf16")
    if model.mtp > 1 and p.schedule == "interleaved-overlap":
        raise InputError(
            f"Megatron-LM cannot hide all-to-all with {model.mtp} layers of multi-token prediction",
            "--schedules 1f1b,interleaved",
        )


def megatron_environment(parallel: Parallel) -> str:
    """Return the variable that Megatron-LM needs set on GPUs before Blackwell, or ''."""
    p = parallel
    if (p.tp == 1 and p.cp == 1) or p.zero > 1 or p.schedule == "interleaved-overlap":
        return ""
    return "CUDA_DEVICE_MAX_CONNECTIONS=1"


def _interleaving_flags(parallel: Parallel) -> list[str]:
    """Return the flags of pairs, and of a group of microbatches other than the pipeline devices.

    Raises:
        InputError: Megatron-LM refuses the number of microbatches, or pairs with full recompute.
    """
    p = parallel
    paired = p.schedule == "interleaved-overlap"
    if paired and p.recompute == "full":
        raise InputError(
            "Megatron-LM cannot hide all-to-all with full recompute",
            "--recomputes none,selective",
        )
    size = group_size(Shape(p.pp, p.vp, p.microbatches), fused=int(paired))
    rest = p.microbatches % size
    if size < p.pp or 0 < rest < p.pp:
        raise InputError(
            f"Megatron-LM cannot interleave {p.microbatches} microbatches on {p.pp} pipeline "
            f"devices",
            "--mbs 1, or a larger --gbs",
        )
    flags = ["--overlap-moe-expert-parallel-comm"] if paired else []
    return flags + (
        [f"--microbatch-group-size-per-virtual-pipeline-stage {size}"] if size != p.pp else []
    )


def _model_flags(model: Model) -> list[str]:
    """Return the flags of a model that plans of all models do not need."""
    flags = [f"--max-position-embeddings {model.seq}"]
    flags += [f"--vocab-size {model.vocab}"] if model.vocab else []
    if not model.learned_positions:
        flags.append("--position-embedding-type rope")
    if not model.tied:
        flags.append("--untie-embeddings-and-output-weights")
    if not model.biases and not model.clamped:
        flags.append("--disable-bias-linear")
    if not model.biases:  # nor dropout, of which memory has no masks; Megatron-LM's usual is 0.1
        flags += ["--attention-dropout 0", "--hidden-dropout 0"]
    # common models with gated MLPs, and all in the library, have RMSNorm
    if model.gated:
        flags += ["--normalization RMSNorm", *(GPT_OSS if model.clamped else ["--swiglu"])]
    flags += _window_flags(model)
    if model.kv_lora:
        flags += [
            "--multi-latent-attention",
            f"--kv-lora-rank {model.kv_lora}",
            f"--v-head-dim {model.v_dim}",
        ]
        flags += [f"--qk-head-dim {model.head_dim}", f"--qk-pos-emb-head-dim {model.rope_dim}"]
        flags += [f"--q-lora-rank {model.q_lora}"] if model.q_lora else []
    elif model.kv_heads != model.heads:
        flags += ["--group-query-attention", f"--num-query-groups {model.kv_heads}"]
    if not model.kv_lora and model.head_dim * model.heads != model.hidden:
        flags.append(f"--kv-channels {model.head_dim}")
    if model.experts:
        flags += [f"--num-experts {model.experts}", f"--moe-router-topk {model.top_k}"]
        flags.append(f"--moe-ffn-hidden-size {model.expert_ffn}")
        if model.shared_ffn:
            flags.append(f"--moe-shared-expert-intermediate-size {model.shared_ffn}")
        if model.moe_layers != model.layers:
            kinds = ",".join("1" if layer.mlp == "experts" else "0" for layer in kinds_of(model))
            flags.append(f"--moe-layer-freq '[{kinds}]'")
    if model.mtp:
        flags.append(f"--mtp-num-layers {model.mtp}")
    return flags


def _window_flags(model: Model) -> list[str]:
    """Return the flags of a sliding window, with the layers that have it if not all have."""
    mixers = [layer.mixer for layer in kinds_of(model)]
    if "window" not in mixers:
        return []
    flags = [f"--window-size {model.window},0"]
    if "attention" in mixers:
        has_window = ",".join("1" if mixer == "window" else "0" for mixer in mixers)
        flags.append(f"--window-attn-skip-freq '[{has_window}]'")
    return flags


def note_on_flags(parallel: Parallel) -> str:
    """Return what flags leave out, and the variable that Megatron-LM needs, if any."""
    variable = megatron_environment(parallel)
    if not variable:
        return LEFT_OUT
    needs = f"on GPUs before Blackwell, Megatron-LM also needs {variable} in its environment"
    return f"{needs}\n{LEFT_OUT}"


LAUNCHER = Launcher(
    title="Megatron-LM",
    software="megatron-core",
    schedules=RUNNABLE,
    write=megatron_flags,
    separator=" \\\n  ",
    page_separator=" ",
    note=note_on_flags,
)
