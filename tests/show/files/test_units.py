"""The unit of times in files: traces are to scale, and trace and Mermaid text are read back in the
unit they state.
"""

import json
from dataclasses import replace

import numpy as np
import pytest

from ppsim.base.times import parse_scaled_unit, scaled_unit
from ppsim.errors import InputError
from ppsim.inputs.drafts.read import read
from ppsim.show.files.document import Document, save
from tests.cases import timed


def written(tmp_path, suffix, unit, factor=1.0, title="1F1B"):
    """The path of a file made from a small timeline in a unit, and the timeline."""
    timeline = timed("1f1b", 2, 2)
    timeline = replace(
        timeline, unit=unit, start=factor * timeline.start, end=factor * timeline.end
    )
    target = str(tmp_path / f"x{suffix}")
    save(Document((timeline,), (title,)), target)
    return target, timeline


@pytest.mark.parametrize(
    ("unit", "microseconds"),
    [("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3), ("t_F", 1e3), ("cycles", 1e3)],
)
def test_a_trace_is_in_real_time(tmp_path, unit, microseconds):
    """Slices last as long as the ops do; a unit without a length is drawn as a millisecond."""
    path, timeline = written(tmp_path, ".trace.json", unit)
    with open(path) as file:
        trace = json.load(file)
    lengths = [
        event["dur"]
        for event in trace["traceEvents"]
        if event["ph"] == "X" and event["cat"] != "idle"
    ]
    assert lengths == ((timeline.end - timeline.start) * microseconds).tolist()
    assert trace["otherData"] == {"unit": unit, "microseconds_per_unit": microseconds}


@pytest.mark.parametrize("suffix", [".trace.json", ".mmd"])
@pytest.mark.parametrize(
    "unit", ["s", "us", "t_F", "k cycles", "", "t / 10", "t / 0", "time in ms", "mm²"]
)
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_a_unit_is_read_back_with_its_times(tmp_path, suffix, unit, factor):
    path, timeline = written(tmp_path, suffix, unit, factor)
    back = read(path)
    assert back.unit == unit
    assert back.end is not None
    np.testing.assert_allclose(back.end, timeline.end, rtol=1e-12)


def test_older_traces_are_read_as_they_were_written(tmp_path):
    """A trace that states no length of its unit draws one as a millisecond, whatever the unit."""
    path, timeline = written(tmp_path, ".trace.json", "us")
    with open(path) as file:
        trace = json.load(file)
    trace["otherData"] = {"costs": {"unit": "us"}}
    for event in trace["traceEvents"]:
        event.update({key: 1000 * event[key] for key in ("ts", "dur") if key in event})
    with open(path, "w") as file:
        json.dump(trace, file)
    back = read(path)
    assert back.unit == "us"
    assert back.end is not None
    np.testing.assert_allclose(back.end, timeline.end)


@pytest.mark.parametrize("stated", [0, -1, "1", None, True, []])
def test_a_trace_with_a_senseless_scale_is_refused(tmp_path, stated):
    path, _ = written(tmp_path, ".trace.json", "us")
    with open(path) as file:
        trace = json.load(file)
    trace["otherData"]["microseconds_per_unit"] = stated
    with open(path, "w") as file:
        json.dump(trace, file)
    with pytest.raises(InputError, match="microseconds_per_unit is not a number above 0"):
        read(path)


@pytest.mark.parametrize(
    "text", ["x\n    click o0 href 'javascript:alert(1)'", "a\r\nb", "a\x1b[31m\x00", "a\u2028b"]
)
def test_no_name_or_unit_adds_a_line_to_mermaid(tmp_path, text):
    """Whatever a name or a unit holds, Mermaid text has the lines it has for plain ones."""
    plain, _ = written(tmp_path, ".mmd", "ms")
    with open(plain, newline="") as file:
        lines = file.read().splitlines()
    path, _ = written(tmp_path, ".mmd", text, title=text)
    with open(path, newline="") as file:
        hostile = file.read().splitlines()
    titles = [number for number, line in enumerate(lines) if line.lstrip().startswith("title")]
    assert len(titles) == 1
    assert [*hostile[: titles[0]], *hostile[titles[0] + 1 :]] == [
        *lines[: titles[0]],
        *lines[titles[0] + 1 :],
    ]
    assert hostile[titles[0]].isprintable()


@pytest.mark.parametrize(
    "unit", ["ms", "", "a / 1", "a / 7", "a / 0", "/ 3", " / 3", "x / y", "x / 3 / 4"]
)
@pytest.mark.parametrize("scale", [1, 10, 10**12])
def test_a_scaled_unit_is_read_back(unit, scale):
    assert parse_scaled_unit(scaled_unit(unit, scale)) == (unit, scale)
