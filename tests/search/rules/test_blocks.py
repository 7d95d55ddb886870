"""Building blocks: their peaks are exact, and completed they are schedules that hold no more."""

import numpy as np
import pytest

from ppsim.base import compiled
from ppsim.core.costs import costs_for
from ppsim.core.schedule import Schedule, place
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, peak_activations
from ppsim.search.rules import fill, fill_kernel
from ppsim.search.rules import fill_kernel as kernel
from ppsim.search.rules.blocks import Block, block_of_passes, complete, fit_block


def completed(block: Block, microbatches: int) -> Schedule:
    queues = complete(block, microbatches)
    return Schedule.from_queues("block", block.placement, microbatches, queues)


def numbers(schedule: Schedule) -> tuple[float, float, int]:
    """Makespan, span and peak with one slot as the unit."""
    metrics = measure(simulate(schedule, costs_for(schedule, per="stage")))
    return metrics.makespan, metrics.span, int(peak_activations(schedule).max())


BLOCKS = {
    "1F1B": block_of_passes(place("linear", 4, 4), 3, (1, 2), (1,), split=False),
    "V-Min": block_of_passes(place("v", 4, 8), 6, (1, 1, 1, 1), (1, 1, 1)),
    "V-Half": block_of_passes(place("v", 4, 8), 6, (2, 1, 2, 1), (1, 4, 2)),
    "V-ZB": block_of_passes(place("v", 4, 8), 6, (5, 1, 5, 1), (2, 1, 1)),
    "1F1B-V": fit_block(place("v", 4, 8), 6, split=False),
    "interleaved": fit_block(place("loop", 3, 6), 6, split=True),
    "three chunks": fit_block(place("loop", 2, 6), 9),
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("microbatches", [1, 2, 5, 13])
def test_a_completed_block_runs_and_holds_no_more_than_it_says(name, microbatches):
    """Every op runs once, in an order that finishes, and the peak is that of the repeated block at
    most.
    """
    block = BLOCKS[name]
    schedule = completed(block, microbatches)
    assert len(schedule) == (3 if block.split else 2) * block.placement.n_stages * microbatches
    _, _, peak = numbers(schedule)
    assert peak <= block.peaks.max()


@pytest.mark.parametrize(
    ("name", "expected"), [("1F1B", 33), ("V-Min", 59), ("V-Half", 53), ("V-ZB", 48)]
)
def test_the_papers_schedules_come_out_as_cases(name, expected):
    """Makespan of 1F1B, spans of the paper's V schedules, four devices and eight microbatches."""
    makespan, span, _ = numbers(completed(BLOCKS[name], 8))
    assert (makespan if name == "1F1B" else span) == expected


@pytest.mark.parametrize("name", ["V-Min", "V-Half", "V-ZB"])
def test_peaks_are_those_of_the_block_repeated(name):
    """Ops in the slots of the block, microbatch after microbatch, hold as much as the block's peak
    says.
    """
    block = BLOCKS[name]
    held = np.zeros((4, 60 * block.interval), np.int64)
    for stage, device in enumerate(block.placement.devices[0]):
        for m in range(40):
            first = block.forward[stage] + m * block.interval
            held[device, first : first + block.lifespans[stage]] += 1
    assert held.max(axis=1).tolist() == block.peaks.tolist()


def test_ops_that_share_a_slot_are_found():
    """Two ops of a device in one slot of the interval cannot be repeated."""
    block = block_of_passes(place("v", 3, 6), 6, (1, 1, 1, 1), (1, 1, 1))
    assert block.clash() == (0, 0, 2)
    with pytest.raises(ValueError, match="share a slot"):
        complete(block, 4)
    with pytest.raises(ValueError, match="need 6 slots, not 5"):
        fit_block(place("v", 3, 6), 5)


@pytest.mark.slow
def test_machine_code_completes_blocks_as_python_does(monkeypatch):
    """Split and full backwards: the compiled steps and the plain ones give the same queues."""
    placement = place("v", 5, 10)
    blocks = [
        block_of_passes(placement, 6, (2, 1, 2, 1), (1, 1, 2)),
        fit_block(placement, 6, split=False),
    ]
    monkeypatch.setattr(fill, "COMPILE_FILLING_ABOVE", 10**9)
    python = [queue.tolist() for block in blocks for queue in complete(block, 12)]
    monkeypatch.undo()
    monkeypatch.setattr(compiled, "_entries", {})
    fill.compile_now()
    monkeypatch.setattr(compiled, "_load", lambda *_: pytest.fail("loaded while somebody waits"))
    assert [queue.tolist() for block in blocks for queue in complete(block, 12)] == python
    assert compiled.machine_code_pays(fill_kernel.fill, 0, fill.COMPILE_FILLING_ABOVE)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("microbatches", [2, 7])
def test_filling_moves_ops_into_idle_slots_and_squeezing_keeps_their_order(
    monkeypatch, name, microbatches
):
    """No two ops share a slot, each comes after its input, none outside warm-up and cool-down
    moves, and the tables of what devices do and hold are those of the slots.
    """
    run, moved = fill._run, 0

    def watched(step, t, *given, parts):
        nonlocal moved
        before, device = t.slot.copy(), t.device[t.row]
        run(step, t, *given, parts=parts)
        place = t.first[t.row] + t.nth  # of each op in the slots, row by row
        slot, length, P = t.slot[place], t.length[t.row], len(t.last)
        assert all(kernel.ready(t, r, n) <= s for r, n, s in zip(t.row, t.nth, slot, strict=True))
        used = np.zeros((P, int((slot + length).max())), int)
        for d, start, many in zip(device, slot, length, strict=True):
            used[d, start : start + many] += 1
        assert used.max() == 1
        if step is not kernel.fill:
            return
        begin, end, cap = given
        explicit = len(t.held) > 0
        still = np.arange(len(t.row)) <= end
        if explicit:
            still[:begin] = False
        assert (slot[still] == before[place][still]).all()
        assert (slot <= before[place]).all()
        moved += int((slot < before[place]).sum())
        does = t.does.reshape(P, -1)
        assert ((does != kernel.IDLE)[:, : used.shape[1]] == used.astype(bool)).all()
        for d in range(P):
            backwards = slot[(device == d) & (t.what[t.row] == kernel.BACKWARD)]
            size = len(t.backward) // P
            assert not size or t.backward[d * size : d * size + t.tried[d]].tolist() == sorted(
                backwards
            )
        if explicit:
            frees = kernel.WEIGHTS if len(t.backward) else kernel.BACKWARD
            change = np.zeros(does.shape, int)
            what = t.what[t.row]
            np.add.at(change, (device[what == kernel.FORWARD], slot[what == kernel.FORWARD]), 1)
            np.add.at(change, (device[what == frees], (slot + length - 1)[what == frees]), -1)
            assert (t.held.reshape(P, -1) == change.cumsum(axis=1)).all()
            assert t.held.max() <= cap

    monkeypatch.setattr(fill, "_run", watched)
    complete(BLOCKS[name], microbatches)
    assert moved or microbatches == 2
