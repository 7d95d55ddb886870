"""Slices of sequences: the order that attention allows is proved, counted in costs, and carried by
files.
"""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule, place
from ppsim.core.slices import find_early_slices
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError, InvalidSchedule
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.read import read
from ppsim.inputs.profile.scale import parse_scale, parse_slice_scale
from ppsim.schedules import generate
from ppsim.show.files.document import Document, save
from tests.cases import accepted, build, drawn_queue

SLICED = ("seq1f1b", "seq1f1b-zb", "slimpipe")


def sliced(text: str, slices: int) -> Schedule:
    queue = drawn_queue(text)
    return Schedule.from_queues(
        "sliced", place("linear", 1, 1), int((queue >> 32).max()) + 1, [queue], slices
    )


@pytest.mark.parametrize("name", SLICED)
def test_forwards_follow_their_slices_and_backwards_reverse_them(name):
    """On every stage, for every accepted shape, by looking at each op alone."""
    for shape in accepted(name):
        schedule, place_of = build(name, shape), {}
        for op in range(len(schedule)):
            row = (
                int(schedule.stage[op]),
                int(schedule.microbatch[op]),
                Kind(schedule.kind[op]).name,
            )
            place_of[row] = op
        for (stage, unit, kind), op in place_of.items():
            if kind != "W" and (unit + 1) % shape.slices:
                later = place_of[stage, unit + 1, kind]
                assert (op < later) == (kind == "F"), (shape, stage, unit, kind)


@pytest.mark.parametrize(
    ("text", "slices", "early"),
    [
        ("F0.0 F0.1 B0.1 B0.0", 2, None),
        ("F0.1 F0.0 B0.1 B0.0", 2, "0F1 runs before the slice of its sequence that it needs, 0F0"),
        ("F0.0 F0.1 B0.0 B0.1", 2, "0B0 runs before the slice of its sequence that it needs, 0B1"),
        (
            "F0.0 F0.1 I0.0 I0.1 W0.1 W0.0",
            2,
            "0I0 runs before the slice of its sequence that it needs, 0I1",
        ),
        ("F0.0 F0.1 B0.0 B0.1", 1, None),
        ("F0.2 F0.3 F0.0 F0.1 B0.1 B0.0 B0.3 B0.2", 2, None),
        ("F0.0 F0.1 F0.2 B0.2 B0.1 B0.0", 2, "3 microbatches in slices of 2"),
    ],
)
def test_an_order_that_attention_forbids_is_no_schedule(text, slices, early):
    """A forward before the slice whose keys it reads, a backward before the one that gives it a
    gradient.
    """
    if early is None:
        assert sliced(text, slices).n_slices == slices
        return
    with pytest.raises(InvalidSchedule) as error:
        sliced(text, slices)
    assert str(error.value).startswith(f"sliced: {early}")


def test_check_finds_early_slices():
    """A draft of microbatches becomes faulty where they are slices of one sequence."""
    draft = Draft.from_schedule(sliced("F0.0 F0.1 B0.0 B0.1", 1))
    assert check(draft).valid
    (fault,) = check(replace(draft, n_slices=2)).faults
    assert (fault.kind, fault.device, fault.message) == (
        "order",
        0,
        "0B0 runs before 0B1, a slice of its sequence that it needs",
    )
    assert find_early_slices(draft.kind, draft.stage, draft.microbatch, 2, 2).tolist() == [[2, 3]]


def test_a_slice_costs_its_share_of_a_microbatch():
    """The work of a device is the same, whatever slices sequences are cut into."""
    for slices in (2, 4, 5):
        schedule = generate("seq1f1b", devices=4, microbatches=3, slices=slices)
        assert schedule.n_microbatches == 3 * slices
        assert schedule.whole_microbatches == 3
        work = np.bincount(schedule.device, costs_for(schedule, tf=2.0, tb=3.0).durations(schedule))
        assert work == pytest.approx([3 * 5.0] * 4)


def test_factors_of_microbatches_hold_for_all_their_slices():
    """As many factors as microbatches are theirs, even where there are as many slices; one for
    every slice is taken.
    """
    assert parse_scale(["1,2,3"], 6, 2)[Kind.F].tolist() == [1, 1, 2, 2, 3, 3]
    assert parse_scale(["2,1"], 4, 2)[Kind.F].tolist() == [2, 2, 1, 1]
    assert parse_scale(["1,2,3,4,5,6"], 6, 2)[Kind.B].tolist() == [1, 2, 3, 4, 5, 6]
    drawn = parse_scale(["uniform:0.5:3"], 6, 2)[Kind.F].reshape(3, 2)
    np.testing.assert_array_equal(drawn[:, 0], drawn[:, 1])
    with pytest.raises(InputError, match="2 factors for 3 microbatches of 2 slices") as caught:
        parse_scale(["1,2"], 6, 2)
    assert "--slice-scale" in caught.value.hint


@pytest.mark.parametrize("slices", [2, 4, 7])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_attention_grows_with_the_slices_before(slices, share):
    """Counted pair by pair: a token attends to those up to itself; the work of a sequence stays as
    it is.

    A forward is 1 - A of linear layers and A of attention; I has once the linear part and twice the
    attention, W once the linear part, and B is both.
    """
    grain = 200
    scale = parse_slice_scale([f"attention:{share}"], slices)
    pairs = np.arange(slices * grain).reshape(slices, grain).sum(axis=1) + grain / 2
    attention = share * pairs / pairs.mean()
    forward = 1 - share + attention
    np.testing.assert_allclose(scale[Kind.F], forward)
    np.testing.assert_allclose(scale[Kind.R], forward)
    np.testing.assert_allclose(scale[Kind.I] * (1 + share), 1 - share + 2 * attention)
    np.testing.assert_allclose(scale[Kind.W], 1)
    np.testing.assert_allclose(scale[Kind.B] * 2, 2 * forward)
    np.testing.assert_allclose(scale.mean(axis=1), 1)


def test_slices_take_factors_for_all_kinds_or_for_some():
    scale = parse_slice_scale(["0.5,1.5", "W=1,3"], 2)
    assert scale[[Kind.F, Kind.B, Kind.W]].tolist() == [[0.5, 1.5], [0.5, 1.5], [1, 3]]
    assert parse_slice_scale(["F=attention:50%"], 2)[[Kind.F, Kind.B]].tolist() == [
        [0.75, 1.25],
        [1, 1],
    ]
    assert parse_slice_scale(["attention"], 2, share=0.5)[Kind.F].tolist() == [0.75, 1.25]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2,3", "3 factors for 2 slices"),
        ("attention", "the share of attention in a forward's time is not known"),
        ("attention:2", "not a share of attention"),
        ("attention:x", "not a share of attention"),
        ("-1,1", "zero or more"),
        ("nothere.txt", "nothere.txt"),
    ],
)
def test_factors_of_slices_that_are_none_are_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_slice_scale([text], 2)


def test_json_carries_slices_and_csv_says_that_it_does_not(tmp_path):
    schedule = generate("slimpipe", devices=2, chunks=2, microbatches=2, slices=3)
    document = Document((simulate(schedule, costs_for(schedule)),), ("SlimPipe",))
    save(document, str(tmp_path / "x.json"))
    back = read(str(tmp_path / "x.json"))
    assert back.n_slices == 3
    assert back.schedule().n_slices == 3
    with pytest.raises(InputError, match="slices of sequences, which torch's CSV cannot express"):
        save(document, str(tmp_path / "x.csv"))
    text = (tmp_path / "x.json").read_text().replace('"slices":3', '"slices":4')
    (tmp_path / "y.json").write_text(text)
    with pytest.raises(InputError, match="6 microbatches are not a multiple of 4 slices"):
        read(str(tmp_path / "y.json"))
