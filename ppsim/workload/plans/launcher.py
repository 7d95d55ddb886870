"""A plan as launch flags: the interface of a launcher, and the launchers in ``launch/``.

Launchers are found by a scan of that folder.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ppsim.base.scan import load_file
from ppsim.errors import InputError
from ppsim.workload.plans import launch

if TYPE_CHECKING:
    from ppsim.workload.layout.layout import Layout
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel


@dataclass(frozen=True)
class Launcher:
    """A software whose launch flags ppsim can write.

    Attributes:
        title: its name in pages.
        software: the file in ``library/software`` that a plan uses if no software is named.
        schedules: names of the schedules that it runs.
        write: returns a plan's flags, or the lines of its file; raises InputError if the software
            cannot run the plan.
        separator: text between two flags on the terminal.
        page_separator: text between two flags in pages.
        note: returns a sentence on other things that a plan needs, or ''.
    """

    title: str
    software: str
    schedules: tuple[str, ...]
    write: Callable[[Model, Parallel, Layout], list[str]]
    separator: str = "\n"
    page_separator: str = "\n"
    note: Callable[[Parallel], str] = lambda _: ""


def launcher_names() -> list[str]:
    """Return the values of ``--flags``, without importing the launchers' files."""
    return [found.name for found in pkgutil.iter_modules(launch.__path__)]


@cache
def launcher_of(name: str) -> Launcher:
    """Return the launcher of a name in :func:`launcher_names`."""
    found: Launcher = load_file(launch, name, "LAUNCHER")
    return found


def launch_text(framework: str, model: Model, parallel: Parallel, layout: Layout) -> str:
    """Return a plan's launch flags, or configuration file, as text for a launcher's framework.

    Raises:
        InputError: the framework cannot run the plan.
    """
    launcher = launcher_of(framework)
    return launcher.separator.join(launcher.write(model, parallel, layout))


def refusal(framework: str, model: Model, parallel: Parallel, layout: Layout) -> InputError | None:
    """Return the error for a plan that a framework cannot run, or None if it can."""
    try:
        launch_text(framework, model, parallel, layout)
    except InputError as error:
        return error
    return None


def check_layers(model: Model) -> None:
    """Refuse models with kinds of layers whose flags ppsim does not know (InputError)."""
    from ppsim.workload.model.model import kinds_of

    known = {"attention", "window", "dense", "experts"}
    unknown = {name for layer in kinds_of(model) for name in layer} - known
    if unknown or model.encoder:
        kinds = ", ".join(sorted(unknown)) or "encoder"
        raise InputError(
            f"ppsim does not know the flags for layers of kind {kinds}", "leave out --flags"
        )
