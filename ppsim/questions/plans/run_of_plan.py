"""The command that draws a plan's pipeline: its schedule with the times of its stages, of pairs and
of messages.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from ppsim.prices.build import times_used
from ppsim.prices.options import CostOptions

if TYPE_CHECKING:
    from ppsim.core.costs import Costs
    from ppsim.core.schedule import Schedule
    from ppsim.workload.cost.costs import StageCosts
    from ppsim.workload.model.parallel import Parallel


def run_line(parallel: Parallel, found: StageCosts) -> str:
    """Write the ``ppsim run`` of a plan's pipeline, in ms; empty where it has one device."""
    if parallel.pp == 1:
        return ""
    from ppsim.schedules import find
    from ppsim.workload.cost.costs import schedule_of

    schedule = schedule_of(parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches)
    words = [parallel.schedule_name, "--devices", str(parallel.pp)]
    words += ["--chunks", str(parallel.vp)] if parallel.vp > 1 else []
    words += (
        ["--after-i", f"{found.kept_share:.6g}"]
        if "after_i" in find(parallel.schedule_name).options
        else []
    )
    words += ["--mb", str(parallel.microbatches), "--cost-per", "stage", "--unit", "ms"]
    return shlex.join(
        ["ppsim", "run", *words, *_times(schedule, found.costs), *_messages(found.costs)]
    )


def _times(schedule: Schedule, costs: Costs) -> Iterator[str]:
    """Write the times that the schedule uses, one for all stages where they are alike."""
    from ppsim.core.ops import Kind

    given = {"tf": Kind.F, "tb": Kind.B, "ti": Kind.I, "tw": Kind.W}
    times = {name: _numbers(costs.time[kind]) for name, kind in given.items()}
    times |= {} if costs.pair is None else {"tfb": _numbers(costs.pair)}
    used = {"tf", *times_used(schedule, CostOptions(**dict.fromkeys(times, 1.0)))}  # type: ignore[arg-type]
    for name in times:
        if name in used:
            yield from (f"--{name}", times[name])


def _numbers(values: Iterable[float]) -> str:
    runs = [(text, len(list(alike))) for text, alike in groupby(f"{value:.6g}" for value in values)]
    return (
        runs[0][0]
        if len(runs) == 1
        else ",".join(text + f"*{count}" * (count > 1) for text, count in runs)
    )


def _messages(costs: Costs) -> Iterator[str]:
    """Write the latency of most links, and the latencies of links that differ."""
    import numpy as np

    hops = np.asarray(costs.comm)
    ring = [(d, (d + 1) % len(hops)) for d in range(len(hops))]
    texts = [f"{hops[a, b]:.6g}" for a, b in ring]
    usual = max(texts, key=texts.count)
    if usual != "0":
        yield from ("--comm", usual)
    for (a, b), text in zip(ring, texts, strict=True):
        if text != usual:
            yield from ("--link", f"{a}-{b}={text}")
