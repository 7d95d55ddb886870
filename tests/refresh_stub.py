"""Write ``ppsim/__init__.pyi``, what editors and type checkers read: ``python -m
tests.refresh_stub``.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import ppsim
from ppsim.ask.signatures import option_lines, python_options, signature_of
from ppsim.questions import list_functions, module_of

__all__ = ["STUB", "python_options", "stub"]
STUB = Path(ppsim.__file__).with_suffix(".pyi")
HEAD = (
    '"""Made of the options that each question declares, by ``python -m tests.refresh_stub``; a '
    'test compares."""\n'
)


def imports_of(source: str, module: str) -> set[tuple[str, str]]:
    """Find the (module, name) that a question's module imports, or defines, for each class that a
    type names.
    """
    tree = ast.parse(Path(importlib.import_module(module).__file__ or "").read_text())
    found = {
        alias.name: (node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found |= {
        node.name: (module, node.name) for node in tree.body if isinstance(node, ast.ClassDef)
    }
    found["Prices"] = ("ppsim.core.costs", "Prices")
    names = set(re.findall(r"\b[A-Z]\w+", re.sub(r'"[^"]*"', "", source)))
    return {found[name] for name in names if name in found} | {
        ("typing", name) for name in names & {"Any", "Literal"}
    }


def questions() -> Iterator[tuple[str, str]]:
    """Yield the module and the source of each question's signature and docstring."""
    for name in list_functions():
        module = importlib.import_module(str(module_of(name)))
        function = vars(module)[name]
        signature = signature_of(module, function)
        lines = []
        for each in signature.parameters.values():
            if each.kind == each.KEYWORD_ONLY and "*," not in lines:
                lines.append("*,")
            star = "*" if each.kind == each.VAR_POSITIONAL else ""
            default = "" if each.default is each.empty else f" = {each.default!r}"
            lines.append(f"{star}{each.name}: {each.annotation}{default},")
            if star:
                lines.append("*,")
        if lines.count("*,") and any(line.startswith("*") and line != "*," for line in lines):
            lines = [line for line in lines if line != "*,"]  # *targets separates already
        before = inspect.getdoc(function) or ""
        text = (
            f"{before.partition(chr(10) * 2 + 'Options:')[0]}\n\n{option_lines(module, function)}"
        )
        body = textwrap.indent('"""' + text.replace("\\", "\\\\") + '\n"""', "    ")
        arguments = textwrap.indent("\n".join(lines), "    ")
        yield (
            module.__name__,
            f"def {name}(\n{arguments}\n) -> {signature.return_annotation}:\n{body}\n    ...\n",
        )


def stub() -> str:
    """Return the whole stub."""
    made = list(questions())
    imports = {("collections.abc", "Sequence")}
    for module, source in made:
        head = source.partition(':\n    """')[0]
        imports |= {each for each in imports_of(head, module) if each[0] != "__future__"}
    for module, names in vars(ppsim)["_HOME"].items():
        imports |= {(module, name) for name in names}
    by_module: dict[str, set[str]] = {}
    for module, name in imports:
        by_module.setdefault(module, set()).add(name)
    lines = ["import os"]
    for module, names in sorted(by_module.items()):
        public = [f"{name} as {name}" if name in ppsim.__all__ else name for name in sorted(names)]
        lines.append(f"from {module} import {', '.join(public)}")
    listed = "".join(f'    "{name}",\n' for name in ppsim.__all__)
    rest = f"\n__version__: str\n__all__ = [\n{listed}]\n"
    return "\n".join([HEAD, *lines, rest, *(source for _, source in made)])


if __name__ == "__main__":
    sys.stdout.write(f"{STUB.name}: {len(STUB.read_text()) if STUB.exists() else 0} -> ")
    STUB.write_text(stub())
    print(len(STUB.read_text()))
