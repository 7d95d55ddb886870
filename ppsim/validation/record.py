"""What a real run leaves behind: when every device reached, began and ended every entry of its queue.

A record is one JSON file; times are whole microseconds from the common start of each repetition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ppsim.costs import Costs
from ppsim.errors import InputError
from ppsim.lowered import Lowered
from ppsim.schedule import Placement, Schedule

SCHEMA = "ppsim.record/1"
Times = NDArray[np.float64]


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
    """

    name: str
    lowered: Lowered
    costs: Costs
    posted: Times
    began: Times
    ended: Times
    finished: Times

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


def dump(record: Record) -> bytes:
    """The record as JSON."""
    import orjson

    value = {
        "schema": SCHEMA,
        "provenance": dict(record.provenance),
        "settings": dict(record.settings),
        "runs": [_run_object(run) for run in record.runs],
    }
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def load(path: str) -> Record:
    """The record in a file.

    Raises:
        InputError: it cannot be read, or is no record.
    """
    import orjson

    try:
        value = orjson.loads(Path(path).read_bytes())
        if value["schema"] != SCHEMA:
            raise InputError(f"'{path}' has schema {value['schema']!r}, not {SCHEMA!r}", "a file that --record wrote")
        return Record(tuple(_run_from(run) for run in value["runs"]), value["settings"], value["provenance"])
    except OSError as error:
        raise InputError(f"cannot read '{path}': {error.strerror}", "a file that --record wrote") from error
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"'{path}' is no record of a run: {error}", "a file that --record wrote") from error


def _run_object(run: Measured) -> dict[str, Any]:
    return {
        "name": run.name,
        "compute": _schedule_object(run.lowered.compute),
        "queues": _schedule_object(run.lowered.schedule),
        "batch": run.lowered.batch,
        "costs": {"time": run.costs.time, "pair": run.costs.pair},
        **{key: np.round(getattr(run, key) * 1e3).astype(np.int64) for key in ("posted", "began", "ended", "finished")},
    }


def _run_from(value: dict[str, Any]) -> Measured:
    times = {key: np.array(value[key], np.float64) / 1e3 for key in ("posted", "began", "ended", "finished")}
    pair = value["costs"]["pair"]
    costs = Costs(np.array(value["costs"]["time"]), pair=None if pair is None else np.array(pair), unit="ms")
    lowered = Lowered(
        _schedule_from(value["queues"]), _schedule_from(value["compute"]), np.array(value["batch"], np.int32)
    )
    return Measured(value["name"], lowered, costs, **times)


def _schedule_object(schedule: Schedule) -> dict[str, Any]:
    columns = {key: getattr(schedule, key) for key in ("offsets", "kind", "stage", "microbatch", "pair")}
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
        np.array(value["kind"], np.uint8),
        *(np.array(value[key], np.int32) for key in ("stage", "microbatch", "pair")),
    )
