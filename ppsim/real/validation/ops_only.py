"""Predict a run whose files show the times of its ops, but no messages.

An op starts after a gap since the op before it, and after the latency of its input. Gaps are
medians of a device and latencies are medians of a link, over other iterations. Sends and receives
take no time on a device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import COMPUTE
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Host, Network
from ppsim.engine.simple.terms import Terms, measure_terms
from ppsim.real.runs.record import Measured
from ppsim.real.traces.run import RealRun
from ppsim.real.validation.insitu import observed_costs
from ppsim.real.validation.lanes import spread_over
from ppsim.real.validation.predict import Prediction

Times = NDArray[np.float64]


def measured_of(observed: RealRun, at: int, lowered: Lowered, terms: Terms) -> Measured:
    """Make a run of one iteration, with times in ms since the start of its first op.

    A device reaches an op after a gap since the op before it; sends and receives take no time on a
    device.
    """
    timeline, schedule, ops = observed.timeline(at), lowered.schedule, lowered.compute_ops
    start, end = (
        spread_over(lowered, each, timeline.end) for each in (timeline.start, timeline.end)
    )
    posted = start.copy()
    before = np.concatenate([[0.0], end[:-1]])
    before[schedule.offsets[:-1]] = 0.0
    posted[ops] = np.minimum(before[ops] + terms.gap, start[ops])
    posted[schedule.second_of_pairs] = posted[schedule.first_of_pairs]
    finished = np.array(
        [end[schedule.queue(d)].max(initial=0.0) for d in range(schedule.n_devices)]
    )
    name = f"{observed.schedule.name} step {observed.iterations[at]}"
    costs = Costs(np.zeros((len(COMPUTE), schedule.n_stages)), unit="ms")
    return Measured(name, lowered, costs, posted[None], start[None], end[None], finished[None])


def predict_ops_only(run: Measured, others: Sequence[Measured]) -> Prediction:
    """Predict a run at every level, with costs, gaps and latencies from ``others``.

    The replay uses the run's op times, but also gaps and latencies from ``others``, since a single
    iteration shows too few of them.
    """
    ops = others[0].lowered.compute_ops
    start, end = (
        np.concatenate([getattr(run, name)[:, ops] for run in others]) for name in ("start", "end")
    )
    terms = measure_terms(others[0].lowered.compute, start, end)
    costs = observed_costs(run, others)
    each = (run.end - run.start)[:, run.lowered.compute_ops]
    network = _network(run.lowered, terms)
    typical = replace(network, alpha=terms.typical_latency)
    gap = Host(gap=np.minimum(network.host.gap, terms.typical_gap))
    levels = {
        "nominal": execute(run.lowered, run.costs, Network()),
        "link": execute(run.lowered, run.costs, replace(typical, host=Host())),
        "host": execute(run.lowered, costs, replace(typical, host=gap)),
        "held-out": execute(run.lowered, costs, network),
    }
    replayed = [
        execute(run.lowered, Costs(run.costs.time, unit="ms", op_times=row), network).makespan
        for row in each
    ]
    makespans = {level: np.array([execution.makespan]) for level, execution in levels.items()}
    makespans["replay"] = np.array(replayed)
    return Prediction(makespans, levels["held-out"], _values_in_queues(run.lowered, terms.gap), 0.0)


def _network(lowered: Lowered, terms: Terms) -> Network:
    """Build the network of a run: a latency per link, and the gap between each op and the next
    one.
    """
    schedule, device = lowered.schedule, lowered.compute.device
    after = _values_in_queues(
        lowered, np.append(np.where(device[1:] == device[:-1], terms.gap[1:], 0.0), 0.0)
    )
    after[schedule.first_of_pairs] = after[schedule.second_of_pairs]
    return Network(mode="latency", alpha=terms.latency, host=Host(gap=after))


def _values_in_queues(lowered: Lowered, each: Times) -> Times:
    """Return a value per entry of the queues: ``each`` for compute ops, 0 for the others."""
    values = np.zeros(len(lowered.schedule))
    values[lowered.compute_ops] = each
    return values
