"""Pages of explain and diff hold the answer: sums, path, changes as ghosts, and the same op of both
runs joined.
"""

import json
import re

import pytest

from tests.browser import started
from tests.commands import invoke

LITTLE = ["explain", "1f1b", "--stages", "2", "--mb", "3", "--comm", "0.3"]
WHY = ["explain", "1f1b", "--stages", "4", "--mb", "8", "--comm", "0.3"]
DIFF = ["diff", "1f1b", "zb-1p", "--devices", "4", "--mb", "8", "--comm", "0.2"]


def story(words, target):
    """What the page of a command tells, and what the command says with --json."""
    assert invoke(*words, "-q", "-o", str(target)).exit_code == 0
    found = re.search(r'id="ppsim-data">(.*?)</script>', target.read_text(), re.S)
    assert found
    return json.loads(found[1])["story"], json.loads(invoke(*words, "--json").stdout)


def test_a_why_page_leads_from_work_to_the_makespan(tmp_path):
    """Each bar begins where the last ended, and the last is the makespan; the rest is as --json has
    it.
    """
    told, said = story(LITTLE, tmp_path / "x.html")
    work, *causes, makespan = told["bars"]
    assert makespan["to"] == said["makespan"]
    for before, after in zip([work, *causes], causes, strict=False):
        assert after["from"] == before["to"]
    assert causes[-1]["to"] == pytest.approx(said["makespan"])
    assert {bar["name"]: 2 * (bar["to"] - bar["from"]) for bar in causes} == pytest.approx(
        said["idle_by_cause"]
    )
    assert told["lead"] == said["advice"]
    assert told["notes"] == [said["advice_with_more_memory"], *said["notes"]]
    assert [step["text"] for step in told["path"]["steps"]] == said["critical_path_text"]
    assert [change["text"] for change in told["changes"]] == [
        each["change"] for each in said["what_if"]
    ]
    assert [ghost["makespan"] for ghost in told["ghosts"]] == [
        each["makespan"] for each in said["what_if"]
    ]
    column = told["matrix"]["columns"].index("turnaround")
    assert [row["values"][column] for row in told["matrix"]["rows"]] == said["causes_by_device"][
        "turnaround"
    ]


def test_a_diff_page_has_every_difference_and_the_ops_of_both(tmp_path):
    told, said = story(DIFF, tmp_path / "x.html")
    *terms, makespan = told["bars"]
    differs = said["difference_by_cause"]
    # B of one run does what I and W of the other do
    joined = {name: differs.pop(name) for name in ("B", "I", "W")}
    differs["backward"] = sum(joined.values())
    assert max(map(abs, joined.values())) > abs(differs["backward"])
    assert {bar["name"]: bar["to"] for bar in terms} == pytest.approx(differs)
    assert not {"B", "I", "W"} & {*told["matrix"]["columns"]}
    assert makespan["to"] == pytest.approx(said["difference"])
    assert len(told["twins"][0]) == len(said["ops"]["start_change"])


@pytest.mark.browser
def test_a_change_is_laid_over_the_chart_and_a_cause_lit(tmp_path):
    target = tmp_path / "why.html"
    assert invoke(*WHY, "-q", "-o", str(target)).exit_code == 0
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        dashed = "document.querySelectorAll('#marks path[stroke-dasharray=\"4 2\"]').length"
        assert browser.run(dashed) == 0
        browser.run("document.querySelector('.changes li:nth-child(2) button').click()")
        browser.wait(f"{dashed} === 1")  # twice the microbatches: the axis grows with it
        assert "60" in browser.run("document.getElementById('marks').textContent")
        lit = (
            "document.querySelectorAll('#marks "
            'path[stroke-width="2.5"][stroke="#D1242F"]\').length'
        )
        assert browser.run(lit) == 0
        browser.run("document.querySelector('.matrix td.more[tabindex=\"0\"]').focus()")
        browser.wait(f"{lit} === 1")
        browser.run("document.querySelector('.steps button').click()")
        assert (
            browser.run("document.getElementById('critical').getAttribute('aria-pressed')")
            == "true"
        )
        browser.run(
            "document.querySelector('.changes li:last-child button').scrollIntoView({block: 'end'})"
        )
        seen = (
            "(e => { const b = e.getBoundingClientRect(); return b.top >= -1 && b.bottom <= "
            "innerHeight + 1; })"
        )
        for part in ("#chart", ".changes li:last-child button"):
            assert browser.run(f"{seen}(document.querySelector({part!r}))"), part
        for width in (390, 3840):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.ask("Emulation.setDeviceMetricsOverride", **size)
            assert browser.run("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_an_op_is_joined_with_the_same_of_the_other_run(tmp_path):
    """Its shift is said, also where the runs are laid together at their ends."""
    target = tmp_path / "diff.html"
    assert invoke(*DIFF, "-q", "-o", str(target)).exit_code == 0
    with started(tmp_path) as browser:
        browser.open(target.as_uri())
        find = "(f => { f.value = '3F7'; f.onchange(); })(document.getElementById('find'))"
        dashed = "document.querySelectorAll('#marks path[stroke-dasharray=\"4 2\"]').length"
        assert browser.run(dashed) == 0, "outlines are of what is picked out"
        browser.run(find)
        assert browser.run("document.getElementById('twin').getAttribute('d')").startswith("M")
        browser.wait(f"{dashed} === 1")
        said = browser.run("document.getElementById('tip').textContent")
        assert "than in B" in said
        browser.run(
            "(s => { s.value = 2; s.onchange(); })(document.querySelector('#story select'))"
        )
        assert "later" in browser.run("document.getElementById('status').textContent")
        browser.run(find)
        assert browser.run("document.getElementById('tip').textContent") != said
        size = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.ask("Emulation.setDeviceMetricsOverride", **size)
        assert browser.run("document.documentElement.scrollWidth") <= 390
