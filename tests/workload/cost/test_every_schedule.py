"""Every schedule of the list as a plan prices it: the same work, however it is cut and ordered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError
from ppsim.schedules import families, find
from ppsim.workload.cost.costs import queues_of, stage_costs, step_time
from ppsim.workload.cost.memory import StageMemory, device_memory, stage_memory
from ppsim.workload.hardware.hardware import read_machine
from ppsim.workload.model.model import read_model
from ppsim.workload.model.parallel import Parallel

MACHINE = read_machine("dgx-h100")
MODEL = replace(read_model("llama3-8b"), layers=16, seq=4096)
EXPERTS = replace(read_model("mixtral-8x7b"), layers=16, seq=4096)


def sizes_of(family) -> Parallel:
    return Parallel(dp=4, pp=4, vp=family.chunks, microbatches=16, schedule=family.name)


TRAINS = [f for f in families() if f.name not in ("forward-only", "decode")]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("family", TRAINS, ids=lambda f: f.name)
@pytest.mark.parametrize(
    ("model", "waits"), [(MODEL, False), (EXPERTS, True)], ids=["dense", "experts"]
)
def test_no_schedule_changes_the_busy_time_of_a_step(family, model, waits):
    """All microbatches through all stages, forward and backward, whole or split; messages waited
    for are part of it.
    """
    parallel = replace(sizes_of(family), overlap_p2p=not waits)
    costs = stage_costs(model, MACHINE, parallel)
    schedule = queues_of(parallel, costs)
    busy = measure(simulate(schedule, costs.costs)).busy.sum()
    kinds = (Kind.F, Kind.B, Kind.I, Kind.W)
    each = {
        kind: np.bincount(schedule.stage[schedule.kind == kind], minlength=schedule.n_stages)
        for kind in kinds
    }
    assert (each[Kind.F] == schedule.n_microbatches).all()
    assert (each[Kind.I] == each[Kind.W]).all()
    assert (each[Kind.B] + each[Kind.W] == schedule.n_microbatches).all()
    seconds = sum((each[kind] * costs.time[kind]).sum() for kind in kinds) / schedule.n_slices
    assert busy == pytest.approx(1e3 * seconds, rel=1e-9)
    step = step_time(model, MACHINE, parallel, costs=costs)
    assert 0 <= step.bubble < 0.5


@pytest.mark.parametrize(
    "family", [f for f in families() if "slices" in f.options], ids=lambda f: f.name
)
def test_slices_take_their_share_of_time_and_memory_and_messages(family):
    """A quarter of a sequence each: the fill and what is in flight shrink, as the authors of
    seq1f1b say. Kernels of a quarter fill a GPU less, and are launched four times as often; each
    adds its gradients to the sum, for which 16,384 tokens are enough, and 4,096 too few.
    """
    model = replace(MODEL, seq=4 * MODEL.seq)
    parallel = replace(sizes_of(family), dp=1)
    whole = replace(parallel, schedule="interleaved" if family.chunks > 1 else "1f1b")
    assert (parallel.pieces, whole.pieces) == (4, 1)
    costs, alike = (stage_costs(model, MACHINE, each) for each in (parallel, whole))
    assert np.all(costs.time >= alike.time)
    assert np.all(costs.time <= 1.3 * alike.time)
    assert costs.costs.time == pytest.approx(costs.time * 1e3 / 4)
    assert costs.message == alike.message / 4
    assert np.all(np.asarray(costs.costs.comm) <= np.asarray(alike.costs.comm))
    sliced, plain = (step_time(model, MACHINE, each) for each in (parallel, whole))
    assert 0.8 * plain.seconds < sliced.seconds < 1.05 * plain.seconds
    short = step_time(MODEL, MACHINE, parallel).seconds / step_time(MODEL, MACHINE, whole).seconds
    assert short > 1.05 > sliced.seconds / plain.seconds
    held, other = (device_memory(model, each).activations.max() for each in (parallel, whole))
    assert held < 0.75 * other
    schedule = queues_of(parallel, costs)
    assert held == pytest.approx(_peak(schedule, stage_memory(model, parallel), 4))


def test_slices_of_long_sequences_cost_what_whole_ones_do():
    """A quarter of 128 times as many tokens fills the GPU, and the host is far ahead."""
    long = replace(MODEL, seq=128 * MODEL.seq)
    parallel = replace(sizes_of(find("seq1f1b")), dp=1)
    ratios = [
        stage_costs(model, MACHINE, parallel).time[Kind.F]
        / stage_costs(model, MACHINE, replace(parallel, schedule="1f1b")).time[Kind.F]
        for model in (MODEL, long)
    ]
    assert ratios[0].min() > 1.02
    assert ratios[1] == pytest.approx(1, abs=0.005)


def _peak(schedule: Schedule, stages: StageMemory, slices: int) -> float:
    """The most that a device holds, op by op."""
    most, each, kept = 0.0, stages.activations / slices, stages.kept / slices
    for device in range(schedule.n_devices):
        now = 0.0
        for op in range(schedule.offsets[device], schedule.offsets[device + 1]):
            stage = schedule.stage[op]
            held, needed = float(each[stage]), float(kept[stage])
            now += {0: held, 1: -held, 2: needed - held, 3: -needed}[int(schedule.kind[op])]
            most = max(most, now)
    return most


def test_a_schedule_without_backwards_is_no_step_of_training():
    with pytest.raises(InputError, match="forward-only has no backward"):
        step_time(MODEL, MACHINE, Parallel(pp=4, microbatches=8, schedule="forward-only"))
