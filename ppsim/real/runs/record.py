"""Records of real runs: when each device reached, started and ended each entry of its queue.

A record is a JSON file, gzipped if its name ends in ``.gz``. For each entry of a queue it has the
time since the end of the previous entry, the time waited and the time worked, as whole multiples of
``resolution_us`` microseconds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.base.source import name_of
from ppsim.base.text import one_line, quote
from ppsim.core.costs import Costs
from ppsim.core.draft import Draft
from ppsim.core.lowered import Lowered
from ppsim.core.ops import TIMED, Kind
from ppsim.core.schedule import Placement, Schedule
from ppsim.engine.lowering.matching import match_messages
from ppsim.errors import InputError, InvalidSchedule
from ppsim.inputs.drafts.read import require_sound
from ppsim.real.runs import record_file
from ppsim.real.runs.record_file import HINT, SCHEMA

MOST_STEPS = 1 << 40
# Kinds by the codes of older records; newer records have names.
CODES = (
    *(
        "F",
        "B",
        "I",
        "W",
        "SEND_F",
        "RECV_F",
        "SEND_B",
        "RECV_B",
        "UNSHARD",
        "RESHARD",
        "REDUCE_GRAD",
    ),
    *("WAIT_SEND_F", "WAIT_SEND_B", "WAIT_REDUCE_GRAD"),
)
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """The times of one schedule that was run several times.

    Attributes:
        name: name of the schedule.
        lowered: the queues that the devices executed.
        costs: intended times of ops in ms: sleeping times, or times of ops measured alone.
        posted: shape (repetitions, entries), ms at which the device reached the entry.
        start: shape (repetitions, entries), ms at which the entry's inputs had arrived.
        end: shape (repetitions, entries), ms at which the entry ended. Both ops of a pair share all
            three times.
        device_end: shape (repetitions, devices), ms at which the device's sends had ended too.
        issued: shape (repetitions, entries), ms at which the host had issued the entry to a GPU;
            None on a CPU.
    """

    name: str
    lowered: Lowered
    costs: Costs
    posted: Times
    start: Times
    end: Times
    device_end: Times
    issued: Times | None = None

    def repetitions(self, rows: list[int]) -> Measured:
        """Return the times of some of the repetitions."""
        issued = None if self.issued is None else self.issued[rows]
        names = ("posted", "start", "end", "device_end")
        return replace(self, issued=issued, **{name: getattr(self, name)[rows] for name in names})

    @property
    def makespans(self) -> Times:
        """End of the last entry of any device in ms, shape (repetitions,)."""
        makespans: Times = self.end.max(axis=1)
        return makespans


@dataclass(frozen=True)
class Record:
    """The runs of one session, in which all schedules were run in turn."""

    runs: tuple[Measured, ...]  # one per schedule
    # settings of the session: ops, message_bytes, backend, runner, real_time, costs of messages
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]  # machine, versions and date


def dump(record: Record, target: str, resolution_us: int = 1) -> bytes:
    """Return the content of a record's file; it is gzipped if ``target`` ends in ``.gz``."""
    import orjson

    value = {
        "schema": SCHEMA,
        "provenance": dict(record.provenance),
        "settings": dict(record.settings),
        "resolution_us": resolution_us,
        "runs": [_run_object(run, resolution_us / 1e3) for run in record.runs],
    }
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
    return gzip.compress(text, mtime=0) if target.endswith(".gz") else text


def load(path: str) -> Record:
    """Read a record from a file (InputError: it cannot be read, or is not a record)."""
    file, settings = record_file.read_file(path)
    source = f"'{name_of(path)}'"
    runs = tuple(
        _run_from(run, file.resolution_us / 1e3, f"{source}: runs[{n}]")
        for n, run in enumerate(file.runs)
    )
    return Record(
        runs,
        settings,
        {k: one_line(v) if isinstance(v, str) else v for k, v in file.provenance.items()},
    )


def _run_object(run: Measured, step: float) -> dict[str, Any]:
    """Return a run as a JSON object, with times in multiples of ``step`` ms."""
    posted, start, end = (
        np.round(times / step).astype(np.int64) for times in (run.posted, run.start, run.end)
    )
    times = {
        "gap": posted - _previous_ends(run.lowered.schedule, end),
        "waited": start - posted,
        "worked": end - start,
    }
    others = {kind.name: time for kind, time in run.costs.others.items()}
    return {
        "name": run.name,
        "compute": _schedule_object(run.lowered.compute),
        "queues": _schedule_object(run.lowered.schedule),
        "batch": run.lowered.batch,
        "costs": {"time": run.costs.time, "pair": run.costs.pair}
        | ({"others": others} if others else {}),
        "finished": np.round(run.device_end / step).astype(np.int64),
        **times,
    } | ({} if run.issued is None else {"issued": np.round(run.issued / step).astype(np.int64)})


def _previous_ends(schedule: Schedule, end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the end of the previous entry on the same device; 0 for a device's first entry."""
    before = np.zeros_like(end)
    before[:, 1:] = end[:, :-1]
    before[:, schedule.offsets[:-1]] = 0
    return before


def _run_from(run: record_file.Run, step: float, where: str) -> Measured:
    """Return a run of a file, with times in multiples of ``step`` ms (InputError: it is wrong)."""
    pair = None if run.costs.pair is None else np.array(run.costs.pair)
    queues = _schedule_from(run.queues, f"{where}.queues")
    compute = _schedule_from(run.compute, f"{where}.compute")
    try:
        with _located(where):
            others = {_kind_of(name): np.array(time) for name, time in run.costs.others.items()}
            costs = Costs(np.array(run.costs.time), pair=pair, unit="ms", others=others)
            lowered = Lowered(queues, compute, np.array(run.batch, np.int32))
    except (ValueError, OverflowError):
        raise InputError(
            f"{where}: costs or batch have rows of unequal length, or too large a number", HINT
        ) from None
    # the same checks as for files of schedules: each op once, no deadlock, messages matched
    with _located(where):
        require_sound(Draft.from_schedule(lowered.schedule))
        match_messages(lowered)
    shape = len(run.gap), len(queues)
    gap, waited, worked = (
        _steps(getattr(run, key), shape, f"{where}.{key}") for key in ("gap", "waited", "worked")
    )
    if min(waited.min(), worked.min()) < 0:
        raise InputError(f"{where} has a time waited or worked below 0", HINT)
    end = np.cumsum(gap + waited + worked, axis=1)
    for first in queues.offsets[1:-1][np.diff(queues.offsets)[:-1] > 0]:
        end[:, first:] -= end[:, first - 1 : first]
    start = end - worked
    device_end = _steps(run.finished, (len(run.gap), queues.n_devices), f"{where}.finished")
    columns = [start - waited, start, end, device_end]
    if run.issued is not None:
        columns.append(_steps(run.issued, shape, f"{where}.issued"))
    return Measured(
        one_line(run.name),
        lowered,
        costs,
        *(np.multiply(c, step, dtype=np.float64) for c in columns),
    )


def _kind_of(name: str) -> Kind:
    """Return the kind of a name (InputError: there is no such kind)."""
    if name not in [kind.name for kind in TIMED]:
        raise InputError(f"costs.others has no kind of op called {quote(name)}", HINT)
    return Kind[name]


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Add the place in the file to errors of the block."""
    try:
        yield
    except (InputError, InvalidSchedule) as error:
        raise InputError(f"{where}: {error}", HINT) from error


def _steps(rows: list[list[int]], shape: tuple[int, int], where: str) -> NDArray[np.int64]:
    """Return the times of one column in steps (InputError: their shape or a number is wrong)."""
    if not rows or not all(len(row) == shape[1] for row in rows) or len(rows) != shape[0]:
        raise InputError(
            f"{where} has times for another number of ops, devices or repetitions", HINT
        )
    if not all(abs(step) <= MOST_STEPS for row in rows for step in row):
        raise InputError(f"{where} has a time of more than {MOST_STEPS} steps", HINT)
    return np.array(rows, np.int64).reshape(shape)


def _schedule_object(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as a JSON object."""
    columns = {key: getattr(schedule, key) for key in ("offsets", "stage", "microbatch", "pair")}
    columns["kind"] = np.array([kind.name for kind in Kind])[schedule.kind].tolist()
    placement = {"name": schedule.placement.name, "devices": schedule.placement.devices}
    return {
        "name": schedule.name,
        "placement": placement,
        "microbatches": schedule.n_microbatches,
        **columns,
    }


def _schedule_from(queues: record_file.Queues, where: str) -> Schedule:
    """Return the schedule of queues in a file (InputError: they are wrong)."""
    try:
        offsets = np.array(queues.offsets, np.int64)
        devices = np.array(queues.placement.devices, np.int32)
        kind = [Kind[kind if isinstance(kind, str) else CODES[kind]] for kind in queues.kind]
        stage, microbatch, pair = (
            np.array(getattr(queues, key), np.int32) for key in ("stage", "microbatch", "pair")
        )
    except (KeyError, IndexError):
        raise InputError(f"{where}.kind has an unknown kind", f"{', '.join(CODES)}") from None
    except (ValueError, OverflowError):
        raise InputError(
            f"{where} has rows of unequal length, or too large a number", HINT
        ) from None
    with _located(where):
        placement = Placement(one_line(queues.placement.name), len(offsets) - 1, devices)
        codes = np.array(kind, np.uint8)
        return Schedule(
            one_line(queues.name),
            placement,
            queues.microbatches,
            offsets,
            codes,
            stage,
            microbatch,
            pair,
        )
