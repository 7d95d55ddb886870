"""The gallery shows every schedule of the registry, drawn as it is drawn now."""

import re
import shutil
from pathlib import Path

from ppsim.schedules import families, find
from tests.commands import invoke

GALLERY = Path(__file__).parents[2] / "gallery"


def test_every_schedule_has_its_pictures_and_its_words():
    """One section with title, idea and picture per schedule, and no picture of a schedule that is gone."""
    index = (GALLERY / "README.md").read_text()
    for family in families():
        assert f"## {family.title}\n\n{family.idea}\n\n![" in index, family.name
        assert f"({family.name}.svg)" in index, family.name
    assert index.count("\n## ") == len(families())
    named = {family.name for family in families()}
    assert {path.stem for path in GALLERY.glob("*.png")} == named
    assert {path.stem for path in GALLERY.glob("*.svg")} - named == {"compare", "growth"}


def test_a_picture_drawn_again_is_the_same(tmp_path, monkeypatch):
    """The command that the index names gives the bytes in the repository, but for the version that drew them."""
    monkeypatch.setattr("ppsim.schedules.families", lambda: [find("zb-1p")])
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gallery").mkdir()
    shutil.copy(GALLERY / "profile-cpu.toml", tmp_path / "gallery")
    command = re.search(r"^    ppsim (.*)$", (GALLERY / "README.md").read_text(), re.M)
    assert command
    result = invoke(*command[1].split())
    assert result.exit_code == 0, result.output
    drawn, kept = (unversioned((folder / "zb-1p.svg").read_text()) for folder in (tmp_path / "gallery", GALLERY))
    assert drawn == kept


def unversioned(svg: str) -> str:
    return re.sub(r'(?<="ppsim": ")[^"]*|(?<=<dc:title>ppsim )[^<]*', "", svg)
