"""The animation shows the chart as it fills, and ends with all of it."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.show.files.document import Document, save
from ppsim.show.files.provenance import read_inputs
from ppsim.show.files.writers.animation import FRAMES

INPUTS = {"ppsim": "0", "command": "ppsim run zb-1p --stages 3 --mb 3"}


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    path = tmp_path_factory.mktemp("gif") / "x.gif"
    schedule = generate("zb-1p", stages=3, microbatches=3)
    save(
        Document((simulate(schedule, costs_for(schedule)),), ("ZB-1P",), INPUTS, width=3.3),
        str(path),
    )
    assert read_inputs(str(path)) == INPUTS
    with Image.open(path) as image:
        seen = []
        for number in range(FRAMES):
            image.seek(number)
            seen.append((np.asarray(image.convert("RGB")).astype(int), image.info["duration"]))
    return seen


def test_ink_only_grows_and_the_last_frame_has_all(frames):
    """What a frame shows stays in every later one, but for the line that moves with time."""
    coloured = [np.ptp(pixels, axis=2) > 60 for pixels, _ in frames[::-5][::-1]]  # with the last
    amounts = [int(ink.sum()) for ink in coloured]
    assert amounts == sorted(amounts)
    assert amounts[0] < amounts[-1] / 5
    for ink in coloured[::3]:
        assert (ink & ~coloured[-1]).sum() < 0.002 * ink.size  # edges that fewer shades move


def test_the_last_frame_stays(frames):
    times = [duration for _, duration in frames]
    assert times[-1] >= 20 * times[0]
    assert 4_000 < sum(times) < 15_000
