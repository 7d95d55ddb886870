"""A plan as launch flags: Megatron-LM's command line and torchtitan's TOML."""

from __future__ import annotations

from ppsim.errors import InputError
from ppsim.layout.layout import Layout
from ppsim.layout.text import format_content
from ppsim.planning.model import Model
from ppsim.planning.parallel import Parallel
from ppsim.schedules import find

MEGATRON_SCHEDULES = ("", "1f1b", "interleaved")


def megatron_flags(model: Model, parallel: Parallel, layout: Layout) -> list[str]:
    """Write the flags of Megatron-LM's pretrain scripts, one option with its values each.

    Raises:
        InputError: Megatron-LM has no such schedule.
    """
    p = parallel
    if p.schedule not in MEGATRON_SCHEDULES:
        raise InputError(f"Megatron-LM has no schedule {p.schedule}", "--schedules 1f1b,interleaved")
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
    if model.kv_heads != model.heads and not model.kv_lora:
        flags += ["--group-query-attention", f"--num-query-groups {model.kv_heads}"]
    if model.gated:
        flags.append("--swiglu")
    if model.experts:
        flags += [
            f"--num-experts {model.experts}",
            f"--moe-router-topk {model.top_k}",
            f"--moe-ffn-hidden-size {model.expert_ffn}",
            f"--expert-model-parallel-size {p.ep}",
            "--moe-token-dispatcher-type alltoall",
            "--moe-grouped-gemm",
        ]
    if len(set(layout.layers)) > 1 or model.mtp:
        flags.append(f"--pipeline-model-parallel-layout '{format_content(layout.content)}'")
    elif p.vp > 1:
        flags.append(f"--num-virtual-stages-per-pipeline-rank {p.vp}")
    if p.tp > 1 and p.sequence_parallel:
        flags.append("--sequence-parallel")
    if p.zero:
        flags.append("--use-distributed-optimizer")
    if p.overlap_dp:
        flags += ["--overlap-grad-reduce"] + (["--overlap-param-gather"] if p.zero else [])
    if p.recompute == "selective":
        flags.append("--recompute-activations")
    elif p.recompute == "full":
        layers = p.recompute_layers
        method, count = ("block", layers) if isinstance(layers, int) else ("uniform", 1)
        flags += ["--recompute-granularity full", f"--recompute-method {method}", f"--recompute-num-layers {count}"]
    if p.precision in ("fp8", "mxfp8", "nvfp4"):
        flags += ["--fp8-format hybrid"] if p.precision == "fp8" else [f"--fp8-format e4m3 --fp8-recipe {p.precision}"]
    return [*flags, "--fp16" if p.precision == "fp16" else "--bf16"]


def torchtitan_toml(model: Model, parallel: Parallel, layout: Layout) -> str:
    """Write the tables of torchtitan's job configuration that a plan decides.

    Raises:
        InputError: torch has no such schedule.
    """
    p = parallel
    name = find(p.schedule_name).torch.removeprefix("Schedule")
    if p.pp > 1 and not name:
        able = "1f1b,interleaved,interleaved-zb,zb-v-torch,dualpipe-v"
        raise InputError(f"torch.distributed.pipelining has no schedule {p.schedule}", f"--schedules {able}")
    lines = [
        "[training]",
        f"local_batch_size = {p.mbs * p.microbatches}",
        f"global_batch_size = {p.gbs}",
        f"seq_len = {model.seq}",
        "",
        "[parallelism]",
        f"data_parallel_replicate_degree = {1 if p.zero else p.dp}",
        f"data_parallel_shard_degree = {p.dp if p.zero else 1}",
        f"tensor_parallel_degree = {p.tp}",
        f"context_parallel_degree = {p.cp}",
        f"pipeline_parallel_degree = {p.pp}",
    ]
    if model.experts:
        lines.append(f"expert_parallel_degree = {p.ep}")
    if p.pp > 1:
        lines += [
            f'pipeline_parallel_schedule = "{name}"',
            f"pipeline_parallel_microbatch_size = {p.mbs}",
            f"pipeline_parallel_layers_per_stage = {max(layout.layers)}",
        ]
    lines += ["", "[activation_checkpoint]", f'mode = "{p.recompute}"']
    if p.recompute_layers is not None:
        lines[-1] += f"  # the plan recomputes {p.recompute_layers} layers of each stage, which this cannot say"
    return "\n".join(lines) + "\n"
