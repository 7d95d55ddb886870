"""The numbers of a timeline, on examples that a hand can check."""

import numpy as np
import pytest

from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.engine.simple.longest_path import simulate
from ppsim.engine.simple.metrics import measure, peak_activations
from ppsim.schedules import generate
from tests.cases import drawn


def numbers(name, costs=None, **shape):
    schedule = generate(name, **shape)
    return measure(simulate(schedule, costs_for(schedule, **(costs or {}))))


def test_one_f_one_b_of_four_stages():
    """1F1B, 4 stages, 8 microbatches, F = 1, B = 2: every number of the textbook."""
    metrics = numbers("1f1b", stages=4, microbatches=8)
    assert metrics.makespan == 33
    assert metrics.ideal == 24
    assert metrics.bubble_rate == 9 / 33
    assert metrics.bubble_over_ideal == 9 / 24 == 3 / 8
    assert metrics.span == 33
    assert metrics.bubble_rate_span == 9 / 33
    assert metrics.busy.tolist() == [24] * 4
    assert metrics.idle.tolist() == [9] * 4
    assert metrics.peak_activations.tolist() == [4, 3, 2, 1]
    assert metrics.messages == 2 * 3 * 8


def test_the_three_bubbles_differ():
    """ZB-H2 with equal times has no bubble in the span of a device, and one in the iteration of
    all.
    """
    metrics = numbers("zb-h2", stages=4, microbatches=8)
    assert metrics.bubble_rate_span == 0
    assert metrics.span == metrics.ideal == 24
    assert metrics.makespan == 27
    assert metrics.bubble_rate == 3 / 27
    assert metrics.bubble_over_ideal == 3 / 24


def test_one_device_has_no_bubble():
    """A pipeline of one device is always busy and sends nothing."""
    metrics = numbers("1f1b", stages=1, microbatches=3)
    assert (metrics.bubble_rate, metrics.bubble_over_ideal, metrics.bubble_rate_span) == (0, 0, 0)
    assert (metrics.makespan, metrics.messages) == (9, 0)


def test_uneven_stages():
    """The ideal is the busiest device's work; busy and idle are each device's own."""
    metrics = numbers("gpipe", {"tf": [1, 3], "tb": 2}, stages=2, microbatches=2)
    assert metrics.busy.tolist() == [6, 10]
    assert metrics.ideal == 10
    assert metrics.makespan == 1 + 6 + 4 + 2
    assert metrics.idle.tolist() == [7, 3]
    assert metrics.bubble_rate == pytest.approx(10 / 26)
    assert metrics.bubble_over_ideal == pytest.approx(3 / 10)


def test_a_pair_is_busy_once():
    """The time of a pair counts once for its device, not once for each op."""
    metrics = numbers("1f1b-overlap", {"tfb": 2.5}, stages=1, microbatches=3)
    assert metrics.busy.tolist() == [1 + 2 * 2.5 + 2]
    assert metrics.makespan == metrics.ideal == 8


def test_free_ops():
    """When nothing takes time, nothing is a bubble, and nothing is divided by zero."""
    metrics = numbers("1f1b", {"tf": 0, "tb": 0}, stages=3, microbatches=2)
    assert (
        metrics.makespan,
        metrics.bubble_rate,
        metrics.bubble_over_ideal,
        metrics.bubble_rate_span,
    ) == (0, 0, 0, 0)


def test_messages_cross_devices_only():
    """An input from a stage on the same device is no message."""
    looped = generate("looped-bfs", devices=1, chunks=3, microbatches=2)
    assert measure(simulate(looped, costs_for(looped))).messages == 0
    folded = generate("dualpipe-v", devices=2, microbatches=4)
    assert measure(simulate(folded, costs_for(folded))).messages == 2 * 2 * 4


def test_peaks_by_what_frees_them():
    """Activations live to the W of a split backward; the part that I frees is gone at I."""
    schedule = generate("zb-1p", stages=4, microbatches=8)
    assert peak_activations(schedule).tolist() == [4, 4, 4, 4]
    assert peak_activations(schedule, Kind.I).tolist() == [4, 3, 2, 1]


def test_a_pair_holds_both_activations():
    """In a pair the forward takes its activation before the backward gives one back, whichever is
    named first.
    """
    first = drawn("F0.0 (F0.1+B0.0) B0.1")
    assert peak_activations(first).tolist() == [2]
    second = drawn("F0.0 (B0.0+F0.1) B0.1")
    assert peak_activations(second).tolist() == [2]
    apart = drawn("F0.0 B0.0 F0.1 B0.1")
    assert peak_activations(apart).tolist() == [1]


def test_empty_devices():
    """Devices without ops are idle throughout, first, last or between."""
    schedule = drawn("", "F0.0 B0.0", "", "F1.0 B1.0", "", home=[1, 3], microbatches=1)
    metrics = measure(simulate(schedule, Costs(np.ones((4, 2)))))
    assert metrics.makespan == 4
    assert metrics.busy.tolist() == [0, 2, 0, 2, 0]
    assert metrics.idle.tolist() == [4, 2, 4, 2, 4]
    assert metrics.peak_activations.tolist() == [0, 1, 0, 1, 0]
    assert metrics.bubble_rate == 16 / 20


def test_nothing_at_all():
    """A schedule without ops takes no time."""
    schedule = drawn("", "", home=[0], microbatches=1)
    metrics = measure(simulate(schedule, Costs(np.ones((4, 1)))))
    assert (metrics.makespan, metrics.ideal, metrics.messages) == (0, 0, 0)
    assert metrics.peak_activations.tolist() == [0, 0]
