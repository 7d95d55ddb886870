"""The space of plans, by brute force: every size that divides, schedules by their placement, bounds
below all of it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

from ppsim.core.schedule import place
from ppsim.errors import InputError, PpsimError
from ppsim.schedules import find
from ppsim.workload.cost.costs import schedule_of, stage_costs, step_time
from ppsim.workload.cost.memory import StageMemory, device_memory, held_at_peaks
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import Encoder, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans import search as search_module
from ppsim.workload.plans.bounds import (
    GroupBounds,
    bound_candidates,
    least_seconds,
    list_candidates,
)
from ppsim.workload.plans.search import (
    Evaluate,
    _limit,
    _split_beaten,
    best_of,
    gpus_that_fit,
    make_row,
    search,
)
from ppsim.workload.plans.space import (
    FITTED,
    SCHEDULES,
    Axes,
    Group,
    check_axes,
    encoder_layers,
    groups,
    head_layers,
    layout_layers,
    layout_of,
    least_memory,
    members,
    read_key,
    short_run,
    with_techniques,
)
from ppsim.workload.plans.task import HELD, STAGES, STATES, Findings, Task, usable_bytes
from tests.cases import EVERY

MACHINE = read_machine("dgx-h100")
DENSE = replace(read_model("llama3-8b"), seq=2048, layers=8)
MIXED = replace(read_model("mixtral-8x7b"), seq=2048, layers=6, kv_heads=4)


def by_hand(model, gpus, gbs, axes):
    """All numbers in ranges, and then what divides: heads over tp, sequences over 2 cp, ranks,
    experts and batches.
    """
    many = range(1, gpus + 1)
    powers = [1, 2, 4, 8, 16]
    for tp, cp, pp, dp, ep, mbs in product(powers[:4], powers[:3], many, many, many, powers):
        if tp * cp * pp * dp != gpus or gbs % (dp * mbs) or pp > model.layers + 2:
            continue
        groups_fit = model.kv_heads % tp == 0 or tp % model.kv_heads == 0
        if model.heads % tp or not groups_fit or (cp > 1 and model.seq % (2 * cp)):
            continue
        if (dp * cp * tp) % ep or (model.experts % ep if model.experts else ep > 1):
            continue
        found = {"tp": tp, "cp": cp, "pp": pp, "ep": ep, "mbs": mbs}
        if all(
            getattr(axes, name) is None or value in getattr(axes, name)
            for name, value in found.items()
        ):
            yield Group(tp, cp, ep, pp, dp, mbs, gbs // dp // mbs)


@pytest.mark.parametrize(
    ("model", "gpus", "gbs", "axes"),
    [
        (DENSE, 8, 8, Axes()),
        (DENSE, 12, 24, Axes()),
        (DENSE, 8, 12, Axes(ep=(1, 2))),
        (replace(DENSE, seq=2050), 16, 16, Axes(mbs=(2,))),
        (replace(DENSE, seq=2052), 16, 16, Axes(mbs=(1, 4), pp=(1, 2, 3))),
        (replace(DENSE, heads=12, kv_heads=6, head_dim=128), 16, 16, Axes(cp=(1, 2))),
        (MIXED, 16, 16, Axes()),
        (MIXED, 16, 32, Axes(tp=(2, 4), ep=(3, 4, 8))),
        (MIXED, 12, 12, Axes(ep=(1, 3, 4))),
    ],
)
def test_groups_are_all_that_divide(model, gpus, gbs, axes):
    found = list(groups(model, 8, gpus, gbs, axes))
    assert len(found) == len(set(found)) > 0
    assert set(found) == set(by_hand(model, gpus, gbs, axes))


def test_tensor_ranks_stay_in_a_node_and_context_ranks_are_few_for_short_sequences():
    assert max(g.tp for g in groups(DENSE, 4, 16, 16, Axes())) == 4
    assert max(g.tp for g in groups(DENSE, 8, 4, 16, Axes())) == 4
    assert max(g.cp for g in groups(DENSE, 8, 64, 16, Axes())) == 4
    assert max(g.cp for g in groups(replace(DENSE, seq=8192), 8, 64, 16, Axes())) == 16
    assert max(g.mbs for g in groups(DENSE, 8, 1, 64, Axes())) == 16


def test_ends_may_have_stages_of_their_own():
    """Embedding and output count as a layer each: eight layers divide over ten stages and no
    more.
    """
    assert {g.pp for g in groups(DENSE, 1, 10, 10, Axes(mbs=(1,), cp=(1,)))} == {1, 2, 5, 10}
    assert {g.pp for g in groups(DENSE, 1, 11, 11, Axes(mbs=(1,), cp=(1,)))} == {1}


def chosen(group, **axes):
    defaults = {
        "layouts": ("even",),
        "recompute": ("none",),
        "schedules": ("1f1b", "interleaved", "zb-v-torch"),
    }
    return list(members(DENSE, group, Axes(**defaults | axes)))


def test_members_have_the_chunks_that_their_placement_allows():
    names = ("1f1b", "interleaved", "zb-v-torch", "hanayo", "dualpipe", "dualpipe-v", "chimera")
    two = chosen(Group(1, 1, 1, 2, 4, 1, 8), schedules=names)
    # interleaved takes those from 2 to (8 + 2) / 2 that divide eight layers, or these with
    # embedding and output
    chunks = {name: {c.vp for c in two if c.schedule == name} for name in names}
    assert chunks == {
        "1f1b": {1},
        "interleaved": {2, 4, 5},
        "zb-v-torch": {2},
        "hanayo": {2, 4},
        "dualpipe": {1},
        "dualpipe-v": {2},
        "chimera": {1},
    }
    deep = replace(DENSE, layers=48)
    found = members(
        deep,
        Group(1, 1, 1, 2, 4, 1, 8),
        Axes(layouts=("even",), recompute=("none",), schedules=("interleaved",)),
    )
    assert {c.vp for c in found} == {2, 3, 4, 5, 6, 8, 12}
    assert {c.vp for c in chosen(Group(1, 1, 1, 2, 4, 1, 8), vp=(2,))} == {2}
    assert {c.schedule for c in chosen(Group(1, 1, 1, 8, 1, 1, 8), schedules=names)} == {
        "1f1b",
        "dualpipe",
        "chimera",
    }
    assert [(c.vp, c.schedule) for c in chosen(Group(1, 1, 1, 1, 8, 1, 8), zero=(1,))] == [(1, "")]
    assert chosen(Group(1, 1, 1, 1, 8, 1, 8), vp=(2,)) == []


def test_members_recompute_eighths_of_a_stage_and_offload_what_is_kept():
    group = Group(1, 1, 1, 2, 4, 1, 8)
    full = chosen(group, schedules=("1f1b",), recompute=("full",), offload=(0, 50))
    assert [(c.layers, c.offload) for c in full] == [(n, o) for n in (-1, 1, 2, 3) for o in (0, 50)]
    plain = chosen(group, schedules=("1f1b",), recompute=("none", "selective"), offload=(0, 50))
    assert [(c.recompute, c.layers, c.offload) for c in plain] == [
        ("none", -1, 0),
        ("none", -1, 50),
        ("selective", -1, 0),
        ("selective", -1, 50),
    ]


def test_members_divide_weights_only_without_a_pipeline_and_with_ranks_to_divide_over():
    assert {c.zero for c in chosen(Group(1, 1, 1, 1, 8, 1, 8))} == {1, 3}
    assert {c.zero for c in chosen(Group(1, 8, 1, 1, 1, 1, 8))} == {1, 3}
    assert {c.zero for c in chosen(Group(8, 1, 1, 1, 1, 1, 8))} == {1}
    assert {c.zero for c in chosen(Group(1, 1, 1, 2, 4, 1, 8))} == {1}
    assert {c.zero for c in chosen(Group(1, 1, 1, 2, 4, 1, 8), zero=(2, 3))} == {2, 3}
    assert {c.zero for c in chosen(Group(1, 1, 1, 2, 1, 1, 8), zero=(2, 3))} == {2}


def test_layouts_are_for_pipelines_and_pairs_for_experts():
    layouts = ("even", "light-last", "light-ends")
    assert {c.layout for c in chosen(Group(1, 1, 1, 1, 8, 1, 8), layouts=layouts)} == {"even"}
    assert {c.layout for c in chosen(Group(1, 1, 1, 4, 2, 1, 8), layouts=layouts, vp=(1,))} == set(
        layouts
    )
    overlap = ("1f1b-overlap", "1f1b")
    group = Group(1, 1, 4, 2, 4, 1, 8)
    assert {c.schedule for c in members(MIXED, group, Axes(schedules=overlap))} == set(overlap)
    assert {c.schedule for c in members(MIXED, group._replace(ep=1), Axes(schedules=overlap))} == {
        "1f1b"
    }


def test_a_pair_hides_all_to_all_where_there_is_one():
    candidate = next(members(MIXED, Group(1, 1, 4, 2, 4, 1, 8), Axes(schedules=("1f1b-overlap",))))
    assert candidate.parallel(Parallel()).overlap_ep
    plain = candidate._replace(schedule="1f1b", offload=30)
    assert not plain.parallel(Parallel()).overlap_ep
    assert plain.parallel(Parallel(overlap_ep=True)).overlap_ep
    assert plain.parallel(Parallel()).offload == 0.3
    assert plain.parallel(Parallel()).recompute_layers is None
    assert plain._replace(layers=0).parallel(Parallel()).recompute_layers == 0
    alone = candidate._replace(group=candidate.group._replace(ep=1))
    assert not alone.parallel(Parallel()).overlap_ep
    assert with_techniques(Parallel(), True, 3, 25) == Parallel(
        overlap_ep=True, zero=3, offload=0.25
    )


@pytest.mark.parametrize(
    ("stages", "layout", "split"),
    [
        (1, "even", (8,)),
        (4, "even", (2, 2, 2, 2)),
        (3, "even", (2, 4, 2)),
        (5, "even", (1, 2, 2, 2, 1)),
        (9, "even", (0, 1, 1, 1, 2, 1, 1, 1, 0)),
        (10, "even", (0, 1, 1, 1, 1, 1, 1, 1, 1, 0)),
        (11, "even", None),
        (4, "light-last", (2, 3, 2, 1)),
        (2, "light-last", None),
        (3, "light-last", None),
        (8, "light-last", None),
        (4, "light-ends", (1, 3, 3, 1)),
    ],
)
def test_layouts_by_their_names(stages, layout, split):
    """Ends count as layers where layers do not divide; light ends need four stages of two layers at
    least.
    """
    assert layout_layers(replace(DENSE, vocab=32_000), stages, layout) == split


@pytest.mark.parametrize(
    ("vocab", "layers", "stages", "fewer", "split"),
    [
        (128_256, 8, 4, 1, (2, 3, 2, 1)),
        (128_256, 8, 4, 2, (2, 3, 3, 0)),
        (128_256, 16, 4, 3, None),  # the head is worth two layers
        (128_256, 8, 2, 2, (6, 2)),
        (256_000, 16, 4, 3, (5, 5, 5, 1)),
        (256_000, 16, 4, 4, (5, 6, 5, 0)),
        (256_000, 18, 4, 1, (5, 5, 5, 3)),  # evenly 4, 5, 5, 4
        (256_000, 18, 4, 3, (5, 6, 6, 1)),
        (256_000, 22, 4, 4, (7, 7, 7, 1)),  # evenly 5, 6, 6, 5
        (256_000, 22, 4, 5, None),  # five layers, one of which is missing evenly
        (256_000, 8, 1, 1, None),
        (32_000, 16, 4, 2, None),
    ],
)
def test_a_heavy_head_takes_the_place_of_several_layers(vocab, layers, stages, fewer, split):
    """Layers of the last stage go to the stages with the fewest, the nearest to the middle."""
    layout = "light-last" + f":{fewer}" * (fewer > 1)
    model = replace(DENSE, vocab=vocab, layers=layers)
    assert layout_layers(model, stages, layout) == split
    assert layout_layers(model, stages, "light-last:8") is None


@pytest.mark.parametrize(
    ("vocab", "stages", "fewer", "split"),
    [
        (32_000, 4, 1, (3, 5, 4, 4)),
        (32_000, 4, 4, (0, 6, 5, 5)),
        (32_000, 2, 3, (5, 11)),
        (128_256, 4, 3, (1, 6, 6, 3)),  # the head counts as 2.3 layers
        (256_000, 4, 3, (1, 7, 6, 2)),  # as 4.6
        (32_000, 3, 1, (4, 6, 6)),  # evenly 5, 6, 5
        (32_000, 4, 5, None),
        (32_000, 1, 1, None),
    ],
)
def test_a_heavy_encoder_takes_the_place_of_several_layers(vocab, stages, fewer, split):
    """An encoder of five layers' FLOPs; a model without one has no such layouts."""
    encoder = Encoder(hidden=2048, heads=16, layers=40, ffn=8192, tokens=1024)
    model = replace(DENSE, vocab=vocab, layers=16, encoder=encoder)
    assert round(encoder_layers(model)) == 5
    assert layout_layers(model, stages, f"light-first:{fewer}") == split
    assert layout_layers(replace(model, encoder=None), stages, f"light-first:{fewer}") is None


def test_the_head_counts_as_the_layers_that_have_its_flops():
    """Matrices of a layer have 218 M parameters, a head of 128,256 x 4,096 has 525 M; attention's
    products without weights are 4 x 2,048 x 4,096 / 2 FLOPs of 2 x 218 M.
    """
    attention = 2 * 2048 * 4096 / 2 * 2
    layer = 2 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + attention
    assert head_layers(DENSE) == pytest.approx(2 * 128_256 * 4096 / layer)
    assert head_layers(replace(DENSE, mtp=1)) == pytest.approx(
        1 + 2 * 2 * 128_256 * 4096 / (layer + 2 * 2 * 4096**2 / 9), rel=1e-3
    )


def test_what_no_candidate_can_have_is_refused_with_the_way_out():
    for changes, hint in (
        ({"gpus": 0}, "--gpus 64"),
        ({"gbs": 0}, "--gpus 64"),
        ({"axes": Axes(tp=(3,))}, "leave out --tp"),
        ({"gpus": 11, "gbs": 12}, "--gbs 22"),
        ({"gpus": 13, "axes": Axes(cp=(1,), pp=(5,))}, "--gpus 10"),
        ({"gpus": 13, "gbs": 13, "axes": Axes(cp=(1,), pp=(5,))}, "--gpus 10, or leave out --pp"),
        ({"gpus": 7, "gbs": 7, "axes": Axes(tp=(8,), cp=(8,), pp=(1,))}, "--gpus 64"),
    ):
        given: dict[str, Any] = {"gpus": 8, "gbs": 8, "axes": Axes()} | changes
        with pytest.raises(InputError) as refused:
            check_axes(DENSE, 8, given["gpus"], given["gbs"], given["axes"])
        assert str(refused.value.hint).startswith(hint), changes
    check_axes(DENSE, 8, 8, 8, Axes())
    check_axes(DENSE, 8, 1, 1, Axes())


NAMES = ("1f1b", "gpipe", "interleaved", "zb-1p", "zb-v-torch", "dualpipe-v", "dualpipe", "chimera")


def small(model=DENSE, **changes):
    axes = Axes(tp=(1, 2), cp=(1,), mbs=(1,), schedules=NAMES, layouts=("even",), fitted=())
    return Task(model, MACHINE, 8, 16, replace(axes, **changes), usable_bytes(MACHINE), keep=3)


SLICED = ("1f1b", "seq1f1b", "seq1f1b-zb", "slimpipe")
SPANS = ("1f1b", "zb-h2", "zb-v-torch", "dualpipe")
LIGHT = {
    "layouts": ("even", "light-last", "light-ends", "light-last:2"),
    "pp": (4, 8),
    "zero": (1, 2),
    "offload": (0, 50),
}


def least_of(task, candidate):
    """The bound by stages."""
    parallel = candidate.parallel(task.axes.base)
    devices = np.zeros((1, 1), np.int32)
    if parallel.pp > 1:
        devices = place(find(candidate.schedule).placement, parallel.pp, parallel.stages).devices
    costs = stage_costs(task.model, MACHINE, parallel, layout_of(task.model, candidate))
    return least_seconds(
        costs, devices, parallel.microbatches, parallel.post_validation, parallel.pieces
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("task", "every"),
    [
        (small(), 3),
        (small(MIXED, ep=(1, 4), pp=(2,)), 3),
        (small(replace(DENSE, layers=16), **LIGHT), 11),
        (small(replace(DENSE, layers=16), schedules=SLICED, vp=(1, 2), recompute=("none",)), 3),
        (
            small(
                replace(DENSE, layers=16),
                schedules=SPANS,
                pp=(4, 8),
                base=Parallel(post_validation=True),
            ),
            1,
        ),
        pytest.param(small(replace(DENSE, layers=16), **LIGHT), 1, marks=pytest.mark.slow),
        pytest.param(
            small(replace(MIXED, layers=12), **LIGHT, ep=(1, 2)), 1, marks=pytest.mark.slow
        ),
    ],
    ids=["dense", "experts", "light", "slices", "spans", "light-whole", "experts-whole"],
)
def test_bounds_are_below_what_candidates_take_and_hold(task, every):
    """The time by whole layers, met without a pipeline; the memory by stages, met where a backward
    has the peak.
    """
    huge, met, tight = replace(task, cap=float("inf"), gbs=64), 0, 0
    candidates = list(list_candidates(huge))[::every]
    found = Findings()
    bounds = {bound.candidate: bound for bound in bound_candidates(huge, candidates, found)}
    for candidate in candidates:
        row = Evaluate(huge)(candidate)
        assert (candidate in bounds) == (row["outcome"] == "simulated")
        if candidate not in bounds:
            continue
        bound = bounds[candidate]
        assert bound.bytes_ <= row["memory_bytes"]
        tight += bound.bytes_ > 0.999 * row["memory_bytes"]
        pipeline = sum(
            row["terms"][name] for name in ("compute", "recompute", "communication", "bubble")
        )
        assert bound.seconds <= pipeline
        assert least_of(huge, candidate) <= pipeline * (1 + 1e-9)
        if candidate.group.pp == 1 and candidate.zero == 1 and candidate.layers < 0:
            met += 1
            assert bound.seconds == pytest.approx(pipeline)
    assert met or task.axes.pp
    # W keeps another share of a dense layer's activations than of a mixture's, and the bound takes
    # one share.
    assert tight > (0.65 if task.model.experts else 0.7) * len(bounds)


def test_a_long_pipeline_is_nearly_as_long_as_its_bound():
    """1F1B of equal stages: (m + p - 1) (f + b), where the bound is a little less than the last of
    it.
    """
    model = replace(DENSE, vocab=1)
    task = small(model, pp=(4,), schedules=("1f1b", "zb-1p"), recompute=("none",))
    for candidate in list_candidates(task):
        whole = GroupBounds(task, candidate.group)
        forward, backward = whole.work(False, "none")
        split = candidate.schedule == "zb-1p"
        least = whole.seconds(candidate, split)
        m = candidate.group.microbatches
        row = Evaluate(replace(task, cap=float("inf")))(candidate)
        pipeline = sum(
            row["terms"][name] for name in ("compute", "recompute", "communication", "bubble")
        )
        ends = forward if split else forward + backward
        assert m * (forward + backward) / 4 < least < (m * (forward + backward) + 3 * ends) / 4
        assert least > 0.85 * pipeline


def test_least_seconds_is_fill_and_work_of_the_busiest_device():
    """Met by 1F1B whose last device is the busiest: after three forwards it does nothing but
    work.
    """
    layout = build_layout([1, 1, 1, 5], 4)
    parallel = Parallel(pp=4, microbatches=8)
    fast = replace(MACHINE, cluster=replace(MACHINE.cluster, devices_per_node=8))
    costs = stage_costs(DENSE, fast, parallel, layout)
    found = least_seconds(costs, np.arange(4)[None], 8)
    f, b = costs.time[0], costs.time[1]
    assert found == pytest.approx(f[:3].sum() + 8 * (f[3] + b[3]))
    step = step_time(DENSE, fast, parallel, layout)
    assert found <= step.pipeline <= 1.1 * found + b.sum()
    # Two replicas: each half of the microbatches; device 0 starts at once with the one, and works
    # on stages 0 and 3.
    both = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
    assert least_seconds(costs, both, 8) == pytest.approx(8 * (f[0] + b[0] + f[3] + b[3]) / 2)
    loop = np.array([[0, 1, 0, 1]])
    assert least_seconds(costs, loop, 8) == pytest.approx(f[0] + 8 * (f[1] + b[1] + f[3] + b[3]))


@pytest.mark.parametrize(
    ("layers", "pp", "chunks"),
    [
        (80, 4, {2, 4, 5, 10}),  # 7 would make 28 stages of two and three layers
        (126, 8, {2, 4, 8}),  # 128 with embedding and output
        (61, 4, set(range(2, 13))),  # none divides 61 or 63
        (40, 8, {5}),
    ],
)
def test_a_plan_has_chunks_that_divide_the_layers_where_some_do(layers, pp, chunks):
    """All that are asked for are there: Megatron-LM has layouts for them."""
    model = replace(DENSE, layers=layers)

    def found(**axes):
        wanted = Axes(layouts=("even",), recompute=("none",), schedules=("interleaved",), **axes)
        return {c.vp for c in members(model, Group(1, 1, 1, pp, 1, 1, 2 * pp), wanted)}

    assert found() == chunks
    assert found(vp=(3,)) == {3}


@pytest.mark.parametrize(
    ("name", "pp", "vp", "microbatches", "held"),
    [
        ("1f1b", 4, 1, 8, 4 / 4),
        ("1f1b", 4, 1, 2, 2 / 4),
        ("gpipe", 4, 1, 8, 8 / 4),
        ("interleaved", 4, 2, 8, 11 / 8),
        ("zb-1p", 4, 1, 8, (1 + 3) / 4),
        ("dualpipe", 4, 1, 3, None),
        ("zb-auto", 4, 1, 8, 1 / 4),
        ("", 1, 1, 8, 1.0),
    ],
)
def test_devices_hold_at_least_what_the_schedule_lets_them(name, pp, vp, microbatches, held):
    """In shares of the whole model's activations: min(p, m)/p; interleaved (p (v - 1) + 2 (p - 1) +
    1)/(v p).
    """
    found = least_memory(name, pp, vp, microbatches)
    assert (found and found.counts[0].sum(axis=1).max() / (pp * vp)) == (
        held if held is None else pytest.approx(held)
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pp", [2, 3, 4, 6])
def test_stages_of_any_bytes_hold_no_less_than_a_short_run_says(pp):
    """Random bytes a stage, all schedules that plans try: the peak of the whole run, and what runs
    then, is above.
    """
    draw = np.random.default_rng(pp)
    for schedule, vp in product((*SCHEDULES, *FITTED, *SLICED), (1, 2, 4)):
        for microbatches in (2 * pp, 3 * pp, 5 * pp + 1, 8 * pp)[:: 1 if EVERY == 1 else 4]:
            try:
                made = schedule_of(schedule, pp, vp, microbatches)
            except PpsimError:
                continue
            found = least_memory(schedule, pp, vp, short_run(pp, microbatches))
            assert found is not None
            nothing = np.zeros(made.n_stages)
            for _ in range(4):
                held, kept, work = draw.exponential(size=(3, made.n_stages))
                most = np.add(
                    *held_at_peaks(made, StageMemory(nothing, nothing, nothing, held, kept, work))
                )
                beside = np.where(found.at_work >= 0, work[found.at_work], 0) / found.slices
                least = found.counts @ held + found.pending @ kept + beside
                assert (least <= most * (1 + 1e-9)).all(), (schedule, pp, vp, microbatches)


def small_space(model=DENSE, **changes):
    """A few thousand candidates with light ends, which hold less than whole stages on the device
    that holds most.
    """
    return replace(
        small(
            replace(model, layers=16),
            **LIGHT | {"mbs": (1, 2), "zero": (1,), "offload": (0,)} | changes,
        ),
        gbs=32,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "task", [small_space(), small_space(MIXED, ep=(1, 2))], ids=["dense", "experts"]
)
def test_under_any_cap_the_plan_is_the_best_that_fits(task):
    """Caps that one candidate just meets, from the least of all to the most: brute force over the
    whole space.
    """
    free = replace(task, cap=float("inf"))
    rows = [row for c in list_candidates(free) if "step_s" in (row := Evaluate(free)(c))]
    sizes = sorted({row["memory_bytes"] for row in rows})
    for cap in sizes[:: max(1, len(sizes) // 4)]:
        best = min(row["step_s"] for row in rows if row["memory_bytes"] <= cap)
        assert plan(replace(task, cap=cap))[0]["step_s"] == best, cap
    assert not plan(replace(task, cap=sizes[0] * (1 - 1e-6)))


def test_the_least_memory_of_light_ends_is_what_the_model_says():
    """Of Llama 3 8B on 2 x 8 devices: a bound by whole layers said 79 GiB, and refused what holds
    71.
    """
    model = read_model("llama3-8b")
    axes = Axes(
        tp=(1,),
        cp=(1,),
        pp=(8,),
        mbs=(2,),
        schedules=("1f1b",),
        recompute=("none",),
        layouts=("light-ends",),
    )
    (row,) = plan(Task(model, MACHINE, 16, 32, axes, usable_bytes(MACHINE), keep=3))
    assert row["memory_bytes"] < usable_bytes(MACHINE)


def test_candidates_are_counted_by_what_keeps_them_out():
    task, found = replace(small(), cap=12e9), Findings()
    bounds = bound_candidates(task, list_candidates(task), found)
    assert found.total == len(bounds) + sum(found.counts.values())
    assert all(bound.bytes_ <= 12e9 for bound in bounds)
    assert [bound.seconds for bound in bounds] == sorted(bound.seconds for bound in bounds)
    every = bound_candidates(
        replace(task, cap=float("inf")), list_candidates(task), other := Findings()
    )
    least = min(bound.bytes_ for bound in every)
    assert found.least_memory is not None
    assert other.least_memory is not None
    assert found.least_memory[0] == other.least_memory[0] == least
    assert found.counts[STATES] + found.counts[HELD] == len(every) - len(bounds) > 0
    assert found.counts[STATES] > 0
    assert found.counts[HELD] > 0


def test_groups_that_cannot_beat_a_known_time_are_not_listed():
    task = small(tp=(1, 2, 4, 8))
    rows = plan(task)
    known = replace(task, known=rows[0]["step_s"] * 1.02)
    few, every = ({c.group for c in list_candidates(t)} for t in (known, task))
    assert read_key(rows[0]["key"]).group in few
    assert few < every
    assert plan(known)[0] == rows[0]


def test_those_that_are_simulated_together_share_schedules():
    """In a round the candidates of one schedule, pipeline and number of microbatches follow each
    other.
    """
    chosen = list[list[object]]()

    def run(function, tasks):
        chosen.append(
            [(task.schedule, task.vp, task.group.pp, task.group.microbatches) for task in tasks]
        )
        return run_here(function, tasks)

    search(small(tp=(1, 2), mbs=(1, 2)), run, Findings(), lambda *_: None)
    assert any(len(set(each)) < len(each) for each in chosen)
    assert all(len(set(each)) == len([*groupby(each)]) for each in chosen)


def run_here(function, tasks):
    return ((index, function(task)) for index, task in enumerate(tasks))


def plan(task):
    found = Findings()
    search(task, run_here, found, lambda *_: None)
    return found.rows


def row(seconds, bytes_, key="1/1/1/2/4/1/8/1/1f1b/none/-1/even/1/0"):
    return {
        "step_s": seconds,
        "memory_bytes": bytes_,
        "key": key,
        "schedule": read_key(key).schedule,
        "pareto": False,
    }


def test_the_front_is_kept_beside_the_fastest():
    """Of the same sizes and schedule a slower plan that holds no less is a twin of the faster
    one.
    """
    task = replace(small(), front=True, keep=2)
    keys = [f"{tp}/1/1/2/4/1/8/1/1f1b/none/-1/even/1/0" for tp in (1, 2, 4, 8)]
    rows = [
        row(1.0, 9.0, keys[0]),
        row(2.0, 9.5, keys[1]),
        row(3.0, 4.0, keys[2]),
        row(4.0, 5.0, keys[3]),
    ]
    twin = row(3.5, 9.0, keys[0].replace("none", "full"))
    less = row(5.0, 3.0, keys[0].replace("none", "selective"))
    found = best_of(task, [*rows, twin, less])
    assert [(one["step_s"], one["pareto"]) for one in found] == [
        (1.0, True),
        (2.0, False),
        (3.0, True),
        (5.0, True),
    ]
    assert [one["step_s"] for one in best_of(replace(task, front=False), [*rows, twin, less])] == [
        1.0,
        2.0,
    ]
    assert _limit(task, found) == ((1.0, 9.0), (3.0, 4.0), (5.0, 3.0))
    fastest = replace(task, front=False)
    assert _limit(fastest, found) == ((2.0, 0.0),)
    assert _limit(fastest, found[:1]) == ()
    assert _limit(replace(fastest, known=7.0), found[:1]) == ((7.0, 0.0),)
    assert _limit(replace(fastest, keep=1), found[:1]) == ((1.0, 0.0),)


def test_an_order_by_costs_gives_way_to_a_fixed_one_that_is_as_good():
    task = replace(small(fitted=("zb-auto",)), keep=9)
    fixed = "1/1/1/2/4/1/8/1/zb-1p/none/-1/even/1/0"
    ordered = fixed.replace("zb-1p", "zb-auto")
    assert [
        one["key"] for one in best_of(task, [row(1.0, 5.0, ordered), row(1.0, 5.0, fixed)])
    ] == [fixed]
    assert [
        one["key"] for one in best_of(task, [row(2.0, 5.0, ordered), row(1.0, 5.0, fixed)])
    ] == [fixed]
    assert [
        one["key"] for one in best_of(task, [row(2.0, 4.0, ordered), row(1.0, 5.0, fixed)])
    ] == [fixed, ordered]
    assert [
        one["key"] for one in best_of(task, [row(1.0, 9.0, ordered), row(2.0, 5.0, fixed)])
    ] == [ordered, fixed]


def test_candidates_are_left_out_where_a_plan_is_as_fast_and_holds_no_more():
    task = small()
    bounds = bound_candidates(task, list_candidates(task), Findings())[:6]
    placed = [
        bound._replace(seconds=s, bytes_=b)
        for bound, s, b in zip(bounds, (1, 2, 3, 3, 4, 5), (9, 9, 2, 9, 1, 5), strict=True)
    ]
    left, out = _split_beaten(placed, ((3.0, 3.0), (5.0, 1.0)))
    assert [(bound.seconds, bound.bytes_) for bound in left] == [(1, 9), (2, 9), (3, 2), (4, 1)]
    assert [(bound.seconds, bound.bytes_) for bound in out] == [(3, 9), (5, 5)]
    assert _split_beaten(placed, ()) == (placed, [])
    candidate = bounds[0].candidate
    plain = Evaluate(task)(candidate)
    assert Evaluate(task, ((plain["step_s"] * 2, 0.0),))(candidate) == plain
    assert Evaluate(task, ((0.0, 0.0),))(candidate) == {"outcome": STAGES}
    assert Evaluate(task, ((0.0, plain["memory_bytes"] * 1.01),))(candidate) == plain
    assert Evaluate(task, ((0.0, plain["memory_bytes"]),))(candidate) == {"outcome": STAGES}
    assert Evaluate(replace(task, cap=plain["memory_bytes"]))(candidate) == plain
    tight = Evaluate(replace(task, cap=plain["memory_bytes"] - 1))(candidate)
    assert tight == {"outcome": HELD, "memory_bytes": plain["memory_bytes"]}


def test_states_that_do_not_fit_on_one_device_end_an_evaluation():
    """The device with most of them: of two devices the one with the output matrix and norm holds
    more.
    """
    model = replace(DENSE, layers=7)
    task = Task(model, MACHINE, 8, 16, Axes(), float("inf"))
    candidate = read_key("1/1/1/2/4/1/4/1/1f1b/none/-1/even/1/0")
    held = device_memory(model, candidate.parallel(Parallel()))
    states = held.weights + held.gradients + held.optimizer
    assert states.min() < states.max()
    cap = float(states.mean())
    assert Evaluate(replace(task, cap=cap))(candidate) == {
        "outcome": HELD,
        "memory_bytes": states.max(),
    }


def test_the_least_that_is_needed_is_what_simulation_says():
    """Where bounds leave candidates that do not fit in the end, and none fits, it is the least of
    what those hold.
    """
    said, found = list[tuple[float, object]](), Findings()

    def run(function, tasks):
        for index, candidate in enumerate(tasks):
            said.append((7.0 + index % 5, candidate))
            yield index, {"outcome": HELD, "memory_bytes": said[-1][0]}

    search(small(), run, found, lambda *_: None)
    assert found.least_memory == min(said)
    assert found.counts[HELD] == len(said) > 5


def test_no_share_is_told_that_pruning_would_make_false():
    """How many may still win falls by more than what is simulated, so no share of the work is
    known.
    """
    told: list[tuple[float | None, str]] = []
    search(small(), run_here, Findings(), lambda *said: told.append(said))
    assert {share for share, _ in told} == {None}
    assert told[0][1].startswith("bounds")
    assert told[-1][1].endswith(" 0 may win")


def test_a_row_says_where_its_time_goes():
    """All per device: work of all stages and microbatches, shared by devices; what recomputes; what
    waits.
    """
    parallel = Parallel(tp=2, pp=2, dp=2, microbatches=8, recompute="full", recompute_layers=1)
    candidate = read_key("2/1/1/2/2/1/8/1/1f1b/full/1/even/1/0")
    costs = stage_costs(DENSE, MACHINE, parallel)
    step = step_time(DENSE, MACHINE, parallel)
    peaks = device_memory(DENSE, parallel)
    found = make_row(parallel, candidate, costs, peaks, step)
    terms = found["terms"]
    assert terms["recompute"] == pytest.approx(8 * costs.time[4].sum() / 2)
    assert terms["communication"] == pytest.approx(8 * costs.communication.sum() / 2)
    work = 8 * (costs.time[0] + costs.time[1]).sum() / 2
    assert terms["compute"] == pytest.approx(work - terms["recompute"] - terms["communication"])
    assert terms["bubble"] == pytest.approx(step.bubble * step.pipeline)
    assert found["memory_bytes"] == peaks.total.max()
    assert sum(found["memory_parts"].values()) == pytest.approx(peaks.total.max())


def test_a_plan_without_a_pipeline_has_no_bubble():
    """All its time is work: nothing is left by rounding, for tables and pages to show."""
    for microbatches in range(1, 30):
        step = step_time(DENSE, MACHINE, Parallel(tp=2, dp=4, microbatches=microbatches))
        assert (step.bubble, step.pipeline - step.work) == (0.0, 0.0)
        assert step.seconds == pytest.approx(step.work + step.reduction + step.optimizer)


def test_the_fewest_gpus_that_fit_are_found_by_doubling():
    large = replace(DENSE, layers=80, hidden=8192, heads=64, ffn=28672)
    task = replace(small(large, tp=(2,), schedules=("1f1b",), recompute=("full",)), gpus=2, gbs=64)
    found = gpus_that_fit(task)
    assert found is not None
    assert found in (4, 8, 16, 32, 64, 128)
    assert plan(replace(task, gpus=found))
    assert not plan(replace(task, gpus=found // 2))
    assert gpus_that_fit(replace(task, cap=1e6)) is None


def test_queues_hold_as_many_microbatches_in_a_short_run_as_in_a_long_one():
    for name, vp in (("1f1b", 1), ("zb-1p", 1), ("interleaved", 2), ("dualpipe-v", 2)):
        few, many = (least_memory(name, 4, vp, count) for count in (8, 24))
        assert few is not None
        assert many is not None
        assert (few.counts == many.counts).all(), name
    assert schedule_of("1f1b", 4, 1, 8) is schedule_of("1f1b", 4, 1, 8)


def test_gpus_are_doubled_up_to_64_times_as_many(monkeypatch):
    asked = list[int]()

    def bounds(task, candidates, found):
        asked.append(task.gpus)
        return []

    monkeypatch.setattr(search_module, "bound_candidates", bounds)
    task = replace(small(DENSE), gpus=3)
    for most, last in ((1, 192), (200, 192), (400, 384)):
        asked.clear()
        monkeypatch.setattr(search_module, "MOST_GPUS", most)
        assert gpus_that_fit(task) is None
        assert asked == [3 * 2**n for n in range(1, len(asked) + 1)]
        assert asked[-1] == last


def test_one_context_rank_takes_sequences_of_any_length():
    odd = replace(DENSE, seq=1001)
    assert {group.cp for group in groups(odd, 8, 8, 8, Axes())} == {1}
    assert {group.cp for group in groups(replace(odd, seq=1004), 8, 8, 8, Axes())} == {1, 2}
    assert {group.cp for group in groups(replace(odd, seq=1000), 8, 8, 8, Axes())} == {1, 2, 4}


@pytest.mark.parametrize(
    ("layers", "stages", "split"),
    [(3, 7, None), (5, 7, (0, 1, 1, 1, 1, 1, 0)), (3, 5, (0, 1, 1, 1, 0))],
)
def test_no_stage_in_the_middle_is_empty(layers, stages, split):
    assert layout_layers(replace(DENSE, layers=layers), stages, "even") == split
