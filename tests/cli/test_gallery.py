"""The gallery shows every schedule of the registry and every figure of its list, drawn as they are drawn now."""

import re
import shutil
from pathlib import Path

import pytest

from ppsim.cli._gallery import read_figures
from ppsim.schedules import families, find
from tests.commands import invoke, refused

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "gallery"
INDEX = (GALLERY / "README.md").read_text()


def test_every_schedule_has_its_pictures_and_its_words():
    """One section with title, idea and pictures per schedule, and no picture of a schedule that is gone."""
    for family in families():
        assert f"## {family.title}\n\n{family.idea}\n\n![" in INDEX, family.name
        assert f"({family.name}.svg)" in INDEX, family.name
        assert f"({family.name}-costs.svg)" in INDEX, family.name
    figures = read_figures(str(GALLERY / "figures.toml"))
    assert INDEX.count("\n## ") == len(families()) + len(figures)
    named = set(re.findall(r"\]\(([^)/#]+)\)", INDEX))
    drawn = {path.name for path in GALLERY.iterdir() if path.suffix in (".svg", ".png", ".gif", ".html")}
    assert drawn - named == {"growth.svg"}
    assert named <= drawn


def test_every_picture_has_a_text_of_its_own():
    assert all(len(words.split()) > 5 for words in re.findall(r"!\[(.*?)\]", INDEX))


@pytest.mark.slow
def test_the_gallery_is_as_its_command_draws_it_now(monkeypatch):
    monkeypatch.chdir(ROOT)
    command = re.search(r"^    ppsim (.*)$", INDEX, re.MULTILINE)
    assert command
    result = invoke(*command[1].split(), "--check")
    assert (result.stdout, result.exit_code) == ("the gallery is up to date\n", 0)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A gallery of one schedule and two figures."""
    monkeypatch.setattr("ppsim.schedules.families", lambda: [find("zb-1p")])
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(
        'schema = "ppsim.figures/1"\n'
        '[[figure]]\nfile = "a.svg"\ntitle = "A"\n'
        'command = "run gpipe --stages 2 --mb 2"\nsee = "See."\nalt = "Words"\n'
        '[[figure]]\nfile = "b.json"\ntitle = "B"\ncommand = "run 1f1b --stages 2 --mb 2"\nsee = "Read."\n'
    )
    words = ["gallery", "-o", "g", "--figures", "list.toml"]
    assert invoke(*words).exit_code == 0
    return words


def test_check_changes_nothing_and_says_what_differs(small):
    assert invoke(*small, "--check").stdout == "the gallery is up to date\n"
    text = Path("g/README.md").read_text()
    assert "## A\n\nSee.\n\n![Words](a.svg)\n\n    ppsim run gpipe --stages 2 --mb 2 -o a.svg\n" in text
    assert "[b.json](b.json)" in text
    Path("g/a.svg").unlink()
    Path("g/zb-1p.svg").write_text("<svg/>")
    result = invoke(*small, "--check")
    assert (result.stdout, result.exit_code) == ("a.svg: missing\nzb-1p.svg: changed\n2 files differ\n", 1)
    assert not Path("g/a.svg").exists()


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('"a.svg"', '"../a.svg"', "is not a name alone"),
        ('"b.json"', '"a.svg"', "is there twice"),
        ('see = "Read."', "", "see"),
        ("run gpipe", "run gpip", "unknown schedule 'gpip'"),
    ],
)
def test_a_list_with_a_fault_is_refused(small, old, new, why):
    Path("list.toml").write_text(Path("list.toml").read_text().replace(old, new))
    assert why in str(refused(*small))


def test_no_folder_to_check_is_told(small):
    assert "no folder" in str(refused("gallery", "-o", "none", "--check"))
    shutil.rmtree("g")
    Path("g").mkdir()
    Path("g/README.md").write_text("mine")
    assert "is no gallery's index" in str(refused(*small))
