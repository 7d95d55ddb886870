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

# Where names are that are not questions.
_HOME = {
    "ppsim.core.costs": ("Costs", "costs_for"),
    "ppsim.core.ops": ("Kind",),
    "ppsim.core.schedule": ("Placement", "Schedule"),
    "ppsim.core.timeline": ("Timeline",),
    "ppsim.engine.simple.longest_path": ("simulate",),
    "ppsim.engine.simple.metrics": ("Metrics", "measure"),
    "ppsim.errors": ("PpsimError",),
    "ppsim.show.drawing.gantt.figure": ("plot",),
    "ppsim.show.drawing.notebook": ("figure",),
    "ppsim.show.files.document": ("Document", "save"),
}

if TYPE_CHECKING:
    from typing import Any


def __dir__() -> list[str]:
    special = [name for name in globals() if name.startswith("__")]
    return sorted([*special, *__getattr__("__all__")])


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__all__":
        from ppsim.questions import list_functions

        return sorted([*list_functions(), *(each for names in _HOME.values() for each in names)])
    for home, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    if name.isidentifier() and not name.startswith("_"):
        from ppsim.questions import module_of

        module = importlib.import_module(found) if (found := module_of(name)) else None
        if hasattr(module, name):
            from ppsim.ask.signatures import describe

            return describe(module)
    raise AttributeError(f"module 'ppsim' has no attribute '{name}'")
