"""Every lesson's par is proved, can be reached, and is not reached before anything is done."""

from __future__ import annotations

import numpy as np
import pytest

from ppsim.core.ops import Kind
from ppsim.core.schedule import Schedule
from ppsim.search.bounds.bounds import bound_either, bound_schedule
from tests.browser import started
from tests.site.lessons import Lesson, read_lessons, write_lesson

LESSONS = read_lessons()
each = pytest.mark.parametrize("lesson", LESSONS.values(), ids=LESSONS)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with started(tmp_path_factory.mktemp("browser")) as found:
        yield found


def halves(schedule: Schedule) -> list[tuple[int, ...]]:
    """Return the ops of a schedule without their order, a full backward as its two halves."""
    found = []
    for op in range(len(schedule)):
        kind = int(schedule.kind[op])
        kinds = (Kind.I, Kind.W) if kind == Kind.B else (kind,)
        cell = (int(schedule.stage[op]), int(schedule.microbatch[op]), int(schedule.device[op]))
        found += [(int(each), *cell) for each in kinds]
    return sorted(found)


def test_there_are_eight_lessons():
    assert len(LESSONS) == 8


@each
def test_no_schedule_beats_par(lesson: Lesson):
    found = lesson.timed()
    if lesson.may_split:
        bound = bound_either(found.schedule, found.costs)
    else:
        bound = bound_schedule(found.schedule, found.costs).makespan
    assert bound == pytest.approx(lesson.par)


@each
def test_a_schedule_of_the_same_ops_reaches_par(lesson: Lesson):
    found, solved = lesson.timed(), lesson.timed(lesson.solution)
    assert solved.timeline.makespan == pytest.approx(lesson.par)
    if lesson.most is not None:
        assert solved.metrics.peak_activations.max() <= lesson.most
    assert halves(found.schedule) == halves(solved.schedule)
    split = bool(np.any(solved.schedule.kind == Kind.I)) and not np.any(
        found.schedule.kind == Kind.I
    )
    assert split == lesson.may_split


@pytest.mark.browser
@each
def test_a_page_knows_when_its_lesson_is_done(lesson: Lesson, tmp_path, browser):
    target = tmp_path / "lesson.html"
    write_lesson(lesson, target)
    browser.open(target.as_uri())
    browser.wait("document.querySelector('#par')?.textContent")
    said = "document.querySelector('#par').textContent"
    assert "done" not in browser.run(said)
    assert ("ops to place" in browser.run(said)) == lesson.blank
    if lesson.edits:
        browser.run("ppsim.move(1, 8, 6); ppsim.move(1, 9, 14); 1")
    else:
        names = browser.run("JSON.stringify(ppsim.known())")
        browser.run(f"ppsim.become({names}.indexOf('{lesson.solution}')); 1")
    assert "done" in browser.run(said)
    assert browser.errors == []


# Where a copy to the device is, and where its strip has a time, in the window.
COPY = """
((name, time) => {
  const { queues, start, makespan } = ppsim.state();
  const began = start[1][queues[1].indexOf(name)];
  const rows = document.querySelector('#marks svg').getBoundingClientRect();
  const names = [...document.querySelectorAll('#marks text')]
    .filter(each => each.textContent.startsWith('device '));
  const [first, second] = names.map(each => each.getBoundingClientRect().top);
  const at = when => rows.left + rows.width * when / makespan;
  return [at(began + 0.25), at(time), rows.top + 1.9 * (second - first)];
})
"""


@pytest.mark.browser
def test_the_lesson_of_copies_is_done_by_two_drags(tmp_path, browser):
    """Along the strip below the device, as its text says."""
    target = tmp_path / "lesson.html"
    write_lesson(LESSONS["offload"], target)
    browser.open(target.as_uri())
    browser.wait("document.querySelector('#par')?.textContent")
    said = "document.querySelector('#par').textContent"
    for name, time in (("1RELOAD1", 7.2), ("1RELOAD3", 14.2)):
        assert "done" not in browser.run(said)
        x, to, y = browser.run(f"{COPY}('{name}', {time})")
        browser.mouse("mousePressed", x, y)
        for share in (0.3, 0.7, 1):
            browser.mouse("mouseMoved", x + share * (to - x), y)
        browser.wait("document.querySelector('#marks .ghost')")
        browser.mouse("mouseReleased", to, y)
        browser.wait("!document.querySelector('#marks .ghost')")
    assert "done" in browser.run(said)
