"""A plan as launch flags: Megatron-LM's command line and torchtitan's TOML."""

from __future__ import annotations

from ppsim.errors import InputError
from ppsim.schedules import Shape, families, find, group_size
from ppsim.workload.layout.layout import Layout
from ppsim.workload.layout.text import format_content
from ppsim.workload.model.model import Model, kinds_of
from ppsim.workload.model.parallel import Parallel

# What each framework runs: Megatron-LM's combined 1F1B hides all-to-all behind the other half of a
# pair.
RUNNABLE = {
    "megatron": ("1f1b", "interleaved", "interleaved-overlap"),
    "torchtitan": tuple(family.name for family in families() if family.torch),
}
# What torchtitan's converters of linear layers are called.
CONVERTERS = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}


def launch_text(framework: str, model: Model, parallel: Parallel, layout: Layout) -> str:
    """Return a plan's launch flags, one a line, or its TOML, as ``framework`` takes them.

    Raises:
        InputError: the framework does not run the plan.
    """
    if framework == "torchtitan":
        return torchtitan_toml(model, parallel, layout)
    return " \\\n  ".join(megatron_flags(model, parallel, layout))


def refusal(framework: str, model: Model, parallel: Parallel, layout: Layout) -> InputError | None:
    """Return why a framework does not run a plan; None where its launch flags can be written."""
    try:
        launch_text(framework, model, parallel, layout)
    except InputError as error:
        return error
    return None


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
    # an expert is not divided, which Megatron-LM does with --tensor-model-parallel-size otherwise
    if model.experts:
        flex = p.dispatch != "alltoall" and p.ep > 1  # which wants ranks to send to
        flags += [
            f"--expert-model-parallel-size {p.ep}",
            "--expert-tensor-parallel-size 1",
            f"--moe-token-dispatcher-type {'flex' if flex else 'alltoall'}",
            *(["--moe-enable-deepep"] if flex and p.dispatch == "deepep" else []),
            *(
                ["--moe-flex-dispatcher-backend hybridep"]
                if flex and p.dispatch == "hybridep"
                else []
            ),
            "--moe-grouped-gemm",
        ]
    if len(set(layout.layers)) > 1 or model.mtp:
        flags.append(f"--pipeline-model-parallel-layout '{format_content(layout.content)}'")
    elif p.vp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {p.vp}")
    flags += _megatron_groups(p) if p.vp > 1 else []
    if p.tp > 1 and p.sequence_parallel:
        flags += ["--sequence-parallel"] + (["--tp-comm-overlap"] if p.overlap_tp else [])
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
    flags += _megatron_memory(model, p)
    if p.recompute == "full":
        layers = p.recompute_layers
        method, count = ("block", layers) if isinstance(layers, int) else ("uniform", 1)
        flags += [
            "--recompute-granularity full",
            f"--recompute-method {method}",
            f"--recompute-num-layers {count}",
        ]
    narrow = {
        "fp8": ["--fp8-format hybrid"],
        "mxfp8": ["--fp8-format e4m3", "--fp8-recipe mxfp8"],
        "nvfp4": ["--fp4-format e2m1", "--fp4-recipe nvfp4"],
    }
    flags += narrow.get(p.precision, [])
    if p.narrow_weights and p.zero:
        flags.append("--fp4-param-gather" if p.precision == "nvfp4" else "--fp8-param-gather")
        flags += (
            ["--reuse-grad-buf-for-mxfp8-param-ag"]
            if p.precision == "mxfp8" and p.zero == 1
            else []
        )
    return [*flags, "--fp16" if p.precision == "fp16" else "--bf16"]


def _megatron_memory(model: Model, p: Parallel) -> list[str]:
    """Return flags that save memory besides recompute of whole layers: modules, moments, inputs of
    activations.
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
    return flags + ["--activation-func-fp8-input-store"] * p.narrow_activation


def _check_layers(model: Model) -> None:
    """Refuse models of layers whose flags are not known here."""
    other = {name for layer in kinds_of(model) for name in layer} - {
        "attention",
        "window",
        "dense",
        "experts",
    }
    if other or model.encoder:
        raise InputError(
            f"no flags are written for layers of kind {', '.join(sorted(other)) or 'encoder'}",
            "leave out --flags",
        )


def _check_megatron(model: Model, parallel: Parallel) -> None:
    p = parallel
    _check_layers(model)
    if p.schedule and p.schedule not in RUNNABLE["megatron"]:
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
    """Say which variable Megatron-LM wants set on GPUs before Blackwell; empty where it asks for
    none.
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


def torchtitan_toml(model: Model, parallel: Parallel, layout: Layout) -> str:
    """Write the tables of torchtitan's job configuration that a plan decides.

    Raises:
        InputError: torch has no such schedule, or refuses its microbatches; torchtitan has no such
            precision or expert ranks; or activations wait on the host.
    """
    p = parallel
    name = find(p.schedule_name).torch.removeprefix("Schedule")
    _check_layers(model)
    _check_torchtitan(p, name)
    lines = (
        ["# without multi-token prediction, which torchtitan does not have", ""]
        if model.mtp
        else []
    )
    if p.precision in CONVERTERS:
        lines += ["[model]", f'converters = ["{CONVERTERS[p.precision]}"]', ""]
    # microbatches that it takes at once: others it accumulates
    whole = p.microbatches if p.pp > 1 else 1
    if p.narrow_weights and p.precision == "fp8":
        lines += ["[quantize.linear.float8]", "enable_fsdp_float8_all_gather = true", ""]
    lines += [
        "[training]",
        f"local_batch_size = {p.mbs * whole}",
        f"global_batch_size = {p.gbs}",
        f"seq_len = {model.seq}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {1 if p.zero else p.dp}",
        f"data_parallel_shard_degree = {p.dp if p.zero else 1}",
        *(
            [f'fsdp_reshard_after_forward = "{"always" if p.zero == 3 else "never"}"']
            if p.zero
            else []
        ),
        f"tensor_parallel_degree = {p.tp}",
        *(["enable_async_tensor_parallel = true"] if p.tp > 1 and p.overlap_tp else []),
        f"context_parallel_degree = {p.cp}",
        f"pipeline_parallel_degree = {p.pp}",
    ]
    if model.experts:
        lines.append(f"expert_parallel_degree = {p.ep}")
        lines += (
            ['expert_parallel_comm_backend = "deepep"']
            if p.dispatch != "alltoall" and p.ep > 1
            else []
        )
    if p.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{name}"',
            f"pipeline_parallel_microbatch_size = {p.mbs}",
            *_torchtitan_stages(layout),
        ]
    lines += ["", "[activation_checkpoint]", f'mode = "{p.recompute}"']
    if p.recompute == "selective":
        lines[-1] += (
            "  # the plan recomputes attention's products; torchtitan chooses operators itself"
        )
    lines += [
        "",
        "[compile]",
        f"enable = {str(p.kernels == 'compiled').lower()}",
        'components = ["model", "loss"]',
    ]
    return "\n".join(lines) + "\n"


def _check_torchtitan(parallel: Parallel, schedule: str) -> None:
    """Refuse settings that torchtitan's checks refuse; ``schedule``: torch's name, empty without
    one.
    """
    p = parallel
    if p.optimizer == "muon":
        raise InputError("no launch flags are known of torchtitan's Muon", "leave out --flags")
    if p.offload:
        raise InputError("torchtitan offloads no share of the activations", "--offload 0")
    if p.pipeline_first:
        raise InputError(
            f"torchtitan does not number ranks {p.rank_order}", "leave out --rank-order"
        )
    if p.precision not in ("bf16", *CONVERTERS):
        raise InputError(f"torchtitan does not train in {p.precision}", "--precision bf16")
    if p.recompute == "full" and p.recompute_layers is not None:
        raise InputError("torchtitan recomputes all layers or none", "--recomputes none,selective")
    rounds = max(1, p.microbatches // p.pp)
    if p.schedule in ("interleaved", "interleaved-zb") and p.microbatches % rounds:
        raise InputError(
            f"torch interleaves no {p.microbatches} microbatches on {p.pp} devices", "another --mbs"
        )
    if p.pp > 1 and not schedule:
        able = "1f1b,interleaved,interleaved-zb,zb-v-torch,dualpipe-v"
        raise InputError(
            f"torch.distributed.pipelining has no schedule {p.schedule}", f"--schedules {able}"
        )
    if p.ep > 1 and (p.ep % (p.tp * p.cp) or not p.zero):
        raise InputError(
            f"torchtitan takes expert ranks in whole groups of {p.tp * p.cp} tensor and context "
            f"ranks that are sharded",
            f"--ep {p.tp * p.cp} or a multiple, --zero 1",
        )


def _torchtitan_stages(layout: Layout) -> list[str]:
    """Write how layers are divided: torchtitan counts embedding and output as a layer each unless
    it is told not to.
    """
    if len(set(layout.layers)) == 1:
        return [
            f"pipeline_parallel_layers_per_stage = {layout.layers[0]}",
            "pipeline_parallel_first_stage_less_layers = 0",
            "pipeline_parallel_last_stage_less_layers = 0",
        ]
    parts, first = [], 0
    for count in layout.layers:
        parts.append([f"layers.{layer}" for layer in range(first, first + count)])
        first += count
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    named = (", ".join(f'"{module}"' for module in part) for part in parts)
    return ["module_fqns_per_model_part = [", *(f"  [{modules}]," for modules in named), "]"]
