"""Drafts: queues that were read and not yet proved."""

from dataclasses import replace

import numpy as np

from ppsim.core.draft import Draft
from ppsim.core.schedule import NONE
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.schedules import generate


def names(draft: Draft) -> list[str]:
    return [draft.label(op) for op in range(len(draft))]


def partners(draft: Draft) -> dict[str, str]:
    """The ops of pairs, and with which they are paired."""
    own = names(draft)
    return {own[op]: own[draft.pair[op]] for op in np.flatnonzero(draft.pair != NONE)}


def test_an_op_that_moves_takes_no_pair_apart():
    """Forward and back: the op is where it was asked to be, all others in their order, and pairs
    keep their ops.
    """
    draft = Draft.from_schedule(generate("1f1b-overlap", devices=2, microbatches=4))
    before = names(draft)
    assert before[:8] == ["0F0", "0F1", "0F2", "0F3", "0B0", "0B1", "0B2", "0B3"]
    assert partners(draft)["0F3"] == "0B0"
    early, late = draft.move(7, 5), draft.move(0, 3)
    assert names(early) == [*before[:5], "0B3", "0B1", "0B2", *before[8:]]
    assert names(late) == ["0F1", "0F2", "0F0", *before[3:]]
    assert partners(early) == partners(late) == partners(draft)


def test_a_schedule_has_the_name_that_its_draft_states():
    made = generate("1f1b", devices=2, microbatches=2)
    assert Draft.from_schedule(made).schedule().name == "1f1b"
    assert Draft.from_schedule(replace(made, name="")).schedule().name == "custom"


def test_a_cell_is_shown_in_its_own_line():
    """With carets under its text, blanks left out; a row that is not there shows nothing."""
    draft = parse("0F0,0F1,0B0,0B1\n 1F0 ,1B0, 1F1,1B1", "x.csv")
    first, second = draft.lines
    assert draft.excerpt(1, 1) == (first, "^^^")
    assert draft.excerpt(1, 4) == (first, " " * 12 + "^^^")
    assert draft.excerpt(2, 1) == (second, " ^^^")
    assert draft.excerpt(2, 2) == (second, " " * 6 + "^^^")
    assert draft.excerpt(2, 3) == (second, " " * 11 + "^^^")
    assert draft.excerpt(2, 2, around=1) == ("...,1B0,...", " " * 4 + "^^^")
    assert draft.excerpt(0, 1) == draft.excerpt(3, 1) == ("", "")
