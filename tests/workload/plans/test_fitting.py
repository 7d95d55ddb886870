"""What runs save memory by where their rows do not say it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ppsim.workload.cost.costs import step_time
from ppsim.workload.cost.memory import device_memory
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.fitting import MODULES, _with_layers, _with_modules, fitting
from ppsim.workload.plans.published import predict
from ppsim.workload.plans.rows import setup_of
from ppsim.workload.plans.task import usable_bytes

GB200 = read_machine("gb200-nvl72")
DENSE = {
    "model": "LLAMA3_70B",
    "gpu": "DGX-GB200",
    "gpus": 64,
    "precision": "FP8",
    "gbs": 256,
    "mbs": 2,
    "seq": 8192,
    "fsdp": 64,
    "tp": 1,
    "pp": 1,
    "cp": 1,
    "vp": 1,
    "framework": "Megatron-Bridge",
    "release": "26.04",
}
EXPERTS = {
    **DENSE,
    "model": "DeepSeekV3",
    "gpus": 256,
    "fsdp": 0,
    "gbs": 4096,
    "mbs": 2,
    "seq": 4096,
    "pp": 4,
    "ep": 64,
    "vp": 4,
}


def test_a_run_that_fits_is_left_as_it_is():
    model, parallel = read_model("llama3-8b"), Parallel(dp=8)
    assert fitting(model, GB200, parallel, None, modules=True, offload=True) == (parallel,)


@pytest.mark.parametrize("name", ["llama3-70b", "deepseek-v2", "nemotron-3-super"])
@pytest.mark.parametrize("mbs", [2, 4, 8])
def test_each_way_is_the_least_that_fits(name, mbs):
    model = read_model(name)
    parallel = Parallel(dp=64, ep=32 if model.experts else 1, zero=3, mbs=mbs)
    found = fitting(model, GB200, parallel, None, modules=True, offload=True)

    def fits(tried):
        return device_memory(model, tried).total.max() <= usable_bytes(GB200)

    assert all(fits(tried) for tried in found)
    for tried in found:
        if tried == parallel:
            continue
        if tried.offload:
            less = replace(tried, offload=tried.offload - 1 / 8)
        elif tried.recompute == "full":
            assert isinstance(tried.recompute_layers, int)
            less = replace(tried, recompute_layers=tried.recompute_layers - -(-model.layers // 8))
        else:
            less = replace(tried, modules=tried.modules[:-1])
        assert not fits(less)


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("room", [1.0001, 0.99, 0.95])
def test_where_full_recompute_misses_by_little_the_time_does_not_jump(monkeypatch, name, room):
    """All layers and a little of what they keep on the host, and not all activations there at twice
    the time.
    """
    model, machine = read_model(name), read_machine("dgx-h100")
    parallel = Parallel(dp=64, ep=8 if model.experts else 1, zero=3, mbs=8, microbatches=2)
    full = replace(parallel, recompute="full")
    cap = room * device_memory(model, full).total.max()
    monkeypatch.setattr("ppsim.workload.plans.fitting.usable_bytes", lambda machine: cap)
    found = fitting(model, machine, parallel, None, modules=False, offload=True)
    assert all(device_memory(model, tried).total.max() <= cap for tried in found)
    fastest = min(step_time(model, machine, tried).seconds for tried in found)
    assert fastest <= 1.05 * step_time(model, machine, full).seconds


def test_a_dense_model_without_a_pipeline_waits_on_the_host_by_half_as_its_recipe_says():
    """Megatron-Bridge's for Llama-3 70B on GB200 has cpu_offloading_num_layers = 40, of 80."""
    setup = setup_of(DENSE)
    assert {choice.offload for choice in setup.choices} == {0.0, 0.5}
    assert "memory" in setup.assumptions
    assert predict(setup)[0].offload == 0.5
    stated = setup_of({**DENSE, "recompute": "none"})
    assert (stated.choices, stated.assumptions) == ((stated.parallel,), "")


def test_of_choices_that_take_as_long_the_first_is_taken():
    """That of the row itself, where what it leaves open changes nothing."""
    setup = setup_of(EXPERTS)
    again = replace(setup.parallel)
    found, _ = predict(replace(setup, choices=(setup.parallel, again)))
    assert found is setup.parallel


def test_a_pipeline_recomputes_modules_and_old_software_whole_layers():
    setup = setup_of(EXPERTS)
    assert not any(choice.offload for choice in setup.choices)
    assert setup.parallel.recompute == "selective"
    assert setup.parallel.modules == MODULES[: len(setup.parallel.modules)]
    old = setup_of({**EXPERTS, "framework": "Megatron-LM (SC21)"})
    assert {choice.recompute for choice in old.choices} <= {"none", "full"}


def test_offload_in_words_is_a_share_that_fits():
    """Tables name the modules; how much that is follows from what does not fit otherwise."""
    words = {**EXPERTS, "mbs": 2, "recompute": "selective: mlp", "offload": "core_attn"}
    setup = setup_of(words)
    assert setup.parallel.modules == ("mlp",)
    assert setup.parallel.offload in [n / 8 for n in range(1, 9)]
    assert setup_of({**words, "offload": 0.25}).parallel.offload == 0.25


def test_of_software_that_is_not_known_nothing_is_assumed():
    assert setup_of({**EXPERTS, "framework": "ours"}).choices == (
        setup_of({**EXPERTS, "framework": "ours"}).parallel,
    )
    assert "memory" in setup_of({**EXPERTS, "framework": "", "software": "nemo"}).assumptions


@pytest.mark.parametrize(
    ("layers", "pp", "counts"),
    [(32, 4, range(1, 9)), (20, 4, range(1, 6)), (23, 2, (2, 3, 5, 6, 8, 9, 11, 12)), (3, 4, (1,))],
)
def test_layers_that_recompute_are_eighths_of_a_stages(layers, pp, counts):
    """Rounded up, of a stage that holds the most; the fewest first."""
    model = replace(read_model("llama3-8b"), layers=layers)
    found = list(_with_layers(model, Parallel(pp=pp)))
    assert [each.recompute_layers for each in found] == list(counts)
    assert {each.recompute for each in found} == {"full"}


def test_modules_that_a_model_does_not_have_do_not_recompute():
    names = {
        model: list(_with_modules(read_model(model), Parallel()))[-1].modules
        for model in ("llama3-8b", "mixtral-8x7b")
    }
    assert not {"moe", "moe_act", "shared_experts", "mla_up_proj"} & {*names["llama3-8b"]}
    assert {"moe", "moe_act"} <= {*names["mixtral-8x7b"]}
    assert not {"shared_experts", "mla_up_proj", "mlp"} & {*names["mixtral-8x7b"]}
    steps = [each.modules for each in _with_modules(read_model("llama3-8b"), Parallel())]
    assert [len(each) for each in steps] == list(range(1, len(names["llama3-8b"]) + 1))
