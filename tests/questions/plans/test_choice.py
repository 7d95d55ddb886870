"""The best plan: chosen once from all that may tie, of the software that is assumed, launched by
the flags printed.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache
from typing import Any

import pytest
from rich.console import Console

import ppsim.questions.plans.plan as questions
from ppsim.ask import terminal
from ppsim.errors import InputError
from ppsim.questions.plans.measured import CLOSE, LAYOUT, certainty_text, choose, slower_range
from ppsim.questions.plans.plan import plan as ask_plan
from ppsim.workload.plans.software import read_software
from tests.commands import invoke, with_options

DENSE = ("plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "8", "--gbs", "32")
FEW = (*DENSE, "--tp", "1,2", "--cp", "1", "--mbs", "1", "--seq", "4096")
EXPERTS = (
    "plan",
    "--model",
    "mixtral-8x7b",
    "--cluster",
    "dgx-h100",
    "--gpus",
    "32",
    "--gbs",
    "128",
    "--cp",
    "1",
)
MIXED = (*EXPERTS, "--mbs", "1", "--tp", "2,4", "--seq", "4096")
QUESTIONS = {
    "assumed": FEW,
    "pipelines": (*FEW, "--pp", "2,4", "--software", "zero-bubble"),
    "any": (*FEW, "--any", "--pp", "4"),
    "torchtitan": (*FEW, "--software", "torchtitan", "--pp", "2,4"),
    "front": (*FEW, "--front"),
    "experts": MIXED,
}


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    """Searches here are too small for processes of their own."""
    monkeypatch.setattr(questions, "count_cores", lambda: 1)


@cache  # several promises of the same search
def printed(*words: str) -> str:
    result = invoke(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def answer(*words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(*words, "--json"))
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("question", QUESTIONS)
def test_how_many_plans_are_listed_changes_no_best(question):
    words = QUESTIONS[question]
    best = [answer(*words, "--top", str(top))["plans"][0] for top in (1, 12)]
    assert best[1] == best[0]
    if question == "pipelines":
        assert printed(*words, "--top", "1", "-q") == printed(*words, "--top", "12", "-q")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_best_plan_is_above_a_faster_one_only_where_they_tie_and_says_why(question):
    plans = answer(*QUESTIONS[question], "--top", "12")["plans"]
    best, fastest = plans[0], min(plan["step_s"] for plan in plans)
    assert best["step_s"] <= fastest * math.exp(CLOSE) * (1 + 1e-9)
    for row in plans[1:]:
        if row["step_s"] < best["step_s"]:
            assert row["tied"]
            assert best["tied"]
            assert row["lost_by"].startswith("tied: ")
    others = [row["step_s"] for row in plans[1:]]
    assert others == sorted(others)
    said = printed(*QUESTIONS[question], "--top", "1", "-q")
    assert ("tied with plans" in said) == (fastest < best["step_s"])


def test_plans_are_of_the_software_that_is_assumed():
    """Whether it is named or not; the schedules of others are refused, or shown with --any."""
    words = with_options(FEW, ["--tp", "2", "--pp", "4", "--recomputes", "none", "--gbs", "16"])
    plans = answer(*words, "--top", "40")["plans"]
    assert plans == answer(*words, "--top", "40", "--software", "megatron-core")["plans"]
    has = {"", *read_software("megatron-core").software.runs}
    assert {plan["schedule"] for plan in plans} <= has
    assert {plan["schedule"] for plan in answer(*words, "--top", "40", "--any")["plans"]} - has
    refused = invoke(*FEW, "--schedules", "1f1b,zb-1p")
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == "megatron-core has no schedule zb-1p"
    assert invoke(*words, "--schedules", "1f1b,zb-1p", "--any").exit_code == 0


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("options", "software"),
    [
        ({"flags": "megatron"}, "megatron-core"),
        ({"software": "megatron-lm"}, "megatron-lm"),
        ({"flags": "torchtitan"}, "torchtitan"),
        ({"software": "torchtitan", "recomputes": ["full"]}, "torchtitan"),
        ({"software": "nemo", "flags": "megatron"}, "nemo"),
    ],
)
def test_the_flags_that_are_printed_are_of_the_best_plan(options, software):
    """The plan is priced as its software runs, too: flags that are asked for name it where nothing
    else does.
    """
    sizes = {"gpus": 8, "gbs": 32, "tp": [1, 2], "pp": [4], "cp": [1], "mbs": [1], "seq": 4096}
    found = ask_plan("llama3-8b", "dgx-h100", **sizes, **options)
    best, said = found.plans[0], str(found)
    assert (
        ask_plan("llama3-8b", "dgx-h100", **sizes, **options | {"software": software}).plans[0]
        == best
    )
    if software == "torchtitan":
        keys = {"tensor_parallel_degree": "tp", "pipeline_parallel_degree": "pp"}
        wanted = [f"{key} = {best[name]}" for key, name in keys.items()]
        assert "cannot say" not in said
        assert best["recompute_layers"] is None
    else:
        keys = {
            "tensor-model-parallel-size": "tp",
            "pipeline-model-parallel-size": "pp",
            "micro-batch-size": "mbs",
        }
        wanted = [f"--{key} {best[name]}" for key, name in keys.items()]
    assert [line for line in wanted if line not in said] == []


def test_flags_of_other_software_are_refused():
    refused = invoke(*FEW, "--software", "torchtitan", "--flags", "megatron")
    assert isinstance(refused.exception, InputError)
    assert "torchtitan is launched by flags of torchtitan" in str(refused.exception)


def test_what_is_asked_for_and_cannot_be_launched_says_why():
    """Activations on the host: the plan is answered, without flags of another."""
    asked = (*FEW, "--offload", "0.5", "--recomputes", "none", "--pp", "1")
    said = invoke(*asked).stdout
    assert "no launch flags: Megatron-LM offloads whole modules" in said
    assert "--tensor-model-parallel-size" not in said
    failed = invoke(*asked, "--flags", "megatron")
    assert failed.exit_code == 1 or isinstance(failed.exception, InputError)


def test_of_as_simple_plans_the_fastest_is_best_and_simplicity_costs_two_percent():
    found = ask_plan(
        "llama3-8b", "dgx-h100", gpus=8, gbs=16, seq=2048, mbs=[1], cp=[1], tp=[2], pp=[2, 4], top=9
    )
    rows = found.findings.simulated

    def best(*steps: float, schedules: tuple[str, ...]) -> int:
        made = [
            rows[0]
            | {"key": rows[i]["key"], "step_s": step, "schedule": name, "vp": 1, "layout": "even"}
            for i, (step, name) in enumerate(zip(steps, schedules, strict=True))
        ]
        return made.index(choose(made, 32).best)

    two = ("interleaved", "1f1b")
    assert best(1.0, 1.019, schedules=two) == 1
    assert best(1.0, 1.021, schedules=two) == 0
    assert best(1.01, 1.0, 1.0, schedules=(*two, "interleaved")) == 1
    assert best(1.01, 1.0, schedules=("1f1b", "1f1b")) == 1


def test_an_overlap_that_is_forbidden_is_in_no_plan():
    """Schedules made to hide all-to-all are not tried, and pairs of others take what their parts
    take.
    """
    sizes = ["--tp", "4", "--pp", "2", "--ep", "8", "--recomputes", "none"]
    wide = with_options(MIXED, [*sizes, "--top", "40"])
    free, forbidden = (
        {plan["schedule"] for plan in answer(*wide, *words)["plans"]}
        for words in ((), ("--no-overlap-a2a",))
    )
    assert free - forbidden == {"interleaved-overlap"}
    refused = invoke(*MIXED, "--no-overlap-a2a", "--schedules", "1f1b,interleaved-overlap")
    assert isinstance(refused.exception, InputError)
    assert "interleaved-overlap pairs ops to hide all-to-all" in str(refused.exception)
    one = [*sizes, "--any", "--schedules", "dualpipe-v", "--top", "1"]
    pairs = with_options(MIXED, one)
    hidden, seen = (
        answer(*pairs, *words)["plans"][0]["terms"] for words in ((), ("--no-overlap-a2a",))
    )
    assert seen["communication"] > 1.2 * hidden["communication"]


def test_under_a_cap_that_full_recompute_just_misses_a_plan_copies_a_little():
    """And not everything at much more time: recompute and copies to the host go together."""
    words = (
        *DENSE,
        "--tp",
        "1",
        "--cp",
        "1",
        "--pp",
        "1",
        "--zero",
        "3",
        "--mbs",
        "4",
        "--any",
        "--front",
    )
    plans = answer(*words, "--recomputes", "full", "--top", "40")["plans"]
    (whole,) = (plan for plan in plans if plan["recompute_layers"] is None)
    cap = f"{0.995 * whole['memory_bytes'] / 2**30:.4f}GiB"
    tight = answer(*words, "--offload", "0,0.125,1", "--cap", cap, "--top", "1")["plans"][0]
    assert tight["step_s"] < 1.05 * whole["step_s"]


@pytest.mark.sampled(18)
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("width", [60, 80, 100])
def test_what_plans_have_alike_is_a_line_and_what_differs_stays_in_the_table(
    monkeypatch, question, width
):
    """On usual terminals: layout, bubble and MFU are in the table, or in the line above it."""
    monkeypatch.setattr(
        terminal,
        "console",
        lambda at_least=20, *, err=False: Console(
            width=width, force_terminal=True, color_system=None
        ),
    )
    plans = answer(*QUESTIONS[question])["plans"]
    shown = re.sub(r"\x1b\[[0-9;]*m", "", invoke(*QUESTIONS[question]).stdout)
    heading = shown[: re.search(r"^1\*? ", shown, re.M).start()].splitlines()[-1]  # type: ignore[union-attr]
    alike = " ".join(re.findall(r"^all of these: (.*?)\n\n", shown, re.M | re.S)).split(", ")
    wanted = {"memory"} if question == "front" else {"MFU", "bubble"}
    if question != "front" or width > 60:  # those that are equal in all plans are in the line above
        assert all(
            name in heading.split() or any(word.startswith(f"{name} ") for word in alike)
            for name in wanted
        )
    assert "layout" in heading.split() or any(word.startswith("layout ") for word in alike)
    if width < 80:
        return
    for name, key in (
        ("layout", "layout"),
        ("mbs", "mbs"),
        ("schedule", "schedule"),
        ("recompute", "recompute"),
    ):
        values = {
            (plan[key], plan["recompute_layers"] if key == "recompute" else 0) for plan in plans
        }
        assert (name in heading.split()) == (len(values) > 1)
        assert (len(values) > 1) or any(
            word.startswith(f"{name} ") or word == "no pipeline" for word in alike
        )


def test_a_page_of_plans_says_what_became_of_each_candidate(tmp_path, monkeypatch):
    """Those that the software's launch flags refuse, too: nothing is left out of the counts."""
    monkeypatch.chdir(tmp_path)
    words = with_options(FEW, ["--software", "torchtitan", "--pp", "2,4", "--gbs", "24"])
    found = answer(*words, "-o", "x.html")
    refused = "the software's launch flags refuse the plan"
    assert found["outcomes"][refused] > 0
    assert sum(found["outcomes"].values()) == found["candidates"]
    page = (tmp_path / "x.html").read_text()
    assert refused in page
    assert all(name in page for name in found["outcomes"])


@pytest.mark.parametrize(
    ("lows", "said"),
    [
        ((), ""),
        ((0.1,), "plan 1 beats plan 2."),
        ((-0.1,), "plan 2 is tied with plan 1."),
        ((0.0, 0.1), "plan 1 beats plan 3; plan 2 is tied with plan 1."),
        (
            (0.1, 0.0, -0.1, 0.2, 0.3, 0.4, -0.1, 0.5),
            "plan 1 beats plans 2, 5-7 and 9; plans 3-4 and 8 are tied with plan 1.",
        ),
    ],
)
def test_plans_are_beaten_or_tied_by_their_places(lows, said):
    """Neighbours are one range."""
    rows = [{"tied": low <= 0, "schedule": "1f1b"} for low in (0.0, *lows)]
    sentence, _, rest = certainty_text(rows).partition(" A plan is beaten if")
    assert sentence == said
    assert bool(rest) == bool(said)
    assert "unchecked" not in rest
    if said:
        assert certainty_text([*rows[:-1], rows[-1] | {"schedule": "seq1f1b"}]).endswith(
            "agree; gains of schedules that cut sequences are unchecked"
        )


def test_a_plan_of_another_layout_may_be_further_off():
    """In four cases of five: less than 6 % where the schedule alone differs, else 15 %."""
    best = dict.fromkeys(LAYOUT, 1) | {"key": "a", "step_s": 2.0, "schedule": "1f1b"}
    other = best | {"key": "b", "step_s": 2.2}
    assert slower_range(best, best) == (0.0, 0.0)
    assert slower_range(other, best) == pytest.approx((0.040, 0.163), abs=1e-3)
    sliced = other | {"schedule": "seq1f1b"}  # no such gain was checked
    for pair in ((sliced, best), (best | {"key": "c"}, sliced | {"step_s": 2.0 / 1.1})):
        assert slower_range(*pair) == pytest.approx((-0.044, 0.265), abs=1e-3)
    for name in LAYOUT:
        far = slower_range(other | {name: 2}, best)
        assert far == pytest.approx((-0.044, 0.265), abs=1e-3)
