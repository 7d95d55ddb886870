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
from ppsim.prices.editable import make_editable
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", BEFORE)
def test_the_editor_adds_little_to_a_page(name):
    """With the names of the schedules of its size it is 25 kB larger at most than it was before."""
    ran = ppsim.run(name, devices=8, microbatches=32)
    document = make_editable(Document((ran.timeline,), (name,)), (ran.costs,))
    out = io.BytesIO()
    write(document, out, ".html")
    assert document.known[0]
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
    assert "3 t_F above the proved bound of these ops in this memory" in said(browser, "edited")


@pytest.mark.browser
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize(("key", "modifiers"), [("Delete", 0), ("z", CONTROL), ("e", 0)])
def test_a_key_while_an_op_is_held_lets_it_go(key, modifiers, moved, page, browser):
    """The key does what it does, and the op stays where it is then."""
    page("run 1f1b --stages 2 --mb 4")
    browser.run("ppsim.move(0, 1, 2)")
    x, y = spot(browser, "0F3")
    before, _ = spot(browser, "0F2")
    browser.mouse("mousePressed", x, y)
    for share in (0.3, 1):
        browser.mouse("mouseMoved", x + share * (before - 3 - x), y)
    browser.wait("document.querySelector('#marks .ghost')")
    press(browser, key, modifiers)
    after = browser.run("ppsim.csv()")
    if moved:
        browser.mouse("mouseMoved", before - 6, y)
    browser.mouse("mouseReleased", before - 6, y)
    assert browser.run("ppsim.csv()") == after
    assert browser.run("document.getElementById('fault').textContent") == ""
    assert browser.errors == []


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
    browser.wait("document.querySelector('#marks .ghost')")
    touch("touchStart", (after + 8, y), (x - 60, y))  # a second finger lets it go
    browser.wait("!document.querySelector('#marks .ghost')")
    touch("touchEnd")
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
    shares = [idle / found["makespan"] for idle in found["idle"]]  # of the time that runs
    rows = "[...document.querySelectorAll('#tables tbody tr')].map(row => row.cells[4].textContent)"
    assert browser.run(rows) == [f"{share:.1%}" for share in shares]
    notes = browser.run("[...document.querySelectorAll('#marks text')].map(e => e.textContent)")
    assert [note for note in notes if note.startswith(f"{shares[1]:.0%} idle")]
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
    "BASE" + "~d4~u4" * 700,
    "BASE~p0.0",
    "BASE~b~p0.0.0.0",
    "BASE~b~p0.0.0.1.2",
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
def test_a_link_whose_edits_take_too_long_is_refused(page, browser):
    """What it asks for is undone; here each look at the clock is a second later."""
    page("run 1f1b --stages 4 --mb 8")
    browser.run("ppsim.move(0, 4, 5)")
    csv, base = browser.run("[ppsim.csv(), /e=([^~]*)/.exec(location.hash)[1]]")
    browser.run("(() => { let now = 0; performance.now = () => now += 1000; })()")
    browser.run(f"location.hash = '#e={base}' + '~d4~u4'.repeat(9)")
    browser.wait("document.getElementById('status').textContent.includes('take too long')")
    browser.run("document.getElementById('edit').click()")
    assert browser.run("ppsim.undo()") is False
    assert browser.run("ppsim.csv()") != csv


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
def test_an_explanation_says_that_it_is_of_the_schedule_before_the_edits(page, browser):
    """Above all of its parts, the changes that it suggests included."""
    page("explain 1f1b --stages 2 --mb 3")
    browser.run("ppsim.splitAll()")
    order = (
        "getComputedStyle(document.getElementById('story'), '::before')",
        "...[...document.querySelectorAll('#story > .part')].map(part => getComputedStyle(part))",
    )
    first, *parts = browser.run(f"[{', '.join(order)}].map(style => +style.order)")
    assert len(parts) > 2
    assert first < min(parts)


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
    assert "the run took 868.9 ms" in said(browser, "edited")
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
    assert said(browser, "status").startswith("Click an op")
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


def row_of(browser: Browser, device: int, devices: int) -> float:
    """Return the height in the window of the middle of a device's row."""
    spots = [spot(browser, label)[1] for label in ("0F0", f"{devices - 1}F0")]
    return spots[0] + (spots[1] - spots[0]) * device / (devices - 1)


@pytest.mark.browser
@pytest.mark.parametrize("by", ["mouse", "finger", "keys"])
def test_a_microbatch_is_moved_to_the_other_replica(by, page, browser):
    """Dragged to the device that has the same stage, it goes there with all of its ops."""
    page("run chimera --devices 4 --mb 8")
    first = browser.run("ppsim.csv()")
    device = next(i for i, queue in enumerate(state(browser)["queues"]) if "1F2" in queue)
    low, high = row_of(browser, 0, 4), row_of(browser, 3, 4)
    x, y = spot(browser, "1F2")
    ends = sorted([low, high])
    there = ends[0] + (ends[1] - ends[0]) * (3 - device) / 3
    if by == "keys":
        browser.run("document.getElementById('chart').focus()")
        for _ in range(device + 1):
            press(browser, "ArrowDown")
        while not said(browser, "status").startswith("1F2 on device"):
            press(browser, "ArrowRight")
        press(browser, "ArrowUp", ALT)
    elif by == "mouse":
        browser.mouse("mousePressed", x, y)
        for share in (0.3, 0.7, 1):
            browser.mouse("mouseMoved", x, y + share * (there - y))
        browser.wait("document.querySelector('#marks .ghost')")
        assert " t_F  " in said(browser, "tip") or "cannot run" in said(browser, "tip")
        assert browser.run("ppsim.csv()") == first
        browser.mouse("mouseReleased", x, there)
    else:
        browser.ask("Emulation.setTouchEmulationEnabled", enabled=True)
        points = [(x, y), None, (x, y), (x, y + 0.5 * (there - y)), (x, there), None]
        kinds = ["touchStart", "touchEnd", "touchStart", "touchMove", "touchMove", "touchEnd"]
        for kind, point in zip(kinds, points, strict=True):
            touched = [{"x": point[0], "y": point[1]}] if point else []
            browser.ask("Input.dispatchTouchEvent", type=kind, touchPoints=touched)
        browser.ask("Emulation.setTouchEmulationEnabled", enabled=False)
    found = state(browser)
    homes = {cell: device for device, queue in enumerate(found["queues"]) for cell in queue}
    assert homes["1F2"] == 3 - device
    assert all(
        homes[f"{stage}{kind}2"] == abs(homes["0F2"] - stage) for stage in range(4) for kind in "FB"
    )
    assert said(browser, "status").startswith(f"1F2 on device {3 - device}, place ")
    assert browser.run("ppsim.undo() && ppsim.csv()") == first


@pytest.mark.browser
def test_what_cannot_go_to_another_device_says_why(page, browser):
    page("run 1f1b --stages 4 --mb 8")
    x, y = spot(browser, "1F4")
    _, there = spot(browser, "2F4")
    browser.mouse("mousePressed", x, y)
    for share in (0.5, 1):
        browser.mouse("mouseMoved", x + 9, y + share * (there - y))
    why = "1F4 stays on device 1, which alone has the weights of stage 1"
    assert said(browser, "tip").endswith(why)
    browser.mouse("mouseReleased", x + 9, there)
    press(browser, "ArrowDown", ALT)
    assert said(browser, "status") == why
    assert browser.run("ppsim.undo()") is False


@pytest.mark.browser
def test_all_backwards_are_split_and_joined_in_one_step(page, browser):
    page("run 1f1b --stages 4 --mb 8")
    first = browser.run("ppsim.csv()")
    menu = "document.querySelector('[aria-label=\"{} all\"]')"
    for which, split in (("0", range(4)), ("3", [2])):
        browser.run(
            f"(own => {{ own.value = {which!r}; own.onchange(); }})({menu.format('split')})"
        )
        for device, queue in enumerate(state(browser)["queues"]):
            letters = {cell[1] for cell in queue}
            assert letters == ({"F", "I", "W"} if device in split else {"F", "B"})
        assert browser.run("ppsim.undo() && ppsim.csv()") == first
    browser.run("document.getElementById('chart').focus()")
    press(browser, "I", SHIFT)
    assert "B" not in browser.run("ppsim.csv()")
    press(browser, "I", SHIFT)
    assert said(browser, "status") == "no full backward on any device"
    press(browser, "J", SHIFT)
    assert browser.run("ppsim.csv()") == first


@pytest.mark.browser
def test_what_a_split_costs_is_said_before_it(page, browser):
    """Of a backward that is selected, and with its outline while the button has the focus."""
    page("run 1f1b --stages 4 --mb 8")
    browser.run("document.getElementById('chart').focus()")
    press(browser, "ArrowDown")
    press(browser, "ArrowDown")
    while not said(browser, "status").startswith("1B0 on"):
        press(browser, "ArrowRight")
    told = said(browser, "told").replace("\u2212", "-")
    before = browser.run("ppsim.csv()")
    buttons = "[...document.querySelectorAll('#editor button')]"
    browser.run(f"{buttons}.find(b => b.innerText === 'split').focus()")
    browser.wait("document.querySelector('#marks .ghost')")
    assert f"split: {said(browser, 'told')}".replace("\u2212", "-") == told
    assert browser.run("ppsim.csv()") == before
    browser.run("document.activeElement.click()")
    makespan = state(browser)["makespan"]
    assert f"{makespan:g} t_F" in told
    assert "bubble" in told
    assert "idle" in told


@pytest.mark.browser
def test_a_saved_picture_has_no_outline_of_what_is_selected(page, browser, folder):
    page("run 1f1b --stages 4 --mb 8")
    browser.run("document.getElementById('chart').focus()")
    press(browser, "ArrowRight")
    frame = 'stroke-width="2.5"'
    browser.wait(f"document.getElementById('marks').innerHTML.includes({frame!r})")
    before = set(folder.iterdir())
    menu = "document.querySelector('[aria-label=\"Save the edited schedule\"]')"
    browser.run(f"{menu}.value = 'svg'; {menu}.onchange()")
    saved = downloaded(browser, folder, before)
    assert frame not in saved.read_text()
    assert browser.run(f"document.getElementById('marks').innerHTML.includes({frame!r})")


@pytest.mark.browser
def test_a_page_of_memory_is_edited(page, browser):
    page("memory 1f1b --devices 4 --mb 8", on=False)
    browser.run("document.getElementById('edit').click(); ppsim.move(0, 5, 4)")
    assert state(browser)["peak"] == [5, 3, 2, 1]
    assert "peak 5 3 2 1 act" in said(browser, "edited")
    words = shlex.split(said(browser, "again"))
    assert words[:3] == ["ppsim", "run", "1f1b-edited.csv"]


@pytest.mark.browser
def test_a_page_of_memory_counts_lengths_in_edits(tmp_path, browser):
    """In shares of a mean microbatch, with the times of these; no command states the lengths of a
    file's microbatches.
    """
    lengths, target = tmp_path / "lengths.csv", tmp_path / "x.html"
    rows = [f"0,{mb},{tokens}" for mb, tokens in enumerate((100, 700, 300, 900))]
    lengths.write_text("\n".join(["replica,microbatch,tokens", *rows]))
    words = ("memory", "1f1b", "--devices", "2", "--mb", "4", "--lengths", str(lengths))
    found = json.loads(invoke(*words, "--json", "-o", str(target)).stdout)
    browser.open(target.as_uri())
    browser.run("document.getElementById('edit').click()")
    assert state(browser)["memory"] == pytest.approx(found["peak"])
    browser.run("ppsim.move(0, 5, 4)")  # F3 before B1
    assert state(browser)["memory"] == pytest.approx([1.4 + 0.6 + 1.8, 1.8])
    assert not browser.errors
    assert "ppsim run" not in said(browser, "again")


@pytest.mark.browser
def test_each_device_has_its_cap_where_they_differ(tmp_path, browser):
    target = tmp_path / "x.html"
    words = ("run", "1f1b", "--devices", "4", "--mb", "8", "--cap", "4,3,2,1")
    assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
    browser.open(target.as_uri())
    lines = "document.querySelectorAll('#marks .cap').length"
    assert browser.run(lines) == 4
    assert browser.run("document.querySelectorAll('#marks .over').length") == 0
    browser.run("document.getElementById('edit').click(); ppsim.move(1, 4, 3)")
    browser.wait("document.querySelectorAll('#marks .over').length === 1")
    assert "above the cap on device 1" in said(browser, "edited")
    marks = browser.run("document.getElementById('marks').textContent")
    assert "cap 3 of device 1, passed by 1" in marks
    assert "cap 1 of device 3" in marks


@pytest.mark.browser
def test_strips_are_red_above_the_cap(tmp_path, browser):
    """More than eight devices have a strip each; its pixels are red where it holds too much."""
    light = [{"name": "prefers-color-scheme", "value": "light"}]
    browser.ask("Emulation.setEmulatedMedia", features=light)
    target = tmp_path / "x.html"
    invoke("run", "1f1b", "--devices", "10", "--mb", "20", "--cap", "8", "-q", "-o", str(target))
    browser.open(target.as_uri())
    reds = """
    (() => {
      const canvas = [...document.querySelectorAll('#pixels canvas')].at(-1);
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const rows = Array(10).fill(0);
      for (let i = 0; i < data.length; i += 4) {
        const row = Math.floor(i / 4 / canvas.width * 10 / canvas.height);
        if (data[i] > 180 && data[i + 1] < 90) rows[row]++;
      }
      return rows.map(Boolean);
    })()
    """
    assert browser.run(reds) == [True] * 2 + [False] * 8


@pytest.mark.browser
def test_a_schedule_of_many_ops_is_named(page, browser):
    page("run 1f1b --devices 4 --mb 150")
    assert "these queues are 1f1b" in said(browser, "edited")
    browser.run("ppsim.move(0, 9, 10)")
    assert "1 op from 1f1b" in said(browser, "edited")
    browser.run("ppsim.splitAll()")
    assert "1f1b" not in said(browser, "edited")


@pytest.mark.browser
def test_a_selected_op_is_outlined_without_drawing_the_rest_anew(page, browser):
    page("run 1f1b --stages 4 --mb 8")
    browser.run("document.getElementById('chart').focus()")
    press(browser, "ArrowRight")
    browser.wait("document.querySelector('#marks path[stroke-width=\"2.5\"]')")
    browser.run(
        "document.querySelectorAll('#marks path, #marks text')"
        ".forEach(each => { each.old = true; })"
    )
    press(browser, "ArrowRight")
    browser.wait("![...document.querySelectorAll('#marks path')].every(each => each.old)")
    anew = "[...document.querySelectorAll('#marks {}')].filter(each => !each.old).length"
    assert browser.run(anew.format("text")) == 0
    assert browser.run(anew.format("path")) <= 3


@pytest.mark.browser
def test_an_op_is_dragged_among_ops_that_cannot_run(page, browser):
    """It goes where it is dropped, though none of these has a time."""
    page("run 1f1b --stages 2 --mb 4")
    browser.run("ppsim.move(1, 2, 0)")
    queue = state(browser)["queues"][1]
    assert queue == ["1F1", "1F0", "1B0", "1B1", "1F2", "1B2", "1F3", "1B3"]
    browser.run("ppsim.move(1, 3, 0)")
    assert state(browser)["valid"] is False
    x, y = spot(browser, "1B1")
    to, _ = spot(browser, "1F2")
    browser.mouse("mousePressed", x, y)
    for share in (0.5, 1):
        browser.mouse("mouseMoved", x + share * (to + 3 - x), y)
    browser.mouse("mouseReleased", to + 3, y)
    assert state(browser)["queues"][1][:5] == ["1F1", "1F0", "1B0", "1F2", "1B1"]
    assert state(browser)["valid"] is True


@pytest.mark.browser
def test_ops_of_all_devices_are_offered_at_once(page, browser):
    """Each of them is placed on its device, and the offer stays for all."""
    page("run 1f1b --stages 2 --mb 2 --blank", on=False)
    pick = "document.querySelector('#choices select')"
    browser.run(f"(own => {{ own.value = 2; own.onchange(); }})({pick})")
    buttons = "[...document.querySelectorAll('#choices button')]"
    placed = []
    while browser.run(f"{buttons}.length"):
        offered = browser.run(f"{buttons}.map(each => each.innerText.split(' ')[0])")
        kinds = [label[:2] for label in offered]
        assert len({*kinds}) == len(kinds)
        placed.append(offered[0])
        browser.run(f"{buttons}[0].click()")
    assert len(placed) == 8
    assert state(browser)["valid"] is True
    for device, queue in enumerate(state(browser)["queues"]):
        assert {cell[0] for cell in queue} == {str(device)}


@pytest.mark.browser
def test_rows_are_zoomed_and_pinned_while_an_op_is_moved(page, browser):
    """Rows stay as they are through edits; a device that is selected by key comes into sight."""
    page("run 1f1b --stages 16 --mb 32")
    names = "[...document.querySelectorAll('#marks text')].map(each => each.textContent)"
    shown = f"{names}.filter(name => /^device \\d+$/.test(name)).map(name => name.slice(7))"
    drawn = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    assert browser.run("document.getElementById('rows-fewer').hidden") is False
    for _ in range(2):
        browser.run("document.getElementById('rows-fewer').click()")
    browser.run(drawn)
    rows = browser.run(shown)
    assert rows[:4] == ["6", "7", "8", "9"]
    assert not {"0", "15"} & {*rows}
    x, y = spot(browser, "7F20")
    after, low = spot(browser, "7B12")
    assert abs(y - low) < 1
    browser.mouse("mousePressed", x, y)
    for share in (0.3, 0.7, 1):
        browser.mouse("mouseMoved", x + share * (after + 8 - x), y)
    browser.wait("document.querySelector('#marks .ghost')")
    ghost = browser.middle("#marks .ghost path")[1]
    row = browser.run("document.querySelector('#marks svg').getBoundingClientRect().height") / 4
    assert abs(ghost - y) < row / 2
    browser.mouse("mouseReleased", after + 8, y)
    queue = state(browser)["queues"][7]
    assert queue.index("7F20") == queue.index("7B12") + 1
    browser.run(drawn)
    assert browser.run(shown) == rows
    browser.run("document.getElementById('chart').focus()")
    for _ in range(4):
        press(browser, "ArrowDown")
    browser.run(drawn)
    assert "11" in browser.run(shown)
    assert " on device 11, place " in said(browser, "status")
    browser.run("document.getElementById('rows-pin').click()")
    browser.run(drawn)
    assert browser.run(shown)[0] == "11"
    before = browser.run("ppsim.csv()")
    press(browser, "ArrowRight", ALT)
    assert browser.run("ppsim.csv()") != before
    browser.run(drawn)
    assert browser.run(shown)[0] == "11"
    assert browser.errors == []
