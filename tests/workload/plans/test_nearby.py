"""Corrections by measured runs: which runs count, by how much, and how wide the range is."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from ppsim.errors import InputError
from ppsim.workload.hardware.hardware import read_gpu
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.nearby import (
    EACH,
    EIGHTY,
    JOB,
    KNOWN,
    LEVEL,
    REPEATED,
    UNNAMED,
    UNSEEN,
    Measured,
    Nearby,
    published,
    setting_of,
    unseen_parts,
)
from ppsim.workload.plans.published import against, anchors_of
from tests.commands import invoke

MODEL, GPU = read_model("llama3-70b"), read_gpu("h100")
BASE = Parallel(tp=4, pp=8, dp=2, microbatches=32)
OTHER = replace(BASE, tp=8)  # another job
ROW = {
    "id": "ours",
    "software": "torchtitan",
    "model": "llama3-70b",
    "gpu": "H100",
    "gpus": 64,
    "precision": "BF16",
    "tp": 8,
    "pp": 2,
    "cp": 1,
    "vp": 1,
    "mbs": 1,
    "gbs": 64,
    "seq": 8192,
    "schedule": "1F1B",
}


def setting(parallel=BASE, software="nemo", release=(), gpu=GPU, known=True):
    return setting_of(MODEL, gpu, parallel, software, release, known)


def runs(*errors, **more):
    return tuple(
        Measured(str(i), setting(**more), 10.0 + i, error) for i, error in enumerate(errors)
    )


def test_without_a_twin_or_an_anchor_a_prediction_stays():
    """Published runs of the same software and GPU with another layout correct nothing."""
    found = Nearby(runs(0.3, 0.2)).correction_at(setting(OTHER))
    assert (found.factor, found.half, found.runs) == (1.0, KNOWN, 0)
    low, high = found.range(10.0)
    assert low * high == pytest.approx(100)
    assert math.log(high / 10.0) == pytest.approx(KNOWN)


@pytest.mark.parametrize(
    "changes",
    [
        {"tp": 8},
        {"pp": 4},
        {"mbs": 2},
        {"schedule": "zb-1p"},
        {"recompute": "full"},
        {"precision": "fp8"},
    ],
)
def test_a_twin_differs_in_batch_and_number_of_gpus_alone(changes):
    found = Nearby(runs(0.3))
    twin = found.correction_at(setting(replace(BASE, dp=16, microbatches=8)))
    weight = JOB**2 / (JOB**2 + REPEATED**2)
    assert math.log(twin.factor) == pytest.approx(0.3 * weight)
    assert twin.half == pytest.approx(EIGHTY * math.sqrt(JOB**2 * (1 - weight) + REPEATED**2))
    assert found.correction_at(setting(replace(BASE, **changes))).runs == 0


def test_a_twin_of_another_release_is_none():
    """One slow release says nothing of the next; where nobody says the release, all count."""
    slow, fast = runs(0.6, release=(26, 4)), runs(0.0, release=(26, 6))
    both = Nearby(slow + fast)
    assert both.correction_at(setting(release=(26, 6))).factor == 1.0
    assert both.correction_at(setting(release=(26, 6))).runs == 1
    assert both.correction_at(setting(release=(26, 8))).runs == 0
    assert both.correction_at(setting()).runs == 2


def test_twins_and_anchors_that_disagree_widen_the_range_and_move_the_middle_less():
    """Two runs at +20 %, against one at -20 % and one at +60 %: the means are alike."""
    agree, apart = (
        Nearby(anchors=runs(*errors)).correction_at(setting(OTHER))
        for errors in ((0.2, 0.2), (-0.2, 0.6))
    )
    assert 1 < apart.factor < agree.factor < math.exp(0.2)
    assert apart.half > 1.5 * agree.half
    opposite = Nearby(anchors=runs(-0.3, 0.3)).correction_at(setting(OTHER))
    assert opposite.factor == pytest.approx(1)
    assert opposite.half > KNOWN


def test_runs_of_one_source_and_software_share_the_measured_part_of_their_variance():
    """0.27, by least squares over held-out runs."""
    shared = LEVEL**2 / (LEVEL**2 + EACH**2)
    assert shared == pytest.approx(0.27, abs=0.005)


def test_the_more_anchors_agree_the_more_they_count():
    factors = [
        Nearby(anchors=runs(*[0.2] * count)).correction_at(setting(OTHER)).factor
        for count in (1, 2, 8)
    ]
    assert math.log(factors[0]) == pytest.approx(0.2 * LEVEL**2 / (LEVEL**2 + EACH**2))
    assert factors == sorted(factors)
    assert factors[-1] < math.exp(0.2)


def test_an_anchor_of_software_that_nobody_knows_is_a_plain_factor():
    """On its GPU for any software, as nothing else is known of it."""
    mine = Nearby(anchors=runs(0.3, software="our own", known=False))
    assert math.log(mine.correction_at(setting(OTHER)).factor) == pytest.approx(0.3, rel=0.02)
    assert mine.correction_at(setting(OTHER, gpu=read_gpu("b200"))).factor == 1
    assert (
        Nearby(anchors=runs(0.3)).correction_at(setting(OTHER, software="torchtitan")).factor == 1
    )


def test_the_users_own_twin_comes_before_published_ones():
    found = Nearby(runs(-0.3), runs(0.3)).correction_at(setting())
    assert found.runs == 1
    assert found.factor > 1.2


def test_ranges_are_widest_where_software_or_gpu_were_never_seen():
    found = Nearby(runs(0.1))
    assert found.correction_at(setting(OTHER)).half == KNOWN
    assert found.correction_at(setting(OTHER, software="maxtext")).half == UNSEEN
    assert found.correction_at(setting(OTHER, gpu=read_gpu("b200"))).half == UNSEEN
    assert found.correction_at(setting(OTHER, software="ours", known=False)).half == UNNAMED
    assert KNOWN < UNSEEN < UNNAMED
    assert Nearby().correction_at(setting()).half == KNOWN  # a profile takes the curve's place


def test_a_run_that_is_asked_for_is_left_out():
    both, first = Nearby(runs(0.3, -0.1)), Nearby(runs(0.3))
    assert both.correction_at(setting(), 11.0) == first.correction_at(setting())
    assert both.correction_at(setting(), 50.0) == both.correction_at(setting())


def test_the_librarys_runs_leave_each_row_out_by_default():
    """A published row is corrected by the others alone."""
    row = published().runs[0]
    assert (
        published().correction_at(row.setting, row.seconds).runs
        == published().correction_at(row.setting).runs - 1
    )


def test_an_anchor_corrects_the_rows_of_its_software_and_says_so(tmp_path):
    (plain,), _ = against([ROW])
    measured = {**ROW, "id": "mine", "step_s": 1.5 * plain["modelled_step_s"]}
    (moved,), _ = against([ROW], Nearby((), anchors_of([measured])))
    assert 1.3 < moved["predicted_step_s"] / plain["modelled_step_s"] < 1.5
    (tmp_path / "mine.json").write_text(json.dumps([measured]))
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    result = invoke(
        "plan", "--against", str(tmp_path / "rows.json"), "--anchor", str(tmp_path / "mine.json")
    )
    assert "1 anchor of torchtitan on h100: step x 1." in result.stdout


def test_anchors_that_disagree_say_how_far(tmp_path):
    (plain,), _ = against([ROW])
    two = [
        {**ROW, "id": name, "step_s": plain["modelled_step_s"] * far}
        for name, far in (("a", 0.8), ("b", 1.3))
    ]
    (tmp_path / "mine.json").write_text(json.dumps(two))
    (tmp_path / "rows.json").write_text(json.dumps([{**ROW, "tp": 4, "pp": 4}]))
    result = invoke(
        "plan", "--against", str(tmp_path / "rows.json"), "--anchor", str(tmp_path / "mine.json")
    )
    said = " ".join(result.stdout.split())
    assert "2 anchors of torchtitan on h100: step x 1; " in said
    assert "their steps are \u221220.0% to +30.0% off the predicted ones" in said


def test_software_that_the_library_lacks_keeps_its_name():
    """And is predicted as one that hides no communication, within the widest range."""
    row = {
        **{k: v for k, v in ROW.items() if k != "software"},
        "framework": "Our trainer 3",
        "step_s": 9.0,
    }
    (run,) = anchors_of([row])
    assert (run.setting.software, run.setting.known) == ("our trainer 3", False)
    (found,) = against([row])[0]
    assert found["high_s"] == pytest.approx(math.exp(UNNAMED) * found["predicted_step_s"])
    assert found["software"] == "megatron-lm"


@pytest.mark.parametrize("rows", [[], [{}], [{**ROW, "step_s": None}], [5]])
def test_anchors_without_a_measured_step_are_refused(rows):
    with pytest.raises(InputError, match="no anchor has a measured step"):
        anchors_of(rows)


def test_why_no_anchor_can_be_predicted_is_said_shortly():
    with pytest.raises(InputError, match="can be predicted: no model 'x") as refused:
        anchors_of([{**ROW, "model": "x" * 9000}])
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("factor", [1e-300, 1 / 101, 101, 1e9])
def test_an_anchor_far_from_its_prediction_is_refused_with_both_steps(factor):
    """As where the unit is another, or the GPUs are those of one node; up to a hundred times is
    measured.
    """
    (plain,), _ = against([ROW])
    step = plain["modelled_step_s"]
    rows = [{**ROW, "id": "mine", "step_s": step * factor}]
    with pytest.raises(InputError, match="mine has a measured step") as refused:
        anchors_of(rows, where="mine.json")
    said = (
        f"mine.json: mine has a measured step of {step * factor:.3g} s and a predicted one of "
        f"{step:.3g} s"
    )
    assert str(refused.value) == said
    assert refused.value.hint.startswith("its unit")
    assert anchors_of([{**ROW, "step_s": step * min(max(factor, 1 / 99), 99)}])


def test_what_no_run_was_seen_of_is_named():
    found = Nearby(runs(0.1))
    assert unseen_parts(found, setting()) == []
    two = Nearby(found.published, runs(0.1, gpu=read_gpu("b200")))
    assert unseen_parts(two, setting()) == []
    assert unseen_parts(found, setting(software="torchtitan")) == [
        "the software torchtitan on hopper chips"
    ]
    experts = replace(setting(), experts=True)
    assert unseen_parts(found, experts) == ["a mixture of experts on hopper chips"]
    said = unseen_parts(found, replace(experts, gpu="mi300x", family="cdna3"))
    assert said == [
        "the GPU mi300x",
        "the software nemo on cdna3 chips",
        "a mixture of experts on cdna3 chips",
    ]


@pytest.mark.slow
def test_plans_have_ranges_and_the_simplest_of_those_that_tie_comes_first():
    result = invoke(
        "plan",
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--gbs",
        "32",
        "--tp",
        "2",
        "--json",
    )
    found = json.loads(result.stdout)
    plans = found["plans"]
    assert all(plan["low_s"] < plan["step_s"] < plan["high_s"] for plan in plans)
    ties = [plan["step_s"] for plan in plans if plan["tied"]]
    assert plans[0]["tied"] == (len(ties) > 1)
    assert min(plan["step_s"] for plan in plans) in ties or not ties
    assert found["unseen"] == []
    assert {round(plan["step_s"] / plan["modelled_step_s"], 9) for plan in plans} == {
        round(found["correction"]["step"], 9)
    }
