"""Predict a measured run with five models, from the simplest to the full one; each adds one cause of error.

==========  =======================================================================================
nominal     the ops' own costs, messages free
link        + latency and bandwidth of a message, measured alone before the run
host        + what ops and the send and receive calls really cost, taken from other schedules' runs
held-out    + latency of a message and gap between actions from those runs; devices whose ops sleep
            wait for one of the machine's cores while all are taken
replay      the run's own op times in each repetition: the error left is the model's, not the costs'
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.execution import Execution
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network
from ppsim.real.runs.record import Measured
from ppsim.real.validation.insitu import observed_costs
from ppsim.real.validation.predict import (
    Overheads,
    Site,
    build_network,
    execute_on_cores,
    execute_with_calls,
    scale_link,
)

LEVELS = ("nominal", "link", "host", "held-out", "replay")


@dataclass(frozen=True)
class Prediction:
    """What the models say of a run."""

    # for each of :data:`LEVELS`, shape (repetitions,), or (1,) for all repetitions alike
    makespans: Mapping[str, NDArray[np.float64]]
    best: Execution  # the held-out execution, of the repetition closest to the median where each has its own
    gap: float | NDArray[np.float64]  # before each entry of that execution, one number or shape (entries,)
    preamble: float  # before the first entry of each device
    # the run predicted from its own other repetitions: the median of the absolute errors; None where it has no other
    # ones
    floor: float | None = None


def predict_levels(
    run: Measured, others: Sequence[Measured], seen: Overheads, found: Overheads, site: Site
) -> dict[str, Execution]:
    """Execute a run at every level but the replay, with costs from ``others``.

    ``seen`` are the overheads of those runs as measured, ``found`` the same without contention.
    """
    late, end = (seen.late, found.late) if site.asleep else (None, None)
    calls = replace(seen, gap=0.0, preamble=0.0)
    return {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, build_network(run, site)),
        "host": execute_with_calls(run, observed_costs(run, others, late), site, calls),
        "held-out": execute_on_cores(run, observed_costs(run, others, end), scale_link(site, found), found),
    }
