"""BPipe: 1F1B's times, with memory evened out over device x and P-1-x (arXiv 2401.02088)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import activation_model, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.schedules import generate

sizes = {"devices": st.integers(1, 20), "microbatches": st.integers(1, 50)}


def priced(schedule: Schedule, forward: float, backward: float, copy: float) -> Costs:
    time = np.full(schedule.n_stages, copy)
    plain = costs_for(schedule, tf=forward, tb=backward)
    return Costs(plain.time, others={Kind.EVICT: time, Kind.LOAD: time})


@given(
    **sizes,
    forward=st.integers(1, 8),
    backward=st.integers(0, 8),
    share=st.sampled_from([0, 0.25, 0.5, 1]),
)
def test_peak_and_makespan(devices, microbatches, forward, backward, share):
    """At most ceil((P + 2) / 2) and 1F1B's min(M, P) anywhere, in 1F1B's time, where copies hide
    behind compute.
    """
    made, plain = (
        generate(name, devices=devices, microbatches=microbatches) for name in ("bpipe", "1f1b")
    )
    back = max(backward, 2 * share * forward)
    timeline = simulate(made, priced(made, forward, back, share * forward))
    found, wanted = (
        measure(timeline),
        measure(simulate(plain, costs_for(plain, tf=forward, tb=back))),
    )
    assert found.peak_activations.max() <= min((devices + 3) // 2, devices, microbatches)
    assert found.makespan == pytest.approx(wanted.makespan)
    assert curves(timeline, activation_model(made)).peak.tolist() == found.peak_activations.tolist()


@given(**sizes)
def test_all_that_leaves_comes_back(devices, microbatches):
    """Queues of compute are 1F1B's; each copy is out, there and back once, between device x and
    P-1-x.
    """
    made, plain = (
        generate(name, devices=devices, microbatches=microbatches) for name in ("bpipe", "1f1b")
    )
    assert made.take(made.computes).kind.tolist() == plain.kind.tolist()
    assert made.take(made.computes).microbatch.tolist() == plain.microbatch.tolist()
    cells = {
        kind: made.stage[made.kind == kind] * 99 + made.microbatch[made.kind == kind]
        for kind in Kind
    }
    copies = [
        sorted(cells[kind].tolist()) for kind in (Kind.EVICT, Kind.ACCEPT, Kind.LOAD, Kind.RETURN)
    ]
    assert all(copied == copies[0] for copied in copies)
    moved = np.isin(made.kind, (Kind.ACCEPT, Kind.RETURN))
    assert (made.device[moved] == devices - 1 - made.stage[moved]).all()
    assert bool(copies[0]) == (min(devices, microbatches) > (devices + 3) // 2)


def test_copies_that_do_not_hide_take_time_or_memory():
    """The bound needs copies that are done in time."""
    made = generate("bpipe", devices=8, microbatches=24)
    found = measure(simulate(made, priced(made, 1, 2, 4)))
    assert found.makespan > 31 * 3
