"""What the software of a published run does, by its framework, its release and notes in its row.

Megatron-Bridge's and NeMo's habits are those of their performance recipes, which are public; none is fitted.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from ppsim.workload.model.model import Model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.row_numbers import MISSING, Row, Skipped, count_of

# What a precision is called; the first word that a row contains counts.
PRECISION_WORDS = (
    ("nvfp4", "nvfp4"),
    ("fp4", "nvfp4"),
    ("fp8-cs", "fp8"),
    ("mx", "mxfp8"),
    ("f8", "fp8"),
    ("fp8", "fp8"),
    ("float8", "fp8"),
    ("e4m3", "fp8"),
    ("release notes", "fp8"),
    ("bf16", "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "fp16"),
    ("float16", "fp16"),
)
MODELLED = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
WHOLE_LAYERS = ("full", "block", "uniform", "ids")  # how words for recomputing whole layers begin
# Megatron-Bridge's recipes dispatch by DeepEP or HybridEP (its MoE Dispatcher Selection Guide); from 26.06 on the three
# mixtures that it states for both ran a quarter faster than in 26.04.
FLEX_FROM, FUSED_EXPERTS_FROM = 25.11, 26.06
# Their GPUs on which expert layers are captured as CUDA graphs; NeMo 2 before them captured none.
GRACE = ("gb200", "gb300")
GRAPHS = {
    "deepseek-v3": GRACE,
    "gpt-oss-120b": ("b300", *GRACE),
    "qwen3-235b-a22b": GRACE,
    "qwen3-30b-a3b": ("b200", "b300", *GRACE),
}
# Models whose all-to-all is hidden behind compute on GPUs with a Grace host, from the release with fused experts on.
OVERLAPPED = ("deepseek-v3", "gpt-oss-120b")


def habits_of(row: Row, model: Model, gpu: str) -> Parallel:
    """Return what the software of a row does on a GPU, by its framework, its release and notes in the row."""
    framework = str(row.get("framework") or "").lower()
    recompute = str(row.get("recompute") or "none").lower()
    schedule = str(row.get("schedule") or "none").lower()
    how = "full" if recompute.startswith(WHOLE_LAYERS) else "none"
    how = "selective" if recompute.startswith("selective") else how
    adapters = "lora" in str(row.get("task") or "").lower()
    parallel = Parallel(precision=_precision(row), recompute=how, adapters=adapters)
    if _is_old(row, framework):
        parallel = replace(
            parallel,
            stack="eager",
            flash=False,
            sequence_parallel="sequence" in recompute,
            overlap_tp=False,
            overlap_p2p=False,
            overlap_dp=False,
            zero=0,
            gradient_bytes=2,
        )
    elif "0.14" in framework or "simumax" in json.dumps(row.get("peer_prediction") or "").lower():
        parallel = replace(parallel, overlap_tp=False, overlap_p2p=False, overlap_dp=False)
    elif "nemo" in framework or "bridge" in framework:
        parallel = _recipe(row, model, gpu, parallel)
    elif "primus" in framework and model.experts:
        parallel = replace(parallel, stack="single-launches")
    if re.search(r"\bsync|no[nt]?[- ]overlap|without overlap", schedule):
        parallel = replace(parallel, overlap_p2p=False)
    elif re.search(r"overlap|\basync", schedule):
        parallel = replace(parallel, overlap_p2p=True)
    if count_of(row, "fsdp", 0) > 1:
        # In a pipeline, torch keeps gathered weights and whole gradients until a step ends.
        parallel = replace(parallel, zero=3 if count_of(row, "pp", 1) == 1 else 1)
    return parallel


# Papers on Megatron-LM and DeepSpeed of 2021 to 2023, whose attention was not fused.
OLD = re.compile(r"sc21|deepspeed|zero[- ]bubble|sail-sg|2401\.10241|2405\.15362|2104\.04473|2205\.05198|seqsel")


def _is_old(row: Row, framework: str) -> bool:
    """Return whether a row ran on Megatron-LM or DeepSpeed of 2021 to 2023, or on A100 in FP16 as everybody then."""
    source, model, gpu, precision = (str(row.get(key) or "").lower() for key in ("source", "model", "gpu", "precision"))
    then = "megatron-lm" in framework and "a100" in gpu and "fp16" in precision
    return then or OLD.search(f"{framework} {source}") is not None or model.startswith(("megatron-", "turing"))


def _recipe(row: Row, model: Model, gpu: str, parallel: Parallel) -> Parallel:
    """Add what NVIDIA's performance recipes do: gradients in 16 bits; how experts are reached, fused and launched."""
    parallel = replace(parallel, gradient_bytes=2)
    release, known = _release(row), model.name.lower()
    if release >= FLEX_FROM:
        parallel = replace(
            parallel, dispatch="flex", stack="fused-experts" if release >= FUSED_EXPERTS_FROM else "fused"
        )
    if release >= FUSED_EXPERTS_FROM and parallel.precision == "mxfp8" and known in OVERLAPPED and gpu in GRACE:
        return replace(parallel, overlap_ep=True)
    graphs = release and gpu in GRAPHS.get(known, GRACE)
    return replace(parallel, stack="single-launches") if model.experts and not graphs else parallel


def _release(row: Row) -> float:
    """Return the release of Megatron-Bridge that a row names, such as 26.04; 0 without one."""
    found = re.match(r"(\d\d\.\d\d)\b", str(row.get("release") or ""))
    return float(found[1]) if found and "bridge" in str(row.get("framework") or "").lower() else 0.0


def _precision(row: Row) -> str:
    """Return the precision that a row names, or bf16.

    Raises:
        Skipped: it names one that the cost model lacks.
    """
    text = str(row.get("precision") or "").lower()
    if re.search(r"fp32|float32|tf32|int8|int4", text):
        raise Skipped(f"precision {row.get('precision')!r} is not modelled, which knows {', '.join(MODELLED)}")
    return next((name for word, name in PRECISION_WORDS if word in text), "bf16")


def unread(row: Row) -> list[str]:
    """Name the fields of a row whose words are not known, and for which the usual is taken."""
    found = []
    precision, recompute = (str(row.get(key) or "").lower() for key in ("precision", "recompute"))
    if precision and not any(word in precision for word, _ in PRECISION_WORDS):
        found.append("precision")
    if recompute and recompute not in MISSING and not recompute.startswith(("selective", *WHOLE_LAYERS)):
        found.append("recompute")
    return found
