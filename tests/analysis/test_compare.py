"""What a comparison says in its last sentence: which schedule is fastest, and against which rival."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.analysis.compare import Row, conclude
from ppsim.simulation.metrics import measure
from tests.cases import timed


def rows(*numbers):
    """Rows named a, b, c... with these makespans and peaks on two devices; None for one that does not apply."""
    timeline = timed("1f1b", 2, 2)
    metrics = measure(timeline)

    def row(name, makespan, peak):
        return Row(name, timeline, replace(metrics, makespan=float(makespan), peak_activations=np.array([peak, peak])))

    named = zip("abcd", numbers, strict=False)
    return [row(name, *pair) if pair else Row(name, reason="odd") for name, pair in named]


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        # The baseline is fastest: the rival is the next fastest, of those the one that holds least.
        ([(10, 4), (30, 1), (20, 8)], "a is 2.00 times faster than c, with 0.5 times the peak activations"),
        ([(10, 4), (20, 8), (20, 2)], "a is 2.00 times faster than c, with 2 times the peak activations"),
        ([(10, 4), (20, 2), (20, 8)], "a is 2.00 times faster than b, with 2 times the peak activations"),
        # Another is fastest: the rival is the baseline, whoever is between.
        ([(30, 4), (20, 4), (10, 2)], "c is 3.00 times faster than a, with 0.5 times the peak activations"),
        ([(30, 4), (10, 8), (10, 2)], "c is 3.00 times faster than a, with 0.5 times the peak activations"),
        ([(10, 4), (10, 2)], "b takes as long as a, with 0.5 times the peak activations"),
        ([(10, 4), (10, 4)], "a takes as long as b, with the same peak activations"),
        ([None, (20, 2), (10, 2)], "c is 2.00 times faster than b, with the same peak activations"),
        ([(10, 4), None], "a is the only one that applies"),
        ([(0, 1), (4, 2)], "a takes no time and b takes 4, with 0.5 times the peak activations"),
        ([(4, 2), (0, 1)], "b takes no time and a takes 4, with 0.5 times the peak activations"),
        ([(0, 1), (0, 1)], "a takes as long as b, with the same peak activations"),
    ],
)
def test_the_last_sentence_names_the_fastest_and_its_rival(numbers, sentence):
    assert conclude(rows(*numbers)) == sentence
