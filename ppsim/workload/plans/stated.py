"""Software and techniques of a row of published runs; the software's file supplies the rest."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

from ppsim.base.text import shorten
from ppsim.errors import InputError
from ppsim.workload.hardware.hardware import Gpu
from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import (
    DISPATCHERS,
    GRAPHS,
    KERNELS,
    MODULES,
    MOST,
    RANK_ORDERS,
    RECOMPUTE,
    Parallel,
)
from ppsim.workload.plans.row_numbers import MISSING, Row, SkippedRow, count_of, number_of
from ppsim.workload.plans.software import (
    PRECISIONS,
    Techniques,
    Version,
    apply,
    read_software,
    software_of,
)

# Other names of precisions.
PRECISION_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float8": "fp8"}
MODELLED = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
YES, NO = ("yes", "true", "on", "1"), ("no", "false", "off", "0")
WORDS = {
    "kernels": KERNELS,
    "cuda_graphs": GRAPHS,
    "dispatch": DISPATCHERS,
    "gradient_precision": tuple(PRECISIONS),
    "moment_precision": tuple(PRECISIONS),
    "rank_order": tuple(RANK_ORDERS),
}
NUMBERS = {"dispatch_bytes": 2, "expert_load": MOST}
TECHNIQUES = tuple(f.name for f in fields(Techniques))
SWITCHES = tuple(f.name for f in fields(Techniques) if "bool" in str(f.type))


def version_of(row: Row) -> Version:
    """Return the software of a row, by its key ``software`` or by ``framework`` and ``release``.

    Raises:
        SkippedRow: ``software`` is not in the library.
    """
    if row.get("software"):
        try:
            return read_software(str(row["software"]))
        except InputError as error:
            raise SkippedRow(f"software {row['software']!r}: {error}") from error
    return software_of(*(str(row.get(key) or "") for key in ("framework", "release", "source")))


def parallel_of(row: Row, gpu: Gpu, model: Model | None = None) -> Parallel:
    """Return the settings of a row's run without sizes: as stated, else as its software's.

    Raises:
        SkippedRow: the row states a technique that ppsim does not model.
    """
    version, precision = version_of(row), _precision(row)
    techniques = version.techniques(gpu, precision or "", model)
    precision = precision or techniques.get("precision") or "bf16"
    states = stated(row)
    techniques = version.techniques(gpu, precision, model) | {"precision": precision} | states
    if count_of(row, "fsdp", 0) > 1 and "zero" not in row:
        techniques["zero"] = 3
    # torch's pipeline keeps gathered weights and whole gradients until a step ends
    if count_of(row, "pp", 1) > 1:
        techniques["zero"] = min(techniques.get("zero", 1), 1)
    adapters = _switch(row, "adapters") is True
    by_schedule = version.by_schedule(gpu, precision, model, {*states, "zero"})
    parallel = apply(Parallel(adapters=adapters, by_schedule=by_schedule), techniques)
    share = number_of(row, "offload") or 0.0
    if share > 1:
        raise SkippedRow(f"offload: not a share from 0 to 1: {row.get('offload')!r}")
    return replace(parallel, offload=share)


def stated(row: Row) -> dict[str, Any]:
    """Return the techniques that a row states, by name.

    Raises:
        SkippedRow: a technique has no such value.
    """
    found: dict[str, Any] = {}
    for name in SWITCHES:
        if (value := _switch(row, name)) is not None:
            found[name] = value
    for name, known in WORDS.items():
        text = str(row.get(name) or "").strip().lower()
        if text and text not in MISSING:
            if text not in known:
                raise SkippedRow(f"{name} {row.get(name)!r} is not one of {', '.join(known)}")
            found[name] = text
    if str(row.get("cuda_graphs") or "").strip().lower() == "none":
        found["cuda_graphs"] = "none"
    for name, most in NUMBERS.items():
        if str(row.get(name) or "").strip().lower() not in MISSING:
            if not 1 <= (number := number_of(row, name) or 0.0) <= most:
                raise SkippedRow(
                    f"{name} {shorten(repr(row[name]))} is not a number of 1 to {most}"
                )
            found[name] = number
    if row.get("zero") is not None:
        found["zero"] = count_of(row, "zero", 0)
    return found | _recompute(row)


def _switch(row: Row, name: str) -> bool | None:
    """Return the truth of a row's key, or None if it is missing (SkippedRow: it is neither)."""
    value = row.get(name)
    text = str(value).strip().lower()
    if value is None or text in MISSING:
        return None
    if text not in YES + NO:
        raise SkippedRow(f"{name} {value!r} is neither true nor false")
    return text in YES


def _recompute(row: Row) -> dict[str, Any]:
    """Return the recompute of a row: none, full, selective, or the named modules; {} if unknown."""
    text = str(row.get("recompute") or "").partition("(")[0].strip().lower()
    if text in RECOMPUTE:
        return {"recompute": text}
    named = {word for word in re.split(r"[^a-z_]+", text) if word} - {"selective"}
    if not named or not named <= {*MODULES}:
        return {}
    return {"recompute": "selective", "modules": tuple(name for name in MODULES if name in named)}


def _precision(row: Row) -> str:
    """Return the precision that a row names, or ''.

    Raises:
        SkippedRow: ppsim does not model the precision.
    """
    text = str(row.get("precision") or "").strip().lower()
    if re.search(r"fp32|float32|tf32|int8|int4", text):
        raise SkippedRow(
            f"ppsim does not model precision {row.get('precision')!r}, only {', '.join(MODELLED)}"
        )
    name = PRECISION_NAMES.get(text, text)
    return name if name in MODELLED else ""


def unread_keys(row: Row) -> list[str]:
    """Return the keys of a row whose values are unknown and are replaced by defaults."""
    found = [] if _precision(row) or not row.get("precision") else ["precision"]
    text = str(row.get("recompute") or "").strip().lower()
    return [*found, "recompute"] if text not in MISSING and not _recompute(row) else found
