"""Rows of published runs, and the model, machine and parallel settings that each describes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ppsim.base import tables
from ppsim.base.source import name_of, read_text
from ppsim.base.text import quote, shorten
from ppsim.base.typed_json import decode
from ppsim.errors import InputError
from ppsim.schedules import find
from ppsim.workload.hardware.hardware import Machine, gpus, read_machine
from ppsim.workload.layout.layout import Layout, read_layout
from ppsim.workload.model.model import Model, flops_per_token, library, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.fitting import fitting
from ppsim.workload.plans.row_numbers import MISSING, Row, SkippedRow, count_of, number_of
from ppsim.workload.plans.software import Software
from ppsim.workload.plans.stated import TECHNIQUES, parallel_of, stated, unread_keys, version_of

LARGEST = 64 << 20
NESTED = ("architecture", "layout", "recompute_layers")  # keys with nested values
# Clusters by words in the name of a row's GPU; the first word that occurs counts.
CLUSTERS = (
    ("gb300", "gb300-nvl72"),
    ("gb200", "gb200-nvl72"),
    ("b300", "dgx-b300"),
    ("b200", "dgx-b200"),
    ("h200", "dgx-h200"),
    ("h100 96gb", "h100-96gb-500w"),
    ("h100", "dgx-h100"),
    ("a100-40", "dgx-a100-40gb"),
    ("a100 40", "dgx-a100-40gb"),
    ("a100", "dgx-a100"),
    ("mi355x", "mi355x"),
    ("mi325x", "mi325x"),
    ("mi300x", "mi300x"),
    ("mi250x", "mi250x"),
    ("h800", "h800"),
    ("h20", "h20"),
    ("a800", "a800"),
    ("l40s", "l40s"),
    ("4090", "rtx-4090"),
    ("v100", "dgx-v100"),
)
# other names that rows use for a schedule
SCHEDULES = {"none": "1f1b", "interleaved 1f1b": "interleaved"}
SIZES = {field.name: field.type for field in fields(Model) if field.type in ("int", "bool")}
SHORT = {"kv": "kv_heads", "topk": "top_k"}  # other names of sizes
# Keys that are read, and NOTES, which are ignored.
NUMBERS = (
    "gpus",
    "tp",
    "pp",
    "cp",
    "ep",
    "dp",
    "fsdp",
    "vp",
    "mbs",
    "gbs",
    "microbatches",
    "seq",
    "layers",
    "mtp",
)
MEASURED = (
    "step_s",
    "step_ms",
    "tokens_per_s_per_gpu",
    "tokens_per_s",
    "tokens_per_s_total",
    "model_tflops_per_gpu",
)
RUN = (
    "model",
    "architecture",
    "gpu",
    "cluster",
    "software",
    "framework",
    "release",
    "schedule",
    "layout",
)
NOTES = ("id", "source", "note", "group", "set", "tier")
FURTHER = ("recompute_layers", "offload", "adapters", "memory_alloc_GiB", "memory_GiB")
KEYS = frozenset((*RUN, *NUMBERS, *TECHNIQUES, *FURTHER, *MEASURED, *NOTES))
EXPECTED = "such as model, gpu, gpus, tp, pp, mbs, gbs, seq and tokens_per_s_per_gpu"
USUAL_MICROBATCHES = 4  # microbatches per pipeline device of rows without a batch


@dataclass(frozen=True)
class UserNames:
    """The user's model and cluster, which rows may name like those of the library.

    Attributes:
        model: the model of rows that name it, and of rows without a model.
        machine: the machine of rows that name it, and of rows without a GPU and a cluster.
        names: names of both in lower case: as typed, and as in their files.
    """

    model: Model | None = None
    machine: Machine | None = None
    names: frozenset[str] = frozenset()


NONE = UserNames()


def user_names_of(
    model: tuple[str, Model] | None, cluster: tuple[str, Machine] | None
) -> UserNames:
    """Return the names by which rows may refer to the user's model and cluster.

    Args:
        model: the model as typed, and read; or None.
        cluster: the cluster as typed, and read; or None. A mixed cluster is ignored, as the sizes
            of a row cannot describe it.
    """
    cluster = None if cluster and cluster[1].kinds else cluster
    names = {
        name
        for given in (model, cluster)
        if given
        for name in (given[0], Path(given[0]).name, Path(given[0]).stem, given[1].name)
    }
    return UserNames(
        model and model[1],
        cluster and cluster[1],
        frozenset(name.lower() for name in names if name),
    )


@dataclass(frozen=True)
class Setup:
    """The model, machine and settings that a row describes.

    Attributes:
        model: the model.
        machine: the cluster.
        parallel: the settings of the run; the first of ``choices``.
        choices: settings that the run may have had, several if the row leaves numbers out.
        layout: the layers of each stage, or None.
        step_s: measured seconds of a step, or None.
        assumptions: names of the values that the row leaves out and that were chosen.
        software: the software's name in the library.
    """

    model: Model
    machine: Machine
    parallel: Parallel
    choices: tuple[Parallel, ...]
    layout: Layout | None
    step_s: float | None
    assumptions: str
    software: str


def read_table(path: str) -> list[Row]:
    """Read the rows of a table of runs: CSV, Parquet, or JSON.

    JSON has a list of rows, or an object with the key ``rows``. Empty cells are left out.

    Raises:
        InputError: the file cannot be read or has no rows.
        MissingDependency: the file is Parquet and pyarrow is not installed.
    """
    hint = 'CSV, or JSON with "rows", of published runs'
    if Path(path).suffix.lower() in (".csv", ".parquet"):
        cells = tables.read_table(path, hint, lists=NESTED)
        table: list[Row] = [
            {key: 0 if cell == "0" else cell for key, cell in row.items() if key and cell != ""}
            for row in cells
        ]
        if not cells:
            raise InputError(f"'{name_of(path)}' has no rows", f"a row for each run: {EXPECTED}")
        _require_columns(path, [key for key in cells[0] if key])
        return table
    data = decode(read_text(path, hint, largest=LARGEST), Any, f"'{name_of(path)}'", hint, None)
    rows = data.get("rows") if isinstance(data, dict) else data
    if not isinstance(rows, list) or (rows and not any(isinstance(row, dict) for row in rows)):
        raise InputError(f"'{name_of(path)}' has no rows of published runs", hint)
    if rows:
        keys = [key for row in rows if isinstance(row, dict) for key in row]
        _require_columns(path, list(dict.fromkeys(keys)))
    return rows


def _require_columns(path: str, keys: Sequence[str]) -> None:
    """Raise InputError for a table none of whose columns is one of published runs."""
    if not KEYS.intersection(keys):
        found = f"it has {quote(list(keys))}" if keys else "its rows are empty"
        raise InputError(
            f"'{name_of(path)}' has no column of a training run; {found}", f"columns {EXPECTED}"
        )


def unknown_keys(rows: Iterable[Row]) -> list[str]:
    """Return the keys of a table that are not read, each with a similar known key if any."""
    found: dict[str, Collection[str]] = {}
    for row in (row for row in rows if isinstance(row, dict)):
        found |= dict.fromkeys(row.keys() - KEYS, KEYS)
        if isinstance(shape := row.get("architecture"), dict):
            found |= dict.fromkeys(
                (f"architecture.{key}" for key in shape if key not in (SIZES | SHORT)), SIZES
            )
    near = {
        key: get_close_matches(key.rpartition(".")[2][:40].lower(), found[key], 1, cutoff=0.8)
        for key in found
    }
    return [
        shorten(key, 40) + (f" ({near[key][0]}?)" if near[key] else "") for key in sorted(found)
    ]


def setup_of(row: Row, user_names: UserNames = NONE) -> Setup:
    """Return the model, machine and settings that a row describes.

    Args:
        row: a row of a table.
        user_names: the user's model and cluster, which the row may name.

    Raises:
        SkippedRow: the row names a model or GPU that is not in the library, or leaves out numbers
            that cannot be chosen.
    """
    if not isinstance(row, dict):
        raise SkippedRow("the row is not an object")
    model, machine = _model(row, user_names), _machine(row, user_names)
    numbers = {key: count_of(row, key, 1) for key in ("tp", "pp", "cp", "ep")}
    gpus = count_of(row, "gpus", 0)
    replicas = count_of(row, "dp", 0) or count_of(row, "fsdp", 0)
    inferred = _fill_size(row, numbers, gpus, replicas)
    each = numbers["tp"] * numbers["pp"] * numbers["cp"]
    dp = replicas or max(gpus // each, 1)
    if not gpus:
        gpus = dp * each
    if gpus != dp * each:
        dp = gpus // each
        if not dp or dp * each != gpus:
            raise SkippedRow(f"tp x pp x cp = {each} does not divide {gpus} GPUs")
    techniques = parallel_of(row, machine.gpu, model)
    fixed = replace(
        techniques, dp=dp, tp=numbers["tp"], pp=numbers["pp"], cp=numbers["cp"], ep=numbers["ep"]
    )
    choices, chosen = _choices(row, model, fixed, inferred)
    layout = _layout(row, model, choices[0])
    chosen = ", ".join(
        filter(
            None,
            (chosen, *unread_keys(row), "layout" if row.get("layout") and layout is None else ""),
        )
    )
    if recomputed := _recomputed_layers(row):
        choices = tuple(replace(choice, recompute_layers=recomputed) for choice in choices)
    measured, software = measured_step(row, model, choices[0]), version_of(row).software
    if techniques_to_try := _memory_techniques(row, fixed, software):
        fitted = tuple(
            each
            for choice in choices
            for each in fitting(model, machine, choice, layout, **techniques_to_try)
        )
        chosen = ", ".join(filter(None, (chosen, "memory" if fitted != choices else "")))
        choices = fitted
    return Setup(model, machine, choices[0], choices, layout, measured, chosen, software.name)


def _memory_techniques(row: Row, parallel: Parallel, software: Software) -> dict[str, bool]:
    """Return the techniques by which a run may have saved memory without its row stating them.

    They are the keywords ``modules`` and ``offload`` of :func:`fitting`. The answer is empty if the
    row states them, or if its software is not in the library.
    """
    offload = str(row.get("offload") or "").strip().lower()
    if "recompute" in stated(row):
        has_unknown_share = offload not in MISSING and not number_of(row, "offload")
        return {"modules": False, "offload": True} if has_unknown_share else {}
    framework = str(row.get("software") or row.get("framework") or "").lower()
    known = any(word in framework for word in (software.name, *software.words))
    if number_of(row, "offload") or not known:
        return {}
    is_megatron = software.foundations[0].flags == "megatron" and parallel.kernels == "fused"
    # Megatron-LM can offload whole layers only without a pipeline.
    return {"modules": is_megatron, "offload": is_megatron and parallel.pp == 1}


def _model(row: Row, user_names: UserNames) -> Model:
    """Return the model that a row names, or describes by its ``architecture``."""
    name, shape = str(row.get("model") or "").strip(), row.get("architecture")
    if user_names.model and (name.lower() in user_names.names or not (name or shape)):
        model = user_names.model
    elif known := _library_name(name):
        model = read_model(known)
    else:
        model = _described_model(name, shape)
    layers = count_of(row, "layers", model.layers)
    changes: dict[str, Any] = {"layers": layers, "dense_layers": min(model.dense_layers, layers)}
    # a row with few of a large model's layers has at most one of the layers without experts
    if layers < model.layers // 2:
        changes |= {"mtp": 0, "dense_layers": min(model.dense_layers, 1)}
    if row.get("mtp") is not None:
        changes["mtp"] = count_of(row, "mtp", 0)
    return replace(model, seq=count_of(row, "seq", model.seq), **changes)


def _library_name(name: str) -> str:
    """Return the library's name of a model in any spelling, or '' if it is not in the library."""
    by_plain = {re.sub(r"[^a-z0-9.]", "", known): known for known in library()}
    return by_plain.get(re.sub(r"[^a-z0-9.]", "", name.lower()), "")


def _described_model(name: str, shape: Any) -> Model:
    """Return the model of an ``architecture``, which has the keys of a model's file.

    Without ``kv_heads`` it is a GPT, with biases and learned positions.
    """
    if not isinstance(shape, dict) or not {"layers", "hidden", "heads"} <= shape.keys():
        raise SkippedRow(
            f"no model {name!r} in the library, and the row does not describe it; name your own "
            f"with --model FILE"
        )
    shape = {SHORT.get(key, key): value for key, value in shape.items()}
    gpt = "kv_heads" not in shape
    usual = {"gated": not gpt, "tied": gpt, "learned_positions": gpt, "biases": gpt}
    sizes: dict[str, Any] = {"seq": 2048, "vocab": 51200}
    for key, value in (usual | shape).items():
        if SIZES.get(key) == "bool":
            if not isinstance(value, bool):
                raise SkippedRow(
                    f"{key} {shorten(repr(value))} of the architecture is neither true nor false"
                )
            sizes[key] = value
        elif key in SIZES:
            sizes[key] = count_of(shape, key, sizes.get(key, 0))
    if sizes.get("experts") and not sizes.get("expert_ffn"):
        raise SkippedRow(
            f"no model {name!r} in the library, and its architecture has no expert_ffn"
        )
    return Model(**sizes, name=name)


def _machine(row: Row, user_names: UserNames) -> Machine:
    """Return the cluster that a row names, or the usual one of its GPU."""
    gpu, cluster = (str(row.get(key) or "").strip().lower() for key in ("gpu", "cluster"))
    if user_names.machine and (cluster in user_names.names or not (cluster or gpu)):
        return user_names.machine
    if cluster:
        return read_machine(str(row["cluster"]))
    if user_names.machine and gpu == user_names.machine.gpu.name.lower() and gpu not in gpus():
        return user_names.machine
    for word, name in CLUSTERS:
        if word in gpu and not re.search("gh200|pcie|nvl$", gpu):
            return read_machine(name)
    known = ", ".join(sorted({word.split()[0] for word, _ in CLUSTERS}))
    raise SkippedRow(
        f"no GPU {row.get('gpu')!r} in the library, which has {known}; name your own with "
        f"--cluster FILE"
    )


def _fill_size(row: Row, numbers: dict[str, int], gpus: int, dp: int) -> list[str]:
    """Add the size among tp, pp and cp that a row leaves out to ``numbers``; return its name.

    The size follows from the GPUs and the other sizes. Nothing is added if several are missing.
    """
    missing = [key for key in ("tp", "pp", "cp") if not count_of(row, key, 0)]
    ranks = dp * numbers["tp"] * numbers["pp"] * numbers["cp"]
    if len(missing) != 1 or not dp or gpus % ranks or gpus == ranks:
        return []
    numbers[missing[0]] = gpus // ranks
    return missing


def _choices(
    row: Row, model: Model, fixed: Parallel, chosen: list[str]
) -> tuple[tuple[Parallel, ...], str]:
    """Return the settings that a run may have had, and the names of the values that were chosen.

    ``chosen`` has the names of values chosen before.
    """
    schedule = _schedule(row) if fixed.pp > 1 else ""
    gbs, mbs = count_of(row, "gbs", 0), count_of(row, "mbs", 0)
    if not gbs:
        mbs, microbatches = (
            mbs or 1,
            count_of(row, "microbatches", 0) or USUAL_MICROBATCHES * fixed.pp,
        )
        chosen.append(f"mbs {mbs}, {microbatches} microbatches")
        gbs = fixed.dp * mbs * microbatches
    per_pipeline = gbs // fixed.dp
    if not per_pipeline:
        raise SkippedRow(f"a batch of {gbs} for {fixed.dp} data-parallel ranks")
    # Megatron's own table 2 states microbatches of one sequence for its pipelines.
    sizes = (
        [mbs]
        if mbs
        else [1]
        if fixed.pp > 1
        else [size for size in (1, 2, 4) if per_pipeline % size == 0]
    )
    if not mbs:
        chosen.append("mbs")
    chunks = 1 if fixed.pp == 1 else count_of(row, "vp", 0)
    if not chunks:
        chunks = _fewest_chunks(model, fixed.pp, schedule)
        chosen.append("vp")
    chosen += [
        name
        for name, text in (("seq", count_of(row, "seq", 0)), ("precision", row.get("precision")))
        if not text
    ]
    choices = tuple(_with_batch(fixed, size, per_pipeline, chunks, schedule) for size in sizes)
    return choices, ", ".join(chosen)


def _schedule(row: Row) -> str:
    """Return the registry's name of a row's schedule."""
    text = str(row.get("schedule") or "none").strip().lower()
    try:
        return find(SCHEDULES.get(text, text)).name
    except InputError as error:
        raise SkippedRow(f"no schedule {row.get('schedule')!r}") from error


def _with_batch(
    fixed: Parallel, mbs: int, per_pipeline: int, chunks: int, schedule: str
) -> Parallel:
    """Return the settings with a microbatch size, chunks and a schedule.

    ``per_pipeline`` is the sequences of a pipeline in a step.
    """
    if schedule and (family := find(schedule)).placement == "v":
        chunks = family.chunks
    if schedule in ("1f1b", "interleaved"):  # rows confuse the two names; chunks tell them apart
        schedule = "interleaved" if chunks > 1 else "1f1b"
    microbatches = max(per_pipeline // mbs, 1)
    return replace(
        fixed.for_schedule(schedule),
        mbs=mbs,
        microbatches=microbatches,
        vp=chunks,
        schedule=schedule,
    )


def _fewest_chunks(model: Model, devices: int, schedule: str) -> int:
    """Return the fewest chunks from 2 on that divide a device's layers; 1 without interleaving."""
    if schedule != "interleaved":
        return 1
    each = -(-model.layers // devices)
    return next((v for v in range(2, 9) if each % v == 0), 1)


def _layout(row: Row, model: Model, parallel: Parallel) -> Layout | None:
    """Return the layout of a row, or None if it contradicts the rest of the row."""
    text = row.get("layout")
    if not text:
        return None
    try:
        found = read_layout(
            text if isinstance(text, str) else json.dumps(text), parallel.pp, model.layers
        )
    except InputError:
        return None
    return found if found.n_stages == parallel.stages else None


def _recomputed_layers(row: Row) -> int | tuple[int, ...] | None:
    """Return the recomputed layers of a stage, or of each stage; None if the row has no number."""
    value = row.get("recompute_layers")
    if not isinstance(value, list):
        return count_of(row, "recompute_layers", 0) or None
    return tuple(count_of({"recompute_layers": each}, "recompute_layers", 0) for each in value)


def measured_step(row: Row, model: Model, parallel: Parallel) -> float | None:
    """Return the seconds of a row's measured step, or those by its throughput, or None."""
    for key, scale in (("step_s", 1.0), ("step_ms", 1e-3)):
        if value := number_of(row, key):
            return value * scale
    tokens = parallel.gbs * model.seq
    if rate := number_of(row, "tokens_per_s_per_gpu"):
        return tokens / rate / parallel.gpus
    if rate := number_of(row, "tokens_per_s_total") or number_of(row, "tokens_per_s"):
        return tokens / rate
    if rate := number_of(row, "model_tflops_per_gpu"):
        return flops_per_token(model) * tokens / (rate * 1e12) / parallel.gpus
    return None
