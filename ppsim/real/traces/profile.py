"""A profile from a real run: op times by stage, and message times if its files have them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ppsim.base.notes import note
from ppsim.core.ops import Kind
from ppsim.core.schedule import NONE
from ppsim.engine.simple.terms import measure_terms
from ppsim.inputs.profile.profile import OpTime, Profile
from ppsim.real.calibration.clock import spread
from ppsim.real.traces import torch_trace
from ppsim.real.traces.read import read_files, read_run
from ppsim.real.traces.readers import kineto
from ppsim.real.traces.run import RealRun


def profile_from(paths: Sequence[str], command: str, iteration: str = "all") -> Profile:
    """Return a profile from the files of a real run.

    Args:
        paths: the files, or a folder of them.
        command: the command line, for the profile.
        iteration: an iteration as of :meth:`ppsim.real.traces.run.RealRun.select`; ``all`` leaves
            out the first of several.

    Raises:
        InputError: no file contains a run, or a stage of it is missing.
    """
    files = read_files(paths)
    if iteration == "all" and files and all(map(kineto.matches, files.values())):
        traces = [
            torch_trace.parse_trace(file.text, path, rank)
            for rank, (path, file) in enumerate(files.items())
        ]
        return torch_trace.profile_of(traces, command)
    run = read_run(paths)
    for sentence in run.notes:
        note(sentence)
    selected = run.drop_first() if iteration == "all" else run.select(iteration)
    return profile_of_run(selected, command)


def profile_of_run(run: RealRun, command: str) -> Profile:
    """Return a profile of all iterations in a run (InputError: its unit is not a time)."""
    run = run.in_milliseconds()
    ops = tuple(_op_times(run))
    if run.traces:
        return replace(torch_trace.profile_of(list(run.traces.values()), command), op=ops)
    terms = measure_terms(run.schedule, run.start, run.end)
    gap, latency = terms.typical_gap, terms.typical_latency
    text = (
        f"from {len(run.iterations)} iterations of a {run.format} file; between ops a device "
        f"needs {gap:.3g} ms"
    )
    if latency > 0:
        text += (
            f"; a message takes {latency:.3g} ms, and its size is not shown: --comm "
            f"{latency:.3g} counts it"
        )
    return Profile(torch_trace.provenance_of(command, text), None, ops)


def _op_times(run: RealRun) -> Iterator[OpTime]:
    """Yield the times of each stage's ops by kind, and of its pairs of F and B."""
    schedule, durations = run.schedule, run.end - run.start
    is_single = schedule.pair == NONE
    for stage in range(schedule.n_stages):
        of_stage = schedule.stage == stage
        for kind in (Kind.F, Kind.B, Kind.I, Kind.W):
            chosen = of_stage & is_single & (schedule.kind == kind)
            if chosen.any():
                yield _op_time(stage, kind.name, durations[:, chosen])
        paired = of_stage & ~is_single & (schedule.kind == Kind.F)
        if paired.any():
            yield _op_time(stage, "FB", durations[:, paired])


def _op_time(stage: int, kind: str, durations: NDArray[np.float64]) -> OpTime:
    """Return a profile's row for durations in ms."""
    return OpTime("stage", kind, 0, stage=stage, cache="run", **spread(durations.ravel().tolist()))
