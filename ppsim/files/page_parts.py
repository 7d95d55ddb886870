"""What pages are put together from: the files beside the writers, and data that scripts read."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from ppsim.base.json_output import dump_json


def read_part(name: str) -> str:
    """Read a template, style or script of a page."""
    return (files("ppsim.files.writers") / name).read_text("utf-8")


def read_style(name: str) -> str:
    """Read a style with the colours of all pages before it."""
    return read_part("theme.css") + read_part(name)


def read_script(name: str) -> str:
    """Read a script without comments and indentation, which a page need not carry."""
    text = re.sub(r"/\*\*.*?\*/", "", read_part(name), flags=re.DOTALL)
    lines = (re.sub(r"(^| )// .*", "", line).strip() for line in text.splitlines())
    return "\n".join(filter(None, lines))


def embed_json(data: dict[str, Any]) -> bytes:
    """Write data for a script element, which no text of the user's can close."""
    return dump_json(data).replace(b"<", b"\\u003c")
