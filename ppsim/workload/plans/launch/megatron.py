"""Launch flags of Megatron-LM: its command line."""

from __future__ import annotations

from ppsim.errors import InputError
from ppsim.schedules import Shape, group_size
from ppsim.workload.layout.layout import Layout
from ppsim.workload.layout.text import format_content
from ppsim.workload.model.model import Model, kinds_of
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.launcher import Launcher, check_layers

# Combined 1F1B hides all-to-all behind the other half of a pair.
RUNNABLE = ("1f1b", "interleaved", "interleaved-overlap")


def megatron_flags(model: Model, parallel: Parallel, layout: Layout) -> list[str]:
    """Write the flags of Megatron-LM's pretrain scripts, one option with its values each.

    Raises:
        InputError: Megatron-LM has no such schedule, refuses its microbatches or precision, or
            offloads otherwise.
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
    flags += _megatron_model(model)
    flags += _expert_flags(p) if model.experts else []
    if len(set(layout.layers)) > 1 or model.mtp:
        flags.append(f"--pipeline-model-parallel-layout '{format_content(layout.content)}'")
    elif p.vp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {p.vp}")
    flags += _megatron_groups(p) if p.vp > 1 else []
    if p.tp > 1 and p.sequence_parallel:
        flags += ["--sequence-parallel"] + (["--tp-comm-overlap"] if p.overlap_tp else [])
    flags += _data_parallel_flags(p)
    flags += _megatron_memory(model, p)
    return [*flags, *_precision_flags(p)]


def _expert_flags(p: Parallel) -> list[str]:
    """Return the flags of experts: how ranks divide them, and how tokens get to them.

    An expert is not divided, which Megatron-LM does with --tensor-model-parallel-size otherwise.
    """
    flex = p.dispatch != "alltoall" and p.ep > 1  # which wants ranks to send to
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
    """Return the flags of the optimizer, of what replicas divide, and of what they overlap."""
    flags = []
    if p.optimizer == "muon":  # whose own distributed optimizer divides whole matrices
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


def _megatron_memory(model: Model, p: Parallel) -> list[str]:
    """Return flags that save memory: recompute of modules, moments, inputs of activations, and
    recompute of whole layers.
    """
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
    p = parallel
    check_layers(model)
    if p.schedule and p.schedule not in RUNNABLE:
        raise InputError(
            f"Megatron-LM has no schedule {p.schedule}", "--schedules 1f1b,interleaved"
        )
    if p.moment_bytes == 2 and not p.zero:
        raise InputError(
            "Megatron-LM has moments in 16 bits with the distributed optimizer alone", "--zero 1"
        )
    if p.optimizer == "muon" and p.zero > 1:
        raise InputError("Megatron-LM has Muon without FSDP", "--zero 1")
    if p.optimizer == "muon" and p.moment_bytes == 2:
        raise InputError(
            "Megatron-LM has moments in 16 bits with AdamW alone", "leave out --moment-precision"
        )
    if p.offload:
        raise InputError(
            "Megatron-LM offloads whole modules, and no share of the activations", "--offload 0"
        )
    if model.experts and p.precision == "fp16":
        raise InputError("Megatron-LM trains no experts in fp16", "--precision bf16")
    if model.mtp > 1 and p.schedule == "interleaved-overlap":
        raise InputError(
            f"Megatron-LM hides no all-to-all with {model.mtp} layers of multi-token prediction",
            "--schedules 1f1b,interleaved",
        )


def megatron_environment(parallel: Parallel) -> str:
    """Return which variable Megatron-LM wants set on GPUs before Blackwell; empty where it asks
    for none.
    """
    p = parallel
    if (p.tp == 1 and p.cp == 1) or p.zero > 1 or p.schedule == "interleaved-overlap":
        return ""
    return "CUDA_DEVICE_MAX_CONNECTIONS=1"


def _megatron_groups(parallel: Parallel) -> list[str]:
    """Write how many microbatches pass a chunk together, where that is not the number of pipeline
    devices.
    """
    p = parallel
    paired = p.schedule == "interleaved-overlap"
    if paired and p.recompute == "full":
        raise InputError(
            "Megatron-LM hides no all-to-all where whole layers recompute",
            "--recomputes none,selective",
        )
    size = group_size(Shape(p.pp, p.vp, p.microbatches), fused=int(paired))
    rest = p.microbatches % size
    if size < p.pp or 0 < rest < p.pp:
        raise InputError(
            f"Megatron-LM interleaves no {p.microbatches} microbatches on {p.pp} pipeline devices",
            "--mbs 1, or a larger --gbs",
        )
    flags = ["--overlap-moe-expert-parallel-comm"] if paired else []
    return flags + (
        [f"--microbatch-group-size-per-virtual-pipeline-stage {size}"] if size != p.pp else []
    )


def _megatron_model(model: Model) -> list[str]:
    """Return the flags of a model's layers besides their sizes."""
    flags = [f"--max-position-embeddings {model.seq}"]
    flags += [f"--vocab-size {model.vocab}"] if model.vocab else []
    if not model.learned_positions:
        flags.append("--position-embedding-type rope")
    if not model.tied:
        flags.append("--untie-embeddings-and-output-weights")
    if not model.biases:
        flags.append("--disable-bias-linear")
    # every model with gates in the library, and all that are usual, has these norms
    if model.gated:
        flags += ["--normalization RMSNorm", "--swiglu"]
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


def environment_note(parallel: Parallel) -> str:
    """Return the sentence on the variable that Megatron-LM asks for; empty without one."""
    variable = megatron_environment(parallel)
    if not variable:
        return ""
    return f"Megatron-LM also asks for {variable} in the environment of GPUs before Blackwell"


LAUNCHER = Launcher(
    title="Megatron-LM",
    software="megatron-core",
    schedules=RUNNABLE,
    write=megatron_flags,
    separator=" \\\n  ",
    page_separator=" ",
    note=environment_note,
)
