"""Plans that barely fit, and faster ones that barely do not: said, and never priced."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil, floor

import pytest

import ppsim.questions.plans.plan as questions
from ppsim.base.units import parse_size
from ppsim.questions.plans.plan import plan as ask_plan
from ppsim.questions.plans.room import cap_text, memory_remarks
from ppsim.workload.plans.bounds import bound_candidates, list_candidates
from ppsim.workload.plans.search import find_near_miss
from ppsim.workload.plans.space import read_key
from ppsim.workload.plans.task import MISS, STATES, Findings, Row
from tests.commands import invoke, refused

SIZES = {"tp": [4], "pp": [2], "cp": [1], "mbs": [1], "zero": [1], "offload": [0, 1]}
ONE = {"gpus": 32, "gbs": 64, "schedules": ["1f1b"], "recomputes": "none", **SIZES}
WORDS = "plan --model llama3-70b --cluster dgx-h100 --gpus 32 --gbs 64 --schedules 1f1b "
WORDS += "--recomputes none --tp 4 --pp 2 --cp 1 --mbs 1 --zero 1 --offload 0,1"
# the plans of these tests need more memory than the GPU has
pytestmark = pytest.mark.filterwarnings("ignore:--cap .* is above the 80 GiB of a GPU")


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Searches here are too small for processes of their own."""
    monkeypatch.setattr(questions, "count_cores", lambda: 1)


def plans_at(cap):
    return ask_plan("llama3-70b", "dgx-h100", cap=f"{cap / 2**30}GiB", **ONE)


def test_a_faster_plan_that_misses_its_memory_by_what_a_peak_may_be_off_is_named():
    """Without offload it takes 116.8 GiB a GPU; with it a step takes a fifth longer."""
    plain = plans_at(200 * 2**30)
    (best,) = plain.plans[:1]
    peak, step = best["memory_bytes"], best["step_s"]
    assert (best["offload"], plain.findings.near_miss) == (0.0, None)
    for miss, is_named in ((0.01, True), (0.03, True), (0.04, False)):
        found = plans_at(peak / (1 + miss))
        assert found.plans[0]["offload"] == 1
        assert found.plans[0]["step_s"] > 1.05 * step
        near = found.json_object()["near_miss"]
        assert bool(near) == is_named
        if near:
            assert (near["step_s"], near["memory_bytes"]) == pytest.approx((step, peak))
            assert near.keys() <= found.plans[0].keys()


def test_a_plan_whose_exact_peak_misses_its_memory_is_named_too():
    """The bound of its bytes, 123.8 GiB, fits; its ops in order take 124.3 GiB."""
    choices = {**ONE, "schedules": ["interleaved"], "vp": [5], "layouts": "light-last"}
    near = ask_plan("llama3-70b", "dgx-h100", cap="124.1GiB", **choices).findings.near_miss
    assert near
    assert near["memory_bytes"] == pytest.approx(124.34 * 2**30, rel=1e-3)


def test_a_plan_whose_weights_and_states_alone_miss_its_memory_may_be_a_near_miss():
    """Sequences of 64 tokens keep 1% of the bytes as activations."""
    whole = ask_plan("llama3-70b", "dgx-h100", cap="400GiB", seq=64, **{**ONE, "offload": [0]})
    task = replace(whole.task, cap=0.98 * whole.plans[0]["memory_bytes"])
    found = Findings()
    assert bound_candidates(task, list_candidates(task), found) == []
    assert found.counts == {STATES: 1}
    assert len(found.barely) == 1


def test_the_fastest_near_miss_is_named_and_only_if_it_is_clearly_faster():
    """Both plans miss by 1%; with offload a step takes a fifth longer."""
    found = plans_at(200 * 2**30)
    rows = {row["offload"]: row for row in found.findings.simulated}
    candidates = {share: read_key(row["key"]) for share, row in rows.items()}
    task = replace(found.task, cap=rows[0.0]["memory_bytes"] / 1.01)

    def near_miss_of(slower: float) -> Row | None:
        """Return the near miss of a best plan that takes ``slower`` times the fastest step."""
        best = {"step_s": slower * rows[0.0]["step_s"]}
        barely = [(0.1, candidates[0.0]), (0.2, candidates[1.0])]
        return find_near_miss(task, Findings(rows=[best], barely=barely))

    for slower in (2.0, 1.06):
        near = near_miss_of(slower)
        assert near
        assert near["offload"] == 0
    assert near_miss_of(1.04) is None


def test_the_cap_that_is_named_is_enough_for_the_plan_that_missed_it():
    said = " ".join(invoke(*f"{WORDS} --cap 115.6GiB".split()).stdout.split())
    assert "a faster plan misses the usable memory by 1.0%" in said
    (cap,) = re.findall(r"--cap (\S+) allows it", said)
    again = " ".join(invoke(*f"{WORDS} --cap {cap}".split()).stdout.split())
    assert "a faster plan misses" not in again
    assert "the best plan may not fit: it fills" in again
    (less,) = re.findall(r"--cap (\S+) leaves room", again)
    assert "the best plan may not fit" not in invoke(*f"{WORDS} --cap 200GiB".split()).stdout
    assert float(less.removesuffix("GiB")) == pytest.approx(116.8 / (1 + MISS), rel=0.01)


def test_a_plan_that_misses_by_less_than_a_peak_may_be_off_is_refused_with_the_cap_it_needs():
    far = refused(*f"{WORDS} --cap 40GiB".split())
    (least,) = re.findall(r"the smallest needs ([\d.]+) GiB", str(far))
    assert "--cap" not in str(far.hint)
    near = refused(*f"{WORDS} --cap {0.99 * float(least):.2f}GiB".split())
    (cap,) = re.findall(r"--cap (\S+) \(predicted peaks were up to 3.1% off\)", str(near.hint))
    assert invoke(*f"{WORDS} --cap {cap}".split()).exit_code == 0


@pytest.mark.parametrize(
    ("memory", "is_said"), [(100.0, True), (97.1, True), (96.9, False), (50.0, False)]
)
def test_a_plan_that_fills_its_memory_is_said_to_be_uncertain(memory, is_said):
    cap = 100 * 2**30
    said = [*memory_remarks({"memory_bytes": memory * 2**30}, cap, cap, None, "")]
    assert [line.startswith("the best plan may not fit: it fills ") for line in said] == [
        True
    ] * is_said


def test_the_cap_that_leaves_room_leaves_it():
    """A plan that fills the named --cap fits the memory if its peak is off by MISS."""
    usable = 75.2 * 2**30
    (said,) = memory_remarks({"memory_bytes": usable}, usable, usable, None, "")
    (named,) = re.findall(r"--cap (\S+) leaves room", said)
    cap = parse_size(named)[0]
    assert 0.99 * usable < cap * (1 + MISS) <= usable
    (said,) = memory_remarks({"memory_bytes": cap}, cap, usable, None, "")
    assert said.startswith("the best plan may exceed --cap: it fills 100.0% of it, ")
    assert said.endswith("; the 75.2 GiB usable without --cap leave room for that")


def test_a_plan_that_takes_the_named_cap_is_not_sent_to_a_smaller_one():
    words = WORDS.replace("--offload 0,1", "--offload 1")
    near = " ".join(invoke(*f"{words} --cap 76.5GiB".split()).stdout.split())
    assert "the best plan may not fit" in near
    roomy = words.replace("dgx-h100", "dgx-h200")
    said = " ".join(invoke(*f"{roomy} --cap 76.5GiB".split()).stdout.split())
    assert "the best plan may not fit" not in said
    assert (
        "the best plan may exceed --cap: it fills 99.6% of it, and predicted peaks were up to"
        in said
    )


def test_the_faster_plan_is_named_as_the_best_one_is():
    said = " ".join(invoke(*f"{WORDS} --cap 115.6GiB".split()).stdout.split())
    best = invoke(*f"{WORDS} --cap 117GiB -q".split()).stdout
    (name,) = re.findall(r"^best: (.*?: \S+ s a step)", best)
    assert f"off: {name}; --cap 117GiB allows it" in said


@pytest.mark.parametrize(
    ("size", "most", "least"),
    [
        (76.13 * 2**30, "76.2GiB", "76.1GiB"),
        (1000.2 * 2**30, "1001GiB", "1000GiB"),
        (9.876 * 2**20, "9.88MiB", "9.87MiB"),
    ],
)
def test_a_cap_is_rounded_away_from_what_it_must_not_cross(size, most, least):
    assert (cap_text(size, ceil), cap_text(size, floor)) == (most, least)


@pytest.mark.parametrize("text", ["10", "0GiB", "120%", "70GiB,60GiB", "-75GiB"])
def test_a_cap_that_is_no_size_in_bytes_is_refused_by_its_option(text):
    error = refused(*f"{WORDS} --cap={text}".split())
    assert re.match(
        rf"--cap: not a (memory )?size: '{re.escape(text)}'; expected e.g. ", str(error)
    )
    assert error.exit_code == 2
