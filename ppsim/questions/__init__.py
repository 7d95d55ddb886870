"""Questions of users, by product: one module each, with a request and an answer.

A question is a module that declares a request of the module's name, with a place in the help. It
becomes a command, and a function of Python if it defines one of that name. Both are found by
reading source files, so that no question is imported before it is asked.
"""

import re
from functools import cache
from pathlib import Path

__all__ = [
    "across",
    "list_functions",
    "list_library",
    "list_questions",
    "module_of",
    "place_of",
    "runs",
]

_FOLDER = Path(__file__).parent
_PLACE = re.compile(r'^    place: ClassVar\[tuple\[str, int\]\] = \("(.+)", (\d+)\)$', re.MULTILINE)


@cache
def _sources() -> dict[str, tuple[str, str]]:
    """Return the full module name and the source text of each question, by its name."""
    found = {}
    for path in sorted(_FOLDER.glob("*/[!_]*.py")):
        text = path.read_text("utf-8")
        if _declares(text, path.stem):
            found[path.stem] = (f"{__name__}.{path.parent.name}.{path.stem}", text)
    return found


def _declares(text: str, name: str) -> bool:
    """Return True if a source declares a question of this name with a place in the help."""
    return f'\n    question: ClassVar[str] = "{name}"\n    place: ' in text


@cache
def module_of(name: str) -> str | None:
    """Return the full name of a question's module; None if there is no such question."""
    for path in _FOLDER.glob(f"*/{name}.py"):
        if _declares(path.read_text("utf-8"), name):
            return f"{__name__}.{path.parent.name}.{name}"
    return None


def list_questions() -> list[str]:
    """List the names of all questions, sorted."""
    return sorted(_sources())


def list_functions() -> list[str]:
    """List the questions that are functions of Python, sorted."""
    return sorted(name for name, (_, text) in _sources().items() if f"\ndef {name}(" in text)


def list_library(shelf: str) -> list[str]:
    """List the names of the library's models, clusters or software, sorted."""
    if shelf == "models":
        from ppsim.workload.model.model import library

        return sorted(library())
    if shelf == "clusters":
        from ppsim.workload.hardware.hardware import machines

        return sorted(machines())
    from ppsim.workload.plans.software import softwares

    return sorted(softwares())


def place_of(text: str) -> tuple[str, int] | None:
    """Return a command's section of the help and its rank there, read from its module's source."""
    found = _PLACE.search(text)
    return (found[1], int(found[2])) if found else None
