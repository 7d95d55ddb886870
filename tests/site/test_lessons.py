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
