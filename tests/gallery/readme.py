"""Make README's thumbnails of the gallery's pages anew: ``python -m tests.gallery.readme``, after the gallery."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.gallery.refresh import GALLERY

PAGES = ("page", "plan", "why")
SIZE = (1280, 800)


def main() -> int:
    """Make them all."""
    folder = GALLERY / "readme"
    folder.mkdir(exist_ok=True)
    for name in PAGES:
        _photograph((GALLERY / f"{name}.html").resolve(), (folder / f"{name}.png").resolve())
    return 0


def _photograph(page: Path, target: Path) -> None:
    """A page of the gallery as a browser shows it, two thirds as large."""
    import subprocess

    from tests.pages import BROWSER, QUIET

    with tempfile.TemporaryDirectory() as profile:
        flags = [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--force-device-scale-factor=0.67"]
        flags += [f"--window-size={SIZE[0]},{SIZE[1]}", "--hide-scrollbars", f"--screenshot={target}"]
        subprocess.run([str(BROWSER), *QUIET, *flags, page.as_uri()], capture_output=True, timeout=60, check=True)


if __name__ == "__main__":
    sys.exit(main())
