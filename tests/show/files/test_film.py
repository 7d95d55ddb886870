"""The film of a search: steps as they were, one chart that they share, play and slider, small."""

import json
from dataclasses import replace

import pytest

import ppsim
from ppsim.questions import optimize as searching
from ppsim.questions.optimize import Step, film
from ppsim.show.files.document import Document, save
from tests.browser import started


@pytest.fixture(scope="module")
def found():
    return ppsim.optimize(devices=3, mb=4, ti=1.1, tw=0.9, comm=0.2, time_limit=2)


def filmed(found, steps):
    return film(Document((found.timeline,), ("optimized",), found.inputs), steps, found.outcome, "lead")


def steps_of(found):
    """Two orders, the second proved later."""
    best = found.outcome.solution
    worse = replace(best, makespan=best.makespan + 1, span=best.span + 1, origin="another")
    return [Step(0.1, worse, 1.0), Step(0.2, best, 1.0), Step(0.5, best, found.bound)]


def test_each_order_is_drawn_once_and_each_step_told(found):
    """Value, bound and time of every step; no bound above its value."""
    made = filmed(found, steps_of(found))
    assert made.titles == ("another", found.outcome.solution.origin)
    told = made.story.told["steps"]
    assert [step["timeline"] for step in told] == [0, 1, 1]
    assert [step["seconds"] for step in told] == [0.1, 0.2, 0.5]
    assert told[0]["value"] == told[1]["value"] + 1
    assert all(step["bound"] <= step["value"] for step in told)


def test_nothing_is_filmed_of_one_order_or_of_too_many_ops(found, monkeypatch):
    assert filmed(found, steps_of(found)[1:]).story is None
    monkeypatch.setattr(searching, "MOST_OPS", 2 * len(found.schedule))
    assert len(filmed(found, steps_of(found)).timelines) == 2
    monkeypatch.setattr(searching, "MOST_OPS", 2 * len(found.schedule) - 1)
    assert filmed(found, steps_of(found)).story is None


def test_a_search_has_its_steps(found):
    """Values fall, bounds rise, and the last is the answer."""
    values = [step.solution.score("span")[0] for step in found.steps]
    assert values == sorted(values, reverse=True)
    assert values[-1] == found.span
    assert found.steps[-1].bound == found.bound


@pytest.mark.browser
def test_the_page_steps_through_and_plays(found, tmp_path):
    """The slider changes chart and numbers, also by key; play goes from the first to the last."""
    target = tmp_path / "film.html"
    save(filmed(found, steps_of(found)), str(target))
    assert len(target.read_bytes()) < 150_000
    said = "document.querySelector('#film output').textContent"
    with started(tmp_path) as browser:
        browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
        browser.open(target.as_uri())
        last = browser.run(said)
        assert last.startswith("step 3 of 3, 0.5 s")
        browser.run("document.getElementById('step').focus()")
        for _ in range(2):
            browser.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", windowsVirtualKeyCode=37)
            browser.ask("Input.dispatchKeyEvent", type="keyUp", key="ArrowLeft", windowsVirtualKeyCode=37)
        assert browser.run(said).startswith("step 1 of 3, 0.1 s: another")
        assert "bound 1: at most" in browser.run(said)
        assert browser.run("location.hash") == ""  # the key picked no microbatch
        browser.click("#play")
        browser.wait(f"{said} === {json.dumps(last)}")
        browser.wait("document.getElementById('play').textContent === 'play'")
        for width in (390, 3840):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.ask("Emulation.setDeviceMetricsOverride", **size)
            assert browser.run("document.documentElement.scrollWidth") <= width
