"""README's first screen has its pictures, in words too; what any page of words points to is
there.
"""

import re
from pathlib import Path

import pytest

from ppsim.schedules import families
from tests.gallery.__main__ import count_schedules

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_picture_of_readme_is_there_and_has_words():
    shown = re.findall(r"!\[(.*?)\]\(([^)]+)\)", README) + re.findall(
        r'<img alt="(.*?)" src="(.*?)"', README
    )
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


def test_readme_is_short_and_says_first_what_to_install():
    """Under 700 words, of which the first block installs; the project that has the short name is
    named.
    """
    assert len(README.split()) < 700
    first = README.split("```")[1]
    assert first.startswith("sh\npip install ppsim-pipeline ")
    assert '"ppsim" on the index is another project' in first
    count = f"ppsim generates {len(families())} schedules"
    assert count in README, "the count is old: run python -m tests.gallery"
    assert count_schedules(README.replace(count, "ppsim generates 1 schedules")) == README


def test_readme_has_the_gain_between_two_simulations_too():
    """A measured step has times of hosts that no simulation has: the guide has explain's answer."""
    said = re.search(
        r"Against\s+a\s+simulated\s+1F1B\s+\(`ppsim explain`\)\s+the\s+gain\s+is\s+([\d.]+%)",
        README,
    )
    assert said
    guide = (ROOT / "gallery" / "guides" / "read-your-own-trace.md").read_text()
    assert f"of those that do not, zb-1p is fastest ({said[1]} less)" in guide


def test_readme_says_of_its_picture_what_the_picture_shows():
    """Both steps and the gain, in words for who cannot see it; the picture has no numbers but
    these.
    """
    title = re.search(r"<title>(.*?)</title>", (ROOT / "gallery" / "hero.svg").read_text())
    assert title
    numbers = re.findall(r"[\d,]+ ms|[\d.]+%", title[1])
    assert len(numbers) == 3
    words = re.search(r'<img alt="(.*?)" src="gallery/hero.svg"', README)
    assert words
    assert [number for number in numbers if number not in words[1]] == []
