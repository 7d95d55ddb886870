"""Layout strings mean what Megatron reads in them, and are refused where it refuses."""

import ast
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsim
from ppsim.errors import InputError
from ppsim.workload.layout import text as written
from ppsim.workload.layout.layout import MOST_STAGES, build_layout, nearest_layout, read_layout
from ppsim.workload.layout.text import format_content, parse_content

CASES = json.loads((Path(__file__).parents[2] / "data" / "layouts" / "megatron.json").read_text())
STAGE = st.text("EtmL", max_size=6)


def unroll(text: str) -> list[str]:
    """Expand a string by two substitutions, one for brackets without brackets inside, one for
    single characters.
    """
    text = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found[1] * int(found[2]), text)
    return text.split("|")


@pytest.mark.parametrize(
    ("text", "stages", "nearest"),
    [
        ("Et|t|ttttttttL", 4, ["Et", "t", "ttttt", "tttL"]),  # the largest stage in halves
        ("Et|t|ttttttttL", 3, ["Et", "t", "ttttttttL"]),  # as it is
        ("Et|t|ttttttttL", 2, ["Ett", "ttttttttL"]),  # the smallest two together
    ],
)
def test_the_nearest_layout_changes_as_few_stages_as_it_must(text, stages, nearest):
    assert unroll(nearest_layout(text, 1, stages).strip("'")) == nearest


@pytest.mark.parametrize("case", CASES["accepted"], ids=lambda case: case["layout"])
def test_layouts_of_the_field_are_read(case):
    found = read_layout(case["layout"], case["devices"], case["layers"], case["mtp"])
    assert found.content == tuple(unroll(case["layout"]))
    assert (found.n_stages, found.n_layers, found.n_mtp) == (
        case["stages"],
        case["layers"],
        case["mtp"],
    )
    assert found.n_chunks == case["stages"] // case["devices"]


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["layout"])
def test_layouts_that_the_field_refuses_are_refused(case):
    with pytest.raises(InputError, match=rf"rule {case['rule']}\)"):
        read_layout(case["layout"], case["devices"])


@given(st.lists(STAGE, min_size=1, max_size=40).map(tuple))
def test_what_is_written_is_read_again_as_the_same_here_and_by_megatron(content):
    text = format_content(content)
    assert parse_content(text) == content == tuple(unroll(text))
    assert set(text) <= set("EtmL|()*0123456789")


TREES = st.recursive(
    st.sampled_from(["t", "E", "|", "m", ""]), lambda x: st.tuples(x, x, st.integers(0, 3))
)


@given(TREES)
def test_brackets_may_hold_brackets_and_spaces_mean_nothing(tree):
    """A tree of repeats, written with nested brackets, is read as what it expands to."""

    def write(node):
        return (
            node if isinstance(node, str) else f"{write(node[0])} , (t{write(node[1])})*{node[2]}\n"
        )

    def expand(node):
        return (
            node if isinstance(node, str) else expand(node[0]) + ("t" + expand(node[1])) * node[2]
        )

    assert parse_content(write(tree)) == tuple(expand(tree).split("|"))


@pytest.mark.parametrize(
    ("text", "devices", "rule", "nearest"),
    [
        ("Et|ttt|L", 2, "stage-count", "'Et|tt|t|L'"),
        ("t|tL", 2, "embedding-first", "'Et|tL'"),
        ("Et|t", 2, "loss-last", "'Et|tL'"),
        ("Et|EtL", 2, "one-embedding", "'Et|tL'"),
        ("Et|tL|tL", 3, "loss-slots", "'Et|t|tL'"),
        ("Et|tL|tmmL", 3, "loss-slots", "'Et|tL|tmmLL'"),
        ("EtL|tL|tmmmmL", 3, "loss-slots", "'EtL|tLL|tm*4LL'"),
        ("Et|m|tL", 3, "mtp-after-layers", "'Et||tmL'"),
        ("Et|tm|t|L", 2, "mtp-after-layers", "'Et|t|t|mL'"),
        ("Et|tm||L", 2, "mtp-last-chunk", "'Et|t||mL'"),
        ("", 1, "embedding-first", "'EL'"),
        ("EtL", 0, "stage-count", "--devices 1 or more"),
    ],
)
def test_each_rule_is_named_with_the_nearest_layout_that_works(text, devices, rule, nearest):
    with pytest.raises(InputError, match=rf"\(rule {rule}\)") as refused:
        read_layout(text, devices)
    assert refused.value.hint == nearest
    if nearest.startswith("'"):
        read_layout(nearest.strip("'"), devices)


COUNT = st.none() | st.integers(0, 9)


@given(st.lists(STAGE, min_size=1, max_size=12).map(tuple), st.integers(1, 6), COUNT, COUNT)
def test_every_layout_that_a_hint_names_works(content, devices, layers, mtp):
    """Whatever is refused, the layout in the hint is accepted on as many devices, for the model's
    counts.
    """
    error = refusal(format_content(content), devices, layers, mtp)
    if error:
        assert error.hint.startswith("'"), (content, devices)
        read_layout(error.hint.strip("'"), devices, layers, mtp)


def refusal(text: str, devices: int, layers: int | None, mtp: int | None) -> InputError | None:
    try:
        read_layout(text, devices, layers, mtp)
    except InputError as error:
        return error
    return None


def test_a_count_that_is_not_the_models_is_refused_with_the_nearest_layout():
    hints = {}
    for name, layers, mtp in (
        ("more", 5, None),
        ("many", 9, None),
        ("fewer", 2, None),
        ("mtp", None, 2),
    ):
        with pytest.raises(InputError, match=r"rule (layer|mtp)-count") as refused:
            read_layout("Et|tt|L", layers=layers, mtp=mtp)
        hints[name] = refused.value.hint
    assert hints == {
        "more": "'Et*3|tt|L'",
        "many": "'Et*5|t*4|L'",
        "fewer": "'Et|t|L'",
        "mtp": "'Et|tt|mmL'",
    }


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Et*|L", "character 3 .*needs a number"),
        ("Ex|L", "character 2 .*not a layer: 'x'"),
        ("Ee|L", "character 2 .*not a layer: 'e'"),
        ("(E|L", "character 1 .*not closed"),
        ("E)L", "character 2 .*closes no bracket"),
        ("(t)|L", r"character 1 .*needs \*n"),
        ("t*2*3", "character 4 .*cannot be repeated"),
        ("E()*3L", "character 2 .*is empty"),
        ("*3", "character 1 .*before it"),
        ("Et*99999999999|L", "more than 1,000,000 letters"),
        ("((((t*999)*999)*999)*999)*999", "more than 1,000,000 letters"),
        ("(" * 100, "50 deep"),
    ],
)
def test_what_is_no_layout_is_refused_where_it_goes_wrong(text, what):
    with pytest.raises(InputError, match=what):
        read_layout(text)


LISTED = [  # of Megatron-Bridge's recipes and tests: in Python, JSON, and as a shell leaves them
    (
        '[["embedding"] + ["decoder"] * 8] + [["decoder"] * 8] * 6 + [["decoder"] * 5 + ["loss"]]',
        "Et*8|(t*8|)*6t*5L",
    ),
    ('[["embedding","decoder"],["decoder","decoder"],["decoder","loss"]]', "Et|tt|tL"),
    ("[['embedding'], ['decoder'] * 2, [], ['decoder', 'mtp', 'loss'],]", "E|tt||tmL"),
    ("[[embedding,decoder],[decoder,loss]]", "Et|tL"),
    (' [["embedding"],\n ["decoder"] * 3, ["mtp"] * 1, ["loss"]]\n', "E|t*3|m|L"),
]


@pytest.mark.parametrize(("text", "string"), LISTED)
def test_lists_of_words_are_read_as_the_string_of_their_letters(text, string):
    assert read_layout(text) == read_layout(string)


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            '[["embedding","decodr"],["loss"]]',
            "character 15 .*not a layer: 'decodr'",
            '"decoder" for that word',
        ),
        (
            '[["E","decoder"],["loss"]]',
            "character 3 .*not a layer: 'E'",
            '"embedding" for that word',
        ),
        (
            '[["vision"],["loss"]]',
            "character 3 .*not a layer: 'vision'",
            "embedding, decoder, mtp, loss",
        ),
        ('["embedding","decoder","loss"]', "each stage must be one list", "such as [["),
        (
            '[[["embedding"],["decoder"]],[["decoder"],["loss"]]]',
            "all first chunks, then all second",
            "such as [[",
        ),
        ("[]", "each stage must be one list", "such as [["),
        ('[["embedding"]', "character 1 .*this is not a list", "such as [["),
        ('[["embedding"] - ["loss"]]', "character 2 .*only words", "such as [["),
        ('[["embedding"], "loss" * 2]', "character 17 .*only words", "such as [["),
        ("[__import__('os').getcwd()]", "character 2 .*only words", "such as [["),
        (
            '[["embedding"] * 99999999]',
            "character 2 of the layout: this makes more than 1,000,000 letters",
            "a smaller number",
        ),
        ('[["decoder"] * 1000] * 99999', "more than 1,000,000 letters", "a smaller number"),
        ("[" * 9999, "this is not a list", "such as [["),
        ("[[embedding]" + "+[decoder]" * 9999 + "]", "this is not a list", "such as [["),
        ('[["decoder"],["loss"]]', r"rule embedding-first\)", "'Et|L'"),
    ],
)
def test_lists_that_are_no_layout_are_refused_with_what_is_near(text, what, hint):
    with pytest.raises(InputError, match=what) as refused:
        read_layout(text)
    assert hint in refused.value.hint


def test_layers_per_stage_make_a_layout():
    assert str(build_layout([3, 2, 2, 1], 2, mtp=1)) == "Et*3|tt|tt|tmL"
    assert str(build_layout([0, 2, 0], 3)) == "E|tt|L"
    for wrong in ([], [-1, 2]):
        with pytest.raises(InputError, match="layers per stage"):
            build_layout(wrong, 1)


def test_a_hint_is_searched_for_up_to_so_many_stages():
    """Of a layout without its loss; for one stage more none is."""
    for stages, hint in ((MOST_STAGES, "'Et|(t|)*998tL'"), (MOST_STAGES + 1, "")):
        with pytest.raises(InputError) as refused:
            read_layout("E" + "t|" * (stages - 1) + "t", stages)
        assert refused.value.hint == hint


def test_a_list_makes_as_many_letters_as_it_may_and_no_more(monkeypatch):
    """Two words five times are ten."""
    text = '["decoder", "mtp"] * 5'
    parsed = ast.parse(text, mode="eval").body
    monkeypatch.setattr(written, "MOST_LETTERS", 10)
    assert written._evaluate(text, parsed) == ["t", "m"] * 5
    monkeypatch.setattr(written, "MOST_LETTERS", 9)
    with pytest.raises(InputError, match="more than 9 letters"):
        written._evaluate(text, parsed)


@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 10**9, "devices": 4},
        {"num_layers": 10**18, "devices": 4, "chunks": 2},
        {"num_layers": 8, "devices": 4, "mtp_num_layers": 10**18},
        {
            "num_layers": 10**9,
            "devices": 4,
            "decoder_first_pipeline_num_layers": 10**9 - 3,
            "decoder_last_pipeline_num_layers": 1,
        },
        {"layers_per_stage": [999_999_999, 1]},
    ],
)
def test_layers_that_no_memory_holds_are_refused_before_they_are_listed(options):
    with pytest.raises(InputError, match=r"layers are too many$"):
        ppsim.layout(**options)
