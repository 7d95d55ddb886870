"""Vocabulary over all devices: the originals' orders op by op, their makespans and peaks, and runs on 8 A100."""

import gzip
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, Scope
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError
from ppsim.schedules import generate

METHODS = {"vocab": "vocab-2", "synctwice": "vocab-1", "interlaced": "interlaced"}


@cache
def table() -> dict[str, Any]:
    path = Path(__file__).parents[1] / "data" / "lanes" / "vocabulary.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))


@cache
def made(name: str, devices: int, microbatches: int, forward: float, backward: float) -> Schedule:
    def price(schedule: Schedule) -> Costs:
        return costs_for(schedule, tf=forward, tb=backward, per="stage")

    return generate(name, devices=devices, microbatches=microbatches, costs=price)


@pytest.mark.parametrize("name", ["vocab-1", "vocab-2", "interlaced"])
def test_queues_are_the_originals(name):
    """All ops but collectives in their places, for three ratios of F to B that place T and S differently."""
    rows = [row for row in table()["orders"] if row[0] == name]
    assert rows
    for _, P, M, forward, backward, wanted, *_ in rows:
        schedule = made(name, P, M, forward, backward)
        shown = np.array([kind.info.scope != Scope.EVERYWHERE for kind in Kind])
        for device in range(P):
            queue = schedule.queue(device)
            ops = zip(schedule.kind[queue], schedule.microbatch[queue], strict=True)
            assert " ".join(f"{Kind(k).name}{m}" for k, m in ops if shown[k]) == wanted[device]


@pytest.mark.parametrize("name", ["vocab-1", "vocab-2", "interlaced"])
def test_makespans_and_peaks_are_the_originals(name):
    """Where the orders are for these costs; ours may end a little sooner, as no receive holds up a broadcast here."""
    rows = [row for row in table()["orders"] if row[0] == name and row[3:5] == [1, 2] and row[6]]
    assert rows
    for _, P, M, forward, backward, _, makespan, peaks in rows:
        schedule = made(name, P, M, forward, backward)
        costs = costs_for(schedule, tf=1, tb=2, per="stage", others={Kind.S: 0.5, Kind.T: 0.5})
        found = measure(simulate(schedule, costs))
        assert 0.98 * makespan <= found.makespan <= makespan + 1e-9
        assert found.peak_activations.tolist() == peaks


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["v-half-vocab-1", "v-half-vocab-2"])
def test_queues_on_v_half_are_the_originals(name):
    """All ops in their places, collectives too; makespans and peaks are exact at three costs."""
    rows = [row for row in table()["v_half"] if row[0] == name]
    assert len(rows) == 14
    for _, P, M, wanted, makespans, peaks in rows:
        schedule = generate(name, devices=P, microbatches=M)
        for device in range(P):
            queue = schedule.queue(device)
            assert " ".join(map(schedule.label, range(queue.start, queue.stop))) == wanted[device]
        for costs, makespan in zip(v_half_costs(schedule), makespans, strict=True):
            found = measure(simulate(schedule, costs))
            assert found.makespan == pytest.approx(makespan)
            assert found.peak_activations.tolist() == peaks


def v_half_costs(schedule: Schedule) -> Iterator[Costs]:
    """Equal ops, without and with a time for collectives; and uneven stages."""
    collectives = [kind for kind in Kind if kind.info.scope == Scope.EVERYWHERE]
    for time in (0.0, 0.1):
        others = {Kind.S: 0.5, Kind.T: 0.5, **dict.fromkeys(collectives, time)}
        yield costs_for(schedule, ti=1, tw=1, per="stage", others=others)
    uneven = [(1, 1.25, 0.8, 1.1, 0.9)[stage % 5] for stage in range(schedule.n_stages)]
    others = {Kind.S: 0.3, Kind.T: 0.45, Kind.E: 0.05, Kind.D: 0.05, **dict.fromkeys(collectives, 0.02)}
    yield costs_for(
        schedule, tf=uneven, ti=[1.2 * f for f in uneven], tw=[0.7 * f for f in uneven], per="stage", others=others
    )


@pytest.mark.parametrize(("name", "least"), [("v-half-vocab-1", [3, 3, 4, 9]), ("v-half-vocab-2", [2, 2, 2, 2])])
def test_few_microbatches_on_v_half_never_wait_for_ever(name, least):
    for devices, microbatches in zip([2, 4, 6, 16], least, strict=True):
        for more in range(3):
            schedule = generate(name, devices=devices, microbatches=microbatches + more)
            assert simulate(schedule, costs_for(schedule)).makespan > 0
        with pytest.raises(InputError, match="M >="):
            generate(name, devices=devices, microbatches=microbatches - 1)


def take(costs: Costs, _: Schedule) -> Costs:
    return costs


@pytest.mark.slow
def test_measured_runs_are_predicted():
    """From their stage times: 2 % off in the median, 5 % at most."""
    errors = []
    for method, M, measured, per_stage in table()["measured"]:
        forward, backward, both, embed, back = np.array(per_stage) / 1000
        time = np.stack([forward, backward, backward / 2, backward / 2])
        others = {Kind.S: both / 2, Kind.T: both / 2, Kind.E: embed, Kind.D: back}
        costs = Costs(time, unit="ms", others=others)
        name = METHODS.get(method, "1f1b")
        schedule = generate(name, devices=8, microbatches=M, costs=partial(take, costs))
        errors.append(abs(simulate(schedule, costs).makespan / measured - 1))
    assert len(errors) == 16
    assert np.median(errors) < 0.02
    assert max(errors) < 0.05


def test_vocabulary_of_every_microbatch_runs_on_every_device():
    schedule = made("vocab-2", 4, 8, 1, 2)
    for kind in (Kind.E, Kind.S, Kind.T, Kind.D, Kind.REDUCE_E, Kind.SHARE_S, Kind.REDUCE_S, Kind.SHARE_D):
        ops = schedule.kind == kind
        assert sorted(zip(schedule.device[ops].tolist(), schedule.microbatch[ops].tolist(), strict=True)) == [
            (device, microbatch) for device in range(4) for microbatch in range(8)
        ]
