"""What ``ppsim partition`` answers and refuses."""

import itertools
import json
import shlex
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim import run
from ppsim.ask.blocks import Line
from ppsim.ask.groups import ShapeOptions
from ppsim.cli import group
from ppsim.core.costs import Costs
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, PpsimError
from ppsim.prices.build import build_costs, build_schedule
from ppsim.prices.options import CostOptions
from ppsim.prices.trained import TrainedModel, TrainedOptions
from ppsim.questions.optimum import partition as module
from ppsim.questions.optimum import partition_problem
from ppsim.questions.optimum.partition import partition
from ppsim.questions.optimum.partition_problem import Asked
from ppsim.search.splits.partition import Partition
from ppsim.search.splits.splits import layers_in, list_ends
from ppsim.workload.layout.layout import build_layout
from tests.clock import ENDLESS
from tests.commands import invoke

BASE = ["partition", "1f1b", "--devices", "4", "--mb", "8", "--t-head", "2"]


def ask(*words: str) -> Any:
    limit = ["--time-limit", f"{ENDLESS:g}"] if "partition" in words else []  # its proof ends it
    result = CliRunner().invoke(group, [*words, *limit, "--json"])
    assert result.exit_code == 0, (result.output, result.exception)
    return json.loads(result.stdout)


def test_the_answer_is_what_run_times():
    found = ask(*BASE, "--num-layers", "14")
    assert {key: found[key] for key in ("split", "layout", "makespan", "status", "bound")} == {
        "split": [4, 4, 4, 2],
        "layout": "Et*4|t*4|t*4|ttL",
        "makespan": 132.0,
        "status": "optimal",
        "bound": 132.0,
    }
    assert found["flags"].endswith("--num-layers 14 --decoder-last-pipeline-num-layers 2")
    assert found["peak"] == [16, 12, 8, 2]
    run = ask("run", "1f1b", "--mb", "8", "--t-head", "2", "--layout", found["layout"])
    assert run["makespan"] == found["makespan"]


def test_the_line_that_runs_it_does():
    text = CliRunner().invoke(group, [*BASE, "--num-layers", "14", "--cap", "16"]).stdout
    assert "optimal: none that fits of the 680 splits is faster" in text
    assert "all devices compute alike, 96 of 132 t_layer" in text
    line = " ".join(text.partition("run it")[2].split())
    assert line == "ppsim run 1f1b --devices 4 --mb 8 --t-head 2.0 --layout 'Et*4|t*4|t*4|ttL'"


@pytest.mark.parametrize(("cap", "said"), [(None, "none is"), ("16", "none that fits is")])
def test_a_split_that_is_not_proved_is_said_to_be_within_a_gap(cap, said):
    """132 is 10 % above a bound of 120; that of a proof is what it proves."""
    proved = partition("1f1b", devices=4, microbatches=8, t_head=2, num_layers=14, cap=cap)
    left = replace(proved, partition=replace(proved.partition, status="feasible", bound=120.0))
    assert (proved.bound, left.bound, left.to_json()["bound"], left.to_json()["status"]) == (
        132,
        120,
        120,
        "feasible",
    )
    (line,) = (
        block.parts
        for block in left.blocks()
        if isinstance(block, Line) and "status" in str(block.parts)
    )
    text = "".join(part if isinstance(part, str) else part[0] for part in line)
    assert text.startswith(f"status    feasible: {said} faster than 120, gap 10.0% (")
    alone = partition("1f1b", devices=1, microbatches=2, num_layers=3)
    assert any(": the only split" in str(block) for block in alone.blocks())


def test_what_a_better_answer_needs_is_said(monkeypatch):
    """A model gives layers their bytes, not the embedding and the head their times; a proof may
    need the solver.
    """
    for name in ("ortools", "ortools.sat.python"):  # which another test may have imported
        monkeypatch.setitem(sys.modules, name, None)
    proof, times = "a proof needs OR-tools: pip install", "the embedding and the head take no time"
    limit = ("--time-limit", f"{ENDLESS:g}")
    listed = invoke(
        "partition", "1f1b", "--devices", "4", "--mb", "8", "--model", "llama3-8b", *limit
    ).stdout
    assert (proof in listed, times in listed) == (False, True)
    words = ("--devices", "8", "--mb", "8", "--model", "llama3-70b", "--t-head", "2.7")
    text = invoke("partition", "1f1b", *words, *limit).stdout
    assert (proof in text, times in text) == (True, False)


@pytest.mark.parametrize(("status", "layout"), [("optimal", "Et*3|tt|tt|tL"), ("feasible", None)])
def test_a_layout_is_offered_where_it_is_proved_to_be_the_fastest(monkeypatch, status, layout):
    asked = Asked(
        "1f1b", ShapeOptions(devices=4, microbatches=4), CostOptions(), 8, 0, 0, None, "12"
    )
    found = Partition(((3, 2, 2, 1), 9.0), (), True, status, 9.0, 1)
    monkeypatch.setattr(partition_problem, "search_split", lambda *given: found)
    assert (
        partition_problem.find_fitting_layout(asked, build_schedule("1f1b", asked.shape)) == layout
    )


def test_a_cap_changes_the_split():
    """Device 0 holds four microbatches: with a cap of 12 activations it takes three layers."""
    found = ask(*BASE, "--num-layers", "14", "--cap", "12")
    assert max(found["peak"]) <= 12
    assert found["split"][0] == 3
    assert found["makespan"] > 132
    refused = CliRunner().invoke(group, [*BASE, "--num-layers", "14", "--cap", "3"]).exception
    assert isinstance(refused, PpsimError)
    assert (refused.exit_code, refused.hint) == (1, "--cap 8, the least that any split needs")


def test_a_slower_answer_than_an_even_split_that_does_not_fit_says_so():
    """Four layers each are fastest and hold 16; under a cap of 12 a device has three and another
    five.
    """
    words = [*BASE[:4], "--mb", "8", "--num-layers", "16", "--cap", "12"]
    found, free = ask(*words), ask(*words[:-2])
    assert found["even_fits"] is False
    assert found["makespan"] > found["even_makespan"] >= free["makespan"]
    assert free["even_fits"] is True
    text = " ".join(CliRunner().invoke(group, words).stdout.split())
    assert f"more than the even split's {found['even_makespan']:g}, which does not fit" in text
    assert "optimal: none that fits of the" in text


def test_a_cap_in_bytes_takes_a_model(tmp_path):
    model = tmp_path / "m.toml"
    model.write_text(
        'schema = "ppsim.model/2"\nhidden = 1024\nheads = 16\nlayers = 8\nseq = 1024\nvocab = '
        "50000\n"
    )
    words = ["partition", "1f1b", "--devices", "4", "--mb", "8", "--model", str(model)]
    free, capped = ask(*words, "--cap", "80GiB"), ask(*words, "--cap", "1660MiB")
    assert (free["layers"], free["peak_unit"]) == (8, "B")
    assert max(capped["peak"]) <= 1660 << 20 < max(free["peak"])
    assert capped["makespan"] >= free["makespan"]


def model_file(path) -> str:
    file = path / "m.toml"
    file.write_text(
        'schema = "ppsim.model/2"\nhidden = 512\nheads = 8\nlayers = 6\nseq = 512\nvocab = 9000\n'
    )
    return str(file)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "interleaved", "chimera", "1f1b-overlap"])
@pytest.mark.parametrize("more", [{}, {"again": "full"}, {"dp": 4, "zero": 1}])
def test_what_splits_hold_at_least_is_never_above_what_they_hold(name, more, tmp_path):
    """In bytes; where the head takes no time, its logits are held for none."""
    shape = ShapeOptions(devices=2, microbatches=4)
    model = TrainedModel(model_file(tmp_path), TrainedOptions(**more))
    costs = CostOptions(t_head=0.0 if more else 1.5)
    asked = Asked(name, shape, costs, 6, 0, 0, model, "1GiB")
    problem = asked.make_problem(schedule := build_schedule(name, shape))
    ends = list_ends(6, schedule.n_stages, 0)[:, ::5]
    held = [asked.hold(schedule, build_layout(list(layers_in(x, 6)), 2)).peak.max() for x in ends.T]
    bounds = problem.peaks(ends)
    assert (bounds <= held).all()
    assert (bounds > 0.5 * np.array(held)).all()


def test_a_cap_that_no_split_fits_is_refused_with_the_least_that_one_does(tmp_path):
    words = [*BASE, "--model", model_file(tmp_path), "--recomputes", "full"]
    refused = CliRunner().invoke(group, [*words, "--cap", "1MiB"]).exception
    assert isinstance(refused, PpsimError)
    option, size, *_ = refused.hint.replace(",", "").split()
    assert option == "--cap"
    assert max(ask(*words, "--cap", size)["peak"]) <= int(size.removesuffix("MiB")) << 20
    less = f"{int(size.removesuffix('MiB')) - 1}MiB"
    assert isinstance(CliRunner().invoke(group, [*words, "--cap", less]).exception, PpsimError)


def test_the_line_of_a_model_gives_the_same_makespan(tmp_path):
    """Its recomputation takes time, which ``ppsim run`` knows nothing of."""
    words = [*BASE, "--model", model_file(tmp_path), "--recomputes", "full", "--cap", "1GiB"]
    line = " ".join(CliRunner().invoke(group, words).stdout.partition("run it")[2].split())
    assert line.startswith("ppsim memory 1f1b")
    assert ask(*shlex.split(line)[1:])["makespan"] == ask(*words)["makespan"]


@pytest.mark.slow
def test_of_equal_plans_the_most_even_split_comes_first():
    found = ask("partition", "zb-v", "--devices", "2", "--mb", "4", "--num-layers", "8")
    assert (found["split"], found["makespan"]) == ([2, 2, 2, 2], found["even_makespan"])


@pytest.mark.parametrize("layers", ["1", "3"])
def test_one_device_has_one_split_also_where_it_is_planned(layers):
    found = ask("partition", "zb-auto", "--devices", "1", "--mb", "3", "--num-layers", layers)
    assert (found["split"], found["status"], found["splits"]) == ([int(layers)], "optimal", 1)


def test_an_interruption_ends_both_searches_of_planned_queues(monkeypatch):
    """Ctrl-C ends the search of one plan with its best split; the search of all plans then only
    times that one.
    """
    words = (
        "partition",
        "zb-auto",
        "--devices",
        "2",
        "--mb",
        "4",
        "--num-layers",
        "8",
        "--t-head",
        "3",
    )
    assert ask(*words)["timed"] > 2
    monkeypatch.setattr("ppsim.questions.optimum.partition_problem.first_signal", lambda: 2)
    assert ask(*words)["timed"] <= 2


def test_other_chunks_and_mtp_layers():
    found = ask(
        "partition",
        "interleaved:2",
        "--devices",
        "2",
        "--mb",
        "4",
        "--num-layers",
        "6",
        "--mtp-num-layers",
        "1",
    )
    assert (found["stages"], found["chunks"], sum(found["split"])) == (4, 2, 6)
    assert found["layout"].endswith("mL")
    assert found["status"] == "optimal"


@pytest.mark.slow
def test_layers_of_a_profile_are_split():
    profile = "gallery/profile-cpu.toml"
    found = ask(
        "partition",
        "1f1b",
        "--devices",
        "3",
        "--mb",
        "4",
        "--num-layers",
        "7",
        "--profile",
        profile,
    )
    run = ask("run", "1f1b", "--mb", "4", "--profile", profile, "--layout", found["layout"])
    assert run["makespan"] == pytest.approx(found["makespan"], rel=1e-12)
    assert found["unit"] == "ms"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (BASE, "the number of layers is missing"),
        ([*BASE, "--num-layers", "0"], "--num-layers"),
        ([*BASE, "--num-layers", "3", "--t-layer", "1,2"], "--t-layer says 2, --num-layers says 3"),
        ([*BASE, "--num-layers", "3", "--min-layers", "1"], "3 layers are too few for 4 stages"),
        ([*BASE, "--num-layers", "99999"], "10,000 at most"),
        ([*BASE, "--num-layers", "8", "--tf", "2"], "--tf cannot be given"),
        ([*BASE, "--num-layers", "8", "--layout", "E|t*8|tL|"], "--layout cannot be given"),
        ([*BASE, "--num-layers", "8", "--cap", "3GiB"], "the bytes of an activation are not known"),
        ([*BASE, "--num-layers", "8", "--t-layer=-1"], "must be zero or more"),
        ([*BASE, "--num-layers", "8", "--time-limit", "0"], "--time-limit"),
        (
            ["partition", "1f1b", "--mb", "8", "--num-layers", "8"],
            "the number of stages is missing",
        ),
        (
            ["partition", "nothing", "--devices", "4", "--mb", "8", "--num-layers", "8"],
            "unknown schedule",
        ),
    ],
)
def test_what_cannot_be_is_refused(words, said):
    result = CliRunner().invoke(group, words)
    error = result.exception
    assert (error.exit_code if isinstance(error, PpsimError) else result.exit_code) == 2
    hint = error.hint if isinstance(error, PpsimError) else ""
    assert said in f"{error} {hint} {result.output}"


def test_a_size_whose_split_takes_longer_than_the_limit_is_refused_with_one_that_works(monkeypatch):
    """On a machine where an op takes a million times as long as here, and the time stands still."""
    monkeypatch.setattr(module, "OP_S", 1e6 * module.OP_S)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(module, "interrupt_at", lambda deadline: nullcontext())
    monkeypatch.setattr(module, "end_by", lambda deadline: nullcontext())
    words = ["partition", "1f1b", "--devices", "2", "--mb", "13", "--num-layers", "8"]
    error = CliRunner().invoke(group, [*words, "--time-limit", "30"]).exception
    assert isinstance(error, PpsimError)
    assert str(error) == "one split of 52 ops takes about 52 s, more than --time-limit 30 allows"
    assert error.hint == "--time-limit 50, or a smaller size"
    assert "optimal" in CliRunner().invoke(group, [*words, "--time-limit", "50"]).stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize("least", [1, 0])
def test_an_order_planned_with_the_costs_is_planned_for_each_split(least):
    """ZB-V's queues follow the costs: the best split equals brute force over runs, each planned
    with its layout.
    """
    found = ask(
        *("partition", "zb-v", "--devices", "2", "--mb", "4", "--num-layers", "5"),
        *("--t-head", "1.5", "--min-layers", str(least)),
    )
    shape = ShapeOptions(devices=2, microbatches=4)
    makespans = []
    for ends in itertools.combinations_with_replacement(range(6), 3):
        split = [after - before for before, after in itertools.pairwise((0, *ends, 5))]
        if min(split) >= least:
            costs = CostOptions(t_head=1.5, layout=str(build_layout(split, 2)))
            schedule = build_schedule("zb-v", shape, costs)
            makespans.append(simulate(schedule, build_costs(schedule, costs)).makespan)
    assert (found["makespan"], found["status"], found["splits"]) == (
        min(makespans),
        "optimal",
        len(makespans),
    )


def test_the_help_names_no_option_that_is_refused():
    """--layout is what partition finds; a time of layers needs none beside it."""
    text = " ".join(CliRunner().invoke(group, ["partition", "--help-all"]).output.split())
    assert (
        "--t-layer NUMBER[,NUMBER...] Forward time of a layer of the layout (1), or one for each."
        in text
    )
    assert text.count("--layout") == 0


def test_python_gets_the_split_with_its_times_and_proof():
    best = partition("1f1b", devices=4, microbatches=8, num_layers=14, t_head=2)
    assert (best.split, best.makespan, best.bound, best.status) == (
        (4, 4, 4, 2),
        132,
        132,
        "optimal",
    )
    assert best.timeline.makespan == best.makespan
    assert best.schedule.n_devices == 4


def test_costs_of_whole_stages_are_refused():
    with pytest.raises(InputError, match="times of layers"):
        partition("1f1b", devices=2, microbatches=2, num_layers=4, costs=Costs.of(F=1))


@pytest.mark.parametrize("factors", [{"speed": 0.5}, {"mb_scale": "1,2"}])
def test_factors_beside_a_function_of_each_op_are_refused(factors):
    """The function's times are those of each op, so that no factor would change any."""
    prices = Costs.of(lambda kind, stage, microbatch: 1.0 + microbatch)
    with pytest.raises(InputError, match="change no times that a function gives"):
        run("1f1b", devices=2, microbatches=2, costs=prices, **factors)
    assert (
        run("1f1b", devices=2, microbatches=2, costs=Costs.of(F=1), speed=0.5).metrics.makespan
        == 18
    )


def test_layers_of_a_model_of_the_library_are_split_under_a_cap():
    """The cap that the even split just misses moves layers from the first device, which holds most
    microbatches.
    """
    words = [
        "partition",
        "1f1b",
        "--devices",
        "4",
        "--mb",
        "8",
        "--model",
        "llama3-8b",
        "--seq",
        "2048",
        "--tp",
        "2",
    ]
    free = json.loads(invoke(*words, "--json").stdout)
    assert sum(free["split"]) == 32
    cap = f"{int(max(free['peak'])) // 2**20 - 1}MiB"
    capped = json.loads(invoke(*words, "--cap", cap, "--json").stdout)
    assert max(capped["peak"]) < max(free["peak"])
    assert capped["split"] != free["split"]
