"""Predictions of a measured run, from the simplest model to the full one, so that each step's error can be told apart.

==========  =======================================================================================
nominal     the ops' own costs, messages free
link        + latency and bandwidth of a message, measured alone before the run
host        + what ops and the send and receive calls really cost, taken from other schedules' runs
held-out    + latency of a message and gap between actions, as those runs had them; devices whose ops
            only take their time wait for one of the machine's cores while all are taken
replay      the run's own op times in each repetition: what is still wrong is the model, not the costs
==========  =======================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ppsim.core.execution import Execution
from ppsim.network.execute import execute
from ppsim.network.spec import Network
from ppsim.runs.record import Measured
from ppsim.validation.insitu import insitu_costs, pooled
from ppsim.validation.predict import Insitu, Site, network, settled, taking_turns, with_calls

LEVELS = ("nominal", "link", "host", "held-out", "replay")


def predictions(
    run: Measured, others: Sequence[Measured], terms: Sequence[Insitu], alone: Sequence[Insitu], site: Site
) -> dict[str, Execution]:
    """One execution per level but the replay, with costs from ``others``.

    ``terms`` are those of the same runs, ``alone`` what they are with nobody to wait for.
    """
    seen, found = pooled(terms), pooled(alone)
    late, end = (seen.late, found.late) if site.asleep else (None, None)
    calls = replace(seen, gap=0.0, preamble=0.0)
    return {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, network(run, site)),
        "host": with_calls(run, insitu_costs(run, others, late), site, calls),
        "held-out": taking_turns(run, insitu_costs(run, others, end), settled(site, found), found),
    }
