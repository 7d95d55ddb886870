"""README's first screen: its pictures are there, in words too."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_picture_of_readme_is_there_and_has_words():
    shown = re.findall(r"!\[(.*?)\]\(([^)]+)\)", README) + re.findall(r'<img alt="(.*?)" src="(.*?)"', README)
    assert len(shown) > 4
    for words, name in shown:
        assert (ROOT / name).is_file(), name
        assert len(words.split()) > 4
