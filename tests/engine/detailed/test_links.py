"""Single links that differ: in the simple model, and over a cluster's own."""

import numpy as np
import pytest

from ppsim.engine.detailed.links import change_latencies, change_links, parse_link
from ppsim.engine.detailed.spec import Network
from ppsim.errors import InputError


def test_a_link_is_both_ways_or_one():
    changes = [parse_link("0-1=3", 3), parse_link("1>2=5", 3)]
    np.testing.assert_array_equal(
        change_latencies(1.0, 3, "t_F", changes, None), [[1, 3, 1], [3, 1, 5], [1, 1, 1]]
    )


def test_a_bandwidth_adds_the_time_of_a_message():
    """25 GB/s carry 25 million bytes in a millisecond."""
    change = parse_link("0-1=0.5,25GB/s", 2)
    assert change_latencies(0.0, 2, "ms", [change], 50e6)[0, 1] == pytest.approx(2.5)
    network = change_links(Network(alpha=1.0, beta=1e9), 2, "ms", [change])
    np.testing.assert_array_equal(network.alpha, [[1, 0.5], [0.5, 1]])
    np.testing.assert_array_equal(network.beta, [[1e9, 25e6], [25e6, 1e9]])


@pytest.mark.parametrize("texts", [("0-1=2", "0-1=3"), ("0-1=2", "1>0=3"), ("0>1=2", "0>1=2")])
def test_a_link_that_two_changes_set_is_refused(texts):
    """Only the last one would count."""
    changes = [parse_link(text, 2) for text in texts]
    with pytest.raises(InputError, match="is set twice"):
        change_latencies(0.0, 2, "ms", changes, None)
    with pytest.raises(InputError, match="is set twice"):
        change_links(Network(), 2, "ms", changes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-0=1", "does not join two"),
        ("0-9=1", "does not join two"),
        ("0=1", "not a link"),
        ("0-1=-1", "not a link"),
        ("0-1=1,0GB/s", "no bandwidth"),
        ("0-1=nan", "not a link"),
    ],
)
def test_what_is_no_link_is_refused(text, said):
    with pytest.raises(InputError, match=said):
        parse_link(text, 4)


def test_a_bandwidth_needs_sizes_and_a_unit_of_time():
    change = parse_link("0-1=1,25GB/s", 2)
    with pytest.raises(InputError, match="size of messages"):
        change_latencies(0.0, 2, "ms", [change], None)
    with pytest.raises(InputError, match="unit of time"):
        change_latencies(0.0, 2, "t_F", [change], 1e6)
