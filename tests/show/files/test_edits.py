"""Schedules that are edited on a page have the times, the peaks and the validity that Python gives
the same queues.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.core.costs import Costs
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.memory.usage import MemoryModel, curves, resize
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import families
from ppsim.show.files.document import Document, save
from ppsim.show.files.editing import kinds_object
from tests.browser import Browser, started
from tests.cases import timed
from tests.edits import amounts, small, uneven_costs, verify


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "bpipe", "vocab-2"])
def test_a_page_has_the_rules_of_every_kind_in_its_queues(name):
    """A row for each code up to the last; those that edits may make have theirs in any case."""
    timeline = timed(name, 4, 8)
    rows = kinds_object(Document((timeline,), (name,), {}))
    codes = {*timeline.schedule.kind.tolist(), Kind.F, Kind.B, Kind.I, Kind.W}
    assert len(rows) == max(codes) + 1
    assert {code: rows[code]["name"] for code in codes} == {code: Kind(code).name for code in codes}


# Random edits of every kind, most of them moves to near places, and every eighth an undo; what the
# page has after each.
EDIT = """
(() => {
  let seed = SEED;
  const random = below => {
    seed = (seed + 0x6D2B79F5) | 0;
    let t = Math.imul(seed ^ seed >>> 15, 1 | seed);
    t ^= t + Math.imul(t ^ t >>> 7, 61 | t);
    return Math.floor(((t ^ t >>> 14) >>> 0) / 4294967296 * below);
  };
  const found = [];
  const add = did => found.push({ did, csv: ppsim.csv(), state: ppsim.state() });
  for (let i = 0; i < COUNT; i++) {
    const { queues } = ppsim.state();
    const device = random(queues.length);
    const size = queues[device].length;
    const kind = random(18);
    const csv = ppsim.csv();
    const some = random(queues.length + 1);
    const acts = [['split', device, random(size)], ['join', device, random(size)], ['add'],
      ['take', random(3)], ['cross', device, random(size)], ['splitAll', some], ['joinAll', some]];
    const from = random(size);
    const near = Math.min(size - 1, Math.max(0, from + random(7) - 3));
    const act = kind < 7 ? acts[kind] : ['move', device, from, kind < 9 ? random(size) : near];
    try {
      ppsim[act[0]](...act.slice(1));
    } catch (error) {
      if (ppsim.csv() !== csv) throw error;
      continue;
    }
    add(act);
    if (i % 4 && found.at(-1).state.valid) continue;
    ppsim.undo();
    if (ppsim.csv() !== csv) throw Error('undo has not brought back ' + csv);
    ppsim.redo();
    if (ppsim.csv() !== found.at(-1).csv)
      throw Error('redo has not brought back ' + found.at(-1).csv);
    if (!found.at(-1).state.valid) ppsim.undo();
  }
  return JSON.stringify(found);
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


def prove_cycle(found: dict[str, Any]) -> None:
    """Each op of a named cycle waits for one that stands behind the next one of it on the same
    device.
    """
    cycle = found["state"]["cycle"]
    place = {}
    for device, queue in enumerate(found["state"]["queues"]):
        for at, cell in enumerate(queue):
            for label in cell.removesuffix(")OVERLAP_F_B").lstrip("(").split(";"):
                place[device, label] = at
    for (_, awaited), (following, _) in zip(cycle, cycle[1:] + cycle[:1], strict=True):
        spots = [(device, spot) for (device, label), spot in place.items() if label == awaited]
        assert any(place.get((device, following), 1 << 30) <= spot for device, spot in spots), cycle


def follow(
    browser: Browser,
    target: Path,
    schedule: Schedule,
    costs: Costs,
    model: MemoryModel | None,
    seed: int,
) -> None:
    """Edit the page of a schedule at random, and prove all that it says."""
    browser.open(target.as_uri())
    states = json.loads(browser.run(EDIT.replace("SEED", str(seed)).replace("COUNT", "40")))
    assert browser.errors == []
    valid = 0
    for found in states:
        valid += verify(found, schedule, costs, model)
        if found["state"]["cycle"]:
            prove_cycle(found)
    assert len(states) >= 12
    assert valid >= 3


@pytest.mark.browser
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", [family.name for family in families()])
def test_edits_have_the_times_that_python_gives_their_queues(name, seed, tmp_path, browser):
    """Makespan, every start, peaks and validity; a cycle where they cannot run; undo brings the
    queues back.
    """
    schedule = small(name)
    costs = uneven_costs(schedule, seed)
    model = amounts(schedule, seed)
    timeline = simulate(schedule, costs)
    held = (curves(timeline, model),)
    document = Document((timeline,), (name,), memory=held, costs=(costs,), memory_models=(model,))
    save(document, str(tmp_path / "x.html"))
    follow(browser, tmp_path / "x.html", schedule, costs, model, seed)


@pytest.mark.browser
@pytest.mark.parametrize("name", ["zb-1p", "interleaved"])
def test_edits_hold_what_each_microbatch_holds(name, tmp_path, browser):
    """Of microbatches of different lengths, in bytes."""
    schedule = small(name)
    costs = uneven_costs(schedule, 1)
    sizes = np.random.default_rng(1).uniform(0.2, 3, (1, schedule.n_microbatches))
    model = resize(amounts(schedule, 1), sizes)
    timeline = simulate(schedule, costs)
    held = (curves(timeline, model),)
    document = Document((timeline,), (name,), memory=held, costs=(costs,), memory_models=(model,))
    save(document, str(tmp_path / "x.html"))
    follow(browser, tmp_path / "x.html", schedule, costs, model, 1)


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "copies to the host": ("interleaved", {"offload": 1, "t_offload": 0.5, "t_reload": 0.75}),
    "copies of two replicas": ("chimera", {"offload": 1, "t_offload": 0.5, "t_reload": 0.75}),
    "copies and pairs of two replicas": (
        "dualpipe",
        {"offload": 1, "t_offload": 0.5, "t_reload": 0.25, "tfb": 2.5},
    ),
    "recompute": ("1f1b", {"recompute": "full", "comm": 0.25}),
    "recompute of a part": ("1f1b", {"recompute": "layers:1", "layout": "Et|t|t|tL"}),
    "training steps": (
        "interleaved",
        {"steps": 2, "t_optimizer": 1.5, "t_gather": 0.5, "t_reduce_grad": 0.75},
    ),
    "steps that no device waits for": (
        "zb-1p",
        {"steps": 3, "t_optimizer": 1.5, "post_validation": True},
    ),
    "a pipeline that is never drained": ("pipedream-2bw", {"steps": 3, "t_optimizer": 0.5}),
    "a steady state of a decoder": ("decode", {"steps": 3, "comm": 0.25, "feedback": 0.6}),
    "steps": (
        "1f1b",
        {"tf": [1, 2, 1, 1.5], "comm": 0.3, "link": ["0-1=0.7"], "speed": [1, 1, 0.8, 1]},
    ),
    "slices": ("seq1f1b", {"slices": 4}),
    "pairs with a time": ("1f1b-overlap", {"tfb": 2.5}),
    "microbatches of different lengths": ("zb-1p", {"mb_scale": "1,1.3,0.7,1,1,1.1,1,0.9"}),
}


@pytest.mark.browser
@pytest.mark.parametrize("name", VARIANTS)
def test_edits_of_what_options_ask_for(name, tmp_path, browser):
    """Copies, recompute, rounds, slices, pairs and factors, as the command line's page has them."""
    spec, options = VARIANTS[name]
    ran = ppsim.run(spec, devices=4, microbatches=8, **options)
    ran.save(tmp_path / "x.html")
    follow(browser, tmp_path / "x.html", ran.schedule, ran.costs, None, 3)


@pytest.mark.browser
@pytest.mark.parametrize("name", ["copies of two replicas", "copies and pairs of two replicas"])
def test_a_microbatch_crosses_with_its_copies_and_in_its_pair(name, tmp_path, browser):
    """All of its ops are on the other devices then, as many as before; what is left runs as Python
    says.
    """
    spec, options = VARIANTS[name]
    ran = ppsim.run(spec, devices=4, microbatches=8, **options)
    ran.save(tmp_path / "x.html")
    browser.open((tmp_path / "x.html").as_uri())
    first = homes(browser.run("ppsim.state()"))
    valid = pairs = 0
    for device, queue in enumerate(browser.run("ppsim.state()")["queues"]):
        for at in range(0, len(queue), 2):
            browser.run(f"ppsim.cross({device}, {at})")
            found = {
                "did": queue[at],
                "csv": browser.run("ppsim.csv()"),
                "state": browser.run("ppsim.state()"),
            }
            valid += verify(found, ran.schedule, ran.costs, None)
            gone = {microbatch_of(label) for label in labels(queue[at])}
            there = homes(found["state"])
            assert there.keys() == first.keys()
            for label, home in first.items():
                crossed = microbatch_of(label) in gone
                assert there[label] == (3 - home if crossed else home), (queue[at], label)
            if len(gone) == 2:
                pairs += 1
                assert queue[at] in found["state"]["queues"][3 - device]
            browser.run("ppsim.undo()")
    assert valid >= 8
    assert bool(pairs) == ("pairs" in name)


def labels(cell: str) -> list[str]:
    """Return the ops of a cell."""
    return cell.removesuffix(")OVERLAP_F_B").lstrip("(").split(";")


def microbatch_of(label: str) -> str:
    """Return the microbatch of an op."""
    return label[len(label.rstrip("0123456789")) :]


def homes(state: dict[str, Any]) -> dict[str, int]:
    """Return the device of each op."""
    return {
        label: device
        for device, queue in enumerate(state["queues"])
        for cell in queue
        for label in labels(cell)
    }
