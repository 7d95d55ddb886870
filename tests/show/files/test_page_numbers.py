"""Scripts of the page write numbers as the terminal and figures do, and no text of the user's
becomes markup.
"""

import json
import math
import shutil
import subprocess
from dataclasses import replace
from importlib.resources import files

import pytest

from ppsim.base.numbers import align_decimals, format_change, format_number, format_share
from ppsim.engine.simple.metrics import measure
from tests.browser import opened
from tests.cases import timed
from tests.pages import page

NODE = shutil.which("node")
NUMBERS = [
    0.0,
    1.0,
    -2.5,
    33.0,
    1 / 3,
    2 / 3e4,
    1e-4,
    9.99e-5,
    1.5e-7,
    1e-12,
    123456.7,
    999999.4,
    999999.6,
    1e6,
]
NUMBERS += [
    1234567.0,
    12345678.9,
    -98765432.1,
    1e14,
    123456789012345.0,
    1e15,
    3e20,
    1e300,
    0.1 + 0.2,
    1e5,
    100000.1,
]
COLUMNS = [
    [33.0, 1 / 3, -90.6752, 3261.4, 0.0],
    [24.0, 27.0],
    [1e-5, 0.25, 12345.0],
    [0.05, 9999.7, 0.99996],
    NUMBERS,
    [],
]


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="no JavaScript outside a browser")
def test_the_page_writes_numbers_as_python_does():
    """``number`` and ``percent`` of the page against the formatter of terminal and figures, digit
    for digit.
    """
    script = (files("ppsim.show.files.writers") / "numbers.js").read_text("utf-8")
    shares = [0.0, 0.2727272, 1.0, -0.136, 3.75, 0.00049]
    asked = f"const [n, s, c] = {json.dumps([NUMBERS, shares, COLUMNS])};"
    asked += (
        "console.log(JSON.stringify([n.map(v => number(v)), s.map(v => percent(v)), "
        "c.map(inColumn)]))"
    )
    run = subprocess.run(
        [str(NODE), "-e", script + asked], capture_output=True, text=True, check=True
    )
    numbers, percents, columns = json.loads(run.stdout)
    assert numbers == [format_number(value) for value in NUMBERS]
    assert percents == [format_share(share) for share in shares]
    assert columns == [align_decimals([*map(format_number, column)]) for column in COLUMNS]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (33.0, "33"),
        (1 / 3, "0.3333"),
        (-90.6752, "−90.68"),
        (3261.4, "3,261"),
        (12345678.9, "12,345,679"),
        (math.inf, "inf"),
    ],
)
def test_numbers_have_four_digits_or_all_before_the_point(value, text):
    assert format_number(value) == text


def test_changes_have_their_sign_and_zero_has_none():
    assert [format_change(c) for c in (0.136, -0.136, 0.0, 1e-6, -1e-6)] == [
        "+13.6%",
        "−13.6%",
        "0.0%",
        "0.0%",
        "0.0%",
    ]


def test_shares_have_one_digit_after_the_point():
    assert [format_share(s) for s in (0.27272, 0.0, 3.75, math.inf)] == [
        "27.3%",
        "0.0%",
        "375.0%",
        "infinite",
    ]
    assert format_share(1e300) == "1e+302%"


@pytest.mark.browser
def test_no_unit_becomes_markup(tmp_path):
    """A unit that is an image with a script stays text, everywhere on a page of several
    timelines.
    """
    unit = "<image href=x onerror=\"document.title='XSSED'\"/>"
    text = page(*(replace(timed(name, 2, 2), unit=unit) for name in ("1f1b", "gpipe")))
    dom = opened(text, tmp_path)
    assert "<title>XSSED</title>" not in dom
    assert "<image href=" not in dom.split('<script type="application/json"')[0]


@pytest.mark.browser
def test_the_peak_above_a_chart_is_in_the_unit_of_its_rows(tmp_path):
    """Activations where all have as many chunks, as beside the rows and in the curve; shares where
    they differ.
    """
    timelines = [timed(name, devices=4, microbatches=8) for name in ("zb-v", "v-min")]
    dom = opened(page(*timelines), tmp_path)
    peaks = [int(measure(timeline).peak_activations.max()) for timeline in timelines]
    for peak in peaks:
        assert f"· peak {peak}<" in dom
