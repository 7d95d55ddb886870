"""How to even out what pipeline devices hold: layers to recompute, or layers moved between stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.workload.cost.costs import schedule_of
from ppsim.workload.cost.memory import Bytes, device_memory
from ppsim.workload.layout.layout import EMBEDDING, LAYER, Layout, build_layout, keeps_rules
from ppsim.workload.model.contents import contents_of, split_layers
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel


def even_out(model: Model, parallel: Parallel, layout: Layout | None = None) -> tuple[int, ...]:
    """Find how many layers of each stage to recompute so that the worst device holds as little as possible.

    A layer is added where the worst device gains most, until that device holds no more than the least one held before,
    or gains nothing.

    Raises:
        InputError: the layout does not fit, or the schedule refuses the shape.
    """
    full = replace(parallel, recompute="full", recompute_layers=(0,) * parallel.stages)
    layers = [content.layers for content in contents_of(model, full, layout)]
    owners = _owners(parallel)
    chosen, held = [0] * parallel.stages, device_memory(model, full, layout).total
    target = held.min()
    for _ in range(sum(layers)):
        worst = int(held.argmax())
        if held[worst] <= target:
            break
        best: tuple[float, int] | None = None
        for stage in np.flatnonzero(owners == worst):
            if chosen[stage] < layers[stage]:
                tried = tuple(count + (number == stage) for number, count in enumerate(chosen))
                total = device_memory(model, replace(full, recompute_layers=tried), layout).total
                if best is None or total[worst] < best[0]:
                    best = float(total[worst]), int(stage)
        if best is None or (best[0] >= held[worst] and max(chosen) > 0 and chosen[best[1]] > 0):
            break
        chosen[best[1]] += 1
        held = device_memory(model, replace(full, recompute_layers=tuple(chosen)), layout).total
    return tuple(chosen)


def even_layers(model: Model, parallel: Parallel, layout: Layout | None = None) -> Layout:
    """Find the layers of each stage with which the worst device holds as little as moving single layers can reach.

    A layer of the device that holds most goes to the device that holds least and takes it with gain, again and again.
    Embedding, output and MTP layers stay, and no stage is left empty.

    Raises:
        InputError: the layout does not fit, or the schedule refuses the shape.
    """
    best = layout or build_layout(list(split_layers(model, parallel.stages)), parallel.pp, model.mtp)
    owners, held = _owners(parallel), device_memory(model, parallel, best).total
    for _ in range(model.layers * parallel.pp):
        worst = int(held.argmax())
        for target in np.argsort(held, kind="stable"):
            moves = list(_moves(best, np.flatnonzero(owners == worst), np.flatnonzero(owners == target)))
            totals = [device_memory(model, parallel, moved).total for moved in moves]
            chosen = min(range(len(moves)), key=lambda index: _descending(totals[index]), default=None)
            if chosen is not None and _descending(totals[chosen]) < _descending(held):
                break
        else:
            return best
        best, held = moves[chosen], totals[chosen]
    return best


def _owners(parallel: Parallel) -> NDArray[np.int64]:
    """Return the device of each stage, shape (stages,)."""
    if parallel.pp == 1:
        return np.zeros(parallel.stages, np.int64)
    schedule = schedule_of(parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches)
    return schedule.placement.devices[0].astype(np.int64)


def _descending(held: Bytes) -> tuple[float, ...]:
    """Order what devices hold, the most first, to the nearest kilobyte."""
    return tuple(np.sort(np.round(held, -3))[::-1].tolist())


def _moves(layout: Layout, sources: NDArray[np.intp], targets: NDArray[np.intp]) -> Iterator[Layout]:
    """List the layouts with one layer less on a source and one more on a target."""
    for source in sources:
        for target in targets:
            if source == target or layout.content[source] == LAYER or LAYER not in layout.content[source]:
                continue
            content = list(layout.content)
            content[source] = content[source].replace(LAYER, "", 1)
            at = content[target].startswith(EMBEDDING)
            content[target] = content[target][:at] + LAYER + content[target][at:]
            if keeps_rules(tuple(content), layout.n_devices):  # no layer comes after the MTP layers
                yield replace(layout, content=tuple(content))
