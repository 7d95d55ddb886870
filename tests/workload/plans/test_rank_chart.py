"""The layout of ranks is read as it is written; what is not one is refused with one message."""

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.errors import InputError
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.parallel import RANK_ORDERS, Parallel
from ppsim.workload.plans.rank_chart import parse_ranks
from ppsim.workload.plans.ranks import flowchart, rank_grid
from tests.commands import answer, invoke, refused

H100 = read_machine("dgx-h100")
SIZES = st.integers(1, 9)
ORDERS = st.sampled_from(sorted(set(RANK_ORDERS.values())))
CHART = flowchart(H100, Parallel(tp=2, pp=2, dp=2))
LARGE = flowchart(H100, Parallel(tp=4, cp=2, pp=8, dp=6, rank_order="tp-cp-ep-pp-dp"))


@given(tp=SIZES, cp=SIZES, pp=SIZES, dp=SIZES, order=ORDERS)
def test_what_is_written_is_read(tp, cp, pp, dp, order):
    """Sizes always; the order where two groups are numbered, else the first, which numbers
    alike.
    """
    parallel = Parallel(tp=tp, cp=cp, pp=pp, dp=dp, rank_order=order)
    found = parse_ranks(flowchart(H100, parallel), "x")
    assert (found.tp, found.cp, found.pp, found.dp) == (tp, cp, pp, dp)
    again = Parallel(tp=tp, cp=cp, pp=pp, dp=dp, rank_order=found.rank_order)
    assert (rank_grid(again) == rank_grid(parallel)).all()
    assert found.rank_order == order or 1 in (pp, dp)


@given(data=st.data(), chart=st.sampled_from([CHART, LARGE]))
def test_another_number_of_a_rank_is_refused(data, chart):
    numbers = re.findall(r"rank (\d+)<", chart)
    old, new = data.draw(st.sampled_from(numbers)), str(data.draw(st.integers(0, 200)))
    if old != new:
        with pytest.raises(InputError) as error:
            parse_ranks(chart.replace(f'["rank {old}<', f'["rank {new}<'), "x")
        assert re.match(r"x, line \d+: (this rank was drawn|rank \d+ lies at)", str(error.value))


@given(data=st.data(), chart=st.sampled_from([CHART, LARGE]))
def test_a_flowchart_without_a_line_is_refused_or_reads_the_same(data, chart):
    """Arrows and directions say nothing of ranks; without any other line something is missing."""
    lines = chart.splitlines()
    place = data.draw(st.integers(0, len(lines) - 1))
    text = "\n".join(lines[:place] + lines[place + 1 :])
    plain = re.search(r"direction|-->|<-\.->", lines[place])
    if plain:
        assert parse_ranks(text, "x") == parse_ranks(chart, "x")
    else:
        with pytest.raises(InputError):
            parse_ranks(text, "x")


@given(
    text=st.text(alphabet='flowchart LR\nsubgraph D0["data replica 0"]P%&|<->123;end', max_size=300)
)
def test_any_text_is_read_or_refused(text):
    for each in (text, f"flowchart LR\n{text}", CHART + text):
        with contextlib.suppress(InputError):
            assert parse_ranks(each, "x").gpus >= 1


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tensor 1", "tensor one", "line 6: not part of a flowchart of ranks"),
        (
            'R1["rank 1<br/>tensor 1"]',
            'R1["rank 1<br/>tensor 0"]',
            "line 6: this place was drawn in line 5",
        ),
        ('R1["rank 1<', 'R1["rank 0<', "line 6: this rank was drawn in line 5"),
        (
            'P1["pipeline device 1',
            'P1["pipeline device 0',
            "pipeline device 0 of data replica 0 again",
        ),
        ('D1["data replica 1', 'D1["data replica 0', "data replica 0 again"),
        ('"pipeline device 1', '"pipeline device 2', "pipeline device 1 of 3 is not drawn"),
        ('"data replica 1"', '"data replica 99999999"', "data replica 1 of 100000000 is not drawn"),
        ("flowchart LR", "gantt", "is not a flowchart"),
        (
            "rank 7<",
            "rank 8<",
            "rank 8 lies at data replica 1, pipeline device 1, context 0, tensor 1",
        ),
        ("end\n", "", "not part of a flowchart of ranks"),
        (
            "    direction LR\n",
            "    direction LR\n" + '    subgraph a["b"]\n' * 3,
            "not part of a flowchart of ranks",
        ),
        (
            "flowchart LR\n",
            'flowchart LR\nR9["rank 9<br/>tensor 0"]\n',
            "a rank outside of a pipeline device",
        ),
        ('R1["rank 1<br/>tensor 1"]', 'M["99999999 more"]', "has 100000000 of 2 ranks"),
    ],
)
def test_a_wrong_flowchart_is_refused_by_its_first_fault(tmp_path, old, new, message):
    assert old in CHART
    file = tmp_path / "ranks.mmd"
    file.write_text(CHART.replace(old, new))
    code, out, err = answer("model", "llama3-8b", "--rank-order", str(file))
    assert code == 2
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert out == ""


def test_counts_that_contradict_what_is_drawn_are_refused():
    said = "of 6 replicas and 8 pipeline devices"
    for wrong, message in (
        ("of 7 replicas and 8", "7 data replicas"),
        ("of 6 replicas and 9", "9 pipeline devices"),
    ):
        with pytest.raises(InputError, match=message):
            parse_ranks(LARGE.replace(said[: len(wrong)], wrong), "x")


def test_a_huge_flowchart_is_refused_before_it_is_split(tmp_path):
    file = tmp_path / "ranks.mmd"
    file.write_text(CHART + "\n" * 3_000_000)
    code, _, err = answer("read", str(file))
    assert code == 2
    assert "memory" in err


def test_read_gives_sizes_and_order(tmp_path):
    file = tmp_path / "ranks.mmd"
    file.write_text(LARGE)
    found = json.loads(invoke("read", str(file), "--json").stdout)
    assert {
        name: found[name] for name in ("format", "gpus", "tp", "cp", "pp", "dp", "rank_order")
    } == {
        "format": "ranks",
        "gpus": 384,
        "tp": 4,
        "cp": 2,
        "pp": 8,
        "dp": 6,
        "rank_order": "tp-cp-ep-pp-dp",
    }
    assert "384 GPUs: tp 4, cp 2, pp 8, dp 6" in invoke("read", str(file)).stdout
    assert "--unit" in str(refused("read", str(file), "--unit", "us"))


PLAN = [
    "plan",
    "--model",
    "llama3-8b",
    "--cluster",
    "dgx-h100",
    "--gbs",
    "64",
    "--mbs",
    "1",
    "--schedules",
    "1f1b",
]


def test_a_plan_is_drawn_read_and_planned_again(tmp_path):
    """The flowchart that a plan writes fixes the sizes of the next plan, and a model takes it as
    its own options.
    """
    file = str(tmp_path / "ranks.mmd")
    first = json.loads(invoke(*PLAN, "--gpus", "16", "--tp", "4", "--pp", "2", "--json").stdout)[
        "plans"
    ]
    assert invoke(*PLAN, "--gpus", "16", "--tp", "4", "--pp", "2", "-o", file).exit_code == 0
    again = json.loads(invoke(*PLAN, "--rank-order", file, "--json").stdout)["plans"]
    sizes = {(row["tp"], row["cp"], row["pp"], row["dp"]) for row in again}
    assert len(sizes) == 1
    assert (again[0]["tp"], again[0]["pp"]) == (4, 2)
    assert again[0]["step_s"] == pytest.approx(first[0]["step_s"])
    options = [
        "--tp",
        "4",
        "--pp",
        "2",
        "--dp",
        "2",
        "--mb",
        "8",
        "--cluster",
        "dgx-h100",
        "--json",
    ]
    typed = json.loads(invoke("model", "llama3-8b", *options).stdout)
    named = json.loads(invoke("model", "llama3-8b", *options[6:], "--rank-order", file).stdout)
    assert named["stages"] == typed["stages"]
    assert named["step"] == typed["step"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model", "llama3-8b", "--tp", "4"], "has tp 2, and --tp differs"),
        ([*PLAN, "--gpus", "16"], "has 8 ranks, and --gpus is 16"),
        ([*PLAN, "--pp", "4,8"], "has pp 2, and --pp differs"),
    ],
)
def test_sizes_that_contradict_the_file_are_refused(tmp_path, words, message):
    file = tmp_path / "ranks.mmd"
    file.write_text(CHART)
    assert message in str(refused(*words, "--rank-order", str(file)))


def test_a_word_that_is_neither_an_order_nor_a_file_is_refused():
    error = refused("model", "llama3-8b", "--rank-order", "pp-first")
    assert "not an order of ranks, nor a file: 'pp-first'" in str(error)
    assert "tp-pp-dp" in str(error.hint)
