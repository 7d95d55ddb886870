"""``ppsim memory``: curves, peaks, what holds them, caps and what fits instead."""

import json
import re
import shlex
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.ops import Kind
from ppsim.engine.memory.report import ASCII_LEVELS, LEVELS, bars, find_excess, report
from ppsim.engine.memory.usage import activation_model
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.profile.profile import Activation, Profile, Provenance, Workload
from ppsim.schedules import generate
from ppsim.workload.model.from_profile import profile_memory
from tests import commands
from tests.commands import invoke, with_options

MODEL = """schema = "ppsim.model/2"
hidden = 1024
heads = 16
layers = 8
seq = 1024
vocab = 32000
"""


memory, refused = partial(invoke, "memory"), partial(commands.refused, "memory")


@pytest.fixture
def model(tmp_path) -> str:
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    return str(path)


def test_the_page_shows_a_bar_per_device_and_the_peak():
    """Bars rise with each forward and fall with each backward; the peak has its device, time and
    op.
    """
    result = memory("--schedule", "1f1b", "--stages", "4", "--mb", "8")
    lines = result.output.splitlines()
    assert result.exit_code == 0
    assert lines[0] == "1f1b needs 4 activations at most, on device 0 from 3 t_F, 0F3"
    assert lines[1] == "1F1B  4 devices x 1 chunk = 4 stages, 8 microbatches"
    assert re.fullmatch(r"dev 0 ▂+▄+▆+█+▆+▄+▂+ +4 at 3, 0F3", lines[3])
    assert re.fullmatch(r"dev 3 +▂+ +1 at 3, 3F0", lines[6])
    assert lines[8:] == [
        "peak 4 activations on device 0 from 3 t_F, 0F3",
        "held by activations 4 (100%)",
        "an activation is held from F to the end of B, or of W where backwards are split",
    ]


def test_quiet_is_one_line():
    """The result and nothing else."""
    result = memory("-s", "zb-1p", "--stages", "4", "--mb", "8", "-q")
    assert (
        result.output == "zb-1p 4x8  peak 4 activations on device 0 from 5 t_F, 0F3\n"
        or result.output.count("\n") == 1
    )
    assert "peak 4 activations" in result.output


def test_many_devices_are_folded():
    """At most 32 rows, and how many are left out."""
    lines = memory("-s", "1f1b", "--devices", "40", "--mb", "4").output.splitlines()
    assert sum(line.startswith("dev ") for line in lines) == 32
    assert "⋮ 8 more devices" in lines


def test_json_is_one_object_that_fits_together(model):
    """Parts sum to the peak, the curve's largest value is the peak, and all devices are there."""
    result = memory(
        "-s", "zb-1p", "--stages", "4", "--mb", "8", "--model", model, "--cap", "80GiB", "--json"
    )
    value = json.loads(result.output)
    assert (value["schema"], value["unit"], value["fits"], value["cap"]) == (
        "ppsim.memory/1",
        "B",
        True,
        80 << 30,
    )
    assert np.sum(list(value["parts"].values()), axis=0).tolist() == value["peak"]
    device, held = np.array(value["curve"]["device"]), np.array(value["curve"]["value"])
    assert [held[device == d].max() for d in range(4)] == value["peak"]
    assert sum(amount[0] for amount in value["static"].values()) == held[device == 0][-1]
    assert value["over"] == value["nearest"] == []
    assert value["peak_op"][0] == "0I0"


def test_over_the_cap_exits_1_and_says_who_when_how_much_and_what_fits():
    """GPipe holds all eight microbatches; the sixth is the first too many. Five fit, and so does
    1F1B.
    """
    args = ("-s", "gpipe", "--devices", "4", "--mb", "8", "--cap", "5")
    error = refused(*args)
    assert error.exit_code == 1
    assert str(error) == (
        "gpipe does not fit 5 activations: device 0 passes it at 5 t_F (0F5) and needs 3 more at "
        "its peak; 3 other devices exceed it too"
    )
    assert error.hint.startswith("--schedule ")
    assert error.hint.endswith(" or --mb 5 (5, makespan 24, another number of microbatches)")
    value = json.loads(memory(*args, "--json").stdout)
    assert value["fits"] is False
    assert value["over"][0] == {"device": 0, "time": 5.0, "op": "0F5", "excess": 3}
    for row in value["nearest"]:
        again = with_options(("memory", *args), row["options"].split())
        assert invoke(*again).exit_code == 0


@pytest.mark.parametrize("command", ["memory", "run"])
def test_the_search_for_alternatives_prints_no_notes_on_them(command):
    """A note on the number of stages is about the schedule that was asked for."""
    words = (command, "1f1b", "--stages", "4", "--mb", "8", "--cap", "3")
    code, _, said = commands.answer(*words)
    assert code == 1
    assert said.startswith("Error: 1f1b does not fit 3 activations")
    assert "--schedule v-half --stages 8" in said
    code, _, said = commands.answer(command, "v-half", *words[2:])
    assert said.startswith("4 stages are 2 devices: v-half has 2 stages on each")
    assert said.count("stages on each") == 1


def test_alternatives_with_other_stages_are_held_to_the_same_memory():
    """4 activations of a device's share are 16 of a quarter of its layers and 8 of a half: one cap
    for all.
    """
    words = ("-s", "interleaved:4", "--devices", "4", "--mb", "8", "--cap", "4")
    found = re.search(r"(--schedule \S+) \(([0-9.]+),", refused(*words).hint)
    assert found
    assert float(found[2]) <= 4
    assert invoke(*with_options(("memory", *words), found[1].split())).exit_code == 0


@pytest.mark.sampled(9)
@pytest.mark.parametrize(
    "words",
    [
        "-s 1f1b-overlap --devices 4 --mb 15 --cap 5",
        "-s dualpipe-v --devices 4 --mb 15 --cap 2.5",
        "-s interleaved --devices 4 --mb 9 --cap 5.5",
        "-s interleaved:3 --devices 4 --mb 8 --cap 3",
        "-s interleaved --stages 8 --mb 8 --cap 4",
        "-s interleaved --devices 4 --chunks 2 --mb 8 --group-size 4 --cap 4",
        "-s looped-bfs --devices 4 --mb 8 --tf 1,1,1,1,1,1,1,2 --cap 4",
        "-s dualpipe --devices 4 --mb 8 --tfb 2.5 --cap 3",
        "-s 1f1b --layout Et*5|t|t|tL --mb 8 --cap 8 --t-head 1",
        "-s interleaved --layout Et*4|t|t|mL --devices 2 --mb 4 --cap 14 --t-layer 1,1,2,1,1,1",
    ],
)
def test_every_alternative_works_as_it_is_written(words):
    """Each suggestion, put after the command that failed, fits its cap."""
    answer = json.loads(memory(*words.split(), "--json").stdout)
    for row in answer["nearest"]:
        again = with_options(("memory", *words.split()), shlex.split(row["options"]))
        value = json.loads(invoke(*again, "--json").stdout)
        shares = 1 if value["unit"] != "activations" else value["stages"] / value["devices"]
        assert (value["fits"], max(value["peak"]) / shares) == (True, row["peak"])
        assert value["makespan"] == row["makespan"]


@pytest.mark.slow
def test_another_split_of_a_layout_is_offered_before_another_batch():
    """The fastest that fits, or where each has an order of its own the command that searches
    them.
    """
    shown = refused("-s", "1f1b", "--layout", "Et*5|t|t|tL", "--mb", "8", "--cap", "10").hint.split(
        " or "
    )
    assert (shown[1], shown[-1][:4]) == ("--layout 'Ett|tt|tt|ttL' (8, makespan 66)", "--mb")
    planned = ("-s", "zb-v", "--layout", "Et*5|t|t|tL", "--mb", "8", "--cap", "12")
    shown = refused(*planned).hint.split(" or ")
    assert shown[-2] == "ppsim partition with this --cap (searches other splits)"


def test_more_microbatches_can_need_less():
    """Interleaved's default N depends on M: 8 microbatches hold no more than 5.5, where 7 and 9
    hold 6 and 6.5.
    """
    error = refused("-s", "interleaved", "--devices", "4", "--mb", "9", "--cap", "5.5")
    assert " or --mb 8 (5.5, " in error.hint


def test_a_file_over_its_cap_is_answered_as_any_schedule(tmp_path):
    """The file states its own shape, so what fits instead is another schedule in that shape."""
    path = tmp_path / "1f1b.csv"
    path.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    error = refused("-s", str(path), "--cap", "1", "-q")
    assert error.exit_code == 1
    assert str(error).startswith("1f1b does not fit 1 activation:")
    (first, *_) = error.hint.split(" (")
    if first.startswith("--schedule"):
        assert memory(*first.split(), "--cap", "1").exit_code == 0


def test_a_cap_below_static_memory_has_no_schedule_that_fits(model):
    """Nothing about the schedule helps; the hint names what does."""
    error = refused("-s", "1f1b", "--devices", "4", "--mb", "8", "--model", model, "--cap", "1MiB")
    assert re.search(r"device 0 holds [0-9.,]+ \w+ before its first activation", str(error))
    assert "more devices" in error.hint


def test_a_cap_in_activations_has_no_hint_about_bytes():
    """Where no schedule fits, what divides bytes does not help: the cap itself is what to
    change.
    """
    assert (
        refused("-s", "1f1b", "--devices", "4", "--mb", "8", "--cap", "0").hint
        == "a larger --cap; this run needs 4"
    )


def test_breakdown_has_a_row_per_device(model):
    """Every part with bytes is a column; what ops of a model work with is none of what their
    forwards left.
    """
    words = ("-s", "zb-1p", "--stages", "4", "--mb", "8", "--breakdown")
    lines = memory(*words, "--model", model).output.splitlines()
    names = lines[lines.index("at each device's peak") + 2].split()
    assert names == ["weights", "gradients", "optimizer", "activations", "work"]
    lines = memory(*words, "--profile", "gallery/profile-cpu.toml").output.splitlines()
    above, below, *table = lines[lines.index("at each device's peak") + 1 :]
    assert (above.split()[-1], below.split()[-1]) == ("receive", "buffers")
    assert "weight-gradient" in above
    assert "stash" in below
    assert [row[:5] for row in table] == ["dev 0", "dev 1", "dev 2", "dev 3"]


@pytest.mark.parametrize(
    ("cap", "bytes_known", "message"),
    [
        ("80GiB", False, "the bytes of an activation are not known"),
        ("80", True, "has no unit"),
        ("lots", False, "--cap: not a size: 'lots'"),
    ],
)
def test_a_cap_that_does_not_compare_is_refused(model, cap, bytes_known, message):
    """Bytes against activations, a bare number against bytes, and what is not a size at all."""
    more = ("--model", model) if bytes_known else ()
    error = refused("-s", "1f1b", "--stages", "4", "--mb", "8", "--cap", cap, *more)
    assert message in str(error)
    assert error.exit_code == 2


def test_recomputation_takes_time_in_the_curve(model):
    """Full recomputation: fewer bytes, a longer iteration."""
    args = ("-s", "1f1b", "--stages", "4", "--mb", "8", "--json", "--model", model)
    plain, full = (
        json.loads(memory(*args, *more).output) for more in ((), ("--recomputes", "full"))
    )
    assert (plain["makespan"], full["makespan"]) == (33, 44)
    assert max(full["peak"]) < max(plain["peak"])


def test_backwards_that_recompute_take_no_r(model):
    """R runs the forward again, and the backward would once more."""
    error = refused(
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "--recompute",
        "--model",
        model,
        "--recomputes",
        "full",
    )
    assert "has ops that recompute (R)" in str(error)
    assert error.hint == "leave out --recomputes full"


def test_bars_never_hide_a_peak():
    """However few columns, the fullest moment shows at full height, and nothing shows where nothing
    is held.
    """
    schedule = generate("gpipe", devices=2, microbatches=50)
    found = report(simulate(schedule, costs_for(schedule)), activation_model(schedule))
    for columns in (1, 3, 7, 200):
        line = bars(found.curve, 0, found.timeline.makespan, columns)
        assert len(line) == columns
        assert "█" in line
    assert bars(found.curve, 1, found.timeline.makespan, 153)[0] == " "


def test_signs_of_ascii_show_the_same_heights():
    """One sign for each height, so that a terminal without blocks shows the same curve."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    found = report(simulate(schedule, costs_for(schedule)), activation_model(schedule))
    assert ASCII_LEVELS.isascii()
    assert len(set(ASCII_LEVELS)) == len(ASCII_LEVELS) == len(LEVELS)
    line, plain = (bars(found.curve, 0, 33, 40, levels) for levels in (LEVELS, ASCII_LEVELS))
    assert plain.translate(str.maketrans(ASCII_LEVELS, LEVELS)) == line


def test_passing_is_the_first_moment_over_the_cap():
    """1F1B's device 0 passes 2 with its third forward, at 2, and is over by 2 at its peak."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    found = report(simulate(schedule, costs_for(schedule)), activation_model(schedule), cap=2)
    assert [peak.device for peak in found.exceeding] == [0, 1]
    first = find_excess(found, found.exceeding[0])
    assert (first.time, schedule.label(first.op), first.excess) == (2.0, "0F2", 2)


PROFILE = Profile(
    Provenance("m", "c", 1, 1, 0.0, "d", "", "t", "p", "v", "2026", "ppsim calibrate"),
    Workload(
        hidden=64, heads=4, sequence=32, microbatch_size=2, layers=2, dtype="float32", vocab=100
    ),
    activation=(
        Activation("layers", 1, 1_100, 600, 100),
        Activation("layers", 2, 2_100, 1_100, 100),
        Activation("head", 0, 500, 700, 0),
    ),
)


def test_a_profile_gives_its_measured_bytes():
    """In proportion to a stage's layers, less what outlasts W; the first stage's I does nothing, as
    in its costs.
    """
    for name, wanted in (("zb-1p", 2_000), ("interleaved", 1_000)):
        schedule = generate(name, devices=4, microbatches=8)
        model = profile_memory(PROFILE, schedule)
        assert model.activations.tolist() == [wanted] * (schedule.n_stages - 1) + [wanted + 500]
        middle = [wanted // 2] * (schedule.n_stages - 2)
        assert model.kept.tolist() == [wanted, *middle, wanted // 2 + 500]
        assert model.stash.tolist() == [0] * (schedule.n_stages - 1) + [200]
        assert model.message.tolist() == [2 * 32 * 64 * 4] * (schedule.n_stages - 1) + [0]


def test_a_profile_without_activations_is_refused():
    """It has times only; the hint names the other way to bytes."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    with pytest.raises(InputError, match="no activation bytes") as caught:
        profile_memory(replace(PROFILE, activation=()), schedule)
    assert "--model" in caught.value.hint


def test_release_rules_are_the_two_that_references_use():
    """Held to W, ZB-H1's last device keeps P microbatches; held to I, one."""
    schedule = generate("zb-1p", devices=4, microbatches=8)
    timeline = simulate(schedule, costs_for(schedule))
    held = [
        report(timeline, activation_model(schedule, release)).peaks[3].value
        for release in (Kind.W, Kind.I)
    ]
    assert held == [4, 1]


def test_a_model_is_named_as_plan_names_it(tmp_path):
    """A name of the library, a config.json with its sequences' length; or a file; options say how
    it is trained.
    """
    words = ["memory", "1f1b", "--devices", "4", "--mb", "8"]
    found = json.loads(
        invoke(*words, "--model", "llama3-8b", "--tp", "2", "--dp", "8", "--json").stdout
    )
    cost = json.loads(
        invoke(
            "model", "llama3-8b", "--pp", "4", "--mb", "8", "--tp", "2", "--dp", "8", "--json"
        ).stdout
    )
    assert found["peak"] == pytest.approx(
        [device["total_gib"] * 2**30 for device in cost["devices"]], rel=1e-6
    )
    config = tmp_path / "config.json"
    sizes = {
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_hidden_layers": 8,
        "vocab_size": 9000,
    }
    config.write_text(json.dumps(sizes | {"max_position_embeddings": 131072}))
    assert "not the length of yours" in str(invoke(*words, "--model", str(config)).exception)
    assert invoke(*words, "--model", str(config), "--seq", "512", "-q").exit_code == 0
    whole, half = (
        json.loads(invoke(*words, "--model", "gallery/model-7b.toml", "--tp", tp, "--json").stdout)
        for tp in "12"
    )
    # Both ranks hold two norms of weights and biases and two output biases of each of the 8 layers,
    # of 2 bytes; the first stage the positions of 4,096 tokens, the last the final norm.
    row = 4096 * 2
    copied = [8 * 6 * row + 4096 * row, 8 * 6 * row, 8 * 6 * row, 8 * 6 * row + 2 * row]
    assert half["static"]["weights"] == pytest.approx(
        [
            (held + twice) / 2
            for held, twice in zip(whole["static"]["weights"], copied, strict=True)
        ],
        rel=1e-6,
    )
    assert "no model 'llama9' in the library" in str(invoke(*words, "--model", "llama9").exception)
    assert "--zero must be 0, 1, 2 or 3" in str(
        invoke(*words, "--model", "llama3-8b", "--dp", "2", "--zero", "7").exception
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("memory", "1f1b", "--devices", "1", "--mb", "1", "--cap", "1"), "fits 1 activation: "),
        (("run", "gpipe", "--devices", "1", "--mb", "2", "--cap", "1"), "fit 1 activation: "),
        (("compare", "1f1b", "--devices", "1", "--mb", "1", "--cap", "1"), "cap 1 activation of"),
        (("explain", "v-min", "--devices", "2", "--mb", "1"), "hold at most 1 activation of"),
    ],
)
def test_one_activation_is_none_of_several(words, said):
    result = invoke(*words)
    assert said in result.stdout
    assert "1 activations" not in result.stdout + str(result.exception)
