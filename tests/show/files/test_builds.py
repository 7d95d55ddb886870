"""A schedule that is built on a page from a blank sheet: choices, filling, stamping, and what the
page calls it.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ppsim
from ppsim.core.costs import Costs, costs_for
from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.engine.simple.longest_path import simulate
from ppsim.errors import PpsimError
from ppsim.schedules import families, generate, list_alike, recognise
from ppsim.show.files import editing
from ppsim.show.files.document import Document, save
from ppsim.show.files.editing import hash_queues, why_not_blank
from ppsim.show.files.page_parts import read_part
from tests.browser import Browser, started
from tests.commands import invoke, refused
from tests.edits import amounts, read_back, small, uneven_costs, verify

ALL = [family.name for family in families()]
# Fill by a policy; at a tie place what comes first, and fill again.
FILL = """
(policy => {
  ppsim.blank();
  for (let i = 0; i < 500; i++) {
    ppsim.fill(policy);
    const { missing, note, queues } = ppsim.state();
    if (!missing || note.startsWith('no further op')) break;
    const device = Number(note.split(' ')[4].replace(':', ''));
    const [choice] = ppsim.choices(device);
    ppsim.place(device, choice.place);
    const { start } = ppsim.state();
    const late = Math.abs(start[device].at(-1) - choice.start);
    if (late > 1e-9 * choice.end) throw Error(`${choice.label} does not start then`);
  }
  return JSON.stringify({ csv: ppsim.csv(), did: policy, state: ppsim.state() });
})(POLICY)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


def open_page(browser: Browser, folder: Path, schedule: Schedule, costs: Costs) -> None:
    """Open the page of a schedule with these costs, which knows the others of its size."""
    model = amounts(schedule, 3)
    timeline = simulate(schedule, costs)
    document = Document((timeline,), (schedule.name,), costs=(costs,), memory_models=(model,))
    target = folder / "x.html"
    save(replace(document, known=(list_alike(schedule),)), str(target))
    browser.open(target.as_uri())


@pytest.mark.browser
@pytest.mark.parametrize("name", ALL)
def test_filling_makes_schedules_that_python_accepts(name, tmp_path, browser):
    schedule = small(name)
    costs = uneven_costs(schedule, 4)
    open_page(browser, tmp_path, schedule, costs)
    if why_not_blank(schedule):
        browser.run("document.querySelector('#edit').click(); 1")
        buttons = "[...document.querySelectorAll('#editor button')]"
        browser.run(f"{buttons}.find(b => b.innerText === 'blank sheet').click(); 1")
        refusal = f"this schedule cannot begin blank: {why_not_blank(schedule)}"
        assert browser.run("document.querySelector('#status').textContent") == refusal
        assert not browser.run("'blank' in ppsim")
        assert browser.errors == []
        return
    browser.run("ppsim.blank(); 1")
    assert (
        json.loads(browser.run("JSON.stringify(ppsim.state().queues)")) == [[]] * schedule.n_devices
    )
    assert browser.run("ppsim.state().missing") == len(schedule)
    assert not browser.run("ppsim.state().valid")
    whole = 0
    for policy in range(browser.run("ppsim.policies.length")):
        found = json.loads(browser.run(FILL.replace("POLICY", str(policy))))
        if not found["state"]["missing"]:
            whole += 1
            assert verify(found, schedule, costs, amounts(schedule, 3))
    assert whole >= 2
    assert browser.errors == []


@pytest.mark.browser
@pytest.mark.parametrize(("name", "policy"), [("1f1b", 1), ("gpipe", 3)])
def test_policies_make_the_schedules_that_follow_them(name, policy, tmp_path, browser):
    schedule = generate(name, devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    given = browser.run("ppsim.csv()")
    assert browser.run(f"ppsim.blank(); ppsim.fill({policy}); ppsim.csv()") == given
    assert browser.run("ppsim.name().name") == name


@pytest.mark.browser
def test_one_microbatch_is_stamped_across_all_and_written_as_a_block(tmp_path, browser):
    schedule = generate("1f1b", devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    given = browser.run("ppsim.csv()")
    browser.run(
        """
        ppsim.blank();
        for (const device of [0, 1, 2, 3, 3, 2, 1, 0])
          ppsim.place(device, ppsim.choices(device).find(({ label }) => label.endsWith('0')).place);
        ppsim.stamp(0); 1
        """
    )
    assert browser.run("ppsim.csv()") == given
    (tmp_path / "stamped-by-hand.toml").write_text(browser.run("ppsim.block(0)"))
    made = ppsim.run(str(tmp_path / "stamped-by-hand.toml"), devices=4, microbatches=8)
    assert made.timeline.makespan == browser.run("ppsim.state().makespan")


@pytest.mark.browser
@pytest.mark.parametrize("name", ALL)
def test_a_page_names_queues_as_python_does(name, tmp_path, browser):
    """Every family at its size, and every other one of that size."""
    schedule = small(name)
    open_page(browser, tmp_path, schedule, uneven_costs(schedule, 5))
    found = json.loads(browser.run("JSON.stringify(ppsim.name())"))
    assert found["away"] == 0
    assert found["name"] == recognise(schedule)
    alike = list_alike(schedule)
    for number, other in enumerate(json.loads(browser.run("JSON.stringify(ppsim.known())"))):
        browser.run(f"ppsim.become({number}); 1")
        assert json.loads(browser.run("JSON.stringify(ppsim.name())")) == {
            "name": other,
            "number": number,
            "away": 0,
        }
        made = read_back(browser.run("ppsim.csv()"), schedule)
        assert made is not None
        for column in ("offsets", "kind", "stage", "microbatch", "pair"):
            assert np.array_equal(getattr(made, column), getattr(alike[other], column)), (
                other,
                column,
            )
    assert browser.errors == []


_OPTIONS: tuple[dict[str, Any], ...] = ({}, {"group_size": 2}, {"slices": 2})
SIZES = ((4, 8), (8, 32), (2, 5), (6, 18), (16, 64))


def variants(name: str) -> Iterator[Schedule]:
    """Yield a family's schedules at several sizes, with group sizes and slices."""
    for devices, microbatches in SIZES:
        for options in _OPTIONS:
            with contextlib.suppress(PpsimError):
                yield generate(name, devices=devices, microbatches=microbatches, **options)


def codes_of(schedule: Schedule) -> list[list[int]]:
    """Return the queues as numbers, as the page packs its ops."""
    first = schedule.pair > np.arange(len(schedule))
    cell = schedule.microbatch.astype(np.int64) * (schedule.n_stages + 1) + schedule.stage + 1
    codes = (cell * 64 + schedule.kind) * 2 + first
    return [codes[schedule.queue(device)].tolist() for device in range(schedule.n_devices)]


@pytest.mark.browser
@pytest.mark.parametrize("name", ALL)
def test_a_page_makes_of_queues_the_text_that_python_makes(name, browser):
    """At several sizes; and another one of two neighbours in turned order."""
    script = read_part("edit_known.js")
    (factors,) = re.findall(r"^const HASH_FACTORS.*;", script, re.M)
    (function,) = re.findall(r"^function hashOfQueues.*?^}", script, re.M | re.S)
    made = list(variants(name))
    assert made
    queues = [codes_of(each) for each in made]
    turned = [[row[:1] + row[2:0:-1] + row[3:] for row in rows[:1]] + rows[1:] for rows in queues]
    both = json.dumps(queues + turned)
    hashes = browser.run(f"(() => {{ {factors} {function} return {both}.map(hashOfQueues); }})()")
    owns, others = hashes[: len(made)], hashes[len(made) :]
    assert owns == [hash_queues(each) for each in made]
    for before, after, own, other in zip(queues, turned, owns, others, strict=True):
        assert (own == other) == (before == after)
    assert any(before != after for before, after in zip(queues, turned, strict=True))


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "devices", "microbatches", "others"),
    [
        ("1f1b", 8, 32, ()),
        ("zb-v", 8, 32, ()),
        ("dualpipe-v", 8, 80, ()),
        ("1f1b", 8, 320, ("zb-2p", "zb-auto")),
        ("interleaved", 4, 500, ("other group sizes",)),
    ],
)
def test_a_page_of_any_size_names_all_families(
    name, devices, microbatches, others, tmp_path, browser
):
    """Also where it does not have their queues; it says which it does not know."""
    schedule = generate(name, devices=devices, microbatches=microbatches)
    costs = costs_for(schedule)
    alike = list_alike(schedule)
    kinds = {Kind.F, Kind.B, Kind.I, Kind.W}
    wanted = {key: made for key, made in alike.items() if made and kinds.issuperset(made.kind)}
    assert {key for key, made in alike.items() if made is None} == {*others}
    assert len(wanted) >= 5
    for key in list(wanted)[-3:]:
        document = Document((simulate(wanted[key], costs),), ("x",), costs=(costs,), known=(alike,))
        save(document, str(tmp_path / "x.html"))
        browser.open((tmp_path / "x.html").as_uri())
        assert browser.run("ppsim.name()") == {"name": key, "number": 0, "away": 0}
        browser.run("document.getElementById('edit').click(); ppsim.move(0, 2, 1)")
        assert (browser.run("ppsim.name()") or {}).get("away") != 0
    browser.run("for (let i = 0; i < 20; i++) ppsim.move(0, 0, 60)")
    said = browser.run("document.getElementById('edited').textContent")
    assert (f"not compared with {', '.join(others)}" in said) == bool(others)


@pytest.mark.parametrize(("spare", "is_included"), [(0, True), (-1, False)])
def test_queues_of_known_schedules_are_included_up_to_a_size(
    spare, is_included, tmp_path, monkeypatch
):
    """Of a larger one the page has the name, and not the queues."""
    known = generate("gpipe", devices=2, microbatches=3)
    monkeypatch.setattr(editing, "MOST_WHOLE", len(known) + spare)
    schedule = generate("1f1b", devices=2, microbatches=3)
    costs = costs_for(schedule)
    timeline = simulate(schedule, costs)
    document = Document((timeline,), ("x",), costs=(costs,), known=({"gpipe": known},))
    save(document, str(tmp_path / "x.html"))
    (found,) = re.findall(r'"known":({[^}]*})', (tmp_path / "x.html").read_text())
    assert ("rows" in json.loads(found)) == is_included


@pytest.mark.browser
def test_a_page_counts_the_ops_that_are_out_of_place(tmp_path, browser):
    schedule = generate("1f1b", devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    browser.run("ppsim.move(0, 3, 5); ppsim.move(2, 9, 8); 1")
    assert browser.run("ppsim.name().name") == "1f1b"
    assert browser.run("ppsim.name().away") == 2


@pytest.mark.browser
@pytest.mark.parametrize(
    "edits", ["p0.0.99", "b~p9.0.0", "b~p0.1.0", "b~f7", "k0~b~k0", "n999", "b~x0.0", "f"]
)
def test_a_link_with_building_that_does_not_fit_is_refused_whole(edits, tmp_path, browser):
    schedule = generate("1f1b", devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    given = browser.run("ppsim.csv()")
    browser.run("ppsim.move(0, 3, 5); 1")
    base = browser.run("location.hash").split("~")[0]
    browser.open((tmp_path / "x.html").as_uri() + f"{base}~{edits}")
    assert browser.run("ppsim.csv()") == given


@pytest.mark.browser
def test_a_blank_page_begins_with_empty_rows(tmp_path, browser):
    target = tmp_path / "blank.html"
    assert (
        invoke("run", "1f1b", "--devices", "4", "--mb", "8", "--blank", "-o", str(target)).exit_code
        == 0
    )
    browser.open(target.as_uri())
    assert browser.run("document.querySelector('#verdict').textContent") == ""
    browser.wait("document.querySelector('#choices')?.children.length")
    assert json.loads(browser.run("JSON.stringify(ppsim.state().queues)")) == [[]] * 4
    assert browser.run("document.querySelector('#choices').innerText").startswith("device 0")
    hint = browser.run("document.querySelector('#status').textContent")
    assert hint.startswith("Press an op above, or a row")
    edited = browser.run("document.querySelector('#edited').textContent")
    assert edited == "64 ops left to place. So far 0 t_F, peak 0 0 0 0 act."
    track = browser.run("document.querySelector('#marks path').getBoundingClientRect().width")
    assert track > 500
    step = "[...document.querySelectorAll('#editor button')].find(b => b.innerText === 'step')"
    browser.run(f"{step}.click(); 1")
    assert browser.run("document.querySelector('#status').textContent") == "no op is placed yet"
    browser.run(
        "[...document.querySelectorAll('#choices button')].find(b => "
        "b.innerText.startsWith('0F0')).click(); 1"
    )
    assert browser.run("document.querySelector('#status').textContent") == ""
    assert browser.run("document.querySelector('#again').textContent") == ""
    assert json.loads(browser.run("JSON.stringify(ppsim.state().queues)"))[0] == ["0F0"]
    assert "63 ops left to place" in browser.run("document.querySelector('#edited').textContent")
    browser.run("ppsim.undo(); ppsim.undo(); 1")
    assert browser.run("ppsim.state().missing") == 64


def test_a_schedule_with_other_ops_is_never_blank(tmp_path):
    target = tmp_path / "x.html"
    words = ("run", "vocab-1", "--devices", "4", "--mb", "8", "--blank")
    assert "it has ops of kind" in str(refused(*words, "-o", str(target)))
    assert not target.exists()
    assert "--blank needs -o FILE.html" in str(refused(*words))


def blank_page(browser: Browser, target: Path, *words: str) -> None:
    """Open the page of a command that begins with empty rows."""
    assert invoke("run", *words, "--blank", "-o", str(target)).exit_code == 0
    browser.open(target.as_uri())
    browser.wait("document.querySelector('#choices button')")


@pytest.mark.browser
def test_a_forward_is_placed_with_a_backward_as_a_pair(tmp_path, browser):
    """By the button that offers both; it takes the time of a pair, and a link holds it."""
    target = tmp_path / "x.html"
    blank_page(browser, target, "1f1b-overlap", "--devices", "2", "--mb", "4", "--tfb", "2.5")
    labels = "[...document.querySelectorAll('#choices button')].map(each => each.textContent)"

    def place(device: int, label: str) -> None:
        browser.run(f"(own => {{ own.value = {device}; own.onchange(); }})({pick})")
        chosen = f"find(each => each.textContent.startsWith('{label} at '))"
        browser.run(f"[...document.querySelectorAll('#choices button')].{chosen}.click()")

    pick = "document.querySelector('#choices select')"
    for device, label in ((0, "0F0"), (0, "0F1"), (1, "1F0"), (1, "1B0")):
        place(device, label)
    assert "1F1" in browser.run("ppsim.choices(1).map(each => each.label)")
    place(0, "0F2 with 0B0")
    found = browser.run("ppsim.state()")
    assert found["queues"][0] == ["0F0", "0F1", "(0F2;0B0)OVERLAP_F_B"]
    assert found["busy"][0] == pytest.approx(2 + 2.5)
    assert not any("0F2" in label for label in browser.run(labels))
    browser.wait("(location.hash.match(/~/g) ?? []).length === 5")
    csv, link = browser.run("[ppsim.csv(), location.href]")
    browser.open(link)
    assert browser.run("ppsim.csv()") == csv
    browser.run("ppsim.remove(0, 2)")
    assert browser.run("ppsim.choices(0).map(each => each.label)")[-1] == "0F2 with 0B0"
    with pytest.raises(AssertionError, match="not a pair"):
        browser.run("ppsim.place(0, [0, 1].map(i => ppsim.choices(0)[0].place[0]))")
    browser.run("ppsim.fill(4)")
    made = browser.run("ppsim.state()")
    assert made["valid"]
    assert sum("OVERLAP" in cell for queue in made["queues"] for cell in queue) >= 2
    assert browser.errors == []


@pytest.mark.browser
def test_slices_are_placed_behind_those_that_they_need(tmp_path, browser):
    """Forwards of a sequence in the order of its slices, backwards in the other one."""
    target = tmp_path / "x.html"
    words = ("seq1f1b", "--devices", "2", "--mb", "2", "--slices", "2")
    blank_page(browser, target, *words)
    labels = "ppsim.choices({}).map(each => each.label)"
    assert browser.run(labels.format(0)) == [
        "0F0 (microbatch 0, slice 0)",
        "0F2 (microbatch 1, slice 0)",
    ]
    for device, at in ((0, 0), (0, 0), (1, 0), (1, 0)):
        browser.run(f"ppsim.place({device}, ppsim.choices({device})[{at}].place)")
    assert browser.run("ppsim.state().queues") == [["0F0", "0F1"], ["1F0", "1F1"]]
    assert "1B1 (microbatch 0, slice 1)" in browser.run(labels.format(1))
    assert not any("1B0" in label for label in browser.run(labels.format(1)))
    browser.run("ppsim.fill(0)")
    assert browser.run("ppsim.state().valid")
    browser.run("document.getElementById('edit').click(); document.getElementById('edit').click()")
    buttons = "[...document.querySelectorAll('#editor button')]"
    browser.run(f"{buttons}.find(each => each.textContent === 'stamp').click()")
    assert browser.run("document.getElementById('status').textContent").startswith(
        "slices cannot be"
    )
    assert browser.errors == []


@pytest.mark.browser
def test_rounds_that_feed_back_begin_blank(tmp_path, browser):
    target = tmp_path / "x.html"
    words = ("decode", "--devices", "2", "--mb", "2", "--steps", "2", "--feedback", "0.5")
    blank_page(browser, target, *words)
    assert browser.run("ppsim.choices(0).map(each => each.label)") == ["0F0", "0F1"]
    browser.run("ppsim.fill(0)")
    found = browser.run("ppsim.state()")
    assert found["valid"]
    ran = ppsim.run("decode", devices=2, microbatches=2, steps=2, feedback=0.5)
    assert found["makespan"] == pytest.approx(ran.timeline.makespan)


@pytest.mark.browser
def test_a_schedule_is_played_with_a_line_for_each_step(tmp_path, browser):
    schedule = generate("1f1b", devices=2, microbatches=2)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    step = (
        "[...document.querySelectorAll('#editor button')].find(b => b.innerText === 'step').click()"
    )
    browser.run("document.querySelector('#edit').click(); 1")
    said = []
    for _ in range(8):
        browser.run(f"{step}; 1")
        said.append(browser.run("document.querySelector('#told').textContent"))
    assert said[0] == "1 of 8 \u00b7 0 t_F: device 0 runs 0F0"
    assert "device 1 runs 1F0 on the result of 0F0 from device 0" in said[1] + said[2]
    assert said[-1].startswith("8 of 8")


@pytest.mark.browser
def test_what_is_taken_off_is_placed_again_where_it_was(tmp_path, browser):
    """Memory falls below zero nowhere meanwhile, and what needs the op waits for it."""
    schedule = generate("1f1b", devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    given = browser.run("ppsim.csv()")
    browser.run(
        "document.querySelector('#edit').click(); document.querySelector('#chart').focus(); 1"
    )
    browser.run("ppsim.remove(1, 2); 1")
    found = json.loads(browser.run("JSON.stringify(ppsim.state())"))
    assert found["missing"] == 1
    assert min(found["peak"]) >= 0
    least = "document.getElementById('marks').textContent.includes('\u22121')"
    assert not browser.run(least)
    choices = json.loads(browser.run("JSON.stringify(ppsim.choices(1, 2))"))
    assert [each["label"] for each in choices] == ["1F2"]
    assert (
        browser.run("ppsim.choices(1).length") == 0 or browser.run("ppsim.choices(1)[0].start") > 5
    )
    browser.run(f"ppsim.place(1, {choices[0]['place']}, 2); 1")
    assert browser.run("ppsim.csv()") == given
    assert browser.run("ppsim.state().valid")


@pytest.mark.browser
def test_the_button_takes_off_and_offers_the_same_place(tmp_path, browser):
    schedule = generate("1f1b", devices=4, microbatches=8)
    open_page(browser, tmp_path, schedule, costs_for(schedule))
    given = browser.run("ppsim.csv()")
    buttons = "[...document.querySelectorAll('#editor button')]"
    browser.run("document.querySelector('#edit').click(); 1")
    for _ in range(3):
        browser.ask("Input.dispatchKeyEvent", type="keyDown", key="ArrowRight")
    browser.run(f"{buttons}.find(b => b.innerText === 'remove').click(); 1")
    assert browser.run("document.querySelector('#choices').innerText").startswith("device 0")
    assert "before 0F3:" in browser.run("document.querySelector('#choices').textContent")
    browser.run("document.querySelector('#choices button').click(); 1")
    assert browser.run("ppsim.csv()") == given
