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
    "Costs": "ppsim.costs",
    "costs_for": "ppsim.costs",
    "Kind": "ppsim.ops",
    "Metrics": "ppsim.metrics",
    "measure": "ppsim.metrics",
    "Placement": "ppsim.schedule",
    "Schedule": "ppsim.schedule",
    "Timeline": "ppsim.timeline",
    "simulate": "ppsim.simulate",
    "Document": "ppsim.formats",
    "save": "ppsim.formats",
    "plot": "ppsim.formats.figure",
    "PpsimError": "ppsim.errors",
}
__all__ = [*_HOME]  # noqa: PLE0604 - the table above, once

if TYPE_CHECKING:
    from ppsim.costs import Costs, costs_for
    from ppsim.errors import PpsimError
    from ppsim.formats import Document, save
    from ppsim.formats.figure import plot
    from ppsim.metrics import Metrics, measure
    from ppsim.ops import Kind
    from ppsim.schedule import Placement, Schedule
    from ppsim.simulate import simulate
    from ppsim.timeline import Timeline


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ppsim' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
