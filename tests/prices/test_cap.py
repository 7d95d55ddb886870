"""``--cap`` of run, compare, sweep and memory: one meaning, one verdict."""

import json
import re
from functools import partial
from typing import Any

import pytest

from ppsim.errors import InputError, PpsimError
from ppsim.prices.cap import read_cap
from ppsim.schedules import generate
from tests.commands import ROOT, invoke, refused

SHAPE = ("--devices", "4", "--mb", "8")
LITTLE = ("--devices", "2", "--mb", "4")  # for explain, which simulates all schedules
NAMES = ("1f1b", "gpipe", "zb-1p", "interleaved:2", "zb-v", "seq1f1b")


def ask(*words: str) -> dict[str, Any]:
    return json.loads(invoke(*words, "--json").stdout)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("cap", ["3", "4", "5,4,3,2", "8"])
@pytest.mark.parametrize("name", NAMES)
def test_run_and_memory_have_one_verdict(name, cap):
    """Exit code, keys and the message are those of memory, whatever the number of chunks and
    slices.
    """
    run, memory = (
        partial(invoke, command, name, *SHAPE, "--cap", cap) for command in ("run", "memory")
    )
    assert run("-q").exit_code == memory("-q").exit_code
    found, held = json.loads(run("--json").stdout), json.loads(memory("--json").stdout)
    assert (found["cap"], found["fits"]) == (held["cap"], held["fits"])
    assert (found["fits"], run("-q").exit_code) in ((True, 0), (False, 1))
    if not found["fits"]:
        refusals = run().exception, memory().exception
        assert all(isinstance(error, PpsimError) for error in refusals)
        assert len({(str(error), getattr(error, "hint", "")) for error in refusals}) == 1


def test_run_says_by_how_much_it_fits():
    """In the chart's summary and in the quiet line."""
    for words in ((), ("-q",)):
        shown = " ".join(invoke("run", "1f1b", *SHAPE, "--cap", "6", *words).output.split())
        assert "fits 6 activations: device 0 holds 4, 2 to spare" in shown
        shown = " ".join(invoke("run", "1f1b", *SHAPE, "--cap", "4,3,1,1", *words).output.split())
        assert "does not fit 4, 3, 1, 1 activations: device 2 holds 2, 1 too much" in shown


@pytest.mark.parametrize("command", ["run", "compare", "sweep"])
def test_bytes_need_the_bytes_of_an_activation(command):
    error = refused(command, "1f1b", *SHAPE, "--cap", "3GiB")
    assert "the bytes of an activation are not known" in str(error)
    assert error.exit_code == 2


def test_a_number_needs_a_unit_where_memory_is_in_bytes():
    model = ("--model", "llama3-8b", "--seq", "4096")
    error = refused("memory", "1f1b", *SHAPE, *model, "--cap", "80")
    assert str(error) == "--cap 80 has no unit, and memory is in bytes here"
    assert error.hint == "--cap 80GiB"


def test_a_search_takes_activations_alone():
    """As it has no bytes of an activation, it says so in the words of the others."""
    found = invoke("optimize", *SHAPE, "--cap", "3GiB")
    assert found.exit_code == 2
    assert "the bytes of an activation are not known" in " ".join(found.output.split())


@pytest.mark.parametrize(
    ("cap", "says"), [("x", "not a size"), ("3,3", "2 numbers for 4"), ("3,1GiB", "a unit")]
)
@pytest.mark.parametrize("command", ["run", "memory", "compare"])
def test_a_cap_that_is_none_is_refused(command, cap, says):
    error = refused(command, "1f1b", *SHAPE, "--cap", cap)
    assert says in str(error)
    if cap == "x":
        assert error.hint.startswith("a number of activations, such as 6, or a number and a unit")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("cap", [2.0, 4.0, 5.5, 8.0])
def test_compare_chooses_the_best_of_those_that_fit(cap):
    """Activations are of a device's share there, as the column of peaks; what does not fit is on no
    front.
    """
    answer = ask("compare", *NAMES, *SHAPE, "--cap", str(cap))
    rows = answer["schedules"]
    for row in rows:
        assert row["fits"] == (row["peak_activations_share"] <= cap)
        assert row["excess"] == max(0, row["peak_activations_share"] - cap)
    fitting = [row for row in rows if row["fits"]]
    assert not any(row["pareto"] for row in rows if not row["fits"])
    assert answer["fits"] == bool(fitting)
    shown = invoke("compare", *NAMES, *SHAPE, "--cap", str(cap), "-q")
    assert shown.exit_code == int(not fitting)
    if fitting:
        best = min(fitting, key=lambda row: (row["makespan"], row["peak_activations_share"]))
        assert answer["closing"].startswith(f"{best['name']} ")
        assert shown.output.startswith(f"{best['name']} ")


def test_what_fits_none_names_the_least_cap_that_would():
    error = refused("compare", "1f1b", "gpipe", *SHAPE, "--cap", "3")
    assert (str(error), error.hint) == (
        "none fits 3 activations",
        "--cap 4, the least that one fits",
    )
    assert invoke("compare", "1f1b", "gpipe", *SHAPE, "--cap", "4").exit_code == 0


def test_sweep_marks_what_does_not_fit_and_chooses_among_the_rest(tmp_path):
    """zb-v has fewer bubbles than 1f1b on 4 devices, and holds as much."""
    words = ("sweep", "1f1b", "gpipe", "--devices", "4,8", "--mb", "8,16", "--cap", "4")
    answer = ask(*words)
    rows = {(row["name"], row["devices"], row["microbatches"]): row for row in answer["shapes"]}
    assert {key for key, row in rows.items() if row["fits"]} == {("1f1b", 4, 8), ("1f1b", 4, 16)}
    shown = invoke(*words)
    assert shown.exit_code == 0
    assert "1f1b on 4 devices with 16 microbatches has the least bubble_rate" in shown.output
    assert shown.output.count("!") == 7  # six shapes and the legend
    assert refused(*words[:-1], "2").hint == "--cap 4, the least that one fits"
    figure = tmp_path / "front.html"
    assert invoke(*words, "-o", str(figure)).exit_code == 0
    assert "(over the cap)" in figure.read_text("utf-8")


def test_a_sweep_keeps_no_rows_of_another_cap(tmp_path):
    kept = str(tmp_path / "kept.csv")
    words = ("sweep", "1f1b", "--devices", "4", "--mb", "8", "--results", kept)
    assert invoke(*words, "--cap", "3").exit_code == 1
    assert "computed from other inputs" in str(refused(*words, "--cap", "5"))


def test_a_cap_of_a_grid_is_refused():
    assert "--grid has no times" in str(refused("run", "1f1b", *SHAPE, "--cap", "3", "--grid"))


CAPPED = ("1f1b", "zb-v", "interleaved:3", "seq1f1b", "dualpipe")
CAPS = ("1", "1.75", "3", "3.5", "4", "5", "4,3,2,1", "4,4,4,4")


@pytest.mark.sampled(23)
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("name", CAPPED)
def test_a_number_counts_the_same_activations_in_every_command(name, cap):
    """Those of a device's 1/P share, as the peaks of ``run`` tell when divided by chunks and
    slices.
    """
    found = ask("run", name, *SHAPE)
    slices = 4 if name == "seq1f1b" else 1
    pieces = found["stages"] * slices / found["devices"]
    caps = [float(part) for part in cap.split(",")]
    limits = caps * (4 if len(caps) == 1 else 1)
    fits = all(
        peak / pieces <= most for peak, most in zip(found["peak_activations"], limits, strict=True)
    )
    words = (name, *SHAPE, "--cap", cap)
    assert ask("run", *words)["fits"] == fits
    assert ask("memory", *words)["fits"] == fits
    (row,) = ask("compare", *words)["schedules"]
    (cell,) = ask("sweep", *words)["shapes"]
    assert row["fits"] == cell["fits"] == fits
    assert row["excess"] == cell["excess"]
    if len(caps) == 1:
        memory = ask("explain", *words)["memory"]
        assert (memory["held"], memory["cap"]) == (row["peak_activations_share"], caps[0])
        assert row["excess"] == max(0, memory["held"] - memory["cap"])
    else:
        assert "one for all is taken here" in str(refused("explain", *words))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("placement", "chunks", "microbatches"), [("linear", 1, 3), ("v", 2, 3), ("loop", 3, 2)]
)
def test_a_search_counts_the_activations_that_the_others_count(
    tmp_path, placement, chunks, microbatches
):
    """What ``optimize`` finds within a cap fits it in ``run``, and something of the cap's size is
    found.
    """
    file = str(tmp_path / "best.csv")
    words = (
        "--devices",
        "2",
        "--mb",
        str(microbatches),
        "--placement",
        placement,
        "--chunks",
        str(chunks),
    )
    found = ask("optimize", *words, "--cap", "2", "--time-limit", "30", "-o", file)
    assert found["cap"] == [2 * chunks] * 2
    assert chunks < max(found["peak_activations"]) <= 2 * chunks
    assert ask("run", file, "--cap", "2")["fits"]
    less = str(max(found["peak_activations"]) / chunks - 0.1)
    assert not json.loads(invoke("run", file, "--cap", less, "--json").stdout)["fits"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["1f1b", "zb-v", "seq1f1b"])
@pytest.mark.parametrize("cap", ["2", "3", "4"])
def test_with_a_layout_a_number_counts_the_same_layers_in_every_command(name, cap):
    """``partition`` holds its even split to the cap that ``memory`` holds the layout to."""
    stages = 4 if name == "zb-v" else 2
    words = (
        name,
        "--mb",
        "4",
        "--layout",
        "|".join(["Et", *["t"] * (stages - 2), "tL"]),
        "--cap",
        cap,
    )
    fits = ask("memory", *words)["fits"]
    assert ask("run", *words)["fits"] == fits
    assert ask("compare", *words)["schedules"][0]["fits"] == fits
    if name != "seq1f1b":
        one_split = (
            "--devices",
            "2",
            "--mb",
            "4",
            "--num-layers",
            str(stages),
            "--min-layers",
            "1",
        )
        split = invoke("partition", name, *one_split, "--cap", cap, "--json")
        assert (split.exit_code == 0 and json.loads(split.stdout)["even_fits"]) == fits


@pytest.mark.parametrize(
    ("command", "cap", "says"),
    [
        *((each, "80%", "not a size") for each in ("run", "compare", "sweep", "memory", "explain")),
        *(
            (each, "3GiB", "the bytes of an activation are not known")
            for each in ("run", "compare", "sweep", "memory", "explain")
        ),
        *((each, "-1", "not a size") for each in ("run", "compare", "sweep", "memory", "explain")),
        *(
            (each, "4,2GiB,4,4", "a unit")
            for each in ("run", "compare", "sweep", "memory", "explain")
        ),
    ],
)
def test_every_command_refuses_the_same_caps_in_the_same_words(command, cap, says):
    error = refused(command, "1f1b", *SHAPE, "--cap", cap)
    assert error.exit_code == 2
    assert says in str(error)


@pytest.mark.parametrize(("name", "peak", "share"), [("zb-v", "8", "4"), ("seq1f1b", "7", "1.75")])
def test_run_says_its_peak_in_the_unit_of_the_cap(name, peak, share):
    """In the summary, in the quiet line, and in ``memory``; ``compare`` has that unit alone."""
    shown = " ".join(invoke("run", name, *SHAPE, "--no-gantt").output.split())
    assert re.search(
        rf"peak activations {peak} [a-z -]*stage-microbatches, {share} of a 1/P share, on device 0",
        shown,
    )
    line = f"{peak} ({share} of a 1/P share)"
    assert f"peak activations {line}" in invoke("run", name, *SHAPE, "-q").output
    assert (
        f"peak {peak} activations ({share} of a 1/P share)"
        in invoke("memory", name, *SHAPE, "-q").output
    )
    assert "1/P" not in invoke("run", "1f1b", *SHAPE, "-q").output
    capped = " ".join(invoke("compare", name, *SHAPE, "--cap", share).output.split())
    assert f"cap {share} activations of a 1/P share" in capped
    assert invoke("run", name, *SHAPE, "--cap", share).exit_code == 0


def test_the_least_cap_is_one_that_fits_where_it_is_no_whole_number():
    """A third of an activation has no end in decimals: the hint rounds up."""
    words = ("interleaved:3", "--devices", "3", "--mb", "6")
    hint = refused("compare", *words, "--cap", "1").hint
    assert hint == "--cap 3.6667, the least that one fits"
    assert refused("memory", *words, "--cap", "0").hint == "a larger --cap; this run needs 3.6667"
    for command in ("run", "memory", "compare", "sweep"):
        assert invoke(command, *words, "--cap", "3.6667").exit_code == 0
        assert invoke(command, *words, "--cap", "3.6666").exit_code == 1


@pytest.mark.parametrize(
    ("cap", "unit", "whole", "amount"),
    [
        ("2.3333333333", "activations", True, 7),  # of a third each: 6.9999999999
        ("2.33333333", "activations", True, 6),
        ("1.1", "activations", True, 3),
        ("1.1", "activations", False, pytest.approx(3.3)),
        ("2,3,1,1.5", "activations", True, (6, 9, 3, 4)),
        ("80GiB", "B", True, 80 << 30),
        ("80GiB", "B", False, 80 << 30),
        ("2GiB,2GiB,1GiB,1GiB", "B", True, (2 << 30, 2 << 30, 1 << 30, 1 << 30)),
    ],
)
def test_a_cap_counts_whole_activations_that_were_rounded_and_exact_bytes(cap, unit, whole, amount):
    """Of three chunks a device: three activations for each that the cap has."""
    schedule = generate("interleaved", devices=4, microbatches=8, chunks=3)
    assert read_cap(cap).caps_in_unit(schedule, unit, whole=whole) == amount


def test_a_cap_is_one_number_or_one_for_each_device():
    assert read_cap("6").per_device_caps(3) == (6.0, 6.0, 6.0)
    assert read_cap("6,5,4").per_device_caps(3) == (6.0, 5.0, 4.0)
    one, two = (generate("1f1b", devices=devices, microbatches=4) for devices in (1, 2))
    assert read_cap("6").caps_in_unit(one, "activations") == 6
    assert read_cap("6,5").caps_in_unit(two, "activations") == (6, 5)
    with pytest.raises(InputError, match="has 2 numbers for 3 devices"):
        read_cap("6,5").per_device_caps(3)


PROFILE = ROOT / "gallery" / "profile-h100.toml"
MODELLED = ("--model", "llama3-8b", "--seq", "4096", "--cluster", "dgx-h100")


def test_a_number_counts_activations_of_a_profile_that_has_bytes():
    """The unit of the cap says what is count_text; a profile knows both."""
    profile = ("--profile", str(PROFILE))
    shown = invoke("run", "1f1b", *SHAPE, *profile, "--cap", "6", "-q").stdout
    assert "fits 6 activations: device 0 holds 4, 2 to spare" in shown
    assert ask("compare", "1f1b", "gpipe", *SHAPE, *profile, "--cap", "6")["fits"] is True
    assert (
        "hold at most 6 activations"
        in invoke("explain", "1f1b", *LITTLE, *profile, "--cap", "6").stdout
    )
    assert (
        "hold at most 90 GiB"
        in invoke("explain", "1f1b", *LITTLE, *profile, "--cap", "90GiB").stdout
    )
    assert "GiB" in invoke("run", "1f1b", *SHAPE, *profile, "--cap", "90GiB", "-q").stdout


def test_without_a_cap_explain_compares_what_is_known():
    """Bytes of a profile and of a model."""
    held = invoke("explain", "1f1b", *LITTLE, "--profile", str(PROFILE)).stdout
    assert re.search(r"hold at most [\d.]+ GiB", held)
    held = invoke("explain", "1f1b", *LITTLE, *MODELLED).stdout
    assert re.search(r"hold at most [\d.]+ GiB", held)
    assert "hold at most 80 GiB" in (
        invoke("explain", "1f1b", *LITTLE, *MODELLED, "--cap", "80GiB").stdout
    )


@pytest.mark.parametrize("command", ["run", "compare", "explain"])
def test_a_number_of_activations_is_no_cap_of_a_model(command):
    """One refusal, whatever the question."""
    error = refused(command, "1f1b", *SHAPE, *MODELLED, "--cap", "6")
    assert str(error) == "--cap 6 has no unit, and memory is in bytes here"
    assert error.hint == "--cap 6GiB"


def test_a_profile_without_bytes_counts_activations(tmp_path):
    """In pages, and in what explain compares; what asks for bytes needs them."""
    text = PROFILE.read_text()
    bare = tmp_path / "bare.toml"
    bare.write_text(text[: text.index("[[activation]]")])
    words = ("1f1b", *SHAPE, "--profile", str(bare))
    page = str(tmp_path / "page.html")
    assert invoke("run", *words, "-o", page).exit_code == 0
    error = refused("run", *words, "--memory", "-o", str(tmp_path / "held.svg"))
    assert str(error) == "the profile has no activation bytes of layers"
    little = ("1f1b", *LITTLE, "--profile", str(bare))
    assert "hold at most 2 activations" in invoke("explain", *little).stdout
    for command in ("run", "explain"):
        assert "activation" in str(refused(command, *words, "--cap", "80GiB"))


def test_a_cap_counts_layers_of_a_layout():
    """In what compare and sweep say of it."""
    words = ("--mb", "8", "--layout", "Ett|tt|tt|ttL", "--cap", "9")
    for command in ("compare", "sweep"):
        shown = " ".join(invoke(command, "1f1b", *words).output.split())
        assert "9 activations of one layer" in shown, command
