"""Costs of a model on a cluster: those of ``ppsim plan``, in run, compare, explain, sweep and
jitter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ppsim as package
from ppsim.errors import InputError
from ppsim.prices import software
from ppsim.prices.parts import modelled
from ppsim.workload.plans import space, stated
from ppsim.workload.plans.published import against, read_table, setup_of
from tests.commands import invoke, refused

ppsim: Any = package  # whose options are given by name here

# Model, cluster, sizes beside the pipeline, devices, microbatches, schedules, and the software.
LAYOUTS: dict[str, tuple[str, str, dict[str, Any], int, int, str, str | None]] = {
    "ordered by costs": ("llama3-8b", "dgx-h100", {"tp": 2}, 4, 8, "zb-auto,zb-2p", None),
    "dense": ("llama3-8b", "dgx-h100", {"tp": 2, "dp": 4}, 8, 32, "1f1b,zb-1p,zb-v", None),
    "chunks": ("llama3-70b", "dgx-a100", {"tp": 8}, 4, 16, "1f1b,interleaved:5", "megatron-lm"),
    "post-validation": ("llama3-8b", "dgx-a100", {"tp": 2}, 4, 16, "1f1b,zb-v", "zero-bubble"),
    "mixture": (
        "mixtral-8x7b",
        "dgx-h100",
        {"tp": 2, "ep": 4, "dp": 4},
        4,
        16,
        "1f1b,zb-1p,dualpipe",
        None,
    ),
    "torch": ("llama3-8b", "dgx-h200", {"dp": 4}, 4, 16, "1f1b,zb-v-torch", "torchtitan"),
    "recompute": (
        "llama3-8b",
        "dgx-h100",
        {"tp": 2, "recomputes": "selective"},
        4,
        8,
        "1f1b,zb-1p",
        None,
    ),
    "light ends": ("llama3-8b", "dgx-h100", {"layouts": "light-ends"}, 4, 8, "1f1b,zb-1p", None),
    "slices": ("llama3-8b", "dgx-h100", {"tp": 2}, 4, 8, "1f1b,seq1f1b", None),
}


def plans_of(
    model: str,
    cluster: str,
    sizes: dict[str, Any],
    devices: int,
    count: int,
    spec: str,
    **more: Any,
) -> list[dict[str, Any]]:
    """The plans of one layout and one schedule."""
    name, _, chunks = spec.partition(":")
    ranks = {key: [sizes.get(key, 1)] for key in ("tp", "cp", "ep", "dp")}
    fixed = {"recomputes": sizes.get("recomputes", "none"), "layouts": sizes.get("layouts", "even")}
    gpus = devices
    for (size,) in (ranks["tp"], ranks["cp"], ranks["dp"]):
        gpus *= size
    own = {"vp": [int(chunks)]} if chunks else {}
    options = {**ranks, **fixed, **own, "pp": [devices], "mbs": [1], "schedules": name, "top": 1}
    gbs = count * ranks["dp"][0]
    return ppsim.plan(model, cluster, gpus=gpus, gbs=gbs, any=True, **options, **more).plans


def test_names_that_the_help_spells_out_are_those_of_plans():
    assert modelled.LAYOUTS == space.LAYOUTS
    assert software.PRECISIONS == stated.MODELLED


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", LAYOUTS)
def test_compare_takes_the_costs_of_plan(case):
    """Step and memory of each schedule are those of the plan of the same layout."""
    model, cluster, sizes, devices, count, names, software = LAYOUTS[case]
    specs, more = names.split(","), {"software": software} if software else {}
    shape = {"devices": devices, "mb": count}
    found = ppsim.compare(specs, **shape, model=model, cluster=cluster, **sizes, **more)
    rows = found.to_json()["schedules"]
    assert [row["name"] for row in rows] == specs
    for spec, row in zip(specs, rows, strict=True):
        (plan,) = plans_of(model, cluster, sizes, devices, count, spec, **more)
        assert row["step_s"] == pytest.approx(plan["modelled_step_s"], rel=1e-9), spec
        one = ppsim.run(spec, **shape, model=model, cluster=cluster, **sizes, **more)
        assert one.to_json()["step"]["seconds"] == row["step_s"]
        assert one.timeline.makespan == row["makespan"]
        cap = f"{round(plan['memory_bytes'] / 2**20) + 1}MiB"
        held = ppsim.run(
            spec, **shape, model=model, cluster=cluster, **sizes, **more, cap=cap
        ).to_json()
        assert held["fits"], spec


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", LAYOUTS)
def test_sweep_and_jitter_take_the_costs_of_run(case):
    """Makespans of a grid, and without noise, are those of run at the same sizes."""
    model, cluster, sizes, devices, count, names, software = LAYOUTS[case]
    specs, more = names.split(","), {"software": software} if software else {}
    options: dict[str, Any] = {"model": model, "cluster": cluster, "mbs": 2, **sizes, **more}
    runs = {
        (spec, mb): ppsim.run(spec, devices=devices, mb=mb, **options).timeline.makespan
        for spec in specs
        for mb in (count, 2 * count)
    }
    swept = {
        (row["name"], row["microbatches"]): row["makespan"]
        for row in ppsim.sweep(specs, devices=[devices], mb=[count, 2 * count], **options)
    }
    assert swept == pytest.approx(runs, rel=1e-12)
    shaken = ppsim.jitter(specs, devices=devices, mb=count, samples=2, **options)
    for row in shaken.to_json()["schedules"]:
        assert row["makespan"] == pytest.approx(runs[row["name"], count], rel=1e-12)


def test_a_sweep_of_a_model_keeps_its_results_and_its_cap(tmp_path):
    """Rows of a file of results are those of the same model alone, and a cap is in bytes."""
    words = ["sweep", "1f1b", "gpipe", "--devices", "2,4", "--mb", "16", "--tp", "4"]
    words += ["--cluster", "dgx-h100", "--cap", "60GiB", "--json"]
    kept = ["--results", str(tmp_path / "rows.parquet")]
    model = ["--model", "llama3-8b"]
    first, again, plain = (
        json.loads(invoke(*words, *model, *more).stdout)["shapes"] for more in (kept, kept, [])
    )
    assert first == again == plain
    fits = {(row["name"], row["devices"]): row["fits"] for row in plain}
    for (name, devices), verdict in fits.items():
        shape: dict[str, Any] = {"devices": devices, "mb": 16, "tp": 4, "cap": "60GiB"}
        found = ppsim.run(name, model="llama3-8b", cluster="dgx-h100", **shape).to_json()
        assert found["fits"] == verdict
    assert set(fits.values()) == {True, False}
    other = invoke(*words, "--model", "llama3-70b", *kept)
    assert "other inputs" in str(other.exception)


@pytest.mark.parametrize("command", ["sweep", "jitter"])
def test_sweep_and_jitter_refuse_a_model_without_a_cluster(command):
    shape = [command, "1f1b", "--devices", "4", "--mb", "8"]
    found = str(invoke(*shape, "--model", "llama3-8b").exception)
    assert "--model needs the GPUs of a cluster" in found
    found = str(invoke(*shape, "--tp", "2").exception)
    assert "--tp needs --model" in found
    both = ["--model", "llama3-8b", "--cluster", "dgx-h100"]
    found = str(invoke(*shape, *both, "--tf", "2").exception)
    assert "--tf cannot be given too" in found


def test_a_cluster_is_of_a_model_in_jitter():
    found = invoke("jitter", "1f1b", "--devices", "4", "--mb", "8", "--cluster", "dgx-h100")
    assert "--cluster needs --model in jitter" in str(found.exception)


def test_run_of_a_plan_draws_the_same_pipeline():
    """The line that plan prints has the makespan of a run that names the model."""
    words = ["--model", "llama3-8b", "--cluster", "dgx-h100", "--tp", "2"]
    run = json.loads(invoke("run", "zb-v", "--devices", "4", "--mb", "8", *words, "--json").stdout)
    line = ["plan", *words, "--gpus", "8", "--gbs", "8", "--pp", "4", "--mbs", "1", "--json"]
    line += ["--schedules", "zb-v", "--recomputes", "none", "--layouts", "even", "--any"]
    plan = json.loads(invoke(*line).stdout)
    drawn = json.loads(invoke(*plan["run"].replace("'", "").split()[1:], "--json").stdout)
    assert drawn["makespan"] == pytest.approx(run["makespan"], rel=1e-4)


@pytest.mark.slow
def test_measured_schedules_come_out_of_compare_as_of_plan(tmp_path):
    """Published runs of four schedules in each setting: steps are those that --against models."""
    rows = read_table("tests/data/published/unseen/schedules.json")
    modelled = {row["id"]: row["modelled_step_s"] for row in against(rows)[0]}
    for row in rows:
        sizes = setup_of(row)
        text = [
            f'schema = "ppsim.model/2"\nname = "{row["model"]}"\nseq = {row["seq"]}',
            "gated = true",
        ]
        text += [f"{key} = {value}" for key, value in row["architecture"].items()]
        file = Path(tmp_path / "model.toml")
        file.write_text("\n".join(text) + "\n")
        found = ppsim.run(
            sizes.parallel.schedule_name,
            devices=row["pp"],
            chunks=sizes.parallel.vp,
            mb=sizes.parallel.microbatches,
            model=str(file),
            cluster=sizes.machine.name,
            software=row["software"],
            tp=row["tp"],
            dp=row["dp"],
        )
        assert found.to_json()["step"]["seconds"] == pytest.approx(modelled[row["id"]], rel=1e-9)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no cluster": ({"model": "llama3-8b"}, "--cluster"),
    "no model": ({"tp": 2}, "--model"),
    "no model to switch off": ({"overlap_tp": False}, "--no-overlap-tp"),
    "times too": ({"model": "llama3-8b", "cluster": "dgx-h100", "tf": 2.0}, "--tf"),
    "messages as ops": ({"model": "llama3-8b", "cluster": "dgx-h100", "p2p": "overlap"}, "--p2p"),
    "recompute as ops": ({"model": "llama3-8b", "cluster": "dgx-h100", "recompute": True}, "--rec"),
    "no experts": ({"model": "llama3-8b", "cluster": "dgx-h100", "ep": 2, "dp": 2}, "--ep 2"),
    "sizes that do not divide": (
        {"model": "mixtral-8x7b", "cluster": "dgx-h100", "ep": 3, "dp": 2},
        "--ep must divide",
    ),
    "one node": ({"model": "llama3-8b", "cluster": "h100x8,nvlink4", "dp": 4}, "GPUs"),
    "no such software": (
        {"model": "llama3-8b", "cluster": "dgx-h100", "software": "none"},
        "none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_is_refused_with_what_it_lacks(case):
    options, says = REFUSED[case]
    with pytest.raises(InputError) as refused:
        ppsim.run("1f1b", devices=4, mb=8, **options)
    assert says in f"{refused.value} {refused.value.hint}"


def test_a_schedule_that_does_not_train_is_refused():
    sizes: dict[str, Any] = {"devices": 4, "mb": 8, "model": "llama3-8b", "cluster": "dgx-h100"}
    with pytest.raises(InputError, match="forward-only does not train"):
        ppsim.run("forward-only", **sizes)
    rows = ppsim.compare(["1f1b", "forward-only"], **sizes).to_json()["schedules"]
    assert [row["applies"] for row in rows] == [True, False]


def test_a_step_has_the_factors_that_ops_have():
    """A slow device is in the step as it is in the makespan, and in the gain."""
    sizes: dict[str, Any] = {"devices": 4, "mb": 8, "model": "llama3-8b", "cluster": "dgx-h100"}
    slow = ppsim.compare(["1f1b", "zb-1p"], **sizes, speed=[1, 1, 0.5, 1]).to_json()["schedules"]
    even = ppsim.compare(["1f1b", "zb-1p"], **sizes).to_json()["schedules"]
    for one, other in zip(slow, even, strict=True):
        more = (one["makespan"] - other["makespan"]) / 1e3
        assert more > 0.1
        assert one["step_s"] - other["step_s"] == pytest.approx(more)
    assert slow[1]["gain"] == pytest.approx(slow[0]["step_s"] / slow[1]["step_s"] - 1)


@pytest.mark.parametrize("change", ["tf=x0.9", "comm=x2", "mb=16"])
def test_what_if_changes_the_costs_of_a_model(change):
    """Factors, and sizes of the pipeline."""
    words = ["explain", "1f1b", "--devices", "4", "--mb", "8", "--what-if", change, "--json"]
    found = invoke(*words, "--model", "llama3-8b", "--cluster", "dgx-h100")
    answer = json.loads(found.stdout)
    assert answer["what_if"][0]["makespan"] != answer["makespan"]


TRAINED = {
    "tp=2": ["--tp", "2"],
    "tp=2,overlap-tp=yes": ["--tp", "2", "--overlap-tp"],
    "dp=2,zero=3": ["--dp", "2", "--zero", "3"],
    "mbs=2": ["--mbs", "2"],
    "seq=4096": ["--seq", "4096"],
    "recomputes=full": ["--recomputes", "full"],
    "layouts=light-ends,schedule=zb-v": ["--layouts", "light-ends"],
    "precision=fp8,software=megatron-bridge": [
        *("--precision", "fp8", "--software", "megatron-bridge")
    ],
    "cluster=dgx-a100,tp=4": ["--cluster", "dgx-a100", "--tp", "4"],
    "model=mixtral-8x7b,ep=2,dp=2": ["--model", "mixtral-8x7b", "--ep", "2", "--dp", "2"],
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", ["1f1b", "zb-auto"])
@pytest.mark.parametrize("change", TRAINED)
def test_what_if_trains_the_model_in_another_way_as_run_does(name, change):
    """Its sizes, techniques, cluster and the model itself; queues follow the costs."""
    same = ["--model", "llama3-8b", "--cluster", "dgx-h100"]
    shape = ["--devices", "4", "--mb", "8", "--json"]
    (row,) = json.loads(invoke("explain", name, *shape, *same, "--what-if", change).stdout)[
        "what_if"
    ]
    words = TRAINED[change]
    kept = [word for at in (0, 2) if same[at] not in words for word in same[at : at + 2]]
    other = "zb-v" if "schedule" in change else name
    assert (
        row["makespan"]
        == json.loads(invoke("run", other, *shape, *kept, *words).stdout)["makespan"]
    )


def test_what_if_says_where_more_gpus_or_other_tokens_are_compared():
    words = ["explain", "1f1b", "--devices", "4", "--mb", "8", "--model", "llama3-8b"]
    words += ["--cluster", "dgx-h100", "--what-if"]
    assert "tp=2 (on 8 GPUs, not 4) " in invoke(*words, "tp=2").stdout
    found = json.loads(invoke(*words, "mbs=4", "--json").stdout)
    (row,) = found["what_if"]
    assert row["change"] == "mbs=4 (per microbatch of as many tokens as now)"
    assert row["makespan_per_mb"] == pytest.approx(row["makespan"] / 8 / 4)
    assert row["makespan_per_mb"] < found["makespan"] / 8 < row["makespan"] / 8


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tp=3", "32 heads do not divide over tp = 3"),
        ("ep=2", "--ep 2 needs experts, which llama3-8b lacks"),
        ("tpp=2", "cannot change 'tpp=2'. Did you mean 'tp'?"),
        ("padded=yes", "--padded needs --lengths"),
        ("p2p=overlap", "with --model messages are latencies"),
        ("tp=x2", "--tp is not a time, so it has neither a factor"),
        ("tf=2,cluster=dgx-a101", "no cluster 'dgx-a101'"),
    ],
)
def test_what_if_refuses_what_no_run_of_the_model_takes(change, said):
    words = ["explain", "1f1b", "--devices", "4", "--mb", "8", "--model", "llama3-8b"]
    assert said in str(refused(*words, "--cluster", "dgx-h100", "--what-if", change))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("tp=2", "--tp needs --model"),
        ("model=llama3-8b,cluster=dgx-h100", "the run to change has no model"),
        ("mbs=2", "--mbs needs --lengths or --model"),
    ],
)
def test_what_if_trains_no_model_where_the_run_has_none(change, said):
    assert said in str(
        refused("explain", "1f1b", "--devices", "4", "--mb", "8", "--what-if", change)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("replicas=4,2=1.5", ["--replicas", "4,2=1.5"]),
        ("lengths=lognormal:2048:1.2:7", ["--lengths", "lognormal:2048:1.2:7"]),
        (
            "lengths=lognormal:2048:1.2:7,mbs=4,padded=yes",
            ["--lengths", "lognormal:2048:1.2:7", "--mbs", "4", "--padded"],
        ),
    ],
)
def test_what_if_has_other_replicas_or_sequences_as_explain_does(change, words):
    shape = ["explain", "1f1b", "--devices", "2", "--mb", "4", "--json"]
    found = json.loads(invoke(*shape, "--what-if", change).stdout)
    (row,) = found["what_if"]
    assert row["makespan"] == json.loads(invoke(*shape, *words).stdout)["simulated_makespan"]
    assert row["makespan"] > found["makespan"]


def test_explain_compares_the_bytes_of_a_model():
    """A rival that holds as many activations may hold more bytes, which ppsim memory says too."""
    model = ["--model", "llama3-8b"]
    shape = ["--devices", "4", "--mb", "4"]
    found = json.loads(
        invoke("explain", "1f1b", *shape, *model, "--cluster", "dgx-h100", "--json").stdout
    )
    assert found["memory"]["unit"] == "B"
    held = json.loads(invoke("memory", "1f1b", *shape, *model, "--json").stdout)["peak"]
    assert found["memory"]["held"] == pytest.approx(max(held))
    tried = [row for row in found["what_if"] if row["change"].startswith("schedule=")]
    assert any(row["fits"] for row in tried)
    for row in tried:
        assert row["fits"] == (row["held"] <= found["memory"]["cap"])
    assert "other schedules on these devices hold at most 73.09 GiB" in found["notes"][0]


def test_explain_tries_other_schedules_at_their_own_costs():
    """What it advises takes as long as a run of it with the same model."""
    sizes: dict[str, Any] = {"devices": 4, "mb": 8, "model": "llama3-8b", "cluster": "dgx-h100"}
    found = ppsim.explain("1f1b", **sizes, what_if=["schedule=zb-v"]).to_json()
    run = ppsim.run("zb-v", **sizes)
    assert found["what_if"][0]["makespan"] == pytest.approx(run.timeline.makespan, rel=1e-12)


def test_stages_are_priced_once(monkeypatch):
    """For the times of ops, for the step, for files and for the table, whatever is asked."""
    from ppsim.workload.cost import costs

    priced: list[str] = []
    real = costs.stage_costs

    def counted(model, machine, parallel, *others):
        priced.append(parallel.schedule)
        return real(model, machine, parallel, *others)

    monkeypatch.setattr(costs, "stage_costs", counted)
    # sequences that no other test has, so that nothing is known of them yet
    words = ("--devices", "4", "--mb", "8", "--model", "llama3-8b", "--cluster", "dgx-h100")
    run = invoke("run", "1f1b", *words, "--seq", "3072", "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["step"]["seconds"] > 0
    assert priced == ["1f1b"]
    compared = invoke("compare", "1f1b", "gpipe", *words, "--seq", "3076", "--json")
    assert compared.exit_code == 0, compared.output
    assert priced[1:] == ["1f1b", "gpipe"]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ("light-last:4", "32 layers over 4 stages; its head counts as 2.1 layers"),
        ("light-first:1", "32 layers over 4 stages; its encoder counts as 0 layers"),
    ],
)
def test_a_layout_for_a_heavier_head_or_encoder_is_refused(layout, said):
    options = {"model": "llama3-8b", "cluster": "dgx-h100", "layouts": layout}
    with pytest.raises(InputError, match=said):
        ppsim.run("1f1b", devices=4, mb=8, **options)


@pytest.mark.parametrize("spec", ["interleaved-overlap:2", "1f1b-overlap", "dualpipe-v", "zb-1p"])
def test_the_bubble_of_a_plan_is_that_of_run(spec):
    """Also of pairs that hide all-to-all: in warm-up and cool-down it is not hidden, and is work,
    not bubble.
    """
    sizes: dict[str, Any] = {"ep": 8, "dp": 8}
    (plan,) = plans_of("qwen3-30b-a3b", "dgx-h100", sizes, 4, 16, spec)
    shape = {"devices": 4, "mb": 16, "model": "qwen3-30b-a3b", "cluster": "dgx-h100"}
    ran = ppsim.run(spec, **shape, **sizes).to_json()
    assert plan["bubble"] == pytest.approx(ran["bubble_rate"], abs=1e-9)
    assert plan["terms"]["bubble"] == pytest.approx(plan["bubble"] * ran["makespan"] / 1e3)
    assert sum(plan["terms"].values()) == pytest.approx(plan["step_s"])
