"""ppsim: simulate, measure and draw pipeline-parallel training schedules.

What the command line does is a few lines of Python::

    from ppsim import costs_for, measure, simulate
    from ppsim.schedules import generate

    schedule = generate("1f1b", stages=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, tf=1, tb=2))
    print(measure(timeline).bubble_rate)

Names are imported when they are first used, so that ``import ppsim`` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "ppsim.costs": ("Costs", "costs_for"),
    "ppsim.errors": ("PpsimError",),
    "ppsim.formats": ("Document", "save"),
    "ppsim.formats.figure": ("plot",),
    "ppsim.metrics": ("Metrics", "measure"),
    "ppsim.ops": ("Kind",),
    "ppsim.schedule": ("Placement", "Schedule"),
    "ppsim.engine": ("simulate",),
    "ppsim.timeline": ("Timeline",),
}
__all__ = [
    "Costs",
    "Document",
    "Kind",
    "Metrics",
    "Placement",
    "PpsimError",
    "Schedule",
    "Timeline",
    "costs_for",
    "measure",
    "plot",
    "save",
    "simulate",
]

if TYPE_CHECKING:
    from ppsim.costs import Costs, costs_for
    from ppsim.engine import simulate
    from ppsim.errors import PpsimError
    from ppsim.formats import Document, save
    from ppsim.formats.figure import plot
    from ppsim.metrics import Metrics, measure
    from ppsim.ops import Kind
    from ppsim.schedule import Placement, Schedule
    from ppsim.timeline import Timeline


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'ppsim' has no attribute '{name}'")
