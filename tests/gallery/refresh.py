"""Draw the gallery anew, with README's pictures: ``python -m tests.gallery.refresh``; ``--check`` says what differs."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ppsim.cli import group
from ppsim.cli.gallery import links_to
from tests.clock import HANG_S
from tests.gallery.figures import FigureEntry, differing, draw_entry, entry_section, photograph_of, read_figures
from tests.pages import BROWSER, QUIET

GALLERY = Path("gallery")  # as its commands name it, from the top of the repository
COSTS = ("--profile", str(GALLERY / "profile-cpu.toml"))
COMMAND = "python -m tests.gallery.refresh"
SIZE = (1280, 800)  # of a photographed page


def draw(folder: Path, figures: tuple[FigureEntry, ...], *costs: str) -> None:
    """Draw every schedule and every figure into a folder, with the index of both."""
    group.main(["gallery", "-o", str(folder), *costs], prog_name="ppsim", standalone_mode=False)
    for entry in figures:
        draw_entry(entry, folder)
    sections = [entry_section(entry) for entry in figures]
    index = folder / "README.md"
    head, first, rest = index.read_text().partition("\n## ")
    begin, _, schedules = head.partition("\n    ppsim gallery")
    schedules = schedules.partition("\n")[2]
    contents = f"Pictures: {links_to(sections)}.\n{schedules}"
    made = (
        f"{begin}\n    {COMMAND}\n\n<details><summary>All pictures and schedules</summary>\n\n{contents}\n</details>\n"
    )
    index.write_text("\n".join([made, *sections]) + f"{first}{rest}")


def photograph(page: Path, target: Path) -> None:
    """Keep a page as a browser shows it, two thirds as large."""
    if BROWSER is None:
        print(f"no browser: {target} stays as it is", file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as profile:
        flags = [f"--user-data-dir={profile}", "--virtual-time-budget=5000", "--force-device-scale-factor=0.67"]
        flags += [f"--window-size={SIZE[0]},{SIZE[1]}", "--hide-scrollbars", f"--screenshot={target.resolve()}"]
        command = [str(BROWSER), *QUIET, *flags, page.resolve().as_uri()]
        subprocess.run(command, capture_output=True, timeout=HANG_S, check=True)


def main(words: list[str]) -> int:
    """Draw it, or say what would differ; 2 where other words are given."""
    if words not in ([], ["--check"]):
        print(f"{COMMAND} takes --check or nothing, got {shlex.join(words)}; it draws every file", file=sys.stderr)
        return 2
    figures = read_figures(str(GALLERY / "figures.toml"))
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), figures, *COSTS)
        found = differing(GALLERY, Path(folder))
        if not words:
            for path in Path(folder).iterdir():
                shutil.copy(path, GALLERY)
            for entry in figures:
                if photograph_of(entry):
                    photograph(GALLERY / entry.file, GALLERY / photograph_of(entry))
            return 0
    print("\n".join([*found, f"{len(found)} files differ" if found else "the gallery is up to date"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
