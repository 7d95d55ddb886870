"""Files that are found by a scan of their folder: formats, readers, columns, launchers, parts."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Any

from ppsim.errors import PpsimError


def load_files(package: ModuleType, *names: str) -> list[Any]:
    """Import every module of a package.

    Args:
        package: the package of the folder.
        names: what each module must have.

    Raises:
        PpsimError: a module lacks one of the names.
    """
    found = [
        importlib.import_module(f"{package.__name__}.{each.name}")
        for each in pkgutil.iter_modules(package.__path__)
    ]
    for module in found:
        for name in names:
            if not hasattr(module, name):
                raise lacking(module, name, package)
    return found


def load_file(package: ModuleType, file: str, name: str) -> Any:
    """Return the object of a name in one module of a package (PpsimError: it has none)."""
    module = importlib.import_module(f"{package.__name__}.{file}")
    if not hasattr(module, name):
        raise lacking(module, name, package)
    return getattr(module, name)


def lacking(module: ModuleType, name: str, package: ModuleType) -> PpsimError:
    """Return the error for a file of a package that lacks what each file there must have."""
    return PpsimError(f"{module.__file__} has no {name}", f"see {package.__file__}")
