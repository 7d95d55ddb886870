"""Python sources as tests of the house read them."""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path


@cache
def parsed(path: Path) -> ast.Module:
    """The tree of a file, which several tests walk."""
    return ast.parse(path.read_text("utf-8"))


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every statement at any depth; expressions, which are most of a tree, hold none."""
    for node in body:
        yield node
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, inside, ()))
