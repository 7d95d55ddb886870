"""A profile's op times in the place of the efficiency curve: what they replace, what stays, and
what is refused.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import OpTime, Profile, Provenance, StageSize, Workload, read
from ppsim.workload.cost.calibrated import _divide, use_profile
from ppsim.workload.cost.costs import stage_costs
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.model import Model, read_model
from ppsim.workload.model.parallel import Parallel
from tests.commands import invoke

H100 = read_machine("dgx-h100")
GPT = Model(4096, 32, 32, 2048, 51200, name="gpt", biases=True, learned_positions=True)
WORKLOAD = Workload(4096, 32, 2048, 1, 2, "bfloat16", 51200)
WHERE = Provenance("here", "", 1, 1, 0.0, "NVIDIA H100 80GB HBM3", "", "", "", "", "", "")
PARALLEL = Parallel(pp=4, vp=1, tp=2, microbatches=8)


def op(part: str, kind: str, ms: float, layers: int = 0, stage: int = -1) -> OpTime:
    return OpTime(part, kind, layers, ms, ms, ms, 9, stage=stage)


def of_layers(times: float, **workload: object) -> Profile:
    """A profile whose ops take so many times as long as by the curve: stages of two layers without
    ends, then ends.
    """
    time = stage_costs(replace(GPT, layers=6), H100, Parallel(pp=3)).time * 1e3 * times
    layers, ends = time[:, 1], time[:, 2] - time[:, 1]
    rows = [op("layers", k, layers[Kind[k]] * count / 2, count) for k in "FBIW" for count in (1, 2)]
    rows += [op("head", k, ends[Kind[k]]) for k in "FBIW"]
    return Profile(WHERE, replace(WORKLOAD, **workload), tuple(rows))  # type: ignore[arg-type]


def test_measured_layers_replace_the_curve_and_collectives_stay():
    """Layers measured at twice the curve's time take twice as long without their collectives, which
    do not change.
    """
    curve = stage_costs(GPT, H100, PARALLEL)
    found = stage_costs(GPT, use_profile(H100, of_layers(2.0), "p", GPT, PARALLEL), PARALLEL)
    middle = slice(1, 3)
    waits = stage_costs(GPT, H100, PARALLEL).communication
    doubled = 2 * (curve.time[Kind.F] + curve.time[Kind.B]) - waits
    assert (found.time[Kind.F] + found.time[Kind.B])[middle] == pytest.approx(doubled[middle])
    assert found.communication == pytest.approx(waits)
    assert [found.message, *found.dp, *found.optimizer] == [
        curve.message,
        *curve.dp,
        *curve.optimizer,
    ]


def test_what_runs_again_takes_the_forward_that_was_measured():
    """Layers that run again take as long as their F without ends: its measured ops and its
    collectives.
    """
    full = replace(PARALLEL, recompute="full")
    measured = use_profile(H100, of_layers(2.0), "p", GPT, PARALLEL)
    once, again = (stage_costs(GPT, measured, parallel).time for parallel in (PARALLEL, full))
    assert (again - once)[Kind.B, 1:3] == pytest.approx(once[Kind.F, 1:3])


def test_a_full_backward_costs_what_was_measured_and_not_its_halves():
    rows = of_layers(1.0).op
    slower = tuple(
        replace(o, median_ms=o.median_ms * 3, p90_ms=o.p90_ms * 3) if o.kind in "IW" else o
        for o in rows
    )
    time = stage_costs(
        GPT, use_profile(H100, Profile(WHERE, WORKLOAD, slower), "p", GPT, PARALLEL), PARALLEL
    ).time
    curve = stage_costs(GPT, H100, PARALLEL).time
    assert time[Kind.B, 1] == pytest.approx(curve[Kind.B, 1])
    assert time[Kind.I, 1] + time[Kind.W, 1] > 2 * curve[Kind.B, 1]


def test_measured_stages_cost_what_they_were_measured_at():
    ms = np.arange(1.0, 5.0)
    rows = [op("stage", "F", m, stage=s) for s, m in enumerate(ms)] + [
        op("stage", "B", 2.5 * m, stage=s) for s, m in enumerate(ms)
    ]
    profile = Profile(replace(WHERE, device="unknown"), None, tuple(rows))
    found = stage_costs(GPT, use_profile(H100, profile, "p", GPT, PARALLEL), PARALLEL).time
    assert found[Kind.F] * 1e3 == pytest.approx(ms)
    assert found[Kind.B] * 1e3 == pytest.approx(2.5 * ms)
    curve = stage_costs(GPT, H100, PARALLEL).time
    split = (curve[Kind.I] + curve[Kind.W]) / curve[Kind.B]
    assert (found[Kind.I] + found[Kind.W]) * 1e3 == pytest.approx(2.5 * ms * split)
    other = replace(PARALLEL, pp=8)
    whole = stage_costs(GPT, use_profile(H100, profile, "p", GPT, other), other).time
    assert whole[Kind.F].sum() * 1e3 == pytest.approx(ms.sum())


@pytest.mark.parametrize(
    ("model", "parallel", "workload", "device", "message", "hint"),
    [
        (
            GPT,
            PARALLEL,
            {},
            "cpu",
            "measured on cpu, and the devices of dgx-h100 are h100",
            "ppsim calibrate",
        ),
        (GPT, PARALLEL, {}, "NVIDIA H1000", "measured on NVIDIA H1000", "ppsim calibrate"),
        (
            GPT,
            replace(PARALLEL, precision="fp8"),
            {},
            "H100",
            "bfloat16, and the model is to be",
            "bf16",
        ),
        (GPT, PARALLEL, {"dtype": "float32"}, "H100", "in float32", "--dtype bfloat16"),
        (
            GPT,
            PARALLEL,
            {"hidden": 512},
            "H100",
            "hidden 512; gpt has 4096",
            "calibrate --hidden 4096 --heads 32",
        ),
        (GPT, PARALLEL, {"sequence": 128}, "H100", "sequence 128; gpt has 2048", "--seq 2048"),
        (
            read_model("mixtral-8x7b"),
            PARALLEL,
            {},
            "H100",
            "every layer of mixtral-8x7b has experts",
            "--from-trace",
        ),
    ],
)
def test_a_profile_that_says_nothing_of_the_run_is_refused(
    model, parallel, workload, device, message, hint
):
    profile = replace(of_layers(1.0, **workload), provenance=replace(WHERE, device=device))
    with pytest.raises(InputError) as refused:
        use_profile(H100, profile, "p.toml", model, parallel)
    assert message in str(refused.value)
    assert hint in str(refused.value.hint)


def test_layers_that_took_no_longer_than_none_are_refused():
    rows = (op("layers", kind, 3.0, count) for kind in "FB" for count in (0, 1, 2))
    with pytest.raises(
        InputError, match="'p' has no time of a layer: 2 layers took no longer than a stage without"
    ):
        use_profile(H100, Profile(WHERE, WORKLOAD, tuple(rows)), "p", GPT, PARALLEL)
    with pytest.raises(InputError, match="no times of B"):
        use_profile(
            H100, Profile(WHERE, WORKLOAD, (op("layers", "F", 3.0, 2),)), "p", GPT, PARALLEL
        )


CPU = (
    'schema = "ppsim.gpu/1"\nname = "cpu"\nmemory_gib = 16\nhbm_gb_per_s = 20\n[tflops]\nbf16 = '
    "0.05\n",
    'schema = "ppsim.cluster/1"\ngpu = "cpu.toml"\ndevices_per_node = 4\n[intra]\nalpha_us = '
    "5\ngb_per_s = 5\n",
    'schema = "ppsim.model/2"\nhidden = 512\nheads = 8\nlayers = 8\nseq = 256\nvocab = '
    "4096\nbiases = true\n"
    "learned_positions = true\n",
)


def test_a_model_costs_what_a_schedule_with_its_profile_costs(tmp_path):
    """The profile of this model's own layers: the plan's stages take what `ppsim run --profile`
    lets them take.
    """
    for name, text in zip(("cpu", "here", "small"), CPU, strict=True):
        (tmp_path / f"{name}.toml").write_text(text)
    model, machine = (
        read_model(str(tmp_path / "small.toml")),
        read_machine(str(tmp_path / "here.toml")),
    )
    profile, parallel = read("gallery/profile-cpu.toml"), Parallel(pp=4, precision="fp32")
    time = (
        stage_costs(model, use_profile(machine, profile, "p", model, parallel), parallel).time * 1e3
    )
    assert time[Kind.F] == pytest.approx([46.74, 46.37, 46.37, 62.32], abs=0.01)
    assert time[Kind.B] == pytest.approx([102.67, 100.93, 100.93, 136.51], abs=0.01)


def test_a_command_says_what_is_measured_and_what_is_not(tmp_path):
    from ppsim.inputs.profile.profile import write

    path = str(tmp_path / "p.toml")
    write(of_layers(2.0, hidden=8192), path)
    words = ["model", "llama3-70b", "--pp", "4", "--cluster", "dgx-h100", "--profile", path]
    said = " ".join(invoke(*words).stdout.split())
    assert "times of dense layers, embedding and output, measured with hidden 8192" in said
    assert "collectives, messages, gradient reductions and the optimizer are the curve's" in said
    refused = invoke("model", "llama3-70b", "--profile", path)
    assert "--profile has times of ops, and a step also needs the links" in str(refused.exception)


def test_a_plan_takes_whole_stages_only_with_the_sizes_they_were_measured_with(tmp_path):
    from ppsim.inputs.profile.profile import write

    path = str(tmp_path / "p.toml")
    write(
        Profile(WHERE, None, tuple(op("stage", k, 9.0, stage=s) for k in "FB" for s in (0, 1))),
        path,
    )
    words = [
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--gbs",
        "8",
        "--profile",
        path,
    ]
    assert "measured with one size of each group" in str(invoke(*words).exception)
    fixed = [
        "--tp",
        "1",
        "--cp",
        "1",
        "--mbs",
        "1",
        "--recomputes",
        "none",
        "--schedules",
        "1f1b",
        "--json",
    ]
    result = invoke(*words, *fixed, "--pp", "2")
    assert result.exit_code == 0
    said = json.loads(result.stdout)
    assert said["profile"]["taken"].startswith("2 whole stages")
    # no published run corrects them
    assert all(plan["step_s"] == plan["modelled_step_s"] for plan in said["plans"])


def test_what_is_measured_is_divided_by_what_the_curve_says_of_it():
    """Layers a half longer in F, twice in I and W; the head thrice; what no layer takes is added to
    each stage.
    """
    time = stage_costs(replace(GPT, layers=6), H100, Parallel(pp=3)).time * 1e3
    layers, ends = time[:, 1], time[:, 2] - time[:, 1]
    scale = {"F": 1.5, "B": 2.0, "I": 2.0, "W": 2.0}
    fixed = {"F": 0.25, "B": 0.75, "I": 0.5, "W": 0.25}
    rows = [
        op("layers", k, fixed[k] + scale[k] * layers[Kind[k]] * n / 2, n)
        for k in "FBIW"
        for n in (0, 1, 2)
    ]
    rows += [op("head", k, 3 * ends[Kind[k]]) for k in "FBIW"]
    profile = Profile(WHERE, WORKLOAD, tuple(rows))
    measured = use_profile(H100, profile, "p", GPT, Parallel()).measured
    assert measured is not None
    assert measured.layer == pytest.approx((1.5, 2.0, 2.0, 2.0))
    assert measured.head == pytest.approx((3.0, 3.0, 3.0, 3.0), rel=1e-3)
    assert measured.fixed == pytest.approx((0.25e-3, 0.5e-3, 0.25e-3, 0.75e-3))
    parallel = Parallel(pp=4)
    plain = stage_costs(GPT, H100, parallel).time[:4]
    found = stage_costs(GPT, use_profile(H100, profile, "p", GPT, parallel), parallel).time[:4]
    wanted = plain[:, 1] * [1.5, 2, 2, 2] + np.array([0.25, 0.75, 0.5, 0.25]) * 1e-3
    assert found[:, 1] == pytest.approx(wanted)


def test_a_full_backward_alone_says_of_its_halves_that_they_take_as_long():
    time = stage_costs(replace(GPT, layers=6), H100, Parallel(pp=3)).time * 1e3
    rows = [op("layers", k, 0.5 + 2 * time[Kind[k], 1] * n / 2, n) for k in "FB" for n in (0, 2)]
    profile = Profile(WHERE, replace(WORKLOAD, vocab=0), tuple(rows))
    measured = use_profile(H100, profile, "p", GPT, Parallel()).measured
    assert measured is not None
    assert measured.layer == pytest.approx((2, 2, 2, 2))
    assert measured.fixed == pytest.approx((0.5e-3, 0.25e-3, 0.25e-3, 0.5e-3))
    assert measured.embedding == measured.head == (1, 1, 1, 1)
    assert "embedding, output" in measured.left


def test_a_profile_carries_to_four_times_its_sizes_and_no_farther():
    for hidden, sequence in ((16384, 2048), (1024, 2048), (4096, 8192), (4096, 512)):
        use_profile(
            H100, of_layers(1.0, hidden=hidden, sequence=sequence, heads=32), "p", GPT, PARALLEL
        )
    with pytest.raises(InputError, match="more than 4 times off"):
        use_profile(H100, of_layers(1.0, hidden=16416, heads=32), "p", GPT, PARALLEL)


def test_stages_in_another_number_or_when_asked_count_as_their_sum():
    rows = [
        op("stage", k, ms * (2.5 if k == "B" else 1), stage=s)
        for s, ms in enumerate((1.0, 3.0))
        for k in "FB"
    ]
    profile = Profile(replace(WHERE, device=""), None, tuple(rows))
    two = Parallel(pp=2, microbatches=2)
    for parallel, by_stage, factors in ((two, True, 2), (two, False, 1), (PARALLEL, True, 1)):
        machine = use_profile(H100, profile, "p", GPT, parallel, by_stage=by_stage)
        assert machine.measured is not None
        assert len(machine.measured.stages) == factors
        assert ("their sum" in machine.measured.taken) == (factors == 1)
        time = stage_costs(GPT, machine, parallel).time
        assert time[Kind.F].sum() == pytest.approx(4e-3)
        assert time[Kind.B].sum() == pytest.approx(10e-3)


def test_stages_with_about_the_models_parameters_are_the_models():
    """Within a twentieth; others are of some of its layers, or refused."""
    rows = [op("stage", k, m, stage=s) for s in range(4) for k, m in (("F", 1.0), ("B", 2.5))]
    profile = Profile(replace(WHERE, device=""), None, tuple(rows))
    plain = use_profile(H100, profile, "p", GPT, PARALLEL)
    held = stage_costs(GPT, H100, PARALLEL).parameters

    def sized(times):
        return replace(
            profile,
            stage=tuple(StageSize(s, 0, int(times * n), 0, 0, 0, 0) for s, n in enumerate(held)),
        )

    for times in (0.951, 1.049):
        assert use_profile(H100, sized(times), "p", GPT, PARALLEL) == plain
    for times in (0.949, 1.051):
        with pytest.raises(InputError, match="a GPU holds"):
            use_profile(H100, sized(times), "p", GPT, PARALLEL)


def test_modules_with_the_parameters_of_dense_layers_are_dense_layers():
    """One and three layers, a half longer forward and twice as long backward than the curve says of
    four.
    """
    alone = replace(GPT, layers=6)
    curve = stage_costs(alone, H100, Parallel(pp=3)).time[:, 1] / 2 * 1e3  # of a layer without ends
    each = stage_costs(alone, H100, Parallel(pp=3)).parameters[1] / 2
    rows = [
        op("stage", k, scale * curve[Kind[k]] * 2, stage=s)
        for k, scale in (("F", 1.5), ("B", 2.0))
        for s in (0, 1)
    ]
    sizes = tuple(StageSize(s, 0, int(count * each), 0, 0, 0, 0) for s, count in ((0, 1), (1, 3)))
    profile = Profile(replace(WHERE, device=""), None, tuple(rows), stage=sizes)
    measured = use_profile(H100, profile, "p", GPT, Parallel(pp=2, microbatches=2)).measured
    assert measured is not None
    assert measured.layer == pytest.approx((1.5, 2.0, 2.0, 2.0))
    assert measured.taken.startswith("dense layers, of which modules have 4")
    odd = replace(profile, stage=(*sizes[:1], replace(sizes[1], parameters=int(2.5 * each))))
    with pytest.raises(InputError, match="a dense layer"):
        use_profile(H100, odd, "p", GPT, Parallel(pp=2, microbatches=2))


def test_halves_that_were_not_both_measured_are_as_the_full_backward():
    """Of F, I, W and B, against a curve that says 1, 1, 1 and 2; what was not measured at all is as
    the curve.
    """
    curve = np.array([1.0, 1, 1, 2])
    assert _divide(np.array([2.0, 3, 5, 12]), curve) == (2, 3, 5, 6)
    assert _divide(np.array([2.0, 3, 0, 12]), curve) == (2, 6, 6, 6)
    assert _divide(np.array([2.0, 0, 5, 12]), curve) == (2, 6, 6, 6)
    assert _divide(np.array([0.0, 0, 0, 12]), curve) == (1, 6, 6, 6)
    assert _divide(np.array([2.0, 0, 0, 0]), curve) == (2, 1, 1, 1)
