"""A range selected on a page has the sums of its ops and gaps."""

from __future__ import annotations

import re

import pytest

from ppsim.analysis.idle import arrivals, explain_idle
from ppsim.core.costs import costs_for
from ppsim.engine.simple.longest_path import simulate
from ppsim.schedules import generate
from ppsim.show.files.document import Document, save
from tests.browser import opened, started

# Shift + drag over the first two of three devices, from the left edge of the chart to its middle.
SELECT = """
<script>
const drawn = setInterval(() => {
  if (document.documentElement.dataset.state !== 'drawn') return;
  clearInterval(drawn);
  const chart = document.getElementById('chart');
  const box = chart.getBoundingClientRect();
  const at = (type, x, y) => chart.dispatchEvent(new PointerEvent(type, {
    bubbles: true, pointerId: 1, button: 0, buttons: 1, shiftKey: true,
      clientX: box.left + x, clientY: box.top + y }));
  at('pointerdown', 60, 14); at('pointermove', 300, 30); at('pointermove', LAST, 60);
  at('pointerup', LAST, 60);
}, 50);
</script></body>
"""


@pytest.mark.browser
def test_the_sums_of_everything_are_those_of_the_timeline(tmp_path):
    schedule = generate("1f1b", stages=2, microbatches=4)
    costs = costs_for(schedule, comm=0.5)
    timeline = simulate(schedule, costs)
    causes = explain_idle(timeline, arrivals(timeline, costs.latencies(schedule))).by_cause
    save(Document((timeline,), ("1F1B",)), str(tmp_path / "x.html"))
    text = (tmp_path / "x.html").read_text()
    dom = opened(text.replace("</body>", SELECT.replace("LAST", "1400")), tmp_path)
    section = dom[dom.index('<section id="sums"') :]
    rows = dict(
        re.findall(r"<td>([^<]+)</td><td>([^<]+)</td>", section[: section.index("</section>")])
    )
    busy = float(timeline.schedule.n_devices * 12)
    whole = timeline.makespan * 2
    assert float(rows["busy"]) == busy
    assert float(rows["idle"]) == pytest.approx(whole - busy)
    assert (float(rows["forward"]), float(rows["backward"])) == (8.0, 16.0)
    told = {
        name.removeprefix("idle: "): float(v)
        for name, v in rows.items()
        if name.startswith("idle: ")
    }
    assert told == pytest.approx(causes)
    assert 'class="selected"' in dom


@pytest.mark.browser
def test_the_sums_are_in_sight_above_the_rest_of_a_long_page(tmp_path):
    schedules = [
        generate(name, devices=16, microbatches=8) for name in ("gpipe", "1f1b", "zb-1p", "zb-h2")
    ]
    timelines = tuple(simulate(schedule, costs_for(schedule)) for schedule in schedules)
    save(
        Document(timelines, tuple(schedule.name for schedule in schedules)),
        str(tmp_path / "x.html"),
    )
    bottom = "innerHeight - document.getElementById('sums').getBoundingClientRect().bottom"
    tell = f"setTimeout(() => {{ document.body.dataset.bottom = Math.round({bottom}); }}, 200);"
    script = SELECT.replace("LAST", "600").replace("}, 50);", f"{tell} }}, 50);")
    dom = opened((tmp_path / "x.html").read_text().replace("</body>", script), tmp_path)
    assert 'data-bottom="0"' in dom


@pytest.mark.browser
@pytest.mark.parametrize(("last", "snaps"), [(469, True), (500, False)])
def test_a_range_ends_at_an_op_that_is_near(last, snaps, tmp_path):
    """Pixels from the end of an op at 5 the range ends there; in the middle of a cell where the
    pointer is.
    """
    schedule = generate("1f1b", stages=2, microbatches=4)
    target = tmp_path / "x.html"
    save(Document((simulate(schedule, costs_for(schedule)),), ("1F1B",)), str(target))
    with started(tmp_path) as browser:
        size = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        browser.open(target.as_uri())
        left, top = browser.run(
            "(b => [b.left, b.top])(document.getElementById('chart').getBoundingClientRect())"
        )
        for kind, x, y in (
            ("Pressed", 78, 14),
            ("Moved", 300, 30),
            ("Moved", last, 60),
            ("Released", last, 60),
        ):
            at = {
                "x": left + x,
                "y": top + y,
                "button": "left",
                "buttons": 1,
                "modifiers": 8,
                "clickCount": 1,
            }
            browser.ask("Input.dispatchMouseEvent", type=f"mouse{kind}", **at)
        ruler = (
            "[...document.querySelectorAll('#marks text[paint-order]')].map(each => "
            "each.textContent)"
        )
        browser.wait(f"{ruler}.length === 1 && !document.getElementById('sums').hidden")
        [told] = browser.run(ruler)
    assert (told == "5 t_F") == snaps, told


@pytest.mark.browser
def test_a_gap_is_told_once(tmp_path):
    """Its length, what it waits for and its cause; at the end the cause alone."""
    schedule = generate("1f1b", stages=4, microbatches=8)
    target = tmp_path / "x.html"
    save(Document((simulate(schedule, costs_for(schedule)),), ("1F1B",)), str(target))
    told = []
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        box = "document.getElementById('chart').getBoundingClientRect()"
        left, width, top = browser.run(f"(b => [b.left, b.width, b.top])({box})")
        for share, row in ((0.2, 0), (0.97, 1)):
            x, y = left + 76 + share * (width - 240), top + 8 + 38 * row + 19
            browser.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
            told.append(browser.run("document.getElementById('tip').textContent"))
    assert told[0].startswith(
        "idle  device 0 · 4 → 10 (6 t_F)\nuntil 0B0: waiting for 1B0 on device 1\n"
    )
    assert told[1].startswith("idle  device 1 · 31 → 33 (2 t_F)\ndrain, ")
    assert all(text.count("idle") == 1 for text in told)
