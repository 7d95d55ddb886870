"""What docstrings, comments and guides name is there: modules, functions, classes and paths."""

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from tests.sources import parsed, statements

ROOT = Path(__file__).parent.parent
FOLDERS = ("ppsim", "cli", "schedules", "tests")
PAGES = (
    *(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),  # it keeps old names
    *(ROOT / "gallery").rglob("*.md"),
)
ROLE = re.compile(r":(?:mod|func|class|meth|attr|data):`~?([^`]+)`")
# not the name of a schema, as ppsim.list/1, nor of a file
DOTTED = re.compile(r"(?<![\w/.-])ppsim(?:\.[A-Za-z_]\w*)+\b(?![\w/-])")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*/[\w-]+\.(?:py|toml|md))`")


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_refer_to_what_is_there(folder: str):
    """A name alone is one that its own file defines or imports; others are found by import."""
    links = [path for path in (ROOT / folder).iterdir() if path.is_symlink()]
    missing, looked = [], 0
    for path in sorted((ROOT / folder).rglob("*.py")):
        if {*links} & {*path.parents}:
            continue
        for name in ROLE.findall(path.read_text("utf-8")):
            looked += 1
            if not (is_defined(path, name) or ("." in name and exists(name))):
                missing.append(f"{path.relative_to(ROOT)}: {name}")
    assert missing == []
    assert looked


def test_pages_refer_to_what_is_there():
    """Dotted names of Python, and paths from the repository or from ppsim."""
    dotted, paths = [], []
    for page in PAGES:
        text = page.read_text("utf-8")
        dotted += [(page.name, name) for name in DOTTED.findall(text)]
        paths += [(page.name, name) for name in PATH.findall(text)]
    assert [each for each in dotted if not exists(each[1])] == []
    assert [
        (page, name)
        for page, name in paths
        if not ((ROOT / name).exists() or (ROOT / "ppsim" / name).exists())
    ] == []
    assert dotted
    assert paths


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ppsim.run", True),
        ("ppsim.core.ops.Kind.info", True),
        ("ppsim.core.costs.Costs.scale", True),
        ("ppsim.core.operations", False),
        ("ppsim.core.ops.Kind.information", False),
    ],
)
def test_a_name_is_found_if_it_is_there(name: str, found: bool):
    """Of a class, fields too."""
    assert exists(name) == found


def is_defined(path: Path, name: str) -> bool:
    """Whether a file defines a name and, behind a dot, a member; or imports it and that has it."""
    first, _, rest = name.partition(".")
    if not first:
        return exists(f"{package_of(path)}.{rest}")
    defined, imported = names_in(path)
    if first in imported:
        return not rest or exists(f"{imported[first]}.{rest}")
    return {*name.split(".")} <= defined


def package_of(path: Path) -> str:
    """The package that a file is in."""
    parts = path.relative_to(ROOT).parent.parts
    return ".".join(parts if parts[0] in ("ppsim", "tests") else ("ppsim", *parts))


@cache
def exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads to an object of one."""
    words = name.split(".")
    for count in range(len(words), 0, -1):
        try:
            found = import_module(".".join(words[:count]))
        except ModuleNotFoundError:
            continue
        return has(found, words[count:])
    return False


def has(owner: object, words: list[str]) -> bool:
    """Whether attributes of attributes are there; a field without a default is annotated alone."""
    if not words:
        return True
    if hasattr(owner, words[0]):
        return has(getattr(owner, words[0]), words[1:])
    return words[0] in getattr(owner, "__annotations__", {})


@cache
def names_in(path: Path) -> tuple[set[str], dict[str, str]]:
    """What a file defines at any depth, and what it imports, with the dotted name of each."""
    defined, imported = set[str](), dict[str, str]()
    for node in statements(parsed(path).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            imported |= {
                each.asname or each.name: f"{node.module}.{each.name}" for each in node.names
            }
        elif isinstance(node, ast.Import):
            imported |= {each.asname or each.name: each.name for each in node.names}
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            every = (each for target in targets for each in ast.walk(target))
            defined |= {each.id for each in every if isinstance(each, ast.Name)}
    return defined, imported
