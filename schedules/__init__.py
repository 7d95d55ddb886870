"""Every schedule, one file per family; a file put here is registered when it is found.

Use :func:`generate` by name, or :func:`families` to walk all of them.
"""

import importlib
import pkgutil

from ppsim.schedules._registry import Family, Rule, Shape, families, find, generate, schedule, shape_for

for _module in pkgutil.iter_modules(__path__):
    if not _module.name.startswith("_"):
        importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["Family", "Rule", "Shape", "families", "find", "generate", "schedule", "shape_for"]
