"""JSON: the numbers and every op of one run, or of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from ppsim.formats import Document
from ppsim.metrics import measure
from ppsim.ops import Kind
from ppsim.timeline import Timeline

SUFFIXES = (".json",)


def run_object(timeline: Timeline, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The object ``ppsim run --json`` prints, schema ``ppsim.run/1``.

    ``ops`` holds columns of equal length in device-major queue order: device, kind, stage, microbatch, start,
    end, and pair, the index of the partner op or -1.
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
    }


def write(document: Document, out: IO[bytes], suffix: str) -> None:
    """One run as its object, several as ``{"schema": "ppsim.runs/1", "runs": [...]}``."""
    import orjson

    runs = [run_object(timeline, document.inputs) for timeline in document.timelines]
    value = runs[0] if len(runs) == 1 else {"schema": "ppsim.runs/1", "runs": runs}
    out.write(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))
