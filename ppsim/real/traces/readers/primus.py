"""Reader of Primus' ``pp_rank_N.json``: starts and ends of a rank's forwards and backwards, in ms.

Files without ``fwd_chunk`` and ``fwd_minibatch`` do not state chunks and microbatches. The ops of a
rank are then numbered in Megatron's order. If there are several such orders, the right one is that
in which each op starts as soon as its input and its device are ready.
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

HINT = "pp_rank_0.json and so on, one per pipeline rank, as Primus dumps them, and config.json"
CONFIG_HINT = "a config.json in the same folder, with pp_size, vp_size and num_mbs"
NO_ORDER = "in every order of chunks and microbatches some op starts before its input"
LONGEST_MS = 1e12
PARTS = {"F": "fwd", "B": "bwd", "W": "wgrad"}
MOST_CHUNKS = 16
CLEARLY = 0.03  # minimum difference of ``Candidate.unexplained`` for a choice between numberings
MOST_EARLY = 0.02  # largest share of time by which ops may start before their inputs


class Iteration(msgspec.Struct, frozen=True):
    """One iteration of one rank: times in ms from its start, memory in GB (2^30 bytes)."""

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
    """One numbering of a run's ops: a schedule, and times in the order of its queues."""

    schedule: Schedule
    start: NDArray[np.float64]
    end: NDArray[np.float64]

    @property
    def unexplained(self) -> float:
        """Time between ops' starts and their inputs' and devices' readiness, over all ops' time."""
        difference = np.abs(self.start - ready_times(self.schedule, self.end)).sum()
        return float(difference) / max(float((self.end - self.start).sum()), 1e-9)


def matches(file: TraceFile) -> bool:
    """Return whether a file is that of a rank."""
    return file.shows('"fwd_start"', '"bwd_start"') and file.text.lstrip().startswith("{")


def is_config(text: str) -> bool:
    """Return whether a text is a config.json of Primus."""
    return text.lstrip().startswith("{") and '"pp_size"' in text and '"fwd_start"' not in text


def is_config_file(file: TraceFile) -> bool:
    """Return whether a file is a config.json of Primus."""
    return file.is_text and is_config(file.text)


def read_files(run: RunFiles) -> RealRun:
    """Read a run from each rank's file, and from a config.json that is given or in the folder."""
    texts = run.texts
    return read_primus(run.source, texts, _find_config(run.others, next(iter(texts))))


def _find_config(others: Mapping[str, TraceFile], rank_path: str) -> str | None:
    """Return the config.json among other files, or in the folder of a rank's file, or None."""
    for file in others.values():
        if is_config_file(file):
            return file.text
    for name in ("config.json", "config.json.gz"):
        path = Path(rank_path).parent / name
        if path.is_file() and is_config(text := read_text(str(path), HINT)):
            return text
    return None


def read_primus(source: str, texts: Mapping[str, str], config: str | None) -> RealRun:
    """Read a run from the texts of its files.

    Args:
        source: name of the files in messages.
        texts: the text of each rank's file by path, in the order of ranks.
        config: the text of config.json, or None.

    Raises:
        InputError: a text is of another format, ranks are missing, or no order of ops fits their
            times.
    """
    ranks = [_read_rank(text, f"'{name_of(path)}'") for path, text in texts.items()]
    settings = decode(config, Config, "config.json", HINT) if config else None
    if settings and settings.pp_size != len(ranks):
        raise InputError(f"{source} has {len(ranks)} of {settings.pp_size} ranks", HINT)
    common = [number for number in ranks[0] if all(number in rank for rank in ranks)]
    size = len(ranks[0][common[0]].fwd_start) if common else 0
    complete = [n for n in common if all(_is_complete(rank[n], size) for rank in ranks)]
    if not complete or not size:
        raise InputError(
            f"{source}: no iteration has the same number of forwards and backwards on every rank",
            HINT,
        )
    chunks = _stated_chunks(source, settings, size)
    rows = [[rank[number] for rank in ranks] for number in complete]
    best = _best_candidate(source, rows, size, chunks)
    memory = np.array(
        [[np.nan if each.memory is None else each.memory * 2**30 for each in row] for row in rows]
    )
    observed = RealRun.from_ops(
        source,
        "primus",
        best.schedule,
        np.array([int(number) for number in complete], np.int64),
        best.start,
        best.end,
        memory=None if np.isnan(memory).any() else memory,
    )
    aligned = align_clocks(observed)
    if early_share(best.schedule, aligned.start, aligned.end) > MOST_EARLY:
        raise InputError(f"{source}: {NO_ORDER}", HINT)
    return aligned


def _stated_chunks(source: str, settings: Config | None, size: int) -> int | None:
    """Return the chunks per rank that config.json states, or None without it.

    Raises:
        InputError: chunks and microbatches contradict the ``size`` forwards of a rank.
    """
    if settings is None:
        return None
    chunks = settings.vp_size or settings.vpp_size or 1
    microbatches = settings.num_mbs or settings.micro_batches
    if microbatches and chunks * microbatches != size:
        raise InputError(
            f"{source}: a rank has {size} forwards, and config.json states {microbatches} "
            f"microbatches x {chunks} chunks",
            "the config.json of this run",
        )
    return chunks


def _best_candidate(
    source: str, rows: Sequence[Sequence[Iteration]], size: int, chunks: int | None
) -> Candidate:
    """Return the numbering of ops that explains their times best.

    Raises:
        InputError: no numbering fits, or two with different numbers of chunks fit as well.
    """
    fitting = sorted(
        _candidates(source, rows, size, chunks), key=lambda candidate: candidate.unexplained
    )
    if not fitting:
        raise InputError(f"{source}: {NO_ORDER}", HINT)
    best = fitting[0]
    for other in fitting[1:]:
        counts = best.schedule.n_chunks, other.schedule.n_chunks
        if counts[0] != counts[1] and other.unexplained < best.unexplained + CLEARLY:
            raise InputError(
                f"{source} may be a run with {counts[0]} or {counts[1]} chunks per rank",
                CONFIG_HINT,
            )
    return best


def _read_rank(text: str, source: str) -> dict[str, Iteration]:
    """Return the iterations of a rank's file, by their numbers (InputError: it has an error)."""
    found = decode(text, dict[str, Iteration], source, HINT, None)
    if not found or not all(
        number.isascii() and number.isdecimal() and len(number) < 10 for number in found
    ):
        raise InputError(f"{source} does not number its iterations", HINT)
    for number, row in found.items():
        times = [
            time
            for part in PARTS.values()
            for side in ("start", "end")
            for time in getattr(row, f"{part}_{side}")
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


def _is_complete(row: Iteration, size: int) -> bool:
    """Return whether an iteration has all starts and ends of ``size`` forwards and backwards."""
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
    """Yield all numberings of the ops that are valid schedules, the likeliest first."""
    devices = len(rows[0])
    for V in (chunks,) if chunks else range(1, MOST_CHUNKS + 1):
        if size % V:
            continue
        M = size // V
        stated = rows[0][0].fwd_chunk and rows[0][0].fwd_minibatch
        groups = (devices,) if V == 1 or stated else dict.fromkeys((devices, *range(M, 0, -1)))
        for placement in ("loop",) if V == 1 else ("loop", "v"):
            for group in groups:
                try:
                    found = _candidate(source, rows, V, group, placement)
                except (InputError, InvalidSchedule):
                    continue
                yield found
                if chunks and found.unexplained < CLEARLY:
                    return


def _candidate(
    source: str, rows: Sequence[Sequence[Iteration]], chunks: int, group: int, placement: str
) -> Candidate:
    """Return the numbering of ops with groups of ``group`` microbatches.

    The order of a queue is that of the ops' median starts.

    Raises:
        InputError: the files' chunks are out of range.
        InvalidSchedule: the order is not that of a schedule.
    """
    devices, size = len(rows[0]), len(rows[0][0].fwd_start)
    device_of_stage = place(placement, devices, devices * chunks).devices[0]
    entries, columns = list[Entry](), list[tuple[int, str, int]]()
    for device in range(devices):
        stages = np.flatnonzero(device_of_stage == device)
        split = len(rows[0][device].wgrad_start) > 0
        ops = list[tuple[float, Entry, tuple[int, str, int]]]()
        for kind, part in PARTS.items():
            row = rows[0][device]
            chunk, microbatch = _chunks_and_microbatches(row, part, size, chunks, group)
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


def _chunks_and_microbatches(
    row: Iteration, part: str, size: int, chunks: int, group: int
) -> tuple[list[int], list[int]]:
    """Return the chunk and the microbatch of each forward, backward or weight gradient of a rank.

    They are those in the file, or in Megatron's order: all microbatches of a group pass one chunk,
    then the next; backwards pass the chunks in reverse.
    """
    chunk, microbatch = getattr(row, f"{part}_chunk"), getattr(row, f"{part}_minibatch")
    if len(chunk) == len(microbatch) == size:
        least = min(microbatch)
        if min(chunk) < 0 or max(chunk) >= chunks:
            raise InputError(f"chunk {max(chunk)} of {chunks}", HINT)
        return chunk, [number - least for number in microbatch]
    count = size // chunks
    order = [
        (chunk_number, first + i)
        for first in range(0, count, group)
        for chunk_number in range(chunks)
        for i in range(min(group, count - first))
    ]
    if part != "fwd":
        order = [(chunks - 1 - number, m) for number, m in order]
    return [number for number, _ in order], [m for _, m in order]


READER = Reader(
    name="primus",
    title="Primus dumps",
    expects="Primus' pp_rank_N.json",
    place=20,
    matches=matches,
    read=read_files,
    uses=is_config_file,
)
