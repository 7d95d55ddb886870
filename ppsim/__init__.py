"""ppsim: simulate, measure and draw pipeline-parallel training schedules.

What the command line does is a few lines of Python::

    from ppsim import costs_for, measure, simulate
    from ppsim.schedules import generate

    schedule = generate("1f1b", stages=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule, tf=1, tb=2))
    print(measure(timeline).bubble_rate)

Names are imported when they are first used, so that ``import ppsim`` costs nothing.
"""

from __future__ import annotations

from ppsim import version

TYPE_CHECKING = False  # typing would take longer to load than all the rest

__version__ = version.VERSION

_HOME = {
    "ppsim.core.costs": ("Costs", "costs_for"),
    "ppsim.core.ops": ("Kind",),
    "ppsim.core.schedule": ("Placement", "Schedule"),
    "ppsim.core.timeline": ("Timeline",),
    "ppsim.drawing.gantt": ("plot",),
    "ppsim.drawing.notebook": ("figure",),
    "ppsim.errors": ("PpsimError",),
    "ppsim.files.document": ("Document", "save"),
    "ppsim.simulation.longest_path": ("simulate",),
    "ppsim.simulation.metrics": ("Metrics", "measure"),
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
    "figure",
    "measure",
    "plot",
    "save",
    "simulate",
]

if TYPE_CHECKING:
    from typing import Any

    from ppsim.core.costs import Costs, costs_for
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Placement, Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.drawing.gantt import plot
    from ppsim.drawing.notebook import figure
    from ppsim.errors import PpsimError
    from ppsim.files.document import Document, save
    from ppsim.simulation.longest_path import simulate
    from ppsim.simulation.metrics import Metrics, measure


def __getattr__(name: str) -> Any:
    import importlib

    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'ppsim' has no attribute '{name}'")
