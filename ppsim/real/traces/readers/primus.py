"""Primus' ``pp_rank_N.json``: per iteration the starts and ends of a rank's forwards and backwards,
in ms.

The files number neither chunks nor microbatches unless they hold ``fwd_chunk`` and
``fwd_minibatch``: the i-th forward of a rank is then that of Megatron's order. Of several such
orders the one is right in which ops start when they can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of, read_text
from ppsim.base.typed_json import decode
from ppsim.core.schedule import Schedule, place
from ppsim.errors import InputError, InvalidSchedule
from ppsim.real.traces.clocks import align_clocks
from ppsim.real.traces.reader import Reader, RunFiles, TraceFile
from ppsim.real.traces.run import KINDS, Entry, RealRun, early_share, ready_times, schedule_of

HINT = (
    "pp_rank_0.json and so on, one per pipeline rank, as Primus dumps them, with config.json beside"
)
CONFIG_HINT = "a config.json beside the files, with pp_size, vp_size and num_mbs"
NO_ORDER = "no order of chunks and microbatches has every op start after its input"
LONGEST_MS = 1e12
PARTS = {"F": "fwd", "B": "bwd", "W": "wgrad"}
MOST_CHUNKS = 16
CLEARLY = 0.03  # a numbering that leaves less unexplained is the right one
MOST_EARLY = 0.02


class Iteration(msgspec.Struct, frozen=True):
    """One iteration of one rank, times in ms from its start, memory in GB."""

    fwd_start: list[float]
    fwd_end: list[float]
    bwd_start: list[float]
    bwd_end: list[float]
    wgrad_start: list[float] = []
    wgrad_end: list[float] = []
    fwd_minibatch: list[int] = []
    bwd_minibatch: list[int] = []
    wgrad_minibatch: list[int] = []
    fwd_chunk: list[int] = []
    bwd_chunk: list[int] = []
    wgrad_chunk: list[int] = []
    memory: float | None = None


class Config(msgspec.Struct, frozen=True):
    """The run's settings in config.json."""

    pp_size: int
    vp_size: int | None = None
    vpp_size: int | None = None
    num_mbs: int | None = None
    micro_batches: int | None = None


@dataclass(frozen=True)
class Candidate:
    """One way to number a run's ops: its schedule, and times in the order of its queues."""

    schedule: Schedule
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @property
    def unexplained(self) -> float:
        """By how much ops start before, or after, both their input and their device were ready; a
        share of all ops.
        """
        off = np.abs(self.start - ready_times(self.schedule, self.end)).sum()
        return float(off) / max(float((self.end - self.start).sum()), 1e-9)


def matches(file: TraceFile) -> bool:
    """Tell whether a file is one rank's."""
    return file.shows('"fwd_start"', '"bwd_start"') and file.text.lstrip().startswith("{")


def is_config(text: str) -> bool:
    """Return whether a text is the config.json of the files."""
    return text.lstrip().startswith("{") and '"pp_size"' in text and '"fwd_start"' not in text


def read_files(run: RunFiles) -> RealRun:
    """Read a run from each rank's file, with the config.json that is given or in their folder."""
    texts = run.texts
    return read_primus(run.source, texts, _config(run.others, next(iter(texts))))


def _config(others: Mapping[str, TraceFile], beside: str) -> str | None:
    """Return the config.json among other files, or in a path's folder."""
    for file in others.values():
        if file.is_text and is_config(file.text):
            return file.text
    for name in ("config.json", "config.json.gz"):
        path = Path(beside).parent / name
        if path.is_file() and is_config(text := read_text(str(path), HINT)):
            return text
    return None


def read_primus(source: str, texts: Mapping[str, str], config: str | None) -> RealRun:
    """Read a run of each rank's file by its path, in the order of ranks, and the content of
    config.json, or None.

    InputError: a file is none of these, ranks are missing, or no order of ops fits their times.
    """
    ranks = [_rank(text, f"'{name_of(path)}'") for path, text in texts.items()]
    said = decode(config, Config, "config.json", HINT) if config else None
    if said and said.pp_size != len(ranks):
        raise InputError(f"{source} holds {len(ranks)} of {said.pp_size} ranks", HINT)
    common = [number for number in ranks[0] if all(number in rank for rank in ranks)]
    size = len(ranks[0][common[0]].fwd_start) if common else 0
    whole = [n for n in common if all(_is_whole(rank[n], size) for rank in ranks)]
    if not whole or not size:
        raise InputError(
            f"{source}: no iteration has as many forwards and backwards on every rank", HINT
        )
    chunks = (said.vp_size or said.vpp_size or 1) if said else None
    microbatches = (said.num_mbs or said.micro_batches) if said else None
    if chunks and microbatches and chunks * microbatches != size:
        raise InputError(
            f"{source}: a rank has {size} forwards, and config.json says {microbatches} "
            f"microbatches x {chunks} chunks",
            "the config.json of this run",
        )
    rows = [[rank[number] for rank in ranks] for number in whole]
    fitting = sorted(
        _candidates(source, rows, size, chunks), key=lambda candidate: candidate.unexplained
    )
    best = fitting[0] if fitting else None
    if best is None:
        raise InputError(f"{source}: {NO_ORDER}", HINT)
    for other in fitting[1:]:
        counts = best.schedule.n_chunks, other.schedule.n_chunks
        if counts[0] != counts[1] and other.unexplained < best.unexplained + CLEARLY:
            raise InputError(
                f"{source} may be a run with {counts[0]} or {counts[1]} chunks per rank",
                CONFIG_HINT,
            )
    memory = np.array(
        [[np.nan if each.memory is None else each.memory * 2**30 for each in row] for row in rows]
    )
    numbers, held = (
        np.array([int(number) for number in whole], np.int64),
        None if np.isnan(memory).any() else memory,
    )
    observed = RealRun.from_ops(
        source, "primus", best.schedule, numbers, best.start, best.end, memory=held
    )
    aligned = align_clocks(observed)
    if early_share(best.schedule, aligned.start, aligned.end) > MOST_EARLY:
        raise InputError(f"{source}: {NO_ORDER}", HINT)
    return aligned


def _rank(text: str, source: str) -> dict[str, Iteration]:
    found = decode(text, dict[str, Iteration], source, HINT)
    if not found or not all(number.isdecimal() and len(number) < 10 for number in found):
        raise InputError(f"{source} does not number its iterations", HINT)
    for number, row in found.items():
        times = [
            t
            for part in PARTS.values()
            for side in ("start", "end")
            for t in getattr(row, f"{part}_{side}")
        ]
        if not all(abs(time) <= LONGEST_MS for time in times):
            raise InputError(
                f"{source}: iteration {number} has an impossible time", "ms from its start"
            )
        for part in PARTS.values():
            start, end = getattr(row, f"{part}_start"), getattr(row, f"{part}_end")
            if any(b < a for a, b in zip(start, end, strict=False)):
                raise InputError(
                    f"{source}: iteration {number} has a {part} that ends before it starts", HINT
                )
    return found


def _is_whole(row: Iteration, size: int) -> bool:
    """Tell whether a rank has all starts and ends of an iteration with ``size`` forwards."""
    lengths = {
        len(getattr(row, f"{part}_{side}")) for part in ("fwd", "bwd") for side in ("start", "end")
    }
    return (
        lengths == {size}
        and len(row.wgrad_start) == len(row.wgrad_end)
        and len(row.wgrad_start) in (0, size)
    )


def _candidates(
    source: str, rows: Sequence[Sequence[Iteration]], size: int, chunks: int | None
) -> Iterator[Candidate]:
    """Number the ops in every order that the run may have followed, likeliest first, where a
    schedule runs so.
    """
    devices = len(rows[0])
    for v in (chunks,) if chunks else range(1, MOST_CHUNKS + 1):
        if size % v:
            continue
        m = size // v
        stated = rows[0][0].fwd_chunk and rows[0][0].fwd_minibatch
        groups = (devices,) if v == 1 or stated else dict.fromkeys((devices, *range(m, 0, -1)))
        for placement in ("loop",) if v == 1 else ("loop", "v"):
            for group in groups:
                try:
                    found = _numbered(source, rows, v, group, placement)
                except (InputError, InvalidSchedule):
                    continue
                yield found
                if chunks and found.unexplained < CLEARLY:
                    return


def _numbered(
    source: str, rows: Sequence[Sequence[Iteration]], chunks: int, group: int, placement: str
) -> Candidate:
    """Number the ops in groups of microbatches; queues follow the order of starts in the middle
    iteration.
    """
    devices, size = len(rows[0]), len(rows[0][0].fwd_start)
    where = place(placement, devices, devices * chunks).devices[0]
    entries, columns = list[Entry](), list[tuple[int, str, int]]()
    for device in range(devices):
        stages = np.flatnonzero(where == device)
        split = len(rows[0][device].wgrad_start) > 0
        ops = list[tuple[float, Entry, tuple[int, str, int]]]()
        for kind, part in PARTS.items():
            row = rows[0][device]
            chunk, microbatch = _order(row, part, size, chunks, group)
            starts = np.median([getattr(each[device], f"{part}_start") for each in rows], axis=0)
            code = KINDS["I" if kind == "B" and split else kind]
            for i, time in enumerate(starts.tolist()):
                entry = (device, code, int(stages[chunk[i]]), int(microbatch[i]), 0)
                ops.append((time, entry, (device, part, i)))
        ops.sort(key=lambda op: op[0])
        entries += [entry for _, entry, _ in ops]
        columns += [column for _, _, column in ops]
    schedule = schedule_of(source, entries, devices)
    start, end = (
        np.array([[getattr(row[d], f"{part}_{side}")[i] for d, part, i in columns] for row in rows])
        for side in ("start", "end")
    )
    return Candidate(schedule, start, end)


def _order(
    row: Iteration, part: str, size: int, chunks: int, group: int
) -> tuple[list[int], list[int]]:
    """List chunk and microbatch of each forward, backward or weight gradient of a rank.

    As the file states them; else Megatron's: all microbatches of a group through one chunk, then
    through the next, and backwards take the chunks in reverse.
    """
    chunk, microbatch = getattr(row, f"{part}_chunk"), getattr(row, f"{part}_minibatch")
    if len(chunk) == len(microbatch) == size:
        least = min(microbatch)
        if min(chunk) < 0 or max(chunk) >= chunks:
            raise InputError(f"chunk {max(chunk)} of {chunks}", HINT)
        return chunk, [number - least for number in microbatch]
    count = size // chunks
    order = [
        (c, first + i)
        for first in range(0, count, group)
        for c in range(chunks)
        for i in range(min(group, count - first))
    ]
    back = part != "fwd"
    return [chunks - 1 - c if back else c for c, _ in order], [m for _, m in order]


READER = Reader(
    name="primus",
    title="Primus dumps",
    expects="Primus' pp_rank_N.json",
    place=20,
    matches=matches,
    read=read_files,
)
