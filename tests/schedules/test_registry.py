"""Names and shapes: every spelling is found, and what is refused is told with numbers that work."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.errors import InputError, UnknownSchedule
from ppsim.schedules import Rule, families, find, generate, generate_once, recognise, shape_for
from ppsim.schedules.registry import CACHED_CELLS, MOST_CELLS, MOST_STAGES, schedule
from tests.cases import accepted

FLAGS = {"--mb": "microbatches", "--group-size": "group_size"}


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_spelling_is_found(family):
    """Name, title, aliases and torch's class find a schedule, in any case and punctuation."""
    spellings = [
        family.name,
        family.title,
        *family.aliases,
        *([family.torch] if family.torch else []),
    ]
    for spelling in spellings:
        for form in (
            spelling,
            spelling.upper(),
            spelling.replace("-", "_"),
            f" {spelling.replace('-', ' ')}. ",
        ):
            assert find(form) is family


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("Schedule1F1B", "1f1b"),
        ("1F1B", "1f1b"),
        ("ScheduleGPipe", "gpipe"),
        ("GPipe", "gpipe"),
        ("ScheduleInterleaved1F1B", "interleaved"),
        ("Interleaved1F1B", "interleaved"),
        ("ScheduleLoopedBFS", "looped-bfs"),
        ("LoopedBFS", "looped-bfs"),
        ("ScheduleDualPipeV", "dualpipe-v"),
        ("DualPipeV", "dualpipe-v"),
        ("ZB-H1", "zb-1p"),
        ("zb_1p", "zb-1p"),
        ("1f1b_interleave_overlap", "interleaved-overlap"),
        ("schedule_1f1b", "1f1b"),
    ],
)
def test_names_of_other_tools_are_found(spelling, name):
    """torch's class names, with and without Schedule before them, and other tools' names are
    aliases.
    """
    assert find(spelling).name == name


def test_three_numbers_that_do_not_fit_are_answered_too():
    with pytest.raises(InputError) as error:
        generate("dualpipe", devices=9, chunks=3, microbatches=1)
    assert error.value.hint == "--chunks 1 --devices 8 --mb 16"


def test_two_names_joined_by_a_comma_are_not_a_name():
    """Though "1F1B interleaved" is another spelling of interleaved 1F1B."""
    assert find("1F1B-interleaved").name == "interleaved"
    with pytest.raises(UnknownSchedule, match="not joined by commas") as error:
        find("1f1b,interleaved")
    assert error.value.hint == (
        "1f1b; for several, 1f1b interleaved as separate words, or "
        '["1f1b", "interleaved"] in Python'
    )


@pytest.mark.parametrize(
    "name", ["1f1b zb-1p", "1F1B  zb1p", "interleaved:2 zb-1p", " gpipe\tzbv "]
)
def test_two_names_in_one_text_are_not_guessed_at(name):
    """A text of several known names is not a misspelt one."""
    first, second = name.split()
    with pytest.raises(UnknownSchedule, match=r"(?m): names are separate arguments$") as error:
        find(name)
    assert error.value.hint == (
        f'{first}; for several, {first} {second} as separate words, or ["{first}", "{second}"] '
        "in Python"
    )


@pytest.mark.parametrize("name", ["1f1b qqqqqq", "the 1f1b"])
def test_words_that_are_not_all_names_are_one_unknown_name(name):
    with pytest.raises(UnknownSchedule) as error:
        find(name)
    assert "separate" not in f"{error.value} {error.value.hint}"


@pytest.mark.parametrize(
    ("typo", "name"), [("1f1bb", "1f1b"), ("dualpip", "dualpipe"), ("gpip", "gpipe")]
)
def test_a_typo_gets_the_name_that_was_meant(typo, name):
    """An unknown name is answered with the nearest, and with all of them."""
    with pytest.raises(
        UnknownSchedule, match=f"unknown schedule '{typo}'. Did you mean '{name}'?"
    ) as error:
        generate(typo, stages=4, microbatches=8)
    assert all(family.name in error.value.hint for family in families())


@pytest.mark.parametrize("name", ["", "???", "qqqqqq"])
def test_a_name_like_no_other_gets_no_guess(name):
    """No guess is made where nothing is near."""
    with pytest.raises(UnknownSchedule) as error:
        find(name)
    assert "Did you mean" not in str(error.value)


def test_a_spelling_is_registered_once():
    """Two schedules cannot share a spelling."""
    words: dict[str, Any] = dict.fromkeys(("title", "idea", "bubble", "peak", "paper"), "another")
    with pytest.raises(ValueError, match="'gpipe' is registered twice"):
        schedule("g-pipe", **words)(lambda shape: [])
    assert find("gpipe").title == "GPipe"
    with pytest.raises(UnknownSchedule):
        find("another")


@pytest.mark.parametrize(
    "name",
    [
        *("1f1b", "chimera", "hanayo", "bitpipe", "gis", "zb-v", "forward-only"),
        *("seq1f1b slices=2", "seq1f1b slices=3"),
    ],
)
def test_queues_are_recognised(name):
    """A schedule without its name is named again, with the slices of its sequences."""
    family, *options = name.split()
    numbers: dict[str, Any] = {
        option.partition("=")[0]: int(option.partition("=")[2]) for option in options
    }
    made = generate(family, devices=4, microbatches=6, **numbers)
    assert recognise(replace(made, name="custom")) == name


def test_other_training_is_never_suggested():
    """What keeps no gradients, uses old weights, cuts sequences or splits the vocabulary is no
    alternative.
    """
    others = {family.name for family in families() if not family.interchangeable}
    assert others == {
        "forward-only",
        "decode",
        "pipedream-2bw",
        "seq1f1b",
        "seq1f1b-zb",
        "slimpipe",
    } | {
        "1f1b-plus",
        "bpipe",
        "interlaced",
        "vocab-1",
        "vocab-2",
        "v-half-vocab-1",
        "v-half-vocab-2",
    }


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("1f1b", {"stages": 8, "devices": 4, "microbatches": 3}, "one stage per device"),
    ("1f1b", {"stages": 8, "chunks": 2, "microbatches": 3}, "one stage per device"),
    ("zb-1p", {"devices": 4, "chunks": 3, "microbatches": 3}, "one stage per device"),
    ("dualpipe", {"devices": 7, "microbatches": 20}, "an even number of devices"),
    ("dualpipe", {"devices": 7, "microbatches": 7}, "an even number of devices"),
    ("dualpipe", {"devices": 1, "microbatches": 1}, "an even number of devices"),
    ("dualpipe", {"devices": 8, "microbatches": 17}, "an even number of microbatches"),
    ("dualpipe", {"devices": 64, "microbatches": 10}, "at least 2P microbatches"),
    ("dualpipe", {"devices": 8, "chunks": 2, "microbatches": 8}, "one stage per device"),
    ("dualpipe-v", {"stages": 8, "microbatches": 3}, "at least 2P microbatches"),
    ("dualpipe-v", {"devices": 2, "chunks": 3, "microbatches": 9}, "two stages per device"),
    ("dualpipe", {"devices": 999_999, "microbatches": 199}, "an even number of devices"),
    (
        "interleaved",
        {"devices": 4, "chunks": 1, "microbatches": 8},
        "at least two stages per device",
    ),
    ("interleaved", {"devices": 4, "microbatches": 9, "rule": "torch"}, "torch"),
    ("interleaved", {"devices": 4, "microbatches": 9, "rule": "torch", "group_size": 3}, "torch"),
    ("interleaved", {"devices": 4, "microbatches": 5, "rule": "megatron"}, "megatron"),
    ("interleaved", {"devices": 256, "microbatches": 1000, "rule": "megatron"}, "megatron"),
    ("interleaved", {"devices": 4, "microbatches": 8, "group_size": 3}, "group size 3"),
    ("interleaved-overlap", {"devices": 5, "microbatches": 12, "group_size": 5}, "group size 5"),
    ("chimera", {"devices": 5, "microbatches": 8}, "an even number of devices"),
    ("bitpipe", {"devices": 4, "microbatches": 7}, "an even number of microbatches"),
    (
        "hanayo",
        {"devices": 4, "chunks": 3, "microbatches": 8},
        "an even number of stages per device",
    ),
    ("gis", {"devices": 8, "microbatches": 8, "group_size": 3}, "P/2 <= N <= P"),
    ("interleaved-zb", {"devices": 4, "microbatches": 8, "group_size": 3}, "min(P, M) <= N <= M"),
    ("seq1f1b", {"devices": 4, "microbatches": 8, "slices": 1}, "at least two slices"),
    ("slimpipe", {"devices": 8, "chunks": 2, "microbatches": 8, "slices": 4}, "at least P slices"),
    ("interleaved", {"devices": 400_000, "microbatches": 199, "group_size": 3}, "group size 3"),
]
CONTRADICTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("1f1b", {"stages": 8, "devices": 3, "microbatches": 3}, "8 stages do not fit 3 devices"),
    ("1f1b", {"stages": 2, "devices": 3, "microbatches": 3}, "2 stages do not fit 3 devices"),
    (
        "interleaved",
        {"stages": 8, "devices": 4, "chunks": 3, "microbatches": 4},
        "4 devices x 3 chunks = 12 stages",
    ),
    (
        "interleaved",
        {"stages": 7, "microbatches": 4},
        "7 stages do not fit interleaved, which has 2 per device",
    ),
    ("interleaved", {"stages": 1, "microbatches": 4}, "1 stages do not fit"),
    (
        "looped-bfs",
        {"stages": 8, "chunks": 3, "microbatches": 4},
        "8 stages do not fit looped-bfs, which has 3",
    ),
]


@pytest.mark.parametrize(("name", "numbers", "rule"), REFUSED + CONTRADICTIONS)
def test_a_refusal_names_the_rule_and_numbers_that_work(name, numbers, rule):
    """Every hint, given in place of what it names beside the other arguments, generates a
    schedule.
    """
    with pytest.raises(InputError) as error:
        generate(name, **numbers)
    assert rule in str(error.value)
    assert error.value.hint
    for hint in error.value.hint.split(" or "):
        changes = {
            FLAGS.get(flag, flag.strip("-")): int(value)
            for flag, value in re.findall(r"(--\S+) (\d+)", hint)
        }
        assert changes.keys() <= numbers.keys()
        tried = numbers | changes
        # as large as a test should build
        if tried["microbatches"] * tried.get("devices", tried.get("stages")) < 1e5:
            assert len(generate(name, **tried)) > 0


@pytest.mark.parametrize(
    ("works", "hint"),
    [((36, 164), "--mb 36 or --mb 164"), ((37, 163), "--mb 37 or --mb 163"), ((35, 165), "")],
)
def test_a_hint_reaches_64_numbers_either_way(works, hint):
    """Beyond multiples of the user's own numbers, numbers up to 64 away are tried, and no further
    ones.
    """
    choosy = replace(
        find("1f1b"), rules=(Rule("other microbatches", lambda shape: shape.microbatches in works),)
    )
    with pytest.raises(InputError, match="needs other microbatches") as error:
        shape_for(choosy, devices=4, microbatches=100)
    assert error.value.hint == hint


def test_the_hint_is_the_nearest():
    """Of the numbers that work, the next below and the next above are named."""
    with pytest.raises(InputError) as error:
        generate("interleaved", devices=4, microbatches=9, rule="torch")
    assert error.value.hint == "--devices 3 or --devices 5 or --mb 8 or --mb 10"


@pytest.mark.parametrize("value", [0, -1, -(10**30)])
@pytest.mark.parametrize("name", ["stages", "devices", "chunks", "microbatches", "group_size"])
def test_counts_are_positive(name, value):
    """Zero and negative counts are refused by name."""
    numbers: dict[str, Any] = {"devices": 4, "microbatches": 8, name: value}
    with pytest.raises(
        InputError, match=f"{name.replace('_', ' ')} must be at least 1, got {value}"
    ):
        generate("interleaved", **numbers)


def test_stages_or_devices_are_needed():
    """Chunks alone do not make a shape."""
    with pytest.raises(InputError, match="the number of stages is missing"):
        generate("interleaved", chunks=2, microbatches=8)


@pytest.mark.parametrize(
    "numbers",
    [
        {"stages": MOST_STAGES + 1, "microbatches": 1},
        {"stages": 2, "microbatches": MOST_CELLS // 2 + 1},
        {"devices": 10**9, "microbatches": 10**9},
        {"stages": 4, "microbatches": 10**30},
    ],
)
def test_absurd_sizes_are_refused(numbers):
    """What no memory holds is refused at once, before anything is built."""
    with pytest.raises(InputError, match="more than fits in memory"):
        generate("1f1b", **numbers)


def test_a_group_of_all_microbatches_is_megatrons_too():
    """P <= N <= M, both ends included."""
    for group in (2, 4):
        assert (
            len(
                generate(
                    "interleaved", devices=2, microbatches=4, rule="megatron", group_size=group
                )
            )
            == 4 * 4 * 2
        )


def test_the_largest_sizes_are_taken():
    """Up to the limits, a shape is described; only whole schedules must fit in memory."""
    largest = shape_for(find("looped-bfs"), devices=1, chunks=2, microbatches=MOST_CELLS // 2)
    assert largest.stages * largest.microbatches == MOST_CELLS
    assert shape_for(find("1f1b"), stages=MOST_STAGES, microbatches=1).devices == MOST_STAGES
    with pytest.raises(InputError, match="more than fits in memory"):
        shape_for(find("1f1b"), stages=MOST_STAGES + 1, microbatches=1)


@pytest.mark.parametrize(
    "family", [f for f in families() if not f.options], ids=lambda family: family.name
)
def test_options_of_other_schedules_are_refused(family):
    """A schedule takes its own options only."""
    shape = accepted(family.name)[0]
    numbers: dict[str, Any] = {
        "devices": shape.devices,
        "chunks": shape.chunks,
        "microbatches": shape.microbatches,
    }
    for option, value in (("group_size", 4), ("rule", "torch"), ("colour", "red")):
        with pytest.raises(InputError, match=f"{family.name} takes no {option.replace('_', ' ')}"):
            generate(family.name, **numbers | {option: value})
        assert len(generate(family.name, **numbers | {option: None})) > 0


def test_an_unknown_rule_is_refused():
    """A rule is torch's or Megatron's."""
    with pytest.raises(InputError, match="unknown rule"):
        generate("interleaved", devices=4, microbatches=8, rule="mine")


@pytest.mark.parametrize(
    ("numbers", "shape"),
    [
        ({"stages": 8}, (4, 2)),
        ({"devices": 4}, (4, 2)),
        ({"stages": 12, "chunks": 3}, (4, 3)),
        ({"stages": 12, "devices": 3}, (3, 4)),
        ({"devices": 4, "chunks": 3}, (4, 3)),
        ({"stages": 12, "devices": 4, "chunks": 3}, (4, 3)),
    ],
)
def test_any_two_numbers_set_the_third(numbers, shape):
    """Stages, devices and chunks: two determine the third, one takes the schedule's own chunks."""
    built = generate("interleaved", microbatches=4, **numbers)
    assert (built.n_devices, built.n_chunks) == shape


@pytest.mark.parametrize("family", families(), ids=lambda family: family.name)
def test_every_schedule_says_what_it_is(family):
    """Each has a title, three lines for a newcomer, its closed forms and where it comes from."""
    lines = len(family.idea.splitlines())
    assert lines == 3, f"idea of {family.name} has {lines} lines, not three"
    said = {"title", "bubble", "peak", "paper"}
    assert {name for name in said if not getattr(family, name)} == set(), family.name
    assert family.split == any((generate_any(family.name).kind == kind).any() for kind in (2, 3))


def generate_any(name):
    shape = accepted(name)[-1]
    return generate(
        name,
        devices=shape.devices,
        chunks=shape.chunks,
        microbatches=shape.microbatches,
        **shape.options,
    )


def test_a_small_schedule_is_generated_once_for_the_same_shape_and_costs():
    """Costs count where queues follow them, in any unit; a large schedule is not kept."""

    def generated(name, ti=1.0, mb=4, **options):
        costs = lambda schedule: costs_for(schedule, tf=1.0, ti=ti)  # noqa: E731
        return generate_once(name, devices=4, microbatches=mb, costs=costs, **options)

    def queues(schedule):
        return schedule.packed().tobytes()

    assert generated("1f1b") is generated("1F1B") is generated("1f1b", ti=9.0)
    assert generated("zb-auto") is generated("zb-auto")
    assert queues(generated("zb-auto", ti=0.1)) != queues(generated("zb-auto", ti=9.0))
    assert generated("zb-v", limit=8) is not generated("zb-v", limit=9)
    assert generated("1f1b", mb=8) is not generated("1f1b")
    assert generated("1f1b", mb=CACHED_CELLS // 4) is generated("1f1b", mb=CACHED_CELLS // 4)
    assert generated("1f1b", mb=CACHED_CELLS) is not generated("1f1b", mb=CACHED_CELLS)


def test_a_file_that_declares_another_schedule_of_a_name_gets_its_own_queues(tmp_path, monkeypatch):
    """As a process that runs on reads a user's file again."""
    from ppsim.schedules import registry

    old = find("gpipe")
    assert len(generate_once("gpipe", devices=2, microbatches=2)) == 8
    forwards = replace(old, generate=lambda shape: [np.zeros(1, np.int64)] * shape.devices)
    monkeypatch.setitem(registry._families, "gpipe", forwards)
    assert len(generate_once("gpipe", devices=2, microbatches=2)) == 2
