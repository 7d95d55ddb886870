"""A what-if is the run with the same change: every key, as a number, for one stage, as a factor, of
every family.
"""

import json
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from ppsim.cli import group
from ppsim.schedules import find
from tests.cases import PLAIN
from tests.commands import invoke, refused, with_options

P, M = 4, 8
DEFAULTS = {
    "tf": 1.0,
    "tb": 2.0,
    "ti": 1.0,
    "tw": 1.0,
    "comm": 0.25,
    "speed": 1.0,
    "tfb": 3.0,
    "tr": 1.0,
}
LAYOUT = [
    "--layout",
    "Ettt|tt|tt|tL",
    "--t-layer",
    "1,1,2,1,1,1,1,1",
    "--t-head",
    "1.5",
    "--t-embedding",
    "0.5",
]


def ask(command: str, *words: str) -> object:
    """The makespan, or that the call is refused."""
    result = CliRunner().invoke(group, [command, *words, "--json"])
    if result.exception and not isinstance(result.exception, SystemExit):
        assert hasattr(result.exception, "hint"), result.exception
        return "refused"
    found = json.loads(result.stdout)
    return found["what_if"][0]["makespan"] if command == "explain" else found["makespan"]


def written(values: list[float]) -> str:
    return ",".join(map(repr, values))


@st.composite
def changes(draw):
    """A family, a change of one of its costs, and the words with which a run states it."""
    family = draw(st.sampled_from(PLAIN))
    key = draw(st.sampled_from([*DEFAULTS, "link"]))
    value = draw(st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    if key == "link":
        device, arrow = draw(st.integers(0, P - 2)), draw(st.sampled_from("->"))
        link = f"{device}{arrow}{device + 1}"
        number = draw(st.booleans())
        then = value if number else DEFAULTS["comm"] * value
        return family, f"link.{link}={'' if number else 'x'}{value}", ["--link", f"{link}={then}"]
    form = (
        draw(st.sampled_from(["number", "factor", "place", "place factor"]))
        if key != "comm"
        else "number"
    )
    count = P * find(family).chunks if key != "speed" else P
    place = draw(st.integers(0, count - 1))
    many, scaled = form.startswith("place"), form.endswith("factor")
    then = DEFAULTS[key] * value if scaled else value
    values = [then if each == place else DEFAULTS[key] for each in range(count)] if many else [then]
    return family, f"{key}{f'.{place}' * many}={'x' * scaled}{value}", [f"--{key}", written(values)]


def same(family: str, change: str, words: list[str]) -> None:
    base = [family, "--devices", str(P), "--mb", str(M), "--comm", "0.25"]
    kept = [*base[:-2], *words] if words[0] == "--comm" else [*base, *words]
    ran, changed = ask("run", *kept), ask("explain", *base, "--what-if", change)
    assert changed == (
        ran if isinstance(ran, str) or isinstance(changed, str) else pytest.approx(ran)
    ), (change, words)


@given(changes())
@example(("1f1b-overlap", "tfb=x1.0", ["--tfb", "3.0"]))
@example(("1f1b", "tr.0=1.0", ["--tr", "1.0"]))
@example(("1f1b", "speed=1.0", ["--speed", "1.0"]))
def test_a_change_is_the_run_with_the_same_change(made):
    same(*made)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "family", ["zb-v", "zb-auto", pytest.param("v-auto", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("link.0-1=2", ["--link", "0-1=2"]),
        ("link.2>3=x8", ["--link", "2>3=2"]),
        ("tw=x2", ["--tw", "2"]),
        ("comm=1.5", ["--comm", "1.5"]),
        ("speed.2=0.5", ["--speed", "1,1,0.5,1"]),
    ],
)
def test_queues_that_follow_costs_follow_the_change(family, change, words):
    same(family, change, words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("tf=2", ["--tf", "2"]),
        ("tb=x1.5", ["--tb", "3"]),
        ("ti.1=3", ["--ti", "1,3,1,1"]),
        ("tw.3=x3", ["--tw", "1,1,1,3"]),
        ("tf=1,2,1,1,comm=1", ["--tf", "1,2,1,1", "--comm", "1"]),
        ("mb=12,speed=2", ["--mb", "12", "--speed", "2"]),
        ("schedule=zb-1p,mb=12", ["-s", "zb-1p", "--mb", "12"]),
        ("schedule=interleaved,group-size=4", ["-s", "interleaved", "--group-size", "4"]),
        ("cost-per=stage,chunks=1", ["--cost-per", "stage"]),
        ("mb-scale=1,2,1,1,1,1,1,1", ["--mb-scale", "1,2,1,1,1,1,1,1"]),
        ("p2p=blocking,comm=0.5", ["--p2p", "blocking", "--comm", "0.5"]),
        ("recompute=yes,tr=2", ["--recompute", "--tr", "2"]),
        ("link.0-1=2,link.1>2=x4", ["--link", "0-1=2", "--link", "1>2=1"]),
    ],
)
def test_keys_are_options_of_run(change, words):
    base = ["--devices", "4", "--mb", "8", "--comm", "0.25"]
    name = [] if "-s" in words else ["1f1b"]
    assert ask("explain", "1f1b", *base, "--what-if", change) == ask(
        *with_options(("run", *name, *base), words)
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ts.2=x3", ["--ts", "1,1,3,1", "--t-collective", "0.5"]),
        ("ts=x0.5", ["--ts", "0.5", "--t-collective", "0.5"]),
        ("tt=2", ["--ts", "1", "--tt", "2", "--t-collective", "0.5"]),
        ("t-collective=x2", ["--ts", "1", "--t-collective", "1"]),
    ],
)
def test_times_beside_compute_change_too(change, words):
    base = ["vocab-2", "--devices", "4", "--mb", "8"]
    given = ["--ts", "1", "--t-collective", "0.5"]
    assert ask("explain", *base, *given, "--what-if", change) == ask("run", *base, *words)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("family", ["1f1b", "zb-auto"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("t-head=3", ["--t-head", "3"]),
        ("t-head=x2", ["--t-head", "3"]),
        ("t-embedding=x3", ["--t-embedding", "1.5"]),
        ("t-layer.2=1", ["--t-layer", "1"]),
        ("t-layer=x2", ["--t-layer", "2,2,4,2,2,2,2,2"]),
        ("b-over-f=x1.5", ["--b-over-f", "3"]),
        ("tb=x1.5", ["--b-over-f", "3"]),
        ("comm=x2", ["--comm", "0.5"]),
        ("layout=Ett|ttt|tt|tL", ["--layout", "Ett|ttt|tt|tL"]),
    ],
)
def test_layers_are_options_of_run(family, change, words):
    """A layout's times change by their own options, and a stage's by what follows of them."""
    base = [family, "--mb", "8", "--comm", "0.25", *LAYOUT]
    assert ask("explain", *base, "--what-if", change) == pytest.approx(
        ask(*with_options(("run", *base), words))
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", ["1f1b", "zb-auto"])
def test_costs_of_a_file_with_times_follow(family, tmp_path):
    """What a file states is changed as the options that made it are, B with its halves."""
    path = str(tmp_path / "run.json")
    words = [family, "--devices", "4", "--mb", "8", "--comm", "0.25"]
    assert CliRunner().invoke(group, ["run", *words, "-q", "-o", path]).exit_code == 0
    for change, option in (("tf.1=x2", ["--tf", "1,2,1,1"]), ("link.0-1=2", ["--link", "0-1=2"])):
        found = json.loads(
            CliRunner().invoke(group, ["run", path, "--comm", "0.25", *option, "--json"]).stdout
        )
        assert ask("explain", path, "--what-if", change) == pytest.approx(found["makespan"])
    assert ask("explain", path, "--what-if", "schedule=zb-auto,tf.1=x3,tw=0.5") == pytest.approx(
        ask("run", "zb-auto", *words[1:], "--tf", "1,3,1,1", "--ti", "1", "--tw", "0.5")
    )
    assert ask("explain", path, "--what-if", "t-head=2") == "refused"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("command", ["run", "compare", "memory", "explain", "jitter", "sweep"])
def test_slices_take_their_factors_wherever_costs_are_given(command):
    """Longer later slices change what every command says; a schedule that cuts nothing refuses
    them.
    """
    shape = ["--devices", "4", "--mb", "4", "--json"]
    words = ["seq1f1b", *shape, *(["--samples", "50"] if command == "jitter" else [])]
    texts = []
    for scale in ("1,1,1,1", "attention:0.4", "0.7,0.9,1.1,1.3"):
        result = CliRunner().invoke(group, [command, *words, "--slice-scale", scale])
        assert result.exit_code == 0, result.output
        texts.append(json.dumps({**json.loads(result.stdout), "inputs": None}))
    assert texts[0] != texts[1] == texts[2]  # 1 + 0.4 ((2k + 1)/4 - 1)
    for name in ("1f1b", "gpipe"):
        refused = (
            CliRunner()
            .invoke(group, [command, name, *words[1:], "--slice-scale", "attention:0.4"])
            .exception
        )
        assert f"--slice-scale has no effect: {name} has no slices" in str(refused)


def test_slices_are_timed_as_one_factor_for_each_of_all():
    """K factors are M x K of --mb-scale, over those of the microbatches; a what-if is a run with
    them.
    """
    words = ["seq1f1b", "--devices", "4", "--mb", "2", "--slices", "3"]
    both = ask("run", *words, "--slice-scale", "1,2,3", "--mb-scale", "2,1")
    assert both == ask("run", *words, "--mb-scale", "2,4,6,1,2,3")
    assert both == ask("explain", *words, "--mb-scale", "2,1", "--what-if", "slice-scale=1,2,3")
    assert ask("run", *words, "--mb-scale", "2,1") == ask(
        "run", *words, "--mb-scale", "2,2,2,1,1,1"
    )


@pytest.mark.parametrize(
    "words", [["1f1b", "--mb", "6"], ["seq1f1b", "--mb", "4", "--slices", "2"]]
)
def test_an_order_found_is_in_the_object_with_its_makespan(words):
    """Given in that order, the microbatches take the makespan that it says."""
    factors = [2.0, 0.5, 2.0, 0.5, 1.0, 3.0][: int(words[2])]
    words = [*words, "--devices", "4"]
    result = CliRunner().invoke(
        group, ["run", *words, "--mb-scale", written(factors), "--reorder", "--json"]
    )
    found = json.loads(result.stdout)["reorder"]
    assert sorted(found["order"]) == list(range(len(factors)))
    moved = [factors[each] for each in found["order"]]
    assert found["makespan"] == pytest.approx(ask("run", *words, "--mb-scale", written(moved)))
    assert found["makespan"] <= json.loads(result.stdout)["makespan"]


def test_the_times_of_a_model_are_changed_where_they_are_made():
    """A model on a cluster gives all times, so a factor of one op edits them, as of a profile."""
    model = ("--model", "llama2-7b", "--cluster", "dgx-h100", "--tp", "2")
    shape = ("explain", "1f1b", *model, "--devices", "4", "--mb", "8", "--json")

    def makespan(change: str) -> float:
        (row,) = json.loads(invoke(*shape, "--what-if", change).stdout)["what_if"]
        return float(row["makespan"])

    same = makespan("tf=x1,tb=x1")
    assert makespan("tf=x2,tb=x2") == pytest.approx(2 * same, rel=1e-3)
    assert same < makespan("tf.1=x2") < makespan("tf=x2")


def test_one_link_of_a_model_is_changed_as_all_are():
    """A slower link costs time, a share of what all links cost; a bandwidth is refused, and so is a
    recompute, with the option that a model has for it.
    """
    model = ("--model", "llama2-7b", "--cluster", "dgx-h100", "--tp", "2")
    shape = ("explain", "1f1b", *model, "--devices", "4", "--mb", "8", "--json")

    def explained(change: str) -> Any:
        return json.loads(invoke(*shape, "--what-if", change).stdout)

    def makespan(change: str) -> float:
        (row,) = explained(change)["what_if"]
        return float(row["makespan"])

    one, both = makespan("link.0>1=20"), makespan("link.0-1=20")
    assert explained("comm=20")["makespan"] < one < both < makespan("comm=20")
    links = ",".join(f"link.{at}-{at + 1}=20" for at in range(3))
    assert makespan(links) == pytest.approx(makespan("comm=20"))
    assert makespan("link.0-1=x100") > makespan("link.0-1=x1")
    said = refused(*shape, "--what-if", "link.0-1=20,25GB/s")
    assert "not a time: '20,25GB/s'" in str(said)
    hint = refused(*shape, "--what-if", "recompute=full").hint
    assert hint.endswith("with a model it is --recomputes full or selective")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("tf=2,tf=3", "--what-if tf=2,tf=3: the same is set twice"),
        ("tf.1=2,tf=1,tf.1=x2", "--what-if tf.1=2,tf.1=x2: the same is set twice"),
        ("link.0-1=2,link.0-1=3", "--what-if link.0-1=2,link.0-1=3: the same is set twice"),
        ("t-layer.0=2", "--t-layer needs --layout"),
        ("t-layer=2", "--t-layer needs --layout"),
        ("speed.1=0.5,chunked=4096,law=1,0,1,0", "--speed has no effect: --chunked gives"),
        ("link.0-1=1,chunked=4096,law=1,0,1,0", "--link has no effect: --chunked gives"),
    ],
)
def test_changes_that_leave_each_other_without_effect_are_refused(change, says):
    """Of a stage, a device, a layer or a link too, as options of all are."""
    shape = ("--devices", "2", "--mb", "4")
    family = "forward-only" if "chunked" in change else "gpipe"
    assert says in str(refused("explain", family, *shape, "--what-if", change))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tf.1=3,tf=2", "tf=2,tf.1=3"),
        ("tf=3,layout=Et|tL", "layout=Et|tL,tf=3"),
        ("tf.1=x2,layout=Et|tL", "layout=Et|tL,tf.1=x2"),
        ("t-layer.1=3,layout=Et|tL", "layout=Et|tL,t-layer=1,t-layer.1=3"),
        ("speed.0=0.5,speed=2", "speed=2,speed.0=0.5"),
    ],
)
def test_the_order_of_a_change_does_not_matter(one, other):
    """A time of a stage goes over that of all, and both over a layout's; each has its effect."""
    shape = ("gpipe", "--devices", "2", "--mb", "4", "--comm", "0.25", "--what-if")
    whole, *_ = other.rpartition(",")
    made = [ask("explain", *shape, change) for change in (one, other, whole)]
    assert made[0] == made[1]
    assert made[0] not in (made[2], "refused")


def test_options_that_are_repeated_may_be_repeated_in_a_change():
    shape = ("gpipe", "--devices", "2", "--mb", "4", "--what-if")
    factors = "mb-scale=F=1,1,1,2,mb-scale=B=1,2,1,1"
    words = ("--mb-scale", "F=1,1,1,2", "--mb-scale", "B=1,2,1,1")
    assert ask("explain", *shape, factors) == ask("run", *shape[:-1], *words)


@pytest.mark.parametrize(
    ("change", "links"),
    [
        ("link.0-1=3", ["0-1=3", "1-2=5"]),
        ("link.0>1=3", ["0>1=3", "1>0=2", "1-2=5"]),
        ("link.2-1=3", ["0-1=2", "1-2=3"]),
    ],
)
def test_a_link_of_the_run_is_replaced_in_the_directions_of_the_change(change, links):
    shape = ("1f1b", "--devices", "3", "--mb", "4")
    before = [word for link in ("0-1=2", "1-2=5") for word in ("--link", link)]
    changed = invoke("explain", *shape, *before, "--what-if", change, "--json")
    after = invoke("run", *shape, *(word for link in links for word in ("--link", link)), "--json")
    found = json.loads(changed.stdout)["what_if"][0]["makespan"]
    assert found == json.loads(after.stdout)["makespan"]
