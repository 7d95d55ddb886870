"""Megatron's flags make the layouts that Megatron builds with them, and layouts become flags."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.errors import InputError
from ppsim.workload.layout.flags import Flags, flags_of, layout_from
from ppsim.workload.layout.layout import build_layout, read_layout

SPLITS = {
    Flags(8, 4): [2, 2, 2, 2],
    Flags(8, 2, 2): [2, 2, 2, 2],
    Flags(30, 4, last=6): [8, 8, 8, 6],
    Flags(14, 4, first=2, last=4): [2, 4, 4, 4],
    Flags(6, 2, first=2, last=4): [2, 4],
    Flags(4, 4, first=2, last=2): [2, 0, 0, 2],
    Flags(8, 3, 2, first=4, last=4): [2, 0, 2, 2, 0, 2],
    Flags(4, 3, last=4): [0, 0, 4],
    Flags(16, 4, 2, first=2, last=6): [1, 2, 2, 3, 1, 2, 2, 3],
    Flags(14, 4, account_embedding=True, account_loss=True): [3, 4, 4, 3],
    Flags(15, 4, 2, account_embedding=True): [1, 2, 2, 2, 2, 2, 2, 2],
    Flags(14, 4, 2, account_embedding=True, account_loss=True): [1, 2, 2, 2, 2, 2, 2, 1],
}


@pytest.mark.parametrize("flags", SPLITS, ids=str)
def test_flags_split_layers_as_megatron_does(flags):
    """Device by device the layers that get_num_layers_to_build gives, its chunks in model order."""
    found = layout_from(flags)
    assert list(found.layers) == SPLITS[flags]
    assert (found.n_devices, found.n_chunks) == (flags.devices, flags.chunks)


@pytest.mark.parametrize("flags", SPLITS, ids=str)
def test_a_layout_that_flags_can_say_becomes_flags(flags):
    """The flags found make the same layout; they may be others of the same meaning."""
    said = flags_of(layout_from(flags))
    assert "--pipeline-model-parallel-layout" not in said
    assert layout_from(parse(said)) == layout_from(flags)


def test_flags_that_say_nothing_are_left_out():
    """One stage per device, as many layers on each: nobody would write more."""
    assert str(Flags(8, 4)) == "--pipeline-model-parallel-size 4 --num-layers 8"
    assert str(Flags(8, 4, 2)).endswith(" --num-virtual-stages-per-pipeline-rank 2")


def parse(text: str) -> Flags:
    names = {
        "--num-layers": "num_layers",
        "--pipeline-model-parallel-size": "devices",
        "--num-virtual-stages-per-pipeline-rank": "chunks",
        "--mtp-num-layers": "mtp",
        "--decoder-first-pipeline-num-layers": "first",
        "--decoder-last-pipeline-num-layers": "last",
    }
    words = text.split()
    values: dict[str, Any] = {
        names[word]: int(words[i + 1]) for i, word in enumerate(words) if word in names
    }
    for word, name in (("embedding", "account_embedding"), ("loss", "account_loss")):
        values[name] = f"--account-for-{word}-in-pipeline-split" in words
    return Flags(**values)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8), st.integers(1, 4), st.integers(0, 2))
def test_flags_found_for_any_layout_make_that_layout(per_stage, chunks, mtp):
    layout = build_layout(per_stage * chunks, len(per_stage), mtp)
    said = flags_of(layout)
    if "--pipeline-model-parallel-layout" in said:
        assert f"'{layout}'" in said
    else:
        assert layout_from(parse(said)) == layout


@pytest.mark.parametrize(
    ("flags", "rule"),
    [
        (Flags(9, 4), "even-devices"),
        (Flags(8, 4, 3), "even-chunks"),
        (Flags(9, 4, account_embedding=True), "even-devices"),
        (Flags(12, 2, 4, account_embedding=True, account_loss=True), "even-chunks"),
        (Flags(9, 4, first=2), "middle-devices"),
        (Flags(11, 4, first=0), "end-layers"),
        (Flags(11, 4, last=-1), "end-layers"),
        (Flags(12, 4, 2, first=3), "end-chunks"),
        (Flags(11, 4, 2, first=2), "middle-chunks"),
        (Flags(3, 4, first=2, last=2), "middle-layers"),
        (Flags(4, 2, first=1, last=2), "middle-layers"),
        (Flags(4, 1, last=2), "middle-layers"),
        (Flags(4, 1, first=2, last=2), "middle-layers"),
        (Flags(1, 4, first=2), "middle-layers"),
        (Flags(8, 4, first=2, account_loss=True), "one-way-to-split"),
    ],
    ids=lambda value: str(value),
)
def test_flags_that_megatron_refuses_are_refused_by_name(flags, rule):
    with pytest.raises(InputError, match=rf"\(rule {rule}\)") as refused:
        layout_from(flags)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("flags", "nearest"),
    [
        (Flags(30, 4), "Et*8|t*8|t*7|t*7L"),
        (Flags(9, 4, account_embedding=True), "Ett|t*3|tt|ttL"),
        (Flags(8, 4, 3), "E" + "t|" * 8 + "|||L"),
        (Flags(30, 4, first=7), "Et*7|t*8|t*8|t*7L"),
        (Flags(12, 4, 2, first=3), "Ett|(tt|)*3(t|)*3tL"),
        (Flags(1, 4, account_embedding=True, account_loss=True), None),
    ],
    ids=lambda value: str(value),
)
def test_layers_that_do_not_divide_are_answered_with_the_nearest_layout(flags, nearest):
    """The remainder goes to the first stages."""
    with pytest.raises(InputError) as refused:
        layout_from(flags)
    if nearest is None:
        assert "layout '" not in refused.value.hint
        return
    assert read_layout(nearest).n_layers == flags.num_layers
    assert refused.value.hint.endswith(f"or the layout '{read_layout(nearest)}'")


@pytest.mark.parametrize(
    ("flags", "what", "near"),
    [
        (Flags(30, 4), "--num-layers: 30 does not divide over 4 devices", "28 or 32 there"),
        (Flags(3, 4), "--num-layers: 3 does not divide over 4 devices", "4 there"),
        (
            Flags(9, 4, account_embedding=True),
            "counted: 10 does not divide over 4 devices",
            "8 or 12 there",
        ),
        (
            Flags(20, 4, 3),
            "the layers of a device: 5 does not divide over 3 chunks",
            "3 or 6 there",
        ),
    ],
)
def test_a_number_that_does_not_divide_is_answered_with_those_around_it(flags, what, near):
    with pytest.raises(InputError) as refused:
        layout_from(flags)
    assert what in str(refused.value)
    assert refused.value.hint.startswith(f"{near}, or ")
