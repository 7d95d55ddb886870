"""Make README's own pictures anew: ``python -m tests.gallery.readme``, after the gallery that they are made of.

The wide picture on a dark page, and thumbnails of pages as a browser shows them.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from ppsim.show.drawing.palette import BUBBLE, BUBBLE_DARK, CAUSE_DARK, CAUSE_FILL
from tests.gallery.refresh import GALLERY

WIDE = "diff.svg"
PAGES = ("page", "plan")
PAGE, INK, QUIET = "#0d1117", "#e6eaf0", "#9aa6b5"  # as GitHub's dark pages
SIZE = (1280, 800)


def darken(svg: str) -> str:
    """A figure for dark pages: page, text, bubbles and causes have the colours of dark pages, cells keep theirs."""
    twins = {CAUSE_FILL[name].lower(): CAUSE_DARK[name] for name in CAUSE_FILL}
    twins |= {BUBBLE.lower(): BUBBLE_DARK, "#444444": QUIET}
    svg = re.sub(r"(?<=fill: )#[0-9a-f]{6}", lambda found: twins.get(found[0], found[0]), svg)
    svg = re.sub(r'(<g id="patch_1">.*?)fill: #ffffff', rf"\1fill: {PAGE}", svg, count=1, flags=re.DOTALL)
    svg = svg.replace("stroke: #ffffff", f"stroke: {PAGE}").replace("stroke: #000000", f"stroke: {INK}")
    return svg.replace("<defs>", f"<style>text {{ fill: {INK} }} use {{ fill: {INK} }}</style>\n <defs>", 1)


def main() -> int:
    """Make them all."""
    folder = GALLERY / "readme"
    folder.mkdir(exist_ok=True)
    (folder / "measured-dark.svg").write_text(darken((GALLERY / WIDE).read_text()))
    for name in PAGES:
        _photograph((GALLERY / f"{name}.html").resolve(), (folder / f"{name}.png").resolve())
    return 0


def _photograph(page: Path, target: Path) -> None:
    """A page of the gallery as a browser shows it, half as large."""
    import subprocess

    from tests.pages import BROWSER, QUIET

    with tempfile.TemporaryDirectory() as profile:
        flags = [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--force-device-scale-factor=0.5"]
        flags += [f"--window-size={SIZE[0]},{SIZE[1]}", f"--screenshot={target}"]
        subprocess.run([str(BROWSER), *QUIET, *flags, page.as_uri()], capture_output=True, timeout=60, check=True)


if __name__ == "__main__":
    sys.exit(main())
