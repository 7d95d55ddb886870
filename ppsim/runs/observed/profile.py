"""A profile from a real run: op times per stage, and of messages what its files show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ppsim.calibration import traces
from ppsim.calibration.clock import spread
from ppsim.core.ops import COMPUTE, Kind
from ppsim.core.schedule import NONE
from ppsim.errors import InputError
from ppsim.profiles.profile import OpTime, Profile, Provenance
from ppsim.runs.observed import kineto
from ppsim.runs.observed.read import observe, read_texts
from ppsim.runs.observed.run import Observed
from ppsim.runs.observed.terms import measure_terms
from ppsim.version import VERSION


def profile_from(paths: Sequence[str], command: str, iteration: str = "all") -> Profile:
    """Make a profile from the files of a real run, or its folder, without its first iteration.

    Raises:
        InputError: no file shows a run, or one of its stages is missing.
    """
    texts = read_texts(paths)
    if iteration == "all" and texts and all(kineto.matches(text) for text in texts.values()):
        read = [traces.parse_trace(text, path, rank) for rank, (path, text) in enumerate(texts.items())]
        return traces.profile_of(read, command)
    return observed_profile(observe(paths).select(iteration), command)


def observed_profile(observed: Observed, command: str) -> Profile:
    """Make a profile of a run, without its first iteration where there are more.

    Raises:
        InputError: its times are not in ms.
    """
    if observed.traces:
        return traces.profile_of(list(observed.traces.values()), command)
    if observed.unit != "ms":
        raise InputError(f"{observed.source} has times in {observed.unit}, not in ms", "a measured run")
    kept, schedule = observed.settled(), observed.schedule
    took = kept.end - kept.start
    terms = measure_terms(schedule, kept.start, kept.end)
    ops = list[OpTime]()
    for stage in range(schedule.n_stages):
        for kind in COMPUTE:
            alone = (schedule.stage == stage) & (schedule.kind == kind) & (schedule.pair == NONE)
            if alone.any() and kind != Kind.R:
                ops.append(_op_time(stage, kind.name, took[:, alone]))
        paired = (schedule.stage == stage) & (schedule.kind == Kind.F) & (schedule.pair != NONE)
        if paired.any():
            ops.append(_op_time(stage, "FB", took[:, paired]))
    gap, latency = terms.typical_gap, terms.typical_latency
    note = (
        f"from {len(kept.iterations)} iterations of a {observed.format} file; between ops a device needs {gap:.3g} ms"
    )
    if latency > 0:
        note += f"; a message takes {latency:.3g} ms, and its size is not shown: --comm {latency:.3g} counts it"
    unknown = dict.fromkeys(("machine", "cpu", "device", "clocks", "torch", "python"), "unknown")
    made = Provenance(
        **unknown, cores=0, threads=0, load=0.0, ppsim=VERSION, date="unknown", command=command, note=note
    )
    return Profile(made, None, tuple(ops))


def _op_time(stage: int, kind: str, took: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> OpTime:
    return OpTime("stage", kind, 0, stage=stage, cache="run", **spread(took.ravel().tolist()))
