"""JSON: the metrics and all ops of one or more runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ppsim.base.json_output import dump_json, with_verdict
from ppsim.core.lanes import used_streams
from ppsim.core.ops import Kind
from ppsim.core.timeline import Timeline
from ppsim.engine.simple.columns import Shape, columns_of, shape_of, size_object
from ppsim.engine.simple.metrics import Metrics, Round, measure
from ppsim.show.drawing.lanes import find_producers
from ppsim.show.files.document import Abilities, Document

if TYPE_CHECKING:
    from ppsim.core.execution import Execution

SUFFIXES = (".json",)
ABILITIES = Abilities()


def run_object(
    timeline: Timeline,
    inputs: Mapping[str, Any],
    execution: Execution | None = None,
    bound: float = float("nan"),
    steady_state: Round | None = None,
) -> dict[str, Any]:
    """Return the object of ``ppsim run --json``, schema ``ppsim.run/1``.

    ``ops`` has columns of equal length, device by device in queue order: device, kind, stage (-1
    for none), microbatch, start, end, and pair (the index of the partner op, or -1). ``lanes``
    names the streams if there are several.

    With an execution, ``transfers`` has columns with one entry per message, in the order of the
    sends: source and target device, op (the index in ``ops`` of the op whose result it carries),
    leave and arrive.

    If sequences are cut into ``slices``, slice k of microbatch m is numbered m x slices + k in
    ``ops``. If a schedule repeats in ``steps`` of M microbatches, microbatch m of step n has number
    n x M + m. With ``feeds_back``, each step needs the results of the step before. ``flushes`` is
    false if a step begins before the step before it ends; ``weight_versions`` then counts the
    copies of the weights on each device. On the stages listed in ``partly``, R runs only a part of
    the forward again.
    """
    schedule = timeline.schedule
    letters = np.array([kind.name for kind in Kind])
    return {
        "schema": "ppsim.run/1",
        "inputs": dict(inputs),
        **size_object(schedule),
        **({"slices": schedule.n_slices} if schedule.n_slices > 1 else {}),
        **({"steps": schedule.n_rounds} if schedule.n_rounds > 1 else {}),
        **({"feeds_back": True} if schedule.feeds_back else {}),
        **(
            {}
            if schedule.flushes
            else {"flushes": False, "weight_versions": schedule.weight_versions}
        ),
        **({"partly": list(schedule.partial_recompute)} if schedule.partial_recompute else {}),
        "placement": schedule.placement.name,
        "unit": timeline.unit,
        **_numbers(replace(measure(timeline), bound=bound, round=steady_state), shape_of(schedule)),
        "ops": {
            "device": schedule.device,
            "kind": letters[schedule.kind].tolist(),
            "stage": schedule.stage,
            "microbatch": schedule.microbatch,
            "start": timeline.start,
            "end": timeline.end,
            "pair": schedule.pair,
        },
        **(
            {"lanes": ["compute", *(stream.label for stream in used_streams(schedule))]}
            if schedule.has_lanes
            else {}
        ),
        **({"transfers": _transfers(execution)} if execution else {}),
    }


def _numbers(metrics: Metrics, shape: Shape) -> dict[str, Any]:
    """Return all metrics and the values of all columns, without the bound if it is not known."""
    columns = [column for column in columns_of("run") if column.applies(metrics)]
    numbers = {**vars(metrics), **{column.key: column.json(metrics, shape) for column in columns}}
    del numbers["round"]
    if metrics.round:
        numbers |= {"rate_counts": metrics.round.counts, "period_cause": metrics.round.reason}
    if math.isnan(metrics.bound):
        del numbers["bound"]
    return numbers


def _transfers(execution: Execution) -> dict[str, Any]:
    messages = execution.messages
    return {
        "source": messages.source,
        "target": messages.target,
        "op": find_producers(execution),
        "leave": messages.leave,
        "arrive": messages.arrive,
    }


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """Write one run as its object, several as ``{"schema": "ppsim.runs/1", "runs": [...]}``."""
    parts = zip_longest(document.timelines, document.executions, document.bounds, document.rounds)
    runs = [
        run_object(timeline, document.inputs, execution, bound or float("nan"), steady_state)
        for timeline, execution, bound, steady_state in parts
    ]
    value = runs[0] if len(runs) == 1 else {"schema": "ppsim.runs/1", "runs": runs}
    out.write(dump_json(with_verdict(value, document.verdict), end=b"\n"))
