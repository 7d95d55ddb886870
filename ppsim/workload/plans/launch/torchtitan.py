"""Launch flags of torchtitan, as tables of its TOML."""

from __future__ import annotations

from ppsim.errors import InputError
from ppsim.schedules import families, find
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.launcher import Launcher, check_layers

# torchtitan's names for converters of linear layers, by training precision
CONVERTERS = {"fp8": "quantize.linear.float8", "mxfp8": "quantize.linear.mx"}


def torchtitan_lines(model: Model, parallel: Parallel, layout: Layout) -> list[str]:
    """Return a plan's tables for torchtitan's job configuration, line by line.

    Raises:
        InputError: torch does not support the schedule or the number of microbatches, or torchtitan
            does not support the precision, the expert ranks, or offloading.
    """
    p = parallel
    name = find(p.schedule_name).torch.removeprefix("Schedule")
    check_layers(model)
    _check_torchtitan(p, name)
    lines = (
        ["# without multi-token prediction, which torchtitan does not have", ""]
        if model.mtp
        else []
    )
    if p.precision in CONVERTERS:
        lines += ["[model]", f'converters = ["{CONVERTERS[p.precision]}"]', ""]
    # a pipeline step runs all microbatches; without a pipeline torchtitan accumulates them
    per_step = p.microbatches if p.pp > 1 else 1
    if p.narrow_weights and p.precision == "fp8":
        lines += ["[quantize.linear.float8]", "enable_fsdp_float8_all_gather = true", ""]
    lines += [
        "[training]",
        f"local_batch_size = {p.mbs * per_step}",
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
            "  # the plan recomputes attention's products; torchtitan selects other operators"
        )
    lines += [
        "",
        "[compile]",
        f"enable = {str(p.kernels == 'compiled').lower()}",
        'components = ["model", "loss"]',
    ]
    return lines


def _check_torchtitan(parallel: Parallel, schedule: str) -> None:
    """Refuse plans that torchtitan does not support (InputError).

    ``schedule`` is the schedule's name in torch, or '' if it has none.
    """
    p = parallel
    if p.optimizer == "muon":
        raise InputError("ppsim does not know torchtitan's flags for Muon", "leave out --flags")
    if p.offload:
        raise InputError("torchtitan cannot offload a share of the activations", "--offload 0")
    if p.pipeline_first:
        raise InputError(
            f"torchtitan does not number ranks in the order {p.rank_order}",
            "leave out --rank-order",
        )
    if p.precision not in ("bf16", *CONVERTERS):
        raise InputError(f"torchtitan does not train in {p.precision}", "--precision bf16")
    if p.recompute == "full" and p.recompute_layers is not None:
        raise InputError("torchtitan recomputes all layers or none", "--recomputes none,selective")
    rounds = max(1, p.microbatches // p.pp)
    if p.schedule in ("interleaved", "interleaved-zb") and p.microbatches % rounds:
        raise InputError(
            f"torch cannot interleave {p.microbatches} microbatches on {p.pp} devices",
            "another --mbs",
        )
    if p.pp > 1 and not schedule:
        supported = "1f1b,interleaved,interleaved-zb,zb-v-torch,dualpipe-v"
        raise InputError(
            f"torch.distributed.pipelining has no schedule {p.schedule}", f"--schedules {supported}"
        )
    if p.ep > 1 and (p.ep % (p.tp * p.cp) or not p.zero):
        raise InputError(
            f"torchtitan needs ZeRO, and --ep in multiples of tp x cp = {p.tp * p.cp}",
            f"--ep {p.tp * p.cp} or a multiple, --zero 1",
        )


def _torchtitan_stages(layout: Layout) -> list[str]:
    """Return the lines for the split of layers.

    By default torchtitan counts embedding and output as a layer each; these lines override that.
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
    quoted = (", ".join(f'"{module}"' for module in part) for part in parts)
    return ["module_fqns_per_model_part = [", *(f"  [{modules}]," for modules in quoted), "]"]


LAUNCHER = Launcher(
    title="torchtitan",
    software="torchtitan",
    schedules=tuple(family.name for family in families() if family.torch),
    write=torchtitan_lines,
)
