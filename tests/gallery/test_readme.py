"""README's first screen: its pictures are there, and the dark one is the light one in other colours."""

import re
from pathlib import Path

from ppsim.show.drawing.palette import CAUSE_DARK, CAUSE_FILL
from tests.gallery.readme import WIDE, darken

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_every_picture_of_readme_is_there_and_has_words():
    shown = re.findall(r"!\[(.*?)\]\(([^)]+)\)", README) + re.findall(r'<img alt="(.*?)" src="(.*?)"', README)
    assert len(shown) > 4
    for words, name in [*shown, *(("of the same in dark", name) for name in re.findall(r'srcset="(.*?)"', README))]:
        assert (ROOT / name).is_file(), name
        assert len(words.split()) > 4


def test_the_dark_picture_is_the_light_one_in_dark_colours():
    light = (ROOT / "gallery" / WIDE).read_text()
    dark = darken(light)
    assert (ROOT / "gallery" / "readme" / "measured-dark.svg").read_text() == dark
    assert dark.count("<path") == light.count("<path")
    for name in ("compute", "fill", "drain"):
        assert f"fill: {CAUSE_FILL[name].lower()}" in light
        assert f"fill: {CAUSE_DARK[name]}" in dark
        assert CAUSE_FILL[name].lower() not in dark
