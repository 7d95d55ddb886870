"""Common names of the columns in tables of ops, of kinds of ops, and of groups of collectives."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ppsim.core.ops import Kind

# Names of each column in other programs' tables, the least ambiguous first; in lower case with _
# between words.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "iteration": (
        "iteration",
        "iter",
        "step",
        "train_step",
        "training_step",
        "global_step",
        "iteration_id",
        "step_id",
    ),
    "replica": ("replica", "dp_rank", "dp", "data_parallel_rank", "dp_id", "replica_id"),
    "device": (
        "device",
        "pp_rank",
        "pp",
        "pipeline_rank",
        "pipeline_parallel_rank",
        "pp_id",
        "device_id",
    ),
    "stage": (
        "gmc",
        "global_stage",
        "global_chunk",
        "virtual_stage",
        "model_stage",
        "stage",
        "stage_id",
        "stage_index",
        "stage_idx",
        "pp_stage",
    ),
    "chunk": (
        "chunk",
        "mc",
        "model_chunk",
        "chunk_id",
        "model_chunk_id",
        "vpp_rank",
        "vp_rank",
        "vp_stage",
        "virtual_pipeline_rank",
    ),
    "kind": (
        "kind",
        "optype",
        "op_type",
        "op_kind",
        "op",
        "op_name",
        "type",
        "event",
        "action",
        "name",
    ),
    "microbatch": (
        "microbatch",
        "mb_id",
        "mb",
        "microbatch_id",
        "micro_batch",
        "micro_batch_id",
        "mbid",
        "mb_index",
        "microbatch_index",
        "microbatch_idx",
        "minibatch",
    ),
    "start": (
        "start",
        "start_ts",
        "start_time",
        "ts_start",
        "t_start",
        "begin",
        "begin_ts",
        "ts",
        "timestamp",
    ),
    "end": ("end", "end_ts", "end_time", "ts_end", "t_end", "finish", "stop"),
    "duration": ("duration", "dur", "elapsed", "elapsed_time", "took"),
    "posted": ("posted", "post_ts", "called"),
    "order": ("order", "seq_id", "seq", "sequence"),
    "group": ("group",),
}
_COLUMN_OF = {word: column for column, words in COLUMNS.items() for word in words}
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
UNITS = {
    "sec": "s",
    "secs": "s",
    "second": "s",
    "seconds": "s",
    "msec": "ms",
    "usec": "us",
    "micros": "us",
} | {unit: unit for unit in PER_SECOND}
GROUPS = ("device", "replicas", "ends", "all")

_WORDS = re.compile("[^0-9a-z]+")
_KINDS = {kind.name: kind for kind in Kind}
_FORWARD, _BACKWARD = (
    {"forward", "fwd", "fprop", "fw", "f"},
    {"backward", "bwd", "bprop", "bw", "b"},
)
_INPUT, _WEIGHTS = {"input", "dgrad", "activation"}, {"weight", "weights", "wgrad", "w"}
_SEND, _RECEIVE, _RECOMPUTE = {"send"}, {"recv", "receive"}, {"recompute", "recomputation", "remat"}
_FILLERS = {
    "compute",
    "pass",
    "step",
    "op",
    "chunk",
    "microbatch",
    "grad",
    "for",
    "only",
    "p2p",
    "pp",
    "stage",
}


def simple(name: str) -> str:
    """Return a column's name in lower case, with one _ between words."""
    return _WORDS.sub("_", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()).strip("_")


def split_unit(name: str) -> tuple[str, str]:
    """Split a column's name into name and unit, such as ``start_ms`` into ``start`` and ``ms``; the
    unit is empty if the name has none.
    """
    words, _, last = simple(name).rpartition("_")
    return (words, UNITS[last]) if words and last in UNITS else (simple(name), "")


def meanings(names: Iterable[str]) -> dict[str, str]:
    """Map each of our columns to the name of that column in a file.

    Of several names for one column, the least ambiguous name is used. ``stage`` in a table with a
    column of global chunks (``gmc``) means the device, since Megatron calls a pipeline rank a
    stage.
    """
    by_word = {split_unit(name)[0]: name for name in reversed(list(names))}
    found = dict[str, str]()
    for column, words in COLUMNS.items():
        if known := next((word for word in words if word in by_word), None):
            found[column] = by_word[known]
    stage = by_word.get("stage")
    if stage and "device" not in found and ("chunk" in found or found["stage"] != stage):
        found["device"] = stage
        if found["stage"] == stage:
            del found["stage"]
    return found


def is_known(name: str) -> bool:
    """Return whether a column of this name may correspond to one of our columns."""
    return split_unit(name)[0] in _COLUMN_OF


def is_text(name: str) -> bool:
    """Return whether a column of this name corresponds to one of our columns of strings."""
    return _COLUMN_OF.get(split_unit(name)[0]) in ("kind", "group")


def kind_of(name: str) -> Kind | None:
    """Return the kind of op that a name means; None for other events, such as a collective."""
    if name.upper() in _KINDS:
        return _KINDS[name.upper()]
    words = set(_WORDS.split(re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower())) - {""}
    known = _FORWARD | _BACKWARD | _INPUT | _WEIGHTS | _SEND | _RECEIVE | _RECOMPUTE | _FILLERS
    if not words or words - known:
        return None
    forward, backward = bool(words & _FORWARD), bool(words & _BACKWARD)
    if words & (_SEND | _RECEIVE):
        side = "SEND" if words & _SEND else "RECV"
        return _KINDS[f"{side}_{'F' if forward else 'B'}"] if forward != backward else None
    if words & _RECOMPUTE:
        return Kind.R
    if words & _WEIGHTS:
        return Kind.W
    if words & _INPUT:
        return Kind.I if not forward else None
    return None if forward == backward else Kind.F if forward else Kind.B


def group_of(name: str) -> str:
    """Return the group of devices that an op joins, judged by its name: ``replicas``, ``ends``
    (first and last device), ``all``, or ``device`` (none).
    """
    words = set(_WORDS.split(name.lower()))
    reduces = bool(words & {"reduce", "allreduce", "scatter", "gather", "allgather", "unshard"})
    if reduces and words & {"embedding", "embeddings"}:
        return "ends"
    if words & {"clip", "overflow"}:
        return "all"
    if reduces and not words & {"layernorm", "tp", "sp", "tensor", "sequence"}:
        return "replicas"
    return "device"


def communicates(name: str) -> bool:
    """Return whether an op between steps is a message or a collective, judged by its name."""
    words = set(_WORDS.split(name.lower()))
    return bool(
        words
        & {"reduce", "allreduce", "scatter", "gather", "allgather", "unshard", "clip", "broadcast"}
    )
