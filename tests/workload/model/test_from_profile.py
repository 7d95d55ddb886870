"""Memory from a measured profile: what each stage holds by its layers, ends and states."""

from dataclasses import replace

import numpy as np
import pytest

from ppsim.errors import InputError
from ppsim.inputs.profile.profile import Activation, Profile, StageSize
from ppsim.schedules import generate
from ppsim.workload.model.from_profile import profile_memory
from tests.inputs.profile.cases import MADE, MODEL, PROFILE

# Hidden 64, sequences of 16, two in a microbatch, 100 tokens, 32 bits: a message has 2 x 16 x 64 x
# 4 bytes.
MESSAGE = 8192
LAYER = 12 * 64**2 + 13 * 64
ROWS = (
    Activation("layers", 2, 11000, 13000, 1000),  # F leaves 10000, and I 2000 more for W
    Activation("layers", 4, 19000, 14000, 1000),  # F leaves 18000, of which I keeps 13000
    Activation("embedding", 0, 500, 300, 0),
    Activation("head", 0, 700, 900, 100),
)
MEASURED = replace(PROFILE, activation=ROWS)


def test_stages_hold_what_was_measured_for_their_layers():
    """Two layers of a stage hold what two held; one half as much, three between two and four, eight
    twice what four.
    """
    schedule = generate("1f1b", devices=4, microbatches=4)
    found = profile_memory(MEASURED, schedule, ("Ett", "ttm", "tttttttt", "tL"))
    middle = found.activations[1:3].tolist(), found.kept[1:3].tolist(), found.stash[1:3].tolist()
    assert middle == ([14000, 36000], [11500, 26000], [1000, 0])
    assert found.activations[[0, 3]].tolist() == [10000 + 500, 5000 + 600]
    # the first stage's W is the whole backward
    assert (found.kept[0], found.stash[0]) == (10500, 0)
    assert (found.kept[3], found.stash[3]) == (5000 + 600, 1000 + 200)
    assert found.message.tolist() == [MESSAGE, MESSAGE, MESSAGE, 0]
    assert found.stored.tolist() == [MESSAGE, MESSAGE, MESSAGE, 5600]


def test_states_follow_from_the_parameters_of_a_stage():
    """In 32 bits weights and gradients take 4 bytes of a parameter, Adam's moments 8; ends have
    their matrices.
    """
    schedule = generate("1f1b", devices=2, microbatches=4)
    found = profile_memory(MEASURED, schedule, ("Etm", "tttL")).static
    count = np.array([2 * LAYER + 100 * 64 + 16 * 64, 3 * LAYER + 100 * 64 + 2 * 64])
    assert found["weights"].tolist() == found["gradients"].tolist() == (4 * count).tolist()
    assert found["optimizer"].tolist() == (8 * count).tolist()


def test_without_a_layout_each_device_has_its_share_of_the_model():
    """Two layers a device, so one a stage with two chunks; ends are the first stage and the
    last.
    """
    found = profile_memory(MEASURED, generate("interleaved", devices=2, microbatches=4))
    assert found.activations.tolist() == [5500, 5000, 5000, 5600]
    one = profile_memory(MEASURED, generate("1f1b", devices=2, microbatches=4))
    assert one.activations.tolist() == [10500, 10600]
    assert one.static["weights"].tolist() == [4 * (2 * LAYER + 7424), 4 * (2 * LAYER + 6528)]


def test_stages_of_the_users_own_hold_what_each_was_measured_to():
    """Half-precision weights have a copy in 32 bits beside two moments; others the moments
    alone.
    """
    sizes = (
        StageSize(0, 640, 100, 200, 1100, 1300, 100),
        StageSize(1, 700, 100, 400, 2100, 600, 100),
        StageSize(2, 0, 50, 200, 500, 500, 0),
    )
    profile = Profile(MADE, stage=sizes)
    found = profile_memory(profile, generate("1f1b", devices=3, microbatches=2))
    assert found.activations.tolist() == [1000, 2000, 500]
    assert found.kept.tolist() == [1000, 500, 500]
    assert found.stash.tolist() == [200, 0, 0]
    assert found.stored.tolist() == [0, 640, 500]
    assert found.message.tolist() == [640, 700, 0]
    assert found.static["weights"].tolist() == found.static["gradients"].tolist() == [200, 400, 200]
    assert found.static["optimizer"].tolist() == [1200, 800, 400]
    with pytest.raises(InputError, match="has 3 stages, and 1f1b has 2") as refused:
        profile_memory(profile, generate("1f1b", devices=2, microbatches=2))
    assert "--stages 2" in str(refused.value.hint)


@pytest.mark.parametrize("changes", [{"model": None}, {"activation": ROWS[2:]}])
def test_a_profile_without_sizes_of_layers_is_refused(changes):
    with pytest.raises(InputError, match="no activation bytes of layers"):
        profile_memory(replace(MEASURED, **changes), generate("1f1b", devices=2, microbatches=2))


def test_sizes_are_those_of_the_measured_model():
    assert MODEL.message_bytes == MESSAGE


def test_a_model_too_large_to_count_is_refused():
    """A stage of 2 x 12 x 2^48 parameters, 16 bytes each, is beyond a pebibyte."""
    large = replace(MODEL, hidden=1 << 24)
    with pytest.raises(InputError, match="a stage of the profile's model takes more than 1 PiB"):
        profile_memory(replace(MEASURED, model=large), generate("1f1b", devices=2, microbatches=2))
