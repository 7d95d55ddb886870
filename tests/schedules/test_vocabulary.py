"""Vocabulary over all devices: the originals' orders op by op, their makespans and peaks, and runs
on 8 A100.
"""

import gzip
import json
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, Scope
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import parse
from ppsim.schedules import generate
from tests.cases import EVERY, MANY
from tests.commands import invoke

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


MESSAGES = {"SEND_F": "POST_F", "SEND_B": "POST_B", "RECV_F": "WAIT_F", "RECV_B": "WAIT_B"}
SUMS = {
    "vocab-1": ["MAX_S", "SUM_S", "REDUCE_S"],
    "vocab-2": ["MAX_S", "SUM_S", "GRAD_S", "REDUCE_S"],
}


def issued(name: str, M: int, last: bool, text: str) -> list[tuple[str, int]]:
    """What a device of the original issues, by the names of our kinds; without waits that the next
    op has anyway.
    """
    words = [
        (word.rstrip("0123456789"), word.lstrip("+ABCDEFGHIJKLMNOPQRSTUVWXYZ_"))
        for word in text.split()
    ]
    found: list[tuple[str, int]] = []
    for place, (kind, number) in enumerate(words):
        m = int(number or -1)
        if kind == "SUMS":
            found += [(each, m) for each in SUMS[name]]
        elif kind == "SHARE_S" and m == M:
            found.append(("SHARE_T", M - 1))
        elif kind == "+REDUCE_E":
            found.append(("WAIT_E", m))
        elif kind == "+SUMS" and not last and words[place + 1][0] == "T":
            found.append(("WAIT_T", int(words[place + 1][1])))
        elif not kind.startswith("+"):
            found.append((MESSAGES.get(kind, kind), m))
    return found


def needless(before: tuple[str, int], op: tuple[str, int], after: tuple[str, int]) -> bool:
    """Whether an op waits or sends where its neighbour, of the same microbatch, does so itself."""
    if op[0].startswith("POST_"):
        return before == (op[0][-1], op[1])
    return op[0] in ("WAIT_F", "WAIT_B") and after == (op[0][-1], op[1])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["vocab-1", "vocab-2", "interlaced"])
def test_queues_are_the_originals(name):
    """All ops, collectives, waits and messages in their places, for three ratios of F to B."""
    rows = [row for row in table()["orders"] if row[0] == name]
    assert rows
    for _, P, M, forward, backward, texts, *_ in rows:
        schedule = made(name, P, M, forward, backward)
        for device, text in enumerate(texts):
            queue = schedule.queue(device)
            kinds = [Kind(kind).name for kind in schedule.kind[queue]]
            wanted = issued(name, M, device == P - 1, text)
            around = zip([("", 0), *wanted], wanted, [*wanted[1:], ("", 0)], strict=False)
            wanted = [each[1] for each in around if not needless(*each)]
            first = {("WAIT_E", m) for m in range(M)} if device == 0 else set()
            behind = [*wanted[1:], ("", 0)]
            wanted = [
                op
                for op, then in zip(wanted, behind, strict=True)
                if op not in first or then != ("F", op[1])
            ]
            assert list(zip(kinds, schedule.microbatch[queue].tolist(), strict=True)) == wanted


FACTORS = (1, 1.25, 0.8, 1.1, 0.9)


def uneven(devices: int, time: float) -> list[float]:
    return [time * FACTORS[device % 5] for device in range(devices)]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "row", [row for row in table()["orders"] if row[3:5] == [1, 2]], ids=lambda r: str(r[:3])
)
def test_run_takes_as_long_as_the_originals(row, place):
    """Where collectives take no time, where they do, and where devices differ: what the command
    prints.
    """
    name, P, M, *_, makespans, peaks = row
    words = ["--ts", "0.5", "--tt", "0.5", *(["--t-collective", "0.1"] if place == 1 else [])]
    if place == 2:
        times = [",".join(map(str, uneven(P, time))) for time in (1, 2.1)]
        words = [
            "--tf",
            times[0],
            "--tb",
            times[1],
            "--ts",
            "0.3",
            "--tt",
            "0.45",
            "--te",
            "0.05",
            "--td",
            "0.05",
        ]
        words += ["--t-collective", "0.02", *(["--tl", "0.02"] if name != "interlaced" else [])]
    found = json.loads(
        invoke("run", name, "--devices", str(P), "--mb", str(M), *words, "--json").stdout
    )
    assert found["makespan"] == pytest.approx(makespans[place], abs=1e-9)
    assert found["peak_activations"] == peaks


@pytest.mark.parametrize("name", ["vocab-1", "vocab-2", "interlaced"])
def test_makespans_and_peaks_are_the_originals(name):
    """Orders for three ratios of F to B, each at the three costs."""
    rows = [row for row in table()["orders"] if row[0] == name]
    assert rows
    for _, P, M, forward, backward, _, makespans, peaks in rows[::EVERY]:
        schedule = made(name, P, M, forward, backward)
        for costs, makespan in zip(costs_of(schedule), makespans, strict=True):
            found = measure(simulate(schedule, costs))
            assert found.makespan == pytest.approx(makespan)
            assert found.peak_activations.tolist() == peaks


def costs_of(schedule: Schedule) -> Iterator[Costs]:
    """Equal ops, without and with a time for collectives; and uneven devices."""
    collectives = [kind for kind in Kind if kind.info.scope == Scope.EVERYWHERE]
    for time in (0.0, 0.1):
        others = {Kind.S: 0.5, Kind.T: 0.5, **dict.fromkeys(collectives, time)}
        yield costs_for(schedule, tf=1, tb=2, per="stage", others=others)
    others = {
        Kind.S: 0.3,
        Kind.T: 0.45,
        Kind.E: 0.05,
        Kind.D: 0.05,
        Kind.L: 0.02,
        **dict.fromkeys(collectives, 0.02),
    }
    P = schedule.n_devices
    yield costs_for(schedule, tf=uneven(P, 1), tb=uneven(P, 2.1), per="stage", others=others)


@pytest.mark.parametrize("name", ["vocab-1", "vocab-2"])
@MANY
@given(
    devices=st.integers(1, 9),
    more=st.integers(0, 12),
    forward=st.sampled_from([0.0, 1e-3, 0.5, 1.0, 3.0]),
    backward=st.sampled_from([0.0, 1e-3, 1.0, 2.0, 2.5, 40.0]),
    comm=st.sampled_from([0.0, 0.1, 0.5, 1.0, 30.0]),
)
def test_devices_never_wait_in_a_circle(name, devices, more, forward, backward, comm):
    """Whatever ops and messages take, also messages slower than ops."""

    def price(schedule: Schedule) -> Costs:
        return costs_for(schedule, tf=forward, tb=backward, comm=comm, per="stage")

    schedule = generate(name, devices=devices, microbatches=devices + 2 + more, costs=price)
    collectives = [kind for kind in Kind if kind.info.scope == Scope.EVERYWHERE]
    costs = costs_for(schedule, comm=comm, others=dict.fromkeys(collectives, 0.1))
    assert simulate(schedule, costs).makespan > 0


@pytest.mark.sampled(3)
@pytest.mark.parametrize("devices", range(1, 10))
def test_interlaced_devices_never_wait_in_a_circle(devices):
    for microbatches in range(devices + devices // 2, devices + devices // 2 + 6):
        schedule = generate("interlaced", devices=devices, microbatches=microbatches)
        assert simulate(schedule, costs_for(schedule, comm=0.5)).makespan > 0


def test_a_result_leaves_where_its_device_sends_it():
    """F0 ends at 1 and its device sends it behind S0, at 3; the message takes 1."""
    text = "0F0,S0,0POST_F0\n1WAIT_F0,1F0\n"
    drafted = parse(text, "x.csv").schedule()
    costs = costs_for(drafted, comm=1, per="stage", others={Kind.S: 2.0})
    timeline = simulate(drafted, costs)
    starts = {drafted.label(op): timeline.start[op] for op in range(len(drafted))}
    assert starts == {"0F0": 0, "S0": 1, "0POST_F0": 3, "1WAIT_F0": 4, "1F0": 4}


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
    others = {
        Kind.S: 0.3,
        Kind.T: 0.45,
        Kind.E: 0.05,
        Kind.D: 0.05,
        **dict.fromkeys(collectives, 0.02),
    }
    yield costs_for(
        schedule,
        tf=uneven,
        ti=[1.2 * f for f in uneven],
        tw=[0.7 * f for f in uneven],
        per="stage",
        others=others,
    )


@pytest.mark.parametrize(
    ("name", "least"), [("v-half-vocab-1", [3, 3, 4, 9]), ("v-half-vocab-2", [2, 2, 2, 2])]
)
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
    for kind in (
        Kind.E,
        Kind.S,
        Kind.T,
        Kind.D,
        Kind.REDUCE_E,
        Kind.SHARE_S,
        Kind.REDUCE_S,
        Kind.SHARE_D,
    ):
        ops = schedule.kind == kind
        assert sorted(
            zip(schedule.device[ops].tolist(), schedule.microbatch[ops].tolist(), strict=True)
        ) == [(device, microbatch) for device in range(4) for microbatch in range(8)]
