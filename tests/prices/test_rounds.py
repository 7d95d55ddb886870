"""Schedules that go round, as the commands print them, and what has no meaning for them."""

import json
from pathlib import Path
from typing import Any

import pytest

import ppsim as pp
from ppsim.errors import InputError
from tests.commands import answer, refused

DECODE = ("run", "decode", "--devices", "4", "--comm", "0.2")


def numbers(*words: str) -> Any:
    return json.loads(answer(*words, "--json")[1])


def test_a_decoder_has_a_period_and_says_how_many_batches_are_enough():
    """Four in flight take 4.8 a step, five keep every device busy: vLLM's P + 1."""
    found = numbers(*DECODE, "--mb", "4")
    names = ("period", "period_bound", "fill", "drain")
    assert [found[name] for name in names] == pytest.approx([4.8, 4.8, 4.6, 4.6])
    assert found["rate"] == pytest.approx(4 / 4.8)
    assert found["rate_counts"] == "batches"
    assert found["period_cause"] == "a batch travels around in 4.8"
    assert found["round_bubble"] == pytest.approx(1 / 6)
    assert found["enough_in_flight"] == 5
    assert [row["period"] for row in found["in_flight"]] == pytest.approx(
        [4.8, 4.8, 4.8, 4.8, 5, 6]
    )
    assert (found["microbatches"], found["steps"], found["feeds_back"]) == (4, 4, True)
    text = answer(*DECODE, "--mb", "4", "--no-gantt")[1]
    assert "4 batches in flight, 4 steps" in text
    assert "more than 5 batches in flight do not raise the rate" in text


def test_feedback_and_tokens():
    """The way back may take longer than a message; the rate may count tokens."""
    found = numbers(*DECODE, "--mb", "5", "--feedback", "1.2", "--tokens", "16")
    assert found["period"] == pytest.approx(5.8)
    assert found["rate"] == pytest.approx(80 / 5.8)
    assert found["rate_counts"] == "tokens"
    assert found["enough_in_flight"] == 6
    alone = numbers("run", "decode", "--devices", "1", "--mb", "1", "--feedback", "0.5")
    assert alone["period"] == 1.5


def test_batches_go_through_a_list_of_sizes():
    """A shorter list begins again, and a longer one is refused."""
    whole = numbers("run", "decode", "--devices", "4", "--mb", "4", "--mb-scale", "1,2,1,2")
    assert (
        numbers("run", "decode", "--devices", "4", "--mb", "4", "--mb-scale", "1,2")["period"]
        == whole["period"]
    )
    code, _, said = answer("run", "decode", "--devices", "4", "--mb", "2", "--mb-scale", "1,2,3")
    assert code == 2
    assert "3 factors for 2 microbatches" in said


def test_idle_time_has_the_cause_feedback():
    """Causes sum to the idle time; with feedback longer than all else most of it is on the way
    back.
    """
    found = numbers(
        "explain", "decode", "--devices", "3", "--mb", "2", "--steps", "20", "--feedback", "9"
    )
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert max(found["idle_by_cause"], key=found["idle_by_cause"].get) == "feedback"


@pytest.mark.parametrize("placement", ["loop", "v"])
def test_forwards_alone_run_on_every_placement(placement):
    """Several chunks, in a loop or in a V: the bubble is (P-1) t_F / V in a loop, and P-1 in a
    V.
    """
    words = (
        "run",
        "forward-only",
        "--devices",
        "4",
        "--chunks",
        "2",
        "--mb",
        "8",
        "--placement",
        placement,
    )
    found = numbers(*words)
    assert found["placement"] == placement
    assert found["makespan"] - found["ideal"] == (1.5 if placement == "loop" else 3.0)
    assert numbers("run", "forward-only", "--devices", "4", "--mb", "8")["placement"] == "linear"


def test_compare_and_sweep_know_rounds():
    """Compare goes by the rate; sweep finds the period of a batch, and refuses it where nothing
    goes round.
    """
    compared = numbers(
        "compare", "decode", "decode:2", "--devices", "4", "--mb", "4", "--comm", "0.2"
    )
    assert [row["period"] for row in compared["schedules"]] == pytest.approx([4.8, 5.6])
    assert (
        compared["closing"]
        == "decode has 1.17 times the rate of decode:2 (0.8333 against 0.7143 batches per t_F)"
    )
    words = (
        "sweep",
        "decode",
        "--devices",
        "4",
        "--mb",
        "4:6",
        "--comm",
        "0.2",
        "--metric",
        "period_per_mb",
    )
    assert [row["period_per_mb"] for row in numbers(*words[:-2])["shapes"]] == pytest.approx(
        [1.2, 1, 1]
    )
    assert "has the least period_per_mb of 3 shapes, 1 t_F" in answer(*words)[1]
    code, _, said = answer("sweep", "1f1b", "--devices", "4", "--mb", "4", "--metric", "period")
    assert code == 2
    assert "none repeats" in said
    both = numbers("compare", "1f1b", "forward-only", "--devices", "4", "--mb", "4")
    assert ["period" in row for row in both["schedules"]] == [False, True]


@pytest.mark.parametrize("suffix", [".json", ".trace.json"])
def test_files_keep_the_rounds(tmp_path, monkeypatch, suffix):
    """What is read back goes round as it did."""
    monkeypatch.chdir(tmp_path)
    assert answer(*DECODE, "--mb", "4", "-o", f"x{suffix}")[0] == 0
    again = numbers("run", f"x{suffix}", "--comm", "0.2")
    assert (again["period"], again["steps"]) == (4.8, 4)
    assert again["makespan"] == pytest.approx(22)
    code, _, said = answer("run", f"x{suffix}", "--steps", "7")
    assert (code, "has 4 steps, not 7" in said) == (2, True)


def test_pages_and_pictures_show_rounds(tmp_path, monkeypatch):
    """A page has the numbers of a round; one of schedules of which some go round has a dash for the
    others.
    """
    monkeypatch.chdir(tmp_path)
    assert answer(*DECODE, "--mb", "4", "-o", "x.html", "-o", "x.svg", "-o", "x.csv")[0] == 0
    assert (
        answer("compare", "1f1b", "forward-only", "--devices", "4", "--mb", "4", "-o", "y.html")[0]
        == 0
    )
    assert "bubble of a round" in Path("x.html").read_text()
    assert "it does not go round" in Path("y.html").read_text()
    assert answer("run", "1f1b", "--devices", "4", "--mb", "4", "-o", "z.html")[0] == 0
    assert "bubble of a round" not in Path("z.html").read_text()


REFUSED = [
    (("decode", "--tb", "2"), "no full backward"),
    (("decode", "--tw", "2"), "no W"),
    (("decode", "--layout", "Et|t|t|tL", "--b-over-f", "3"), "decode has no backward"),
    (("decode", "--merge-bw"), "nothing to merge"),
    (("decode", "--tfb", "2"), "no pairs of F and B"),
    (("decode", "--replicas", "4"), "after one step"),
    (("decode", "--lengths", "lognormal:2048:1.2:7"), "of one step"),
    (("decode", "--recompute"), "no backward"),
    (("decode", "--p2p", "overlap"), "feeds results back to the first"),
    (("decode", "--offload"), "no backward"),
    (("forward-only", "--feedback", "1"), "no loop to feed results back through"),
    (("1f1b", "--feedback", "1"), "no loop to feed results back through"),
    (("1f1b", "--tokens", "8"), "no rounds to have a rate"),
    (("1f1b", "--placement", "v"), "takes no placement"),
    (("decode", "--feedback", "-1"), "not a number of at least 0"),
    (("decode", "--steps", "0"), "0"),
    (("decode", "--reorder", "--mb-scale", "1,2,3,4"), "goes round"),
    (("decode", "--grid"), "feeds results back"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED, ids=[" ".join(words) for words, _ in REFUSED])
def test_what_has_no_meaning_is_refused_with_the_reason(words, why):
    code, _, said = answer("run", words[0], "--devices", "4", "--mb", "4", *words[1:])
    assert code == 2
    assert why in said


@pytest.mark.parametrize(
    "words",
    [
        ("optimize", "--devices", "2", "--mb", "2", "--steps", "2"),
        ("partition", "1f1b", "--devices", "2", "--mb", "2", "--t-layer", "1,1", "--steps", "2"),
        ("optimize", "--devices", "2", "--mb", "2", "--feedback", "2"),
    ],
)
def test_searches_take_no_rounds(words):
    assert answer(*words)[0] == 2


def test_python():
    """The numbers of a round are there, and the same refusals."""
    found = pp.run("decode", devices=4, microbatches=4, comm=0.2, steps=6)
    assert found.metrics.round
    assert found.how_many
    assert found.metrics.round.period == 4.8
    assert found.how_many.enough == 5
    with pytest.raises(InputError, match="no loop"):
        pp.run("forward-only", devices=4, microbatches=4, feedback=1.0)


LAW = ("--law", "20,0.0004,0.05,0.0000005")
PREFILL = ("run", "forward-only", "--devices", "4")


def test_a_prompt_in_chunks():
    """Sizes of equal times, the best of one size beside them, and the time of both."""
    found = numbers(*PREFILL, "--chunked", "131072", *LAW)
    chunks = found["chunked"]
    assert (found["unit"], found["microbatches"], len(chunks["sizes"])) == ("ms", 29, 29)
    assert found["makespan"] == pytest.approx(chunks["time_to_first_token"])
    assert chunks["time_bound"] < chunks["equal_time"] < chunks["fixed_time"]
    fixed = numbers(*PREFILL, "--chunked", "131072", "--chunk", str(chunks["fixed_size"]), *LAW)
    assert fixed["makespan"] == pytest.approx(chunks["fixed_time"])
    text = answer(*PREFILL, "--chunked", "131072", *LAW, "--no-gantt")[1]
    assert "time to first token, best one size, 3,456: 18,911 ms in 38 chunks" in text


@pytest.mark.parametrize(
    ("words", "seconds", "within"),
    [
        # tt-metal 49903: 2 galaxies, 11 chunks of 719 to 1,828 ms, 15.63 s measured.
        (("--devices", "2", "--law", f"719,{1109 / 51200},0,0"), 15.63, 0.02),
        # tt-metal 48246: 4 galaxies, the medians of their ranks, 11% more over the prefix; 6,311
        # ms.
        (
            ("--devices", "4", "--tf", "412,391,413,439", "--law", f"1,{0.11 / 51200},0,0"),
            6.311,
            0.001,
        ),
    ],
)
def test_published_prefills(words, seconds, within):
    """56,320 tokens in chunks of 5,120, by the laws that their first and last chunk give."""
    found = numbers("run", "forward-only", "--chunked", "56320", "--chunk", "5120", *words)
    assert found["microbatches"] == 11
    assert found["makespan"] / 1000 == pytest.approx(seconds, rel=within)


CHUNKED_REFUSED = [
    (("forward-only", "--chunked", "1000"), "needs the time of a chunk"),
    (("forward-only", "--chunk", "64", "--mb", "4"), "needs --chunked"),
    (
        ("forward-only", "--chunked", "1000", *LAW, "--chunk", "64", "--mb", "4"),
        "--chunk sets already",
    ),
    (("forward-only", "--chunked", "1000", *LAW, "--mb", "40"), "not cut into 40 chunks"),
    (("forward-only", "--chunked", "1000", *LAW, "--mb-scale", "1,2"), "no effect"),
    (
        ("forward-only", "--chunked", "1000", *LAW, "--chunk", "100"),
        "not a whole number of pages of 64",
    ),
    (("forward-only", "--chunked", "1000", *LAW, "--chunk", "many"), "not a size of a chunk"),
    (("forward-only", "--chunked", "1000", "--law", "1,2"), "not a law"),
    (("1f1b", "--chunked", "1000", *LAW), "--chunked needs forward-only"),
    (("forward-only", "--chunked", "1000", *LAW, "--chunks", "2"), "one stage on each device"),
    (("forward-only", "--chunked", "1000", *LAW, "--tf", "1,2"), "2 values for 4 stages"),
    (("forward-only", "--chunked", "1000", *LAW, "--p2p", "overlap"), "no effect"),
]


@pytest.mark.parametrize(
    ("words", "why"), CHUNKED_REFUSED, ids=[" ".join(words) for words, _ in CHUNKED_REFUSED]
)
def test_chunks_without_meaning_are_refused(words, why):
    code, _, said = answer("run", words[0], "--devices", "4", *words[1:])
    assert code == 2
    assert why in said


@pytest.mark.parametrize("question", ["jitter", "memory", "optimize"])
def test_other_questions_take_no_chunks(question):
    name = () if question == "optimize" else ("forward-only",)
    code, _, said = answer(
        question, *name, "--devices", "4", "--mb", "4", "--chunked", "1000", *LAW
    )
    assert code == 2
    assert "needs forward-only" in said


def test_chunks_in_compare_and_sweep():
    """As in run; what is no prefill does not apply. In a sweep --mb is a number of chunks, the best
    one without it.
    """
    alone = numbers(*PREFILL, "--chunked", "131072", *LAW)
    compared = numbers(
        "compare", "forward-only", "1f1b", "--devices", "4", "--chunked", "131072", *LAW
    )
    first, second = compared["schedules"]
    assert first["makespan"] == pytest.approx(alone["makespan"])
    assert "--chunked needs forward-only" in second["reason"]
    words = ("sweep", "forward-only", "--chunked", "131072", *LAW, "--metric", "makespan")
    swept = numbers(*words[:-2], "--devices", "4", "--mb", "16,29,40")["shapes"]
    assert [row["microbatches"] for row in swept] == [16, 29, 40]
    assert swept[1]["makespan"] == pytest.approx(alone["makespan"])
    assert min(row["makespan"] for row in swept) >= alone["makespan"] * (1 - 1e-12)
    assert numbers(*PREFILL, "--chunked", "131072", *LAW, "--mb", "16")[
        "makespan"
    ] == pytest.approx(swept[0]["makespan"])
    assert "the least makespan" in answer(*words, "--devices", "4")[1]


def test_more_devices_share_the_layers_of_the_fewest():
    """A sweep over devices keeps the model: twice the devices, half the time of a chunk on each."""
    words = ("--chunked", "32768", *LAW)
    one, four = numbers("sweep", "forward-only", "--devices", "1,4", *words)["shapes"]
    assert one["makespan"] == pytest.approx(
        numbers("run", "forward-only", "--devices", "1", *words)["makespan"]
    )
    shared = numbers("run", "forward-only", "--devices", "4", "--tf", "0.25", *words)
    assert (four["microbatches"], four["makespan"]) == (
        shared["microbatches"],
        pytest.approx(shared["makespan"]),
    )


def test_a_law_from_measured_chunks(tmp_path):
    """Chunks of several sizes give the law back; those of one size leave it open."""
    c, g, b, a = 20.0, 0.0004, 0.05, 0.0000005
    rows, before = ["tokens,time"], 0
    for size in (8192, 4096, 4096, 8192, 2048, 16384, 4096):
        rows.append(f"{size},{c + g * before + b * size + a * (2 * before * size + size**2)!r}")
        before += size
    path = tmp_path / "chunks.csv"
    path.write_text("\n".join(rows))
    words = ("--chunked", "32768", "--law", str(path))
    found = numbers(*PREFILL, *words)
    law = found["chunked"]["law"]
    assert law["numbers"] == pytest.approx([c, g, b, a])
    assert law["worst_error"] < 1e-9
    assert found["makespan"] == pytest.approx(
        numbers(*PREFILL, "--chunked", "32768", *LAW)["makespan"]
    )
    assert "law fitted to 7 chunks" in answer(*PREFILL, *words, "--no-gantt")[1]
    assert (
        numbers("sweep", "forward-only", "--devices", "4", *words)["shapes"][0]["makespan"]
        == found["makespan"]
    )
    for text, why in (
        (
            "tokens,time\n" + "\n".join(f"8192,{400 + 9 * k}" for k in range(9)),
            "too few sizes of chunks or prefixes to fit the law",
        ),
        ("tokens,time\n8192,x", "a number from"),
        ("tokens,hours\n8192,1", "no column of time"),
        ("tokens,time", "no rows"),
    ):
        path.write_text(text)
        code, _, said = answer(*PREFILL, *words)
        assert code == 2
        assert why in said


STEPS = ("--devices", "4", "--mb", "8", "--steps", "3", "--t-optimizer", "2")


def test_training_steps_have_a_period():
    """The step that people measure: makespan and optimizer; without the barrier the longest span
    and optimizer.
    """
    alone = numbers("run", "zb-2p", "--devices", "4", "--mb", "8")
    found = numbers("run", "zb-2p", *STEPS)
    assert found["period"] == alone["makespan"] + 2
    assert found["makespan"] == 3 * found["period"]
    assert (found["steps"], found["rate_counts"]) == (3, "microbatches")
    assert found["period_cause"] == "all devices end a step in 27, then the optimizer takes 2"
    span = alone["ideal"] / (1 - alone["bubble_rate_span"])
    assert numbers("run", "zb-2p", *STEPS, "--post-validation")["period"] == pytest.approx(span + 2)
    assert (
        numbers("run", "1f1b", "--devices", "4", "--mb", "8", "--t-optimizer", "2,1,1,3")["period"]
        == 36
    )


def test_a_schedule_that_is_never_drained_has_a_rate():
    """PipeDream-2BW: no bubble in its period, and two versions of the weights, in memory too."""
    found = numbers("run", "pipedream-2bw", *STEPS)
    assert (found["period"], found["round_bubble"], found["weight_versions"]) == (26, 0, 2)
    assert numbers("run", "pipedream-2bw", "--devices", "4", "--mb", "8")["rate"] == pytest.approx(
        1 / 3
    )
    words = ("--devices", "4", "--mb", "8", "--model", "llama3-8b")
    held = [numbers("memory", name, *words)["parts"] for name in ("1f1b", "pipedream-2bw")]
    assert held[1] == {**held[0], "older weights": held[0]["weights"]}


@pytest.mark.parametrize("words", [(), ("--t-optimizer", "1")])
def test_steps_that_need_more_versions_have_no_period_and_say_why(words):
    """With fewer microbatches than devices two versions of the weights are too few."""
    few = ("run", "pipedream-2bw", "--devices", "4", "--mb", "3", *words)
    found = numbers(*few)
    assert "period" not in found
    why = (
        "no period with 3 microbatches a step on 4 devices, because it needs more than two versions"
    )
    assert why in found["counts"]
    assert why in " ".join(answer(*few)[1].split())
    enough = numbers("run", "pipedream-2bw", "--devices", "4", "--mb", "4", *words)
    assert ("period" in enough, "no period" in enough["counts"]) == (True, False)


def test_idle_time_has_the_cause_optimizer():
    """Devices that are done early wait for the norm of all gradients; explain, compare and pages
    know the cause.
    """
    asked = ("explain", "1f1b", *STEPS, "--what-if", "mb=4")  # and none of all schedules
    found = numbers(*asked)
    assert sum(found["idle_by_cause"].values()) == pytest.approx(found["idle"])
    assert found["idle_by_cause"]["optimizer"] == pytest.approx(3 * (2 + 4 + 6))
    assert found["idle_by_cause"]["turnaround"] == pytest.approx(3 * (2 + 4 + 6))
    assert "optimizer" in answer(*asked)[1]
    without = numbers(*asked, "--post-validation")
    assert "optimizer" not in without["idle_by_cause"]


def test_compare_and_sweep_go_by_the_period_of_steps():
    both = numbers("compare", "1f1b", "zb-2p", "pipedream-2bw", *STEPS)
    assert [row["period"] for row in both["schedules"]] == [35, 29, 26]
    swept = numbers(
        "sweep", "1f1b", "--devices", "4", "--mb", "8,16", "--steps", "2", "--t-optimizer", "2"
    )
    assert [row["period"] for row in swept["shapes"]] == [35, 59]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["1f1b", "pipedream-2bw"])
def test_files_keep_training_steps(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = numbers("run", name, *STEPS)
    assert answer("run", name, *STEPS, "-o", "x.json", "-o", "x.html", "-o", "x.svg")[0] == 0
    again = numbers("run", "x.json", "--t-optimizer", "2")
    assert [again[key] for key in ("period", "steps", "makespan")] == [
        before[key] for key in ("period", "steps", "makespan")
    ]
    assert "optimizer step" in Path("x.html").read_text()
    code, _, said = answer("run", "x.json", "--post-validation")
    assert (code, "has its steps already" in said) == (2, True)


STEPS_REFUSED = [
    (("run", "forward-only", "--t-optimizer", "1"), "has no optimizer step"),
    (("run", "decode", "--t-optimizer", "1"), "has no optimizer step"),
    (("run", "decode", "--post-validation"), "no optimizer step to validate"),
    (("run", "1f1b", "--steps", "0"), "not a whole number of at least 1"),
    (("run", "1f1b", "--t-optimizer", "1,2"), "2 values for 4 devices"),
    (("run", "1f1b", "--t-gather", "-1"), "zero or more"),
    (("run", "1f1b", "--steps", "2", "--grid"), "cannot take OPT"),
    (("run", "1f1b", "--steps", "2", "--grid"), "leave out --steps"),
    (("run", "1f1b", "--steps", "2", "--offload"), "leave out --steps"),
    (("run", "1f1b", "--t-optimizer", "2", "--grid"), "every op of compute takes one slot"),
    (("run", "1f1b", "--t-optimizer", "2", "--p2p", "overlap"), "the simple model times"),
    (("run", "1f1b", "--steps", "2", "--replicas", "4"), "after one step"),
    (("run", "1f1b", "--steps", "2", "--lengths", "lognormal:2048:1.2:7"), "of one step"),
    (("jitter", "1f1b", "--steps", "2", "--lengths", "lognormal:2048:1.2:7"), "of one step"),
    (("jitter", "decode", "--lengths", "lognormal:2048:1.2:7"), "of one step"),
    (("jitter", "1f1b", "--steps", "2", "--replicas", "4"), "after one step"),
    (("run", "pipedream-2bw", "--post-validation"), "changes nothing"),
    (("run", "pipedream-2bw", "--t-gather", "1"), "no step starts with a gather"),
    (("run", "pipedream-2bw", "--steps", "2", "--mb", "3"), "more than two versions"),
    (("optimize", "--t-optimizer", "1"), "simulates one round"),
    (("partition", "1f1b", "--t-layer", "1*4", "--post-validation"), "simulates one round"),
]


@pytest.mark.parametrize(
    ("words", "why"), STEPS_REFUSED, ids=[" ".join(words) for words, _ in STEPS_REFUSED]
)
def test_steps_without_meaning_are_refused(words, why):
    more = () if "--mb" in words else ("--mb", "4")
    code, _, said = answer(*words, "--devices", "4", *more)
    assert code == 2
    assert why in said


def test_a_decoder_is_explained_by_its_period():
    """What is said first, what is tried and what 1% gains are of a round without end: the makespan
    of the steps shown says that more batches always help.
    """
    words = ("decode", "--devices", "4", "--feedback", "0.5")
    found = numbers("explain", *words, "--mb", "4")
    ran = numbers("run", *words, "--mb", "4")
    for key in ("period", "period_bound", "rate", "round_bubble", "period_cause"):
        assert found[key] == ran[key]
    assert [each["change"] for each in found["what_if"]] == ["mb=5"]
    (more,) = found["what_if"]
    assert (more["period"], more["period_per_mb"]) == (5, 1)
    assert found["advice"] == (
        "first: keep 5 batches in flight, 11.1% less time per microbatch "
        "(bubble of a round 11.1% to 0.0%)"
    )
    assert (
        "takes 4.5 t_F from one round to the next, idle 11.1% of it; first: keep 5"
        in (found["verdict"])
    )
    # the round trip of a batch takes 4 x 1 + 0.5: each forward 1% less is 0.01 of it
    assert [gain["gain"] for gain in found["sensitivity"][:4]] == [pytest.approx(0.01)] * 4
    full = numbers("explain", *words, "--mb", "5")
    assert full["what_if"] == []
    assert "none of these changes helps; every device is always busy" in full["advice"]
    text = answer("explain", *words, "--mb", "4")[1]
    assert "a round takes 4.5 t_F in steady state: a batch travels around in 4.5" in text
    assert "5 t_F a round, 1 per microbatch, bubble of a round 0.0%" in text


def test_changes_of_what_goes_round_are_compared_by_its_period():
    words = ("decode", "--devices", "4", "--mb", "4", "--feedback", "0.5")
    found = numbers("explain", *words, "--what-if", "mb=6", "--what-if", "tf.1=2")["what_if"]
    assert [each["period"] for each in found] == [6, 8]
    forward = numbers("explain", "forward-only", "--devices", "4", "--mb", "8")
    assert (forward["period"], "always busy" in forward["advice"]) == (8, True)
    few = ("--devices", "2", "--mb", "4", "--steps", "3", "--t-optimizer", "2")
    steps = numbers("explain", "1f1b", *few)
    assert steps["period"] == 17
    rivals = {each["change"]: each["period"] for each in steps["what_if"]}
    for name in ("zb-v", "zb-1p"):
        if f"schedule={name}" in rivals:
            ran = numbers("run", name, *few)
            assert rivals[f"schedule={name}"] == pytest.approx(ran["period"])
    assert any(name.startswith("schedule=") for name in rivals)
    # one step without an optimizer does not go round
    assert "period" not in numbers("explain", "1f1b", "--devices", "2", "--mb", "2")


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-1p", "dualpipe"])
def test_a_step_takes_its_makespan_and_the_longest_optimizer(name):
    """What the refusal of steps with messages as ops says, in the model that times both."""
    shape = (name, "--devices", "4", "--mb", "8", "--comm", "0.25")
    one = numbers("run", *shape)["makespan"]
    steps = numbers("run", *shape, "--steps", "3", "--t-optimizer", "1,2,3,0.5")
    assert steps["period"] == pytest.approx(one + 3)
    assert steps["makespan"] == pytest.approx(3 * (one + 3))
    for more in (("--steps", "2"), ("--steps", "1")):
        error = refused("run", *shape, *more, "--p2p", "overlap")
        assert f"{name} has {more[1]} step" in str(error)
        assert str(error).endswith("at whose ends all devices wait for each other")
        says = "leave out --steps: every step takes the makespan of one, and the longest"
        assert error.hint == f"{says} --t-optimizer"
    code, _, said = answer("run", "pipedream-2bw", *shape[1:5], "--steps", "2", "--p2p", "overlap")
    assert (code, "leave out --p2p and --cluster" in said) == (2, True)
