"""What pages show of the code: tables of a file's keys, made of the dataclasses that it is read
into, and lists.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import inspect
import re
from typing import Any

from ppsim import schedules
from ppsim.engine.detailed.named_links import NAMED

_MARK = re.compile(r"^<!-- fields: ([\w.]+) -->$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
# Fields that a comment explains: above the field, or behind it.
_ABOVE = re.compile(r"((?:^    # .*\n)+)    (\w+): ", re.MULTILINE)
_BEHIND = re.compile(r"^    (\w+): .*?  # (.*)$", re.MULTILINE)


def with_fields(page: str) -> str:
    """Return a page with its marks filled: a table for ``<!-- fields: module.Class -->``, a list, a
    count.
    """
    filled = _MARK.sub(lambda match: fields_table(match[1]), page)
    filled = filled.replace("<!-- links -->", ", ".join(f"`{name}`" for name in NAMED))
    return filled.replace("<!-- schedules -->", str(len(schedules.families())))


def fields_table(name: str) -> str:
    """Return the table of a dataclass's fields: key, type, default, and what its docstring says of
    it.
    """
    module, _, plain = name.rpartition(".")
    found = getattr(importlib.import_module(module), plain)
    said = attributes(found)
    rows = [
        f"| {code(each.name)} | {cell(str(each.type))} | {default_of(each)} | "
        f"{cell(said.get(each.name, ''))} |"
        for each in dataclasses.fields(found)
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def attributes(found: Any) -> dict[str, str]:
    """Return what a class says of its attributes, by name: in its docstring, or in comments."""
    listed = (inspect.getdoc(found) or "").partition("Attributes:\n")[2]
    source = inspect.getsource(found)
    said = {name: text.replace("    # ", " ") for text, name in _ABOVE.findall(source)}
    said |= dict(_BEHIND.findall(source)) | dict(_ATTRIBUTE.findall(listed))
    return {name: " ".join(text.split()) for name, text in said.items()}


def default_of(field: dataclasses.Field[Any]) -> str:
    """Return a field's default as a cell; required where it has none."""
    if field.default is not dataclasses.MISSING:
        return "" if field.default in ("", None) else f"`{field.default!r}`"
    return "required" if field.default_factory is dataclasses.MISSING else ""


def cell(text: str) -> str:
    """Return a text as a cell of a table of Markdown, in one line."""
    plain = " ".join(text.replace("``", "`").split())
    plain = re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", plain)
    # Outside code, signs of HTML and Markdown stand for themselves.
    parts = re.split(r"`([^`]*)`", plain)
    plains = (html.escape(part, quote=False) for part in parts[::2])
    parts[::2] = [re.sub(r"([*_\[\]])", r"\\\1", part) for part in plains]
    parts[1::2] = [code(part) for part in parts[1::2]]
    return "".join(parts).replace("|", "&#124;")


def code(text: str) -> str:
    """Return a text as code that may break behind a bar; in a table of Markdown, a bar between
    backticks would end the cell.
    """
    return f"<code>{html.escape(text, quote=False).replace('|', '&#124;<wbr>')}</code>"
