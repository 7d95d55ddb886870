"""Cluster files: what they say, what they are refused for, and the networks that options make of
them.
"""

from pathlib import Path

import numpy as np
import pytest

from ppsim.core.costs import costs_for
from ppsim.engine.detailed.cluster import network, network_from_options, read
from ppsim.engine.detailed.execute import execute
from ppsim.engine.detailed.spec import links
from ppsim.engine.lowering.lower import lower
from ppsim.errors import InputError
from ppsim.schedules import generate

FULL = """\
schema = "ppsim.cluster/1"
devices_per_node = 4
message_bytes = 4194304
channel = "pair"

[intra]
alpha_us = 4
gb_per_s = 300
eager_bytes = 65536

[inter]
alpha_us = 12.5
gb_per_s = 50

[shared]
device_gb_per_s = 400
node_gb_per_s = 100
nics_per_node = 2
nic_gb_per_s = 40

[host]
send_us = 20
send_us_per_mib = 200
receive_us = 10
late_us = 60
gap_us = 28
preamble_us = 400
epilogue_us = 220

[fsdp]
unshard_us = 1500
reduce_grad_us = 2000
blocking = true
"""


@pytest.fixture
def file(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "cluster.toml"
        path.write_text(text)
        return str(path)

    return write


def test_every_key_reaches_the_network(file):
    """Links by node, times in the costs' unit, bandwidth in bytes per unit, devices dealt out to
    network cards.
    """
    net = network(read(file(FULL)), 8, "ms", "overlap")
    assert (net.mode, net.channel, net.message, net.late) == ("overlap", "pair", 4194304, 0.06)
    source, target = np.array([[0, 0, 5, 3], [3, 4, 4, 5]])
    assert links(net.alpha, source, target).tolist() == [0.004, 0.0125, 0.004, 0.0125]
    assert links(net.beta, source, target).tolist() == [300e6, 50e6, 300e6, 50e6]
    assert links(net.eager_bytes, source, target).tolist() == [65536, -1, 65536, -1]
    device, node, card = net.shared
    assert (device.capacity, device.node) == (400e6, None)
    assert device.group.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert (node.capacity, node.group.tolist()) == (100e6, [0, 0, 0, 0, 1, 1, 1, 1])
    assert (card.capacity, card.group.tolist()) == (40e6, [0, 0, 1, 1, 2, 2, 3, 3])
    assert node.node is not None
    assert card.node is not None
    assert (net.host.send, net.host.receive) == (0.02, 0.01)
    assert net.host.send_per_byte * 2**20 == pytest.approx(0.2)
    assert (net.host.gap, net.host.preamble, net.host.epilogue) == (0.028, 0.4, 0.22)
    assert (net.collectives.unshard, net.collectives.reduce_grad, net.collectives.blocking) == (
        1.5,
        2,
        True,
    )


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_unit_changes_numbers_and_no_outcome(file, unit):
    """The same run in seconds or nanoseconds."""
    schedule = generate("1f1b", devices=8, microbatches=8)
    scale = {"s": 1e-3, "ms": 1.0, "us": 1e3, "ns": 1e6}[unit]
    lowered = lower(schedule)
    net = network(read(file(FULL)), 8, unit, "overlap")
    run = execute(lowered, costs_for(schedule, tf=5 * scale, tb=10 * scale), net)
    reference = execute(
        lowered, costs_for(schedule, tf=5, tb=10), network(read(file(FULL)), 8, "ms", "overlap")
    )
    assert run.makespan == pytest.approx(reference.makespan * scale, rel=1e-9)


def test_a_short_file_says_the_rest(file):
    """Links alike everywhere, no limits, nothing for the host."""
    short = 'schema = "ppsim.cluster/1"\ndevices_per_node = 2\n[intra]\nalpha_us = 3\n'
    net = network(read(file(short)), 4, "us", "latency")
    assert np.unique(net.alpha).tolist() == [3]
    assert np.unique(net.beta).tolist() == [np.inf]
    assert net.shared == ()
    assert net.host.send == net.collectives.unshard == 0


def test_the_gallerys_cluster_has_times_for_every_fsdp_op():
    """Gathering, freeing and reducing parameters all take time there, so that a timeline shows
    them.
    """
    net = network(
        read(str(Path(__file__).parents[3] / "gallery" / "cluster.toml")), 16, "ms", "overlap"
    )
    assert min(net.collectives.unshard, net.collectives.reshard, net.collectives.reduce_grad) > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("alpha_us = 4\n", "alpha = 4\n", "line 7: unknown key 'alpha' in [intra]"),
        (
            "alpha_us = 4\n",
            "alpha_us = -4\n",
            "line 7: 'alpha_us' in [intra] must be 0 or more, got -4",
        ),
        (
            "alpha_us = 4\n",
            'alpha_us = "4 us"\n',
            "line 7: 'alpha_us' must be a number, got '4 us'",
        ),
        (
            "devices_per_node = 4\n",
            "devices_per_node = 0\n",
            "line 2: 'devices_per_node' must be 1 or more, got 0",
        ),
        ("devices_per_node = 4\n", "", "'devices_per_node' is missing"),
        (
            '"pair"',
            '"wire"',
            "line 4: 'channel' must be one of message, direction, pair, group, got 'wire'",
        ),
        (
            "nics_per_node = 2",
            "nics_per_node = 0",
            "line 18: 'nics_per_node' in [shared] must be 1 or more, got 0",
        ),
        (
            "gb_per_s = 300",
            "gb_per_s = 0",
            "line 8: 'gb_per_s' in [intra] must be more than 0, got 0; without it",
        ),
        (
            "gb_per_s = 300",
            "gb_per_s = 5e-324",
            "line 8: 'gb_per_s' in [intra] must be 1e-100 to 1e+100, got 4.9",
        ),
        (
            "nic_gb_per_s = 40",
            "nic_gb_per_s = 0",
            "'nic_gb_per_s' in [shared] must be more than 0, got 0",
        ),
        ("[fsdp]", "[ddp]", "line 30: unknown key 'ddp'"),
        ("blocking = true", "blocking = 1", "line 33: 'blocking' must be true or false, got 1"),
        ("cluster/1", "profile/1", "line 1: schema 'ppsim.profile/1', expected 'ppsim.cluster/1'"),
        ("[inter]", "[inter", "line 11"),
    ],
)
def test_faults_are_named_with_their_line(file, old, new, message):
    with pytest.raises(InputError) as error:
        read(file(FULL.replace(old, new, 1)))
    assert message in str(error.value)


def test_options_make_a_network(file):
    """Latency from the costs without a cluster; with one, its links, and a message and channel of
    one's own.
    """
    plain = network_from_options(4, "t_F", p2p="overlap", comm=0.5)
    assert (plain.mode, plain.channel, plain.alpha) == ("overlap", "direction", 0.5)
    own = network_from_options(
        4, "ms", p2p="batched", channel="group", cluster=file(FULL), message="1MiB"
    )
    assert (own.mode, own.channel, own.message) == ("batched", "group", 2**20)
    assert network_from_options(4, "ms", cluster=file(FULL)).message == 4194304


def test_options_that_do_not_fit_together_are_refused(file):
    with pytest.raises(InputError, match="without links"):
        network_from_options(4, "ms", message="1MiB")
    with pytest.raises(InputError, match="costs in t_F have no length in time"):
        network_from_options(4, "t_F", cluster=file(FULL))
    with pytest.raises(InputError, match="unknown mode 'async'"):
        network_from_options(4, "ms", p2p="async")
    with pytest.raises(InputError, match="not a size"):
        network_from_options(4, "ms", cluster=file(FULL), message="big")
