"""1F1B+: parts of the model on all devices at once, in nnScaler's orders."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import Deadlock, InputError
from ppsim.schedules import find, generate

ORDERS = Path(__file__).parents[1] / "data" / "lanes" / "1f1b_plus.json.gz"


def priced(schedule: Schedule, forward: float, backward: float, *, uneven: bool = False) -> Costs:
    factor = [
        (1, 1.25, 0.8, 1.1, 0.9)[stage % 5] if uneven else 1 for stage in range(schedule.n_stages)
    ]
    others = {Kind.GF: forward, Kind.GB: backward}
    tb = [(2.1 if uneven else 2) * f for f in factor]
    return costs_for(schedule, tf=factor, tb=tb, per="stage", others=others)


def test_orders_makespans_and_peaks_are_the_originals():
    rows = json.loads(gzip.decompress(ORDERS.read_bytes()))
    assert len(rows) == 33
    for P, M, everywhere, wanted, makespan, uneven, peaks in rows:
        schedule = generate("1f1b-plus", devices=P, microbatches=M, everywhere=everywhere)
        queues = [schedule.queue(device) for device in range(P)]
        assert [
            " ".join(map(schedule.label, range(own.start, own.stop))) for own in queues
        ] == wanted
        found = measure(simulate(schedule, priced(schedule, 0.5, 1)))
        assert found.makespan == pytest.approx(makespan)
        assert found.peak_activations.tolist() == peaks
        assert simulate(
            schedule, priced(schedule, 0.3, 0.7, uneven=True)
        ).makespan == pytest.approx(uneven)


@given(st.integers(1, 9), st.integers(1, 12), st.data())
def test_each_part_runs_between_its_stages(devices, microbatches, data):
    """On all devices at one time, behind the stage before and ahead of its own, and backwards the
    other way round.
    """
    everywhere = data.draw(st.lists(st.integers(0, devices - 1), min_size=1, unique=True))
    made = generate("1f1b-plus", devices=devices, microbatches=microbatches, everywhere=everywhere)
    timeline = simulate(made, priced(made, 0.5, 0.75))
    times: dict[tuple[int, int, int], tuple[float, float]] = {}
    for op, key in enumerate(
        zip(made.kind.tolist(), made.stage.tolist(), made.microbatch.tolist(), strict=True)
    ):
        assert times.setdefault(key, (timeline.start[op], timeline.end[op])) == (
            timeline.start[op],
            timeline.end[op],
        )
    assert len(times) == 2 * microbatches * (devices + len(everywhere))
    for stage in everywhere:
        for m in range(microbatches):
            assert times[Kind.GF, stage, m][1] <= times[Kind.F, stage, m][0]
            assert times[Kind.B, stage, m][1] <= times[Kind.GB, stage, m][0]
            if stage:
                assert times[Kind.F, stage - 1, m][1] <= times[Kind.GF, stage, m][0]
                assert times[Kind.GB, stage, m][1] <= times[Kind.B, stage - 1, m][0]


def test_what_comes_from_another_device_takes_a_message():
    """One hop ahead of a part, and one behind its backward: no longer than without the part, as all
    have its result.
    """
    made, plain = (generate(name, devices=2, microbatches=1) for name in ("1f1b-plus", "1f1b"))
    assert (
        simulate(made, costs_for(made, comm=5)).makespan
        == simulate(plain, costs_for(plain, comm=5)).makespan + 5
    )


def test_a_part_without_its_stage_never_starts():
    made = generate("1f1b-plus", devices=2, microbatches=1, everywhere=[1])
    with pytest.raises(Deadlock, match="no device produces"):
        simulate(made.take((made.kind != Kind.F) | (made.stage != 0)), costs_for(made))


@pytest.mark.parametrize("everywhere", [(0, 4), (1, 1), (-1,)])
def test_stages_that_are_none_or_twice_are_refused(everywhere):
    with pytest.raises(InputError, match="--everywhere to name stages"):
        generate("1f1b-plus", devices=4, microbatches=4, everywhere=everywhere)


def test_a_plus_is_no_punctuation():
    assert [find(name).name for name in ("1F1B+", "1f1b plus", "1F1B")] == [
        "1f1b-plus",
        "1f1b-plus",
        "1f1b",
    ]


def test_times_of_parts_are_by_stage():
    made = generate("1f1b-plus", devices=4, microbatches=2, everywhere=[0, 2])
    took = costs_for(made, others={Kind.GF: [1, 2, 3, 4]}).durations(made)
    assert np.unique(took[made.kind == Kind.GF]).tolist() == [1, 3]
