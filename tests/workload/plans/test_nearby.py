"""Measured runs near a setting: what they say of its prediction, and how sure that is."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from ppsim.errors import InputError
from ppsim.workload.hardware.hardware import read_gpu
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.nearby import (
    NOISE,
    OTHER_SOFTWARE,
    REACH,
    TERM_SPREAD,
    TERMS,
    Measured,
    Nearby,
    alike,
    published,
    setting_of,
    unseen,
)
from ppsim.workload.plans.published import against, anchors_of
from tests.commands import invoke

MODEL, GPU = read_model("llama3-70b"), read_gpu("h100")
BASE = Parallel(tp=4, pp=8, dp=2, microbatches=32)
ROW = {
    "id": "ours", "software": "torchtitan", "model": "llama3-70b", "gpu": "H100", "gpus": 64, "precision": "BF16",
    "tp": 8, "pp": 2, "cp": 1, "vp": 1, "mbs": 1, "gbs": 64, "seq": 8192, "schedule": "1F1B",
}  # fmt: skip


def setting(parallel=BASE, software="nemo", terms=(8.0, 1.0, 1.0), gpu=GPU):
    return setting_of(MODEL, gpu, parallel, software, terms)


def runs(*errors, **more):
    return tuple(Measured(str(i), setting(**more), 10.0 + i, error) for i, error in enumerate(errors))


def test_without_runs_a_prediction_stays_and_its_range_is_widest():
    none, some = Nearby().at(setting()), Nearby(runs(0.2)).at(setting())
    assert none.factor == 1
    assert some.spread < none.spread
    low, high = none.range(10.0)
    assert low * high == pytest.approx(100)
    assert low < 10 < high


def test_one_run_moves_its_own_setting_almost_whole_and_others_the_less_the_further():
    """At the run itself: error x k / (k + noise^2), as of one observation."""
    found = Nearby(anchors=runs(0.3))
    own = float(alike([setting()], [setting()])[0, 0])
    assert math.log(found.at(setting()).factor) == pytest.approx(0.3 * own / (own + NOISE**2))
    far = [replace(BASE, tp=8), replace(BASE, tp=8, pp=4, dp=1), replace(BASE, tp=1, pp=1, dp=64, mbs=4)]
    moved = [found.at(setting(parallel)).factor for parallel in (BASE, *far)]
    assert moved == sorted(moved, reverse=True)
    spreads = [found.at(setting(parallel)).spread for parallel in (BASE, *far)]
    assert spreads == sorted(spreads)


def test_other_software_and_other_chips_say_little():
    found = Nearby(runs(0.3))
    assert found.at(setting(software="torchtitan")).factor < 1.06
    assert found.at(setting(gpu=read_gpu("b200"))).factor == 1


def test_a_run_that_is_asked_for_is_left_out_as_if_it_had_never_been_there():
    both, first = Nearby(runs(0.3, -0.1)), Nearby(runs(0.3))
    assert both.at(setting(), 11.0).factor == pytest.approx(first.at(setting()).factor)
    assert both.at(setting(), 11.0).spread == pytest.approx(first.at(setting()).spread)
    assert both.at(setting(), 50.0).factor == pytest.approx(both.at(setting()).factor)


def test_terms_are_told_apart_where_anchors_differ_in_them():
    """Runs that wait for messages take longer than predicted, others do not: it is the messages."""
    waits = replace(setting(replace(BASE, tp=8), terms=(5.0, 4.0, 1.0)))
    quiet = setting(terms=(9.0, 0.1, 0.9))
    moved = Nearby(anchors=(Measured("a", waits, 10, 0.3), Measured("b", quiet, 10, 0.0))).terms(quiet)
    assert moved["exposed communication"] > 1.1
    assert moved["compute"] == pytest.approx(1, abs=0.05)


def test_other_software_moves_terms_by_its_distance():
    """One run: its error on each term by that term's share and spread, less by e to the distance."""
    seen, asked = setting(), setting(software="torchtitan")
    known = float(alike([seen], [seen])[0, 0]) + NOISE**2
    near = math.exp(-OTHER_SOFTWARE / REACH)
    spreads = zip(TERMS, seen.shares, TERM_SPREAD, strict=True)
    by_hand = {name: math.exp(near * share * spread**2 / known * 0.3) for name, share, spread in spreads}
    assert Nearby(anchors=(Measured("a", seen, 10, 0.3),)).terms(asked) == pytest.approx(by_hand, rel=1e-12)


def test_covariances_of_any_settings_are_sound():
    settings = [
        setting(replace(BASE, tp=tp, pp=pp), software, (1.0, wait, 0.1))
        for tp in (1, 8) for pp in (1, 4) for software in ("nemo", "torchtitan") for wait in (0.0, 1.0)
    ]  # fmt: skip
    assert np.linalg.eigvalsh(alike(settings, settings)).min() > -1e-12


def test_the_librarys_runs_leave_each_row_out_by_default():
    """A published row is corrected by the others alone."""
    row = published().runs[0]
    assert published().at(row.setting, row.seconds).factor != published().at(row.setting).factor


def test_an_anchor_corrects_the_rows_of_its_software_and_says_so(tmp_path):
    (plain,), _ = against([ROW])
    measured = {**ROW, "id": "mine", "step_s": 1.5 * plain["modelled_step_s"]}
    (moved,), _ = against([ROW], Nearby((), anchors_of([measured])))
    assert 1.3 < moved["predicted_step_s"] / plain["modelled_step_s"] < 1.5
    (tmp_path / "mine.json").write_text(json.dumps([measured]))
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    result = invoke("plan", "--against", str(tmp_path / "rows.json"), "--anchor", str(tmp_path / "mine.json"))
    assert "1 anchor of torchtitan on h100: step x 1." in result.stdout


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
    """As where the unit is another, or the GPUs are those of one node; up to a hundred times is measured."""
    (plain,), _ = against([ROW])
    step = plain["modelled_step_s"]
    rows = [{**ROW, "id": "mine", "step_s": step * factor}]
    with pytest.raises(InputError, match="mine measured a step") as refused:
        anchors_of(rows, where="mine.json")
    said = f"mine.json: mine measured a step of {step * factor:.3g} s, and the plan's own is {step:.3g} s"
    assert str(refused.value) == said
    assert refused.value.hint.startswith("its unit")
    assert anchors_of([{**ROW, "step_s": step * min(max(factor, 1 / 99), 99)}])


def test_what_no_run_was_seen_of_is_named():
    found = Nearby(runs(0.1))
    assert unseen(found, setting(), False) == []
    two = Nearby(found.published, runs(0.1, gpu=read_gpu("b200")))
    assert unseen(two, setting(), False) == []
    assert unseen(found, setting(software="torchtitan"), False) == ["the software torchtitan"]
    both = Nearby(found.published, runs(0.1, gpu=read_gpu("mi300x")))
    assert unseen(both, setting(), True) == ["a mixture of experts on hopper chips"]
    said = unseen(found, setting(gpu=read_gpu("mi300x")), True)
    assert said == ["the GPU mi300x", "a mixture of experts on cdna3 chips"]


@pytest.mark.slow
def test_plans_have_ranges_and_the_simplest_of_those_that_tie_comes_first():
    result = invoke(
        "plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--gbs", "32", "--tp", "2", "--json"
    )
    found = json.loads(result.stdout)
    plans = found["plans"]
    assert all(plan["low_s"] < plan["step_s"] < plan["high_s"] for plan in plans)
    ties = [plan["step_s"] for plan in plans if plan["tied"]]
    assert plans[0]["tied"] == (len(ties) > 1)
    assert min(plan["step_s"] for plan in plans) in ties or not ties
    assert found["unseen"] == []
