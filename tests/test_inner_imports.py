"""Imports inside functions stand below the tests that make them needless."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import parsed, statements

ROOT = Path(__file__).parent.parent
FILES = [path for room in ("ppsim", "cli", "schedules") for path in (ROOT / room).rglob("*.py")]

ENDS = (ast.Return, ast.Continue, ast.Break)  # without Raise: a refusal may cost an import
BLOCKS = ("body", "orelse", "finalbody")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def names_in(*nodes: ast.AST) -> set[str]:
    """All names that are read or written anywhere below these nodes."""
    return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def blocks_of(function: Function) -> Iterator[list[ast.stmt]]:
    """Every list of statements of a function, without those of functions inside it."""
    waiting: list[ast.AST] = [function]
    while waiting:
        node = waiting.pop()
        blocks = [getattr(node, name, []) for name in BLOCKS]
        blocks += [handler.body for handler in getattr(node, "handlers", [])]
        blocks += [case.body for case in getattr(node, "cases", [])]
        for block in blocks:
            yield block
            waiting += [each for each in block if not isinstance(each, Function | ast.ClassDef)]


def is_ours(statement: ast.ImportFrom) -> bool:
    """Whether a statement imports a module of ppsim."""
    return (statement.module or "").partition(".")[0] == "ppsim"


def is_guard(statement: ast.stmt) -> bool:
    """Whether a statement may leave the block, so that what follows it is not reached."""
    return isinstance(statement, ast.If) and isinstance(statement.body[-1], ENDS)


def find_needless(tree: ast.Module) -> Iterator[str]:
    """Describe each import inside a function that a later test makes needless.

    It stands above a test that leaves the block before the imported name is used, or above an
    ``if`` of which one branch alone uses the name.
    """
    for function in statements([tree]):
        if not isinstance(function, Function):
            continue
        for block in blocks_of(function):
            for at, statement in enumerate(block):
                if isinstance(statement, ast.ImportFrom) and is_ours(statement):
                    yield from needless_in(statement, block[at + 1 :])


def needless_in(found: ast.ImportFrom, rest: list[ast.stmt]) -> Iterator[str]:
    """Describe an import that a statement after it in its block makes needless."""
    names = {(alias.asname or alias.name).partition(".")[0] for alias in found.names}
    said = f"line {found.lineno}: {ast.unparse(found)}"
    for at, statement in enumerate(rest):
        if isinstance(statement, ast.If) and not names & names_in(statement.test):
            branches = [names & names_in(*branch) for branch in (statement.body, statement.orelse)]
            after = names & names_in(*rest[at + 1 :])
            if not any(branches) and is_guard(statement):
                yield f"{said} stands above the test of line {statement.lineno}"
                return
            if sum(map(bool, branches)) == 1 and not after:
                yield f"{said} is used by one branch of line {statement.lineno}"
                return
        if names & names_in(statement):
            return


def test_inner_imports_stand_below_the_tests_that_make_them_needless():
    """A request that ends early, or takes another branch, does not pay for the import."""
    found = {str(path.relative_to(ROOT)): list(find_needless(parsed(path))) for path in FILES}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("    from ppsim.a import b\n    if x:\n        return\n    b()", 1),
        ("    from ppsim.a import b\n    y = 1\n    if x:\n        return y\n    b()", 1),
        ("    from ppsim.a import b\n    if x:\n        raise y\n    b()", 0),
        ("    from a import b\n    if x:\n        return y\n    b()", 0),
        ("    from ppsim.a import b\n    if x:\n        b()\n    return y", 1),
        ("    from ppsim.a import b\n    if x:\n        y()\n    else:\n        b()", 1),
        (
            "    if z:\n        from ppsim import b\n        if x: return\n        b()",
            1,
        ),
        (
            "    for z in x:\n        from ppsim import b\n        if x: continue\n        b()",
            1,
        ),
        ("    if x:\n        return\n    from ppsim.a import b\n    b()", 0),
        ("    from ppsim.a import b\n    if b(x):\n        return\n    b()", 0),
        ("    from ppsim.a import b\n    b()\n    if x:\n        return\n    b()", 0),
        ("    from ppsim.a import b\n    if x:\n        b()\n    b()", 0),
        ("    from ppsim.a import b\n    if x:\n        y()\n    b()", 0),
        ("    from ppsim.a import b\n    if x:\n        b(1)\n    else:\n        b(2)", 0),
    ],
)
def test_the_lint_finds_what_it_claims(body: str, found: int):
    """Imports above a guard, or of one branch, are found; those that every path uses are not."""
    assert len(list(find_needless(ast.parse(f"def f(x):\n{body}\n")))) == found
