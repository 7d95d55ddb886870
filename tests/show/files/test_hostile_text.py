"""Names and units of any kind: every format is written, well-formed, without a warning, and stays
small.
"""

import io
import json
import warnings
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from ppsim.analysis.tradeoff import Point, tradeoff
from ppsim.base.json_output import dump_json
from ppsim.cli import group
from ppsim.engine.memory.usage import activation_model, curves
from ppsim.show.drawing.canvas import MissingGlyph, write_figure
from ppsim.show.drawing.tradeoff import figure_of
from ppsim.show.files.document import Document, formats
from tests.cases import timed

TEXTS = {
    "formula": r"t_$\bad{$",
    "dollars": "a $x$ b $",
    "control": "a\x00b\x1b[31m\x07\ufffe",
    "lines": "a\nb\r\n%% c\u2028d",
    "markup": "[/] [bold red] </script><!-- &amp; ]]>",
    "surrogate": "a\ud800b\udcff",
    "chinese": "一秒",
    "long": "x" * 100_000,
    "empty": "",
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", sorted(set(formats()) - {".csv"}))
@pytest.mark.parametrize("text", TEXTS)
def test_any_name_and_unit_is_written(suffix, text):
    timeline = replace(timed("1f1b", 2, 2), unit=TEXTS[text])
    timeline = replace(timeline, schedule=replace(timeline.schedule, name=TEXTS[text]))
    memory = (curves(timeline, activation_model(timeline.schedule)),)
    document = Document((timeline,), (TEXTS[text],), {"command": TEXTS[text]}, memory=memory)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", MissingGlyph)
        formats()[suffix].write(document, out, suffix)
    written = out.getvalue()
    if suffix == ".svg":
        ET.fromstring(written)
    if suffix.endswith("json"):
        assert json.loads(written)
    if suffix == ".mmd":
        assert len(written.decode().splitlines()) == 9 + 2 + len(timeline.schedule)


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_any_name_and_unit_is_drawn_in_time_against_memory(text):
    """As a point's name and as the axis's unit."""
    found = tradeoff([Point(TEXTS[text], 3.0, 4.0), Point("b", 2.0, 5.0)])
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        label = f"makespan ({TEXTS[text]})"
        write_figure(
            lambda: figure_of(found, label, "peak", 5), out, ".svg", title=label, inputs={}
        )
    ET.fromstring(out.getvalue())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("text", ["markup", "formula", "dollars", "chinese", "empty"])
@pytest.mark.parametrize("command", ["run", "compare", "sweep", "jitter"])
def test_any_unit_is_printed(command, text):
    """Brackets are no markup: the unit stands in the output as it was given."""
    options = ["--samples", "10"] if command == "jitter" else []
    args = [command, "1f1b", "--devices", "2", "--mb", "2", "--unit", TEXTS[text], *options]
    result = CliRunner().invoke(group, args, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    if command != "sweep":
        assert TEXTS[text] in result.output


def test_json_takes_strings_and_numbers_of_any_kind():
    """Half characters become U+FFFD, numbers that are not finite null, whole numbers of any size
    stay exact.
    """
    value = {
        "a\ud800": [
            1,
            10**30,
            -(10**30),
            2**64 - 1,
            -(2**63),
            True,
            np.arange(2),
            (1.5, float("inf")),
        ]
    }
    expected = {"a\ufffd": [1, 10**30, -(10**30), 2**64 - 1, -(2**63), True, [0, 1], [1.5, None]]}
    assert json.loads(dump_json(value)) == expected
    with pytest.raises(TypeError):
        dump_json({"a": object()})
