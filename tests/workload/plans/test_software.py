"""Software of the library: its files, its versions, and what plans may choose by it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import pytest

from ppsim.errors import InputError
from ppsim.questions.plans.space import SoftwareFeatures, SpaceOptions, make_axes
from ppsim.schedules import find
from ppsim.workload.hardware.hardware import read_gpu, read_machine
from ppsim.workload.layout.layout import build_layout
from ppsim.workload.model.model import MIXERS, read_model
from ppsim.workload.model.parallel import RANK_ORDERS, Parallel
from ppsim.workload.plans import software
from ppsim.workload.plans.launcher import launch_text
from ppsim.workload.plans.published import predict
from ppsim.workload.plans.rows import setup_of
from ppsim.workload.plans.software import (
    Rule,
    Software,
    Version,
    apply,
    numbers,
    read_software,
    software_of,
    softwares,
)
from ppsim.workload.plans.stated import version_of
from tests.commands import invoke

H100 = read_gpu("h100")


@pytest.mark.parametrize("name", sorted(softwares()))
def test_each_software_says_what_it_runs_and_where_that_is_from(name):
    software = softwares()[name]
    assert software.name == name
    assert software.source
    assert software.words
    assert software.runs
    assert {"tp-cp-ep-dp-pp"} <= set(software.numbers_ranks) <= set(RANK_ORDERS.values())
    assert all(find(schedule).name == schedule for schedule in software.runs)
    assert set(software.divides) <= {"tp", "cp", "ep", "pp"}
    assert set(software.undivided or ()) <= set(MIXERS)
    said = read_software(name).techniques(H100, "bf16")
    assert said["zero"] in software.shards
    assert {
        "kernels",
        "flash",
        "dispatch",
        "cuda_graphs",
        "gradient_precision",
        "overlap_dp",
        "zero",
    } <= said.keys()
    apply(Parallel(), said)


def test_a_release_has_what_came_before_it_and_the_newest_has_all():
    def dispatch(spec):
        return read_software(spec).techniques(H100)["dispatch"]

    assert [dispatch(f"megatron-bridge{at}") for at in ("@25.09", "@25.11", "@26.04.01", "")] == [
        "alltoall",
        "alltoall",
        "hybridep",
        "hybridep",
    ]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("torchtitan@9.9", "torchtitan 9.9 is taken as any: no rule tells releases apart"),
        (
            "megatron-bridge@99.1",
            "megatron-bridge 99.1 is taken as 26.06, the newest release in the library",
        ),
        ("megatron-bridge@26.06", ""),
        ("megatron-lm@2022", ""),  # a rule is of this version
        ("megatron-core@2021", ""),
        ("megatron-bridge", ""),
    ],
)
def test_a_release_that_no_rule_knows_is_said_to_be_taken_as_another(spec, said):
    assert read_software(spec).assumed_release == said
    assert invoke("model", spec).stderr.strip() == said


def test_software_that_is_built_on_other_software_has_its_habits_but_for_its_own():
    assert read_software("nemo").techniques(H100)["overlap_tp"]
    assert not read_software("megatron-lm").techniques(H100)["overlap_tp"]


@pytest.mark.parametrize("spec", ["megatron-core", "megatron-bridge@26.04"])
def test_a_host_that_launches_slowly_captures_experts_as_graphs(spec):
    graphs = [
        read_software(spec).techniques(read_gpu(name))["cuda_graphs"]
        for name in ("gb200", "b200", "mi355x")
    ]
    assert graphs == ["partial", "none", "none"]


@pytest.mark.parametrize(
    ("spec", "dispatch"),
    [
        ("megatron-core", "deepep deepep hybridep alltoall alltoall"),
        ("nemo", "alltoall"),
        ("megatron-core@0.11", "alltoall"),
        ("megatron-core@0.14", "deepep deepep deepep alltoall alltoall"),
        ("megatron-bridge@25.09", "alltoall"),
        ("megatron-bridge@25.11", "alltoall alltoall hybridep alltoall alltoall"),
        ("megatron-bridge", "hybridep"),
        ("megatron-lm", "alltoall"),
    ],
)
def test_experts_are_reached_as_guides_choose_by_host_and_family_and_release(spec, dispatch):
    """NVIDIA's MoE Dispatcher Selection Guide; DeepEP came with Megatron Core 0.12, HybridEP with
    0.15.
    """
    found = [
        read_software(spec).techniques(read_gpu(n))["dispatch"]
        for n in ("h100", "b300", "gb200", "a100-80gb", "mi355x")
    ]
    assert found[: dispatch.count(" ") + 1] == dispatch.split()


def test_a_run_of_the_2021_paper_recomputed_whole_layers():
    """arXiv 2104.04473, not 2205.05198."""
    row = {"framework": "Megatron-LM (SC21)", "model": "GPT 175B", "gpu": "A100-80GB", "gpus": 384}
    assert version_of(row).techniques(None)["recompute"] == "full"
    assert (
        version_of({"framework": "Megatron-LM", "source": "arXiv 2205.05198"}).techniques(None)[
            "recompute"
        ]
        == "none"
    )


def test_what_needs_gates_or_attention_is_not_done_with_layers_that_carry_a_state():
    """Fused SwiGLU, and pairs that hide all-to-all, of a hybrid model without gates; by its layers,
    not its name.
    """
    plain = read_model("qwen3-30b-a3b")
    hybrid = replace(read_model("nemotron-3-nano"), name=plain.name)
    version, chip = read_software("megatron-bridge@26.06"), read_gpu("gb200")
    one, other = (version.techniques(chip, "mxfp8", model) for model in (plain, hybrid))
    assert (one["cuda_graphs"], one["overlap_a2a"], one["fused_experts"]) == ("full", True, True)
    assert (other["cuda_graphs"], other["overlap_a2a"], other["fused_experts"]) == (
        "partial",
        False,
        False,
    )


@pytest.mark.parametrize(
    ("framework", "release", "name", "version"),
    [
        ("NeMo 2 / Megatron-Core", "", "nemo", (2,)),
        ("Megatron-LM 0.14", "", "megatron-lm", (0, 14)),
        (
            "Megatron-Core (Megatron-Bridge)",
            "26.04.01 NeMo Container",
            "megatron-bridge",
            (26, 4, 1),
        ),
        ("Megatron-DeepSpeed (vTrain, MICRO 2024)", "", "megatron-deepspeed", ()),
        ("ours", "3.1", "megatron-lm", (3, 1)),
        ("", "3.1", "megatron-core", (3, 1)),
    ],
)
def test_tables_name_software_by_words(framework, release, name, version):
    found = software_of(framework, release)
    assert (found.software.name, found.release) == (name, version)


@pytest.mark.parametrize(
    ("text", "read"), [("26.04.01 x", (26, 4, 1)), ("v2", (2,)), ("nightly", ()), ("", ())]
)
def test_releases_are_read_from_their_front(text, read):
    assert numbers(text) == read


@pytest.mark.parametrize("spec", ["megatron", "megatron-bridge@nightly", "", "../x"])
def test_software_that_the_library_lacks_is_refused(spec):
    with pytest.raises(InputError, match=r"no (software|version)"):
        read_software(spec)


def test_what_software_does_otherwise_with_a_schedule_is_in_its_file(monkeypatch):
    """Rules for a schedule count where a run has it; what the user states counts whatever the
    schedule.
    """
    rules = (
        Rule(kernels="compiled", zero=1),
        Rule(schedules=("zb-1p", "zb-v"), kernels="torch", overlap_tp=False),
    )
    mine = Software("mine", "here", ("mine",), rule=rules)
    monkeypatch.setattr(software, "softwares", lambda: {"mine": mine})
    version = Version(mine)
    assert version.techniques(None) == {"kernels": "compiled", "zero": 1}
    assert version.techniques(None, schedule="1f1b") == version.techniques(None)
    assert version.techniques(None, schedule="zb-v") == {
        "kernels": "torch",
        "zero": 1,
        "overlap_tp": False,
    }
    changed = (("kernels", "torch"), ("overlap_tp", False))
    assert version.by_schedule(None, "", None, ()) == (("zb-1p", changed), ("zb-v", changed))
    assert version.by_schedule(None, "", None, {"kernels"}) == (
        ("zb-1p", changed[1:]),
        ("zb-v", changed[1:]),
    )
    run = Parallel(kernels="compiled", by_schedule=version.by_schedule(None, "", None, ()))
    assert run.for_schedule("1f1b") == Parallel(kernels="compiled")
    assert run.for_schedule("zb-v") == Parallel(kernels="torch", overlap_tp=False)


ROW = {
    "model": "llama3-405b",
    "gpu": "H100",
    "gpus": 512,
    "tp": 8,
    "pp": 8,
    "mbs": 1,
    "gbs": 512,
    "seq": 8192,
    "vp": 8,
    "precision": "BF16",
    "framework": "torchtitan",
    "recompute": "full",
    "step_s": 64.0,
}


def test_zero_bubble_of_torch_is_slower_where_whole_layers_recompute():
    """Torchtitan, issue 773: 13 tokens/s a GPU where interleaved 1F1B has 128."""
    large = (
        "plan",
        "--model",
        "llama3-405b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "512",
        "--gbs",
        "512",
        "--tp",
        "8",
    )
    words = (
        *large,
        "--pp",
        "8",
        "--cp",
        "1",
        "--mbs",
        "1",
        "--vp",
        "8",
        "--recomputes",
        "full",
        "--layouts",
        "even",
    )
    rates = {}
    for name in ("interleaved", "interleaved-zb"):
        result = invoke(
            *words, "--software", "torchtitan", "--schedules", name, "--top", "1", "--json"
        )
        rates[name] = json.loads(result.stdout)["plans"][0]["tokens_per_s"] / 512
    assert rates["interleaved"] == pytest.approx(128, rel=0.1)
    assert rates["interleaved-zb"] < rates["interleaved"] / 2
    plain, split = (
        predict(setup_of({**ROW, "schedule": name}))[1]
        for name in ("interleaved", "interleaved-zb")
    )
    assert split.seconds > 2 * plain.seconds


def test_a_configuration_with_a_split_backward_compiles_nothing():
    base = Parallel(kernels="compiled", by_schedule=(("interleaved-zb", (("kernels", "torch"),)),))
    model = read_model("llama3-8b")
    for name, compiles in (("interleaved", True), ("interleaved-zb", False)):
        run = replace(base.for_schedule(name), schedule=name, pp=4, vp=2, microbatches=8)
        table = tomllib.loads(launch_text("torchtitan", model, run, build_layout([4] * 8, 4, 0)))
        assert table["compile"]["enable"] == compiles


PLAN = (
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "8",
    "--gbs",
    "16",
    "--pp",
    "4",
    "--tp",
    "1",
)


def test_plans_have_the_schedules_of_the_software_unless_any_will_do():
    refused = invoke(*PLAN, "--software", "megatron-lm", "--schedules", "dualpipe-v")
    assert isinstance(refused.exception, InputError)
    assert "megatron-lm has no schedule dualpipe-v" in str(refused.exception)
    asked = (*PLAN, "--software", "megatron-lm", "--schedules", "dualpipe-v", "--any", "--quiet")
    assert invoke(*asked).exit_code == 0


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("llm-foundry", ("--cp", "1,2"), "llm-foundry has no context parallelism"),
        ("llm-foundry", ("--pp", "2"), "llm-foundry has no pipeline parallelism"),
        ("nanotron", ("--zero", "1,3"), "nanotron has no ZeRO-3"),
    ],
)
def test_plans_have_the_groups_and_the_zero_of_the_software_unless_any_will_do(
    name, words, message
):
    eight = (
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--gbs",
        "16",
        "--mbs",
        "1",
    )
    few = (
        *eight,
        "--recomputes",
        "none",
        "--vp",
        "1",
        "--layouts",
        "even",
        "--schedules",
        "1f1b",
        "-q",
    )
    assert str(invoke(*few, "--software", name, *words).exception) == message
    assert invoke(*few, "--software", name, *words, "--any").exit_code == 0


def test_what_software_does_not_have_is_left_out_where_nobody_asks_for_it():
    parts = read_model("llama3-8b"), read_machine("dgx-h100"), SpaceOptions(tp=[2, 4]), Parallel()
    axes = make_axes(*parts, SoftwareFeatures("x", groups=("tp", "pp"), zero=(0, 1)))
    assert (axes.tp, axes.cp, axes.ep, axes.pp, axes.zero) == ((2, 4), (1,), (1,), None, (1,))
    free = make_axes(*parts)
    assert (free.tp, free.cp, free.ep, free.pp, free.zero) == ((2, 4), None, None, None, None)


@pytest.mark.parametrize("on", ["x", "mine"])
def test_software_is_built_on_other_software_of_the_library(monkeypatch, on):
    mine = Software("mine", "here", ("mine",), on)
    monkeypatch.setattr(software, "softwares", lambda: {"mine": mine})
    with pytest.raises(InputError, match=f"mine is built on '{on}', which is not other software"):
        _ = mine.runs


def test_selective_plans_of_experts_recompute_what_is_cheap():
    """What frees most for its time, unless the user says what; dense layers and others' kernels as
    ever.
    """

    def modules(model, kernels="fused", named=None):
        space = SpaceOptions(recompute_modules=named)
        return make_axes(
            read_model(model), read_machine("dgx-h100"), space, Parallel(kernels=kernels)
        ).base.modules

    assert modules("deepseek-v3") == ("layernorm", "moe_act", "mla_up_proj")
    assert modules("deepseek-v3", named="moe") == ("moe",)
    assert modules("llama3-8b") == modules("deepseek-v3", "compiled") == ("core_attn",)


@pytest.mark.parametrize(
    ("framework", "source", "sums"),
    [
        ("Megatron-LM", "arXiv 2104.04473", False),
        ("Megatron-LM", "arXiv 2205.05198", True),
        ("Megatron-LM", "", True),
        ("zero-bubble", "arXiv 2401.10241", True),
        ("Megatron-DeepSpeed", "", False),
        ("torchtitan", "", False),
    ],
)
def test_products_add_to_the_sum_of_gradients_since_megatron_lm_of_2022(framework, source, sums):
    assert software_of(framework, "", source).techniques(None)["sums_in_products"] is sums
