"""Copies to the host by rule: against what the originals' orders take at the same costs, and what
must always hold.
"""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, pack
from ppsim.core.recompute import add_recompute
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError
from ppsim.prices.parts.copies import parse_offload
from ppsim.schedules import generate
from ppsim.search.rules.offload import (
    LEAST_HELD,
    _choose,
    _gates,
    _insert,
    _lag,
    _share,
    add_offload,
)
from tests.cases import PLAIN
from tests.search.originals import SAMPLED, compute_queues, costs_named, table


def orders(schedule: Schedule) -> list[str]:
    ops = zip(schedule.kind, schedule.stage, schedule.microbatch, strict=True)
    names = [f"{Kind(kind).name}{stage}.{microbatch}" for kind, stage, microbatch in ops]
    return [" ".join(names[schedule.queue(device)]) for device in range(schedule.n_devices)]


ORDERS = [row for row in table()["orders"] if not row[0].startswith("primus")]


@pytest.mark.parametrize("name", ["gis", "uniform"])
def test_queues_are_the_originals(name):
    """Every op in its place, with groups of half as many microbatches as devices, of as many, and
    none.
    """
    rows = [row for row in ORDERS if row[0] == name]
    assert len(rows) > 10
    for _, *shape, wanted in rows:
        assert orders(compute_queues(name, *shape)) == wanted, shape


def test_torch_and_primus_run_the_same_zb_v():
    rows = [row for row in table()["orders"] if row[0] == "primus zb-v-formatted"]
    assert rows
    for _, devices, _, microbatches, _, wanted in rows:
        assert (
            orders(generate("zb-v-formatted", devices=devices, microbatches=microbatches)) == wanted
        )


def compare(row: list[Any]) -> tuple[bool, bool]:
    """Whether ours takes no longer than the original, and whether no device holds more than its own
    there.

    The two of a pair may change places, where the other one has the link first.
    """
    name, devices, chunks, microbatches, group, copied, costs, timing, makespan, peaks = row
    schedule = compute_queues(name, devices, chunks, microbatches, group)
    prices = costs_named(costs, schedule.n_stages, 2 if timing == "paired" else 0)
    found = measure(simulate(add_offload(schedule, prices, copied), prices))
    held = found.peak_activations.tolist()
    lower = all(mine <= theirs for mine, theirs in zip(held, peaks, strict=True))
    return found.makespan <= makespan + 1e-6, lower or (
        timing == "paired" and sorted(held) == sorted(peaks)
    )


@pytest.mark.parametrize("timing", ["plain", "paired"])
def test_never_worse_than_the_originals(timing):
    """In makespan and in the peak of each device."""
    rows = [row for row in SAMPLED if row[7] == timing][:: 179 if timing == "paired" else 107]
    check(rows)


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["plain", "paired"])
def test_never_worse_than_any_original(timing):
    check([row for row in SAMPLED if row[7] == timing])


def check(rows: list[list[Any]]) -> None:
    assert rows
    for row in rows:
        faster, lower = compare(row)
        assert faster, row
        assert lower, row


@given(
    st.sampled_from([name for name in PLAIN if name not in ("forward-only", "decode")]),
    st.sampled_from([2, 4]),
    st.floats(0, 2),
    st.floats(0, 2),
    st.sampled_from([0, 1, 2]),
    st.floats(0, 1),
)
def test_what_holds_of_every_schedule(name, devices, out, back, link, share):
    """Compute ops keep their order, each copy has its way back, and no device holds more than
    without copies.
    """
    try:
        schedule = generate(name, devices=devices, microbatches=2 * devices)
    except InputError:
        return
    if (schedule.kind == Kind.R).any():
        return
    prices = costs_for(schedule, others={Kind.OFFLOAD: out, Kind.RELOAD: back}, host_link=link)
    made = add_offload(schedule, prices, share * schedule.n_chunks)
    assert np.array_equal(made.compute_only.kind, schedule.kind)
    assert np.array_equal(made.compute_only.stage, schedule.stage)
    assert np.array_equal(made.compute_only.microbatch, schedule.microbatch)
    count = np.bincount(made.kind, minlength=8)
    assert count[Kind.OFFLOAD] == count[Kind.RELOAD]
    plain, copied = measure(simulate(schedule, prices)), measure(simulate(made, prices))
    assert copied.makespan >= plain.makespan - 1e-9
    assert (copied.peak_activations <= plain.peak_activations).all()


def test_free_copies_cost_no_time():
    """With all chunks on the host, a device holds what it works on."""
    schedule = generate("uniform", devices=4, microbatches=8)
    prices = costs_for(schedule)
    made, plain = (simulate(each, prices) for each in (add_offload(schedule, prices, 2), schedule))
    assert made.makespan == plain.makespan
    assert measure(made).peak_activations.max() == 1


@pytest.mark.parametrize(
    ("name", "out"), [("interleaved", 1.5), ("interleaved", 3), ("zb-h2", 0.5), ("gpipe", 2)]
)
def test_waiting_for_copies_holds_less_and_costs_no_time(name, out):
    """Against the same queues whose devices never wait for a copy to the host."""
    schedule = generate(name, devices=3, microbatches=6)
    prices = costs_for(schedule, others={Kind.OFFLOAD: out, Kind.RELOAD: out})
    made = add_offload(schedule, prices, schedule.n_chunks)
    packed = pack(made.stage, made.microbatch) | made.kind
    goes_on = [
        packed[made.queue(d)][made.kind[made.queue(d)] != Kind.WAIT_OFFLOAD] for d in range(3)
    ]
    never = Schedule.from_queues(name, schedule.placement, schedule.n_microbatches, goes_on)
    waits, plain = (measure(simulate(each, prices)) for each in (made, never))
    assert waits.makespan == plain.makespan
    assert (waits.peak_activations <= plain.peak_activations).all()
    assert (waits.peak_activations < plain.peak_activations).any()


def test_shares():
    """A number of chunks, all, or a share of them: of half a chunk every second microbatch; all
    else is refused.
    """
    assert [parse_offload(text, 2) for text in ("0", "1", "all", "25%", "100%")] == [
        0,
        1,
        2,
        0.5,
        2,
    ]
    for wrong in ("3", "-1", "101%", "half", "", "1e9", "٣"):
        with pytest.raises(InputError, match="a device has 2 chunks"):
            parse_offload(wrong, 2)
    schedule = generate("1f1b", devices=4, microbatches=8)
    prices = costs_for(schedule)
    made = add_offload(schedule, prices, 0.25)
    assert made.microbatch[(made.kind == Kind.OFFLOAD) & (made.device == 0)].tolist() == [3, 7]


@pytest.mark.parametrize("rules", ["first:3", "window:2", "full,none*3"])
def test_what_runs_again_does_not_leave(rules):
    """It is not held in between; the rest leaves, in no more time than without copies that take
    none.
    """
    schedule = add_recompute(generate("1f1b", devices=4, microbatches=8), rules)
    prices = costs_for(schedule)
    made = add_offload(schedule, prices, 1)
    copied, again = (
        {
            *zip(
                made.stage[made.kind == kind].tolist(),
                made.microbatch[made.kind == kind].tolist(),
                strict=True,
            )
        }
        for kind in (Kind.OFFLOAD, Kind.R)
    )
    assert copied
    assert again
    assert not copied & again
    before, after = (measure(simulate(each, prices)) for each in (schedule, made))
    assert after.makespan == before.makespan
    assert (after.peak_activations <= before.peak_activations).all()
    assert after.peak_activations.max() < before.peak_activations.max()


def test_what_has_copies_or_recomputes_is_refused():
    schedule = generate("1f1b", devices=2, microbatches=4)
    prices = costs_for(schedule)
    with pytest.raises(InputError, match="OFFLOAD"):
        add_offload(add_offload(schedule, prices, 1), prices, 1)
    with pytest.raises(InputError, match="recomputes"):
        add_offload(add_recompute(schedule), prices, 1)
    with pytest.raises(InputError, match="no backward"):
        add_offload(generate("forward-only", devices=2, microbatches=2), prices, 1)


def test_the_longest_lag_of_copies_is_that_of_any_device():
    """How long after its F the last copy before the first backward ends, op by op."""
    for slow in range(4):
        schedule = generate("1f1b", devices=4, microbatches=6)
        time = np.where(np.arange(4) == slow, 1.0, 3.0) * np.ones((4, 1))
        prices = Costs(
            time,
            others={
                Kind.OFFLOAD: np.where(np.arange(4) == slow, 5.0, 0.5),
                Kind.RELOAD: np.ones(4),
            },
        )
        timeline = simulate(add_offload(schedule, prices, 1.0), prices)
        made, lags = timeline.schedule, [0.0]
        for queue in map(made.queue, range(4)):
            copy = 0.0
            for place in range(queue.start, queue.stop):
                if made.kind[place] == Kind.B:
                    break
                if made.kind[place] == Kind.OFFLOAD:
                    copy = timeline.end[place] - timeline.end[place - 1]
            lags.append(copy)
        assert _lag(timeline) == max(lags)


@pytest.mark.parametrize(("out", "back"), [(1.0, 2.0), (3.0, 0.5), (0.0, 6.0)])
def test_what_leaves_has_the_time_to_leave_and_come_back(out, back):
    """Between the end of its F and the start of its backward, without copies; and all that has it
    leaves.
    """
    schedule = generate("1f1b", devices=4, microbatches=8)
    prices = costs_for(schedule, others={Kind.OFFLOAD: out, Kind.RELOAD: back})
    timeline, made = simulate(schedule, prices), add_offload(schedule, prices, 1)
    copied = {
        *zip(
            made.stage[made.kind == Kind.OFFLOAD].tolist(),
            made.microbatch[made.kind == Kind.OFFLOAD].tolist(),
            strict=True,
        )
    }
    expected = set()
    for stage, m in np.ndindex(4, 8):
        f, b = (
            np.flatnonzero(
                (schedule.kind == k) & (schedule.stage == stage) & (schedule.microbatch == m)
            )[0]
            for k in (Kind.F, Kind.B)
        )
        if timeline.start[b] - timeline.end[f] >= out + back:
            expected.add((stage, m))
    assert copied == expected
    assert 0 < len(expected) < 32


@pytest.mark.parametrize("name", ["interleaved", "1f1b"])
@pytest.mark.parametrize("out", [1.5, 3.0])
def test_what_waits_on_a_shared_link_takes_no_longer_than_others_copies_and_holds_less(name, out):
    """Before the first backward a copy may wait for those of the link's other devices; three are
    held at least.
    """
    schedule = generate(name, devices=4, microbatches=8)
    prices = costs_for(schedule, others={Kind.OFFLOAD: out, Kind.RELOAD: out}, host_link=2)
    copies = _choose(
        schedule,
        prices,
        1.0,
        *(getattr(simulate(schedule, prices), each) for each in ("start", "end")),
    )
    gates = _gates(
        schedule,
        copies,
        simulate(schedule, prices).start,
        simulate(schedule, prices).end,
        0 * copies.return_time,
    )
    made = _insert(schedule, copies, gates)
    before, after = simulate(made, prices), simulate(_share(made, prices), prices)
    peaks, lower = (measure(each).peak_activations for each in (before, after))
    assert after.makespan <= before.makespan + _lag(before) / 2 + 1e-9
    assert lower.max() <= peaks.max()
    assert (lower < peaks).any()
    assert (lower <= np.maximum(peaks, LEAST_HELD)).all()
