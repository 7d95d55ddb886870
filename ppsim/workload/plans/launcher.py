"""A plan as launch flags: the interface of a launcher, and those that there are.

Launchers are the files of ``launch/``, found by a scan.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ppsim.errors import InputError
from ppsim.workload.plans import launch

if TYPE_CHECKING:
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel


@dataclass(frozen=True)
class Launcher:
    """A software that plans have launch flags of.

    Attributes:
        title: its name in pages.
        software: the file in ``library/software`` that a plan is for where nothing names one.
        schedules: the names of the schedules that it runs.
        write: gives a plan's flags, or the lines of its file; InputError where it refuses the plan.
        separator: between two flags, as they are printed.
        page_separator: between two flags in pages.
        note: gives a sentence on what else a plan needs; empty for nothing.
    """

    title: str
    software: str
    schedules: tuple[str, ...]
    write: Callable[[Model, Parallel, Layout], list[str]]
    separator: str = "\n"
    page_separator: str = "\n"
    note: Callable[[Parallel], str] = lambda _: ""


def launcher_names() -> list[str]:
    """Return the names that ``--flags`` takes, without importing their files."""
    return [found.name for found in pkgutil.iter_modules(launch.__path__)]


@cache
def launcher_of(name: str) -> Launcher:
    """Return the launcher of a name of :func:`launcher_names`."""
    module = importlib.import_module(f"{launch.__name__}.{name}")
    found: Launcher = module.LAUNCHER
    return found


def launch_text(framework: str, model: Model, parallel: Parallel, layout: Layout) -> str:
    """Return a plan's launch flags, one a line, or its file, as ``framework`` takes them.

    Raises:
        InputError: the framework does not run the plan.
    """
    launcher = launcher_of(framework)
    return launcher.separator.join(launcher.write(model, parallel, layout))


def refusal(framework: str, model: Model, parallel: Parallel, layout: Layout) -> InputError | None:
    """Return why a framework does not run a plan; None where its launch flags can be written."""
    try:
        launch_text(framework, model, parallel, layout)
    except InputError as error:
        return error
    return None


def check_layers(model: Model) -> None:
    """Refuse models of layers whose flags are not known here."""
    from ppsim.workload.model.model import kinds_of

    other = {name for layer in kinds_of(model) for name in layer} - {
        "attention",
        "window",
        "dense",
        "experts",
    }
    if other or model.encoder:
        raise InputError(
            f"no flags are written for layers of kind {', '.join(sorted(other)) or 'encoder'}",
            "leave out --flags",
        )
