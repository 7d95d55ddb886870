"""``ppsim model -o``: the drawn split of a layer adds up to what the tables of the same command
count.
"""

import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest

import ppsim
from ppsim.questions.plans.model import ModelCost
from ppsim.show.drawing.canvas import figure_settings
from ppsim.show.drawing.layer_map import figure_of
from ppsim.workload.cost.costs import schedule_of
from ppsim.workload.cost.tensor_split import Collective, layer_splits
from ppsim.workload.cost.volumes import sent_bytes
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.model import kinds_of, read_model
from ppsim.workload.model.parallel import Parallel
from ppsim.workload.plans.split_chart import layer_name
from tests.commands import answer, invoke, refused

PRODUCT = re.compile(
    r'<br/>|"(?:GPU 0[^<]*<br/>)?(?P<name>[^<"]+): (?P<way>column-parallel|row-parallel|by groups '
    r"of heads|by experts"
    r"|whole)<br/>(?P<held>[^<]+?)(?: of (?P<whole>[^<]+)|, all of it)<br/>"
)
ALONE = {  # all layers on a stage of their own, so that its parameters are those of layers
    "llama3-70b": ("E|t*80|L", ["--tp", "8"]),
    "gpt3-175b": ("E|t*96|L", ["--tp", "4", "--cp", "2"]),
    "mixtral-8x7b": ("E|t*32|L", ["--tp", "2", "--ep", "8", "--dp", "4"]),
    "deepseek-v2": ("E|t*60|L", ["--tp", "4", "--ep", "8", "--dp", "2"]),
    "kimi-linear-48b-a3b": ("E|t*27|L", ["--tp", "4", "--ep", "4"]),
    "nemotron-3-nano": ("E|t*52|L", ["--tp", "8", "--ep", "8"]),
    "qwen3-next-80b-a3b": ("E|t*48|L", ["--tp", "8"]),
}


def drawn(*words):
    code, out, err = answer("model", *words, "-o", "-", "--format", "mmd")
    assert code == 0, err
    return out


def weights(text):
    return (
        eval(text.replace(",", "").replace("x", "*"), {})
        if re.fullmatch(r"[\d,x ()]+", text)
        else -1
    )


def split_of(chart):
    """Read a flowchart: by name of a kind of layer its products (way, held, whole weights), facts
    and collectives.
    """
    found = {}
    for part in chart.split("subgraph ")[1:]:
        (name,) = re.findall(r'^\w+\["([^":]+): ', part)
        rows = [
            (
                each["name"],
                each["way"],
                weights(each["held"]),
                weights(each["whole"] or each["held"]),
            )
            for line in part.splitlines()
            for each in PRODUCT.finditer(line)
            if each["name"]
        ]
        (others,) = re.findall(r"the like, ([\d,]+) in all", part)
        (counted,) = re.findall(r"with them a GPU has ([\d,]+) parameters", part)
        seconds = re.findall(r"its forward of a microbatch takes ([\d.,]+) ms", part)
        found[name] = {
            "rows": rows,
            "others": int(others.replace(",", "")),
            "counted": int(counted.replace(",", "")),
            "ms": float(*seconds),
            "text": part,
        }
    return found


def counts_of(model):
    return Counter(layer_name(layer) for layer in kinds_of(read_model(model)))


@pytest.mark.parametrize("model", ALONE)
def test_drawn_weights_add_up_to_the_parameters_of_the_table(model):
    layout, ranks = ALONE[model]
    sizes = dict(zip(ranks[::2], map(int, ranks[1::2]), strict=True))
    total = 0.0
    for name, split in split_of(drawn(model, *ranks)).items():
        held = sum(held for _, _, held, _ in split["rows"])
        assert min(whole for *_, whole in split["rows"]) > 0
        # norms are copied, and biases and the like divided
        beside = split["counted"] - held
        assert split["others"] // sizes["--tp"] <= beside <= split["others"]
        total += counts_of(model)[name] * split["counted"]
    table = json.loads(
        invoke("model", model, *ranks, "--pp", "3", "--layout", layout, "--json").stdout
    )
    assert total == pytest.approx(table["stages"][1]["parameters"], rel=1e-8)


@pytest.mark.parametrize("model", ["llama3-70b", "mixtral-8x7b", "nemotron-3-nano"])
def test_drawn_times_add_up_to_the_forward_of_the_table(model):
    layout, ranks = ALONE[model]
    words = [model, *ranks, "--cluster", "dgx-h100"]
    total = sum(
        counts_of(model)[name] * split["ms"] for name, split in split_of(drawn(*words)).items()
    )
    table = json.loads(invoke("model", *words, "--pp", "3", "--layout", layout, "--json").stdout)
    assert total == pytest.approx(table["stages"][1]["f_ms"], rel=1e-3)  # drawn with four digits


def test_a_dense_layer_is_cut_by_columns_then_by_rows():
    """Megatron-LM's way (arXiv 1909.08053, figure 3), counted by hand: 64 heads of 128, 8 of keys
    and values, tp 4.
    """
    rows = split_of(drawn("llama3-70b", "--tp", "4"))["attention + MLP"]["rows"]
    assert rows == [
        ("query, key, value", "column-parallel", 8192 * 2560, 8192 * 10240),
        ("attention output", "row-parallel", 2048 * 8192, 8192 * 8192),
        ("MLP in", "column-parallel", 8192 * 14336, 8192 * 57344),
        ("MLP out", "row-parallel", 7168 * 8192, 28672 * 8192),
    ]


def test_collectives_join_the_products_with_and_without_sequence_parallelism():
    """8,192 tokens of 8,192 numbers in 16 bits are 128 MiB; of four ranks each sends three quarters
    of a gather.
    """
    chart = drawn("llama3-70b", "--tp", "4")
    order = re.findall(r"all-gather|reduce-scatter|all-reduce|column-parallel|row-parallel", chart)
    assert list(dict.fromkeys(order)) == [
        "all-gather",
        "column-parallel",
        "row-parallel",
        "reduce-scatter",
    ]
    assert chart.count("128 MiB<br/>each sends 96 MiB") == 4


def test_without_sequence_parallelism_a_sum_takes_as_much_as_both():
    summed = drawn("llama3-70b", "--tp", "4", "--software", "megatron-deepspeed")
    assert summed.count("all-reduce over 4 tensor-parallel GPUs") == 2
    assert summed.count("128 MiB<br/>each sends 192 MiB") == 2
    assert "all-gather" not in summed


@pytest.mark.parametrize("changes", [{}, {"sequence_parallel": False}, {"precision": "fp8"}])
def test_a_forward_sends_what_volumes_count_for_it(changes):
    """Of five gathers of a block two are a forward's, of four without sequence parallelism two;
    three are narrowed.
    """
    model, machine, parallel = (
        read_model("llama3-8b"),
        read_machine("dgx-h100"),
        Parallel(tp=8, **changes),
    )
    (split,) = layer_splits(model, parallel, machine)
    sent = 32 * sum(part.sent for part in split.parts if isinstance(part, Collective))
    whole = sent_bytes(model, machine, parallel, schedule_of("1f1b", 1, 1, 1))["tp"].sum()
    share = {"sequence_parallel": 2 / 4, "precision": 1.5 / 3.5, "": 2 / 5}["".join(changes)]
    assert sent == pytest.approx(share * whole)


def test_experts_are_whole_and_their_tokens_travel():
    (split,) = split_of(drawn("mixtral-8x7b", "--tp", "2", "--ep", "4", "--dp", "2")).values()
    ways = {name: (way, held, whole) for name, way, held, whole in split["rows"]}
    assert ways["experts in"] == ("by experts", 2 * 4096 * 28672, 8 * 4096 * 28672)
    assert ways["router"] == ("whole", 4096 * 8, 4096 * 8)
    assert split["text"].count("all-to-all over 4 expert-parallel GPUs") == 2


def test_copies_are_said():
    """Of 8 heads of keys and values on 16 ranks each holds one: twice an even share."""
    chart = drawn("llama3-70b", "--tp", "16")
    more = 8192 * 2 * 128 / 2
    assert f"{more:,.0f} of the weights are copies of what other GPUs hold" in chart
    assert "each of 8 heads of keys and values is on 2 GPUs" in chart
    assert "copies" not in drawn("llama3-70b", "--tp", "8")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["llama3-8b"], "needs --tp or --ep above 1", "--tp 8"),
        (["llama3-8b", "--tp", "1"], "needs --tp or --ep above 1", "--tp 8"),
        (["llama3-8b", "--tp", "3"], "32 heads do not divide over tp = 3", "--tp 2"),
        (
            ["nemotron-3-nano", "--tp", "16"],
            "8 groups of states do not divide over tp = 16",
            "--tp 8",
        ),
        (
            ["deepseek-v4-flash", "--tp", "16"],
            "8 groups of heads do not divide over tp = 16",
            "--tp 8",
        ),
        (["dgx-h100", "--tp", "2"], "no model 'dgx-h100'", ""),
        (["dgx-h100"], "needs --tp or --ep above 1", "--tp"),
        ([], "the model is missing", "llama3-70b"),
        (
            ["llama3-8b", "--tp", "2", "--cluster", "dgx-h100", "--profile", "x.toml"],
            "--profile",
            "leave one",
        ),
    ],
)
def test_what_has_no_split_is_refused(tmp_path, words, message, hint):
    error = refused("model", *words, "-o", str(tmp_path / "split.svg"))
    assert message in str(error)
    assert hint in str(error.hint)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", ["csv", "json", "tex", "gif"])
def test_a_format_without_a_picture_is_refused(tmp_path, suffix):
    assert "how layers are split cannot be written" in str(
        refused("model", "llama3-8b", "--tp", "2", "-o", str(tmp_path / f"split.{suffix}"))
    )


def test_the_page_and_the_figure_say_what_the_flowchart_says(tmp_path):
    words = ["deepseek-v3", "--tp", "4", "--ep", "8", "--dp", "2", "--cluster", "dgx-h100"]
    svg, page = tmp_path / "split.svg", tmp_path / "split.html"
    assert invoke("model", *words, "-o", str(svg), "-o", str(page)).exit_code == 0
    texts = " ".join(ElementTree.parse(svg).getroot().itertext())
    table, chart = page.read_text(), drawn(*words)
    boxes = re.findall(r'\["(?:GPU 0[^<]*<br/>)?([^"]*)"\]|\{\{"([^"]*)"\}\}', chart)
    details = {
        detail
        for box in boxes
        for detail in "".join(box).split("<br/>")
        if not detail.startswith("GPU ")
    }
    facts = [
        each
        for each in details
        if each.startswith(("each GPU holds", "its forward", "the all-gather of"))
    ]
    facts += [each for each in details if "are copies" in each or "attention + " in each]
    parts = details - set(facts)
    assert len(parts) > 40
    assert [part for part in parts if part not in texts] == []
    assert [part for part in parts if part not in table] == []


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("width", ["3.3", "6.75"])
def test_no_text_of_the_figure_lies_over_another(width):
    """On the left of the next text, or above it, whatever the width."""
    found = ppsim.model("deepseek-v3", tp=4, ep=8, dp=2, cluster="dgx-h100")
    assert isinstance(found, ModelCost)
    with figure_settings(".png"):
        figure = figure_of(found.drawing.panels(), float(width))
        figure.canvas.draw()
        boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
        inside = figure.bbox
    assert len(boxes) > 60
    assert all(box.x0 >= 0 and box.x1 <= inside.width and box.y0 >= 0 for box in boxes)
    for place, box in enumerate(boxes):
        for other in boxes[place + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across < 0.5 or down < 3, (box, other)
