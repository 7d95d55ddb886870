"""Recompute of some layers or modules of a stage: its time, what F keeps, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ppsim
from ppsim.core.recompute import add_recompute, parse_rules
from ppsim.core.timeline import Timeline
from ppsim.errors import PpsimError
from ppsim.prices.trained import TrainedModel, TrainedOptions
from ppsim.schedules import generate
from ppsim.workload.model.contents import contents_of, kept_bytes
from ppsim.workload.model.model import read_trained
from ppsim.workload.model.parallel import Parallel

SHAPE: dict[str, Any] = {"devices": 4, "mb": 8}


def times_again(timeline: Timeline) -> list[float]:
    """What each R took."""
    took: list[float] = (timeline.end - timeline.start)[
        timeline.schedule.kind == ppsim.Kind.R
    ].tolist()
    return took


@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 8), st.sampled_from([0.5, 1, 2]))
def test_layers_of_a_layout_take_their_own_time_and_memory(count, devices, microbatches, head):
    """R takes the first N layers' forwards; F keeps the others: (w - 1)(L - N) + L layers at the
    peak, w in flight.
    """
    layout = "E" + "|".join(["tttt"] * devices) + "L"
    found = ppsim.memory(
        "1f1b", layout=layout, microbatches=microbatches, t_head=head, recompute=f"layers:{count}"
    )
    again = min(count, 4)
    assert times_again(found.timeline) == [again] * (devices * microbatches * (count > 0))
    in_flight = [min(microbatches, devices - device) for device in range(devices)]
    assert found.peak == [(w - 1) * (4 - again) + 4 for w in in_flight]
    plain = ppsim.run("1f1b", layout=layout, microbatches=microbatches, t_head=head)
    assert found.timeline.makespan <= plain.timeline.makespan + microbatches * again


@pytest.mark.parametrize("count", [0, 1, 3, 8, 20])
def test_layers_of_a_model_keep_what_a_plan_keeps(count):
    """As many bytes as Megatron's recompute-num-layers leaves of a stage, and a share of the
    forward as its time.
    """
    found = ppsim.memory("1f1b", **SHAPE, model="llama3-8b", recompute=f"layers:{count}")
    model, parallel = read_trained("llama3-8b", None), Parallel(pp=4, microbatches=8)
    whole, part = (
        [kept_bytes(model, p, content) for content in contents_of(model, p)]
        for p in (
            parallel,
            Parallel(pp=4, microbatches=8, recompute="full", recompute_layers=count),
        )
    )
    parts = [peak.parts["activations"] for peak in found.report.peaks]
    assert parts == pytest.approx([whole[d] + (3 - d) * part[d] for d in range(4)])
    assert times_again(found.timeline) == pytest.approx([min(count, 8) / 8] * 32 if count else [])


def test_modules_take_their_share_of_the_products():
    """The MLP of Llama 2 7B has 3 hf of 4 hh + 3 hf of all but attention's core."""
    model = TrainedModel("llama2-7b", TrainedOptions())
    core, mlp = (model.share_of((name,)) for name in ("core_attn", "mlp"))
    assert mlp / (1 - core) == pytest.approx(3 * 11008 / (4 * 4096 + 3 * 11008))
    assert model.share_of(("core_attn", "mlp")) == pytest.approx(core + mlp)
    rules = ("full", "modules:mlp", "none")
    full, part, none = (
        ppsim.memory("1f1b", **SHAPE, model="llama2-7b", recompute=rule) for rule in rules
    )
    assert full.peak[0] < part.peak[0] < none.peak[0]
    assert times_again(part.timeline) == pytest.approx([mlp] * 32)


def test_the_time_may_be_given():
    """Then activations count from F on, as the amount that F keeps is unknown."""
    found = ppsim.run("1f1b", **SHAPE, recompute="layers:2", tr=0.25)
    assert found.metrics.peak_activations.tolist() == [4, 3, 2, 1]
    assert found.timeline.makespan == 3 * 3 + 8 * 3.25
    assert ppsim.memory("1f1b", **SHAPE, recompute="layers:2", tr=0.25).peak == [4, 3, 2, 1]


def test_stages_with_rules_of_their_own():
    rules = "full,layers:1,none,layers:2"
    found = ppsim.memory("1f1b", layout="Ett|tt|tt|ttL", microbatches=8, recompute=rules)
    assert found.peak == [2, (3 - 1) * 1 + 2, 4, 2]
    assert found.timeline.schedule.partial_recompute == (1, 3)
    counted = ppsim.run(
        "1f1b", layout="Ett|tt|tt|ttL", microbatches=8, recompute=rules
    ).metrics.peak_activations
    assert counted.tolist() == [1, 3, 2, 1]


@pytest.mark.filterwarnings("ignore:.*timed again")
def test_files_say_which_stages_run_a_part_again(tmp_path):
    path = str(tmp_path / "x.json")
    found = ppsim.run(
        "1f1b", layout="Ett|tt|tt|ttL", microbatches=8, recompute="full,layers:1,none,layers:2"
    )
    found.save(path)
    again = ppsim.run(path)
    assert (
        again.metrics.peak_activations.tolist()
        == found.metrics.peak_activations.tolist()
        == [1, 3, 2, 1]
    )
    assert ppsim.memory(path).peak == [1, 3, 2, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recompute": "layers:2"}, "number of layers of a stage is unknown"),
        ({"recompute": "modules:mlp"}, "the time of the modules is unknown"),
        ({"recompute": "modules:mlp,experts", "tr": 1}, "not a module: 'experts'"),
        ({"recompute": "layers:1,full"}, "2 rules of recompute"),
    ],
)
def test_what_nothing_says_is_refused(options, message):
    with pytest.raises(PpsimError, match=message):
        ppsim.run("1f1b", **SHAPE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recompute": "modules:moe"}, "no moe"),
        ({"recompute": "layers:1", "recomputes": "selective"}, "cannot be combined"),
    ],
)
def test_what_a_model_has_not_is_refused(options, message):
    with pytest.raises(PpsimError, match=message):
        ppsim.memory("1f1b", **SHAPE, model="llama3-8b", **options)


def test_a_split_of_layers_knows_no_part_of_a_stage():
    with pytest.raises(PpsimError, match="part of a stage"):
        ppsim.partition("1f1b", **SHAPE, num_layers=16, recompute="layers:2")


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("modules:core_attn,mlp*2,none", ["modules:core_attn,mlp"] * 2 + ["none"]),
        ("modules:mlp,full", ["modules:mlp", "full"]),
        ("layers:2*2,modules:a,b,c", ["layers:2", "layers:2", "modules:a,b,c"]),
        ("modules:a*2,modules:b", ["modules:a", "modules:a", "modules:b"]),
    ],
)
def test_commas_between_modules_and_between_rules(text, rules):
    assert parse_rules(text) == rules


def test_a_part_on_every_stage_takes_less_than_all_of_it():
    """Queues are those of full recompute; only times and memory differ."""
    plain = generate("zb-h1", devices=4, microbatches=8)
    full, part = add_recompute(plain), add_recompute(plain, "layers:1")
    assert np.array_equal(full.kind, part.kind)
    rules = ("layers:1", "layers:2", "full")
    one, two, every = (
        ppsim.run("zb-h1", layout="Ett|tt|tt|ttL", microbatches=8, recompute=rule).timeline
        for rule in rules
    )
    assert one.makespan < two.makespan == every.makespan
