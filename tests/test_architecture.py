"""ARCHITECTURE.md is true: its rooms, its import table, its drawing and its paths are those of the code."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = {"ppsim": ROOT / "ppsim", "ppsim.cli": ROOT / "cli", "ppsim.schedules": ROOT / "schedules"}
LINKED = {ROOT / "ppsim" / "cli", ROOT / "ppsim" / "schedules"}
# The package's own door: it names public objects of several rooms, and imports them when they are first used.
DOORS = {"ppsim", "ppsim.__main__"}


def room_rows() -> dict[str, tuple[int, set[str]]]:
    """Each room of the table with its floor and the rooms it may import."""
    rows = re.findall(r"^\| (\d+) \| `([\w./]+)` \|[^|]*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    return {
        name_of(room): (int(floor), set(map(name_of, re.findall(r"`([\w./]+)`", may)))) for floor, room, may in rows
    }


def name_of(room: str) -> str:
    return room.removesuffix("/").removesuffix(".py")


def modules() -> dict[str, Path]:
    """Every module by the name it is imported under."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in folder.rglob("*.py"):
            if not LINKED & set(path.parents):
                parts = path.relative_to(folder).with_suffix("").parts
                found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


MODULES = modules()


@cache
def imports(module: str) -> list[tuple[str, str]]:
    """Every module of ours that a module imports, at its top or inside a function, and the name it takes from it."""
    return list(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for name in (alias.name for alias in node.names if (node.module or "").partition(".")[0] == "ppsim"):
                whole = f"{node.module}.{name}"
                yield (whole, "") if whole in MODULES else (str(node.module), name)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "ppsim")


def room_of(module: str) -> str:
    return module.split(".")[1]


ROWS = room_rows()
INNER = sorted(set(MODULES) - DOORS)


def test_the_table_names_every_room():
    """Each folder and each module at the top of ppsim has a row, and each row stands for one of them."""
    assert set(ROWS) == {room_of(module) for module in INNER}


def test_the_house_stays_small():
    """At most 24 rooms on at most 10 floors, so that the drawing fits a page."""
    assert len(ROWS) <= 24
    assert max(floor for floor, _ in ROWS.values()) <= 10


def test_rooms_import_downwards():
    """A room may import only rooms on lower floors, so that there is no circle among them."""
    up = [(room, other) for room, (floor, may) in ROWS.items() for other in may if ROWS[other][0] >= floor]
    assert up == []


@pytest.mark.parametrize("module", INNER)
def test_a_module_imports_what_its_room_may(module):
    """No import, lazy ones included, leads to a room that the table does not grant; so none leads up."""
    allowed = ROWS[room_of(module)][1] | {room_of(module)}
    assert [other for other, _ in imports(module) if other == "ppsim" or room_of(other) not in allowed] == []


@pytest.mark.parametrize("module", INNER)
def test_a_module_takes_no_private_name_of_another_room(module):
    """Names and modules that begin with an underscore stay inside their room."""
    taken = [(other, name) for other, name in imports(module) if room_of(other) != room_of(module)]
    assert [pair for pair in taken if re.search(r"(^|\.)_[^_]", ".".join(pair))] == []


def test_modules_import_each_other_in_no_circle():
    """Inside a room too, an order exists in which every module comes after all that it imports."""
    graph = {module: {other for other, _ in imports(module)} - {module} for module in INNER}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


def test_the_table_grants_nothing_that_nobody_uses():
    """What a room may import it does import: the table is the drawing, not a wish."""
    used: dict[str, set[str]] = {room: set() for room in ROWS}
    for module in INNER:
        used[room_of(module)] |= {room_of(other) for other, _ in imports(module)} - {room_of(module)}
    assert {room: sorted(may - used[room]) for room, (_, may) in ROWS.items() if may - used[room]} == {}


def test_the_drawing_has_the_rooms_of_the_table():
    """Every room stands in the Mermaid drawing, and no other."""
    drawing = PAGE.partition("```mermaid")[2].partition("```")[0]
    assert set(re.findall(r"\b(\w+)\[", drawing)) == set(ROWS) - {"errors", "version"}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([\w.-]+(?:/[\w.-]*)+)`", PAGE))))
def test_every_path_exists(path):
    """Paths are relative to the repository, or to ppsim for rooms."""
    assert (ROOT / path).exists() or (ROOT / "ppsim" / path).exists()
