"""The steady-state shortcut by a schedule's name; see ``ppsim.simulation.steady_state``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ppsim.core.costs import Costs
from ppsim.core.ops import Packed
from ppsim.core.recompute import recompute_queue
from ppsim.core.schedule import Schedule, place
from ppsim.errors import PpsimError
from ppsim.schedules.registry import find, shape_for
from ppsim.simulation.steady_state import Steady, extend_steady_state


def steady_state(
    name: str, costs_of: Callable[[Schedule], Costs], *, recompute: bool = False, **numbers: Any
) -> Steady | None:
    """Measure a schedule of very many microbatches without running all; None where no steady state is proved.

    Args:
        name: the schedule's name or an alias.
        costs_of: the costs of a schedule, which must not depend on its number of microbatches.
        recompute: whether every backward recomputes first.
        numbers: as :func:`ppsim.schedules.generate` takes them.

    Raises:
        InputError: as :func:`ppsim.schedules.generate`.
    """
    family = find(name)
    shape = shape_for(family, **numbers)
    # Queues that depend on costs say nothing of those of more microbatches; slices are none that can be inserted.
    if family.uses_costs or shape.slices > 1:
        return None

    def queues(microbatches: int, block: int) -> Iterable[Packed]:
        options = dict(shape.options)
        if block and "group_size" in family.options:
            options.setdefault("group_size", block)  # what the whole run's own rule came to
        smaller = replace(shape, microbatches=microbatches, options=options)
        plain = family.generate(smaller, **options)
        return map(recompute_queue, plain) if recompute else plain

    placement = place(family.placement, shape.devices, shape.stages)
    try:
        return extend_steady_state(family.name, placement, queues, shape.microbatches, costs_of)
    except PpsimError:  # a shape that is too small for the schedule's rules
        return None
