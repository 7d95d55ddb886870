"""A model on a cluster as a source of times: the costs that ``ppsim plan`` gives a pipeline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.engine.memory.usage import MemoryModel
    from ppsim.workload.cost.costs import StageCosts, Step
    from ppsim.workload.hardware.hardware import Machine
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel


@dataclass(frozen=True)
class Modelled:
    """A model on a cluster.

    Attributes:
        model: the model.
        machine: the cluster and its GPUs.
        base: the software's techniques, with all sizes 1.
        sizes: of all kinds of parallelism except the pipeline, by name.
        layout: the name of the division of layers.
    """

    model: Model
    machine: Machine
    base: Parallel
    sizes: tuple[tuple[str, Any], ...]
    layout: str = "even"

    def parallel(self, schedule: Schedule) -> Parallel:
        """Return the sizes of all kinds of parallelism, and the software's techniques for a
        schedule.

        Raises:
            InputError: they do not divide each other, or are more GPUs than the cluster has.
        """
        if len(schedule) and schedule.only_forwards:  # a family prices its queues before it has any
            what = f"{schedule.name} does not train, and --model gives costs of training"
            raise InputError(what, "1f1b, or another of ppsim list")
        name, devices = schedule.name, schedule.n_devices
        whole, slices = schedule.whole_microbatches, schedule.n_slices
        found = self._parallel(name, devices, max(schedule.n_stages // devices, 1))
        return replace(found, microbatches=whole, slices=slices if devices > 1 else 0)

    def _parallel(self, name: str, devices: int, chunks: int) -> Parallel:
        from ppsim.base.toml import RefusedValue
        from ppsim.schedules import family_of
        from ppsim.workload.plans.space import PAIRS, with_techniques

        sizes = dict(self.sizes)
        family = family_of(name)
        known = family.name if family and devices > 1 else ""
        paired = known in PAIRS and sizes.get("ep", 1) > 1
        base = with_techniques(self.base, paired, sizes["zero"], 0, known)
        if sizes.get("ep", 1) > 1 and not self.model.experts:
            what = f"--ep {sizes['ep']} needs experts, which {self.model.name} lacks"
            raise InputError(what, "leave out --ep")
        try:
            found = replace(base, **sizes, pp=devices, vp=chunks, schedule=known)
        except RefusedValue as refused:
            raise InputError(f"--{refused}", f"another --{refused.key}") from None
        self.machine.check_gpus(found.gpus)
        return found

    def layout_of(self, schedule: Schedule) -> Layout:
        """Return which layers each stage holds (InputError: the model has too few for the name)."""
        return self._layout(schedule.n_devices, schedule.n_stages)

    def _layout(self, devices: int, stages: int) -> Layout:
        from ppsim.workload.layout.layout import build_layout
        from ppsim.workload.plans.space import encoder_layers, head_layers, layout_layers

        split = layout_layers(self.model, stages, self.layout)
        if split is None:
            layers = f"{self.model.layers} layers over {stages} stages"
            what = f"no layout '{self.layout}' divides the model's {layers}"
            if ":" not in self.layout:
                raise InputError(what, "fewer stages, or --layout STRING")
            counts = {"head": head_layers, "encoder": encoder_layers}
            part = "head" if self.layout.startswith("light-last") else "encoder"
            what += f"; its {part} counts as {counts[part](self.model):.2g} layers"
            raise InputError(what, "another number, or --layout STRING")
        return build_layout(list(split), devices, self.model.mtp)

    def costs(self, schedule: Schedule, layout: Layout | None = None) -> StageCosts:
        """Return the costs of stages and messages.

        Args:
            schedule: the schedule.
            layout: the layers of each stage, in place of the layout's name.
        """
        parallel = self.parallel(schedule)
        return _price_stages(self.model, self.machine, parallel, layout or self.layout_of(schedule))

    def kept_share(self, name: str, devices: int, chunks: int) -> float:
        """Return the share of an activation that W needs, of stages of equal layers."""
        parallel = self._parallel(name, devices, chunks)
        layout = self._layout(devices, devices * chunks)
        return _price_stages(self.model, self.machine, parallel, layout).kept_share

    def layers_of(self, schedule: Schedule) -> list[int]:
        """Return the layers of each stage."""
        from ppsim.workload.model.contents import contents_of

        parallel = self.parallel(schedule)
        return [each.layers for each in contents_of(self.model, parallel, self.layout_of(schedule))]

    def memory(self, schedule: Schedule, layout: Layout | None = None) -> MemoryModel:
        """Return the bytes that stages hold; ``layout`` as in :meth:`costs`."""
        from ppsim.workload.cost.memory import memory_model

        parallel, devices = self.parallel(schedule), schedule.placement.devices
        return memory_model(self.model, parallel, devices, layout or self.layout_of(schedule))

    def step(self, schedule: Schedule, prices: Costs, layout: Layout | None = None) -> Step:
        """Return the time of a step, in seconds: the pipeline, reductions and the optimizer.

        Args:
            schedule: the schedule.
            prices: the costs of its ops, changed by the user's factors.
            layout: as in :meth:`costs`.
        """
        from ppsim.workload.cost.costs import step_time

        found = self.parallel(schedule)
        costs = replace(self.costs(schedule, layout), costs=prices)
        return step_time(self.model, self.machine, found, costs=costs, schedule=schedule)


@lru_cache(maxsize=64)  # the times of ops and the time of a step ask for the same stages
def _price_stages(model: Model, machine: Machine, parallel: Parallel, layout: Layout) -> StageCosts:
    """Return what stages and messages cost."""
    from ppsim.workload.cost.costs import stage_costs

    return stage_costs(model, machine, parallel, layout)
