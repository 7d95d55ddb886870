"""README's first screen has its pictures, in words too; what any page of words points to is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_picture_of_readme_is_there_and_has_words():
    shown = re.findall(r"!\[(.*?)\]\(([^)]+)\)", README) + re.findall(r'<img alt="(.*?)" src="(.*?)"', README)
    assert len(shown) > 4
    for words, name in shown:
        assert (ROOT / name).is_file(), name
        assert len(words.split()) > 4


# Pages of the site lead to pages that are made as it is built: tests/site checks them.
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("gallery/*.md"), *ROOT.glob("gallery/guides/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_pointed_to_is_there(page):
    words = re.sub(r"^    [^\n]*$|```.*?```", "", page.read_text(), flags=re.M | re.S)
    named = re.findall(r'(?:\]\(|(?:src|srcset|href)=")(?!https?:|mailto:|#)([^)#"]+)', words)
    assert [name for name in named if not (page.parent / name).is_file()] == []
