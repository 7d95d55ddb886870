"""The code that CONTRIBUTING.md shows, so that tests run what a contributor copies."""

from __future__ import annotations

import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def code_of(heading: str, number: int = 0) -> str:
    """Return one indented block of the section with this heading."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks, lines = list[str](), list[str]()
    for line in [*section.splitlines(), "end"]:
        if line.startswith("    ") or (not line and lines):
            lines.append(line)
        elif lines:
            blocks.append(textwrap.dedent("\n".join(lines)).strip("\n") + "\n")
            lines = []
    return blocks[number]
