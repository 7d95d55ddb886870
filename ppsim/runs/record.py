"""What a real run leaves behind: when every device reached, began and ended every entry of its queue.

A record is one JSON file, gzipped where its name ends in ``.gz``. Per entry of a queue it holds the time since the
end of the entry before, the time waited and the time worked, in whole steps of ``resolution_us``.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.core.costs import Costs
from ppsim.core.lowered import Lowered
from ppsim.core.ops import Kind
from ppsim.core.schedule import Placement, Schedule
from ppsim.errors import InputError

SCHEMA = "ppsim.record/1"
HINT = "a file that --record wrote"
# Records made before kinds were written by name hold these codes.
CODES = (
    *("F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "UNSHARD", "RESHARD", "REDUCE_GRAD"),
    *("WAIT_SEND_F", "WAIT_SEND_B", "WAIT_REDUCE_GRAD"),
)
GZIP = b"\x1f\x8b"
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Link:
    """A message between two processes with nothing else going on, in ms and bytes.

    Attributes:
        alpha: latency.
        ms_per_byte: inverse bandwidth.
        late: what is added when the receive is posted after the send.
    """

    alpha: float = 0.0
    ms_per_byte: float = 0.0
    late: float = 0.0


@dataclass(frozen=True)
class Measured:
    """One schedule, run several times.

    Attributes:
        name: the schedule.
        lowered: the queues that the devices followed.
        costs: what the ops were meant to cost: sleeping times, or op times measured alone, in ms.
        posted: shape (repetitions, entries), ms: when the device reached the entry.
        began: likewise: when its inputs were there and it began.
        ended: likewise. Both ops of a pair share all three.
        finished: shape (repetitions, devices), ms: when the device had also completed its sends.
        issued: like ``posted``: when the host had issued the entry to a GPU; None where host and device are one.
    """

    name: str
    lowered: Lowered
    costs: Costs
    posted: Times
    began: Times
    ended: Times
    finished: Times
    issued: Times | None = None

    @property
    def makespans(self) -> Times:
        """Shape (repetitions,), ms: end of the last entry of any device."""
        makespans: Times = self.ended.max(axis=1)
        return makespans


@dataclass(frozen=True)
class Record:
    """All schedules that were run round-robin in one session.

    Attributes:
        runs: one per schedule.
        settings: how they were run: ops, message_bytes, backend, runner, real_time, and what messages cost.
        provenance: machine, versions and date.
    """

    runs: tuple[Measured, ...]
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]


def dump(record: Record, target: str, resolution_us: int = 1) -> bytes:
    """The record as a file of that name holds it."""
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
    """The record in a file.

    Raises:
        InputError: it cannot be read, or is no record.
    """
    import orjson

    try:
        data = Path(path).read_bytes()
        value = orjson.loads(gzip.decompress(data) if data.startswith(GZIP) else data)
        if value["schema"] != SCHEMA:
            raise InputError(f"'{path}' has schema {value['schema']!r}, not {SCHEMA!r}", HINT)
        step = value["resolution_us"] / 1e3
        runs = tuple(_run_from(run, step) for run in value["runs"])
        if not runs:
            raise InputError(f"'{path}' holds no run", HINT)
        return Record(runs, value["settings"], value["provenance"])
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"'{path}' is not whole: {error}", HINT) from error
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}", HINT) from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(f"'{path}' is no record of a run: {error}", HINT) from error


def _run_object(run: Measured, step: float) -> dict[str, Any]:
    posted, began, ended = (np.round(times / step).astype(np.int64) for times in (run.posted, run.began, run.ended))
    times = {"gap": posted - _before(run.lowered.schedule, ended), "waited": began - posted, "worked": ended - began}
    return {
        "name": run.name,
        "compute": _schedule_object(run.lowered.compute),
        "queues": _schedule_object(run.lowered.schedule),
        "batch": run.lowered.batch,
        "costs": {"time": run.costs.time, "pair": run.costs.pair},
        "finished": np.round(run.finished / step).astype(np.int64),
        **times,
    } | ({} if run.issued is None else {"issued": np.round(run.issued / step).astype(np.int64)})


def _before(schedule: Schedule, ended: NDArray[np.int64]) -> NDArray[np.int64]:
    """Per entry the end of the one before it on its device, 0 for a device's first."""
    before = np.zeros_like(ended)
    before[:, 1:] = ended[:, :-1]
    before[:, schedule.offsets[:-1]] = 0
    return before


def _run_from(value: dict[str, Any], step: float) -> Measured:
    pair = value["costs"]["pair"]
    costs = Costs(np.array(value["costs"]["time"]), pair=None if pair is None else np.array(pair), unit="ms")
    queues = _schedule_from(value["queues"])
    lowered = Lowered(queues, _schedule_from(value["compute"]), np.array(value["batch"], np.int32))
    gap, waited, worked = (np.array(value[key], np.int64) for key in ("gap", "waited", "worked"))
    shape = gap.shape
    if len(shape) != 2 or shape[1] != len(queues) or waited.shape != shape or worked.shape != shape:
        raise ValueError(f"{value['name']} has times of another number of ops")
    ended = np.cumsum(gap + waited + worked, axis=1)
    for first in queues.offsets[1:-1]:
        ended[:, first:] -= ended[:, first - 1 : first]
    began = ended - worked
    columns = [began - waited, began, ended, np.array(value["finished"], np.int64)]
    if "issued" in value:
        columns.append(np.array(value["issued"], np.int64).reshape(shape))
    return Measured(value["name"], lowered, costs, *(np.multiply(c, step, dtype=np.float64) for c in columns))


def _schedule_object(schedule: Schedule) -> dict[str, Any]:
    columns = {key: getattr(schedule, key) for key in ("offsets", "stage", "microbatch", "pair")}
    columns["kind"] = np.array([kind.name for kind in Kind])[schedule.kind].tolist()
    placement = {"name": schedule.placement.name, "devices": schedule.placement.devices}
    return {"name": schedule.name, "placement": placement, "microbatches": schedule.n_microbatches, **columns}


def _schedule_from(value: dict[str, Any]) -> Schedule:
    offsets = np.array(value["offsets"], np.int64)
    devices = np.array(value["placement"]["devices"], np.int32)
    return Schedule(
        value["name"],
        Placement(value["placement"]["name"], len(offsets) - 1, devices),
        value["microbatches"],
        offsets,
        np.array([Kind[kind if isinstance(kind, str) else CODES[kind]] for kind in value["kind"]], np.uint8),
        *(np.array(value[key], np.int32) for key in ("stage", "microbatch", "pair")),
    )
