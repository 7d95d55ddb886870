"""How commands read a real run: through one way in, its schedule named where it is a family's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.core.draft import Draft
    from ppsim.runs.observed.run import Observed


def iteration_option(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make the option that chooses iterations of a real run."""
    return click.option(
        "--iteration",
        default=default,
        show_default=True,
        help="Real runs: which iteration; a number, median, or for times over several all or a range such as 4-20.",
    )


def read_run(paths: Sequence[str], schedule: str = "") -> Observed:
    """Read a real run, its schedule named as the family whose queues it followed.

    Args:
        paths: a folder, or files.
        schedule: which run of a record of several.
    """
    from ppsim.runs.observed.read import observe
    from ppsim.schedules import recognise

    observed = observe(paths, schedule)
    return observed.named(recognise(observed.schedule) or observed.schedule.name)


def read_draft(file: str, iteration: str = "median", *, chosen: bool = False) -> Draft:
    """Read a schedule's file, or one iteration of a real run.

    Raises:
        InputError: an iteration is ``chosen``, and the file holds no real run.
    """
    from ppsim.files.read import read
    from ppsim.runs.observed.read import shows_run

    if shows_run(file):
        observed = read_run([file]).select(iteration)
        return observed.draft(observed.middle())
    if chosen:
        raise InputError(f"'{file}' is no real run, so --iteration has nothing to choose", "leave it out")
    return read(file)
