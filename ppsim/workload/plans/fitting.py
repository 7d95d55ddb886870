"""Infer a run's recompute or offload from the fact that it fitted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ppsim.errors import PpsimError
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.hardware import Machine
from ppsim.workload.layout.layout import Layout
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import CHEAP, Parallel
from ppsim.workload.plans.task import usable_bytes

# The modules that Megatron-LM's recipes recompute, from the cheapest for its bytes to the dearest;
# each with those before.
MODULES = (*CHEAP, "mlp", "shared_experts", "moe")
EIGHTHS = tuple(n / 8 for n in range(1, 9))


def fitting(
    model: Model,
    machine: Machine,
    parallel: Parallel,
    layout: Layout | None,
    *,
    modules: bool,
    offload: bool,
) -> tuple[Parallel, ...]:
    """List the settings with which a run may have fitted: its own where it fits, else with the
    least technique that frees enough.

    Of each way the least that fits: modules that recompute, a share of activations on the host, and
    whole layers, in the end all of them with a share of what they keep on the host. So no run that
    misses by little takes a way that costs much more.

    Args:
        model: the model.
        machine: the cluster.
        parallel: what is known of the run.
        layout: what each stage holds.
        modules: whether its software recomputes modules; whole layers, all software does.
        offload: whether it copies activations to the host.
    """
    ways = [[*_modules(model, parallel)]] if modules and parallel.recompute == "none" else []
    ways += [[replace(parallel, offload=share) for share in EIGHTHS]] if offload else []
    if parallel.recompute == "none":
        whole = replace(parallel, recompute="full", recompute_layers=None)
        more = [replace(whole, offload=share) for share in EIGHTHS] if offload else []
        ways += [[*_layers(model, parallel), *more]]
    if _fits(model, machine, parallel, layout):
        return (parallel,)
    found = [
        next((tried for tried in way if _fits(model, machine, tried, layout)), None) for way in ways
    ]
    return tuple(tried for tried in found if tried) or (parallel,)


def _modules(model: Model, parallel: Parallel) -> Iterator[Parallel]:
    has = {"moe_act": model.experts, "shared_experts": model.shared_ffn, "moe": model.experts}
    has |= {"mla_up_proj": model.kv_lora, "mlp": model.moe_layers < model.layers}
    chosen = [name for name in MODULES if has.get(name, 1)]
    for count in range(1, len(chosen) + 1):
        yield replace(parallel, recompute="selective", modules=tuple(chosen[:count]))


def _layers(model: Model, parallel: Parallel) -> Iterator[Parallel]:
    each = -(-model.layers // parallel.stages)
    for count in sorted({-(-each * n // 8) for n in range(1, 9)}):
        yield replace(parallel, recompute="full", recompute_layers=count)


def _fits(model: Model, machine: Machine, parallel: Parallel, layout: Layout | None) -> bool:
    try:
        return bool(device_memory(model, parallel, layout).total.max() <= usable_bytes(machine))
    except PpsimError:  # whoever predicts the run says why
        return True
