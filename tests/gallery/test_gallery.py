"""The gallery shows every schedule of the registry and every figure of its list, drawn as they are
drawn now.
"""

import re
from pathlib import Path

import pytest

from ppsim.errors import InputError
from ppsim.schedules import families, find
from tests.gallery import __main__ as gallery
from tests.gallery.figures import differing, read_figures

ROOT = Path(__file__).parents[2]
GALLERY = ROOT / "gallery"
INDEX = (GALLERY / "README.md").read_text()


def test_every_schedule_has_its_pictures_and_its_words():
    """One section with title, idea and pictures per schedule, and no picture of a schedule that is
    gone.
    """
    wanting = [
        family.name
        for family in families()
        if f"## {family.title}\n\n{family.idea}\n\n<img" not in INDEX
        or f'"{family.name}.svg"' not in INDEX
        or f'"{family.name}-costs.svg"' not in INDEX
    ]
    assert not wanting, f"{wanting} not drawn: run python -m tests.gallery"
    figures = read_figures(str(GALLERY / "figures.toml"))
    assert INDEX.count("\n## ") == len(families()) + len(figures)
    named = set(re.findall(r'(?:\]\(|src="|href=")([^)/#"]+)[)"]', INDEX))
    drawn = {
        path.name for path in GALLERY.iterdir() if path.suffix in (".svg", ".png", ".gif", ".html")
    }
    assert drawn - named == {"growth.svg", "hero.svg"}
    assert named <= drawn


def test_every_picture_has_a_text_of_its_own():
    assert all(len(words.split()) > 5 for words in re.findall(r'alt="(.*?)"', INDEX))


def test_the_text_of_published_runs_has_the_errors_of_its_picture():
    drawn = re.findall(r"within ([\d.]+%)<", (GALLERY / "published.svg").read_text())
    text = re.search(r'<img alt="(.*?)" src="published.svg"', INDEX)
    assert text
    assert re.findall(r"within ([\d.]+%)", text[1]) == sorted(drawn, key=lambda p: float(p[:-1]))


@pytest.mark.slow
def test_the_gallery_is_as_it_is_drawn_now(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert f"\n    {gallery.COMMAND}\n" in INDEX
    assert gallery.main(["--check"]) == 0


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """The list of a gallery of one schedule and two figures, not drawn yet."""
    monkeypatch.setattr("ppsim.schedules.families", lambda: [find("zb-1p")])
    monkeypatch.chdir(tmp_path)
    Path("list.toml").write_text(
        'schema = "ppsim.figures/1"\n'
        '[[figure]]\nfile = "a.svg"\ntitle = "A"\n'
        'command = "run gpipe --stages 2 --mb 2"\nsee = "See."\nalt = "Words"\n'
        '[[figure]]\nfile = "b.json"\ntitle = "B"\ncommand = "run 1f1b --stages 2 --mb 2"\nsee = '
        '"Read."\n'
    )
    return read_figures("list.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            '"a.svg"',
            '"../a.svg"',
            "line 3: 'file' in [[figure]] must be a name without a folder, such as a.svg, got "
            "'../a.svg'",
        ),
        ('"a.svg"', '"/tmp/a.svg"', "must be a name without a folder"),
        ('"a.svg"', '"-"', "must be a name without a folder"),
        ('"a.svg"', '""', "must be a name without a folder"),
        ('"a.svg"', '"b.json"', "must have a file each, got 'b.json' twice"),
        ('"a.svg"', "7", "'file' must be text, got 7"),
        ("--mb 2", "--mb 2 -o x.svg", "without -o"),
        ("--mb 2", "--mb 2 --output=x.svg", "without -o"),
        ("--mb 2", "'2", "is no command line: No closing quotation"),
        ("see = ", "seen = ", "unknown key 'seen'"),
    ],
)
def test_a_list_at_fault_is_refused_with_its_place(listed, old, new, said):
    assert len(listed) == 2
    Path("list.toml").write_text(Path("list.toml").read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=re.escape(said)):
        read_figures("list.toml")


@pytest.mark.slow
def test_what_differs_is_said(listed):
    Path("gallery").symlink_to(GALLERY)
    gallery.draw(Path("g"), listed)
    gallery.draw(Path("again"), listed)
    assert differing(Path("g"), Path("again")) == []
    text = Path("g/README.md").read_text()
    assert (
        "Pictures: [A](#a), [B](#b).\n\nSchedules: [ZB-1P](#zb-1p).\n\n</details>\n\n## A\n" in text
    )
    assert (
        '## A\n\nSee.\n\n<img alt="Words" src="a.svg" width="100%">\n\n    ppsim run gpipe '
        "--stages 2 --mb 2 -o a.svg\n" in text
    )
    assert '<a href="b.json">b.json</a>' in text
    Path("g/a.svg").unlink()
    Path("g/zb-1p.svg").write_text("<svg/>")
    assert differing(Path("g"), Path("again")) == ["a.svg: missing", "zb-1p.svg: changed"]
