"""ppsim: simulate, measure and draw pipeline-parallel training schedules.

What the command line does is a few lines of Python, by the same names::

    import ppsim as pp

    run = pp.run("1f1b", devices=4, microbatches=8, tf=1, tb=2)
    print(run.metrics.bubble_rate, run.bound)
    run.save("1f1b.svg")
    rows = pp.sweep(["1f1b", "zb-1p"], devices=[4, 8], microbatches=32)

Names are imported when they are first used, so that ``import ppsim`` costs nothing.
"""

from __future__ import annotations

from ppsim import version

TYPE_CHECKING = False  # typing would take longer to load than all the rest

__version__ = version.VERSION

# One module each, with a function of its name.
QUESTIONS = (
    *("run", "compare", "sweep", "jitter", "explain", "diff", "memory", "partition", "optimize", "plan"),
    *("check", "read", "calibrate", "validate", "layout", "model", "convert"),
)
_HOME = {
    "ppsim.core.costs": ("Costs", "costs_for"),
    "ppsim.core.ops": ("Kind",),
    "ppsim.core.schedule": ("Placement", "Schedule"),
    "ppsim.core.timeline": ("Timeline",),
    "ppsim.engine.simple.longest_path": ("simulate",),
    "ppsim.engine.simple.metrics": ("Metrics", "measure"),
    "ppsim.errors": ("PpsimError",),
    **{f"ppsim.questions.{name}": (name,) for name in QUESTIONS},
    "ppsim.show.drawing.gantt": ("plot",),
    "ppsim.show.drawing.notebook": ("figure",),
    "ppsim.show.files.document": ("Document", "save"),
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
    "calibrate",
    "check",
    "compare",
    "convert",
    "costs_for",
    "diff",
    "explain",
    "figure",
    "jitter",
    "layout",
    "measure",
    "memory",
    "model",
    "optimize",
    "partition",
    "plan",
    "plot",
    "read",
    "run",
    "save",
    "simulate",
    "sweep",
    "validate",
]

if TYPE_CHECKING:
    from typing import Any

    from ppsim.core.costs import Costs, costs_for
    from ppsim.core.ops import Kind
    from ppsim.core.schedule import Placement, Schedule
    from ppsim.core.timeline import Timeline
    from ppsim.engine.simple.longest_path import simulate
    from ppsim.engine.simple.metrics import Metrics, measure
    from ppsim.errors import PpsimError
    from ppsim.questions.across.check import check
    from ppsim.questions.across.convert import convert
    from ppsim.questions.across.diff import diff
    from ppsim.questions.across.explain import explain
    from ppsim.questions.optimum.optimize import optimize
    from ppsim.questions.optimum.partition import partition
    from ppsim.questions.plans.layout import layout
    from ppsim.questions.plans.model import model
    from ppsim.questions.plans.plan import plan
    from ppsim.questions.runs.calibrate import calibrate
    from ppsim.questions.runs.read import read
    from ppsim.questions.runs.validate import validate
    from ppsim.questions.timelines.compare import compare
    from ppsim.questions.timelines.jitter import jitter
    from ppsim.questions.timelines.memory import memory
    from ppsim.questions.timelines.run import run
    from ppsim.questions.timelines.sweep import sweep
    from ppsim.show.drawing.gantt import plot
    from ppsim.show.drawing.notebook import figure
    from ppsim.show.files.document import Document, save


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    import importlib

    if name in QUESTIONS:
        from ppsim.ask.signatures import describe

        return describe(name)
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module 'ppsim' has no attribute '{name}'")
