"""Several kinds of nodes: each stage costs what it does on its own kind, and plans give faster ones
more layers.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from ppsim.engine.detailed.cluster import network, read
from ppsim.errors import InputError
from ppsim.workload.cost.communication import message_seconds
from ppsim.workload.cost.costs import stage_costs, step_time
from ppsim.workload.cost.kinds import kinds_of_devices
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.efficiency import efficiency_of
from ppsim.workload.hardware.hardware import Kind, Machine, read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.bounds import (
    GroupBounds,
    bound_candidates,
    layer_times,
    least_longest,
    least_on_kinds,
    least_share,
    list_candidates,
)
from ppsim.workload.plans.layers_by_speed import layout_of, split_by_speed, spread
from ppsim.workload.plans.search import Evaluate, find_near_miss, search
from ppsim.workload.plans.space import (
    BY_SPEED,
    LAYOUTS,
    Axes,
    groups,
    layout_layers,
    members,
    read_key,
)
from ppsim.workload.plans.task import HELD, Findings, Task, usable_bytes
from tests.commands import invoke

HEAD = (
    'schema = "ppsim.cluster/1"\ndevices_per_node = 4\n[intra]\nlink = "nvlink4"\n[inter]\nlink '
    '= "ib-400"\n'
)
FAST = '[[nodes]]\ngpu = "h100"\ncount = 1\n'
SLOW = (
    '[[nodes]]\ngpu = "a100-80gb"\ncount = 1\nintra = { link = "nvlink3" }\ninter = { link = '
    '"ib-200" }\n'
)
MODEL = replace(read_model("llama3-8b"), seq=2048, layers=8)
UNLIKE = replace(
    MODEL,
    experts=4,
    top_k=1,
    expert_ffn=3072,
    dense_layers=3,
    mixers=("window", "attention"),
    window=512,
)
NAMES = ("1f1b", "interleaved", "zb-1p", "dualpipe-v", "chimera")
AXES = Axes(
    tp=(1, 2),
    cp=(1,),
    mbs=(1,),
    schedules=NAMES,
    fitted=(),
    layouts=(*LAYOUTS, *BY_SPEED),
    joints=(4,),
)


def of_nodes(fast: str = "h100", slow: str = "a100-80gb") -> Machine:
    """Two nodes of four GPUs, one of either kind."""
    alone = []
    for name in (fast, slow):
        machine = read_machine("dgx-a100" if name.startswith("a100") else "dgx-h100")
        cluster = replace(
            machine.cluster,
            devices_per_node=4,
            shared=replace(machine.cluster.shared, nics_per_node=4),
        )
        alone.append(replace(machine, cluster=cluster))
    return Machine(
        "two", alone[0].gpu, alone[0].cluster, kinds=tuple(Kind(each, 4) for each in alone)
    )


TWO = of_nodes()


def task_of(machine: Machine, **changes) -> Task:
    return Task(MODEL, machine, 8, 32, replace(AXES, **changes), usable_bytes(machine), keep=3)


def plan(task: Task) -> Findings:
    found = Findings()
    search(
        task,
        lambda evaluate, given: enumerate(map(evaluate, given)),
        found,
        lambda done, what: None,
    )
    return found


def test_a_file_of_two_kinds_says_what_differs(tmp_path):
    (tmp_path / "two.toml").write_text(HEAD + FAST + SLOW + "memory_gib = 40\n")
    machine = read_machine(str(tmp_path / "two.toml"))
    fast, slow = (kind.machine for kind in machine.kinds)
    assert (machine.gpus, machine.title, machine.gpu) == (8, "4 x h100 + 4 x a100-80gb", fast.gpu)
    assert (fast.intra_bytes_per_s, slow.intra_bytes_per_s) == (450e9, 300e9)
    assert (fast.inter_bytes_per_s, slow.inter_bytes_per_s) == (50e9, 25e9)
    assert (fast.gpu.memory_gib, slow.gpu.memory_gib) == (80, 40)
    assert machine.peak("bf16") == pytest.approx((989.4e12 + 312e12) / 2, rel=1e-3)
    assert [kind.machine.gpu.name for kind in machine.reversed.kinds] == ["a100-80gb", "h100"]
    (tmp_path / "one.toml").write_text(HEAD + FAST)
    (tmp_path / "plain.toml").write_text('gpu = "h100"\n' + HEAD)
    one, plain = (read_machine(str(tmp_path / name)) for name in ("one.toml", "plain.toml"))
    assert one.kinds == plain.kinds == ()
    assert (one.gpu, one.cluster) == (plain.gpu, plain.cluster)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('gpu = "h100"\n' + HEAD + FAST, "line 1: 'gpu' must be left out"),
        (
            HEAD + FAST.replace("count = 1", "count = 0"),
            "line 9: 'count' in [[nodes]] must be 1 or more",
        ),
        (HEAD + FAST.replace("count = 1\n", ""), "'count' is missing"),
        (HEAD + FAST + "memory_gib = 0\n", "must be more than 0"),
        (HEAD + FAST + SLOW.replace("a100-80gb", "a1000"), "no GPU 'a1000' in the library"),
        (HEAD + FAST + 'intra = { link = "nvlink9" }\n', "must be one of"),
        (HEAD + "nodes = 3\n", "unknown key 'nodes' in [inter]"),
    ],
)
def test_files_that_are_no_cluster_are_refused(tmp_path, text, said):
    (tmp_path / "x.toml").write_text(text)
    with pytest.raises(InputError) as error:
        read_machine(str(tmp_path / "x.toml"))
    assert said in str(error.value)


def test_a_network_of_several_kinds_is_refused(tmp_path):
    (tmp_path / "two.toml").write_text(HEAD + FAST + SLOW)
    with pytest.raises(InputError, match="for ppsim plan and model"):
        network(read(str(tmp_path / "two.toml")), 8, "ms", "latency")


@pytest.mark.parametrize("schedule", ["1f1b", "zb-v-torch", "chimera"])
def test_each_stage_costs_what_it_does_on_its_own_nodes_or_on_the_slower_of_both(schedule):
    """Stages of a V return to the first kind; Chimera's are on both. A message between kinds goes
    at the slower.
    """
    vp = 2 if schedule == "zb-v-torch" else 1
    parallel = Parallel(tp=2, pp=4, vp=vp, microbatches=8, schedule=schedule)
    costs = stage_costs(MODEL, TWO, parallel)
    alone = [stage_costs(MODEL, kind.machine, parallel) for kind in TWO.kinds]
    held = {"1f1b": [0, 0, 1, 1], "zb-v-torch": [0, 0, 1, 1, 1, 1, 0, 0], "chimera": [1, 1, 1, 1]}[
        schedule
    ]
    for stage, kind in enumerate(held):
        assert costs.time[:, stage].tolist() == alone[kind].time[:, stage].tolist()
        assert costs.dp[stage] == alone[kind].dp[stage]
        assert costs.optimizer[stage] == alone[kind].optimizer[stage]
    hops = np.asarray(costs.costs.comm)
    assert hops[0, 1] == np.asarray(alone[0].costs.comm)[0, 1]
    assert hops[2, 3] == np.asarray(alone[1].costs.comm)[2, 3]
    slow = TWO.kinds[1].machine
    between = message_seconds(slow, efficiency_of(slow.gpu, parallel), parallel, costs.message, 1)
    assert hops[1, 2] == hops[2, 1] == between * 1e3 > np.asarray(alone[0].costs.comm)[1, 2]


def test_a_device_with_replicas_on_both_kinds_goes_at_the_slower():
    both = Parallel(tp=2, dp=4, microbatches=8)
    assert kinds_of_devices(TWO, both).tolist() == [[True, True]]
    assert kinds_of_devices(TWO, Parallel(tp=2, pp=2, dp=2, microbatches=8)).tolist() == [
        [True, False],
        [False, True],
    ]
    split = (
        stage_costs(MODEL, TWO, both),
        *(stage_costs(MODEL, kind.machine, both) for kind in TWO.kinds),
    )
    assert (
        split[0].time.tolist()
        == np.maximum(split[1].time, split[2].time).tolist()
        == split[2].time.tolist()
    )
    with pytest.raises(InputError, match="must use all GPUs of a cluster of 4 x h100"):
        kinds_of_devices(TWO, Parallel(tp=2, dp=2))


def test_every_group_is_bounded_by_its_own_layers():
    """A time that is known leaves out no group of several kinds, whose work on one device is not
    known.
    """
    task = task_of(TWO, tp=(2,), pp=(2, 4), schedules=("1f1b",))
    assert list(list_candidates(replace(task, known=1e-9))) == list(list_candidates(task))
    assert not list(list_candidates(replace(task, machine=TWO.kinds[0].machine, known=1e-9)))


def test_layers_by_speed_leave_no_stage_without_a_layer():
    """Eight layers lie on eight stages, not on sixteen; on these they are even."""
    axes = replace(AXES, pp=(8,), schedules=("1f1b", "interleaved"), recompute=("none",))
    (group,) = groups(MODEL, 4, 8, 32, replace(axes, tp=(1,)))
    layouts = {
        vp: {each.layout for each in members(MODEL, group, axes) if each.vp == vp} for vp in (1, 2)
    }
    assert layouts[1] >= set(BY_SPEED)
    assert layouts[2].isdisjoint(BY_SPEED)


@pytest.mark.slow
def test_two_kinds_that_are_equal_are_planned_as_one():
    """Every candidate of the plain cluster has the same time and memory, and layers by speed are no
    worse than even.
    """
    twins = of_nodes("h100", "h100")
    plain = twins.kinds[0].machine
    one = task_of(plain, layouts=LAYOUTS, joints=())
    two = task_of(twins, layouts=LAYOUTS)
    candidates = list(list_candidates(one))
    assert candidates == list(list_candidates(two))
    for candidate in candidates[::5]:
        assert Evaluate(two)(candidate).items() >= Evaluate(one)(candidate).items()
    best = plan(two).rows
    assert [row["key"] for row in best] == [row["key"] for row in plan(one).rows]
    assert plan(task_of(twins)).rows[0]["step_s"] <= best[0]["step_s"]


def test_a_bound_counts_the_work_of_the_device_with_most():
    """Even layers over a fast and a slow node: each microbatch takes the slow devices' layers of a
    stage.
    """
    task = task_of(TWO, pp=(2, 4), schedules=("1f1b", "interleaved"), layouts=LAYOUTS)
    bounds = bound_candidates(task, list(list_candidates(task)), Findings())
    assert len(bounds) > 10
    for candidate, seconds in ((bound.candidate, bound.seconds) for bound in bounds):
        alone = replace(candidate.parallel(task.axes.base), zero=1, recompute="none")
        each = (
            layer_times(MODEL, task.machine_of(candidate.layout), alone).sum(axis=(0, 1))
            / MODEL.layers
        )
        layers = np.zeros(candidate.group.pp)
        split = layout_layers(MODEL, candidate.group.pp * candidate.vp, candidate.layout)
        assert split is not None
        for stage, count in enumerate(split):
            layers[stage % candidate.group.pp] += count
        assert seconds >= candidate.group.microbatches * (layers * each).max() * (1 - 1e-6)


def test_where_devices_wait_for_no_other_the_bound_is_below_the_longest_span():
    base = Parallel(post_validation=True)
    task = task_of(TWO, tp=(1,), pp=(4, 8), schedules=("1f1b", "zb-h2"), base=base)
    found = {
        bound.candidate: bound.seconds
        for bound in bound_candidates(task, list(list_candidates(task)), Findings())
    }
    rows = {candidate: Evaluate(task)(candidate) for candidate in found}
    spans = {
        c: sum(row["terms"][n] for n in ("compute", "recompute", "communication", "bubble"))
        for c, row in rows.items()
        if "step_s" in row
    }
    assert {candidate.schedule for candidate in spans} == {"1f1b", "zb-h2"}
    assert all(found[candidate] <= span for candidate, span in spans.items())


def test_no_group_has_ranks_on_both_kinds():
    wide = replace(AXES, tp=(1, 2, 4, 8), cp=(1, 2, 4))
    for candidate in list_candidates(task_of(TWO, tp=wide.tp, cp=wide.cp)):
        assert candidate.group.tp * candidate.group.cp in (1, 2, 4)


def test_a_device_without_room_for_a_layer_leaves_a_plan_out_however_much_others_have():
    """Half of the nodes hold nothing that trains; those of the other kind alone would hold all
    layers.
    """
    axes = {
        "tp": (2,),
        "pp": (2,),
        "schedules": ("1f1b",),
        "layouts": BY_SPEED,
        "recompute": ("none",),
    }
    small = replace(TWO.kinds[1].machine, gpu=replace(TWO.kinds[1].machine.gpu, memory_gib=2))
    for kind, fits in ((TWO.kinds[1].machine, True), (small, False)):
        task = task_of(replace(TWO, kinds=(TWO.kinds[0], Kind(kind, 4))), **axes)
        found, candidates = Findings(), list(list_candidates(task))
        bounds = bound_candidates(task, candidates, found)
        assert candidates
        assert (len(bounds), found.counts[HELD]) == (
            (len(candidates), 0) if fits else (0, len(candidates))
        )


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("model", "cap"),
    [(MODEL, 9e9), (MODEL, 1e12), (MODEL, 14e9), (UNLIKE, 12e9), (UNLIKE, 1e12), (UNLIKE, 15e9)],
)
def test_the_plan_is_that_of_simulating_all_candidates(model, cap):
    """Bounds leave out no winner, in time or memory, and are below what candidates take and
    hold.
    """
    task = replace(
        task_of(TWO, pp=(2, 4), recompute=("none", "full")), model=model, cap=cap, keep=1
    )
    found, candidates = Findings(), list(list_candidates(task))
    bounds = {bound.candidate: bound for bound in bound_candidates(task, candidates, found)}
    rows = {candidate: Evaluate(task)(candidate) for candidate in candidates}
    fitting = {candidate: row for candidate, row in rows.items() if "step_s" in row}
    for candidate, row in fitting.items():
        pipeline = sum(
            row["terms"][name] for name in ("compute", "recompute", "communication", "bubble")
        )
        assert bounds[candidate].seconds <= pipeline
        assert bounds[candidate].bytes_ <= row["memory_bytes"]
    best = min(row["step_s"] for row in fitting.values())
    assert plan(task).rows[0]["step_s"] == best
    if cap < 1e12:
        assert len(bounds) < len(candidates)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("cap", "microbatches"), [(1e12, 32), (1e12, 4), (13e9, 32)])
@pytest.mark.parametrize("order", BY_SPEED)
def test_layers_by_speed_are_the_best_of_all_splits(cap, microbatches, order):
    """Of every split of eight layers over four devices in that order, but for the optimizer's
    step.
    """
    task = replace(
        task_of(TWO, tp=(2,), pp=(4,), schedules=("1f1b",), layouts=(order,), recompute=("none",)),
        cap=cap,
    )
    task = replace(task, gbs=microbatches)
    (candidate,) = list_candidates(task)
    chosen = Evaluate(task)(candidate)
    parallel, machine = candidate.parallel(task.axes.base), task.machine_of(order)
    times = []
    for cuts in combinations(range(1, 8), 3):
        layout = build_layout(np.diff((0, *cuts, 8)).tolist(), 4)
        if (device_memory(MODEL, parallel, layout).total <= task.caps(machine, parallel)).all():
            step = step_time(MODEL, machine, parallel, layout)
            times.append((step.pipeline, step.seconds))
    pipeline = sum(
        chosen["terms"][name] for name in ("compute", "recompute", "communication", "bubble")
    )
    assert pipeline <= min(times)[0] * 1.01
    assert chosen["step_s"] <= min(seconds for _, seconds in times) * 1.015
    assert len(times) == 35 or cap < 1e12


def test_no_near_miss_of_unlike_nodes_is_named():
    """Each kind of GPU has usable bytes, and one --cap is of them all."""
    task = task_of(TWO)
    best = plan(task).rows[0]
    small = replace(task, cap=best["memory_bytes"] / 1.01)
    slow = {**best, "step_s": 2 * best["step_s"]}
    found = Findings(rows=[slow], barely=[(0.0, read_key(best["key"]))])
    assert Evaluate(task)(found.barely[0][1])["step_s"] == best["step_s"]
    assert find_near_miss(small, found) is None


def test_a_split_that_memory_limits_is_another_that_fits():
    small = replace(TWO.kinds[0].machine, gpu=replace(TWO.kinds[0].machine.gpu, memory_gib=16))
    tight = replace(TWO, kinds=(Kind(small, 4), TWO.kinds[1]))
    axes = {
        "tp": (1,),
        "pp": (4,),
        "schedules": ("1f1b",),
        "layouts": BY_SPEED[:1],
        "recompute": ("none",),
    }
    layouts = []
    for machine in (TWO, tight):
        task = task_of(machine, **axes)
        (candidate,) = list_candidates(task)
        layouts.append(layout_of(task, candidate))
        parallel = candidate.parallel(task.axes.base)
        caps = task.caps(machine, parallel)
        assert (device_memory(MODEL, parallel, layouts[-1]).total <= caps).all()
    assert (device_memory(MODEL, parallel, layouts[0]).total > caps).any()


def test_the_room_of_a_device_is_that_of_its_layers_and_what_they_keep():
    """1F1B on four devices of 16 and 80 GiB: as many layers as true memory allows, or one more."""
    small = replace(TWO.kinds[0].machine, gpu=replace(TWO.kinds[0].machine.gpu, memory_gib=16))
    tight = replace(TWO, kinds=(Kind(small, 4), TWO.kinds[1]))
    axes = {
        "tp": (1,),
        "pp": (4,),
        "schedules": ("1f1b",),
        "layouts": BY_SPEED[:1],
        "recompute": ("none",),
    }
    (candidate,) = list_candidates(task := task_of(tight, **axes))
    whole, parallel = GroupBounds(task, candidate.group), candidate.parallel(task.axes.base)
    whole.memory([candidate])
    caps = np.asarray(task.caps(tight, parallel))
    for device, room in enumerate(whole.room[candidate].tolist()):
        fits = 0
        for count in range(1, MODEL.layers + 1):
            rest = np.diff(np.linspace(0, MODEL.layers - count, 4).astype(int)).tolist()
            layout = build_layout([*rest[:device], count, *rest[device:]], 4)
            fits += device_memory(MODEL, parallel, layout).total[device] <= caps[device]
        assert fits <= room <= fits + 1, device
    assert 1 < whole.room[candidate].min() < MODEL.layers - 1


@pytest.mark.sampled(9)
@pytest.mark.parametrize("which", [0, 1])
def test_faster_nodes_never_make_a_plan_slower(which):
    before = float("inf")
    for factor in (1.0, 1.3, 2.0, 4.0):
        kind = TWO.kinds[which].machine
        tflops = replace(kind.gpu.tflops, bf16=kind.gpu.tflops.bf16 * factor)
        faster = replace(
            kind, gpu=replace(kind.gpu, tflops=tflops, hbm_gb_per_s=kind.gpu.hbm_gb_per_s * factor)
        )
        kinds = tuple(Kind(faster, 4) if n == which else each for n, each in enumerate(TWO.kinds))
        task = task_of(
            replace(TWO, kinds=kinds), pp=(2, 4), schedules=("1f1b",), recompute=("none",)
        )
        seconds = plan(task).rows[0]["step_s"]
        assert seconds <= before
        before = seconds


@pytest.mark.parametrize(("microbatches", "backwards"), [(4, 1.0), (9, 0.0), (64, 1.0)])
def test_no_split_over_unlike_devices_beats_the_bound(microbatches, backwards):
    """Random splits are above it; alike devices have the bound of a plain cluster."""
    random = np.random.default_rng(2)
    layers = random.uniform(1, 3, (2, 2, 6))
    least = least_on_kinds(layers, microbatches, True, backwards)
    shares = random.dirichlet(np.ones(6), (2, 3000))
    work = np.einsum("pnd,pd->nd", shares, layers.sum(axis=0))
    ends = np.einsum("pnd,pd->nd", shares, layers[0] + backwards * layers[1])
    longest = (microbatches * work + np.cumsum(ends, axis=1) - ends).max(axis=1)
    assert least <= longest.min()
    alike = np.full((2, 1, 5), 0.5)
    fraction = 0.5 + 0.5 * backwards
    assert least_on_kinds(alike, microbatches, True, backwards) == pytest.approx(
        least_share(5, microbatches, fraction)
    )


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_no_way_to_divide_layers_leaves_less_on_the_device_with_most(seed, least):
    """Seven layers over three devices that hold unlike amounts, at least one or two on each: every
    way is tried.
    """
    each = np.random.default_rng(seed).uniform(0, 1, (7, 3)).cumsum(axis=0) * np.array(
        [[1.0, 4.0, 9.0]]
    )
    ways = [np.diff((0, *cuts, 7)) for cuts in combinations(range(1, 7), 2)]
    held = [
        max(each[count - 1, device] for device, count in enumerate(way))
        for way in ways
        if min(way) >= least
    ]
    assert least_longest(each, least) == min(held)


@pytest.mark.parametrize(("seed", "microbatches"), [(3, 1), (4, 3), (5, 32), (6, 2)])
def test_split_by_speed_is_the_least_of_longest_work_and_fill(seed, microbatches):
    """Against every split of ten layers over three devices."""
    random = np.random.default_rng(seed)
    times, ends, most = random.uniform(1, 4, 3), random.uniform(0, 2, 3), np.array([10, 5, 4])
    parallel = Parallel(pp=3, microbatches=microbatches)

    def seconds(counts):
        work = ends + counts * times
        return microbatches * work.max() + work.sum() - work.max()

    splits = [np.diff((0, *cuts, 10)) for cuts in combinations(range(1, 10), 2)]
    best = min(seconds(split) for split in splits if (split <= most).all())
    assert seconds(split_by_speed(times, ends, 10, most, parallel)) == pytest.approx(best)
    assert split_by_speed(times, ends, 10, np.array([3, 3, 3]), parallel) is None
    fewest = split_by_speed(times, ends, 3, most, parallel)  # a layer for each stage
    assert fewest is not None
    assert fewest.tolist() == [1, 1, 1]


UNEVEN = HEAD + FAST + SLOW.replace("count = 1", "count = 2\ndevices_per_node = 2")


def test_kinds_of_nodes_may_have_unequal_sizes(tmp_path):
    """A node of four and two of two: groups inside either, ranks by their node; as fast as the
    links of each say.
    """
    (tmp_path / "uneven.toml").write_text(UNEVEN)
    uneven = read_machine(str(tmp_path / "uneven.toml"))
    assert (uneven.per_node, uneven.gpus, [kind.gpus for kind in uneven.kinds]) == (4, 8, [4, 4])
    assert (uneven.uneven, TWO.uneven) == (True, False)
    assert uneven.nodes_of(range(8)).tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert uneven.reversed.nodes_of(range(8)).tolist() == [0, 0, 1, 1, 2, 2, 2, 2]
    (tmp_path / "even.toml").write_text(HEAD + FAST + SLOW)
    even = read_machine(str(tmp_path / "even.toml"))
    for tp in (1, 2):
        one, other = (
            stage_costs(
                MODEL, machine, Parallel(tp=tp, pp=2, dp=4 // tp, schedule="1f1b", microbatches=8)
            ).time
            for machine in (even, uneven)
        )
        assert one == pytest.approx(other)  # tp inside a node of either
    wide = Parallel(tp=4, pp=2, schedule="1f1b", microbatches=8)
    assert stage_costs(MODEL, uneven, wide).time[0, 1] > stage_costs(MODEL, even, wide).time[0, 1]
    task = task_of(uneven, tp=(2,), pp=(2, 4), recompute=("none",))
    rows = [Evaluate(task)(candidate) for candidate in list_candidates(task)]
    assert plan(task).rows[0]["step_s"] == min(row["step_s"] for row in rows if "step_s" in row)


def test_nodes_that_would_begin_in_the_middle_of_a_group_are_refused(tmp_path):
    (tmp_path / "odd.toml").write_text(UNEVEN.replace("count = 2", "count = 3"))
    with pytest.raises(InputError, match="6 x a100-80gb are not a multiple of 4"):
        read_machine(str(tmp_path / "odd.toml"))


@pytest.mark.slow
def test_the_command_says_which_stages_lie_where(tmp_path):
    """In text, JSON, tables and on the page; without --gpus, which must be the cluster's."""
    file = tmp_path / "two.toml"
    file.write_text(HEAD + FAST + SLOW)
    words = [
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        str(file),
        "--gbs",
        "32",
        "--seq",
        "2048",
        "--tp",
        "2",
    ]
    words += ["--schedules", "1f1b", "--recomputes", "none", "--pp", "4"]
    made = invoke(
        *words, "--flags", "megatron", "-o", str(tmp_path / "x.html"), "-o", str(tmp_path / "x.csv")
    )
    assert made.exit_code == 0, made.stderr
    assert "4 x h100 + 4 x a100-80gb" in made.stdout
    said = json.loads(invoke(*words, "--json").stdout)
    best = said["plans"][0]
    assert said["gpus"] == 8
    assert sum(map(int, best["layers_of_devices"])) == 32
    assert sorted(set(best["gpu_of_devices"])) == ["a100-80gb", "h100"]
    first = best["gpu_of_devices"][0]
    layers = " ".join(best["layers_of_devices"][:2])
    assert f"{first}: pipeline devices 0-1, the first ranks, with {layers} layers, " in made.stdout
    assert "no published run has several kinds of nodes" in made.stdout
    assert "--pipeline-model-parallel-layout" in made.stdout
    line = next(line for line in made.stdout.splitlines() if line.startswith("run it: "))
    assert "--tf " in line
    assert invoke(*line.split()[3:]).exit_code == 0
    assert "4 × h100 + 4 × a100-80gb" in (tmp_path / "x.html").read_text()
    assert "layers_of_devices" in (tmp_path / "x.csv").read_text()
    sizes = [
        "--tp",
        "2",
        "--pp",
        "4",
        "--mb",
        "16",
        "--seq",
        "2048",
        "--cluster",
        str(file),
        "--json",
    ]
    timed = json.loads(invoke("model", "llama3-8b", *sizes).stdout)
    assert timed["gpu"] == said["gpu"] == "4 x h100 + 4 x a100-80gb"
    assert timed["stages"][1]["f_ms"] < timed["stages"][2]["f_ms"]
    wrong = invoke(*words, "--gpus", "4")
    assert isinstance(wrong.exception, InputError)
    assert "is planned whole, not 4 of its GPUs" in str(wrong.exception)


def test_layers_left_over_go_to_the_stages_in_the_middle():
    """Of a loop over two devices the later stage of the first and the earlier one of the second; of
    a V the upper.
    """
    parallel = Parallel(pp=2, vp=2)
    assert spread(np.array([3, 3]), np.array([0, 1, 0, 1]), parallel) == [1, 2, 2, 1]
    assert spread(np.array([3, 5]), np.array([0, 1, 1, 0]), parallel) == [2, 3, 2, 1]
    assert spread(np.array([5, 6]), np.array([0, 1, 0, 1]), parallel) == [2, 3, 3, 3]


@pytest.mark.parametrize("seed", range(12))
def test_no_division_of_layers_over_devices_is_faster(seed):
    """Of all with one layer a stage at least and no more than a device can hold: the longest device
    for each microbatch, the others once.
    """
    rng = np.random.default_rng(seed)
    times, ends = rng.integers(1, 5, 3).astype(float), rng.integers(0, 3, 3).astype(float)
    parallel, layers = Parallel(pp=3, vp=1 + seed % 2, microbatches=64), 11
    most = rng.integers(2, 9, 3)

    def takes(counts):
        work = ends + np.array(counts) * times
        return parallel.microbatches * work.max() + (work.sum() - work.max()) / parallel.vp

    ways = [
        c
        for c in product(range(parallel.vp, layers + 1), repeat=3)
        if sum(c) == layers and (c <= most).all()
    ]
    found = split_by_speed(times, ends, layers, most, parallel)
    if found is None:
        assert not ways
    else:
        assert tuple(found.tolist()) in ways
        assert takes(found) == pytest.approx(min(map(takes, ways)))
