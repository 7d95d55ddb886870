"""Muon: FLOPs, bytes and gathers as published, and what of an optimizer step is exposed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import Costs
from ppsim.workload.cost.costs import stage_costs, step_time
from ppsim.workload.cost.exposed import find_optimizer_step
from ppsim.workload.cost.memory import stage_memory
from ppsim.workload.cost.muon import (
    list_matrices,
    matrix_flops,
    matrix_parameters,
    muon_flops,
    muon_seconds,
)
from ppsim.workload.hardware.efficiency import efficiency_of
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.contents import contents_of
from ppsim.workload.model.model import (
    count_parameters,
    embedding_parameters,
    flops_per_token,
    head_parameters,
    mixing_flops,
    read_model,
)
from ppsim.workload.model.parallel import Parallel
from tests.commands import answer

H100 = read_machine("dgx-h100")
LLAMA = read_model("llama3-8b")
MUON = Parallel(optimizer="muon", zero=0)


@pytest.mark.parametrize(("n", "m"), [(4096, 4096), (14336, 4096), (4096, 14336), (2048, 768)])
def test_flops_are_those_of_its_author(n, m):
    """Five iterations of 4 n m^2 + 2 m^3, for n >= m: of 6 n m B FLOPs of B tokens at most 5 m
    / B.
    """
    assert matrix_flops(n, m) == 5 * (4 * max(n, m) * min(n, m) ** 2 + 2 * min(n, m) ** 3)
    tokens = 4e6
    assert matrix_flops(n, m) / (6 * n * m * tokens) <= 5 * min(n, m) / tokens * (1 + 1e-12)


def test_a_square_matrix_attains_the_bound():
    assert matrix_flops(4096, 4096) / (6 * 4096**2 * 1e6) == pytest.approx(5 * 4096 / 1e6)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b"])
def test_matrices_are_all_of_a_layer_but_norms_and_biases(name):
    """Embedding and output are not among them."""
    model = read_model(name, 4096)
    (content,) = contents_of(replace(model, mtp=0), MUON)
    whole = count_parameters(model) - embedding_parameters(model) - head_parameters(model)
    assert sum(matrix_parameters(model, MUON, content)) == pytest.approx(whole, rel=0.001)


def test_the_share_of_a_step_is_small_for_a_usual_batch():
    """Llama 3 8B, 4 million tokens a step: below 5 x 4096 / 4e6 of the layers' FLOPs, as
    published.
    """
    (content,) = contents_of(LLAMA, MUON)
    layers = (
        flops_per_token(LLAMA)
        - 6 * LLAMA.vocab * LLAMA.hidden
        - 3 * LLAMA.layers * mixing_flops(LLAMA, "attention")
    )
    share = muon_flops(LLAMA, MUON, content) / (layers * 4e6)
    assert 0.5 * 5 * 4096 / 4e6 < share <= 5 * 4096 / 4e6


def test_one_moment_less_of_every_matrix():
    """Moonlight: 4 bytes of master and 4 of momentum, where AdamW has 4 and 8; the embedding keeps
    both moments.
    """
    adam, muon = (
        stage_memory(LLAMA, Parallel(optimizer=name, zero=0)) for name in ("adamw", "muon")
    )
    (content,) = contents_of(LLAMA, MUON)
    assert adam.optimizer[0] - muon.optimizer[0] == pytest.approx(
        4 * sum(matrix_parameters(LLAMA, MUON, content))
    )
    assert adam.weights[0] == muon.weights[0]
    shared = [
        stage_memory(LLAMA, Parallel(optimizer=name, dp=8)).optimizer[0]
        for name in ("adamw", "muon")
    ]
    assert shared[0] - shared[1] == pytest.approx((adam.optimizer[0] - muon.optimizer[0]) / 8)


def test_data_parallel_ranks_share_the_matrices_and_gather_at_most_a_quarter_more():
    """Adam scatters 4 bytes a gradient and gathers 2 of a weight, or 4; Muon gathers 2 bytes of
    momentum besides.
    """
    found = efficiency_of(H100.gpu, MUON)
    (content,) = contents_of(LLAMA, MUON)
    alone, nothing = muon_seconds(LLAMA, H100, MUON, content, found)
    eight = replace(MUON, dp=8, zero=1)
    shared, gathered = muon_seconds(LLAMA, H100, eight, content, found)
    assert nothing == 0
    assert shared == pytest.approx(alone / 8)
    costs = stage_costs(LLAMA, H100, replace(eight, optimizer="adamw"))
    assert 0 < gathered <= 0.5 * costs.dp[0]
    assert muon_flops(LLAMA, eight, content) == pytest.approx(muon_flops(LLAMA, MUON, content) / 8)


def test_no_rank_has_less_than_a_whole_matrix():
    """With more ranks than matrices the busiest one orthogonalizes the largest."""
    many = replace(MUON, dp=4096, zero=1)
    (content,) = contents_of(LLAMA, many)
    largest = max(
        matrix_flops(each.rows, each.columns) for each in list_matrices(LLAMA, many, content)
    )
    assert muon_flops(LLAMA, many, content) == largest


def test_tensor_parallel_ranks_have_their_parts_alone():
    """Blockwise, as Megatron-LM's default: parts of matrices, no gather among them."""
    half = replace(MUON, tp=2)
    (content,) = contents_of(LLAMA, half)
    whole, parts = list_matrices(LLAMA, MUON, content), list_matrices(LLAMA, half, content)
    assert [2 * each.rows * each.columns for each in parts] == [
        each.rows * each.columns for each in whole
    ]


@pytest.mark.parametrize("name", ["1f1b", "zb-2p"])
def test_what_is_exposed_of_an_optimizer_step(name):
    """With the wait for all devices everything; without it at most that, and nothing less than the
    busiest needs.
    """
    parallel = Parallel(pp=4, microbatches=8, schedule=name, optimizer="muon", zero=0)
    costs = stage_costs(LLAMA, H100, parallel)
    found = find_optimizer_step(LLAMA, parallel, costs)
    assert (
        found.exposed
        == found.seconds
        == pytest.approx(step_time(LLAMA, H100, parallel, costs=costs).optimizer)
    )
    assert found.exposed_alone is not None
    assert 0 < found.exposed_alone <= found.exposed * (1 + 1e-9)
    equal = replace(
        costs, costs=Costs(np.full_like(costs.costs.time, 4.0)), optimizer=np.full(4, 0.002)
    )
    assert find_optimizer_step(LLAMA, parallel, equal).exposed_alone == pytest.approx(0.002)


PLAN = ("plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--gbs", "64")
SIZES = (
    "--pp",
    "4",
    "--tp",
    "1",
    "--schedules",
    "1f1b",
    "--mbs",
    "1",
    "--recomputes",
    "none",
    "--top",
    "1",
)


def test_plan_says_what_the_optimizer_takes():
    """In words where it is asked for, and in numbers always."""
    adam, muon = (
        json.loads(answer(*PLAN, *SIZES, *more, "--json")[1])
        for more in ((), ("--optimizer", "muon"))
    )
    assert (adam["optimizer"]["name"], muon["optimizer"]["name"]) == ("adamw", "muon")
    assert adam["optimizer"]["flops"] == 0 < muon["optimizer"]["flops"]
    assert muon["optimizer"]["state_bytes"] < adam["optimizer"]["state_bytes"]
    assert muon["plans"][0]["memory_bytes"] < adam["plans"][0]["memory_bytes"]
    assert muon["plans"][0]["terms"]["optimizer"] > adam["plans"][0]["terms"]["optimizer"]
    text = answer(*PLAN, *SIZES, "--optimizer", "muon")[1]
    assert "muon:" in text
    assert "exposed" in text
    flags = answer(*PLAN, *SIZES, "--optimizer", "muon", "--flags", "megatron")[1]
    assert "--optimizer dist_muon" in flags
    assert "--use-distributed-optimizer" not in flags


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--optimizer", "sgd"), "sgd"),
        (("--optimizer", "muon", "--flags", "torchtitan"), "torchtitan's flags for Muon"),
        (("--optimizer", "muon", "--zero", "3", "--flags", "megatron"), "Muon with FSDP"),
    ],
)
def test_what_is_not_known_is_refused(words, why):
    code, _, said = answer(*PLAN, *SIZES, *words)
    assert code != 0
    assert why in said
