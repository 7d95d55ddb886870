"""``ppsim optimize``: known optima with proof, never worse than the list, files that others
read.
"""

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from ppsim.base import deadline
from ppsim.core.costs import Costs
from ppsim.core.schedule import place
from ppsim.errors import InputError, PpsimError
from ppsim.prices.options import CostOptions
from ppsim.questions.optimum import problems
from ppsim.questions.optimum.optimize import Front
from ppsim.questions.optimum.optimize import optimize as ask_optimize
from ppsim.questions.optimum.optimize_text import proof_lines, sentences
from ppsim.questions.optimum.problems import SearchOptions, find_known, make_problems
from ppsim.search.orders import engine, optimize
from ppsim.search.orders.optimize import NamedSolution, Outcome, find_front, write_in_turns
from ppsim.search.problem import Problem, evaluate
from ppsim.version import INSTALL_OPTIMIZE
from tests.clock import ENDLESS
from tests.commands import invoke, refused, with_options


def call(*words: str) -> Result:
    """The command, ended by its proof and by no time unless one is given."""
    given = any(word.startswith(("--time-limit", "--help")) for word in words)
    limit = () if given else ("--time-limit", f"{ENDLESS:g}")
    return invoke("optimize", *words, *limit)


def found(*words: str) -> Any:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


SHAPE = ("--devices", "4", "--mb", "8")
UNEVEN = (*SHAPE, "--tf", "10", "--ti", "11", "--tw", "8", "--comm", "1")


@pytest.mark.parametrize(
    ("words", "span", "makespan"),
    [
        ((*SHAPE, "--cap", "4"), 27, 27),
        ((*SHAPE, "--cap", "7"), 24, 27),
        ((*UNEVEN, "--cap", "4"), 283, 283),
        pytest.param((*UNEVEN, "--cap", "8"), 245, 265, marks=pytest.mark.slow),
        ((*SHAPE, "--cap", "4", "--placement", "v", "--cost-per", "stage"), 48, 51),
        ((*SHAPE, "--objective", "makespan"), 24, 27),
    ],
)
def test_known_optima_are_found_and_proved(words, span, makespan):
    numbers = found(*words)
    value = numbers[numbers["objective"]]
    assert (numbers["span"], numbers["makespan"], numbers["status"]) == (span, makespan, "optimal")
    assert numbers["bound"] == value


def test_the_object_has_what_is_promised():
    """Keys of design, one entry of the peak per device, and the schedules of the list it was
    compared with.
    """
    numbers = found(*SHAPE, "--cap", "4")
    assert numbers["schema"] == "ppsim.optimize/1"
    assert numbers["peak_activations"] == [4, 4, 4, 4]
    assert (numbers["best_known"], numbers["gap"], numbers["interrupted"]) == ("zb-1p", 0, False)
    fitting = {k["name"] for k in numbers["known"] if k["fits"]}
    assert {"1f1b", "zb-1p"} <= fitting
    assert not {"gpipe", "zb-h2"} & fitting


@pytest.mark.slow
@pytest.mark.parametrize("placement", ["linear", "v", "loop", "auto"])
def test_no_schedule_of_the_list_that_fits_is_better(placement):
    numbers = found("--devices", "3", "--mb", "4", "--cap", "4", "--placement", placement)
    assert all(numbers["span"] <= k["span"] for k in numbers["known"] if k["fits"])
    assert numbers["bound"] <= numbers["span"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("placement", ["linear", "v", "loop"])
def test_only_schedules_that_run_all_ops_are_compared(placement):
    """Forwards alone would be faster than any iteration."""
    numbers = found(*SHAPE, "--placement", placement)
    assert "forward-only" not in {k["name"] for k in numbers["known"]}
    assert numbers["bound"] >= 24


def test_the_same_command_gives_the_same_numbers_where_not_the_time_ends_it():
    """Same seed, same object, name of the way included."""
    words = (*SHAPE, "--cap", "4", "--placement", "v", "--cost-per", "stage", "--seed", "3")
    assert found(*words) == found(*words)


def test_schedules_that_the_time_does_not_reach_are_left_out_by_name():
    """The user is told which ones the best is not compared with."""
    search = SearchOptions(devices=3, microbatches=5, placement="v", cap=3)
    (problem,) = make_problems(search, CostOptions())
    names = {entry.solution.origin for entry in find_known(problem, CostOptions())}
    with pytest.warns(UserWarning, match="left out of the list, because the time ended: ") as told:
        assert not find_known(problem, CostOptions(), until=0)
    said = str(told[0].message).partition(": ")[2].split(", ")
    assert {"v-half", "v-min", "zb-v", "v-auto"} <= names <= set(said)


@pytest.mark.slow
def test_a_size_of_which_no_schedule_can_be_ready_in_time_is_refused_at_once():
    words = ("--devices", "1000", "--mb", "9000", "--placement", "v")
    error = call(*words, "--time-limit", "3").exception
    assert isinstance(error, PpsimError)
    assert (
        str(error)
        == "one schedule of 36,000,000 ops takes about 7 s, more than --time-limit 3 allows"
    )
    assert error.hint == "--time-limit 6, or a smaller size"
    for size in (("--devices", "9" * 30, "--mb", "3"), ("--devices", "100000000", "--mb", "1")):
        with pytest.raises(InputError, match="more than fits in memory"):
            raise call(*size).exception or AssertionError
    wide = call("--devices", "1000000", "--mb", "1", "--time-limit", "3").exception
    assert str(wide).startswith(
        "one schedule of 2,000,000 ops on 1,000,000 devices takes about 15 s"
    )


@pytest.mark.parametrize("placement", ["linear", "v", "loop"])
def test_what_the_time_is_too_short_to_search_is_said_and_something_is_answered(
    monkeypatch, placement
):
    """A known schedule, and where none fits the cap the one that always does."""
    monkeypatch.setattr(optimize, "OP_S", 1.0)
    said = f"not searched, as too little time was left: placement {placement}"
    result = call(*SHAPE, "--placement", placement, "--time-limit", "60", "--json")
    assert said in result.stderr
    assert json.loads(result.stdout)["origin"] == json.loads(result.stdout)["best_known"]
    made = make_problems(
        SearchOptions(devices=4, microbatches=8, placement=placement, cap=1), CostOptions(tb=3)
    )
    answered = optimize.optimize(made, [[]])
    assert answered.solution.origin == "one microbatch at a time"
    assert answered.solution.peak_activations.tolist() == [1 if placement == "linear" else 2] * 4
    assert answered.bound <= answered.value


def test_a_large_schedule_is_timed_once_and_left_out_above_the_cap(monkeypatch):
    monkeypatch.setattr("ppsim.search.problem.LARGE", 10)
    monkeypatch.setattr(optimize, "OP_S", 1.0)
    with pytest.warns(
        UserWarning, match="^not searched, as too little time was left: placement linear$"
    ):
        answered = ask_optimize(devices=4, mb=8)
    assert answered.timeline is answered.outcome.solution.timeline
    assert [entry.solution.timeline for entry in answered.known].count(None) == len(
        answered.known
    ) - 1
    result = call(*SHAPE, "--cap", "2", "--time-limit", "60", "--json")
    assert "left out of the list, because they hold more than --cap: 1f1b, " in result.stderr
    assert {known["fits"] for known in json.loads(result.stdout)["known"]} == {True}


def test_caps_that_the_time_does_not_reach_are_left_out_of_a_front():
    """The largest one is searched however late it is, and the others are named."""
    search = SearchOptions(devices=3, microbatches=3)
    problems = make_problems(search, CostOptions())
    known = [find_known(problem, CostOptions()) for problem in problems]
    asked = list[str]()

    def run(key, problems, known, seeds, limit):
        asked.append(key)
        return optimize.optimize(problems, known, seeds=seeds, time_limit=0.1)

    with pytest.warns(UserWarning, match="^left out of the front, as the time ended: cap 1, 2$"):
        rows = find_front(problems, known, [1], run, 0.0)
    assert asked == ["largest cap"]
    assert [cap for cap, _ in rows] == [rows[0][1].solution.peak_activations.max()] == [3]


@pytest.mark.slow
def test_full_backwards_and_pairs_of_the_list_count_as_they_are():
    """Where B takes less than I and W, 1F1B may be the best, and the bound holds for it too."""
    numbers = found(
        "--devices", "2", "--mb", "4", "--tb", "1", "--ti", "1", "--tw", "1", "--cap", "2"
    )
    assert numbers["bound"] <= numbers["span"] <= 10
    assert min(k["span"] for k in numbers["known"] if k["fits"]) >= numbers["span"]


@pytest.mark.slow
def test_the_time_of_pairs_shows_where_it_counts():
    """The schedule of the list that has pairs is timed with it, and named; short pairs are the best
    of all.
    """
    text = call("--devices", "2", "--mb", "3", "--tfb", "2.5", "--cap", "2", "--no-gantt").stdout
    assert "with pairs of F and B: 1f1b-overlap " in text
    assert found("--devices", "2", "--mb", "4", "--tfb", "1")["best_known"] == "1f1b-overlap"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "least"),
    [
        ((*SHAPE, "--cap", "0.5"), "--cap 1"),
        ((*SHAPE, "--cap", "0.5", "--placement", "v"), "--cap 1"),
        ((*SHAPE, "--cap", "0.9", "--placement", "loop", "--chunks", "3"), "--cap 1"),
        ((*SHAPE, "--cap", "0.5", "--placement", "auto"), "--cap 1"),
    ],
)
def test_a_cap_too_small_names_the_least_that_works(words, least):
    error = call(*words).exception
    assert isinstance(error, PpsimError)
    assert error.exit_code == 1
    assert error.hint.startswith(least)
    shape = ("--devices", "2", "--mb", "2", *words[6:])
    assert found(*shape, *least.split())["status"] == "optimal"


LAYOUT = ("--devices", "4", "--mb", "6", "--layout", "Et*2|t*3|t*3|tL", "--t-layer", "1")


@pytest.mark.slow
def test_with_a_layout_caps_count_layers(tmp_path):
    """The peaks are those of the memory command; a cap below the largest stage names the least that
    works.
    """
    file = tmp_path / "best.json"
    numbers = found(*LAYOUT, "--cap", "8", "-o", str(file))
    assert (numbers["activations_of"], max(numbers["peak_activations"]) <= 8) == ("layer", True)
    held = json.loads(invoke("memory", str(file), *LAYOUT[4:], "--json").stdout)["peak"]
    assert held == numbers["peak_activations"]
    error = call(*LAYOUT, "--cap", "2").exception
    assert isinstance(error, PpsimError)
    assert error.hint == "--cap 3, the least that works"
    assert "holds 3 activations of one layer at least" in str(error)


def test_files_hold_the_schedule(tmp_path):
    """The CSV has every op, a JSON the times."""
    csv, document = tmp_path / "best.csv", tmp_path / "best.json"
    result = call(*SHAPE, "--cap", "4", "-q", "-o", str(csv), "-o", str(document))
    assert result.exit_code == 0
    assert result.stdout.split("  ")[1:5] == [
        "span 27 t_F",
        "makespan 27 t_F",
        "bound 27 t_F",
        "optimal",
    ]
    assert sum(len(line.split(",")) for line in csv.read_text().splitlines()) == 96
    assert invoke("check", str(csv)).exit_code == 0
    assert json.loads(document.read_text())["makespan"] == 27


def test_a_quiet_front_is_one_line():
    result = call("--devices", "2", "--mb", "2", "--front", "-q")
    assert result.stdout == "front 2x2  cap and span in t_F: 1 10  2 7  (2 of 2 optimal)\n"


SMALL = ("--devices", "2", "--mb", "2")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("file", ["kept.csv", "kept.parquet"])
def test_an_interrupted_front_goes_on_from_its_results_file(tmp_path, monkeypatch, file):
    """The answer is that of a run without Ctrl-C, and no cap is searched twice."""
    monkeypatch.chdir(tmp_path)
    plain = call(*SMALL, "--front", "--json").stdout
    searched, most, search = list[object](), 2, optimize.optimize

    def counted(problems, *words, **named):
        if len(searched) == most:
            raise KeyboardInterrupt
        searched.append([problem.cap for problem in problems])
        return search(problems, *words, **named)

    monkeypatch.setattr(optimize, "optimize", counted)
    stopped = call(*SMALL, "--front", "--results", file)
    assert stopped.exit_code != 0
    assert f"2 are kept in {file}: the same command continues from it" in stopped.stderr
    most = 100
    for _ in range(2):
        assert call(*SMALL, "--front", "--results", file, "--json").stdout == plain
    assert (
        len(searched)
        == len({str(caps) for caps in searched})
        == 1 + len(json.loads(plain)["front"])
    )


def test_a_kept_search_is_printed_and_written_without_searching(tmp_path, monkeypatch):
    """What Ctrl-C ended is searched on from the best so far; what is finished is not; other inputs
    are refused.
    """
    monkeypatch.chdir(tmp_path)
    words = (*SMALL, "--placement", "auto", "--cap", "2", "--results", "kept.csv")
    plain, search, starts = (
        call(*words[:-2], "-o", "plain.csv").stdout,
        optimize.optimize,
        list[int](),
    )

    def ended(problems, known, *, seeds, **named):
        starts.append(len(seeds))
        return replace(search(problems, known, seeds=seeds, **named), interrupted=len(starts) == 1)

    monkeypatch.setattr(optimize, "optimize", ended)
    stopped = call(*words)
    assert "interrupted: the best so far is kept" in stopped.stdout
    assert "1 is kept in kept.csv: the same command continues from it" in stopped.stderr
    assert call(*words).stdout == call(*words, "-o", "kept-best.csv").stdout == plain
    assert (tmp_path / "kept-best.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    assert starts == [0, 1]
    for other in (
        ("--cap", "3"),
        ("--seed", "1"),
        ("--tf", "2"),
        ("--time-limit", "6"),
        ("--objective", "makespan"),
    ):
        error = call(*with_options(("optimize", *words), other)[1:]).exception
        assert isinstance(error, InputError)
        assert "the rows of 'kept.csv' were computed from other inputs" in str(error)


@pytest.mark.slow
def test_a_front_never_rises_and_ends_where_memory_helps_no_more(tmp_path):
    figure = tmp_path / "front.svg"
    result = call("--devices", "3", "--mb", "5", "--front", "--json", "-o", str(figure))
    rows = json.loads(result.stdout)["front"]
    assert [row["cap"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["span"] for row in rows] == sorted((row["span"] for row in rows), reverse=True)
    assert rows[-1]["span"] == found("--devices", "3", "--mb", "5")["span"]
    assert figure.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--mb", "8"), "the size is missing"),
        ((*SHAPE, "--mb-scale", "1,2,1,1,1,1,1,1"), "--mb-scale cannot be searched"),
        ((*SHAPE, "--chunks", "2"), "placement linear has one stage per device"),
        ((*SHAPE, "--tf", "1,2"), "tf has 2 values for 4 stages"),
        ((*SHAPE, "--tr", "2"), "--tr has no effect"),
        ((*SHAPE, "--front", "-o", "x.csv"), ""),
        ((*SHAPE, "--results", "x.csv", "-o", "x.csv"), "--results and -o name the same file"),
    ],
)
def test_what_cannot_be_searched_is_refused(words, message):
    error = call(*words).exception
    assert isinstance(error, InputError)
    assert message in str(error)


@pytest.mark.parametrize("option", ["--time-limit", "--cap", "--after-i"])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-1"])
def test_numbers_that_are_none_are_refused(option, number):
    result = call(*SHAPE, f"{option}={number}")
    assert result.exit_code == 2
    assert f"Invalid value for '{option}'" in result.stderr


@pytest.mark.slow
def test_time_that_ends_before_a_schedule_is_timed_is_said(monkeypatch):
    """One line, and no traceback, where the alarm rings in whatever would come first."""

    def ring(*asked, **given):
        raise deadline.TimeOver

    monkeypatch.setattr(problems, "build_schedule", ring)
    monkeypatch.setattr(engine, "collect", ring)
    error = call(*SHAPE).exception
    assert isinstance(error, PpsimError)
    assert (str(error), error.exit_code) == ("no schedule was timed before --time-limit ended", 1)


@pytest.mark.parametrize(
    ("bound", "solver", "interrupted", "noted", "ends"),
    [
        (
            12.0,
            True,
            False,
            "no schedule has a shorter span: optimal, proved",
            "found by: a search",
        ),
        (
            12.0,
            False,
            False,
            "no schedule has a shorter span: optimal, proved",
            "found by: a search",
        ),
        (
            9.0,
            True,
            False,
            "no schedule has a shorter span; this one is 25.0% above it at most",
            "found by: a search",
        ),
        (
            9.0,
            False,
            False,
            "this one is 25.0% above it at most",
            "a proof needs OR-tools: " + INSTALL_OPTIMIZE,
        ),
        (
            9.0,
            False,
            True,
            "this one is 25.0% above it at most",
            "interrupted: the best so far is kept",
        ),
    ],
)
def test_only_what_attains_its_bound_is_said_to_be_proved(bound, solver, interrupted, noted, ends):
    """One microbatch after the other, of two on two devices, takes 12."""
    problem = Problem(
        place("linear", 2, 2), 2, Costs(np.array([[1.0], [2], [1], [1]]) * np.ones(2)), cap=1.0
    )
    slow = evaluate(problem, write_in_turns(problem), "a search")
    assert slow.span == 12
    outcome = Outcome(
        problem, slow, bound, (NamedSolution(replace(slow, origin="x"), True),), solver, interrupted
    )
    texts = (
        "".join(part if isinstance(part, str) else part[0] for part in line.parts)
        for line in proof_lines(outcome)
    )
    (line,) = (text for text in texts if text.startswith("bound"))
    assert line.endswith(noted)
    assert sentences(outcome)[-1] == ends
    assert (
        sentences(outcome)[0]
        == "x, the best of the list that fits, has a span of 12: this is the same"
    )
    longer = replace(outcome, known=(NamedSolution(replace(slow, span=16.0, origin="x"), True),))
    assert sentences(longer)[0].endswith("has a span of 16: this is 25.0% less")


def test_without_the_solver_the_search_goes_on(monkeypatch):
    """A bound that is attained is a proof; else the line says what a proof needs."""
    monkeypatch.setitem(sys.modules, "ortools.sat.python", None)
    assert found(*SHAPE, "--cap", "4")["status"] == "optimal"
    text = call(
        "--devices", "3", "--mb", "4", "--tf", "8,2,5", "--ti", "1,9,4", "--time-limit", "0.3"
    ).stdout
    assert "a proof needs OR-tools: pip install 'ppsim-pipeline[optimize]'" in text


def test_speeds_and_links_count():
    """A device half as fast takes twice as long."""
    slow = found("--devices", "2", "--mb", "3", "--speed", "1,0.5", "--link", "0-1=3")
    same = found(
        "--devices", "2", "--mb", "3", "--tf", "1,2", "--ti", "1,2", "--tw", "1,2", "--comm", "3"
    )
    assert (slow["span"], slow["makespan"], slow["bound"]) == (
        same["span"],
        same["makespan"],
        same["bound"],
    )


def test_python_gets_the_schedule_with_its_times_and_proof(tmp_path):
    best = ask_optimize(devices=4, microbatches=8, cap=4, time_limit=ENDLESS)
    assert (best.makespan, best.span, best.bound, best.status) == (27, 27, 27, "optimal")
    assert best.timeline.makespan == best.makespan
    assert (best.schedule.n_devices, best.schedule.n_microbatches) == (4, 8)
    best.save(str(tmp_path / "best.csv"))
    assert invoke("run", str(tmp_path / "best.csv"), "-q").stdout.count("makespan 27 ") == 1


def test_python_gets_a_front_as_rows(tmp_path):
    """Of two devices and three microbatches: each alone 5 x 3, then 10, then no idle time at
    all.
    """
    front = ask_optimize(devices=2, mb=3, front=True, time_limit=ENDLESS)
    assert isinstance(front, Front)
    assert [(row["cap"], row["span"], row["status"]) for row in front.table] == [
        (1, 15, "optimal"),
        (2, 10, "optimal"),
        (3, 9, "optimal"),
    ]
    assert front.span == 9
    with pytest.raises(InputError, match="cannot be written"):
        front.save(str(tmp_path / "front.csv"))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "more", [["--offload"], ["--offload", "1"], ["--t-offload", "1"], ["--host-link", "55GB/s"]]
)
def test_copies_to_the_host_are_no_part_of_a_search(more, tmp_path, monkeypatch):
    """It is refused with what does it: the best order first, then the rule for copies."""
    monkeypatch.chdir(tmp_path)
    error = refused("optimize", *SHAPE, *more)
    assert f"{more[0]} is for copies to the host" in str(error)
    best, then = error.hint.split(", then ppsim ")
    assert "-o best.json" in best
    assert invoke("optimize", *SHAPE, "--time-limit", "1", "-o", "best.json").exit_code == 0
    words = then.replace("TIME", "0.5").split()
    kinds = json.loads(invoke(*words, "-o", "copied.json", "--json").stdout)
    assert kinds["makespan"] > 0
    assert "OFFLOAD" in json.loads((tmp_path / "copied.json").read_text())["ops"]["kind"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ts", "1"], "has no effect"),
        (["--cap", "1,2"], "one per device"),
        (["--cap", "0.5"], "the least that works"),
        (["--cap", "1,1,1,1", "--front"], "one number"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_searched(words, message, monkeypatch):
    monkeypatch.setattr("ppsim.questions.optimum.optimize.find_known", None)
    result = call(*SHAPE, *words)
    assert isinstance(result.exception, InputError | PpsimError)
    assert message in f"{result.exception} {result.exception.hint}"
