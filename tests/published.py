"""Rows of the research tables as ppsim reads them: ``python -m tests.published FROM.json
TO.json[.gz]``.

The tables were written by hand, by many people and in many words. Here they become keys:
`plain_row` says what each note means. A row of plain keys stays as it is.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from ppsim.base.tables import read_table as read_cells
from ppsim.workload.layout.layout import read_layout
from ppsim.workload.model.model import library, read_model
from ppsim.workload.plans.rows import KEYS

MODELS = {
    "gpt175b": "gpt3-175b",
    "grok1314b": "grok-1",
    "megatronturingnlg530b": "turing-530b",
    "mtnlg530b": "turing-530b",
    "deepseekr1": "deepseek-v3",
    "llama3.370b": "llama3-70b",
    "kimik21t": "kimi-k2",
    "llama4maverick400b": "llama4-maverick",
    "llama4400be128": "llama4-maverick",
    **{
        f"gpt{size}b": f"megatron-{size}b"
        for size in ("1.7", "3.6", "7.5", "18.4", "22", "39.1", "76.1")
    },
    **{f"gpt{size}b": f"megatron-{size}b" for size in ("145.6", "310.1", "529.6")},
}
SCHEDULES = {
    "1f1b-i": "interleaved",
    "interleaved where pp > 1": "interleaved",
    "zero-bubble-heuristic": "zb-1p",
    "zbv-formatted": "zb-v",
}
PRECISIONS = {"fp8-cs": "fp8", "fp8-mx": "mxfp8", "fp8-cs (fp8-mx)": "fp8", "float8 + bf16": "fp8"}
RENAMED = {"tflops_per_gpu": "model_tflops_per_gpu", "tokens_per_s_total": "tokens_per_s"}


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose notes are keys, without keys that ppsim does not read."""
    plain = {RENAMED.get(key, key): value for key, value in row.items() if value is not None}
    for change in (_model, _batch, _schedule, _recompute, _measured):
        change(plain)
    precision = str(plain.get("precision") or "").lower()
    plain["precision"] = PRECISIONS.get(precision, plain.get("precision"))
    if "release notes" in precision or plain["precision"] is None:
        del plain["precision"]
    if "lora" in str(plain.get("task") or "").lower():
        plain["adapters"] = True
    return {key: value for key, value in plain.items() if key in KEYS}


def _model(row: dict[str, Any]) -> None:
    name = str(row.get("model") or "")
    if found := re.search(r"(\d+) layers", name):
        row["layers"] = int(found[1])
    if "w/o MTP" in name:
        row["mtp"] = 0
    shape = row.get("architecture") or {}
    short = re.sub(r"\(.*?\)|proxy.*|, *\d+ layers.*", "", name.lower())
    short = re.sub(r"[^a-z0-9.]", "", short).replace("llama3.1", "llama3").replace("meta", "")
    known = {re.sub(r"[^a-z0-9.]", "", each): each for each in library()} | MODELS
    row["model"] = known.get(short, name.strip())
    if "kv" in shape:
        row["architecture"] = {
            ("kv_heads" if key == "kv" else key): value for key, value in shape.items()
        }
    if "moe" in shape:
        del row["architecture"]
    elif shape:
        row["architecture"] = {
            key: value for key, value in row["architecture"].items() if not key.endswith("_B")
        }


def _batch(row: dict[str, Any]) -> None:
    if not row.get("gbs") and row.get("local_batch"):
        row["gbs"] = row["local_batch"] * (row.get("dp") or row["fsdp"])


def _schedule(row: dict[str, Any]) -> None:
    text = str(row.get("schedule") or "")
    if "synchronous" in text or "overlap" in text:
        row["overlap_p2p"] = not re.search(r"\bsync|no[nt]?[- ]overlap|without overlap", text)
    name = text.split(",")[0].split("(")[0].strip()
    if name:
        row["schedule"] = SCHEDULES.get(name.lower(), name)


def _recompute(row: dict[str, Any]) -> None:
    text = str(row.get("recompute") or "").lower()
    if "sequence parallel" in text:
        row["sequence_parallel"] = True
    if found := re.search(r"(\d+) layers? per virtual stage", text):
        row |= {"recompute": "full", "recompute_layers": int(found[1])}
    elif text.startswith("ids"):
        chosen = {int(number) for number in re.findall(r"\d+", text)}
        whole = row.get("layers") or read_model(row["model"]).layers
        layers = read_layout(row["layout"], row["pp"], whole).layers
        first = [sum(layers[:stage]) for stage in range(len(layers))]
        counts = [
            sum(at <= n < at + count for n in chosen)
            for at, count in zip(first, layers, strict=True)
        ]
        row |= {"recompute": "full", "recompute_layers": counts}
    elif text.startswith("full"):
        row["recompute"] = "full"
    elif text.startswith("selective +"):
        row["recompute"] = "selective"
    elif text == "norm, act (selective)":
        row["recompute"] = "layernorm, moe_act"


def _measured(row: dict[str, Any]) -> None:
    if not row.get("step_s") and not row.get("step_ms") and row.get("derived_step_s"):
        row["step_s"] = row["derived_step_s"]
    rate = row.get("model_tflops_per_gpu")
    if rate and not row.get("step_s") and "sc21" in str(row.get("framework")).lower():
        # arXiv 2104.04473, equation 3: with recompute, attention's whole square
        model = read_model(row["model"])
        n, h = row.get("layers", model.layers), model.hidden
        seq = row.get("seq", model.seq)
        flops = 96.0 * n * h**2 * (1 + seq / (6 * h) + model.vocab / (16 * n * h))
        row["step_s"] = flops * row["gbs"] * seq / (rate * 1e12) / row["gpus"]
    if ranks := row.get("peak_by_rank_MB"):
        row["memory_alloc_GiB"] = max(ranks.values()) / 1024
    elif (
        row.get("memory_GB")
        and row.get("gbs")
        and row.get("mbs")
        and not row.get("memory_alloc_GiB")
    ):
        row["memory_alloc_GiB"] = row["memory_GB"] * 1e9 / 2**30


def main(source: str, target: str) -> None:
    """Write the plain rows of a table."""
    if source.endswith((".csv", ".parquet")):
        rows: Any = read_cells(source, "rows")
    else:
        text = (
            gzip.decompress(Path(source).read_bytes())
            if source.endswith(".gz")
            else Path(source).read_bytes()
        )
        rows = json.loads(text)
    table = rows if isinstance(rows, dict) else {"rows": rows}
    lines = ",\n".join(json.dumps(plain_row(row)) for row in table["rows"])
    meta = {key: value for key, value in table.items() if key != "rows"}
    data = (json.dumps(meta)[:-1] + (", " if meta else "") + f'"rows": [\n{lines}\n]}}\n').encode()
    Path(target).write_bytes(gzip.compress(data, mtime=0) if target.endswith(".gz") else data)


if __name__ == "__main__":
    main(*sys.argv[1:])
