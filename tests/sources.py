"""Python sources as tests of the house read them."""

import ast
from collections.abc import Iterable, Iterator


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Every statement at any depth; expressions, which are most of a tree, hold none."""
    for node in body:
        yield node
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, inside, ()))
