"""What a profile does not say is derived where that is proof, and refused where it is not."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ppsim.base.toml import RefusedValue
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import InputError
from ppsim.inputs.profile.costs import costs_from, message_ms
from ppsim.inputs.profile.line_fit import fit_messages
from ppsim.inputs.profile.profile import Activation, Fit, Message, OpTime, Profile
from ppsim.inputs.profile.text import differences, fit_lines, message_rows, summary
from ppsim.schedules import generate
from ppsim.workload.model.from_profile import profile_memory
from tests.inputs.profile.cases import MADE, MODEL, PROFILE, message, op


def traced(*times: tuple[str, int, float]) -> Profile:
    """A profile made from traces: kind, stage, ms."""
    return Profile(
        MADE,
        op=tuple(op(kind, ms, "stage", 0, stage=stage, cache="run") for kind, stage, ms in times),
    )


# Torch's zero-bubble V of two ranks: one runs full backwards only, the other split ones only. F = I
# = W = 1, B = 2.
MIXED = traced(
    *((k, s, ms) for s in (0, 2) for k, ms in (("F", 1.0), ("B", 2.0))),
    *((k, s, 1.0) for s in (1, 3) for k in "FIW"),
)


@pytest.mark.parametrize(("name", "options"), [("looped-bfs", {}), ("interleaved", {})])
def test_a_full_backward_costs_its_halves_where_it_was_not_traced(name, options):
    """It cost nothing there, and schedules were ranked by that."""
    schedule = generate(name, devices=2, microbatches=8, **options)
    costs = costs_from(MIXED, schedule)
    np.testing.assert_array_equal(costs.time[Kind.B], [2, 2, 2, 2])
    assert simulate(schedule, replace(costs, comm=0.0)).makespan == 51


def test_stages_shared_out_count_the_halves_too():
    schedule = generate("1f1b", devices=4, microbatches=8)
    assert simulate(schedule, costs_from(MIXED, schedule)).makespan == 33
    schedule = generate("1f1b", devices=8, microbatches=8)
    np.testing.assert_array_equal(costs_from(MIXED, schedule).time[Kind.B], np.ones(8))


def test_halves_cannot_be_told_from_a_full_backward():
    for name, devices in (("dualpipe-v", 2), ("zb-1p", 4), ("zb-1p", 8)):
        with pytest.raises(InputError, match="no time of I on stage 0, which"):
            costs_from(MIXED, generate(name, devices=devices, microbatches=8))


def test_a_stage_without_a_pair_costs_the_sum_of_both_ops():
    times = [
        (k, s, ms) for s in range(4) for k, ms in (("F", 1.0), ("B", 2.0), ("I", 1.0), ("W", 1.0))
    ]
    schedule = generate("dualpipe-v", devices=2, microbatches=4)
    assert costs_from(traced(*times), schedule).pair is None
    pair = costs_from(traced(*times, ("FB", 1, 2.5)), schedule).pair
    assert pair is not None
    np.testing.assert_array_equal(pair, [3, 2.5, 3, 3])


def test_a_stage_left_out_is_named():
    with pytest.raises(InputError, match="has no stage 1"):
        costs_from(
            traced(("F", 0, 1.0), ("B", 0, 1.0), ("F", 10**12, 1.0)),
            generate("1f1b", devices=2, microbatches=2),
        )


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: op("F", 1, "stage"), "stage"),
        (lambda: replace(PROFILE.op[0], layers=-1), "layers"),
        (lambda: replace(PROFILE.op[0], host_ms=-1.0), "host_ms"),
        (lambda: replace(PROFILE.op[0], p10_ms=-1.0), "p10_ms"),
        (lambda: replace(PROFILE.message[0], send_ms=-1.0), "send_ms"),
        (lambda: replace(PROFILE.message[0], receive_ms=-1.0), "receive_ms"),
        (lambda: replace(PROFILE.fit[0], ms_per_byte=-1e-6), "ms_per_byte"),
        (lambda: replace(PROFILE.fit[0], alpha_ms=-1.0), "alpha_ms"),
        (lambda: replace(PROFILE.fit[0], range="some"), "range"),
        (lambda: Activation("layers", 1, -5, 0, 0), "after_f_bytes"),
        (lambda: Activation("layers", -1, 5, 0, 0), "layers"),
        (lambda: replace(MADE, cores=-1), "cores"),
    ],
)
def test_no_number_of_a_profile_is_below_zero(make, key):
    with pytest.raises(RefusedValue) as caught:
        make()
    assert caught.value.key == key


SIZES = (1024, 65536, 1 << 20, 1 << 24)


@given(
    times=st.lists(st.floats(1e-3, 100), min_size=4, max_size=4).map(sorted),
    noise=st.floats(1, 10),
    beyond=st.integers(1, 1 << 30),
)
def test_a_message_costs_no_less_beyond_the_sizes_measured(times, noise, beyond):
    """Continuous and monotone at both ends, whatever the line and whether it goes through the 10th
    percentiles.
    """
    rows = tuple(
        Message("same-host", "early", size, ms, ms / noise, ms, 5)
        for size, ms in zip(SIZES, times, strict=True)
    )
    profile = replace(PROFILE, message=rows, fit=tuple(fit_messages(rows)))
    first, last = message_ms(profile, SIZES[0]), message_ms(profile, SIZES[-1])
    assert message_ms(profile, SIZES[-1] + 1) == pytest.approx(last, rel=1e-5)
    assert message_ms(profile, SIZES[0] - 1) == pytest.approx(first, rel=2e-3)
    assert message_ms(profile, SIZES[-1] + beyond) >= last * (1 - 1e-12)
    assert message_ms(profile, max(1, SIZES[0] - beyond)) <= first * (1 + 1e-12)


def test_one_measured_size_bounds_smaller_messages_and_is_shared_out_to_larger_ones():
    profile = replace(PROFILE, message=(message(1024, 2.0),), fit=())
    assert [message_ms(profile, size) for size in (1, 1024, 2048)] == [2, 2, 4]


def test_a_line_of_no_time_leaves_the_measured_time():
    nothing = Fit("same-host", "early", "rendezvous", "median", 1024, 1 << 20, 0.0, 0.0, 0.0, 0.0)
    assert message_ms(replace(PROFILE, fit=(nothing,)), 1 << 30) == pytest.approx(1.0)


def test_a_size_is_told_in_the_largest_unit_that_divides_it():
    sizes = (1000, 1 << 10, 3 << 20, 1 << 30, 1 << 40)
    profile = replace(PROFILE, message=tuple(message(size, 1.0) for size in sizes))
    told = [row[0] for row in message_rows(profile, "same-host")[1]]
    assert told == ["1000 B", "1 KiB", "3 MiB", "1 GiB", "1024 GiB"]


def test_a_profile_of_nothing_has_a_text():
    """Percentiles and medians of zero are no divisor."""
    still = OpTime("layers", "B", 2, 0.0, 0.0, 0.0, 1)
    quiet = Message("same-host", "early", 1024, 1.0, 0.0, 9.0, 5)
    fit = Fit("same-host", "early", "rendezvous", "p10", 1024, 1024, 0.0, 1e-6, 0.0, 0.0)
    profile = replace(
        PROFILE, op=(PROFILE.op[0], still, *PROFILE.op[2:4]), message=(quiet,), fit=(fit,)
    )
    assert "split_over_full" not in summary(profile)
    assert message_rows(profile, "same-host")[1][0][0] == "1 KiB"
    assert any("rendezvous sizes, 1 KiB" in line for line in fit_lines(profile))
    ratios = {d.name: d.ratio for d in differences(profile, PROFILE).times}
    assert ratios["2 layers B, cold"] == np.inf
    assert {d.ratio for d in differences(profile, profile).times} == {1.0}


def test_a_cost_without_layers_is_constant():
    rows = tuple(op(kind, 3.0, layers=0) for kind in "FB")
    costs = costs_from(replace(PROFILE, op=rows), generate("1f1b", devices=2, microbatches=2))
    np.testing.assert_array_equal(costs.time[[Kind.F, Kind.B]], np.full((2, 2), 3.0))


def test_a_model_whose_heads_do_not_divide_its_width_is_refused():
    profile = replace(
        PROFILE, model=replace(MODEL, heads=7), activation=(Activation("layers", 2, 5, 5, 0),)
    )
    with pytest.raises(InputError, match="the profile's model: heads"):
        profile_memory(profile, generate("1f1b", devices=2, microbatches=2))


def test_a_layout_puts_layers_and_head_where_it_says():
    """A layer takes 5 ms of the 10 that two take, the head 3; an empty stage what any action costs,
    here nothing.
    """
    schedule = generate("1f1b", devices=3, microbatches=2)
    time = costs_from(PROFILE, schedule, content=("Ettt", "mL", "")).time
    assert time[0].tolist() == pytest.approx([15.0, 5.0 + 3.0, 0.0])
    assert time[1].tolist() == pytest.approx([30.0, 10.0 + 5.0, 0.0])
    even = costs_from(PROFILE, schedule, content=("Ett", "tt", "ttL"))
    assert even.time == pytest.approx(costs_from(PROFILE, schedule).time)
