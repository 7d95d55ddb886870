"""Mutations that change meaning: draw sites in rooms by a seed, and see whether the rooms' fast
tests notice.

    python -m tests.mutations --seed 1 --count 40         # a table of sites and mutations
    python -m tests.mutations --seed 1 --count 40 --run   # and what of them the tests kill

With --slow, what lives meets the rooms' slow tests too, which takes a minute or two each.
Each kind is as likely as any other, and so is each of its sites. Messages, types and decorators are
left alone.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
SLOW_S = 900.0  # after which slow tests count as hanging
ROOMS = ("search", "workload", "engine/memory", "analysis")
SIGNS: dict[type, Any] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
FACTORS: dict[type, Any] = {ast.Mult: ast.Div, ast.Div: ast.Mult}
BOUNDARIES: dict[type, Any] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
BOTH: dict[type, Any] = {ast.And: ast.Or, ast.Or: ast.And}
EXTREMES = {"min": "max", "minimum": "maximum", "argmin": "argmax", "any": "all", "ceil": "floor"}
EXTREMES |= {other: name for name, other in EXTREMES.items()}
# joined by +
NO_ARITHMETIC = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp, ast.Set, ast.Dict)
SYMMETRIC = (*EXTREMES, "isinstance", "zip", "print", "getattr", "cast")


class Site(NamedTuple):
    """A mutation of one expression: where it is, and what takes its place."""

    kind: str
    path: Path
    line: int
    start: int
    end: int
    text: str


def changed(node: ast.expr | ast.stmt, **fields: Any) -> Any:
    """Copy a node with other fields."""
    copy = deepcopy(node)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def adds_numbers(node: ast.BinOp) -> bool:
    """Whether + or - joins no texts and no lists, as far as one sees."""
    return not any(
        isinstance(s, NO_ARITHMETIC) and not is_number(s) for s in (node.left, node.right)
    )


def is_number(node: ast.AST) -> bool:
    """Whether a node is a number that is written out."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def mutations(node: ast.AST) -> Iterator[tuple[str, Any, Any]]:
    """List the mutations of a node: kind, the node that changes, and what it becomes."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in SIGNS and adds_numbers(node):
            yield "sign", node, changed(node, op=SIGNS[type(op)]())
        case ast.BinOp(left, op, right) if type(op) in FACTORS:
            yield "factor", node, left
            if isinstance(op, ast.Mult):
                yield "factor", node, right
        case ast.AugAssign(op=op) if type(op) in SIGNS | FACTORS:
            other = (SIGNS | FACTORS)[type(op)]()
            yield "sign" if type(op) in SIGNS else "factor", node, changed(node, op=other)
        case ast.UnaryOp(ast.USub(), operand):
            yield "sign", node, operand
        case ast.Compare(ops=[op]) if type(op) in BOUNDARIES:
            yield "boundary", node, changed(node, ops=[BOUNDARIES[type(op)]()])
        case ast.BoolOp(op):
            yield "and/or", node, changed(node, op=BOTH[type(op)]())
        case ast.Constant(int(value)) if not isinstance(value, bool):
            yield "constant", node, ast.Constant(value + 1)
        case ast.Constant(float(value)):
            yield "constant", node, ast.Constant(2 * value or 1.0)
        case ast.Call(ast.Name(name) | ast.Attribute(attr=name), args):
            if name in EXTREMES:
                field = "id" if isinstance(node.func, ast.Name) else "attr"
                yield (
                    "extreme",
                    node,
                    changed(node, func=changed(node.func, **{field: EXTREMES[name]})),
                )
            alike = len(args) > 1 and type(args[0]) is type(args[1])
            if name not in SYMMETRIC and alike and ast.dump(args[0]) != ast.dump(args[1]):
                yield "arguments", node, changed(node, args=[args[1], args[0], *args[2:]])
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=[test, *_]):
            yield "condition", test, ast.UnaryOp(ast.Not(), test)


def computing(node: ast.AST) -> Iterator[ast.AST]:
    """Walk what a module computes with, without messages, formatted texts, types and decorators."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(
                child, ast.Raise | ast.JoinedStr | ast.Assert
            ):
                yield from computing(child)


def sites_of(room: str) -> list[Site]:
    """List every site of a room, a folder of the package."""
    found = []
    for path in sorted((ROOT / "ppsim" / room).rglob("*.py")):
        text = path.read_bytes()
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for node in computing(ast.parse(text)):
            for kind, old, new in mutations(node):
                start, end = (
                    starts[row - 1] + column
                    for row, column in (
                        (old.lineno, old.col_offset),
                        (old.end_lineno, old.end_col_offset),
                    )
                )
                written = ast.unparse(new) if isinstance(new, ast.stmt) else f"({ast.unparse(new)})"
                found.append(Site(kind, path.relative_to(ROOT), old.lineno, start, end, written))
    return found


def draw(rooms: list[str], seed: int, count: int) -> list[Site]:
    """Draw different sites, kind by kind."""
    kinds: dict[str, list[Site]] = {}
    for site in (site for room in rooms for site in sites_of(room)):
        kinds.setdefault(site.kind, []).append(site)
    chance = random.Random(seed)
    drawn: list[Site] = []
    while len(drawn) < count and any(kinds.values()):
        left = kinds[chance.choice(sorted(kind for kind in kinds if kinds[kind]))]
        drawn.append(left.pop(chance.randrange(len(left))))
    return sorted(drawn, key=lambda site: site[1:])


def show(site: Site) -> str:
    """Write a site as one line: place, kind, what stands there, and what takes its place."""
    before = " ".join((ROOT / site.path).read_bytes()[site.start : site.end].decode().split())
    return f"{site.path}:{site.line} {site.kind}: {before}  ->  {site.text}"


def passes(copy: Path, room: str, limit: float | None, gear: str = "not slow") -> bool:
    """Whether the room's tests of a gear pass; tests that hang do not."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        f"tests/{room}",
        "-x",
        "-q",
        "-m",
        gear,
        "-p",
        "no:cacheprovider",
    ]
    env = os.environ | {"PYTHONPATH": str(copy), "NUMBA_CACHE_DIR": str(copy / ".numba")}
    try:
        return (
            subprocess.run(
                command, cwd=copy, env=env, capture_output=True, timeout=limit
            ).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def main() -> None:
    """Print a table of mutations; with --run, which of them survive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rooms", nargs="+", default=list(ROOMS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument(
        "--run", action="store_true", help="run the tests of each site's room against its mutation"
    )
    parser.add_argument(
        "--slow", action="store_true", help="with --run: by the room's slow tests too"
    )
    args = parser.parse_args()
    drawn = draw(args.rooms, args.seed, args.count)
    if not args.run:
        print("\n".join(map(show, drawn)))
        return
    with tempfile.TemporaryDirectory() as folder:
        copy, limits, survived = Path(folder) / "copy", {}, 0
        shutil.copytree(
            ROOT,
            copy,
            symlinks=True,
            ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"),
        )
        for site in drawn:
            room = next(
                room for room in args.rooms if site.path.is_relative_to(Path("ppsim", room))
            )
            if room not in limits:
                begin = time.monotonic()
                if not passes(copy, room, None):
                    sys.exit(f"the fast tests of {room} fail without any mutation")
                limits[room] = 60 + 4 * (time.monotonic() - begin)
            text = (ROOT / site.path).read_bytes()
            (copy / site.path).write_bytes(
                text[: site.start] + site.text.encode() + text[site.end :]
            )
            lives = passes(copy, room, limits[room]) and not (
                args.slow and not passes(copy, room, SLOW_S, "slow")
            )
            (copy / site.path).write_bytes(text)
            survived += lives
            print("SURVIVED" if lives else "killed  ", show(site), flush=True)
    print(f"{survived} of {len(drawn)} survived")


if __name__ == "__main__":
    main()
