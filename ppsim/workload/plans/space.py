"""The search space of plans: all valid ways to train a model on a number of GPUs, as candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ppsim.core.ops import Kind
from ppsim.core.schedule import place
from ppsim.errors import InputError, PpsimError
from ppsim.schedules import families, find
from ppsim.workload.cost.costs import schedule_of
from ppsim.workload.cost.memory import held_stages
from ppsim.workload.layout.layout import Layout, build_layout
from ppsim.workload.model.contents import StageContent, contents_of_layout, split_layers
from ppsim.workload.model.model import Model, flops_per_token
from ppsim.workload.model.parallel import Parallel

SCHEDULES = (
    "gpipe",
    "1f1b",
    "interleaved",
    "looped-bfs",
    "hanayo",
    "zb-1p",
    "zb-h2",
    "interleaved-zb",
    "zb-v-torch",
    "v-half",
    "v-min",
    "dualpipe-v",
    "chimera",
    "dualpipe",
    "bitpipe",
    "1f1b-overlap",
    "interleaved-overlap",
)
FITTED = ("zb-auto", "zb-2p", "zb-v", "v-auto")  # schedules ordered by costs
TWO_REPLICAS = frozenset(f.name for f in families() if f.placement.startswith("bidirectional"))
RECOMPUTE = ("none", "selective", "full")
# schedules of pairs of F and B, which hide all-to-all
PAIRS = ("dualpipe", "dualpipe-v", "1f1b-overlap", "interleaved-overlap")
# schedules that are only slower if there is no all-to-all to hide
NEED_EXPERTS = ("1f1b-overlap", "interleaved-overlap")
# light-last:3 is three layers less on the last stage, only for a head that takes as long as
# several; light-first:3 on the first, for an encoder
MOST_LIGHTER = 8
LAYOUTS = (
    *("even", "light-last", "light-ends"),
    *(f"light-last:{fewer}" for fewer in range(2, MOST_LIGHTER + 1)),
    *(f"light-first:{fewer}" for fewer in range(1, MOST_LIGHTER + 1)),
)
HEAVY = 1.5  # layers that a head or an encoder counts as at least to be heavy
# layouts of mixed clusters, with more layers on faster devices
BY_SPEED = ("by-speed", "by-speed-reversed")
EIGHTHS = range(1, 8)  # shares of a stage's layers that recompute in full, other than all
MOST_CHUNKS = 12
MOST_CP = 16
MOST_MBS = 16
# numbers of GPUs to try for a hint, above and below one without candidates, in steps of the
# product of the fixed sizes
NEAR = 64


@dataclass(frozen=True)
class Axes:
    """The choices of a plan; None leaves an axis free.

    Attributes:
        tp: tensor-parallel ranks.
        cp: context-parallel ranks.
        ep: expert-parallel ranks.
        pp: pipeline devices.
        dp: data-parallel replicas.
        vp: chunks of the model per device.
        mbs: sequences in a microbatch.
        schedules: names in the registry.
        recompute: none, selective, full; full includes shares of a stage's layers.
        layouts: even; light-last (a layer less on the last stage); light-ends (a layer less on the
            first and the last stage); light-last:2 and so on for a heavy head, light-first:1 and so
            on for a heavy encoder; in a mixed cluster by-speed and by-speed-reversed, with the
            kinds of nodes in the order of the cluster or reversed.
        zero: stages of ZeRO; None takes 1, and without a pipeline also 3.
        offload: percentages of activations that wait on the host.
        fitted: names of schedules ordered by costs, tried only for the fastest plans of their
            placement.
        base: the settings that all candidates share.
        joints: first ranks of the second and further kinds of nodes; tensor, context and expert
            groups must not span two kinds.
    """

    tp: tuple[int, ...] | None = None
    cp: tuple[int, ...] | None = None
    ep: tuple[int, ...] | None = None
    pp: tuple[int, ...] | None = None
    dp: tuple[int, ...] | None = None
    vp: tuple[int, ...] | None = None
    mbs: tuple[int, ...] | None = None
    schedules: tuple[str, ...] = SCHEDULES
    recompute: tuple[str, ...] = RECOMPUTE
    layouts: tuple[str, ...] = LAYOUTS
    zero: tuple[int, ...] | None = None
    offload: tuple[int, ...] = (0,)
    fitted: tuple[str, ...] = FITTED
    base: Parallel = field(default_factory=Parallel)
    joints: tuple[int, ...] = ()


def cuts_sequences(schedule: str) -> bool:
    """Return True if a plan's schedule cuts sequences into slices; '' is a plan without one."""
    return bool(schedule) and find(schedule).cuts_sequences


@lru_cache(maxsize=256)
def with_techniques(
    base: Parallel, paired: bool, zero: int, offload: int, schedule: str = ""
) -> Parallel:
    """Return settings with ZeRO, offload, and the software's exceptions for a schedule.

    ``paired`` tells whether the schedule has pairs of F and B that may hide all-to-all.
    """
    base = base.for_schedule(schedule)
    hides = base.overlap_ep or (paired and base.pairs_overlap)
    return replace(base, overlap_ep=hides, zero=zero, offload=offload / 100)


class Group(NamedTuple):
    """Sizes that some candidates share; they determine the work of a layer."""

    tp: int
    cp: int
    ep: int
    pp: int
    dp: int
    mbs: int
    microbatches: int


class Candidate(NamedTuple):
    """One way to train a model.

    Attributes:
        group: the sizes.
        vp: chunks of the model per device.
        schedule: the schedule's name, '' without a pipeline.
        recompute: none, selective or full.
        layers: layers of each stage that recompute; -1: all.
        layout: name of the layout.
        zero: stage of ZeRO.
        offload: percentage of activations that wait on the host.
    """

    group: Group
    vp: int
    schedule: str
    recompute: str
    layers: int
    layout: str
    zero: int
    offload: int

    @property
    def key(self) -> str:
        """The candidate as text, for :func:`read_key`."""
        return "/".join(map(str, (*self.group, *self[1:])))

    @property
    def is_ordered_by_costs(self) -> bool:
        """Whether its queues are ordered by costs."""
        return self.schedule in FITTED

    @property
    def runs_pairs(self) -> bool:
        """Whether its schedule has pairs of F and B, and there is an all-to-all to hide."""
        return self.schedule in PAIRS and self.group.ep > 1

    def parallel(self, base: Parallel) -> Parallel:
        """Return the settings of a run: the candidate's, and those of ``base`` for the rest."""
        g = self.group
        return replace(
            with_techniques(base, self.runs_pairs, self.zero, self.offload, self.schedule),
            tp=g.tp,
            cp=g.cp,
            ep=g.ep,
            pp=g.pp,
            dp=g.dp,
            mbs=g.mbs,
            microbatches=g.microbatches,
            vp=self.vp,
            schedule=self.schedule if g.pp > 1 else "",
            recompute=self.recompute,
            recompute_layers=None if self.layers < 0 else self.layers,
        )


def read_key(key: str) -> Candidate:
    """Return the candidate of a key."""
    *numbers, vp, schedule, recompute, layers, layout, zero, offload = key.split("/")
    group = Group(*map(int, numbers))
    return Candidate(
        group, int(vp), schedule, recompute, int(layers), layout, int(zero), int(offload)
    )


def check_axes(model: Model, per_node: int, gpus: int, gbs: int, axes: Axes) -> None:
    """Refuse axes without a candidate.

    Raises:
        InputError: there are no GPUs, no number of replicas divides the batch, or the fixed axes
            exclude all candidates.
    """
    if gpus < 1 or gbs < 1:
        raise InputError(
            "a plan needs at least one GPU and one sequence in a batch", "--gpus 64 --gbs 256"
        )
    if any(groups(model, per_node, gpus, gbs, axes)):
        return
    fixed = ", ".join(
        f"{name} {'/'.join(map(str, v))}"
        for name in SIZES
        if (v := getattr(axes, name)) is not None
    )
    if axes.base.pipeline_first:
        least = "tp x cp = ep" if model.experts else "cp = 1"
        fixed += (
            f"{', ' * bool(fixed)}ranks in the order {axes.base.rank_order}, which requires "
            f"{least} with a pipeline"
        )
    # All numbers of replicas divide a batch of as many sequences as GPUs.
    replicas = sorted(
        {group.dp for group in groups(model, per_node, gpus, gpus, replace(axes, mbs=None))}
    )
    indivisible = [f"dp {dp}" for dp in replicas if gbs % dp]
    raise InputError(
        f"no way to train {model.name or 'the model'} ({model.layers} layers, {model.heads} "
        f"heads) on {gpus:,} GPUs with {gbs:,} sequences a step"
        + (f" and {fixed}" if fixed else "")
        + (
            f": {' and '.join(indivisible[:3])} "
            f"{'does' if len(indivisible) == 1 else 'do'} not divide {gbs:,}"
            if indivisible
            else ""
        ),
        _alternatives_hint(model, per_node, gpus, gbs, axes),
    )


SIZES = ("tp", "cp", "ep", "pp", "dp", "mbs")


def _alternatives_hint(model: Model, per_node: int, gpus: int, gbs: int, axes: Axes) -> str:
    """Return a hint with options that have candidates: a batch, a number of GPUs, a free axis."""

    def has_candidates(gpus: int, gbs: int, axes: Axes) -> bool:
        return any(groups(model, per_node, gpus, gbs, axes))

    each = min(axes.mbs or (1,))
    batches = sorted({-(-gbs // (dp * each)) * dp * each for dp in divisors(gpus)})
    found = [f"--gbs {batch}" for batch in batches if has_candidates(gpus, batch, axes)][:1]
    unit = prod(min(sizes) for sizes in (axes.tp, axes.cp, axes.pp) if sizes)
    near = {max(gpus // unit + step, 1) * unit for step in range(-NEAR, NEAR + 1)}
    found += [
        f"--gpus {n}"
        for n in sorted(near, key=lambda n: abs(n - gpus))
        if has_candidates(n, gbs, axes)
    ][:1]
    for free in SIZES:
        freed: Any = {free: None}
        if getattr(axes, free) is not None and has_candidates(gpus, gbs, replace(axes, **freed)):
            found.append(f"leave out --{free}")
    if axes.base.pipeline_first and has_candidates(gpus, gbs, replace(axes, base=Parallel())):
        found.append("leave out --rank-order")
    return ", or ".join(found) or "another --gpus"


def groups(model: Model, per_node: int, gpus: int, gbs: int, axes: Axes) -> Iterator[Group]:
    """Yield sizes whose product is the GPUs and that divide heads, experts, sequences and batch."""
    for tp in axes.tp or _powers(min(per_node, gpus)):
        if gpus % tp or model.heads % tp or (model.kv_heads % tp and tp % model.kv_heads):
            continue
        for cp in axes.cp or _powers(MOST_CP if model.seq >= 8192 else 4):
            if (gpus // tp) % cp or (cp > 1 and model.seq % (2 * cp)):
                continue
            for pp in axes.pp or divisors(gpus // tp // cp):
                if (gpus // tp // cp) % pp or pp > model.layers + 2:
                    continue
                dp = gpus // tp // cp // pp
                if gbs % dp or (axes.dp and dp not in axes.dp):
                    continue
                for ep in axes.ep or (divisors(model.experts) if model.experts else (1,)):
                    if (dp * cp * tp) % ep or (
                        ep > 1 and (not model.experts or model.experts % ep)
                    ):
                        continue
                    if (
                        axes.base.pipeline_first
                        and pp > 1
                        and tp * cp != (ep if model.experts else tp)
                    ):
                        # Megatron-LM then needs as many replicas of experts as of other layers
                        continue
                    if any(joint % (tp * cp) or joint % ep for joint in axes.joints):
                        continue
                    for mbs in axes.mbs or _powers(MOST_MBS):
                        if (gbs // dp) % mbs == 0:
                            yield Group(tp, cp, ep, pp, dp, mbs, gbs // dp // mbs)


def members(model: Model, group: Group, axes: Axes) -> Iterator[Candidate]:
    """Yield the candidates of a group: chunks, schedules, recompute, layouts, ZeRO, offload."""
    zeros = axes.zero or ((1, 3) if group.pp == 1 else (1,))
    zeros = zeros if group.dp * group.cp > 1 else zeros[:1]  # one rank has nothing to divide
    for vp, schedule in _pipelines(model.layers, group.pp, axes):
        if schedule in NEED_EXPERTS and (group.ep == 1 or not axes.base.pairs_overlap):
            continue
        stages = group.pp * vp
        least = model.layers // stages
        names = axes.layouts if group.pp > 1 else axes.layouts[:1]
        layouts = _possible_layouts(model, stages, names)
        for recompute in axes.recompute:
            counts = [-1]
            if recompute == "full":
                counts += sorted({least * part // 8 for part in EIGHTHS} - {0, least})
            for layers in counts:
                for layout in layouts:
                    if layout in BY_SPEED and (
                        schedule in TWO_REPLICAS or layers > 0 or stages > model.layers
                    ):
                        # by-speed does not support two stages per device, a number of recomputed
                        # layers, or stages without layers
                        continue
                    for zero, offload in product(zeros, axes.offload):
                        yield Candidate(
                            group, vp, schedule, recompute, layers, layout, zero, offload
                        )


@lru_cache(maxsize=65536)
def _possible_layouts(model: Model, stages: int, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the layouts that are possible for a number of stages, and differ."""
    return tuple(name for name in names if layout_layers(model, stages, name) is not None)


@lru_cache(maxsize=4096)
def _pipelines(layers: int, pp: int, axes: Axes) -> tuple[tuple[int, str], ...]:
    """Return the pairs of chunks and schedule for a number of devices."""
    if pp == 1:
        return ((1, ""),) if axes.vp is None or 1 in axes.vp else ()
    found = []
    for name in axes.schedules:
        family = find(name)
        if family.placement in ("linear", "bidirectional"):
            chunks: tuple[int, ...] = (1,)
        elif family.placement in ("v", "bidirectional-v"):
            chunks = (2,) if name != "hanayo" else (2, 4)
        else:
            every = tuple(v for v in range(2, MOST_CHUNKS + 1) if pp * v <= layers + 2)
            # Megatron-LM divides layers evenly, with or without counting embedding and output.
            even = tuple(v for v in every if layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0)
            chunks = even if even and axes.vp is None else every
        found += [
            (v, name) for v in chunks if (axes.vp is None or v in axes.vp) and pp * v <= layers + 2
        ]
    return tuple(found)


@lru_cache(maxsize=65536)
def layout_layers(model: Model, stages: int, layout: str) -> tuple[int, ...] | None:
    """Return the layers of each stage by a layout's name.

    None if the layout is not possible or equals another one. Layouts by speed are even here; see
    :mod:`ppsim.workload.plans.layers_by_speed`.
    """
    if model.layers % stages == 0:
        even: tuple[int, ...] = (model.layers // stages,) * stages
    else:
        try:
            even = split_layers(model, stages)
        except InputError:
            return None
    if layout in ("even", *BY_SPEED):
        return even if min(even[1:-1], default=1) > 0 else None
    if min(even[1:-1], default=1) > 0 and any(fewer := _fewer(model, even, layout)):
        return _with_light_ends(model, even, *fewer)
    # if layers do not divide, the even layout already has light ends
    if ":" in layout or model.layers % stages or stages < 4 or even[0] < 2:
        return None
    split = list(even)
    light = [stages - 1] if layout == "light-last" else [0, stages - 1]
    for number, end in enumerate(light):
        split[end] -= 1
        split[(stages - len(light)) // 2 + number] += 1
    return tuple(split)


def _fewer(model: Model, even: tuple[int, ...], layout: str) -> tuple[int, int]:
    """Return how many layers less than in the even layout the first and the last stage have.

    At most as many as the encoder and the head count as, without those that the even layout has
    less there already; none where neither is heavy. With a light first stage the last one has the
    layers that a heavy head leaves it.
    """
    name, _, number = layout.partition(":")
    fewer, stages, most = int(number or 1), len(even), max(even)
    first, last = encoder_layers(model), head_layers(model)
    if stages > 1 and name == "light-last" and last >= HEAVY:
        return (0, fewer) if fewer <= min(even[-1], round(last) - (most - even[-1])) else (0, 0)
    if stages > 1 and name == "light-first" and first >= HEAVY:
        if fewer > min(even[0], round(first) - (most - even[0])):
            return 0, 0
        left = max(round((model.layers + first + last) / stages - last), 0)
        return fewer, max(even[-1] - left, 0) if stages > 2 and last >= HEAVY else 0
    return 0, 0


def _with_light_ends(model: Model, even: tuple[int, ...], first: int, last: int) -> tuple[int, ...]:
    """Return a layout with fewer layers on the first and the last stage.

    They go one by one to the other stage that has least, encoder and head included; of equal ones
    to the nearest to the middle.
    """
    split, middle = list(even), (len(even) - 1) / 2
    split[0] -= first
    split[-1] -= last
    load = np.array(split, np.float64)
    load[0] += encoder_layers(model)
    load[-1] += head_layers(model)
    others = range(first > 0, len(even) - (last > 0))
    for _ in range(first + last):
        least = min(others, key=lambda s: (load[s], abs(s - middle)))
        split[least] += 1
        load[least] += 1
    return tuple(split)


@lru_cache(maxsize=64)
def head_layers(model: Model) -> float:
    """Return the layers whose FLOPs the last stage has besides its layers: those of the head, and
    of multi-token prediction with its heads.
    """
    return _head_flops(model) / _layer_flops(model) + model.mtp


@lru_cache(maxsize=64)
def encoder_layers(model: Model) -> float:
    """Return the layers whose FLOPs the encoder in front of them has; 0 without one."""
    plain = flops_per_token(replace(model, encoder=None))
    return (flops_per_token(model) - plain) / _layer_flops(model)


def _head_flops(model: Model) -> float:
    """Return the FLOPs of training on one token in all heads."""
    return 6.0 * (1 + model.mtp) * model.vocab * model.hidden


def _layer_flops(model: Model) -> float:
    """Return the FLOPs of training on one token in a mean layer."""
    plain = flops_per_token(replace(model, encoder=None))
    return (plain - _head_flops(model)) / (model.layers + model.mtp)


def layout_of(model: Model, candidate: Candidate) -> Layout:
    """Return the layout of a candidate."""
    return _build(model, candidate.group.pp, candidate.vp, candidate.layout)


@lru_cache(maxsize=4096)
def _build(model: Model, pp: int, vp: int, layout: str) -> Layout:
    split = layout_layers(model, pp * vp, layout)
    assert split is not None
    return build_layout(list(split), pp, model.mtp)


@lru_cache(maxsize=65536)
def stage_contents(
    model: Model, pp: int, vp: int, layout: str, recompute: str, layers: int
) -> tuple[tuple[StageContent, ...], NDArray[np.intp]]:
    """Return the different contents of a candidate's stages, and the index of each stage's one."""
    recomputed = None if layers < 0 else layers
    contents = contents_of_layout(
        model, _build(model, pp, vp, layout), 0 if recompute == "none" else recomputed
    )
    indices = {content: index for index, content in enumerate(dict.fromkeys(contents))}
    return tuple(indices), np.array([indices[content] for content in contents])


# Shares of activations that W needs, for which the peak of a device is found: typical of models
# that keep attention's scores, of attention in one kernel, and of layers that recompute.
KEPT = (0.4, 0.95, 16.0)


class HeldAtLeast(NamedTuple):
    """Activations held in a run with few microbatches, a lower bound for a run with many.

    Attributes:
        owners: shape (stages, devices), replicas of a stage on each device.
        counts: shape (moments, devices, stages), microbatches with all activations at a moment.
        pending: shape (moments, devices, stages), other microbatches with those that W needs.
        at_work: shape (moments, devices), the stage whose backward runs then, or -1.
        slices: slices of a sequence; a backward works on one of them.
    """

    owners: NDArray[np.float64]
    counts: NDArray[np.float64]
    pending: NDArray[np.float64]
    at_work: NDArray[np.intp]
    slices: int = 1


@lru_cache(maxsize=16384)
def least_memory(schedule: str, pp: int, vp: int, microbatches: int) -> HeldAtLeast | None:
    """Return the activations that each device holds at least, for stages of any size.

    None if the schedule refuses the shape.
    """
    if pp == 1:
        return HeldAtLeast(
            np.ones((1, 1)), np.ones((1, 1, 1)), np.zeros((1, 1, 1)), np.zeros((1, 1), np.intp)
        )
    family = find(schedule)
    try:
        made = None if family.uses_costs else schedule_of(schedule, pp, vp, microbatches)
    except PpsimError:
        return None
    devices = place(family.placement, pp, pp * vp).devices
    owners = sum((np.eye(pp)[replica] for replica in devices), np.zeros((pp * vp, pp)))
    if made is None:  # without queues: every stage holds a microbatch before its first backward
        return HeldAtLeast(owners, owners.T[None], np.zeros((1, pp, pp * vp)), np.full((1, pp), -1))
    shares = KEPT if (made.kind == Kind.W).any() else KEPT[:1]
    each = [held_stages(made, share) for share in shares]
    counts, pending, at_work = (np.array(part) for part in zip(*each, strict=True))
    return HeldAtLeast(owners, counts, pending, at_work, made.n_slices)


def short_run(pp: int, microbatches: int) -> int:
    """Return the microbatches of a short run with the same memory: at most two per device."""
    return min(microbatches, 2 * pp)


def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, ascending."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return tuple(low) + tuple(number // n for n in reversed(low) if n * n != number)


def _powers(most: int) -> tuple[int, ...]:
    """Return the powers of two up to ``most``."""
    return tuple(1 << k for k in range(max(most, 1).bit_length()))
