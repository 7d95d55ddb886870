"""A schedule is edited on its page by mouse, touch and keyboard, said in words, kept in a link and
saved.
"""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import ppsim
from ppsim.inputs.check.checks import check
from ppsim.inputs.drafts.readers.csv import parse
from ppsim.questions.across.view import view
from ppsim.show.files.document import Document
from ppsim.show.files.writers.html import write
from ppsim.show.server.page import live_page
from tests.axe import broken_rules
from tests.browser import Browser, started
from tests.clock import HANG_S
from tests.commands import invoke

ALT, CONTROL, SHIFT = 1, 2, 8
CODES = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Delete": 46}
GROWTH = 25_000  # bytes that the editor may add to a page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def browser(folder):
    with started(folder) as found:
        yield found


@pytest.fixture
def page(tmp_path, browser):
    """Return a function that opens the page of a command with its editor on, and returns its
    address.
    """

    def opened(command: str, on: bool = True) -> str:
        target = tmp_path / "x.html"
        assert invoke(*command.split(), "-q", "-o", str(target)).exit_code == 0
        browser.open(target.as_uri())
        if on:
            browser.run("document.getElementById('edit').click()")
        return target.as_uri()

    return opened


def press(browser: Browser, key: str, modifiers: int = 0) -> None:
    code = CODES.get(key, ord(key[0].upper()))
    text = {"text": key} if len(key) == 1 and not modifiers else {}
    for kind in ("keyDown", "keyUp"):
        more = text if kind == "keyDown" else {}
        stroke = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": code}
        browser.ask("Input.dispatchKeyEvent", type=kind, **stroke, **more)


def state(browser: Browser) -> dict[str, Any]:
    return browser.run("ppsim.state()")


def said(browser: Browser, element: str) -> str:
    return browser.run(f"document.getElementById({element!r}).textContent")


def spot(browser: Browser, label: str) -> tuple[float, float]:
    """Return where the middle of an op's cell is in the window, found by the page's own search."""
    browser.run(
        f"(() => {{ const find = document.getElementById('find'); find.value = {label!r};"
        " find.dispatchEvent(new Event('change')); })()"
    )
    frame = "document.querySelector('#marks path[stroke-width=\"2.5\"]').getBoundingClientRect()"
    browser.wait("document.querySelector('#marks path[stroke-width=\"2.5\"]')")
    x, y = browser.run(f"(box => [box.left + box.width / 2, box.top + box.height / 2])({frame})")
    return x, y


# Bytes of pages of eight devices and 32 microbatches before pages could be edited.
BEFORE = {"1f1b": 54_183, "interleaved": 55_156, "zb-v": 55_058, "vocab-2": 67_199}


@pytest.mark.parametrize("name", BEFORE)
def test_the_editor_adds_little_to_a_page(name):
    """A page is 25 kB larger at most than it was before it could be edited."""
    ran = ppsim.run(name, devices=8, microbatches=32)
    out = io.BytesIO()
    write(Document((ran.timeline,), (name,), costs=(ran.costs,)), out, ".html")
    assert b'"edit"' in out.getvalue()
    assert len(out.getvalue()) <= BEFORE[name] + GROWTH


@pytest.mark.browser
def test_the_keyboard_alone_edits(page, browser):
    """The switch, selection, moves, split, join, microbatches, undo and redo."""
    page("run 1f1b --stages 4 --mb 4", on=False)
    browser.run("document.getElementById('chart').focus()")
    first = browser.run("ppsim.csv()")
    press(browser, "e")
    for key in ("ArrowRight", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        press(browser, key)
    assert said(browser, "status").startswith("1B0 on device 1, place 4")
    press(browser, "ArrowRight", ALT)
    assert state(browser)["queues"][1][3:5] == ["1F3", "1B0"]
    press(browser, "i")
    assert state(browser)["queues"][1][3:6] == ["1F3", "1I0", "1W0"]
    press(browser, "j")
    assert state(browser)["queues"][1][3:5] == ["1F3", "1B0"]
    press(browser, "+")
    assert len(state(browser)["sources"]) == 5
    press(browser, "Delete")
    assert state(browser)["sources"] == [1, 2, 3, 3]
    last = browser.run("ppsim.csv()")
    for _ in range(5):
        press(browser, "z", CONTROL)
    assert browser.run("ppsim.csv()") == first
    for _ in range(5):
        press(browser, "z", CONTROL | SHIFT)
    assert browser.run("ppsim.csv()") == last
    assert browser.errors == []


@pytest.mark.browser
def test_the_mouse_drags_an_op_and_a_ghost_has_its_cost(page, browser):
    """Nothing changes until it is let go; Escape lets it go where it was."""
    page("run 1f1b --stages 4 --mb 8")
    x, y = spot(browser, "0F4")
    after, _ = spot(browser, "0B1")
    before = browser.run("ppsim.csv()")
    for end in ("Escape", "release"):
        browser.mouse("mousePressed", x, y)
        for share in (0.3, 0.7, 1):
            browser.mouse("mouseMoved", x + share * (after + 8 - x), y)
        browser.wait("document.querySelector('#marks .ghost')")
        assert said(browser, "tip").startswith(
            "+3 t_F  36 t_F · bubble 33.3%\npeak activations 4 3 2 1\nidle: "
        )
        assert browser.run("ppsim.csv()") == before
        if end == "Escape":
            press(browser, "Escape")
        browser.mouse("mouseReleased", after + 8, y)
        browser.wait("!document.querySelector('#marks .ghost')")
        assert (browser.run("ppsim.csv()") == before) == (end == "Escape")
    found = state(browser)
    assert found["queues"][0][4:7] == ["0B0", "0B1", "0F4"]
    assert said(browser, "edited").startswith("36 t_F, +3 t_F · bubble 33.3%")
    assert "3 t_F above what is proved of these ops in this memory" in said(browser, "edited")


@pytest.mark.browser
def test_a_finger_selects_an_op_and_then_drags_it(page, browser):
    page("run 1f1b --stages 4 --mb 8")
    x, y = spot(browser, "0F4")
    after, _ = spot(browser, "0B1")
    browser.ask("Emulation.setTouchEmulationEnabled", enabled=True)
    touch = lambda kind, *points: browser.ask(  # noqa: E731
        "Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": px, "y": py} for px, py in points]
    )
    before = browser.run("ppsim.csv()")
    touch("touchStart", (x, y))
    touch("touchEnd")
    assert said(browser, "status").startswith("0F4 on device 0, place 6")
    assert browser.run("ppsim.csv()") == before
    touch("touchStart", (x, y))
    for share in (0.3, 0.7, 1):
        touch("touchMove", (x + share * (after + 8 - x), y))
    touch("touchEnd")
    browser.ask("Emulation.setTouchEmulationEnabled", enabled=False)
    assert state(browser)["queues"][0][4:7] == ["0B0", "0B1", "0F4"]


@pytest.mark.browser
def test_zb_h1_is_built_from_1f1b_by_hand(page, browser):
    """Backwards split and weights moved late give the queues and the time of the family."""
    page("run 1f1b --stages 4 --mb 8")
    target = ppsim.run("zb-1p", devices=4, microbatches=8)
    wanted = parse_cells(target)
    for device in range(4):
        for at in range(len(state(browser)["queues"][device]) - 1, -1, -1):
            if "B" in state(browser)["queues"][device][at]:
                browser.run(f"ppsim.split({device}, {at})")
        for to, cell in enumerate(wanted[device]):
            at = state(browser)["queues"][device].index(cell)
            if at != to:
                browser.run(f"ppsim.move({device}, {at}, {to})")
    found = state(browser)
    assert found["queues"] == wanted
    assert (found["makespan"], found["peak"]) == (
        target.metrics.makespan,
        target.metrics.peak_activations.tolist(),
    )
    legend = browser.run(
        "[...document.querySelectorAll('#legend li')].map(each => each.textContent)"
    )
    assert {"Backward for input", "Backward for weights"} <= {*legend}
    assert not {"Backward", "Backward (full)"} & {*legend}


def parse_cells(ran: Any) -> list[list[str]]:
    from ppsim.core.draft import Draft

    return list(Draft.from_schedule(ran.schedule).cells())


@pytest.mark.browser
def test_an_order_that_cannot_run_says_which_ops_wait_as_check_does(page, browser):
    page("run 1f1b --stages 2 --mb 3")
    browser.run("ppsim.move(1, 2, 0); ppsim.move(0, 2, 1)")
    found = state(browser)
    assert found["valid"] is False
    draft = parse(browser.run("ppsim.csv()"), "x.csv")
    [fault] = check(draft).faults
    labels = {label for link in found["cycle"] for label in link}
    assert labels
    assert all(label in fault.message for label in labels), fault.message
    words = found["why"]
    assert words.startswith(f"{found['cycle'][0][0]} (device ")
    text = said(browser, "edited")
    assert text.startswith(f"Cannot run: {words}. ")
    assert text.split(" · ")[0].endswith(" ops run, until 1 t_F.")
    browser.wait("document.querySelector('#marks .stuck')")
    assert browser.run("document.documentElement.hasAttribute('data-stuck')")
    browser.run("ppsim.undo(); ppsim.undo()")
    assert not browser.run("document.documentElement.hasAttribute('data-stuck')")


@pytest.mark.browser
def test_a_link_opens_the_same_state(page, browser):
    address = page("compare 1f1b zb-1p --devices 4 --mb 8")
    browser.run(
        "ppsim.move(0, 4, 5); ppsim.move(0, 5, 6); ppsim.add(); ppsim.split(3, 1); ppsim.take(2)"
    )
    browser.wait("(location.hash.match(/~/g) ?? []).length === 4")  # two moves of one op are one
    csv, link = browser.run("[ppsim.csv(), location.href]")
    assert link.startswith(address + "#e=")
    browser.open(link)
    assert browser.run("ppsim.csv()") == csv
    assert browser.run("document.getElementById('edit').getAttribute('aria-pressed')") == "true"
    assert browser.run(
        "ppsim.undo() && ppsim.undo() && ppsim.undo() && ppsim.undo() && !ppsim.undo()"
    )


HOSTILE = [
    "x",
    "~",
    "BASE~m0.4",
    "BASE~m0.4.5.6",
    "BASE~m0.4.99",
    "BASE~m9.4.5",
    "BASE~m-1.4.5",
    "BASE~m0.4.5~constructor",
    "BASE~__proto__1.2",
    "BASE~z1.2",
    "BASE~m1e9.0.0",
    "BASE~7m0.4.5",
    "BASE~t0~t0~t0~t0~t0~t0~t0~t0",
    "BASE~<img src=x onerror=alert(1)>",
    "BASE~%3Cimg%20src=x%20onerror=alert(1)%3E",
    "BASE" + "~a" * 6000,
    "BASE~" + "9" * 100_000,
]


@pytest.mark.browser
@pytest.mark.parametrize("text", HOSTILE)
def test_a_link_of_anybody_changes_nothing_that_it_may_not(text, page, browser):
    """It is taken whole or not at all, its words are never markup, and the page says why."""
    address = page("run 1f1b --stages 4 --mb 8", on=False)
    browser.run("ppsim.move(0, 4, 5)")
    browser.wait("/e=[^~]*~/.test(location.hash)")
    base = browser.run("/e=([^~]*)/.exec(location.hash)[1]")
    browser.open(address)
    csv = browser.run("ppsim.csv()")
    browser.open(f"{address}#e={text.replace('BASE', base)}")
    assert browser.run("ppsim.csv()") == csv
    assert said(browser, "status").startswith("Not edited: the link")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.errors == []


@pytest.mark.browser
def test_too_long_a_state_is_saved_as_a_file(page, browser, folder):
    page("run 1f1b --stages 4 --mb 8")
    browser.run("for (let i = 0; i < 900; i++) ppsim.move(i % 2, 3, 4)")
    browser.wait("!location.hash.includes('e=')")
    before = set(folder.iterdir())
    browser.run(
        "[...document.querySelectorAll('#editor button')].find(each => each.textContent === "
        "'link').click()"
    )
    assert said(browser, "status").startswith(
        "900 edits are too many for a link: saved 1f1b-edited.json"
    )
    saved = downloaded(browser, folder, before)
    assert json.loads(saved.read_text())["makespan"] == state(browser)["makespan"]


def downloaded(browser: Browser, folder: Path, before: set[Path]) -> Path:
    """Wait for a file that the page hands over."""
    for _ in range(round(HANG_S / 0.02)):
        for each in {*folder.iterdir()} - before:
            if each.suffix in (".csv", ".json", ".svg", ".png") and each.stat().st_size:
                return each
        browser.run("new Promise(done => setTimeout(done, 20))")
    raise AssertionError("no file has come")


@pytest.mark.browser
def test_pictures_of_edited_queues_are_named_as_edited(page, browser, folder):
    page("run 1f1b --stages 4 --mb 8")
    browser.run("ppsim.move(0, 4, 5)")
    menu = "document.querySelector('[aria-label=\"Save the edited schedule\"]')"
    for form in ("svg", "png"):
        before = set(folder.iterdir())
        browser.run(f"{menu}.value = '{form}'; {menu}.onchange()")
        assert downloaded(browser, folder, before).name.startswith("1f1b-edited"), form


@pytest.mark.browser
@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("run 1f1b --stages 4 --mb 8 --tf 1,2,1,1 --comm 0.25 --link 0-1=0.5", "csv"),
        ("explain zb-v --devices 4 --mb 8 --comm 0.1 --tw 0.5", "csv"),
        ("run interleaved --devices 4 --mb 8 --offload 1 --t-offload 0.5 --t-reload 0.75", "csv"),
        ("run seq1f1b --devices 4 --mb 8 --comm 0.1", "json"),
        ("run dualpipe --devices 4 --mb 8 --tfb 2.5", "json"),
    ],
)
def test_the_command_that_the_page_names_gives_its_numbers(command, form, page, browser, folder):
    page(command)
    tries = (
        "for (let at = 3; at === 3 || !ppsim.state().valid; at++) { ppsim.undo(); "
        "ppsim.move(0, at, at + 1); }"
    )
    browser.run(tries)
    found = state(browser)
    before = set(folder.iterdir())
    pick = "document.querySelector('[aria-label=\"Save the edited schedule\"]')"
    browser.run(f"{pick}.value = {form!r}; {pick}.dispatchEvent(new Event('change'))")
    saved = downloaded(browser, folder, before)
    words = shlex.split(said(browser, "again"))
    assert words[:2] == ["ppsim", "run"]
    assert words[2].partition(".")[0] == saved.stem.partition(".")[0].partition(" ")[0]
    answer = json.loads(invoke("run", str(saved), *words[3:], "--json").stdout)
    assert answer["makespan"] == pytest.approx(found["makespan"], rel=1e-9)
    assert answer["peak_activations"] == found["peak"]
    assert answer["bubble_rate"] == pytest.approx(found["bubble_rate"], abs=1e-9)
    saved.unlink()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("command", "why"),
    [
        (
            "run 1f1b --stages 4 --mb 8 --p2p blocking",
            "messages are simulated one by one (--p2p, --cluster)",
        ),
        ("run 1f1b --devices 8 --mb 1251", "it has 20,016 ops, and a page times up to 20,000"),
        (
            "run 1f1b --devices 4 --mb 8 --segments gallery/segments.toml",
            "its ops consist of segments",
        ),
    ],
)
def test_what_cannot_be_edited_says_why(command, why, page, browser):
    page(command)
    assert why in said(browser, "status")
    assert browser.run("document.getElementById('edit').title").startswith("Cannot be edited: ")
    assert browser.run("document.getElementById('editor').hidden")


@pytest.mark.browser
def test_a_page_without_costs_has_no_switch(page, browser):
    page("diff 1f1b zb-1p --devices 4 --mb 8", on=False)
    assert browser.run("document.getElementById('edit').hidden")


@pytest.mark.browser
def test_a_recorded_run_is_edited_with_the_times_of_its_ops(page, browser):
    """What its ops took stays, whatever their order; where nothing is moved, the model's time is
    said.
    """
    page("explain --trace tests/data/real_runs/recorded_1f1b")
    found = state(browser)
    explained = invoke("explain", "--trace", "tests/data/real_runs/recorded_1f1b", "--json").stdout
    makespan = json.loads(explained)["makespan"]
    assert 0.5 * makespan < found["makespan"] <= makespan * (1 + 1e-9)
    assert "the run itself took 868.9 ms" in said(browser, "edited")
    browser.run("ppsim.move(0, 1, 2)")
    again = state(browser)
    assert again["busy"] == pytest.approx(found["busy"], rel=1e-9)


@pytest.mark.browser
def test_copies_move_on_their_strip(page, browser):
    page("run interleaved --devices 4 --mb 8 --offload 1 --t-offload 0.5 --t-reload 0.5")
    queue = state(browser)["queues"][0]
    at = next(place for place, cell in enumerate(queue) if "OFFLOAD" in cell and "WAIT" not in cell)
    browser.run("document.getElementById('chart').focus()")
    press(browser, "ArrowRight")
    while queue[at] not in said(browser, "status").split(" on ")[0]:
        press(browser, "ArrowRight")
    press(browser, "ArrowRight", ALT)
    assert state(browser)["queues"][0].index(queue[at]) == at + 1


@pytest.mark.browser
def test_a_selected_copy_is_outlined_and_stays_named(page, browser):
    page("run 1f1b --devices 3 --mb 4 --offload all --t-offload 0.5 --t-reload 0.5")
    assert said(browser, "status").startswith("Select an op")
    browser.run("document.getElementById('chart').focus()")
    frame = '#marks path[stroke-width="2.5"]'
    press(browser, "ArrowRight")
    browser.wait(f"document.querySelector('{frame}')")
    above = browser.middle(frame)[1]
    press(browser, "ArrowRight")
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    browser.run(drawn)
    assert said(browser, "status").startswith("0OFFLOAD0 on device 0, place 2")
    assert browser.middle(frame)[1] > above


@pytest.mark.browser
def test_a_cap_is_a_line_and_what_passes_it_is_red(page, browser):
    page("run 1f1b --stages 4 --mb 8 --cap 4")
    assert browser.run("document.querySelectorAll('#marks .over').length") == 0
    browser.run("ppsim.move(0, 5, 4)")
    browser.wait("document.querySelector('#marks .over')")
    assert "above the cap on device 0" in said(browser, "edited")
    assert "passed by device 0" in browser.run("document.getElementById('marks').textContent")


@pytest.mark.browser
@pytest.mark.parametrize("edit", ["ppsim.split(1, 3)", "ppsim.move(3, 1, 0)"])
def test_the_editor_keeps_the_rules_of_axe_and_fits_a_phone(edit, page, browser):
    for theme in ("light", "dark"):
        browser.ask(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": theme}],
        )
        page("run 1f1b --stages 4 --mb 8")
        browser.run(edit)
        assert broken_rules(browser) == [], theme
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.ask("Emulation.setDeviceMetricsOverride", **phone)
    try:
        browser.wait("document.documentElement.scrollWidth <= 390")
    finally:
        browser.ask("Emulation.clearDeviceMetricsOverride")


@pytest.mark.browser
def test_the_live_page_is_edited_as_a_file_is(tmp_path, browser):
    fields = {"names": ["1f1b"], "devices": 4, "mb": 8}
    target = tmp_path / "x.html"
    target.write_bytes(live_page(view(fields, Path()), fields, ["1f1b"]))
    browser.open(target.as_uri())
    browser.run("document.getElementById('edit').click(); ppsim.move(0, 5, 6)")
    assert state(browser)["makespan"] == 36
    assert said(browser, "edited").startswith("36 t_F, +3 t_F")
