"""Questions of users, by product: one module each, with a request and an answer.

A module that declares a request of its name, with its place in the help, is a question: a command,
and a function of Python where it defines one of this name. Both are found by reading files, so that
nothing is imported before it is asked for.
"""

import re
from functools import cache
from pathlib import Path

__all__ = ["across", "list_functions", "list_questions", "module_of", "place_of", "runs"]

_FOLDER = Path(__file__).parent
_PLACE = re.compile(r'^    place: ClassVar\[tuple\[str, int\]\] = \("(.+)", (\d+)\)$', re.MULTILINE)


@cache
def _texts() -> dict[str, tuple[str, str]]:
    """Read the name of the module and the text of every question."""
    found = {}
    for path in sorted(_FOLDER.glob("*/[!_]*.py")):
        text = path.read_text("utf-8")
        if _declares(text, path.stem):
            found[path.stem] = (f"{__name__}.{path.parent.name}.{path.stem}", text)
    return found


def _declares(text: str, name: str) -> bool:
    """Return whether a module's text declares the question of its name and a place in the help."""
    return f'\n    question: ClassVar[str] = "{name}"\n    place: ' in text


@cache
def module_of(name: str) -> str | None:
    """Return the full name of a question's module; None where there is no such question."""
    for path in _FOLDER.glob(f"*/{name}.py"):
        if _declares(path.read_text("utf-8"), name):
            return f"{__name__}.{path.parent.name}.{name}"
    return None


def list_questions() -> list[str]:
    """List the names of all questions, sorted."""
    return sorted(_texts())


def list_functions() -> list[str]:
    """List the questions that are functions of Python, sorted."""
    return sorted(name for name, (_, text) in _texts().items() if f"\ndef {name}(" in text)


def place_of(text: str) -> tuple[str, int] | None:
    """Read a command's place in the help from the text of its module: its section, and its rank in
    it.
    """
    found = _PLACE.search(text)
    return (found[1], int(found[2])) if found else None
