"""Rows of published tables by hand: numbers as people write them, sizes that follow, errors as they
are summed up.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ppsim.errors import InputError
from ppsim.prices.software import SoftwareOptions, parallel_with
from ppsim.workload.hardware.hardware import read_gpu, read_machine
from ppsim.workload.model.model import flops_per_token, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.improve import describe_change, improve, question_of
from ppsim.workload.plans.published import against, predict, summarise
from ppsim.workload.plans.row_numbers import SkippedRow, count_of, number_of
from ppsim.workload.plans.rows import measured_step, setup_of
from ppsim.workload.plans.stated import parallel_of

ROW = {
    "framework": "Megatron-Core",
    "model": "llama3-70b",
    "gpu": "DGX-H100",
    "gpus": 64,
    "precision": "BF16",
    "tp": 4,
    "pp": 4,
    "cp": 2,
    "vp": 5,
    "mbs": 1,
    "gbs": 128,
    "seq": 8192,
    "schedule": "interleaved 1F1B",
}


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (2, 2.0),
        (2.5, 2.5),
        ("2", 2.0),
        (" 3.5 ", 3.5),
        ("1,024", 1024.0),
        ("1,024,000.5", 1024000.5),
        ("1,02", None),
        ("1_0", None),
        ("\uff12", None),
        (0, None),
        (-1, None),
        (True, None),
        ("x", None),
        (None, None),
        ([1], None),
        (1e15, None),
        (9e14, 9e14),
    ],
)
def test_numbers_are_read_as_people_write_them(value, number):
    assert number_of({"x": value}, "x") == number


@pytest.mark.parametrize("value", [None, 0, False, "", " N/A ", "none", "-", "?"])
def test_counts_that_are_missing_are_what_is_usual(value):
    assert count_of({"x": value}, "x", 7) == count_of({}, "x", 7) == 7


@pytest.mark.parametrize(("value", "count"), [(1, 1), ("16", 16), (1 << 24, 1 << 24), (4.0, 4)])
def test_counts_are_whole_numbers_in_their_range(value, count):
    assert count_of({"x": value}, "x", 7) == count
    for other in ((1 << 24) + 1, 1.5, -1, "many"):
        with pytest.raises(SkippedRow):
            count_of({"x": other}, "x", 7)


def test_replicas_follow_from_gpus_or_gpus_from_replicas():
    assert setup_of(ROW).parallel.dp == 2
    assert setup_of({**ROW, "gpus": None, "dp": 3, "gbs": 129}).parallel.gpus == 96
    assert setup_of({**ROW, "dp": 64}).parallel.dp == 2  # what the sizes say counts
    assert setup_of({**ROW, "gpus": None, "gbs": 64}).parallel.gpus == 32
    two = setup_of({**ROW, "fsdp": 2})
    assert (two.parallel.dp, two.parallel.zero) == (2, 1)  # in a pipeline gathered weights are kept
    alone = setup_of({**ROW, "tp": 1, "pp": 1, "cp": 1, "fsdp": 64, "vp": None, "schedule": None})
    assert (alone.parallel.dp, alone.parallel.zero) == (64, 3)
    assert setup_of({**ROW, "fsdp": 1, "tp": 8, "pp": 8, "cp": 1, "vp": 1}).parallel.zero == 1


def test_a_batch_follows_from_microbatches():
    stated = setup_of({**ROW, "gbs": None, "microbatches": 10, "mbs": 2, "recompute": "none"})
    assert (stated.parallel.gbs, stated.assumptions) == (40, "mbs 2, 10 microbatches")
    usual = setup_of({**ROW, "gbs": None, "mbs": None})
    assert (usual.parallel.gbs, usual.parallel.microbatches, usual.assumptions) == (
        32,
        16,
        "mbs 1, 16 microbatches",
    )


def test_a_microbatch_that_is_not_stated_is_one_in_a_pipeline_and_any_that_divides_without():
    assert [p.mbs for p in setup_of({**ROW, "mbs": None}).choices] == [1]
    alone = {
        **ROW,
        "tp": 8,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "mbs": None,
        "schedule": None,
        "recompute": "none",
    }
    assert [p.mbs for p in setup_of({**alone, "gbs": 16}).choices] == [1, 2]
    assert [p.mbs for p in setup_of({**alone, "gbs": 32}).choices] == [1, 2, 4]
    assert [(p.mbs, p.microbatches) for p in setup_of({**alone, "gbs": 24}).choices] == [(1, 3)]
    fastest, _ = predict(setup_of({**alone, "gbs": 32}))
    assert fastest.mbs == 4  # fewer launches and fuller products


def test_chunks_that_are_not_stated_are_the_fewest_that_divide():
    for layers, chunks in ((80, 2), (60, 3), (100, 5), (92, 1), (28, 7)):
        found = setup_of({**ROW, "layers": layers, "vp": None, "recompute": "none"})
        assert (found.parallel.vp, found.assumptions) == (chunks, "vp"), layers
    assert setup_of({**ROW, "vp": None, "schedule": "1f1b"}).parallel.vp == 1
    assert setup_of({**ROW, "vp": 5, "schedule": "ZB-V"}).parallel.vp == 2


def test_models_are_known_by_their_names_and_few_layers_of_them_by_their_number():
    for name, known in (
        ("LLAMA3_70B", "llama3-70b"),
        ("GPT3 175B", "gpt3-175b"),
        ("DeepSeek V3", "deepseek-v3"),
    ):
        assert (
            setup_of({**ROW, "model": name, "tp": 1, "vp": 1, "pp": 1, "cp": 1}).model.name == known
        ), name
    row = {**ROW, "model": "deepseek-v3", "tp": 1, "vp": 1}
    for more, sizes in (
        ({"layers": 4}, (4, 1, 0)),
        ({"layers": 56}, (56, 3, 1)),
        ({"mtp": 0}, (61, 3, 0)),
    ):
        found = setup_of({**row, **more}).model
        assert (found.layers, found.dense_layers, found.mtp) == sizes


def test_a_model_that_the_row_describes_has_gates_where_it_has_groups_of_queries():
    shape = {"layers": 24, "hidden": 1024, "heads": 16}
    plain = setup_of({**ROW, "model": "ours", "architecture": shape, "seq": None, "vp": 3}).model
    assert (plain.seq, plain.vocab, plain.ffn, plain.kv_heads) == (2048, 51200, 4096, 16)
    assert (plain.gated, plain.tied, plain.biases, plain.learned_positions) == (
        False,
        True,
        True,
        True,
    )
    grouped = {**shape, "kv_heads": 4, "ffn": 2816, "vocab": 32000}
    other = setup_of({**ROW, "model": "ours", "architecture": grouped, "vp": 3}).model
    assert (other.seq, other.vocab, other.ffn, other.kv_heads) == (8192, 32000, 2816, 4)
    assert (other.gated, other.tied, other.biases, other.learned_positions) == (
        True,
        False,
        False,
        False,
    )
    for lacks in ({"layers": 24, "hidden": 1024}, None):
        with pytest.raises(SkippedRow, match="the row does not describe it"):
            setup_of({**ROW, "model": "ours", "architecture": lacks})


@pytest.mark.parametrize(
    ("text", "machine"),
    [
        ("GB300 NVL72", "gb300-nvl72"),
        ("DGX B200", "dgx-b200"),
        ("H100 96GB", "h100-96gb-500w"),
        ("H100 SXM", "dgx-h100"),
        ("A100-40GB", "dgx-a100-40gb"),
        ("A100 80GB", "dgx-a100"),
        ("MI355X", "mi355x"),
        ("H100 PCIe", None),
        ("GH200", None),
        ("H100 NVL", None),
    ],
)
def test_clusters_are_known_by_their_gpus(text, machine):
    if machine is None:
        with pytest.raises(SkippedRow, match="no GPU"):
            setup_of({**ROW, "gpu": text})
    else:
        assert setup_of({**ROW, "gpu": text, "precision": "BF16"}).machine.name == machine


def test_a_row_names_its_cluster_and_its_framework_names_none():
    row = {**ROW, "gpu": "A100-80GB", "framework": "Megatron-DeepSpeed (vTrain, MICRO 2024)"}
    found = [setup_of({**row, "cluster": name}).machine.name for name in (None, "vtrain-a100")]
    assert found == ["dgx-a100", "vtrain-a100"]


def test_a_step_is_what_is_stated_or_follows_from_throughput():
    model, parallel = read_model("llama3-70b"), Parallel(tp=4, pp=4, cp=2, dp=2, microbatches=64)
    tokens = 128 * 8192
    for row, seconds in (
        ({"step_s": 12.5, "step_ms": 1.0}, 12.5),
        ({"step_ms": 12500}, 12.5),
        ({"tokens_per_s_per_gpu": tokens / 64 / 10}, 10.0),
        ({"tokens_per_s": tokens / 10}, 10.0),
        ({"model_tflops_per_gpu": flops_per_token(model) * tokens / 64 / 10 / 1e12}, 10.0),
    ):
        assert measured_step(row, model, parallel) == pytest.approx(seconds), row
    assert measured_step({}, model, parallel) is None


def test_errors_are_summed_up_as_their_sizes_and_their_mean():
    rows: list[dict[str, Any]] = [
        {"error": 0.1, "predicted_peak_gib": 11.0, "measured_peak_gib": 10.0},
        {"error": -0.3, "predicted_peak_gib": 7.0, "measured_peak_gib": 10.0},
        {"error": 0.05},
        {"reason": "x"},
        {"predicted_step_s": 1.0},
    ]
    found = summarise(rows)
    assert (found["rows"], found["predicted"], found["compared"], found["skipped"]) == (5, 4, 3, 1)
    assert (found["mean_error"], found["median_error"]) == pytest.approx((0.15, 0.1))
    assert (found["mean_bias"], found["within_10_percent"]) == pytest.approx((-0.05, 2 / 3))
    assert (found["memory_rows"], found["mean_memory_error"]) == (2, pytest.approx(0.2))
    assert summarise([{"reason": "x"}]) == {"rows": 1, "predicted": 0, "compared": 0, "skipped": 1}


def test_the_error_of_a_row_is_what_was_predicted_too_much():
    (row,), _ = against([{**ROW, "step_s": 10.0, "memory_GiB": 70, "memory_alloc_GiB": 60}])
    assert row["error"] == pytest.approx(row["predicted_step_s"] / 10 - 1)
    assert (row["measured_peak_gib"], row["measured_reserved_gib"]) == (60, 70)
    setup = setup_of(ROW)
    parallel, step = predict(setup)
    assert row["modelled_step_s"] == step.seconds
    assert row["low_s"] < row["predicted_step_s"] < row["high_s"]
    assert (row["layout"], row["model"], row["gpu"]) == (
        "tp 4, pp 4, dp 2, cp 2, vp 5",
        "llama3-70b",
        "h100",
    )
    rate = flops_per_token(setup.model) * 128 * 8192 / row["predicted_step_s"] / 64 / 1e12
    assert row["tflops_per_gpu"] == pytest.approx(rate)
    assert parallel == setup.parallel


def test_a_plan_says_what_it_changes():
    parallel = Parallel(
        tp=4, pp=4, dp=2, cp=2, vp=5, microbatches=64, recompute="full", recompute_layers=2
    )
    best = {
        "tp": 8,
        "cp": 2,
        "ep": 1,
        "pp": 4,
        "dp": 1,
        "vp": 1,
        "mbs": 1,
        "recompute": "full",
        "recompute_layers": None,
        "schedule": "zb-1p",
        "layout": "light-ends",
        "step_s": 9.0,
    }
    assert describe_change(parallel, best, 12.0) == (
        "25.0% less: tp 4 -> 8, dp 2 -> 1, vp 5 -> 1, recompute all layers, interleaved -> zb-1p, "
        "layout light-ends"
    )
    same = {**best, "tp": 4, "dp": 2, "vp": 5, "schedule": "interleaved", "layout": "even"}
    assert describe_change(parallel, {**same, "recompute_layers": 1}, 10.0) == (
        "10.0% less: recompute 1 layers of a stage"
    )
    assert (
        describe_change(parallel, {**same, "recompute_layers": 2}, 10.0)
        == "10.0% less: layers elsewhere"
    )
    alone = replace(parallel, pp=1, vp=1, schedule="", recompute="none", recompute_layers=None)
    assert describe_change(alone, {**same, "recompute": "none", "vp": 1}, 10.0) == (
        "10.0% less: pp 1 -> 4, no pipeline -> interleaved"
    )
    assert describe_change(
        parallel, {**same, "pp": 1, "recompute_layers": 2, "schedule": ""}, 10.0
    ) == ("10.0% less: pp 4 -> 1")


def test_a_question_searches_the_gpus_and_the_batch_of_its_run_with_its_software():
    row = {**ROW, "recompute": "full", "precision": "FP8"}
    found = question_of(row)
    assert (found.task.gpus, found.task.gbs, found.task.keep) == (64, 128, 1)
    assert found.task.axes.base == parallel_with(
        SoftwareOptions(), "fp8", read_model("llama3-70b"), read_gpu("h100")
    )
    assert (found.task.axes.zero, found.task.axes.offload) == ((1,), (0,))
    assert (found.seconds, found.parallel.recompute) == (predict(setup_of(row))[1].seconds, "full")
    other = question_of({**ROW, "schedule": "zb-v", "vp": 2})
    assert "zb-v" in other.task.axes.schedules
    assert len(other.task.axes.schedules) == len(set(other.task.axes.schedules))


def test_a_run_that_is_as_fast_as_its_best_plan_changes_nothing(monkeypatch):
    alone = {
        **ROW,
        "model": "llama3-8b",
        "gpus": 1,
        "tp": 1,
        "pp": 1,
        "cp": 1,
        "vp": None,
        "gbs": 1,
        "schedule": None,
    }
    seconds = question_of(alone).seconds
    for faster, says in ((0.0, "nothing: no plan that fits is faster"), (1e-6, "0.0% less")):
        row = {
            "tp": 1,
            "cp": 1,
            "ep": 1,
            "pp": 1,
            "dp": 1,
            "vp": 1,
            "mbs": 1,
            "recompute": "none",
            "layout": "even",
        }

        def found(task, run, found, report, row=row, faster=faster):
            assert task.known == seconds
            found.rows = [
                row | {"schedule": "", "recompute_layers": None, "step_s": seconds * (1 - faster)}
            ]

        monkeypatch.setattr("ppsim.workload.plans.improve.search", found)
        assert improve({"a": alone})["a"]["change"].startswith(says)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("NVFP4", "nvfp4"),
        ("MXFP8", "mxfp8"),
        ("FP8", "fp8"),
        ("float8", "fp8"),
        ("BF16", "bf16"),
        ("float16", "fp16"),
        ("mixed", "bf16"),
        (None, "bf16"),
    ],
)
def test_precisions_are_known_by_their_names(text, name):
    assert parallel_of({"precision": text}, read_gpu("b200")).precision == name


@pytest.mark.parametrize(
    ("text", "how", "modules"),
    [
        ("full", "full", ("core_attn",)),
        ("Selective", "selective", ("core_attn",)),
        ("none", "none", ("core_attn",)),
        ("moe, layernorm", "selective", ("layernorm", "moe")),
        ("selective: mlp", "selective", ("mlp",)),
        ("some", "none", ("core_attn",)),
        (None, "none", ("core_attn",)),
    ],
)
def test_recomputation_is_known_by_its_words(text, how, modules):
    found = parallel_of({"recompute": text}, read_gpu("h100"))
    assert (found.recompute, found.modules) == (how, modules)


def test_adapters_are_trained_where_the_row_says_so():
    assert parallel_of({"adapters": True}, read_gpu("h100")).adapters
    assert not parallel_of({}, read_gpu("h100")).adapters


def test_clusters_and_gpus_of_files_keep_their_names(tmp_path):
    """The library's names in any case; a file by its path, with its GPU beside it."""
    assert read_machine("DGX-H100").name == "dgx-h100"
    assert read_gpu("H100").name == "h100"
    gpu = (
        'schema = "ppsim.gpu/1"\nname = "mine"\nmemory_gib = 24\nhbm_gb_per_s = '
        "1000\n[tflops]\nbf16 = 100\nfp8 = 200\n"
    )
    (tmp_path / "Mine.toml").write_text(gpu)
    cluster = (
        'schema = "ppsim.cluster/1"\ngpu = "Mine.toml"\ndevices_per_node = '
        "2\n[intra]\ngb_per_s = 20\n"
    )
    (tmp_path / "Here.toml").write_text(cluster)
    found = read_machine(str(tmp_path / "Here.toml"))
    assert (found.name, found.gpu.name, found.per_node) == (str(tmp_path / "Here.toml"), "mine", 2)
    assert [found.gpu.peak(p) for p in ("bf16", "fp32", "fp8", "mxfp8")] == [
        100e12,
        100e12,
        200e12,
        200e12,
    ]
    for precision in ("fp16", "nvfp4"):
        with pytest.raises(InputError, match="mine has no fp"):
            found.gpu.peak(precision)
    (tmp_path / "Here.toml").write_text(cluster.replace('gpu = "Mine.toml"\n', ""))
    with pytest.raises(InputError, match="does not name its GPU"):
        read_machine(str(tmp_path / "Here.toml"))
    for line in ("bf16 = 0", "fp8 = -1", "memory_gib = 0"):
        key = line.split()[0]
        lines = [line if text.startswith(key) else text for text in gpu.splitlines()]
        (tmp_path / "Bad.toml").write_text("\n".join(lines))
        with pytest.raises(InputError, match="more than 0"):
            read_gpu(str(tmp_path / "Bad.toml"))


@pytest.mark.parametrize(
    ("row", "zero"),
    [
        ({"fsdp": 1}, None),
        ({"fsdp": 2}, 3),
        ({"fsdp": 2, "zero": 2}, 2),
        ({"fsdp": 2, "pp": 1}, 3),
        ({"fsdp": 2, "pp": 2}, 1),
        ({"zero": 0, "pp": 2}, 0),
        ({"zero": 2, "pp": 2}, 1),
    ],
)
def test_ranks_of_fsdp_divide_weights_and_devices_of_a_pipeline_keep_them(row, zero):
    found = parallel_of(row, read_gpu("h100")).zero
    assert found == (parallel_of({}, read_gpu("h100")).zero if zero is None else zero)


def test_a_share_that_waits_on_the_host_is_all_at_most():
    assert [parallel_of({"offload": share}, read_gpu("h100")).offload for share in (0, 0.5, 1)] == [
        0,
        0.5,
        1,
    ]
    with pytest.raises(SkippedRow, match=r"offload: not a share from 0 to 1: 1\.5"):
        parallel_of({"offload": 1.5}, read_gpu("h100"))
