"""Questions are found by reading their files, so what a file declares must stand as it is read."""

from __future__ import annotations

import re
from pathlib import Path

from ppsim import questions
from ppsim.questions import list_questions, place_of

FOLDER = Path(questions.__file__).parent


def not_found(folder: Path) -> list[str]:
    """The files with a request that declares a question and its place, and is no question."""
    found = []
    for path in folder.glob("*/[!_]*.py"):
        text = path.read_text("utf-8")
        declares = all(
            re.search(rf"^    {name}\b.*=", text, re.M) for name in ("question", "place")
        )
        if declares and (path.stem not in list_questions() or place_of(text) is None):
            found.append(path.name)
    return found


def test_a_file_that_declares_a_question_is_found():
    """Its name is the file's, and its place stands in the next line, as CONTRIBUTING.md has them;
    otherwise there would be no command, and no message either.
    """
    assert not_found(FOLDER) == []


def test_a_question_of_another_name_is_told(tmp_path):
    """Also one whose two lines stand in another order."""
    place = '    place: ClassVar[tuple[str, int]] = ("More", 1)\n'
    (tmp_path / "plans").mkdir()
    for file, name in (("run.py", "run"), ("other.py", "count")):
        lines = f'class Asked:\n    question: ClassVar[str] = "{name}"\n{place}'
        (tmp_path / "plans" / file).write_text(lines)
    assert not_found(tmp_path) == ["other.py"]
