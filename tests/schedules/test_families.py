"""Schedules against definitions of their authors that no record holds: building blocks, placements,
inference.
"""

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.core.draft import Draft
from ppsim.core.ops import Kind
from ppsim.engine.memory.usage import activation_model, curves
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import peak_activations
from ppsim.errors import InputError
from ppsim.inputs.check.checks import check
from ppsim.schedules import generate


def grouped(P: int, V: int, N: int, M: int, device: int) -> list[str]:
    """A device's queue from PipeOffload's building block: the slots of one group, repeated every
    3VN.
    """
    slots = {}
    for m in range(M):
        group, g = divmod(m, N)
        for c in range(V):
            first = 3 * V * N * group + 3 * N * c + 3 * g
            slots[first + device] = f"{c * P + device}F{m}"
            turn = 3 * N * (V - 1) + device + 3 * (P - 1 - device) + 1
            stage = (V - 1 - c) * P + device
            slots[first + turn], slots[first + turn + 1] = f"{stage}I{m}", f"{stage}W{m}"
    return [slots[slot] for slot in sorted(slots)]


@pytest.mark.parametrize(
    ("P", "V", "N", "M"), [(4, 2, 2, 8), (4, 3, 3, 7), (5, 2, 4, 8), (8, 2, 4, 16), (8, 4, 6, 13)]
)
def test_grouped_interleaved_is_its_building_block_repeated(P, V, N, M):
    made = generate("gis", devices=P, chunks=V, microbatches=M, group_size=N)
    for device in range(P):
        queue = made.queue(device)
        assert [made.label(op) for op in range(queue.start, queue.stop)] == grouped(
            P, V, N, M, device
        )


@pytest.mark.parametrize(
    ("name", "chunks", "placement", "first", "last"),
    [
        ("hanayo", 2, "v", [0, 7], [3, 4]),
        ("hanayo", 4, "v", [0, 7, 8, 15], [3, 4, 11, 12]),
        ("chimera", 1, "bidirectional", [0, 3], [0, 3]),
        ("bitpipe", 2, "bidirectional-v", [0, 3, 4, 7], [0, 3, 4, 7]),
    ],
)
def test_stages_are_where_the_papers_put_them(name, chunks, placement, first, last):
    """Devices 0 and P - 1 hold these stages, and a file of the queues is read as the same
    placement.
    """
    made = generate(name, devices=4, chunks=chunks, microbatches=4)
    back = Draft.from_schedule(made)
    assert back.placement.name == made.placement.name == placement
    assert np.array_equal(back.placement.devices, made.placement.devices)
    for device, stages in ((0, first), (3, last)):
        assert np.unique(made.stage[made.queue(device)]).tolist() == stages
    assert check(back).valid


@pytest.mark.parametrize("name", ["chimera", "hanayo", "bitpipe"])
def test_units_after_the_first_add_no_idle_time_at_equal_times(name):
    """Forward and backward as long: every device is busy from one unit of P microbatches to the
    next.
    """
    makespans = []
    for units in (1, 2, 5):
        made = generate(name, devices=4, microbatches=4 * units)
        makespans.append(simulate(made, costs_for(made, tf=1, tb=1)).makespan - 8 * units)
    assert makespans == [makespans[0]] * 3


def balanced(P: int, V: int, M: int, device: int) -> list[str]:
    """A device's queue as Paddle's program makes it: two counters of micro-steps over one table of
    chunks.
    """
    first = M % P + P  # microbatches of the first group
    chunks = [
        step // first if step < first * V else (step - first * V) % (P * V) // P
        for step in range(M * V)
    ]
    warm_up, steady = M * (V - 1) + P - device - 1, M - (P - device - 1)
    done: dict[str, int] = {}

    def op(kind: str, chunk: int) -> str:
        name = f"{chunk * P + device}{kind}"
        done[name] = done.get(name, -1) + 1
        return f"{name}{done[name]}"

    forwards = iter(chunks)
    backwards = (V - 1 - chunk for chunk in chunks)
    queue = [op("F", next(forwards)) for _ in range(warm_up)]
    for _ in range(steady):
        queue += [op("F", next(forwards)), op("B", next(backwards))]
    return queue + [op("B", chunk) for chunk in backwards]


@pytest.mark.parametrize(("P", "V", "M"), [(4, 2, 6), (4, 2, 7), (3, 3, 3), (5, 2, 8), (8, 4, 15)])
def test_the_balanced_interleaving_is_what_paddle_runs(P, V, M):
    made = generate("VPPFhenBInBalancedMemory", devices=P, chunks=V, microbatches=M)
    for device in range(P):
        queue = made.queue(device)
        assert [made.label(op) for op in range(queue.start, queue.stop)] == balanced(
            P, V, M, device
        )
    with pytest.raises(InputError, match="at least P microbatches"):
        generate("vpp-balanced", devices=P, chunks=V, microbatches=P - 1)


def test_inference_keeps_no_activations_and_is_no_fault():
    """Forwards alone: nothing is kept for a backward, and a file of them is valid; half of a
    training step is not.
    """
    made = generate("forward-only", devices=4, microbatches=6)
    timeline = simulate(made, costs_for(made))
    assert peak_activations(made).tolist() == [0] * 4
    assert curves(timeline, activation_model(made)).peak.tolist() == [0] * 4
    assert check(Draft.from_schedule(made)).valid
    training = generate("gpipe", devices=4, microbatches=6)
    keep = ~((training.kind == Kind.B) & (training.microbatch == 5))
    draft = Draft.from_table(
        "half",
        np.stack(
            [
                training.device,
                training.kind,
                training.stage,
                training.microbatch,
                training.device + 1,
                np.arange(len(training)),
                np.zeros(len(training), int),
            ],
            axis=1,
        )[keep],
    )
    assert {fault.kind for fault in check(draft).faults} == {"missing"}
