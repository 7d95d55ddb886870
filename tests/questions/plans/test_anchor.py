"""An anchor of the user's own modules: calibrated, then planned with, end to end."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ppsim.inputs.profile.profile import read, write
from tests.commands import invoke, refused, with_options

MODULE = Path(__file__).parents[2] / "data" / "transformer.py"
MODEL = """schema = "ppsim.model/2"
name = "tiny"
hidden = 256
heads = 8
layers = 4
seq = 128
vocab = 1024
ffn = 1024
biases = true
learned_positions = true
"""
GPU = (
    'schema = "ppsim.gpu/1"\nname = "cpu"\nmemory_gib = 8\nhbm_gb_per_s = 20\n[tflops]\nbf16 = '
    "0.1\n"
)
CLUSTER = (
    'schema = "ppsim.cluster/1"\ngpu = "cpu.toml"\ndevices_per_node = 2\n[intra]\nalpha_us = '
    "80\ngb_per_s = 2.5\n"
)
SIZES = ["--tp", "1", "--cp", "1", "--mbs", "1", "--recomputes", "none", "--zero", "1"]


@pytest.fixture
def words(tmp_path):
    """A plan of two devices like this machine's."""
    for name, text in (("model", MODEL), ("cpu", GPU), ("cluster", CLUSTER)):
        (tmp_path / f"{name}.toml").write_text(text)
    model, cluster = str(tmp_path / "model.toml"), str(tmp_path / "cluster.toml")
    return [
        "plan",
        "--model",
        model,
        "--cluster",
        cluster,
        "--gpus",
        "2",
        "--gbs",
        "8",
        "--schedules",
        "1f1b",
    ]


def measured(path: Path, function: str, stages: int) -> dict[str, float]:
    """Calibrate, and return the seconds of all stages' forwards and backwards."""
    pytest.importorskip("torch")
    counts = [
        "--repeats",
        "2",
        "--warm-up",
        "1",
        "--sizes",
        "1024",
        "--device",
        "cpu",
        "--stages",
        str(stages),
    ]
    made = invoke("calibrate", "-o", str(path), "--module", f"{MODULE}:{function}", *counts)
    assert made.exit_code == 0, made.output
    return {k: sum(op.median_ms / 1e3 for op in read(str(path)).op if op.kind == k) for k in "FB"}


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    """A profile of both stages, measured once."""
    file = tmp_path_factory.mktemp("stages") / "p.toml"
    return file, measured(file, "stage", 2)


def planned(*words: str) -> tuple[dict[str, float], str]:
    made = invoke(*words, *SIZES, "--json")
    assert made.exit_code == 0, made.exception
    said = json.loads(made.stdout)
    (alone,) = (plan for plan in said["plans"] if plan["pp"] == 1)
    return alone["terms"], said["profile"]["taken"]


@pytest.mark.slow
@pytest.mark.torch
def test_modules_that_are_the_model_take_what_they_were_measured_at(stages, words):
    """Four microbatches of it on each replica; what was taken and what was not is printed."""
    file, time = stages
    terms, taken = planned(*words, "--anchor", str(file))
    assert terms["compute"] == pytest.approx(4 * (time["F"] + time["B"]))
    assert taken.startswith("2 whole stages")
    text = invoke(*words, *SIZES, "--anchor", str(file)).stdout
    assert "times of 2 whole stages" in text
    assert "measured times replace the efficiency curve" in text


@pytest.mark.slow
@pytest.mark.torch
def test_a_module_of_one_layer_counts_for_each_layer(tmp_path, words):
    """Embedding and output stay with the curve: twice the times are the more for four layers and
    four microbatches.
    """
    file = tmp_path / "p.toml"
    time = measured(file, "layer", 1)
    once, taken = planned(*words, "--anchor", str(file))
    assert taken.startswith("dense layers, of which modules have 1")
    profile = read(str(file))
    spread = ("p10_ms", "median_ms", "p90_ms")
    doubled = tuple(
        replace(op, **{name: 2 * getattr(op, name) for name in spread}) for op in profile.op
    )
    write(replace(profile, op=doubled), str(tmp_path / "twice.toml"))
    twice, _ = planned(*words, "--anchor", str(tmp_path / "twice.toml"))
    # A profile's times have six digits, however long they are.
    assert twice["compute"] - once["compute"] == pytest.approx(
        4 * 4 * (time["F"] + time["B"]), rel=2e-5
    )


@pytest.mark.slow
@pytest.mark.torch
def test_profiles_that_say_nothing_of_a_plan_are_refused(stages, tmp_path, words):
    file, _ = stages
    anchor = ["--anchor", str(file)]
    (tmp_path / "model.toml").write_text(MODEL.replace("layers = 4", "layers = 9"))
    for said, given in (
        ("1,874,432 + 1,842,176 parameters, and of tiny a GPU holds 7,6", (*SIZES, *anchor)),
        ("789,760 a dense layer", (*SIZES, *anchor)),
        ("measured with one size of each group", anchor),
        ("several profiles are given", (*SIZES, *anchor, *anchor)),
        (
            "measured on cpu, and the devices of dgx-h100 are h100",
            (*SIZES, *anchor, "--cluster", "dgx-h100"),
        ),
    ):
        command = [*words, *given] if given.count("--anchor") > 1 else with_options(words, given)
        assert said in str(refused(*command))
    assert "--against corrects by times of steps" in str(
        refused("plan", "--against", "rows.json", *anchor)
    )
    cut = tmp_path / "cut.toml"
    cut.write_text(file.read_text()[:300])
    assert "is not whole" in str(refused(*words, *SIZES, "--anchor", str(cut)))


RUN = {
    "id": "ours",
    "software": "megatron-lm",
    "gpus": 2,
    "dp": 2,
    "tp": 1,
    "pp": 1,
    "gbs": 8,
    "mbs": 1,
    "zero": 1,
}


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"model": "tiny", "gpu": "cpu"},
        {"model": "Model.toml", "cluster": "cluster"},
        {"model": " model "},
    ],
)
def test_rows_may_name_the_model_and_the_cluster_that_are_given(tmp_path, words, named):
    """By what they call themselves, or their files; rows that name none are of them."""
    table = tmp_path / "rows.json"
    table.write_text(
        json.dumps([{**RUN, **named, "precision": "bf16", "recompute": "none", "step_s": 1.0}])
    )
    own = words[1:5]
    (row,) = json.loads(invoke("plan", "--against", str(table), *own, "--json").stdout)["rows"]
    (plan,) = json.loads(
        invoke(*words, *SIZES, "--dp", "2", "--software", "megatron-lm", "--json").stdout
    )["plans"]
    modelled = row["modelled_step_s"]
    assert modelled == pytest.approx(sum(plan["terms"].values()))
    table.write_text(
        json.dumps(
            [{**RUN, **named, "precision": "bf16", "recompute": "none", "step_s": 2 * modelled}]
        )
    )
    told = invoke(
        *words, *SIZES, "--dp", "2", "--software", "megatron-lm", "--anchor", str(table)
    ).stdout
    assert "1 anchor of megatron-lm on cpu: step x 1." in told or "step x 2" in told


def test_rows_that_name_no_model_or_cluster_say_what_gives_one(tmp_path, words):
    table = tmp_path / "rows.json"
    for named, lacks in (
        ({"gpu": "H100"}, "--model FILE"),
        ({"model": "llama3-8b", "gpu": "cpu"}, "--cluster FILE"),
    ):
        table.write_text(json.dumps([{**RUN, **named, "step_s": 1.0}]))
        assert lacks in invoke("plan", "--against", str(table)).stdout
    other = {**RUN, "model": "another", "gpu": "cpu", "step_s": 1.0}
    table.write_text(json.dumps([other]))
    refused = invoke(*words, "--anchor", str(table)).exception
    assert "no model 'another' in the library" in str(refused)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ", from 1 run with the fastest plan's sizes"),
        ({"gpus": 64, "gbs": 256}, ", from 1 run with the fastest plan's sizes"),
        ({"tp": 8}, ""),
        ({"gpu": "A100-80GB"}, "no correction, as GPU, software or kind of model differ"),
    ],
)
def test_the_line_on_an_anchor_has_the_factor_of_the_plans(tmp_path, changes, said):
    """A run of such a plan counts almost in full, one of another job a quarter, one of another GPU
    not at all.
    """
    sizes = {"tp": 4, "cp": 1, "pp": 4, "vp": 1, "mbs": 1, "recompute": "none"}
    run = {"software": "megatron-core", "model": "llama3-70b", "gpu": "H100", "gpus": 32}
    run |= {"gbs": 64, "schedule": "1f1b", "precision": "BF16", "step_s": 30.0}
    table = tmp_path / "ours.json"
    table.write_text(json.dumps([{"id": "ours", **run, **sizes, **changes}]))
    words = "plan --model llama3-70b --cluster dgx-h100 --gpus 32 --gbs 64 --schedules 1f1b --vp 1 "
    words += "--tp 4 --pp 4 --cp 1 --mbs 1 --recomputes none --zero 1 --cap 99GiB --anchor"
    told = " ".join(invoke(*words.split(), str(table)).stdout.split())
    (line,) = re.findall(r"1 anchor of megatron-core on \S+: (.*?) \d+ candidate", told)
    factor = json.loads(invoke(*words.split(), str(table), "--json").stdout)["correction"]["step"]
    if factor == 1.0:
        assert line == said
    else:
        assert line == f"step x {factor:.3g}{said}"


def test_anchors_of_dense_models_and_of_mixtures_have_a_line_each(tmp_path):
    """They correct none of the other kind."""
    run = {"software": "megatron-core", "gpu": "H100", "gpus": 8, "gbs": 64, "tp": 2, "mbs": 1}
    moe = {"id": "moe", "model": "mixtral-8x7b", "step_s": 20.0, **run, "ep": 4}
    dense = {"id": "dense", "model": "llama3-8b", "step_s": 11.0, **run}
    table = tmp_path / "ours.json"
    table.write_text(json.dumps([dense, moe]))
    words = "plan --model llama2-7b --cluster dgx-h100 --gpus 8 --gbs 64 --pp 1 --tp 2 --anchor"
    told = " ".join(invoke(*words.split(), str(table)).stdout.split())
    assert re.search(r"1 anchor of megatron-core on h100 \(dense models\): step x \d", told)
    assert "on h100 (mixtures of experts): no correction, as GPU, software or kind of" in told
    table.write_text(json.dumps([dense]))
    told = " ".join(invoke(*words.split(), str(table)).stdout.split())
    assert re.search(r"1 anchor of megatron-core on h100: step x \d", told)
