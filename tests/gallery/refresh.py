"""Draw the gallery anew: ``python -m tests.gallery.refresh``; with ``--check``, say what would differ."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from ppsim.cli import group
from ppsim.cli.gallery import links_to
from tests.gallery.figures import FigureEntry, differing, draw_entry, entry_section, read_figures

GALLERY = Path("gallery")  # as its commands name it, from the top of the repository
COSTS = ("--profile", str(GALLERY / "profile-cpu.toml"))
COMMAND = "python -m tests.gallery.refresh"


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


def main(words: list[str]) -> int:
    """Draw it, or say what would differ; 2 where other words are given."""
    if words not in ([], ["--check"]):
        print(f"{COMMAND} takes --check or nothing, got {shlex.join(words)}; it draws every file", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        draw(Path(folder), read_figures(str(GALLERY / "figures.toml")), *COSTS)
        found = differing(GALLERY, Path(folder))
        if not words:
            for path in Path(folder).iterdir():
                shutil.copy(path, GALLERY)
            return 0
    print("\n".join([*found, f"{len(found)} files differ" if found else "the gallery is up to date"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
