"""All schedules, one file per family. A file in this folder is imported when its schedule is used.

:func:`generate` makes a schedule by name, :func:`schedule_from` by name or from a file, and
:func:`families` lists all of them. A file that declares a schedule, here or elsewhere, needs only
the names exported here: the decorator ``schedule``, ``Shape``, rules, and the builder ``Queue``
with its steps.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ppsim.core.builder import B, F, I, Pair, Queue, Step, W, stream
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind, Packed
from ppsim.core.schedule import place
from ppsim.schedules.registry import (
    EVEN_DEVICES,
    EVEN_MICROBATCHES,
    ONE_CHUNK,
    TWO_CHUNKS,
    Family,
    Pricing,
    Rule,
    Shape,
    check_size,
    families,
    find,
    generate,
    generate_once,
    interchangeable_families,
    schedule,
    shape_for,
    takes_chunks,
)

if TYPE_CHECKING:
    from ppsim.schedules._fitting import Alternative, Request, Trial, find_fitting
    from ppsim.schedules._load import (
        family_of,
        reads_ops,
        require_shape,
        schedule_from,
        split_chunks,
    )
    from ppsim.schedules._recognise import list_alike, recognise
    from ppsim.schedules.interleaved import group_size

# Imported at first use, as a lookup of a schedule by name does not need these modules.
_LAZY = {
    "_fitting": ("Alternative", "Request", "Trial", "find_fitting"),
    "_load": ("family_of", "reads_ops", "require_shape", "schedule_from", "split_chunks"),
    "_recognise": ("list_alike", "recognise"),
    "interleaved": ("group_size",),
}

__all__ = [
    "EVEN_DEVICES",
    "EVEN_MICROBATCHES",
    "ONE_CHUNK",
    "TWO_CHUNKS",
    "Alternative",
    "B",
    "Costs",
    "F",
    "Family",
    "I",
    "Kind",
    "Packed",
    "Pair",
    "Pricing",
    "Queue",
    "Request",
    "Rule",
    "Shape",
    "Step",
    "Trial",
    "W",
    "check_size",
    "families",
    "family_of",
    "find",
    "find_fitting",
    "generate",
    "generate_once",
    "group_size",
    "interchangeable_families",
    "list_alike",
    "place",
    "reads_ops",
    "recognise",
    "require_shape",
    "schedule",
    "schedule_from",
    "shape_for",
    "split_chunks",
    "stream",
    "takes_chunks",
]


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
