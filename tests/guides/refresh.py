"""Run the guides and put today's outputs and pictures into them: ``python -m tests.guides.refresh
[NAME...]``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from tests.guides.replay import GUIDES, ROOT, SITE, replay


def main(names: list[str]) -> None:
    """Refresh guides, AGENTS and pages of the site of those names, or all; end with a message at
    another name.
    """
    pages = [*sorted(GUIDES.glob("*.md")), *sorted(SITE.rglob("*.md")), ROOT / "AGENTS.md"]
    if unknown := set(names) - {path.stem for path in pages}:
        sys.exit(f"no guide is named {', '.join(sorted(unknown))}: see {GUIDES} and {SITE}")
    for path in pages:
        if path.stem == "README" or (names and path.stem not in names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path.write_text(replay(path.read_text(), Path(folder)))
            for picture in (Path(folder) / "images").iterdir():
                shutil.copy(picture, GUIDES / "images")
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
