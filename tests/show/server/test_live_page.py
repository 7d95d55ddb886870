"""The live page in a real browser, served by the command itself and used as a user would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.browser import started
from tests.clock import HANG_S
from tests.commands import SOURCE, invoke
from tests.real.runs.cases import wait_for
from tests.serving import serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def address():
    """The address of a live page for all tests."""
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """One browser for all tests."""
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


def text(browser, selector: str) -> str:
    return browser.run(f"document.querySelector({selector!r}).innerText")


def at(address: str, names: str, **fields: object) -> str:
    """The page's address with its controls set."""
    return f"{address}?{urlencode({'names': names.split(), **fields}, doseq=True)}"


def test_fields_in_the_address_are_drawn_with_their_controls(address, browser):
    shape = {"devices": 5, "mb": 11, "comm": 0.25, "p2p": "overlap"}
    browser.open(at(address, "zb-1p dualpipe-v", **shape, speed="1,1,0.5,1,1", recompute="true"))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert text(browser, "h1") == "ZB-1P · DualPipe-V"
    assert text(browser, "#verdict").startswith("zb-1p is 1.04 times faster than dualpipe-v")
    assert text(browser, "#command").startswith(
        "ppsim compare zb-1p dualpipe-v --devices 5 --mb 11"
    )
    assert browser.run("document.getElementById('more').value") == "--speed 1,1,0.5,1,1"
    assert browser.run("document.getElementById('p2p').value") == "overlap"
    assert browser.run("document.getElementById('recompute').checked")
    assert "device 4" in browser.run("document.getElementById('marks').textContent")
    assert browser.run("document.getElementById('fault').hidden")


def test_options_that_are_typed_are_fields_and_stay_in_the_address(address, browser):
    """With quotes, signs of equality, several of one, switches, and a schedule among them."""
    browser.open(at(address, "1f1b", devices=2, mb=4))
    browser.wait("document.documentElement.dataset.answered === '1'")
    typed = "--link '0>1=2' --link='1>0=3' --unit 'a b' --speed 1,0.5 gpipe"
    browser.run(
        f"const more = document.getElementById('more'); more.value = {json.dumps(typed)}; "
        f"more.onchange()"
    )
    command = (
        "ppsim compare 1f1b gpipe --devices 2 --mb 4 --link '0>1=2' --link '1>0=3' --speed 1,0.5 "
        "--unit 'a b'"
    )
    browser.wait(f"document.getElementById('command').innerText === {json.dumps(command)}")
    browser.wait("location.search.includes('unit')")
    browser.open(browser.run("location.href"))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert text(browser, "#command") == command
    assert browser.run("document.getElementById('more').value") == (
        "--link 0>1=2 --link 1>0=3 --unit 'a b' --speed 1,0.5"
    )


def test_a_refusal_is_shown_and_the_drawing_stays(address, browser):
    browser.open(at(address, "1f1b", devices=4, mb=8, tf="nonsense"))
    browser.wait("document.getElementById('refused').textContent")
    assert "nonsense" in text(browser, "#refused")
    assert text(browser, "h1") == "1F1B · ZB-1P"
    assert text(browser, "#stale") == "the chart does not follow the controls: see the message"
    browser.wait("getComputedStyle(document.getElementById('chart')).opacity < 1")


def test_a_schedule_that_cannot_take_the_shape_leaves_with_a_chip(address, browser):
    """The picture is of the others, and not dimmed; with the shape the schedule comes back."""
    browser.open(at(address, "1f1b dualpipe", devices=4, mb=7))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert text(browser, "h1") == "1F1B"
    assert "needs an even number of microbatches" in text(browser, "#chosen .left")
    assert browser.run("document.getElementById('stale').hidden")
    browser.run(
        "(n => { n.value = 8; n.oninput(); "
        "})(document.querySelector('input[aria-label=microbatches]'))"
    )
    browser.wait("document.querySelector('h1').innerText.includes('DualPipe')")
    assert browser.run("document.querySelector('#chosen .left')") is None


def test_kinds_that_the_first_picture_lacks_are_drawn(address, browser):
    """Every fill is a colour; forwards that run again have their own."""
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.run("(r => { r.checked = true; r.onchange(); })(document.getElementById('recompute'))")
    browser.wait("document.documentElement.dataset.answered === '2'")
    assert text(browser, "#refused") == ""
    assert "Recompute" in text(browser, "#legend")
    fills = browser.run(
        "[...document.querySelectorAll('#marks [fill]')].map(mark => mark.getAttribute('fill'))"
    )
    assert not [fill for fill in fills if fill in ("undefined", "null")]


def test_a_pinned_run_stays_as_outlines(address, browser):
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.run("document.getElementById('pin').click()")
    browser.run(
        "(n => { n.value = 2; n.oninput(); })(document.querySelector('input[aria-label=F]'))"
    )
    browser.wait("document.getElementById('pinned').innerText.startsWith('+')")
    assert (
        browser.run("document.querySelectorAll('#marks path[stroke-dasharray=\"4 2\"]').length")
        == 1
    )
    browser.run("document.getElementById('pin').click()")
    assert (
        browser.run("document.querySelectorAll('#marks path[stroke-dasharray=\"4 2\"]').length")
        == 0
    )


def test_an_answer_that_takes_long_dims_the_picture(address, browser):
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    held = "(...all) => new Promise(done => { window.go = () => done(fetched(...all)); })"
    browser.run(f"window.fetched = fetch; window.fetch = {held}; 0")
    browser.run(
        "(n => { n.value = 2; n.oninput(); })(document.querySelector('input[aria-label=F]'))"
    )
    browser.wait("document.getElementById('stale').innerText === 'computing …'")
    browser.run("window.go()")
    browser.wait("document.getElementById('stale').hidden")


HELD = """(where, how) => how.body.includes('v-auto') && where === 'view' ?
  new Promise((done, fail) => {
  window.go = () => done(fetched(where, how));
  how.signal?.addEventListener('abort', () => { window.gone = true;
    window.go = null; fail(how.signal.reason); });
}) : fetched(where, how)"""


def test_an_order_that_is_searched_for_is_greyed_until_it_is_found(address, browser):
    """What is generated is shown at once; the next change ends the search."""
    browser.open(at(address, "v-auto 1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.run(f"window.fetched = fetch; window.fetch = {HELD}; 0")
    forward = (
        "(n => {{ n.value = {}; n.oninput(); }})(document.querySelector('input[aria-label=F]'))"
    )
    browser.run(forward.format(2))
    browser.wait("document.getElementById('stale').innerText === 'searching v-auto …'")
    assert "as before, searching" in text(browser, "h1")
    assert browser.run("document.querySelectorAll('#marks .veil').length") == 1
    # 1F1B is as it is asked for
    assert not browser.run("document.documentElement.hasAttribute('data-stale')")
    assert "1F1B" in browser.run("document.querySelectorAll('#numbers tr')[2].innerText")
    browser.wait("window.go")
    browser.run(forward.format(3))
    browser.wait("window.gone && window.go")
    browser.run("window.go()")
    browser.wait("document.documentElement.dataset.answered === '3'")
    assert text(browser, "h1") == "V under a limit · 1F1B"
    assert browser.run("document.getElementById('stale').hidden")
    assert browser.run("document.querySelectorAll('#marks .veil').length") == 0


def test_the_next_thing_to_try_is_in_view_and_is_tried(address, browser):
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.getElementById('lead').innerText.startsWith('first: use zb-v')")
    assert "turnaround" in text(browser, "#story")
    assert text(browser, "#verdict").startswith("1f1b takes 33 t_F for 8 microbatches on 4 devices")
    browser.run("document.getElementById('try').click()")
    assert not browser.run("document.documentElement.hasAttribute('data-told')")
    browser.wait("document.querySelector('h1').innerText === 'ZB-V'")
    assert text(browser, "#verdict").startswith("zb-v takes ")
    browser.wait(
        "document.getElementById('lead').innerText.startsWith('first: use 16 microbatches')"
    )


def test_a_model_and_a_cluster_are_picked_by_name(address, browser):
    """Their stages give the times; the link asks for plans of the same model."""
    browser.open(address)
    browser.run("(m => { m.value = 'llama3-8b'; m.onchange(); })(document.getElementById('model'))")
    browser.run(
        "(c => { c.value = 'dgx-h100'; c.onchange(); })(document.getElementById('cluster'))"
    )
    browser.wait("document.getElementById('numbers').innerText.includes(' ms')")
    assert browser.run("document.getElementById('cost-controls').disabled")
    assert text(browser, "#refused") == ""
    browser.wait("location.search.includes('model=llama3-8b&cluster=dgx-h100')")
    browser.open(browser.run("location.href"))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert browser.run("document.getElementById('cluster').value") == "dgx-h100"
    link = browser.run("document.getElementById('plan').href")
    assert link == f"{address}plan?model=llama3-8b&cluster=dgx-h100&gpus=64&gbs=256"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_while_it_plans_and_searches(sign):
    """And the search for plans with it."""
    words = [sys.executable, "-m", "ppsim", "serve", "--port", "0", "--no-open"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=SOURCE
    ) as served:
        assert served.stdout
        host = served.stdout.readline().strip().removeprefix("http://").strip("/")
        fields = {
            "names": ["v-auto"],
            "devices": 32,
            "mb": 128,
            "tf": [1 + i / 7 for i in range(64)],
            "cost_per": "stage",
        }
        planned, searched = HTTPConnection(host), HTTPConnection(host)
        planned.request("GET", "/planned?model=llama3-70b&cluster=dgx-h100&gpus=512&gbs=1024")
        searched.request("POST", "/view", json.dumps(fields))
        children = Path(f"/proc/{served.pid}/task")
        wait_for(
            lambda: any(each.read_text() for each in children.glob("*/children")), "the search"
        )
        planning = [
            int(pid) for each in children.glob("*/children") for pid in each.read_text().split()
        ]
        served.send_signal(sign)
        assert served.wait(HANG_S) in (128 + sign, -sign)
        wait_for(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in planning),
            "the end of the search",
        )


def test_a_watched_file_is_shown_again_when_it_changes(browser, tmp_path):
    source = tmp_path / "mine.json"
    assert (
        invoke("run", "1f1b", "--devices", "2", "--mb", "4", "-q", "-o", str(source)).exit_code == 0
    )
    with serving("--watch", str(source)) as address:
        browser.open(address)
        assert "1F1B" in text(browser, "h1")
        assert (
            invoke("run", "gpipe", "--devices", "2", "--mb", "4", "-q", "-o", str(source)).exit_code
            == 0
        )
        browser.wait("document.querySelector('h1').innerText.includes('GPipe')")


SET = "(n => { n.value = %s; n.oninput(); })(document.querySelector('input[aria-label=%s]'))"


def test_a_pinned_run_is_compared_in_its_own_unit_only(address, browser):
    """With a model's times in ms a run in t_F stays, named with its unit, without a percentage or
    outlines.
    """
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.run("document.getElementById('pin').click()")
    browser.run("(m => { m.value = 'llama3-8b'; m.onchange(); })(document.getElementById('model'))")
    browser.run(
        "(c => { c.value = 'dgx-h100'; c.onchange(); })(document.getElementById('cluster'))"
    )
    browser.wait("document.getElementById('numbers').innerText.includes(' ms')")
    browser.wait("document.getElementById('pinned').innerText.includes('not compared')")
    assert text(browser, "#pinned") == "1F1B (33 t_F): not compared, times are in ms now"
    assert (
        browser.run("document.querySelectorAll('#marks path[stroke-dasharray=\"4 2\"]').length")
        == 0
    )
    browser.run("(m => { m.value = ''; m.onchange(); })(document.getElementById('model'))")
    browser.wait(
        "document.getElementById('pinned').innerText === '0.0% compared with 1F1B (33 t_F)'"
    )


def test_try_it_never_shows_a_schedule_twice(address, browser):
    """The default page's advice is a schedule that it shows already: it comes first."""
    browser.open(address)
    browser.wait("!document.getElementById('try').hidden")
    lead = text(browser, "#lead")
    browser.run("document.getElementById('try').click()")
    browser.wait("document.documentElement.dataset.answered")
    browser.wait(
        "!document.getElementById('command').innerText.startsWith('ppsim compare 1f1b zb-1p')"
    )
    names = text(browser, "#command").split(" --")[0].split()[2:]
    assert len(names) == len(set(names)) == 2
    assert names[0] in lead


def test_chunks_are_for_schedules_that_take_several(address, browser):
    """Where none does the slider rests; beside others only theirs changes, and the command says
    which.
    """
    browser.open(at(address, "1f1b zb-1p", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert browser.run("document.querySelector('input[aria-label=chunks]').disabled")
    browser.open(at(address, "1f1b interleaved", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    for chunks in (2, 3, 4):
        browser.run(SET % (chunks, "chunks"))
        command = f"ppsim compare 1f1b interleaved:{chunks} --devices 4 --mb 8"
        browser.wait(f"document.getElementById('command').innerText === {json.dumps(command)}")
        assert text(browser, "#refused") == ""
    browser.wait("location.search.includes('interleaved%3A4')")
    browser.open(browser.run("location.href"))
    browser.wait("document.documentElement.dataset.answered === '1'")
    assert browser.run("document.querySelector('input[aria-label=chunks]').value") == "4"


def test_plans_show_at_once_that_they_are_searched(address, browser):
    """A page with a bar and the seconds so far, which says why where there is no plan."""
    browser.ask(
        "Page.navigate", url=f"{address}plan?model=llama3-70b&cluster=dgx-h100&gpus=512&gbs=1024"
    )
    browser.wait(
        "document.querySelector('progress')?.checkVisibility() && / s so "
        "far/.test(document.body.innerText)"
    )
    assert "llama3-70b" in browser.run("document.body.innerText")
    browser.ask("Page.navigate", url=f"{address}plan?model=llama3-70b&cluster=dgx-h100")
    browser.wait("document.documentElement.dataset.state === 'failed'")
    assert "a plan needs gpus, gbs" in text(browser, "#said")


def test_the_page_of_plans_takes_the_place_of_the_one_that_waits(address, browser, tmp_path):
    """As the server sends it, with its scripts at work."""
    target = tmp_path / "plan.html"
    sizes = (
        "--model",
        "llama3-8b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "8",
        "--gbs",
        "8",
        "--schedules",
        "1f1b",
    )
    assert invoke("plan", *sizes, "-q", "-o", str(target)).exit_code == 0
    served = f"window.fetch = async () => new Response({json.dumps(target.read_text('utf-8'))})"
    script = browser.ask("Page.addScriptToEvaluateOnNewDocument", source=served)["identifier"]
    try:
        browser.open(f"{address}plan?model=llama3-8b&cluster=dgx-h100&gpus=8&gbs=8")
    finally:
        browser.ask("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    assert browser.errors == []
    assert "llama3-8b on 8" in text(browser, "h1")
    assert browser.run("document.querySelectorAll('#plans tbody tr').length") > 1


def test_a_save_that_deadlocks_greys_all_that_is_of_before(browser, tmp_path):
    """Verdict, causes and path too, with a word for it; the next good save is shown as ever."""
    source = tmp_path / "mine.csv"
    good, bad = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"
    source.write_text(good)
    with serving("--watch", str(source)) as address:
        browser.open(address)
        browser.wait("document.documentElement.hasAttribute('data-told')")
        source.write_text(bad)
        browser.wait("document.getElementById('refused').textContent.includes('deadlock')")
        browser.wait(
            "document.getElementById('stale').innerText.includes('this is its last version')"
        )
        for part in ("lead", "story", "chart", "numbers"):
            shade = "getComputedStyle(document.getElementById('%s')).opacity < 0.5"
            browser.wait(f"document.getElementById('{part}').hidden || {shade % part}")
        assert not browser.run("document.documentElement.hasAttribute('data-told')")
        source.write_text("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n")
        browser.wait("document.getElementById('stale').hidden")
        browser.wait("document.documentElement.hasAttribute('data-told')")


def test_drag_compare_drop_copy_and_download(address, browser, tmp_path):
    """A slider dragged, a schedule added, a trace dropped, the command copied and the picture of
    all saved.
    """
    browser.open(at(address, "1f1b", devices=2, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.click("#fold")
    browser.wait("document.getElementById('marks').textContent.includes('× 6')")
    slider = "input[aria-label='F (slider)']"
    browser.drag(slider, 15)
    browser.wait("document.getElementById('command').innerText.includes('--tf')")
    forward = float(browser.run(f"document.querySelector({slider!r}).value"))
    assert forward > 1
    browser.wait(
        f"document.querySelector('#numbers .value').innerText === '{9 * (forward + 2):.15g} t_F'"
    )
    browser.run("const add = document.getElementById('add'); add.value = 'gpipe'; add.onchange()")
    browser.wait("document.querySelector('h1').innerText === '1F1B · GPipe'")
    assert (
        text(browser, "#command") == f"ppsim compare 1f1b gpipe --devices 2 --mb 8 --tf {forward}"
    )

    assert (
        invoke(
            "run", "zb-1p", "--devices", "2", "--mb", "8", "-q", "-o", str(tmp_path / "run.json")
        ).exit_code
        == 0
    )
    browser.open(at(address, "1f1b", devices=2, mb=8))
    browser.drop("#chart", tmp_path / "run.json")
    title = "1F1B (median times of run.json) · ZB-1P (times of run.json)"
    browser.wait(f"document.querySelector('h1').innerText === {title!r}")

    origin = browser.run("location.origin")
    browser.ask(
        "Browser.grantPermissions",
        origin=origin,
        permissions=["clipboardReadWrite", "clipboardSanitizedWrite"],
    )
    browser.ask("Page.bringToFront")
    browser.click("#command")
    browser.wait("document.getElementById('status').innerText === 'Command copied'")
    assert browser.run("navigator.clipboard.readText()") == "ppsim diff 1f1b run.json"

    browser.ask("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run(
        "const list = document.getElementById('download'); list.value = '.trace.json'; "
        "list.onchange()"
    )
    target = tmp_path / "ppsim.trace.json"
    wait_for(target.exists, "the download")
    assert json.loads(target.read_text())["traceEvents"]


def set_control(browser, label: str, value: float) -> None:
    """Set a number beside a slider, and wait for the answer."""
    control = f"document.querySelector('#controls input[type=number][aria-label={label}]')"
    before = browser.run("Number(document.documentElement.dataset.answered)")
    browser.run(f"(own => {{ own.value = {value}; own.oninput(); }})({control})")
    browser.wait(f"Number(document.documentElement.dataset.answered) > {before}")


def test_edits_stay_at_other_costs_and_wait_for_their_schedule(address, browser):
    """A slider of a cost keeps them, one of the shape offers the way back, a link has both."""
    browser.open(at(address, "1f1b", devices=4, mb=8))
    browser.wait("document.documentElement.dataset.answered === '1'")
    browser.run("document.getElementById('edit').click(); ppsim.move(0, 5, 6); ppsim.split(1, 3)")
    csv, makespan = browser.run("[ppsim.csv(), ppsim.state().makespan]")
    set_control(browser, "message", 0.5)
    browser.wait(f"ppsim.csv() === {json.dumps(csv)}")
    assert browser.run("ppsim.state().makespan") > makespan
    assert browser.run("document.getElementById('regain').hidden")
    set_control(browser, "microbatches", 9)
    browser.wait("ppsim.state().queues[0].length === 18")
    words = "2 edits of the last schedule do not fit this one: go back"
    browser.wait("!document.getElementById('regain').hidden")
    assert text(browser, "#regain") == words
    assert not browser.run("ppsim.undo()")
    browser.wait("location.search.includes('mb=9')")
    browser.run("document.getElementById('regain').click()")
    browser.wait(f"ppsim.csv() === {json.dumps(csv)}")
    browser.wait("document.getElementById('regain').hidden")
    assert browser.run("ppsim.undo() && ppsim.undo() && ppsim.redo() && ppsim.redo()")
    browser.wait("location.hash.includes('e=') && location.search.includes('comm=0.5')")
    browser.wait("location.search.includes('mb=8')")  # the address follows the schedule later
    link = browser.run("location.href")
    browser.open(link)
    browser.wait(f"ppsim.csv() === {json.dumps(csv)}")
    assert browser.run("document.getElementById('edit').getAttribute('aria-pressed')") == "true"
    assert browser.errors == []
