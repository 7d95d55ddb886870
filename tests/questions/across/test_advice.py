"""Advice is never beaten by what ppsim knows, within the memory, and says up to where it holds."""

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.analysis.break_even import RUNS
from ppsim.questions.across import break_even
from ppsim.schedules import families
from tests.cases import SOME
from tests.commands import ROOT, invoke, refused
from tests.real_runs import STRAGGLERS

SMALL = ["--devices", "4", "--mb", "8"]
LINKED = ["--devices", "3", "--mb", "4", "--link", "1-2=5"]
ROUNDING = 1e-9


@cache  # several promises of the same answer
def printed(*words: str) -> str:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    return result.stdout


def asked(*words: str) -> Any:
    return json.loads(printed(*words))


def known(words: list[str]) -> list[dict[str, Any]]:
    """The schedules that a comparison of all times, on these devices."""
    return [row for row in asked("compare", "all", *words)["schedules"] if row["applies"]]


def named_first(found: dict[str, Any]) -> dict[str, Any]:
    """The change that the advice names, as a row of the answer; the run where it names none."""
    advice = found["advice"]
    if not advice.startswith("first:"):
        base = found["simulated_makespan"]
        each = base / found["microbatches"]
        return {"change": "", "makespan": base, "makespan_per_mb": each, "held": 0}
    part = advice.removeprefix("first: ").split(", ")[0]
    texts = {
        "move layers so that stages are equal": "equal stages",
        "hide or shorten messages": "messages take no time",
    }
    text = next((text for words, text in texts.items() if part.startswith(words)), "")
    if match := re.fullmatch(r"use (\d+) microbatches", part):
        text = f"mb={match[1]}"
    text = text or f"schedule={part.removeprefix('use ').replace(' --limit ', ',limit=')}"
    return next(row for row in found["what_if"] if row["change"].split(" (")[0] == text)


def test_the_cure_of_a_slow_link_is_offered():
    """Of 1F1B with a slow link: the fastest in its memory, and the fastest of all."""
    found, rows = asked("explain", "1f1b", *LINKED), known(LINKED)
    own = next(row for row in rows if row["name"] == "1f1b")["peak_activations_share"]
    fit = min(row["makespan"] for row in rows if row["peak_activations_share"] <= own)
    best = min(rows, key=lambda row: row["makespan"])
    assert named_first(found)["makespan"] == fit < found["makespan"]
    assert found["advice_with_more_memory"].startswith(f"with more memory: use {best['name']}, ")
    held = f"holding {best['peak_activations_share']:g} activations"
    assert held in found["advice_with_more_memory"]


def test_the_fill_of_1f1b_is_cured_by_a_v_that_splits_its_backwards():
    found = asked("explain", "1f1b", *SMALL)
    assert named_first(found) == {
        "change": "schedule=zb-v",
        "makespan": 25.5,
        "makespan_per_mb": 25.5 / 8,
        "bubble_rate": pytest.approx(1 - 24 / 25.5),
        "held": 4.0,
        "fits": True,
    }
    assert "equal to zb-v in time and memory: v-auto, zb-v-torch, interleaved-zb" in found["notes"]


def test_a_cap_takes_the_place_of_what_the_run_holds():
    """More memory offers more; less wants a schedule that holds less, also a slower one."""
    rows = known(LINKED)
    for cap in (2, 8):
        found = asked("explain", "1f1b", *LINKED, "--cap", str(cap))
        fit = [row["makespan"] for row in rows if row["peak_activations_share"] <= cap]
        first = named_first(found)
        assert first["makespan"] <= min(fit)
        assert first["held"] <= cap
        assert found["memory"] == {"held": 3.0, "cap": cap, "unit": "activations"}
    advice = asked("explain", "1f1b", *SMALL, "--cap", "2")["advice"]
    assert "which holds 2, not 4 activations" in advice
    assert "the bytes of an activation are not known" in str(
        refused("explain", "1f1b", *SMALL, "--cap", "2GiB")
    )
    both = refused("explain", "1f1b", *SMALL, "--cap", "2", "--what-if", "mb=4")
    assert "--what-if chooses them" in str(both)


def test_twice_the_microbatches_are_held_to_the_memory_too():
    """GPipe holds every microbatch: with 6 of them it holds 6, so that is not advised."""
    found = asked("explain", "gpipe", "--devices", "2", "--mb", "3")
    rows = {row["change"]: row for row in found["what_if"]}
    assert not rows["mb=6 (holds 6, more than 3)"]["fits"]


TIMES = st.sampled_from([0.5, 1.0, 1.5, 2.0])
NAMES = [family.name for family in families() if family.interchangeable]


@st.composite
def runs(draw) -> list[str]:
    """A schedule of any kind with a shape, costs and links of any kind."""
    P = draw(st.integers(2, 5))
    words = ["--devices", str(P), "--mb", str(draw(st.integers(2, 9)))]
    for name in ("tf", "ti", "tw"):
        kind = draw(st.sampled_from(["default", "one", "each"]))
        if kind != "default":
            times = [draw(TIMES) for _ in range(P if kind == "each" else 1)]
            words += [f"--{name}", ",".join(map(str, times))]
    if draw(st.booleans()):
        words += ["--comm", str(draw(st.sampled_from([0.1, 0.5, 2.0])))]
    if draw(st.booleans()):
        device = draw(st.integers(0, P - 2))
        words += ["--link", f"{device}-{device + 1}={draw(st.sampled_from([0.5, 3.0, 8.0]))}"]
    if draw(st.booleans()):
        words += ["--mb-scale", f"lognormal:0.3:{draw(st.integers(0, 9))}"]
    if draw(st.booleans()):
        words += ["--speed", ",".join(str(draw(st.sampled_from([0.8, 1.0]))) for _ in range(P))]
    return words


@pytest.mark.slow
@SOME
@given(st.sampled_from(NAMES), runs())
def test_advice_is_never_beaten_by_a_comparison_of_all(name, words):
    """What is named first is not slower than any schedule that fits the same memory."""
    result = invoke("explain", name, *words, "--json")
    if result.exit_code:  # the schedule does not take the shape, or times by stage
        return
    found, rows = json.loads(result.stdout), known(words)
    own = next(row for row in rows if row["name"] == name)["peak_activations_share"]
    fit = [row for row in rows if row["peak_activations_share"] <= own + ROUNDING]
    least = min(row["makespan"] for row in fit) / found["microbatches"]
    first = named_first(found)
    assert first["makespan_per_mb"] <= least * (1 + 1e-3), found["advice"]
    assert first["held"] <= own + ROUNDING
    for row in found["what_if"]:  # nor by what stands beside it
        if row["fits"] and row["change"] != "messages take no time":
            assert first["makespan_per_mb"] <= row["makespan_per_mb"] * (1 + 1e-3)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("1f1b", SMALL),
        ("1f1b", [*SMALL, "--comm", "0.2"]),
        ("gpipe", ["--devices", "3", "--mb", "5"]),
        ("interleaved", SMALL),
        ("zb-1p", SMALL),
        ("chimera", SMALL),
    ],
)
def test_advice_holds_up_to_the_times_that_it_names(name, words):
    """Below them ``run`` finds the schedule faster, a little above no longer."""
    advice = asked("explain", name, *words)["advice"]
    rival = re.match(r"first: use (\S+),", advice)
    assert rival
    assert "with ops in this order" not in advice
    split = re.search(r"I \+ W takes less than ([\d.]+) B", advice)
    message = re.search(r"a message takes less than ([\d.]+) t_F", advice)
    assert split or message
    now = float(words[5]) if "--comm" in words else 0.0
    base = asked("run", name, *words)["makespan"]

    def ran(which: str, *more: str) -> float:
        return asked("run", which, *words[:4], *more)["makespan"]

    for share in (0.1, 0.5, 0.9, 0.999, 1.02):
        if split:
            most = float(split[1])
            half = str(1 + (most - 1) * share if share < 1 else most * share)
            taken = ran(rival[1], *words[4:], "--ti", half, "--tw", half)
            assert (taken < base) == (share < 1), (share, advice)
        if message:
            most = float(message[1])
            time = str(now + (most - now) * share if share < 1 else most * share)
            taken, other = ran(rival[1], "--comm", time), ran(name, "--comm", time)
            assert (taken < other) == (share < 1), advice


def test_a_schedule_that_holds_weights_twice_says_so():
    advice = asked("explain", "1f1b", "--devices", "2", "--mb", "4")["advice"]
    assert advice.startswith("first: use chimera, 20.0% less time per microbatch")
    assert "which holds all weights twice" in advice
    assert "of those that do not, zb-v is fastest (16.7% less)" in advice


def test_up_to_which_times_is_said_of_the_schedule_that_is_advised(tmp_path):
    """The sentence names another schedule last, whose times are not those up to which it holds."""
    shape = ("--devices", "4", "--mb", "8")
    path = str(tmp_path / "run.json")
    invoke("run", "1f1b", *shape, "-o", path)
    advice = asked("explain", path, "--cap", "5")["advice"]
    found = re.fullmatch(
        r"first: use (\S+), .*\) as long as I \+ W takes less than ([\d.]+) B"
        r"; it holds all weights twice; of those that do not, \S+ is fastest \([\d.]+% less\)",
        advice,
    )
    assert found, advice
    most, now = float(found[2]), asked("run", "1f1b", *shape)["makespan"]
    times = [
        asked("run", found[1], *shape, "--tb", "2", "--ti", half, "--tw", half)["makespan"]
        for half in (str(most), str(most + 0.02))
    ]
    assert times[0] < now < times[1]


@pytest.mark.slow
def test_what_takes_long_to_simulate_is_left_out_and_named():
    """The budget counts ops, so that the answer is the same on every machine."""
    found = asked("explain", "1f1b", "--devices", "64", "--mb", "512")
    left = next(note for note in found["notes"] if note.startswith("not tried"))
    assert "v-auto" in left
    run = asked("run", "zb-v-torch", "--devices", "64", "--mb", "512")
    assert named_first(found)["makespan"] == run["makespan"]


def test_a_job_of_several_replicas_is_mended_over_all_of_them():
    """The advice is the change that saves most of the job's step."""
    found = asked("explain", str(STRAGGLERS))
    best = max(found["mending"], key=lambda change: change["saves"])
    less = f"{100 * best['saves']:.1f}% less time per step"
    assert found["advice"].startswith(f"first: {best['what']}, {less}")
    assert found["what_if"] == []
    assert invoke("explain", str(STRAGGLERS), "-q").stdout.strip().endswith(found["advice"])


def test_the_page_of_a_job_shows_its_lines(tmp_path):
    target = tmp_path / "job.html"
    result = invoke("explain", str(STRAGGLERS), "-o", str(target))
    said = [line for line in result.stdout.splitlines() if line.strip()][:16]
    page = target.read_text().replace("&#x27;", "'").replace("&gt;", ">")
    for line in said:
        assert line.rstrip() in page, line


def test_a_slow_replica_is_advised_against_by_the_step_of_all():
    """One device of one replica is all of the slowdown: healing it is named."""
    found = asked("explain", "1f1b", *SMALL, "--replicas", "4,2.1=2")
    rows = {row["change"]: row["makespan"] for row in found["what_if"]}
    assert rows["replica 2 as the others"] == asked("run", "1f1b", *SMALL)["makespan"] == 33
    assert found["simulated_makespan"] == found["replicas"]["step"]
    assert found["advice"].startswith("first: make replica 2 as fast as the others, ")
    zb = asked("run", "zb-v", *SMALL, "--speed", "1,0.5,1,1")["makespan"]
    assert rows["schedule=zb-v"] == zb


@pytest.mark.parametrize("steps", ["1", "3"])
def test_no_schedule_that_drains_is_advised_against_one_that_never_does(steps):
    """zb-v takes less than one step with its fill and drain, and more than a step without end."""
    shape = ("--devices", "4", "--mb", "8", "--steps", steps, "--t-optimizer", "1")
    found = asked("explain", "pipedream-2bw", *shape)
    rates = {
        row["name"]: row["rate"]
        for row in asked("compare", "pipedream-2bw", "zb-v", *shape)["schedules"]
    }
    assert rates["pipedream-2bw"] > rates["zb-v"]
    assert not found["what_if"]
    assert found["advice"].startswith("none of these changes helps")
    assert found["notes"][-1].startswith("pipedream-2bw never flushes, so ")


def test_messages_of_a_profile_are_said_by_how_much_longer_they_may_take():
    """Their time is measured, so that a factor says more than another time in ms."""
    profile = str(ROOT / "gallery" / "profile-cpu.toml")
    said = invoke(
        "explain", "1f1b", "--devices", "2", "--mb", "4", "--profile", profile, "-q"
    ).stdout
    found = re.search(r"and messages take less than ([\d.]+) times as long as now", said)
    assert found
    assert float(found[1]) > 10


def limits_of(monkeypatch, **budgets: int) -> str:
    """The advice for 1f1b, which names zb-v, with other budgets of simulated ops."""
    for name, budget in budgets.items():
        monkeypatch.setattr(break_even, name, budget)
    found = json.loads(invoke("explain", "1f1b", *SMALL, "--json").stdout)  # kept for no other test
    advice = str(found["advice"])
    assert advice.startswith("first: use zb-v, ")
    return advice


@pytest.mark.parametrize(("spare", "is_found"), [(0, True), (-1, False)])
def test_limits_are_left_out_where_they_cost_more_than_their_budget(spare, is_found, monkeypatch):
    """All ops of both schedules, as often as a pair is simulated, are the price."""
    ops = sum(len(asked("run", name, *SMALL)["ops"]["kind"]) for name in ("1f1b", "zb-v"))
    advice = limits_of(monkeypatch, BUDGET=RUNS * ops + spare)
    assert ("B and a message takes less than" in advice) == is_found
    left_out = "; the times up to which that holds take long to find at this size"
    assert (left_out in advice) == (not is_found)


@pytest.mark.parametrize(("spare", "is_kept"), [(0, False), (-1, True)])
def test_queues_are_made_again_as_far_as_the_budget_goes(spare, is_kept, monkeypatch):
    """A small schedule of zb-v costs so many simulations of its ops to search."""
    ops = len(asked("run", "zb-v", *SMALL)["ops"]["kind"])
    price = break_even.SEARCHES * (ops + ops * break_even.PER_OP_SMALL)
    advice = limits_of(monkeypatch, SEARCH_BUDGET=price + spare)
    assert ("with ops in this order" in advice) == is_kept
