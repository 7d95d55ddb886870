"""ARCHITECTURE.md is true: its rooms, its import table, its drawing and its paths are those of the
code.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.sources import parsed, statements

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
FOLDERS = {
    "ppsim": ROOT / "ppsim",
    "ppsim.cli": ROOT / "cli",
    "ppsim.schedules": ROOT / "schedules",
}
LINKED = {ROOT / "ppsim" / "cli", ROOT / "ppsim" / "schedules"}
# The package's own door: it names public objects of several rooms, and imports them when they are
# first used.
DOORS = {"ppsim", "ppsim.__main__"}
# What files of schedules need, the user's own too, is listed whether or not another room uses it.
PUBLIC = "ppsim.schedules"
WITH_CODE = {"ppsim.cli", "ppsim.questions", PUBLIC}  # registries that are read from files


def room_rows() -> dict[str, tuple[int, list[str], list[str]]]:
    """Each room of the table with its floor, the folder and modules it is, and the rooms it may
    import.
    """
    rows = re.findall(r"^\| (\d+) \| ((?:`[\w./]+` ?)+) \|[^|]*\| ([^|]*) \|$", PAGE, re.MULTILINE)
    found = [(int(floor), names_in(room), names_in(may)) for floor, room, may in rows]
    return {names[0]: (floor, names, may) for floor, names, may in found}


def names_in(cell: str) -> list[str]:
    return [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([\w./]+)`", cell)]


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
PACKAGES = sorted({name for name, path in MODULES.items() if path.name == "__init__.py"} - DOORS)


@cache
def imports(module: str) -> list[tuple[str, str]]:
    """Every module of ours that a module imports, at its top or inside a function, and the name it
    takes from it.
    """
    return list(_imports(module))


def _imports(module: str) -> Iterator[tuple[str, str]]:
    for node in statements(parsed(MODULES[module]).body):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for name in (
                alias.name
                for alias in node.names
                if (node.module or "").partition(".")[0] == "ppsim"
            ):
                whole = f"{node.module}.{name}"
                yield (whole, "") if whole in MODULES else (str(node.module), name)
        elif isinstance(node, ast.Import):
            yield from (
                (alias.name, "") for alias in node.names if alias.name.partition(".")[0] == "ppsim"
            )


ROWS = room_rows()
ROOM_OF = {name: room for room, (_, names, _) in ROWS.items() for name in names}
INNER = sorted(set(MODULES) - DOORS)


def room_of(module: str) -> str:
    """The room of a module; one without a row stands for itself."""
    return ROOM_OF.get(module.split(".")[1], module.split(".")[1]) if module not in DOORS else ""


@cache
def taken_by(module: str) -> list[tuple[str, str]]:
    """What a module imports from other rooms, and the name it takes from it."""
    return [(other, name) for other, name in imports(module) if room_of(other) != room_of(module)]


def test_the_table_names_every_room():
    """Each folder and each module at the top of ppsim has a row, and each row stands for some of
    them.
    """
    assert set(ROOM_OF) == {module.split(".")[1] for module in INNER}


def test_the_house_stays_small():
    """At most 14 rooms on at most 10 floors, so that the drawing fits a page."""
    assert len(ROWS) <= 14
    assert max(floor for floor, _, _ in ROWS.values()) <= 10


def test_rooms_import_downwards():
    """A room may import only rooms on lower floors, so that there is no circle among them."""
    up = [
        (room, other)
        for room, (floor, _, may) in ROWS.items()
        for other in may
        if ROWS[other][0] >= floor
    ]
    assert up == []


def test_modules_import_what_their_room_may():
    """No import, lazy ones included, leads to a room that the table does not grant; so none leads
    up.
    """
    taken = [(module, other) for module in INNER for other, _ in taken_by(module)]
    assert [pair for pair in taken if room_of(pair[1]) not in ROWS[room_of(pair[0])][2]] == []


def test_modules_take_no_private_name_of_another_room():
    """Names and modules that begin with an underscore stay inside their room."""
    taken = [(module, *found) for module in INNER for found in taken_by(module)]
    assert [found for found in taken if re.search(r"(^|\.)_[^_]", ".".join(found[1:]))] == []


@pytest.mark.parametrize("depth", [3, 9], ids=["folders", "modules"])
def test_nothing_imports_in_a_circle(depth):
    """Inside a room too, an order exists in which every folder, and every module, comes after all
    that it imports.
    """

    def part_of(module: str) -> str:
        return ".".join(module.split(".")[:depth])

    graph: dict[str, set[str]] = {part_of(module): set() for module in INNER}
    for module in INNER:
        graph[part_of(module)] |= {part_of(other) for other, _ in imports(module)} - {
            part_of(module)
        }
    assert len(list(TopologicalSorter(graph).static_order())) >= len(graph)


MOST_FLOORS = 6


def floors_of(folder: str) -> list[str]:
    """The longest chain of imports between the modules of one folder, from the top down."""
    inside = {module for module in INNER if module.rpartition(".")[0] == folder} - {*PACKAGES}
    below = {module: {other for other, _ in imports(module)} & inside for module in inside}
    longest: dict[str, list[str]] = {}
    for module in TopologicalSorter(below).static_order():
        chains = [longest[other] for other in sorted(below[module])]
        longest[module] = [module, *max(chains, key=len, default=[])]
    return max(longest.values(), key=len, default=[])


@pytest.mark.parametrize("folder", PACKAGES)
def test_no_folder_has_more_than_six_floors(folder):
    """A reader of a folder goes down at most six modules from its top to its ground."""
    assert floors_of(folder)[MOST_FLOORS:] == []


def test_floors_are_counted():
    """The chain of the nouns, which is known: each imports the next."""
    chain = ["sequences", "costs", "lanes", "schedule", "slices", "ops"]
    found = [module.rpartition(".")[2] for module in floors_of("ppsim.core")]
    assert len(found) == len(chain)
    assert found[1:4] == chain[1:4]


def test_the_table_grants_nothing_that_nobody_uses():
    """What a room may import it does import: the table is the drawing, not a wish."""
    used: dict[str, set[str]] = {room: set() for room in ROWS}
    for module in INNER:
        used[room_of(module)] |= {room_of(other) for other, _ in taken_by(module)}
    assert {
        room: sorted(set(may) - used[room])
        for room, (_, _, may) in ROWS.items()
        if set(may) - used[room]
    } == {}


def steps_to(module: str, name: str) -> list[tuple[str, str]]:
    """The packages on the way into a room, each with what is taken from it."""
    path = [*module.split("."), *([name] if module in PACKAGES and name else [])]
    return [(".".join(path[:size]), path[size]) for size in range(2, len(path))]


def doors() -> dict[str, set[str]]:
    """What each package lists in its ``__all__``; nothing where it has none."""
    named = [
        (package, node)
        for package in PACKAGES
        for node in parsed(MODULES[package]).body
        if isinstance(node, ast.Assign)
    ]
    found = [
        (package, node) for package, node in named if ast.unparse(node.targets[0]) == "__all__"
    ]
    listed = {package: set(ast.literal_eval(node.value)) for package, node in found}
    return {package: listed.get(package, set()) for package in PACKAGES}


def test_doors_list_what_other_rooms_use():
    """The ``__all__`` of each package names all that other rooms import from it, and nothing
    else.
    """
    used: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for package, name in (
        step for module in MODULES for found in taken_by(module) for step in steps_to(*found)
    ):
        used[package].add(name)
    listed = doors()
    assert {
        package: used[package] - listed[package]
        for package in PACKAGES
        if used[package] - listed[package]
    } == {}
    idle = {package: listed[package] - used[package] for package in PACKAGES if package != PUBLIC}
    assert {package: names for package, names in idle.items() if names} == {}


def test_doors_say_what_is_behind_them_and_cost_nothing():
    """A package is a sentence about what it is for and the names that it lists."""
    trees = {package: parsed(MODULES[package]) for package in PACKAGES}
    assert [package for package, tree in trees.items() if not ast.get_docstring(tree)] == []
    assert [
        package
        for package, tree in trees.items()
        if package not in WITH_CODE and len(tree.body) > 2
    ] == []


def reach(arrows: dict[str, set[str]]) -> dict[str, set[str]]:
    """All that each room builds on, over other rooms too."""
    found: dict[str, set[str]] = {}
    for room in TopologicalSorter(arrows).static_order():
        below = arrows.get(room, set())
        found[room] = below.union(*(found[each] for each in below))
    return found


def test_the_drawing_is_that_of_the_table():
    """Every room stands in the Mermaid drawing, and its arrows lead to the rooms that build on
    it.
    """
    arrows: dict[str, set[str]] = {}
    for line in PAGE.partition("```mermaid")[2].partition("```")[0].splitlines()[2:]:
        ends = [set(re.findall(r"\w+", end)) for end in re.sub(r"\[.*?\]", "", line).split("-->")]
        for below, above in pairwise(ends):
            for room in above:
                arrows.setdefault(room, set()).update(below)
    assert reach(arrows) == reach({room: set(may) for room, (_, _, may) in ROWS.items()})


def test_every_path_exists():
    """Paths are relative to the repository, or to ppsim for rooms; folders of a row, to its
    room.
    """
    paths = set(re.findall(r"`([\w.-]+(?:/[\w.-]*)+)`", PAGE))
    rows = re.findall(r"^\| \d+ \| `(\w+)/`.*$", PAGE, re.MULTILINE)
    folders = [ROOT, ROOT / "ppsim", *(ROOT / "ppsim" / room for room in rows)]
    assert paths
    assert [path for path in paths if not any((folder / path).exists() for folder in folders)] == []
