"""Eight lessons in pipelines: pages that are changed by hand, each with a par that is proved."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ppsim.ask.groups import FigureOptions
from ppsim.ask.write import document_writers
from ppsim.questions.timelines.run import Run, run
from ppsim.show.files.document import Document
from tests.guides.replay import ROOT
from tests.site.links_out import add_links

LESSONS = ROOT / "gallery" / "site" / "lessons.toml"
PROOF = "no order of these ops takes less"
PROOF_SPLIT = "no order of these ops takes less, however backwards are split"
PAGE = """# Lessons

Eight short exercises in your browser. Each has a task and a par: a makespan that a known schedule
reaches, and a bound proves that no order of the ops is faster. The page shows when you reach it.
If you are stuck, choose a schedule in the list `turn into …` of the page: its queues replace
yours, and `undo` restores yours.

"""


@dataclass(frozen=True)
class Lesson:
    """A schedule to change, and what is to be reached."""

    title: str
    text: tuple[str, ...]
    run: dict[str, Any]  # schedule and options of ``ppsim.run``
    par: float  # makespan
    solution: str  # a schedule of the same shape that reaches par
    most: int | None = None  # activations that a device may hold
    blank: bool = False  # whether rows are empty at first
    may_split: bool = False  # whether backwards may be split to reach par
    edits: str = ""  # moves that the schedule begins with, as an address has them

    def object(self) -> dict[str, Any]:
        """Return what the page holds."""
        told = {"title": self.title, "text": list(self.text), "par": self.par}
        told |= {"proof": PROOF_SPLIT if self.may_split else PROOF}
        told |= {"most": self.most} if self.most is not None else {}
        return told | ({"edits": self.edits} if self.edits else {})

    def timed(self, schedule: str = "") -> Run:
        """Return the run of the lesson, or of another schedule of its shape."""
        options = dict(self.run)
        own = str(options.pop("schedule"))
        return run(schedule or own, **options)


def read_lessons() -> dict[str, Lesson]:
    """Read the lessons, in order, by name."""
    found = tomllib.loads(LESSONS.read_text())
    return {name: Lesson(**row | {"text": tuple(row["text"])}) for name, row in found.items()}


def lessons_page() -> str:
    """Return the page that lists the lessons."""
    rows = [
        f"- [{lesson.title}]({name}.html): {lesson.text[0]}"
        for name, lesson in read_lessons().items()
    ]
    return PAGE + "\n".join(rows) + "\n"


def write_lessons(folder: Path) -> None:
    """Write the page of each lesson into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    lessons = read_lessons()
    names = list(lessons)
    for number, (name, lesson) in enumerate(lessons.items(), start=1):
        target = folder / f"{name}.html"
        write_lesson(lesson, target)
        links = {"all lessons": "index.html"}
        if number < len(names):
            links[f"next: {lessons[names[number]].title}"] = f"{names[number]}.html"
        add_links(target, links)


def write_lesson(lesson: Lesson, target: Path) -> None:
    """Write the page of a lesson."""
    found = lesson.timed()

    def complete(document: Document, suffix: str) -> Document:
        whole = found.complete(document, suffix)
        return replace(whole, lesson=lesson.object(), blank=lesson.blank)

    output = replace(FigureOptions(), output=(str(target),))
    written = document_writers(
        [found.timeline], [lesson.title], found.inputs, output, complete=complete
    )
    for _, save in written:
        save()
