"""Plans of models whose head or encoder takes as long as several layers, by brute force over the
splits.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

import ppsim

HEAVY = """
schema = "ppsim.model/2"
name = "heavy"
hidden = 2048
heads = 16
layers = {layers}
seq = 4096
vocab = 256000
kv_heads = 4
ffn = 8192
gated = true
"""


def seconds(model: str, **layers: Any) -> float:
    """The step of 1f1b with a layout or the name of one."""
    run = ppsim.run("1f1b", devices=4, microbatches=32, model=model, cluster="dgx-h100", **layers)
    found: float = run.to_json()["step"]["seconds"]
    return found


ENCODER = """
[encoder]
hidden = 2048
heads = 16
layers = 27
ffn = 8192
tokens = 1024
"""


def splits(layers: int, stages: int) -> list[tuple[int, ...]]:
    """All splits with a layer at least on each stage but the first and the last."""
    cuts = combinations(range(layers + 1), stages - 1)
    return [tuple(b - a for a, b in zip((0, *cut), (*cut, layers), strict=True)) for cut in cuts]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("layers", "encoder", "light"),
    [(12, "", "light-last"), (14, "", "light-last"), (16, ENCODER, "light-first")],
)
def test_the_best_plan_is_as_fast_as_the_best_split(
    tmp_path: Path, layers: int, encoder: str, light: str
) -> None:
    """Each split is timed by run; the best plan's layout gives at most 2 % away."""
    file = tmp_path / "heavy.toml"
    file.write_text(HEAVY.format(layers=layers) + encoder)
    model = str(file)
    found = ppsim.plan(
        model,
        "dgx-h100",
        gpus=4,
        gbs=32,
        tp=[1],
        pp=[4],
        mbs=[1],
        schedules="1f1b",
        recomputes="none",
        top=1,
    )
    (plan,) = found.plans
    times = {}
    for split in splits(layers, 4):
        text = "E" + "|".join("t" * count for count in split) + "L"
        times[split] = seconds(model, layout=text)
    best = min(times.values())
    assert plan["modelled_step_s"] <= 1.02 * best
    assert plan["layout"].startswith(light)
    again = seconds(model, layouts=plan["layout"])
    assert again == pytest.approx(plan["modelled_step_s"], rel=1e-9)
    assert seconds(model, layouts="even") > 1.1 * best
