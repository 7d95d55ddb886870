"""Plans: every candidate is counted once, bounds leave out no winner, and results are the same
wherever they run.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import sys
import threading
import tomllib
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from ppsim.errors import InputError, PpsimError
from ppsim.questions.plans.plan import plan as ask_plan
from ppsim.questions.plans.run_of_plan import run_line
from ppsim.workload.cost.costs import stage_costs, step_time
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans import search as module
from ppsim.workload.plans.bounds import least_share
from ppsim.workload.plans.gains import HALF
from ppsim.workload.plans.launch.megatron import megatron_flags
from ppsim.workload.plans.launcher import launch_text
from ppsim.workload.plans.ranks import flowchart, group_links, rank_grid, span
from ppsim.workload.plans.search import Evaluate, search
from ppsim.workload.plans.space import (
    Axes,
    check_axes,
    divisors,
    groups,
    layout_layers,
    layout_of,
    members,
    read_key,
)
from ppsim.workload.plans.task import OUTCOMES, Findings, Task, usable_bytes
from tests.clock import HANG_S
from tests.commands import KEPT_AT_ONCE, invoke, refused, start_command, with_options
from tests.real.runs.cases import wait_for

MODEL, MACHINE = read_model("llama3-8b"), read_machine("dgx-h100")
NAMES = ("1f1b", "interleaved", "zb-1p", "dualpipe-v", "dualpipe", "bitpipe")
SMALL = Axes(tp=(1, 2), cp=(1,), pp=(1, 2, 4), mbs=(1, 2), schedules=NAMES, fitted=())
PLAN = [
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "16",
    "--gbs",
    "64",
    "--seq",
    "4096",
]
PLAN += ["--cp", "1", "--mbs", "1,2", "--pp", "2,4,8"]


def run_here(function, tasks):
    return ((index, function(task)) for index, task in enumerate(tasks))


def plan(task: Task) -> Findings:
    found = Findings()
    search(task, run_here, found, lambda done, what: None)
    return found


def small_task(**changes) -> Task:
    model = replace(MODEL, seq=2048, layers=8)
    return Task(model, MACHINE, 8, 16, replace(SMALL, **changes), usable_bytes(MACHINE), keep=3)


def all_candidates(task: Task):
    return [
        c
        for g in groups(task.model, 8, task.gpus, task.gbs, task.axes)
        for c in members(task.model, g, task.axes)
    ]


def test_every_candidate_multiplies_to_the_gpus_and_the_batch():
    task = small_task()
    candidates = all_candidates(task)
    assert len(candidates) == len(set(candidates)) > 300
    for candidate in candidates:
        parallel = candidate.parallel(task.axes.base)
        assert parallel.gpus == 8
        assert parallel.gbs == 16
        assert sum(layout_of(task.model, candidate).layers) == 8
        assert read_key(candidate.key) == candidate


def expert_task() -> Task:
    """DeepSeek-V2-Lite with eight layers: experts, latent attention, pairs that hide all-to-all."""
    model = replace(read_model("deepseek-v2-lite"), seq=2048, layers=8)
    axes = replace(SMALL, tp=(1, 2), ep=(1, 2, 4), pp=(2, 4), mbs=(1,), layouts=("even",))
    return Task(model, MACHINE, 8, 32, axes, usable_bytes(MACHINE), keep=3)


def is_twin(row: tuple[float, float, str], faster: tuple[float, float, str]) -> bool:
    """Return whether a plan has a faster one's sizes and schedule, and holds no less."""
    one, other = read_key(row[2]), read_key(faster[2])
    return (one.group, one.schedule) == (other.group, other.schedule) and row[1] >= faster[1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "task",
    [small_task(tp=(2,)), small_task(), expert_task()],
    ids=["dense", "any tensor size", "experts"],
)
def test_the_plan_is_that_of_simulating_all_candidates(task):
    """Bounds and rounds leave out no winner: the three best are those of the whole space, in order,
    without twins.
    """
    rows = [row for c in all_candidates(task) if "step_s" in (row := Evaluate(task)(c))]
    ordered = sorted((row["step_s"], row["memory_bytes"], row["key"]) for row in rows)
    best = [
        row
        for place, row in enumerate(ordered)
        if not any(is_twin(row, other) for other in ordered[:place])
    ][:3]
    found = plan(task)
    assert [(row["step_s"], row["memory_bytes"], row["key"]) for row in found.rows] == best
    assert found.complete
    assert found.total == sum(found.counts.values()) == len(all_candidates(task))
    assert set(found.counts) <= set(OUTCOMES)
    assert found.counts["simulated"] < found.total / 2


@pytest.mark.parametrize(
    ("devices", "microbatches", "ends"), [(2, 2, 1.0), (4, 9, 1.0), (8, 8, 0.3), (5, 3, 0.0)]
)
def test_no_split_of_the_work_beats_the_bound(devices, microbatches, ends):
    """Random splits are above it, and one that falls from device to device meets it."""
    least = least_share(devices, microbatches, ends)
    shares = np.random.default_rng(1).dirichlet(np.ones(devices), 1000)
    falling = (1 - ends / microbatches) ** np.arange(devices)
    shares[0] = falling / falling.sum()
    longest = (microbatches * shares + ends * (np.cumsum(shares, axis=1) - shares)).max(axis=1)
    assert (longest >= least * (1 - 1e-12)).all()
    assert longest[0] == pytest.approx(least)


@pytest.mark.slow
def test_the_front_is_that_of_simulating_all_candidates():
    task = replace(small_task(), front=True, keep=1)
    rows = [row for c in all_candidates(task) if "step_s" in (row := Evaluate(task)(c))]
    places = {(row["step_s"], row["memory_bytes"]) for row in rows}
    best = {p for p in places if not any(q[0] <= p[0] and q[1] <= p[1] and q != p for q in places)}
    found = plan(task)
    assert {(row["step_s"], row["memory_bytes"]) for row in found.rows if row["pareto"]} == best
    assert len(best) > 2


def test_two_replicas_hold_weights_twice_and_share_what_zero_divides():
    """Of four layers on four devices DualPipe holds eight; its optimizer states are divided over
    twice the ranks.
    """
    model = replace(MODEL, seq=2048, layers=4, vocab=0)
    one = Parallel(pp=4, dp=2, microbatches=8, schedule="1f1b", overlap_dp=False)
    two = replace(one, schedule="dualpipe")
    for zero, doubled in enumerate(([2, 2, 2], [2, 2, 1], [2, 1, 1], [1, 1, 1])):
        held = [device_memory(model, replace(p, zero=zero)) for p in (one, two)]
        parts = [
            getattr(held[1], part) / getattr(held[0], part)
            for part in ("weights", "gradients", "optimizer")
        ]
        # the last norm is not on all stages
        assert np.allclose(np.array(parts).T, doubled, rtol=1e-4)
    slow, fast = step_time(model, MACHINE, one), step_time(model, MACHINE, two)
    assert fast.pipeline < slow.pipeline
    assert fast.optimizer == pytest.approx(slow.optimizer, rel=1e-4)
    assert fast.reduction > slow.reduction


def test_orders_by_costs_are_tried_for_the_fastest_of_their_placement():
    """With fixed orders first: those of zb-auto and zb-v count as further candidates, and win where
    they are faster.
    """
    task = replace(small_task(schedules=("1f1b", "zb-1p"), pp=(4,), tp=(1,), mbs=(1,)), gbs=8)
    task = replace(task, model=replace(task.model, layers=10, vocab=1))
    fixed, both = (
        plan(task),
        plan(replace(task, axes=replace(task.axes, fitted=("zb-auto", "zb-v")))),
    )
    assert fixed.total < both.total <= fixed.total + 8
    assert both.total == sum(both.counts.values())
    assert both.rows[0]["step_s"] < fixed.rows[0]["step_s"]
    assert both.rows[0]["schedule"] == "zb-auto"
    named = plan(replace(task, axes=replace(task.axes, schedules=("zb-auto",))))
    assert named.rows[0] == both.rows[0]


def test_zero_and_offload_are_chosen_like_sizes():
    """Where little memory is left the plan moves activations to the host, or divides gradients."""
    task = small_task(
        schedules=("1f1b",), recompute=("none",), zero=(1, 2), offload=(0, 50), pp=(1, 2)
    )
    free = plan(task).rows
    least = min(
        row["memory_bytes"] for c in all_candidates(task) if "step_s" in (row := Evaluate(task)(c))
    )
    tight = plan(replace(task, cap=least)).rows
    assert free[0]["offload"] == 0
    assert free[0]["step_s"] <= tight[0]["step_s"]
    assert tight[0]["offload"] == 0.5
    plain = small_task(schedules=("1f1b",), recompute=("none",), zero=(1,), pp=(1, 2))
    assert len(all_candidates(task)) == 4 * len(all_candidates(plain))


@pytest.mark.slow
def test_rounds_of_any_size_find_the_same(monkeypatch):
    best = plan(small_task()).rows
    monkeypatch.setattr(module, "FIRST_ROUND", 3)
    monkeypatch.setattr(module, "ROUND", 7)
    assert plan(small_task()).rows == best


def test_the_terms_of_a_step_sum_to_it():
    for row in plan(small_task()).rows:
        assert sum(row["terms"].values()) == pytest.approx(row["step_s"], rel=1e-9)


def test_an_interruption_leaves_the_best_so_far():
    """What a round has found is there before the round ends."""
    found, ran = Findings(), list[object]()

    def run(function, tasks):
        for index, task in enumerate(tasks):
            if len(ran) == 20:
                raise KeyboardInterrupt
            ran.append(task)
            yield index, function(task)

    with pytest.raises(KeyboardInterrupt):
        search(small_task(), run, found, lambda done, what: None)
    assert found.rows
    assert not found.complete


def test_plans_do_not_depend_on_the_order_in_which_workers_answer():
    """A late answer may show that earlier ones were its near copies: what they kept off the list
    comes back.
    """

    def answer(candidate):
        draw = 23  # in which a late answer makes two early ones near copies
        alike, alone = (
            Random(f"{candidate.group} {candidate.schedule}{draw}"),
            Random(f"{candidate.key}{draw}"),
        )
        row = {"outcome": "simulated", "key": candidate.key, "schedule": candidate.schedule}
        return row | {
            "step_s": 100 + alike.random() + alone.random() / 1e6,
            "memory_bytes": alone.random(),
        }

    def rows(direction):
        found = Findings()
        search(
            small_task(),
            lambda function, tasks: ((i, answer(tasks[i])) for i in range(len(tasks))[::direction]),
            found,
            lambda done, what: None,
        )
        return found.rows

    assert rows(1) == rows(-1)
    assert len(rows(1)) == 3


def test_layouts_hold_all_layers_and_lighten_the_ends():
    assert layout_layers(MODEL, 8, "even") == (4,) * 8
    assert layout_layers(MODEL, 8, "light-last") == (4, 4, 4, 5, 4, 4, 4, 3)
    assert layout_layers(MODEL, 8, "light-ends") == (3, 4, 4, 5, 5, 4, 4, 3)
    assert layout_layers(MODEL, 32, "light-ends") is None
    for stages, layout in product(range(1, 35), ("even", "light-last", "light-ends")):
        split = layout_layers(MODEL, stages, layout)
        assert split is None or (sum(split) == 32 and len(split) == stages)


def test_divisors_are_all_and_ascending():
    for number in (1, 2, 36, 97, 100_000):
        assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


def test_groups_of_ranks_lie_where_megatron_puts_them():
    """Eight GPUs as data 2 x pipeline 2 x tensor 2 on nodes of four: tensor ranks adjacent, stages
    four apart.
    """
    machine = replace(MACHINE, cluster=replace(MACHINE.cluster, devices_per_node=4))
    parallel = Parallel(tp=2, pp=2, dp=2)
    assert rank_grid(parallel).tolist() == [[[[0, 1]], [[4, 5]]], [[[2, 3]], [[6, 7]]]]
    found = {
        links.kind: (links.ranks, links.count, links.link)
        for links in group_links(machine, parallel)
    }
    assert found == {
        "tp": ((0, 1), 4, "inside a node"),
        "pp": ((0, 4), 4, "between nodes"),
        "dp": ((0, 2), 4, "inside a node"),
    }
    drawn = flowchart(machine, parallel).splitlines()
    assert drawn[0] == "flowchart LR"
    assert sum("rank " in line for line in drawn) == 8
    wide = flowchart(machine, Parallel(tp=8, pp=2)).splitlines()
    assert [line.strip() for line in wide if "more" in line] == [
        'D0P0M["4 more"]',
        'D0P1M["4 more"]',
    ]
    assert '  D0P0 -->|"activations from node 0 to 1"| D0P1' in drawn
    assert '  D0 <-.->|"gradients inside node 0"| D1' in drawn


def test_links_of_groups_say_how_many_ranks_share_a_node():
    """On nodes of eight: of 12 ranks 2 apart four lie in a node; 16 apart each is alone; experts
    have their own.
    """
    found = {links.kind: links for links in group_links(MACHINE, Parallel(tp=2, dp=12, pp=2, ep=4))}
    assert (found["dp"].nodes, found["dp"].per_node, found["dp"].link) == (
        3,
        4,
        "between nodes, 4 of a group in each",
    )
    assert (found["pp"].ranks, found["pp"].link) == ((0, 24), "between nodes")
    assert (found["ep"].size, found["ep"].count, found["ep"].link) == (4, 12, "inside a node")
    assert (found["expert-dp"].size, found["expert-dp"].ranks[:3], found["expert-dp"].nodes) == (
        6,
        (0, 4, 8),
        3,
    )
    assert "cp" not in found
    assert "expert-dp" not in {links.kind for links in group_links(MACHINE, Parallel(tp=2, dp=12))}


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((0,), "0"),
        ((0, 4, 8, 12), "0 4 8 12"),
        ((0, 1, 2, 3, 4), "0-4"),
        (tuple(range(2, 22, 4)), "2 6 ... 18"),
    ],
)
def test_ranks_are_written_shortly(ranks, text):
    assert span(ranks) == text


def test_a_large_flowchart_shows_the_first_three_and_the_last():
    """Arrows over a gap say nothing of nodes; of five replicas and six devices two and two are left
    out.
    """
    lines = [
        line.strip() for line in flowchart(MACHINE, Parallel(tp=2, cp=2, pp=6, dp=5)).splitlines()
    ]
    assert [line for line in lines if line.startswith("subgraph D0P")] == [
        'subgraph D0P0["pipeline device 0, node 0"]',
        'subgraph D0P1["pipeline device 1, node 2"]',
        'subgraph D0P2["pipeline device 2, node 5"]',
        'subgraph D0P5["pipeline device 5, node 12"]',
    ]
    assert sum(line.startswith("subgraph D") and "data replica" in line for line in lines) == 4
    assert 'R0["rank 0<br/>context 0, tensor 0"]' in lines
    assert 'R3["rank 3<br/>context 1, tensor 1"]' in lines
    assert 'D0P0 -->|"activations from node 0 to 2"| D0P1' in lines
    assert 'D0P2 -->|"activations"| D0P5' in lines
    assert 'D0 <-.->|"gradients inside node 0"| D1' in lines
    assert 'D2 <-.->|"gradients"| D4' in lines
    assert lines[-1] == "%% of 5 replicas and 6 pipeline devices the first 3 and the last are drawn"
    few = flowchart(MACHINE, Parallel(tp=4, pp=4, dp=4))
    assert "%%" not in few
    assert "more" not in few


def test_launch_flags_say_what_the_plan_says():
    parallel = Parallel(
        tp=4,
        pp=4,
        dp=2,
        vp=2,
        mbs=2,
        microbatches=8,
        schedule="interleaved",
        recompute="full",
        recompute_layers=2,
    )
    found = read_key("4/1/1/4/2/2/8/2/interleaved/full/2/even/1/0")
    flags = megatron_flags(MODEL, parallel, layout_of(MODEL, found))
    for wanted in (
        "--tensor-model-parallel-size 4",
        "--pipeline-model-parallel-size 4",
        "--num-virtual-stages-per-pipeline-rank 2",
        "--micro-batch-size 2",
        "--global-batch-size 32",
        "--recompute-method block",
        "--recompute-num-layers 2",
        "--sequence-parallel",
        "--num-query-groups 8",
    ):
        assert wanted in flags
    with pytest.raises(InputError, match="torchtitan recomputes all layers or none"):
        launch_text("torchtitan", MODEL, parallel, layout_of(MODEL, found))
    text = launch_text(
        "torchtitan", MODEL, replace(parallel, recompute_layers=None), layout_of(MODEL, found)
    )
    assert 'pipeline_parallel_schedule = "Interleaved1F1B"' in text
    assert "local_batch_size = 16" in text
    with pytest.raises(InputError, match="Megatron-LM has no schedule"):
        megatron_flags(MODEL, replace(parallel, schedule="zb-v-torch"), layout_of(MODEL, found))


@pytest.mark.parametrize(
    ("changes", "flag"),
    [
        ({"microbatches": 9}, "--microbatch-group-size-per-virtual-pipeline-stage 5"),
        ({"schedule": "interleaved-overlap"}, "--overlap-moe-expert-parallel-comm"),
        ({"zero": 3}, "--data-parallel-sharding-strategy optim_grads_params"),
    ],
)
def test_megatron_flags_that_only_some_plans_need(changes, flag):
    parallel = Parallel(pp=4, vp=2, dp=2, microbatches=8, schedule="interleaved")
    layout = build_layout([4] * 8, 4, 0)
    assert flag in megatron_flags(MODEL, replace(parallel, **changes), layout)
    assert flag not in megatron_flags(MODEL, parallel, layout)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"microbatches": 3}, "cannot interleave 3 microbatches"),
        ({"schedule": "interleaved-overlap", "recompute": "full"}, "cannot hide all-to-all"),
        ({"offload": 0.5}, "offloads whole modules"),
        ({"schedule": "zb-1p"}, "no schedule zb-1p"),
        ({"moment_bytes": 2, "zero": 0}, "16-bit moments only with the distributed optimizer"),
    ],
)
def test_what_megatron_refuses_is_no_launch_flag(changes, message):
    parallel = Parallel(pp=4, vp=2, dp=2, microbatches=8, schedule="interleaved")
    with pytest.raises(InputError, match=message):
        megatron_flags(MODEL, replace(parallel, **changes), build_layout([4] * 8, 4, 0))


def test_megatron_flags_describe_experts_latent_attention_and_narrow_numbers():
    parallel = Parallel(tp=2, dp=4, ep=8, microbatches=8, precision="nvfp4")
    model = replace(read_model("deepseek-v3"), layers=4, dense_layers=1, mtp=0)
    assert megatron_flags(model, parallel, build_layout([4], 1, 0))[10:] == [
        "--max-position-embeddings 4096",
        "--vocab-size 129280",
        "--position-embedding-type rope",
        "--untie-embeddings-and-output-weights",
        "--disable-bias-linear",
        "--attention-dropout 0",
        "--hidden-dropout 0",
        "--normalization RMSNorm",
        "--swiglu",
        "--multi-latent-attention",
        "--kv-lora-rank 512",
        "--v-head-dim 128",
        "--qk-head-dim 128",
        "--qk-pos-emb-head-dim 64",
        "--q-lora-rank 1536",
        "--num-experts 256",
        "--moe-router-topk 8",
        "--moe-ffn-hidden-size 2048",
        "--moe-shared-expert-intermediate-size 2048",
        "--moe-layer-freq '[0,1,1,1]'",
        "--expert-model-parallel-size 8",
        "--expert-tensor-parallel-size 1",
        "--moe-token-dispatcher-type alltoall",
        "--moe-grouped-gemm",
        "--sequence-parallel",
        "--tp-comm-overlap",
        "--use-distributed-optimizer",
        "--overlap-grad-reduce",
        "--overlap-param-gather",
        "--fp4-format e2m1",
        "--fp4-recipe nvfp4",
        "--bf16",
    ]
    once = megatron_flags(model, replace(parallel, dispatch="deepep"), build_layout([4], 1, 0))
    assert {"--moe-token-dispatcher-type flex", "--moe-enable-deepep"} < set(once)


@pytest.mark.parametrize(
    ("layers", "lines"),
    [
        (
            [2, 2],
            ["layers_per_stage = 2", "first_stage_less_layers = 0", "last_stage_less_layers = 0"],
        ),
        ([2, 1], []),
    ],
)
def test_torchtitan_divides_layers_as_the_plan_does(layers, lines):
    """Its defaults count embedding and output as a layer each; a division of other sizes is written
    out.
    """
    text = launch_text(
        "torchtitan",
        MODEL,
        Parallel(pp=2, microbatches=4, schedule="1f1b"),
        build_layout(layers, 2, 0),
    )
    table = tomllib.loads(text)["parallelism"]
    assert [line for line in lines if f"pipeline_parallel_{line}\n" not in text] == []
    # torchtitan refuses both ways at once
    assert ("layers_per_stage" in text) == (layers == [2, 2])
    written = [["tok_embeddings", "layers.0", "layers.1"], ["layers.2", "norm", "output"]]
    assert table.get("module_fqns_per_model_part") == (None if layers == [2, 2] else written)


def answer(*words: str) -> dict[str, Any]:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout) | {"inputs": None}


QUICK = [
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "8",
    "--gbs",
    "8",
    "--seq",
    "4096",
]
QUICK += ["--cp", "1", "--tp", "4,8", "--mbs", "1", "--schedules", "1f1b,interleaved"]


def test_a_plan_prints_what_it_left_out_and_the_best():
    result = invoke(*QUICK, "--ranks", "--flags", "megatron")
    assert result.exit_code == 0
    assert "candidates\n" in result.stdout
    assert result.stdout.startswith("best: tp ")
    assert "inside a node" in result.stdout
    assert "--tensor-model-parallel-size" in result.stdout
    assert ", 8 sequences of 4,096 tokens a step, " in result.stdout
    assert invoke(*QUICK, "-q").stdout.count("\n") == 1


def test_one_sequence_is_no_sequences():
    words = ("--model", "megatron-1.7b", "--cluster", "dgx-h100", "--gpus", "1", "--gbs", "1")
    assert ", 1 sequence of 2,048 tokens a step, " in invoke("plan", *words).stdout


def test_plans_are_best_first_in_json_and_tables(tmp_path, monkeypatch):
    from ppsim.base.tables import read_table

    monkeypatch.chdir(tmp_path)
    found = answer(*QUICK, "--top", "4")
    assert found["schema"] == "ppsim.plan/1"
    steps = [row["step_s"] for row in found["plans"]]
    tied = [row["tied"] for row in found["plans"]]
    assert steps[1:] == sorted(steps[1:])
    assert tied == [any(tied[1:]), *(row["slower_low"] <= 0 for row in found["plans"][1:])]
    assert sum(found["outcomes"].values()) == found["candidates"]
    written = invoke(*QUICK, "--top", "4", "-q", "-o", "p.csv", "-o", "p.parquet", "-o", "r.mmd")
    assert written.exit_code == 0
    assert [float(row["step_s"]) for row in read_table("p.csv")] == steps
    assert [row["step_s"] for row in read_table("p.parquet", columns=["step_s"])] == steps
    assert Path("r.mmd").read_text().startswith("flowchart LR")


def test_python_gets_the_plans_of_the_command():
    sizes = {"gpus": 8, "gbs": 8, "seq": 4096, "cp": 1, "tp": [4, 8], "mbs": [1]}
    found = ask_plan("llama3-8b", "dgx-h100", **sizes, schedules=["1f1b", "interleaved"])
    assert json.loads(json.dumps(found.to_json() | {"inputs": None})) == answer(*QUICK)
    assert [row["step_s"] for row in found.table] == [row["step_s"] for row in found.plans]
    assert found.table[0]["bubble_s"] == found.plans[0]["terms"]["bubble"]
    with pytest.raises(InputError, match="a plan needs --gbs"):
        ask_plan("llama3-8b", "dgx-h100", gpus=8)


def test_a_plan_goes_on_from_its_results(tmp_path):
    kept = str(tmp_path / "kept.csv")
    first = answer(*QUICK, "--results", kept)
    assert answer(*QUICK, "--results", kept) == first == answer(*QUICK)
    assert "other inputs" in str(invoke(*QUICK, "--top", "2", "--results", kept).exception)


@pytest.mark.parametrize(
    ("words", "columns", "said"),
    [
        (["--zero", "3"], ["zero"], ", microbatches of 1, ZeRO-3: "),
        (
            ["--offload", "0.5", "--recomputes", "none"],
            ["offload"],
            ", 50% of activations offloaded: ",
        ),
        (["--recomputes", "full", "--precision", "fp8"], [], ", microbatches of 1, full recompute"),
        ([], [], ", microbatches of 1: "),
    ],
)
def test_what_a_plan_needs_beside_its_sizes_is_in_the_table_and_the_result(words, columns, said):
    """A plan that fits only with ZeRO-3 is wrong without these words."""
    shown = invoke(*QUICK, "--pp", "1", *words, "--top", "1").stdout
    heading = next(line for line in shown.splitlines() if "recompute" in line and "layout" in line)
    assert [name for name in ("zero", "offload") if name in heading.split()] == columns
    assert said in shown
    assert ("of the fp8 peak" in shown) == ("fp8" in words)


@pytest.mark.parametrize(
    ("changes", "code", "says"),
    [
        (["--gpus", "7", "--tp", "2"], 2, "--tp"),
        (["--gpus", "16", "--gbs", "7", "--pp", "1"], 2, "no way to train"),
        (["--gpus", "10000", "--gbs", "7"], 2, "--gbs 50"),
        (["--cap", "1GiB"], 1, "the smallest needs"),
        (["--cap", "1GiB", "--recomputes", "none"], 1, "--recomputes full, "),
        (["--cap", "40"], 2, "75GiB"),
        (["--zero", "4"], 2, "--zero 4 is not from 0 to 3"),
        (["--offload", "50"], 2, "--offload 50 is not from 0 to 1"),
        (["--schedules", "1f1c"], 2, "1f1b"),
        (["--recomputes", "some"], 2, "none,selective,full"),
        (["--model", "nobody"], 2, "library"),
        (
            ["--schedules", "zb-1p", "--flags", "megatron"],
            2,
            "of 1f1b,interleaved,interleaved-overlap",
        ),
        (["--cluster", "nowhere"], 2, "dgx-h100"),
        (["--precision", "nvfp4"], 2, "no fp4"),
        (["-o", "x.gif"], 2, ".html"),
        (["--seq", "0"], 2, "from 1 to"),
    ],
)
def test_what_cannot_be_planned_is_one_error_with_a_way_out(changes, code, says):
    result = invoke(*with_options(QUICK, changes))
    error = result.exception
    assert (error.exit_code if isinstance(error, PpsimError) else result.exit_code) == code
    hint = error.hint if isinstance(error, PpsimError) else ""
    assert says in f"{error} {hint} {result.output}"


def test_every_way_out_of_a_batch_that_no_replicas_divide_is_one():
    """8 x 8 ranks leave 23 replicas, which do not divide 32 sequences: what the hint names has
    candidates.
    """
    axes, model, machine = (
        Axes(tp=(8,), pp=(8,)),
        read_model("llama3-70b"),
        read_machine("dgx-h100"),
    )
    with pytest.raises(InputError, match="and tp 8, pp 8: dp 23 does not divide 32") as refused:
        check_axes(model, machine.per_node, 1472, 32, axes)
    assert refused.value.hint == "--gbs 46, or --gpus 1024, or leave out --pp"
    check_axes(model, machine.per_node, 1472, 46, axes)
    check_axes(model, machine.per_node, 1024, 32, axes)
    check_axes(model, machine.per_node, 1472, 32, replace(axes, pp=None))


def test_a_plan_of_a_config_asks_how_long_sequences_are(tmp_path):
    config = {
        "hidden_size": 1024,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 4096,
        "max_position_embeddings": 32768,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = [
        "plan",
        "--model",
        str(tmp_path),
        "--cluster",
        "dgx-h100",
        "--gpus",
        "2",
        "--gbs",
        "2",
        "--pp",
        "1",
    ]
    refused = invoke(*words)
    assert refused.exit_code == 1
    assert "states the longest sequence possible (32,768 tokens)" in str(refused.exception)
    assert invoke(*words, "--seq", "4096").exit_code == 0


def test_what_a_plan_needs_is_named():
    assert str(invoke("plan", "--gpus", "8").exception) == "a plan needs --model, --cluster, --gbs"


@pytest.mark.slow
def test_dask_gives_the_same_plan_with_a_worker_killed_half_way():
    from distributed import LocalCluster

    plain = answer(*PLAN)
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:

        def kill() -> None:
            working = cluster.scheduler.workers
            wait_for(
                lambda: all(worker.processing for worker in list(working.values())), "work for both"
            )
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        assert answer(*PLAN, "--dask", cluster.scheduler_address) == plain
        killer.join()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals of Linux")
def test_an_interrupted_plan_keeps_its_results(tmp_path):
    """However fast the machine is: rows are written as soon as there are any, and thousands are
    left.
    """
    words = [
        "plan",
        "--model",
        "gpt3-175b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "1024",
        "--gbs",
        "1536",
        "--top",
        "999",
    ]
    started = start_command(*words, "--results", "kept.csv", how=["-c", KEPT_AT_ONCE], cwd=tmp_path)
    wait_for(lambda: (tmp_path / "kept.csv").exists() or started.poll() is not None, "kept rows")
    started.send_signal(signal.SIGINT)
    _, errors = started.communicate(timeout=HANG_S)
    assert started.returncode == 130
    assert "Traceback" not in errors
    assert "the same command continues from it" in errors


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name",
    [
        "1f1b",
        "interleaved",
        "interleaved-overlap",
        "zb-1p",
        "dualpipe",
        "dualpipe-v",
        "zb-auto",
        "seq1f1b",
    ],
)
@pytest.mark.parametrize(("pp", "overlap_p2p"), [(4, True), (2, False)])
def test_a_plan_says_how_to_draw_its_pipeline(name, pp, overlap_p2p):
    """``ppsim run`` with the times of stages, pairs and messages takes what the plan says that its
    pipeline takes.
    """
    model, vp = (
        replace(read_model("deepseek-v3"), layers=24),
        {"interleaved": 2, "interleaved-overlap": 3, "dualpipe-v": 2},
    )
    parallel = Parallel(
        dp=4,
        pp=pp,
        ep=4,
        vp=vp.get(name, 1),
        microbatches=8,
        schedule=name,
        overlap_ep=True,
        overlap_p2p=overlap_p2p,
    )
    costs = stage_costs(model, MACHINE, parallel)
    program, *words = shlex.split(run_line(parallel, costs))
    assert program == "ppsim"
    ran = json.loads(invoke(*words, "--json").stdout)
    step = step_time(model, MACHINE, parallel, costs=costs)
    assert ran["makespan"] / 1e3 == pytest.approx(step.pipeline, rel=1e-4)


@pytest.mark.slow
def test_a_plan_without_a_pipeline_draws_none():
    assert run_line(Parallel(dp=8), stage_costs(MODEL, MACHINE, Parallel(dp=8))) == ""
    found = ask_plan(
        model="llama3-8b", cluster="dgx-h100", gpus=8, gbs=8, pp=[4], tp=[1], schedules="1f1b"
    )
    assert f"run it: {found.to_json()['run']}" in str(found)


def test_plans_say_how_sure_it_is_that_the_best_beats_them(monkeypatch):
    """Of its layout from 6 % on, of another from 15 % on; both ends of each range are around the
    printed steps, and each of the others is named once.
    """
    monkeypatch.setattr("ppsim.questions.plans.plan.count_cores", lambda: 1)
    sizes = {"gpus": 32, "gbs": 128, "mbs": [1], "cp": [1], "tp": [2, 8], "pp": [4], "top": 12}
    found = ask_plan(
        "llama3-8b",
        "dgx-h100",
        **sizes,
        schedules=["1f1b", "gpipe", "interleaved"],
        any=True,
    )
    best, *others = found.plans
    assert (best["slower_low"], best["slower_high"]) == (0, 0)
    alone = [
        plan
        for plan in others
        if (plan["tp"], plan["recompute"]) == (best["tp"], best["recompute"])
    ]
    assert 0 < len(alone) < len(others)
    for plan in others:
        slower = plan["step_s"] / best["step_s"]
        ratio = (1 + plan["slower_high"]) / slower
        assert (1 + plan["slower_low"]) * ratio == pytest.approx(slower)
        same = plan in alone and plan["zero"] == best["zero"]
        assert math.log(ratio) == pytest.approx(HALF if same else 0.14)
    said = " ".join(str(found).split())
    (beats, near), *_ = re.findall(r"plan 1 beats (.+?); (.+?) (?:is|are) tied with plan 1", said)
    beaten = {place for place, plan in enumerate(others, 2) if plan["slower_low"] > 0}
    assert places_of(beats) == beaten
    assert places_of(near) == {*range(2, len(others) + 2)} - beaten
    assert {place for place, plan in enumerate(others, 2) if plan["tied"]} == places_of(near)
    assert best["tied"]
    marked = re.findall(r"^(\d+) .*-[\d.]+ tied ", str(found), re.M)
    assert {int(place) for place in marked} == places_of(near) | {1}
    texts = [bar.text for bar in found.bars().bars]
    assert [text.endswith(", tied") for text in texts] == [plan["tied"] for plan in found.plans]


def places_of(text: str) -> set[int]:
    """The plans that a text names: plans 2, 4-7 and 9."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found |= {*range(int(first), int(last or first) + 1)}
    return found


def test_plans_gain_over_1f1b_in_their_layout(monkeypatch):
    """As modelled, with a range; a plan of 1f1b and one without a pipeline gain nothing."""
    monkeypatch.setattr("ppsim.questions.plans.plan.count_cores", lambda: 1)
    sizes: dict[str, Any] = {
        "gpus": 16,
        "gbs": 64,
        "mbs": [1],
        "tp": [2],
        "pp": [4],
        "cp": [1],
        "zero": [1],
    }
    sizes |= {"recomputes": "none", "layouts": "even", "any": True}
    found = ask_plan("llama3-8b", "dgx-h100", **sizes, schedules=["1f1b", "zb-1p", "zb-v"]).plans
    steps = {plan["schedule"]: plan["modelled_step_s"] for plan in found}
    for plan in found:
        if plan["schedule"] == "1f1b":
            assert "gain" not in plan
            continue
        gain = steps["1f1b"] / steps[plan["schedule"]] - 1
        assert (plan["gain_over"], plan["gain"]) == ("1f1b", pytest.approx(gain, rel=1e-12))
        ends = ((1 + gain) * math.exp(far) - 1 for far in (-HALF, HALF))
        assert (plan["gain_low"], plan["gain_high"]) == pytest.approx(tuple(ends))
        assert plan["gain_checked"]
    assert len(steps) == 3
    sizes |= {"pp": [1]}
    assert all("gain" not in plan for plan in ask_plan("llama3-8b", "dgx-h100", **sizes).plans)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "tp", "said"),
    [
        ("llama2-7b", 2, ""),
        ("llama2-7b", 4, "share of an MLP 2,752 is not a multiple of 128"),
        ("gpt-oss-20b", 1, "hidden size 2,880 and width of an expert 2,880 are not multiples"),
    ],
)
def test_a_plan_says_which_shapes_do_not_divide_over_tiles(monkeypatch, model, tp, said):
    monkeypatch.setattr("ppsim.questions.plans.plan.count_cores", lambda: 1)
    sizes = {"gpus": 8, "gbs": 16, "mbs": [1], "tp": [tp], "pp": [1], "top": 1}
    text = " ".join(str(ask_plan(model, "dgx-b200", **sizes)).split())
    assert ("the side of a tile" in text) == bool(said)
    assert said in text


@pytest.mark.parametrize(
    ("vp", "said"), [(5, ""), (7, "80 layers do not divide over 4 devices x 7 chunks, so its 28")]
)
def test_a_plan_says_that_its_chunks_do_not_divide_the_layers(monkeypatch, vp, said):
    """And how Megatron-LM is told which stage holds how many."""
    monkeypatch.setattr("ppsim.questions.plans.plan.count_cores", lambda: 1)
    sizes = {
        "gpus": 64,
        "gbs": 128,
        "mbs": [1],
        "tp": [4],
        "cp": [2],
        "pp": [4],
        "top": 1,
        "layouts": ["even"],
    }
    text = " ".join(
        str(ask_plan("llama3-70b", "dgx-h100", **sizes, vp=[vp], software="megatron-lm")).split()
    )
    assert ("do not divide" in text) == bool(said)
    assert said in text
    assert ("Megatron-LM needs --pipeline-model-parallel-layout" in text) == bool(said)
    assert ("--pipeline-model-parallel-layout 'Et|" in text) == bool(said)
    other = " ".join(
        str(ask_plan("llama3-70b", "dgx-h100", **sizes, vp=[vp], software="torchtitan")).split()
    )
    assert ("do not divide" in other) == bool(said)
    assert "Megatron" not in other


def test_runs_of_the_users_own_correct_all_plans_by_one_factor(tmp_path, monkeypatch):
    """They disagree by layout, and plans still rank as they are modelled."""
    monkeypatch.setattr("ppsim.questions.plans.plan.count_cores", lambda: 1)
    runs = [
        {
            "id": f"tp {tp}",
            "software": "megatron-core",
            "model": "llama3-8b",
            "gpu": "H100",
            "gpus": 16,
            "tp": tp,
            "pp": pp,
            "mbs": 1,
            "gbs": 64,
            "seq": 8192,
            "precision": "BF16",
            "step_s": seconds,
        }
        for tp, pp, seconds in ((1, 4, 4.0), (2, 2, 6.0), (4, 1, 30.0), (2, 1, 30.0))
    ]
    (tmp_path / "ours.json").write_text(json.dumps(runs))
    sizes = {
        "gpus": 16,
        "gbs": 64,
        "mbs": [1],
        "cp": [1],
        "schedules": ["1f1b"],
        "layouts": ["even"],
        "top": 4,
    }
    plain = ask_plan("llama3-8b", "dgx-h100", **sizes)
    found = ask_plan("llama3-8b", "dgx-h100", **sizes, anchor=(str(tmp_path / "ours.json"),))
    assert [plan["modelled_step_s"] for plan in found.plans] == [
        plan["modelled_step_s"] for plan in plain.plans
    ]
    factors = {round(plan["step_s"] / plan["modelled_step_s"], 12) for plan in found.plans}
    assert factors == {round(found.to_json()["correction"]["step"], 12)}
    assert factors != {1.0}


def test_compressed_attention_is_said_to_be_unseen():
    sizes = {
        "gpus": 64,
        "gbs": 64,
        "tp": [1],
        "cp": [1],
        "pp": [1],
        "ep": [64],
        "mbs": [1],
        "top": 1,
    }
    found = ask_plan("deepseek-v4-flash", "gb300-nvl72", **sizes)
    assert "no published run has compressed attention" in str(found)


DEEPSEEK_V4: dict[str, Any] = {"model": "deepseek-v4-flash", "cluster": "gb300-nvl72"}
DEEPSEEK_V4 |= {"gpus": 64, "gbs": 64, "cp": [1], "pp": [1], "ep": [64], "mbs": [1], "top": 40}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("software", "divided"),
    [
        ("megatron-lm", False),
        ("megatron-core", False),
        ("megatron-bridge", False),
        ("primus", True),
        ("torchtitan", True),
    ],
)
def test_compressed_attention_has_tensor_parallelism_where_the_software_divides_it(
    software, divided
):
    """Megatron-LM runs it at tp 1 alone, and so does what is built on it, but for one that has an
    attention of its own.
    """
    options = DEEPSEEK_V4 | {"software": software}
    sizes = {plan["tp"] for plan in ask_plan(**options).plans}
    assert (sizes > {1}) == divided
    if not divided:
        says = f"{software} has no tensor parallelism for layers of kind csa and hca"
        with pytest.raises(InputError, match=says) as error:
            ask_plan(**options, tp=[2])
        assert error.value.hint == "--tp 1, or --any"
        assert {plan["tp"] for plan in ask_plan(**options, tp=[2], any=True).plans} == {2}


def test_other_attention_is_divided_by_the_same_software():
    found = ask_plan("llama3-8b", "dgx-h100", gpus=8, gbs=8, tp=[2], software="megatron-core")
    assert {plan["tp"] for plan in found.plans} == {2}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("software", "last"),
    [
        (None, "for its launch flags, add --flags megatron"),
        ("deepspeed", "no launch flags are known for deepspeed"),
        ("torchtitan", 'components = ["model", "loss"]'),
        ("primus", "--bf16"),
    ],
)
def test_a_plan_ends_with_what_launches_it(software, last):
    sizes = {
        "gpus": 8,
        "gbs": 64,
        "tp": [2],
        "pp": [4],
        "mbs": [1],
        "schedules": ["1f1b"],
        "any": True,
    }
    text = str(
        ask_plan("llama3-8b", "dgx-h100", **sizes, **({"software": software} if software else {}))
    )
    assert last in text.split("run it: ppsim run 1f1b", 1)[1]


@pytest.mark.parametrize("sizes", [("--pp", "1", "--vp", "2"), ("--pp", "8", "--vp", "77")])
def test_chunks_that_no_pipeline_has_are_refused(sizes):
    words = ("--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--gbs", "64")
    error = refused("plan", *words, *sizes)
    assert error.exit_code == 2
    assert f"no pipeline of these sizes has {sizes[3]} chunks a device" in str(error)
    assert "leave out --vp" in error.hint
