"""Recompute of a part of each stage, some layers or modules: the time of R, and what F keeps beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.recompute import PARTS, rules_of
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import LAYER_ACTIVATIONS, Amounts, MemoryModel
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.questions.groups import CostOptions
    from ppsim.questions.trained import Trained
    from ppsim.workload.layout.costs import LayerTimes
    from ppsim.workload.layout.layout import Layout


def part_rules(schedule: Schedule, costs: CostOptions) -> list[str]:
    """The rule of each stage, empty for no parts (InputError: rules of other stages, or a module that is none)."""
    if not isinstance(costs.recompute, str) or not any(part in costs.recompute for part in PARTS):
        return []
    from ppsim.workload.model.parallel import MODULES

    rules = rules_of(schedule, costs.recompute)
    for name in (name for rule in rules if rule.startswith("modules:") for name in modules_of(rule)):
        if name not in MODULES:
            raise InputError(f"--recompute: '{name}' is no module", ", ".join(MODULES))
    return rules


def modules_of(rule: str) -> tuple[str, ...]:
    """The modules that a rule names."""
    return tuple(rule.removeprefix("modules:").split(","))


def time_part(
    made: Costs,
    schedule: Schedule,
    costs: CostOptions,
    layout: Layout | None,
    times: LayerTimes | None,
    model: Trained | None,
) -> Costs:
    """Return the costs with the time of an R that runs a part of its stage, unless ``--tr`` gives it.

    Layers of a layout take their own ``times`` where there are any; else all layers of a stage an equal share of its
    forward. Modules take the share of their products in a layer's.

    Raises:
        InputError: nothing says how many layers a stage has, or what modules take.
    """
    rules = part_rules(schedule, costs)
    if not rules or costs.tr is not None or costs.costs:
        return made
    share = np.ones(schedule.n_stages)
    layers = [rule.startswith("layers:") for rule in rules]
    if any(layers):
        counts = np.array([int(rule[7:]) if chosen else 0 for rule, chosen in zip(rules, layers, strict=True)])
        share[layers] = _share_of_layers(schedule, costs, layout, times, model, counts)[layers]
    for stage, rule in enumerate(rules):
        if rule.startswith("modules:"):
            if model is None:
                hint = "--tr TIME, or layers:N with --layout; ppsim memory takes --model"
                raise InputError(f"--recompute {rule}: nothing says what the modules take", hint)
            share[stage] = model.share_of(modules_of(rule))
    time = made.time.copy()
    time[Kind.R] = share * time[Kind.F]
    return replace(made, time=time)


def _share_of_layers(
    schedule: Schedule,
    costs: CostOptions,
    layout: Layout | None,
    times: LayerTimes | None,
    model: Trained | None,
    counts: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The share of each stage's forward that its first layers take."""
    if layout and times:
        from ppsim.workload.layout.costs import stage_forwards

        of_layers = np.append(0.0, np.cumsum(times.of_layers(layout.n_layers)))
        ends = np.cumsum(layout.layers)
        first, whole = ends - layout.layers, stage_forwards(layout, times)
        part = of_layers[np.minimum(first + counts, ends)] - of_layers[first]
        return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
    held = _layers_held(schedule, costs, layout, model)
    return np.minimum(counts, held) / np.maximum(held, 1e-9)


def _layers_held(
    schedule: Schedule, costs: CostOptions, layout: Layout | None, model: Trained | None
) -> NDArray[np.float64]:
    """The layers of each stage, of a layout, a model or a profile."""
    if layout:
        return np.array(layout.layers, np.float64)
    if model:
        return np.array(model.layers_of(schedule), np.float64)
    if costs.profile:
        from ppsim.inputs.profile.profile import read

        measured = read(costs.profile).model
        if measured:
            return np.full(schedule.n_stages, measured.layers * schedule.n_devices / schedule.n_stages)
    hint = "--layout STRING, --tr TIME of what runs again, or ppsim memory --model NAME"
    raise InputError("--recompute layers:N: nothing says how many layers a stage has", hint)


def keep_part(
    held: MemoryModel, schedule: Schedule, costs: CostOptions, layout: Layout | None, model: Trained | None
) -> MemoryModel:
    """Return what stages hold where F keeps all but the part that R runs again.

    Where nothing says how much that is, an activation counts from its F on.
    """
    rules, stored = part_rules(schedule, costs), held.stored.copy()
    for stage in schedule.partly:
        kept = _kept(held, schedule, costs, layout, model, rules[stage]) if rules else held.activations
        stored[stage] = kept[stage]
    return replace(held, stored=np.minimum(stored, held.activations))


def _kept(
    held: MemoryModel, schedule: Schedule, costs: CostOptions, layout: Layout | None, model: Trained | None, rule: str
) -> Amounts:
    """What F keeps by one rule, shape (stages,)."""
    if model:
        return model.kept_by(rule, schedule, layout.content if layout else None)
    if rule.startswith("modules:") or not (layout or costs.profile):
        return held.activations
    count = int(rule[7:])
    if held.unit == LAYER_ACTIVATIONS:
        return np.maximum(held.activations - count, 0)
    layers = _layers_held(schedule, costs, layout, None)
    share = np.minimum(count, layers) / np.maximum(layers, 1e-9)
    return np.ceil(held.activations - share * (held.activations - held.stored)).astype(np.int64)
