"""JSON: the numbers and every op of one run, or of several."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ppsim.formats import Document
from ppsim.lanes import producers
from ppsim.metrics import measure
from ppsim.ops import Kind
from ppsim.timeline import Timeline

if TYPE_CHECKING:
    from ppsim.execute import Execution

SUFFIXES = (".json",)


def run_object(timeline: Timeline, inputs: Mapping[str, Any], execution: Execution | None = None) -> dict[str, Any]:
    """The object ``ppsim run --json`` prints, schema ``ppsim.run/1``.

    ``ops`` holds columns of equal length in device-major queue order: device, kind, stage, microbatch, start,
    end, and pair, the index of the partner op or -1. With an execution ``transfers`` holds columns too, one entry
    per message in the order of the sends: source and target device, op, the index in ``ops`` of the one whose
    result it carries, leave and arrive.
    """
    schedule, metrics = timeline.schedule, measure(timeline)
    letters = np.array([kind.name for kind in Kind])
    return {
        "schema": "ppsim.run/1",
        "inputs": dict(inputs),
        "schedule": schedule.name,
        "devices": schedule.n_devices,
        "stages": schedule.n_stages,
        "chunks": schedule.n_chunks,
        "microbatches": schedule.n_microbatches,
        "placement": schedule.placement.name,
        "unit": timeline.unit,
        "makespan": metrics.makespan,
        "ideal": metrics.ideal,
        "bubble_rate": metrics.bubble_rate,
        "bubble_over_ideal": metrics.bubble_over_ideal,
        "bubble_rate_span": metrics.bubble_rate_span,
        "span": metrics.span,
        "busy": metrics.busy,
        "idle": metrics.idle,
        "peak_activations": metrics.peak_activations,
        "messages": metrics.messages,
        "ops": {
            "device": schedule.device,
            "kind": letters[schedule.kind].tolist(),
            "stage": schedule.stage,
            "microbatch": schedule.microbatch,
            "start": timeline.start,
            "end": timeline.end,
            "pair": schedule.pair,
        },
        **({"transfers": _transfers(execution)} if execution else {}),
    }


def _transfers(execution: Execution) -> dict[str, Any]:
    messages = execution.messages
    return {
        "source": messages.source,
        "target": messages.target,
        "op": producers(execution),
        "leave": messages.leave,
        "arrive": messages.arrive,
    }


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """One run as its object, several as ``{"schema": "ppsim.runs/1", "runs": [...]}``."""
    import orjson

    pairs = zip_longest(document.timelines, document.executions)
    runs = [run_object(timeline, document.inputs, execution) for timeline, execution in pairs]
    value = runs[0] if len(runs) == 1 else {"schema": "ppsim.runs/1", "runs": runs}
    out.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
