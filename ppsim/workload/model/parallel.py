"""Parallelism of training: the sizes of all groups of ranks, and techniques of the software."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import inf
from typing import Any

from ppsim.base.toml import RefusedValue, check_range, require_one_of
from ppsim.schedules import find

RECOMPUTE = ("none", "selective", "full")
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32")
OPTIMIZERS = ("adamw", "muon")
KERNELS = ("fused", "compiled", "torch", "eager")
GRAPHS = ("none", "partial", "full")
# modules that selective recompute may repeat, by Megatron-LM's names
MODULES = ("core_attn", "layernorm", "moe_act", "mla_up_proj", "mlp", "shared_experts", "moe")
# modules that free most bytes for their time, if attention is fused
CHEAP = ("layernorm", "moe_act", "mla_up_proj")
DISPATCHERS = ("alltoall", "deepep", "hybridep")
MOST = 1 << 24
# Orders in which ranks are numbered, nearest first, by the spellings that users may type.
# Megatron-LM has these two, the second with --use-tp-pp-dp-mapping.
RANK_ORDERS = {
    "tp-cp-ep-dp-pp": "tp-cp-ep-dp-pp",
    "tp-dp-pp": "tp-cp-ep-dp-pp",
    "tp-cp-ep-pp-dp": "tp-cp-ep-pp-dp",
    "tp-pp-dp": "tp-cp-ep-pp-dp",
}


@dataclass(frozen=True)
class Parallel:
    """The parallel layout of a run.

    Attributes:
        tp: tensor-parallel ranks.
        pp: pipeline devices.
        dp: data-parallel replicas of the layers outside experts.
        cp: context-parallel ranks, which divide a sequence.
        ep: expert-parallel ranks; they lie inside dp x cp x tp, and an expert is not divided.
        vp: chunks of the model on each pipeline device.
        mbs: sequences in a microbatch.
        microbatches: microbatches of one pipeline in a step.
        schedule: the pipeline's schedule, by its name in the registry; '' is 1f1b, or interleaved
            if ``vp`` is above 1.
        slices: slices of each sequence, each with its own ops; 0 takes the schedule's default.
        parts: slices that a stage works on one by one; set where the work of one stage is priced.
        sequence_parallel: whether tensor-parallel ranks also divide the activations between linear
            layers.
        zero: states divided over data-parallel ranks: 0 none; 1 optimizer states; 2 also gradients,
            scattered after every microbatch; 3 also weights, gathered for every microbatch.
        recompute: none; selective repeats ``modules`` of each layer; full repeats each layer's
            forward.
        modules: modules that selective recompute repeats, among MODULES.
        recompute_layers: layers of a stage that recompute, one number for all stages or one for
            each; None: all layers.
        flash: whether attention is one kernel that skips masked tokens and keeps no scores.
        overlap_tp: whether tensor-parallel communication overlaps with the adjacent matrix
            products.
        overlap_p2p: whether messages between stages overlap with compute.
        overlap_dp: whether reductions of gradients and gathers of weights overlap with compute.
        post_validation: whether a device starts its optimizer step without waiting for other
            devices, so that a step takes the longest span of a device: zero-bubble's
            post-validation (arXiv 2401.10241, section 4).
        overlap_ep: whether an F and a B of different microbatches run as a pair that hides
            all-to-all.
        pairs_overlap: whether schedules made of such pairs may set ``overlap_ep``.
        offload: share of activations that are on the host until the backward.
        precision: training precision, that of linear layers' products: bf16, fp16, fp8, mxfp8,
            nvfp4 or fp32.
        gradient_bytes: bytes of a gradient in sums and reductions.
        optimizer: adamw, or muon for the matrices of layers and AdamW for the rest.
        moment_bytes: bytes of each of AdamW's two moments, and of Muon's single one.
        narrow_activation: whether inputs of activation functions are kept in the training
            precision: Megatron-LM's --activation-func-fp8-input-store, and DeepSeek-V3 (arXiv
            2412.19437, section 3.3.3).
        narrow_weights: whether weights are kept, and gathered, in the training precision:
            --fp8-param-gather of Megatron-LM, which needs ZeRO, and enable_fsdp_float8_all_gather
            of torchtitan.
        early_weights: whether routing weights are applied before experts' second product, so that
            its output need not be kept.
        sums_in_products: whether the product that computes a weight's gradient also adds it to the
            sum over microbatches: Megatron-LM's gradient_accumulation_fusion.
        adapters: whether only small adapters (LoRA) are trained: no weight gradients, reductions or
            optimizer states.
        kernels: source of the kernels between products: fused (Transformer Engine, Apex, Triton);
            compiled (torch.compile or XLA); torch (PyTorch's kernels and fused attention); or eager
            (as in 2021, with attention's scores written to memory).
        cuda_graphs: part of an expert layer that is launched as CUDA graphs: none; partial
            (attention and routing); or full. Dense layers need none: the host launches them far
            ahead of the GPU.
        fused_experts: whether routing, permuting, activating and casting an expert layer's tokens
            are fused into the grouped products.
        dispatch: dispatcher of tokens: alltoall sends a token once to each of its experts; deepep
            and hybridep once to each rank and each node with some of its experts.
        dispatch_bytes: bytes of an element sent to experts: 2 or 1; results return in 16 bits.
        expert_load: tokens of the busiest expert-parallel rank, over their mean.
        weight_forwards: times that W repeats a recomputed forward, in addition to I's one time.
        exchange_ms: milliseconds that each message costs its sender, in addition to the transfer.
        split_ms: milliseconds of the host for the W of a layer; W takes the root of the sum of both
            times squared.
        gather_gb_per_s: GB/s of ZeRO-3's gathers that the software does not exceed, whatever the
            links; 0 for no limit.
        by_schedule: techniques of the software that differ with some schedules: each schedule's
            name, with fields of this class and their values; ``for_schedule`` applies them.
        rank_order: tp-cp-ep-dp-pp, where replicas are neighbours and pipeline devices far apart, or
            tp-cp-ep-pp-dp.
    """

    tp: int = 1
    pp: int = 1
    dp: int = 1
    cp: int = 1
    ep: int = 1
    vp: int = 1
    mbs: int = 1
    microbatches: int = 1
    schedule: str = ""
    slices: int = 0
    parts: int = 1
    sequence_parallel: bool = True
    zero: int = 1
    recompute: str = "none"
    modules: tuple[str, ...] = ("core_attn",)
    recompute_layers: int | tuple[int, ...] | None = None
    flash: bool = True
    overlap_tp: bool = True
    overlap_p2p: bool = True
    overlap_dp: bool = True
    post_validation: bool = False
    overlap_ep: bool = False
    pairs_overlap: bool = True
    offload: float = 0.0
    precision: str = "bf16"
    gradient_bytes: int = 4
    optimizer: str = "adamw"
    moment_bytes: int = 4
    narrow_activation: bool = False
    narrow_weights: bool = False
    early_weights: bool = False
    sums_in_products: bool = True
    adapters: bool = False
    kernels: str = "fused"
    cuda_graphs: str = "full"
    fused_experts: bool = False
    dispatch: str = "alltoall"
    dispatch_bytes: int = 2
    expert_load: float = 1.0
    weight_forwards: int = 0
    exchange_ms: float = 0.0
    split_ms: float = 0.0
    gather_gb_per_s: float = 0.0
    by_schedule: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    rank_order: str = "tp-cp-ep-dp-pp"

    def __post_init__(self) -> None:
        check_range(self, 1, MOST, "tp", "pp", "dp", "cp", "ep", "vp", "mbs", "microbatches")
        words_of = {"recompute": RECOMPUTE, "precision": PRECISIONS, "dispatch": DISPATCHERS}
        words_of |= {
            "optimizer": OPTIMIZERS,
            "kernels": KERNELS,
            "cuda_graphs": GRAPHS,
            "rank_order": tuple(RANK_ORDERS.values()),
        }
        for name, words in words_of.items():
            require_one_of(name, getattr(self, name), words)
        if self.zero not in (0, 1, 2, 3):
            raise RefusedValue("zero", f"must be 0, 1, 2 or 3, got {self.zero}")
        if (self.dp * self.cp * self.tp) % self.ep:
            raise RefusedValue(
                "ep", f"must divide dp x cp x tp = {self.dp * self.cp * self.tp}, got {self.ep}"
            )
        if self.pipeline_first and self.pp > 1 and (self.cp * self.tp) % self.ep:
            raise RefusedValue(
                "ep",
                f"must divide cp x tp = {self.cp * self.tp} with {self.rank_order}, got {self.ep}",
            )
        for name, sizes in (("moment_bytes", (2, 4)), ("dispatch_bytes", (1, 2))):
            if getattr(self, name) not in sizes:
                raise RefusedValue(
                    name, f"must be {sizes[0]} or {sizes[1]}, got {getattr(self, name)}"
                )
        if not 0 <= self.offload <= 1:
            raise RefusedValue("offload", f"must be 0 to 1, got {self.offload}")
        for name in ("exchange_ms", "split_ms", "gather_gb_per_s"):
            if not 0 <= getattr(self, name) < inf:
                raise RefusedValue(name, f"must be 0 or more, got {getattr(self, name):g}")
        if not 1 <= self.expert_load < inf:
            raise RefusedValue("expert_load", f"must be 1 or more, got {self.expert_load:g}")

    def for_schedule(self, schedule: str) -> Parallel:
        """Return the settings with the software's exceptions for a schedule applied."""
        if not self.by_schedule:
            return self
        return replace(self, by_schedule=(), **dict(dict(self.by_schedule).get(schedule, ())))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def pipeline_first(self) -> bool:
        """Whether ranks are numbered along the pipeline before the next replica."""
        return self.rank_order.endswith("dp")

    @property
    def load(self) -> float:
        """Tokens of the busiest expert-parallel rank over their mean, at most ``ep``."""
        return min(self.expert_load, float(self.ep))

    @property
    def gbs(self) -> int:
        """Sequences in a step."""
        return self.dp * self.mbs * self.microbatches

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pp * self.vp

    @property
    def schedule_name(self) -> str:
        """Name of the schedule in the registry; pairs of F and B take a variant with -overlap."""
        name = self.schedule or ("interleaved" if self.vp > 1 else "1f1b")
        if self.overlap_ep and self.ep > 1 and name in ("1f1b", "interleaved"):
            return f"{name}-overlap"
        return name

    @property
    def pieces(self) -> int:
        """Slices of each sequence, 1 if the schedule does not cut sequences."""
        return self.slices or (find(self.schedule).slices if self.pp > 1 and self.schedule else 1)

    @property
    def replicas(self) -> int:
        """Replicas of the model on the devices of one pipeline: 2 if it is bidirectional."""
        return _replicas_of(self.schedule) if self.pp > 1 and self.schedule else 1

    def __str__(self) -> str:
        sizes = (
            f"{f.name} {getattr(self, f.name)}"
            for f in fields(self)[:7]
            if getattr(self, f.name) != 1
        )
        return ", ".join(sizes) or "one GPU"


@lru_cache(maxsize=64)
def _replicas_of(schedule: str) -> int:
    return 2 if find(schedule).placement.startswith("bidirectional") else 1
