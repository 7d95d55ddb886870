"""How commands read a real run: through one way in, its schedule named where it is a family's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ppsim.runs.observed.run import Observed

RUN_HELP = "a folder or files of a real run: Primus' pp_rank_N.json, Kineto traces one per rank, or a record"


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
