"""What a writer writes is read back as it was, op for op and slice for slice, or it is not
written.
"""

import io

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.recompute import add_recompute
from ppsim.core.rounds import repeat_rounds
from ppsim.core.schedule import Schedule
from ppsim.core.steps import add_optimizer
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import parse, readable
from ppsim.schedules import generate
from ppsim.search.rules.offload import add_offload
from ppsim.show.files.document import Document, abilities_of, formats


def offloaded(schedule: Schedule) -> Schedule:
    """With copies of all activations."""
    return add_offload(schedule, costs_for(schedule), 1)


def of_steps(
    name: str, *, barrier: bool = True, gathers: bool = False, reduces: bool = False
) -> Schedule:
    """Two training steps, each with its optimizer step."""
    one = generate(name, devices=2, microbatches=4)
    return repeat_rounds(add_optimizer(one, barrier=barrier, gathers=gathers, reduces=reduces), 2)


CASES = {
    "plain": lambda: generate("1f1b", devices=2, microbatches=3),
    "split": lambda: generate("zb-v", devices=2, microbatches=4),
    "sliced": lambda: generate("seq1f1b", devices=2, microbatches=2, slices=4),
    "sliced and split": lambda: generate("seq1f1b-zb", devices=2, microbatches=2, slices=2),
    "sliced stages": lambda: generate("slimpipe", devices=2, chunks=2, microbatches=2, slices=2),
    "sliced, recomputed": lambda: add_recompute(
        generate("seq1f1b", devices=2, microbatches=2, slices=2)
    ),
    "paired": lambda: generate("dualpipe-v", devices=2, microbatches=4),
    "two replicas": lambda: generate("dualpipe", devices=2, microbatches=4),
    "two replicas, unpaired": lambda: generate("chimera", devices=4, microbatches=4),
    "recomputed": lambda: add_recompute(generate("interleaved", devices=2, microbatches=4)),
    "forwards only": lambda: generate("forward-only", devices=2, microbatches=3),
    "offloaded": lambda: offloaded(generate("zb-1p", devices=2, microbatches=3)),
    "vocabulary": lambda: generate("vocab-1", devices=2, microbatches=4),
    "two of a pair": lambda: generate("bpipe", devices=4, microbatches=4),
    "on all devices": lambda: generate("1f1b-plus", devices=2, microbatches=2),
    "steps": lambda: of_steps("1f1b"),
    "steps with collectives": lambda: of_steps("interleaved", gathers=True, reduces=True),
    "steps without a barrier": lambda: of_steps("zb-1p", barrier=False),
    "steps that never flush": lambda: of_steps("pipedream-2bw", barrier=False),
    "decoding": lambda: repeat_rounds(generate("decode", devices=2, microbatches=3), 2),
    "one device": lambda: generate("gpipe", devices=1, microbatches=2),
}
COLUMNS = ("offsets", "kind", "stage", "microbatch", "pair")


@pytest.mark.parametrize("suffix", sorted(readable()))
@pytest.mark.parametrize("case", CASES)
def test_a_file_is_read_back_as_it_was_or_refused(case, suffix):
    schedule: Schedule = CASES[case]()
    timeline = simulate(schedule, costs_for(schedule, comm=0.25))
    out = io.BytesIO()
    try:
        formats()[suffix].write(Document((timeline,), (case,)), out, suffix)
    except InputError:
        assert suffix == ".csv"
        assert schedule.n_slices > 1 or schedule.placement.n_replicas > 1 or "recomputed" in case
        return
    draft = parse(out.getvalue().decode(), f"x{suffix}")
    back = draft.schedule()
    steps = () if suffix == ".csv" else ("n_rounds", "feeds_back", "flushes")  # torch has no steps
    for size in ("n_slices", "n_microbatches", *steps):
        assert getattr(back, size) == getattr(schedule, size), size
    np.testing.assert_array_equal(back.placement.devices, schedule.placement.devices)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(back, column), getattr(schedule, column), column)
    if abilities_of(suffix).times:
        assert draft.start is not None
        assert draft.end is not None
        assert draft.start.tolist() == pytest.approx(timeline.start.tolist())
        assert draft.end.tolist() == pytest.approx(timeline.end.tolist())


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("gantt\n%% slices: 2\nsection device 0\n0F0 :a, 0, 1\n0B0 :b, 1, 2\n", "x.mmd"),
        (
            '{"otherData":{"slices":2},"traceEvents":[{"ph":"M","name":"process_name","pid":0,'
            '"args":{"name":"device 0"}},{"ph":"X","name":"0F0","pid":0,"ts":0,"dur":1}]}',
            "x.trace.json",
        ),
        ('{"ops":{"device":[0],"kind":["F"],"stage":[0],"microbatch":[0]},"slices":2}', "x.json"),
    ],
)
def test_a_part_of_a_sequence_is_refused(text, source):
    with pytest.raises(InputError, match="1 microbatches are not a multiple of 2 slices"):
        parse(text, source)
