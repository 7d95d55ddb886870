"""The table of op kinds, and what follows from it."""

from itertools import product

import numpy as np
import pytest

from ppsim.core.ops import BACKWARDS, COMPUTE, LETTERS, OF_STAGE, RECEIVES, SENDS, TIMED, Kind
from ppsim.engine.lowering.lower import lower
from ppsim.schedules import generate
from tests.cases import PLAIN


def test_the_table_describes_every_kind():
    """Kinds that compute come first, as their code is their row of costs; each has one letter,
    colour and legend.
    """
    assert tuple(Kind(code) for code in range(len(COMPUTE))) == COMPUTE
    # by stream; then what lowering adds
    assert tuple(Kind(code) for code in range(len(TIMED))) == TIMED
    # compiled code relies on it
    assert sorted((*SENDS, *RECEIVES)) == list(range(len(TIMED), len(TIMED) + 4))
    assert len(LETTERS) == len(COMPUTE)
    assert all(kind.info.colour and kind.info.legend and kind.info.works_on for kind in COMPUTE)
    assert {kind.name for kind in SENDS} == {"SEND_F", "SEND_B"}
    assert [kind.name.replace("RECV", "SEND") for kind in RECEIVES] == [kind.name for kind in SENDS]
    assert {kind.name for kind in OF_STAGE} == {
        "UNSHARD",
        "RESHARD",
        "REDUCE_GRAD",
        "WAIT_REDUCE_GRAD",
    }
    assert [kind.name for kind in BACKWARDS] == ["B", "I"]
    # they move nothing between stages
    assert [kind.info.direction for kind in OF_STAGE] == [0] * len(OF_STAGE)


def test_an_activation_is_freed_once():
    """F allocates, B frees; of a split backward W, or I where asked for."""
    for name, release in product(("1f1b", "zb-1p"), (Kind.W, Kind.I)):
        schedule = generate(name, devices=2, microbatches=2)
        changes = schedule.activation_changes(release)
        for kind in COMPUTE:
            wanted = {Kind.F: 1, Kind.B: -1, release: -1}.get(kind, 0)
            assert (changes[schedule.kind == kind] == wanted).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLAIN)
def test_masks_and_pairs_of_lowered_queues(name):
    """Masks equal what the names of kinds say op by op; a pair's second op follows its first and
    does not lead.
    """
    queues = lower(
        generate(name, devices=4, microbatches=8), "torch", unshard=2, reduce_grad=True
    ).schedule
    names = [Kind(kind).name for kind in queues.kind]
    assert queues.computes.tolist() == [name in LETTERS for name in names]
    assert queues.communicates.tolist() == [name.startswith(("SEND", "RECV")) for name in names]
    assert (queues.first_of_pairs + 1 == queues.second_of_pairs).all()
    assert (queues.pair[queues.first_of_pairs] == queues.second_of_pairs).all()
    assert np.flatnonzero(~queues.leads).tolist() == queues.second_of_pairs.tolist()
    for op in range(len(queues)):
        assert queues.members(op) == ((op,) if queues.pair[op] < 0 else (op, queues.pair[op]))
