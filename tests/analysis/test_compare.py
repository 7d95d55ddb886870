"""What a comparison says in its last sentence: which schedule is fastest, and against which
rival.
"""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.analysis.compare import (
    Row,
    compare_object,
    conclude,
    mark_front,
    mark_shapes,
    sweep_object,
)
from ppsim.ask.groups import ShapeOptions
from ppsim.engine.simple.columns import columns_of
from ppsim.engine.simple.metrics import measure
from ppsim.errors import InputError, PpsimError, UnknownSchedule
from ppsim.prices import several
from ppsim.prices.options import CostOptions
from ppsim.schedules import generate
from tests.cases import timed


def rows(*numbers):
    """Rows named a, b, c... with these makespans and peaks on two devices; None for one that does
    not apply.
    """
    timeline = timed("1f1b", 2, 2)
    metrics = measure(timeline)

    def row(name, makespan, peak):
        return Row(
            name,
            timeline,
            replace(metrics, makespan=float(makespan), peak_activations=np.array([peak, peak])),
        )

    named = zip("abcd", numbers, strict=False)
    return [
        row(name, *pair) if pair else Row(name, refused=PpsimError("odd")) for name, pair in named
    ]


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        # The baseline is fastest: the rival is the next fastest, of those the one that holds least.
        (
            [(30, 4), (10, 0)],
            "b is 3.00 times faster than a (10 against 30 t_F), with no activations held",
        ),
        (
            [(10, 4), (30, 1), (20, 8)],
            "a is 2.00 times faster than c (10 against 20 t_F), with 0.5 times the "
            "peak activations",
        ),
        (
            [(10, 4), (20, 8), (20, 2)],
            "a is 2.00 times faster than c (10 against 20 t_F), with 2 times the peak activations",
        ),
        (
            [(10, 4), (20, 2), (20, 8)],
            "a is 2.00 times faster than b (10 against 20 t_F), with 2 times the peak activations",
        ),
        # Another is fastest: the rival is the baseline, whoever is between.
        (
            [(30, 4), (20, 4), (10, 2)],
            "c is 3.00 times faster than a (10 against 30 t_F), with 0.5 times the "
            "peak activations",
        ),
        (
            [(30, 4), (10, 8), (10, 2)],
            "c is 3.00 times faster than a (10 against 30 t_F), with 0.5 times the "
            "peak activations",
        ),
        ([(10, 4), (10, 2)], "b takes as long as a, 10 t_F, with 0.5 times the peak activations"),
        ([(10, 4), (10, 4)], "a takes as long as b, 10 t_F, with the same peak activations"),
        (
            [None, (20, 2), (10, 2)],
            "c is 2.00 times faster than b (10 against 20 t_F), with the same peak activations",
        ),
        ([(10, 4), None], "a takes 10 t_F, the only one that applies"),
        (
            [(0, 1), (4, 2)],
            "a takes no time and b takes 4 t_F, with 0.5 times the peak activations",
        ),
        (
            [(4, 2), (0, 1)],
            "b takes no time and a takes 4 t_F, with 0.5 times the peak activations",
        ),
        ([(0, 1), (0, 1)], "a takes as long as b, 0 t_F, with the same peak activations"),
    ],
)
def test_the_verdict_names_the_fastest_and_its_rival(numbers, sentence):
    assert conclude(rows(*numbers)) == sentence


def test_the_front_is_of_those_that_apply():
    """A row that does not apply is on no front and beats none; of equals both stay."""
    assert mark_front(rows((10, 4), None, (20, 2), (20, 4))) == [True, False, True, False]
    assert mark_front(rows(None, (10, 4), (10, 4))) == [False, True, True]
    assert mark_front(rows(None)) == [False]
    points = ((True, 3.0, 2.0), (False, 1.0, 1.0), (True, 4.0, 2.0), (True, 4.0, 1.0))
    shapes = [
        {"applies": a, "devices": 4, "makespan_per_mb": time, "peak_activations_share": held}
        for a, time, held in points
    ]
    assert mark_shapes(shapes) == [True, False, False, True]
    assert [each["pareto"] for each in sweep_object(shapes, {})["shapes"]] == [
        True,
        False,
        False,
        True,
    ]


def build(spec, *_):
    if spec == "odd":
        raise InputError("no such shape", "--stages 8")
    if spec == "plain":
        raise InputError("no such shape")
    if spec == "nobody":
        raise UnknownSchedule("no schedule")
    return generate(spec, devices=2, microbatches=4)


def row(spec):
    return several.time_schedule(spec, ShapeOptions(), CostOptions())


def test_a_row_has_its_numbers_or_the_reason_why_it_has_none(monkeypatch):
    """1F1B and interleaved on two devices: 4 x 3 + 3 and 4 x 3 + 1.5, which hold two, and three
    halves of one more.
    """
    monkeypatch.setattr(several, "build_schedule", build)
    monkeypatch.setattr(several, "options_taken", lambda spec, shape: shape)
    plain, chunks, odd = (row(spec) for spec in ("1f1b", "interleaved", "odd"))
    assert (plain.makespan, plain.peak) == (15.0, 2.0)
    assert (chunks.makespan, chunks.peak) == (13.5, 2.5)
    assert odd.reason == "no such shape (--stages 8)"
    assert row("plain").reason == "no such shape"
    assert odd.makespan == float("inf")
    assert np.isnan(odd.peak)
    column = next(column for column in columns_of("rows") if column.key == "makespan")
    assert plain.value(column) == 15.0
    assert np.isnan(odd.value(column))
    with pytest.raises(UnknownSchedule):
        row("nobody")
    made = compare_object([plain, odd, chunks], {"a": 1}, conclude([plain, odd, chunks]))
    assert [each["applies"] for each in made["schedules"]] == [True, False, True]
    assert made["schedules"][1] == {
        "name": "odd",
        "applies": False,
        "reason": "no such shape (--stages 8)",
        "pareto": False,
    }
    first = made["schedules"][0]
    assert [first[key] for key in ("schedule", "devices", "stages", "chunks", "microbatches")] == [
        "1f1b",
        2,
        2,
        1,
        4,
    ]
    assert (first["makespan"], first["pareto"], made["schedules"][2]["stages"]) == (15.0, True, 4)


def test_shapes_on_other_numbers_of_devices_are_not_ranked():
    """A 1/P share of 8 devices is half of that of 4: the same peak is less memory, and no front has
    both.
    """
    fields = ("applies", "devices", "makespan_per_mb", "peak_activations_share")
    shapes = [
        dict(zip(fields, row, strict=True))
        for row in ((True, 4, 3.0, 4.0), (True, 8, 2.0, 4.0), (True, 8, 2.5, 5.0))
    ]
    assert mark_shapes(shapes) == [True, True, False]


def test_what_does_not_fit_a_cap_is_on_no_front():
    first, second = rows((10, 4), (12, 2))
    assert mark_front([replace(first, excess=1.0), replace(second, excess=-1.0)]) == [False, True]
    assert conclude([replace(first, excess=1.0), replace(second, excess=-1.0)]).startswith(
        "b takes 12 t_F, the only one that fits"
    )
