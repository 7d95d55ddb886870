"""Draw the gallery and README's pictures: ``python -m tests.gallery``; ``--check`` says what
differs.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ppsim import schedules
from tests.browser import BROWSER, QUIET
from tests.clock import HANG_S
from tests.gallery.figures import (
    FigureEntry,
    differing,
    draw_entry,
    entry_section,
    photograph_of,
    read_figures,
)
from tests.gallery.hero import NAME, draw_hero
from tests.gallery.schedules import draw_schedule

GALLERY = Path("gallery")  # as its commands name it, from the top of the repository
COMMAND = "python -m tests.gallery"
SIZE = (1280, 800)  # of a photographed page
INDEX = """# Gallery

Each picture is above the command that makes it.
Timelines are predicted, except where a run was measured. One command makes them all:

    {command}

<details><summary>All pictures and schedules</summary>

Pictures: {pictures}.

Schedules: {schedules}.

</details>
"""


def draw(folder: Path, figures: tuple[FigureEntry, ...]) -> None:
    """Draw every schedule and every figure into a folder, with the index of both."""
    folder.mkdir(exist_ok=True)
    drawn = [draw_schedule(family, folder) for family in schedules.families()]
    for entry in figures:
        draw_entry(entry, folder)
    draw_hero(folder / NAME)
    sections = [entry_section(entry) for entry in figures]
    head = INDEX.format(command=COMMAND, pictures=links_to(sections), schedules=links_to(drawn))
    (folder / "README.md").write_text("\n".join([head, *sections, *drawn]))


def count_schedules(text: str) -> str:
    """Return README's text with the number of schedules that there are."""
    count = len(schedules.families())
    return re.sub(r"generates \d+ schedules", f"generates {count} schedules", text)


def links_to(sections: list[str]) -> str:
    """Links to sections of the index, by their headings."""
    titles = [section.partition("\n")[0].removeprefix("## ") for section in sections]
    plain = [re.sub("[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in titles]
    # a heading that was there gets a number
    again = [plain[:n].count(anchor) for n, anchor in enumerate(plain)]
    anchors = [
        f"{anchor}-{count}" if count else anchor for anchor, count in zip(plain, again, strict=True)
    ]
    return ", ".join(f"[{title}](#{anchor})" for title, anchor in zip(titles, anchors, strict=True))


def photograph(page: Path, target: Path) -> None:
    """Keep a page as a browser shows it, two thirds as large."""
    if BROWSER is None:
        print(f"no browser: {target} stays as it is", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as profile:
        flags = [
            f"--user-data-dir={profile}",
            "--virtual-time-budget=5000",
            "--force-device-scale-factor=0.67",
        ]
        flags += [
            f"--window-size={SIZE[0]},{SIZE[1]}",
            "--hide-scrollbars",
            f"--screenshot={target.resolve()}",
        ]
        command = [str(BROWSER), *QUIET, *flags, page.resolve().as_uri()]
        subprocess.run(command, capture_output=True, timeout=HANG_S, check=True)


def main(words: list[str]) -> int:
    """Draw it, or say what would differ; 2 where other words are given."""
    if words not in ([], ["--check"]):
        print(
            f"{COMMAND} takes --check or nothing, got {shlex.join(words)}; it draws every file",
            file=sys.stderr,
        )
        return 2
    figures = read_figures(str(GALLERY / "figures.toml"))
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), figures)
        found = differing(GALLERY, Path(folder))
        if not words:
            for path in Path(folder).iterdir():
                shutil.copy(path, GALLERY)
            readme = Path("README.md")
            readme.write_text(count_schedules(readme.read_text()))
            for entry in figures:
                if photograph_of(entry):
                    photograph(GALLERY / entry.file, GALLERY / photograph_of(entry))
            return 0
    print(
        "\n".join([*found, f"{len(found)} files differ" if found else "the gallery is up to date"])
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
