"""Recompute of a part of each stage, some layers or modules: the time of R, and the activations
that F keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.recompute import PARTS, rules_of
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import ACTIVATIONS, LAYER_ACTIVATIONS, Amounts, MemoryModel
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.prices.part import Asked
    from ppsim.workload.layout.costs import LayerTimes


@dataclass(frozen=True)
class PartlyRecomputed:
    """A schedule whose R may run a part of a stage, with the options that give the size of that
    part.
    """

    schedule: Schedule
    text: bool | str  # of --recompute
    asked: Asked

    @cached_property
    def rules(self) -> list[str]:
        """The rule of each stage, empty for no parts (InputError: another number of stages, or an
        unknown module).
        """
        text = self.text
        if not isinstance(text, str) or not any(part in text for part in PARTS):
            return []
        from ppsim.workload.model.parallel import MODULES

        rules = rules_of(self.schedule, text)
        for name in (
            name for rule in rules if rule.startswith("modules:") for name in modules_of(rule)
        ):
            if name not in MODULES:
                raise InputError(f"--recompute: not a module: '{name}'", ", ".join(MODULES))
        return rules

    def time(self, made: Costs, times: LayerTimes | None) -> Costs:
        """Return the costs with the time of an R that runs a part of its stage, unless ``--tr``
        gives it.

        Layers of a layout take their own ``times`` where there are any; else all layers of a stage
        an equal share of its forward. Modules take the share of their products in a layer's.

        Raises:
            InputError: nothing gives the number of a stage's layers, or the time of modules.
        """
        if not self.rules or self.asked["tr"] is not None or self.asked["costs"]:
            return made
        share = np.ones(self.schedule.n_stages)
        layers = [rule.startswith("layers:") for rule in self.rules]
        if any(layers):
            counts = np.array(
                [
                    int(rule[7:]) if chosen else 0
                    for rule, chosen in zip(self.rules, layers, strict=True)
                ]
            )
            share[layers] = self._share_of_layers(times, counts)[layers]
        for stage, rule in enumerate(self.rules):
            if rule.startswith("modules:"):
                if self.asked.model is None:
                    hint = "--tr TIME, or layers:N with --layout; ppsim memory takes --model"
                    raise InputError(
                        f"--recompute {rule}: the time of the modules is unknown", hint
                    )
                share[stage] = self.asked.model.share_of(modules_of(rule))
        time = made.time.copy()
        time[Kind.R] = share * time[Kind.F]
        return replace(made, time=time)

    def _share_of_layers(
        self, times: LayerTimes | None, counts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Return the share of each stage's forward that its first layers take."""
        layout = self.asked.layout_of(self.schedule)
        if layout and times:
            from ppsim.workload.layout.costs import stage_forwards

            of_layers = np.append(0.0, np.cumsum(times.forward_times(layout.n_layers)))
            ends = np.cumsum(layout.layers)
            first, whole = ends - layout.layers, stage_forwards(layout, times)
            part = of_layers[np.minimum(first + counts, ends)] - of_layers[first]
            return np.divide(part, whole, out=np.zeros_like(whole), where=whole > 0)
        held = self._layers_held()
        return np.minimum(counts, held) / np.maximum(held, 1e-9)

    def _layers_held(self) -> NDArray[np.float64]:
        """Return the layers of each stage, of a layout, a model or a profile."""
        layers = self.asked.layers(self.schedule)
        if layers is not None:
            return layers
        hint = "--layout STRING, --tr TIME, or ppsim memory --model NAME"
        raise InputError("--recompute layers:N: the number of layers of a stage is unknown", hint)

    def keep(self, held: MemoryModel) -> MemoryModel:
        """Return the memory of stages where F keeps all but the part that R runs again. Where the
        size of that part is not known, an activation counts from its F on.
        """
        stored = held.stored.copy()
        for stage in self.schedule.partial_recompute:
            kept = self._kept_by_rule(held, self.rules[stage]) if self.rules else held.activations
            stored[stage] = kept[stage]
        return replace(held, stored=np.minimum(stored, held.activations))

    def _kept_by_rule(self, held: MemoryModel, rule: str) -> Amounts:
        """Return the activations that F keeps by one rule, shape (stages,)."""
        if model := self.asked.model:
            layout = self.asked.layout_of(self.schedule)
            return model.kept_by(rule, self.schedule, layout.content if layout else None)
        if rule.startswith("modules:") or held.unit == ACTIVATIONS:
            return held.activations
        count = int(rule[7:])
        if held.unit == LAYER_ACTIVATIONS:
            return np.maximum(held.activations - count, 0)
        layers = self._layers_held()
        share = np.minimum(count, layers) / np.maximum(layers, 1e-9)
        return np.ceil(held.activations - share * (held.activations - held.stored)).astype(np.int64)


def modules_of(rule: str) -> tuple[str, ...]:
    """Return the modules that a rule names."""
    return tuple(rule.removeprefix("modules:").split(","))
