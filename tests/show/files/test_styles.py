"""Styles of pages are packed without a change of what they say."""

import re

import pytest

from ppsim.show.files.page_parts import join_parts, strip_spaces

STYLES = [
    "theme.css",
    "points.css",
    "report.css",
    "report_late.css",
    "report_rows.css",
    "report_map.css",
    "plan.css",
    "front.css",
]


@pytest.mark.parametrize("name", STYLES)
def test_a_packed_style_keeps_its_texts_and_its_words(name):
    """All quoted texts are as they were, and without spaces both are alike."""
    style = join_parts((name,))
    packed = strip_spaces(style)
    written = re.sub(r"/\*.*?\*/", "", style, flags=re.S)
    assert re.findall(r'"[^"]*"', packed) == re.findall(r'"[^"]*"', written)
    bare = [re.sub(r"\s", "", each).replace(";}", "}") for each in (written, packed)]
    assert bare[0] == bare[1]
    assert len(packed) < len(written)
