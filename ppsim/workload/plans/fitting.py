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

# Modules in the order in which Megatron-LM's recipes add them to recomputation: by increasing cost
# per freed byte.
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
    """Return the settings with which a run may have fitted into memory.

    The run's own settings are returned if they fit. Otherwise there is one candidate per technique,
    each with the smallest extent that fits: recomputed modules; a share of activations on the host;
    recomputed layers, up to all layers with a share of the remaining activations on the host.
    Trying each technique avoids an expensive technique for a run that barely exceeds its memory.

    Args:
        model: the model.
        machine: the cluster.
        parallel: the known settings of the run.
        layout: the layers of each stage.
        modules: whether the software can recompute modules; all software can recompute layers.
        offload: whether the software can copy activations to the host.
    """
    ways = [[*_with_modules(model, parallel)]] if modules and parallel.recompute == "none" else []
    ways += [[replace(parallel, offload=share) for share in EIGHTHS]] if offload else []
    if parallel.recompute == "none":
        whole = replace(parallel, recompute="full", recompute_layers=None)
        more = [replace(whole, offload=share) for share in EIGHTHS] if offload else []
        ways += [[*_with_layers(model, parallel), *more]]
    if _fits(model, machine, parallel, layout):
        return (parallel,)
    found = [
        next((tried for tried in way if _fits(model, machine, tried, layout)), None) for way in ways
    ]
    return tuple(tried for tried in found if tried) or (parallel,)


def _with_modules(model: Model, parallel: Parallel) -> Iterator[Parallel]:
    """Yield the settings with one, two, ... recomputed modules."""
    has = {"moe_act": model.experts, "shared_experts": model.shared_ffn, "moe": model.experts}
    has |= {"mla_up_proj": model.kv_lora, "mlp": model.moe_layers < model.layers}
    chosen = [name for name in MODULES if has.get(name, 1)]
    for count in range(1, len(chosen) + 1):
        yield replace(parallel, recompute="selective", modules=tuple(chosen[:count]))


def _with_layers(model: Model, parallel: Parallel) -> Iterator[Parallel]:
    """Yield the settings with more and more recomputed layers of a stage, by eighths."""
    each = -(-model.layers // parallel.stages)
    for count in sorted({-(-each * n // 8) for n in range(1, 9)}):
        yield replace(parallel, recompute="full", recompute_layers=count)


def _fits(model: Model, machine: Machine, parallel: Parallel, layout: Layout | None) -> bool:
    try:
        return bool(device_memory(model, parallel, layout).total.max() <= usable_bytes(machine))
    except PpsimError:  # the prediction of the run will report the error
        return True
