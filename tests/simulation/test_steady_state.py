"""The steady-state shortcut gives the whole run's numbers exactly, or none."""

import dataclasses
import json

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from ppsim.cli.run import command
from ppsim.core.builder import B, F, Queue, stream
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind, pack
from ppsim.core.schedule import place
from ppsim.errors import InputError
from ppsim.schedules import families, generate, steady_state
from ppsim.simulation.longest_path import simulate
from ppsim.simulation.metrics import Metrics, measure
from ppsim.simulation.periodic import find_body, find_shift
from ppsim.simulation.steady_state import compute_exact_times, extend_steady_state, prove
from tests.cases import EIGHTHS, SOME, costs

NAMES = [family.name for family in families() if not family.uses_costs]
PLANNED = [family.name for family in families() if family.uses_costs]
REPEATING = [
    "1f1b",
    "eager-1f1b",
    "1f1b-overlap",
    "interleaved",
    "interleaved-overlap",
    "zb-1p",
    "dualpipe-v",
    "dualpipe",
]


def values(metrics: Metrics) -> dict[str, object]:
    """Each number; the bound as a text, since one that is not a number differs from itself."""
    found = {name: np.asarray(value).tolist() for name, value in dataclasses.asdict(metrics).items()}
    return found | {"bound": str(metrics.bound)}


@pytest.mark.parametrize("name", NAMES)
@SOME
@given(data=st.data())
def test_where_proved_every_number_is_that_of_the_whole_run(name, data):
    """Any shape, any costs that add exactly: the same makespan, bubbles, busy times, activations and messages."""
    devices, microbatches = data.draw(st.integers(1, 5)), data.draw(st.integers(60, 300))
    try:
        schedule = generate(name, devices=devices, microbatches=microbatches)
    except InputError:
        return
    drawn = data.draw(costs(schedule, EIGHTHS))
    found = steady_state(name, lambda small: drawn, devices=devices, microbatches=microbatches)
    if found is not None:
        assert values(found.metrics) == values(measure(simulate(schedule, drawn)))


@pytest.mark.parametrize("name", PLANNED)
def test_queues_that_depend_on_costs_are_left_to_the_full_run(name):
    """What is planned for few microbatches says nothing of the plan for many."""
    assert steady_state(name, costs_for, devices=2, microbatches=1000) is None


@pytest.mark.parametrize("name", REPEATING)
@pytest.mark.parametrize("comm", [0.0, 0.25])
def test_steady_schedules_are_proved(name, comm):
    """With equal stages each schedule that has a steady state is recognised, from a run much smaller than the whole."""
    found = steady_state(name, lambda s: costs_for(s, comm=comm), devices=4, microbatches=5000)
    assert found is not None
    assert found.simulated.n_microbatches < 300
    whole = generate(name, devices=4, microbatches=5000)
    assert values(found.metrics) == values(measure(simulate(whole, costs_for(whole, comm=comm))))


@pytest.mark.parametrize("name", ["1f1b", "zb-1p", "interleaved"])
def test_costs_that_doubles_cannot_add_exactly_are_summed_as_integers(name):
    """Tenths: the shortcut's makespan is the exact sum, rounded once."""

    def tenths(schedule):
        return costs_for(schedule, tf=0.1, ti=0.3, tw=0.1, comm=0.7, per="stage")

    found = steady_state(name, tenths, devices=3, microbatches=700)
    assert found is not None
    schedule = generate(name, devices=3, microbatches=700)
    times = compute_exact_times(schedule, tenths(schedule))
    assert times is not None
    _, end, scale = times
    assert found.metrics.makespan == int(max(end)) / scale
    assert found.metrics.makespan == pytest.approx(simulate(schedule, tenths(schedule)).makespan, rel=1e-12)


def test_a_million_microbatches_follow_the_closed_form():
    """1F1B on 8 devices: (M + P - 1)(t_F + t_B)."""
    found = steady_state("1f1b", costs_for, devices=8, microbatches=1_000_000)
    assert found is not None
    assert (found.metrics.makespan, found.period, found.microbatches) == ((1_000_000 + 7) * 3, 3, 1)
    assert found.metrics.peak_activations.tolist() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert found.metrics.messages == 2 * 7 * 1_000_000


def test_a_schedule_without_one_steady_state_is_left_to_the_full_run():
    """GPipe runs all forwards, then all backwards."""
    assert steady_state("gpipe", costs_for, devices=4, microbatches=1000) is None


def test_a_run_too_short_for_a_smaller_one_is_left_to_the_full_run():
    """Nothing is gained below a few rounds."""
    assert steady_state("1f1b", costs_for, devices=4, microbatches=20) is None


def test_queues_that_change_with_their_length_are_not_extended():
    """A generator that reorders beyond 500 microbatches: the small run says nothing about the large one."""

    def queues(microbatches, block):
        order = stream(0, microbatches)
        q = Queue(forward=order, backward=order)
        late = 2 if microbatches > 500 else 1
        q.repeat(late, F)
        q.repeat(microbatches - late, F, B)
        q.repeat(late, B)
        yield q.build()

    def found(microbatches):
        return extend_steady_state("odd", place("linear", 1, 1), queues, microbatches, costs_for)

    assert found(400) is not None
    assert found(600) is None


def test_a_step_out_of_line_is_no_steady_state():
    """One op of the window that ends at another time than its counterpart refutes the proof."""
    small, longer = (generate("1f1b", devices=3, microbatches=m) for m in (20, 21))
    split = [[packed_ops(schedule)[schedule.queue(d)] for d in range(3)] for schedule in (small, longer)]
    body = find_body(split[0], split[1], shift=1)
    assert body is not None
    times = compute_exact_times(small, costs_for(small))
    assert times is not None
    end = times[1]
    proof = prove(small, body, end)
    assert proof is not None
    assert proof.period == 3
    late = end.copy()
    late[proof.cut[1] - 2] += 1
    assert prove(small, body, late) is None


def test_the_proof_covers_every_block_that_later_ops_depend_on():
    """In ZB-1P device 3 of 4 runs W three blocks after its I: the op out of line four blocks before the cut refutes."""
    small, longer = (generate("zb-1p", devices=4, microbatches=m) for m in (30, 31))
    split = [[packed_ops(schedule)[schedule.queue(d)] for d in range(4)] for schedule in (small, longer)]
    body = find_body(split[0], split[1], shift=1)
    assert body is not None
    times = compute_exact_times(small, costs_for(small))
    assert times is not None
    end = times[1]
    proof = prove(small, body, end)
    assert proof is not None
    assert proof.ops[3] == 3
    late = end.copy()
    late[proof.cut[3] - 4 * 3] += 1
    assert prove(small, body, late) is None
    earlier = end.copy()
    earlier[proof.cut[3] - 5 * 3] += 1  # nothing that is inserted or follows depends on it
    assert prove(small, body, earlier) is not None


def packed_ops(schedule):
    return pack(schedule.stage, schedule.microbatch) | schedule.kind


def test_the_body_of_queues_is_all_that_repeats():
    """1F1B on two devices: from the first B after the warm-up's F to the last F; on the last device, everything."""
    small, longer = (generate("1f1b", devices=2, microbatches=m) for m in (20, 21))
    queues, more = ([packed_ops(s)[s.queue(d)] for d in range(2)] for s in (small, longer))
    body = find_body(queues, more, shift=1)
    assert body is not None
    assert (body.low.tolist(), body.high.tolist(), body.ops.tolist()) == ([1, 40], [39, 80], [2, 2])
    one, two = ([packed_ops(generate("1f1b", devices=1, microbatches=m))] for m in (1, 2))
    alone = find_body(one, two, shift=1)
    assert alone is not None
    assert (alone.low.tolist(), alone.high.tolist(), alone.ops.tolist()) == ([0], [2], [2])


def test_the_shift_of_a_queue_is_its_shortest():
    """Two ops that recur one microbatch later; nothing where nothing recurs, or where microbatches come in reverse."""
    alternating = np.stack([pack(0, np.arange(50)), pack(0, np.arange(50)) | Kind.B], axis=1).ravel()
    assert find_shift(alternating) == 1
    assert find_shift(pack(0, np.arange(50) ** 2)) is None
    assert find_shift(pack(0, np.arange(50)[::-1])) is None


def test_times_are_whole_numbers_of_the_scale():
    """Whatever the costs, start and end are the exact sums."""
    schedule = generate("1f1b", devices=2, microbatches=3)
    costs = Costs(np.full((4, 2), 1e-300), comm=1e100)
    times = compute_exact_times(schedule, costs)
    assert times is not None
    start, end, scale = times
    unit = int(1e100) * scale
    assert end[0] == start[0] + (1e-300).as_integer_ratio()[0] * scale // (1e-300).as_integer_ratio()[1]
    assert int(max(end)) > 2 * unit


def test_sums_that_doubles_cannot_hold_are_summed_as_integers():
    """An odd makespan just beyond 2**53, which a double would round to an even one."""
    schedule = generate("1f1b", devices=1, microbatches=3)
    backward = 3002399751580332.0
    times = compute_exact_times(schedule, costs_for(schedule, tf=1, tb=backward))
    assert times is not None
    _, end, scale = times
    assert (max(end), scale) == (3 + 3 * int(backward), 1)
    assert 2**53 < max(end) < 2**54
    assert max(end) % 2 == 1


def test_run_prints_the_shortcut_and_falls_back_to_the_full_run():
    """``--steady`` prints the same line either way, and says on stderr when it timed every op."""
    arguments = ["--devices", "4", "--mb", "400", "-q"]
    for name, note in (("1f1b", ""), ("gpipe", "timing every op")):
        full = CliRunner().invoke(command, ["-s", name, *arguments], catch_exceptions=False)
        short = CliRunner().invoke(command, ["-s", name, *arguments, "--steady"], catch_exceptions=False)
        assert short.stdout == full.stdout
        assert note in short.stderr


def test_the_shortcut_prints_the_numbers_of_a_full_run_as_json():
    """All but the ops, the command and the bound, which takes every op, to the last digit; and what was proved."""
    arguments = ["-s", "interleaved", "--devices", "4", "--mb", "400", "--comm", "0.25", "--json"]
    full, short = (
        json.loads(CliRunner().invoke(command, [*arguments, *more], catch_exceptions=False).stdout)
        for more in ([], ["--steady"])
    )
    assert short.pop("schema") == "ppsim.steady/1"
    assert short["simulated"] < 400
    assert short["period"] == 3 * short["period_microbatches"]
    assert {key: full[key] for key in set(short) & set(full) - {"inputs"}} == {
        key: short[key] for key in set(short) & set(full) - {"inputs"}
    }
    assert set(full) - set(short) == {"schema", "ops", "bound"}
    assert short["inputs"]["costs"] == full["inputs"]["costs"]


@pytest.mark.slow
def test_the_shortcut_is_not_held_to_what_all_queues_would_take():
    """256 devices and ten million microbatches: more ops than fit in memory, none of them needed."""
    found = steady_state("1f1b", costs_for, devices=256, microbatches=10_000_000)
    assert found is not None
    assert found.metrics.makespan == (10_000_000 + 255) * 3


def test_run_refuses_the_shortcut_where_a_timeline_is_asked_for():
    """No timeline, no file."""
    arguments = ["-s", "1f1b", "--devices", "4", "--mb", "400", "--steady", "-o", "x.json"]
    with pytest.raises(InputError, match="--steady has numbers only"):
        CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_a_file_and_a_missing_length_are_left_to_the_full_run(tmp_path):
    """A schedule from a file is timed in full; without microbatches the full run's own message is what is said."""
    target = str(tmp_path / "orders.csv")
    CliRunner().invoke(
        command, ["-s", "1f1b", "--devices", "2", "--mb", "4", "-q", "-o", target], catch_exceptions=False
    )
    full = CliRunner().invoke(command, ["-s", target, "-q"], catch_exceptions=False)
    short = CliRunner().invoke(command, ["-s", target, "-q", "--steady"], catch_exceptions=False)
    assert short.stdout == full.stdout
    with pytest.raises(InputError, match="number of microbatches is missing"):
        CliRunner().invoke(command, ["-s", "1f1b", "--devices", "2", "--steady"], catch_exceptions=False)
