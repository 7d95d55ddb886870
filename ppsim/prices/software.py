"""Options for the software of a run, and for techniques one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.options import common, flag, option
from ppsim.base.notes import note
from ppsim.errors import InputError

if TYPE_CHECKING:
    from ppsim.workload.hardware.hardware import Gpu
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.plans.rank_chart import RankLayout
    from ppsim.workload.plans.software import Version


# Precisions of products. Spelled out here: reading them from the planning room would load numpy
# for the help of every command.
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
# Techniques of models that have experts.
EXPERTS = ("dispatch", "dispatch_bytes", "expert_load", "fused_experts", "overlap_a2a")


@dataclass(frozen=True)
class Techniques:
    """Techniques of the run's software in a step; None uses the software's file."""

    software: str | None = option(
        "--software",
        metavar="NAME[@RELEASE]",
        help="Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan, deepspeed "
        "... (megatron-core).",
    )
    dispatch: str | None = option(
        "--dispatch",
        type=click.Choice(["alltoall", "deepep", "hybridep"]),
        help="Dispatch of tokens to experts: alltoall, or once per node and rank: deepep, hybridep "
        "(the software's).",
    )
    dispatch_bytes: int | None = option(
        "--dispatch-bytes",
        type=click.IntRange(1, 2),
        help="Bytes of an element sent to experts: 1 for 8 bits, as in DeepSeek-V3 (the "
        "software's, 2).",
    )
    expert_load: float | None = option(
        "--expert-load",
        type=click.FloatRange(1),
        help="Tokens of the busiest expert-parallel rank over the mean (1).",
    )
    overlap_a2a: bool | None = flag(
        "--overlap-a2a/--no-overlap-a2a",
        help="Overlap all-to-all with another microbatch's compute (the software's).",
    )
    cuda_graphs: str | None = option(
        "--cuda-graphs",
        type=click.Choice(["none", "partial", "full"]),
        help="Part of an expert layer that runs as CUDA graphs (the software's).",
    )
    fused_experts: bool | None = flag(
        "--fused-experts/--no-fused-experts",
        help="Fuse routing and casts into the experts' products (the software's).",
    )
    overlap_tp: bool | None = flag(
        "--overlap-tp/--no-overlap-tp",
        help="Overlap tensor-parallel messages with matrix products, as async TP (the software's).",
    )
    overlap_dp: bool | None = flag(
        "--overlap-dp/--no-overlap-dp",
        help="Overlap the reduction of gradients, and FSDP's gathers of weights, with compute (the "
        "software's).",
    )
    optimizer: str | None = option(
        "--optimizer",
        type=click.Choice(["adamw", "muon"]),
        help="adamw, or muon for the matrices of layers: one moment instead of two, orthogonalized "
        "by Newton-Schulz.",
    )
    gradient_precision: str | None = option(
        "--gradient-precision",
        type=click.Choice(["bf16", "fp32"]),
        help="Precision of gradients that are summed and reduced (the software's).",
    )
    moment_precision: str | None = option(
        "--moment-precision",
        type=click.Choice(["bf16", "fp32"]),
        help="Precision of the optimizer's two moments: bf16 as in DeepSeek-V3 (the software's, "
        "fp32).",
    )
    narrow_activation: bool | None = flag(
        "--narrow-activation/--no-narrow-activation",
        help="In FP8 training, keep the inputs of activation functions in FP8, as those of linear "
        "layers (the software's, no).",
    )
    narrow_weights: bool | None = flag(
        "--narrow-weights/--no-narrow-weights",
        help="Hold and gather weights in the precision of their products (the software's).",
    )
    rank_order: str | None = option(
        "--rank-order",
        metavar="ORDER|FILE",
        help="Order of rank numbers, the nearest first: tp-dp-pp, or tp-pp-dp with pipelines "
        "inside nodes (tp-cp-ep-dp-pp); or a flowchart of ranks (mmd), which also gives sizes.",
    )

    @cached_property
    def ranks(self) -> RankLayout | None:
        """The layout of ranks of a file; None where the order is named, or left to the software.

        Raises:
            InputError: no order of ranks, and no such file, or one that is not a flowchart of
                ranks.
        """
        from ppsim.workload.model.parallel import RANK_ORDERS

        if self.rank_order is None or self.rank_order in RANK_ORDERS:
            return None
        from ppsim.workload.plans.rank_chart import read_ranks

        if not os.path.exists(self.rank_order):
            known = ", ".join(RANK_ORDERS)
            hint = "tp-pp-dp, or a flowchart of ranks, as ppsim plan ... -o ranks.mmd writes it"
            raise InputError(
                f"not an order of ranks, nor a file: '{self.rank_order}'; expected one of {known}",
                hint,
            )
        return read_ranks(self.rank_order)

    def sizes_of_ranks(self, given: Mapping[str, Any], one: Callable[[int], Any]) -> dict[str, Any]:
        """Return the sizes of a file's ranks that are not given, each as ``one`` makes it of a
        number.

        Raises:
            InputError: one that is given differs.
        """
        found = dict[str, Any]()
        for name, size in self.ranks.sizes.items() if self.ranks else ():
            value = given.get(name)
            if value is not None and size not in (value if isinstance(value, list) else [value]):
                raise InputError(
                    f"'{self.rank_order}' has {name} {size}, and --{name} differs",
                    f"leave out --{name}",
                )
            found[name] = one(size)
        return found

    @cached_property
    def version(self) -> Version:
        """The software (InputError: not in the library)."""
        from ppsim.workload.plans.software import USUAL, read_software

        version = read_software(self.software or USUAL)
        if said := version.assumed_release:
            note(said)
        return version


@dataclass(frozen=True)
class SoftwareOptions(Techniques):
    """Options for the techniques of the run's software."""

    software: str | None = common(
        "--software",
        metavar="NAME[@RELEASE]",
        help="Training software: megatron-lm, megatron-bridge@26.06, nemo, torchtitan, deepspeed "
        "... (megatron-core).",
    )
    post_validation: bool | None = flag(
        "--post-validation/--no-post-validation",
        help="A device's optimizer step waits for no other device, as zero-bubble's (the "
        "software's).",
    )


def parallel_with(
    options: Techniques, precision: str | None, model: Model, gpu: Gpu | None
) -> Parallel:
    """Return the techniques of a run, by options and else by its software; all sizes are 1.

    Raises:
        InputError: unknown software, or a technique of experts for a model that has none, or of
            narrow numbers.
    """
    from ppsim.workload.model.operators import NARROW
    from ppsim.workload.model.parallel import RANK_ORDERS, Parallel
    from ppsim.workload.plans.software import apply

    names = [each.name for each in fields(SoftwareOptions) if each.name != "software"]
    given: dict[str, Any] = {name: getattr(options, name, None) for name in names}
    if options.ranks:
        given["rank_order"] = options.ranks.rank_order
    for name in EXPERTS:
        if given[name] is not None and not model.experts:
            spelt = "--" + name.replace("_", "-")
            raise InputError(
                f"{spelt} needs experts, which {model.name} lacks", f"leave out {spelt}"
            )
    software, order = options.version.software, given["rank_order"]
    if order and RANK_ORDERS[order] not in software.numbers_ranks:
        raise InputError(
            f"{software.name} does not number ranks {order}",
            "megatron-lm does, and what is built on it",
        )
    precision = precision or "bf16"
    for name in ("narrow_activation", "narrow_weights"):
        if given[name] is not None and precision not in NARROW:
            spelt = "--" + name.replace("_", "-")
            raise InputError(
                f"{spelt} needs training in 8 or 4 bits, and this is in {precision}",
                "--precision fp8",
            )
    said = options.version.techniques(gpu, precision, model) | {"precision": precision}
    said.pop("recompute", None)
    stated = {name: value for name, value in given.items() if value is not None}
    otherwise = options.version.by_schedule(gpu, precision, model, {*stated, "recompute"})
    return apply(
        Parallel(pairs_overlap=options.overlap_a2a is not False, by_schedule=otherwise),
        said | stated,
    )
