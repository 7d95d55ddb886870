"""Use of links and shared network cards over time."""

import numpy as np
import pytest

from ppsim.analysis.link_use import link_use, mean_in_columns
from ppsim.core.costs import costs_for
from ppsim.core.curve import Curve
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import Network, Shared
from ppsim.engine.lowering.lower import lower
from ppsim.schedules import generate


def executed(network, devices=4, microbatches=8):
    schedule = generate("1f1b", devices=devices, microbatches=microbatches)
    return execute(lower(schedule, "early"), costs_for(schedule), network)


def test_without_a_bandwidth_a_link_is_in_use_while_a_message_is_on_its_way():
    use = link_use(executed(Network("overlap", alpha=0.5)))
    assert use.name == ("link",) * 6
    assert not use.of_bandwidth
    assert use.devices == ((0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2))
    execution = executed(Network("overlap", alpha=0.5))
    np.testing.assert_allclose(use.mean, 8 * 0.5 / execution.makespan)
    assert use.most_messages.tolist() == [1] * 6


def test_columns_hold_the_same_use_as_the_messages_at_any_width():
    execution = executed(Network("overlap", "message", alpha=0.5, beta=4.0, message=4.0))
    use = link_use(execution)
    assert use.of_bandwidth
    for columns in (1, 7, 300):
        mean = mean_in_columns(use.curve, execution.makespan, columns).mean(axis=1)
        np.testing.assert_allclose(mean, use.mean, atol=1e-12)
    np.testing.assert_allclose(use.mean, 8 * 4.0 / 4.0 / execution.makespan)


def test_a_shared_card_has_a_row_for_each_direction_that_carries_messages():
    node = np.arange(4) // 2
    execution = executed(
        Network("overlap", beta=4.0, message=2.0, shared=(Shared(4.0, node, node),))
    )
    use = link_use(execution)
    rows = list(zip(use.name, use.devices, use.direction, strict=True))[6:]
    assert rows == [
        ("card", (0, 1), "out"),
        ("card", (0, 1), "in"),
        ("card", (2, 3), "out"),
        ("card", (2, 3), "in"),
    ]
    np.testing.assert_allclose(use.mean[6:], 8 * 2.0 / 4.0 / execution.makespan)


def test_messages_of_no_bytes_leave_a_link_without_a_share_of_its_bandwidth():
    """What takes a latency alone would be no use at all; so all use is time on the way."""
    execution = executed(Network("overlap", alpha=0.5, beta=4.0, message=2.0))
    execution.messages.size[::2] = 0.0
    assert not link_use(execution).of_bandwidth


def test_the_least_used_links_are_one_row_of_their_mean():
    execution = executed(
        Network("overlap", alpha=np.where(np.arange(6) == 2, 0.9, 0.1) + np.zeros((6, 6))), 6
    )
    whole, use = link_use(execution), link_use(execution, most_links=3)
    assert use.count.tolist() == [1, 1, 8]
    assert use.devices[-1] == ()
    kept = [whole.devices.index(devices) for devices in use.devices[:-1]]
    assert min(whole.mean[kept]) >= max(np.delete(whole.mean, kept))
    assert use.mean[-1] == pytest.approx(np.delete(whole.mean, kept).mean())
    columns = mean_in_columns(use.curve, execution.makespan, 50)
    np.testing.assert_allclose(columns[-1].mean(), use.mean[-1])


def test_nothing_is_in_use_where_messages_take_no_time():
    use = link_use(executed(Network("overlap")))
    assert len(use) == 0
    assert mean_in_columns(use.curve, 1.0, 3).shape == (0, 3)


def test_a_link_in_use_all_the_time_is_used_wholly():
    curve = Curve("link use", "", np.array([0, 2]), np.array([0.0, 2.0]), np.array([1.0, 0.0]))
    assert mean_in_columns(curve, 4.0, 4).tolist() == [[1.0, 1.0, 0.0, 0.0]]
