"""The guides are true: their commands print what they show, draw their pictures, and prove their
numbers.
"""

from __future__ import annotations

import re

import pytest

from tests.commands import PLAIN
from tests.guides.replay import GUIDES, ROOT, replay, unproved

PICTURE = r'(?:\]\(|src=")images/([^)"\s]+)'
NAMES = sorted(path.stem for path in GUIDES.glob("*.md") if path.stem != "README")


def unversioned(picture: str) -> str:
    return re.sub(r'(?<="ppsim": ")[^"]*|(?<=<dc:title>ppsim )[^<]*', "", picture)


def without_work(guide: str) -> str:
    """Leave out how many splits a search simulated until its proof: the machine's rounding decides
    some.
    """
    return re.sub(r"\([\d,]+ simulated\)", "", guide)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_commands_print_what_the_guide_shows_and_draw_its_pictures(name, tmp_path):
    guide = (GUIDES / f"{name}.md").read_text()
    assert without_work(replay(guide, tmp_path)) == without_work(guide)
    shown = set(re.findall(PICTURE, guide))
    drawn = {path.name for path in (tmp_path / "images").iterdir()}
    assert shown == drawn
    for picture in shown:
        if picture.endswith(".svg"):
            kept = (GUIDES / "images" / picture).read_text()
            assert unversioned((tmp_path / "images" / picture).read_text()) == unversioned(kept), (
                picture
            )


@pytest.mark.parametrize("name", NAMES)
def test_numbers_in_the_prose_come_from_what_is_run(name):
    assert unproved((GUIDES / f"{name}.md").read_text()) == []


@pytest.mark.parametrize(
    "page", [*GUIDES.glob("*.md"), ROOT / "gallery" / "README.md"], ids=lambda page: page.stem
)
def test_a_page_of_words_shows_commands_whole(page):
    lines = re.findall(r"^(?:\$|    ppsim) (?:.*\\\n)*.*", page.read_text(), re.MULTILINE)
    # a text is one word
    lines = [re.sub(r"'[^']*'", "", line) for command in lines for line in command.split("\n")]
    assert [line for line in lines if len(line) >= 100] == []


@pytest.mark.parametrize("name", NAMES)
def test_pictures_have_words_and_links_lead_somewhere(name):
    guide = (GUIDES / f"{name}.md").read_text()
    assert all(
        len((words or alt).split()) >= 5
        for words, alt in re.findall(r'!\[(.*?)\]|alt="(.*?)"', guide, re.DOTALL)
    )
    for target in re.findall(r'(?:\]\(|src=")(?!https?:)([^)#"]+)', guide):
        assert (GUIDES / target).exists(), target


@pytest.mark.parametrize("name", NAMES)
def test_a_guide_begins_with_the_question_of_its_reader(name):
    first = (GUIDES / f"{name}.md").read_text().split("\n\n")[1]
    assert first.endswith("?")
    assert not first.startswith(("#", "```"))


def test_the_index_names_every_guide():
    index = (GUIDES / "README.md").read_text()
    assert re.findall(r"\]\((\S+?)\.md\)", index) == list(
        dict.fromkeys(re.findall(r"\]\((\S+?)\.md\)", index))
    )
    assert set(re.findall(r"\]\((\S+?)\.md\)", index)) == set(NAMES)


def test_the_index_sets_the_terminal_of_the_outputs():
    index = (GUIDES / "README.md").read_text()
    settings = " ".join(f"{name}={value}" for name, value in PLAIN.items())
    assert f"export {settings} " in index
    assert "mkdir images" in index


def test_every_picture_of_a_guide_is_used():
    used = {p for name in NAMES for p in re.findall(PICTURE, (GUIDES / f"{name}.md").read_text())}
    assert {path.name for path in (GUIDES / "images").iterdir()} == used
    assert (ROOT / "gallery" / "guides") == GUIDES
