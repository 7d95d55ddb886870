"""The command that draws a plan's pipeline, with times of stages, pairs and messages."""

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
    """Return the ``ppsim run`` of a plan's pipeline, with times in ms; empty for one device."""
    if parallel.pp == 1:
        return ""
    from ppsim.schedules import find
    from ppsim.workload.cost.costs import schedule_of

    schedule = schedule_of(parallel.schedule_name, parallel.pp, parallel.vp, parallel.microbatches)
    words = [parallel.schedule_name, "--devices", str(parallel.pp)]
    words += ["--chunks", str(parallel.vp)] if parallel.vp > 1 else []
    if "after_i" in find(parallel.schedule_name).options:
        words += ["--after-i", f"{found.kept_share:.6g}"]
    words += ["--mb", str(parallel.microbatches), "--cost-per", "stage", "--unit", "ms"]
    words += [*_time_options(schedule, found.costs), *_message_options(found.costs)]
    return shlex.join(["ppsim", "run", *words])


def _time_options(schedule: Schedule, costs: Costs) -> Iterator[str]:
    """Yield the options of the op times that the schedule uses."""
    from ppsim.core.ops import Kind

    given = {"tf": Kind.F, "tb": Kind.B, "ti": Kind.I, "tw": Kind.W}
    times = {name: _number_list(costs.time[kind]) for name, kind in given.items()}
    times |= {} if costs.pair is None else {"tfb": _number_list(costs.pair)}
    used = {"tf", *times_used(schedule, CostOptions(**dict.fromkeys(times, 1.0)))}  # type: ignore[arg-type]
    for name in times:
        if name in used:
            yield from (f"--{name}", times[name])


def _number_list(values: Iterable[float]) -> str:
    """Return a number for each stage as text: 2,3*4; one number if all are equal."""
    runs = [(text, len(list(alike))) for text, alike in groupby(f"{value:.6g}" for value in values)]
    if len(runs) == 1:
        return runs[0][0]
    return ",".join(f"{text}*{count}" if count > 1 else text for text, count in runs)


def _message_options(costs: Costs) -> Iterator[str]:
    """Yield the options of latencies: of most links, and of links that differ."""
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
