"""The options that restrict the choices of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.options import common, option
from ppsim.ask.types import CountList, Numbers
from ppsim.errors import InputError
from ppsim.prices.software import PRECISIONS

if TYPE_CHECKING:
    from ppsim.workload.hardware.hardware import Machine
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.plans.space import Axes


@dataclass(frozen=True)
class SpaceOptions:
    """The choices of a plan; None leaves one free."""

    tp: list[int] | None = common(
        "--tp", help="Tensor-parallel ranks: 4,8 (any power of 2 inside a node)."
    )
    cp: list[int] | None = option(
        "--cp", help="Context-parallel ranks (1 to 4; to 16 from 8,192 tokens on)."
    )
    ep: list[int] | None = common(
        "--ep", help="Expert-parallel ranks (all that divide the experts)."
    )
    pp: list[int] | None = common("--pp", help="Pipeline devices (all that divide the GPUs).")
    dp: list[int] | None = common("--dp", help="Data-parallel replicas (all that divide the GPUs).")
    vp: list[int] | None = common(
        "--vp", help="Chunks of the model on each pipeline device (1 to 12)."
    )
    mbs: list[int] | None = common("--mbs", help="Sequences in a microbatch (1,2,4,8,16).")
    schedules: str | None = common(
        "--schedules",
        metavar="NAMES",
        help="Schedules with commas between (those of ppsim list that pay).",
    )
    recomputes: str | None = common(
        "--recomputes", metavar="NAMES", help="Of none,selective,full (all)."
    )
    recompute_modules: str | None = option(
        "--recompute-modules",
        metavar="NAMES",
        help="What selective runs again: "
        "core_attn,layernorm,moe_act,mla_up_proj,mlp,shared_experts,moe (the first; of "
        "experts with fused kernels the second to the fourth).",
    )
    layouts: str | None = option(
        "--layouts",
        metavar="NAMES",
        help="Layers per stage: of even,light-last,light-ends,by-speed,by-speed-reversed (all).",
    )
    zero: list[int] | None = option(
        "--zero", type=CountList(), help="Stages of ZeRO, of 0,1,2,3 (1; without a pipeline 3 too)."
    )
    offload: float | list[float] = option(
        "--offload",
        type=Numbers(),
        default=0.0,
        show_default=False,
        help="Shares of activations that wait on the host (0): 0,0.5,1.",
    )
    precision: str = option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="bf16",
        help="Precision of the linear layers' products.",
    )
    seq: int | None = common(
        "--seq", type=click.IntRange(1, 1 << 24), help="Tokens in a sequence (the model's)."
    )
    cap: str | None = common(
        "--cap", metavar="SIZE", help="Memory of a GPU for training (94% of its own): 75GiB."
    )
    profile: str | None = option(
        "--profile",
        type=click.Path(),
        help="Measured op times instead of the curve's (ppsim calibrate).",
    )


@dataclass(frozen=True)
class SoftwareFeatures:
    """The features of a software, for plans of it; ``free``: plans may have any schedule."""

    software: str = ""
    schedules: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("tp", "cp", "ep", "pp")
    zero: tuple[int, ...] = (0, 1, 2, 3)
    undivided: tuple[str, ...] = ()  # kinds of the model's layers that allow no tensor parallelism
    free: bool = False

    def runs(self, schedule: str) -> bool:
        """Return whether plans may have a schedule."""
        return self.free or schedule in self.schedules


ANY = SoftwareFeatures(free=True)
KINDS = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline"}


def make_axes(
    model: Model,
    machine: Machine,
    space: SpaceOptions,
    base: Parallel,
    able: SoftwareFeatures = ANY,
) -> Axes:
    """Make the axes of a search from options, within the software's features.

    Raises:
        InputError: an unknown name, or a feature that the software lacks.
    """
    from ppsim.workload.model.parallel import CHEAP, MODULES
    from ppsim.workload.plans.space import BY_SPEED, FITTED, LAYOUTS, RECOMPUTE, Axes

    if space.recompute_modules:
        base = replace(
            base, modules=_names_in_list("recompute-modules", space.recompute_modules, MODULES)
        )
    # attention has no scores to free; of dense layers norms are little
    elif base.kernels == "fused" and model.experts:
        base = replace(base, modules=CHEAP)
    offload = _checked_range("offload", space.offload, 1, "--offload 0,0.5")
    return Axes(
        **_sizes(space, able),
        zero=_shards(space, able),
        schedules=_schedules(space, base, able),
        recompute=_names_in_list("recomputes", space.recomputes, RECOMPUTE),
        layouts=_names_in_list(
            "layouts", space.layouts, (*LAYOUTS, *BY_SPEED) if machine.kinds else LAYOUTS
        ),
        offload=tuple(round(100 * share) for share in offload),
        fitted=() if space.schedules else tuple(name for name in FITTED if able.runs(name)),
        base=base,
        joints=tuple(accumulate(kind.gpus for kind in machine.kinds))[:-1],
    )


def _sizes(space: SpaceOptions, able: SoftwareFeatures) -> dict[str, Any]:
    """Return the ranks of each kind of parallelism, chunks and microbatches that plans may have;
    None for any (InputError: the software has no such parallelism).
    """
    sizes: dict[str, Any] = {
        name: None if (counts := getattr(space, name)) is None else tuple(sorted(set(counts)))
        for name in ("tp", "cp", "ep", "pp", "dp", "vp", "mbs")
    }
    for name in KINDS.keys() - {*able.groups}:
        if max(sizes[name] or (1,)) > 1:
            raise InputError(
                f"{able.software} has no {KINDS[name]} parallelism", f"--{name} 1, or --any"
            )
        sizes[name] = (1,)
    if able.undivided:
        if max(sizes["tp"] or (1,)) > 1:
            layers = " and ".join(able.undivided)
            raise InputError(
                f"{able.software} has no tensor parallelism for layers of kind {layers}",
                "--tp 1, or --any",
            )
        sizes["tp"] = (1,)
    return sizes


def _shards(space: SpaceOptions, able: SoftwareFeatures) -> tuple[int, ...] | None:
    """Return the ZeRO stages that plans may have; None for any (InputError: the software has no
    such stage).
    """
    zero: tuple[int, ...] | None = None if 3 in able.zero else (1,)
    if space.zero:
        zero = _checked_range("zero", [*space.zero], 3, "--zero 1,3")
    if lacks := set(zero or ()) - {*able.zero}:
        raise InputError(
            f"{able.software} has no ZeRO-{min(lacks)}",
            f"--zero {','.join(map(str, able.zero))}, or --any",
        )
    return zero


def _schedules(space: SpaceOptions, base: Parallel, able: SoftwareFeatures) -> tuple[str, ...]:
    """Return the schedules that plans may have (InputError: the software does not run one, or one
    hides all-to-all where that is forbidden).
    """
    from ppsim.workload.plans.space import NEED_EXPERTS, SCHEDULES

    if not space.schedules:
        return tuple(name for name in SCHEDULES if able.runs(name))
    from ppsim.schedules import find

    named = tuple(dict.fromkeys(find(name.strip()).name for name in space.schedules.split(",")))
    if lacked := [name for name in named if not able.runs(name)]:
        has = ",".join(able.schedules)
        raise InputError(
            f"{able.software} has no schedule {' or '.join(lacked)}", f"of {has}, or --any"
        )
    pairs = [name for name in named if name in NEED_EXPERTS]
    if pairs and not base.pairs_overlap:
        raise InputError(
            f"{pairs[0]} is made to hide all-to-all, which is forbidden",
            "leave out --no-overlap-a2a",
        )
    return named


def _checked_range(
    option: str, numbers: float | list[float], most: int, sample: str
) -> tuple[Any, ...]:
    listed = numbers if isinstance(numbers, list) else [numbers]
    if wrong := [number for number in listed if not 0 <= number <= most]:
        raise InputError(f"--{option} {wrong[0]:g} is not 0 to {most}", sample)
    return tuple(sorted(set(listed)))


def _names_in_list(option: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    if text is None:
        return tuple(known)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if wrong := [name for name in names if name not in known]:
        raise InputError(f"--{option} knows no '{wrong[0]}'", f"of {','.join(known)}")
    return names


def use_profile_of(
    space: SpaceOptions, machine: Machine, model: Model, parallel: Parallel
) -> Machine:
    """Put the op times of --profile in the place of the machine's efficiency curve.

    Raises:
        InputError: the profile says nothing of this model on this machine, or it is of whole
            stages, whose sizes must be as they were measured, and the options leave them free.
    """
    if space.profile is None:
        return machine
    if machine.kinds:
        raise InputError(
            f"a profile is of one GPU, and the cluster is {machine.title}", "leave out the profile"
        )
    from ppsim.inputs.profile.profile import read
    from ppsim.workload.cost.calibrated import use_profile

    profile = read(space.profile)
    if profile.model is None:
        sizes = {name: getattr(space, name) or [] for name in ("tp", "cp", "ep", "mbs")}
        free = [
            name
            for name, counts in sizes.items()
            if len(counts) != 1 and (name != "ep" or model.experts)
        ]
        recompute = (space.recomputes or "").strip()
        if free or recompute not in ("none", "selective", "full"):
            raise InputError(
                f"'{space.profile}' has times of whole stages, measured with one size "
                f"of each group",
                "give the sizes it was measured with: --tp 4 --cp 1 --mbs 1 --recomputes none"
                + (" --ep 8" if model.experts else ""),
            )
        numbers = {name: counts[0] for name, counts in sizes.items() if counts}
        parallel = replace(parallel, **numbers, dp=numbers.get("ep", 1), recompute=recompute)
    return use_profile(machine, profile, space.profile, model, parallel, by_stage=False)
