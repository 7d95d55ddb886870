"""Rows of a page zoom, move and are pinned by mouse, wheel, touch and keyboard; the overview shows
where the view is.
"""

from __future__ import annotations

import pytest

from tests.axe import broken_rules
from tests.browser import Browser, started
from tests.cases import timed
from tests.pages import page

SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
NAMES = r"""[...document.querySelectorAll('#marks text')]
  .map(text => /^(?:device )?(\d+)$/.exec(text.textContent))
  .filter(found => found?.[0].startsWith('device')).map(found => +found[1])"""
CODES = {"w": 87, "s": 83, "p": 80, "f": 70, "ArrowDown": 40, "ArrowUp": 38, "Escape": 27}
SHIFT, CTRL = 8, 2


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def chart(browser, tmp_path):
    """A page of 40 devices, without the curve below, whose axis has the same names."""
    target = tmp_path / "x.html"
    target.write_text(page(timed("1f1b", 40, 8)))
    browser.open(target.as_uri())
    choose = "const curve = document.getElementById('curve'); curve.value = -1; curve.onchange()"
    browser.run(f"(() => {{ {choose} }})()")
    return browser


def press(browser: Browser, key: str, shift: bool = False) -> None:
    letter = key.upper() if shift and len(key) == 1 else key
    found = {"key": letter, "windowsVirtualKeyCode": CODES[key], "modifiers": SHIFT * shift}
    for kind in ("keyDown", "keyUp"):
        browser.ask("Input.dispatchKeyEvent", type=kind, **found)
    browser.run(SETTLED)


def find(browser: Browser, words: str) -> str:
    """What the status line says once the reader looked for something."""
    typed = f"field.value = {words!r}; field.onchange(); field.blur()"
    browser.run(f"(() => {{ const field = document.getElementById('find'); {typed} }})()")
    browser.run(SETTLED)
    return status(browser)


def status(browser: Browser) -> str:
    said: str = browser.run("document.getElementById('status').textContent")
    return said


def row_of(browser: Browser, name: int) -> tuple[float, float]:
    """Where the name of a device stands, its middle."""
    box = f"""(() => {{ const found = [...document.querySelectorAll('#marks text')]
      .find(text => text.textContent === 'device {name}').getBoundingClientRect();
      return [found.left + found.width / 2, found.top + found.height / 2]; }})()"""
    x, y = browser.run(box)
    return x, y


def frame(browser: Browser) -> list[float]:
    """The frame of the overview: where it begins and ends in the rows, as shares of its height."""
    found: list[float] = browser.run("""(() => {
      const outer = document.getElementById('overview').getBoundingClientRect();
      const inner = document.querySelector('#overview .view').getBoundingClientRect();
      return [inner.top, inner.bottom].map(y => (y - outer.top) / outer.height); })()""")
    return found


@pytest.mark.browser
def test_rows_zoom_and_move_by_keyboard(chart):
    press(chart, "w", shift=True)
    assert status(chart) == "devices 10 to 29 of 40"
    assert chart.run(NAMES) == [*range(10, 30)]
    assert frame(chart) == pytest.approx([0.25, 0.75], abs=0.01)
    press(chart, "ArrowDown")
    assert chart.run(NAMES) == [*range(15, 35)]
    press(chart, "ArrowUp")
    press(chart, "ArrowUp")
    press(chart, "s", shift=True)
    assert status(chart) == ""
    press(chart, "w", shift=True)
    press(chart, "f")
    assert {0, 38} <= {*chart.run(NAMES)}


@pytest.mark.browser
def test_pinned_devices_stay_on_top(chart):
    """Those that are named are alone; more rows come back below them; Escape lets them go."""
    assert find(chart, "devices 3, 30-32") == "pinned: 3, 30 to 32"
    assert chart.run(NAMES) == [3, 30, 31, 32]
    for _ in range(3):
        press(chart, "s", shift=True)
    assert status(chart) == "pinned: 3, 30 to 32 · devices 0 to 15 of 40"
    assert chart.run(NAMES) == [3, 30, 31, 32, 0, 1, 2, *range(4, 16)]
    press(chart, "ArrowDown")
    assert chart.run(NAMES) == [3, 30, 31, 32, *range(4, 20)]
    press(chart, "Escape")
    assert chart.run(NAMES) == [*range(4, 20)]


@pytest.mark.browser
def test_what_the_pointer_is_on_is_told_of_the_row_that_is_shown(chart):
    """The tip of an op names the device of its row, and a click on a name pins it or lets it go."""
    find(chart, "devices 0, 39")
    for device in (0, 39):
        x, y = row_of(chart, device)
        wide = chart.run("document.getElementById('chart').getBoundingClientRect().width")
        for share in range(20, 95):
            at = {"x": x + share / 100 * wide, "y": y}
            chart.ask("Input.dispatchMouseEvent", type="mouseMoved", **at)
            if " forward" in (tip := chart.run("document.getElementById('tip').textContent")):
                break
        assert f"device {device} ·" in tip
    x, y = row_of(chart, 39)
    chart.mouse("mousePressed", x, y)
    chart.mouse("mouseReleased", x, y)
    chart.run(SETTLED)
    assert (status(chart), chart.run(NAMES)) == ("pinned: 0", [0])


@pytest.mark.browser
def test_an_op_that_is_looked_for_has_its_row(chart):
    press(chart, "w", shift=True)
    find(chart, "39F2")
    assert 39 in chart.run(NAMES)
    assert "39F2" in chart.run("document.getElementById('tip').textContent")


@pytest.mark.browser
def test_selected_rows_are_pinned_and_summed_as_they_are_shown(chart):
    find(chart, "devices 3, 30")
    x, y = row_of(chart, 3)
    _, low = row_of(chart, 30)
    for kind, at in (("mousePressed", (x + 60, y)), ("mouseMoved", (x + 500, low))):
        chart.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left",
                  buttons=1, modifiers=SHIFT)  # fmt: skip
    chart.mouse("mouseReleased", x + 500, low)
    chart.run(SETTLED)
    assert "devices 3, 30" in chart.run("document.getElementById('sums').textContent")
    press(chart, "p")
    assert status(chart) == "pinned: 3, 30"


@pytest.mark.browser
def test_wheel_and_two_fingers_zoom_rows_and_the_overview_moves_them(chart):
    x, y = chart.middle("#chart")
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "modifiers": SHIFT + CTRL}
    chart.ask("Input.dispatchMouseEvent", **wheel, deltaY=-200)
    chart.wait(f"({NAMES}).length < 40")
    wide = len(chart.run(NAMES))
    assert wide > 10
    chart.ask("Page.captureScreenshot")  # what touches do on zoomed rows holds once they are shown
    for step in range(9):
        apart = 40 + 20 * step
        fingers = [{"x": x, "y": y - apart, "id": 0}, {"x": x + 5, "y": y + apart, "id": 1}]
        kind = "touchMove" if step else "touchStart"
        chart.ask("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)
    chart.ask("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    chart.wait(f"({NAMES}).length < {wide}")
    assert chart.run(NAMES)
    box = chart.run("""(() => { const b = document.getElementById('overview')
      .getBoundingClientRect(); return [b.left + b.width / 2, b.top + 0.9 * b.height]; })()""")
    chart.mouse("mousePressed", *box)
    chart.mouse("mouseReleased", *box)
    chart.wait(f"({NAMES}).includes(36)")


@pytest.mark.browser
def test_what_names_no_device_is_refused_in_words(chart):
    assert find(chart, "devices 3-40") == "No device 40: the last is 39"
    assert find(chart, "devices 5-3") == "Cannot read '5-3'; try devices 0, 4-7"
    assert {0, 38} <= {*chart.run(NAMES)}


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_zoomed_rows_keep_the_rules_of_axe(chart, theme):
    media = [{"name": "prefers-color-scheme", "value": theme}]
    chart.ask("Emulation.setEmulatedMedia", features=media)
    find(chart, "devices 0, 4-7")
    press(chart, "s", shift=True)
    assert broken_rules(chart) == []
    assert chart.errors == []
