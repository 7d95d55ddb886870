"""The options that restrict the choices of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import click

from ppsim.ask.options import common, option
from ppsim.ask.types import CountList, Names, Numbers
from ppsim.errors import InputError
from ppsim.prices.software import PRECISIONS

if TYPE_CHECKING:
    from ppsim.workload.hardware.hardware import Machine
    from ppsim.workload.model.model import Model
    from ppsim.workload.model.parallel import Parallel
    from ppsim.workload.plans.space import Axes


@dataclass(frozen=True)
class SpaceOptions:
    """The choices of a plan; an option that is None leaves its choice free."""

    tp: list[int] | None = common(
        "--tp", help="Tensor-parallel ranks: 4,8 (default: powers of 2 inside a node)."
    )
    cp: list[int] | None = option(
        "--cp", help="Context-parallel ranks (default: 1 to 4; from 8,192 tokens on 1 to 16)."
    )
    ep: list[int] | None = common(
        "--ep", help="Expert-parallel ranks (default: all that divide the experts)."
    )
    pp: list[int] | None = common(
        "--pp", help="Pipeline devices (default: all that divide the GPUs)."
    )
    dp: list[int] | None = common(
        "--dp", help="Data-parallel replicas (default: all that divide the GPUs)."
    )
    vp: list[int] | None = common(
        "--vp", help="Chunks of the model on each pipeline device (default: 1 to 12)."
    )
    mbs: list[int] | None = common("--mbs", help="Sequences in a microbatch (default: 1,2,4,8,16).")
    schedules: Names | None = common(
        "--schedules",
        metavar="NAMES",
        help="Schedules to try: 1f1b,zb-v (default: all of ppsim list that can be the fastest).",
    )
    recomputes: Names | None = common(
        "--recomputes",
        metavar="NAMES",
        help="Kinds of recompute to try, of none,selective,full (default: all).",
    )
    recompute_modules: Names | None = option(
        "--recompute-modules",
        metavar="NAMES",
        help="Modules that selective recompute runs again, of "
        "core_attn,layernorm,moe_act,mla_up_proj,mlp,shared_experts,moe (default: core_attn; for "
        "experts with fused kernels layernorm,moe_act,mla_up_proj).",
    )
    layouts: Names | None = option(
        "--layouts",
        metavar="NAMES",
        help="Splits of the layers over stages to try, of even,light-last,light-ends,by-speed,"
        "by-speed-reversed; for a head that takes as long as several layers light-last:2 to "
        "light-last:8, so many fewer on the last stage; for an encoder light-first:1 to "
        "light-first:8 (default: all).",
    )
    zero: list[int] | None = option(
        "--zero",
        type=CountList(),
        help="ZeRO stages to try, of 0,1,2,3 (default: 1; without a pipeline also 3).",
    )
    offload: float | list[float] = option(
        "--offload",
        type=Numbers(),
        default=0.0,
        show_default=False,
        help="Shares of activations to offload to the host: 0,0.5,1 (default: 0).",
    )
    precision: str = option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="bf16",
        help="Precision of the linear layers' products.",
    )
    seq: int | None = common(
        "--seq",
        type=click.IntRange(1, 1 << 24),
        help="Tokens in a sequence (default: the model's).",
    )
    cap: str | None = common(
        "--cap", metavar="SIZE", help="Usable memory of a GPU: 75GiB (default: 94% of its memory)."
    )
    profile: str | None = option(
        "--profile",
        type=click.Path(),
        help="A profile of ppsim calibrate: measured op times instead of the efficiency curve's.",
    )


@dataclass(frozen=True)
class SoftwareFeatures:
    """The features of a software that its plans may use; ``free``: any schedule is allowed."""

    software: str = ""
    schedules: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("tp", "cp", "ep", "pp")
    zero: tuple[int, ...] = (0, 1, 2, 3)
    undivided: tuple[str, ...] = ()  # kinds of the model's layers that allow no tensor parallelism
    free: bool = False

    def runs(self, schedule: str) -> bool:
        """Return True if plans may use a schedule."""
        return self.free or schedule in self.schedules


ANY = SoftwareFeatures(free=True)
KINDS = {"tp": "tensor", "cp": "context", "ep": "expert", "pp": "pipeline"}


def make_axes(
    model: Model,
    machine: Machine,
    space: SpaceOptions,
    base: Parallel,
    features: SoftwareFeatures = ANY,
) -> Axes:
    """Return the choices of a search (its axes), from options and the software's features.

    Raises:
        InputError: a name is unknown, or the software lacks a feature.
    """
    from ppsim.workload.model.parallel import CHEAP, MODULES
    from ppsim.workload.plans.space import BY_SPEED, FITTED, LAYOUTS, RECOMPUTE, Axes

    if space.recompute_modules:
        base = replace(
            base, modules=_names_in_list("recompute-modules", space.recompute_modules, MODULES)
        )
    # fused attention keeps no scores that recompute could free; norms of dense layers are small
    elif base.kernels == "fused" and model.experts:
        base = replace(base, modules=CHEAP)
    offload = _numbers_in_range("offload", space.offload, 1, "--offload 0,0.5")
    return Axes(
        **_sizes(space, features),
        zero=_zero_stages(space, features),
        schedules=_schedules(space, base, features),
        recompute=_names_in_list("recomputes", space.recomputes, RECOMPUTE),
        layouts=_names_in_list(
            "layouts", space.layouts, (*LAYOUTS, *BY_SPEED) if machine.kinds else LAYOUTS
        ),
        offload=tuple(round(100 * share) for share in offload),
        fitted=() if space.schedules else tuple(name for name in FITTED if features.runs(name)),
        base=base,
        joints=tuple(accumulate(kind.gpus for kind in machine.kinds))[:-1],
    )


def _sizes(space: SpaceOptions, features: SoftwareFeatures) -> dict[str, Any]:
    """Return the sizes of each kind of parallelism, chunks and microbatches that plans may have;
    None for any size (InputError: the software lacks a kind of parallelism).
    """
    sizes: dict[str, Any] = {
        name: None if (counts := getattr(space, name)) is None else tuple(sorted(set(counts)))
        for name in ("tp", "cp", "ep", "pp", "dp", "vp", "mbs")
    }
    for name in KINDS.keys() - {*features.groups}:
        if max(sizes[name] or (1,)) > 1:
            raise InputError(
                f"{features.software} has no {KINDS[name]} parallelism", f"--{name} 1, or --any"
            )
        sizes[name] = (1,)
    if features.undivided:
        if max(sizes["tp"] or (1,)) > 1:
            layers = " and ".join(features.undivided)
            raise InputError(
                f"{features.software} has no tensor parallelism for layers of kind {layers}",
                "--tp 1, or --any",
            )
        sizes["tp"] = (1,)
    return sizes


def _zero_stages(space: SpaceOptions, features: SoftwareFeatures) -> tuple[int, ...] | None:
    """Return the ZeRO stages that plans may have; None for any (InputError: the software lacks
    one).
    """
    zero: tuple[int, ...] | None = None if 3 in features.zero else (1,)
    if space.zero:
        zero = _numbers_in_range("zero", [*space.zero], 3, "--zero 1,3")
    if lacked := set(zero or ()) - {*features.zero}:
        raise InputError(
            f"{features.software} has no ZeRO-{min(lacked)}",
            f"--zero {','.join(map(str, features.zero))}, or --any",
        )
    return zero


def _schedules(space: SpaceOptions, base: Parallel, features: SoftwareFeatures) -> tuple[str, ...]:
    """Return the schedules that plans may have.

    Raises:
        InputError: the software lacks one, or one exists to hide all-to-all and
            --no-overlap-a2a forbids that.
    """
    from ppsim.workload.plans.space import NEED_EXPERTS, SCHEDULES

    if not space.schedules:
        return tuple(name for name in SCHEDULES if features.runs(name))
    from ppsim.schedules import find

    named = tuple(dict.fromkeys(find(name.strip()).name for name in space.schedules.split(",")))
    if lacked := [name for name in named if not features.runs(name)]:
        runs = ",".join(features.schedules)
        raise InputError(
            f"{features.software} has no schedule {' or '.join(lacked)}", f"one of {runs}, or --any"
        )
    pairs = [name for name in named if name in NEED_EXPERTS]
    if pairs and not base.pairs_overlap:
        raise InputError(
            f"{pairs[0]} pairs ops to hide all-to-all, which --no-overlap-a2a forbids",
            "leave out --no-overlap-a2a",
        )
    return named


def _numbers_in_range(
    option: str, numbers: float | list[float], most: int, sample: str
) -> tuple[Any, ...]:
    """Return an option's numbers, sorted and each once (InputError: one is not 0 to ``most``)."""
    listed = numbers if isinstance(numbers, list) else [numbers]
    if wrong := [number for number in listed if not 0 <= number <= most]:
        raise InputError(f"--{option} {wrong[0]:g} is not from 0 to {most}", sample)
    return tuple(sorted(set(listed)))


def _names_in_list(option: str, text: str | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names that an option lists; all known ones if not given (InputError: unknown)."""
    if text is None:
        return tuple(known)
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if wrong := [name for name in names if name not in known]:
        raise InputError(f"--{option}: unknown name '{wrong[0]}'", f"one of {','.join(known)}")
    return names


def use_profile_of(
    space: SpaceOptions, machine: Machine, model: Model, parallel: Parallel
) -> Machine:
    """Return the machine with the op times of --profile instead of its efficiency curve.

    Raises:
        InputError: the profile is of another model or machine; or it has times of whole stages,
            and the options do not fix the sizes that it was measured with.
    """
    if space.profile is None:
        return machine
    if machine.kinds:
        raise InputError(
            f"a profile has times of one kind of GPU, and the cluster is {machine.title}",
            "leave out the profile",
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
                f"'{space.profile}' has times of whole stages, which were measured with one size "
                f"of each group",
                "give the sizes it was measured with: --tp 4 --cp 1 --mbs 1 --recomputes none"
                + (" --ep 8" if model.experts else ""),
            )
        numbers = {name: counts[0] for name, counts in sizes.items() if counts}
        parallel = replace(parallel, **numbers, dp=numbers.get("ep", 1), recompute=recompute)
    return use_profile(machine, profile, space.profile, model, parallel, by_stage=False)
