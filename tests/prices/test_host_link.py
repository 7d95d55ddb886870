"""--host-link: copies to the host take as long as their bytes do, where something gives bytes and a
unit of time.
"""

from pathlib import Path

import pytest

from ppsim.ask.groups import ShapeOptions
from ppsim.core.ops import Kind
from ppsim.errors import InputError
from ppsim.prices.build import build, build_memory
from ppsim.prices.options import CostOptions
from ppsim.prices.trained import TrainedModel, TrainedOptions

PROFILE = str(Path(__file__).parents[2] / "gallery" / "profile-cpu.toml")
SHAPE = ShapeOptions(devices=4, microbatches=8)


@pytest.mark.parametrize("slices", [None, 2])
def test_a_copy_takes_as_long_as_an_activation_has_bytes(slices):
    """Of a profile, in its milliseconds; a slice's copy has a slice's bytes."""
    costs = CostOptions(profile=PROFILE, offload="all", host_link="2GB/s")
    spec, shape = (
        ("seq1f1b", ShapeOptions(devices=4, microbatches=8, slices=slices))
        if slices
        else ("1f1b", SHAPE)
    )
    schedule, prices = build(spec, shape, costs)
    held = build_memory(schedule, prices, costs)[0].activations
    assert held.min() > 0
    for kind in (Kind.OFFLOAD, Kind.RELOAD):
        assert (schedule.kind == kind).any()
        assert prices.others[kind].tolist() == pytest.approx((held / 2e9 * 1e3).tolist())


def test_a_model_gives_the_bytes_where_times_have_a_unit():
    costs = CostOptions(tf=1.0, unit="s", offload="all", host_link="100GB/s")
    model = TrainedModel("llama3-8b", TrainedOptions())
    schedule, prices = build("1f1b", SHAPE, costs, model=model)
    held = build_memory(schedule, prices, costs, model)[0].activations
    assert prices.others[Kind.OFFLOAD].tolist() == pytest.approx((held / 100e9).tolist())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tf": 1.0, "unit": "ms"}, "needs the bytes of an activation"),
        ({}, "needs times in a unit of time, and theirs is t_F"),
        ({"profile": PROFILE, "host_link": "55"}, "--host-link: not a bandwidth: '55'"),
        ({"profile": PROFILE, "host_link": "0GB/s"}, "not a bandwidth"),
        ({"profile": PROFILE, "host_link": "fast/s"}, "not a size: 'fast'"),
        (
            {"profile": PROFILE, "host_link": "1B/s"},
            "1f1b has no copies to a host that end in time",
        ),
        ({"profile": PROFILE, "offload": None}, "(?m)1f1b has no copies to a host$"),
    ],
)
def test_what_has_no_bytes_no_unit_or_no_copies_is_refused(more, reason):
    options = {"offload": "all", "host_link": "55GB/s"} | more
    with pytest.raises(InputError, match=reason):
        build("1f1b", SHAPE, CostOptions(**options))
